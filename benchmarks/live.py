"""Play stored trajectories live with one of our own policies, as `peers.play` does with another library.

    python -m benchmarks.live POLICY JOBS.json

A round is decide, learn and observe; the policy makes its inputs itself, and that is timed.
"""

import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.peers.play import Job, Played, serve
from undertow.contenders import Contender


def play_live(name: str, job: Job) -> Played:
    """Play one job."""
    with np.load(job.path) as path:
        contexts, rewards = path["contexts"], path["rewards"].tolist()
    rounds, m = contexts.shape
    sizes = {"arms": len(rewards[0]), "context_dim": m, "window": job.window, "max_window": job.window}
    policy = Contender(name, name).build(**sizes, rng=job.seed)
    arms, nanoseconds = np.empty(rounds, dtype=np.int64), np.empty(rounds, dtype=np.int64)
    begun = time.perf_counter()
    for t in range(rounds):
        start = time.perf_counter_ns()
        decision = policy.decide()
        policy.learn(decision, rewards[t][decision.arm])
        policy.observe(contexts[t])
        nanoseconds[t] = time.perf_counter_ns() - start
        arms[t] = decision.arm
        if job.seconds is not None and t >= 2 and time.perf_counter() - begun > job.seconds:
            return Played(arms[: t + 1], nanoseconds[: t + 1])
    return Played(arms, nanoseconds)


if __name__ == "__main__":
    serve(partial(play_live, sys.argv[1]), Path(sys.argv[2]))
