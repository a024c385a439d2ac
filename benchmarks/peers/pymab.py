"""pymab: a ridge regression for each arm, in Rust. Tuned: exploration, ridge, a gradient rule of fixed rate."""

from typing import Any

import numpy as np
from pymab import policies

from benchmarks.peers.protocol import Array, Parameters

CANDIDATES: list[Parameters] = [
    *({"algorithm": "LinUCB", "alpha": alpha} for alpha in (1.0, 3.0, 0.25, 0.1, 0.03)),
    {"algorithm": "LinUCB", "alpha": 1.0, "l2": 10.0},
    *({"algorithm": "LinearThompsonSampling", "exploration_scale": scale} for scale in (1.0, 0.25)),
    *({"algorithm": "LinearEpsilonGreedy", "epsilon": 0.02, "learning_rate": rate} for rate in (0.01, 0.001)),
]


class Pymab:
    """A contextual policy, which wants the inputs once for each arm."""

    def __init__(self, policy: Any, arms: int, seed: int) -> None:
        self.policy, self.arms, self.rng = policy, arms, np.random.default_rng(seed)

    def choose(self, inputs: Array) -> int:
        """Select."""
        self.context = np.tile(inputs, (self.arms, 1))
        return int(self.policy.select_action(context=self.context, rng=self.rng))

    def learn(self, inputs: Array, arm: int, reward: float) -> None:
        """Update."""
        self.policy.update(action=arm, reward=reward, context=self.context)


def start(arms: int, inputs: int, seed: int, parameters: Parameters) -> Pymab:
    named = dict(parameters)
    make = getattr(policies, f"{named.pop('algorithm')}Policy")
    return Pymab(make(n_arms=arms, n_features=inputs, **named), arms, seed)
