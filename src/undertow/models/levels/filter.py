"""The Kalman filter of the structural model, at a cost that grows linearly with the number of arms.

The model is that of `undertow.models.levels.equations`, with its state in another order: the shared part c = [g, w_0],
and the arms' own parts b_a = [s_a, f_a, w_a]. A reward of arm a depends on c and b_a alone. The belief has the
covariances of c, of each b_a, and of each b_a with c. The arms are taken as independent of one another given c:

    Cov(b_i, b_j) = Cov(b_i, c) Cov(c)⁻¹ Cov(c, b_j),   i ≠ j.

This is exact for a constant c, and for one arm. If c moves, two arms also depend on one another through earlier values
of c; only this dependence is dropped, in each step to the next round. docs/decisions/0015-many-arms.md has its cost.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from undertow.compiled.kernel import inlined, kernel
from undertow.compiled.layout import Layout
from undertow.compiled.views import Record
from undertow.models.levels.equations import (
    GROUPS,
    TINY,
    Groups,
    Hyper,
    elapsed_before,
    features_of,
    innovation_variance,
    power,
)
from undertow.support.checks import FloatArray

__all__ = [
    "CONSTANT",
    "LIMIT",
    "SLOW",
    "WEIGHTS",
    "Belief",
    "condition",
    "filter_levels",
    "forecast_arms",
    "limit_rewards",
    "new_belief",
    "predict",
    "start",
]

LIMIT = 4.0  # standard deviations; a larger error counts as this
_LOST = 1e-12  # of a variance: less than this is rounding
SLOW, FAST, CONSTANT, WEIGHTS = range(4)  # places in b


class Belief(NamedTuple):
    """Means and covariances of the shared c (1 + Q) and of each arm's own b (3 + Q)."""

    shared: Annotated[FloatArray, "Q+1"]
    own: Annotated[FloatArray, "k Q+3"]
    P_shared: Annotated[FloatArray, "Q+1 Q+1"]
    P_cross: Annotated[FloatArray, "k Q+3 Q+1"]
    P_own: Annotated[FloatArray, "k Q+3 Q+3"]
    h: Annotated[FloatArray, "2 Q+3"]  # scratch: numbers of the groups, or an observation row
    v: Annotated[FloatArray, "3 Q+3"]  # scratch: covariances with a reward
    L: Annotated[FloatArray, "Q+1 Q+1"]  # scratch: a factor of P_shared
    F_own: Annotated[FloatArray, "Q+3 Q+3"]  # scratch: factors of a step
    F_cross: Annotated[FloatArray, "Q+3 Q+1"]


class FilterSizes(Record):
    """Numbers of arms k and of features Q."""

    k: float
    Q: float


class Filter(NamedTuple):
    """A single belief."""

    sizes: FilterSizes
    belief: Belief


FILTER = Layout(Filter)


@inlined
def groups_of(values: FloatArray, hyper: FloatArray, first: int) -> None:
    """Give each entry of b, in values[0], and of c, in values[1], the number of its group."""
    group = Groups(hyper, first)
    values[0, SLOW], values[0, FAST], values[0, CONSTANT] = group.slow, group.fast, group.intercept
    values[1, 0] = group.shared
    for i in range(values.shape[1] - 3):
        values[0, 3 + i], values[1, 1 + i] = group.weight, group.shared_weight


@kernel
def start(belief: Belief, hyper: FloatArray) -> None:
    """Write the stationary law: means 0, variances V. It is the belief at the beginning of the first round."""
    k, B, C = len(belief.own), belief.own.shape[1], len(belief.shared)
    groups_of(belief.h, hyper, GROUPS)
    own, shared = belief.h[0], belief.h[1]
    for i in range(C):
        belief.shared[i] = 0.0
        for j in range(C):
            belief.P_shared[i, j] = shared[i] if i == j else 0.0
    for a in range(k):
        for i in range(B):
            belief.own[a, i] = 0.0
            for j in range(B):
                belief.P_own[a, i, j] = own[i] if i == j else 0.0
            for j in range(C):
                belief.P_cross[a, i, j] = 0.0


