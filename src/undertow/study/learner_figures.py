"""Two figures of the learners: what they learned of the paper's system, and which model Autopilot follows where."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from undertow import _checks, kalman
from undertow._checks import FloatArray
from undertow.policies import make
from undertow.simulation import simulate
from undertow.study.drawing import DPI, LEGEND, SMALL, WIDTH, line_style, log_scale, plain_axis
from undertow.study.families import FAMILIES, Problem
from undertow.study.folders import naming, require_writable
from undertow.trajectory import Trajectory

__all__ = ["Drawing", "draw_learners"]

ROUNDS = 10_000
FORECAST_RUNS, LEADER_RUNS = 20, 4
PSI = (1, 4)
LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ARES (noise estimated)": ("ares", {}),
    "LinUCB + own rewards": ("linucb", {"window": 5, "reward_lags": 5}),
    "LearnedKalman": ("learned-kalman", {}),
}
PLAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "StructuralKalman": ("structural-kalman", {}),
    "LinUCB + own rewards": ("linucb", {"window": 5, "reward_lags": 5}),
}
PLACES = ("data-chicago", "data-bike-sharing", "data-victoria", "paper-1")
BEST = "best fixed arm (hindsight)"
_FIRST, _BINS = 10, 36  # round from which errors are drawn, and how many bins to the last
_TICKS = (100, 1000, 2500, 5000, 7500, 10_000)
_SPANS = 20  # of rounds, over which the leaders are counted
# No colour of a model is that of a line beside it; the structural levels are near StructuralKalman on purpose
_MODELS = {"shared system": "#B5179E", "structural levels": "#D9C24A", "ridge": "#34568B", "start-up": "#CCCCCC"}
_OTHER = "#56B4E9"
_OWN_ERROR = "the true filter's own error: (its forecast − mean)²"
_DASHES: dict[str, Any] = {"StructuralKalman": "--", BEST: (0, (1, 1.2))}  # olive and red look alike to some


class Drawing(NamedTuple):
    """A figure that was written, and what it shows in numbers."""

    png: Path
    caption: str


class _Errors(NamedTuple):
    """Of one run and learner: mean squared distance from the true filter's forecasts in each bin, and its own error."""

    distance: FloatArray
    own: float


class _Led(NamedTuple):
    """Of one problem: share of rounds in which each model led, (spans,), and share won so far of each player, (n,)."""

    leaders: dict[str, FloatArray]
    won: dict[str, FloatArray]


def draw_learners(
    folder: str | os.PathLike[str],
    *,
    rounds: int = ROUNDS,
    runs: tuple[int, int] = (FORECAST_RUNS, LEADER_RUNS),
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Drawing]:
    """Draw learners_forecast.png and learners_leader.png into a folder.

    Parameters
    ----------
    folder
        Where to; made if it is not there.
    rounds
        Rounds of each path; recorded data end earlier where they are shorter.
    runs
        Paths of the paper's systems in the first figure, and of every problem in the second: the problems of
        `undertow.study.families`, from the first on.
    threads
        How many threads share the runs, by default all cores.
    progress
        Called with the number of runs that are done and their total.
    """
    rounds = _checks.integer("rounds", rounds, least=_SPANS**2)
    threads = _checks.integer("threads", os.cpu_count() if threads is None else threads, least=1)
    place = Path(folder)
    require_writable(place)
    for name in PLACES:  # data that are not installed are missed now, not in the end
        FAMILIES[name].problem(0).path(1)
    errors = [partial(_errors, FAMILIES[f"paper-{psi}"].problem(run), rounds) for psi in PSI for run in range(runs[0])]
    led = [partial(_lead, FAMILIES[name].problem(run), rounds) for name in PLACES for run in range(runs[1])]
    done = _share([*errors, *led], threads, progress or (lambda done, total: None))
    first = [next(done) for _ in errors]
    second = list(done)
    with naming(place):
        return [
            _write(place / "learners_forecast.png", *_forecast(_parts(first, len(PSI)), rounds)),
            _write(place / "learners_leader.png", *_leader(_parts(second, len(PLACES)))),
        ]


