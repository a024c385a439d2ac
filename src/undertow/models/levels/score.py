"""The likelihood of the structural model and its exact score, from the disturbance smoother.

The model is that of `undertow.models.levels.equations`. A forward pass of the filter stores its beliefs; the backward
pass carries r and N, the gradient and minus the curvature of the log density of all later rewards in the state's mean,
from round to round.
"""

import math

import numpy as np

from undertow.compiled.kernel import inlined, kernel, spliced
from undertow.compiled.views import view
from undertow.models.levels.equations import (
    GROUPS,
    HYPERS,
    TINY,
    Hyper,
    add_noise,
    direct_rows,
    dot,
    elapsed_before,
    features_of,
    first_entry,
    levels_size,
    levels_start,
    observation_row,
    power,
    product,
    spread,
)
from undertow.support.checks import FloatArray

__all__ = ["levels_likelihood", "levels_workspace"]

_KEPT = 2**20  # numbers, 8 MB: memory for the beliefs stored for the backward pass


@inlined
def _advance(
    z: FloatArray, P: FloatArray, φ: FloatArray, v: FloatArray, step: float, end: FloatArray, keep: bool
) -> None:
    """ẑ ← Φ(ẑ + v step), P ← Φ(P − vv')Φ in one sweep; `end` may keep the first rows of P − vv'."""
    D, rows = len(z), len(end)
    for i in range(D):
        v_i, φ_i = v[i], φ[i]
        z[i] = φ_i * (z[i] + v_i * step)
        if keep and i < rows:
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
    τ: FloatArray,
    h: FloatArray,
    y: FloatArray,
    φ: FloatArray,
    V: FloatArray,
    steps: FloatArray,
    rates: FloatArray,
    z: FloatArray,
    P: FloatArray,
    sums: FloatArray,
    v: FloatArray,
    Nv: FloatArray,
) -> None:
    """Go from the beginning of a row to the end of the one before, where the belief was ẑ, P: r ← Φr, N ← ΦNΦ.

    With M = rr' − N, F = ½ M_jj and G = r_j ẑ_j + Σ_i Φ_i P_ij M_ij, the scores of the variance V (1 − Φ²) of the step
    and of Φ = φ^n, it adds those of V and of φ to the sums; `steps` holds dΦ/dφ = n φ^(n − 1). Of P only the first rows
    were stored. For the other entries, τ_j = Σ_i P_ij M_ij is known at the beginning of the row; at the end of the one
    before it is V (1 − Φ²) M_jj less, and Φ_j times the sum in G. `rates` holds n / φ. In the same sweep, the row's
    reward adds hy' + yh' to N, and N is multiplied by v.
    """
    D, rows = len(r), len(P)
    for i in range(D):
        by_variance = 0.5 * (r[i] * r[i] - N[i, i]) - h[i] * y[i]
        of_step = (1.0 - φ[i]) * (1.0 + φ[i]) * by_variance
        τ[i] -= 2.0 * V[i] * of_step
        sums[0, i] += of_step
        sums[1, i] += steps[i] * (r[i] * z[i] - 2.0 * φ[i] * V[i] * by_variance)
        Nv[i] = 0.0
        if i >= rows:
            sums[1, i] += rates[i] * τ[i]
    for i in range(D):
        r_i, h_i, y_i, φ_i, v_i, total = r[i], h[i], y[i], φ[i], v[i], 0.0
        if i < rows:
            for j in range(D):
                ahead = N[i, j] + (h_i * y[j] + y_i * h[j])
                total += φ[j] * P[i, j] * (r_i * r[j] - ahead)
                behind = ahead * (φ_i * φ[j])
                N[i, j] = behind if abs(behind) > TINY else 0.0
                Nv[j] += v_i * N[i, j]
        elif h_i == 0.0:  # most rows, and fewer operations
            for j in range(D):
                behind = (N[i, j] + y_i * h[j]) * (φ_i * φ[j])
                N[i, j] = behind if abs(behind) > TINY else 0.0
                Nv[j] += v_i * N[i, j]
        else:
            for j in range(D):
                behind = (N[i, j] + (h_i * y[j] + y_i * h[j])) * (φ_i * φ[j])
                N[i, j] = behind if abs(behind) > TINY else 0.0
                Nv[j] += v_i * N[i, j]
        sums[1, i] += steps[i] * total
    for i in range(D):
        r[i] *= φ[i]


