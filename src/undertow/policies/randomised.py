"""Policies that draw their arm: Random, and Rexp3 for rewards that vary within a budget."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np

from undertow import _checks
from undertow._checks import FloatArray
from undertow._kernel import inlined
from undertow._view import view
from undertow.errors import InvalidInputError
from undertow.policies.base import LivePolicy
from undertow.policies.catalogue import register
from undertow.policies.decision import Claims
from undertow.policies.play import compile_kernels
from undertow.policies.state import EXPLORE, ROUNDS, Shared, count_open, new_state, open_shared, private_start

__all__ = ["Random", "Rexp3"]

_SETTINGS = 6


class DrawnState(NamedTuple):
    """Views of the state."""

    shared: Shared
    settings: FloatArray  # rounds in a batch Δ, rate γ, lowest and highest reward, whether they are estimated, batch
    log_weights: FloatArray  # (k,)
    counts: FloatArray  # (k,)
    sums: FloatArray  # (k,)


def _drawn_state(k: int, batch: float, rate: float, low: float, high: float, auto: bool) -> FloatArray:
    return new_state(k, 0, 2, np.array([batch, rate, low, high, auto, 0]), np.zeros(3 * k))


@dataclass(kw_only=True, eq=False, repr=False)
class _Drawn(LivePolicy):
    axes: ClassVar[Mapping[str, str]] = dict.fromkeys(("log_weights", "counts", "sums"), "k")

    def _draw(self, rng: np.random.Generator, rounds: int) -> FloatArray:
        return rng.random((rounds, 1))

    def _propensity(self, arm: int) -> float:
        return float(self._memory[0])

    def _take_parts(self, old: Self) -> None:
        own: DrawnState = self.kernels.open(self._state)
        batch = own.settings[:2].copy()  # length and rate are those of k arms
        LivePolicy._take_parts(self, old)
        own.settings[:2], own.settings[5] = batch, self.round // batch[0]
        own.log_weights[-1] = own.log_weights[:-1].mean()  # a newcomer is neither ahead nor behind


@register("random", citation="a baseline")
@dataclass(kw_only=True, eq=False, repr=False)
class Random(_Drawn):
    """Every arm with the same probability; the forecast is the mean of the rewards seen.

    Examples
    --------
    >>> Random(arms=3, rng=0).decide().arm
    1
    """

    claims: ClassVar[Claims] = Claims(uses_own_rewards=False, deterministic=False)

    def _new_state(self) -> FloatArray:
        return _drawn_state(self.arm_count, math.inf, 1.0, 0.0, 1.0, False)


@register("rexp3", citation="Besbes, Gur and Zeevi, NeurIPS 2014")
@dataclass(kw_only=True, eq=False, repr=False)
class Rexp3(_Drawn):
    """Exp3, started anew every Δ = ⌈(k log k)^⅓ (T / V_T)^⅔⌉ rounds, with rate γ = min(1, √(k log k / ((e − 1) Δ))).

    The forecast is the mean of the rewards seen; the width is 0.

    Parameters
    ----------
    horizon
        T, the number of rounds that the rate is made for.
    variation_budget
        V_T > 0, by how much the scaled expected rewards vary in all; a tenth of the horizon by default.
    bounds
        Lowest and highest reward, which are scaled to 0 and 1; "auto" takes the extremes seen so far.

    Examples
    --------
    >>> policy = Rexp3(arms=2, bounds=(0.0, 1.0), rng=0)
    >>> policy.learn(policy.decide(), reward=0.3)
    """

    claims: ClassVar[Claims] = Claims(deterministic=False)

    horizon: int = 10_000
    variation_budget: float | None = None
    bounds: tuple[float, float] | Literal["auto"] = "auto"

    def _new_state(self) -> FloatArray:
        T = _checks.integer("horizon", self.horizon, least=1)
        V = (
            T / 10
            if self.variation_budget is None
            else _checks.number("variation_budget", self.variation_budget, above=0)
        )
        k = self.arm_count
        size = k * math.log(k)
        Δ = max(1, math.ceil(size ** (1 / 3) * (T / V) ** (2 / 3)))
        γ = min(1.0, math.sqrt(size / ((math.e - 1) * Δ)))
        if isinstance(self.bounds, str):
            _checks.choice("bounds", self.bounds, ("auto",))
            return _drawn_state(k, Δ, γ, math.inf, -math.inf, True)
        low, high = _checks.array("bounds", self.bounds, (2,)).tolist()
        if low >= high:
            raise InvalidInputError(f"bounds: expected the lowest before the highest reward, got {self.bounds}")
        return _drawn_state(k, Δ, γ, low, high, False)


@inlined
def open_drawn(state: FloatArray) -> DrawnState:
    """Split the packed state into its parts."""
    k = int(state[0])
    at = private_start(state)
    first = at + _SETTINGS
    return DrawnState(
        open_shared(state),
        view(state, at, (_SETTINGS,)),
        view(state, first, (k,)),
        view(state, first + k, (k,)),
        view(state, first + 2 * k, (k,)),
    )


@inlined
def drawn_decide(own: DrawnState, features: FloatArray, draws: FloatArray) -> int:
    """Draw an arm with probability (1 − γ) w_a / Σw + γ / k, the weights equal at the start of a batch.

    Sum and number are over the arms that are open.
    """
    header, order, forecast, _, _, closed, memory = own.shared
    batch = np.floor(header[ROUNDS] / own.settings[0])
    if batch > own.settings[5]:
        own.settings[5] = batch
        own.log_weights[:] = 0.0
    memory[1] = batch
    scale = weight_scale(own)
    left = draws[0]
    arm = -1
    found = False
    for r in range(len(order)):
        a = int(order[r])
        forecast[a] = own.sums[a] / max(own.counts[a], 1.0)
        if closed[a] == 0.0 and not found:
            arm = a  # the last one, where rounding leaves a rest
            probability = chance(own, a, scale)
            found = left < probability
            left -= probability
    return arm


@inlined
def weight_scale(own: DrawnState) -> float:
    """Return log Σw over the arms that are open."""
    closed, largest, total = own.shared.closed, -np.inf, 0.0
    for a in range(len(closed)):
        if closed[a] == 0.0:
            largest = max(largest, own.log_weights[a])
    for a in range(len(closed)):
        if closed[a] == 0.0:
            total += math.exp(own.log_weights[a] - largest)
    result: float = largest + math.log(total)
    return result


@inlined
def chance(own: DrawnState, arm: int, scale: float) -> float:
    """Return the probability with which the policy itself draws an arm."""
    γ = own.settings[1]
    result: float = (1.0 - γ) * math.exp(own.log_weights[arm] - scale) + γ / count_open(own.shared.closed)
    return result


@inlined
def drawn_played(own: DrawnState, arm: int) -> None:
    """Take note of the probability of the arm, which learning will need: that of being drawn, or explored."""
    header, closed = own.shared.header, own.shared.closed
    header[ROUNDS] += 1.0
    if arm >= 0:
        own.shared.memory[0] = (1.0 - header[EXPLORE]) * chance(own, arm, weight_scale(own)) + header[
            EXPLORE
        ] / count_open(closed)


@inlined
def drawn_learn(own: DrawnState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """w_a ← w_a exp(γ x / (k p_a)) for the reward x scaled to [0, 1], while its batch lasts."""
    settings, reward = own.settings, rewards[arm]
    own.counts[arm] += 1.0
    own.sums[arm] += reward
    if settings[4] > 0.0:
        settings[2] = min(settings[2], reward)
        settings[3] = max(settings[3], reward)
    if memory[1] == settings[5]:
        span = settings[3] - settings[2]
        x = min(max((reward - settings[2]) / span, 0.0), 1.0) if span > 0.0 else 0.5
        own.log_weights[arm] += settings[1] * x / (memory[0] * len(own.counts))


@inlined
def drawn_observe(own: DrawnState, context: FloatArray) -> None:
    """Ignore contexts."""


Random.kernels = Rexp3.kernels = compile_kernels(
    __name__, open_drawn, drawn_decide, drawn_played, drawn_learn, drawn_observe
)
