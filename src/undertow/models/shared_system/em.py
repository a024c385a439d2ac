"""One step of EM for a shared system, plain or parameter-expanded."""

import math

import numpy as np

from undertow.compiled.kernel import kernel
from undertow.models.shared_system.information import precondition
from undertow.models.shared_system.rows import WIDTH
from undertow.models.shared_system.score import block_of, entry_of
from undertow.models.shared_system.vector import Prior, open_vector, output_prior, spent_on_noise, weight_at
from undertow.support.checks import FloatArray

__all__ = ["em_step"]


@kernel
def em_step(
    π: FloatArray,
    d: int,
    m: int,
    k: int,
    prior: FloatArray,
    gradient: FloatArray,
    information: FloatArray,
    disturbed: FloatArray,
    inverse: FloatArray,
    expand: bool,
) -> None:
    """Maximise the expected complete-data objective: loadings, offsets and dynamics, then noise.

    With `expand` the covariance of the state noise is free in this step, and the basis is then changed to make it the
    identity again (parameter-expanded EM, Liu, Rubin and Wu 1998), which raises the likelihood faster. Fits expand; the
    plain step is for comparison.
    """
    p = m + k
    step = np.empty(len(π))
    precondition(gradient, d, m, k, information, inverse, step)
    log_r, slope = open_vector(π, m, k).log_r, open_vector(gradient, m, k).log_r
    noise_scale, spent = Prior(prior, 0).noise_scale, spent_on_noise(prior, m)
    residuals, counts = np.zeros(m + 1), np.zeros(m + 1)
    for q in range(m + 1):
        for o in range(q, q + 1 if q < m else p):
            counts[q] += entry_of(information, o, WIDTH, WIDTH)
        r = math.exp(log_r[q])
        n = counts[q] - spent[q] + 1.0
        residuals[q] = (n - 2.0 * slope[q]) * r - noise_scale
    for o in range(p):
        q = min(o, m)
        r = math.exp(log_r[q])
        seen = block_of(information, o)
        loading, mean, precision = output_prior(prior, o, m)
        for i in range(d + 1):  # Σe² is quadratic in [C D]: its slope is the gradient's without the penalty
            at = weight_at(o, i, d, p)
            pull = loading * π[at] if i < d else precision * (π[at] - mean)
            curve = 0.0
            for j in range(d + 1):
                curve += seen[i if i < d else WIDTH, j if j < d else WIDTH] * step[weight_at(o, j, d, p)]
            residuals[q] += step[at] * (curve - 2.0 * r * (gradient[at] - pull))
    for i in range(len(π)):
        π[i] -= step[i]
    for q in range(m + 1):
        log_r[q] = math.log((residuals[q] + noise_scale) / max(counts[q] - spent[q] + 1.0, 1.0))
    if expand:
        _rotate_to_identity(π, d, m, k, block_of(information, p), disturbed, step)


@kernel
def _rotate_to_identity(
    π: FloatArray, d: int, m: int, k: int, whole: FloatArray, disturbed: FloatArray, step: FloatArray
) -> None:
    """Change the basis by the Cholesky factor of the state noise left by the new dynamics."""
    A, b, C, _, _ = open_vector(π, m, k)
    change = open_vector(step, m, k)
    Q, L = np.zeros((d, d)), np.zeros((d, d))
    n = max(whole[WIDTH, WIDTH], 1.0)
    for i in range(d):
        for j in range(d):  # E[(w − Δz̃)(w − Δz̃)'], Δ = −step the change of [A b]
            total = disturbed[WIDTH + 1 + i, j] + (n if i == j else 0.0)
            total += change.b[0, i] * disturbed[WIDTH, j] + disturbed[WIDTH, i] * change.b[0, j]
            for h in range(d):
                total += change.A[i, h] * disturbed[j, h] + disturbed[i, h] * change.A[j, h]
            for g in range(d + 1):
                left = change.A[i, g] if g < d else change.b[0, i]
                for h in range(d + 1):
                    right = change.A[j, h] if h < d else change.b[0, j]
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
            total = A[i, j] if j < d else b[0, i]
            for h in range(i):
                total -= L[i, h] * (A[h, j] if j < d else b[0, h])
            if j < d:
                A[i, j] = total / L[i, i]
            else:
                b[0, i] = total / L[i, i]
