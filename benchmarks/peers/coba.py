"""coba: one regression for all arms, over inputs crossed with the arm. Tuned: exploration.

Its matrix has a row for every input of every arm, so a round costs (arms · inputs)² operations.
"""

from typing import Any

from coba.learners import LinTSLearner, LinUCBLearner

from benchmarks.peers.protocol import Array, Parameters, TooSlowError

MOST = 1500  # inputs of all arms together
CANDIDATES: list[Parameters] = [
    *({"algorithm": "LinUCB", "alpha": alpha} for alpha in (1.0, 3.0, 0.25, 0.1, 0.03)),
    *({"algorithm": "LinTS", "v": v} for v in (1.0, 0.25, 0.05)),
]


class Coba:
    """A learner over actions that are unit vectors."""

    def __init__(self, learner: Any, arms: int) -> None:
        self.learner = learner
        self.actions = [tuple(int(other == arm) for other in range(arms)) for arm in range(arms)]

    def choose(self, inputs: Array) -> int:
        """Predict."""
        self.context = tuple(inputs.tolist())
        self.action, self.probability = self.learner.predict(self.context, self.actions)[:2]
        return self.actions.index(self.action)

    def learn(self, inputs: Array, arm: int, reward: float) -> None:
        """Learn."""
        self.learner.learn(self.context, self.action, reward, self.probability)


def start(arms: int, inputs: int, seed: int, parameters: Parameters) -> Coba:
    if arms * inputs > MOST:
        raise TooSlowError(f"its matrix would have {arms * inputs}² entries")
    # The first input is 1, so the products with it are the arms themselves.
    if parameters["algorithm"] == "LinUCB":
        return Coba(LinUCBLearner(parameters["alpha"], features=["ax"], seed=seed), arms)
    return Coba(LinTSLearner(parameters["v"], features=["ax"], seed=seed), arms)
