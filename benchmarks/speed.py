"""The cost of a library: a live round, rounds played in a simulation, its import and its memory.

Every library runs in a process of its own, with one core, in turn with the others, several turns over. A ratio is taken
within a turn, so that whatever else the machine does meets both sides; shown are the median and the range over turns.
Peers get their inputs ready-made; ours make them. The tables are also written to out/bench/speed.json.
"""

import math
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.progress import Progress

from benchmarks.environments import PINS, PeerError, python_of, run, run_jobs
from benchmarks.peers.play import Job
from benchmarks.report import OUT, Report, sampled, seconds, spread
from benchmarks.tune import candidates_of
from undertow import make, paper_system, random_system, simulate

TURNS, ROUNDS, SECONDS = 3, 2000, 0.5
BASE = "undertow linucb"  # the same regression as most peers'
OURS = (BASE, "undertow ares", "undertow autopilot")
SIZES = {  # inputs: entries of a context, window
    11: (1, 10),
    51: (5, 10),
    401: (20, 20),
}
ARMS = (2, 10)
MEMORY_AT = (51, 10)
IMPORT = """
import time
start = time.perf_counter()
import {module}
milliseconds = 1e3 * (time.perf_counter() - start)
from benchmarks.peers.play import peak_memory
print(milliseconds, peak_memory())
"""
SIMULATED = ("linucb", "ares", "learned-kalman", "autopilot")


class Turn(NamedTuple):
    """One turn of a library: microseconds a round by (inputs, arms), and its peak memory after some."""

    rounds: dict[tuple[int, int], float]
    megabytes: float
    errors: dict[tuple[int, int], str]


def main() -> None:
    report = Report()
    report.grid(
        "Load of the machine over 1, 5 and 15 minutes",
        ["1", "5", "15"],
        {"load": [f"{x:.1f}" for x in os.getloadavg()]},
    )
    turns = live_rounds()
    show_rounds(report, turns)
    simulation(report, turns)
    imports(report)
    report.save(OUT / "speed.json", microseconds={name: _fastest(found) for name, found in turns.items()})


def live_rounds() -> dict[str, list[Turn]]:
    """Time every library in turn."""
    files = {(p, k): _stored(p, k) for p in SIZES for k in ARMS}
    turns: dict[str, list[Turn]] = {name: [] for name in (*OURS, *PINS)}
    with Progress() as progress:
        bar = progress.add_task("live rounds", total=TURNS * len(turns))
        for _ in range(TURNS):
            for name, taken in turns.items():
                try:
                    parameters = {} if name in OURS else dict(candidates_of(name)[0])
                    taken.append(_turn(name, files, parameters))
                except PeerError as error:
                    taken.append(Turn({}, math.nan, dict.fromkeys(files, f"does not install or import: {error}")))
                progress.advance(bar)
    return turns


def _stored(p: int, k: int) -> Path:
    file = OUT / "paths" / f"speed-{p}-{k}.npz"
    file.parent.mkdir(parents=True, exist_ok=True)
    path = sampled(random_system(10, SIZES[p][0], k, rng=0), ROUNDS)
    np.savez(file, contexts=path.contexts, rewards=path.rewards, features=path.features)
    return file


def _turn(name: str, files: Mapping[tuple[int, int], Path], parameters: dict[str, Any]) -> Turn:
    out = OUT / "played" / "speed.npz"
    out.parent.mkdir(parents=True, exist_ok=True)
    turn = Turn({}, math.nan, {})
    jobs = {
        size: Job(str(file), f"{out}-{size[0]}-{size[1]}.npz", parameters, 0, window=SIZES[size[0]][1], seconds=SECONDS)
        for size, file in files.items()
    }
    for size, job, answer in zip(jobs, jobs.values(), run_jobs(name, list(jobs.values())), strict=True):
        if answer.error:
            turn.errors[size] = answer.error
            continue
        with np.load(job.out) as played:
            turn.rounds[size] = float(np.median(played["nanoseconds"])) / 1e3
        if size == MEMORY_AT:
            turn = turn._replace(megabytes=answer.megabytes)
    return turn


