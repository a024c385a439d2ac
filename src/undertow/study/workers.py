"""Chunks on processes of this machine, which talk to this one through pipes: nothing listens that others could use."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import Any

from undertow.errors import UndertowError

__all__ = ["TRIES", "on_processes"]

TRIES = 10  # how often workers may die without a single result between, before the study gives up


def on_processes(work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], workers: int) -> Iterator[tuple[int, Any]]:
    """Yield the number and the result of `work(*task)` for each task when it is done.

    If a worker dies, at any moment, all are started again, and what they had not finished is computed again.
    """
    waiting, deaths = dict(enumerate(tasks)), 0
    while waiting:
        try:
            for number, result in _until_one_dies(work, waiting, workers):
                deaths = 0
                del waiting[number]
                yield number, result
        except BrokenProcessPool as error:
            deaths += 1
            if deaths == TRIES:
                raise UndertowError(
                    f"workers: they died {TRIES} times in a row before anything was computed, perhaps for lack of "
                    "memory; use fewer of them (--threads), or none (no --cluster)"
                ) from error


def _until_one_dies(
    work: Callable[..., Any], tasks: dict[int, tuple[Any, ...]], workers: int
) -> Iterator[tuple[int, Any]]:
    context = multiprocessing.get_context("spawn")  # a fork would copy locks that threads of this process hold
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(min(workers, len(tasks)), mp_context=context, initializer=_begin) as pool:
        try:
            futures: dict[Future[Any], int] = {pool.submit(work, *task): number for number, task in tasks.items()}
            for future in as_completed(list(futures)):
                yield futures.pop(future), future.result()
        except BrokenProcessPool:
            for child in set(multiprocessing.active_children()) - others:
                child.kill()  # the pool waits for the rest of its workers to end, also when the program ends
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin() -> None:
    """Leave Ctrl-C to the process that asked for the work, and end when that process ends, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        wait([parent.sentinel])
        os._exit(1)
