"""bayesianbandits: a Bayesian regression for each arm. Tuned: known or estimated noise, empirical Bayes, forgetting."""

from typing import Any

import bayesianbandits as library
import numpy as np

from benchmarks.peers.protocol import Array, Parameters

NORMAL, UNKNOWN, EMPIRICAL = "NormalRegressor", "NormalInverseGammaRegressor", "EmpiricalBayesNormalRegressor"
CANDIDATES: list[Parameters] = [
    {"algorithm": "Thompson", "learner": UNKNOWN},
    *({"algorithm": "Thompson", "learner": NORMAL, "alpha": 1.0, "beta": beta} for beta in (1.0, 10.0, 100.0)),
    {"algorithm": "Thompson", "learner": EMPIRICAL},
    *(
        {"algorithm": "Thompson", "learner": NORMAL, "alpha": 1.0, "beta": 1.0, "forgetting": keep}
        for keep in (0.999, 0.99, 0.9)
    ),
    {"algorithm": "Thompson", "learner": NORMAL, "alpha": 1.0, "beta": 10.0, "forgetting": 0.99},
    {"algorithm": "UCB", "learner": NORMAL, "alpha": 1.0, "beta": 10.0},
]


class BayesianBandits:
    """An agent with one learner an arm."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent

    def choose(self, inputs: Array) -> int:
        """Pull."""
        return int(self.agent.pull(inputs[None])[0])

    def learn(self, inputs: Array, arm: int, reward: float) -> None:
        """Update the arm that was pulled last."""
        self.agent.update(inputs[None], np.array([reward]))


def start(arms: int, inputs: int, seed: int, parameters: Parameters) -> BayesianBandits:
    named = dict(parameters)
    policy = library.ThompsonSampling() if named.pop("algorithm") == "Thompson" else library.UpperConfidenceBound(0.84)
    make = getattr(library, named.pop("learner"))
    if "forgetting" in named:
        named["forgetting"] = library.StabilizedForgetting(named["forgetting"])
    learners = [library.Arm(arm, learner=make(**named)) for arm in range(arms)]
    return BayesianBandits(library.ContextualAgent(learners, policy, random_seed=seed))
