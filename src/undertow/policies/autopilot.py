"""Autopilot: several models side by side, and the one that predicts the played arms' rewards best decides."""

import copy
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from undertow._checks import FloatArray
from undertow._kernel import spliced
from undertow.errors import InvalidInputError
from undertow.policies.base import LivePolicy
from undertow.policies.candidate import Candidate, CandidateMember, Guests
from undertow.policies.catalogue import register
from undertow.policies.decision import Claims, Decision
from undertow.policies.learner_state import LearnerState, choose, count_round, fit_is_due, handicap, open_learner
from undertow.policies.learning import LearningPolicy
from undertow.policies.levels_member import LevelsMember, expected_largest
from undertow.policies.levels_member_steps import levels_begin, levels_decide, levels_learn, levels_observe, levels_see
from undertow.policies.member import (
    CONSTANT,
    KIND,
    LEVELS,
    OVER,
    READY,
    RIDGE,
    SCORE,
    SCORED,
    SHARED,
    SIZE,
    Member,
)
from undertow.policies.play import compile_kernels
from undertow.policies.ridge_member import RidgeMember
from undertow.policies.ridge_member_steps import ridge_decide, ridge_learn, ridge_observe, ridge_played, ridge_see
from undertow.policies.shared_member import SharedMember
from undertow.policies.shared_steps import shared_begin, shared_forecast, shared_learn, shared_observe
from undertow.policies.state import ROUNDS

__all__ = ["Autopilot"]

_SHARED_BONUS, _RIDGE_BONUS, _CONSTANT_BONUS = 2.0, 0.3, 1.0


