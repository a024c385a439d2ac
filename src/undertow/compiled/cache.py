"""The cache of compiled kernels: its folders and their validity (docs/decisions/0001-kernels.md).

numba's own cache checks only the file of the kernel, not edits of a callee in another file. Here the cache folder of a
module carries a hash of its source and of every undertow module that it imports, directly or not. That of a foreign
module carries a stamp of all files of its package and of undertow. Code without an importable module (a notebook, a
script, a doctest) is compiled in every process.
"""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import llvmlite
import numba
from numba.core.registry import cpu_target

try:
    import fcntl
except ImportError:  # then processes that start together may compile the same kernels
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "alone",
    "cache_folder",
    "cache_roots",
    "is_incomplete",
    "mark_complete",
    "source_stamp",
    "to_be_compiled",
]

_PACKAGE = Path(__file__).parents[1]
_IMPORT = re.compile(r"^\s*(?:from\s+(undertow[\w.]*)\s+import\s+(\([^)]*\)|[^\n]*)|import\s+(undertow[\w.]*))", re.M)


def to_be_compiled(module: str) -> bool:
    """Return whether a module's kernels are not compiled yet, and can be cached."""
    folder = None if numba.config.DISABLE_JIT else cache_folder(module)
    return folder is not None and not any(folder.rglob("*.nbi"))


def is_incomplete(module: str) -> bool:
    """Return whether kernels of a module's policy may be missing on disk, and can be cached there."""
    mark = None if numba.config.DISABLE_JIT else _mark(module)
    return mark is not None and not mark.exists()


def _mark(module: str) -> Path | None:
    """Return the marker file for all kernels of a policy being on disk, for this processor and these versions."""
    folder = cache_folder(module)
    if folder is None:
        return None
    made_for = (sys.implementation.cache_tag, numba.__version__, llvmlite.__version__)
    return folder / f"complete-{_digest(made_for, cpu_target.target_context.codegen().magic_tuple())}"


def mark_complete(module: str) -> None:
    """Record that all kernels of a module's policy are on disk."""
    if (mark := _mark(module)) is not None and not numba.config.DISABLE_JIT:
        with contextlib.suppress(OSError):  # then the next process checks again
            mark.touch()


@contextlib.contextmanager
def alone(module: str) -> Iterator[None]:
    """Wait until no other process is in here for the same module."""
    folder = cache_folder(module)
    if folder is None or fcntl is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # where a newer version has removed the folder, both compile
            file = stack.enter_context((folder / "lock").open("w"))
            fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed, also by a process that dies
        yield


@functools.cache
def source_stamp(module: str) -> str:
    """Return a hash of a module's source and of all undertow sources that it can reach through imports."""
    reached: dict[Path, bytes] = {}
    todo = list(_source_files(module))
    while todo:
        path = todo.pop()
        if path not in reached:
            reached[path], imported = _read(path)
            todo.extend(imported)
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(reached):
        digest.update(str(path.relative_to(_PACKAGE)).encode() + b"\0" + reached[path] + b"\0")
    return digest.hexdigest()


@functools.cache
def _read(path: Path) -> tuple[bytes, list[Path]]:
    """Return a source file's content and the undertow files that it imports."""
    content = path.read_bytes()
    imported: list[Path] = []
    for package, names, whole in _IMPORT.findall(content.decode()):
        imported.extend(_source_files(package or whole))
        for name in re.findall(r"\w+", names):  # `from undertow import system` names a module too
            imported.extend(_source_files(f"{package}.{name}"))
    return content, imported


@functools.cache
def _source_files(module: str) -> tuple[Path, ...]:
    """Return the file of an undertow module; nothing for other names."""
    parts = module.split(".")
    if parts[0] != "undertow" or len(parts) == 1:  # undertow/__init__.py only lists names: no kernel depends on it
        return ()
    path = _PACKAGE.joinpath(*parts[1:])
    return tuple(file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file())


def cache_folder(module: str) -> Path | None:
    """Return the folder for a module's compiled kernels, created (and stale ones removed) after a change."""
    if module.startswith("undertow."):
        return _folder(module, source_stamp(module))
    file = Path(getattr(sys.modules.get(module), "__file__", None) or "")
    if module == "__main__" or not file.is_file():
        return None
    return _folder(f"{module}-{_digest(file)}", _outside_stamp(module, file))


@functools.cache
def _folder(name: str, stamp: str) -> Path | None:
    for root in cache_roots():
        folder = root / f"{name}-{stamp}"
        try:
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)  # another process may have done so
                for stale in root.glob(f"{name}-*"):
                    if stale != folder:
                        shutil.rmtree(stale, ignore_errors=True)
            if os.access(folder, os.W_OK):
                return folder
        except OSError:
            continue
    return None  # no writable folder: kernels are compiled in every process


def _outside_stamp(module: str, file: Path) -> str:
    """Return a stamp of all source files of a kernel outside undertow, by their times and lengths."""
    depth = module.count(".") + (file.name == "__init__.py")
    neighbours = [*file.parents][:depth][-1].rglob("*.py") if depth else file.parent.glob("*.py")
    return _digest(*map(_look, sorted([*neighbours, *_PACKAGE.rglob("*.py")])))


def _look(path: Path) -> tuple[str, int, int]:
    """Return name, time and length of a file, which may vanish meanwhile while an editor replaces it."""
    with contextlib.suppress(OSError):
        seen = path.stat()
        return str(path), seen.st_mtime_ns, seen.st_size
    return str(path), 0, 0


def _digest(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=4).hexdigest()


def cache_roots() -> list[Path]:
    """Return the possible cache folders, the best first."""
    own = f"undertow-{_digest(_PACKAGE)}"
    if numba.config.CACHE_DIR:
        return [Path(numba.config.CACHE_DIR) / own]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    elsewhere = [Path(home) / own] if os.path.isabs(home) else []  # a user may have no home
    return [_PACKAGE / "__pycache__" / "kernels", *elsewhere]
