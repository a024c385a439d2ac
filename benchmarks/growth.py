"""How time grows with the size of a problem: log-log figures, with the fitted exponents beside the expected ones.

One size grows at a time, all others stay. Sizes are timed in turn; the best time of each counts. An exponent is
fitted to the larger half of the sizes, where what does not grow weighs less. Written to out/bench/growth.json and .png.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, StrMethodFormatter

from benchmarks.report import OUT, Report, in_turn, sampled
from undertow import Trajectory, make, random_system, simulate
from undertow.contenders import build

REPEATS = 3
COLOURS = ("#0072B2", "#D55E00", "#009E73")


class Series(NamedTuple):
    """The calls to time for each value of one size, and the largest power of the size that the algorithm promises.

    Series of one panel are drawn together.
    """

    who: str
    panel: str
    size: str
    expected: float
    calls: Mapping[int, Callable[[], object]]
    rounds: Mapping[int, int]

    def times(self) -> dict[int, list[float]]:
        """Return nanoseconds per round, or in total if that grows."""
        for call in list(self.calls.values())[:2]:
            call()  # compiles: kernels are the same for all sizes, but for those of no features
        names = {str(value): call for value, call in self.calls.items()}
        rounds = {str(value): count for value, count in self.rounds.items()}
        return {int(name): values for name, values in in_turn(names, rounds, 1, REPEATS).items()}

    @property
    def title(self) -> str:
        """The printed title of the times."""
        return f"{self.who}, {self.panel}"


def series() -> list[Series]:
    """Return all series."""
    found = [
        _a_round(
            "ARES", "largest window s_N (m = 2, k = 2)", "s_N", 2, (10, 20, 40, 80, 160), lambda s: _ares(2, 2, s)
        ),
        _a_round("ARES", "context entries m (s_N = 10, k = 2)", "m", 2, (2, 4, 8, 16, 32), lambda m: _ares(m, 2)),
        _a_round("ARES", "arms k (m = 2, s_N = 10)", "k", 1, (4, 8, 16, 32, 64), lambda k: _ares(2, k)),
        _a_round("KalmanGreedy", "state d (m = 1, k = 2)", "d", 3, (4, 8, 16, 32, 64), _kalman),
        _a_round("sampling", "state d (m = 1, k = 2)", "d", 2, (4, 8, 16, 32, 64), _sampling),
    ]
    for who, policy, by_features in (
        ("Autopilot", "autopilot", 2),
        ("LinUCB", "linucb", 2),
        ("Discounted UCB", "discounted-ucb", 0),
    ):
        arms, features = functools.partial(_many_arms, policy), functools.partial(_many_features, policy)
        found += [
            _a_round(who, "arms k (m = 1)", "k", 1, (5, 10, 20, 50, 100, 200, 500), arms),
            _a_round(who, "features q (m = 1, k = 5)", "q", by_features, (0, 3, 6, 12, 25, 50), features),
        ]
    lengths = (1000, 2000, 4000, 8000, 16_000)
    path = sampled(random_system(5, 1, 2, rng=0), lengths[-1])
    for who, policy in (("ARES", "ares"), ("Autopilot", "autopilot")):
        paths = {n: Trajectory(path.contexts[:n], path.rewards[:n]) for n in lengths}
        found.append(_in_all(who, "rounds (m = 1, k = 2)", "rounds", policy, paths))
    many = sampled(random_system(5, 1, 2, rng=0), 2000, runs=16)
    parts = {runs: Trajectory(many.contexts[:runs], many.rewards[:runs]) for runs in (1, 2, 4, 8, 16)}
    return [*found, _in_all("ARES", "runs of 2000 rounds", "runs", "ares", parts)]


Started = tuple[Callable[[], object], int]  # the timed call, and its number of rounds


def _a_round(
    who: str, panel: str, size: str, expected: float, values: Sequence[int], start: Callable[[int], Started]
) -> Series:
    started = {value: start(value) for value in values}
    calls = {value: call for value, (call, _) in started.items()}
    return Series(who, panel, size, expected, calls, {value: rounds for value, (_, rounds) in started.items()})


def _in_all(who: str, panel: str, size: str, policy: str, paths: Mapping[int, Trajectory]) -> Series:
    calls = {value: functools.partial(_play, policy, path) for value, path in paths.items()}
    return Series(who, panel, size, 1, calls, {})


def _ares(m: int, k: int, s: int = 10) -> Started:
    rounds = min(3000, max(300, 400_000 // (m * s) ** 2))
    path = sampled(random_system(5, m, k, rng=0), rounds)
    return functools.partial(_play, "ares", path, max_window=s), rounds


def _kalman(d: int) -> Started:
    system = random_system(d, 1, 2, rng=0)
    path = sampled(system, 1000)
    return functools.partial(simulate, make("kalman-greedy", system), path, threads=1), path.rounds


def _sampling(d: int) -> Started:
    system = random_system(d, 1, 2, rng=0)
    return functools.partial(system.sample, 4000, rng=0, threads=1), 4000


def _many_arms(policy: str, k: int) -> Started:
    path = sampled(random_system(5, 1, k, rng=0), 1000)
    return functools.partial(_play, policy, path), path.rounds


def _many_features(policy: str, q: int) -> Started:
    path, features = sampled(random_system(5, 1, 5, rng=0), 1000), np.random.default_rng(0).standard_normal((1000, q))
    path = Trajectory(path.contexts, path.rewards, features=features if q else None)
    return functools.partial(_play, policy, path, feature_dim=q), path.rounds


def _play(name: str, path: Trajectory, **parameters: Any) -> None:
    policy = build(name, arms=path.arm_count, context_dim=path.context_dim, rng=0, **parameters)
    simulate(policy, path, threads=1)


def exponent(times: Mapping[int, Sequence[float]]) -> float:
    """Fit the power of a size: the slope of a line through logarithms, by least squares, over the larger half."""
    sizes = list(times)[len(times) // 2 :]
    return float(np.polyfit(np.log(sizes), np.log([min(times[size]) for size in sizes]), 1)[0])


def draw(found: Sequence[tuple[Series, dict[int, list[float]]]]) -> None:
    """Draw one panel for all series of the same size: times, their range, and dashed lines of the expected slopes."""
    panels: dict[str, list[tuple[Series, dict[int, list[float]]]]] = {}
    for what, times in found:
        panels.setdefault(what.panel, []).append((what, times))
    figure, axes = plt.subplots(2, 4, figsize=(14, 7.5), layout="constrained")
    for axis, (title, lines) in zip(axes.flat, panels.items(), strict=True):
        for (what, times), colour in zip(lines, COLOURS, strict=False):
            _draw_line(axis, what, times, colour)
        sizes = list(lines[0][1])
        axis.set_title(title, fontsize=9)
        axis.set_xscale("symlog" if 0 in sizes else "log")
        axis.set_xticks(sizes, [f"{value}" for value in sizes], fontsize=8)
        axis.set(yscale="log", xlabel=lines[0][0].size)
        low, high = axis.get_ylim()
        axis.set_ylim(low, high * (high / low) ** (0.08 + 0.09 * len(lines)))  # room for the legend
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high > 1000 * low else (1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
        axis.tick_params(axis="y", labelsize=8)
        axis.minorticks_off()
        axis.set_ylabel("µs per round" if lines[0][0].rounds else "µs in all", fontsize=8)
        axis.legend(frameon=False, fontsize=8, loc="upper left", borderaxespad=0.2, handlelength=1.2)
    words = "Slopes are fitted to the larger half of the sizes; dashed: the largest that the algorithm promises."
    figure.supxlabel(words, fontsize=9)
    figure.savefig(OUT / "growth.png", dpi=150)
    plt.close(figure)


def _draw_line(axis: Axes, what: Series, times: Mapping[int, Sequence[float]], colour: str) -> None:
    sizes = np.array(list(times))
    best, worst = (np.array([which(values) for values in times.values()]) / 1e3 for which in (min, max))
    label = f"{what.who}: slope {exponent(times):.2f} (≤ {what.expected:g})"
    axis.errorbar(sizes, best, yerr=[0 * best, worst - best], color=colour, marker="o", ms=4, lw=1.2, label=label)
    upper = sizes[len(sizes) // 2 :]
    axis.plot(upper, best[-1] * (upper / upper[-1]) ** what.expected, color=colour, ls="--", lw=1, alpha=0.6)


def _of_exponents(what: Series, times: Mapping[int, Sequence[float]]) -> list[str]:
    """Return the cells of a row of the table of exponents."""
    sizes = list(times)
    ends = [f"{min(times[size]) / 1e3:,.3g}" for size in (sizes[0], sizes[-1])]
    fitted = f"{sizes[len(sizes) // 2]} … {sizes[-1]}"
    return [f"{sizes[0]} … {sizes[-1]}", *ends, fitted, f"{exponent(times):.2f}", f"{what.expected:g}"]


def main() -> None:
    report = Report()
    found = [(what, what.times()) for what in series()]
    for what, times in found:
        named = {f"{what.size} = {size}": values for size, values in times.items()}
        report.table(
            what.title, "ns of the processor per round" if what.rounds else "ns of the processor in all", named
        )
        report.note(f"fitted exponent of {what.size}: {exponent(times):.2f}; expected at most {what.expected:g}")
    rows = {what.title: _of_exponents(what, times) for what, times in found}
    columns = ["sizes", "µs at the smallest", "µs at the largest", "fitted over", "exponent", "expected at most"]
    report.grid("Exponents of time; Autopilot with its fits", columns, rows)
    draw(found)
    report.save(OUT / "growth.json")


if __name__ == "__main__":
    main()
