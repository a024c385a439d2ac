"""The same chunks on processes of this machine, or on an existing dask.distributed cluster.

A scheduler of dask runs any code that is sent to its port. So none is started here: local workers are child processes.
The safety of an existing cluster depends on its set-up.
"""

import importlib.util
import os
from collections.abc import Iterator
from typing import Any

from undertow.contenders import load_policies
from undertow.errors import InvalidInputError
from undertow.study.plan import Plan
from undertow.study.workers import TRIES, on_processes

__all__ = ["compute_chunks"]

PATIENCE = 10  # seconds in which a scheduler must answer


def compute_chunks(
    plan: Plan, indices: list[int], address: str, workers: int, module: str | os.PathLike[str] | None = None
) -> Iterator[tuple[int, Any]]:
    """Yield chunks by their place in `indices` as they finish; retry those lost with their worker.

    Workers run the `module` first, which must have the same path for all of them.
    """
    content, code = plan.to_dict(), os.path.abspath(module) if module else None
    if address == "local":
        yield from on_processes(_remote_chunk, [(content, index, code) for index in indices], workers)
        return
    if importlib.util.find_spec("distributed") is None:
        raise InvalidInputError("cluster: dask.distributed is not installed; pip install 'undertow[cluster]'")
    from distributed import as_completed

    with _connect(address) as client:
        futures = {
            client.submit(_remote_chunk, content, index, code, pure=False, retries=TRIES): place
            for place, index in enumerate(indices)
        }
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


def _remote_chunk(content: dict[str, Any], index: int, module: str | None) -> Any:
    from undertow.study.chunks import run_chunk

    if module:
        load_policies(module)
    return run_chunk(Plan.from_dict(content), index)
