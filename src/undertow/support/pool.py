"""Tasks on threads, with progress and the time left: the one pool of studies, experiments and replays.

Threads suffice, since kernels release the interpreter's lock.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import TypeVar

from undertow.support import checks
from undertow.support.display import Progress

__all__ = ["Clock", "Progress", "as_they_finish", "run_tasks"]

Result = TypeVar("Result")


@dataclass
class Clock:
    """The rate of finished tasks and the time left, without the tasks of an earlier run."""

    start: float = field(default_factory=time.monotonic)
    before: int | None = None

    def rate(self, done: int) -> float | None:
        """Return tasks per second; None before the first is finished."""
        if self.before is None:
            self.before = done
        fresh = done - self.before
        return fresh / max(time.monotonic() - self.start, 1e-9) if fresh else None

    def seconds_left(self, done: int, total: int) -> float | None:
        """Return an estimate of the time left; None before the first task is finished."""
        rate = self.rate(done)
        return (total - done) / rate if rate else None


def as_they_finish(tasks: Sequence[Callable[[], Result]], threads: int) -> Iterator[tuple[int, Result]]:
    """Yield the number and the result of each task when it is done; an error cancels those that have not begun."""
    with ThreadPoolExecutor(threads) as pool:
        waiting = {pool.submit(task): number for number, task in enumerate(tasks)}
        try:
            for future in as_completed(waiting):
                yield waiting.pop(future), future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def run_tasks(
    tasks: Sequence[Callable[[], Result]], *, threads: int | None = None, progress: Progress | None = None
) -> list[Result]:
    """Return the results of all tasks, in order.

    Examples
    --------
    >>> run_tasks([lambda: 1, lambda: 2], threads=2, progress=lambda done, total: print(f"{done} of {total}"))
    0 of 2
    1 of 2
    2 of 2
    [1, 2]
    """
    results: dict[int, Result] = {}
    if progress:
        progress(0, len(tasks))
    for number, result in as_they_finish(tasks, checks.thread_count(threads)):
        results[number] = result
        if progress:
            progress(len(results), len(tasks))
    return [results[number] for number in range(len(tasks))]
