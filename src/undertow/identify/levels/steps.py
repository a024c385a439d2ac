"""The compiled steps of the structural model: levels of the arms, a shared level, and weights on known features.

The reward of arm a in a round with features u is

    x = g + ⟨w_0, u⟩ + s_a + f_a + ⟨w_a, [1, u]⟩ + v,   v ~ N(0, σ²),

with a level g and weights w_0 shared by all arms, a slow level s_a, a fast level f_a and weights w_a of each arm. Every
entry of the state is an AR(1) process of its own, z' = φ z + N(0, V (1 − φ²)), that starts in its stationary law
N(0, V); an entry with φ = 1 never moves, and V is its prior variance. For k arms and q features the state is

    z = [g, s_1 … s_k, f_1 … f_k, w_1 (1 + q entries), …, w_k, w_0 (q entries)],   D = 1 + q + k (3 + q).

Its entries fall into six groups which share φ and V: shared level, slow levels, fast levels, intercepts, weights of the
arms on features, shared weights on features. The packed `hyper` (13,) is a `Hyper`. What is shared cancels in a
comparison of arms, but arms are seen at different times: left out of the model, it would pass for a difference between
them.

A belief is ẑ (D,) and P (D, D), both in place, C-contiguous, possibly borrowed. The observation row h of an arm has
4 + 2q entries that are not zero, so Ph costs D (4 + 2q) operations; P is touched once per step.
"""

import math

import numpy as np

from undertow._checks import FloatArray
from undertow.compiled.kernel import inlined, kernel
from undertow.compiled.views import Record, view

__all__ = [
    "GROUPS",
    "TINY",
    "Hyper",
    "add_noise",
    "dot",
    "features_of",
    "levels_condition",
    "levels_forecast",
    "levels_limit",
    "levels_predict",
    "levels_run",
    "levels_size",
    "levels_start",
    "moving_entries",
    "product",
    "spread",
]

LIMIT = 4.0  # standard deviations; what lies further from its forecast says no more than that
TINY = 1e-100  # covariances with what was not seen for long are dropped before they become denormal numbers, slow ones


class Hyper(Record):
    """The hyper-parameters: φ of the six groups, V of the six groups, σ²."""

    shared_persistence: float
    slow_persistence: float
    fast_persistence: float
    intercept_persistence: float
    weight_persistence: float
    shared_weight_persistence: float
    shared_variance: float
    slow_variance: float
    fast_variance: float
    intercept_variance: float
    weight_variance: float
    shared_weight_variance: float
    reward_noise: float


class Groups(Record):
    """One number of each of the six groups: φ from the beginning of `hyper` on, V from `GROUPS` on."""

    shared: float
    slow: float
    fast: float
    intercept: float
    weight: float
    shared_weight: float


GROUPS = len(Groups.names)


@kernel
def levels_size(k: int, q: int) -> int:
    """Return D, the number of entries of the state."""
    return 1 + q + k * (3 + q)


@inlined
def moving_entries(hyper: FloatArray, k: int, q: int) -> int:
    """Return how many entries lead the state up to the last one that moves: levels alone, unless weights drift."""
    φ = Groups(hyper, 0)
    drift = φ.intercept < 1.0 or (q > 0 and (φ.weight < 1.0 or φ.shared_weight < 1.0))
    return levels_size(k, q) if drift else 1 + 2 * k


@inlined
def spread(values: FloatArray, hyper: FloatArray, first: int, k: int, q: int) -> None:
    """Give each of the D entries the number of its group, the groups' numbers standing in `hyper` from `first` on."""
    own = Groups(hyper, first)
    values[0] = own.shared
    for a in range(k):
        values[1 + a] = own.slow
        values[1 + k + a] = own.fast
    for a in range(k):
        b = 1 + 2 * k + a * (1 + q)
        values[b] = own.intercept
        for i in range(q):
            values[b + 1 + i] = own.weight
    for i in range(q):
        values[1 + 2 * k + k * (1 + q) + i] = own.shared_weight


@inlined
def features_of(table: FloatArray, t: int, q: int) -> FloatArray:
    """Return the features (q,) in row t of a table of arm, reward, features."""
    return view(table, t * (2 + q) + 2, (q,))


@inlined
def dot(values: FloatArray, u: FloatArray, a: int, k: int, q: int) -> float:
    """Return ⟨h, values⟩, h the observation row of arm a."""
    b, c = 1 + 2 * k + a * (1 + q), 1 + 2 * k + k * (1 + q)
    total: float = values[0] + values[1 + a] + values[1 + k + a] + values[b]
    for i in range(q):
        total += u[i] * (values[b + 1 + i] + values[c + i])
    return total


