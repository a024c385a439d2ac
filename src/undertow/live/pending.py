"""The decisions that wait for their reward, and the ids that name them.

An id names one decision, for ever. Those that a policy makes begin with its *incarnation*, random letters that are
drawn anew whenever a policy comes into being: when it is made, loaded, copied or forked. So a reward never reaches a
decision that another policy, or an earlier life of this one, has made.
"""

import contextlib
import os
import secrets
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow._checks import FloatArray
from undertow.errors import InvalidInputError, UnknownDecisionError
from undertow.live.decision import Decision
from undertow.live.saved import Saved

__all__ = ["Pending", "Waiting"]

_LONGEST = 64  # characters of an id
_LATELY = 100  # rewards by which `health()` judges


class Waiting(NamedTuple):
    """A decision that waits for its reward: round, arm, what learning the reward will need, and its number."""

    round: int
    arm: int
    memory: FloatArray
    number: int


_LIVING: "weakref.WeakSet[Pending]" = weakref.WeakSet()
_tuple = tuple.__new__  # makes one that waits in half the time of its class, whose own __new__ is Python's


class Pending:
    """The decisions that wait for their reward, by id, in the order in which they were made.

    Decisions are also counted. At most `most` of them wait, and the oldest are forgotten first; of ids that callers
    gave, as many are remembered. `wait` is after how many rounds a decision gets the default reward, None for never.
    """

    def __init__(self, most: int, wait: int | None = None) -> None:
        self.most, self.wait = most, wait
        self.made = 0
        self.forgotten = -1  # number of the youngest decision that was dropped
        self.waiting: OrderedDict[str, Waiting] = OrderedDict()  # a dict looks for its first entry among deleted ones
        self.given: OrderedDict[str, None] = OrderedDict()
        self.refused: Counter[str] = Counter()  # rewards, by reason; not saved, nor put back
        self.lately: deque[bool] = deque(maxlen=_LATELY)  # whether each of the last rewards was refused
        self.reincarnate()

    def reincarnate(self) -> None:
        """Draw the letters with which new ids begin, for the process that runs."""
        _LIVING.add(self)
        self.incarnation = secrets.token_hex(8)
        self.forked = False  # whether this process was forked since; last: what was interrupted is done again

    def __setstate__(self, entries: dict[str, Any]) -> None:
        self.__dict__.update(entries)
        self.reincarnate()

    def checked(self, given: str) -> str:
        """Return an id that was given for the next decision; one of our own is the incarnation and its number."""
        if not _is_id(given):
            raise InvalidInputError(f"id: expected a printable text of 1 to {_LONGEST} characters, got {given!r:.80}")
        if given in self.waiting or given in self.given:
            raise InvalidInputError(f"id: {given!r} was given before, and an id names one decision; give a new one")
        if given.startswith(self.incarnation):
            raise InvalidInputError(f"id: {given!r} is of the kind that this policy makes by itself; give another one")
        return given

    def add(self, id: str, number: int, round: int, arm: int, memory: FloatArray, given: str | None) -> None:
        """Have a decision wait, whose id was given or is our own; a second time, it changes nothing."""
        self.made, waiting = number + 1, self.waiting
        waiting[id] = _tuple(Waiting, (round, arm, memory, number))
        if len(waiting) > self.most:
            oldest = next(iter(waiting))
            self.forgotten = waiting[oldest].number
            del waiting[oldest]
        if given is not None:
            self.given[id] = None
            if len(self.given) > self.most:
                del self.given[next(iter(self.given))]

    def find(self, decision: Decision | str, names: Sequence[str]) -> tuple[str, Waiting]:
        """Return the id of a decision, given as such or by its id, and what waits for its reward."""
        told = decision if isinstance(decision, Decision) else None
        id = decision if told is None else told.id
        if not isinstance(id, str):
            raise InvalidInputError(f"decision: expected a decision or its id, which is a text, got {id!r:.60}")
        waiting = self.waiting.get(id)
        if waiting is None:
            raise self._unknown(id)
        then, arm, _, _ = waiting
        if told is not None and (told.round != then or told.arm != arm or told.name != names[arm]):
            raise UnknownDecisionError(
                f"decision: {id!r} of this policy was arm {arm} ({names[arm]}) in round {then}, not arm "
                f"{told.arm} ({told.name}) in round {told.round}; give it as it was made",
                "different",
            )
        return id, waiting

    def refuse(self, error: Exception) -> None:
        """Count a reward that was refused; one that comes twice is no sign of trouble."""
        reason = getattr(error, "reason", "invalid")
        self.refused[reason] += 1
        if reason != "repeated":
            self.lately.append(True)

    def oldest(self, otherwise: int) -> int:
        """Return the round of the oldest decision that waits."""
        return next(iter(self.waiting.values())).round if self.waiting else otherwise

    def overdue(self, now: int) -> dict[str, Waiting]:
        """Return the decisions that get the default reward before round `now` is decided."""
        if self.wait is None:
            return {}
        last = now - 1 - self.wait
        return dict(takewhile(lambda entry: entry[1].round <= last, self.waiting.items()))

    def wait_again(self, overdue: Mapping[str, Waiting]) -> None:
        """Have decisions wait in front of the others, where they waited before."""
        self.waiting = OrderedDict({**overdue, **self.waiting})

    def keep(self) -> Any:
        """Return what `put_back` needs where no decision was added or learned since."""
        return self.made, self.forgotten, self.waiting

    def put_back(self, kept: Any) -> None:
        """Be again as when `keep` was called."""
        self.made, self.forgotten, self.waiting = kept

    def change_memories(self, change: Callable[[FloatArray], FloatArray]) -> None:
        """Replace what learning will need, where units or inputs have changed."""
        changed = ((id, entry._replace(memory=change(entry.memory))) for id, entry in self.waiting.items())
        self.waiting = OrderedDict(changed)

    def widen_memories(self, size: int, places: npt.NDArray[np.int64] | None) -> None:
        """Give memories another size, their entries going to the places given, by default to the front."""

        def widened(memory: FloatArray) -> FloatArray:
            wider = np.zeros(size)
            wider[np.arange(len(memory)) if places is None else places] = memory
            return wider

        self.change_memories(widened)

    def arrays(self, memory: int) -> dict[str, npt.NDArray[Any]]:
        """Return what a save file keeps; a memory has so many numbers."""
        entries = self.waiting.values()
        return {
            "pending_ids": _written(self.waiting),
            "pending_numbers": np.array([entry.number for entry in entries], dtype=np.int64),
            "pending_rounds": np.array([entry.round for entry in entries], dtype=np.int64),
            "pending_arms": np.array([entry.arm for entry in entries], dtype=np.int64),
            "pending_memories": np.array([entry.memory for entry in entries]).reshape(len(entries), memory),
            "given_ids": _written(self.given),
        }

    def saved(self, memory: int, arms: int, rounds: int) -> dict[str, Saved]:
        """Return what `arrays` may be after so many rounds."""
        return {
            "pending_ids": Saved(("letters",), 0, 255, whole=True),
            "pending_numbers": Saved(("waiting",), 0, self.made - 1, whole=True, rising=True),
            "pending_rounds": Saved(("waiting",), 0, rounds - 1, whole=True, rising=True),
            "pending_arms": Saved(("waiting",), 0, arms - 1, whole=True),
            "pending_memories": Saved(("waiting", memory), missing=True),
            "given_ids": Saved(("letters given",), 0, 255, whole=True),
        }

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take back what `arrays` returned."""
        ids = _read("pending_ids", arrays, self.most)
        numbers, rounds, arms, memories = (
            arrays[f"pending_{part}"] for part in ("numbers", "rounds", "arms", "memories")
        )
        if len(ids) != len(rounds):
            raise InvalidInputError(f"pending_ids: expected {len(rounds)}, one for each decision, got {len(ids)}")
        entries = zip(rounds.tolist(), arms.tolist(), memories, numbers.tolist(), strict=True)
        self.waiting = OrderedDict(
            (id, Waiting(int(t), int(arm), memory.copy(), int(number)))
            for id, (t, arm, memory, number) in zip(ids, entries, strict=True)
        )
        self.given = OrderedDict.fromkeys(_read("given_ids", arrays, self.most))

    def _unknown(self, id: str) -> UnknownDecisionError:
        incarnation, _, text = id.rpartition("-")
        number = int(text) if incarnation == self.incarnation and text.isdecimal() and len(text) < _LONGEST else None
        by_default = "" if self.wait is None else f", or taken to be default_reward after max_wait = {self.wait} rounds"
        if id in self.given or (number is not None and self.forgotten < number < self.made):
            reason = "repeated" if self.wait is None else "defaulted"
            return UnknownDecisionError(f"decision: the reward of {id!r} has been learned already{by_default}", reason)
        if number is not None and number <= self.forgotten:
            return UnknownDecisionError(
                f"decision: {id!r} is too old (or its reward was learned long ago{by_default}): only max_pending = "
                f"{self.most} decisions wait for their reward",
                "forgotten",
            )
        return UnknownDecisionError(
            f"decision: this policy knows no decision {id!r:.80}. Another policy made it, or this one did after it was "
            f"saved, copied or forked; give it to the policy that made it, and learn nothing from it otherwise"
        )


def _note_fork() -> None:
    for pending in _LIVING:
        pending.forked = True


with contextlib.suppress(AttributeError):  # there are systems without forks
    os.register_at_fork(after_in_child=_note_fork)


def _is_id(id: object) -> bool:
    return isinstance(id, str) and 0 < len(id) <= _LONGEST and id.isprintable()


def _written(ids: Iterable[str]) -> npt.NDArray[np.uint8]:
    """Return ids as bytes; what is printable has no line feeds."""
    return np.frombuffer("\n".join(ids).encode(), dtype=np.uint8)


def _read(name: str, arrays: Mapping[str, npt.NDArray[Any]], most: int) -> list[str]:
    """Return the ids that `_written` wrote, at most so many."""
    content = arrays[name].astype(np.uint8).tobytes()
    count = content.count(b"\n") + 1 if content else 0
    if count > most:
        raise InvalidInputError(f"{name}: expected at most max_pending = {most}, got {count}")
    ids = content.decode().split("\n") if content else []
    if not all(map(_is_id, ids)) or len(set(ids)) < count:
        raise InvalidInputError(f"{name}: expected texts of 1 to {_LONGEST} characters that differ")
    return ids
