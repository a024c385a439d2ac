"""What ridge policies regress on: the constant, lagged contexts, the round's features, the learner's own past rewards.

    Θ_t = [1 | θ_{t−1}, …, θ_{t−s} | u_t | for each lag l = 1…L and arm: its reward l rounds ago, whether it is known]

Newest first throughout. An arm that was not played l rounds ago, or whose reward has not come, has reward 0 and
indicator 0. A context entry that is missing enters as the mean of those seen so far.
"""

import math
from typing import NamedTuple

import numpy as np

from undertow._checks import FloatArray
from undertow._kernel import inlined
from undertow._view import view
from undertow.window import ring_push

__all__ = [
    "Inputs",
    "build_inputs",
    "inputs_length",
    "inputs_size",
    "new_inputs",
    "note_reward",
    "note_round",
    "open_inputs",
    "push_context",
]

_HEAD = 5  # window s, number of features q, number of reward lags L, contexts seen, newest row of the ring


class Inputs(NamedTuple):
    """Views of the parts of a buffer that hold the past."""

    head: FloatArray
    sums: FloatArray
    counts: FloatArray
    ring: FloatArray
    lag_arm: FloatArray
    lag_reward: FloatArray
    filled: FloatArray


def inputs_size(k: int, m: int, window: int, features: int, lags: int) -> int:
    """Return the number p of entries of Θ."""
    return 1 + m * window + features + 2 * k * lags


def new_inputs(m: int, window: int, features: int, lags: int) -> FloatArray:
    """Return a buffer that has seen nothing."""
    buffer = np.zeros(_HEAD + 3 * m + 2 * window * m + 2 * lags)
    buffer[:3] = window, features, lags
    buffer[len(buffer) - m - 2 * lags : len(buffer) - m] = math.nan
    return buffer


@inlined
def open_inputs(state: FloatArray, at: int, m: int) -> Inputs:
    """Split the part of a state that begins at `at`."""
    s, lags = int(state[at]), int(state[at + 2])
    ring = at + _HEAD + 2 * m
    lag = ring + 2 * s * m
    return Inputs(
        view(state, at, (_HEAD,)),
        view(state, at + _HEAD, (m,)),
        view(state, at + _HEAD + m, (m,)),
        view(state, ring, (2 * s, m)),
        view(state, lag, (lags,)),
        view(state, lag + lags, (lags,)),
        view(state, lag + 2 * lags, (m,)),
    )


@inlined
def inputs_length(inputs: Inputs) -> int:
    """Return how many numbers of the state belong to the inputs."""
    return _HEAD + 3 * len(inputs.sums) + inputs.ring.size + 2 * len(inputs.lag_arm)


@inlined
def build_inputs(inputs: Inputs, k: int, t: int, features: FloatArray, Θ: FloatArray) -> None:
    """Write Θ_t for round t."""
    s, lags, first = int(inputs.head[0]), int(inputs.head[2]), int(inputs.head[4])
    Θ[0] = 1.0
    at = 1
    m = len(inputs.sums)
    for i in range(s):
        for j in range(m):
            Θ[at] = inputs.ring[first + i, j]
            at += 1
    for j in range(len(features)):
        Θ[at] = features[j]
        at += 1
    for lag in range(1, lags + 1):
        slot = (t - lag) % lags
        known = lag <= t and not np.isnan(inputs.lag_reward[slot])
        for a in range(k):
            here = known and inputs.lag_arm[slot] == a
            Θ[at] = inputs.lag_reward[slot] if here else 0.0
            Θ[at + 1] = 1.0 if here else 0.0
            at += 2


@inlined
def push_context(inputs: Inputs, context: FloatArray) -> None:
    """Take in a round's context, its missing entries filled."""
    filled = inputs.filled
    for j in range(len(context)):
        if np.isnan(context[j]):
            filled[j] = inputs.sums[j] / max(inputs.counts[j], 1.0)
        else:
            filled[j] = context[j]
            inputs.sums[j] += context[j]
            inputs.counts[j] += 1.0
    if inputs.head[0] > 0:
        inputs.head[4] = ring_push(inputs.ring, int(inputs.head[4]), filled)
    inputs.head[3] += 1.0


@inlined
def note_round(inputs: Inputs, t: int, arm: int) -> None:
    """Open the slot of round t for the reward of an arm; −1 where none was played."""
    lags = len(inputs.lag_arm)
    if lags > 0:
        inputs.lag_arm[t % lags] = arm
        inputs.lag_reward[t % lags] = np.nan


@inlined
def note_reward(inputs: Inputs, t: int, age: int, reward: float) -> None:
    """File a reward under its own round, `age` rounds before the current round t, while that is remembered."""
    lags = len(inputs.lag_arm)
    if age < lags:
        inputs.lag_reward[(t - age) % lags] = reward
