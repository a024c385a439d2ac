"""contextualbandits: ridge regression for each arm, compiled. Tuned: a smaller bonus and a larger ridge, as it advises.

Its manual says that rewards are 0 or 1, but the linear policies take any. LinTS draws forecasts, not weights: its draws
of weights hardly learn (version 0.3.30).
"""

from typing import Any

import numpy as np
from contextualbandits import online

from benchmarks.peers.protocol import Array, Parameters

CANDIDATES: list[Parameters] = [
    *({"algorithm": "LinUCB", "alpha": alpha} for alpha in (1.0, 3.0, 0.25, 0.1, 0.03)),
    {"algorithm": "LinUCB", "alpha": 1.0, "lambda_": 10.0},
    {"algorithm": "LinUCB", "alpha": 0.25, "ucb_from_empty": False, "beta_prior": "auto"},
    *({"algorithm": "LinTS", "v_sq": v, "sample_from": "ci"} for v in (1.0, 0.25)),
]


class ContextualBandits:
    """An online policy, fitted a round at a time."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def choose(self, inputs: Array) -> int:
        """Predict."""
        return int(self.policy.predict(inputs[None])[0])

    def learn(self, inputs: Array, arm: int, reward: float) -> None:
        """Fit one row."""
        self.policy.partial_fit(inputs[None], np.array([arm]), np.array([reward]))


def start(arms: int, inputs: int, seed: int, parameters: Parameters) -> ContextualBandits:
    named = dict(parameters)
    make = getattr(online, named.pop("algorithm"))
    return ContextualBandits(make(arms, **named, fit_intercept=False, use_float=False, random_state=seed + 1))