def _share(tasks: Sequence[Callable[[], Any]], threads: int, progress: Callable[[int, int], None]) -> Iterator[Any]:
    """Yield what the tasks return, in order, from several threads."""
    progress(0, len(tasks))
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(task) for task in tasks]
        try:
            for number, future in enumerate(futures, start=1):
                result = future.result()
                progress(number, len(tasks))
                yield result
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _parts(results: Sequence[Any], count: int) -> list[Sequence[Any]]:
    size = len(results) // count
    return [results[size * i : size * (i + 1)] for i in range(count)]


def _write(png: Path, sheet: Sheet, caption: str) -> Drawing:
    sheet.savefig(png, dpi=0.8 * DPI)  # on a page of documentation, small
    return Drawing(png, caption)


# What was learned of the paper's system


def _edges(rounds: int) -> npt.NDArray[np.int64]:
    return np.unique(np.geomspace(_FIRST, rounds, _BINS + 1).round().astype(np.int64))


def _errors(problem: Problem, rounds: int) -> dict[str, _Errors]:
    """Compare the forecasts of every learner with those of the true filter along the learner's own log."""
    path, system = problem.path(rounds), problem.system
    assert system is not None
    assert path.means is not None
    result = {}
    for label, (name, parameters) in LEARNERS.items():
        policy = make(name, arms=path.arm_count, context_dim=path.context_dim, rng=problem.seed, **parameters)
        run = simulate(policy, path, record=["forecasts"], threads=1)
        seen = np.full(path.rewards.shape, math.nan)
        seen[np.arange(rounds), run.arms] = run.rewards
        best = kalman.filter(system, path.contexts, seen).forecasts
        assert run.forecasts is not None
        distance = ((run.forecasts - best) ** 2).mean(axis=1)
        edges = _edges(rounds)
        binned = np.add.reduceat(distance, edges[:-1]) / np.diff(np.append(edges[:-1], rounds))
        result[label] = _Errors(binned, float(((best - path.means)[rounds // 2 :] ** 2).mean()))
    return result


def _forecast(results: Sequence[Sequence[dict[str, _Errors]]], rounds: int) -> tuple[Sheet, str]:
    """Draw distances from the true filter's forecasts over rounds, one panel a system."""
    sheet = Sheet(figsize=(WIDTH, 3.3), layout="constrained")
    axes = sheet.subplots(1, len(PSI), sharey=True, gridspec_kw={"wspace": 0.08})
    edges = _edges(rounds)
    middle = np.sqrt(edges[:-1] * edges[1:])
    words = []
    for axis, psi, runs in zip(axes, PSI, results, strict=True):
        plain_axis(axis, f"psi = {psi}", "" if psi != PSI[0] else "(forecast − true filter's)², mean over arms")
        ends = []
        for label in LEARNERS:
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
        axis.set_xlabel("round", fontsize=SMALL)
    log_scale(axes[0])
    axes[0].yaxis.set_major_locator(LogLocator(10))
    axes[0].yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    sheet.legend(handles=axes[0].get_lines(), ncols=2, **LEGEND)
    return sheet, (
        f"Squared distance of the forecasts of all arms from those of a filter that knows the system and sees the same "
        f"log; medians and quartiles over {len(results[0])} runs. In the last bin, {'. '.join(words)}."
    )


# Which model leads


def _lead(problem: Problem, rounds: int) -> _Led:
    """Play Autopilot by hand, since only a decision tells which model made it, and others beside it."""
    path = problem.path(rounds)
    n = path.rounds
    policy = make("autopilot", **_sizes(path, problem.seed))
    takes, sees = path.features.shape[1] > 0, path.context_dim > 0
    names, arms = [], np.empty(n, dtype=np.int64)
    for t in range(n):
        decision = policy.decide(path.features[t] if takes else None)
        policy.learn(decision, float(path.rewards[t, decision.arm]))
        if sees:
            policy.observe(path.contexts[t])
        assert decision.why is not None
        names.append(decision.why.model)
        arms[t] = decision.arm
    first = _spans(n)
    leaders = {
        name: np.add.reduceat(np.array([led == name for led in names], dtype=float), first) / np.diff([*first, n])
        for name in dict.fromkeys(names)
    }
    won = {"Autopilot": _won(path, arms)}
    for label, (name, parameters) in PLAYERS.items():
        player = make(name, **_sizes(path, problem.seed), **parameters)
        won[label] = _won(path, simulate(player, path, threads=1).arms)
    assert path.means is not None
    won[BEST] = _won(path, np.full(n, path.means.mean(axis=0).argmax()))
    return _Led(leaders, won)


def _spans(n: int) -> npt.NDArray[np.int64]:
    """Return where spans begin that are equally long on the scale of √t."""
    return np.asarray(n * (np.arange(_SPANS) / _SPANS) ** 2, dtype=np.int64)


def _sizes(path: Trajectory, seed: int) -> dict[str, int]:
    q, m = path.features.shape[1], path.context_dim
    return {"arms": path.arm_count, "context_dim": m, "feature_dim": q, "rng": seed}


def _won(path: Trajectory, arms: npt.NDArray[np.int64]) -> FloatArray:
    """Return the share won up to each round: 0 for a random choice, 1 for one who knows the means."""
    assert path.means is not None
    at_random = np.cumsum(path.means.max(axis=1) - path.means.mean(axis=1))
    return np.asarray(1 - path.regret(arms) / at_random)


def _leader(results: Sequence[Sequence[_Led]]) -> tuple[Sheet, str]:
    """Draw who led and what was won over rounds, one row a problem."""
    sheet = Sheet(figsize=(WIDTH, 1.5 * len(PLACES) + 0.8), layout="constrained")
    axes = sheet.subplots(len(PLACES), 2, sharex="row")
    words = []
    for (left, right), name, runs in zip(axes, PLACES, results, strict=True):
        n = len(runs[0].won["Autopilot"])
        title = FAMILIES[name].title.removeprefix("recorded: ")
        title = title[0].upper() + title[1:]
        plain_axis(left, title, "rounds led, %")
        plain_axis(right, "", "share won so far, %")
        shares = _leaders(left, runs, n)
        ends = _shares(right, runs, n)
        words.append(f"{title}: led by {shares}; won by {ends}")
        for axis in (left, right):
            axis.set_xscale("function", functions=(_root, np.square))
            axis.set(xlim=(0, n), xticks=[tick for tick in _TICKS if tick <= n])
            axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    for axis in axes[-1]:
        axis.set_xlabel("round, on a scale of √t", fontsize=SMALL)
    left, right = ({label: handle for handle, label in _handles(axes[:, side])} for side in (0, 1))
    known = {label: left[label] for label in sorted(left, key=_place)} | right
    sheet.legend(known.values(), known.keys(), ncols=4, **LEGEND)
    return sheet, (
        "Left: the share of rounds that each of Autopilot's models led. Right: what was won so far of what there is to "
        f"win, 0 for a random choice. Means over {len(results[0])} runs. At the end, in %: {'. '.join(words)}."
    )


def _leaders(axis: Axes, runs: Sequence[_Led], n: int) -> str:
    names = dict.fromkeys(name for run in runs for name in run.leaders)
    order = sorted(names, key=_place)
    nothing = np.zeros(_SPANS)
    mean = {name: 100 * np.mean([run.leaders.get(name, nothing) for run in runs], axis=0) for name in order}
    first = _spans(n)
    middle = n * ((np.arange(_SPANS) + 0.5) / _SPANS) ** 2
    across, lengths = np.concatenate([[0], middle, [n]]), np.diff([*first, n])
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
    far = top - fixed > 2 * (top - bottom)  # drawn, it would squeeze all the others
    axis.set_ylim(bottom - 0.2 * (top - bottom) if far else min(bottom, 5 * math.floor(fixed / 5)), top)
    if far:
        text = f"the best fixed arm ends at {ends[BEST]:.0f} %"
        axis.text(0.99, 0.04, text, transform=axis.transAxes, ha="right", va="bottom", fontsize=SMALL)
    return ", ".join(f"{label} {end:.1f}" for label, end in ends.items())


def _root(x: FloatArray) -> FloatArray:
    return np.sqrt(np.maximum(x, 0.0))


def _place(model: str) -> int:
    """Return where a model stands in the stack and the legend."""
    return [*_MODELS, model].index(model)


def _handles(axes: npt.NDArray[Any]) -> list[tuple[Any, str]]:
    return [pair for axis in axes for pair in zip(*axis.get_legend_handles_labels(), strict=True)]
