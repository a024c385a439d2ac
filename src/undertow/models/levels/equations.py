"""The compiled steps of the structural model: levels of the arms, a shared level, and weights on known features.

The reward of arm a in a round with features u is

    x = g + ⟨w_0, u⟩ + s_a + f_a + ⟨w_a, [1, u]⟩ + v,   v ~ N(0, σ²),

with a level g and weights w_0 shared by all arms, a slow level s_a, a fast level f_a and weights w_a of each arm. Every
entry of the state is an independent AR(1) process, z' = φ z + N(0, V (1 − φ²)), that starts in its stationary law N(0,
V); an entry with φ = 1 never moves, and V is its prior variance. For k arms and q features the state is

    z = [g, s_1 … s_k, f_1 … f_k, w_1 (1 + q entries), …, w_k, w_0 (q entries)],   D = 1 + q + k (3 + q).

Its entries fall into six groups which share φ and V: shared level, slow levels, fast levels, intercepts, weights of the
arms on features, shared weights on features. The packed `hyper` (13,) is a `Hyper`. The shared part cancels in a
comparison of arms. But arms are observed at different times: without it, the model would take it for a difference
between them.

Here are the steps of the exact filter, of which `undertow.models.levels.score` computes the likelihood; a policy
filters by `undertow.models.levels.filter`. A belief is ẑ (D,) and P (D, D), both in place, C-contiguous, possibly
borrowed. The observation row h of an arm has 4 + 2q entries that are not zero, so Ph costs D (4 + 2q) operations; P is
touched once per step.
"""

from undertow.compiled.kernel import inlined, kernel
from undertow.compiled.views import Record, view
from undertow.support.checks import FloatArray

__all__ = [
    "GROUPS",
    "HYPERS",
    "TINY",
    "Groups",
    "Hyper",
    "add_noise",
    "direct_rows",
    "dot",
    "elapsed_before",
    "features_of",
    "first_entry",
    "innovation_variance",
    "levels_size",
    "levels_start",
    "observation_row",
    "power",
    "product",
    "spread",
]

TINY = 1e-100  # tiny covariances with entries not observed for long are dropped: denormal numbers are slow
_NEAR_ZERO = 0.01


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


GROUPS, HYPERS = len(Groups.names), len(Hyper.names)


@kernel
def levels_size(k: int, q: int) -> int:
    """Return D, the number of entries of the state."""
    return 1 + q + k * (3 + q)


@inlined
def first_entry(group: int, k: int, q: int) -> int:
    """Return the place of the first entry of a group in the state; weights have one only with features."""
    if group < 3:
        return 0 if group == 0 else 1 + (group - 1) * k
    return 1 + 2 * k + (group - 3 if group < 5 else k * (1 + q))


@inlined
def direct_rows(hyper: FloatArray, k: int, q: int) -> int:
    """Return the number of leading entries up to the last one whose φ is too near 0 to divide by."""
    φ = Groups(hyper, 0)
    if abs(φ.intercept) < _NEAR_ZERO or (q > 0 and min(abs(φ.weight), abs(φ.shared_weight)) < _NEAR_ZERO):
        return levels_size(k, q)
    return 1 + 2 * k if min(abs(φ.shared), abs(φ.slow), abs(φ.fast)) < _NEAR_ZERO else 0


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
    return view(table, t * table.shape[1] + 2, (q,))


@inlined
def elapsed_before(table: FloatArray, t: int, q: int) -> float:
    """Return the time steps between the row before and row t: 1, or the last column's entry; 0 is the same one."""
    elapsed: float = table[t, 2 + q] if table.shape[1] > 2 + q else 1.0
    return elapsed


@inlined
def dot(values: FloatArray, u: FloatArray, a: int, k: int, q: int) -> float:
    """Return ⟨h, values⟩, h the observation row of arm a."""
    b, c = 1 + 2 * k + a * (1 + q), 1 + 2 * k + k * (1 + q)
    total: float = values[0] + values[1 + a] + values[1 + k + a] + values[b]
    for i in range(q):
        total += u[i] * (values[b + 1 + i] + values[c + i])
    return total


@inlined
def observation_row(h: FloatArray, u: FloatArray, a: int, k: int, q: int) -> None:
    """Write h, all D entries of it."""
    b, c = 1 + 2 * k + a * (1 + q), 1 + 2 * k + k * (1 + q)
    for j in range(len(h)):
        h[j] = 0.0
    h[0] = h[1 + a] = h[1 + k + a] = h[b] = 1.0
    for i in range(q):
        h[b + 1 + i] = h[c + i] = u[i]


@inlined
def product(Ph: FloatArray, parts: FloatArray, P: FloatArray, u: FloatArray, a: int, k: int, q: int) -> None:
    """Ph = P h, a sum of 4 + 2q rows of the symmetric P, and the groups' parts (6, D) of it."""
    D = len(P)
    b, c = 1 + 2 * k + a * (1 + q), D - q
    for j in range(D):
        parts[0, j], parts[1, j], parts[2, j], parts[3, j] = P[0, j], P[1 + a, j], P[1 + k + a, j], P[b, j]
        parts[4, j] = parts[5, j] = 0.0
    for i in range(q):
        u_i = u[i]
        for j in range(D):
            parts[4, j] += u_i * P[b + 1 + i, j]
            parts[5, j] += u_i * P[c + i, j]
    for j in range(D):
        Ph[j] = parts[0, j] + parts[1, j] + parts[2, j] + parts[3, j] + parts[4, j] + parts[5, j]


@inlined
def add_noise(P: FloatArray, hyper: FloatArray, k: int, q: int) -> None:
    """P ← P + (I − Φ²)V, the innovations of one step."""
    φ, V = Groups(hyper, 0), Groups(hyper, GROUPS)
    P[0, 0] += innovation_variance(φ.shared, V.shared)
    slow, fast = innovation_variance(φ.slow, V.slow), innovation_variance(φ.fast, V.fast)
    intercept, weight = innovation_variance(φ.intercept, V.intercept), innovation_variance(φ.weight, V.weight)
    shared = innovation_variance(φ.shared_weight, V.shared_weight)
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
def power(φ: float, elapsed: float) -> float:
    """Return φ to an integer power."""
    return φ if elapsed == 1.0 else φ**elapsed


@inlined
def innovation_variance(φ: float, V: float) -> float:
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
