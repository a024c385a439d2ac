"""Policies with a random arm: Random, and Rexp3 for rewards that vary within a budget."""

import abc
import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np

from undertow.compiled import Common, Layout, Record, best_arm, compile_loop, count_open, inlined, known_cost
from undertow.compiled.kernel import plain
from undertow.errors import InvalidInputError
from undertow.live import Capabilities, LivePolicy, register
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["Random", "Rexp3"]


class Settings(Record):
    """Rounds in a batch Δ, rate γ, lowest and highest reward, and whether these are estimated."""

    batch_length: float
    rate: float
    low: float
    high: float
    auto: float


class Progress(Record):
    """The batch of the weights."""

    batch: float


class DrawnState(NamedTuple):
    """A weight for each arm, and the mean of its rewards; a memory has the arm's probability and its batch."""

    common: Common
    settings: Settings
    progress: Progress
    log_weights: Annotated[FloatArray, "k"]
    counts: Annotated[FloatArray, "k"]
    sums: Annotated[FloatArray, "k"]


class Drawn(Record):
    """For learning the reward: the probability of its arm, and the batch."""

    chance: float
    batch: float


@inlined
def decide(own: DrawnState, features: FloatArray, draws: FloatArray) -> int:
    """Draw an arm with probability (1 − γ) w_a / Σw + γ / k, the weights equal at the start of a batch.

    Sum and number are over the open arms.
    """
    order, forecast, closed = own.common.order, own.common.forecast, own.common.closed
    batch = np.floor(own.common.head.rounds / own.settings.batch_length)
    if batch > own.progress.batch:
        own.progress.batch = batch
        own.log_weights[:] = 0.0
    Drawn(own.common.memory, 0).batch = batch
    scale = weight_scale(own)
    left = draws[0]
    arm = -1
    found = False
    for r in range(len(order)):
        a = int(order[r])
        forecast[a] = own.sums[a] / max(own.counts[a], 1.0)
        if closed[a] == 0.0 and not found:
            arm = a  # the last one, if rounding leaves a rest
            probability = chance(own, a, scale)
            found = left < probability
            left -= probability
    best_arm(own.common)  # no values are compared; these are for display
    return arm


@inlined
def log_weight(own: DrawnState, arm: int) -> float:
    """Return the log weight of an arm, for its rewards less its known cost.

    A known cost needs no estimate: it counts for every round of the batch, at its share of rewards per round so far.
    """
    settings, rounds, rewards = own.settings, own.common.head.rounds, 0.0
    result: float = own.log_weights[arm]
    span = settings.high - settings.low
    if settings.rate < 1.0 and 0.0 < span < np.inf:
        for a in range(len(own.counts)):
            rewards += own.counts[a]
        n = (rounds - own.progress.batch * settings.batch_length) * rewards / max(rounds, 1.0)
        result -= settings.rate * known_cost(own.common, arm) / span * n / len(own.counts)
    return result


@inlined
def weight_scale(own: DrawnState) -> float:
    """Return log Σw over the open arms."""
    closed, largest, total = own.common.closed, -np.inf, 0.0
    for a in range(len(closed)):
        if closed[a] == 0.0:
            largest = max(largest, log_weight(own, a))
    for a in range(len(closed)):
        if closed[a] == 0.0:
            total += math.exp(log_weight(own, a) - largest)
    result: float = largest + math.log(total)
    return result


@inlined
def chance(own: DrawnState, arm: int, scale: float) -> float:
    """Return the policy's own probability of an arm."""
    γ = own.settings.rate
    result: float = (1.0 - γ) * math.exp(log_weight(own, arm) - scale) + γ / count_open(own.common.closed)
    return result


@inlined
def played(own: DrawnState, arm: int) -> None:
    """Store the probability of the arm for learning: of being sampled, or explored."""
    ε = own.common.head.explore
    if arm >= 0:
        drawn = (1.0 - ε) * chance(own, arm, weight_scale(own)) + ε / count_open(own.common.closed)
        Drawn(own.common.memory, 0).chance = 1.0 if arm == own.common.head.pinned else drawn


