"""The same tasks on processes of this machine, or on an existing dask.distributed cluster.

A scheduler of dask runs any code that is sent to its port. So none is started here: local workers are child processes.
The safety of an existing cluster depends on its set-up.
"""

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from undertow.errors import InvalidInputError
from undertow.support.workers import TRIES, on_processes

__all__ = ["on_cluster"]

PATIENCE = 10  # seconds in which a scheduler must answer


def on_cluster(
    work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], address: str, workers: int
) -> Iterator[tuple[int, Any]]:
    """Yield the number and the result of `work(*task)` for each task when it is done, with so many workers if local.

    A task that is lost with its worker is run again.
    """
    if address == "local":
        yield from on_processes(work, tasks, workers)
        return
    if importlib.util.find_spec("distributed") is None:
        raise InvalidInputError("cluster: dask.distributed is not installed; pip install 'undertow[cluster]'")
    from distributed import as_completed

    with _connect(address) as client:
        futures = {client.submit(work, *task, pure=False, retries=TRIES): number for number, task in enumerate(tasks)}
        for future in as_completed(list(futures)):
            yield futures.pop(future), future.result()
            future.release()


def _connect(address: str) -> Any:
    import dask
    from distributed import Client

    dask.config.set({"distributed.scheduler.allowed-failures": TRIES})
    try:
        return Client(address, timeout=PATIENCE)
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInputError(f"cluster: no scheduler answers at {address!r} ({error})") from error
