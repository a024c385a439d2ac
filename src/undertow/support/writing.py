"""Atomic writing of files: complete and on disk before they replace the old ones.

A file is written under a temporary name next to its place and takes that place when it is complete. A lock of the
operating system is held meanwhile. A killed process loses its lock, so the next writer can tell which temporary files
are abandoned, and removes them. On systems without such locks, nothing is removed.
"""

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from undertow.errors import InvalidInputError

try:
    import fcntl

    _LOCKS = True
except ModuleNotFoundError:  # not on this system
    _LOCKS = False

__all__ = ["alone", "part_folder", "put", "replacing", "require_file", "sync"]

_PART = ".part-"
_LONGEST = 180  # bytes of a name that its temporary name repeats; file systems allow at most 255
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)  # some network file systems


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a name to write to; the file replaces `path` in the end, and a failure leaves `path` unchanged.

    A symbolic link stays, and the file that it points to is replaced. The new file has the mode of the old one.
    """
    target, before = _target(path)
    stem = os.fsdecode(os.fsencode(target.name)[:_LONGEST])
    _remove_leftovers(target.parent, f".{stem}{_PART}")
    mode = 0o666 if before is None else 0o600  # whoever may not read the old file may not read the new one

    part = target.with_name(f".{stem}{_PART}{secrets.token_hex(6)}{target.suffix[:16]}")

    def make() -> None:
        open(part, "xb", opener=partial(os.open, mode=mode)).close()

    try:
        with _held(part, make, partial(open, part, "rb")):
            yield part
            _settle(part, target, before)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def put(file: Path, path: str | os.PathLike[str]) -> None:
    """Move a complete file to its place, as `replacing` does."""
    target, before = _target(path)
    try:
        _settle(file, target, before)
    except OSError as error:
        if error.errno != errno.EXDEV:  # a link to another disk
            raise
        with replacing(target) as part:
            shutil.copyfile(file, part)


@contextmanager
def part_folder(parent: Path) -> Iterator[Path]:
    """Yield a temporary folder in `parent`; files that are not moved elsewhere are removed in the end."""
    _remove_leftovers(parent, _PART)

    part = parent / f"{_PART}{secrets.token_hex(6)}"
    try:
        with _held(part, part.mkdir, partial(_Handle, part)):
            yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def sync(path: Path) -> None:
    """Flush a file or a folder to disk, so that it survives a power cut."""
    try:
        handle = _Handle(path)
    except PermissionError:  # a folder may be writable but not readable, and some systems cannot open folders
        return
    try:
        os.fsync(handle.fileno())
    except OSError as error:
        if error.errno != errno.EINVAL:  # this kind of file cannot be synchronised
            raise
    finally:
        handle.close()


@contextmanager
def alone(file: Path, busy: str) -> Iterator[None]:
    """Hold a lock that ends with this process, however it ends; raise `busy` if another process holds it."""
    handle = os.open(file, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        if _LOCKS and not _lock(handle):
            raise InvalidInputError(busy)
        yield
    finally:
        os.close(handle)


def _target(path: str | os.PathLike[str]) -> tuple[Path, os.stat_result | None]:
    """Return the resolved path and its status, None if nothing is there; refuse all but regular files."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path: there is no folder {str(target.parent)!r} to save into")
    try:
        before = target.stat()
    except FileNotFoundError:
        return target, None
    _require_regular(path, before)
    return target, before


def require_file(path: str | os.PathLike[str]) -> None:
    """Refuse to read anything but a regular file: a pipe may wait forever, and a device never ends."""
    _require_regular(path, os.stat(path))


def _require_regular(path: str | os.PathLike[str], found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a device or a pipe"
        raise InvalidInputError(f"{os.fspath(path)}: expected the name of a file, and this is {kind}")


def _settle(part: Path, target: Path, before: os.stat_result | None) -> None:
    """Give a complete file the owner and mode of the old one, and move it there."""
    if before is not None:
        if hasattr(os, "chown") and (before.st_uid, before.st_gid) != (part.stat().st_uid, part.stat().st_gid):
            with contextlib.suppress(PermissionError):  # only root may give files away
                os.chown(part, before.st_uid, before.st_gid)
        part.chmod(stat.S_IMODE(before.st_mode))
    sync(part)
    os.replace(part, target)
    sync(target.parent)


class _Open(Protocol):
    """Open until it is closed, or until its opener is interrupted and no reference is left."""

    def fileno(self) -> int: ...
    def close(self) -> None: ...


class _Handle:
    """A file or a folder that is open for reading.

    Opening and closing take one instruction of the interpreter each, so no signal can come in between.
    """

    def __init__(self, path: Path) -> None:
        self._handles: list[int] = []
        self._handles.extend(map(os.open, [path], [os.O_RDONLY]))

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._handles[0]

    def close(self) -> None:
        """Close it, once."""
        any(map(os.close, map(list.pop, [self._handles] if self._handles else [])))

    def __del__(self) -> None:
        if hasattr(self, "_handles"):  # not if it was interrupted before
            self.close()


@contextmanager
def _held(part: Path, make: Callable[[], object], opened: Callable[[], _Open]) -> Iterator[None]:
    """Make a temporary file or folder, and hold its lock."""
    if not _LOCKS:
        make()
        yield
        return
    held = None
    while held is None:  # another writer may take it for a leftover, before it is locked
        with contextlib.suppress(FileExistsError):  # and be about to remove it
            make()
        held = _claim(part, opened)
    with contextlib.closing(held):
        yield


def _claim(part: Path, opened: Callable[[], _Open]) -> _Open | None:
    """Open and lock a temporary file or folder; None if another writer took it."""
    with contextlib.suppress(FileNotFoundError):
        held = opened()
        if _lock(held.fileno()) and os.path.samestat(os.fstat(held.fileno()), part.stat()):
            return held
        held.close()
    return None


def _remove_leftovers(folder: Path, prefix: str) -> None:
    """Remove files of killed writers: their locks are free."""
    if not _LOCKS:
        return
    ours = re.compile(re.escape(prefix) + r"[0-9a-z_]{8,12}(\.[^.]*)?")
    for name in filter(ours.fullmatch, _names(folder)):
        part = folder / name
        with contextlib.suppress(OSError):  # removed by another writer meanwhile, or owned by another user
            handle = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(part) if part.is_dir() else part.unlink()
            finally:
                os.close(handle)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except PermissionError:  # a folder may be writable but not readable
        return []


def _lock(handle: int) -> bool:
    """Take the lock of an open file if it is free; True also on systems without locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True
