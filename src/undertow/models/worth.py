"""The value of exploring an arm: the factor of the width in levels and regressions.

Suppose that an arm's expected reward is Δ below the best one with variance σ², that a reward has noise s², and that
knowledge of the arm helps for H rounds. After n plays, which cost n Δ, the forecast will have moved by N(0, σ_n²), σ_n²
= σ² n / (n + s²/σ²), and the H rounds that follow gain E[max(0, N(−Δ, σ_n²))] = σ_n ψ(Δ/σ_n) each, with ψ(x) = φ(x) − x
(1 − Φ(x)). Playing it pays while H σ_n ψ(Δ/σ_n) ≥ n Δ for some n, hence up to

    Δ = σ max_n √(n / (n + s²/σ²)) β(H/n),                                             (1)

    where H ψ(β(H)) = β(H).                                                            (2)

An arm that is played as long as its forecast plus this width is the largest is played while that pays. For stationary
arms with n plays, σ² = s²/n, and the width behaves like that of MOSS, s √(2 log(H/n) / n), for large H.
"""

import math

import numpy as np

from undertow.compiled.kernel import inlined

__all__ = ["beta", "lifetime", "worth"]

_FIRST, _STEP, _ENTRIES = -5.0, 0.25, 82  # of the table of β over log H
_NEVER = 1e-300


def _solved(H: float) -> float:
    """Return β(H) by bisection; SciPy's solvers and distributions would take longer to import than everything else."""
    low, high = 0.0, 40.0
    while low < (x := 0.5 * (low + high)) < high:
        density = math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
        beyond = 0.5 * math.erfc(x / math.sqrt(2.0))
        low, high = (x, high) if H * (density - x * beyond) > x else (low, x)  # (2)
    return high


_BETA = np.array([_solved(math.exp(_FIRST + _STEP * i)) for i in range(_ENTRIES)])


@inlined
def beta(H: float) -> float:
    """Return β(H), from a table of log H; it is never used far outside e^−5 … e^15."""
    at = min(max((math.log(max(H, _NEVER)) - _FIRST) / _STEP, 0.0), _ENTRIES - 1.001)
    i = int(at)
    result: float = _BETA[i] + (at - i) * (_BETA[i + 1] - _BETA[i])
    return result


@inlined
def worth(unknown: float, noise: float, H: float) -> float:
    """Return the width of an arm: its variance, the variance of the noise, the rounds that knowledge of it helps.

    The best of n = 1, N/3 and N plays, N = min(s²/σ², H), is within 10 % of the best of all.
    """
    r = noise / max(unknown, _NEVER)
    most = min(r, H)
    best = 0.0
    for i in range(3):
        n = 1.0 if i == 0 else max(1.0, most / 3.0) if i == 1 else max(1.0, most)
        best = max(best, math.sqrt(n / (n + r)) * beta(H / n))  # (1)
    return best * math.sqrt(max(unknown, 0.0))


@inlined
def lifetime(persistence: float, t: int) -> float:
    """Return the number of rounds for which knowledge of an AR(1) level helps, Σ φ^h, at most as many as have passed.

    The number of rounds to come is unknown; the usual guess is as many as have passed.
    """
    return min(1.0 / max(1.0 - abs(persistence), _NEVER), t + 1.0)
