"""The likelihood of a shared system and its exact score: a Kalman filter forward, a smoother backward.

The system is that of `undertow.models.shared_system.vector`. A round is a row of a table: m contexts (NaN if missing),
the played arm (−1 if none) and its reward (NaN if none came). A table may have one more column: 1 for a row of the same
time step as the one before, so that the state has not moved. Observations enter one number at a time, so nothing is
inverted and missing ones cost nothing.

By Fisher's identity the score is the expected score of the complete data. The disturbance smoother (Koopman 1993) gives
E[w z' | y] = r ẑ' − N A P without the covariance of neighbouring states; the sums of E[zz'] over the rounds in which an
output was observed are the information of the complete data about its loadings.
"""

import math

import numpy as np

from undertow.compiled.kernel import inlined, kernel, plain, straight_kernel
from undertow.compiled.views import Record, view
from undertow.models.shared_system.rows import WIDTH, ZERO, Row, add_outer, dot, multiply, plus, put, row, times_rows
from undertow.models.shared_system.vector import Prior, open_vector, output_prior, spent_on_noise
from undertow.support.checks import FloatArray

__all__ = [
    "BLOCK",
    "block_of",
    "condition_on",
    "entry_of",
    "filter_table",
    "information_size",
    "move",
    "score",
    "store_size",
    "stored_belief",
    "stored_innovations",
]

BLOCK = WIDTH + 1  # rows of a block of the information, the constant last
_LOG_2π = math.log(2.0 * math.pi)


def information_size(m: int, k: int) -> int:
    """Return the length of the information that `score` fills: a (9, 9) sum of E[z̃z̃'], z̃ = [z; 1], for each."""
    return (m + k + 1) * BLOCK * BLOCK


@inlined
def block_of(information: FloatArray, o: int) -> FloatArray:
    """Return the block of output o in an information or its inverse; after the outputs comes that of [A b]."""
    return view(information, BLOCK * BLOCK * o, (BLOCK, BLOCK))


@inlined
def entry_of(information: FloatArray, o: int, i: int, j: int) -> float:
    """Return one entry of the block of output o."""
    entry: float = information[BLOCK * BLOCK * o + BLOCK * i + j]
    return entry


# The store has for each round the belief after its observations, ẑ and P, then K, v and F for each output.


class _Innovation(Record):
    v: float
    F: float


_BELIEF = WIDTH + WIDTH * WIDTH
_OUTPUT = WIDTH + len(_Innovation.names)


@inlined
def _stride(m: int) -> int:
    return _BELIEF + _OUTPUT * (m + 1)


@inlined
def _kept_belief(store: FloatArray, t: int, m: int) -> tuple[FloatArray, FloatArray]:
    """Return ẑ (1, 8) and P (8, 8) of round t."""
    at = t * _stride(m)
    return view(store, at, (1, WIDTH)), view(store, at + WIDTH, (WIDTH, WIDTH))


@inlined
def _kept_output(store: FloatArray, t: int, i: int, m: int) -> tuple[FloatArray, _Innovation]:
    """Return K (1, 8), and v and F, of context i, or of the reward for i = m, of round t."""
    at = t * _stride(m) + _BELIEF + _OUTPUT * i
    return view(store, at, (1, WIDTH)), _Innovation(store, at + WIDTH)


def store_size(rounds: int, m: int) -> int:
    """Return the number of values that the backward pass needs from the forward pass."""
    stride: int = plain(_stride)(m)
    return rounds * stride


def stored_belief(store: FloatArray, t: int, m: int) -> tuple[FloatArray, FloatArray]:
    """Return ẑ (8,) and P (8, 8) after round t."""
    z, P = plain(_kept_belief)(store, t, m)
    return z[0], P


def stored_innovations(store: FloatArray, rounds: int, m: int) -> tuple[FloatArray, FloatArray]:
    """Return v and F of every round, each (rounds, m + 1); they are meaningless without observations."""
    outputs = store[: store_size(rounds, m)].reshape(rounds, -1)[:, _BELIEF:].reshape(rounds, m + 1, _OUTPUT)
    v, F = np.moveaxis(outputs[..., WIDTH:], -1, 0)
    return v, F


