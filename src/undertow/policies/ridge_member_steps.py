"""The round-by-round part of a ridge regression on lagged contexts, features and own rewards, standardised.

The inputs are those of `inputs`; every arm has a regression of its own (`undertow.ridge`). Predictions are scored with
a noise variance estimated from their own errors.
"""

import math
from typing import NamedTuple

import numpy as np

from undertow._checks import FloatArray
from undertow._kernel import inlined, kernel
from undertow._view import view
from undertow.policies.inputs import (
    Inputs,
    build_inputs,
    new_inputs,
    note_reward,
    note_round,
    open_inputs,
    push_context,
)
from undertow.policies.member import FACTOR, READY, SETTINGS, note_density
from undertow.ridge import ridge_project, ridge_update

__all__ = [
    "RidgeBlock",
    "open_ridge_block",
    "ridge_block",
    "ridge_catch_up",
    "ridge_decide",
    "ridge_learn",
    "ridge_observe",
    "ridge_played",
    "ridge_see",
]

_SIZES = 6


class RidgeBlock(NamedTuple):
    """Views of the block."""

    settings: FloatArray
    out: FloatArray  # (4, k): forecast, width, no error from the state, standard error from the arm
    sizes: FloatArray  # inputs p, features q, mean and scale of the rewards, sum and number of squared errors
    centre: FloatArray  # (m + q,)
    scale: FloatArray
    row: FloatArray  # (m + q,) standardised context and features
    Θ: FloatArray  # (p,)
    u: FloatArray  # (k, p)
    W: FloatArray  # (k, p, p)
    scratch: FloatArray  # (3, p)
    inputs: Inputs


@inlined
def open_ridge_block(state: FloatArray, at: int, k: int, m: int) -> RidgeBlock:
    """Split the part of a state that begins at `at`."""
    sizes = at + SETTINGS + 4 * k
    p, q = int(state[sizes]), int(state[sizes + 1])
    units = sizes + _SIZES
    Θ = units + 3 * (m + q)
    W = Θ + p + k * p
    return RidgeBlock(
        view(state, at, (SETTINGS,)),
        view(state, at + SETTINGS, (4, k)),
        view(state, sizes, (_SIZES,)),
        view(state, units, (m + q,)),
        view(state, units + m + q, (m + q,)),
        view(state, units + 2 * (m + q), (m + q,)),
        view(state, Θ, (p,)),
        view(state, Θ + p, (k, p)),
        view(state, W, (k, p, p)),
        view(state, W + k * p * p, (3, p)),
        open_inputs(state, W + k * p * p + 3 * p, m),
    )


def ridge_block(k: int, m: int, q: int, window: int, lags: int, p: int) -> FloatArray:
    """Return the block before the first round."""
    sizes = [p, q, 0.0, 1.0, 1.0, 1.0]
    units = np.concatenate([np.zeros(m + q), np.ones(m + q), np.zeros(m + q)])
    W = np.tile(np.eye(p), (k, 1, 1))
    parts = [np.zeros(SETTINGS + 4 * k), sizes, units, np.zeros(p + k * p), W.ravel(), np.zeros(3 * p)]
    return np.concatenate([*parts, new_inputs(m, window, q, lags)])


@kernel
def ridge_see(state: FloatArray, at: int, k: int, m: int, t: int, features: FloatArray) -> None:
    """Build the inputs of round t."""
    own = open_ridge_block(state, at, k, m)
    for i in range(int(own.sizes[1])):
        own.row[m + i] = (features[i] - own.centre[m + i]) / own.scale[m + i]
    build_inputs(own.inputs, k, t, own.row[m:], own.Θ)


@kernel
def ridge_decide(state: FloatArray, at: int, k: int, m: int) -> None:
    """Write forecast, width and standard error of every arm, in the rewards' own units."""
    own = open_ridge_block(state, at, k, m)
    p = int(own.sizes[0])
    mean, scale = own.sizes[2], own.sizes[3]
    noise = math.sqrt(own.sizes[4] / own.sizes[5])
    y = own.scratch[0]
    for a in range(k):
        ridge_project(own.W[a], own.Θ, y, p)
        forecast = 0.0
        uncertainty = 0.0
        for i in range(p):
            forecast += own.u[a, i] * y[i]
            uncertainty += y[i] * y[i]
        error = scale * noise * math.sqrt(uncertainty)
        own.out[0, a] = mean + scale * forecast
        own.out[1, a] = own.settings[FACTOR] * error
        own.out[2, a] = 0.0
        own.out[3, a] = error


@kernel
def ridge_played(state: FloatArray, at: int, k: int, m: int, t: int, arm: int) -> None:
    """Note which arm was played in round t; −1 for none."""
    note_round(open_ridge_block(state, at, k, m).inputs, t, arm)


@kernel
def ridge_learn(state: FloatArray, at: int, k: int, m: int, t: int, arm: int, reward: float) -> None:
    """Add a row to the played arm's regression; t is the round of the reward."""
    own = open_ridge_block(state, at, k, m)
    p, y = int(own.sizes[0]), own.scratch[0]
    x = (reward - own.sizes[2]) / own.sizes[3]
    note_reward(own.inputs, t, 0, x)
    ridge_project(own.W[arm], own.Θ, y, p)
    e = x
    variance = 1.0
    for i in range(p):
        e -= own.u[arm, i] * y[i]
        variance += y[i] * y[i]
    if own.settings[READY] > 0.0:
        deviation = math.sqrt(variance * own.sizes[4] / own.sizes[5])
        note_density(own.settings, e / deviation, deviation * own.sizes[3], t + 1)
    own.sizes[4] += e * e / variance
    own.sizes[5] += 1.0
    ridge_update(own.W[arm], own.u[arm], y, x, own.scratch[1], own.scratch[2])


@kernel
def ridge_observe(state: FloatArray, at: int, k: int, m: int, context: FloatArray) -> None:
    """File a context."""
    own = open_ridge_block(state, at, k, m)
    for i in range(m):
        own.row[i] = (context[i] - own.centre[i]) / own.scale[i]
    push_context(own.inputs, own.row[:m])


@kernel
def ridge_catch_up(
    state: FloatArray,
    at: int,
    k: int,
    m: int,
    rows: FloatArray,
    begin: int,
    decided: int,
    fresh: int,
    seen: int,
    first: bool,
) -> None:
    """Go through rows of a log, from round `begin` on, as in `member.Span`.

    A row holds m contexts, features, arm and reward.
    """
    width = rows.shape[1]
    arm, reward = width - 2, width - 1
    for i in range(len(rows)):
        t = begin + i
        if first and fresh <= t < seen:
            ridge_observe(state, at, k, m, view(rows, i * width, (m,)))
        if t < decided:
            if rows[i, arm] >= 0.0:
                ridge_see(state, at, k, m, t, view(rows, i * width + m, (arm - m,)))
            ridge_played(state, at, k, m, t, int(rows[i, arm]))
            if rows[i, arm] >= 0.0 and not np.isnan(rows[i, reward]):
                ridge_learn(state, at, k, m, t, int(rows[i, arm]), rows[i, reward])
        if not first and fresh <= t < seen:
            ridge_observe(state, at, k, m, view(rows, i * width, (m,)))
