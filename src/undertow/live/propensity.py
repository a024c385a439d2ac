"""The probability that one of several independent normal numbers is the largest."""

import math

import numpy as np

from undertow._checks import FloatArray

__all__ = ["chance_of_largest"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)
_OWN = np.linspace(-8.5, 8.5, 6)  # where the density of the number itself is cut into panels
_OTHERS = np.array([-6.0, -2.0, 2.0, 6.0])  # and where the distribution of another one bends


def chance_of_largest(means: FloatArray, deviations: FloatArray, which: int) -> float:
    """Return P(X_a ≥ X_b for all b) = ∫ φ(x) Π_b Φ((f_a + w_a x − f_b) / w_b) dx for X_b ~ N(f_b, w_b²), b ≠ a.

    The integral is cut into panels where one of the factors bends, each with Gauss–Legendre quadrature of 10 nodes: a
    Φ that is steep at the scale of φ would slip through the nodes of a single rule.

    Examples
    --------
    >>> round(chance_of_largest(np.array([1.0, 0.0]), np.array([0.6, 0.8]), 0), 6)  # Φ(1)
    0.841345
    """
    from scipy.special import ndtr  # which only policies that draw their arms need

    others = np.delete(np.arange(len(means)), which)
    gap, scale = means[which] - means[others], np.maximum(deviations[others], np.finfo(float).tiny)
    own = max(float(deviations[which]), 1e-9 * float(scale.max(initial=1e-300)))
    bends = (scale[:, None] * _OTHERS - gap[:, None]) / own
    cuts = np.unique(np.clip(np.concatenate([_OWN, bends.ravel()]), _OWN[0], _OWN[-1]))
    half = np.diff(cuts)[:, None] / 2
    x = cuts[:-1, None] + half * (1 + _NODES)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    below = ndtr((gap[:, None, None] + own * x) / scale[:, None, None]).prod(axis=0)
    return float((half * _WEIGHTS * density * below).sum())
