"""The likelihood of a shared system and its exact score: one pass of the Kalman filter forth, one of the smoother back.

    z' = A z + b + N(0, I),   y_i = ⟨C_i, z⟩ + D_i + N(0, r_i)

The outputs are m contexts, each with its own noise, then k arms that share one. A round is a row of a table: m contexts
(NaN where missing), the arm that was played (−1 where none was) and its reward (NaN where none came). Everything seen
enters one number at a time, so nothing is inverted and what is missing costs nothing.

By Fisher's identity the score is the expected score of the complete data. The disturbance smoother (Koopman 1993) gives
E[w z' | y] = r ẑ' − N A P without the covariance of neighbouring states; the sums of E[zz'] over the rounds in which an
output was seen are the information that the complete data would hold of its loadings.
"""

import math

import numpy as np

from undertow._checks import FloatArray
from undertow._kernel import inlined, kernel, plain, straight_kernel
from undertow._view import view
from undertow.identify.rows import WIDTH, ZERO, Row, add_outer, dot, multiply, plus, put, row, times_rows

__all__ = [
    "FIXED",
    "Prior",
    "condition_on",
    "filter_table",
    "information_size",
    "model_size",
    "move",
    "noise_at",
    "offsets_at",
    "score",
    "store_size",
]

# A model is one vector: A (8, 8), b (8), C (m + k, 8), D (m + k), log r (m + 1), zero beyond the order.
_B = WIDTH * WIDTH
_C = _B + WIDTH
# A prior is one vector, too: variance of each state at the start, precision of a context's loadings and offset,
# precision of an arm's loadings, mean and precision of its offset, scale of the noise variances; then, for each noise
# variance, the degrees of freedom that its loadings have used up.
FIXED = 7
Prior = FloatArray
_LOG_2π = math.log(2.0 * math.pi)


@inlined
def offsets_at(p: int) -> int:
    """Return where D begins."""
    return _C + WIDTH * p


@inlined
def noise_at(p: int) -> int:
    """Return where log r begins."""
    return _C + (WIDTH + 1) * p


def model_size(m: int, k: int) -> int:
    """Return the length of a model."""
    return _C + (WIDTH + 1) * (m + k) + m + 1


def information_size(m: int, k: int) -> int:
    """Return the length of what `score` tells of the complete data: a (9, 9) sum of E[z̃z̃'], z̃ = [z; 1], for each."""
    return (m + k + 1) * (WIDTH + 1) ** 2


def store_size(rounds: int, m: int) -> int:
    """Return how many numbers the backward pass needs of the forward pass."""
    stride: int = plain(_stride)(m)
    return rounds * stride


@inlined
def _stride(m: int) -> int:
    return WIDTH + WIDTH * WIDTH + (WIDTH + 2) * (m + 1)


@inlined
def move(z: FloatArray, P: FloatArray, A: FloatArray, At: FloatArray, b: FloatArray, X: FloatArray, d: int) -> None:
    """ẑ ← Aẑ + b and P ← APA' + I; the mean is row 0 of z."""
    put(z, 0, plus(times_rows(z, 0, At, d), 1.0, row(b, 0)))
    multiply(A, P, d, X)
    multiply(X, At, d, P)
    for i in range(d):
        P[i, i] += 1.0
        for j in range(i):
            P[i, j] = 0.5 * (P[i, j] + P[j, i])
            P[j, i] = P[i, j]


@inlined
def condition_on(z: FloatArray, P: FloatArray, h: Row, K: FloatArray, v: float, r: float, d: int) -> float:
    """Condition on y = h'z + N(0, r), v = y − h'ẑ; write the gain into row 0 of K and return the variance F of v."""
    put(K, 0, h)
    Ph = times_rows(K, 0, P, d)
    F = r + dot(h, Ph)
    put(K, 0, plus(ZERO, 1.0 / F, Ph))
    put(z, 0, plus(row(z, 0), v / F, Ph))
    add_outer(P, -1.0, K, 0, Ph, d)
    return F


@inlined
def _transpose(A: FloatArray, At: FloatArray) -> None:
    for i in range(WIDTH):
        for j in range(WIDTH):
            At[j, i] = A[i, j]


@inlined
def _start(z: FloatArray, P: FloatArray, variance: float, d: int) -> None:
    z[:] = 0.0
    P[:] = 0.0
    for i in range(d):
        P[i, i] = variance


