"""The same chunks on dask.distributed: on the cores of this machine, or on a cluster that runs already."""

import importlib.util
from collections.abc import Iterator
from typing import Any

from undertow.errors import InvalidInputError
from undertow.study.plan import Plan

__all__ = ["compute_chunks"]

_TRIES = 10  # how often a chunk may be lost with its worker before the study gives up


def compute_chunks(plan: Plan, indices: list[int], address: str, workers: int) -> Iterator[tuple[int, Any]]:
    """Yield chunks by their place in `indices` as the cluster finishes them; one lost with its worker is run again."""
    if importlib.util.find_spec("distributed") is None:
        raise InvalidInputError("cluster: dask.distributed is not installed; pip install 'undertow[cluster]'")
    from distributed import as_completed

    content = plan.to_dict()
    with _connect(address, workers) as client:
        futures = {
            client.submit(_remote_chunk, content, index, pure=False, retries=_TRIES): place
            for place, index in enumerate(indices)
        }
        for future in as_completed(list(futures)):
            yield futures.pop(future), future.result()
            future.release()


def _connect(address: str, workers: int) -> Any:
    import dask
    from distributed import Client

    dask.config.set({"distributed.scheduler.allowed-failures": _TRIES})
    if address == "local":
        return Client(n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None)
    try:
        return Client(address, timeout=10)
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInputError(f"cluster: no scheduler answers at {address!r} ({error})") from error


def _remote_chunk(content: dict[str, Any], index: int) -> Any:
    from undertow.study.chunks import run_chunk

    return run_chunk(Plan.from_dict(content), index)
