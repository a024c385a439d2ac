"""Regret of the oracles in closed form.

An oracle that plays the arm with the largest forecast of a filter with error covariance P loses, in each round of the
stationary regime,

    κ(P) = E max_a (⟨c_a, z⟩ + x₀_a) − E max_a (⟨c_a, ẑ⟩ + x₀_a),   z ~ N(z̄, Z),  ẑ ~ N(z̄, Z − P).

A policy with less information than such a filter cannot lose less, so with P̃, the error covariance of a filter that
sees the context and every arm's reward, n κ(P̃) is a lower bound on the regret of any policy after n rounds.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.equations.riccati import square_root
from undertow.kalman import steady_state
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.system import LinearGaussianSystem

_REPLICATES = 16
_POINTS = 2**13  # Sobol' points per replicate


class Estimate(NamedTuple):
    """A number and its standard error; 0 if it is exact."""

    value: float
    error: float


def expected_maximum(mean: npt.ArrayLike, covariance: npt.ArrayLike) -> Estimate:
    """Return E max_a Y_a for Y ~ N(mean, covariance), with its standard error.

    Exact for one and two arms: E max(Y₁, Y₂) = m₁Φ(δ/τ) + m₂Φ(−δ/τ) + τφ(δ/τ), δ = m₁ − m₂, τ² = Var(Y₁ − Y₂). For more
    arms, a mean over 16 independently scrambled Sobol' sets of 8192 points with a fixed seed. The average is over the
    maximum minus the mean over arms, and its standard error comes from the spread of the 16.

    Examples
    --------
    >>> expected_maximum([0, 0], np.eye(2))  # 1 / √π
    Estimate(value=0.564189583547756..., error=0.0)
    """
    m = checks.array("mean", mean, ("k",))
    Σ = checks.covariance("covariance", covariance, len(m))
    if len(m) == 1:
        return Estimate(float(m[0]), 0.0)
    if len(m) == 2:
        return Estimate(_expected_maximum_of_two(m[0] - m[1], Σ[0, 0] + Σ[1, 1] - 2 * Σ[0, 1]) + float(m[1]), 0.0)
    root = square_root(Σ)

    def excess(ξ: FloatArray) -> FloatArray:
        Y = m + ξ @ root
        return np.asarray(Y.max(axis=1) - Y.mean(axis=1))

    estimate = _quasi_mean(len(m), excess)
    return Estimate(estimate.value + float(m.mean()), estimate.error)


def greedy_regret(system: LinearGaussianSystem, error_covariance: npt.ArrayLike) -> Estimate:
    """Return κ(P): the regret per round of always playing the largest forecast of a filter with error covariance P.

    Exact for one and two arms. For more, forecasts Ŷ ~ N(cz̄, c(Z − P)c') and errors N(0, cPc') are sampled together by
    scrambled Sobol' sets, and max Y − Y[argmax Ŷ], which is never negative, is averaged.
    """
    P = checks.covariance("error_covariance", error_covariance, system.state_dim)
    Z, c = system.stationary_covariance, system.arms
    k = len(c)
    means = c @ system.stationary_mean + system.reward_offset
    known = (Z - P + (Z - P).T) / 2
    if k == 1:
        return Estimate(0.0, 0.0)
    if k == 2:  # from differences of the arms: common parts would cancel
        h, δ = c[0] - c[1], float(means[0] - means[1])
        best, chosen = (_expected_maximum_of_two(δ, max(float(h @ Σ @ h), 0.0)) for Σ in (Z, known))
        return Estimate(max(best - chosen, 0.0), 0.0)
    forecast_root, error_root = square_root(c @ known @ c.T), square_root(c @ P @ c.T)

    def lost(ξ: FloatArray) -> FloatArray:
        forecast = means + ξ[:, :k] @ forecast_root
        Y = forecast + ξ[:, k:] @ error_root
        return np.asarray(Y.max(axis=1) - Y[np.arange(len(Y)), forecast.argmax(axis=1)])

    return _quasi_mean(2 * k, lost)


def context_oracle_regret(system: LinearGaussianSystem) -> Estimate:
    """Return the regret per round of the paper's Oracle, which knows the system and filters the contexts.

    Examples
    --------
    >>> from undertow import paper_system
    >>> [round(1e4 * context_oracle_regret(paper_system(psi)).value) for psi in (1, 2, 3, 4)]
    [2860, 5976, 11707, 19082]
    """
    return greedy_regret(system, system.steady_state.prediction_covariance)


def full_information_regret(system: LinearGaussianSystem) -> Estimate:
    """Return the regret per round of an oracle that also sees every arm's reward: the lower bound for any policy.

    Examples
    --------
    >>> from undertow import paper_system
    >>> [round(1e4 * full_information_regret(paper_system(psi)).value) for psi in (1, 2, 3, 4)]
    [1236, 1097, 899, 744]
    """
    return greedy_regret(system, steady_state(system, arms=range(system.arm_count)).prediction_covariance)


def noise_sum(system: LinearGaussianSystem) -> Estimate:
    """Return E(ε_{a*} − ε_a) per round if one arm a is always played, or an Oracle that filters the contexts plays.

    The best arm a* depends on the state, so its ε = X − X̂ does not have mean 0. With D = c_1 − c_2, δ its mean reward
    and τ² = DZD' it is DPD' φ(δ/τ) / τ for two arms, DPD' / √(2π DZD') if their means are equal. The paper bounds the
    sum over n rounds by k√(4nB_R² log(1/δ)), which grows with √n alone (T3).

    Examples
    --------
    >>> from undertow import paper_system
    >>> [round(1e4 * noise_sum(paper_system(psi)).value) for psi in (1, 2, 3, 4)]
    [5282, 10452, 18815, 27941]
    """
    P, Z, c = system.steady_state.prediction_covariance, system.stationary_covariance, system.arms
    means = c @ system.stationary_mean + system.reward_offset
    if len(c) == 1:
        return Estimate(0.0, 0.0)
    if len(c) == 2:
        D = c[0] - c[1]
        τ = math.sqrt(float(D @ Z @ D))
        density = math.exp(-((float(means[0] - means[1]) / τ) ** 2) / 2) / math.sqrt(2 * math.pi) if τ > 0 else 0.0
        return Estimate(float(D @ P @ D) * density / τ if τ > 0 else 0.0, 0.0)
    forecast_root, error_root = square_root(c @ (Z - P) @ c.T), square_root(c @ P @ c.T)
    k = len(c)

    def best(ξ: FloatArray) -> FloatArray:
        ε = ξ[:, k:] @ error_root
        return np.asarray(ε[np.arange(len(ε)), (means + ξ[:, :k] @ forecast_root + ε).argmax(axis=1)])

    return _quasi_mean(2 * k, best)


def random_regret(system: LinearGaussianSystem) -> Estimate:
    """Return the regret per round of playing arms uniformly at random.

    Examples
    --------
    >>> from undertow import paper_system
    >>> [round(1e4 * random_regret(paper_system(psi)).value) for psi in (1, 2, 3, 4)]
    [18714, 23797, 29802, 35620]
    """
    c = system.arms
    means = c @ system.stationary_mean + system.reward_offset
    best = expected_maximum(means, c @ system.stationary_covariance @ c.T)
    return Estimate(best.value - float(means.mean()), best.error)


def _quasi_mean(dimension: int, function: Callable[[FloatArray], FloatArray]) -> Estimate:
    """Average a function of independent standard normal numbers over 16 scrambled Sobol' sets, with a fixed seed."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    values = np.empty(_REPLICATES)
    for replicate in range(_REPLICATES):
        points = qmc.Sobol(dimension, rng=np.random.default_rng(replicate)).random(_POINTS)
        values[replicate] = function(ndtri(np.clip(points, 1e-12, 1 - 1e-12))).mean()
    return Estimate(float(values.mean()), float(values.std(ddof=1) / math.sqrt(_REPLICATES)))


def _expected_maximum_of_two(δ: float, variance: float) -> float:
    """E max(Y, 0) for Y ~ N(δ, variance)."""
    if variance <= 0:
        return max(float(δ), 0.0)
    τ = math.sqrt(variance)
    ratio = δ / τ
    density = math.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)
    return float(δ * math.erfc(-ratio / math.sqrt(2)) / 2 + τ * density)
