"""A fleet in a store: a bucket is a bandit, so that only workers in the same bucket wait for one another.

The fleet is a bandit, too. It has the template and the initial state of buckets, and its only event has the type of the
keys. A call locks the buckets of its keys in the order of their numbers, applies the events of others, adds its own,
and commits one event for each, all in one transaction.
"""

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import EllipsisType
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow.errors import StoreBusyError, StoreError, UndertowError, UnknownDecisionError
from undertow.fleet import Decisions, Fleet
from undertow.fleet.bucket import Data
from undertow.fleet.calls import Calls
from undertow.fleet.data import checked_data
from undertow.fleet.decisions import new_life
from undertow.fleet.files import policy_of, written
from undertow.fleet.found import Found
from undertow.fleet.keys import Integers, Keys, bucket_numbers, decoded
from undertow.live import Decision
from undertow.live.events import Event, KeysNamed, ManyDecided, ManyRewarded, decode, encode
from undertow.live.files import archived, snapshot, unarchived
from undertow.store.base import Answer, Locked, Row, Store, bucket_name
from undertow.store.fleet_answers import answer_to, digest_of, joined, learned_rewards, require_id, rewards_of
from undertow.store.replica import Replica
from undertow.support.checks import FloatArray

__all__ = ["FLEET", "DurableFleet", "buckets_of", "fleet_spec", "is_fleet", "named_keys"]

FLEET = "fleet"  # in place of a policy's name
_TRIES = 3


def fleet_spec(fleet: Fleet) -> bytes:
    """Return the spec of a fleet, which is stored for all versions; it must be the same in every process."""
    header, _ = snapshot(fleet.policy)
    own = {"template": header["policy"], "buckets": fleet.buckets}
    return json.dumps({"policy": FLEET, "parameters": own | header["parameters"]}, sort_keys=True).encode()


def is_fleet(store: Store, name: str) -> bool:
    """Return whether a bandit is a fleet."""
    return bool(json.loads(store.spec(name) or b"{}").get("policy") == FLEET)


def buckets_of(store: Store, name: str) -> list[str]:
    """Return the names of a fleet's buckets that have been used."""
    count = json.loads(store.spec(name) or b"")["parameters"]["buckets"]
    return [each for each in (bucket_name(name, n) for n in range(count)) if store.spec(each) is not None]


def named_keys(fleet: Fleet) -> list[Row]:
    """Return the event with the type of the keys, if there are any."""
    keys = fleet.keys()
    return [] if not len(keys) else [_named(whole=keys.dtype.kind == "i")]


def _named(*, whole: bool) -> Row:
    return Row(1, os.urandom(8), time.time(), encode(KeysNamed(whole=whole)))


def _is_whole(row: Row) -> bool:
    event = decode(row.body)
    assert isinstance(event, KeysNamed)
    return event.whole


class _BucketReplica(Replica):
    """A bucket in this process; the calls of `fleet` change it."""

    def __init__(self, fleet: "DurableFleet", store: Store, name: str, number: int) -> None:
        super().__init__(store, bucket_name(name, number), lambda *_: False)
        self._fleet, self._number = fleet, number

    def load(self, timeout: float) -> None:
        """Read the bucket from its newest checkpoint and the events since, and create it if there is none yet."""
        if self._policy is None:
            self._fleet.create(self._number)
        super().load(timeout)

    @property
    def there(self) -> bool:
        """Whether the bucket has been created."""
        return self._policy is not None or self._fleet.began or self._store.spec(self._name) is not None

    def _adopt(self, policy: Any) -> None:
        self._fleet.parts.buckets[self._number] = policy.parts.buckets[0]


class _Turn:
    """A call of a fleet in its transaction: the locked buckets, and the stored part of its answers."""

    def __init__(self, locked: dict[int, Locked]) -> None:
        self.life, self.locked = new_life(), locked
        self.answers: dict[int, list[Answer]] = {number: [] for number in locked}
        self.rows: dict[int, list[Row]] = {}  # that were written