@inlined
def learn(own: DrawnState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """w_a ← w_a exp(γ x / (k p_a)) for the reward x scaled to [0, 1], while its batch lasts."""
    settings, reward, drawn = own.settings, rewards[arm], Drawn(memory, 0)
    own.counts[arm] += 1.0
    own.sums[arm] += reward
    if settings.auto > 0.0:
        settings.low = min(settings.low, reward)
        settings.high = max(settings.high, reward)
    if drawn.batch == own.progress.batch:
        span = settings.high - settings.low
        x = min(max((reward - settings.low) / span, 0.0), 1.0) if span > 0.0 else 0.5
        own.log_weights[arm] += settings.rate * x / (drawn.chance * len(own.counts))


_LOG_WEIGHT = plain(log_weight)


@dataclass(kw_only=True, eq=False, repr=False)
class _Drawn(LivePolicy):
    loop = compile_loop(__name__, Layout(DrawnState), decide=decide, learn=learn, played=played)

    def _sizes(self) -> dict[str, int]:
        return {"p": len(Drawn.names)}

    @abc.abstractmethod
    def _settings(self, k: int) -> tuple[float, float, float, float, float]:
        """Check the parameters and return the settings for k arms."""

    def _begin(self, own: DrawnState) -> None:
        settings = own.settings
        settings.batch_length, settings.rate, settings.low, settings.high, settings.auto = self._settings(
            self.arm_count
        )

    def _draw(self, rng: np.random.Generator, rounds: int) -> FloatArray:
        return rng.random((rounds, 1))

    def _probabilities(self, own: DrawnState, played: int) -> FloatArray:
        """Return (1 − γ) w_a / Σw + γ / k for the open arms."""
        opened, chances = own.common.closed == 0, np.zeros(self.arm_count)
        if own.common.cost.any():
            logs = np.array([_LOG_WEIGHT(own, arm) for arm in np.flatnonzero(opened).tolist()])
        else:
            logs = own.log_weights[opened]
        weights, γ = np.exp(logs - logs.max()), own.settings.rate
        chances[opened] = (1.0 - γ) * weights / weights.sum() + γ / len(weights)
        return chances

    def _propensities(self, arm: int) -> FloatArray | None:
        found = super()._propensities(arm)
        assert found is not None
        found[arm] = Drawn(self._player.common.memory, 0).chance  # bit-identical to the value in learning
        return found

    def _init_arm(self, own: DrawnState) -> None:
        own.settings.batch_length, own.settings.rate, *_ = self._settings(self.arm_count)
        own.progress.batch = self.round // own.settings.batch_length
        own.log_weights[-1] = own.log_weights[:-1].mean()  # a new arm is neither ahead nor behind


@register("random", citation="a baseline")
@dataclass(kw_only=True, eq=False, repr=False)
class Random(_Drawn):
    """Every arm with the same probability; the forecast is the mean of the rewards so far.

    Examples
    --------
    >>> Random(arms=3, rng=0).decide().arm
    1
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        uses_own_rewards=False, deterministic=False, late_rewards_count_alike=True
    )

    def _settings(self, k: int) -> tuple[float, float, float, float, float]:
        return math.inf, 1.0, 0.0, 1.0, 0.0


@register("rexp3", citation="Besbes, Gur and Zeevi, NeurIPS 2014")
@dataclass(kw_only=True, eq=False, repr=False)
class Rexp3(_Drawn):
    """Exp3, restarted every Δ = ⌈(k log k)^⅓ (T / V_T)^⅔⌉ rounds, with rate γ = min(1, √(k log k / ((e − 1) Δ))).

    The forecast is the mean of the rewards so far; the width is 0.

    Parameters
    ----------
    horizon
        T, the number of rounds for which the rate is chosen.
    variation_budget
        V_T > 0, the total variation of the scaled expected rewards; a tenth of the horizon by default.
    bounds
        Lowest and highest reward, which are scaled to 0 and 1; "auto" uses the extremes so far.

    Examples
    --------
    >>> policy = Rexp3(arms=2, bounds=(0.0, 1.0), rng=0)
    >>> policy.learn(policy.decide(), reward=0.3)
    """

    capabilities: ClassVar[Capabilities] = Capabilities(deterministic=False)

    horizon: int = 10_000
    variation_budget: float | None = None
    bounds: tuple[float, float] | Literal["auto"] = "auto"

    def _settings(self, k: int) -> tuple[float, float, float, float, float]:
        T = checks.integer("horizon", self.horizon, least=1)
        V = (
            T / 10
            if self.variation_budget is None
            else checks.number("variation_budget", self.variation_budget, above=0)
        )
        size = k * math.log(k)
        Δ = max(1, math.ceil(size ** (1 / 3) * (T / V) ** (2 / 3)))
        γ = min(1.0, math.sqrt(size / ((math.e - 1) * Δ)))
        if isinstance(self.bounds, str):
            checks.choice("bounds", self.bounds, ("auto",))
            return Δ, γ, math.inf, -math.inf, 1.0
        low, high = checks.array("bounds", self.bounds, (2,)).tolist()
        if low >= high:
            raise InvalidInputError(f"bounds: expected the lowest before the highest reward, got {self.bounds}")
        return Δ, γ, low, high, 0.0
