"""The protocol of every peer: the same inputs as our ridge policies, one round at a time.

This folder runs in environments without undertow, with NumPy alone beside the peer.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Parameters = Mapping[str, Any]


class Player(Protocol):
    """A library's bandit, ready to play."""

    def choose(self, inputs: Array) -> int:
        """Return an arm for a vector of inputs, the first of which is 1."""

    def learn(self, inputs: Array, arm: int, reward: float) -> None:
        """Learn the reward of the arm that was just chosen for these inputs."""


class Adapter(Protocol):
    """A module of this folder.

    Attributes
    ----------
    CANDIDATES
        Candidates for tuning: algorithms and their parameters, from the library's manual; its defaults come first.
    """

    CANDIDATES: list[Parameters]

    def start(self, arms: int, inputs: int, seed: int, parameters: Parameters) -> Player:
        """Return a new player of one of the candidates."""


class TooSlowError(Exception):
    """A problem so large that a peer would need hours; shown in the tables in place of a number."""


class Inputs:
    """The inputs of every round of a path, as `undertow.policies.inputs` has them.

        [1 | the last `window` contexts | features | for the last `lags` rounds and each arm: reward, whether known]

    Newest first throughout, 0 before the first round and for arms that were not played.
    """

    def __init__(self, contexts: Array, features: Array, arms: int, *, window: int, lags: int) -> None:
        rounds, m = contexts.shape
        padded = np.vstack([np.zeros((window, m)), contexts])
        lagged = [padded[window - lag : window - lag + rounds] for lag in range(1, window + 1)]
        self._known = np.hstack([np.ones((rounds, 1)), *lagged, features])
        self._own = np.zeros((lags, arms, 2))
        self.size = self._known.shape[1] + self._own.size

    def row(self, t: int) -> Array:
        """Return the inputs of round t."""
        return np.concatenate([self._known[t], self._own.ravel()])

    def note(self, arm: int, reward: float) -> None:
        """Record the reward of an arm in a round."""
        if len(self._own):
            self._own[1:] = self._own[:-1].copy()
            self._own[0] = 0.0
            self._own[0, arm] = reward, 1.0
