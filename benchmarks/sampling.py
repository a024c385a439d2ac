"""The speed of sampling paths: the compiled kernel against the plain NumPy loop, in one process on one core.

The paper's system: d = 5, m = 1, k = 2. Sides are timed in turn; the best time of each counts, since anything else on
the machine can only add to it.
"""

from collections.abc import Callable

import numpy as np

from benchmarks.report import OUT, Report, in_turn
from twins import naive
from undertow import paper_system

ROUNDS, NAIVE_ROUNDS = 1_000_000, 5_000


def main() -> None:
    system = paper_system(1)
    system.sample(10, rng=0)  # compiles
    rng = np.random.default_rng(0)
    calls: dict[str, Callable[[], object]] = {
        "undertow": lambda: system.sample(10_000, rng=0, runs=ROUNDS // 10_000, threads=1),
        "plain NumPy loop": lambda: naive.sample(system, NAIVE_ROUNDS, rng),
        "NumPy's 8 normals alone": lambda: rng.standard_normal((ROUNDS, 8)),
    }
    times = in_turn(calls, {"plain NumPy loop": NAIVE_ROUNDS}, ROUNDS)
    report = Report()
    report.table("Sampling the paper's system", "ns a round on one core", times)
    report.note(f"{1e3 / min(times['undertow']):.1f} million rounds a second")
    report.save(OUT / "sampling.json")


if __name__ == "__main__":
    main()