@straight_kernel
def filter_table(π: FloatArray, d: int, m: int, k: int, table: FloatArray, variance: float, store: FloatArray) -> float:
    """Run the filter from N(0, variance · I) and return the log likelihood.

    For every round the store gets the belief after all that was seen in it, and for each output K, v and F.
    """
    p = m + k
    A, b, C = view(π, 0, (WIDTH, WIDTH)), view(π, _B, (1, WIDTH)), view(π, _C, (p, WIDTH))
    D, ρ = view(π, offsets_at(p), (p,)), view(π, noise_at(p), (m + 1,))
    z, P, At, X = np.empty((1, WIDTH)), np.empty((WIDTH, WIDTH)), np.empty((WIDTH, WIDTH)), np.zeros((WIDTH, WIDTH))
    _transpose(A, At)
    _start(z, P, variance, d)
    noise = np.empty(m + 1)
    for i in range(m + 1):
        noise[i] = math.exp(ρ[i])
    stride = _stride(m)
    total, product = 0.0, 1.0  # of the variances: one logarithm for many
    for t in range(len(table)):
        if t > 0:
            move(z, P, A, At, b, X, d)
        at = t * stride
        for i in range(m + 1):
            y = table[t, i] if i < m else table[t, m + 1]
            o = i if i < m else m + int(table[t, m])
            if np.isnan(y) or o < i:
                continue
            K = view(store, at + _C + (WIDTH + 2) * i, (1, WIDTH))
            h = row(C, o)
            v = y - D[o] - dot(h, row(z, 0))
            F = condition_on(z, P, h, K, v, noise[i], d)
            store[at + _C + (WIDTH + 2) * i + WIDTH] = v
            store[at + _C + (WIDTH + 2) * i + WIDTH + 1] = F
            total -= 0.5 * (_LOG_2π + v * v / F)
            product *= F
            if not 1e-100 < product < 1e100:
                total -= 0.5 * math.log(product)
                product = 1.0
        put(view(store, at, (1, WIDTH)), 0, row(z, 0))
        kept = view(store, at + WIDTH, (WIDTH, WIDTH))
        for i in range(WIDTH):
            put(kept, i, row(P, i))
    return total - 0.5 * math.log(product)


@straight_kernel
def _smooth(
    π: FloatArray, d: int, m: int, k: int, table: FloatArray, store: FloatArray, sums: FloatArray, disturbed: FloatArray
) -> None:
    """Go back through what `filter_table` stored.

    `sums` (m + k + 1, 11, 8) gets for each output, over the rounds in which it was seen: ΣE[zz'] in rows 0–7, ΣE[z] in
    row 8, Σ y E[z] in row 9 and n, Σy, Σy² in row 10; its last entry gets ΣE[zz'] and ΣE[z] over all rounds but the
    last. `disturbed` (17, 8) gets ΣE[w z'], ΣE[w] in row 8, and ΣE[ww' − I] from row 9 on.
    """
    p = m + k
    A, C = view(π, 0, (WIDTH, WIDTH)), view(π, _C, (p, WIDTH))
    N, NA, NAP, M = np.zeros((WIDTH, WIDTH)), np.zeros((WIDTH, WIDTH)), np.zeros((WIDTH, WIDTH)), np.zeros((2, WIDTH))
    At, PAt, S = np.empty((WIDTH, WIDTH)), np.zeros((WIDTH, WIDTH)), np.zeros((WIDTH, WIDTH))
    r, zs = np.zeros((1, WIDTH)), np.zeros((1, WIDTH))
    _transpose(A, At)
    sums[:] = 0.0
    disturbed[:] = 0.0
    stride = _stride(m)
    n = len(table)
    for t in range(n - 1, -1, -1):
        at = t * stride
        z, P = view(store, at, (1, WIDTH)), view(store, at + WIDTH, (WIDTH, WIDTH))
        if t == n - 1:
            put(zs, 0, row(z, 0))
            for i in range(d):
                put(S, i, row(P, i))
        else:  # r and N speak of the state at the beginning of round t + 1
            multiply(N, A, d, NA)
            multiply(NA, P, d, NAP)
            multiply(P, At, d, PAt)
            old = row(r, 0)
            put(disturbed, WIDTH, plus(row(disturbed, WIDTH), 1.0, old))
            put(M, 0, old)
            for i in range(d):
                spread = plus(plus(row(disturbed, WIDTH + 1 + i), r[0, i], old), -1.0, row(N, i))
                put(disturbed, WIDTH + 1 + i, spread)
            put(r, 0, times_rows(M, 0, A, d))
            put(zs, 0, plus(row(z, 0), 1.0, times_rows(r, 0, P, d)))
            add_outer(disturbed, 1.0, M, 0, row(zs, 0), d)
            for i in range(d):
                put(disturbed, i, plus(row(disturbed, i), -1.0, row(NAP, i)))
                put(S, i, plus(row(P, i), -1.0, times_rows(PAt, i, NAP, d)))
            multiply(At, NA, d, N)
        mean = row(zs, 0)
        add_outer(S, 1.0, zs, 0, mean, d)
        if t < n - 1:
            whole = view(sums, p * (WIDTH + 3) * WIDTH, (WIDTH + 3, WIDTH))
            for i in range(d):
                put(whole, i, plus(row(whole, i), 1.0, row(S, i)))
            put(whole, WIDTH, plus(row(whole, WIDTH), 1.0, mean))
            whole[WIDTH + 2, 0] += 1.0
        for i in range(m, -1, -1):
            y = table[t, i] if i < m else table[t, m + 1]
            o = i if i < m else m + int(table[t, m])
            if np.isnan(y) or o < i:
                continue
            own = view(sums, o * (WIDTH + 3) * WIDTH, (WIDTH + 3, WIDTH))
            for j in range(d):
                put(own, j, plus(row(own, j), 1.0, row(S, j)))
            put(own, WIDTH, plus(row(own, WIDTH), 1.0, mean))
            put(own, WIDTH + 1, plus(row(own, WIDTH + 1), y, mean))
            own[WIDTH + 2, 0] += 1.0
            own[WIDTH + 2, 1] += y
            own[WIDTH + 2, 2] += y * y
            place = at + _C + (WIDTH + 2) * i
            K, v, F = view(store, place, (1, WIDTH)), store[place + WIDTH], store[place + WIDTH + 1]
            h, gain = row(C, o), row(K, 0)
            NK = times_rows(K, 0, N, d)
            put(M, 0, NK)
            put(M, 1, h)
            put(r, 0, plus(row(r, 0), v / F - dot(gain, row(r, 0)), h))
            add_outer(N, -1.0, M, 0, h, d)
            add_outer(N, 1.0, M, 1, plus(plus(ZERO, dot(gain, NK) + 1.0 / F, h), -1.0, NK), d)


