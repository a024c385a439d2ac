"""The fit threads: a few per process, which end with the last policy that needs them."""

import contextlib
import os
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["FitThreads", "shared_threads"]

_MOST = 4  # threads; one core is free for decisions


class FitThreads:
    """Threads that do one task after another; the n-th registered policy adds the n-th thread, up to a few.

    Threads wait for further tasks, since starting one per task would delay the decision that requests it.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._members = 0
        self._threads: list[threading.Thread] = []
        self.disbanded = False

    @property
    def here(self) -> bool:
        """Whether the threads are alive, and belong to this process, not to its parent."""
        return self._process == os.getpid() and all(thread.is_alive() for thread in self._threads)

    def register(self, owner: Any) -> None:
        """Register an owner, until it is collected."""
        self._members += 1
        weakref.finalize(owner, self._leave)

    def _leave(self) -> None:
        """End with the last owner; called by the garbage collector, in any thread at any time."""
        if not _lock.acquire(blocking=False):  # its holder may be waiting for this very thread to start
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
        """Run a task on a thread, or here if no thread can be started."""
        if self._has_thread():
            self._tasks.put(task)
        else:
            task()

    def _has_thread(self) -> bool:
        """Return whether there is a thread, after starting one more if allowed."""
        with _lock:
            if len(self._threads) < min(self._members, _MOST, max((os.cpu_count() or 1) - 1, 1)):
                thread = threading.Thread(target=_work, args=(self._tasks,), name="undertow-fits", daemon=True)
                with contextlib.suppress(RuntimeError):  # no thread can be started
                    thread.start()
                    self._threads.append(thread)
            return bool(self._threads)


def _work(tasks: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # it may be all that keeps its owner's data
    tasks.put(None)  # for the others


_lock = threading.RLock()  # a garbage collection within may reenter it
_threads = FitThreads()


def shared_threads(owner: Any) -> FitThreads:
    """Return the threads of this process, and register an owner."""
    global _threads
    with _lock:
        if _threads.disbanded or not _threads.here:
            _threads = FitThreads()
        _threads.register(owner)
        return _threads


def _forget_lock() -> None:
    """Reset the lock in a forked process, since another thread may have held it."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)
