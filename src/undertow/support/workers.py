"""Tasks on processes of this machine, connected by pipes: no port is open that others could use."""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from undertow.errors import UndertowError

__all__ = ["TRIES", "on_processes"]

TRIES = 10  # how often workers may die without a result between, before all is given up


class _Worker(NamedTuple):
    process: BaseProcess
    link: Connection


def on_processes(
    work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], workers: int
) -> Generator[tuple[int, Any], None, None]:
    """Yield the number and the result of `work(*task)` for each task when it is done.

    If a worker dies, at any time, another one replaces it and computes its task again. Each worker has a pipe that only
    this thread reads: the standard library's pool shares queues and counters between its own thread and the caller, and
    a worker that dies while others start can corrupt them.
    """
    waiting, deaths = list(enumerate(tasks))[::-1], 0
    idle: list[_Worker] = []
    busy: dict[_Worker, tuple[int, tuple[Any, ...]]] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                worker = idle.pop() if idle else _start(work)
                busy[worker] = waiting.pop()
                with suppress(OSError):  # it is dead: the next read of its pipe fails
                    worker.link.send(busy[worker][1])
            ready = wait([worker.link for worker in busy])
            for worker in [worker for worker in busy if worker.link in ready]:
                try:
                    result, error = worker.link.recv()
                except (EOFError, OSError):
                    waiting.append(busy.pop(worker))
                    _end(worker)
                    if (deaths := deaths + 1) == TRIES:
                        raise UndertowError(
                            f"workers: they died {TRIES} times in a row before anything was computed, perhaps for "
                            "lack of memory; use fewer of them (--threads), or omit --cluster"
                        ) from None
                    continue
                if error is not None:
                    raise error
                deaths = 0
                number, _ = busy.pop(worker)
                idle.append(worker)
                yield number, result
    finally:
        for worker in [*idle, *busy]:
            _end(worker)


def _start(work: Callable[..., Any]) -> _Worker:
    context = multiprocessing.get_context("spawn")  # a fork would copy locks that threads of this process hold
    link, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work), daemon=True)
    with suppress(BrokenPipeError):  # killed before it had read its task: its pipe ends
        process.start()
    theirs.close()  # so that the pipe ends with the worker
    return _Worker(process, link)


def _end(worker: _Worker) -> None:
    worker.link.close()
    if worker.process.pid is not None:
        worker.process.kill()  # files are written atomically
        worker.process.join()


def _serve(link: Connection, work: Callable[..., Any]) -> None:
    """Answer tasks until the pipe is closed; leave Ctrl-C to the parent process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError):
        while True:
            task = link.recv()
            try:
                answer: tuple[Any, Exception | None] = work(*task), None
            except Exception as error:
                error.add_note(f"raised by a worker:\n{''.join(traceback.format_tb(error.__traceback__))}")
                answer = None, error
            link.send(answer)


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        wait([parent.sentinel])
        os._exit(1)
