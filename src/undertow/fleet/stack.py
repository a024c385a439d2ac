"""The buckets of a fleet: the bucket of a key, and the work of a batch in each."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError, OutOfTurnError, UnknownDecisionError
from undertow.fleet import events
from undertow.fleet.bucket import Bucket, Data, Outcome
from undertow.fleet.export import require_same, waiting_in
from undertow.fleet.found import Found
from undertow.fleet.keys import Integers, Keys, decoded
from undertow.fleet.template import Template
from undertow.live import LivePolicy
from undertow.live.events import Event, KeysNamed, ManyDecided, ManyExpired, ManyObserved, ManyRewarded, OnePlaced
from undertow.policies import from_bytes
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["Stack"]

_MOST = 2**15  # buckets
_FEW = 1000  # rows that one thread finishes before another one starts
_WHY = {
    "unknown": "is not pending: its reward was learned already, forgotten, or the decision was never made",
    "late": "is too old: only the last {most} rounds of a key can still be learned",
}
Part = tuple[int, Integers, Integers]  # a bucket, its rows of the data, and their slots


class Stack:
    """Buckets of states; calls are checked in all of them before they change any."""

    def __init__(self, template: Template, buckets: int, threads: int) -> None:
        count = checks.integer("buckets", buckets, least=1)
        if count > _MOST:
            raise InvalidInputError(f"buckets: expected at most {_MOST}, got {count}")
        self.template, self.threads = template, checks.thread_count(threads)
        self.buckets = [Bucket(template, number) for number in range(count)]
        self.listener: Callable[[int, Event], object] | None = None  # called with a bucket and what has happened to it
        self._play: Any = None
        self._pool: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return sum(bucket.count for bucket in self.buckets)

    def split(self, keys: Keys) -> Iterator[tuple[int, Integers]]:
        """Yield each bucket of some keys, with their rows in order."""
        if len(self.buckets) == 1 or len(keys) == 1:
            number = int(keys.hashes[0] % np.uint64(len(self.buckets))) if len(keys) else 0
            yield number, np.arange(len(keys))
            return
        numbers = (keys.hashes % np.uint64(len(self.buckets))).astype(np.uint16)
        order = np.argsort(numbers, kind="stable")
        ends = np.cumsum(np.bincount(numbers, minlength=len(self.buckets)))
        for number in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
            yield number, order[ends[number - 1] if number else 0 : ends[number]]

    def one(self, key: Keys) -> tuple[int, Bucket, int]:
        """Return the number of a key's bucket, the bucket, and the key's slot, −1 if it is new."""
        ((number, rows),) = self.split(key)
        bucket = self.buckets[number]
        return number, bucket, int(bucket.find(key, rows)[0])

    def turned(self, given: Keys, call: Literal["decide", "observe"], *, both: bool = False) -> list[Part]:
        """Return rows and slots of each bucket, with room for new keys; refuse a key that is due for the other call.

        With `both`, the other call comes in the same batch.
        """
        due, parts, before = int(call == "observe"), list[Part](), dict[int, int]()
        after = due if both else 1 - due
        for number, rows in self.split(given):
            bucket = self.buckets[number]
            before[number] = bucket.count
            slots = bucket.add(given, rows)
            parts.append((number, rows, slots))
            wrong = bucket.turn(slots, due, after) if self.template.m else len(rows)
            if wrong < len(rows):
                for each, count in before.items():
                    self.buckets[each].forget_last(count)
                key = decoded(given)[rows[wrong]].item()
                raise self._out_of_turn(key, call, alone=len(given) == 1)
        return parts

    def _out_of_turn(self, key: Any, call: str, *, alone: bool) -> OutOfTurnError:
        wanted, which = ("context", "observe_many") if call == "decide" else ("decision", "decide_many")
        which = which.removesuffix("_many") if alone else which
        return OutOfTurnError(f"{call}: key {key!r} has its {wanted} due first; call {which} for it")

    def renew(self) -> None:
        """Renew threads and random numbers in a forked process."""
        self._pool = None
        for bucket in self.buckets:
            bucket.draw_anew()

    def write(self, path: str, values: FloatArray | None = None, **named: float) -> None:
        """Write a part of all present and future states: an array, or numbers of a record by name."""
        if values is not None:
            for part in self._parts(path):
                part[...] = values
        for name, value in named.items():
            place = self.template.layout.names(path).index(name)
            for part in self._parts(path):
                part[..., place] = value

    def add(self, path: str, values: FloatArray) -> None:
        """Add to a part of all states."""
        _, *parts = self._parts(path)
        for part in parts:
            part += values

    def _parts(self, path: str) -> list[FloatArray]:
        """Return a part of the fresh state, and of all states of each bucket."""
        place = self.template.layout.place(path, **self.template.sizes)
        return [self.template.fresh[place], *(bucket.states[: bucket.count, place] for bucket in self.buckets)]

    # What happens to keys; all is checked before anything changes

    def decide(self, given: Keys, data: Data, life: int, *, observed: bool, exact: bool = False) -> Outcome:
        """Decide a round of each key.

        With `observed`, contexts come with the decisions; with `exact`, there is one, and its probability is computed.
        """
        parts = self.turned(given, "observe", both=True) if observed else self.turned(given, "decide")
        outcome, play = Outcome.of(len(given), self.template.k), self._loop()
        self._each(lambda part: self.buckets[part[0]].decide(play, *part[1:], data, life, outcome), parts, len(given))
        if self.template.draws_arms:
            outcome.chances[:] = self._probability(parts[0], int(outcome.arms[0])) if exact else np.nan
        self._tell(parts, lambda rows: events.decided(given, rows, data, life, outcome))
        return outcome

    def _probability(self, part: Part, arm: int) -> float:
        number, _, (slot,) = part
        bucket = self.buckets[number]
        return float(bucket.policy.parts.chance_of(bucket.states[slot], arm))

    def learn(self, found: Found, rewards: FloatArray, *, refuse: bool) -> npt.NDArray[np.bool_]:
        """Learn the rewards of pending decisions; return which were learned, or refuse all."""
        learned, play = np.zeros(len(rewards), dtype=np.bool_), self._loop()
        parts = [self.waiting(part, found, refuse) for part in self.split(found.keys)]
        parts = [(number, rows[entries >= 0], entries[entries >= 0]) for number, rows, entries in parts]
        for _, rows, _ in parts:
            learned[rows] = True

        def learn(part: Part) -> None:
            number, rows, entries = part
            self.buckets[number].learn(play, entries, rewards[rows])

        self._each(learn, parts, len(rewards))
        self._tell(parts, lambda rows: events.rewarded(found, rows, rewards))
        return learned

    def observe(self, given: Keys, contexts: FloatArray) -> None:
        """Observe a context of each key."""
        parts, play = self.turned(given, "observe"), self._loop()
        self._each(lambda part: self.buckets[part[0]].observe(play, *part[1:], contexts), parts, len(given))
        self._tell(parts, lambda rows: events.observed(given, rows, contexts))

    def expire(self, given: Keys) -> int:
        """Drop keys and their pending decisions; return how many existed."""
        parts, gone = list[Part](), 0
        for number, rows in self.split(given):
            bucket = self.buckets[number]
            slots = bucket.find(given, rows)
            rows, slots = rows[slots >= 0], slots[slots >= 0]
            kept = np.ones(bucket.count, dtype=np.bool_)
            kept[slots] = False
            gone += int((~kept).sum())
            bucket.keep(kept)
            parts.append((number, rows, slots))
        self._tell(parts, lambda rows: events.expired(given, rows))
        return gone

    def place(self, given: Keys, policy: LivePolicy, life: int) -> None:
        """Set the bandit of a key to a policy, with its pending decisions."""
        require_same(self.template.policy, policy)
        policy.parts.settle()
        number, bucket, _ = self.one(given)
        rows = np.array([0])
        slots = bucket.add(given, rows)
        player, _, _, turns, *_ = policy.parts
        bucket.put(int(slots[0]), player.state, turns.due == "observe", waiting_in(policy, int(slots[0]), life))
        columns = events.columns_of(given, rows)
        self._tell([(number, rows, slots)], lambda _: OnePlaced(**columns, life=life, policy=policy.to_bytes()))

    def follow(self, event: Event) -> None:
        """Have something that has happened to another fleet happen to this one, too; arms are those of the event."""
        if isinstance(event, KeysNamed):
            return
        if not isinstance(event, ManyDecided | ManyRewarded | ManyObserved | ManyExpired | OnePlaced):
            raise InvalidInputError(f"event: expected one of a fleet, got {event!r:.60}")
        keys = events.keys_in(event)
        match event:
            case ManyDecided():
                data = events.data_in(event, self.template, len(keys))
                self.decide(keys, data, event.life, observed=bool(event.contexts))
            case ManyRewarded():
                self.learn(*events.rewards_in(event, keys), refuse=True)
            case ManyObserved():
                self.observe(keys, events.contexts_in(event, self.template, len(keys)))
            case ManyExpired():
                self.expire(keys)
            case OnePlaced():
                self.place(keys, from_bytes(event.policy), event.life)

    def _tell(self, parts: list[Part], event: Callable[[Integers], Event]) -> None:
        """Call the listener with what has happened to some rows, bucket by bucket."""
        if self.listener is not None:
            for number, rows, _ in parts:
                if len(rows):
                    self.listener(number, event(rows))

    def waiting(self, part: tuple[int, Integers], found: Found, refuse: bool) -> Part:
        """Return the pending decisions of a bucket, −1 for those that can no longer be learned."""
        number, rows = part
        bucket, most = self.buckets[number], self.template.max_delay
        entries = bucket.entries(bucket.find(found.keys, rows), found.rounds[rows], found.lives[rows])
        late = np.zeros(len(rows), dtype=np.bool_)
        if most is not None:
            late[entries >= 0] = bucket.ages(entries[entries >= 0]) > most
            entries[late] = -1
        if refuse and (entries < 0).any():
            row = int(np.argmax(entries < 0))
            reason = "late" if late[row] else "unknown"
            key, t = decoded(found.keys)[rows[row]].item(), found.rounds[rows[row]]
            raise UnknownDecisionError(
                f"decisions: round {t} of key {key!r} {_WHY[reason].format(most=most)}; missing='skip' skips "
                f"such rewards",
                reason,
            )
        return number, rows, entries

    def _loop(self) -> Any:
        """Return the address of the policy's loop."""
        if self._play is None:
            self._play = self.template.address()
        return self._play

    def _each(self, work: Callable[[Part], None], parts: list[Part], rows: int) -> None:
        """Run a function on each bucket, on several threads if there is much work."""
        if self.threads == 1 or len(parts) == 1 or rows < _FEW:
            for part in parts:
                work(part)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, "undertow-fleet")
        list(self._pool.map(work, parts))
