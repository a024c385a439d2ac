"""The tuner: its overhead per call, and its savings on the examples that measure costs.

    python -m benchmarks tuner

What must hold: a call takes at most 60 µs beyond its variant with Autopilot and up to eight variants, in steady state;
on the SQLite and the controller examples Autopilot is ahead of every fixed choice, UCB, discounted UCB and LinUCB in
the median of ten worlds, its own time included; on every example it costs at most 1.05 times the best fixed choice in
the median. Written to out/bench/tuner.json.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.report import OUT, Report
from undertow import Tuner
from undertow.policies import Autopilot

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import compression
import controllers
import costs

CALLS, STEADY = 4000, 2000  # calls, and from which on they are steady
TURN = 100  # calls; other programs disturb some turns more than others
SIZES = ((2, 0), (4, 0), (8, 0), (4, 2), (8, 2))  # variants and features
MOST_MICROSECONDS, MOST_RELATIVE = 60.0, 1.05
RIVALS = ("UCB", "Discounted UCB", "LinUCB")


def call_times(variants: int, features: int, calls: int = CALLS, *, sticks: bool = False) -> costs.FloatArray:
    """Return the microseconds of calls whose variants do nothing, with drifting pretended costs."""
    rng = np.random.default_rng(0)
    levels = np.zeros(variants)
    paid, rows, t = np.empty((calls, variants)), rng.standard_normal((calls, features)), 0
    for each in paid:
        levels = 0.99 * levels + 0.14 * rng.standard_normal(variants)
        each[:] = np.exp(levels + 0.2 * rng.standard_normal(variants))
    table = paid.tolist()

    def variant(arm: int) -> Callable[[], int]:
        return lambda: arm

    tuner = Tuner(
        {f"variant {arm}": variant(arm) for arm in range(variants)},
        lambda arm, seconds: table[t][arm],
        (lambda: rows[t]) if features else None,
        Autopilot(arms=variants, feature_dim=features, minimize=True, rng=0),
        second_costs=1e9 if sticks else None,
    )
    times = np.empty(calls)
    for t in range(calls):
        begun = time.perf_counter()
        tuner()
        times[t] = time.perf_counter() - begun
    return 1e6 * times


def measure_calls(report: Report, calls: int = CALLS) -> None:
    """Measure the tuner's overhead."""
    rows, worst, worst_of_all = {}, 0.0, 0.0
    for variants, features in SIZES:
        times = call_times(variants, features, calls)[calls * STEADY // CALLS :]
        stuck = np.median(call_times(variants, features, calls, sticks=True)[calls * STEADY // CALLS :])
        turns = np.median(times[: len(times) // TURN * TURN].reshape(-1, TURN), axis=1)
        worst, worst_of_all = max(worst, float(turns.min())), max(worst_of_all, float(np.median(times)))
        cells = (turns.min(), np.median(times), times.mean(), stuck)
        rows[f"{variants} variants, {features} features"] = [f"{value:.1f}" for value in cells]
    columns = ("median of the quietest turn", "median", "mean, with fits", "median where it sticks")
    report.grid("A call of a tuner with Autopilot in steady state, µs", columns, rows)
    report.note(f"A turn is {TURN} calls; load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")
    report.target("a call with a choice, quietest turn, µs, at most", worst, most=MOST_MICROSECONDS)
    report.target("a call with a choice, all turns, µs, at most", worst_of_all, most=MOST_MICROSECONDS)


def measure_examples(report: Report, worlds: int = 10, rounds: int = 1500) -> None:
    """Play the examples that measure costs."""
    recorded = costs.Recording.load(costs.FOLDER / "queries.npz").worlds(rounds)[:worlds]
    streams = compression.streams(costs.Recording.load(costs.FOLDER / "compression.npz"), worlds, rounds)
    problems: dict[str, tuple[Sequence[Callable[[], costs.World]], bool, bool]] = {
        "queries": (recorded, True, True),
        "controllers": (controllers.cranes(worlds, rounds), False, True),
        "compression": (streams.worlds(), True, False),
    }
    for name, (made, own, ahead_wanted) in problems.items():
        rules = {controllers.KNOWS: controllers.nearest} if name == "controllers" else None
        played = costs.play_all(made, rules)
        totals = {label: costs.relative(played, label, own=own)[:, 0] for label in played}
        rows = {
            label: [f"{np.median(values):.3f}", f"{values.min():.3f}", f"{values.max():.3f}"]
            for label, values in totals.items()
        }
        title = (
            f"{name}: total cost / best fixed choice, {len(made)} worlds, {len(played['Autopilot'][0].costs)} rounds"
        )
        report.grid(title, ("median", "lowest", "highest"), rows)
        ours = float(np.median(totals["Autopilot"]))
        report.target("Autopilot / best fixed choice, median", ours, most=MOST_RELATIVE)
        rivals = [label for label in totals if label in RIVALS or label.startswith("always ")]
        best = min(float(np.median(totals[label])) for label in rivals)
        if ahead_wanted:
            report.target("Autopilot / best of all fixed choices and rivals, medians", ours / best, most=1.0)


def main() -> None:
    report = Report()
    measure_calls(report)
    measure_examples(report)
    report.save(OUT / "tuner.json")


if __name__ == "__main__":
    main()
