"""The decisions that wait for their reward, and the ids that name them.

An id names one decision, for ever. Those that a policy makes begin with its *incarnation*, random letters that are
drawn anew whenever a policy comes into being: when it is made, loaded, copied or forked. So a reward never reaches a
decision that another policy, or an earlier life of this one, has made.
"""

import contextlib
import json
import math
import os
import secrets
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow._checks import FloatArray
from undertow.errors import InvalidInputError, UnknownDecisionError
from undertow.live.decision import Decision
from undertow.live.saved import MEASURED, Saved

__all__ = ["Answer", "Pending", "Waiting"]

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


class Answer(NamedTuple):
    """What was answered to a call with an id of the caller's: which id it was, a digest of the call, the decision."""

    number: int
    request: str
    decision: Decision | None  # None if only the id is known, as in older save files


class Pending:
    """The decisions that wait for their reward, by id, in the order in which they were made.

    Decisions are also counted. At most `most` of them wait, and the oldest are forgotten first; as many of the ids that
    callers gave, and of the rewards that were learned, are remembered with their answers. `wait` is after how many
    rounds a decision gets the default reward, None for never.

    Between two checkpoints the three dictionaries only grow: entries that are over stay until the next one, in `over`
    or by their number. So a checkpoint is their lengths, and costs what has changed.
    """

    def __init__(self, most: int, wait: int | None = None) -> None:
        self.most, self.wait = most, wait
        self.made = 0
        self.forgotten = -1  # number of the youngest decision that was dropped
        self.entries: OrderedDict[str, Waiting] = OrderedDict()  # a dict looks for its first entry among deleted ones
        self.over: dict[str, None] = {}  # entries that wait no more
        self.dropped: dict[str, Waiting] = {}  # those of them that came first, and were taken out since
        self.count = 0  # how many wait
        self.answers: OrderedDict[str, Answer] = OrderedDict()
        self.learned: OrderedDict[str, tuple[int, float]] = OrderedDict()  # number and reward, NaN by default
        self.answered = self.rewarded = 0  # how many ids were given, and rewards learned
        self.refused: Counter[str] = Counter()  # rewards, by reason; not saved, and in no checkpoint
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

    # Checkpoints

    def mark(self) -> Any:
        """Drop what is over, and return where the dictionaries end."""
        for id in self.over:
            self.entries.pop(id, None)
        self.over, self.dropped = {}, {}
        _trim(self.answers, self.answered - self.most)
        _trim(self.learned, self.rewarded - self.most)
        grown: tuple[Any, ...] = (self.entries, self.answers, self.learned)
        return (self.made, self.forgotten, self.count, self.answered, self.rewarded), [
            (each, len(each)) for each in grown
        ]

    def go_back(self, mark: Any) -> None:
        """Be as when `mark` was called."""
        (self.made, self.forgotten, self.count, self.answered, self.rewarded), grown = mark
        if grown[0][0] is self.entries:
            self._put_in_front()
        for each, length in grown:
            while len(each) > length:
                each.popitem()
        (self.entries, _), (self.answers, _), (self.learned, _) = grown
        self.over, self.dropped = {}, {}

    def _put_in_front(self) -> None:
        """Have entries again that were taken out since the last checkpoint; they came first, in this order."""
        for id, entry in reversed(self.dropped.items()):
            self.entries[id] = entry
            self.entries.move_to_end(id, last=False)

    # Ids

    @property
    def waiting(self) -> dict[str, Waiting]:
        """The decisions that wait, by id."""
        over = self.over
        return {id: entry for id, entry in self.entries.items() if id not in over} if over else self.entries

    @property
    def given(self) -> dict[str, None]:
        """The last ids that callers gave."""
        first = self.answered - self.most
        return {id: None for id, answer in self.answers.items() if answer.number >= first}

    def answer(self, id: str, request: str) -> Decision | None:
        """Return the decision that this very call was answered with; None if the id is new."""
        known = self.answers.get(id) if isinstance(id, str) else None
        if known is not None and known.number >= self.answered - self.most and known.request == request:
            return known.decision
        self.require_new(id)
        if id.startswith(self.incarnation):
            raise InvalidInputError(f"id: {id!r} starts with this policy's own prefix; use a different one")
        return None

    def require_new(self, id: Any) -> None:
        """Refuse what is no id, or the id of another decision."""
        if not _is_id(id):
            raise InvalidInputError(f"id: expected a printable string of 1 to {_LONGEST} characters, got {id!r:.80}")
        known = self.answers.get(id)
        given = known is not None and known.number >= self.answered - self.most
        if given or (id in self.entries and id not in self.over):
            raise InvalidInputError(
                f"id: {id!r} was used before, for another call of decide; an id names one decision, so use a new one"
            )

    def is_stale(self, id: str) -> bool:
        """Whether an id that is new is one of those that the next checkpoint drops."""
        return id in self.answers or id in self.entries or id in self.learned

    def waits(self, id: str) -> bool:
        """Whether a decision waits for its reward."""
        return id in self.entries and id not in self.over

    def recall(self, id: str, t: int, arm: int, memory: FloatArray) -> None:
        """Have a decision wait again that was dropped, until the next checkpoint at the most."""
        self.over.pop(id, None)
        self.entries[id] = Waiting(t, arm, memory, self.made - 1)
        self.count += 1

    def add(self, id: str, t: int, arm: int, memory: FloatArray) -> None:
        """Have a decision wait."""
        number, entries = self.made, self.entries
        self.made = number + 1
        entries[id] = _tuple(Waiting, (t, arm, memory, number))
        self.count += 1
        if self.count > self.most:
            oldest = next(self._live())
            self.forgotten = entries[oldest].number
            self.over[oldest] = None
            self.count -= 1

    def keep_answer(self, id: str, request: str, decision: Decision) -> None:
        """Remember what was answered to a call with an id of the caller's."""
        self.answers[id] = Answer(self.answered, request, decision)
        self.answered += 1

    def find(self, decision: Decision | str, reward: float, names: Sequence[str]) -> tuple[str, Waiting | None]:
        """Return the id of a decision, given as such or by its id, and what waits for its reward.

        None stands for a decision of which this very reward was learned already.
        """
        given = decision if isinstance(decision, Decision) else None
        id = decision if given is None else given.id
        if not isinstance(id, str):
            raise InvalidInputError(f"decision: expected a decision or its id, which is a text, got {id!r:.60}")
        waiting = self.entries.get(id)
        if waiting is None or id in self.over:
            known = self.learned.get(id)
            if known is not None and known[0] >= self.rewarded - self.most and known[1] == reward:
                return id, None
            raise self._unknown(id)
        then, arm, _, _ = waiting
        if given is not None and (given.round != then or given.arm != arm or given.name != names[arm]):
            raise UnknownDecisionError(
                f"decision: {id!r} of this policy was arm {arm} ({names[arm]}) in round {then}, not arm "
                f"{given.arm} ({given.name}) in round {given.round}; give it as it was made",
                "different",
            )
        return id, waiting

    def refuse(self, error: Exception) -> None:
        """Count a reward that was refused; one that comes twice is no sign of trouble."""
        reason = getattr(error, "reason", "invalid")
        self.refused[reason] += 1
        if reason != "repeated":
            self.lately.append(True)

    def _live(self) -> Iterator[str]:
        self.oldest(0)
        return (id for id in self.entries if id not in self.over)

    def oldest(self, otherwise: int) -> int:
        """Return the round of the oldest decision that waits."""
        entries, over = self.entries, self.over
        while entries:
            id = next(iter(entries))
            if id not in over:
                return entries[id].round
            self.dropped[id] = entries[id]  # first: nothing may be lost between the two
            del entries[id]
        return otherwise

    def overdue(self, now: int) -> list[str]:
        """Return the decisions that get the default reward before round `now` is decided."""
        if self.wait is None:
            return []
        last = now - 1 - self.wait
        return list(takewhile(lambda id: self.entries[id].round <= last, self._live()))

    def change_memories(self, change: Callable[[FloatArray], FloatArray]) -> None:
        """Replace what learning will need, where units or inputs have changed."""
        changed = ((id, entry._replace(memory=change(entry.memory))) for id, entry in self.waiting.items())
        changed_entries = OrderedDict(changed)
        self._put_in_front()  # of what a checkpoint may go back to
        self.entries, self.over, self.dropped = changed_entries, {}, {}

    def widen_memories(self, size: int, places: npt.NDArray[np.int64] | None) -> None:
        """Give memories another size, their entries going to the places given, by default to the front."""

        def widened(memory: FloatArray) -> FloatArray:
            wider = np.zeros(size)
            wider[np.arange(len(memory)) if places is None else places] = memory
            return wider

        self.change_memories(widened)

    # Save files

    def arrays(self, memory: int) -> dict[str, npt.NDArray[Any]]:
        """Return what a save file keeps; a memory has so many numbers."""
        waiting, first = self.waiting, self.rewarded - self.most
        entries = waiting.values()
        learned = {id: reward for id, (number, reward) in self.learned.items() if number >= first}
        answers = [(id, *self.answers[id][1:]) for id in self.given]
        return {
            "pending_ids": _written(waiting),
            "pending_numbers": np.array([entry.number for entry in entries], dtype=np.int64),
            "pending_rounds": np.array([entry.round for entry in entries], dtype=np.int64),
            "pending_arms": np.array([entry.arm for entry in entries], dtype=np.int64),
            "pending_memories": np.array([entry.memory for entry in entries]).reshape(len(entries), memory),
            "given_ids": _written(self.given),
            "answers": np.frombuffer(json.dumps([_as_text(answer) for answer in answers]).encode(), dtype=np.uint8),
            "learned_ids": _written(learned),
            "learned_rewards": np.array(list(learned.values()), dtype=np.float64),
        }

    def saved(self, names: Collection[str], memory: int, arms: int, rounds: int) -> dict[str, Saved]:
        """Return what `arrays` may be after so many rounds; older files know of no answers."""
        return {
            "pending_ids": Saved(("letters",), 0, 255, whole=True),
            "pending_numbers": Saved(("waiting",), 0, self.made - 1, whole=True, rising=True),
            "pending_rounds": Saved(("waiting",), 0, rounds - 1, whole=True, rising=True),
            "pending_arms": Saved(("waiting",), 0, arms - 1, whole=True),
            "pending_memories": Saved(("waiting", memory), missing=True),
            "given_ids": Saved(("letters given",), 0, 255, whole=True),
        } | {
            name: saved
            for name, saved in {
                "answers": Saved(("letters answered",), 0, 255, whole=True),
                "learned_ids": Saved(("letters learned",), 0, 255, whole=True),
                "learned_rewards": Saved(("learned",), *MEASURED, missing=True),
            }.items()
            if name in names
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
        self.entries = OrderedDict(
            (id, Waiting(int(t), int(arm), memory.copy(), int(number)))
            for id, (t, arm, memory, number) in zip(ids, entries, strict=True)
        )
        self.count = len(self.entries)
        given = _read("given_ids", arrays, self.most)
        self.answers = OrderedDict((id, Answer(number, "", None)) for number, id in enumerate(given))
        self.answered = len(given)
        if "answers" in arrays:
            self._restore_answers(arrays, given)

    def _restore_answers(self, arrays: Mapping[str, npt.NDArray[Any]], given: Sequence[str]) -> None:
        entries = json.loads(arrays["answers"].astype(np.uint8).tobytes())
        if not isinstance(entries, list) or len(entries) != len(given):
            raise InvalidInputError(f"answers: expected {len(given)}, one for each id that was given")
        for number, (id, entry) in enumerate(zip(given, entries, strict=True)):
            if not isinstance(entry, list) or [type(part) for part in entry] != [str, str]:
                raise InvalidInputError(f"answers: expected a request and a decision, got {entry!r:.60}")
            request, text = entry
            decision = Decision.from_json(text) if text else None
            if decision is not None and decision.id != id:
                raise InvalidInputError(f"answers: expected the decision {id!r}, got {decision.id!r}")
            self.answers[id] = Answer(number, request, decision)
        learned, rewards = _read("learned_ids", arrays, self.most), arrays["learned_rewards"].tolist()
        if len(learned) != len(rewards):
            raise InvalidInputError(f"learned_ids: expected {len(rewards)}, one for each reward, got {len(learned)}")
        for number, (id, reward) in enumerate(zip(learned, rewards, strict=True)):
            self.learned[id] = number, reward
        self.rewarded = len(learned)

    def _unknown(self, id: str) -> UnknownDecisionError:
        incarnation, _, text = id.rpartition("-")
        number = int(text) if incarnation == self.incarnation and text.isdecimal() and len(text) < _LONGEST else None
        by_default = "" if self.wait is None else f", or taken to be default_reward after max_wait = {self.wait} rounds"
        known = self.learned.get(id)
        if known is not None and not math.isnan(known[1]):
            return UnknownDecisionError(
                f"decision: the reward of {id!r} has been learned already, and was {known[1]:g}; a reward cannot "
                f"be changed",
                "repeated",
            )
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


def _trim(entries: dict[str, Any], first: int) -> None:
    """Drop the entries before number `first`, which come first."""
    for id in list(takewhile(lambda id: entries[id][0] < first, entries)):
        del entries[id]


def _as_text(answer: tuple[str, str, Decision | None]) -> tuple[str, str]:
    _, request, decision = answer
    return request, "" if decision is None else decision.to_json()


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