@inlined
def _sums_of(sums: FloatArray, o: int) -> FloatArray:
    """Return the sums of output o (11, 8): ΣE[zz'] in rows 0–7, ΣE[z] in 8, Σ y E[z] in 9, and n, Σy, Σy² in 10."""
    return view(sums, o * (WIDTH + 3) * WIDTH, (WIDTH + 3, WIDTH))


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
def _moves(table: FloatArray, t: int, m: int) -> bool:
    """Return whether the state moves before row t."""
    moved: bool = table.shape[1] == m + 2 or table[t, m + 2] == 0.0
    return moved


@inlined
def _start(z: FloatArray, P: FloatArray, variance: float, d: int) -> None:
    z[:] = 0.0
    P[:] = 0.0
    for i in range(d):
        P[i, i] = variance


@straight_kernel
def filter_table(π: FloatArray, d: int, m: int, k: int, table: FloatArray, variance: float, store: FloatArray) -> float:
    """Run the filter from N(0, variance · I), fill the store and return the log likelihood."""
    A, b, C, D, log_r = open_vector(π, m, k)
    z, P, At, X = np.empty((1, WIDTH)), np.empty((WIDTH, WIDTH)), np.empty((WIDTH, WIDTH)), np.zeros((WIDTH, WIDTH))
    _transpose(A, At)
    _start(z, P, variance, d)
    noise = np.empty(m + 1)
    for i in range(m + 1):
        noise[i] = math.exp(log_r[i])
    total, product = 0.0, 1.0  # of the variances: one logarithm for many
    for t in range(len(table)):
        if t > 0 and _moves(table, t, m):
            move(z, P, A, At, b, X, d)
        for i in range(m + 1):
            y = table[t, i] if i < m else table[t, m + 1]
            o = i if i < m else m + int(table[t, m])
            if np.isnan(y) or o < i:
                continue
            K, kept = _kept_output(store, t, i, m)
            h = row(C, o)
            v = y - D[o] - dot(h, row(z, 0))
            F = condition_on(z, P, h, K, v, noise[i], d)
            kept.v, kept.F = v, F
            total -= 0.5 * (_LOG_2π + v * v / F)
            product *= F
            if not 1e-100 < product < 1e100:
                total -= 0.5 * math.log(product)
                product = 1.0
        kept_z, kept_P = _kept_belief(store, t, m)
        put(kept_z, 0, row(z, 0))
        for i in range(WIDTH):
            put(kept_P, i, row(P, i))
    return total - 0.5 * math.log(product)


