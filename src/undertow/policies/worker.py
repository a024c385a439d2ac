"""The thread behind background fits."""

import os
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["Worker"]


class Worker:
    """Do one task after another on a thread that ends with its owner, or with the process.

    One thread for all fits of a policy: starting one for each would hold up the decision that asks for it.
    """

    def __init__(self, owner: Any) -> None:
        self._process = os.getpid()
        self.tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        weakref.finalize(owner, self.tasks.put, None)
        self.thread = threading.Thread(target=_work, args=(self.tasks,), name="undertow-fits", daemon=True)
        self.thread.start()

    @property
    def here(self) -> bool:
        """Whether the thread lives in this process, and not in one that this one was forked from."""
        return self._process == os.getpid()


def _work(tasks: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (task := tasks.get()) is not None:
        task()