@inlined
def product(Ph: FloatArray, P: FloatArray, u: FloatArray, a: int, k: int, q: int) -> None:
    """Ph = P h, a sum of 4 + 2q rows of the symmetric P."""
    D = len(P)
    b, c = 1 + 2 * k + a * (1 + q), D - q
    for j in range(D):
        Ph[j] = P[0, j] + P[1 + a, j] + P[1 + k + a, j] + P[b, j]
    for i in range(q):
        u_i = u[i]
        for j in range(D):
            Ph[j] += u_i * (P[b + 1 + i, j] + P[c + i, j])


@inlined
def add_noise(P: FloatArray, hyper: FloatArray, k: int, q: int) -> None:
    """P ← P + (I − Φ²)V, the innovations of one step."""
    φ, V = Groups(hyper, 0), Groups(hyper, GROUPS)
    P[0, 0] += _noise(φ.shared, V.shared)
    slow, fast = _noise(φ.slow, V.slow), _noise(φ.fast, V.fast)
    intercept, weight = _noise(φ.intercept, V.intercept), _noise(φ.weight, V.weight)
    shared = _noise(φ.shared_weight, V.shared_weight)
    for a in range(k):
        s, f, b = 1 + a, 1 + k + a, 1 + 2 * k + a * (1 + q)
        P[s, s] += slow
        P[f, f] += fast
        P[b, b] += intercept
        for w in range(b + 1, b + 1 + q):
            P[w, w] += weight
    for w in range(len(P) - q, len(P)):
        P[w, w] += shared


@inlined
def _noise(φ: float, V: float) -> float:
    """Return V (1 − φ²)."""
    return V * (1.0 - φ) * (1.0 + φ)


@kernel
def levels_start(z: FloatArray, P: FloatArray, hyper: FloatArray, k: int, q: int) -> None:
    """Write the stationary law: ẑ = 0, P = diag V. It is the belief at the beginning of the first round."""
    D = len(z)
    spread(z, hyper, GROUPS, k, q)
    for i in range(D):
        for j in range(D):
            P[i, j] = 0.0
        P[i, i] = z[i]
    for i in range(D):
        z[i] = 0.0


@kernel
def levels_predict(z: FloatArray, P: FloatArray, hyper: FloatArray, k: int, q: int, scratch: FloatArray) -> None:
    """ẑ ← Φẑ, P ← ΦPΦ + (I − Φ²)V with diagonal Φ: from the end of a round to the beginning of the next.

    `scratch` (2D,) is overwritten.
    """
    D = len(z)
    φ, factor, moving = scratch, D, moving_entries(hyper, k, q)
    spread(φ, hyper, 0, k, q)
    before = np.nan
    for i in range(D):
        φ_i = φ[i]
        z[i] *= φ_i
        if φ_i != before:  # products of two φ are rounded before they meet P, so P stays exactly symmetric
            before = φ_i
            for j in range(D):
                scratch[factor + j] = φ_i * φ[j]
        for j in range(D if i < moving else moving):
            ahead = P[i, j] * scratch[factor + j]
            P[i, j] = ahead if abs(ahead) > TINY else 0.0
    add_noise(P, hyper, k, q)


@kernel
def levels_forecast(
    z: FloatArray,
    P: FloatArray,
    hyper: FloatArray,
    k: int,
    q: int,
    u: FloatArray,
    forecast: FloatArray,
    first: int,
    last: int,
) -> None:
    """Forecast the rewards of arms `first` to `last` − 1 under features u (q,).

    The belief is that at the beginning of the round. `forecast` (6, k) receives the mean h'ẑ, and variances: of the
    arm's own part s + f + ⟨w, [1, u]⟩; of the part of it that lasts, s + ⟨w, [1, u]⟩, which is what exploring finds
    out; of s + f; of ⟨w, [1, u]⟩; and of the reward, h'Ph + σ².
    """
    c = len(z) - q
    for a in range(k):  # from `first` on, the compiler would not know that no index is negative
        if a < first or a >= last:
            continue
        s, f, b = 1 + a, 1 + k + a, 1 + 2 * k + a * (1 + q)
        mean = z[0] + z[s] + z[f] + z[b]
        weights = P[b, b]
        slow, fast, common = P[s, b], P[f, b], P[0, b] + P[0, s] + P[0, f]  # covariances with weights; with the rest
        shared = P[0, 0]
        for i in range(q):
            w, u_i = b + 1 + i, u[i]
            mean += u_i * (z[w] + z[c + i])
            slow += u_i * P[s, w]
            fast += u_i * P[f, w]
            common += u_i * (P[0, w] + P[c + i, s] + P[c + i, f] + P[c + i, b])
            own, both = 2.0 * P[b, w] + u_i * P[w, w], 2.0 * P[0, c + i] + u_i * P[c + i, c + i]
            for j in range(i):
                own += 2.0 * u[j] * P[w, b + 1 + j]
                both += 2.0 * u[j] * P[c + i, c + j]
            for j in range(q):
                common += u_i * u[j] * P[c + i, b + 1 + j]
            weights += u_i * own
            shared += u_i * both
        lasting = weights + P[s, s] + 2.0 * slow
        own = lasting + P[f, f] + 2.0 * (fast + P[s, f])
        forecast[0, a] = mean
        forecast[1, a] = max(own, 0.0)
        forecast[2, a] = max(lasting, 0.0)
        forecast[3, a] = max(P[s, s] + P[f, f] + 2.0 * P[s, f], 0.0)
        forecast[4, a] = max(weights, 0.0)
        forecast[5, a] = max(own + 2.0 * common + shared, 0.0) + Hyper(hyper, 0).reward_noise