@straight_kernel
def _smooth(
    π: FloatArray, d: int, m: int, k: int, table: FloatArray, store: FloatArray, sums: FloatArray, disturbed: FloatArray
) -> None:
    """Smooth backward through the store of `filter_table`.

    `sums` (m + k + 1, 11, 8) gets those of each output, then ΣE[zz'], ΣE[z] and n over all rounds after which the state
    moves. `disturbed` (17, 8) gets ΣE[w z'], ΣE[w] in row 8, and ΣE[ww' − I] from row 9 on.
    """
    A, _, C, _, _ = open_vector(π, m, k)
    N, NA, NAP, M = np.zeros((WIDTH, WIDTH)), np.zeros((WIDTH, WIDTH)), np.zeros((WIDTH, WIDTH)), np.zeros((2, WIDTH))
    At, PAt, S = np.empty((WIDTH, WIDTH)), np.zeros((WIDTH, WIDTH)), np.zeros((WIDTH, WIDTH))
    r, zs = np.zeros((1, WIDTH)), np.zeros((1, WIDTH))
    _transpose(A, At)
    sums[:] = 0.0
    disturbed[:] = 0.0
    n = len(table)
    for t in range(n - 1, -1, -1):
        z, P = _kept_belief(store, t, m)
        moved = t < n - 1 and _moves(table, t + 1, m)
        if t == n - 1:
            put(zs, 0, row(z, 0))
            for i in range(d):
                put(S, i, row(P, i))
        elif not moved:  # r and N are about the same state
            multiply(N, P, d, NAP)
            put(zs, 0, plus(row(z, 0), 1.0, times_rows(r, 0, P, d)))
            for i in range(d):
                put(S, i, plus(row(P, i), -1.0, times_rows(P, i, NAP, d)))
        else:  # r and N are about the state at the beginning of round t + 1
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
        if moved:
            whole = _sums_of(sums, m + k)
            for i in range(d):
                put(whole, i, plus(row(whole, i), 1.0, row(S, i)))
            put(whole, WIDTH, plus(row(whole, WIDTH), 1.0, mean))
            whole[WIDTH + 2, 0] += 1.0
        for i in range(m, -1, -1):
            y = table[t, i] if i < m else table[t, m + 1]
            o = i if i < m else m + int(table[t, m])
            if np.isnan(y) or o < i:
                continue
            own = _sums_of(sums, o)
            for j in range(d):
                put(own, j, plus(row(own, j), 1.0, row(S, j)))
            put(own, WIDTH, plus(row(own, WIDTH), 1.0, mean))
            put(own, WIDTH + 1, plus(row(own, WIDTH + 1), y, mean))
            own[WIDTH + 2, 0] += 1.0
            own[WIDTH + 2, 1] += y
            own[WIDTH + 2, 2] += y * y
            K, kept = _kept_output(store, t, i, m)
            v, F = kept.v, kept.F
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
    prior: FloatArray,
    store: FloatArray,
    gradient: FloatArray,
    information: FloatArray,
    disturbed: FloatArray,
) -> tuple[float, float]:
    """Return the penalised objective −log L + penalties and log L; fill its gradient, the information, E[w…].

    Penalties: ½‖A‖² + ½‖b‖², Gaussian ones on loadings and offsets, ½(log r + s/r) on each noise variance; and
    −½ df log r returns to a noise variance the degrees of freedom used by its loadings.
    """
    p = m + k
    A, b, C, D, log_r = open_vector(π, m, k)
    slope = open_vector(gradient, m, k)
    noise_scale, spent = Prior(prior, 0).noise_scale, spent_on_noise(prior, m)
    log_likelihood = filter_table(π, d, m, k, table, Prior(prior, 0).start_variance, store)
    sums = np.empty((p + 1, WIDTH + 3, WIDTH))
    _smooth(π, d, m, k, table, store, sums, disturbed)

    gradient[:] = 0.0
    objective = -log_likelihood
    for i in range(d):
        for j in range(d):
            a = A[i, j]
            objective += 0.5 * a * a
            slope.A[i, j] = a - disturbed[i, j]
        objective += 0.5 * b[0, i] * b[0, i]
        slope.b[0, i] = b[0, i] - disturbed[WIDTH, i]
    counts = np.zeros(m + 1)
    residuals = np.zeros(m + 1)
    for o in range(p):
        own, q = _sums_of(sums, o), min(o, m)
        n, y1, y2 = own[WIDTH + 2, 0], own[WIDTH + 2, 1], own[WIDTH + 2, 2]
        r = math.exp(log_r[q])
        loading, mean, precision = output_prior(prior, o, m)
        deviation = D[o] - mean
        e1 = y1 - n * D[o]
        e2 = y2 - 2.0 * D[o] * y1 + n * D[o] * D[o]
        for i in range(d):
            Sc = D[o] * own[WIDTH, i]
            for j in range(d):
                Sc += own[i, j] * C[o, j]
            e1 -= C[o, i] * own[WIDTH, i]
            e2 += C[o, i] * (Sc + D[o] * own[WIDTH, i] - 2.0 * own[WIDTH + 1, i])
            slope.C[o, i] = loading * C[o, i] - (own[WIDTH + 1, i] - Sc) / r
            objective += 0.5 * loading * C[o, i] * C[o, i]
        slope.D[o] = precision * deviation - e1 / r
        objective += 0.5 * precision * deviation * deviation
        counts[q] += n
        residuals[q] += e2
    for q in range(m + 1):
        r = math.exp(log_r[q])
        slope.log_r[q] = 0.5 * (counts[q] - spent[q] + 1.0) - 0.5 * (residuals[q] + noise_scale) / r
        objective += 0.5 * (1.0 - spent[q]) * log_r[q] + 0.5 * noise_scale / r

    for o in range(p + 1):
        moments, own = block_of(information, o), _sums_of(sums, o)
        for i in range(WIDTH):
            for j in range(WIDTH):
                moments[i, j] = own[i, j]
            moments[i, WIDTH] = own[WIDTH, i]
            moments[WIDTH, i] = own[WIDTH, i]
        moments[WIDTH, WIDTH] = own[WIDTH + 2, 0]
    return objective, log_likelihood
