"""One bucket of a fleet: its keys, their states in one matrix, and their pending decisions."""

import secrets
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.fleet.keys import Integers, Keys, KeyTable, enlarge
from undertow.fleet.stacked import (
    ARM,
    BOOK,
    COUNT,
    DUE,
    LIFE,
    NEWEST,
    OLDER,
    OLDEST,
    ROUND,
    SLOT,
    WAITING,
    Book,
    decide_rows,
    find_waiting,
    learn_rows,
    link_rows,
    observe_rows,
    play_rows,
    turn_rows,
)
from undertow.fleet.template import Template
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["Bucket", "Data", "Outcome", "Waiting"]


_ANY: Integers = np.empty(0, dtype=np.int64)
_ANY.setflags(write=False)


class Data(NamedTuple):
    """Inputs of a batch of decisions, in the policy's units; each has a row per decision, or none."""

    contexts: FloatArray  # (n, m)
    features: FloatArray  # (n, q) or (n, k q)
    closed: FloatArray  # (n, k)
    wanted: Integers = _ANY  # (n,) arms that were played, if these decisions were made before


class Outcome(NamedTuple):
    """Outcomes of a batch of decisions, a row each: arms, rounds, probabilities, forecasts, widths."""

    arms: Integers
    rounds: Integers
    chances: FloatArray
    forecasts: FloatArray
    widths: FloatArray

    @classmethod
    def of(cls, n: int, k: int) -> "Outcome":
        """Return room for the answers of n decisions."""
        whole, some = (np.empty(n, dtype=np.int64) for _ in range(2))
        return cls(whole, some, np.empty(n), np.empty((n, k)), np.empty((n, k)))


class Waiting(NamedTuple):
    """Pending decisions as columns: row of the key, round, arm, life, and the numbers for learning the reward.

    A life is a random number, with which the ids of decisions begin; no other process has it.
    """

    slots: Integers
    rounds: Integers
    arms: Integers
    lives: Integers
    memories: FloatArray

    def take(self, rows: Any) -> "Waiting":
        """Return some of them."""
        slots, rounds, arms, lives, memories = self
        return Waiting(slots[rows], rounds[rows], arms[rows], lives[rows], memories[rows])


