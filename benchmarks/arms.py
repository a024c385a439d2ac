"""The cost of arms to Autopilot: a live round, its longest decision, its memory; and the error of the levels' filter.

Fits are made inline. A round's mean is that of the last rounds, in which no fit was made. Written to
out/bench/arms.json.
"""

import gc
import time
from typing import NamedTuple

import numpy as np

from benchmarks.report import OUT, Report, sampled
from helpers import learner_of
from twins import naive_levels as exact
from undertow import random_system
from undertow.models.levels.equations import Hyper
from undertow.models.levels.filter import LIMIT, condition, new_belief, predict, start
from undertow.models.levels.prior import typical_levels
from undertow.policies import Autopilot

ARMS, FEATURES = (5, 20, 50, 100, 200), (0, 10)
ROUNDS, LAST = 800, 300
PERSISTENCES = (0.0, 0.5, 0.9, 0.95, 0.99, 0.999)


class Cost(NamedTuple):
    """Mean milliseconds of a round, those of the longest decision, and megabytes."""

    mean: float
    longest: float
    megabytes: float


def played(k: int, q: int) -> Cost:
    """Play live, with contexts and immediate rewards."""
    path = sampled(random_system(5, 1, k, rng=0), ROUNDS)
    features = np.random.default_rng(0).standard_normal((ROUNDS, q))
    policy = Autopilot(arms=k, context_dim=1, feature_dim=q, rng=0, refit="inline")
    learner = learner_of(policy)
    rounds, longest = list[float](), 0.0
    gc.collect()
    for t in range(ROUNDS):
        fits = [int(own.model.running.fits) for own in learner.blocks]
        begun = time.thread_time()
        decision = policy.decide(features[t] if q else None)
        decided = time.thread_time()
        policy.learn(decision, float(path.rewards[t, decision.arm]))
        policy.observe(path.contexts[t])
        longest = max(longest, decided - begun)
        if fits == [int(own.model.running.fits) for own in learner.blocks]:
            rounds.append(time.thread_time() - begun)
    return Cost(1e3 * float(np.mean(rounds[-LAST:])), 1e3 * longest, policy.parts.nbytes / 1e6)


def forgotten(k: int, persistence: float, seed: int, rounds: int = 800) -> tuple[float, float, float]:
    """Play greedily by the exact filter, with a third of random choices, and run the policies' filter beside it.

    Returns the regret of the policies' filter relative to the exact one's, how far its forecasts of the arms' own parts
    are from the exact ones in standard deviations, and its variances relative to the exact ones.
    """
    rng, hyper = np.random.default_rng(seed), typical_levels()
    Hyper(hyper, 0).shared_persistence = persistence
    Φ, Q, P = exact.matrices(hyper, k, 0)
    x, z, belief = np.sqrt(np.diag(P)) * rng.standard_normal(len(P)), np.zeros(len(P)), new_belief(k, 0)
    noise, nothing = Hyper(hyper, 0).reward_noise, np.zeros(0)
    own = np.array([exact.row(a, nothing, k) * (np.arange(len(P)) > 0) for a in range(k)])
    start(belief, hyper)
    regrets, apart, variances = np.zeros(2), [], []
    for t in range(rounds):
        true, mine, theirs = own @ x, belief.own.sum(axis=1), own @ z
        if t >= rounds // 4:
            known = np.einsum("ai,ij,aj->a", own, P, own)
            regrets += true.max() - true[[mine.argmax(), theirs.argmax()]]
            apart.append(np.mean((mine - theirs) ** 2 / known))
            variances.append(np.mean(belief.P_own.sum(axis=(1, 2)) / known))
        arm = int(rng.integers(k) if rng.random() < 1 / 3 else theirs.argmax())
        h = exact.row(arm, nothing, k)
        reward = float(h @ x + np.sqrt(noise) * rng.standard_normal())
        condition(belief, hyper, nothing, arm, reward, LIMIT)
        predict(belief, hyper, 1.0)
        s = h @ P @ h + noise
        z, P = z + P @ h * (reward - h @ z) / s, P - np.outer(P @ h, P @ h) / s
        z, P, x = Φ @ z, Φ @ P @ Φ + Q, Φ @ x + np.sqrt(np.diag(Q)) * rng.standard_normal(len(x))
    return regrets[0] / regrets[1], float(np.sqrt(np.mean(apart))), float(np.mean(variances))


def main() -> None:
    """Measure all sizes."""
    report = Report()
    played(5, 10)  # compiles
    for q in FEATURES:
        costs = {k: played(k, q) for k in ARMS}
        rows = {
            f"{k} arms": [
                f"{cost.mean:.3f}",
                f"{cost.mean / costs[5].mean:.1f} ×",
                f"{cost.longest:.0f}",
                f"{cost.megabytes:.1f}",
            ]
            for k, cost in costs.items()
        }
        title = f"Autopilot, 1 context entry, {q} features, {ROUNDS} rounds, fits inline"
        report.grid(title, ["ms per round", "ratio", "longest decision, ms", "MB"], rows)
        report.target("a round at 50 arms, ratio", costs[50].mean / costs[5].mean, most=8)
        report.target("a round at 200 arms, ratio", costs[200].mean / costs[5].mean, most=40)
        report.target("longest decision at 50 arms, ms", costs[50].longest, most=100, timed=True)
        report.target("longest decision at 200 arms, ms", costs[200].longest, most=500, timed=True)
        report.target("megabytes at 200 arms", costs[200].megabytes, most=30)
    rows = {}
    for k in (5, 20):
        for persistence in PERSISTENCES:
            found = np.array([forgotten(k, persistence, seed) for seed in range(10)])
            (regret, apart, variance), error = found.mean(axis=0), found[:, 0].std(ddof=1) / np.sqrt(len(found))
            rows[f"{k} arms, {persistence:g}"] = [f"{regret:.3f} ± {error:.3f}", f"{apart:.3f}", f"{variance:.3f}"]
    title = (
        "The levels' filter against the exact one, by the persistence of the shared level; typical levels, seeds 0–9"
    )
    report.grid(title, ["regret, ratio", "forecasts apart, deviations", "variance, ratio"], rows)
    report.save(OUT / "arms.json")


if __name__ == "__main__":
    main()
