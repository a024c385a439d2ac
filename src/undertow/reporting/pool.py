"""Tasks on threads, with progress: the one pool of studies, experiments and replays.

Threads suffice since the kernels run without the interpreter's lock.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from undertow import _checks
from undertow.showing import Progress

__all__ = ["Progress", "as_they_finish", "run_tasks", "thread_count"]

Result = TypeVar("Result")


def thread_count(threads: int | None) -> int:
    """Return a checked number of threads, by default one per core."""
    return _checks.integer("threads", os.cpu_count() if threads is None else threads, least=1)


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
    """Return the results of all tasks, in the order of the tasks.

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
    for number, result in as_they_finish(tasks, thread_count(threads)):
        results[number] = result
        if progress:
            progress(len(results), len(tasks))
    return [results[number] for number in range(len(tasks))]
