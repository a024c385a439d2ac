"""Policies that know the system: the paper's Oracle and its relatives, all by the Kalman filter.

The filter advances when the next round begins, so that the reward of the last one may come until then.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any, ClassVar, NamedTuple, cast

import numpy as np

from undertow.compiled import Common, Layout, Record, best_arm, compile_loop, inlined
from undertow.equations import riccati
from undertow.equations.kalman import condition_scalar, condition_step, predict_step
from undertow.equations.symbols import Symbols
from undertow.errors import InvalidInputError, OutOfTurnError
from undertow.live import Capabilities, Decision, LivePolicy, register
from undertow.live.clock import is_duration
from undertow.live.rewind import Rewinding
from undertow.live.rounds import Timeline
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.system import LinearGaussianSystem

__all__ = ["IDEA", "ContextOracle", "FullInformationOracle", "KalmanGreedy", "KalmanUCB"]

NO_BONUS, STATE_BONUS, INFORMATION_BONUS = 0, 1, 2


class Sizes(Record):
    """Dimension d of the state."""

    d: float


class Settings(Record):
    """Whether own rewards are used, factor and kind of the width, and whether the context comes first."""

    uses_rewards: float
    factor: float
    bonus: float
    context_first: float


class Now(Record):
    """Whether the belief is still in the last round."""

    over: float


class KnownState(NamedTuple):
    """The belief about z, and the system."""

    common: Common
    sizes: Sizes
    settings: Settings
    now: Now
    z: Annotated[FloatArray, "d"]
    P: Annotated[FloatArray, "d d"]
    scratch: Annotated[FloatArray, "d"]
    symbols: Symbols


@inlined
def begin_round(own: KnownState) -> None:
    """Advance to the present round, if the belief is still in the last one, whose reward could come until now.

    In another round of the same time step, the belief does not advance.
    """
    if own.now.over > 0.0:
        if own.common.head.still == 0.0:
            predict_step(own.z, own.P, own.symbols)
        own.now.over = 0.0


@inlined
def played(own: KnownState, arm: int) -> None:
    """End the round, but for its reward, unless its context is still to come."""
    begin_round(own)
    if own.settings.context_first > 0.0 or own.common.sizes.m == 0.0:
        own.now.over = 1.0


@inlined
def decide(own: KnownState, features: FloatArray, draws: FloatArray) -> int:
    """Play the largest forecast + width."""
    begin_round(own)
    forecast, width = own.common.forecast, own.common.width
    Γ, c, x0, σ2 = own.symbols.Γ, own.symbols.c, own.symbols.x0, own.symbols.σ2
    z, P, Pc = own.z, own.P, own.scratch
    d, factor, kind = len(z), own.settings.factor, int(own.settings.bonus)
    for a in range(len(forecast)):
        mean = x0[a]
        for i in range(d):
            mean += c[a, i] * z[i]
        forecast[a] = mean
        width[a] = 0.0
        if kind != NO_BONUS:
            variance = 0.0
            for i in range(d):
                Pc[i] = 0.0
                for j in range(d):
                    Pc[i] += P[i, j] * c[a, j]
                variance += c[a, i] * Pc[i]
            if kind == INFORMATION_BONUS:
                norm = 0.0
                for i in range(d):
                    total = 0.0
                    for j in range(d):
                        total += Γ[i, j] * Pc[j]
                    norm += total * total
                variance = norm / (variance + σ2[a])
            width[a] = factor * math.sqrt(max(variance, 0.0))
    return best_arm(own.common)


@inlined
def condition_on_reward(own: KnownState, arm: int, reward: float) -> None:
    """Condition the belief on a reward of the present round."""
    c, x0, σ2 = own.symbols.c, own.symbols.x0, own.symbols.σ2
    condition_scalar(own.z, own.P, c[arm], reward - x0[arm], σ2[arm], own.scratch)


@inlined
def learn(own: KnownState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Condition on the reward of the chosen arm, if the policy uses it."""
    if own.settings.uses_rewards > 0.0:
        condition_on_reward(own, arm, rewards[arm])


