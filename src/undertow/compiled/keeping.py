"""Safe storage of compiled kernels: problems on disk never stop a kernel.

numba's cache trusts its files. A damaged one is an error at best and wrong machine code at worst, a full disk ends the
program, and two processes that compile one function for different types can mix up their files. Here every file ends
with a hash and is named after its content. If anything fails, the kernel is compiled in memory, and one log line names
the place and the remedy.
"""

import contextlib
import hashlib
import io
import logging
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.runtime import rtsys

__all__ = ["KernelCache", "tell_once"]

_HASH = 16  # bytes at the end of every file
_told: set[str] = set()


def tell_once(what: str, message: str) -> None:
    """Write a warning to the log, the first time in this process that there is one of a kind."""
    if what not in _told:
        _told.add(what)
        logging.getLogger("undertow.kernels").warning(message)


class DamagedFileError(Exception):
    """A file of the cache is damaged."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class KernelCache(FunctionCache):  # type: ignore[misc]
    """The cache of one kernel: unreadable files are removed, and failing writes are ignored."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        file = self._cache_file  # type: ignore[has-type]
        self._cache_file = _CheckedFile(file._cache_path, self._impl.filename_base, file._source_stamp)  # noqa: SLF001

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the machine code for a signature; None if it must be compiled."""
        try:
            rtsys.initialize(target_context)  # enough for machine code; numba also loads parts for a compiler
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)
        except Exception as error:  # any error of pickle, numba or LLVM on a file
            bad = getattr(error, "path", self._cache_file.index)
            with contextlib.suppress(OSError):
                os.unlink(bad)
            tell_once(
                "damaged",
                f"{bad}: a file of compiled kernels that cannot be read ({_reason(error)}); it was removed, and the "
                "kernel is compiled again. If this happens again, check the disk or set NUMBA_CACHE_DIR to another "
                "folder",
            )
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write the machine code for a signature, if possible."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            tell_once(
                "unwritable",
                f"{self.cache_path}: compiled kernels cannot be kept there ({_reason(error)}), so every "
                "process compiles them; free some space, or set NUMBA_CACHE_DIR to a writable folder",
            )


class _CheckedFile(IndexDataCacheFile):  # type: ignore[misc]
    """The files of one kernel, each with a hash at its end."""

    @property
    def index(self) -> str:
        return str(self._index_path)

    def save(self, key: Any, data: Any) -> None:
        """Write the data before the index that names it, under a unique name."""
        digest = hashlib.blake2b(repr(key).encode(), digest_size=8).hexdigest()
        name = f"{self._index_name.removesuffix('.nbi')}.{digest}.nbc"
        self._save_data(name, data)
        try:
            known = self._load_index()
        except Exception:  # damaged: write it again
            known = {}
        self._save_index(known | {key: name})

    def _load_index(self) -> dict[Any, str]:
        try:
            content = io.BytesIO(_checked(self._index_path))
        except FileNotFoundError:
            return {}
        if pickle.load(content) != self._version:
            return {}
        stamp, known = pickle.load(content)
        return known if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        return pickle.loads(_checked(self._data_path(name)))

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        content = io.BytesIO()
        yield content
        with super()._open_for_write(filepath) as file:
            file.write(content.getvalue() + _hash(content.getvalue()))


def _checked(path: str) -> bytes:
    """Return the content of a file without the hash at its end, which must match."""
    content = Path(path).read_bytes()
    body, known = content[:-_HASH], content[-_HASH:]
    if known != _hash(body):
        raise DamagedFileError(path)
    return body


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_HASH).digest()


def _reason(error: Exception) -> str:
    if isinstance(error, DamagedFileError):
        return "it is damaged"
    return str(getattr(error, "strerror", None) or str(error) or type(error).__name__)
