"""The cost of late rewards to a learner: processor time of a live round at several delays, against immediate rewards.

Every reward is as late as all others. Decisions in which a fit is made, begun or taken in are left out. Written to
out/bench/late.json.
"""

import gc
import time

import numpy as np

from benchmarks.report import OUT, Report, sampled
from helpers import learner_of
from undertow import random_system
from undertow.policies import Autopilot, Decision

DELAYS = (0, 1, 10, 100, 1000, 10_000)
ROUNDS = 2000  # beyond the delay


def played(delay: int, context_dim: int) -> tuple[float, float]:
    """Return the mean milliseconds of a round with its reward, and those of the longest decision."""
    path = sampled(random_system(3, max(context_dim, 1), 3, rng=0, spectral_radius=0.9), delay + ROUNDS)
    policy = Autopilot(arms=3, context_dim=context_dim, rng=0)
    learner, waiting = learner_of(policy), list[Decision]()
    decisions, learned = [], []
    gc.collect()
    gc.disable()  # of the pending decisions
    for t in range(path.rounds):
        before = [*(int(own.model.running.fits) for own in learner.blocks), *learner.fits.under_way]
        start = time.thread_time()
        waiting.append(policy.decide())
        taken = time.thread_time() - start
        if before == [*(int(own.model.running.fits) for own in learner.blocks), *learner.fits.under_way]:
            decisions.append(taken)
        if len(waiting) > delay:
            decision = waiting.pop(0)
            reward = float(path.rewards[decision.round, decision.arm])
            start = time.thread_time()
            policy.learn(decision, reward)
            learned.append(time.thread_time() - start)
        if context_dim:
            policy.observe(path.contexts[t, :context_dim])
    gc.enable()
    return 1e3 * float(np.mean(decisions[delay:]) + np.mean(learned)), 1e3 * max(decisions)


def main() -> None:
    """Measure all delays."""
    report = Report()
    played(2, 0)  # compiles
    for context_dim in (0, 2):
        found = {delay: played(delay, context_dim) for delay in DELAYS}
        at_once = found[0][0]
        title = f"Autopilot, 3 arms, {context_dim} context entries: a live round where rewards are late"
        rows = {
            f"{delay} rounds": [f"{mean:.3f}", f"{mean / at_once:.1f} ×", f"{mean - at_once:.3f}", f"{longest:.2f}"]
            for delay, (mean, longest) in found.items()
        }
        report.grid(title, ["ms a round", "ratio", "ms a late reward", "longest decision, ms"], rows)
        report.target("a late reward, ms", max(mean for mean, _ in found.values()) - at_once, most=0.1, timed=True)
        report.target("longest decision, ms", max(longest for _, longest in found.values()), most=5, timed=True)
    report.save(OUT / "late.json")


if __name__ == "__main__":
    main()