@inlined
def learn_all(own: KnownState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Condition on the rewards of all arms, which only a simulation has."""
    for a in range(len(rewards)):
        condition_on_reward(own, a, rewards[a])


@inlined
def observe(own: KnownState, context: FloatArray) -> None:
    """Condition the belief on a context, which begins the round or ends it."""
    context_first = own.settings.context_first > 0.0
    if context_first:
        begin_round(own)
    condition_step(own.z, own.P, context, context[:0], own.symbols)
    if not context_first:
        own.now.over = 1.0


_LAYOUT = Layout(KnownState)
_LOOP = compile_loop(__name__, _LAYOUT, decide=decide, learn=learn, played=played, observe=observe)
_FULL_INFORMATION = compile_loop(__name__, _LAYOUT, decide=decide, learn=learn_all, played=played, observe=observe)


@dataclass(kw_only=True, eq=False, repr=False)
class KnownPolicy(LivePolicy):
    """Base of policies that know the system.

    Parameters
    ----------
    system
        The system, assumed to be true.
    arms
        Names for the system's arms, or their number.
    context_first
        Whether the context of a round comes before its decision (the usual order) or after (the paper's).
    max_delay
        How late a reward may be, in rounds, or as a time such as "3 days" for decisions with `at`. It is applied at its
        own round, and later rounds are filtered again.
    """

    loop = _LOOP
    uses_rewards: ClassVar[bool] = True
    bonus: ClassVar[int] = NO_BONUS

    system: LinearGaussianSystem = field(kw_only=False)
    arms: int | Sequence[str] | None = None  # type: ignore[assignment]
    context_first: bool = False
    max_delay: int | str | timedelta = 1000

    def __post_init__(self) -> None:
        if not isinstance(self.system, LinearGaussianSystem):
            raise InvalidInputError(f"system: expected a LinearGaussianSystem, got {self.system!r:.80}")
        if self.arms is None:
            self.arms = self.system.arm_count
        if not is_duration(self.max_delay):
            self.max_delay = checks.integer("max_delay", self.max_delay, least=0)
        super().__post_init__()

    @property
    def context_dim(self) -> int:
        """Number m of entries of the system's contexts."""
        return self.system.context_dim

    def add_arm(self, name: str) -> None:
        """Reactivate a retired arm; an arm outside the system cannot be filtered."""
        if name not in self.names:
            raise InvalidInputError(
                f"name: the system has no arm {name!r}; build a policy with a system that has it, and "
                f"retire it until it can be played"
            )
        super().add_arm(name)

    def _sizes(self) -> dict[str, int]:
        if self.arm_count != self.system.arm_count:
            raise InvalidInputError(f"arms: expected {self.system.arm_count}, as the system has, got {self.arm_count}")
        return {"d": len(_what_is_seen(self.system)[0])}

    def _begin(self, own: KnownState) -> None:
        settings = own.settings
        settings.uses_rewards, settings.bonus = self.uses_rewards, self.bonus
        settings.factor = checks.number("exploration", getattr(self, "exploration", 1.0), least=0)
        settings.context_first = self.context_first
        own.z[:], own.P[:], symbols = _what_is_seen(self.system)
        for target, values in zip(own.symbols, symbols, strict=True):
            target[...] = values
        if self.minimize:
            own.symbols.c[:], own.symbols.x0[:] = -symbols.c, -symbols.x0

    def _make_timeline(self) -> Timeline:
        if self.uses_rewards:
            rounds = math.inf if is_duration(self.max_delay) else cast("int", self.max_delay)
            return Rewinding(self._player, self._turns, rounds)
        return Timeline(self._player)


def _what_is_seen(system: LinearGaussianSystem) -> tuple[FloatArray, FloatArray, Symbols]:
    """Return the law of the first state and the system, without modes that grow forever and are not observable.

    Neither contexts nor rewards depend on such a mode, but the belief about it would grow beyond all numbers. With U
    the observable directions, U'Γ = (U'ΓU)U', so that U'z is a system.
    """
    mean, covariance, symbols = system.initial_mean, system.initial_covariance, system.symbols
    H = np.vstack([symbols.C, symbols.c])
    if (np.abs(riccati.unobserved_modes(symbols.Γ, H)) <= 1 + riccati.UNIT_CIRCLE).all():
        return mean, covariance, symbols
    U = riccati.seen_directions(symbols.Γ, H)
    seen = {"Γ": U.T @ symbols.Γ @ U, "μ": U.T @ symbols.μ, "Q": U.T @ symbols.Q @ U}
    return U.T @ mean, U.T @ covariance @ U, symbols._replace(**seen, C=symbols.C @ U, c=symbols.c @ U)


@register("context-oracle", citation="Gornet, Hosseinzadeh and Sinopoli, arXiv 2406.10418 (the Oracle)")
@dataclass(kw_only=True, eq=False, repr=False)
class ContextOracle(KnownPolicy):
    """The paper's Oracle: the largest forecast of a Kalman filter that knows the system and sees the contexts.

    Examples
    --------
    >>> from undertow import paper_system
    >>> ContextOracle(paper_system(psi=1)).decide().forecast
    array([0., 0.])
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        needs_system=True,
        uses_contexts=True,
        uses_own_rewards=False,
        handles_missing_contexts=True,
        late_rewards_count_alike=True,
    )
    uses_rewards: ClassVar[bool] = False


_OWN_REWARDS = ContextOracle.capabilities._replace(uses_own_rewards=True)


@register("kalman-greedy", citation="Gornet and Sinopoli, arXiv 2510.01364 (KODE, with contexts)")
@dataclass(kw_only=True, eq=False, repr=False)
class KalmanGreedy(KnownPolicy):
    """The largest forecast of a Kalman filter that knows the system and sees the contexts and its own rewards.

    Examples
    --------
    >>> from undertow import paper_system
    >>> policy = KalmanGreedy(paper_system(psi=1))
    >>> policy.learn(policy.decide(), reward=0.4)
    >>> policy.observe([0.2])
    """

    capabilities: ClassVar[Capabilities] = _OWN_REWARDS


@register("kalman-ucb", citation="Gornet and Sinopoli, arXiv 2510.01364")
@dataclass(kw_only=True, eq=False, repr=False)
class KalmanUCB(KnownPolicy):
    """KalmanGreedy with the width `exploration` · √(c_a'Pc_a): the uncertainty about the arm's expected reward.

    Parameters
    ----------
    exploration
        Factor of the width, ≥ 0.
    """

    capabilities: ClassVar[Capabilities] = _OWN_REWARDS
    bonus: ClassVar[int] = STATE_BONUS

    exploration: float = 1.0


@register("idea", citation="Gornet and Sinopoli, arXiv 2510.01364 (IDEA)")
@dataclass(kw_only=True, eq=False, repr=False)
class IDEA(KnownPolicy):
    """KalmanGreedy with a width for the information of an arm's reward about the next state.

    The width is `exploration` · √tr(ΓPc_a (c_a'Pc_a + σ²)⁻¹ c_a'PΓ').

    Parameters
    ----------
    exploration
        Factor of the width, ≥ 0.
    """

    capabilities: ClassVar[Capabilities] = _OWN_REWARDS
    bonus: ClassVar[int] = INFORMATION_BONUS

    exploration: float = 1.0


@register("full-information-oracle", citation="Gornet, Hosseinzadeh and Sinopoli, arXiv 2406.10418 (Eq. 29)")
@dataclass(kw_only=True, eq=False, repr=False)
class FullInformationOracle(KnownPolicy):
    """The largest forecast of a filter that sees the contexts and every arm's reward: the lower bound on regret.

    It cannot be played, since only the chosen arm's reward is observed; `undertow.simulate` can run it.
    """

    capabilities: ClassVar[Capabilities] = _OWN_REWARDS._replace(simulates_only=True)
    loop = _FULL_INFORMATION

    def decide(self, features: Any = None, **how: Any) -> Decision:
        """Refuse: the policy needs unobserved rewards."""
        raise OutOfTurnError("decide: the full-information oracle sees every arm's reward, so only simulate can run it")
