"""Pending decisions and their ids.

Every decision has a unique id. A policy generates it from its *id_prefix*, a random prefix that changes when the
policy is made, loaded, copied or forked. So a reward never reaches a decision of another policy, or of an earlier copy
of this one.
"""

import contextlib
import math
import os
import secrets
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError, UnknownDecisionError
from undertow.live.clock import spelled
from undertow.live.decision import Decision
from undertow.live.fields import Entry, Field, Table, read_count
from undertow.live.ids import LONGEST, is_id, read_ids, written_ids
from undertow.live.saved import COUNT, LETTERS, MEASURED, Saved
from undertow.live.subjects import Subjects
from undertow.live.waits import Waiting, Waits

__all__ = ["Answer", "Pending", "Waiting"]

_LATELY = 100  # rewards by which `health()` judges


_LIVING: "weakref.WeakSet[Pending]" = weakref.WeakSet()


class Answer(NamedTuple):
    """The answer to a call with a caller's id: the id, a digest of the call, the decision."""

    number: int
    request: str
    decision: Decision | None  # None if only the id is known, as in older save files


class Pending(Waits):
    """The pending decisions by id, in order.

    Decisions are also counted. At most `most` of them are pending, and the oldest are forgotten first. As many callers'
    ids and learned rewards are `remembered` with their answers, or none if a store does that. `wait` is the number of
    rounds until a decision gets the default reward, None for never.

    Between two checkpoints the three dictionaries only grow: finished entries stay until the next one, in `over` or by
    their number. So a checkpoint has just their lengths, at the cost of the changes.
    """

    remembers: ClassVar[tuple[Field, ...]] = (
        Entry("made", "decisions", lambda pending, value: read_count("decisions", value, least=0, most=int(COUNT) - 1)),
        Entry("forgotten", "forgotten", lambda p, value: read_count("forgotten", value, least=-1, most=p.made - 1)),
        Table(
            "entries",
            {
                "pending_ids": Saved(("waiting",), kind=np.str_),
                "pending_numbers": Saved(("waiting",), 0, "decisions-1", whole=True, rising=True, kind=np.int64),
                "pending_rounds": Saved(("waiting",), 0, "rounds-1", whole=True, rising=True, kind=np.int64),
                "pending_arms": Saved(("waiting",), 0, "k-1", whole=True, kind=np.int64),
                "pending_memories": Saved(("waiting", "p"), missing=True),
                "pending_learns": Saved(("waiting",), 0, 1, whole=True, kind=np.int64, since=True),
                "pending_times": Saved(("waiting",), -1, COUNT, whole=True, kind=np.int64, since=True),
            },
            lambda pending: pending.waiting_rows(),
            lambda pending, rows: pending.read_waiting(rows),
        ),
        Field(
            "answers",
            {
                "given_ids": Saved(("letters given",), *LETTERS, whole=True),
                "answers": Saved(("letters answered",), *LETTERS, whole=True, since=True),
            },
            lambda pending: (written_ids(pending.given), pending.written_answers()),
            lambda pending, ids, answers: pending.read_answers(ids, answers),
        ),
        Table(
            "learned",
            {
                "learned_ids": Saved(("learned",), kind=np.str_, since=True),
                "learned_rewards": Saved(("learned",), *MEASURED, missing=True, since=True),
            },
            lambda pending: pending.learned_rows(),
            lambda pending, rows: pending.read_learned(rows),
        ),
    )

    def __init__(
        self, most: int, wait: int | None = None, *, patience: int | None = None, delay: int | None = None
    ) -> None:
        super().__init__(most, wait, patience=patience, delay=delay)
        self.remembered = most
        self.subjects = Subjects(most)
        self.answers: OrderedDict[str, Answer] = OrderedDict()
        self.learned: OrderedDict[str, tuple[int, float]] = OrderedDict()  # number and reward, NaN by default
        self.answered = self.rewarded = 0  # numbers of callers' ids, and of learned rewards
        self.refused: Counter[str] = Counter()  # rewards, by reason; not saved, and in no checkpoint
        self.lately: deque[bool] = deque(maxlen=_LATELY)  # whether each of the last rewards was refused
        self.renew_prefix()

    def renew_prefix(self) -> None:
        """Renew the prefix of ids, for the current process."""
        _LIVING.add(self)
        self.id_prefix = secrets.token_hex(8)
        self.forked = False  # whether this process was forked since; last: an interrupted call is repeated

    def __setstate__(self, entries: dict[str, Any]) -> None:
        self.__dict__.update(entries)
        self.renew_prefix()

    # Checkpoints

    def mark(self) -> Any:
        """Drop finished entries, and return the lengths of the dictionaries."""
        for id in self.over:
            self.entries.pop(id, None)
        self.over, self.dropped = {}, {}
        _trim(self.answers, self.answered - self.remembered)
        _trim(self.learned, self.rewarded - self.remembered)
        grown: tuple[Any, ...] = (self.entries, self.answers, self.learned)
        return (self.made, self.forgotten, self.count, self.answered, self.rewarded), [
            (each, len(each)) for each in grown
        ]

    def go_back(self, mark: Any) -> None:
        """Restore the state of a `mark`."""
        (self.made, self.forgotten, self.count, self.answered, self.rewarded), grown = mark
        if grown[0][0] is self.entries:
            self._put_in_front()
        for each, length in grown:
            while len(each) > length:
                each.popitem()
        (self.entries, _), (self.answers, _), (self.learned, _) = grown
        self.over, self.dropped = {}, {}

    # Ids

    @property
    def given(self) -> dict[str, None]:
        """The last ids of callers."""
        first = self.answered - self.remembered
        return {id: None for id, answer in self.answers.items() if answer.number >= first}

    def answer(self, id: str, request: str) -> Decision | None:
        """Return the decision of an identical earlier call; None if the id is new."""
        known = self.answers.get(id) if isinstance(id, str) else None
        if known is not None and known.number >= self.answered - self.remembered and known.request == request:
            return known.decision
        self.require_new(id)
        if id.startswith(self.id_prefix):
            raise InvalidInputError(f"id: {id!r} starts with this policy's own prefix; use a different one")
        return None

    def require_new(self, id: Any) -> None:
        """Refuse an invalid id, or the id of another decision."""
        if not is_id(id):
            raise InvalidInputError(f"id: expected a printable string of 1 to {LONGEST} characters, got {id!r:.80}")
        known = self.answers.get(id)
        given = known is not None and known.number >= self.answered - self.remembered
        if given or (id in self.entries and id not in self.over):
            raise InvalidInputError(
                f"id: {id!r} was used before, for another call of decide; an id names one decision, so use a new one"
            )

    def is_stale(self, id: str) -> bool:
        """Whether a new id is one that the next checkpoint drops."""
        return id in self.answers or id in self.entries or id in self.learned

    def keep_answer(self, id: str, request: str, decision: Decision) -> None:
        """Remember the answer to a call with a caller's id."""
        self.answers[id] = Answer(self.answered, request, decision)
        self.answered += 1

    def find(self, decision: Decision | str, reward: float, names: Sequence[str]) -> tuple[str, Waiting | None]:
        """Return the id of a decision, given as such or by its id, and its pending entry.

        None means that this very reward was learned already.
        """
        id = decision.id if isinstance(decision, Decision) else decision
        if not isinstance(id, str):
            raise InvalidInputError(f"decision: expected a decision or its id, a string, got {id!r:.60}")
        waiting = self.entries.get(id)
        if waiting is None or id in self.over:
            known = self.learned.get(id)
            if known is not None and known[0] >= self.rewarded - self.remembered and known[1] == reward:
                return id, None
            raise self._unknown(id)
        then, arm, _, _, _, _ = waiting
        if decision is not id and decision[1:4] != (then, arm, names[arm]):  # faster than by its attributes
            assert isinstance(decision, Decision)
            raise UnknownDecisionError(
                f"decision: {id!r} of this policy was arm {arm} ({names[arm]}) in round {then}, not arm "
                f"{decision.arm} ({decision.name}) in round {decision.round}; pass it unchanged",
                "different",
            )
        return id, waiting

    def refuse(self, error: Exception) -> None:
        """Count a refused reward; a repeated one is no problem."""
        reason = getattr(error, "reason", "invalid")
        self.refused[reason] += 1
        if reason != "repeated":
            self.lately.append(True)

    # Save files

    def waiting_rows(self) -> Iterable[tuple[Any, ...]]:
        """Return the pending decisions as rows of a save file."""
        for id, (then, arm, memory, number, learns, at) in self.waiting.items():
            yield id, number, then, arm, memory, learns, at

    def read_waiting(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Take back what `waiting_rows` returned; older files do not say what is learned, nor when decisions were."""
        self._require_few("pending_ids", rows)
        for id, number, then, arm, memory, learns, at in rows:
            time = None if at is None or at < 0 else at
            self.entries[id] = Waiting(then, arm, memory.copy(), number, learns is None or bool(learns), time)
        self.count = len(self.entries)

    def learned_rows(self) -> Iterable[tuple[str, float]]:
        """Return the rewards that are remembered."""
        first = self.rewarded - self.remembered
        return ((id, reward) for id, (number, reward) in self.learned.items() if number >= first)

    def read_learned(self, rows: Sequence[tuple[str, float]]) -> None:
        """Take back what `learned_rows` returned."""
        self._require_few("learned_ids", rows)
        for number, (id, reward) in enumerate(rows):
            self.learned[id] = number, reward
        self.rewarded = len(rows)

    def written_answers(self) -> npt.NDArray[np.uint8]:
        """Return the answers to calls with an id of the caller's."""
        answers = [(self.answers[id].request, self.answers[id].decision) for id in self.given]
        texts = [(request, "" if decision is None else decision.to_json()) for request, decision in answers]
        return np.frombuffer(msgspec.json.encode(texts), dtype=np.uint8)

    def read_answers(self, ids: npt.NDArray[Any], answers: npt.NDArray[Any] | None) -> None:
        """Take back what `written_answers` returned; older files know the ids only."""
        given = read_ids("given_ids", ids)
        self._require_few("given_ids", given)
        self.answered = len(given)
        texts = [("", "")] * len(given)
        if answers is not None:
            texts = msgspec.json.decode(answers.astype(np.uint8).tobytes(), type=list[tuple[str, str]])
        if len(texts) != len(given):
            raise InvalidInputError(f"answers: expected {len(given)}, one for each id that was given")
        for number, (id, (request, text)) in enumerate(zip(given, texts, strict=True)):
            decision = Decision.from_json(text) if text else None
            if decision is not None and decision.id != id:
                raise InvalidInputError(f"answers: expected the decision {id!r}, got {decision.id!r}")
            self.answers[id] = Answer(number, request, decision)

    def _require_few(self, name: str, rows: Sequence[Any]) -> None:
        if len(rows) > self.most:
            raise InvalidInputError(f"{name}: expected at most max_pending = {self.most}, got {len(rows)}")

    def _unknown(self, id: str) -> UnknownDecisionError:
        id_prefix, _, text = id.rpartition("-")
        number = int(text) if id_prefix == self.id_prefix and text.isdecimal() and len(text) < LONGEST else None
        waited = "" if self.wait is None else f"{self.wait} rounds"
        waited = waited if self.patience is None else spelled(self.patience)
        by_default = f", or replaced by default_reward after max_wait = {waited}" if waited else ""
        known = self.learned.get(id)
        if known is not None and not math.isnan(known[1]):
            return UnknownDecisionError(
                f"decision: the reward of {id!r} has been learned already, and was {known[1]:g}; a reward cannot "
                f"be changed",
                "repeated",
            )
        if id in self.given or (number is not None and self.forgotten < number < self.made):
            reason = "defaulted" if waited else "repeated"
            return UnknownDecisionError(f"decision: the reward of {id!r} has been learned already{by_default}", reason)
        if number is not None and number <= self.forgotten:
            return UnknownDecisionError(
                f"decision: {id!r} is too old (or its reward was learned long ago{by_default}): only max_pending "
                f"= {self.most} decisions are pending",
                "forgotten",
            )
        return UnknownDecisionError(
            f"decision: unknown id {id!r:.80}. Another policy made it, or this one after "
            f"it was saved, copied or forked. Send the reward there, or drop it"
        )


def _trim(entries: dict[str, Any], first: int) -> None:
    """Drop the entries before number `first`, which come first."""
    for id in list(takewhile(lambda id: entries[id][0] < first, entries)):
        del entries[id]


def _note_fork() -> None:
    for pending in _LIVING:
        pending.forked = True


with contextlib.suppress(AttributeError):  # there are systems without forks
    os.register_at_fork(after_in_child=_note_fork)