class Bucket:
    """States of many keys, one row each; rows keep their places until keys are dropped."""

    def __init__(self, template: Template, number: int) -> None:
        self.template = template
        self.policy = template.policy.parts.for_run(number)  # with the bucket's random stream
        self.keys = KeyTable()
        self.states = np.empty((0, len(template.fresh)))
        self.book: Book = np.empty((0, BOOK), dtype=np.int32)
        self.waiting, self.memories = np.empty((0, WAITING), dtype=np.int64), np.empty((0, template.p))
        self.spare = np.array([-1, 0])  # first of the free rows, and their number
        self.count = 0  # of keys
        self.decided = 0  # number of decisions
        width = template.draws + template.m + template.k + template.k * template.q
        self._row, self._out = np.zeros(width), np.zeros((1, 1 + 3 * template.k))

    @property
    def nbytes(self) -> int:
        """Bytes of states, keys and pending decisions."""
        parts = (self.states, self.book, self.waiting, self.memories)
        return self.keys.nbytes + sum(part.nbytes for part in parts)

    @property
    def pending(self) -> int:
        """Number of pending decisions."""
        return int(self.book[: self.count, COUNT].sum())

    # Keys

    def find(self, keys: Keys, rows: Integers) -> Integers:
        """Return the slots of keys; −1 for an unknown one."""
        return self.keys.find(keys, rows)

    def add(self, keys: Keys, rows: Integers) -> Integers:
        """Return the slots of keys; new ones begin with the fresh state."""
        slots, before = self.keys.find(keys, rows), self.count
        if self.keys.add(keys, rows, slots):
            self.count = self.keys.count
            enlarge(self.states, self.count)
            enlarge(self.book, self.count)
            self.states[before : self.count] = self.template.fresh
            self.book[before : self.count] = self.template.due, -1, -1, 0
        return slots

    def forget_last(self, count: int) -> None:
        """Drop the last, new keys, until `count` are left."""
        self.keys.keep_first(count)
        self.count = count

    def turn(self, slots: Integers, due: int, after: int) -> int:
        """Return the first row whose key has another call due, one row after the other; their number if none has."""
        return int(turn_rows(self.book, slots, due, after))

    # Calls, with checked arguments

    def decide(self, play: Any, rows: Integers, slots: Integers, data: Data, life: int, outcome: Outcome) -> None:
        """Decide a round of each key."""
        template = self.template
        self._make_room(len(rows))
        draws = self.policy.parts.draw_rounds(len(rows)) if template.draws else np.empty((len(rows), 0))
        limits = template.most, template.wait, template.default
        places = self.waiting, self.memories, self.spare
        scratch: Any = (self._row, self._out, *outcome)
        decide_rows(play, self.states, self.book, rows, slots, draws, *data, *places, life, *limits, *scratch)
        self.decided += len(rows)

    def play(
        self,
        play: Any,
        rows: Integers,
        slots: Integers,
        data: Data,
        rewards: FloatArray,
        outcome: Outcome,
        *,
        full: bool,
    ) -> int:
        """Apply events; return the first row whose reward cannot be learned, or their number."""
        template = self.template
        decisions = int((outcome.rounds[rows] < 0).sum())
        self._make_room(decisions)
        draws = self.policy.parts.draw_rounds(decisions) if template.draws else np.empty((decisions, 0))
        oldest = 2**53 if template.max_delay is None else template.max_delay
        given: Any = (draws, data.contexts, data.features, rewards, full, template.context_first, oldest)
        places: Any = (self.waiting, self.memories, self.spare, 0, template.most, template.wait, template.default)
        scratch: Any = (self._row, self._out, outcome.arms, outcome.rounds, outcome.chances)
        refused = int(play_rows(play, self.states, self.book, rows, slots, *given, *places, *scratch))
        self.decided += decisions
        return refused

    def entries(self, slots: Integers, rounds: Integers, lives: Integers) -> Integers:
        """Return the pending decisions of keys in rounds; −1 for one that is not pending, or repeated."""
        found = np.empty(len(slots), dtype=np.int64)
        find_waiting(self.book, self.waiting, slots, rounds, lives, found)
        return found

    def lives(self, entries: Integers) -> Integers:
        """Return the id prefixes of pending decisions."""
        return np.asarray(self.waiting[entries, LIFE])

    def ages(self, entries: Integers) -> Integers:
        """Return the ages of decisions in rounds."""
        return np.asarray(self.rounds(self.waiting[entries, SLOT]) - 1 - self.waiting[entries, ROUND])

    def all_rounds(self) -> Integers:
        """Return the number of rounds of each key."""
        return self.rounds(np.arange(self.count))

    def rounds(self, slots: Integers) -> Integers:
        """Return the numbers of rounds of some keys."""
        return np.asarray(self.states[slots, self.template.rounds_at].astype(np.int64))

    def learn(self, play: Any, entries: Integers, rewards: FloatArray) -> None:
        """Learn the rewards of pending decisions."""
        before = self.template.draws + self.template.m
        places = self.waiting, self.memories, self.spare
        learn_rows(play, self.states, self.book, entries, rewards, *places, before, self._row, self._out)

    def observe(self, play: Any, rows: Integers, slots: Integers, contexts: FloatArray) -> None:
        """Observe a context of each key."""
        first, k = self.template.draws, self.template.k
        observe_rows(play, self.states, self.book, rows, slots, contexts, first, k, self._row, self._out)

    def _make_room(self, decisions: int) -> None:
        """Make room for more pending decisions."""
        before = len(self.waiting)
        if decisions > self.spare[1]:
            enlarge(self.waiting, before + decisions)
            self.memories.resize((len(self.waiting), self.template.p), refcheck=False)
            new = np.arange(before, len(self.waiting))
            self.waiting[new, SLOT] = -1
            self.waiting[new, OLDER] = np.append(new[1:], self.spare[0])
            self.spare[:] = before, self.spare[1] + len(new)

    # All of it, for save files and exports

    def waiting_of(self, slots: Integers | None = None) -> Waiting:
        """Return the pending decisions, of some keys or of all, each key's oldest first."""
        used = np.flatnonzero(self.waiting[:, SLOT] >= 0)
        if slots is not None:
            used = used[np.isin(self.waiting[used, SLOT], slots)]
        used = used[np.lexsort((self.waiting[used, ROUND], self.waiting[used, SLOT]))]
        slots, rounds, arms, lives = (self.waiting[used, column] for column in (SLOT, ROUND, ARM, LIFE))
        return Waiting(slots, rounds, arms, lives, self.memories[used])

    def put_waiting(self, waiting: Waiting) -> None:
        """Add pending decisions, each key's oldest first."""
        self._make_room(len(waiting.slots))
        link_rows(self.book, self.waiting, self.spare, *waiting[:4], checks.readonly(waiting.memories), self.memories)

    def put(self, slot: int, state: FloatArray, due: bool, waiting: Waiting) -> None:
        """Set the state and the pending decisions of a key."""
        kept = self.waiting_of()
        self.reset_waiting(kept.take(kept.slots != slot))
        self.states[slot], self.book[slot, DUE] = state, due
        self.put_waiting(waiting)

    def draw_anew(self) -> None:
        """Reseed in a forked process, if no seed was given."""
        streams = self.policy.parts.streams
        if not streams.seeded:
            streams.reseed(secrets.randbits(128), self.decided)

    def reset_waiting(self, waiting: Waiting) -> None:
        """Set the pending decisions."""
        self.waiting, self.memories = np.empty((0, WAITING), dtype=np.int64), np.empty((0, self.template.p))
        self.spare[:] = -1, 0
        self.book[: self.count, NEWEST] = self.book[: self.count, OLDEST] = -1
        self.book[: self.count, COUNT] = 0
        self.put_waiting(waiting)

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Drop all keys but those marked."""
        waiting, place = self.waiting_of(), np.cumsum(kept) - 1
        waiting = waiting.take(kept[waiting.slots])
        self.keys.keep(np.flatnonzero(kept))
        self.states, self.book = self.states[: self.count][kept], self.book[: self.count][kept]
        self.count = len(self.states)
        self.reset_waiting(waiting._replace(slots=place[waiting.slots]))

    def fill(self, states: FloatArray, dues: Integers, waiting: Waiting) -> None:
        """Set all keys, their states and pending decisions."""
        self.states[: self.count], self.book[: self.count, DUE] = states, dues
        self.put_waiting(waiting)

    def stream(self) -> dict[str, Any]:
        """Return the state of the bucket's random numbers for a save file."""
        header: dict[str, Any] = self.policy.parts.streams.header()
        return header

    def restore_stream(self, header: dict[str, Any], decided: int) -> None:
        """Continue the bucket's random numbers after some decisions."""
        self.decided = decided
        self.policy.parts.streams.restore(header, decided)

    def dues(self) -> npt.NDArray[np.int32]:
        """Return for every key whether its context is due, and not its decision."""
        return self.book[: self.count, DUE]

    def due(self, slot: int) -> bool:
        """Return whether the context of a key is due, and not its decision."""
        return bool(self.book[slot, DUE])
