"""The checkpoint and the events since: after an interrupt, the state is rebuilt from the two.

A call checks its input, applies an event to the state in place, and commits the event. An exception can come between
any two lines of that: Ctrl-C, a timer whose handler raises, memory that runs out. Nothing is undone. `torn` is set
before and cleared after, and a call that finds it set first goes back to the checkpoint and applies the events since.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from undertow.live.events import Event
from undertow.live.fields import copy_part, restore_part

__all__ = ["Checkpoint", "Journal", "Past"]

_LOG = logging.getLogger("undertow.events")


class Checkpoint(NamedTuple):
    """A copy of everything needed to continue: the parts of a policy, and the checkpoint of each."""

    entries: dict[str, Any]
    parts: list[tuple[Any, Any]]

    @classmethod
    def of(cls, entries: dict[str, Any], parts: Iterable[Any]) -> "Checkpoint":
        """Copy the state of the parts."""
        return cls(entries, [(part, copy_part(part)) for part in parts])

    def restore(self) -> dict[str, Any]:
        """Restore the parts and return them; may be repeated."""
        for part, kept in self.parts:
            restore_part(part, kept)
        return self.entries


@dataclass(frozen=True, slots=True)
class Past:
    """A checkpoint, the number of events before it, and the events since."""

    checkpoint: Checkpoint
    before: int
    events: list[Event]


class Journal:
    """The past of one policy, and its listener."""

    def __init__(self) -> None:
        self.past: Past | None = None  # none at first, and while a checkpoint is taken: then the parts are intact
        self.base = 0  # number of events when it was last taken
        self.calls = 0  # number of calls since
        self.torn = True  # whether a call has begun that is not committed, or there is no checkpoint
        self.hears: Callable[[Event], object] | None = None
        self.told = 0  # number of events reported to the listener
        self.times: dict[type[Event], float] = {}  # when this process saw the last event of each kind

    @property
    def count(self) -> int:
        """Number of events so far."""
        return self.base if self.past is None else self.past.before + len(self.past.events)

    def begin(self, entries: dict[str, Any], parts: Iterable[Any]) -> None:
        """Take a checkpoint of intact parts, and clear the log of events."""
        self.tell()
        self.base, self.torn = self.count, True
        self.past = None
        self.past, self.calls = Past(Checkpoint.of(entries, parts), self.base, []), 0
        self.torn = False

    def tell(self) -> None:
        """Report new events to the listener."""
        if self.past is None or self.hears is None:
            return
        before, events = self.past.before, self.past.events
        while self.told < before + len(events):
            event = events[self.told - before]
            self.told += 1  # first: an event is reported once, whatever the listener does
            try:
                self.hears(event)
            except Exception:
                _LOG.exception("a listener of events failed with %s", type(event).__name__)
