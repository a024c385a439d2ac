"""The round-by-round part of a learned shared system: its filter, what is still unknown of each arm, and an alarm.

Between two fits the filter runs on with the model as it is. Every arm keeps the posterior covariance V_a of its own
[C_a; D_a] given the states, and both are updated with every reward: recursive least squares, whose noise is the
filter's predicted variance; for the filter, in turn, what is unknown of the arm is noise. The belief steps to the next
round when that begins, so that the reward of a round may come until then.
"""

import math
from typing import NamedTuple

import numpy as np

from undertow._checks import FloatArray
from undertow._kernel import inlined, kernel, straight_kernel
from undertow._view import view
from undertow.identify.rows import WIDTH, dot, row, times_rows
from undertow.identify.score import FIXED, condition_on, model_size, move
from undertow.policies.member import FACTOR, OVER, READY, SETTINGS, UNSEEN, note_density, watch

__all__ = [
    "SharedBlock",
    "open_shared_block",
    "shared_begin",
    "shared_block_size",
    "shared_catch_up",
    "shared_forecast",
    "shared_learn",
    "shared_observe",
]

_B = WIDTH * WIDTH
_C = _B + WIDTH
_SIDE = WIDTH + 1


class SharedBlock(NamedTuple):
    """Views of the block; everything but `out` and the units is standardised."""

    settings: FloatArray
    out: FloatArray  # (4, k): forecast, width, standard error from the state, from the arm
    mean: FloatArray  # (m + 1,)
    scale: FloatArray
    vector: FloatArray  # the model, as `identify.score` takes it; A, b, C and D are parts of it
    A: FloatArray
    b: FloatArray
    C: FloatArray
    D: FloatArray
    prior: FloatArray
    At: FloatArray
    noise: FloatArray  # (m + 1,)
    z: FloatArray  # (1, 8)
    P: FloatArray  # (8, 8)
    X: FloatArray  # scratch
    K: FloatArray
    V: FloatArray  # (k, 9, 9)


@inlined
def open_shared_block(state: FloatArray, at: int, k: int, m: int) -> SharedBlock:
    """Split the part of a state that begins at `at`."""
    units = at + SETTINGS + 4 * k
    vector = units + 2 * (m + 1)
    prior = vector + _C + (WIDTH + 1) * (m + k) + m + 1
    At = prior + FIXED + m + 1
    noise = At + _B
    z = noise + m + 1
    return SharedBlock(
        view(state, at, (SETTINGS,)),
        view(state, at + SETTINGS, (4, k)),
        view(state, units, (m + 1,)),
        view(state, units + m + 1, (m + 1,)),
        view(state, vector, (prior - vector,)),
        view(state, vector, (WIDTH, WIDTH)),
        view(state, vector + _B, (1, WIDTH)),
        view(state, vector + _C, (m + k, WIDTH)),
        view(state, vector + _C + WIDTH * (m + k), (m + k,)),
        view(state, prior, (FIXED + m + 1,)),
        view(state, At, (WIDTH, WIDTH)),
        view(state, noise, (m + 1,)),
        view(state, z, (1, WIDTH)),
        view(state, z + WIDTH, (WIDTH, WIDTH)),
        view(state, z + WIDTH + _B, (WIDTH, WIDTH)),
        view(state, z + WIDTH + 2 * _B, (1, WIDTH)),
        view(state, z + 2 * WIDTH + 2 * _B, (k, _SIDE, _SIDE)),
    )


def shared_block_size(k: int, m: int) -> int:
    """Return the length of the block."""
    fixed = SETTINGS + 4 * k + 2 * (m + 1) + model_size(m, k) + FIXED + m + 1
    return fixed + 3 * _B + m + 1 + 2 * WIDTH + k * _SIDE * _SIDE


@straight_kernel
def shared_begin(state: FloatArray, at: int, k: int, m: int) -> None:
    """Step to the present round, if the belief is still in the last one."""
    own = open_shared_block(state, at, k, m)
    d = int(own.settings[READY])
    if own.settings[OVER] > 0.0:
        own.settings[OVER] = 0.0
        if d > 0:
            move(own.z, own.P, own.A, own.At, own.b, own.X, d)


@inlined
def boldness(most: float, t: int, k: int) -> float:
    """Return the factor of the width after t rounds: √ln((t + 1)/√k), at least 1 and at most `most`.

    Early models are poor guides to what is worth a try.
    """
    return min(most, math.sqrt(max(1.0, math.log(t + 1.0) - 0.5 * math.log(k))))