@kernel
def score(
    π: FloatArray,
    d: int,
    m: int,
    k: int,
    table: FloatArray,
    prior: Prior,
    store: FloatArray,
    gradient: FloatArray,
    information: FloatArray,
    disturbed: FloatArray,
) -> tuple[float, float]:
    """Return the penalised objective −log L + penalties and log L; fill its gradient, the information, E[w…].

    Penalties: ½‖A‖² + ½‖b‖², Gaussian ones on loadings and offsets, ½(log r + s/r) on each noise variance; and
    −½ df log r gives back to a noise variance the degrees of freedom that its loadings have used.
    """
    p = m + k
    b, C, D = π[_B:_C], view(π, _C, (p, WIDTH)), view(π, offsets_at(p), (p,))
    ρ = view(π, noise_at(p), (m + 1,))
    log_likelihood = filter_table(π, d, m, k, table, prior[0], store)
    sums = np.empty((p + 1, WIDTH + 3, WIDTH))
    _smooth(π, d, m, k, table, store, sums, disturbed)

    gradient[:] = 0.0
    objective = -log_likelihood
    for i in range(d):
        for j in range(d):
            a = π[WIDTH * i + j]
            objective += 0.5 * a * a
            gradient[WIDTH * i + j] = a - disturbed[i, j]
        objective += 0.5 * b[i] * b[i]
        gradient[_B + i] = b[i] - disturbed[WIDTH, i]
    counts = np.zeros(m + 1)
    residuals = np.zeros(m + 1)
    for o in range(p):
        own, c, q = sums[o], C[o], min(o, m)
        n, y1, y2 = own[WIDTH + 2, 0], own[WIDTH + 2, 1], own[WIDTH + 2, 2]
        r = math.exp(ρ[q])
        loading, mean, precision = (prior[1], 0.0, prior[2]) if o < m else (prior[3], prior[4], prior[5])
        deviation = D[o] - mean
        e1 = y1 - n * D[o]
        e2 = y2 - 2.0 * D[o] * y1 + n * D[o] * D[o]
        for i in range(d):
            Sc = D[o] * own[WIDTH, i]
            for j in range(d):
                Sc += own[i, j] * c[j]
            e1 -= c[i] * own[WIDTH, i]
            e2 += c[i] * (Sc + D[o] * own[WIDTH, i] - 2.0 * own[WIDTH + 1, i])
            gradient[_C + WIDTH * o + i] = loading * c[i] - (own[WIDTH + 1, i] - Sc) / r
            objective += 0.5 * loading * c[i] * c[i]
        gradient[offsets_at(p) + o] = precision * deviation - e1 / r
        objective += 0.5 * precision * deviation * deviation
        counts[q] += n
        residuals[q] += e2
    for q in range(m + 1):
        r = math.exp(ρ[q])
        used = prior[FIXED + q]
        gradient[noise_at(p) + q] = 0.5 * (counts[q] - used + 1.0) - 0.5 * (residuals[q] + prior[6]) / r
        objective += 0.5 * (1.0 - used) * ρ[q] + 0.5 * prior[6] / r

    size = (WIDTH + 1) ** 2
    for o in range(p + 1):
        block = view(information, size * o, (WIDTH + 1, WIDTH + 1))
        n = sums[o, WIDTH + 2, 0]
        for i in range(WIDTH):
            for j in range(WIDTH):
                block[i, j] = sums[o, i, j]
            block[i, WIDTH] = sums[o, WIDTH, i]
            block[WIDTH, i] = sums[o, WIDTH, i]
        block[WIDTH, WIDTH] = n
    return objective, log_likelihood
