"""How events are committed: one flag, one log, and a checkpoint to restart from."""

import abc
import threading
from collections.abc import Callable, Sequence
from time import time as now
from typing import Any

from undertow.compiled.player import Player
from undertow.live.decision import Decision
from undertow.live.events import Decided, Event
from undertow.live.journal import Journal
from undertow.live.parts import Parts
from undertow.live.rounds import Pending, Timeline, Turns
from undertow.live.streams import Streams
from undertow.live.units import Columns

__all__ = ["Commits"]

_OFTEN = 64  # calls between two checkpoints


class Commits(abc.ABC):
    """The parts of a policy, intact or rebuilt from a checkpoint and the events since."""

    _lock: threading.RLock
    _journal: Journal
    _player: Player
    _columns: Columns
    _streams: Streams
    _turns: Turns
    _pending: Pending
    _timeline: Timeline
    _awaits_kernels: bool = False  # whether the policy may have to wait for their compilation

    @abc.abstractmethod
    def _apply(self, event: Event) -> Decision | None:
        """Apply a checked event, and return the decision if it is one."""

    @abc.abstractmethod
    def _check_kernels(self, *, decides: bool) -> None:
        """Check whether kernels are available; a decision may have to wait for them."""

    # Checkpoints, and the events since

    def _happen(self, *events: Event, effects: bool = True) -> None:
        """Have events happen together that were checked."""
        self._journal.torn = True
        for event in events:
            self._apply(event)
        self._commit(events[-1], events[:-1], effects=effects)

    def _commit(self, event: Event, earlier: Sequence[Event] = (), effects: bool = True) -> None:
        """Commit an applied event and the earlier ones of its call, then run their effects."""
        journal, timeline = self._journal, self._timeline
        events = journal.past.events  # type: ignore[union-attr]
        if earlier:
            events.extend((*earlier, event))  # now they have happened
        else:
            events.append(event)
        journal.torn = False
        journal.calls += 1
        journal.times[type(event)] = now()
        if journal.hears is not None:
            journal.tell()
        if timeline.has_effects:
            if effects:
                timeline.report()
            else:
                timeline.forget_notices()  # the id prefix is another process's
        if journal.calls >= _OFTEN or timeline.costly:
            self._checkpoint_in_time()

    def _checkpoint_in_time(self) -> None:
        """Take a checkpoint unless it must wait for kernels."""
        if not self._timeline.holds:
            self._checkpoint()
            self._timeline.costly = False

    def _checkpoint(self) -> None:
        """Take a checkpoint of intact parts."""
        entries = self.__dict__.copy()
        del entries["_lock"], entries["_journal"]
        self._journal.begin(entries, self._parts.all)

    def _rebuild(self, prepare: Callable[[], None] = lambda: None) -> None:
        """Restore the last checkpoint, and apply the events since; repeat if interrupted."""
        with self._lock:
            journal = self._journal
            past = journal.past
            if past is None:
                self._checkpoint()
                return
            self.__dict__.update(past.checkpoint.restore())
            prepare()
            for event in past.events:
                self._timeline.forget_notices()  # only the last one may be unreported
                decision = self._apply(event)
                if isinstance(event, Decided) and decision is not None and decision.arm != event.arm:
                    raise AssertionError(f"round {event.round}: arm {event.arm} was played, and now {decision.arm}")
            journal.torn = False

    def _get_ready(self, *, decides: bool = False) -> None:
        """Rebuild the parts after an interrupted call, and check whether kernels are available."""
        if self._journal.torn:
            self._rebuild()
        if self._awaits_kernels:
            self._check_kernels(decides=decides)

    # Access to the parts

    def _is_called(self) -> bool:
        """Whether this thread is in a call of the policy, whose hooks may inspect it."""
        lock: Any = self._lock
        return bool(lock._is_owned())  # noqa: SLF001 (there is no public method)

    def _whole(self) -> Parts:
        """Return the parts, rebuilt after an interrupted call; within a call, its current ones."""
        within = self._is_called()
        with self._lock:
            if self._journal.torn and not within:
                self._rebuild()
            return self._parts

    def _catch_up(self) -> None:
        """Bring the state up to date: no event, since the next decision would do the same first."""
        with self._lock:
            if self._timeline.behind:
                self._journal.torn = True
                self._timeline.catch_up()
                self._journal.torn = False

    @property
    def _parts(self) -> Parts:
        return Parts(self._player, self._columns, self._streams, self._turns, self._pending, self._timeline)