def _fastest(turns: Sequence[Turn]) -> dict[str, float]:
    """Return the time of a round by size, in the least disturbed turn."""
    sizes = dict.fromkeys(size for turn in turns for size in turn.rounds)
    return {f"p={p}, k={k}": min(turn.rounds[p, k] for turn in turns) for p, k in sizes}


def show_rounds(report: Report, turns: Mapping[str, Sequence[Turn]]) -> None:
    """Print the base in microseconds and all others as ratios to it."""
    sizes = [(p, k) for p in SIZES for k in ARMS]
    rows = {f"{BASE}, µs": [spread([turn.rounds[size] for turn in turns[BASE]], ".1f") for size in sizes]}
    errors: dict[tuple[str, str], None] = {}
    for name, found in turns.items():
        if name == BASE:
            continue
        line = []
        for size in sizes:
            pairs = [
                (turn.rounds[size], base.rounds[size])
                for turn, base in zip(found, turns[BASE], strict=True)
                if size in turn.rounds
            ]
            line.append(spread([one / base for one, base in pairs], ".3g") if pairs else "fails")
            errors |= {(name, turn.errors[size]): None for turn in found if size in turn.errors}
        rows[name] = line
    columns = [f"p = {p}, k = {k}" for p, k in sizes]
    report.grid(f"A live round, relative to {BASE}: median (range) over {TURNS} turns", columns, rows)
    report.note("p inputs, k arms; the median round of each turn, so fits of autopilot are not in it")
    for name, error in errors:
        report.note(f"{name}: {error}")
    memory = {
        name: [spread([turn.megabytes for turn in found], ".0f")]
        for name, found in turns.items()
        if MEMORY_AT in found[0].rounds
    }
    report.grid(f"Peak memory of a process that has played p = {MEMORY_AT[0]}, k = {MEMORY_AT[1]}", ["MB"], memory)


def simulation(report: Report, turns: Mapping[str, Sequence[Turn]]) -> None:
    """Count rounds a second on stored paths of the paper's system, on one core: ours compiled, peers round by round."""
    paths = sampled(paper_system(1), 5000, runs=2)
    rates: dict[str, list[float]] = {}
    for turn in range(TURNS + 1):
        for name in SIMULATED:
            policy = make(name, arms=2, context_dim=1, rng=0)
            rate = len(paths.rewards) * paths.rounds / seconds(partial(simulate, policy, paths, threads=1))
            if turn:  # the first compiles
                rates.setdefault(f"undertow {name}", []).append(rate)
    for name, found in turns.items():
        if name not in OURS and (11, 2) in found[0].rounds:
            rates[name] = [1e6 / turn.rounds[11, 2] for turn in found]
    rows = {name: [spread(values, ",.0f")] for name, values in rates.items()}
    report.grid("Rounds a second in a simulation, k = 2, p = 11, one core: median (range)", ["rounds a second"], rows)
    report.note("ours: undertow.simulate on stored paths, fits included; peers have no such thing for given paths")


def imports(report: Report) -> None:
    """Import each library in fresh interpreters, in turn, with warm files."""
    modules = {"numpy": "numpy", "numba": "numba", "undertow": "undertow.policies"}
    modules |= {peer: f"benchmarks.peers.{peer}" for peer in PINS}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in modules}
    errors = {}
    for turn in range(TURNS + 1):
        for name, module in modules.items():
            try:
                python = str(python_of(name)) if name in PINS else sys.executable
                printed = run([python, "-W", "ignore", "-c", IMPORT.format(module=module)])
            except PeerError as error:
                errors[name] = str(error)
                continue
            if turn:  # the first warms the files
                milliseconds, megabytes = map(float, printed.split()[-2:])
                found[name].append((milliseconds, megabytes))
    base = [milliseconds for milliseconds, _ in found["undertow"]]
    rows = {
        name: [
            spread([milliseconds for milliseconds, _ in values], ".0f"),
            spread([one / other for (one, _), other in zip(values, base, strict=True)]),
            spread([megabytes for _, megabytes in values], ".0f"),
        ]
        for name, values in found.items()
        if values
    }
    report.grid("Import in a fresh interpreter: median (range)", ["ms", "relative to undertow", "MB after it"], rows)
    for name, said in errors.items():
        report.note(f"{name}: {said}")


if __name__ == "__main__":
    main()