@inlined
def _faded(value: float, factor: float) -> float:
    """Return a covariance after a step, or 0 before it becomes a denormal number, which is slow."""
    ahead = value * factor
    return ahead if abs(ahead) > TINY else 0.0


@kernel
def predict(belief: Belief, hyper: FloatArray, elapsed: float) -> None:
    """Advance by some time steps, in each of which x becomes φ x + N(0, V (1 − φ²)).

    Constant entries come last in b and c, and their covariances with one another do not change.
    """
    φ, k, B, C = Groups(hyper, 0), len(belief.own), belief.own.shape[1], len(belief.shared)
    groups_of(belief.h, hyper, 0)
    own, shared = belief.h[0], belief.h[1]
    for i in range(B):
        own[i] = power(own[i], elapsed)
    for i in range(C):
        shared[i] = power(shared[i], elapsed)
    moving = B if φ.intercept < 1.0 or (B > 3 and φ.weight < 1.0) else CONSTANT
    moving_shared = C if C > 1 and φ.shared_weight < 1.0 else 1
    for i in range(B):  # products of two φ are rounded before they meet P, so P stays exactly symmetric
        for j in range(B):
            belief.F_own[i, j] = own[i] * own[j]
        for j in range(C):
            belief.F_cross[i, j] = own[i] * shared[j]
    for i in range(C):
        for j in range(C):
            belief.L[i, j] = shared[i] * shared[j]
    for i in range(C):
        belief.shared[i] *= shared[i]
        for j in range(C if i < moving_shared else moving_shared):
            belief.P_shared[i, j] = _faded(belief.P_shared[i, j], belief.L[i, j])
    for a in range(k):
        for i in range(moving):
            belief.own[a, i] *= own[i]
        for i in range(B):
            for j in range(B if i < moving else moving):
                belief.P_own[a, i, j] = _faded(belief.P_own[a, i, j], belief.F_own[i, j])
            for j in range(C if i < moving else moving_shared):
                belief.P_cross[a, i, j] = _faded(belief.P_cross[a, i, j], belief.F_cross[i, j])
    V = Groups(hyper, GROUPS)
    belief.P_shared[0, 0] += innovation_variance(shared[0], V.shared)
    for i in range(1, moving_shared):
        belief.P_shared[i, i] += innovation_variance(shared[i], V.shared_weight)
    slow, fast = innovation_variance(own[SLOW], V.slow), innovation_variance(own[FAST], V.fast)
    constant = innovation_variance(own[CONSTANT], V.intercept)
    for a in range(k):
        P = belief.P_own[a]
        P[SLOW, SLOW] += slow
        P[FAST, FAST] += fast
        P[CONSTANT, CONSTANT] += constant
        for i in range(WEIGHTS, B):
            P[i, i] += innovation_variance(own[i], V.weight)


@inlined
def _regress(L: FloatArray, P: FloatArray, v: FloatArray, x: FloatArray) -> None:
    """Solve P x = v by Cholesky's factor L; directions of P without uncertainty are skipped."""
    C = len(P)
    for i in range(C):
        for j in range(i + 1):
            rest = P[i, j]
            for n in range(j):
                rest -= L[i, n] * L[j, n]
            if i == j:
                L[i, i] = math.sqrt(rest) if rest > _LOST * P[i, i] else 0.0
            else:
                L[i, j] = rest / L[j, j] if L[j, j] > 0.0 else 0.0
    for i in range(C):
        rest = v[i]
        for n in range(i):
            rest -= L[i, n] * x[n]
        x[i] = rest / L[i, i] if L[i, i] > 0.0 else 0.0
    for back in range(C):
        i = C - 1 - back
        rest = x[i]
        for n in range(i + 1, C):
            rest -= L[n, i] * x[n]
        x[i] = rest / L[i, i] if L[i, i] > 0.0 else 0.0


