"""The bookkeeping that our policies share: turns, ids, rewards that wait, random draws.

    decision = policy.decide()            # which arm, and why
    policy.learn(decision, reward)        # may come late, out of order, or never
    policy.observe(context)               # one row of context; None where it is missing

With contexts, `decide` and `observe` alternate: decide first is the paper's order and the default, observe first
(`context_first=True`) the everyday one. Without contexts, every `decide` is a round.

Every method may be called from any thread; calls on one policy wait for one another.
"""

import copy
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy.typing as npt

from undertow import _checks
from undertow.errors import InvalidInputError, OutOfTurnError, UnknownDecisionError
from undertow.policies.arms import arm_index, open_arms
from undertow.policies.decision import Claims, Decision, Outlook, Policy
from undertow.policies.play import DECIDE
from undertow.policies.state import ROUNDS
from undertow.policies.workings import Pending, Seed, Workings, locked

__all__ = ["Claims", "Decision", "LivePolicy", "Outlook", "Policy", "Seed"]


@dataclass(kw_only=True, eq=False, repr=False)
class LivePolicy(Workings):
    """Base of our policies: turns, ids and pending rewards around a packed state and its kernels.

    A policy adds its parameters as dataclass fields, declares its claims, builds its first state and names its kernels.
    """

    # What users call

    @property
    def round(self) -> int:
        """Number of rounds begun so far."""
        return int(self._state.item(ROUNDS))

    @property
    def pending(self) -> int:
        """Number of decisions that wait for their reward."""
        return len(self._pending)

    @property
    def parameters(self) -> dict[str, Any]:
        """Return what the policy was constructed with."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "rng"}
        defaults = {field.name: field.default for field in fields(self)}
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items() if value != defaults[name])
        return f"{type(self).__name__}({shown})"

    @property
    @locked
    def retired(self) -> tuple[str, ...]:
        """Names of the arms that are not played any more."""
        return tuple(name for name, closed in zip(self.names, self._closed, strict=True) if closed)

    def decide(
        self, features: npt.ArrayLike | None = None, *, available: Iterable[str | int] | None = None
    ) -> Decision:
        """Choose an arm for this round.

        `features` are what is known before the choice and not moved by the state, for policies with a `feature_dim`;
        `available` are the names or indices of the arms that can be played in this round, all by default.
        """
        with self._lock:
            if self._due != "decide":
                raise self._out_of_turn("decide")
            closed = None if available is None else open_arms(available, self._closed > 0, self.names)
            given = self._checked_features(features)
            self._rescale_if_due()
            if given is not None:
                self._note_seen(features=given)
            self._set_features(given)
            self._before_decision()
            if closed is None:
                return self._decide()
            retired = self._closed.copy()
            try:
                self._closed[:] = closed
                return self._decide()
            finally:
                self._closed[:] = retired

    def _decide(self) -> Decision:
        t, number, stage = self.round, self._decisions, self._stage
        if self._draws:
            stage.draws[:] = self._all_draws(1)[0]
        while not stage.take(self.kernels, self._state, DECIDE):
            self._attend()
        arm = int(stage.arm.item())
        self._decisions = number + 1
        if self._context_dim:
            self._due = "observe"
        self._pending[number] = Pending(t, arm, self._memory.copy())
        if len(self._pending) > self.max_pending:
            self._forgotten = next(iter(self._pending))
            del self._pending[self._forgotten]
        self._after_decision(t, arm)
        return Decision(number, t, arm, self.names[arm], *self._outlook(), self._why(), self._propensity(arm))

    def learn(self, decision: Decision | int, reward: float) -> None:
        """Take in the reward of an earlier decision, given as the decision or as its id."""
        with self._lock:
            self._learn(decision, _checks.reward(reward))

    def _learn(self, decision: Decision | int, reward: float) -> None:
        if isinstance(decision, str):
            raise InvalidInputError(f"decision: expected a decision or its id, got the text {decision!r:.60}")
        number = decision.id if isinstance(decision, Decision) else _checks.integer("decision", decision, least=0)
        waiting = self._pending.get(number)
        if waiting is None:
            raise self._unknown(number)
        made = (waiting.arm, self.names[waiting.arm], waiting.round)
        if isinstance(decision, Decision) and (decision.arm, decision.name, decision.round) != made:
            raise UnknownDecisionError(
                f"decision: number {number} of this policy was arm {made[0]} ({made[1]}) in round {made[2]}, not arm "
                f"{decision.arm} ({decision.name}) in round {decision.round}; give it to the policy that made it"
            )
        age = self.round - 1 - waiting.round
        self._note_seen(reward=reward)
        x = reward if self._units is None else self._units.reward(reward)
        self._apply_reward(waiting.memory, waiting.arm, x, age)
        del self._pending[number]

    def observe(self, context: npt.ArrayLike | None) -> None:
        """Take in the round's context, (m,): NaN where an entry is missing, None where all are."""
        with self._lock:
            if self._due != "observe":
                raise self._out_of_turn("observe")
            self._set_context(context)
            self._apply_context()
            self._due = "decide"

    def skip(self, rounds: int = 1, contexts: npt.ArrayLike | None = None) -> None:
        """Let rounds pass in which no decision is taken; their contexts, (rounds, m), are missing unless given."""
        rounds = _checks.integer("rounds", rounds, least=1)
        m = self._context_dim
        rows = None if contexts is None else _checks.measured("contexts", contexts, (rounds, m), missing=True)
        with self._lock:
            if self._due != self._first_due:
                raise OutOfTurnError(
                    f"skip: this round has begun; {self._due} first (observe(None) where there was no context)"
                )
            for number in range(rounds):
                self._set_context(None if rows is None else rows[number])
                if m and self._context_first:
                    self._apply_context()
                self._before_decision()
                self.kernels.skip(self._state)
                if m and not self._context_first:
                    self._apply_context()

    def forecast(self, features: npt.ArrayLike | None = None) -> Outlook:
        """Return what the policy would predict now, before its own draws, and change nothing."""
        with self._lock:
            given, policy = self._checked_features(features), self
            if self.round >= self._pause or (self._decisions == 0 and self._pause < math.inf):
                policy = copy.deepcopy(self)  # in which units change, or begin, as they would before a decision
                policy._rescale_if_due()
                policy._begin_columns(**({} if given is None else {"features": given}))
            policy._set_features(given)
            policy._stage.draws[:] = 0.0
            policy._stage.take(self.kernels, policy._scratch_state(), DECIDE)
            return Outlook(*policy._outlook())

    def retire_arm(self, name: str) -> None:
        """Play an arm no more; rewards of earlier decisions for it may still be learned."""
        with self._lock:
            arm = arm_index("name", name, self.names)
            if self._closed[arm]:
                raise InvalidInputError(f"name: {name!r} was retired already")
            if self._closed.sum() == self.arm_count - 1:
                raise InvalidInputError(f"name: {name!r} is the last arm; add another one before it is retired")
            self._closed[arm] = 1.0

    def add_arm(self, name: str) -> None:
        """Take in one more arm, or bring one back that was retired, with what was learned of it."""
        with self._lock:
            if isinstance(name, str) and name in self.retired:
                self._closed[self.names.index(name)] = 0.0
                return
            if not isinstance(name, str) or name in self.names:
                raise InvalidInputError(f"name: expected a name that no arm has yet, got {name!r:.60}")
            twin = type(self)(**(self.parameters | {"arms": (*self.names, name), "rng": self._seeds}))
            twin._take_over(self)
            self.__dict__.update({key: value for key, value in twin.__dict__.items() if key != "_lock"})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to continue bit for bit; `undertow.load` reads it. The format is open, not pickle."""
        from undertow.policies.files import save_policy

        with self._lock:
            save_policy(self, path)

    # What `simulate` calls

    @property
    def by_hand(self) -> bool:
        """Whether `simulate` has to play through the methods, which no policy of ours needs by itself."""
        return False

    @property
    def unused(self) -> bool:
        """Whether nothing has happened to the policy yet."""
        return self._decisions == 0 and self.round == 0 and self._due == self._first_due

    def for_run(self, number: int, *, context_first: bool | None = None) -> "LivePolicy":
        """Return an unused copy with the stream of run `number`; that of run 0 is the policy's own."""
        changes: dict[str, Any] = {"rng": self._seeds}
        if context_first is not None and hasattr(self, "context_first"):
            changes["context_first"] = context_first
        twin = type(self)(**(self.parameters | changes))
        twin._seed_run(number)
        twin._order[:], twin._closed[:] = self._order, self._closed
        return twin
