"""The calls of a round: each checks its input, applies and commits events, and returns their answer.

event  = checked(call)      wrong input is refused here, and nothing has changed
answer = apply(event)       in place; the only place that changes anything (`undertow.live.apply`)
commit(event)               now the event has happened, and is in the log since the last checkpoint
"""

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from types import EllipsisType
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError, OutOfTurnError, UndertowError
from undertow.live.arms import open_arms
from undertow.live.clock import as_time
from undertow.live.decision import Decision
from undertow.live.events import Defaulted, Event, Keyed, Observed, Reseeded, Rewarded, Skipped
from undertow.live.names import Inputs, as_row
from undertow.live.pending import Waiting
from undertow.live.requests import request_of
from undertow.live.several import several
from undertow.live.steering import Steering
from undertow.live.subjects import given_again
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["Calls"]


class _When(NamedTuple):
    """The time step of a decision: the last one or a later one, the time steps between, and the time."""

    still: bool  # whether it is the time step of the last round
    passed: int  # number of time steps without a round
    missed: bool  # whether the last time step ended without its context
    at: int | None


class Calls(Steering):
    """The calls of a round, on the parts of a policy."""

    def decide(
        self,
        features: "Inputs | None" = None,
        *,
        context: "Inputs | EllipsisType | None" = ...,
        available: Iterable[str | int] | None = None,
        id: str | None = None,
        elapsed: int = 1,
        at: datetime | None = None,
        subject: str | None = None,
        sticky: str | timedelta | int | None = None,
    ) -> Decision:
        """Choose an arm for this round.

        Parameters
        ----------
        features
            Inputs that are known before the choice and independent of the state: by name, for policies with
            `feature_names`, or (q,) numbers, for those with a `feature_dim`. If the policy has the capability
            `takes_arm_features`, each arm may have a row, under its name, or (k, q). Policies without features ignore
            those that have names.
        context
            The round's context, for policies with `context_first=True`: as `observe(context)` and then `decide()`, in
            one atomic call. None if it is missing. Policies without contexts ignore one that has names.
        available
            Names or indices of the arms that can be played in this round, all by default.
        id
            A unique string of at most 64 characters; by default the policy generates one. The same call with the same
            id returns the same decision again, and changes nothing. Another call with that id is refused.
        elapsed
            Number of time steps that have begun since the last round, 1 by default. With 0 it is another decision in
            the same time step, with the same hidden state and no context in between. With n > 1, time has passed: as
            `skip(n - 1)` and then `decide()`, in one call.
        at
            The time, with a time zone; a time before the newest one counts as that. For policies with a `tick`,
            `elapsed` follows from it, and only the first context of a time step is observed. Default rewards that are
            due after a `max_wait` that is a time are learned first.
        subject, sticky
            The subject of the decision, such as a visitor. An earlier decision for the same subject is returned again
            (`decision.again`), if its arm can be played, and nothing else happens: for `sticky`, a time ("7 days") or a
            number of rounds, or as long as the policy remembers it. Only a keyed hash of the subject is kept.
        """
        with self._lock:
            journal = self._journal
            if journal.torn or self._awaits_kernels:
                self._get_ready(decides=True)
            pending, turns, timeline = self._pending, self._turns, self._timeline
            request, code, row, closed, known = None, None, None, None, None
            still, passed, missed, now = False, 0, False, None  # the next time step
            if id is not None or subject is not None or sticky is not None:
                available = _listed(available)
                request = None if id is None else request_of(features, context, available, elapsed)
                answer = self._answered_before(id, request, subject, sticky, available, at)
                if answer is not None:
                    return answer
            if features is not None and not self._feature_dim:
                self._checked_features(features)  # first, as it may be the context that was given as features
            if context is not ... and not self._context_dim and self._ignores_context(context):
                context = ...
            if at is not None or turns.clock.newest is not None or type(elapsed) is not int or elapsed != 1:
                still, passed, missed, now = self._when(elapsed, at, with_context=context is not ...)
                context = ... if still else context
            if context is not ...:
                if turns.due != "observe" or not turns.context_first:
                    turns.require_context()
                row = self._checked_context(context)
            elif turns.due != "decide" and not still and not missed:
                turns.require("decide")
            if available is not None:
                closed = self._open(available)
            if self._feature_dim:
                known = self._checked_features(features, closed)
            if pending.forked:
                self._reseed_after_fork()
            if id is None:
                id = f"{pending.id_prefix}-{pending.made}"
            elif pending.is_stale(id) and not timeline.holds:
                self._checkpoint()
            earlier: Sequence[Event] = timeline.arrived() if timeline.has_effects else ()
            if now is not None or passed or subject is not None:
                earlier = self._come_before(earlier, _When(still, passed, missed, now))
                if subject is not None:
                    earlier, code = self._hashed(subject, earlier)
            journal.torn = True
            for event in earlier:
                self._apply(event)
            if context is not ...:
                self._observe(row)
                earlier = (*earlier, Observed(context=row))
            decision, made = self._decide(id, known, closed, still, request, now, code)
            self._commit(made, earlier)
            return decision

    def _answered_before(
        self,
        id: str | None,
        request: str | None,
        subject: str | None,
        sticky: str | timedelta | int | None,
        available: Any,
        at: datetime | None,
    ) -> Decision | None:
        """Return the decision of an identical earlier call, or an earlier one for the subject."""
        pending = self._pending
        if id is not None and request is not None and (answer := pending.answer(id, request)) is not None:
            return answer
        if subject is None:
            if sticky is not None:
                raise InvalidInputError("sticky: expected a subject with it, got none; pass subject=…")
            return None
        now = self._turns.clock.reached(at)
        decision = given_again(pending.subjects.find(subject), sticky, now=now, rounds=self._player.rounds)
        if decision is None or self._player.pinned() not in (-1.0, decision.arm):
            return None
        closed = self._player.common.closed if available is None else self._open(available)
        return None if closed[decision.arm] else decision

    def _when(self, elapsed: Any, at: datetime | None, *, with_context: bool) -> _When:
        """Return the time step of a decision, from the number elapsed or the clock; refuse impossible ones."""
        turns, missed = self._turns, False
        now = turns.clock.reached(at)
        if at is not None and now is not None and turns.clock.tick is not None:
            turns.clock.require_alone(elapsed)
            elapsed, missed = turns.by_clock(now)
            with_context = with_context and elapsed > 0
        elapsed = turns.checked_elapsed(elapsed, begun=self._player.rounds > 0, with_context=with_context)
        return _When(elapsed == 0, max(elapsed - 1, 0), missed, now)

    def _come_before(self, arrived: Sequence[Event], when: _When) -> list[Event]:
        """Return the events before a decision, besides finished fits."""
        events = [*map(_defaulted, self._pending.fallen_due(when.at)), *arrived]
        if when.missed:
            events.append(Observed(context=None))
        if when.passed:
            events.append(Skipped(rounds=when.passed))
        return events

    def _hashed(self, subject: str, earlier: Sequence[Event]) -> tuple[Sequence[Event], str]:
        """Return the hash of a subject, and the events before its decision, among them that of a new key."""
        subjects = self._pending.subjects
        key = subjects.key or subjects.new_key()
        return earlier if subjects.key else [Keyed(key=key), *earlier], subjects.code_of(subject, key)

    def decide_several(self, count: int, features: "Inputs | None" = None, **how: Any) -> tuple[Decision, ...]:
        """Choose several arms for this round, such as places of a list: the best, the best of the others, and so on.

        Each is a decision in the same time step, with its own reward. Its propensity is that of the arm given those
        before it, so their product is that of the list. `how` is as in `decide`, without a subject. With an `id` the
        decisions are named `id`, `id/2`, `id/3`, …; an interrupted call may have made the first of them, and the same
        call with the same id makes the others.
        """
        with self._lock:
            self._get_ready(decides=True)
            return several(self, count, features, **how)

    def _open(self, available: Any) -> FloatArray:
        return open_arms(available, self._player.common.closed > 0, self.names)

    def _reseed_after_fork(self) -> None:
        """Renew ids and, without a seed, the random numbers in a forked process."""
        if not self._streams.seeded:
            self._happen(Reseeded(entropy=str(secrets.randbits(128))))
        self._pending.renew_prefix()

    def learn(self, decision: Decision | str, reward: float, *, at: datetime | None = None) -> None:
        """Learn the reward of an earlier decision, given as the decision or as its id.

        A repeated reward changes nothing; a different one for the same decision is refused. `at` is its time, for
        policies whose `max_wait` or `max_delay` is a time; by default the newest time so far.
        """
        with self._lock:
            journal = self._journal
            if journal.torn or self._awaits_kernels:
                self._get_ready()
            pending = self._pending
            try:
                now = None if pending.timeless else self._turns.clock.reached(at)
                value = checks.reward(reward)
                id, waiting = pending.find(decision, value, self.names)
                if waiting is None:
                    return
                if now is not None:
                    pending.check_time(id, waiting, now)
                if not self._timeline.plain:
                    self._timeline.check_reward(waiting, value, int(self._player.begun()) - 1 - waiting.round)
            except UndertowError as error:
                pending.refuse(error)
                raise
            if now is not None:
                self._reward([Rewarded(id=id, reward=value, at=as_time(now))], now)
            else:
                journal.torn = True
                self._learn(id, waiting, value, value)
                self._commit(Rewarded(id=id, reward=value))
            pending.lately.append(False)

    def _reward(self, events: Sequence[Event], now: int | None) -> None:
        """Apply rewards, and before them everything that is due."""
        self._happen(*map(_defaulted, self._pending.fallen_due(now)), *events)

    def learn_many(
        self, decisions: Sequence[Decision | str], rewards: "npt.ArrayLike", *, at: datetime | None = None
    ) -> None:
        """Learn the rewards of several earlier decisions, in this order: all or, if one is refused, none."""
        if isinstance(decisions, Decision | str) or not isinstance(decisions, Sequence | np.ndarray):
            raise InvalidInputError(f"decisions: expected a list of decisions or ids, got {decisions!r:.60}")
        with self._lock:
            if self._journal.torn or self._awaits_kernels:
                self._get_ready()
            pending = self._pending
            try:
                now = None if pending.timeless else self._turns.clock.reached(at)
                events = self._checked_rewards(decisions, rewards, now)
            except UndertowError as error:
                pending.refuse(error)
                raise
            if not events:
                return
            self._reward(events, now)
            pending.lately.extend([False] * len(events))

    def _checked_rewards(
        self, decisions: Sequence[Decision | str], rewards: "npt.ArrayLike", now: int | None
    ) -> list[Rewarded]:
        """Return the rewards that are new, or refuse all of them."""
        values = checks.measured("rewards", rewards, (len(decisions),)).tolist()
        given = list(zip(decisions, values, strict=True))
        found = [(*self._pending.find(decision, value, self.names), value) for decision, value in given]
        if len({id for id, *_ in found}) < len(found):
            raise InvalidInputError("decisions: expected every decision once")
        for id, waiting, value in found:
            if waiting is not None:
                self._pending.check_time(id, waiting, now)
                self._check_reward(waiting, value)
        return [Rewarded(id=id, reward=value, at=as_time(now)) for id, waiting, value in found if waiting is not None]

    def _check_reward(self, waiting: Waiting, value: float) -> None:
        self._timeline.check_reward(waiting, value, int(self._player.begun()) - 1 - waiting.round)

    def observe(self, context: "Inputs | None", *, at: datetime | None = None) -> None:
        """Observe the round's context, by name or (m,): NaN if an entry is missing, None if all are.

        `at` is its time. With a `tick` and `context_first`, a second one of a time step is ignored.
        """
        with self._lock:
            journal = self._journal
            if journal.torn or self._awaits_kernels:
                self._get_ready()
            if not self._context_dim and self._ignores_context(context):
                return
            turns = self._turns
            if turns.due != "observe":
                turns.require("observe")
            row = self._checked_context(context)
            if at is None:
                journal.torn = True
                self._observe(row)
                self._commit(Observed(context=row))
            else:
                self._observe_at(row, turns.clock.reached(at))

    def _observe_at(self, row: FloatArray | None, now: int | None) -> None:
        """Observe a context at a time, at which it begins a time step unless that step has one."""
        assert now is not None
        turns, events = self._turns, list[Event](map(_defaulted, self._pending.fallen_due(now)))
        if turns.context_first and turns.clock.tick is not None:
            passed = turns.clock.passed(now)
            if passed == 0:
                return
            events += [Skipped(rounds=passed - 1)] if passed > 1 else []
        self._happen(*events, Observed(context=row, at=as_time(now)))

    def skip(self, rounds: int = 1, contexts: "npt.ArrayLike | None" = None) -> None:
        """Advance by `rounds` rounds without a decision. Pass their contexts, (rounds, m), if you have them."""
        rounds = checks.integer("rounds", rounds, least=1)
        m = self._context_dim
        rows = None if contexts is None else checks.measured("contexts", contexts, (rounds, m), missing=True)
        with self._lock:
            if self._journal.torn or self._awaits_kernels:
                self._get_ready(decides=True)
            self._require_begin()
            contexts = rows.copy() if rows is not None and m else None
            self._happen(*self._timeline.arrived(), Skipped(rounds=rounds, contexts=contexts))

    def _require_begin(self) -> None:
        """Refuse to skip rounds in the middle of one."""
        turns = self._turns
        if turns.due != turns.first:
            raise OutOfTurnError(f"skip: this round has begun; {turns.due} first (observe(None) without a context)")

    # Checks of arguments

    def _checked_features(self, features: "Inputs | None", closed: FloatArray | None = None) -> FloatArray | None:
        if type(features) is not np.ndarray and (row := as_row(features)) is not None:
            return self._columns.named_features(
                row, self.names, self._player.common.closed if closed is None else closed
            )
        array = cast("npt.ArrayLike | None", features)
        known = self._columns.checked_features(array, len(self.names), self.capabilities)
        return np.array(known) if known is not None else None  # the caller may overwrite it

    def _ignores_context(self, context: "Inputs | None") -> bool:
        """Whether a policy without contexts ignores this one, since it has names."""
        row, names = as_row(context), self._columns.contexts
        if row is not None and names is not None:
            names.require(row)
        return row is not None or (context is None and names is not None)

    def _checked_context(self, context: "Inputs | None") -> FloatArray | None:
        if context is None:
            return None
        if type(context) is not np.ndarray and (named := as_row(context)) is not None:
            return self._columns.named_context(named)
        row = checks.row("context", cast("npt.ArrayLike", context), (self._context_dim,), missing=True)
        return row.copy() if row is context else row


def _defaulted(id: str) -> Defaulted:
    return Defaulted(id=id)


def _listed(available: Any) -> Any:
    """Return arms as a list that can be read twice."""
    return (
        list(available)
        if isinstance(available, Iterable) and not isinstance(available, np.ndarray | str)
        else available
    )
