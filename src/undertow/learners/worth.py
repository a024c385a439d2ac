"""How much exploring an arm is worth: the factor of the width that every model shares.

Suppose that an arm's expected reward lies Δ below the best one, that σ² of it is unknown, that a reward has noise s²,
and that what is learned of the arm helps for H rounds. After n plays, which cost n Δ, the forecast will have moved by
N(0, σ_n²), σ_n² = σ² n / (n + s²/σ²), and the H rounds that follow gain E[max(0, N(−Δ, σ_n²))] = σ_n ψ(Δ/σ_n) each,
with ψ(x) = φ(x) − x (1 − Φ(x)). Playing it pays while H σ_n ψ(Δ/σ_n) ≥ n Δ for some n, hence up to

    Δ = σ max_n √(n / (n + s²/σ²)) β(H/n),   where H ψ(β(H)) = β(H).

An arm that is played as long as its forecast plus this width is the largest is played while that pays. For arms that
stand still and have had n plays, σ² = s²/n, and the width behaves as that of MOSS, s √(2 log(H/n) / n), for large H.
"""

import math

import numpy as np

from undertow.compiled.kernel import inlined

__all__ = ["beta", "lifetime", "worth"]

_FIRST, _STEP, _ENTRIES = -5.0, 0.25, 82  # of the table of β over log H
_NEVER = 1e-300


def _solved(H: float) -> float:
    """Return β(H) by bisection; SciPy's solvers and distributions would take longer to import than all the rest."""
    low, high = 0.0, 40.0
    while low < (x := 0.5 * (low + high)) < high:
        density = math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
        beyond = 0.5 * math.erfc(x / math.sqrt(2.0))
        low, high = (x, high) if H * (density - x * beyond) > x else (low, x)
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
    """Return the width of an arm: variance of what is unknown of it, variance of the noise, rounds that it helps.

    The best of n = 1, N/3 and N plays, N = min(s²/σ², H), is within 10 % of the best of all.
    """
    r = noise / max(unknown, _NEVER)
    most = min(r, H)
    best = 0.0
    for i in range(3):
        n = 1.0 if i == 0 else max(1.0, most / 3.0) if i == 1 else max(1.0, most)
        best = max(best, math.sqrt(n / (n + r)) * beta(H / n))
    return best * math.sqrt(max(unknown, 0.0))


@inlined
def lifetime(persistence: float, t: int) -> float:
    """Return for how many rounds knowledge of an AR(1) level helps, Σ φ^h, and at most for as many as have passed.

    How many rounds are still to come is not known; as many as there have been is the usual guess.
    """
    return min(1.0 / max(1.0 - abs(persistence), _NEVER), t + 1.0)
