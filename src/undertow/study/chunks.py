"""Run a plan in chunks, on threads or a cluster; resumable at any moment, with the same tables in the end.

A chunk is some runs of one system with every policy on the same paths. Its tables are written to a folder of their own
under a temporary name and renamed when complete, so a folder that is there is whole. The final tables are the chunks in
order, wherever and whenever they were computed.
"""

import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from undertow.errors import InvalidInputError
from undertow.reporting.pool import Progress, as_they_finish
from undertow.simulation import Run, simulate
from undertow.study.plan import Plan, build_for

__all__ = ["ChunkResult", "Tables", "open_folder", "read_tables", "run_plan"]

_PLAN = "plan.json"


class Tables(NamedTuple):
    """The tables of a study, or of one chunk of it.

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


ChunkResult = Tables  # of one chunk


def open_folder(plan: Plan, out: str | os.PathLike[str]) -> Path:
    """Return the folder of a plan's results below `out`, created if needed; a changed plan gets another folder."""
    folder = Path(out) / f"{plan.name}-{plan.digest}"
    try:
        (folder / "chunks").mkdir(parents=True, exist_ok=True)
        file = folder / _PLAN
        if not file.exists():
            if any((folder / "chunks").iterdir()):
                raise InvalidInputError(f"{folder}: holds results without a plan.json; move it away and start again")
            with _replacing(file) as part:
                part.write_text(plan.to_json(), encoding="utf-8")
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
    """Run the missing chunks of a plan, write the tables to its folder, and return them."""
    total = len(plan.chunks)
    progress = progress or (lambda done, total: None)
    missing = [index for index in range(total) if not _chunk_folder(folder, index).exists()]
    progress(total - len(missing), total)
    if cluster:
        from undertow.study.cluster import compute_chunks  # dask takes a second to import

        compute = compute_chunks(plan, missing, cluster, threads)
    else:
        compute = as_they_finish([partial(run_chunk, plan, index) for index in missing], threads)
    for done, (number, result) in enumerate(compute, start=total - len(missing) + 1):
        _keep(folder, missing[number], result)
        progress(done, total)
    tables = read_tables(folder, range(total))
    for name, table in (("regret", tables.regret), ("detail", tables.detail)):
        with _replacing(folder / f"{name}.parquet") as part:
            table.write_parquet(part)
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


def run_chunk(plan: Plan, index: int) -> Tables:
    """Compute one chunk: sample its paths once, and run every policy on them."""
    start = time.perf_counter()
    number, runs = plan.chunks[index]
    spec = plan.systems[number]
    paths = spec.system.sample(plan.rounds, rng=plan.seed, burn_in=plan.burn_in, runs=runs, threads=1)
    rounds = np.array(plan.checkpoint_rounds)
    regrets, details = [], [pl.DataFrame(schema=_DETAIL)]
    for policy in plan.policies:
        record = ["widths", "windows", "errors"] if policy.detail else []
        played = simulate(build_for(policy, spec.system, plan.seed), paths, record=record, runs=runs, threads=1)
        names = {"system": spec.label, "policy": policy.label}
        regrets.append(pl.DataFrame(names | _regret(rounds, played, runs), schema=_REGRET))
        if policy.detail:
            details.append(pl.DataFrame(names | _detail(rounds, played, runs), schema=_DETAIL))
    return Tables(pl.concat(regrets), pl.concat(details), time.perf_counter() - start)


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


def _chunk_folder(folder: Path, index: int) -> Path:
    return folder / "chunks" / f"{index:05}"


def _keep(folder: Path, index: int, result: Tables) -> None:
    """Write a chunk whole or not at all."""
    final = _chunk_folder(folder, index)
    part = final.with_name(f"{final.name}.part-{os.getpid()}")
    try:
        part.mkdir()
        result.regret.write_parquet(part / "regret.parquet")
        result.detail.write_parquet(part / "detail.parquet")
        (part / "seconds.json").write_text(json.dumps(result.seconds), encoding="utf-8")
        os.rename(part, final)
    except OSError:
        shutil.rmtree(part, ignore_errors=True)
        raise


@contextmanager
def _replacing(file: Path) -> Iterator[Path]:
    """Yield a name to write to, which takes the place of `file` in the end."""
    part = file.with_name(f".{file.name}.part-{os.getpid()}")
    yield part
    os.replace(part, file)
