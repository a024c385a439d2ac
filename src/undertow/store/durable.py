"""A policy whose events are kept in a store: every call is there before it returns, and any process may make the next.

A call locks the bandit, follows what others have done, does its own, and commits. So each process holds a copy that is
always as of its last call, and nothing that a process holds can be lost with it.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from undertow import _checks
from undertow.errors import InvalidInputError, StoreError, UnknownDecisionError
from undertow.live import Decision, LivePolicy
from undertow.live.apply import request_of
from undertow.live.events import Event, Recalled, Rewarded, decode, encode
from undertow.policies import from_bytes
from undertow.store.base import Answer, Checkpoint, Locked, Row, Store
from undertow.store.door import Door

__all__ = ["DurablePolicy"]

_LOG = logging.getLogger("undertow.store")
_LEAST = 2**16  # bytes of events between two checkpoints


class _Answered(msgspec.Struct, frozen=True):
    """The content of an answer: the call, the decision, and what learning its reward will need."""

    request: str
    decision: str
    arm: int
    round: int
    memory: bytes


_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_Answered)


class DurablePolicy:
    """The policy of a bandit in a store; `undertow.open` returns it.

    It has the calls and attributes of the policy that it was opened with. What differs: every call may raise
    `StoreBusyError` or `StoreUnavailableError`, and rewards are accepted for any decision of the bandit, whichever
    process made it and however long ago.
    """

    def __init__(self, store: Store, name: str, timeout: float) -> None:
        self._store, self._name, self._timeout = store, name, timeout
        self._door = Door(self._begin, self._end, self._undo, timeout)
        self._policy: LivePolicy | None = None  # none at first, and after trouble: then it is read from the store
        self._row = Row(0, b"", 0.0, b"")  # the event that the policy is as of
        self._transaction: AbstractContextManager[Locked] | None = None
        self._listener: Callable[[Event], object] | None = None
        self._told = 0  # number of the last event that it was told of
        self._pid = os.getpid()
        self._reset()

    def _reset(self) -> None:
        self._locked: Locked | None = None
        self._events: list[Event] = []
        self._answers: dict[str, Answer] = {}
        self._rewards: list[tuple[str, float]] = []
        self._before = (0, 0, 0)

    def __repr__(self) -> str:
        return f"<bandit {self._name!r} in {self._store!r}>"

    # A transaction

    def _begin(self) -> None:
        """Lock the bandit, and follow what others have done."""
        if self._pid != os.getpid():
            self._pid, self._policy = os.getpid(), None
        self._reset()
        self._transaction = self._store.lock(self._name, self._timeout)
        self._locked = self._transaction.__enter__()
        try:
            self._catch_up(self._locked)
        except BaseException as error:
            self._policy = None
            self._transaction.__exit__(type(error), error, error.__traceback__)
            raise

    def _catch_up(self, locked: Locked) -> None:
        n = self._row.n
        if self._policy is None:
            self._load(locked)
            return
        rows = locked.read(max(n, 1))
        if n and (not rows or rows[0].n != n or rows[0].mark != self._row.mark):
            _LOG.warning("%r: its events are others than before, as after a backup; it is read anew", self)
            listener, self._listener = self._listener, None  # what it heard of cannot be matched with what is there
            self._load(locked)
            self._listener, self._told = listener, self._row.n
            return
        self._follow(rows[1:] if n else rows)

    def _load(self, locked: Locked) -> None:
        """Read the policy from its newest checkpoint and the events since."""
        checkpoint = locked.checkpoint()
        self._policy = from_bytes(checkpoint.content)
        self._policy.events(self._events_append)
        self._size, self._since, self._kept = len(checkpoint.content), 0, checkpoint.n
        rows = locked.read(max(checkpoint.n, 1))
        self._row = rows[0] if checkpoint.n else Row(0, b"", 0.0, b"")
        self._follow(rows[1:] if checkpoint.n else rows)

    def _events_append(self, event: Event) -> None:
        self._events.append(event)

    def _follow(self, rows: Iterable[Row]) -> None:
        assert self._policy is not None
        for row in rows:
            try:
                event = decode(row.body)
            except InvalidInputError as error:
                raise StoreError(
                    f"store: event {row.n} of {self._name!r} is of a kind that this undertow does not know; nothing "
                    f"was done. Update undertow in this process ({error!s:.100})"
                ) from error
            self._policy.follow(event)
            self._row = row
            self._since += len(row.body)
            self._tell(row.n, event)
        self._events.clear()

    def _end(self) -> None:
        """Append what the calls of the group have done, and commit it."""
        assert self._locked is not None
        assert self._transaction is not None
        locked, transaction, events, done = self._locked, self._transaction, self._events, False
        try:
            now = time.time()
            rows = [Row(n, os.urandom(8), now, encode(event)) for n, event in enumerate(events, self._row.n + 1)]
            if rows:
                locked.append(rows)
                locked.keep_answers(list(self._answers.values()))
                locked.keep_rewards(self._rewards)
                self._since += sum(len(row.body) for row in rows)
                if self._policy is not None and self._since > max(self._size, _LEAST):
                    self._keep_checkpoint(locked, rows[-1].n)
            transaction.__exit__(None, None, None)
            self._row = rows[-1] if rows else self._row
            done = True
        except BaseException as error:
            transaction.__exit__(type(error), error, error.__traceback__)
            raise
        finally:
            if not done:
                self._policy = None
            self._reset()
        for row, event in zip(rows, events, strict=True):
            self._tell(row.n, event)

    def _keep_checkpoint(self, locked: Locked, n: int) -> None:
        """Keep a checkpoint, unless another process has kept one meanwhile."""
        assert self._policy is not None
        newest = locked.checkpoint()
        if newest.n == self._kept:
            newest = Checkpoint(n, self._policy.to_bytes())
            locked.keep_checkpoint(newest)
        self._kept, self._size, self._since = newest.n, len(newest.content), 0

    def _undo(self) -> None:
        """Forget a call that was cut short; the policy that it has torn is read from the store again."""
        events, answers, rewards = self._before
        del self._events[events:], self._rewards[rewards:]
        for id in list(self._answers)[answers:]:
            del self._answers[id]
        self._policy = None

    def _inside(self) -> LivePolicy:
        """Return the policy, as of now, to a call that is inside the door."""
        assert self._policy is not None
        self._before = (len(self._events), len(self._answers), len(self._rewards))
        return self._policy

    # Calls

    def decide(
        self,
        features: npt.ArrayLike | None = None,
        *,
        context: Any = ...,
        available: Iterable[str | int] | None = None,
        id: str | None = None,
        elapsed: int = 1,
    ) -> Decision:
        """Choose an arm for this round, as the policy does.

        The same call with the same id returns the same decision, from any process and however long ago it was made.
        """
        if available is not None and not isinstance(available, str):
            available = list(available)
        request = request_of(features, context, available, elapsed) if isinstance(id, str) else ""
        with self._door:
            policy = self._inside()
            known = self._known(id) if isinstance(id, str) else None
            if known is not None:
                return self._same(known, request)
            decision = policy.decide(features, context=context, available=available, id=id, elapsed=elapsed)
            memory = policy.parts.pending.entries[decision.id].memory.tobytes()
            answer = _Answered(request, decision.to_json(), decision.arm, decision.round, memory)
            n = self._row.n + len(self._events)
            self._answers[decision.id] = Answer(decision.id, n, _ENCODER.encode(answer), None)
            return decision

    def _known(self, id: str) -> Answer | None:
        assert self._locked is not None
        return self._answers.get(id) or self._locked.answer(id)

    def _same(self, known: Answer, request: str) -> Decision:
        answer = _DECODER.decode(known.content)
        if answer.request != request:
            raise InvalidInputError(
                f"id: {known.id!r} was used before, for another call of decide; an id names one decision, so use a "
                f"new one"
            )
        return Decision.from_json(answer.decision)

    def learn(self, decision: Decision | str, reward: float) -> None:
        """Learn the reward of an earlier decision, made by any process, given as the decision or as its id.

        The same reward again changes nothing; another one for the same decision is refused.
        """
        self.learn_many([decision], [reward])

    def learn_many(self, decisions: Iterable[Decision | str], rewards: npt.ArrayLike) -> None:
        """Learn the rewards of several earlier decisions, in this order: all or, if one is refused, none."""
        decisions = list(decisions)
        values = _checks.measured("rewards", rewards, (len(decisions),)).tolist()
        with self._door:
            policy = self._inside()
            new = [
                (each, value)
                for each, value in zip(decisions, values, strict=True)
                if not self._is_learned(policy, each, value)
            ]
            for each, _ in new:
                self._recall(policy, each)
            before = len(self._events)
            policy.learn_many([each for each, _ in new], [value for _, value in new])
            learned = self._events[before:]
            self._rewards.extend((event.id, event.reward) for event in learned if isinstance(event, Rewarded))

    def _is_learned(self, policy: LivePolicy, decision: Decision | str, reward: float) -> bool:
        """Return whether this very reward was learned already; refuse another one."""
        id = decision.id if isinstance(decision, Decision) else decision
        if not isinstance(id, str) or policy.parts.pending.waits(id):
            return False
        known = self._known(id)
        if known is None or known.reward is None:
            return False
        if known.reward != reward:
            raise UnknownDecisionError(
                f"decision: the reward of {id!r} has been learned already, and was {known.reward:g}; a reward cannot "
                f"be changed",
                "different",
            )
        return True

    def _recall(self, policy: LivePolicy, decision: Decision | str) -> None:
        """Have a decision wait again that the policy has dropped, because too many waited."""
        id = decision.id if isinstance(decision, Decision) else decision
        if not isinstance(id, str) or policy.parts.pending.waits(id) or policy.default_reward is not None:
            return
        known = self._known(id)
        if known is not None and known.n <= self._row.n:
            answer = _DECODER.decode(known.content)
            memory = np.frombuffer(answer.memory)
            policy.follow(Recalled(id=id, round=answer.round, arm=answer.arm, memory=memory))

    def events(self, listener: Callable[[Event], object] | None) -> None:
        """Call `listener` with every event from now on, of any process, in order, after its commit. None removes it.

        Events of other processes are heard of at the next call of this one.
        """
        if listener is not None and not callable(listener):
            raise InvalidInputError(f"listener: expected a function, or None, got {listener!r:.60}")
        with self._door:
            self._listener, self._told = listener, self._row.n

    def _tell(self, n: int, event: Event) -> None:
        """Call the listener, once for each event, however often the policy is read from the store."""
        if self._listener is None or n <= self._told:
            return
        self._told = n
        try:
            self._listener(event)
        except Exception:
            _LOG.exception("a listener of events failed with %s", type(event).__name__)

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
