"""Fitting a hidden linear Gaussian system to a table, beside other libraries: error, time, failures.

Tables are contexts of random systems of 1 to 4 states, 1000 rows to fit and 500 to forecast, once whole and once with a
fifth of the entries of the first 1000 rows missing. The error is that of one-step forecasts of the last 500 rows, in %
above the error of the filter that knows the system; seconds are the processor's, after a first fit that compiles. Ours
chooses the order, as SIPPY does; the others are told it. A fit that ends with an error, or whose forecasts are more
than twice as wrong, is a failure. Written to out/bench/filters.json.
"""

import json
import os
import statistics
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.environments import ONE_CORE, ROOT, PeerError, last_line, python_of
from benchmarks.report import OUT, Array, Report
from undertow import LinearGaussianSystem, identify, kalman, random_system

ROWS, AHEAD, MISSING = 1000, 500, 0.2
SEEDS, SIZES = range(100, 108), ((1, 2), (2, 2), (3, 3), (4, 2))  # states and columns, in turn
PINS: dict[str, list[str]] = {
    peer: table["install"]
    for peer, table in tomllib.loads((ROOT / "benchmarks/filter_peers/pins.toml").read_text()).items()
}
TITLES = {
    "undertow": "undertow `identify.fit`",
    "statsmodels": "statsmodels `VARMAX`, order given",
    "dynamax": "dynamax `fit_em`, order given",
    "sippy": "SIPPY `N4SID`",
    "nfoursid": "nfoursid `NFourSID`, order given",
}

SLOW = ("dynamax",)  # takes minutes instead of seconds, so it runs in the full form only


class Problem(NamedTuple):
    """A table and its true system."""

    system: LinearGaussianSystem
    train: Array
    whole: Array


class Fitted(NamedTuple):
    """The outcome of a fit: % above the error of the true filter, None for a failure, seconds, and the error."""

    excess: float | None
    seconds: float
    wrong: str = ""


def problems(*, gaps: bool) -> list[Problem]:
    found = []
    for place, seed in enumerate(SEEDS):
        states, columns = SIZES[place % len(SIZES)]
        system = random_system(states, columns, 1, rng=seed, spectral_radius=0.95)
        whole = system.sample(ROWS + AHEAD, rng=seed).contexts
        train = whole[:ROWS].copy()
        if gaps:
            train[np.random.default_rng(seed).random(train.shape) < MISSING] = np.nan
        found.append(Problem(system, train, whole))
    return found


def forecasts(system: LinearGaussianSystem, whole: Array) -> Array:
    """Return one-step forecasts of all rows."""
    return np.asarray(kalman.filter(system, whole).predicted_means @ system.context_map.T + system.context_offset)


def judged(problem: Problem, found: Array, seconds: float) -> Fitted:
    """Compare forecasts with those of the filter that knows the system."""
    errors = [
        np.sqrt(((part - problem.whole)[ROWS:] ** 2).mean(axis=0))
        for part in (found, forecasts(problem.system, problem.whole))
    ]
    ratio = float((errors[0] / errors[1]).mean())
    return Fitted(100 * (ratio - 1), seconds) if ratio < 2 else Fitted(None, seconds, "forecasts twice as wrong")


def ours(given: Sequence[Problem]) -> list[Fitted]:
    identify.fit(contexts=given[0].train)  # compiles
    found = []
    for problem in given:
        begun = time.process_time()
        system = identify.fit(contexts=problem.train).system
        seconds = time.process_time() - begun
        found.append(judged(problem, forecasts(system, problem.whole), seconds))
    return found


def theirs(peer: str, given: Sequence[Problem]) -> list[Fitted]:
    python, found = str(python_of(peer, PINS[peer])), []
    with tempfile.TemporaryDirectory() as folder:
        jobs = list[dict[str, Any]]()
        for place, problem in enumerate(given):
            job: dict[str, Any] = {
                "path": f"{folder}/{place}.npz",
                "out": f"{folder}/{place}.out.npz",
                "order": problem.system.state_dim,
            }
            np.savez(job["path"], train=problem.train, whole=problem.whole)
            jobs.append(job)
        (Path(folder) / "jobs.json").write_text(json.dumps(jobs))
        command = [python, "-W", "ignore", "-m", "benchmarks.filter_peers.fit", peer, f"{folder}/jobs.json"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | ONE_CORE)
        said = [json.loads(line)["error"] for line in done.stdout.splitlines() if line.startswith('{"error"')]
        for place, problem in enumerate(given):
            error = said[place] if place < len(said) else last_line(done.stderr)
            if error is not None:
                found.append(Fitted(None, float("nan"), error))
                continue
            with np.load(f"{folder}/{place}.out.npz") as result:
                found.append(judged(problem, result["forecasts"], float(result["seconds"])))
    return found


def cells(found: Sequence[Fitted]) -> list[str]:
    """Return median error, failures and median seconds as strings."""
    fine = [one for one in found if one.excess is not None]
    failed = len(found) - len(fine)
    if not fine:
        return ["fails", f"{failed} of {len(found)}", "–"]
    excess = statistics.median(one.excess for one in fine if one.excess is not None)
    seconds = statistics.median(one.seconds for one in fine)
    return [f"{excess:.1f}", f"{failed} of {len(found)}", f"{seconds:.2g}"]


def main(*, full: bool) -> None:
    report, rows, wrong = Report(), dict[str, list[str]](), dict[str, str]()
    both = [problems(gaps=False), problems(gaps=True)]
    for peer, title in TITLES.items():
        if peer in SLOW and not full:
            continue
        try:
            results = [ours(part) if peer == "undertow" else theirs(peer, part) for part in both]
        except (PeerError, OSError) as error:
            wrong[title] = f"does not install: {error}"
            continue
        rows[title] = [cell for part in results for cell in cells(part)]
        if reasons := dict.fromkeys(one.wrong for part in results for one in part if one.wrong):
            wrong[title] = "; ".join(reasons)
        print(f"{title}: {' '.join(rows[title])}", flush=True)
    head = ["error, %", "failures", "seconds", "error with gaps, %", "failures", "seconds"]
    report.grid(f"Fits of {len(SEEDS)} tables of {ROWS} rows", head, rows)
    for title, reason in wrong.items():
        report.note(f"{title}: {reason}")
    report.save(OUT / "filters.json", pins=PINS)


if __name__ == "__main__":
    main(full=True)