@inlined
def _go(
    φ: FloatArray,
    steps: FloatArray,
    rates: FloatArray,
    ahead: FloatArray,
    hyper: FloatArray,
    elapsed: float,
    k: int,
    q: int,
) -> None:
    """Write Φ = φ^n, n φ^(n − 1) and n / φ of every entry, and hyper-parameters `ahead` of a step of n time steps."""
    for i in range(len(hyper)):
        ahead[i] = elapsed / hyper[i] if hyper[i] != 0.0 else 0.0
    spread(rates, ahead, 0, k, q)
    for i in range(len(hyper)):
        step = elapsed * power(hyper[i], elapsed - 1.0) if elapsed > 0.0 else 0.0
        ahead[i] = step if i < GROUPS else hyper[i]
    spread(steps, ahead, 0, k, q)
    for i in range(GROUPS):
        ahead[i] = power(hyper[i], elapsed)
    spread(φ, ahead, 0, k, q)


@inlined
def _retreat_reward(
    r: FloatArray,
    τ: FloatArray,
    h: FloatArray,
    y: FloatArray,
    v: FloatArray,
    Nv: FloatArray,
    parts: FloatArray,
    e: float,
    root: float,
    k: int,
    q: int,
    x: FloatArray,
) -> float:
    """Take r and τ from after a round's reward to before it, write y, and return the score of σ².

    With K = v/√s and g = e/s − K'r: r ← r + hg, N ← N + hy' + yh', where y = ½ h (1/s + K'NK) − NK; the score is half
    of g² − (1/s + K'NK). `e` is standardized, `root` is √s and `x` (D,) is scratch.

    Before the reward P was vv' more, and M is hx' + xh' + g² hh' more, x = gr − y. Of (P xh')_jj the sum over each
    group is known: x'P h_g, with h_g zero outside of the group and P h_g in `parts`. The first entry of the group gets
    it, since only sums over groups are asked for.
    """
    D = len(r)
    vr, vNv = 0.0, 0.0
    for i in range(D):
        vr += v[i] * r[i]
        vNv += v[i] * Nv[i]
    gain = (e - vr) / root
    curvature = (1.0 + vNv) / (root * root)
    for i in range(D):
        y[i] = 0.5 * h[i] * curvature - Nv[i] / root
        x[i] = gain * r[i] - y[i]
        τ[i] += v[i] * (vr * r[i] - Nv[i] + root * (x[i] + gain * gain * h[i]))
        r[i] += h[i] * gain
    for group in range(GROUPS if q > 0 else GROUPS - 2):  # the last two are weights
        total = 0.0
        for i in range(D):
            total += parts[group, i] * x[i]
        τ[first_entry(group, k, q)] += total
    return 0.5 * (gain * gain - curvature)


@inlined
def _kept(rows: int, D: int) -> int:
    """Return the number of values per round for the backward pass: e, √s, ẑ, v, Ph_g of all groups, some rows of P."""
    return 2 + (2 + GROUPS + rows) * D


