"""What the complete data would tell of a shared system, and what follows from it: preconditioner, prior, dimension.

The information is block diagonal: one block for the rows of [A b], one for each output's [C_i D_i].
"""

import math

import numpy as np

from undertow._checks import FloatArray
from undertow._kernel import kernel
from undertow._view import view
from undertow.identify.rows import WIDTH
from undertow.identify.score import FIXED, Prior, noise_at, offsets_at

__all__ = [
    "BLOCK",
    "NOISE_SCALE",
    "OFFSET_SCALE",
    "invert_information",
    "limit_radius",
    "precondition",
    "renew_prior",
    "shift_origin",
    "spectral_radius",
]

NOISE_SCALE = 0.01  # of an output's variance: where the prior of its noise variance pulls
OFFSET_SCALE = 0.3  # of what the state explains of a typical arm: variance of the arms' offsets
BLOCK = WIDTH + 1
_SQUARINGS = 18
_B = WIDTH * WIDTH
_C = _B + WIDTH
_PSEUDO_ARMS = 2.0  # how many arms the prior of the arms' own spread counts for
_LEAST_EXPLAINED = 0.05  # share of the rewards' variance that a typical arm is expected to explain at the least


@kernel
def spectral_radius(π: FloatArray, d: int) -> float:
    """Return ‖A^N‖^(1/N) for N = 2^18: the largest modulus of an eigenvalue, to 1e-5 unless many of them coincide."""
    X, Y = np.empty((d, d)), np.empty((d, d))
    for i in range(d):
        for j in range(d):
            X[i, j] = π[WIDTH * i + j]
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
        for i in range(_B):
            π[i] *= limit / radius


@kernel
def _invert(X: FloatArray, size: int, scratch: FloatArray) -> bool:
    """Invert a positive definite matrix in place by its Cholesky factor; say whether it was one."""
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
    π: FloatArray, d: int, m: int, k: int, information: FloatArray, prior: Prior, inverse: FloatArray
) -> bool:
    """Write the inverse of information plus penalty: a (9, 9) block for each output, the last for [A b].

    A block holds d + 1 rows and columns, the constant last. For an arm it is the covariance of its [C_a D_a] given the
    states.
    """
    p = m + k
    X, L = np.empty((BLOCK, BLOCK)), np.empty((BLOCK, BLOCK))
    for o in range(p + 1):
        seen = view(information, BLOCK * BLOCK * o, (BLOCK, BLOCK))
        out = view(inverse, BLOCK * BLOCK * o, (BLOCK, BLOCK))
        r = 1.0
        loading, offset = 1.0, 1.0
        if o < p:
            r = math.exp(π[noise_at(p) + min(o, m)])
            loading, offset = (prior[1], prior[2]) if o < m else (prior[3], prior[5])
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
    π: FloatArray, d: int, m: int, k: int, information: FloatArray, prior: Prior, inverse: FloatArray
) -> float:
    """Estimate the prior anew from the model and return the effective degrees of freedom of the whole model.

    τ, the trace of the state's mean second moment, sets the variance at the start, τ/d, and the precision of a
    context's loadings, so that ⟨C_i, z⟩ varies as its output does. The arms' own spread sets theirs (empirical Bayes),
    with a few typical arms beside them, whose rewards vary by what is not noise.
    `inverse` has to be that of `invert_information`.
    """
    p = m + k
    block = BLOCK * BLOCK
    whole = view(information, block * p, (BLOCK, BLOCK))
    τ = 0.0
    for i in range(d):
        τ += whole[i, i]
    τ = max(τ / max(whole[WIDTH, WIDTH], 1.0), 1.0 * d)
    explained = max(1.0 - math.exp(π[noise_at(p) + m]), _LEAST_EXPLAINED)  # of the rewards' variance, which is 1
    squares = _PSEUDO_ARMS * explained * d / τ
    mean, weight = 0.0, 1.0
    freedom = 0.0
    used = np.zeros(m + 1)
    counts = np.zeros(m + 1)
    for o in range(p):
        V = view(inverse, block * o, (BLOCK, BLOCK))
        c = view(π, _C + WIDTH * o, (WIDTH,))
        loading, offset = (prior[1], prior[2]) if o < m else (prior[3], prior[5])
        spent = 1.0 - offset * V[d, d]
        for i in range(d):
            spent += 1.0 - loading * V[i, i]
            if o >= m:
                squares += c[i] * c[i] + V[i, i]
        if o >= m:
            mean += π[offsets_at(p) + o] / (V[d, d] + 1.0 / offset)
            weight += 1.0 / (V[d, d] + 1.0 / offset)
        freedom += spent
        used[min(o, m)] += spent
        counts[min(o, m)] += information[block * o + block - 1]
    mean /= weight
    spread = _PSEUDO_ARMS * OFFSET_SCALE * explained
    for o in range(m, p):
        deviation = π[offsets_at(p) + o] - mean
        spread += deviation * deviation + inverse[block * o + BLOCK * d + d]
    U = view(inverse, block * p, (BLOCK, BLOCK))
    dynamics = -0.5 * d * (d - 1)  # the likelihood does not change when the basis of the state is rotated
    for i in range(d + 1):
        dynamics += d * (1.0 - U[i, i])
    freedom += max(dynamics, 0.0)
    prior[0], prior[1], prior[2] = τ / d, τ, 1.0
    prior[3] = (k + _PSEUDO_ARMS) * d / squares
    prior[4], prior[5] = mean, (k + _PSEUDO_ARMS) / spread
    prior[6] = NOISE_SCALE
    for q in range(m + 1):
        prior[FIXED + q] = min(used[q], 0.5 * counts[q])
    return freedom + m + 1


