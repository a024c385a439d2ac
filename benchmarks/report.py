"""How measurements are taken, printed and kept: in turn, as ratios, with their spread."""

import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

import undertow
from benchmarks.environments import versions
from undertow import Trajectory

HERE = Path(__file__).parent
OUT = HERE.parent / "out" / "bench"
Array = npt.NDArray[np.float64]
Times = dict[str, list[float]]

REPEATS = 5
CPP = ["g++", "-std=c++17", "-O3", "-march=native", "-shared", "-fPIC"]
REORDER = ["-fassociative-math", "-freciprocal-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno"]


class Report:
    """Prints measurements and keeps them for the file."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Any]] = {}
        self.slowness = 1.0  # time of this machine for the same work, relative to the one for which targets were set

    def table(self, title: str, unit: str = "", times: Mapping[str, list[float]] = {}) -> None:
        """Print the best time of each, its spread, and its ratio to the first."""
        print(f"\n{title}" + (f", {unit}, best of {len(next(iter(times.values())))} (spread)" if times else ""))
        first = min(next(iter(times.values()), [0.0]))
        for name, values in times.items():
            best = min(values)
            print(f"  {name:26} {best:12,.2f}  ({max(values) / best - 1:4.0%})  {best / first:10.2f} ×")
        self.tables[title] = {"unit": unit, "times": dict(times), "notes": [], "targets": []}

    def grid(self, title: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> None:
        """Print a table of ready-made cells, as Markdown."""
        print(f"\n{title}\n\n{markdown(columns, rows)}")
        content = {name: list(cells) for name, cells in rows.items()}
        self.tables[title] = {"columns": list(columns), "rows": content, "notes": [], "targets": []}

    def note(self, text: str) -> None:
        """Print a line that belongs to the last table."""
        print(f"  {text}")
        next(reversed(self.tables.values()))["notes"].append(text)

    def target(
        self, what: str, value: float, *, most: float = math.inf, least: float = -math.inf, timed: bool = False
    ) -> None:
        """Print whether the last table meets a target; of a time, also what it is at the speed of the yardstick."""
        met = least <= value <= most
        bound = f"≤ {most:g}" if most < math.inf else f"≥ {least:g}"
        scaled = value / self.slowness if timed else value
        beside = f"; {scaled:.3g} at the yardstick's speed" if timed and self.slowness != 1.0 else ""
        print(
            f"  {'met   ' if met else 'MISSED'} {what}: {value:.3g} {bound if met else f'instead of {bound}'}{beside}"
        )
        targets = next(reversed(self.tables.values()))["targets"]
        targets.append({"what": what, "value": value, "scaled": scaled, "target": bound, "met": met})

    def save(self, path: Path, **more: Any) -> None:
        """Write all tables, with the machine and the versions that they were measured with."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {**conditions(), "tables": self.tables, **more}
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        met = [target["met"] for table in self.tables.values() for target in table["targets"]]
        targets = f"{met.count(False)} of {len(met)} targets missed; " if met else ""
        print(f"\n{targets}written to {path.relative_to(HERE.parent)}", flush=True)


def markdown(columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    """Return a Markdown table with the rows' names in front."""
    lines = [["", *columns], ["---"] * (1 + len(columns)), *([name, *cells] for name, cells in rows.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def conditions() -> dict[str, Any]:
    """Return when, where and with what a measurement was taken."""
    found = {"python": platform.python_version(), "g++": output([CPP[0], "-dumpfullversion"])}
    found |= {module.__name__: module.__version__ for module in (undertow, numba, np)}
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {
            "platform": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "load": os.getloadavg(),
        },
        "versions": found | versions(),
    }


def in_turn(
    calls: Mapping[str, Callable[[], object]],
    rounds: Mapping[str, int],
    usual: int,
    repeats: int = REPEATS,
    clock: Callable[[], float] = time.process_time,
) -> Times:
    """Return nanoseconds a round of every call, timed in turn: of the processor, whatever else the machine does."""
    times: Times = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            times[name].append(seconds(call, clock) / rounds.get(name, usual) * 1e9)
    return times


def seconds(call: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Return the duration of a call."""
    start = clock()
    call()
    return clock() - start


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """Return the median and the range of some values; the value alone if there is only one."""
    if len(values) == 1:
        return format(values[0], form)
    median, low, high = (format(value, form) for value in (statistics.median(values), min(values), max(values)))
    return f"{median} ({low}–{high})"


def sampled(system: undertow.LinearGaussianSystem, rounds: int, runs: int | None = None) -> Trajectory:
    """Return a path without its means, so that no regret is computed while a policy is timed."""
    path = system.sample(rounds, rng=0, runs=runs)
    return Trajectory(path.contexts, path.rewards)


def output(command: list[str]) -> str:
    """Return the output of a command; nothing if it does not exist."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return names[0].partition(":")[2].strip() if names else platform.processor()
