"""The probability of each of several independent normal numbers to be the largest."""

import math

import numpy as np

from undertow.support.checks import FloatArray

__all__ = ["chances_of_largest", "has_laws", "largest_of_laws"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)
_FARTHEST = 8.5  # standard deviations, beyond which the density is negligible
_BENDS = np.array([-8.5, -6.0, -4.0, -2.2, -0.8, 0.8, 2.2, 4.0, 6.0, 8.5])  # of a density and its distribution


def has_laws(means: FloatArray, deviations: FloatArray) -> bool:
    """Return whether normal numbers are finite as far as `chances_of_largest` looks; forecasts may have overflowed.

    Examples
    --------
    >>> has_laws(np.array([1.0, np.nan]), np.array([0.6, 0.8]))
    False
    """
    with np.errstate(over="ignore", invalid="ignore"):  # a panel may be as long as a density, 17 deviations
        return bool(np.isfinite(np.abs(means) + 3 * _FARTHEST * deviations).all())


def chances_of_largest(means: FloatArray, deviations: FloatArray) -> FloatArray:
    """Return P(X_a ≥ X_b for all b) = ∫ φ_a(x) Π_b Φ((x − f_b) / w_b) dx for all a, X_b ~ N(f_b, w_b²), b ≠ a.

    The integral is cut into panels where one of the factors bends, each with Gauss–Legendre quadrature of 10 nodes: a Φ
    that is steep at the scale of another φ would slip through the nodes of a single rule. Arms that cannot be the
    largest are skipped.

    Examples
    --------
    >>> chances_of_largest(np.array([1.0, 0.0]), np.array([0.6, 0.8])).round(6)  # Φ(1), and the rest
    array([0.841345, 0.158655])
    """
    from scipy.special import ndtr  # needed only by policies with random arms

    scale = np.maximum(deviations, max(1e-9 * float(deviations.max()), np.finfo(float).tiny))
    able = means + _FARTHEST * scale >= (means - _FARTHEST * scale).max()
    f, w = means[able][:, None], scale[able][:, None]
    cuts = np.unique(np.maximum(f + w * _BENDS, (f - _FARTHEST * w).max()))  # below that, nothing is the largest
    half = np.diff(cuts)[:, None] / 2
    z = ((cuts[:-1, None] + half * (1 + _NODES)).ravel() - f) / w
    density = np.exp(-(z**2) / 2) / (math.sqrt(2 * math.pi) * w)
    result = np.zeros(len(means))
    result[able] = largest_of_laws(density, ndtr(z), (half * _WEIGHTS).ravel())
    return result


def largest_of_laws(density: FloatArray, below: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the chance of each number to be the largest, from densities and distributions at the nodes, (k, n)."""
    before, behind = weights.copy(), np.ones_like(weights)  # products over all b < a, and all b > a
    rest = density.copy()
    for a in range(len(rest)):
        rest[a] *= before
        before *= below[a]
    for a in range(len(rest) - 1, -1, -1):
        rest[a] *= behind
        behind *= below[a]
    return np.asarray(rest.sum(axis=1))
