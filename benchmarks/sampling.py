"""How fast paths are sampled: the compiled kernel against the plain NumPy loop, in one process on one core.

The paper's system: d = 5, m = 1, k = 2. Each side is timed five times in turn; the best time of each counts, since
anything else on the machine can only add to it.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import naive
from undertow import paper_system

ROUNDS, NAIVE_ROUNDS, REPEATS = 1_000_000, 5_000, 5


def nanoseconds(call: Callable[[], object], rounds: int) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) / rounds * 1e9


def main() -> None:
    system = paper_system(1)
    system.sample(10, rng=0)  # compiles
    ours, twin, normals = [], [], []
    rng = np.random.default_rng(0)
    for _ in range(REPEATS):
        ours.append(nanoseconds(lambda: system.sample(10_000, rng=0, runs=ROUNDS // 10_000, threads=1), ROUNDS))
        twin.append(nanoseconds(lambda: naive.sample(system, NAIVE_ROUNDS, rng), NAIVE_ROUNDS))
        normals.append(nanoseconds(lambda: rng.standard_normal((ROUNDS, 8)), ROUNDS))
    best = min(ours)
    print("Sampling the paper's system, ns a round on one core, best of 5 (spread)")
    for name, times in (("undertow", ours), ("plain NumPy loop", twin), ("NumPy's 8 normals alone", normals)):
        spread = max(times) / min(times) - 1
        print(f"  {name:24} {min(times):10,.0f}  ({spread:4.0%})  {min(times) / best:8.2f} × undertow")
    print(f"  {1e3 / best:.1f} million rounds a second")


if __name__ == "__main__":
    main()