@kernel
def shift_origin(π: FloatArray, d: int, m: int, k: int, prior: Prior) -> None:
    """Move the origin of the state to where the penalties on b and D are least.

    z + c in place of z turns b into b + (I − A)c and D_i into D_i − ⟨C_i, c⟩, and changes nothing that is seen once the
    start is forgotten. Left to the descent it takes long, and an arm that was played once has its reward explained by
    an offset of its own where the others have theirs.
    """
    p = m + k
    M, v, L = np.zeros((d, d)), np.zeros(d), np.zeros((d, d))
    C, D = view(π, _C, (p, WIDTH)), view(π, offsets_at(p), (p,))
    for i in range(d):
        M[i, i] = 1e-9
        for j in range(d):
            for h in range(d):
                left = (1.0 if h == i else 0.0) - π[WIDTH * h + i]
                right = (1.0 if h == j else 0.0) - π[WIDTH * h + j]
                M[i, j] += left * right
        for h in range(d):
            v[i] -= ((1.0 if h == i else 0.0) - π[WIDTH * h + i]) * π[_B + h]
    for o in range(p):
        mean, precision = (0.0, prior[2]) if o < m else (prior[4], prior[5])
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
        π[_B + i] += c[i]
        for j in range(d):
            π[_B + i] -= π[WIDTH * i + j] * c[j]
    for o in range(p):
        for i in range(d):
            D[o] -= C[o, i] * c[i]


@kernel
def precondition(
    x: FloatArray, d: int, m: int, k: int, information: FloatArray, inverse: FloatArray, out: FloatArray
) -> None:
    """Multiply a gradient by the inverse information."""
    p = m + k
    block = BLOCK * BLOCK
    out[:] = 0.0
    U = view(inverse, block * p, (BLOCK, BLOCK))
    for i in range(d):
        for j in range(d + 1):
            total = U[j, d] * x[_B + i]
            for h in range(d):
                total += U[j, h] * x[WIDTH * i + h]
            if j < d:
                out[WIDTH * i + j] = total
            else:
                out[_B + i] = total
    for o in range(p):
        V = view(inverse, block * o, (BLOCK, BLOCK))
        for j in range(d + 1):
            total = V[j, d] * x[offsets_at(p) + o]
            for h in range(d):
                total += V[j, h] * x[_C + WIDTH * o + h]
            if j < d:
                out[_C + WIDTH * o + j] = total
            else:
                out[offsets_at(p) + o] = total
    for q in range(m + 1):
        n = 0.0
        for o in range(q, q + 1 if q < m else p):
            n += information[block * o + block - 1]
        out[noise_at(p) + q] = x[noise_at(p) + q] / (0.5 * n + 0.5)