@inlined
def _segment_length(n: int, kept: int) -> int:
    """Return the number of rounds whose beliefs, `kept` numbers each, are stored at a time: all if they fit, or √n."""
    return max(1, min(n, max(math.ceil(math.sqrt(n)), _KEPT // kept)))


@kernel
def levels_workspace(n: int, k: int, q: int) -> int:
    """Return the length of the scratch of `levels_likelihood` for n rounds."""
    D = levels_size(k, q)
    most = 0
    for rows in (0, 1 + 2 * k, D):
        kept = _kept(rows, D)
        length = _segment_length(n, kept)
        segments = (n + length - 1) // length
        most = max(most, segments * (D + D * D) + length * kept)
    return 13 * D + 2 * D * D + HYPERS + most


@spliced
def levels_likelihood(
    table: FloatArray, hyper: FloatArray, k: int, q: int, score: FloatArray, work: FloatArray
) -> float:
    """Return the log-likelihood of a table of arm, reward, features; `score` (13,) receives its gradient.

    An additional column may have the time steps since the row before (`elapsed_before`).

    The score is with respect to atanh φ of the six groups, log V of the six groups and log σ²; a group with φ = 1 has
    none in φ. It is exact and comes from the disturbance smoother. With r and N of the backward pass at the beginning
    of a round, and ẑ, P the belief at the end of the round before, the sums over rounds and over the entries j of a
    group of

        ½ (r_j² − N_jj)   and   r_j ẑ_j + Σ_i Φ_i P_ij (r_i r_j − N_ij),   Φ = φ^n for a step of n time steps,

    are the scores of the group's innovation variance and of its Φ; the first of them at the beginning of the first
    round is the score of its initial variance. The sum over i and j needs no P: times Φ_j it is the trace of P (rr' −
    N) over the group, which a few products of vectors carry from one row to the one before. If φ is too near 0 to
    divide by, the rows of P are stored and the sum is formed.

    If the beliefs of all rounds would take too much memory, some are stored and the rest is recomputed from them, so
    memory grows like √n D². `work` has `levels_workspace(n, k, q)` numbers.
    """
    n, D = len(table), levels_size(k, q)
    rows = direct_rows(hyper, k, q)
    length = _segment_length(n, _kept(rows, D))
    segments = (n + length - 1) // length
    whole = D + D * D  # a belief, and likewise r and N
    belief, z, P = view(work, 0, (whole,)), view(work, 0, (D,)), view(work, D, (D, D))
    behind = view(work, whole, (whole + 5 * D,))  # r, N, sums, τ, h and y
    r, N, sums = view(behind, 0, (D,)), view(behind, D, (D, D)), view(behind, whole, (2, D))
    at = whole + 2 * D
    τ, h, y = view(behind, at, (D,)), view(behind, at + D, (D,)), view(behind, at + 2 * D, (D,))
    at = 2 * whole + 5 * D
    φ, V = view(work, at, (D,)), view(work, at + D, (D,))
    Nv, scratch = view(work, at + 2 * D, (D,)), view(work, at + 3 * D, (D,))
    at += 4 * D
    steps, rates, ahead = view(work, at, (D,)), view(work, at + D, (D,)), view(work, at + 2 * D, (len(hyper),))
    at += 2 * D + len(hyper)
    begins = view(work, at, (segments, whole))
    at += segments * whole
    e, root, means = (
        view(work, at, (length,)),
        view(work, at + length, (length,)),
        view(work, at + 2 * length, (length, D)),
    )
    at += 2 * length + length * D
    gains, parts = view(work, at, (length, D)), view(work, at + length * D, (length, GROUPS, D))
    ends = view(work, at + (1 + GROUPS) * length * D, (length, rows, D))
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
            of_groups = view(parts, c * GROUPS * D, (GROUPS, D))
            a, x = int(table[t, 0]), table[t, 1]
            if a >= 0 and not np.isnan(x):
                u = features_of(table, t, q)
                product(v, of_groups, P, u, a, k, q)
                root[c] = math.sqrt(max(dot(v, u, a, k, q), 0.0) + Hyper(hyper, 0).reward_noise)
                e[c] = (x - dot(z, u, a, k, q)) / root[c]
                if visit < segments:
                    log_likelihood -= 0.5 * (math.log(2.0 * math.pi) + e[c] * e[c]) + math.log(root[c])
                by = 1.0 / root[c]
                for i in range(D):
                    v[i] *= by
            else:
                root[c], e[c] = 0.0, 0.0
                for i in range(D):
                    v[i] = 0.0
            for i in range(D):
                mean[i] = z[i] + v[i] * e[c]
            elapsed = elapsed_before(table, min(t + 1, n - 1), q)
            if elapsed != gone:
                gone = elapsed
                _go(φ, steps, rates, ahead, hyper, elapsed, k, q)
            _advance(z, P, φ, v, e[c], view(ends, c * D * rows, (rows, D)), keep)
            add_noise(P, ahead, k, q)
        for t in range(last - 1, first - 1 if keep else last - 1, -1):
            c = t - first
            elapsed = elapsed_before(table, t + 1, q) if t < n - 1 else 0.0
            if elapsed != gone:
                gone = elapsed
                _go(φ, steps, rates, ahead, hyper, elapsed, k, q)
            v, mean, end = view(gains, c * D, (D,)), view(means, c * D, (D,)), view(ends, c * D * rows, (rows, D))
            _retreat_step(r, N, τ, h, y, φ, V, steps, rates, mean, end, sums, v, Nv)
            if root[c] > 0.0:
                observation_row(h, features_of(table, t, q), int(table[t, 0]), k, q)
                of_groups = view(parts, c * GROUPS * D, (GROUPS, D))
                noise_score += _retreat_reward(r, τ, h, y, v, Nv, of_groups, e[c], root[c], k, q, scratch)
            else:
                for i in range(D):
                    h[i] = 0.0
    for i in range(D):  # y: the first sum at the beginning of the first round
        y[i] = 0.5 * (r[i] * r[i] - N[i, i]) - h[i] * y[i]
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
