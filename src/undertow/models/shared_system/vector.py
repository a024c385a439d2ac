"""A shared system as one vector, its prior, and the conversion to and from the user's units.

    z' = A z + b + N(0, I),   y_i = ⟨C_i, z⟩ + D_i + N(0, r_i)

The outputs are m contexts, each with its own noise, then k arms that share one. Fits work on standardized tables. A
vector holds A, b, C, D and log r one behind the other, zero beyond the order; only this module knows where.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from undertow.compiled.kernel import inlined, plain
from undertow.compiled.views import Record, view
from undertow.models.shared_system.rows import WIDTH
from undertow.models.table import centre_and_scale
from undertow.support.checks import FloatArray
from undertow.system import LinearGaussianSystem

__all__ = [
    "MAX_ORDER",
    "NOISE_SCALE",
    "OFFSET_SCALE",
    "Prior",
    "Scales",
    "SystemParts",
    "VectorModel",
    "cold_model",
    "dynamics_of",
    "grown_model",
    "open_vector",
    "output_prior",
    "prior_size",
    "rescaled",
    "scales_of",
    "spent_on_noise",
    "split_vector",
    "standardized",
    "to_system",
    "vector_size",
    "weight_at",
]

MAX_ORDER = WIDTH
NOISE_SCALE = 0.01  # of an output's variance: where the prior of its noise variance pulls
OFFSET_SCALE = 0.3  # of the variance explained in a typical arm: variance of the arms' offsets
_B = WIDTH * WIDTH
_C = _B + WIDTH
_RADII, _PAIRS = (0.6, 0.98), 0.7  # of the modes of a random start, and how often two of them form a pair
_GROWTH = 0.5  # standard deviation of a new mode's part of an output, relative to its noise


class SystemParts(NamedTuple):
    """The parts of a vector, or of a gradient or a step in its coordinates, as views."""

    A: FloatArray  # (8, 8)
    b: FloatArray  # (1, 8)
    C: FloatArray  # (m + k, 8)
    D: FloatArray  # (m + k,)
    log_r: FloatArray  # (m + 1,)


@inlined
def open_vector(vector: FloatArray, m: int, k: int) -> SystemParts:
    """Split a vector, in a kernel; `split_vector` does so from Python."""
    p = m + k
    return SystemParts(
        view(vector, 0, (WIDTH, WIDTH)),
        view(vector, _B, (1, WIDTH)),
        view(vector, _C, (p, WIDTH)),
        view(vector, _C + WIDTH * p, (p,)),
        view(vector, _C + (WIDTH + 1) * p, (m + 1,)),
    )


split_vector: Callable[[FloatArray, int, int], SystemParts] = plain(open_vector)  # the same, from Python


@inlined
def weight_at(o: int, i: int, d: int, p: int) -> int:
    """Return where entry i of [C_o D_o], d + 1 numbers, is in a vector of p outputs."""
    return _C + WIDTH * o + i if i < d else _C + WIDTH * p + o


@inlined
def dynamics_of(vector: FloatArray) -> FloatArray:
    """Return A of a vector of any sizes, in a kernel."""
    return view(vector, 0, (WIDTH, WIDTH))


def vector_size(m: int, k: int) -> int:
    """Return the length of a vector."""
    return _C + (WIDTH + 1) * (m + k) + m + 1


def _arms_in(vector: FloatArray, m: int) -> int:
    return (len(vector) - vector_size(m, 0)) // (WIDTH + 1)


class Prior(Record):
    """The fixed numbers of a prior; after them come the degrees of freedom per noise variance (`spent_on_noise`)."""

    start_variance: float  # of each state in the first round
    context_loading_precision: float
    context_offset_precision: float
    arm_loading_precision: float
    offset_mean: float  # of an arm
    offset_precision: float
    noise_scale: float


_FIXED = len(Prior.names)


def prior_size(m: int) -> int:
    """Return the length of a prior."""
    return _FIXED + m + 1


@inlined
def spent_on_noise(prior: FloatArray, m: int) -> FloatArray:
    """Return the degrees of freedom that the loadings next to each noise variance have used up, (m + 1,)."""
    return view(prior, _FIXED, (m + 1,))


@inlined
def output_prior(prior: FloatArray, o: int, m: int) -> tuple[float, float, float]:
    """Return the precision of an output's loadings, and mean and precision of its offset."""
    own = Prior(prior, 0)
    context = own.context_loading_precision, 0.0, own.context_offset_precision
    return context if o < m else (own.arm_loading_precision, own.offset_mean, own.offset_precision)


class Scales(NamedTuple):
    """Mean and scale of every context, then of the rewards of all arms together."""

    mean: FloatArray
    scale: FloatArray


class VectorModel(NamedTuple):
    """A shared system of one order: its vector, its prior and its fit."""

    order: int
    vector: FloatArray
    prior: FloatArray
    log_likelihood: float = -math.inf
    freedom: float = math.inf

    @property
    def criterion(self) -> float:
        """Log likelihood minus effective degrees of freedom, in nats, to compare orders."""
        return self.log_likelihood - self.freedom


