"""Lower bounds on regret: the exact one, the authors' idea repaired, and the printed one, which is refuted (T5)."""

import itertools
import math

import numpy as np

from undertow.errors import InvalidInputError
from undertow.kalman import steady_state
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.system import LinearGaussianSystem
from undertow.theory.oracles import Estimate, greedy_regret


def lower_bound(system: LinearGaussianSystem, rounds: int, *, context_first: bool = False) -> Estimate:
    """Return n κ(P̃), a lower bound on any policy's expected regret in the stationary regime, with its numerical error.

    P̃ is the error covariance of a filter that sees every context and every arm's reward of the earlier rounds; with
    `context_first` it has seen the round's own context too. The full-information oracle attains it.

    Examples
    --------
    >>> from undertow import paper_system
    >>> round(lower_bound(paper_system(psi=1), 10_000).value)
    1236
    """
    n = checks.integer("rounds", rounds, least=1)
    kappa = greedy_regret(system, _error_covariance(system, checks.flag("context_first", context_first)))
    return Estimate(n * kappa.value, n * kappa.error)


def repaired_lower_bound(system: LinearGaussianSystem, rounds: int) -> float:
    """Return a lower bound in the authors' style with corrected integrals; weak, and 0 if pairs are degenerate.

    For arms with the same mean reward, as in the paper.

    With ζ = (A_i z̃, A_j z) ~ N(0, Σ_ij) (Eq. oracle_covariance), a mistake is ζ > 0 for some i ≠ j and costs a
    coordinate of A_j z. Since ζ'Σ⁻¹ζ ≤ τ‖ζ‖², τ = tr Σ_ij⁻¹, each pair loses at least
    (2π)^{−(k−1)} |Σ_ij|^{−½} (½√(2π/τ))^{2k−3} / τ per round. The print drops the halves of the half-line integrals,
    uses the determinant of a conditional covariance for a joint density, and multiplies by an unconditional mean gap.
    """
    n = checks.integer("rounds", rounds, least=1)
    k = system.arm_count
    means = system.arms @ system.stationary_mean + system.reward_offset
    if np.ptp(means) > 1e-9 * max(1.0, float(np.abs(means).max())):
        raise InvalidInputError("system: the repaired bound is for arms with the same mean reward; use lower_bound")
    Z, total = system.stationary_covariance, 0.0
    Zt = Z - _error_covariance(system, False)
    for i, j in itertools.permutations(range(k), 2):
        A_i, A_j = _differences(system, i), _differences(system, j)
        Σ = np.block([[A_i @ Zt @ A_i.T, A_i @ Zt @ A_j.T], [A_j @ Zt @ A_i.T, A_j @ Z @ A_j.T]])
        eigenvalues = np.linalg.eigvalsh(Σ)
        if eigenvalues[0] > 1e-10 * eigenvalues[-1]:
            τ = float((1 / eigenvalues).sum())
            density = (2 * math.pi) ** (1 - k) / math.sqrt(float(np.prod(eigenvalues)))
            total += density * (math.sqrt(2 * math.pi / τ) / 2) ** (2 * k - 3) / τ
    return n * total


def printed_lower_bound(system: LinearGaussianSystem, rounds: int) -> float:
    """Return the lower bound as printed (Eq. regret_lower_bound_discrete): refuted, it exceeds the oracle's regret.

    n Σ_ij √(2(c_j − c_i)'Z(c_j − c_i) / (tr(Ψ_{i|j})^{2k−2} |Σ̃_{i|j}|)), over the pairs whose Σ̃_{i|j} is regular.
    """
    n = checks.integer("rounds", rounds, least=1)
    Z, c, k = system.stationary_covariance, system.arms, system.arm_count
    Zt, total = Z - _error_covariance(system, False), 0.0
    for i, j in itertools.permutations(range(k), 2):
        A_i, A_j = _differences(system, i), _differences(system, j)
        S = A_j @ Z @ A_j.T
        if np.linalg.cond(S) > 1e12:
            continue
        Π = A_i @ Zt @ A_j.T @ np.linalg.inv(S) @ A_j
        conditional = A_i @ Zt @ A_i.T - Π @ Zt @ A_i.T
        if np.linalg.cond(conditional) > 1e12:
            continue
        inverse = np.linalg.inv(conditional)
        trace = float(np.trace(inverse) + np.trace(Π.T @ inverse @ Π))
        gap = float((c[j] - c[i]) @ Z @ (c[j] - c[i]))
        total += math.sqrt(2 * gap / (trace ** (2 * k - 2) * float(np.linalg.det(conditional))))
    return n * total


def _error_covariance(system: LinearGaussianSystem, context_first: bool) -> FloatArray:
    P = steady_state(system, arms=range(system.arm_count)).prediction_covariance
    if context_first and system.context_dim:
        C, R = system.context_map, system.context_noise
        P = P - P @ C.T @ np.linalg.solve(C @ P @ C.T + R, C @ P)
        P = (P + P.T) / 2
    return P


def _differences(system: LinearGaussianSystem, arm: int) -> FloatArray:
    """A_i: the arm minus each other, (k − 1, d)."""
    return np.asarray(system.arms[arm] - np.delete(system.arms, arm, axis=0))
