"""The likelihood of the structural model and its exact score, from the disturbance smoother.

The model is that of `undertow.identify.levels.steps`. A forward pass of the filter keeps its beliefs; the backward pass
carries r and N, the gradient and minus the curvature of the log density of all later rewards in the state's mean, from
round to round.
"""

import math

import numpy as np

from undertow._checks import FloatArray
from undertow.compiled.kernel import inlined, kernel, spliced
from undertow.compiled.views import view
from undertow.identify.levels.steps import (
    GROUPS,
    HYPERS,
    TINY,
    Hyper,
    add_noise,
    dot,
    elapsed_before,
    features_of,
    levels_size,
    levels_start,
    moving_entries,
    power,
    product,
    spread,
)

__all__ = ["levels_likelihood", "levels_workspace"]

_KEPT = 2**20  # numbers, 8 MB: what the beliefs kept for the backward pass may take


@inlined
def _advance(
    z: FloatArray, P: FloatArray, φ: FloatArray, v: FloatArray, step: float, end: FloatArray, keep: bool
) -> None:
    """ẑ ← Φ(ẑ + v step), P ← Φ(P − vv')Φ in one sweep; `end` may keep the moving rows of P − vv'."""
    D, moving = len(z), len(end)
    for i in range(D):
        v_i, φ_i = v[i], φ[i]
        z[i] = φ_i * (z[i] + v_i * step)
        if keep and i < moving:
            for j in range(D):
                after = P[i, j] - v_i * v[j]
                end[i, j] = after
                ahead = after * (φ_i * φ[j])
                P[i, j] = ahead if abs(ahead) > TINY else 0.0
        else:
            for j in range(D):
                ahead = (P[i, j] - v_i * v[j]) * (φ_i * φ[j])
                P[i, j] = ahead if abs(ahead) > TINY else 0.0


@inlined
def _retreat_step(
    r: FloatArray,
    N: FloatArray,
    φ: FloatArray,
    V: FloatArray,
    steps: FloatArray,
    z: FloatArray,
    P: FloatArray,
    moving: int,
    sums: FloatArray,
) -> None:
    """Go from the beginning of a row to the end of the one before, where the belief was ẑ, P: r ← Φr, N ← ΦNΦ.

    With F = ½ (r_j² − N_jj) and G = r_j ẑ_j + Σ_i Φ_i P_ij (r_i r_j − N_ij), the scores of the variance V (1 − Φ²) of
    the step and of Φ = φ^n, it adds those of V and of φ to the sums; `steps` holds dΦ/dφ = n φ^(n − 1).
    """
    D = len(r)
    for i in range(moving):
        r_i, φ_i = r[i], φ[i]
        by_variance = 0.5 * (r_i * r_i - N[i, i])
        total = r_i * z[i]
        for j in range(D):
            total += φ[j] * P[i, j] * (r_i * r[j] - N[i, j])
            behind = N[i, j] * (φ_i * φ[j])
            N[i, j] = behind if abs(behind) > TINY else 0.0
        sums[0, i] += (1.0 - φ_i) * (1.0 + φ_i) * by_variance
        sums[1, i] += steps[i] * (total - 2.0 * φ_i * V[i] * by_variance)
    for i in range(moving, D):
        for j in range(moving):
            behind = N[i, j] * φ[j]
            N[i, j] = behind if abs(behind) > TINY else 0.0
    for i in range(moving):
        r[i] *= φ[i]


@inlined
def _go(φ: FloatArray, steps: FloatArray, ahead: FloatArray, hyper: FloatArray, elapsed: float, k: int, q: int) -> None:
    """Write Φ = φ^n and n φ^(n − 1) of every entry, and hyper-parameters `ahead` of a step of n moments."""
    for i in range(len(hyper)):
        ahead[i] = elapsed * power(hyper[i], elapsed - 1.0) if i < GROUPS else hyper[i]
    spread(steps, ahead, 0, k, q)
    for i in range(GROUPS):
        ahead[i] = power(hyper[i], elapsed)
    spread(φ, ahead, 0, k, q)


@inlined
def _place(n: int, a: int, k: int, q: int) -> int:
    """Return where the n-th entry of the observation row of arm a stands that is not zero."""
    if n < 3:
        return 0 if n == 0 else 1 + a if n == 1 else 1 + k + a
    return 1 + 2 * k + a * (1 + q) + n - 3 if n < 4 + q else 1 + 2 * k + k * (1 + q) + n - 4 - q