@inlined
def _take_in(belief: Belief, a: int, v: FloatArray, v_shared: FloatArray, step: float) -> None:
    """Move the mean of an arm by v · step, and subtract vv' and vv_shared' from its covariances."""
    B, C = belief.own.shape[1], len(belief.shared)
    for i in range(B):
        v_i = v[i]
        belief.own[a, i] += v_i * step
        for j in range(B):
            belief.P_own[a, i, j] -= v_i * v[j]
        for j in range(C):
            belief.P_cross[a, i, j] -= v_i * v_shared[j]


@kernel
def condition(
    belief: Belief, hyper: FloatArray, u: FloatArray, a: int, x: float, limit: float
) -> tuple[float, float, float]:
    """Condition on reward x of arm a under features u; return its log density, standardized innovation and deviation.

    With e the innovation, s its variance, and v the covariances of the state with it, divided by √s: the mean moves by
    v e/√s and the covariance by −vv', which is exactly symmetric. In the first of them |e/√s| is at most `limit`, so
    that a single gross reward cannot carry the levels away. The other arms learn through the shared part:
    Cov(b_j, e) = Cov(b_j, c) Cov(c)⁻¹ Cov(c, e).
    """
    k, B, C = len(belief.own), belief.own.shape[1], len(belief.shared)
    h, h_shared, v, v_shared, x_shared = belief.h[0], belief.h[1], belief.v[0], belief.v[1], belief.v[2]
    for i in range(B):
        h[i] = u[i - 3] if i >= 3 else 1.0
    for i in range(C):
        h_shared[i] = u[i - 1] if i >= 1 else 1.0
        v_shared[i] = 0.0
    mean = 0.0
    s = Hyper(hyper, 0).reward_noise
    for i in range(B):
        total = 0.0
        for j in range(B):
            total += belief.P_own[a, i, j] * h[j]
        for j in range(C):
            total += belief.P_cross[a, i, j] * h_shared[j]
            v_shared[j] += belief.P_cross[a, i, j] * h[i]
        v[i] = total
        s += h[i] * total
        mean += h[i] * belief.own[a, i]
    for i in range(C):
        for j in range(C):
            v_shared[i] += belief.P_shared[i, j] * h_shared[j]
        s += h_shared[i] * v_shared[i]
        mean += h_shared[i] * belief.shared[i]
    root = math.sqrt(max(s, Hyper(hyper, 0).reward_noise))
    innovation = (x - mean) / root
    step = min(max(innovation, -limit), limit)
    for i in range(B):
        v[i] /= root
    for i in range(C):
        v_shared[i] /= root
    _regress(belief.L, belief.P_shared, v_shared, x_shared)
    _take_in(belief, a, v, v_shared, step)
    for other in range(k):
        if other != a:
            tied = 0.0
            for i in range(B):
                v[i] = 0.0
                for j in range(C):
                    v[i] += belief.P_cross[other, i, j] * x_shared[j]
                tied += abs(v[i])
            if tied > 0.0:  # an arm that was never played is not
                _take_in(belief, other, v, v_shared, step)
    for i in range(C):
        belief.shared[i] += v_shared[i] * step
        for j in range(C):
            belief.P_shared[i, j] -= v_shared[i] * v_shared[j]
    return -0.5 * (math.log(2.0 * math.pi) + innovation * innovation) - math.log(root), innovation, root


