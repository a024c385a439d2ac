"""The slow twins of the shared system's fit: plain matrices, and one Gaussian law of all states and outputs.

z' = A z + b + N(0, I) from N(0, v I), y_i = ⟨C_i, z⟩ + D_i + N(0, r_i). Outputs are m contexts, then k arms. A round of
a table holds m contexts, the arm played (−1 for none) and its reward; NaN is missing.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import multivariate_normal

from undertow.models.shared_system.vector import Prior, prior_size

Array = npt.NDArray[np.float64]
WIDTH = 8


class Matrices(NamedTuple):
    """A model of order d: A (d, d), b (d), C (m + k, d), D (m + k), and r (m + k), the same for all arms."""

    A: Array
    b: Array
    C: Array
    D: Array
    r: Array


class Moments(NamedTuple):
    """Given all that was seen: E[z̃_t z̃_t'], z̃ = [z; 1], (n, d + 1, d + 1), and E[z_{t+1} z̃_t'], (n − 1, d, d + 1)."""

    same: Array
    next: Array


def pack(model: Matrices, m: int) -> Array:
    """The vector of a model: A (8, 8), b (8), C (m + k, 8), D (m + k), log r (m + 1), zero beyond the order."""
    d, p = len(model.A), len(model.C)
    A, b, C = np.zeros((WIDTH, WIDTH)), np.zeros(WIDTH), np.zeros((p, WIDTH))
    A[:d, :d], b[:d], C[:, :d] = model.A, model.b, model.C
    return np.concatenate([A.ravel(), b, C.ravel(), model.D, np.log(model.r[: m + 1])])


def unpack(π: Array, d: int, m: int, k: int) -> Matrices:
    A, b, C, D, log_r = np.split(π, np.cumsum([WIDTH**2, WIDTH, WIDTH * (m + k), m + k]))
    return Matrices(
        A.reshape(WIDTH, WIDTH)[:d, :d],
        b[:d],
        C.reshape(m + k, WIDTH)[:, :d],
        D,
        np.exp(log_r)[np.minimum(np.arange(m + k), m)],
    )


def active(d: int, m: int, k: int) -> npt.NDArray[np.int64]:
    """Where the parameters of a model of order d are in its vector."""
    ones = Matrices(np.ones((d, d)), np.ones(d), np.ones((m + k, d)), np.ones(m + k), np.full(m + k, math.e))
    return np.flatnonzero(pack(ones, m))


def seen(table: Array, m: int) -> list[tuple[int, int, float]]:
    """Everything that was seen in its order: time step, output, value; a last column of 1: the time step before."""
    entries, t = [], -1
    for line in table:
        t += table.shape[1] == m + 2 or t < 0 or line[m + 2] == 0
        entries += [(t, i, float(line[i])) for i in range(m) if not math.isnan(line[i])]
        if line[m] >= 0 and not math.isnan(line[m + 1]):
            entries.append((t, m + int(line[m]), float(line[m + 1])))
    return entries


def run_filter(π: Array, d: int, m: int, k: int, table: Array, variance: float) -> tuple[float, Array]:
    """Log likelihood and standardized innovations (n, m + 1), one number at a time."""
    A, b, C, D, r = unpack(π, d, m, k)
    z, P = np.zeros(d), variance * np.eye(d)
    log_likelihood, innovations, now = 0.0, np.full((len(table), m + 1), math.nan), 0
    for t, o, y in seen(table, m):
        for _ in range(t - now):
            z, P = A @ z + b, A @ P @ A.T + np.eye(d)
        now = t
        F = C[o] @ P @ C[o] + r[o]
        v = y - D[o] - C[o] @ z
        K = P @ C[o] / F
        z, P = z + K * v, P - np.outer(K, K) * F
        log_likelihood -= 0.5 * (math.log(2 * math.pi * F) + v**2 / F)
        innovations[t, min(o, m)] = v / math.sqrt(F)
    return log_likelihood, innovations


def joint(π: Array, d: int, m: int, k: int, table: Array, variance: float) -> tuple[float, Moments]:
    """Log likelihood and smoothed moments from the law of all states, written out whole: for short tables."""
    A, b, C, D, r = unpack(π, d, m, k)
    n = len(table)
    mean, covariance = np.zeros((n, d)), np.zeros((n, n, d, d))
    covariance[0, 0] = variance * np.eye(d)
    for t in range(1, n):
        mean[t] = A @ mean[t - 1] + b
        covariance[t, t] = A @ covariance[t - 1, t - 1] @ A.T + np.eye(d)
    for t in range(n):
        for later in range(t + 1, n):
            covariance[later, t] = A @ covariance[later - 1, t]
            covariance[t, later] = covariance[later, t].T
    z, P = mean.ravel(), covariance.transpose(0, 2, 1, 3).reshape(n * d, n * d)

    entries = seen(table, m)
    H, y, noise = np.zeros((len(entries), n * d)), np.zeros(len(entries)), np.zeros(len(entries))
    for i, (t, o, value) in enumerate(entries):
        H[i, t * d : (t + 1) * d], y[i], noise[i] = C[o], value - D[o], r[o]
    S = H @ P @ H.T + np.diag(noise)
    log_likelihood = float(multivariate_normal(H @ z, S).logpdf(y))

    gain = np.linalg.solve(S, H @ P).T
    z, P = z + gain @ (y - H @ z), P - gain @ H @ P
    states, second = z.reshape(n, d), (P + np.outer(z, z)).reshape(n, d, n, d)
    same, following = np.ones((n, d + 1, d + 1)), np.empty((n - 1, d, d + 1))
    for t in range(n):
        same[t, :d, :d], same[t, :d, d], same[t, d, :d] = second[t, :, t, :], states[t], states[t]
    for t in range(n - 1):
        following[t, :, :d], following[t, :, d] = second[t + 1, :, t, :], states[t + 1]
    return log_likelihood, Moments(same, following)


# Penalties


def spent(prior: Array, m: int) -> Array:
    """Degrees of freedom that the loadings at each noise variance have used up, (m + 1)."""
    return prior[prior_size(m) - m - 1 :]


def loading_penalty(prior: Array, output: int, d: int, m: int) -> tuple[Array, Array]:
    """Precision of [C_i D_i], diagonal, and its mean."""
    own = Prior(prior, 0)
    loading, mean, precision = own.arm_loading_precision, own.offset_mean, own.offset_precision
    if output < m:
        loading, mean, precision = own.context_loading_precision, 0.0, own.context_offset_precision
    return np.append(np.full(d, loading), precision), np.append(np.zeros(d), mean)


def penalty(π: Array, d: int, m: int, k: int, prior: Array) -> float:
    """½‖A‖² + ½‖b‖², Gaussian penalties on loadings and offsets, ½(log r + s/r) − ½ df log r on each noise variance."""
    A, b, C, D, r = unpack(π, d, m, k)
    total = float(0.5 * np.sum(A**2) + 0.5 * np.sum(b**2))
    for o in range(m + k):
        precision, mean = loading_penalty(prior, o, d, m)
        total += float(0.5 * precision @ (np.append(C[o], D[o]) - mean) ** 2)
    for q in range(m + 1):
        total += 0.5 * ((1 - spent(prior, m)[q]) * math.log(r[q]) + Prior(prior, 0).noise_scale / r[q])
    return total


def objective(π: Array, d: int, m: int, k: int, table: Array, prior: Array) -> float:
    return penalty(π, d, m, k, prior) - run_filter(π, d, m, k, table, Prior(prior, 0).start_variance)[0]


def numerical_gradient(f: Callable[[Array], float], x: Array, at: npt.NDArray[np.int64], h: float = 1e-5) -> Array:
    """Central differences in some coordinates, zero in the others."""
    result = np.zeros(len(x))
    for i in at:
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        result[i] = (f(up) - f(down)) / (2 * h)
    return result


# What the complete data would tell


def information(moments: Moments, table: Array, m: int, k: int) -> list[Array]:
    """Sum of E[z̃z̃'] over the rounds in which an output was seen, for each; then over all rounds but the last."""
    sums = [np.zeros_like(moments.same[0]) for _ in range(m + k)]
    for t, o, _ in seen(table, m):
        sums[o] += moments.same[t]
    return [*sums, moments.same[:-1].sum(axis=0)]


def _residuals(model: Matrices, moments: Moments, table: Array, m: int) -> tuple[Array, Array]:
    """How often each noise variance was met, and ΣE[(y − ⟨C, z⟩ − D)²] over them, both (m + 1)."""
    counts, squares = np.zeros(m + 1), np.zeros(m + 1)
    for t, o, y in seen(table, m):
        w = np.append(model.C[o], model.D[o])
        counts[min(o, m)] += 1
        squares[min(o, m)] += y**2 - 2 * y * w @ moments.same[t][:, -1] + w @ moments.same[t] @ w
    return counts, squares


def fisher_gradient(π: Array, d: int, m: int, k: int, table: Array, prior: Array) -> Array:
    """Gradient of the penalised objective by Fisher's identity: that of the complete data's, expected."""
    model = unpack(π, d, m, k)
    _, moments = joint(π, d, m, k, table, Prior(prior, 0).start_variance)
    AB = np.column_stack([model.A, model.b])
    AB_slope = AB - moments.next.sum(axis=0) + AB @ moments.same[:-1].sum(axis=0)
    CD = np.column_stack([model.C, model.D])
    CD_slope = np.zeros((m + k, d + 1))
    for t, o, y in seen(table, m):
        CD_slope[o] += (moments.same[t] @ CD[o] - y * moments.same[t][:, -1]) / model.r[o]
    for o in range(m + k):
        precision, mean = loading_penalty(prior, o, d, m)
        CD_slope[o] += precision * (CD[o] - mean)
    counts, squares = _residuals(model, moments, table, m)
    result = pack(Matrices(AB_slope[:, :d], AB_slope[:, d], CD_slope[:, :d], CD_slope[:, d], np.ones(m + k)), m)
    result[len(π) - m - 1 :] = 0.5 * (
        counts + 1 - spent(prior, m) - (squares + Prior(prior, 0).noise_scale) / model.r[: m + 1]
    )
    return result


def em(π: Array, d: int, m: int, k: int, table: Array, prior: Array) -> tuple[Matrices, Array]:
    """One step of EM, and the covariance of the state noise that the new dynamics leave over."""
    old = unpack(π, d, m, k)
    _, moments = joint(π, d, m, k, table, Prior(prior, 0).start_variance)
    blocks = information(moments, table, m, k)
    following = moments.next.sum(axis=0)
    AB = following @ np.linalg.inv(blocks[-1] + np.eye(d + 1))
    CD = np.zeros((m + k, d + 1))
    for o in range(m + k):
        precision, mean = loading_penalty(prior, o, d, m)
        pull = precision * mean
        for t, i, y in seen(table, m):
            if i == o:
                pull = pull + y * moments.same[t][:, -1] / old.r[o]
        CD[o] = np.linalg.solve(blocks[o] / old.r[o] + np.diag(precision), pull)
    new = Matrices(AB[:, :d], AB[:, d], CD[:, :d], CD[:, d], old.r)
    counts, squares = _residuals(new, moments, table, m)
    r = (squares + Prior(prior, 0).noise_scale) / (counts + 1 - spent(prior, m))
    later = moments.same[1:, :d, :d].sum(axis=0)
    Q = (later - AB @ following.T - following @ AB.T + AB @ blocks[-1] @ AB.T) / (len(table) - 1)
    return new._replace(r=r[np.minimum(np.arange(m + k), m)]), Q


def rebased(model: Matrices, T: Array) -> Matrices:
    """The same model for the state T z, its noise aside."""
    inverse = np.linalg.inv(T)
    return model._replace(A=T @ model.A @ inverse, b=T @ model.b, C=model.C @ inverse)


def inverse_blocks(π: Array, d: int, m: int, k: int, blocks: list[Array], prior: Array) -> list[Array]:
    """Inverse of information plus penalty for each output's [C_i D_i], then for a row of [A b]."""
    r = unpack(π, d, m, k).r
    outputs = [np.linalg.inv(blocks[o] / r[o] + np.diag(loading_penalty(prior, o, d, m)[0])) for o in range(m + k)]
    return [*outputs, np.linalg.inv(blocks[-1] + np.eye(d + 1))]


def renewed(π: Array, d: int, m: int, k: int, blocks: list[Array], prior: Array) -> tuple[Array, float]:
    """The prior that a model suggests, and the model's effective degrees of freedom: Σ(1 − precision × variance)."""
    _, _, C, D, r = unpack(π, d, m, k)
    V = inverse_blocks(π, d, m, k, blocks, prior)
    share = max(1 - r[-1], 0.05)
    τ = max(np.trace(blocks[-1][:d, :d]) / max(blocks[-1][d, d], 1), d)
    each = np.array([np.sum(1 - loading_penalty(prior, o, d, m)[0] * np.diag(V[o])) for o in range(m + k)])
    counts = np.array([blocks[o][d, d] for o in range(m + k)])
    by_noise = [[*each[:m], each[m:].sum()], [*counts[:m], counts[m:].sum()]]

    arms = range(m, m + k)
    squares = sum(np.sum(C[o] ** 2) + np.trace(V[o][:d, :d]) for o in arms)  # two more arms are typical: they explain
    weights = np.array([1 / (V[o][d, d] + 1 / Prior(prior, 0).offset_precision) for o in arms])
    mean = weights @ D[m:] / (1 + weights.sum())
    spread = np.sum((D[m:] - mean) ** 2) + sum(V[o][d, d] for o in arms)  # what is not noise
    used = np.minimum(by_noise[0], 0.5 * np.array(by_noise[1]))
    new = np.append(np.zeros(prior_size(m) - m - 1), used)
    own = Prior(new, 0)
    own.start_variance, own.noise_scale = τ / d, 0.01
    own.context_loading_precision, own.context_offset_precision = τ, 1.0
    own.arm_loading_precision = (k + 2) * d / (2 * share * d / τ + squares)
    own.offset_mean, own.offset_precision = mean, (k + 2) / (0.6 * share + spread)
    dynamics = max(d * np.sum(1 - np.diag(V[-1])) - d * (d - 1) / 2, 0)  # rotations of the state are no parameters
    return new, float(each.sum() + dynamics + m + 1)