@inlined
def _retreat_reward(
    r: FloatArray,
    N: FloatArray,
    v: FloatArray,
    e: float,
    root: float,
    u: FloatArray,
    a: int,
    k: int,
    q: int,
    y: FloatArray,
) -> float:
    """Take r and N from after a round's reward to before it and return the score of σ².

    With K = v/√s: r ← r + h (e/s − K'r), N ← N − h(NK)' − (NK)h' + hh' (1/s + K'NK); the score is half of
    (e/s − K'r)² − (1/s + K'NK). `e` is standardised, `root` is √s and `y` (D,) is scratch.
    """
    D = len(r)
    vr = 0.0
    vNv = 0.0
    for i in range(D):
        total = 0.0
        for j in range(D):
            total += N[i, j] * v[j]
        y[i] = -total / root
        vNv += total * v[i]
        vr += r[i] * v[i]
    gain = (e - vr) / root
    curvature = (1.0 + vNv) / (root * root)
    b = 1 + 2 * k + a * (1 + q)
    for n in range(4 + 2 * q):  # y = h (1/s + K'NK)/2 − NK, so that N changes by hy' + yh'
        i = _place(n, a, k, q)
        h_i = u[(n - 4) % q] if n >= 4 else 1.0
        r[i] += h_i * gain
        y[i] += 0.5 * h_i * curvature
    for n in range(4 + 2 * q):
        i = _place(n, a, k, q)
        h_i = u[(n - 4) % q] if n >= 4 else 1.0
        for j in range(D):
            N[i, j] += h_i * y[j]
    for j in range(D):
        y_j = y[j]
        N[j, 0] += y_j
        N[j, 1 + a] += y_j
        N[j, 1 + k + a] += y_j
        N[j, b] += y_j
        for i in range(q):
            N[j, b + 1 + i] += u[i] * y_j
            N[j, D - q + i] += u[i] * y_j
    return 0.5 * (gain * gain - curvature)


