"""How every file is written: whole or not at all, on disk before it counts, with respect for what was there.

A file is written under a temporary name next to its place and takes that place when it is complete. A lock of the
operating system is held meanwhile. A process that is killed loses the lock, and so the next writer knows which
temporary files nobody will complete, and removes them. Where there are no such locks, nothing is removed.
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
_LONGEST = 180  # bytes of a name that its temporary name repeats; 255 are the most that file systems take
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)  # some network file systems


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a name to write to; the file takes the place of `path` in the end, and a failure changes nothing there.

    A symbolic link stays, and the file that it points to is replaced. The new file has the mode of the old one.
    """
    target, before = _target(path)
    stem = os.fsdecode(os.fsencode(target.name)[:_LONGEST])
    _remove_leftovers(target.parent, f".{stem}{_PART}")
    mode = 0o666 if before is None else 0o600  # nobody reads the new file who may not read the old one

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
    """Yield a temporary folder in `parent`; what is not moved elsewhere in the end is removed."""
    _remove_leftovers(parent, _PART)

    part = parent / f"{_PART}{secrets.token_hex(6)}"
    try:
        with _held(part, part.mkdir, partial(_Handle, part)):
            yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def sync(path: Path) -> None:
    """Have a file or a folder on disk before this returns; a power cut then finds it there."""
    try:
        handle = _Handle(path)
    except PermissionError:  # a folder may be written and not read, and on some systems no folder is opened
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
    """Hold a lock that ends with this process, however it ends; an error says `busy` where another process holds it."""
    handle = os.open(file, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        if _LOCKS and not _lock(handle):
            raise InvalidInputError(busy)
        yield
    finally:
        os.close(handle)


def _target(path: str | os.PathLike[str]) -> tuple[Path, os.stat_result | None]:
    """Return the place that is meant and what is there, None if nothing; refuse what is no regular file."""
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
    """Refuse to read what is no regular file: a pipe may wait forever, and a device never ends."""
    _require_regular(path, os.stat(path))


def _require_regular(path: str | os.PathLike[str], found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a device or a pipe"
        raise InvalidInputError(f"{os.fspath(path)}: expected the name of a file, and this is {kind}")


def _settle(part: Path, target: Path, before: os.stat_result | None) -> None:
    """Give a complete file the owner and the mode of the one before, and its place."""
    if before is not None:
        if hasattr(os, "chown") and (before.st_uid, before.st_gid) != (part.stat().st_uid, part.stat().st_gid):
            with contextlib.suppress(PermissionError):  # only root may give files away
                os.chown(part, before.st_uid, before.st_gid)
        part.chmod(stat.S_IMODE(before.st_mode))
    sync(part)
    os.replace(part, target)
    sync(target.parent)


class _Open(Protocol):
    """What is open until it is closed, or until whoever opened it is interrupted: nobody refers to it then."""

    def fileno(self) -> int: ...
    def close(self) -> None: ...


class _Handle:
    """A file or a folder that is open for reading.

    It is opened and closed by one instruction of the interpreter each, so that no signal can come in between.
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
        with contextlib.suppress(FileExistsError):  # and is about to remove it
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
    """Remove what writers left that were killed: their locks are free."""
    if not _LOCKS:
        return
    ours = re.compile(re.escape(prefix) + r"[0-9a-z_]{8,12}(\.[^.]*)?")
    for name in filter(ours.fullmatch, _names(folder)):
        part = folder / name
        with contextlib.suppress(OSError):  # removed by another writer meanwhile, or somebody else's
            handle = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(part) if part.is_dir() else part.unlink()
            finally:
                os.close(handle)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except PermissionError:  # a folder may be written and not read
        return []


def _lock(handle: int) -> bool:
    """Take the lock of an open file if nobody has it; True also where there are no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True
