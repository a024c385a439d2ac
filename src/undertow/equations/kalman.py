"""The compiled steps of the Kalman filter, in place on float64 arrays (Eq. 4 Kalman_Filter of the paper).

Policies and simulations call these functions; `undertow.kalman` is the interface for users.
"""

import math

import numpy as np

from undertow.compiled.kernel import inlined_kernel, kernel
from undertow.equations.symbols import Symbols
from undertow.support.checks import FloatArray

__all__ = ["condition_scalar", "condition_step", "filter_series", "predict_step", "smooth_series"]


@inlined_kernel
def predict_step(z: FloatArray, P: FloatArray, symbols: Symbols) -> None:
    """ẑ ← Γẑ + μ and P ← ΓPΓ' + Q, with P exactly symmetric."""
    Γ, μ, Q = symbols.Γ, symbols.μ, symbols.Q
    d = len(z)
    ahead = np.empty(d)
    ΓP = np.empty((d, d))
    for i in range(d):
        total = μ[i]
        for j in range(d):
            total += Γ[i, j] * z[j]
            ΓP[i, j] = 0.0
        ahead[i] = total
        for h in range(d):
            for j in range(d):
                ΓP[i, j] += Γ[i, h] * P[h, j]
    for i in range(d):
        z[i] = ahead[i]  # one by one: numba's check of two shapes takes seconds to compile
        for j in range(i + 1):
            total = Q[i, j]
            for h in range(d):
                total += ΓP[i, h] * Γ[j, h]
            P[i, j] = total
            P[j, i] = total


@inlined_kernel
def condition_scalar(z: FloatArray, P: FloatArray, h: FloatArray, y: float, r: float, Ph: FloatArray) -> float:
    """Condition on y = h'z + N(0, r) and return its log density.

    Joseph's form P ← (I − Kh')P(I − Kh')' + rKK', which stays positive under rounding, written for one triangle.
    """
    d = len(z)
    s = r
    e = y
    for i in range(d):
        total = 0.0
        for j in range(d):
            total += P[i, j] * h[j]
        Ph[i] = total
        s += total * h[i]
        e -= h[i] * z[i]
    for i in range(d):  # A = (I − Kh')P overwrites P row by row; then P = A − (Ah)K' + rKK'
        K_i = Ph[i] / s
        z[i] += K_i * e
        for j in range(d):
            P[i, j] -= K_i * Ph[j]
    for i in range(d):
        Ah = 0.0
        for j in range(d):
            Ah += P[i, j] * h[j]
        K_i = Ph[i] / s
        for j in range(i, d):
            P[i, j] += (r * K_i - Ah) * (Ph[j] / s)
    for i in range(d):
        for j in range(i):
            P[i, j] = P[j, i]
    return -0.5 * (math.log(2.0 * math.pi * s) + e * e / s)


@inlined_kernel
def condition_step(z: FloatArray, P: FloatArray, θ: FloatArray, x: FloatArray, symbols: Symbols) -> float:
    """Condition on the entries of θ and x that are not NaN, one at a time, and return their joint log density.

    Context entries with correlated noise are made independent first: with R = LL' over the present ones, L⁻¹θ has unit
    noise. L grows by one row for each entry, so nothing is inverted and a missing entry costs nothing.
    """
    C, R, θ0, c, x0, σ2 = symbols.C, symbols.R, symbols.θ0, symbols.c, symbols.x0, symbols.σ2
    d, m, k = len(z), len(θ), len(x)
    Ph = np.empty(d)
    H = np.empty((m, d))
    y = np.empty(m)
    L = np.empty((m, m))
    present = np.empty(m, np.int64)
    log_density = 0.0
    p = 0
    for i in range(m):
        if np.isnan(θ[i]):
            continue
        pivot = R[i, i]
        H[p] = C[i]
        y[p] = θ[i] - θ0[i]
        for q in range(p):
            total = R[i, present[q]]
            for h in range(q):
                total -= L[p, h] * L[q, h]
            total /= L[q, q]
            L[p, q] = total
            pivot -= total * total
            y[p] -= total * y[q]
            for j in range(d):
                H[p, j] -= total * H[q, j]
        root = np.sqrt(pivot)
        L[p, p] = root
        y[p] /= root
        for j in range(d):
            H[p, j] /= root
        log_density += condition_scalar(z, P, H[p], y[p], 1.0, Ph) - np.log(root)
        present[p] = i
        p += 1
    for a in range(k):
        if not np.isnan(x[a]):
            log_density += condition_scalar(z, P, c[a], x[a] - x0[a], σ2[a], Ph)
    return log_density


@kernel
def filter_series(
    z: FloatArray,
    P: FloatArray,
    θ: FloatArray,
    x: FloatArray,
    symbols: Symbols,
    predicted_means: FloatArray,
    predicted_covariances: FloatArray,
    means: FloatArray,
    covariances: FloatArray,
    log_likelihoods: FloatArray,
) -> None:
    """Condition and predict through all rounds, recording the belief before and after each round's observations."""
    for t in range(len(θ)):
        predicted_means[t] = z
        predicted_covariances[t] = P
        log_likelihoods[t] = condition_step(z, P, θ[t], x[t], symbols)
        means[t] = z
        covariances[t] = P
        predict_step(z, P, symbols)


@kernel
def smooth_series(
    means: FloatArray,
    covariances: FloatArray,
    predicted_means: FloatArray,
    predicted_covariances: FloatArray,
    J: FloatArray,
) -> None:
    """Run the backward recursion in place: filtered moments become smoothed ones."""
    n, d = means.shape
    JD = np.empty((d, d))
    for t in range(n - 2, -1, -1):
        for i in range(d):
            for j in range(d):
                means[t, i] += J[t, i, j] * (means[t + 1, j] - predicted_means[t + 1, j])
                total = 0.0
                for h in range(d):
                    total += J[t, i, h] * (covariances[t + 1, h, j] - predicted_covariances[t + 1, h, j])
                JD[i, j] = total
        for i in range(d):
            for j in range(i + 1):
                total = 0.0
                for h in range(d):
                    total += JD[i, h] * J[t, j, h]
                covariances[t, i, j] += total
                covariances[t, j, i] = covariances[t, i, j]