class DurableFleet(Calls):
    """The fleet of a store; `undertow.open` returns it.

    It has the calls of `Fleet`. Unlike there, every call may raise `StoreBusyError` or `StoreUnavailableError`. With an
    `id`, a repeated call returns the same decisions, and a repeated reward changes nothing.
    """

    def __init__(self, store: Store, name: str, timeout: float, threads: int = 1) -> None:
        with store.lock(name, timeout) as locked:
            header, arrays = unarchived(locked.checkpoint(0).content)
        super().__init__(policy_of(header, arrays), header["buckets"], threads)
        self.began = len(arrays["ends"]) > 0  # with keys, of which a bucket may hold some before it is created
        self._store, self._name, self._timeout = store, name, timeout
        self._begin()

    def _begin(self) -> None:
        """Drop the buckets of a fleet, in a forked process."""
        self._pid = os.getpid()
        self._locks = [threading.Lock() for _ in self._stack.buckets]
        self._replicas = [_BucketReplica(self, self._store, self._name, n) for n in range(self.buckets)]
        self._stack.listener = self._hear

    def __repr__(self) -> str:
        return f"<fleet {self._name!r} in {self._store!r}>"

    def _hear(self, number: int, event: Event) -> None:
        self._replicas[number].events.append(event)

    def create(self, number: int) -> None:
        """Create the bandit of a bucket with its initial state, unless it exists."""
        name = bucket_name(self._name, number)
        if self._store.spec(name) is None:
            with self._store.lock(self._name, self._timeout) as locked:
                first = Fleet.from_bytes(locked.checkpoint(0).content)
            content = archived(*written(self._template, [first.parts.buckets[number]]))
            self._store.create(name, b'{"policy": "bucket of a fleet"}', content)

    # Transactions

    @contextmanager
    def _inside(self, keys: Keys | None = None, *, new: bool = False) -> Iterator[int]:
        with self._turn(keys, new=new) as turn:
            yield turn.life

    @contextmanager
    def _turn(self, keys: Keys | None, *, new: bool = False) -> Iterator[_Turn]:
        """Lock the buckets of some keys, or all, and apply the events of others; commit at the end.

        A call that is refused has changed nothing. After any other exception the buckets are read from the store again.
        """
        if self._pid != os.getpid():
            self._begin()
        numbers = range(self.buckets) if keys is None else np.unique(bucket_numbers(keys, self.buckets)).tolist()
        if new and keys is not None and len(keys):
            self._name_keys(whole=keys.whole)
        else:
            numbers = [number for number in numbers if self._replicas[number].there]
        if not numbers:
            yield _Turn({})
            return
        with self._alone_in(numbers):
            for _ in range(_TRIES):
                refusal, touched = None, False
                for number in numbers:
                    self._replicas[number].load(self._timeout)
                try:
                    with self._locked(numbers) as locked:
                        touched = True
                        if not all(self._replicas[number].catch_up(each) for number, each in locked.items()):
                            continue
                        turn = _Turn(locked)
                        try:
                            yield turn
                        except UndertowError as error:
                            if isinstance(error, StoreError):
                                raise
                            refusal = error
                        else:
                            self._write(turn)
                    self._committed(turn)
                except BaseException as error:
                    if touched or not isinstance(error, StoreBusyError):
                        for number in numbers:
                            self._replicas[number].drop()
                    raise
                if refusal is not None:
                    raise refusal
                return
        raise StoreError(f"store: the events of {self._name!r} were replaced {_TRIES} times; the call did not happen")

    @contextmanager
    def _alone_in(self, numbers: Sequence[int]) -> Iterator[None]:
        """Lock some buckets against other threads of this process."""
        with ExitStack() as held:
            until = time.monotonic() + self._timeout
            for number in numbers:
                if not self._locks[number].acquire(timeout=max(until - time.monotonic(), 0.0)):
                    raise StoreBusyError(
                        f"store: other threads of this process were inside for {self._timeout:g} s; the call did not "
                        f"happen"
                    )
                held.callback(self._locks[number].release)
            yield

    @contextmanager
    def _locked(self, numbers: Sequence[int]) -> Iterator[dict[int, Locked]]:
        """Lock some buckets in one transaction; in the order of their numbers, which excludes deadlocks."""
        with self._store.lock(bucket_name(self._name, numbers[0]), self._timeout) as first:
            more = {number: first.also(bucket_name(self._name, number)) for number in numbers[1:]}
            yield {numbers[0]: first} | more

    def _write(self, turn: _Turn) -> None:
        """Append the events of a call."""
        now, mark, kept = time.time(), turn.life.to_bytes(8, "little"), False
        for number, locked in turn.locked.items():
            replica = self._replicas[number]
            numbered = enumerate(replica.events, replica.row.n + 1)
            rows = turn.rows[number] = [Row(n, mark, now, encode(event)) for n, event in numbered]
            if not rows:
                continue
            locked.append(rows)
            locked.keep_answers(turn.answers[number])
            decided, learned = (
                now if any(isinstance(event, kind) for event in replica.events) else None
                for kind in (ManyDecided, ManyRewarded)
            )
            if decided or learned:
                locked.keep_times(decided, learned)
            kept = replica.keep_checkpoint(locked, rows, may=not kept) or kept  # one, so that no call waits for many

    def _committed(self, turn: _Turn) -> None:
        for number, rows in turn.rows.items():
            self._replicas[number].committed(rows)

    # The type of the keys

    def _are_integers(self) -> bool | None:
        if self._whole is None:
            for row in self._store.events(self._name, 0, 1):
                self._whole = _is_whole(row)
        return self._whole

    def _name_keys(self, *, whole: bool) -> None:
        """Fix the type of the fleet's keys by the first ones; refuse other types."""
        if self._are_integers() is None:
            with self._store.lock(self._name, self._timeout) as locked:
                rows = locked.read(1)
                if not rows:
                    rows = [_named(whole=whole)]
                    locked.append(rows)
            self._whole = _is_whole(rows[0])
        self._require_kind(whole=whole)

    # Calls

    def decide(
        self,
        key: str | int,
        features: npt.ArrayLike | None = None,
        *,
        context: npt.ArrayLike | EllipsisType | None = ...,
        available: Any = None,
        id: str | None = None,
    ) -> Decision:
        """Choose an arm for a key's next round, as `Fleet.decide`; with an `id`, as `decide_many`."""
        return self._decide_one(key, features, context, available, id=id)

    def decide_many(
        self,
        keys: Any,
        features: npt.ArrayLike | None = None,
        *,
        contexts: npt.ArrayLike | None = None,
        available: npt.ArrayLike | None = None,
        id: str | None = None,
    ) -> Decisions:
        """Choose an arm for the next round of each key, as `Fleet.decide_many`.

        A repeated call with the same `id` returns the same decisions, from any process and at any time.
        """
        given = self._encoded(keys, new=True)
        data = checked_data(self._template, len(given), features, contexts, available)
        return self._decide(given, data, observed=contexts is not None, id=id)

    def _decide(
        self, given: Keys, data: Data, *, observed: bool, exact: bool = False, id: str | None = None
    ) -> Decisions:
        if id is None:
            return super()._decide(given, data, observed=observed, exact=exact)
        require_id(id)
        request = digest_of(given, data)
        with self._turn(given, new=True) as turn:
            parts = list(self._stack.split(given))
            known = joined(id, request, [(rows, turn.locked[number]) for number, rows in parts], given, self.names)
            if known is not None:
                return known
            decisions = self._decided(given, data, turn.life, observed=observed, exact=exact)
            for number, rows in parts:
                answer = answer_to(id, self._newest(number), request, turn.life, decisions.outcome, rows)
                turn.answers[number].append(answer)
            return decisions

    def _newest(self, number: int) -> int:
        """Return the number of the newest event of a bucket, committed or not."""
        replica = self._replicas[number]
        return replica.row.n + len(replica.events)

    def _learn(self, found: Found, rewards: FloatArray, *, refuse: bool) -> npt.NDArray[np.bool_]:
        with self._turn(found.keys) as turn:
            lives = self._lives(found)
            new = self._new(turn, found, rewards, lives) if refuse else np.ones(len(rewards), dtype=np.bool_)
            learned = np.zeros(len(rewards), dtype=np.bool_)
            learned[new] = self._stack.learn(found.take(np.flatnonzero(new)), self._inward(rewards[new]), refuse=refuse)
            for number, rows in self._stack.split(found.keys):
                if number in turn.locked:
                    some = rows[learned[rows]]
                    turn.answers[number] += rewards_of(self._newest(number), found, some, lives, rewards)
            return learned

    def _lives(self, found: Found) -> Integers:
        """Return the id prefixes of pending decisions; −1 for those that are not pending."""
        lives = np.full(len(found.rounds), -1)
        for number, rows in self._stack.split(found.keys):
            _, _, entries = self._stack.waiting((number, rows), found, refuse=False)
            lives[rows[entries >= 0]] = self._stack.buckets[number].lives(entries[entries >= 0])
        return lives

    def _new(self, turn: _Turn, found: Found, rewards: FloatArray, lives: Integers) -> npt.NDArray[np.bool_]:
        """Return which rewards must be learned; refuse those that differ from the learned ones."""
        new = np.ones(len(rewards), dtype=np.bool_)
        gone = (lives < 0) & (found.lives >= 0)
        for number, rows in self._stack.split(found.keys) if gone.any() else ():
            if number not in turn.locked:
                continue
            for life in np.unique(found.lives[rows[gone[rows]]]).tolist():
                known = learned_rewards(turn.locked[number], life)
                pairs = zip(known["hash"].tolist(), known["round"].tolist(), strict=True)
                learned = dict(zip(pairs, known["reward"].tolist(), strict=True))
                for row in rows[gone[rows] & (found.lives[rows] == life)].tolist():
                    before = learned.get((int(found.keys.hashes[row]), int(found.rounds[row])))
                    if before is not None and before != rewards[row]:
                        raise UnknownDecisionError(
                            f"decisions: the reward of round {found.rounds[row]} of key "
                            f"{decoded(found.keys)[row].item()!r} has been learned already, and was {before:g}; a "
                            f"reward cannot be changed",
                            "repeated",
                        )
                    new[row] = before is None
        return new
