"""The thread behind background fits."""

import queue
import threading
from collections.abc import Callable

__all__ = ["Worker"]


class Worker:
    """Do one task after another on a thread that ends with the process.

    One thread for all fits of a policy: starting one for each would hold up the decision that asks for it.
    """

    def __init__(self) -> None:
        self.tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            self.tasks.get()()
