"""Linear bandits that forget: discounted and sliding-window LinUCB.

Both change the weights of all rows in every round, so they keep V − λI and b themselves and factorise V when they
decide, O(k p³) per round.
"""

import abc
import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from undertow.compiled import (
    Common,
    Index,
    Layout,
    Record,
    best_arm,
    compile_loop,
    features_of_arm,
    inlined,
    inlined_kernel,
    present_time_step,
)
from undertow.live import Capabilities, LaggedPolicy, register
from undertow.live.inputs import Inputs, begin_inputs, build_inputs, note_reward, note_round, push_context, put_features
from undertow.live.standardize import Change, change_inputs
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["DiscountedLinUCB", "SlidingWindowLinUCB"]

_ROUNDING = 2.0**-46  # of a pivot, relative to its diagonal entry
_DROPPED = math.inf  # a pivot that gives its input no weight


class Sizes(Record):
    """History h, in rounds; 0 for the discounted kind."""

    h: float


class Settings(Record):
    """Factor of the width, ridge λ and discount γ."""

    factor: float
    ridge: float
    discount: float


class ForgettingState(NamedTuple):
    """One regression on p inputs for each arm, with weighted rows."""

    common: Common
    inputs: Inputs
    sizes: Sizes
    settings: Settings
    b: Annotated[FloatArray, "k p"]  # Σ w XΘ
    V: Annotated[FloatArray, "k p p"]  # Σ w ΘΘ'
    V2: Annotated[FloatArray, "k p p"]  # Σ w² ΘΘ'
    scratch: Annotated[FloatArray, "2 p"]
    L: Annotated[FloatArray, "p p"]  # Cholesky factor
    past_arm: Annotated[FloatArray, "h", Index("k", -1)]
    past_reward: Annotated[FloatArray, "h"]  # NaN until it comes
    past_inputs: Annotated[FloatArray, "h p"]


@inlined_kernel
def factorise(V: FloatArray, λ: float, L: FloatArray) -> None:
    """V + λI = LL'.

    An input that the ones before it determine up to rounding (contexts far from zero, a past gross error) gets no
    weight.
    """
    for i in range(len(L)):
        for j in range(i + 1):
            total = V[i, j] + (λ if i == j else 0.0)
            for h in range(j):
                total -= L[i, h] * L[j, h]
            if i > j:
                L[i, j] = total / L[j, j]
            elif total > _ROUNDING * (V[i, i] + λ):
                L[i, i] = math.sqrt(total)
            else:
                L[i, i] = _DROPPED


@inlined_kernel
def solve(L: FloatArray, b: FloatArray, x: FloatArray) -> None:
    """Solve LL'x = b."""
    p = len(b)
    for i in range(p):
        total = b[i]
        for j in range(i):
            total -= L[i, j] * x[j]
        x[i] = total / L[i, i]
    for i in range(p - 1, -1, -1):
        total = x[i]
        for j in range(i + 1, p):
            total -= L[j, i] * x[j]
        x[i] = total / L[i, i]


@inlined_kernel
def add_row(V: FloatArray, V2: FloatArray, b: FloatArray, Θ: FloatArray, reward: float, weight: float) -> None:
    """Give a row of a regression a weight; a negative one removes it."""
    for i in range(len(Θ)):
        b[i] += weight * reward * Θ[i]
        for j in range(len(Θ)):
            V[i, j] += weight * Θ[i] * Θ[j]
            V2[i, j] += weight * abs(weight) * Θ[i] * Θ[j]


@inlined_kernel
def scale_all(b: FloatArray, V: FloatArray, V2: FloatArray, γ: float) -> None:
    """Let every row lose weight by γ."""
    for a in range(len(b)):
        for i in range(b.shape[1]):
            b[a, i] *= γ
            for j in range(b.shape[1]):
                V[a, i, j] *= γ
                V2[a, i, j] *= γ * γ


@inlined_kernel
def replace_round(
    past_arm: FloatArray,
    past_reward: FloatArray,
    past_inputs: FloatArray,
    b: FloatArray,
    V: FloatArray,
    V2: FloatArray,
    slot: int,
    arm: int,
    Θ: FloatArray,
) -> None:
    """Remove the oldest round from the sums and open its slot for the present one."""
    if not np.isnan(past_reward[slot]):
        a = int(past_arm[slot])
        add_row(V[a], V2[a], b[a], past_inputs[slot], past_reward[slot], -1.0)
    past_arm[slot] = arm
    past_reward[slot] = np.nan
    for i in range(len(Θ)):
        past_inputs[slot, i] = Θ[i]
    if slot == 0:  # add up from scratch occasionally, so that rounding errors cannot accumulate
        scale_all(b, V, V2, 0.0)
        for i in range(len(past_arm)):
            if not np.isnan(past_reward[i]):
                a = int(past_arm[i])
                add_row(V[a], V2[a], b[a], past_inputs[i], past_reward[i], 1.0)


@inlined
def see(own: ForgettingState, features: FloatArray) -> None:
    """Remember the inputs of the arm that is played."""
    put_features(own.inputs, features, own.common.memory)


