"""The round-by-round part of the structural model: levels and weights by one Kalman filter.

The features of a round are those given to `decide`, then the last contexts, newest first; a context entry that is
missing counts as average.
"""

import math
from typing import NamedTuple

import numpy as np

from undertow._checks import FloatArray
from undertow._kernel import inlined, kernel, plain
from undertow._view import view
from undertow.identify.levels import HYPERS
from undertow.identify.levels_steps import levels_condition, levels_forecast, levels_predict, levels_size
from undertow.policies.member import FACTOR, OVER, READY, SETTINGS, note_density, watch

__all__ = [
    "LevelsBlock",
    "levels_begin",
    "levels_block_size",
    "levels_catch_up",
    "levels_decide",
    "levels_learn",
    "levels_observe",
    "open_levels_block",
]

FORECASTS = 6  # rows that `levels_forecast` writes


class LevelsBlock(NamedTuple):
    """Views of the block; belief and features are standardised."""

    settings: FloatArray
    out: FloatArray  # (4, k): forecast, width, standard error from the levels, from the weights
    sizes: FloatArray  # number of features q given to decide, of lags, mean and scale of the rewards
    centre: FloatArray  # (Q,), Q = q + lags · m
    scale: FloatArray
    hyper: FloatArray
    u: FloatArray  # (Q,) features of the present round
    past: FloatArray  # (lags, m) contexts, newest first
    forecast: FloatArray  # (6, k)
    z: FloatArray  # (D,)
    P: FloatArray  # (D, D)
    scratch: FloatArray  # (2D,)


@inlined
def open_levels_block(state: FloatArray, at: int, k: int, m: int) -> LevelsBlock:
    """Split the part of a state that begins at `at`."""
    sizes = at + SETTINGS + 4 * k
    lags = int(state[sizes + 1])
    Q = int(state[sizes]) + lags * m
    D = levels_size(k, Q)
    hyper = sizes + 4 + 2 * Q
    past = hyper + HYPERS + Q
    z = past + lags * m + FORECASTS * k
    return LevelsBlock(
        view(state, at, (SETTINGS,)),
        view(state, at + SETTINGS, (4, k)),
        view(state, sizes, (4,)),
        view(state, sizes + 4, (Q,)),
        view(state, sizes + 4 + Q, (Q,)),
        view(state, hyper, (HYPERS,)),
        view(state, hyper + HYPERS, (Q,)),
        view(state, past, (lags, m)),
        view(state, past + lags * m, (FORECASTS, k)),
        view(state, z, (D,)),
        view(state, z + D, (D, D)),
        view(state, z + D + D * D, (2 * D,)),
    )


def levels_block_size(k: int, m: int, q: int, lags: int) -> int:
    """Return the length of the block."""
    Q = q + lags * m
    D: int = plain(levels_size)(k, Q)
    return SETTINGS + 4 * k + 4 + 2 * Q + HYPERS + Q + lags * m + FORECASTS * k + 3 * D + D * D


@kernel
def levels_begin(state: FloatArray, at: int, k: int, m: int) -> None:
    """Step to the present round, if the belief is still in the last one."""
    if state[at + OVER] > 0.0:
        state[at + OVER] = 0.0
        if state[at + READY] > 0.0:
            own = open_levels_block(state, at, k, m)
            levels_predict(own.z, own.P, own.hyper, k, len(own.u), own.scratch)


@kernel
def levels_see(state: FloatArray, at: int, k: int, m: int, features: FloatArray) -> None:
    """Set the features of the present round: those given, and the lagged contexts."""
    own = open_levels_block(state, at, k, m)
    q, lags = int(own.sizes[0]), int(own.sizes[1])
    for i in range(q):
        own.u[i] = (features[i] - own.centre[i]) / own.scale[i]
    for lag in range(lags):
        for j in range(m):
            i = q + lag * m + j
            x = own.past[lag, j]
            own.u[i] = 0.0 if np.isnan(x) else (x - own.centre[i]) / own.scale[i]


@kernel
def levels_decide(state: FloatArray, at: int, k: int, m: int) -> None:
    """Write forecast, width and standard errors of every arm, in the rewards' own units."""
    own = open_levels_block(state, at, k, m)
    levels_forecast(own.z, own.P, own.hyper, k, len(own.u), own.u, own.forecast)
    mean, scale = own.sizes[2], own.sizes[3]
    for a in range(k):
        own.out[0, a] = mean + scale * own.forecast[0, a]
        own.out[1, a] = scale * own.settings[FACTOR] * math.sqrt(own.forecast[2, a])
        own.out[2, a] = scale * math.sqrt(own.forecast[3, a])
        own.out[3, a] = scale * math.sqrt(own.forecast[4, a])


@kernel
def levels_learn(state: FloatArray, at: int, k: int, m: int, t: int, arm: int, reward: float) -> None:
    """Condition on a reward of the present round."""
    own = open_levels_block(state, at, k, m)
    if own.settings[READY] == 0.0:
        return
    x = (reward - own.sizes[2]) / own.sizes[3]
    _, e, deviation = levels_condition(own.z, own.P, own.hyper, k, len(own.u), own.u, arm, x, own.scratch)
    note_density(own.settings, e, deviation * own.sizes[3], t)
    watch(own.settings, e * e, t)


@kernel
def levels_observe(state: FloatArray, at: int, k: int, m: int, context: FloatArray, first: bool) -> None:
    """File a context, which begins the round or ends it."""
    if first:
        levels_begin(state, at, k, m)
    own = open_levels_block(state, at, k, m)
    lags = int(own.sizes[1])
    for lag in range(lags - 1, 0, -1):
        for j in range(m):
            own.past[lag, j] = own.past[lag - 1, j]
    if lags > 0:
        for j in range(m):
            own.past[0, j] = context[j]
    if not first:
        own.settings[OVER] = 1.0


@kernel
def levels_catch_up(
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
            levels_observe(state, at, k, m, view(rows, i * width, (m,)), first)
        if t < decided:
            levels_begin(state, at, k, m)
            if rows[i, arm] >= 0.0:
                levels_see(state, at, k, m, view(rows, i * width + m, (arm - m,)))
                if not np.isnan(rows[i, reward]):
                    levels_learn(state, at, k, m, t + 1, int(rows[i, arm]), rows[i, reward])
            if first or m == 0:
                state[at + OVER] = 1.0
        if not first and fresh <= t < seen:
            levels_observe(state, at, k, m, view(rows, i * width, (m,)), first)
