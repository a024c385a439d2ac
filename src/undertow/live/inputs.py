"""Inputs of ridge policies: the constant, lagged contexts, the round's features, the policy's own past rewards.

    Θ_t = [1 | θ_{t−1}, …, θ_{t−s} | u_t | for each lag l = 1…L and arm: its reward l steps ago, whether it is known]

Newest first throughout. An arm that was not played l time steps ago, or whose reward has not come, has reward 0 and
indicator 0. Contexts and lags are of time steps: t counts these. Of several rounds in a time step, the last one enters.

A missing context entry is replaced by a forecast: its deviation from the mean, in standard deviations, is regressed on
those of the last few contexts. The regression begins with the first gap, so data without gaps cost nothing; before
there are data, the mean enters. Deviations are capped at three, since the first standard deviations are hardly known.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.compiled.kernel import inlined, inlined_kernel
from undertow.compiled.layout import Index
from undertow.compiled.views import Record
from undertow.ridge import ridge_project, ridge_update
from undertow.support.checks import FloatArray
from undertow.window import ring_push

__all__ = [
    "Inputs",
    "begin_inputs",
    "build_inputs",
    "input_places",
    "inputs_sizes",
    "note_reward",
    "note_round",
    "push_context",
    "put_features",
]

_FILL = 10  # about the number of inputs that forecast a missing entry
_LARGEST = 3.0  # standard deviations


class InputSizes(Record):
    """Window s, number of reward lags, and the number r of inputs that forecast a missing entry."""

    s: float
    lags: float
    r: float


class InputHead(Record):
    """Number of contexts, place of the newest in the ring, and whether any entry was ever missing."""

    seen: float
    newest: Annotated[float, Index("s")]
    gaps: float


class Inputs(NamedTuple):
    """The past that inputs are made of."""

    sizes: InputSizes
    head: InputHead
    means: Annotated[FloatArray, "m"]  # of the context entries seen
    squares: Annotated[FloatArray, "m"]  # sum of their squared deviations
    counts: Annotated[FloatArray, "m"]
    ring: Annotated[FloatArray, "2*s m"]
    lag_arm: Annotated[FloatArray, "lags+1", Index("k", -1)]  # of the present time step, and of those before
    lag_reward: Annotated[FloatArray, "lags+1"]  # NaN if none
    lag_round: Annotated[FloatArray, "lags+1"]  # of the arm; −1 if none
    filled: Annotated[FloatArray, "m"]
    fill_u: Annotated[FloatArray, "m r"]  # regressions of each entry on the last contexts
    fill_W: Annotated[FloatArray, "m r r"]
    scratch: Annotated[FloatArray, "4 r"]


def inputs_sizes(k: int, m: int, q: int, window: int, lags: int) -> dict[str, int]:
    """Return the sizes of inputs for k arms, m context entries and q features, and their number p.

    A missing entry is forecast from whole contexts within the window, about ten numbers in all.
    """
    r = min(window, max(1, _FILL // m)) * m if m > 0 else 0
    return {"s": window, "lags": lags, "r": r, "p": 1 + m * window + q + 2 * k * lags}


def input_places(k: int, m: int, q: int, window: int, lags: int) -> npt.NDArray[np.int64]:
    """Return the places of the inputs for k arms among those for k + 1: at every lag, the new pair comes last."""
    fixed = 1 + m * window + q
    pairs = fixed + 2 * (k + 1) * np.arange(lags)[:, None] + np.arange(2 * k)
    return np.concatenate([np.arange(fixed), pairs.ravel()])


def begin_inputs(inputs: Inputs) -> None:
    """Write an empty past."""
    inputs.lag_arm[:] = inputs.lag_round[:] = -1.0
    inputs.lag_reward[:] = math.nan
    inputs.fill_W[:] = np.eye(inputs.fill_W.shape[-1])


@inlined
def put_features(inputs: Inputs, features: FloatArray, Θ: FloatArray) -> None:
    """Write the features into Θ_t, in place of those of another arm."""
    first = 1 + int(inputs.sizes.s) * len(inputs.means)
    for j in range(len(features)):
        Θ[first + j] = features[j]


@inlined
def build_inputs(inputs: Inputs, k: int, t: int, features: FloatArray, Θ: FloatArray) -> None:
    """Write Θ_t for time step t."""
    s, lags, first = int(inputs.sizes.s), int(inputs.sizes.lags), int(inputs.head.newest)
    Θ[0] = 1.0
    at = 1
    m = len(inputs.means)
    for i in range(s):
        for j in range(m):
            Θ[at] = inputs.ring[first + i, j]
            at += 1
    put_features(inputs, features, Θ)
    at += len(features)
    for lag in range(1, lags + 1):
        slot = (t - lag) % (lags + 1)
        known = lag <= t and not np.isnan(inputs.lag_reward[slot])
        for a in range(k):
            here = known and inputs.lag_arm[slot] == a
            Θ[at] = inputs.lag_reward[slot] if here else 0.0
            Θ[at + 1] = 1.0 if here else 0.0
            at += 2


@inlined
def push_context(inputs: Inputs, context: FloatArray) -> None:
    """Store a round's context with its missing entries filled."""
    head, filled, window = inputs.head, inputs.filled, int(inputs.sizes.s)
    for j in range(len(context)):
        filled[j] = context[j]
        if np.isnan(context[j]):
            filled[j] = inputs.means[j]
            head.gaps = 1.0
    if head.gaps > 0.0 and window > 0:
        fill_gaps(inputs.means, inputs.squares, inputs.counts, inputs.ring[int(head.newest) :], int(head.seen), context,
                  filled, inputs.fill_u, inputs.fill_W, inputs.scratch)  # fmt: skip
    for j in range(len(context)):
        if not np.isnan(context[j]):
            inputs.counts[j] += 1.0
            step = context[j] - inputs.means[j]
            inputs.means[j] += step / inputs.counts[j]
            inputs.squares[j] += step * (context[j] - inputs.means[j])
    if window > 0:
        head.newest = ring_push(inputs.ring, int(head.newest), filled)
    head.seen += 1.0


@inlined
def deviation(value: float, mean: float, spread: float) -> float:
    """Return a value's distance from the mean in standard deviations; 0 if nothing has varied yet."""
    return within((value - mean) / spread) if spread > 0.0 else 0.0


@inlined
def within(deviations: float) -> float:
    """Cap a number of standard deviations."""
    return min(max(deviations, -_LARGEST), _LARGEST)


@inlined_kernel
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
def note_round(inputs: Inputs, t: int, round: int, arm: int) -> None:
    """Open the slot of time step t for the reward of an arm in a round; −1 if none was played."""
    slot = t % len(inputs.lag_arm)
    inputs.lag_arm[slot] = arm
    inputs.lag_reward[slot] = np.nan
    inputs.lag_round[slot] = round


@inlined
def note_reward(inputs: Inputs, round: int, reward: float) -> None:
    """Store the reward of a round that is still remembered."""
    for slot in range(len(inputs.lag_round)):
        if inputs.lag_round[slot] == round:
            inputs.lag_reward[slot] = reward
