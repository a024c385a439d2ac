"""Continuous time: a system as the samples of a stochastic differential equation.

    dz = (A z + u) dt + dW,   cov(dW) = D dt

Over a time h this is z' = Γ z + μ + N(0, Q) with (Van Loan 1978)

    Γ = exp(A h),   μ = ∫₀ʰ exp(A s) u ds,   Q = ∫₀ʰ exp(A s) D exp(A' s) ds.
"""

import warnings
from typing import NamedTuple

import numpy as np

from undertow.errors import InvalidInputError
from undertow.support.checks import FloatArray

__all__ = ["Rates", "Step", "over", "rates_of", "times"]

_ROUNDING = 1e-8  # a residual or a negative eigenvalue of this relative size is rounding


class Rates(NamedTuple):
    """The equation's parts: the generator A, (d, d), the drift u, (d,), and the diffusion D, (d, d)."""

    generator: FloatArray
    drift: FloatArray
    diffusion: FloatArray


class Step(NamedTuple):
    """One time step: the dynamics Γ, (d, d), the drift μ, (d,), and the noise Q, (d, d)."""

    dynamics: FloatArray
    drift: FloatArray
    noise: FloatArray


def over(rates: Rates, time: float) -> Step:
    """Return the step over a time of any length.

    The integrals are computed over a time so short that nothing overflows, which is then doubled.

    Examples
    --------
    >>> step = over(Rates(np.array([[-0.5]]), np.zeros(1), np.array([[1.0]])), 2.0)
    >>> np.isclose(step.dynamics[0, 0], np.exp(-1)).item(), np.isclose(step.noise[0, 0], 1 - np.exp(-2)).item()
    (True, True)
    """
    from scipy.linalg import expm

    A, u, D = rates
    d, size = len(A), time * float(np.abs(A).sum(axis=1).max(initial=0.0))
    halvings = max(0, int(np.ceil(np.log2(size)))) if size > 1 else 0
    h = time / 2**halvings
    both = expm(np.block([[-A, D], [np.zeros((d, d)), A.T]]) * h)
    Γ = both[d:, d:].T
    Q = Γ @ both[:d, d:]
    μ = expm(np.block([[A, u[:, None]], [np.zeros((1, d + 1))]]) * h)[:d, d]
    for _ in range(halvings):
        Γ, μ, Q = times(Step(Γ, μ, Q), 2)
    return Step(Γ, μ, (Q + Q.T) / 2)


def times(step: Step, count: int) -> Step:
    """Return the step over an integer number of time steps.

    Examples
    --------
    >>> times(Step(np.array([[0.5]]), np.array([1.0]), np.array([[1.0]])), 3).noise
    array([[1.3125]])
    """
    d = len(step.dynamics)
    result, power = Step(np.eye(d), np.zeros(d), np.zeros((d, d))), step
    while count:
        if count % 2:
            result = _then(result, power)
        count //= 2
        power = _then(power, power) if count else power
    return result


def _then(first: Step, second: Step) -> Step:
    Γ = second.dynamics
    noise = Γ @ first.noise @ Γ.T + second.noise
    return Step(Γ @ first.dynamics, Γ @ first.drift + second.drift, (noise + noise.T) / 2)


def rates_of(step: Step) -> Rates:
    """Return the rates whose samples, one unit of time apart, are these steps.

    A is the principal logarithm of Γ: a swing of more than half a turn per unit of time looks like a slower one. D
    solves a linear equation, vec Q = ((e^K − I) / K) vec D with K = A ⊗ I + I ⊗ A.
    """
    from scipy.linalg import logm

    Γ, μ, Q = step
    d = len(Γ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a matrix without a logarithm; the residual shows it
        A = logm(Γ)
    if np.iscomplexobj(A) and np.abs(A.imag).max() <= _ROUNDING * max(1.0, np.abs(A).max()):
        A = A.real
    if np.iscomplexobj(A) or not np.isfinite(A).all():
        raise _no_rates("its dynamics have no real logarithm, as they change sign with every step or forget everything")
    K = np.kron(A, np.eye(d)) + np.kron(np.eye(d), A)
    D = np.linalg.solve(_mean_exponential(K), Q.ravel()).reshape(d, d)
    D = (D + D.T) / 2
    values, vectors = np.linalg.eigh(D)
    if values[0] < -_ROUNDING * max(abs(values[-1]), np.finfo(float).tiny):
        raise _no_rates("no noise of smaller steps adds up to that of a full one")
    D = vectors * np.maximum(values, 0.0) @ vectors.T
    return Rates(A, np.asarray(np.linalg.solve(_mean_exponential(A), μ)), D)


def _mean_exponential(K: FloatArray) -> FloatArray:
    """Return ∫₀¹ exp(K s) ds."""
    from scipy.linalg import expm

    d = len(K)
    return np.asarray(expm(np.block([[K, np.eye(d)], [np.zeros((d, 2 * d))]]))[:d, d:])


def _no_rates(why: str) -> InvalidInputError:
    return InvalidInputError(
        f"system: expected the samples of a process in continuous time, and {why}; use integer time steps, or "
        f"build the system with LinearGaussianSystem.from_rates"
    )