@inlined
def _segment_length(n: int, kept: int) -> int:
    """Return of how many rounds the beliefs, `kept` numbers each, are kept at a time: all where they fit, or √n."""
    return max(1, min(n, max(math.ceil(math.sqrt(n)), _KEPT // kept)))


@kernel
def levels_workspace(n: int, k: int, q: int) -> int:
    """Return how many numbers of scratch `levels_likelihood` needs for n rounds."""
    D = levels_size(k, q)
    most = 0
    for moving in (1 + 2 * k, D):
        length = _segment_length(n, moving * D)
        segments = (n + length - 1) // length
        most = max(most, segments * (D + D * D) + length * (2 + 2 * D + moving * D))
    return 8 * D + 2 * D * D + HYPERS + most


@spliced
def levels_likelihood(
    table: FloatArray, hyper: FloatArray, k: int, q: int, score: FloatArray, work: FloatArray
) -> float:
    """Return the log-likelihood of a table of arm, reward, features; `score` (13,) receives its gradient.

    One more column may say how many moments after the row before each is (`elapsed_before`).

    The score is with respect to atanh φ of the six groups, log V of the six groups and log σ²; a group with φ = 1 has
    none in φ. It is exact and comes from the disturbance smoother. With r and N of the backward pass at the beginning
    of a round, and ẑ, P the belief at the end of the round before, the sums over rounds and over the entries j of a
    group of

        ½ (r_j² − N_jj)   and   r_j ẑ_j + Σ_i Φ_i P_ij (r_i r_j − N_ij),   Φ = φ^n for a step of n moments,

    are the scores of the group's innovation variance and of its Φ; the first of them at the beginning of the first
    round is the score of its initial variance. Where the beliefs of all rounds would take too much memory, some are
    kept and the rest computed again from them, so memory grows like √n D². `work` has `levels_workspace(n, k, q)`
    numbers.
    """
    n, D = len(table), levels_size(k, q)
    moving = moving_entries(hyper, k, q)
    length = _segment_length(n, moving * D)
    segments = (n + length - 1) // length
    whole = D + D * D  # a belief, and likewise r and N
    belief, z, P = view(work, 0, (whole,)), view(work, 0, (D,)), view(work, D, (D, D))
    behind = view(work, whole, (whole + 2 * D,))  # r, N and sums
    r, N, sums = view(behind, 0, (D,)), view(behind, D, (D, D)), view(behind, whole, (2, D))
    at = 2 * whole + 2 * D
    φ, y, begins = view(work, at, (D,)), view(work, at + D, (D,)), view(work, at + 2 * D, (segments, whole))
    at += 2 * D + segments * whole
    V, steps, ahead = view(work, at, (D,)), view(work, at + D, (D,)), view(work, at + 2 * D, (len(hyper),))
    at += 2 * D + len(hyper)
    e, root, means = (
        view(work, at, (length,)),
        view(work, at + length, (length,)),
        view(work, at + 2 * length, (length, D)),
    )
    at += 2 * length + length * D
    gains, ends = view(work, at, (length, D)), view(work, at + length * D, (length, moving, D))
    spread(V, hyper, GROUPS, k, q)
    levels_start(z, P, hyper, k, q)
    for i in range(len(behind)):
        behind[i] = 0.0
    gone = -1.0
    log_likelihood, noise_score = 0.0, 0.0
    for visit in range(2 * segments - 1):  # all segments forward; then all backward, the last one without a new start
        segment = visit if visit < segments else 2 * segments - 2 - visit
        first, last = segment * length, min(n, (segment + 1) * length)
        for i in range(whole):
            if visit < segments:
                begins[segment, i] = belief[i]
            else:
                belief[i] = begins[segment, i]
        keep = visit >= segments - 1
        for t in range(first, last):
            c = t - first
            v, mean = view(gains, c * D, (D,)), view(means, c * D, (D,))
            a, x = int(table[t, 0]), table[t, 1]
            if a >= 0 and not np.isnan(x):
                u = features_of(table, t, q)
                product(v, P, u, a, k, q)
                root[c] = math.sqrt(max(dot(v, u, a, k, q), 0.0) + Hyper(hyper, 0).reward_noise)
                e[c] = (x - dot(z, u, a, k, q)) / root[c]
                if visit < segments:
                    log_likelihood -= 0.5 * (math.log(2.0 * math.pi) + e[c] * e[c]) + math.log(root[c])
            else:
                root[c], e[c] = 0.0, 0.0
            for i in range(D):
                v[i] = v[i] / root[c] if root[c] > 0.0 else 0.0
                mean[i] = z[i] + v[i] * e[c]
            elapsed = elapsed_before(table, min(t + 1, n - 1), q)
            if elapsed != gone:
                gone = elapsed
                _go(φ, steps, ahead, hyper, elapsed, k, q)
            _advance(z, P, φ, v, e[c], view(ends, c * D * moving, (moving, D)), keep)
            add_noise(P, ahead, k, q)
        for t in range(last - 1, first - 1 if keep else last - 1, -1):
            c = t - first
            elapsed = elapsed_before(table, min(t + 1, n - 1), q)
            if t < n - 1 and elapsed > 0.0:
                if elapsed != gone:
                    gone = elapsed
                    _go(φ, steps, ahead, hyper, elapsed, k, q)
                mean, end = view(means, c * D, (D,)), view(ends, c * D * moving, (moving, D))
                _retreat_step(r, N, φ, V, steps, mean, end, moving, sums)
            if root[c] > 0.0:
                u, v = features_of(table, t, q), view(gains, c * D, (D,))
                noise_score += _retreat_reward(r, N, v, e[c], root[c], u, int(table[t, 0]), k, q, y)
    for i in range(D):  # y: the first sum at the beginning of the first round
        y[i] = 0.5 * (r[i] * r[i] - N[i, i])
    _gather_score(score, hyper, sums, y, noise_score, k, q)
    return log_likelihood


@spliced
def _gather_score(
    score: FloatArray, hyper: FloatArray, sums: FloatArray, y: FloatArray, noise_score: float, k: int, q: int
) -> None:
    """Turn the sums of the backward pass into the score, by the chain rule through log V and atanh φ."""
    slopes, numbers = view(score, 0, (2, GROUPS)), view(hyper, 0, (2, GROUPS))  # of φ, then of V
    score[:] = 0.0
    for j in range(len(y)):
        within = (j - 1 - 2 * k) % (1 + q)
        group = 0 if j == 0 else 1 if j <= k else 2 if j <= 2 * k else 3 if within == 0 else 4
        if j >= len(y) - q:
            group = 5
        φ, V = numbers[0, group], numbers[1, group]
        free = (1.0 - φ) * (1.0 + φ)
        slopes[0, group] += free * sums[1, j]
        slopes[1, group] += V * (y[j] + sums[0, j])
    Hyper(score, 0).reward_noise = Hyper(hyper, 0).reward_noise * noise_score
