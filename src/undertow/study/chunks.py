"""Run a plan in chunks, on threads or a cluster; resumable at any time, with the same tables in the end.

A chunk is some runs of one system with every policy on the same paths. `undertow.study.folder` stores it. The final
tables are the chunks in order, wherever and whenever they were computed.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from undertow.contenders import load_policies
from undertow.simulation import Run, simulate
from undertow.study.folder import Tables, alone_in, discard, is_whole, keep, keep_tables, open_folder, read_tables
from undertow.study.plan import Plan, build_for
from undertow.support.cluster import on_cluster
from undertow.support.pool import Progress, as_they_finish

__all__ = ["Tables", "compute_chunks", "open_folder", "read_tables", "run_chunk", "run_plan", "tables_of"]


def run_plan(
    plan: Plan,
    folder: Path,
    *,
    threads: int = 1,
    cluster: str | None = None,
    module: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Tables:
    """Run the missing chunks of a plan, write the tables to its folder, and return them.

    A damaged chunk counts as missing, and `say` reports it, by default to the log. One process at a time works in a
    folder; a second one is refused.
    """
    total = len(plan.chunks)
    progress = progress or (lambda done, total: None)
    with alone_in(folder):
        missing = _missing(total, folder, say or logging.getLogger("undertow").warning)
        progress(total - len(missing), total)
        if cluster:
            compute = compute_chunks(plan, missing, cluster, threads, module)
        else:
            compute = as_they_finish([partial(run_chunk, plan, index) for index in missing], threads)
        for done, (number, result) in enumerate(compute, start=total - len(missing) + 1):
            keep(folder, missing[number], result)
            progress(done, total)
        tables = read_tables(folder, range(total))
        keep_tables(folder, tables)
    return tables


def compute_chunks(
    plan: Plan, indices: list[int], address: str, workers: int, module: str | os.PathLike[str] | None = None
) -> Iterator[tuple[int, Tables]]:
    """Yield chunks by their place in `indices` as they are finished, computed on a cluster.

    Workers run the `module` first, which must have the same path for all of them.
    """
    content, code = plan.to_dict(), os.path.abspath(module) if module else None
    yield from on_cluster(_remote_chunk, [(content, index, code) for index in indices], address, workers)


def _remote_chunk(content: dict[str, Any], index: int, module: str | None) -> Tables:
    if module:
        load_policies(module)
    return run_chunk(Plan.from_dict(content), index)


def _missing(total: int, folder: Path, say: Callable[[str], None]) -> list[int]:
    """Return the chunks to compute; remove and report damaged ones."""
    missing = []
    for index in range(total):
        whole = is_whole(folder, index)
        if whole is False:
            say(f"{discard(folder, index)}: this chunk is damaged; it will be computed again")
        if not whole:
            missing.append(index)
    return missing


def run_chunk(plan: Plan, index: int) -> Tables:
    """Compute one chunk: sample its paths once, and run every policy on them."""
    start = time.perf_counter()
    number, runs = plan.chunks[index]
    spec = plan.systems[number]
    paths = plan.sample(spec.system, runs)
    parts = []
    for policy in plan.policies:
        record = ["widths", "windows", "errors"] if policy.detail else []
        played = simulate(build_for(policy, spec.system, plan.seed), paths, record=record, runs=runs, threads=1)
        parts.append(tables_of(plan, spec.label, policy.label, played, runs))
    regret, detail = (pl.concat(getattr(part, name) for part in parts) for name in ("regret", "detail"))
    return Tables(regret, detail, time.perf_counter() - start)


def tables_of(plan: Plan, system: str, policy: str, played: Run, runs: range) -> Tables:
    """Return the tables of one policy on one system; those of detail are empty if nothing was recorded."""
    rounds, names = np.array(plan.checkpoint_rounds), {"system": system, "policy": policy}
    detail = {} if played.widths is None else names | _detail(rounds, played, runs)
    return Tables(
        pl.DataFrame(names | _regret(rounds, played, runs), schema=_REGRET), pl.DataFrame(detail, schema=_DETAIL), 0.0
    )


_KEYS = {"system": pl.String, "policy": pl.String, "run": pl.Int64, "round": pl.Int64}
_REGRET = _KEYS | {"regret": pl.Float64}
_DETAIL = _KEYS | {"arm": pl.Int64, **dict.fromkeys(("width", "window", "error"), pl.Float64), "plays": pl.Int64}


def _regret(rounds: npt.NDArray[np.int64], played: Run, runs: range) -> dict[str, Any]:
    assert played.regret is not None
    columns = {"run": np.repeat(runs, len(rounds)), "round": np.tile(rounds, len(runs))}
    return columns | {"regret": played.regret[:, rounds - 1].ravel()}


def _detail(rounds: npt.NDArray[np.int64], played: Run, runs: range) -> dict[str, Any]:
    """Means between checkpoints, for each run and arm."""
    assert played.widths is not None
    assert played.windows is not None
    assert played.errors is not None
    starts = np.concatenate([[0], rounds[:-1]])
    lengths = (rounds - starts)[:, None]
    k = played.widths.shape[-1]
    chosen = played.arms[..., None] == np.arange(k)

    def totals(values: Any) -> Any:
        return np.add.reduceat(values, starts, axis=1)  # (runs, checkpoints, arms)

    plays = totals(chosen.astype(np.int64))
    errors = totals(np.where(chosen, np.abs(played.errors)[..., None], 0.0))
    return {
        "run": np.repeat(runs, len(rounds) * k),
        "round": np.tile(np.repeat(rounds, k), len(runs)),
        "arm": np.tile(np.arange(k), len(runs) * len(rounds)),
        "width": (totals(np.where(np.isinf(played.widths), 0.0, played.widths)) / lengths).ravel(),
        "window": (totals(played.windows) / lengths).ravel(),
        "error": np.where(plays > 0, errors / np.maximum(plays, 1), np.nan).ravel(),
        "plays": plays.ravel(),
    }
