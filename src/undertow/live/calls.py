"""The calls of a round: each checks what it is given, has events happen, and returns their answer.

event  = checked(call)      what is wrong is refused here, and nothing has changed
answer = apply(event)       in place; the only place that changes anything (`undertow.live.apply`)
commit(event)               now it has happened, and is in the log since the last checkpoint
"""

import secrets
from collections.abc import Iterable, Sequence
from types import EllipsisType

import numpy as np
import numpy.typing as npt

from undertow import _checks
from undertow._checks import FloatArray
from undertow.errors import InvalidInputError, OutOfTurnError, UndertowError
from undertow.live.apply import Applies, request_of
from undertow.live.arms import arm_index, open_arms
from undertow.live.decision import Decision
from undertow.live.events import ArmAdded, ArmRetired, Decided, Event, Observed, Reseeded, Rewarded, Skipped
from undertow.live.pending import Waiting

__all__ = ["Calls"]


class Calls(Applies):
    """The calls of a round, on the parts that a policy has."""

    def decide(
        self,
        features: npt.ArrayLike | None = None,
        *,
        context: npt.ArrayLike | EllipsisType | None = ...,
        available: Iterable[str | int] | None = None,
        id: str | None = None,
        elapsed: int = 1,
    ) -> Decision:
        """Choose an arm for this round.

        Parameters
        ----------
        features
            What is known before the choice and not moved by the state, for policies with a `feature_dim`: (q,) for all
            arms or, where the policy has the capability `takes_arm_features`, (k, q), a row for each arm.
        context
            The round's context, for policies with `context_first=True`: as `observe(context)` and then `decide()`, in
            one atomic call. None if it is missing.
        available
            Names or indices of the arms that can be played in this round, all by default.
        id
            A unique string of at most 64 characters; by default the policy generates one. The same call with the same
            id returns the same decision again, and changes nothing. Another call with that id is refused.
        elapsed
            How many moments have begun since the last round, 1 by default. With 0 it is another decision in the same
            moment: the hidden state stands still, and no context comes in between. With n > 1, time has passed: as
            `skip(n - 1)` and then `decide()`, in one call.
        """
        with self._lock:
            journal = self._journal
            if journal.torn or self._awaits_kernels:
                self._get_ready(decides=True)
            player, pending, turns, timeline = self._player, self._pending, self._turns, self._timeline
            request = None
            if id is not None:
                available = available if available is None or isinstance(available, str) else _listed(available)
                request = request_of(features, context, available, elapsed)
                if (answer := pending.answer(id, request)) is not None:
                    return answer
            if features is not None and not self._feature_dim:
                self._checked_features(features)  # which says how it is
            still, passed, closed, known, row = False, 0, None, None, None
            if type(elapsed) is not int or elapsed != 1:
                begun, with_context = player.rounds > 0, context is not ...
                elapsed = turns.checked_elapsed(elapsed, begun=begun, with_context=with_context)
                still, passed = elapsed == 0, max(elapsed - 1, 0)
            if context is not ...:
                turns.require_context()
                row = self._checked_context(context)
            elif turns.due != "decide" and not still:
                turns.require("decide")
            if available is not None:
                closed = open_arms(available, player.common.closed > 0, self.names)
            if self._feature_dim:
                known = self._checked_features(features)
            if pending.forked:
                self._part_from_parent()
            if id is None:
                id = f"{pending.incarnation}-{pending.made}"
            elif pending.is_stale(id) and not timeline.holds:
                self._checkpoint()
            earlier: Sequence[Event] = timeline.arrived() if timeline.has_effects else ()
            journal.torn = True
            for fit in earlier:
                self._apply(fit)
            if passed:
                self._skip(passed, None)
                earlier = (*earlier, Skipped(rounds=passed))
            if context is not ...:
                self._observe(row)
                earlier = (*earlier, Observed(context=row))
            decision = self._decide(id, known, closed, still, request)
            event = Decided(
                id=id,
                round=decision.round,
                arm=decision.arm,
                propensity=decision.propensity,
                features=known,
                available=None if closed is None else tuple(np.flatnonzero(closed == 0).tolist()),
                still=still,
                request=request,
            )
            self._commit(event, earlier)
            return decision

    def _part_from_parent(self) -> None:
        """Have ids and, if no seed was given, random numbers of its own in a forked process."""
        if not self._streams.seeded:
            event = Reseeded(entropy=str(secrets.randbits(128)))
            self._journal.torn = True
            self._apply(event)
            self._commit(event)
        self._pending.reincarnate()

    def learn(self, decision: Decision | str, reward: float) -> None:
        """Learn the reward of an earlier decision, given as the decision or as its id.

        The same reward again changes nothing; another one for the same decision is refused.
        """
        with self._lock:
            journal = self._journal
            if journal.torn or self._awaits_kernels:
                self._get_ready()
            pending = self._pending
            try:
                value = _checks.reward(reward)
                id, waiting = pending.find(decision, value, self.names)
                if waiting is None:
                    return
                if not self._timeline.plain:
                    self._timeline.check_reward(waiting, value, int(self._player.begun()) - 1 - waiting.round)
            except UndertowError as error:
                pending.refuse(error)
                raise
            journal.torn = True
            self._learn(id, value)
            self._commit(Rewarded(id=id, reward=value))
            pending.lately.append(False)

    def learn_many(self, decisions: Sequence[Decision | str], rewards: npt.ArrayLike) -> None:
        """Learn the rewards of several earlier decisions, in this order: all or, if one is refused, none."""
        if isinstance(decisions, Decision | str) or not isinstance(decisions, Sequence | np.ndarray):
            raise InvalidInputError(f"decisions: expected a list of decisions or ids, got {decisions!r:.60}")
        with self._lock:
            if self._journal.torn or self._awaits_kernels:
                self._get_ready()
            pending = self._pending
            try:
                events = self._checked_rewards(decisions, rewards)
            except UndertowError as error:
                pending.refuse(error)
                raise
            if not events:
                return
            self._journal.torn = True
            for event in events:
                self._learn(event.id, event.reward)
            self._commit(events[-1], events[:-1])
            pending.lately.extend([False] * len(events))

    def _checked_rewards(self, decisions: Sequence[Decision | str], rewards: npt.ArrayLike) -> list[Rewarded]:
        """Return the rewards that are not known yet, or refuse all of them."""
        values = _checks.measured("rewards", rewards, (len(decisions),)).tolist()
        given = list(zip(decisions, values, strict=True))
        found = [(*self._pending.find(decision, value, self.names), value) for decision, value in given]
        if len({id for id, *_ in found}) < len(found):
            raise InvalidInputError("decisions: expected every decision once")
        for _, waiting, value in found:
            if waiting is not None:
                self._check_reward(waiting, value)
        return [Rewarded(id=id, reward=value) for id, waiting, value in found if waiting is not None]

    def _check_reward(self, waiting: Waiting, value: float) -> None:
        self._timeline.check_reward(waiting, value, int(self._player.begun()) - 1 - waiting.round)

    def observe(self, context: npt.ArrayLike | None) -> None:
        """Take in the round's context, (m,): NaN where an entry is missing, None where all are."""
        with self._lock:
            journal = self._journal
            if journal.torn or self._awaits_kernels:
                self._get_ready()
            if self._turns.due != "observe":
                self._turns.require("observe")
            row = self._checked_context(context)
            journal.torn = True
            self._observe(row)
            self._commit(Observed(context=row))

    def skip(self, rounds: int = 1, contexts: npt.ArrayLike | None = None) -> None:
        """Advance by `rounds` rounds without a decision. Pass their contexts, (rounds, m), if you have them."""
        rounds = _checks.integer("rounds", rounds, least=1)
        m = self._context_dim
        rows = None if contexts is None else _checks.measured("contexts", contexts, (rounds, m), missing=True)
        with self._lock:
            if self._journal.torn or self._awaits_kernels:
                self._get_ready(decides=True)
            self._require_begin()
            event = Skipped(rounds=rounds, contexts=rows.copy() if rows is not None and m else None)
            arrived = self._timeline.arrived()
            self._journal.torn = True
            for each in (*arrived, event):
                self._apply(each)
            self._commit(event, arrived)

    def _require_begin(self) -> None:
        """Refuse to let rounds pass in the middle of one."""
        turns = self._turns
        if turns.due != turns.first:
            raise OutOfTurnError(
                f"skip: this round has begun; {turns.due} first (observe(None) where there was no context)"
            )

    def retire_arm(self, name: str) -> None:
        """Stop playing an arm. Rewards of its earlier decisions are still accepted."""
        with self._lock:
            self._get_ready()
            arm = self._check_open_arm(name)
            self._happen(ArmRetired(name=self.names[arm]))

    def add_arm(self, name: str) -> None:
        """Add an arm, or bring back one that was retired, with what was learned of it."""
        with self._lock:
            self._get_ready()
            if self._check_new_arm(name):
                self.settle()
            self._happen(ArmAdded(name=name))

    def _check_open_arm(self, name: str) -> int:
        """Refuse to retire an arm that is none, or is the last one; return its index."""
        arm, closed = arm_index("name", name, self.names), self._player.common.closed
        if closed[arm]:
            raise InvalidInputError(f"name: {name!r} was retired already")
        if closed.sum() == len(self.names) - 1:
            raise InvalidInputError(f"name: {name!r} is the last arm; add another one before it is retired")
        return arm

    def _check_new_arm(self, name: str) -> bool:
        """Refuse to add an arm that can be played; return whether it is new, and not only retired."""
        if isinstance(name, str) and name in self.names and self._player.common.closed[self.names.index(name)]:
            return False
        if not isinstance(name, str) or name in self.names:
            raise InvalidInputError(f"name: expected a name that no arm has yet, got {name!r:.60}")
        return True

    # What is given, checked

    def _checked_features(self, features: npt.ArrayLike | None) -> FloatArray | None:
        known = self._columns.checked_features(features, len(self.names), self.claims)
        return np.array(known) if known is not None else None  # the caller may write into its own

    def _checked_context(self, context: npt.ArrayLike | None) -> FloatArray | None:
        if context is None:
            return None
        row = _checks.row("context", context, (self._context_dim,), missing=True)
        return row.copy() if row is context else row


def _listed(available: Iterable[str | int]) -> Iterable[str | int]:
    return list(available) if isinstance(available, Iterable) and not isinstance(available, np.ndarray) else available
