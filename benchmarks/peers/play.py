"""Play stored trajectories with another library, in its own environment.

    python -m benchmarks.peers.play PEER JOBS.json

Each job names a file with contexts, rewards and features, and one to write the arms and the time of each round to. A
line of JSON is printed for every job that is done: its error, null where there was none, and the peak memory so far.
"""

import importlib
import json
import math
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from benchmarks.peers.protocol import Adapter, Inputs


class Job(NamedTuple):
    """One run of a peer.

    Attributes
    ----------
    path, out
        File of the trajectory, and of the played arms.
    parameters
        One of the adapter's candidates.
    window, lags
        Number of past contexts and of own rewards in the inputs.
    seconds
        Time after which the run ends early, at least 3 rounds long; None for never.
    """

    path: str
    out: str
    parameters: dict[str, Any]
    seed: int
    window: int = 10
    lags: int = 0
    seconds: float | None = None


class Played(NamedTuple):
    """The arms, and the time of choosing and learning in each round."""

    arms: npt.NDArray[np.int64]
    nanoseconds: npt.NDArray[np.int64]


def play(adapter: Adapter, job: Job) -> Played:
    """Play a trajectory; times include converting the inputs to the library's format, but not making them."""
    with np.load(job.path) as path:
        contexts, rewards, features = path["contexts"], path["rewards"], path["features"]
    rounds, k = rewards.shape
    inputs = Inputs(contexts, features, k, window=job.window, lags=job.lags)
    player = adapter.start(k, inputs.size, job.seed, job.parameters)
    arms, nanoseconds = np.empty(rounds, dtype=np.int64), np.empty(rounds, dtype=np.int64)
    begun = time.perf_counter()
    for t in range(rounds):
        x = inputs.row(t)
        start = time.perf_counter_ns()
        arm = player.choose(x)
        reward = float(rewards[t, arm])
        player.learn(x, arm, reward)
        nanoseconds[t] = time.perf_counter_ns() - start
        arms[t] = arm
        inputs.note(arm, reward)
        if job.seconds is not None and t >= 2 and time.perf_counter() - begun > job.seconds:
            return Played(arms[: t + 1], nanoseconds[: t + 1])
    return Played(arms, nanoseconds)


def serve(player: Callable[[Job], Played], jobs: Path) -> None:
    """Do the jobs of a file, one after another, and print a line about each."""
    for fields in json.loads(jobs.read_text()):
        job, error = Job(**fields), None
        try:
            np.savez(job.out, **player(job)._asdict())
        except Exception as problem:  # the table shows any exception of a library
            error = f"{type(problem).__name__}: {problem}".strip().splitlines()[-1]
        print(json.dumps({"error": error, "megabytes": peak_memory()}), flush=True)


def peak_memory() -> float:
    """Return the peak memory of this process, in MB; nan if the system does not report it."""
    status = Path("/proc/self/status")  # getrusage would count the parent's memory at the fork
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) / 1024 if found else math.nan


def adapter_of(peer: str) -> Adapter:
    """Return the module of a peer, by its name."""
    return cast(Adapter, importlib.import_module(f"benchmarks.peers.{peer}"))


if __name__ == "__main__":
    serve(partial(play, adapter_of(sys.argv[1])), Path(sys.argv[2]))
