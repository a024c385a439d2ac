"""How time grows with the size of a problem: log-log figures, with the fitted exponents beside the expected ones.

One size grows at a time, all others stay. Sizes are timed in turn; the best time of each counts. An exponent is
fitted to the larger half of the sizes, where what does not grow weighs less. Written to out/bench/growth.json and .png.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import LogLocator, StrMethodFormatter

from benchmarks.report import OUT, Report, in_turn, sampled
from undertow import Trajectory, make, random_system, simulate
from undertow.contenders import build

REPEATS = 3


class Series(NamedTuple):
    """What is timed for each value of one size, and the power of the size that the algorithm promises at most."""

    title: str
    size: str
    expected: float
    calls: Mapping[int, Callable[[], object]]
    rounds: Mapping[int, int]

    def times(self) -> dict[int, list[float]]:
        """Return nanoseconds per round, or of the whole where that is what grows."""
        for call in self.calls.values():
            call()  # compiles
        names = {str(value): call for value, call in self.calls.items()}
        rounds = {str(value): count for value, count in self.rounds.items()}
        return {int(name): values for name, values in in_turn(names, rounds, 1, REPEATS).items()}


def series() -> list[Series]:
    """Return everything that is timed."""
    found = [
        _a_round("ARES, largest window s_N (m = 2, k = 2)", "s_N", 2, (10, 20, 40, 80, 160), lambda s: _ares(2, 2, s)),
        _a_round("ARES, entries of a context m (s_N = 10, k = 2)", "m", 2, (2, 4, 8, 16, 32), lambda m: _ares(m, 2)),
        _a_round("ARES, arms k (m = 2, s_N = 10)", "k", 1, (4, 8, 16, 32, 64), lambda k: _ares(2, k)),
        _a_round("KalmanGreedy, state d (m = 1, k = 2)", "d", 3, (4, 8, 16, 32, 64), _kalman),
        _a_round("sampling, state d (m = 1, k = 2)", "d", 2, (4, 8, 16, 32, 64), _sampling),
    ]
    found += [
        _a_round("Autopilot with its fits, arms k (m = 1)", "k", 1, (5, 20, 50, 100, 200, 500), _many_arms),
        _a_round("Autopilot with its fits, features q (k = 5)", "q", 2, (0, 3, 6, 12, 25, 50), _many_features),
    ]
    lengths = (1000, 2000, 4000, 8000, 16_000)
    path = sampled(random_system(5, 1, 2, rng=0), lengths[-1])
    for name, policy in (("ARES", "ares"), ("Autopilot, with its fits", "autopilot")):
        paths = {n: Trajectory(path.contexts[:n], path.rewards[:n]) for n in lengths}
        found.append(_in_all(f"{name}, rounds", "rounds", policy, paths))
    many = sampled(random_system(5, 1, 2, rng=0), 2000, runs=16)
    parts = {runs: Trajectory(many.contexts[:runs], many.rewards[:runs]) for runs in (1, 2, 4, 8, 16)}
    return [*found, _in_all("ARES, runs of 2000 rounds", "runs", "ares", parts)]


Started = tuple[Callable[[], object], int]  # what is timed, and over how many rounds


def _a_round(title: str, size: str, expected: float, values: Sequence[int], start: Callable[[int], Started]) -> Series:
    started = {value: start(value) for value in values}
    calls = {value: call for value, (call, _) in started.items()}
    return Series(title, size, expected, calls, {value: rounds for value, (_, rounds) in started.items()})


def _in_all(title: str, size: str, policy: str, paths: Mapping[int, Trajectory]) -> Series:
    return Series(title, size, 1, {value: functools.partial(_play, policy, path) for value, path in paths.items()}, {})


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


def _many_arms(k: int) -> Started:
    path = sampled(random_system(5, 1, k, rng=0), 1000)
    return functools.partial(_play, "autopilot", path), path.rounds


def _many_features(q: int) -> Started:
    path, features = sampled(random_system(5, 1, 5, rng=0), 1000), np.random.default_rng(0).standard_normal((1000, q))
    path = Trajectory(path.contexts, path.rewards, features=features if q else None)
    return functools.partial(_play, "autopilot", path, feature_dim=q), path.rounds


def _play(name: str, path: Trajectory, **parameters: Any) -> None:
    policy = build(name, arms=path.arm_count, context_dim=path.context_dim, rng=0, **parameters)
    simulate(policy, path, threads=1)


def exponent(times: Mapping[int, Sequence[float]]) -> float:
    """Fit the power of the larger half of the sizes."""
    sizes = list(times)[len(times) // 2 :]
    return float(np.polyfit(np.log(sizes), np.log([min(times[size]) for size in sizes]), 1)[0])


def draw(found: Sequence[tuple[Series, dict[int, list[float]]]]) -> None:
    """Draw one panel for each series: times, their range, and a line of the expected slope."""
    figure, axes = plt.subplots(2, 5, figsize=(15, 5.6), layout="constrained")
    for axis, (what, times) in zip(axes.flat, found, strict=True):
        sizes, best = np.array(list(times)), np.array([min(values) for values in times.values()]) / 1e3
        worst = np.array([max(values) for values in times.values()]) / 1e3
        above = [0 * best, worst - best]
        axis.errorbar(sizes, best, yerr=above, color="#0072B2", marker="o", ms=4, lw=1.2, label="measured")
        some = sizes[sizes > 0]
        expected = best[-1] * (some / some[-1]) ** what.expected
        axis.plot(some, expected, color="#999999", ls="--", lw=1, label="expected slope")
        axis.set(yscale="log", xlabel=what.size)
        axis.set_xscale("symlog" if 0 in sizes else "log")
        axis.set_title(f"{what.title}\nfitted {exponent(times):.2f}, expected {what.expected:g}", fontsize=8)
        axis.set_xticks(sizes, [f"{size}" for size in sizes], fontsize=7)
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.tick_params(axis="y", labelsize=7)
        axis.minorticks_off()
        axis.set_ylabel("µs per round" if what.rounds else "µs in all", fontsize=8)
    axes.flat[0].legend(frameon=False, fontsize=8)
    figure.savefig(OUT / "growth.png", dpi=150)
    plt.close(figure)


def main() -> None:
    report = Report()
    found = [(what, what.times()) for what in series()]
    for what, times in found:
        named = {f"{what.size} = {size}": values for size, values in times.items()}
        report.table(
            what.title, "ns of the processor per round" if what.rounds else "ns of the processor in all", named
        )
        report.note(f"fitted exponent of {what.size}: {exponent(times):.2f}; expected at most {what.expected:g}")
    rows = {what.title: [f"{exponent(times):.2f}", f"{what.expected:g}"] for what, times in found}
    report.grid("Exponents of time", ["fitted", "expected"], rows)
    draw(found)
    report.save(OUT / "growth.json")


if __name__ == "__main__":
    main()
