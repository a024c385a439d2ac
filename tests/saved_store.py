"""Writes the store of a version to keep: `python tests/saved_store.py tests/saved/store-0.2.0.db`, at its release."""

import sqlite3
import sys
import time
from pathlib import Path

import undertow


def main(file: Path) -> None:
    """Write a learner and a policy without models, each with a decision that waits."""
    url = f"sqlite:///{file.absolute()}"
    path = undertow.random_system(state_dim=1, context_dim=1, arm_count=2, rng=1).sample(30, rng=2)
    learner = undertow.LearnedKalman(arms=2, context_dim=1, refit="background", rng=0)
    policy = undertow.open(url, "learner", learner)
    for t in range(30):
        decision = policy.decide(id="waits" if t == 29 else f"order {t}")
        if t < 29:
            policy.learn(decision, float(path.rewards[t, decision.arm]))
            policy.observe(path.contexts[t])
            time.sleep(0.05)  # a fit comes from a thread
    ridge = undertow.open(url, "ridge", undertow.LinUCB(arms=2, feature_dim=1, rng=0))
    for t in range(40):
        decision = ridge.decide([0.5], id="waits" if t == 39 else f"order {t}")
        if t < 39:
            ridge.learn(decision, 0.1 * t)
    with sqlite3.connect(file, isolation_level=None) as connection:
        connection.execute("VACUUM")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
