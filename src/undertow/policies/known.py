"""Policies that know the system: the paper's Oracle and its relatives, all by the Kalman filter."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from undertow import _checks, riccati
from undertow._checks import FloatArray
from undertow.errors import InvalidInputError, OutOfTurnError, UnknownDecisionError
from undertow.policies.base import LivePolicy
from undertow.policies.catalogue import register
from undertow.policies.decision import Claims, Decision
from undertow.policies.known_steps import FULL_INFORMATION_KERNELS, INFORMATION_BONUS, KERNELS, NO_BONUS, STATE_BONUS
from undertow.policies.play import Kernels
from undertow.policies.state import ROUNDS, new_state
from undertow.symbols import Symbols
from undertow.system import LinearGaussianSystem

__all__ = ["IDEA", "ContextOracle", "FullInformationOracle", "KalmanGreedy", "KalmanUCB"]


@dataclass
class _Round:
    """A round that may have to be filtered again: the state before it, and what was seen in it."""

    before: FloatArray
    context: FloatArray | None = None
    arm: int = -1
    reward: float = math.nan


@dataclass(kw_only=True, eq=False, repr=False)
class KnownPolicy(LivePolicy):
    """Base of policies that know the system.

    Parameters
    ----------
    system
        The system, which the policy takes for true.
    arms
        Names for the system's arms, or their number.
    context_first
        Whether the context of a round comes before its decision (the everyday order) or after (the paper's).
    max_delay
        How many rounds a reward may be late: it is applied at its own round, and what came since is filtered again.
    """

    uses_rewards: ClassVar[bool] = True
    kernels: ClassVar[Kernels] = KERNELS
    bonus: ClassVar[int] = NO_BONUS

    system: LinearGaussianSystem = field(kw_only=False)
    arms: int | Sequence[str] | None = None  # type: ignore[assignment]
    context_first: bool = False
    max_delay: int = 1000

    def __post_init__(self) -> None:
        if not isinstance(self.system, LinearGaussianSystem):
            raise InvalidInputError(f"system: expected a LinearGaussianSystem, got {self.system!r:.80}")
        if self.arms is None:
            self.arms = self.system.arm_count
        self.max_delay = _checks.integer("max_delay", self.max_delay, least=0)
        self._rounds: dict[int, _Round] = {}
        LivePolicy.__post_init__(self)

    @property
    def context_dim(self) -> int:
        """Number m of entries of the system's contexts."""
        return self.system.context_dim

    def add_arm(self, name: str) -> None:
        """Refuse: an arm that the system does not have cannot be filtered."""
        if name in self.names:
            LivePolicy.add_arm(self, name)
            return
        raise InvalidInputError(
            f"name: the system has no arm {name!r}; build a policy with a system that has it, and retire what is not "
            f"to be played yet"
        )

    def _new_state(self) -> FloatArray:
        system = self.system
        if self.arm_count != system.arm_count:
            raise InvalidInputError(f"arms: expected {system.arm_count}, as the system has, got {self.arm_count}")
        factor = _checks.number("exploration", getattr(self, "exploration", 1.0), least=0)
        mean, covariance, symbols = _what_is_seen(system)
        d = len(mean)
        settings = np.array([d, self.uses_rewards, factor, self.bonus, self._context_first, 0])
        if self.minimise:
            symbols = symbols._replace(c=-symbols.c, x0=-symbols.x0)
        return new_state(system.arm_count, system.context_dim, 0, settings, mean, covariance, np.zeros(d), *symbols)

    # A late reward is applied at its own round: the state goes back there, and what came since is filtered again.

    def _open_round(self) -> None:
        t = int(self._state[ROUNDS])
        oldest = next(iter(self._pending.values())).round if self._pending else t
        for number in list(self._rounds):
            if number >= max(oldest, t - self.max_delay - 1):  # with the context first, round t − 1 is still the last
                break
            del self._rounds[number]
        self._rounds[t] = _Round(self._state.copy())

    def _before_decision(self) -> None:
        if self.uses_rewards and not (self._context_first and self._context_dim):
            self._open_round()

    def _apply_context(self) -> None:
        if self.uses_rewards:
            if self._context_first:
                self._open_round()
            next(reversed(self._rounds.values())).context = self._stage.context.copy()
        LivePolicy._apply_context(self)

    def _apply_reward(self, memory: FloatArray, arm: int, reward: float, age: int) -> None:
        if not self.uses_rewards:
            return
        begun = int(self._state[ROUNDS])
        then = begun - 1 - age
        if age > self.max_delay or then not in self._rounds:
            raise UnknownDecisionError(
                f"decision: its reward comes {age} rounds late, and only max_delay = {self.max_delay} are remembered"
            )
        self._rounds[then].arm, self._rounds[then].reward = arm, reward
        if then == next(reversed(self._rounds)):
            LivePolicy._apply_reward(self, memory, arm, reward, 0)
            return
        closed = self._closed.copy()
        self._state[:] = self._rounds[then].before
        for number, seen in self._rounds.items():
            if number < then:
                continue
            if number > then:  # what this round begins with has changed
                seen.before = self._state.copy()
            if self._context_first:
                self._see_again(seen)
            if number < begun:
                self.kernels.skip(self._state)
            if seen.arm >= 0:
                LivePolicy._apply_reward(self, memory, seen.arm, seen.reward, 0)
            if not self._context_first:
                self._see_again(seen)
        self._closed[:] = closed  # arms may have been retired since

    def _see_again(self, seen: _Round) -> None:
        if seen.context is not None:
            self._stage.context[:] = seen.context
            LivePolicy._apply_context(self)

    def _extra_arrays(self) -> dict[str, FloatArray]:
        rounds = self._rounds.values()
        nothing = np.full(self._context_dim, math.nan)
        return {
            "round_numbers": np.array(list(self._rounds), dtype=np.float64),
            "round_states": np.array([r.before for r in rounds]).reshape(len(rounds), len(self._state)),
            "round_observed": np.array([r.context is not None for r in rounds], dtype=np.float64),
            "round_contexts": np.array([nothing if r.context is None else r.context for r in rounds]).reshape(
                len(rounds), self._context_dim
            ),
            "round_arms": np.array([r.arm for r in rounds], dtype=np.float64),
            "round_rewards": np.array([r.reward for r in rounds]),
        }

    def _restore_extra(self, arrays: dict[str, FloatArray]) -> None:
        self._rounds = {}
        for i, number in enumerate(arrays["round_numbers"]):
            context = _checks.array("context", arrays["round_contexts"][i], (self._context_dim,), missing=True)
            self._rounds[int(number)] = _Round(
                arrays["round_states"][i].copy(),
                context if arrays["round_observed"][i] else None,
                int(arrays["round_arms"][i]),
                float(arrays["round_rewards"][i]),
            )


def _what_is_seen(system: LinearGaussianSystem) -> tuple[FloatArray, FloatArray, Symbols]:
    """Return the law of the first state and the system, without modes that grow for ever and that nobody ever sees.

    Neither contexts nor rewards depend on such a mode, but the belief about it would grow beyond all numbers. With U
    the directions that are seen, U'Γ = (U'ΓU)U', so that U'z is a system by itself.
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

    claims: ClassVar[Claims] = Claims(
        needs_system=True, uses_contexts=True, uses_own_rewards=False, handles_missing_contexts=True
    )
    uses_rewards: ClassVar[bool] = False


_OWN_REWARDS = Claims(needs_system=True, uses_contexts=True, handles_missing_contexts=True)


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

    claims: ClassVar[Claims] = _OWN_REWARDS


@register("kalman-ucb", citation="Gornet and Sinopoli, arXiv 2510.01364")
@dataclass(kw_only=True, eq=False, repr=False)
class KalmanUCB(KnownPolicy):
    """KalmanGreedy with the width `exploration` · √(c_a'Pc_a): what is not known of the arm's expected reward.

    Parameters
    ----------
    exploration
        Factor of the width, ≥ 0.
    """

    claims: ClassVar[Claims] = _OWN_REWARDS
    bonus: ClassVar[int] = STATE_BONUS

    exploration: float = 1.0


@register("idea", citation="Gornet and Sinopoli, arXiv 2510.01364 (IDEA)")
@dataclass(kw_only=True, eq=False, repr=False)
class IDEA(KnownPolicy):
    """KalmanGreedy with a width for what an arm's reward would tell of the next state.

    The width is `exploration` · √tr(ΓPc_a (c_a'Pc_a + σ²)⁻¹ c_a'PΓ').

    Parameters
    ----------
    exploration
        Factor of the width, ≥ 0.
    """

    claims: ClassVar[Claims] = _OWN_REWARDS
    bonus: ClassVar[int] = INFORMATION_BONUS

    exploration: float = 1.0


@register("full-information-oracle", citation="Gornet, Hosseinzadeh and Sinopoli, arXiv 2406.10418 (Eq. Kalman_Oracle)")
@dataclass(kw_only=True, eq=False, repr=False)
class FullInformationOracle(KnownPolicy):
    """The largest forecast of a filter that sees the contexts and every arm's reward: the lower bound on regret.

    Nobody can play it, since only the chosen arm pays; `undertow.simulate` can run it.
    """

    claims: ClassVar[Claims] = _OWN_REWARDS._replace(simulates_only=True)
    kernels: ClassVar[Kernels] = FULL_INFORMATION_KERNELS

    def decide(
        self, features: npt.ArrayLike | None = None, *, available: Iterable[str | int] | None = None
    ) -> Decision:
        """Refuse: the policy needs rewards that nobody sees."""
        raise OutOfTurnError("decide: the full-information oracle sees every arm's reward, so only simulate can run it")
