"""mabwiser: a ridge regression for each arm, with NumPy. Tuned: exploration, ridge.

Standardizing the inputs (`scale=True`) took three times as long and lost more on the paper's system.
"""

from typing import Any

import numpy as np
from mabwiser.mab import MAB, LearningPolicy

from benchmarks.peers.protocol import Array, Parameters

CANDIDATES: list[Parameters] = [
    *({"algorithm": "LinUCB", "alpha": alpha} for alpha in (1.0, 3.0, 0.25, 0.1, 0.03)),
    {"algorithm": "LinUCB", "alpha": 1.0, "l2_lambda": 10.0},
    *({"algorithm": "LinTS", "alpha": alpha} for alpha in (1.0, 0.25)),
    *({"algorithm": "LinGreedy", "epsilon": epsilon} for epsilon in (0.1, 0.01)),
]


class Mabwiser:
    """`MAB`, which has to be fitted once before it can choose: the first arm is played first."""

    def __init__(self, bandit: Any) -> None:
        self.bandit = bandit
        self.learn_first = True

    def choose(self, inputs: Array) -> int:
        """Predict."""
        return 0 if self.learn_first else int(self.bandit.predict(inputs[None]))

    def learn(self, inputs: Array, arm: int, reward: float) -> None:
        """Fit, the first time from scratch."""
        fit = self.bandit.fit if self.learn_first else self.bandit.partial_fit
        fit(np.array([arm]), np.array([reward]), inputs[None])
        self.learn_first = False


def start(arms: int, inputs: int, seed: int, parameters: Parameters) -> Mabwiser:
    named = dict(parameters)
    policy = getattr(LearningPolicy, named.pop("algorithm"))(**named)
    return Mabwiser(MAB(list(range(arms)), policy, seed=seed))
