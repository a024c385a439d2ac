"""Two figures of the learners: how well they learn the paper's system, and Autopilot's models by problem.

python tools/learner_figures.py               # takes minutes, and writes to out/
python tools/learner_figures.py --rounds 400  # shorter paths
"""

import argparse
import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from undertow import kalman
from undertow.contenders import Contender
from undertow.problems.families import FAMILIES, Problem
from undertow.simulation import play_in_python, simulate
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.support.display import progress_line
from undertow.support.figure import DPI, LEGEND, SMALL, line_style, log_scale, panels, plain_axis, save_sheet
from undertow.support.folders import naming, require_writable
from undertow.support.numbers import share
from undertow.support.pool import Progress, run_tasks
from undertow.trajectory import Trajectory

__all__ = ["Drawing", "draw_learners"]

ROUNDS = 10_000
FORECAST_RUNS, LEADER_RUNS = 20, 4
PSI = (1, 4)
OWN_REWARDS = Contender("LinUCB + own rewards", "linucb", {"window": 5, "reward_lags": 5})
FORECASTING = (
    Contender("ARES (noise estimated)", "ares"),
    OWN_REWARDS,
    Contender("LearnedKalman", "learned-kalman"),
)
WITH_AUTOPILOT = (Contender("StructuralKalman", "structural-kalman"), OWN_REWARDS)
PLACES = ("data-chicago", "data-bike-sharing", "data-victoria", "paper-1")
BEST = "best fixed arm (hindsight)"
_FIRST, _BINS = 10, 36  # first round of the errors, and the number of bins
_TICKS = (100, 1000, 2500, 5000, 7500, 10_000)
_SPANS = 20  # of rounds, over which the leaders are counted
# Models and lines of the same row have different colours; the structural levels are near StructuralKalman on purpose
_MODELS = {"shared system": "#B5179E", "structural levels": "#D9C24A", "ridge": "#34568B", "start-up": "#CCCCCC"}
_OTHER = "#56B4E9"
_OWN_ERROR = "the true filter's own error: (its forecast − mean)²"
_DASHES: dict[str, Any] = {"StructuralKalman": "--", BEST: (0, (1, 1.2))}  # olive and red look alike to some


class Drawing(NamedTuple):
    """A figure on disk, with a caption of its main numbers."""

    png: Path
    caption: str


class _Errors(NamedTuple):
    """One run of a learner: mean squared distance from the true filter's forecasts per bin; the filter's own error."""

    distance: FloatArray
    own: float


class _Led(NamedTuple):
    """One problem: share of rounds in which each model led, (spans,), and share won so far by each policy, (n,)."""

    leaders: dict[str, FloatArray]
    won: dict[str, FloatArray]


def draw_learners(
    folder: str | os.PathLike[str],
    *,
    rounds: int = ROUNDS,
    runs: tuple[int, int] = (FORECAST_RUNS, LEADER_RUNS),
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Drawing]:
    """Draw learners_forecast.png and learners_leader.png into a folder, which is created if it does not exist.

    Paths have so many rounds; recorded data may be shorter. `runs` are the paths of the paper's systems in the first
    figure, and of every problem in the second: the problems of `undertow.problems.families`, from the first on. There
    is one thread per core by default, and `progress` is called with the number of completed runs and their total.
    """
    rounds = checks.integer("rounds", rounds, least=_SPANS**2)
    threads = checks.thread_count(threads)
    place = Path(folder)
    require_writable(place)
    for name in PLACES:  # fail now, not at the end, if data are not installed
        FAMILIES[name].problem(0).path(1)
    errors = [partial(_errors, FAMILIES[f"paper-{psi}"].problem(run), rounds) for psi in PSI for run in range(runs[0])]
    led = [partial(_lead, FAMILIES[name].problem(run), rounds) for name in PLACES for run in range(runs[1])]
    tasks: list[Callable[[], Any]] = [*errors, *led]
    done = run_tasks(tasks, threads=threads, progress=progress)
    first, second = done[: len(errors)], done[len(errors) :]
    drawn = {
        place / "learners_forecast.png": _forecast(_parts(first, len(PSI)), rounds),
        place / "learners_leader.png": _leader(_parts(second, len(PLACES))),
    }
    with naming(place):
        for png, (sheet, _) in drawn.items():
            save_sheet(sheet, png, dpi=0.8 * DPI)  # on a page of documentation, small
    return [Drawing(png, caption) for png, (_, caption) in drawn.items()]


def _parts(results: Sequence[Any], count: int) -> list[Sequence[Any]]:
    size = len(results) // count
    return [results[size * i : size * (i + 1)] for i in range(count)]


# Forecasts on the paper's system


def _edges(rounds: int) -> npt.NDArray[np.int64]:
    return np.unique(np.geomspace(_FIRST, rounds, _BINS + 1).round().astype(np.int64))


