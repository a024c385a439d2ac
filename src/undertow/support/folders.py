"""Folders of results: checked before any computation, and written atomically."""

import importlib.metadata
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from undertow.errors import InvalidInputError
from undertow.support.writing import part_folder, put, replacing

__all__ = ["naming", "plain", "require_writable", "versions", "whole", "write_csv", "write_json"]


def require_writable(folder: Path) -> None:
    """Create a folder if it does not exist, and refuse one that is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidInputError(
            f"{folder}: cannot write results there ({error.strerror}); choose another with --out"
        ) from error


@contextmanager
def naming(folder: Path) -> Iterator[None]:
    """Name the folder in errors without a file name, such as those of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror or str(error), str(folder)) from error


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder whose files move to `folder` once all are written; a failure leaves `folder` unchanged.

    Files with the same names are replaced; others stay.
    """
    with naming(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with part_folder(folder.parent) as part:
            yield part
            for file in sorted(part.rglob("*")):  # a folder before its content
                place = folder / file.relative_to(part)
                place.parent.mkdir(exist_ok=True)
                if file.is_file():
                    put(file, place)


def write_json(file: Path, content: Any) -> None:
    """Write an indented JSON file."""
    with replacing(file) as part:
        part.write_text(json.dumps(plain(content), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_csv(file: Path, frame: pl.DataFrame) -> None:
    """Write a CSV file; text that a spreadsheet would run as a formula is marked as text by an apostrophe."""
    text = pl.col(pl.String)
    runs = text.str.contains(r"^\s*[=+\-@\t\r]") & text.cast(pl.Float64, strict=False).is_null()
    with replacing(file) as part:
        frame.with_columns(pl.when(runs).then("'" + text).otherwise(text).name.keep()).write_csv(part)


def plain(value: Any) -> Any:
    """Return a value for JSON; numbers that are not finite become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(entry) for entry in value]
    return value


def versions() -> dict[str, str]:
    """Return the versions of everything that may affect a result."""
    return {name: importlib.metadata.version(name) for name in ("undertow", "numpy", "numba", "scipy", "polars")}