@kernel
def levels_condition(
    z: FloatArray,
    P: FloatArray,
    hyper: FloatArray,
    k: int,
    q: int,
    u: FloatArray,
    a: int,
    x: float,
    scratch: FloatArray,
) -> tuple[float, float, float]:
    """Condition on reward x of arm a under features u; return its log density, standardised innovation and deviation.

    With e = x − h'ẑ, s = h'Ph + σ² and v = Ph/√s: ẑ ← ẑ + v e/√s, P ← P − vv', which is exactly symmetric. In the first
    of them |e/√s| is at most `LIMIT`, so that a single gross reward cannot carry the levels away. `scratch` (D,) or
    longer is overwritten with v.
    """
    D = len(z)
    v = scratch
    product(v, P, u, a, k, q)
    s = max(dot(v, u, a, k, q), 0.0) + Hyper(hyper, 0).reward_noise
    root = math.sqrt(s)
    innovation = (x - dot(z, u, a, k, q)) / root
    for i in range(D):
        v[i] /= root
    step = min(max(innovation, -LIMIT), LIMIT)
    for i in range(D):
        v_i = v[i]
        z[i] += v_i * step
        for j in range(D):
            P[i, j] -= v_i * v[j]
    return -0.5 * (math.log(2.0 * math.pi * s) + innovation * innovation), innovation, root


@kernel
def levels_run(
    table: FloatArray,
    hyper: FloatArray,
    k: int,
    q: int,
    z: FloatArray,
    P: FloatArray,
    scratch: FloatArray,
    innovations: FloatArray,
) -> float:
    """Filter through a table (n, 2 + q) of arm, reward, features, and return the log-likelihood.

    The belief comes in at the beginning of the first row's round and goes out at the end of the last row's round, with
    that round's reward and without the step to the next round. A row whose arm is below 0 or whose reward is NaN tells
    nothing. `innovations` receives the standardised innovations, NaN where nothing was seen; pass an empty array to
    leave them out.
    """
    log_likelihood = 0.0
    for t in range(len(table)):
        if t > 0:
            levels_predict(z, P, hyper, k, q, scratch)
        a, x, innovation = int(table[t, 0]), table[t, 1], np.nan
        if a >= 0 and not np.isnan(x):
            u = features_of(table, t, q)
            log_density, innovation, _ = levels_condition(z, P, hyper, k, q, u, a, x, scratch)
            log_likelihood += log_density
        if len(innovations) > 0:
            innovations[t] = innovation
    return log_likelihood


@kernel
def levels_limit(table: FloatArray, hyper: FloatArray, k: int, q: int) -> None:
    """Bring rewards of a table, in place, to within `LIMIT` deviations of what the filter forecasts from those before.

    A likelihood of Gaussian noise, which fits maximise, would make the noise larger for a few gross ones.
    """
    D = levels_size(k, q)
    z, P, scratch = np.empty(D), np.empty((D, D)), np.empty(2 * D)
    levels_start(z, P, hyper, k, q)
    for t in range(len(table)):
        if t > 0:
            levels_predict(z, P, hyper, k, q, scratch)
        a, x = int(table[t, 0]), table[t, 1]
        if a >= 0 and not np.isnan(x):
            u = features_of(table, t, q)
            _, innovation, root = levels_condition(z, P, hyper, k, q, u, a, x, scratch)
            table[t, 1] = x - root * (innovation - min(max(innovation, -LIMIT), LIMIT))