def _errors(problem: Problem, rounds: int) -> dict[str, _Errors]:
    """Compare the forecasts of every learner with those of the true filter along the learner's own history."""
    path, system = problem.path(rounds), problem.system
    assert system is not None
    assert path.means is not None
    result, edges = {}, _edges(rounds)
    for contender in FORECASTING:
        run = simulate(contender.for_path(path, seed=problem.seed), path, record=["forecasts"], threads=1)
        best = kalman.filter(system, path.contexts, path.played(run.arms)).forecasts
        assert run.forecasts is not None
        distance = ((run.forecasts - best) ** 2).mean(axis=1)
        binned = np.add.reduceat(distance, edges[:-1]) / np.diff(np.append(edges[:-1], rounds))
        result[contender.label] = _Errors(binned, float(((best - path.means)[rounds // 2 :] ** 2).mean()))
    return result


def _forecast(results: Sequence[Sequence[dict[str, _Errors]]], rounds: int) -> tuple[Sheet, str]:
    """Draw distances from the true filter's forecasts over rounds, one panel per system."""
    sheet, axes = panels(3.3, columns=len(PSI), sharey=True, gridspec_kw={"wspace": 0.08})
    edges = _edges(rounds)
    middle = np.sqrt(edges[:-1] * edges[1:])
    words = []
    for axis, psi, runs in zip(axes, PSI, results, strict=True):
        y = "(forecast − true filter's)², mean over arms" if psi == PSI[0] else ""
        plain_axis(axis, f"psi = {psi}", y, "round")
        ends = []
        for label in (contender.label for contender in FORECASTING):
            values = np.array([run[label].distance for run in runs])
            low, median, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
            look = line_style(label) | {"lw": 1.8}
            axis.fill_between(middle, low, high, color=look["color"], alpha=0.15, lw=0)
            axis.plot(middle, median, **look)
            ends.append(f"{label} {median[-1]:.2g}")
        own = float(np.median([run["LearnedKalman"].own for run in runs]))
        axis.axhline(own, color="black", lw=1.2, ls=(0, (3, 2)), label=_OWN_ERROR)
        words.append(f"psi = {psi}: {', '.join(ends)}; the true filter's own error {own:.2g}")
        axis.set_xscale("log", subs=[])
        axis.set_xlim(_FIRST, rounds)
        axis.xaxis.set_major_locator(LogLocator(10))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    log_scale(axes[0])
    axes[0].yaxis.set_major_locator(LogLocator(10))
    sheet.legend(handles=axes[0].get_lines(), ncols=2, **LEGEND)
    return sheet, (
        f"Squared distance of the forecasts of all arms from those of a filter that knows the system and sees the same "
        f"log; medians and quartiles over {len(results[0])} runs. In the last bin, {'. '.join(words)}."
    )


# Which model leads


def _lead(problem: Problem, rounds: int) -> _Led:
    """Play Autopilot live, since only its decisions name the model that made them; simulate the others."""
    path = problem.path(rounds)
    n = path.rounds
    policy = Contender("Autopilot", "autopilot").for_path(path, seed=problem.seed)
    played = play_in_python(policy, path.contexts, path.features, path.rewards.item, context_first=False)
    decisions = list(played)
    names = [decision.why.model for decision in decisions if decision.why]
    first = _spans(n)
    leaders = {
        name: np.add.reduceat(np.array([led == name for led in names], dtype=float), first) / np.diff([*first, n])
        for name in dict.fromkeys(names)
    }
    won = {"Autopilot": _won(path, np.array([decision.arm for decision in decisions]))}
    for contender in WITH_AUTOPILOT:
        run = simulate(contender.for_path(path, seed=problem.seed), path, threads=1)
        won[contender.label] = _won(path, run.arms)
    assert path.means is not None
    won[BEST] = _won(path, np.full(n, path.means.mean(axis=0).argmax()))
    return _Led(leaders, won)


def _spans(n: int) -> npt.NDArray[np.int64]:
    """Return the first rounds of spans that are equally long on the scale of √t."""
    return np.asarray(n * (np.arange(_SPANS) / _SPANS) ** 2, dtype=np.int64)


def _won(path: Trajectory, arms: npt.NDArray[np.int64]) -> FloatArray:
    """Return the share won up to each round: 0 for random choice, 1 for a player who knows the means."""
    assert path.means is not None
    at_random = np.cumsum(path.means.max(axis=1) - path.means.mean(axis=1))
    return share(-path.regret(arms), -at_random, 0.0)


def _leader(results: Sequence[Sequence[_Led]]) -> tuple[Sheet, str]:
    """Draw the leading models and the share won over rounds, one row per problem."""
    sheet, axes = panels(1.5 * len(PLACES) + 0.8, len(PLACES), 2, sharex="row")
    words = []
    for (left, right), name, runs in zip(axes, PLACES, results, strict=True):
        n = len(runs[0].won["Autopilot"])
        title = FAMILIES[name].title.removeprefix("recorded: ")
        title = title[0].upper() + title[1:]
        plain_axis(left, title, "rounds led, %")
        plain_axis(right, "", "share won so far, %")
        words.append(f"{title}: led by {_leaders(left, runs, n)}; won by {_shares(right, runs, n)}")
        for axis in (left, right):
            axis.set_xscale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0.0)), np.square))
            axis.set(xlim=(0, n), xticks=[tick for tick in _TICKS if tick <= n])
            axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    for axis in axes[-1]:
        axis.set_xlabel("round, on a scale of √t", fontsize=SMALL)
    models, policies = (_legend(column) for column in axes.T)
    known = {name: models[name] for name in sorted(models, key=_place)} | policies
    sheet.legend(known.values(), known.keys(), ncols=4, **LEGEND)
    return sheet, (
        "Left: the share of rounds that each of Autopilot's models led. Right: the share of the achievable gain won so "
        f"far, 0 for a random choice. Means over {len(results[0])} runs. At the end, in %: {'. '.join(words)}."
    )


