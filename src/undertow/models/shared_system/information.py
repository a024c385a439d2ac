"""The information of the complete data about a shared system; with it, preconditioner, prior and dimension.

The information is block diagonal: one block for the rows of [A b], one for each output's [C_i D_i].
"""

import math

import numpy as np

from undertow.compiled.kernel import kernel
from undertow.models.shared_system.rows import WIDTH
from undertow.models.shared_system.score import BLOCK, block_of, entry_of
from undertow.models.shared_system.vector import (
    NOISE_SCALE,
    OFFSET_SCALE,
    Prior,
    dynamics_of,
    open_vector,
    output_prior,
    spent_on_noise,
    weight_at,
)
from undertow.support.checks import FloatArray

__all__ = [
    "invert_information",
    "limit_radius",
    "precondition",
    "renew_prior",
    "shift_origin",
    "spectral_radius",
]

_SQUARINGS = 18
_PSEUDO_ARMS = 2.0  # number of arms that the prior of the arms' own spread counts for
_LEAST_EXPLAINED = 0.05  # smallest share of the rewards' variance that a typical arm should explain


@kernel
def spectral_radius(π: FloatArray, d: int) -> float:
    """Return ‖A^N‖^(1/N) for N = 2^18: the largest modulus of an eigenvalue, to 1e-5 unless many of them coincide."""
    A, X, Y = dynamics_of(π), np.empty((d, d)), np.empty((d, d))
    for i in range(d):
        for j in range(d):
            X[i, j] = A[i, j]
    exponent = 0.0  # after s squarings, A^(2^s) = e^exponent X
    for _ in range(_SQUARINGS):
        size = 0.0
        for i in range(d):
            for j in range(d):
                size = max(size, abs(X[i, j]))
        if size == 0.0:
            return 0.0
        for i in range(d):
            for j in range(d):
                total = 0.0
                for h in range(d):
                    total += (X[i, h] / size) * (X[h, j] / size)
                Y[i, j] = total
        exponent = 2.0 * (exponent + math.log(size))
        for i in range(d):
            for j in range(d):
                X[i, j] = Y[i, j]
    norm = 0.0
    for i in range(d):
        for j in range(d):
            norm += X[i, j] * X[i, j]
    if norm == 0.0:
        return 0.0
    return math.exp((exponent + 0.5 * math.log(norm)) / 2.0**_SQUARINGS)


@kernel
def limit_radius(π: FloatArray, d: int, limit: float) -> None:
    """Scale A back to a spectral radius, if it is above."""
    radius = spectral_radius(π, d)
    if radius > limit:
        A = dynamics_of(π)
        for i in range(WIDTH):
            for j in range(WIDTH):
                A[i, j] *= limit / radius


@kernel
def _invert(X: FloatArray, size: int, scratch: FloatArray) -> bool:
    """Invert a positive definite matrix in place by its Cholesky factor; return whether it was one."""
    L = scratch
    for i in range(size):
        for j in range(i + 1):
            total = X[i, j]
            for h in range(j):
                total -= L[i, h] * L[j, h]
            if i == j:
                if not total > 0.0:
                    return False
                L[i, i] = math.sqrt(total)
            else:
                L[i, j] = total / L[j, j]
    for i in range(size):  # L ← L⁻¹
        L[i, i] = 1.0 / L[i, i]
        for j in range(i):
            total = 0.0
            for h in range(j, i):
                total += L[i, h] * L[h, j]
            L[i, j] = -total * L[i, i]
    for i in range(size):
        for j in range(i + 1):
            total = 0.0
            for h in range(i, size):
                total += L[h, i] * L[h, j]
            X[i, j] = total
            X[j, i] = total
    return True


@kernel
def invert_information(
    π: FloatArray, d: int, m: int, k: int, information: FloatArray, prior: FloatArray, inverse: FloatArray
) -> bool:
    """Write the inverse of information plus penalty: a (9, 9) block for each output, the last for [A b].

    A block holds d + 1 rows and columns, the constant last. For an arm it is the covariance of its [C_a D_a] given the
    states.
    """
    p = m + k
    log_r = open_vector(π, m, k).log_r
    X, L = np.empty((BLOCK, BLOCK)), np.empty((BLOCK, BLOCK))
    for o in range(p + 1):
        seen, out = block_of(information, o), block_of(inverse, o)
        r, loading, offset = 1.0, 1.0, 1.0
        if o < p:
            r = math.exp(log_r[min(o, m)])
            loading, _, offset = output_prior(prior, o, m)
        for i in range(d + 1):
            row = i if i < d else WIDTH
            for j in range(d + 1):
                X[i, j] = seen[row, j if j < d else WIDTH] / r
            X[i, i] += loading if i < d else offset
        if not _invert(X, d + 1, L):
            return False
        out[:] = 0.0
        for i in range(d + 1):
            for j in range(d + 1):
                out[i, j] = X[i, j]
    return True


