"""A fitted shared system as one vector in standardised units, and its way back to the user's."""

import math
from typing import NamedTuple

import numpy as np

from undertow._checks import FloatArray
from undertow._kernel import plain
from undertow.identify.columns import centre_and_scale
from undertow.identify.information import NOISE_SCALE, OFFSET_SCALE
from undertow.identify.rows import WIDTH
from undertow.identify.score import FIXED, Prior, model_size
from undertow.identify.score import noise_at as compiled_noise_at
from undertow.identify.score import offsets_at as compiled_offsets_at
from undertow.system import LinearGaussianSystem

__all__ = [
    "MAX_ORDER",
    "Model",
    "Units",
    "cold_model",
    "grown_model",
    "rescaled",
    "standardised",
    "to_system",
    "units_of",
]

MAX_ORDER = WIDTH
noise_at, offsets_at = plain(compiled_noise_at), plain(compiled_offsets_at)
_C = WIDTH * WIDTH + WIDTH
_RADII, _PAIRS = (0.6, 0.98), 0.7  # of the modes of a random start, and how often two of them form a pair
_GROWTH = 0.5  # standard deviation of what a new mode adds to an output, relative to its noise


class Units(NamedTuple):
    """Mean and scale of every context, then of the rewards of all arms together."""

    mean: FloatArray
    scale: FloatArray


class Model(NamedTuple):
    """A shared system of one order: its parameters and prior as `score` takes them, and how well it fits."""

    order: int
    vector: FloatArray
    prior: Prior
    log_likelihood: float = -math.inf
    freedom: float = math.inf

    @property
    def criterion(self) -> float:
        """Log likelihood minus effective degrees of freedom, in nats: what orders are compared by."""
        return self.log_likelihood - self.freedom


def units_of(table: FloatArray, m: int) -> Units:
    """Return the units of a table of m contexts, arm and reward."""
    columns = [centre_and_scale(table[:, i]) for i in (*range(m), m + 1)]
    return Units(*np.array(columns).T.copy())


def standardised(table: FloatArray, units: Units) -> FloatArray:
    """Return a copy of a table in the given units."""
    m = len(units.mean) - 1
    result = table.copy()
    result[:, :m] = (table[:, :m] - units.mean[:m]) / units.scale[:m]
    result[:, m + 1] = (table[:, m + 1] - units.mean[m]) / units.scale[m]
    return result


def rescaled(model: Model, old: Units, new: Units) -> Model:
    """Return the same system in other units."""
    m = len(old.mean) - 1
    p = (len(model.vector) - _C - m - 1) // (WIDTH + 1)
    which = np.minimum(np.arange(p), m)
    ratio, shift = old.scale / new.scale, (old.mean - new.mean) / new.scale
    vector, prior = model.vector.copy(), model.prior.copy()
    C = vector[_C : _C + WIDTH * p].reshape(p, WIDTH)
    C *= ratio[which, None]
    D = vector[offsets_at(p) : noise_at(p)]
    D *= ratio[which]
    D += shift[which]
    vector[noise_at(p) :] += 2 * np.log(ratio)
    prior[3] /= ratio[m] ** 2
    prior[4] = prior[4] * ratio[m] + shift[m]
    prior[5] /= ratio[m] ** 2
    return model._replace(vector=vector, prior=prior)


def cold_model(d: int, m: int, k: int, rng: np.random.Generator) -> Model:
    """Return a random start: modes drawn by `_add_modes`, and loadings that explain about half of each output."""
    vector = np.zeros(model_size(m, k))
    p = m + k
    A, C = vector[: WIDTH * WIDTH].reshape(WIDTH, WIDTH), vector[_C : _C + WIDTH * p].reshape(p, WIDTH)
    τ = _add_modes(A, 0, d, rng)
    C[:, :d] = rng.standard_normal((p, d)) / math.sqrt(2 * τ)
    vector[noise_at(p) :] = math.log(0.5)
    prior = np.concatenate([[τ / d, τ, 1.0, τ, 0.0, 1.0 / OFFSET_SCALE, NOISE_SCALE], np.zeros(m + 1)])
    assert len(prior) == FIXED + m + 1
    return Model(d, vector, prior)


def grown_model(model: Model, modes: int, m: int, k: int, rng: np.random.Generator) -> Model:
    """Return a model with new modes and random loadings on them, of the size of what the model leaves unexplained."""
    d, p = model.order, m + k
    vector, prior = model.vector.copy(), model.prior.copy()
    A, C = vector[: WIDTH * WIDTH].reshape(WIDTH, WIDTH), vector[_C : _C + WIDTH * p].reshape(p, WIDTH)
    τ = _add_modes(A, d, modes, rng)
    unexplained = np.exp(0.5 * vector[noise_at(p) :])[np.minimum(np.arange(p), m)]
    C[:, d : d + modes] = _GROWTH * unexplained[:, None] * rng.standard_normal((p, modes)) / math.sqrt(τ)
    A[:d, d : d + modes] = 0.1 * rng.standard_normal((d, modes))
    return Model(d + modes, vector, prior)


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


def to_system(model: Model, units: Units) -> LinearGaussianSystem:
    """Return the model as a system in the user's units, with identity state noise."""
    d, m = model.order, len(units.mean) - 1
    p = (len(model.vector) - _C - m - 1) // (WIDTH + 1)
    A = model.vector[: WIDTH * WIDTH].reshape(WIDTH, WIDTH)[:d, :d]
    C = model.vector[_C : _C + WIDTH * p].reshape(p, WIDTH)[:, :d]
    D, r = model.vector[offsets_at(p) : noise_at(p)], np.exp(model.vector[noise_at(p) :])
    which = np.minimum(np.arange(p), m)
    loadings = C * units.scale[which, None]
    offsets = D * units.scale[which] + units.mean[which]
    noise = r * units.scale**2
    return LinearGaussianSystem(
        dynamics=A,
        arms=loadings[m:],
        state_noise=np.eye(d),
        reward_noise=float(noise[m]),
        context_map=loadings[:m] if m else None,
        context_noise=np.diag(noise[:m]) if m else None,
        drift=model.vector[WIDTH * WIDTH : WIDTH * WIDTH + d],
        initial_mean=np.zeros(d),
        initial_covariance=model.prior[0] * np.eye(d),
        context_offset=offsets[:m] if m else None,
        reward_offset=offsets[m:],
    )