@inlined
def played(own: ForgettingState, arm: int) -> None:
    """Count the arm of round t: rows age by a round, or the row of round t − h makes room for this one."""
    t, γ, h = int(own.common.head.rounds), own.settings.discount, len(own.past_arm)
    note_round(own.inputs, present_time_step(own.common.head), t, arm)
    if γ < 1.0:
        scale_all(own.b, own.V, own.V2, γ)
    if h > 0:
        slot = t % h
        replace_round(
            own.past_arm, own.past_reward, own.past_inputs, own.b, own.V, own.V2, slot, arm, own.common.memory
        )


@inlined
def decide(own: ForgettingState, features: FloatArray, draws: FloatArray) -> int:
    """Play the largest forecast + width."""
    common, factor, λ = own.common, own.settings.factor, own.settings.ridge
    forecast, width, Θ = common.forecast, common.width, common.memory
    k, p, t = len(forecast), len(Θ), present_time_step(common.head)
    q = int(common.sizes.q)
    build_inputs(own.inputs, k, t, features_of_arm(features, 0, q), Θ)
    G, x = own.scratch[0], own.scratch[1]
    for r in range(k):
        a = int(common.order[r])
        if len(features) > q:
            put_features(own.inputs, features_of_arm(features, a, q), Θ)
        factorise(own.V[a], λ, own.L)
        solve(own.L, own.b[a], G)
        solve(own.L, Θ, x)  # x = V⁻¹Θ
        mean = 0.0
        uncertainty = 0.0
        for i in range(p):
            mean += G[i] * Θ[i]
            total = λ * x[i]
            for j in range(p):
                total += own.V2[a, i, j] * x[j]
            uncertainty += x[i] * total
        forecast[a] = mean
        width[a] = factor * math.sqrt(max(uncertainty, 0.0))
    return best_arm(common)


@inlined
def learn(own: ForgettingState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Add the row of a decision that is `age` rounds old, if it is not forgotten yet."""
    t, h, reward = int(own.common.head.rounds) - 1, len(own.past_arm), rewards[arm]
    note_reward(own.inputs, t - age, reward)
    if h == 0:
        add_row(own.V[arm], own.V2[arm], own.b[arm], memory, reward, own.settings.discount**age)
    elif age < h:
        own.past_reward[(t - age) % h] = reward
        add_row(own.V[arm], own.V2[arm], own.b[arm], memory, reward, 1.0)


@inlined
def observe(own: ForgettingState, context: FloatArray) -> None:
    """Store a context."""
    push_context(own.inputs, context)


@dataclass(kw_only=True, eq=False, repr=False)
class _ForgettingPolicy(LaggedPolicy):
    capabilities: ClassVar[Capabilities] = Capabilities(
        uses_contexts=True,
        handles_missing_contexts=True,
        takes_features=True,
        late_rewards_count_alike=True,
        takes_arm_features=True,
    )
    loop = compile_loop(
        __name__, Layout(ForgettingState), decide=decide, learn=learn, see=see, played=played, observe=observe
    )

    def _sizes(self) -> dict[str, int]:
        return self._input_sizes() | {"h": self._forgets()[1]}

    @abc.abstractmethod
    def _forgets(self) -> tuple[float, int]:
        """Check and return discount γ and history h."""

    def _begin(self, own: ForgettingState) -> None:
        begin_inputs(own.inputs)
        own.settings.factor, own.settings.ridge, own.settings.discount = (
            self.exploration,
            self.ridge,
            self._forgets()[0],
        )
        own.past_arm[:], own.past_reward[:] = -1.0, math.nan

    def _change_units(self, own: ForgettingState, change: Change) -> None:
        slope, shift = change.slope[-1], change.shift[-1]
        change_inputs(own.inputs, change)
        own.b[:] = change.inputs(slope * own.b + shift * own.V[:, 0])
        own.V[:], own.V2[:] = change.products(own.V), change.products(own.V2)
        own.past_reward[:] = slope * own.past_reward + shift
        own.past_inputs[:] = change.inputs(own.past_inputs)


@register("discounted-linucb", citation="Russac, Vernade and Cappé, NeurIPS 2019")
@dataclass(kw_only=True, eq=False, repr=False)
class DiscountedLinUCB(_ForgettingPolicy):
    """LinUCB whose rows lose weight by a factor `discount` in every round (D-LinUCB).

    The row of round r weighs γ^{t−1−r} in round t; with Ṽ the same sum with squared weights, the width is
    `exploration` · √(Θ'V⁻¹ṼV⁻¹Θ).

    Parameters
    ----------
    discount
        γ in (0, 1).

    Examples
    --------
    >>> policy = DiscountedLinUCB(arms=2, context_dim=1, discount=0.99)
    >>> policy.learn(policy.decide(), reward=0.3)
    """

    discount: float = 0.999

    def _forgets(self) -> tuple[float, int]:
        return checks.fraction("discount", self.discount), 0


@register("sliding-window-linucb", citation="Cheung, Simchi-Levi and Zhu, AISTATS 2019")
@dataclass(kw_only=True, eq=False, repr=False)
class SlidingWindowLinUCB(_ForgettingPolicy):
    """LinUCB that learns from the last `history` rounds only (SW-LinUCB).

    Parameters
    ----------
    history
        Number of rounds, at least 1.

    Examples
    --------
    >>> policy = SlidingWindowLinUCB(arms=2, context_dim=1, history=500)
    >>> policy.learn(policy.decide(), reward=0.3)
    """

    history: int = 2000

    def _forgets(self) -> tuple[float, int]:
        return 1.0, checks.integer("history", self.history, least=1)
