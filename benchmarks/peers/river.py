"""river: Bayesian linear regression for each arm. Tuned: prior, noise, and smoothing, its way of forgetting."""

from typing import Any

from river.bandit import LinUCBDisjoint

from benchmarks.peers.protocol import Array, Parameters

CANDIDATES: list[Parameters] = [
    *({"algorithm": "LinUCB", "alpha": 1.0, "beta": beta} for beta in (1.0, 0.1, 0.01, 10.0)),
    *({"algorithm": "LinUCB", "alpha": alpha, "beta": 1.0} for alpha in (10.0, 100.0)),
    *({"algorithm": "LinUCB", "alpha": 1.0, "beta": 1.0, "smoothing": keep} for keep in (0.999, 0.99, 0.9)),
    {"algorithm": "LinUCB", "alpha": 1.0, "beta": 0.1, "smoothing": 0.99},
]


class River:
    """A contextual policy, whose inputs are dictionaries."""

    def __init__(self, policy: Any, arms: int) -> None:
        self.policy, self.arms = policy, list(range(arms))

    def choose(self, inputs: Array) -> int:
        """Pull."""
        self.named = dict(enumerate(inputs.tolist()))
        return int(self.policy.pull(self.arms, self.named))

    def learn(self, inputs: Array, arm: int, reward: float) -> None:
        """Update."""
        self.policy.update(arm, self.named, reward)


def start(arms: int, inputs: int, seed: int, parameters: Parameters) -> River:
    named = {name: value for name, value in parameters.items() if name != "algorithm"}
    return River(LinUCBDisjoint(**named, seed=seed), arms)