@kernel
def forecast_arms(
    belief: Belief, hyper: FloatArray, u: FloatArray, forecast: FloatArray, first: int, last: int
) -> None:
    """Forecast the rewards of arms `first` to `last` − 1 under features u (Q,), at the beginning of a round.

    `forecast` (6, k) receives the mean, and variances: of the arm's own part s + f + ⟨w, [1, u]⟩; of its lasting part s
    + ⟨w, [1, u]⟩, about which exploring informs; of s + f; of ⟨w, [1, u]⟩; and of the reward.
    """
    k, B, C = len(belief.own), belief.own.shape[1], len(belief.shared)
    h, h_shared = belief.h[0], belief.h[1]
    for i in range(B):
        h[i] = u[i - 3] if i >= 3 else 1.0
    shared, mean_shared = Hyper(hyper, 0).reward_noise, 0.0
    for i in range(C):
        h_shared[i] = u[i - 1] if i >= 1 else 1.0
    for i in range(C):
        mean_shared += h_shared[i] * belief.shared[i]
        for j in range(C):
            shared += h_shared[i] * h_shared[j] * belief.P_shared[i, j]
    for a in range(k):  # from `first` on, the compiler would not know that no index is negative
        if a < first or a >= last:
            continue
        P = belief.P_own[a]
        mean, weights, slow, fast, common = mean_shared, 0.0, P[SLOW, SLOW], P[FAST, FAST], 0.0
        for i in range(B):
            mean += h[i] * belief.own[a, i]
            for j in range(C):
                common += h[i] * h_shared[j] * belief.P_cross[a, i, j]
        for i in range(CONSTANT, B):
            slow += 2.0 * h[i] * P[SLOW, i]
            fast += 2.0 * h[i] * P[FAST, i]
            for j in range(CONSTANT, B):
                weights += h[i] * h[j] * P[i, j]
        both = 2.0 * P[SLOW, FAST]
        forecast[0, a] = mean
        forecast[1, a] = max(weights + slow + fast + both, 0.0)
        forecast[2, a] = max(weights + slow, 0.0)
        forecast[3, a] = max(P[SLOW, SLOW] + P[FAST, FAST] + both, 0.0)
        forecast[4, a] = max(weights, 0.0)
        forecast[5, a] = max(weights + slow + fast + both + 2.0 * common + shared, Hyper(hyper, 0).reward_noise)


@kernel
def filter_levels(table: FloatArray, hyper: FloatArray, belief: Belief, innovations: FloatArray, limit: float) -> float:
    """Filter from the stationary law through a table (n, 2 + Q) of arm, reward, features; return the log-likelihood.

    The belief ends up at the end of the last row's round: with its reward, before the step to the next round. A row
    whose arm is below 0 or whose reward is NaN is skipped. An additional column may have the time steps since the row
    before. `innovations` receives the standardized innovations, NaN without a reward; pass an empty array to skip them.
    A reward beyond `limit` standard deviations counts as one at it.
    """
    start(belief, hyper)
    Q = len(belief.shared) - 1
    log_likelihood = 0.0
    for t in range(len(table)):
        if t > 0 and elapsed_before(table, t, Q) > 0.0:
            predict(belief, hyper, elapsed_before(table, t, Q))
        a, x, innovation = int(table[t, 0]), table[t, 1], np.nan
        if a >= 0 and not np.isnan(x):
            log_density, innovation, _ = condition(belief, hyper, features_of(table, t, Q), a, x, limit)
            log_likelihood += log_density
        if len(innovations) > 0:
            innovations[t] = innovation
    return log_likelihood


@kernel
def limit_rewards(table: FloatArray, hyper: FloatArray, belief: Belief) -> None:
    """Clip rewards of a table, in place, to within `LIMIT` standard deviations of the filter's forecasts.

    Otherwise a few gross rewards would raise the noise that maximises a Gaussian likelihood. The belief
    is scratch.
    """
    start(belief, hyper)
    Q = len(belief.shared) - 1
    for t in range(len(table)):
        if t > 0 and elapsed_before(table, t, Q) > 0.0:
            predict(belief, hyper, elapsed_before(table, t, Q))
        a, x = int(table[t, 0]), table[t, 1]
        if a >= 0 and not np.isnan(x):
            _, innovation, root = condition(belief, hyper, features_of(table, t, Q), a, x, LIMIT)
            table[t, 1] = x - root * (innovation - min(max(innovation, -LIMIT), LIMIT))


def new_belief(k: int, Q: int) -> Belief:
    """Return a belief with its own arrays."""
    return FILTER.open(FILTER.new(k=k, Q=Q)).belief
