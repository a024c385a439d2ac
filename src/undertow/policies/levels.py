"""LevelsKalman: levels of the arms with known parameters, by one Kalman filter over the last rounds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from undertow.compiled import Common, Index, Layout, Record, compile_loop, inlined, present_time_step
from undertow.compiled.common import best_arm, features_of_arm
from undertow.compiled.player import Player
from undertow.errors import InvalidInputError
from undertow.live import Capabilities, LivePolicy, register
from undertow.live.rewind import too_late
from undertow.live.rounds import Timeline, Waiting
from undertow.models.block import RewardScale
from undertow.models.levels.equations import GROUPS, HYPERS, Hyper
from undertow.models.levels.filter import (
    CONSTANT,
    FAST,
    SLOW,
    WEIGHTS,
    Belief,
    condition,
    forecast_arms,
    predict,
    start,
)
from undertow.models.levels.prior import typical_levels
from undertow.models.worth import beta, lifetime, worth
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["LevelsKalman"]

_KNOWN = 1e9  # degrees of a scale that is 1


class Sizes(Record):
    """Number of features, and of remembered rounds."""

    Q: float
    n: float


class Settings(Record):
    """Factor of the width, rounds expected, limit of innovations, degrees of the scale, whether arms take turns.

    The variances of a bandit are those of `hyper` times its own scale, whose inverse has the prior χ²_ν / ν for ν
    degrees. Arms take turns as long as the parameters are unknown.
    """

    bonus: float
    horizon: float
    limit: float
    degrees: float
    turns: float


class Filtered(Record):
    """The time step of a belief, the sum of squared standardized innovations, and their number."""

    at: float
    squares: float
    count: float


class Progress(Record):
    """Whether the parameters have changed since the belief was filtered."""

    stale: float


class LevelsState(NamedTuple):
    """Parameters, the last n rounds in a ring, and two beliefs: now, and before the oldest of these rounds."""

    common: Common
    sizes: Sizes
    settings: Settings
    progress: Progress
    now: Filtered  # of `belief`
    before: Filtered  # of `base`
    reward: RewardScale
    hyper: Annotated[FloatArray, "13"]
    means: Annotated[FloatArray, "k"]  # of the arms' levels, standardized
    centre: Annotated[FloatArray, "Q"]
    scale: Annotated[FloatArray, "Q"]
    chosen: Annotated[FloatArray, "k"]
    given: Annotated[FloatArray, "Q"]  # features of the played arm
    u: Annotated[FloatArray, "Q"]  # features under consideration, standardized
    past_arm: Annotated[FloatArray, "n", Index("k", -1)]
    past_reward: Annotated[FloatArray, "n"]  # NaN if none
    past_time_step: Annotated[FloatArray, "n"]
    past_features: Annotated[FloatArray, "n Q"]
    forecast: Annotated[FloatArray, "6 k"]  # output of `forecast_arms`
    belief: Belief
    base: Belief


@inlined
def standardize(own: LevelsState, features: FloatArray) -> None:
    """Use these features."""
    for j in range(len(own.u)):
        own.u[j] = (features[j] - own.centre[j]) / own.scale[j]


@inlined
def scale_of(own: LevelsState, filtered: Filtered) -> float:
    """Return the scale of the variances, the inverse of the posterior mean of its inverse: (ν + Σe²) / (ν + n)."""
    ν = own.settings.degrees
    return (ν + filtered.squares) / (ν + filtered.count)


@inlined
def take_in(own: LevelsState, belief: Belief, filtered: Filtered, slot: int) -> None:
    """Advance to the time step of a remembered round, and condition on its reward."""
    time_step = own.past_time_step[slot]
    if time_step > filtered.at:
        predict(belief, own.hyper, time_step - filtered.at)
        filtered.at = time_step
    arm, reward = int(own.past_arm[slot]), own.past_reward[slot]
    if arm >= 0 and not np.isnan(reward):
        standardize(own, own.past_features[slot])
        x = (reward - own.reward.mean) / own.reward.scale - own.means[arm]
        limit = own.settings.limit * math.sqrt(scale_of(own, filtered))
        _, e, _ = condition(belief, own.hyper, own.u, arm, x, limit)
        filtered.squares += min(abs(e), limit) ** 2
        filtered.count += 1.0


@inlined
def copy_belief(source: Belief, target: Belief) -> None:
    """Write a belief over another one."""
    C, B = len(source.shared), source.own.shape[1]
    for i in range(C):
        target.shared[i] = source.shared[i]
        for j in range(C):
            target.P_shared[i, j] = source.P_shared[i, j]
    for a in range(len(source.own)):
        for i in range(B):
            target.own[a, i] = source.own[a, i]
            for j in range(B):
                target.P_own[a, i, j] = source.P_own[a, i, j]
            for j in range(C):
                target.P_cross[a, i, j] = source.P_cross[a, i, j]


@inlined
def filter_again(own: LevelsState) -> None:
    """Filter the remembered rounds again, from the belief before them."""
    rounds, n = int(own.common.head.rounds), len(own.past_arm)
    if rounds <= n:
        start(own.base, own.hyper)
        own.before.at = own.before.squares = own.before.count = 0.0
    copy_belief(own.base, own.belief)
    own.now.at, own.now.squares, own.now.count = own.before.at, own.before.squares, own.before.count
    for t in range(max(rounds - n, 0), rounds):
        take_in(own, own.belief, own.now, t % n)
    own.progress.stale = 0.0


@inlined
def helps(own: LevelsState, a: int, t: int) -> float:
    """Return the rounds for which knowledge of an arm helps: its levels, intercept and weights, by their shares."""
    φ, P = Hyper(own.hyper, 0), own.belief.P_own[a]
    fast = P[FAST, FAST]
    total = P[SLOW, SLOW] + fast + P[CONSTANT, CONSTANT]
    lasting = P[SLOW, SLOW] * lifetime(φ.slow_persistence, t) + fast * lifetime(φ.fast_persistence, t)
    lasting += P[CONSTANT, CONSTANT] * lifetime(φ.intercept_persistence, t)
    for i in range(len(own.u)):
        weight = own.u[i] * own.u[i] * P[WEIGHTS + i, WEIGHTS + i]
        total += weight
        lasting += weight * lifetime(φ.weight_persistence, t)
    return lasting / total if total > 0.0 else 1.0


@inlined
def heavier(β: float, ν: float) -> float:
    """Return the factor by which a t distribution of ν degrees widens the width β of a normal one.

    With ψ(x) = E[max(0, T − x)], the width β_ν is where H ψ(β_ν) = β_ν. For H ≤ 1000 this is within 6 % for ν ≥ 3,
    and within 17 % for ν = 2.
    """
    return math.exp((0.68 + 0.285 * β * β) / (ν - 1.0))


@inlined
def decide(own: LevelsState, features: FloatArray, draws: FloatArray) -> int:
    """Play the largest forecast + width; while the parameters are unknown, the arm played least."""
    common, k, q = own.common, len(own.means), int(own.common.sizes.q)
    if own.progress.stale > 0.0:
        filter_again(own)
    now = float(present_time_step(common.head))
    if now > own.now.at:
        predict(own.belief, own.hyper, now - own.now.at)
        own.now.at = now
    for j in range(q):
        own.given[j] = features[j]
    t = max(int(common.head.rounds), int(own.settings.horizon))  # assume as many rounds to come as so far
    ν = own.settings.degrees + own.now.count
    bonus = own.settings.bonus * math.sqrt(scale_of(own, own.now))
    mean, scale, noise = own.reward.mean, own.reward.scale, Hyper(own.hyper, 0).reward_noise
    for a in range(k):
        if a == 0 or len(features) > q:
            standardize(own, features_of_arm(features, a, q))
            forecast_arms(own.belief, own.hyper, own.u, own.forecast, a, k if len(features) <= q else a + 1)
        common.forecast[a] = mean + scale * (own.means[a] + own.forecast[0, a])
        H = helps(own, a, t)
        common.width[a] = scale * bonus * worth(own.forecast[1, a], noise, H) * heavier(beta(H), ν)
    arm = best_arm(common)
    if own.settings.turns > 0.0:
        for r in range(k):
            a = int(common.order[r])
            if common.closed[a] == 0.0 and own.chosen[a] < own.chosen[arm]:
                arm = a
    return arm


@inlined
def see(own: LevelsState, features: FloatArray) -> None:
    """Remember the features of the played arm."""
    for j in range(len(features)):
        own.given[j] = features[j]


@inlined
def played(own: LevelsState, arm: int) -> None:
    """Remember the round in place of the oldest one, which moves into the base."""
    head, n = own.common.head, len(own.past_arm)
    if own.progress.stale > 0.0:
        filter_again(own)
    t = int(head.rounds)
    slot = t % n
    if t >= n:
        take_in(own, own.base, own.before, slot)
    own.past_arm[slot], own.past_reward[slot], own.past_time_step[slot] = arm, np.nan, present_time_step(head)
    for j in range(len(own.given)):
        own.past_features[slot, j] = own.given[j]
    if arm >= 0:
        own.chosen[arm] += 1.0


@inlined
def learn(own: LevelsState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Condition on a reward; if it comes later than its time step, filter the remembered rounds again."""
    n = len(own.past_arm)
    if age >= n:
        return
    slot = (int(own.common.head.rounds) - 1 - age) % n
    own.past_reward[slot] = rewards[arm]
    if own.progress.stale == 0.0 and own.past_time_step[slot] == own.now.at:
        take_in(own, own.belief, own.now, slot)
    else:
        filter_again(own)


