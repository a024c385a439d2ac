"""Pending decisions: their order, and their time limits."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.errors import UnknownDecisionError
from undertow.live.clock import spelled
from undertow.support.checks import FloatArray

__all__ = ["Waiting", "Waits"]

_tuple = tuple.__new__  # makes an entry in half the time of its class, whose __new__ is Python's


class Waiting(NamedTuple):
    """A pending decision.

    Round, arm, numbers for learning the reward, its number, whether the reward is learned or only accepted, and the
    time of the decision, if known.
    """

    round: int
    arm: int
    memory: FloatArray
    number: int
    learns: bool = True
    at: int | None = None


class Waits:
    """Pending decisions by id, in order.

    At most `most` of them, and the oldest are forgotten first. A decision gets the default reward after `wait` rounds,
    or after `patience`; a reward may be late by `delay`. Both are in microseconds; None means never.
    """

    def __init__(self, most: int, wait: int | None, *, patience: int | None, delay: int | None) -> None:
        self.most, self.wait, self.patience, self.delay = most, wait, patience, delay
        self.timeless = patience is None and delay is None  # whether rewards may come at any time
        self.made = 0
        self.forgotten = -1  # number of the youngest decision that was dropped
        self.entries: OrderedDict[str, Waiting] = OrderedDict()  # a dict looks for its first entry among deleted ones
        self.over: dict[str, None] = {}  # finished entries
        self.dropped: dict[str, Waiting] = {}  # those of them that came first, and were removed since
        self.count = 0  # number of pending ones

    @property
    def waiting(self) -> dict[str, Waiting]:
        """The pending decisions by id."""
        over = self.over
        return {id: entry for id, entry in self.entries.items() if id not in over} if over else self.entries

    def waits(self, id: str) -> bool:
        """Whether a decision is pending."""
        return id in self.entries and id not in self.over

    def add(self, id: str, t: int, arm: int, memory: FloatArray, learns: bool = True, at: int | None = None) -> None:
        """Add a decision."""
        number, entries = self.made, self.entries
        self.made = number + 1
        entries[id] = _tuple(Waiting, (t, arm, memory, number, learns, at))
        self.count += 1
        if self.count > self.most:
            self._forget(next(self._live()))

    def recall(self, id: str, t: int, arm: int, memory: FloatArray, *, learns: bool = True) -> None:
        """Add a dropped decision again, until the next checkpoint at most."""
        self.over.pop(id, None)
        self.entries[id] = Waiting(t, arm, memory, self.made - 1, learns)
        self.count += 1

    def _forget(self, id: str) -> None:
        self.forgotten = self.entries[id].number
        self.over[id] = None
        self.count -= 1

    def _live(self) -> Iterator[str]:
        self.oldest(0)
        return (id for id in self.entries if id not in self.over)

    def oldest(self, otherwise: int) -> int:
        """Return the round of the oldest pending decision."""
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

    def fallen_due(self, now: int | None) -> list[str]:
        """Return the decisions that are due for the default reward by the time."""
        return [] if self.patience is None else self._older(now, self.patience)

    def expire(self, now: int) -> None:
        """Forget decisions whose reward would come too late by now."""
        if self.delay is not None:
            for id in self._older(now - 1, self.delay):
                self._forget(id)

    def _older(self, now: int | None, age: int) -> list[str]:
        """Return the decisions of at least this age; those of unknown times are none."""
        found: list[str] = []
        for id in self._live() if now is not None else ():
            at = self.entries[id].at
            if at is not None and now is not None and at + age > now:
                break
            found += [id] if at is not None else []
        return found

    def check_time(self, id: str, waiting: Waiting, now: int | None) -> None:
        """Refuse a reward that comes after its default, or after the longest delay."""
        if now is None or waiting.at is None:
            return
        if self.patience is not None and waiting.at + self.patience <= now:
            raise UnknownDecisionError(
                f"decision: default_reward has replaced the reward of {id!r}, which did not come within "
                f"max_wait = {spelled(self.patience)}",
                "defaulted",
            )
        if self.delay is not None and waiting.at + self.delay < now:
            raise UnknownDecisionError(
                f"decision: the reward of {id!r} comes {spelled(now - waiting.at)} late, and max_delay is "
                f"{spelled(self.delay)}; build the policy with a longer one",
                "late",
            )

    def change_memories(self, change: Callable[[FloatArray], FloatArray]) -> None:
        """Replace the numbers for learning after a change of units or inputs."""
        changed = ((id, entry._replace(memory=change(entry.memory))) for id, entry in self.waiting.items())
        changed_entries = OrderedDict(changed)
        self._put_in_front()  # of entries that a checkpoint may restore
        self.entries, self.over, self.dropped = changed_entries, {}, {}

    def widen_memories(self, size: int, places: npt.NDArray[np.int64] | None) -> None:
        """Give memories another size, their entries going to the places given, by default to the front."""

        def widened(memory: FloatArray) -> FloatArray:
            wider = np.zeros(size)
            wider[np.arange(len(memory)) if places is None else places] = memory
            return wider

        self.change_memories(widened)

    def _put_in_front(self) -> None:
        """Restore entries that were removed since the last checkpoint; they came first, in this order."""
        for id, entry in reversed(self.dropped.items()):
            self.entries[id] = entry
            self.entries.move_to_end(id, last=False)
