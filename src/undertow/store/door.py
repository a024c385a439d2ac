"""The entrance to a bandit for the threads of a process: one at a time, and waiting ones share a transaction.

A commit to a disk takes a hundred times as long as a decision. So a finished thread does not commit if others wait. It
passes on the open transaction, and returns only after the last of them has committed for all.
"""

import copy
import os
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType

from undertow.errors import StoreBusyError, StoreError, StoreUnavailableError, UndertowError

__all__ = ["Door"]

_MOST = 256  # calls that share a transaction, so that other processes do not wait long


class _Group:
    """The calls of one transaction."""

    def __init__(self) -> None:
        self.size = 0
        self.ended = threading.Event()
        self.error: BaseException | None = None


class Door:
    """A reentrant lock; `begin` is called when it opens, `end` before any thread returns.

    Parameters
    ----------
    begin
        Begins a transaction, and catches up with the events of others.
    end
        Commits the events of the group.
    undo
        Called after a call was interrupted by anything but a refusal: its events never happened.
    timeout
        Seconds after which a thread gives up.
    """

    def __init__(
        self, begin: Callable[[], None], end: Callable[[], None], undo: Callable[[], None], timeout: float
    ) -> None:
        self._begin, self._end, self._undo, self._timeout = begin, end, undo, timeout
        self._renew()

    def _renew(self) -> None:
        """Reset after a fork: the threads inside exist only in the parent."""
        self._guard = threading.Lock()
        self._line: deque[tuple[int, threading.Event]] = deque()
        self._holder: int | None = None
        self._depth = 0
        self._group: _Group | None = None
        self._pid = os.getpid()

    def __enter__(self) -> None:
        if self._pid != os.getpid():
            self._renew()
        me = threading.get_ident()
        if self._holder == me:
            self._depth += 1
            return
        try:
            self._wait(me)
            self._depth = 1
            if self._group is None:
                self._begin()
                self._group = _Group()
        except BaseException as error:
            if self._holder == me:
                self._close(error)
            raise

    def _wait(self, me: int) -> None:
        """Wait in line until this thread is the holder."""
        with self._guard:
            if self._holder is None:
                self._holder = me
                return
            place = (me, threading.Event())
            self._line.append(place)
        try:
            place[1].wait(self._timeout)
        finally:
            with self._guard:
                mine = self._holder == me
                if not mine:
                    self._line.remove(place)
        if not mine:
            raise StoreBusyError(
                f"store: other threads of this process were inside for {self._timeout:g} s; the call did not happen"
            )

    def _hand_over(self, *, or_open: bool = False) -> bool:
        """Make the next thread in line the holder, and return whether there is one. If not, keep or free the lock."""
        with self._guard:
            if not self._line:
                self._holder = None if or_open else self._holder
                return False
            self._holder, its_turn = self._line.popleft()
        its_turn.set()
        return True

    def _close(self, error: BaseException | None) -> None:
        """End the transaction, notify waiting threads, and let the next one in."""
        group, self._group = self._group, None
        try:
            if group is not None:
                self._end()
        except BaseException as failure:
            assert group is not None
            group.error = failure
            if error is None:
                raise
        finally:
            self._depth = 0
            if group is not None:
                group.ended.set()
            self._hand_over(or_open=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth:
            return
        group = self._group
        assert group is not None
        group.size += 1
        refused = isinstance(error, UndertowError) and not isinstance(error, StoreError)
        if error is not None and not refused:
            self._undo()
        elif group.size < _MOST and self._hand_over():
            group.ended.wait()
            if group.error is not None and error is None:
                raise _shared(group.error)
            return
        self._close(error)


def _shared(error: BaseException) -> BaseException:
    """Return the error of a commit for another thread whose call was part of it."""
    if isinstance(error, StoreError):
        return copy.copy(error)
    return StoreUnavailableError(
        f"store: the commit of several threads was cut short ({type(error).__name__}), and whether the call happened "
        f"is unknown; repeat it with the same id",
        happened=None,
    )