@straight_kernel
def shared_forecast(state: FloatArray, at: int, k: int, m: int, t: int) -> None:
    """Write forecast, width and standard errors of every arm after t rounds, in the rewards' own units."""
    own = open_shared_block(state, at, k, m)
    d, C, D = int(own.settings[READY]), own.C, own.D
    factor = boldness(own.settings[FACTOR], t, k)
    mean, scale = own.mean[m], own.scale[m]
    z = row(own.z, 0)
    own.settings[UNSEEN] = scale * math.sqrt(dot(z, z) / own.prior[3] + 1.0 / own.prior[5])
    for a in range(k):
        V = own.V[a]
        unknown = V[d, d]
        for i in range(d):
            total = 2.0 * V[i, d]
            for j in range(d):
                total += V[i, j] * own.z[0, j]
            unknown += own.z[0, i] * total
        h = row(C, m + a)
        moved = dot(h, times_rows(C, m + a, own.P, d))
        error = math.sqrt(max(unknown, 0.0))
        own.out[0, a] = mean + scale * (D[m + a] + dot(h, z))
        own.out[1, a] = scale * factor * error
        own.out[2, a] = scale * math.sqrt(max(moved, 0.0))
        own.out[3, a] = scale * error


@straight_kernel
def shared_learn(state: FloatArray, at: int, k: int, m: int, t: int, arm: int, reward: float) -> None:
    """Condition state and arm on a reward of the present round."""
    own = open_shared_block(state, at, k, m)
    d, C, D = int(own.settings[READY]), own.C, own.D
    if d == 0:
        return
    V = own.V[arm]
    X = own.X  # row 0: V z̃ without its last entry
    unknown = V[d, d]
    last = V[d, d]
    for i in range(d):
        total = V[i, d]
        for j in range(d):
            total += V[i, j] * own.z[0, j]
        X[0, i] = total
        last += V[d, i] * own.z[0, i]
        unknown += own.z[0, i] * (total + V[i, d])
    unknown = max(unknown, 0.0)
    h = row(C, m + arm)
    e = (reward - own.mean[m]) / own.scale[m] - D[m + arm] - dot(h, row(own.z, 0))
    F = condition_on(own.z, own.P, h, own.K, e, own.noise[m] + unknown, d)
    for i in range(d):  # the filter's predicted variance and what is unknown of the arm add up to F either way
        for j in range(d):
            V[i, j] -= X[0, i] * X[0, j] / F
        V[i, d] -= X[0, i] * last / F
        V[d, i] = V[i, d]
        C[m + arm, i] += X[0, i] * e / F
    V[d, d] -= last * last / F
    D[m + arm] += last * e / F
    deviation = math.sqrt(F)
    note_density(own.settings, e / deviation, deviation * own.scale[m], t)
    watch(own.settings, e * e / F, t)


@straight_kernel
def shared_observe(state: FloatArray, at: int, k: int, m: int, t: int, context: FloatArray, first: bool) -> None:
    """Condition the belief on a context, which begins the round or ends it."""
    if first:
        shared_begin(state, at, k, m)
    own = open_shared_block(state, at, k, m)
    d, C, D = int(own.settings[READY]), own.C, own.D
    if d > 0:
        for i in range(m):
            if not np.isnan(context[i]):
                h = row(C, i)
                e = (context[i] - own.mean[i]) / own.scale[i] - D[i] - dot(h, row(own.z, 0))
                F = condition_on(own.z, own.P, h, own.K, e, own.noise[i], d)
                watch(own.settings, e * e / F, t)
    if not first:
        own.settings[OVER] = 1.0


@kernel
def shared_catch_up(
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
    arm, reward = rows.shape[1] - 2, rows.shape[1] - 1
    for i in range(len(rows)):
        t = begin + i
        if first and fresh <= t < seen:
            shared_observe(state, at, k, m, t, rows[i], first)
        if t < decided:
            shared_begin(state, at, k, m)
            if rows[i, arm] >= 0.0 and not np.isnan(rows[i, reward]):
                shared_learn(state, at, k, m, t + 1, int(rows[i, arm]), rows[i, reward])
            if first or m == 0:
                state[at + OVER] = 1.0
        if not first and fresh <= t < seen:
            shared_observe(state, at, k, m, t + 1, rows[i], first)