@kernel
def renew_prior(
    π: FloatArray, d: int, m: int, k: int, information: FloatArray, prior: FloatArray, inverse: FloatArray
) -> float:
    """Estimate the prior again from the model and return the effective degrees of freedom of the whole model.

    τ, the trace of the state's mean second moment, sets the variance at the start, τ/d, and the precision of a
    context's loadings, so that ⟨C_i, z⟩ varies as its output does. The arms' own spread, and a few typical arms with
    the rewards' variance beyond noise, set theirs (empirical Bayes). `inverse` must come from `invert_information`.
    """
    p = m + k
    _, _, C, D, log_r = open_vector(π, m, k)
    own, spent_on = Prior(prior, 0), spent_on_noise(prior, m)
    whole = block_of(information, p)
    τ = 0.0
    for i in range(d):
        τ += whole[i, i]
    τ = max(τ / max(whole[WIDTH, WIDTH], 1.0), 1.0 * d)
    explained = max(1.0 - math.exp(log_r[m]), _LEAST_EXPLAINED)  # of the rewards' variance, which is 1
    squares = _PSEUDO_ARMS * explained * d / τ
    mean, weight = 0.0, 1.0
    freedom = 0.0
    used = np.zeros(m + 1)
    counts = np.zeros(m + 1)
    for o in range(p):
        V = block_of(inverse, o)
        loading, _, offset = output_prior(prior, o, m)
        spent = 1.0 - offset * V[d, d]
        for i in range(d):
            spent += 1.0 - loading * V[i, i]
            if o >= m:
                squares += C[o, i] * C[o, i] + V[i, i]
        if o >= m:
            mean += D[o] / (V[d, d] + 1.0 / offset)
            weight += 1.0 / (V[d, d] + 1.0 / offset)
        freedom += spent
        used[min(o, m)] += spent
        counts[min(o, m)] += entry_of(information, o, WIDTH, WIDTH)
    mean /= weight
    spread = _PSEUDO_ARMS * OFFSET_SCALE * explained
    for o in range(m, p):
        deviation = π[weight_at(o, d, d, p)] - mean  # D_o; read from views, the sum would take another order
        spread += deviation * deviation + entry_of(inverse, o, d, d)
    U = block_of(inverse, p)
    dynamics = -0.5 * d * (d - 1)  # the likelihood does not change when the basis of the state is rotated
    for i in range(d + 1):
        dynamics += d * (1.0 - U[i, i])
    freedom += max(dynamics, 0.0)
    own.start_variance, own.noise_scale = τ / d, NOISE_SCALE
    own.context_loading_precision, own.context_offset_precision = τ, 1.0
    own.arm_loading_precision = (k + _PSEUDO_ARMS) * d / squares
    own.offset_mean, own.offset_precision = mean, (k + _PSEUDO_ARMS) / spread
    for q in range(m + 1):
        spent_on[q] = min(used[q], 0.5 * counts[q])
    return freedom + m + 1


@kernel
def shift_origin(π: FloatArray, d: int, m: int, k: int, prior: FloatArray) -> None:
    """Move the origin of the state to the point with the least penalties on b and D.

    z + c in place of z turns b into b + (I − A)c and D_i into D_i − ⟨C_i, c⟩, and changes no observation once the start
    is forgotten. The descent alone would take long, and would explain the reward of an arm that was played once by its
    own offset.
    """
    p = m + k
    A, b, C, D, _ = open_vector(π, m, k)
    M, v, L = np.zeros((d, d)), np.zeros(d), np.zeros((d, d))
    for i in range(d):
        M[i, i] = 1e-9
        for j in range(d):
            for h in range(d):
                left = (1.0 if h == i else 0.0) - A[h, i]
                right = (1.0 if h == j else 0.0) - A[h, j]
                M[i, j] += left * right
        for h in range(d):
            v[i] -= ((1.0 if h == i else 0.0) - A[h, i]) * b[0, h]
    for o in range(p):
        _, mean, precision = output_prior(prior, o, m)
        for i in range(d):
            v[i] += precision * C[o, i] * (D[o] - mean)
            for j in range(d):
                M[i, j] += precision * C[o, i] * C[o, j]
    if not _invert(M, d, L):
        return
    c = np.zeros(d)
    for i in range(d):
        for j in range(d):
            c[i] += M[i, j] * v[j]
    for i in range(d):
        b[0, i] += c[i]
        for j in range(d):
            b[0, i] -= A[i, j] * c[j]
    for o in range(p):
        for i in range(d):
            D[o] -= C[o, i] * c[i]


@kernel
def precondition(
    x: FloatArray, d: int, m: int, k: int, information: FloatArray, inverse: FloatArray, out: FloatArray
) -> None:
    """Multiply a gradient by the inverse information."""
    p = m + k
    given, result = open_vector(x, m, k), open_vector(out, m, k)
    out[:] = 0.0
    U = block_of(inverse, p)
    for i in range(d):
        for j in range(d + 1):
            total = U[j, d] * given.b[0, i]
            for h in range(d):
                total += U[j, h] * given.A[i, h]
            if j < d:
                result.A[i, j] = total
            else:
                result.b[0, i] = total
    for o in range(p):
        V = block_of(inverse, o)
        for j in range(d + 1):
            total = V[j, d] * given.D[o]
            for h in range(d):
                total += V[j, h] * given.C[o, h]
            if j < d:
                result.C[o, j] = total
            else:
                result.D[o] = total
    for q in range(m + 1):
        n = 0.0
        for o in range(q, q + 1 if q < m else p):
            n += entry_of(information, o, WIDTH, WIDTH)
        result.log_r[q] = given.log_r[q] / (0.5 * n + 0.5)
