"""The cost of `undertow replay` with its default policies on a million rows: seconds, those of all cores, and memory.

A log whose propensities differ, and the same path with every arm's reward; as the command plays them by default, which
are the last rows, and all rows. The kernels are compiled before. Written to out/bench/tables.json.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from benchmarks.report import OUT, Report
from undertow import paper_system

ROWS, FEW = 1_000_000, 3000
CHANCES = np.array([0.7, 0.3])  # of the arms of the log
LOG, FULL = "log", "table"


class Cost(NamedTuple):
    """Seconds of the clock, of all cores together, and megabytes at the peak."""

    clock: float
    cores: float
    megabytes: float


def write_tables(folder: Path, rows: int) -> None:
    """Write a path of the paper's system, seed 0, as a log and as a table of every arm's reward."""
    path = paper_system(psi=1).sample(rows, rng=0)
    arms = np.random.default_rng(0).choice(len(CHANCES), size=rows, p=CHANCES)
    log = {"arm": arms, "reward": path.rewards[np.arange(rows), arms], "propensity": CHANCES[arms]}
    full = {f"reward_{arm}": path.rewards[:, arm] for arm in range(len(CHANCES))}
    for name, columns in ((LOG, log), (FULL, full)):
        pl.DataFrame({"context_1": path.contexts[:, 0]} | columns).write_csv(folder / f"{name}.csv")


def replayed(file: Path, *options: str) -> Cost:
    """Replay a table in its own process."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "undertow", "replay", str(file), "--out", str(file.parent / "out"), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with status {process.returncode}")
    return Cost(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def main() -> None:
    report = Report()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rows in (FEW, ROWS):  # the first ones compile
            write_tables(folder, rows)
            costs = {kind: replayed(folder / f"{kind}.csv") for kind in (LOG, FULL)}
            print(f"{rows:,} rows: {costs}", flush=True)
        whole = {f"{kind}, all rows": replayed(folder / f"{kind}.csv", "--rows", str(ROWS)) for kind in (LOG, FULL)}
    cells = {
        kind: [f"{cost.clock:.1f}", f"{cost.cores:.1f}", f"{cost.megabytes:.0f}"]
        for kind, cost in (costs | whole).items()
    }
    title = f"undertow replay, {ROWS:,} rows, default policies, {os.cpu_count()} cores"
    report.grid(title, ["seconds", "seconds of all cores", "MB"], cells)
    for kind, cost in costs.items():
        report.target(f"{kind}, seconds", cost.clock, most=30)
    for kind, cost in (costs | whole).items():
        report.target(f"{kind}, megabytes", cost.megabytes, most=1000)
    report.save(OUT / "tables.json")


if __name__ == "__main__":
    main()