def scales_of(table: FloatArray, m: int) -> Scales:
    """Return the scales of a table of m contexts, arm and reward."""
    columns = [centre_and_scale(table[:, i]) for i in (*range(m), m + 1)]
    return Scales(*np.array(columns).T.copy())


def standardized(table: FloatArray, scales: Scales) -> FloatArray:
    """Return a copy of a table in the given scales."""
    m = len(scales.mean) - 1
    result = table.copy()
    result[:, :m] = (table[:, :m] - scales.mean[:m]) / scales.scale[:m]
    result[:, m + 1] = (table[:, m + 1] - scales.mean[m]) / scales.scale[m]
    return result


def rescaled(model: VectorModel, old: Scales, new: Scales) -> VectorModel:
    """Return the same system in other scales."""
    m = len(old.mean) - 1
    k = _arms_in(model.vector, m)
    which = np.minimum(np.arange(m + k), m)
    ratio, shift = old.scale / new.scale, (old.mean - new.mean) / new.scale
    result = model._replace(vector=model.vector.copy(), prior=model.prior.copy())
    parts, prior = split_vector(result.vector, m, k), Prior(result.prior, 0)
    parts.C[:] *= ratio[which, None]
    parts.D[:] = parts.D * ratio[which] + shift[which]
    parts.log_r[:] += 2 * np.log(ratio)
    prior.arm_loading_precision /= ratio[m] ** 2
    prior.offset_mean = prior.offset_mean * ratio[m] + shift[m]
    prior.offset_precision /= ratio[m] ** 2
    return result


def cold_model(d: int, m: int, k: int, rng: np.random.Generator) -> VectorModel:
    """Return a random start: modes of `_add_modes`, and loadings that explain about half of each output."""
    model = VectorModel(d, np.zeros(vector_size(m, k)), np.zeros(prior_size(m)))
    parts, prior = split_vector(model.vector, m, k), Prior(model.prior, 0)
    τ = _add_modes(parts.A, 0, d, rng)
    parts.C[:, :d] = rng.standard_normal((m + k, d)) / math.sqrt(2 * τ)
    parts.log_r[:] = math.log(0.5)
    prior.start_variance = τ / d
    prior.context_loading_precision = prior.arm_loading_precision = τ
    prior.context_offset_precision, prior.offset_precision = 1.0, 1.0 / OFFSET_SCALE
    prior.noise_scale = NOISE_SCALE
    return model


def grown_model(model: VectorModel, modes: int, m: int, k: int, rng: np.random.Generator) -> VectorModel:
    """Return a model with new modes and random loadings on them, of the size of the model's residuals."""
    d, p = model.order, m + k
    vector = model.vector.copy()
    A, _, C, _, log_r = split_vector(vector, m, k)
    τ = _add_modes(A, d, modes, rng)
    unexplained = np.exp(0.5 * log_r)[np.minimum(np.arange(p), m)]
    C[:, d : d + modes] = _GROWTH * unexplained[:, None] * rng.standard_normal((p, modes)) / math.sqrt(τ)
    A[:d, d : d + modes] = 0.1 * rng.standard_normal((d, modes))
    return VectorModel(d + modes, vector, model.prior.copy())


def _add_modes(A: FloatArray, first: int, modes: int, rng: np.random.Generator) -> float:
    """Write modes onto the diagonal: pairs at any frequency, real ones of either sign; return their variance."""
    τ, last = 0.0, first + modes
    while first < last:
        radius = rng.uniform(*_RADII)
        if first + 1 < last and rng.random() < _PAIRS:
            angle = rng.uniform(0, math.pi)
            turn = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
            A[first : first + 2, first : first + 2] = radius * np.array(turn)
            size = 2
        else:
            A[first, first] = radius * rng.choice([-1.0, 1.0])
            size = 1
        τ += size / (1 - radius**2)
        first += size
    return τ


def to_system(model: VectorModel, scales: Scales) -> LinearGaussianSystem:
    """Return the model as a system in the user's units, with identity state noise."""
    d, m = model.order, len(scales.mean) - 1
    k = _arms_in(model.vector, m)
    A, b, C, D, log_r = split_vector(model.vector, m, k)
    which = np.minimum(np.arange(m + k), m)
    loadings = C[:, :d] * scales.scale[which, None]
    offsets = D * scales.scale[which] + scales.mean[which]
    noise = np.exp(log_r) * scales.scale**2
    return LinearGaussianSystem(
        dynamics=A[:d, :d],
        arms=loadings[m:],
        state_noise=np.eye(d),
        reward_noise=float(noise[m]),
        context_map=loadings[:m] if m else None,
        context_noise=np.diag(noise[:m]) if m else None,
        drift=b[0, :d],
        initial_mean=np.zeros(d),
        initial_covariance=Prior(model.prior, 0).start_variance * np.eye(d),
        context_offset=offsets[:m] if m else None,
        reward_offset=offsets[m:],
    )
