"""Runs a plan in chunks: on threads or on a cluster, resumable at any moment, with the same tables in the end.

A chunk is some runs of one system with every policy on the same paths. Its tables are written to a folder of their own
under a temporary name and renamed when complete, so a folder that is there is whole. The final tables are the chunks in
order, whoever computed them and when.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from undertow.errors import InvalidInputError
from undertow.simulation import Run, simulate
from undertow.study.plan import Plan

__all__ = ["ChunkResult", "Progress", "Tables", "open_folder", "read_tables", "run_plan"]

Progress = Callable[[int, int], None]
_PLAN = "plan.json"


class ChunkResult(NamedTuple):
    """The tables of one chunk, and how long it took."""

    regret: pl.DataFrame
    detail: pl.DataFrame
    seconds: float


class Tables(NamedTuple):
    """The tables of a study.

    Attributes
    ----------
    regret
        system, policy, run, round, regret: one row per run and checkpoint.
    detail
        system, policy, run, round, arm, width, window, error, plays: for policies that record it, means over the rounds
        since the last checkpoint; `error` is the mean |reward − forecast| over the `plays` rounds that chose the arm.
    seconds
        Time spent computing, over all threads and machines.
    """

    regret: pl.DataFrame
    detail: pl.DataFrame
    seconds: float


def open_folder(plan: Plan, out: str | os.PathLike[str]) -> Path:
    """Return the folder of a plan's results below `out`, made if it is not there; a changed plan has another folder."""
    folder = Path(out) / f"{plan.name}-{plan.digest}"
    try:
        (folder / "chunks").mkdir(parents=True, exist_ok=True)
        file = folder / _PLAN
        if not file.exists():
            if any((folder / "chunks").iterdir()):
                raise InvalidInputError(f"{folder}: holds results without a plan.json; move it away and start again")
            _write(file, plan.to_json())
        elif file.read_text(encoding="utf-8") != plan.to_json():
            raise InvalidInputError(f"{folder}: its plan.json is not this plan; move it away and start again")
        for leftover in (folder / "chunks").glob("*.part-*"):
            shutil.rmtree(leftover, ignore_errors=True)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{folder}: cannot keep results there ({error}); choose another with --out") from error
    return folder


def run_plan(
    plan: Plan, folder: Path, *, threads: int = 1, cluster: str | None = None, progress: Progress | None = None
) -> Tables:
    """Run what is missing of a plan in its folder, and return the tables, which are written there too."""
    total = len(plan.chunks)
    progress = progress or (lambda done, total: None)
    missing = [index for index in range(total) if not _chunk_folder(folder, index).exists()]
    progress(total - len(missing), total)
    compute = _on_cluster(plan, missing, cluster, threads) if cluster else _on_threads(plan, missing, threads)
    for done, (index, result) in enumerate(compute, start=total - len(missing) + 1):
        _keep(folder, index, result)
        progress(done, total)
    tables = read_tables(folder, range(total))
    for name, table in (("regret", tables.regret), ("detail", tables.detail)):
        part = folder / f".{name}.part-{os.getpid()}"
        table.write_parquet(part)
        os.replace(part, folder / f"{name}.parquet")
    return tables


def read_tables(folder: Path, indices: Iterable[int] | None = None) -> Tables:
    """Return the tables of the chunks that are complete, in order."""
    if indices is None:
        indices = sorted(int(chunk.name) for chunk in (folder / "chunks").iterdir() if chunk.name.isdigit())
    chunks = [_chunk_folder(folder, index) for index in indices]
    seconds = sum(json.loads((chunk / "seconds.json").read_text()) for chunk in chunks)
    regret, detail = (
        pl.concat([pl.read_parquet(chunk / f"{name}.parquet", glob=False) for chunk in chunks])
        for name in ("regret", "detail")
    )
    return Tables(regret, detail, seconds)


