"""Choose the algorithm and the parameters of every peer, on problems that the tables are not about.

    python -m benchmarks.tune [PEER …]

For each group of problems and each kind of inputs, all candidates of an adapter play the tuning problems; the one with
the smallest geometric mean of regret is written to peers/tuned.json, which `make bench` reads.
"""

import datetime
import json
import math
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from benchmarks.environments import PINS, python_of, run, run_jobs, versions
from benchmarks.peers.play import Job
from benchmarks.peers.protocol import Parameters
from benchmarks.problems import Problem, tuning_problems
from benchmarks.report import HERE, OUT
from undertow.support.numbers import share

LAGS = {"contexts": 0, "own rewards": 5}  # inputs besides features: own rewards come with contexts
TUNED = HERE / "peers" / "tuned.json"
COMMAND = "make bench-tune"


def main(peers: Sequence[str]) -> None:
    problems = list(tuning_problems())
    files = [problem.store(OUT / "tuning") for problem in problems]
    with Progress() as progress:
        for peer in peers or PINS:
            candidates = candidates_of(peer)
            jobs: list[Job] = []
            keys = []
            for problem, file in zip(problems, files, strict=True):
                for inputs, lags in LAGS.items():
                    for number, parameters in enumerate(candidates):
                        out = OUT / "tuning" / f"{peer}-{len(jobs)}.npz"
                        jobs.append(Job(str(file), str(out), dict(parameters), seed=0, lags=lags))
                        keys.append((inputs, problem, number))
            bar = progress.add_task(peer, total=len(jobs))
            answers = run_jobs(peer, jobs, partial(progress.advance, bar))
            tried: dict[str, dict[str, dict[int, list[float]]]] = {}
            for (inputs, problem, number), job, answer in zip(keys, jobs, answers, strict=True):
                value = math.inf if answer.error else to_random(problem, np.load(job.out)["arms"])
                tried.setdefault(inputs, {}).setdefault(problem.group, {}).setdefault(number, []).append(value)
            keep(peer, {i: {g: chosen(candidates, v) for g, v in groups.items()} for i, groups in tried.items()})


def candidates_of(peer: str) -> list[Parameters]:
    """Ask an adapter for its candidates, in its own environment."""
    code = f"import json; from benchmarks.peers import {peer} as adapter; print(json.dumps(adapter.CANDIDATES))"
    found: list[Parameters] = json.loads(run([str(python_of(peer)), "-W", "ignore", "-c", code]))
    return found


def to_random(problem: Problem, arms: Any) -> float:
    """Return the regret relative to that of a uniform choice."""
    means = problem.path.means
    assert means is not None
    return float(problem.path.regret(arms)[-1] / (means.max(axis=1) - means.mean(axis=1)).sum())


def percent_won(to_random: float) -> float:
    """Return the share won, in %, of a regret relative to that of a uniform choice."""
    return 100 * float(share(-to_random, -1.0, 0.0))


def chosen(candidates: Sequence[Parameters], tried: Mapping[int, Sequence[float]]) -> dict[str, Any]:
    """Return the best candidate, with its result and that of the first: geometric means over playable problems."""
    table = np.array([tried[number] for number in range(len(candidates))])  # (candidates, problems)
    playable = table[:, np.isfinite(table).any(axis=0)]
    if playable.size == 0:
        return {"parameters": candidates[0], "to_random": None, "default_to_random": None}
    means = np.exp(np.log(np.maximum(playable, 1e-9)).mean(axis=1))
    best = int(np.argmin(means))
    return {
        "parameters": candidates[best],
        "to_random": round(float(means[best]), 4),
        "default_to_random": round(float(means[0]), 4) if math.isfinite(means[0]) else None,
    }


def keep(peer: str, found: Mapping[str, Any], file: Path = TUNED) -> None:
    """Write the result for a peer to the file."""
    content: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"command": COMMAND, "peers": {}}
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    content["peers"][peer] = {"version": versions()[peer], "date": date, "chosen": found}
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def tuned(peer: str, inputs: str, group: str) -> dict[str, Any]:
    """Return the parameters chosen for a peer."""
    peers = json.loads(TUNED.read_text())["peers"]
    parameters: dict[str, Any] = peers[peer]["chosen"][inputs][group]["parameters"]
    return parameters


if __name__ == "__main__":
    main(sys.argv[1:])
