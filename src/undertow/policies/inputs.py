"""What ridge policies regress on: the constant, lagged contexts, the round's features, the learner's own past rewards.

    Θ_t = [1 | θ_{t−1}, …, θ_{t−s} | u_t | for each lag l = 1…L and arm: its reward l rounds ago, whether it is known]

Newest first throughout. An arm that was not played l rounds ago, or whose reward has not come, has reward 0 and
indicator 0.

A context entry that is missing enters as what the last contexts let expect of it: its deviation from the mean, in
standard deviations, is regressed on those of the last few contexts. The regression begins with the first gap, so that
data without gaps cost nothing; where nothing is known yet, the mean enters. No deviation counts as more than three: the
first ones, in standard deviations that are hardly known, could be anything.
"""

import math
from typing import NamedTuple

import numpy as np

from undertow._checks import FloatArray
from undertow._kernel import inlined, kernel, plain
from undertow._view import view
from undertow.ridge import ridge_project, ridge_update
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

_HEAD = 6  # window s, number of features q, number of reward lags L, contexts seen, newest row of the ring, gaps seen
_FILL = 10  # about how many numbers a missing entry is forecast from
_LARGEST = 3.0  # standard deviations


class Inputs(NamedTuple):
    """Views of the parts of a buffer that hold the past."""

    head: FloatArray
    means: FloatArray  # of the context entries seen, (m,)
    squares: FloatArray  # sum of their squared deviations, (m,)
    counts: FloatArray  # (m,)
    ring: FloatArray  # (2s, m)
    lag_arm: FloatArray  # (L,)
    lag_reward: FloatArray  # (L,)
    filled: FloatArray  # (m,)
    fill_u: FloatArray  # regressions of each entry on the last contexts, (m, r)
    fill_W: FloatArray  # (m, r, r)
    scratch: FloatArray  # (4, r)


def inputs_size(k: int, m: int, window: int, features: int, lags: int) -> int:
    """Return the number p of entries of Θ."""
    return 1 + m * window + features + 2 * k * lags


def new_inputs(m: int, window: int, features: int, lags: int) -> FloatArray:
    """Return a buffer that has seen nothing."""
    r = plain(fill_size)(m, window)
    head = [window, features, lags, 0.0, 0.0, 0.0]
    fill = [np.zeros(m + m * r), np.tile(np.eye(r), (m, 1, 1)).ravel(), np.zeros(4 * r)]
    return np.concatenate([head, np.zeros(3 * m + 2 * window * m), np.full(2 * lags, math.nan), *fill])


@inlined
def fill_size(m: int, window: int) -> int:
    """Return from how many numbers a missing entry is forecast: whole contexts, within the window."""
    return min(window, max(1, _FILL // m)) * m if m > 0 else 0


@inlined
def open_inputs(state: FloatArray, at: int, m: int) -> Inputs:
    """Split the part of a state that begins at `at`."""
    s, lags = int(state[at]), int(state[at + 2])
    r = fill_size(m, s)
    ring = at + _HEAD + 3 * m
    lag = ring + 2 * s * m
    fill = lag + 2 * lags + m
    return Inputs(
        view(state, at, (_HEAD,)),
        view(state, at + _HEAD, (m,)),
        view(state, at + _HEAD + m, (m,)),
        view(state, at + _HEAD + 2 * m, (m,)),
        view(state, ring, (2 * s, m)),
        view(state, lag, (lags,)),
        view(state, lag + lags, (lags,)),
        view(state, lag + 2 * lags, (m,)),
        view(state, fill, (m, r)),
        view(state, fill + m * r, (m, r, r)),
        view(state, fill + m * r + m * r * r, (4, r)),
    )


@inlined
def inputs_length(inputs: Inputs) -> int:
    """Return how many numbers of the state belong to the inputs."""
    m, r = len(inputs.means), inputs.scratch.shape[1]
    length: int = _HEAD + 4 * m + inputs.ring.size + 2 * len(inputs.lag_arm) + m * r + m * r * r + 4 * r
    return length


@inlined
def build_inputs(inputs: Inputs, k: int, t: int, features: FloatArray, Θ: FloatArray) -> None:
    """Write Θ_t for round t."""
    s, lags, first = int(inputs.head[0]), int(inputs.head[2]), int(inputs.head[4])
    Θ[0] = 1.0
    at = 1
    m = len(inputs.means)
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
    head, filled = inputs.head, inputs.filled
    for j in range(len(context)):
        filled[j] = context[j]
        if np.isnan(context[j]):
            filled[j] = inputs.means[j]
            head[5] = 1.0
    if head[5] > 0.0 and head[0] > 0.0:
        fill_gaps(inputs.means, inputs.squares, inputs.counts, inputs.ring[int(head[4]) :], int(head[3]), context,
                  filled, inputs.fill_u, inputs.fill_W, inputs.scratch)  # fmt: skip
    for j in range(len(context)):
        if not np.isnan(context[j]):
            inputs.counts[j] += 1.0
            step = context[j] - inputs.means[j]
            inputs.means[j] += step / inputs.counts[j]
            inputs.squares[j] += step * (context[j] - inputs.means[j])
    if head[0] > 0.0:
        head[4] = ring_push(inputs.ring, int(head[4]), filled)
    head[3] += 1.0


@inlined
def deviation(value: float, mean: float, spread: float) -> float:
    """Return by how many standard deviations a value is off the mean; 0 where nothing has varied yet."""
    return within((value - mean) / spread) if spread > 0.0 else 0.0


@inlined
def within(deviations: float) -> float:
    """Return a number of standard deviations, or the largest that counts."""
    return min(max(deviations, -_LARGEST), _LARGEST)


@kernel
def fill_gaps(
    means: FloatArray,
    squares: FloatArray,
    counts: FloatArray,
    past: FloatArray,
    seen: int,
    context: FloatArray,
    filled: FloatArray,
    u: FloatArray,
    W: FloatArray,
    scratch: FloatArray,
) -> None:
    """Forecast the missing entries of a context from the past ones, newest first, and learn from the others."""
    m, r = len(context), scratch.shape[1]
    x, y = scratch[0], scratch[1]
    for i in range(r):
        lag, j = i // m, i % m
        spread = math.sqrt(squares[j] / max(counts[j], 1.0))
        x[i] = deviation(past[lag, j], means[j], spread) if lag < seen else 0.0
    for j in range(m):
        ridge_project(W[j], x, y, r)
        spread = math.sqrt(squares[j] / max(counts[j], 1.0))
        if np.isnan(context[j]):
            forecast = 0.0
            for i in range(r):
                forecast += u[j, i] * y[i]
            filled[j] = means[j] + spread * within(forecast)
        elif spread > 0.0:
            ridge_update(W[j], u[j], y, deviation(context[j], means[j], spread), scratch[2], scratch[3])


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
