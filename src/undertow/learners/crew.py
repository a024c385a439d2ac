"""The threads that make fits: a few for the whole process, which end with the last policy that needs them."""

import contextlib
import os
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["Crew", "join_crew"]

_MOST = 4  # threads; one core is left to decisions


class Crew:
    """Threads that do one task after another; the n-th policy that asks for them brings the n-th thread, up to a few.

    Threads wait for more to do, because starting one for each task would hold up the decision that asks for it.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._members = 0
        self._threads: list[threading.Thread] = []
        self.disbanded = False

    @property
    def here(self) -> bool:
        """Whether the threads live, and in this process, not in one that this one was forked from."""
        return self._process == os.getpid() and all(thread.is_alive() for thread in self._threads)

    def enlist(self, owner: Any) -> None:
        """Work for an owner until it is gone."""
        self._members += 1
        weakref.finalize(owner, self._leave)

    def _leave(self) -> None:
        """End with the last owner; called by whichever thread collects garbage, in the middle of anything."""
        if not _lock.acquire(blocking=False):  # whoever holds it may be waiting for this very thread to start
            self._tasks.put(self._leave)
            return
        try:
            self._members -= 1
            if self._members == 0:
                self.disbanded = True
                self._tasks.put(None)
        finally:
            _lock.release()

    def do(self, task: Callable[[], None]) -> None:
        """Have a thread do a task; where no thread can be had, do it here."""
        if self._has_thread():
            self._tasks.put(task)
        else:
            task()

    def _has_thread(self) -> bool:
        """Return whether there is a thread, after one more was started if there may be more."""
        with _lock:
            if len(self._threads) < min(self._members, _MOST, max((os.cpu_count() or 1) - 1, 1)):
                thread = threading.Thread(target=_work, args=(self._tasks,), name="undertow-fits", daemon=True)
                with contextlib.suppress(RuntimeError):  # no thread to be had
                    thread.start()
                    self._threads.append(thread)
            return bool(self._threads)


def _work(tasks: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # it may be all that keeps its owner's data
    tasks.put(None)  # for the others


_lock = threading.RLock()  # a garbage collection within may come back to it
_crew = Crew()


def join_crew(owner: Any) -> Crew:
    """Return the crew of this process, which works for an owner until it is gone."""
    global _crew
    with _lock:
        if _crew.disbanded or not _crew.here:
            _crew = Crew()
        _crew.enlist(owner)
        return _crew


def _forget_lock() -> None:
    """Begin a forked process without a lock that another thread held."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)