def run_chunk(plan: Plan, index: int) -> ChunkResult:
    """Compute one chunk: sample its paths once, and run every policy on them."""
    start = time.perf_counter()
    number, runs = plan.chunks[index]
    spec = plan.systems[number]
    paths = spec.system.sample(plan.rounds, rng=plan.seed, burn_in=plan.burn_in, runs=runs, threads=1)
    regrets, details = [], [_DETAIL]
    for policy in plan.policies:
        record = ["widths", "windows", "errors"] if policy.detail else []
        played = simulate(policy.build(spec.system, plan.seed), paths, record=record, runs=runs, threads=1)
        regrets.append(_regret_rows(plan, played, spec.label, policy.label, runs))
        if policy.detail:
            details.append(_detail_rows(plan, played, spec.label, policy.label, runs))
    return ChunkResult(pl.concat(regrets), pl.concat(details), time.perf_counter() - start)


_KEYS = {"system": pl.String, "policy": pl.String, "run": pl.Int64, "round": pl.Int64}
_REGRET = pl.DataFrame(schema=_KEYS | {"regret": pl.Float64})
_DETAIL = pl.DataFrame(
    schema=_KEYS
    | {
        "arm": pl.Int64,
        "width": pl.Float64,
        "window": pl.Float64,
        "error": pl.Float64,
        "plays": pl.Int64,
    }
)


def _regret_rows(plan: Plan, played: Run, system: str, policy: str, runs: range) -> pl.DataFrame:
    assert played.regret is not None
    rounds = np.array(plan.checkpoint_rounds)
    columns = {"run": np.repeat(runs, len(rounds)), "round": np.tile(rounds, len(runs))}
    columns["regret"] = played.regret[:, rounds - 1].ravel()
    return _named(columns, system, policy, _REGRET)


def _detail_rows(plan: Plan, played: Run, system: str, policy: str, runs: range) -> pl.DataFrame:
    """Means between checkpoints, for each run and arm."""
    assert played.widths is not None
    assert played.windows is not None
    assert played.errors is not None
    rounds = np.array(plan.checkpoint_rounds)
    starts = np.concatenate([[0], rounds[:-1]])
    lengths = np.diff(np.concatenate([[0], rounds]))[:, None]
    k = played.widths.shape[-1]
    chosen = played.arms[..., None] == np.arange(k)

    def totals(values: Any) -> Any:
        return np.add.reduceat(values, starts, axis=1)  # (runs, checkpoints, arms)

    plays = totals(chosen.astype(np.int64))
    errors = totals(np.where(chosen, np.abs(played.errors)[..., None], 0.0))
    columns = {
        "run": np.repeat(runs, len(rounds) * k),
        "round": np.tile(np.repeat(rounds, k), len(runs)),
        "arm": np.tile(np.arange(k), len(runs) * len(rounds)),
        "width": (totals(np.where(np.isinf(played.widths), 0.0, played.widths)) / lengths).ravel(),
        "window": (totals(played.windows) / lengths).ravel(),
        "error": np.where(plays > 0, errors / np.maximum(plays, 1), np.nan).ravel(),
        "plays": plays.ravel(),
    }
    return _named(columns, system, policy, _DETAIL)


def _named(columns: dict[str, Any], system: str, policy: str, like: pl.DataFrame) -> pl.DataFrame:
    names = (pl.lit(system).alias("system"), pl.lit(policy).alias("policy"))
    return pl.DataFrame(columns).select(*names, pl.all()).cast(like.schema)


def _on_threads(plan: Plan, indices: list[int], threads: int) -> Iterator[tuple[int, ChunkResult]]:
    with ThreadPoolExecutor(threads) as pool:
        waiting: dict[Future[ChunkResult], int] = {pool.submit(run_chunk, plan, index): index for index in indices}
        try:
            for future in as_completed(waiting):
                yield waiting.pop(future), future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _on_cluster(plan: Plan, indices: list[int], address: str, workers: int) -> Iterator[tuple[int, ChunkResult]]:
    from undertow.study.cluster import compute_chunks

    yield from compute_chunks(plan, indices, address, workers)


def _chunk_folder(folder: Path, index: int) -> Path:
    return folder / "chunks" / f"{index:05}"


def _keep(folder: Path, index: int, result: ChunkResult) -> None:
    """Write a chunk whole or not at all."""
    final = _chunk_folder(folder, index)
    part = final.with_name(f"{final.name}.part-{os.getpid()}")
    try:
        part.mkdir()
        result.regret.write_parquet(part / "regret.parquet")
        result.detail.write_parquet(part / "detail.parquet")
        _write(part / "seconds.json", json.dumps(result.seconds))
        os.rename(part, final)
    except OSError:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _write(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