class _Remembering(Timeline):
    """Accept rewards of the last rounds only."""

    plain = False

    def __init__(self, player: Player, max_delay: int) -> None:
        super().__init__(player)
        self.max_delay = max_delay

    def check_reward(self, waiting: Waiting, reward: float, age: int) -> None:
        """Refuse a reward of a round that is no longer remembered."""
        if age > self.max_delay:
            raise too_late(age, self.max_delay)


@register("levels-kalman", citation="undertow")
@dataclass(kw_only=True, eq=False, repr=False)
class LevelsKalman(LivePolicy):
    """Filter the levels of `StructuralKalman` with given parameters, without fits.

    Each arm has a slow and a fast level, an intercept and weights on features; a further level and weights are shared
    (`undertow.identify.fit_levels`). Play the largest forecast + width, the width `exploration` · √(variance of the
    arm's slow level, intercept and weights). `FleetKalman` estimates the parameters over many keys.

    Parameters
    ----------
    feature_dim
        Number q of features given to `decide`, (q,) for all arms or (k, q), a row for each.
    levels
        φ of shared, slow and fast level, intercept, own and shared weights; then their stationary variances; then the
        variance of the noise, (13,). Variances are those of rewards divided by `reward_scale`. Typical ones by default.
    arm_means
        Expected reward of each arm before its first reward, (k,); `reward_mean` by default.
    reward_mean, reward_scale
        The units of the rewards: their typical mean and standard deviation.
    exploration
        Factor of the width, the value of exploring an arm (`models.worth`).
    max_delay
        Rounds by which a reward may be late. These last rounds are remembered, and filtered again if necessary.

    Examples
    --------
    >>> policy = LevelsKalman(arms=["low", "high"], arm_means=[0.2, 0.5])
    >>> decision = policy.decide()
    >>> decision.name
    'high'
    >>> policy.learn(decision, reward=-1.0)
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        takes_features=True, takes_arm_features=True, late_rewards_count_alike=True
    )
    loop = compile_loop(__name__, Layout(LevelsState), decide=decide, see=see, played=played, learn=learn)

    feature_dim: int = 0
    levels: Sequence[float] | None = None
    arm_means: Sequence[float] | None = None
    reward_mean: float = 0.0
    reward_scale: float = 1.0
    exploration: float = 1.75
    max_delay: int = 63

    def _sizes(self) -> dict[str, int]:
        self.max_delay = checks.integer("max_delay", self.max_delay, least=0)
        return {"Q": self._feature_dim, "n": self.max_delay + 1}

    def _begin(self, own: LevelsState) -> None:
        sign = -1.0 if self.minimize else 1.0
        own.settings.bonus = checks.number("exploration", self.exploration, least=0)
        own.settings.limit, own.settings.degrees = math.inf, _KNOWN
        own.reward.mean = sign * checks.number("reward_mean", self.reward_mean)
        own.reward.scale = checks.number("reward_scale", self.reward_scale, above=0)
        own.hyper[:] = typical_levels() if self.levels is None else _checked_levels(self.levels)
        if self.arm_means is not None:
            given = checks.measured("arm_means", self.arm_means, ("n",))
            if len(given) > self.arm_count:
                raise InvalidInputError(f"arm_means: expected one for each of {self.arm_count} arms, got {len(given)}")
            own.means[: len(given)] = (sign * given - own.reward.mean) / own.reward.scale
        own.scale[:] = 1.0
        own.past_arm[:], own.past_reward[:] = -1.0, math.nan
        for belief in (own.belief, own.base):
            start(belief, own.hyper)

    def _make_timeline(self) -> Timeline:
        return _Remembering(self._player, self.max_delay)

    def _init_arm(self, own: LevelsState) -> None:
        """Start the new arm without data."""
        fresh: Any = self.loop.layout.open(self._new_state())
        for belief in (own.belief, own.base):
            belief.P_own[-1], belief.own[-1] = fresh.belief.P_own[-1], 0.0
            belief.P_cross[-1] = 0.0


def _checked_levels(levels: Sequence[float]) -> FloatArray:
    numbers = checks.array("levels", levels, (HYPERS,))
    if (np.abs(numbers[:GROUPS]) > 1).any() or (numbers[GROUPS:] <= 0).any():
        raise InvalidInputError(f"levels: expected {GROUPS} numbers from -1 to 1 and positive variances, got {levels}")
    return numbers
