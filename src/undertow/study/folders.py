"""Folders of results: checked before anything is computed, and written whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from undertow.errors import InvalidInputError

__all__ = ["naming", "require_writable", "whole"]


def require_writable(folder: Path) -> None:
    """Make a folder if it is not there, and refuse one that cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidInputError(
            f"{folder}: cannot keep results there ({error.strerror}); choose another with --out"
        ) from error


@contextmanager
def naming(folder: Path) -> Iterator[None]:
    """Say of what cannot be written where it was to go: of a full disk, nobody else does."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror or str(error), str(folder)) from error


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """Yield a folder to write to, whose files go to `folder` when all are there; a failure changes nothing there.

    Files of the same names are replaced, others stay.
    """
    with naming(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))
        try:
            yield part
            for file in sorted(part.rglob("*")):  # a folder before what is in it
                place = folder / file.relative_to(part)
                place.parent.mkdir(exist_ok=True)
                if file.is_file():
                    os.replace(file, place)
        finally:
            shutil.rmtree(part, ignore_errors=True)
