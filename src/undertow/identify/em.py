"""One step of EM for a shared system, plain or parameter-expanded."""

import math

import numpy as np

from undertow._checks import FloatArray
from undertow._kernel import kernel
from undertow._view import view
from undertow.identify.information import BLOCK, precondition
from undertow.identify.rows import WIDTH
from undertow.identify.score import FIXED, Prior, noise_at, offsets_at

__all__ = ["em_step"]

_B = WIDTH * WIDTH
_C = _B + WIDTH


@kernel
def em_step(
    π: FloatArray,
    d: int,
    m: int,
    k: int,
    prior: Prior,
    gradient: FloatArray,
    information: FloatArray,
    disturbed: FloatArray,
    inverse: FloatArray,
    expand: bool,
) -> None:
    """Maximise the expected complete-data objective: loadings, offsets and dynamics, then noise.

    With `expand` the covariance of the state noise is free in this step, and the basis is then changed to make it the
    identity again (parameter-expanded EM, Liu, Rubin and Wu 1998), which raises the likelihood faster. Fits expand; the
    plain step is there to be compared with.
    """
    p = m + k
    step = np.empty(len(π))
    block = BLOCK * BLOCK
    precondition(gradient, d, m, k, information, inverse, step)
    residuals, counts = np.zeros(m + 1), np.zeros(m + 1)
    for q in range(m + 1):
        for o in range(q, q + 1 if q < m else p):
            counts[q] += information[block * o + block - 1]
        r = math.exp(π[noise_at(p) + q])
        n = counts[q] - prior[FIXED + q] + 1.0
        residuals[q] = (n - 2.0 * gradient[noise_at(p) + q]) * r - prior[6]
    for o in range(p):
        q = min(o, m)
        r = math.exp(π[noise_at(p) + q])
        seen = view(information, block * o, (BLOCK, BLOCK))
        loading, mean, precision = (prior[1], 0.0, prior[2]) if o < m else (prior[3], prior[4], prior[5])
        for i in range(d + 1):  # Σe² is quadratic in [C D]: its slope is the gradient's without the penalty
            at = _C + WIDTH * o + i if i < d else offsets_at(p) + o
            pull = loading * π[at] if i < d else precision * (π[at] - mean)
            curve = 0.0
            for j in range(d + 1):
                other = _C + WIDTH * o + j if j < d else offsets_at(p) + o
                curve += seen[i if i < d else WIDTH, j if j < d else WIDTH] * step[other]
            residuals[q] += step[at] * (curve - 2.0 * r * (gradient[at] - pull))
    for i in range(noise_at(p)):
        π[i] -= step[i]
    for q in range(m + 1):
        π[noise_at(p) + q] = math.log((residuals[q] + prior[6]) / max(counts[q] - prior[FIXED + q] + 1.0, 1.0))
    if expand:
        _rotate_to_identity(π, d, m, k, view(information, block * p, (BLOCK, BLOCK)), disturbed, step)


@kernel
def _rotate_to_identity(
    π: FloatArray, d: int, m: int, k: int, whole: FloatArray, disturbed: FloatArray, step: FloatArray
) -> None:
    """Change the basis by the Cholesky factor of the state noise that the new dynamics leave over."""
    Q, L = np.zeros((d, d)), np.zeros((d, d))
    n = max(whole[WIDTH, WIDTH], 1.0)
    for i in range(d):
        for j in range(d):  # E[(w − Δz̃)(w − Δz̃)'], Δ = −step the change of [A b]
            total = disturbed[WIDTH + 1 + i, j] + (n if i == j else 0.0)
            total += step[_B + i] * disturbed[WIDTH, j] + disturbed[WIDTH, i] * step[_B + j]
            for h in range(d):
                total += step[WIDTH * i + h] * disturbed[j, h] + disturbed[i, h] * step[WIDTH * j + h]
            for g in range(d + 1):
                left = step[WIDTH * i + g] if g < d else step[_B + i]
                for h in range(d + 1):
                    right = step[WIDTH * j + h] if h < d else step[_B + j]
                    total += left * whole[g if g < d else WIDTH, h if h < d else WIDTH] * right
            Q[i, j] = total / n
    for i in range(d):
        for j in range(i + 1):
            total = 0.5 * (Q[i, j] + Q[j, i])
            for h in range(j):
                total -= L[i, h] * L[j, h]
            if i == j:
                L[i, i] = math.sqrt(max(total, 1e-6))
            else:
                L[i, j] = total / L[j, j]
    A, b, C = view(π, 0, (WIDTH, WIDTH)), view(π, _B, (WIDTH,)), view(π, _C, (m + k, WIDTH))
    for o in range(m + k + d):  # rows of C and of A times L, in place: L is lower triangular
        for j in range(d):
            total = 0.0
            for h in range(j, d):
                total += (C[o, h] if o < m + k else A[o - m - k, h]) * L[h, j]
            if o < m + k:
                C[o, j] = total
            else:
                A[o - m - k, j] = total
    for j in range(d + 1):  # L⁻¹ times the columns of A and b
        for i in range(d):
            total = A[i, j] if j < d else b[i]
            for h in range(i):
                total -= L[i, h] * (A[h, j] if j < d else b[h])
            if j < d:
                A[i, j] = total / L[i, i]
            else:
                b[i] = total / L[i, i]
