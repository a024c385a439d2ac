"""The folder of a study: complete chunks, verified by a hash, and written by one process at a time.

The tables of a chunk are written to a folder under a temporary name, synchronised with the disk and renamed, so every
existing folder was once complete. A hash of everything in a chunk reveals later damage.
"""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import polars as pl

from undertow.errors import InvalidInputError
from undertow.study.plan import Plan
from undertow.support.writing import alone, part_folder, replacing, sync

__all__ = ["Tables", "alone_in", "discard", "is_whole", "keep", "keep_tables", "open_folder", "read_tables"]

_PLAN, _LOCK, _HASH = "plan.json", ".lock", "hash"
_PARTS = ("regret.parquet", "detail.parquet", "seconds.json")
_GONE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)  # other errors say nothing about the file


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


def open_folder(plan: Plan, out: str | os.PathLike[str]) -> Path:
    """Return the folder of a plan's results below `out`, created if needed; a changed plan gets another folder."""
    folder = Path(out) / f"{plan.name}-{plan.digest}"
    try:
        (folder / "chunks").mkdir(parents=True, exist_ok=True)
        begun, file = any((folder / "chunks").iterdir()), folder / _PLAN  # in this order: another process may begin now
        if not file.exists():
            if begun:
                raise InvalidInputError(f"{folder}: holds results without a plan.json; move it away and start again")
            with replacing(file) as part:
                part.write_text(plan.to_json(), encoding="utf-8")
        elif file.read_text(encoding="utf-8") != plan.to_json():
            raise InvalidInputError(f"{folder}: its plan.json is not this plan; move it away and start again")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{folder}: cannot write results there ({error}); choose another with --out") from error
    return folder


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Be the only process that works in a folder, and remove leftovers of killed ones; refuse if another is at work.

    The lock ends with its process, however that ends.
    """
    busy = f"{folder}: another process is at work on this study; wait for it, or choose another folder with --out"
    with alone(folder / _LOCK, busy):
        for leftover in (folder / "chunks").glob("*.part-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield


def keep(folder: Path, index: int, result: Tables) -> None:
    """Write a chunk atomically."""
    with part_folder(folder / "chunks") as part:
        result.regret.write_parquet(part / "regret.parquet")
        result.detail.write_parquet(part / "detail.parquet")
        (part / "seconds.json").write_text(json.dumps(result.seconds), encoding="utf-8")
        contents = [(part / name).read_bytes() for name in _PARTS]
        (part / _HASH).write_text(_digest(folder, index, contents), encoding="utf-8")
        for name in (*_PARTS, _HASH):
            sync(part / name)
        sync(part)
        os.rename(part, _place(folder, index))
        sync(folder / "chunks")


def keep_tables(folder: Path, tables: Tables) -> None:
    """Write the tables of the whole study."""
    for name, table in (("regret", tables.regret), ("detail", tables.detail)):
        with replacing(folder / f"{name}.parquet") as part:
            table.write_parquet(part)


def read_tables(folder: Path, indices: Iterable[int] | None = None) -> Tables:
    """Return the tables of the chunks that are complete, in order."""
    if indices is None:
        indices = sorted(int(chunk.name) for chunk in (folder / "chunks").iterdir() if chunk.name.isdigit())
    chunks = []
    for index in indices:
        if (chunk := _read(folder, index)) is None:
            place = _place(folder, index)
            raise InvalidInputError(f"{place}: this chunk was damaged meanwhile; run the same command again to resume")
        chunks.append(chunk)
    regret, detail, seconds = zip(*chunks, strict=True)
    return Tables(pl.concat(regret), pl.concat(detail), sum(seconds))


def is_whole(folder: Path, index: int) -> bool | None:
    """Return whether a chunk is intact; None if it does not exist."""
    return _contents(folder, index) is not None if os.path.lexists(_place(folder, index)) else None


def discard(folder: Path, index: int) -> Path:
    """Remove a chunk, or whatever is in its place, and return the path."""
    place = _place(folder, index)
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink()
    return place


def _read(folder: Path, index: int) -> Tables | None:
    """Return a chunk; None if it is not intact."""
    contents = _contents(folder, index)
    if contents is None:
        return None
    regret, detail, seconds = contents
    return Tables(pl.read_parquet(io.BytesIO(regret)), pl.read_parquet(io.BytesIO(detail)), json.loads(seconds))


def _contents(folder: Path, index: int) -> list[bytes] | None:
    """Return the files of a chunk if their hash is correct, else None."""
    place = _place(folder, index)
    try:
        contents, known = [(place / name).read_bytes() for name in _PARTS], (place / _HASH).read_bytes()
    except _GONE:
        return None
    return contents if known == _digest(folder, index, contents).encode() else None


def _digest(folder: Path, index: int, contents: Iterable[bytes]) -> str:
    """Return a hash of a chunk's files, its number and its study (the folder's name)."""
    digest = hashlib.blake2b(f"{folder.name} {index}".encode(), digest_size=16)
    for content in contents:
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def _place(folder: Path, index: int) -> Path:
    return folder / "chunks" / f"{index:05}"