def _leaders(axis: Axes, runs: Sequence[_Led], n: int) -> str:
    order = sorted(dict.fromkeys(name for run in runs for name in run.leaders), key=_place)
    nothing = np.zeros(_SPANS)
    mean = {name: 100 * np.mean([run.leaders.get(name, nothing) for run in runs], axis=0) for name in order}
    middle = n * ((np.arange(_SPANS) + 0.5) / _SPANS) ** 2
    across, lengths = np.concatenate([[0], middle, [n]]), np.diff([*_spans(n), n])
    heights = [np.concatenate([values[:1], values, values[-1:]]) for values in mean.values()]
    colours = [_MODELS.get(name, _OTHER) for name in order]
    axis.stackplot(across, *heights, colors=colours, labels=order, alpha=0.85, lw=0)
    axis.set(ylim=(0, 100), yticks=(0, 50, 100))
    whole = {name: float(values @ lengths) / n for name, values in mean.items()}
    return ", ".join(f"{name} {share:.1f}" for name, share in whole.items())


def _shares(axis: Axes, runs: Sequence[_Led], n: int) -> str:
    ends, begin, lowest = {}, min(100, n // 4), 100.0
    for label in runs[0].won:
        mean = 100 * np.mean([run.won[label] for run in runs], axis=0)
        look = line_style(label) | {"lw": 1.8 if label == "Autopilot" else 1.3, "ls": _DASHES.get(label, "-")}
        if label == BEST:
            look["color"] = "black"
        else:
            lowest = min(lowest, float(mean[n // 10 :].min()))
        shown = np.linspace(math.sqrt(begin), math.sqrt(n - 1), 250) ** 2
        axis.plot(shown, mean[shown.astype(np.int64)], **look)
        ends[label] = float(mean[-1])
    bottom, top = 10 * math.floor(lowest / 10) - 5, axis.get_ylim()[1]
    fixed = 100 * float(np.mean([run.won[BEST] for run in runs], axis=0)[n // 10 :].min())
    far = top - fixed > 2 * (top - bottom)  # its curve would squeeze all the others
    axis.set_ylim(bottom - 0.2 * (top - bottom) if far else min(bottom, 5 * math.floor(fixed / 5)), top)
    if far:
        text = f"the best fixed arm ends at {ends[BEST]:.0f} %"
        axis.text(0.99, 0.04, text, transform=axis.transAxes, ha="right", va="bottom", fontsize=SMALL)
    return ", ".join(f"{label} {end:.1f}" for label, end in ends.items())


def _place(model: str) -> int:
    """Return the place of a model in the stack and the legend."""
    return [*_MODELS, model].index(model)


def _legend(axes: npt.NDArray[Any]) -> dict[str, Any]:
    pairs = (pair for axis in axes for pair in zip(*axis.get_legend_handles_labels(), strict=True))
    return {label: handle for handle, label in pairs}


def main(given: Sequence[str] | None = None) -> None:
    """Draw the figures, and print their captions."""
    parser = argparse.ArgumentParser(description="Plot what learners learn, and which model Autopilot uses.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of each path (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads (default: all cores)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the figures (default: %(default)s)")
    chosen = parser.parse_args(given)
    drawings = draw_learners(chosen.out, rounds=chosen.rounds, threads=chosen.threads, progress=progress_line("runs"))
    for drawing in drawings:
        print(f"{drawing.png}: {drawing.caption}")


if __name__ == "__main__":
    main()