@register("autopilot", citation="undertow")
@dataclass(kw_only=True, eq=False, repr=False)
class Autopilot(LearningPolicy):
    """Run a shared system, structural levels, a ridge with reward lags and constant arms; the best predictor decides.

    Every model predicts the reward of the arm that was played, whoever chose it, so comparing them costs no regret. The
    score is the discounted sum of the log densities of the rewards. Where there are contexts, the other models have to
    lead the shared system by some nats (`learner_state.handicap`).

    Parameters
    ----------
    feature_dim
        Number q of features given to `decide`.
    candidates
        Models of your own that compete with the others; see `undertow.policies.candidate.Candidate`.

    Examples
    --------
    >>> policy = Autopilot(arms=["low", "mid", "high"], context_dim=2, rng=0)
    >>> policy.learn(policy.decide(), reward=1.7)
    >>> policy.observe([0.3, -1.2])
    """

    claims: ClassVar[Claims] = Claims(
        uses_contexts=True, takes_features=True, deterministic=False, handles_missing_contexts=True
    )

    feature_dim: int = 0
    candidates: Sequence[Candidate] = ()

    def _make_members(self) -> Sequence[tuple[Member, FloatArray]]:
        sizes = (self.arm_count, self._context_dim, self._feature_dim, self._context_first)
        shared, levels, ridge = SharedMember(*sizes), LevelsMember(*sizes), RidgeMember(*sizes)
        constant = RidgeMember(*sizes, memory=0)
        asked = ("name", "forecast", "learn", "observe")
        if not isinstance(self.candidates, Sequence) or not all(hasattr(c, a) for c in self.candidates for a in asked):
            raise InvalidInputError(f"candidates: expected a list of models with {', '.join(asked)}")
        guests = [CandidateMember(*sizes, candidate.name) for candidate in self.candidates]
        names = [shared.name, levels.name, ridge.name, constant.name, *(guest.name for guest in guests)]
        if len(set(names)) < len(names):
            raise InvalidInputError(f"candidates: expected names that differ from one another's, got {names}")
        return [
            (shared, shared.block(_SHARED_BONUS)),
            (levels, levels.block(expected_largest(self.arm_count))),
            (ridge, ridge.block(_RIDGE_BONUS)),
            (constant, constant.block(_CONSTANT_BONUS)),
            *((guest, guest.block()) for guest in guests),
        ]

    # Candidates are asked, told and scored in Python; the kernels only compare their scores

    def __post_init__(self) -> None:
        LearningPolicy.__post_init__(self)
        self._meet_guests()

    def _meet_guests(self) -> None:
        members = [member for member in self._members if isinstance(member, CandidateMember)]
        self._guests = Guests(self.candidates, members)

    @property
    def by_hand(self) -> bool:
        """Whether `simulate` has to play through the methods."""
        return bool(self.candidates)

    def for_run(self, number: int, *, context_first: bool | None = None) -> LivePolicy:
        """Return an unused copy with the stream of run `number` and copies of the candidates."""
        twin = LearningPolicy.for_run(self, number, context_first=context_first)
        assert isinstance(twin, Autopilot)
        twin.candidates = copy.deepcopy(self.candidates)
        twin._meet_guests()
        return twin

    def _guest_blocks(self, state: FloatArray | None = None) -> list[FloatArray]:
        first, last = len(self._members) - len(self.candidates), len(self._members)
        return [self._block(number, state) for number in range(first, last)]

    def _scratch_state(self) -> FloatArray:
        state = LearningPolicy._scratch_state(self)
        self._guests.ask(self._stage.features, self._guest_blocks(state))
        return state

    def _decide(self) -> Decision:
        if not self.candidates:
            return LearningPolicy._decide(self)
        self._guests.ask(self._stage.features, self._guest_blocks())
        decision = LearningPolicy._decide(self)
        self._guests.remember(decision.round, decision.arm, self._guest_blocks(), self.max_delay)
        return decision

    def _apply_reward(self, memory: FloatArray, arm: int, reward: float, age: int) -> None:
        if not self.candidates:
            LearningPolicy._apply_reward(self, memory, arm, reward, age)
            return
        then = self._round_of(age)
        self._guests.learn(then, arm, reward)  # first, so that nothing has changed here where one of them fails
        blocks = [block.copy() for block in self._guest_blocks()]
        LearningPolicy._apply_reward(self, memory, arm, reward, age)
        self._guests.score(then, reward, blocks, self.round)
        for place, block in zip(self._guest_blocks(), blocks, strict=True):
            place[:] = block  # the state may have gone back in time; a candidate does not

    def _apply_context(self) -> None:
        self._guests.observe(self._stage.context)
        LearningPolicy._apply_context(self)

    def _note_past(self) -> None:
        self._guests.lead_through(self._log, self._context_first)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to continue; not possible with candidates of your own, whose state is not ours."""
        if self.candidates:
            raise InvalidInputError("candidates: an Autopilot with candidates of your own cannot be saved")
        LearningPolicy.save(self, path)


@spliced
def autopilot_decide(own: LearnerState, features: FloatArray, draws: FloatArray) -> int:
    """Have every model forecast, and play the largest forecast + width of the leader."""
    header, state = own.shared.header, own.state
    k, m, t = int(header[0]), int(header[1]), int(header[ROUNDS])
    end = len(state)
    at = own.at
    while at < end:
        if fit_is_due(state, at, t):
            return -1
        at += int(state[at + SIZE])
    leader, top, second = -1, -math.inf, -math.inf
    at = own.at
    while at < end:
        forecast_with(state, at, k, m, t, features)
        score = state[at + SCORE] - handicap(state[at + KIND], m, state[at + SCORED])
        if state[at + READY] > 0.0 and score > top:
            leader, top, second = at, score, top
        elif state[at + READY] > 0.0 and score > second:
            second = score
        at += int(state[at + SIZE])
    return choose(own, leader, top - second if leader >= 0 else 0.0, draws)


@spliced
def forecast_with(state: FloatArray, at: int, k: int, m: int, t: int, features: FloatArray) -> None:
    """Bring one model into the present round and have it forecast."""
    kind, ready = state[at + KIND], state[at + READY] > 0.0
    if kind == SHARED:
        shared_begin(state, at, k, m)
        if ready:
            shared_forecast(state, at, k, m, t)
    elif kind == LEVELS:
        levels_begin(state, at, k, m)
        levels_see(state, at, k, m, features)
        if ready:
            levels_decide(state, at, k, m)
    elif kind in (RIDGE, CONSTANT):
        ridge_see(state, at, k, m, t, features)
        if ready:
            ridge_decide(state, at, k, m)


@spliced
def autopilot_played(own: LearnerState, arm: int) -> None:
    """Tell every model which arm was played, −1 for none; the round is over unless its context is still to come."""
    state, header = own.state, own.shared.header
    k, m, t = int(header[0]), int(header[1]), int(header[ROUNDS])
    count_round(own, arm)
    at = own.at
    while at < len(state):
        if state[at + KIND] == SHARED:
            shared_begin(state, at, k, m)
        elif state[at + KIND] == LEVELS:
            levels_begin(state, at, k, m)
        elif state[at + KIND] in (RIDGE, CONSTANT):
            ridge_played(state, at, k, m, t, arm)
        if own.head[1] > 0.0 or m == 0:
            state[at + OVER] = 1.0
        at += int(state[at + SIZE])


@spliced
def autopilot_learn(own: LearnerState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Let every model predict the reward, be scored, and learn it."""
    state, header = own.state, own.shared.header
    k, m, t = int(header[0]), int(header[1]), int(header[ROUNDS])
    at = own.at
    while at < len(state):
        kind = state[at + KIND]
        if kind == SHARED:
            shared_learn(state, at, k, m, t, arm, rewards[arm])
        elif kind == LEVELS:
            levels_learn(state, at, k, m, t, arm, rewards[arm])
        elif kind in (RIDGE, CONSTANT):
            ridge_learn(state, at, k, m, t - 1, arm, rewards[arm])
        at += int(state[at + SIZE])


@spliced
def autopilot_observe(own: LearnerState, context: FloatArray) -> None:
    """Show a context to every model."""
    state, header = own.state, own.shared.header
    k, m, t = int(header[0]), int(header[1]), int(header[ROUNDS])
    first = own.head[1] > 0.0
    at = own.at
    while at < len(state):
        kind = state[at + KIND]
        if kind == SHARED:
            shared_observe(state, at, k, m, t, context, first)
        elif kind == LEVELS:
            levels_observe(state, at, k, m, context, first)
        elif kind in (RIDGE, CONSTANT):
            ridge_observe(state, at, k, m, context)
        at += int(state[at + SIZE])


Autopilot.kernels = compile_kernels(
    __name__, open_learner, autopilot_decide, autopilot_played, autopilot_learn, autopilot_observe
)
