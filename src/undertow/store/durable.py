"""A policy whose events are in a store: every call is stored before it returns, and any process may make the next.

A call locks the bandit, applies the events of others, adds its own, and commits. So each process has a copy as of its
last call, and nothing is lost with a process.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from typing import Any

import numpy.typing as npt

from undertow.errors import InvalidInputError, StoreError, UnknownDecisionError
from undertow.live import Decision, LivePolicy
from undertow.live.events import Event, Recalled, Rewarded, encode
from undertow.live.metrics import Measure, exposition
from undertow.live.names import Inputs
from undertow.live.requests import request_of
from undertow.live.several import several
from undertow.store.answers import read_answer, write_answer
from undertow.store.base import Answer, Claim, Locked, Row, Store
from undertow.store.door import Door
from undertow.store.replica import Replica
from undertow.support import checks

__all__ = ["DurablePolicy"]

_LOG = logging.getLogger("undertow.store")
_PATIENCE = 60.0  # seconds that a claim of a fit lasts, plus ten times the expected duration of the fit
_TRIES = 3


class DurablePolicy:
    """The policy of a bandit in a store; `undertow.open` returns it.

    It has the calls and attributes of the policy that it was opened with. Unlike there, every call may raise
    `StoreBusyError` or `StoreUnavailableError`, and rewards are accepted for any decision of the bandit, whichever
    process made it and however long ago.
    """

    def __init__(self, store: Store, name: str, timeout: float) -> None:
        self._store, self._name, self._timeout = store, name, timeout
        self._door = Door(self._begin, self._end, self._undo, timeout)
        self._replica = Replica(store, name, self._claim)
        self._transaction: AbstractContextManager[Locked] | None = None
        self._holder, self._pid = os.urandom(8), os.getpid()  # of claims
        self._reset()

    def _reset(self) -> None:
        self._locked: Locked | None = None
        self._answers: dict[str, Answer] = {}
        self._rewards: dict[str, float] = {}
        self._before = (0, 0, 0)

    def __repr__(self) -> str:
        return f"<bandit {self._name!r} in {self._store!r}>"

    # A transaction

    def _begin(self) -> None:
        """Lock the bandit, and apply the events of others."""
        if self._pid != os.getpid():
            self._holder, self._pid = os.urandom(8), os.getpid()
            self._replica.drop()
        self._reset()
        for _ in range(_TRIES):
            self._replica.load(self._timeout)
            self._transaction = self._store.lock(self._name, self._timeout)
            self._locked = self._transaction.__enter__()
            try:
                if self._replica.catch_up(self._locked):
                    return
            except BaseException as error:
                self._replica.drop()
                self._transaction.__exit__(type(error), error, error.__traceback__)
                raise
            self._transaction.__exit__(None, None, None)
        raise StoreError(f"store: the events of {self._name!r} were replaced {_TRIES} times; the call did not happen")

    def _claim(self, model: str, requested: int, seconds: float) -> bool:
        """Claim a fit, within a call; the claim is committed with it."""
        assert self._locked is not None
        now = time.time()
        return self._locked.claim(Claim(model, requested, self._holder, now + _PATIENCE + 10 * seconds), now)

    def _end(self) -> None:
        """Append the events of the group, and commit."""
        assert self._locked is not None
        assert self._transaction is not None
        locked, transaction, replica, done = self._locked, self._transaction, self._replica, False
        try:
            now = time.time()
            numbered = enumerate(replica.events, replica.row.n + 1)
            rows = [Row(n, os.urandom(8), now, encode(event)) for n, event in numbered]
            if rows:
                locked.append(rows)
                locked.keep_answers(list(self._answers.values()))
                locked.keep_rewards(list(self._rewards.items()))
                if self._answers or self._rewards:
                    locked.keep_times(now if self._answers else None, now if self._rewards else None)
                replica.keep_checkpoint(locked, rows)
            transaction.__exit__(None, None, None)
            done = True
        except BaseException as error:
            transaction.__exit__(type(error), error, error.__traceback__)
            raise
        finally:
            if not done:
                replica.drop()
            self._reset()
        replica.committed(rows)

    def _undo(self) -> None:
        """Drop an interrupted call; its policy is read from the store again."""
        events, answers, rewards = self._before
        del self._replica.events[events:]
        for kept, count in ((self._answers, answers), (self._rewards, rewards)):
            for id in list(kept)[count:]:
                del kept[id]
        self._replica.drop()

    def _inside(self) -> LivePolicy:
        """Return the current policy, to a call inside the door."""
        self._before = (len(self._replica.events), len(self._answers), len(self._rewards))
        return self._replica.policy

    # Calls

    @contextmanager
    def transaction(self) -> Iterator[LivePolicy]:
        """Make the calls within in one transaction, after the events of others; yield the policy for inspection.

        Call the methods of the bandit, not those of the yielded policy. An exception undoes all of them, unless
        it is a refusal: then those before it have happened.
        """
        with self._door:
            policy = self._inside()
            before = self._before
            try:
                yield policy
            finally:
                self._before = before

    def decide(
        self,
        features: "Inputs | None" = None,
        *,
        context: Any = ...,
        available: Iterable[str | int] | None = None,
        id: str | None = None,
        elapsed: int = 1,
        at: datetime | None = None,
        subject: str | None = None,
        sticky: str | timedelta | int | None = None,
    ) -> Decision:
        """Choose an arm for this round, as the policy does.

        A repeated call with the same id returns the same decision, from any process and at any time.
        """
        if available is not None and not isinstance(available, str):
            available = list(available)
        how: dict[str, Any] = {"id": id, "elapsed": elapsed, "at": at, "subject": subject, "sticky": sticky}
        request = request_of(features, context, available, elapsed) if isinstance(id, str) else ""
        with self._door:
            policy = self._inside()
            known = self._known(id) if isinstance(id, str) else None
            if known is not None:
                return self._same(known, request)
            decision = policy.decide(features, context=context, available=available, **how)
            if decision.again:
                return decision
            waiting = self._replica.pending.entries[decision.id]
            content = write_answer(request, decision, waiting.memory, learns=waiting.learns)
            n = self._replica.row.n + len(self._replica.events)
            self._answers[decision.id] = Answer(decision.id, n, content, None)
            return decision

    def decide_several(self, count: int, features: "Inputs | None" = None, **how: Any) -> tuple[Decision, ...]:
        """Choose several arms for this round, as the policy does, in one transaction."""
        with self.transaction():
            return several(self, count, features, **how)

    def _known(self, id: str) -> Answer | None:
        """Return the answer to an id, of this transaction or an earlier one, with its reward."""
        assert self._locked is not None
        known = self._answers.get(id) or self._locked.answer(id)
        return known and known._replace(reward=self._rewards.get(id, known.reward))

    def _same(self, known: Answer, request: str) -> Decision:
        answered = read_answer(known)
        if answered.decision is None or answered.request != request:
            raise InvalidInputError(
                f"id: {known.id!r} was used before, for another call of decide; an id names one decision, so use a "
                f"new one"
            )
        return answered.decision

    def recorded(self, id: str) -> tuple[Decision, float | None]:
        """Return an earlier decision, made by any process, and its reward; None if that has not come."""
        with self._door:
            self._inside()
            known = self._known(id)
            if known is None:
                raise UnknownDecisionError(f"decision: this bandit has no decision {id!r:.80}")
            decision = read_answer(known).decision
            if decision is None:
                raise UnknownDecisionError(
                    f"decision: {id!r:.80} was made before this bandit was created, and only its reward is known"
                )
            return decision, known.reward

    @property
    def newest(self) -> int:
        """Number of the newest event of the bandit."""
        with self._door:
            return self._replica.row.n + len(self._replica.events)

    def learn(self, decision: Decision | str, reward: float, *, at: datetime | None = None) -> None:
        """Learn the reward of an earlier decision, made by any process, given as the decision or as its id.

        A repeated reward changes nothing; a different one for the same decision is refused.
        """
        with self._door:
            policy, before = self._inside(), len(self._replica.events)
            with self._counting():
                new = self._is_new(policy, decision, checks.reward(reward))
            if new:
                policy.learn(decision, reward, at=at)
                self._keep_rewards(before)

    def learn_many(
        self, decisions: Iterable[Decision | str], rewards: "npt.ArrayLike", *, at: datetime | None = None
    ) -> None:
        """Learn the rewards of several earlier decisions, in this order: all or, if one is refused, none."""
        decisions = list(decisions)
        with self._door:
            policy, before = self._inside(), len(self._replica.events)
            with self._counting():
                values = checks.measured("rewards", rewards, (len(decisions),)).tolist()
                given = zip(decisions, values, strict=True)
                new = [(each, value) for each, value in given if self._is_new(policy, each, value)]
            policy.learn_many([each for each, _ in new], [value for _, value in new], at=at)
            self._keep_rewards(before)

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Count a reward that is refused before the policy sees it."""
        try:
            yield
        except (InvalidInputError, UnknownDecisionError) as error:
            self._replica.pending.refuse(error)
            raise

    def _is_new(self, policy: LivePolicy, decision: Decision | str, reward: float) -> bool:
        """Return whether a reward must be learned; refuse one that differs from the learned one.

        A decision that the policy has dropped, because too many were pending, is pending again.
        """
        id = decision.id if isinstance(decision, Decision) else decision
        if not isinstance(id, str) or self._replica.pending.waits(id):
            return True
        known = self._known(id)
        if known is None:
            return True
        if known.reward is None:
            if policy.default_reward is not None:
                raise UnknownDecisionError(
                    f"decision: default_reward = {policy.default_reward:g} has replaced the reward of {id!r} "
                    f"after max_wait = {policy.max_wait}; a reward cannot be changed",
                    "defaulted",
                )
            if known.n <= self._replica.row.n:
                answered = read_answer(known)
                made, memory, learns = answered.decision, answered.memory, answered.learns
                if made is None or memory is None:
                    raise UnknownDecisionError(
                        f"decision: {id!r} was made before this bandit was created, and is too old: its reward was "
                        f"learned long ago, or too many were pending",
                        "forgotten",
                    )
                policy.follow(Recalled(id=id, round=made.round, arm=made.arm, memory=memory, learns=learns))
            return True
        if known.reward != reward:
            raise UnknownDecisionError(
                f"decision: the reward of {id!r} has been learned already, and was {known.reward:g}; a reward cannot "
                f"be changed",
                "repeated",
            )
        return False

    def _keep_rewards(self, before: int) -> None:
        """Store the rewards of the events since in the table of ids."""
        for event in self._replica.events[before:]:
            if isinstance(event, Rewarded):
                self._rewards[event.id] = event.reward

    def measures(self, **labels: str) -> list[Measure]:
        """Return the numbers of `metrics`, with more labels, to combine with those of other policies."""
        with self._door:
            found = self._inside().parts.measures(bandit=self._name, **labels)
            ((_, n, decided, rewarded),) = self._store.overview(self._name)
            delay = self._replica.delays.quantile(0.95)
        mine = found[0].labels
        times = {"last_decision_timestamp_seconds": decided, "last_reward_timestamp_seconds": rewarded}
        found = [each for each in found if each.name not in times]  # of the store, not of this process
        found += [Measure(name, at, mine) for name, at in times.items() if at is not None]
        found += [Measure("reward_delay_seconds", delay, mine | {"quantile": "0.95"})] if delay is not None else []
        return [*found, Measure("events_total", n, mine)]

    def metrics(self) -> str:
        """Return rounds, pending decisions, refused rewards, models, fits and delays as text for Prometheus."""
        return exposition(self.measures())

    def events(self, listener: Callable[[Event], object] | None) -> None:
        """Call `listener` with every event from now on, of any process, in order, after its commit. None removes it.

        Events of other processes are reported at the next call of this one.
        """
        if listener is not None and not callable(listener):
            raise InvalidInputError(f"listener: expected a function, or None, got {listener!r:.60}")
        with self._door:
            self._replica.listener = listener

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the policy, as of now; its methods are calls of the bandit."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with self._door:
            found = getattr(self._inside(), name)
        if not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            with self._door:
                return getattr(self._inside(), name)(*given, **named)

        return call
