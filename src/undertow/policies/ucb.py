"""Upper confidence bounds without contexts: UCB, sliding-window UCB, discounted UCB."""

import abc
import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np

from undertow.compiled import Common, Index, Layout, Record, best_arm, compile_loop, inlined
from undertow.live import Capabilities, LivePolicy, register
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["UCB", "DiscountedUCB", "SlidingWindowUCB"]


class Sizes(Record):
    """History h, in rounds; 0 if all rounds count."""

    h: float


class Settings(Record):
    """Factor of the width, discount γ, and the scale of the rewards' noise, 0 for "auto"."""

    factor: float
    discount: float
    scale: float


class Seen(Record):
    """Number, mean and sum of squared deviations of all rewards."""

    count: float
    mean: float
    squares: float


class UcbState(NamedTuple):
    """The state of all three kinds."""

    common: Common
    sizes: Sizes
    settings: Settings
    seen: Seen
    chosen: Annotated[FloatArray, "k"]
    counts: Annotated[FloatArray, "k"]  # weight of the rewards of each arm
    sums: Annotated[FloatArray, "k"]  # weighted sum of the rewards of each arm
    past_arm: Annotated[FloatArray, "h", Index("k", -1)]
    past_reward: Annotated[FloatArray, "h"]  # NaN if none


@inlined
def decide(own: UcbState, features: FloatArray, draws: FloatArray) -> int:
    """Play the largest mean + width; arms without a reward come first, the least chosen one before the others."""
    order, forecast, width, closed = own.common.order, own.common.forecast, own.common.width, own.common.closed
    k = len(order)
    total = 0.0
    for a in range(k):
        total += own.counts[a]
    scale = own.settings.scale
    if scale == 0.0:
        scale = math.sqrt(own.seen.squares / own.seen.count) if own.seen.count > 0.0 else 1.0
    factor = own.settings.factor * scale * math.sqrt(max(math.log(max(total, 1.0)), 0.0))
    untried = -1  # of the arms without a reward, the one chosen least
    for r in range(k):
        a = int(order[r])
        known = own.counts[a] > 1e-12
        forecast[a] = own.sums[a] / own.counts[a] if known else 0.0
        width[a] = factor / math.sqrt(own.counts[a]) if known else np.inf
        if not known and closed[a] == 0.0 and (untried < 0 or own.chosen[a] < own.chosen[untried]):
            untried = a
    arm = best_arm(own.common)
    return untried if untried >= 0 else arm


@inlined
def played(own: UcbState, arm: int) -> None:
    """Count the arm of this round: rewards lose weight, or the oldest round makes room for this one."""
    if arm >= 0:
        own.chosen[arm] += 1.0
    γ, h = own.settings.discount, len(own.past_arm)
    if γ < 1.0:
        for a in range(len(own.counts)):
            own.counts[a] *= γ
            own.sums[a] *= γ
    if h > 0:
        slot = int(own.common.head.rounds) % h
        if not np.isnan(own.past_reward[slot]):
            a = int(own.past_arm[slot])
            own.counts[a] -= 1.0
            own.sums[a] = own.sums[a] - own.past_reward[slot] if own.counts[a] > 0.0 else 0.0
        own.past_arm[slot] = arm
        own.past_reward[slot] = np.nan
        if slot == 0:  # add up from scratch occasionally, so that rounding errors cannot accumulate
            own.sums[:] = 0.0
            for r in range(h):
                if not np.isnan(own.past_reward[r]):
                    own.sums[int(own.past_arm[r])] += own.past_reward[r]


@inlined
def learn(own: UcbState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Add a reward, with the weight of its age."""
    seen, h, reward = own.seen, len(own.past_arm), rewards[arm]
    seen.count += 1.0
    step = reward - seen.mean
    seen.mean += step / seen.count
    seen.squares += step * (reward - seen.mean)
    if h > 0:
        if age >= h:
            return
        own.past_reward[(int(own.common.head.rounds) - 1 - age) % h] = reward
    weight = own.settings.discount**age
    own.counts[arm] += weight
    own.sums[arm] += weight * reward


@dataclass(kw_only=True, eq=False, repr=False)
class _CountingPolicy(LivePolicy):
    """Base of the three kinds.

    Parameters
    ----------
    exploration
        Factor of the width, ≥ 0.
    scale
        Scale of the rewards' noise; "auto" uses the standard deviation of all rewards so far.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(late_rewards_count_alike=True)
    loop = compile_loop(__name__, Layout(UcbState), decide=decide, learn=learn, played=played)

    exploration: float = 1.0
    scale: float | Literal["auto"] = "auto"

    @abc.abstractmethod
    def _kind(self) -> "Kind":
        """Check and return the parameters of this kind."""

    def _sizes(self) -> dict[str, int]:
        return {"h": self._kind().history}

    def _begin(self, own: UcbState) -> None:
        factor, own.settings.discount, _ = self._kind()
        own.settings.factor = checks.number("exploration", self.exploration, least=0) * factor
        own.settings.scale = checks.auto_number("scale", self.scale) or 0.0
        own.past_arm[:], own.past_reward[:] = -1.0, math.nan


class Kind(NamedTuple):
    """Parameters of a kind: √ξ, discount γ, and the number of rounds that count, 0 for all."""

    factor: float
    discount: float
    history: int


@register("ucb", citation="Agrawal, Advances in Applied Probability 1995; Auer, Cesa-Bianchi and Fischer 2002 (UCB1)")
@dataclass(kw_only=True, eq=False, repr=False)
class UCB(_CountingPolicy):
    """Mean reward of the arm, plus `exploration` · scale · √(2 log t / N_a).

    Examples
    --------
    >>> policy = UCB(arms=["a", "b"])
    >>> policy.learn(policy.decide(), reward=1.0)
    >>> policy.decide().name
    'b'
    """

    def _kind(self) -> Kind:
        return Kind(math.sqrt(2), 1.0, 0)


@register("sliding-window-ucb", citation="Garivier and Moulines, arXiv 0805.3415 (SW-UCB)")
@dataclass(kw_only=True, eq=False, repr=False)
class SlidingWindowUCB(_CountingPolicy):
    """UCB over the last `history` rounds: width `exploration` · scale · √(ξ log min(t, τ) / N_a) with ξ = 0.6.

    Parameters
    ----------
    history
        τ, the number of rounds that count.
    """

    history: int = 1000

    def _kind(self) -> Kind:
        return Kind(math.sqrt(0.6), 1.0, checks.integer("history", self.history, least=1))


@register("discounted-ucb", citation="Kocsis and Szepesvári 2006; Garivier and Moulines, arXiv 0805.3415 (D-UCB)")
@dataclass(kw_only=True, eq=False, repr=False)
class DiscountedUCB(_CountingPolicy):
    """UCB whose rewards lose weight by γ per round: width `exploration` · 2 scale · √(ξ log Σ_a N_a / N_a), ξ = 0.6.

    Parameters
    ----------
    discount
        γ in (0, 1).
    """

    discount: float = 0.99

    def _kind(self) -> Kind:
        return Kind(2 * math.sqrt(0.6), checks.fraction("discount", self.discount), 0)
