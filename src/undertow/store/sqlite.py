"""A store in one SQLite file: for any number of processes of one machine.

SQLite locks the whole file, and its waiting processes retry after growing sleeps: of eight busy processes one waited
for seconds. So every transaction first waits for its turn at an advisory lock on a file beside the database. To pass on
such a lock, the kernel wakes all waiting processes; so only the next one waits for it, and the others wait for a second
lock during the transaction.
"""

import contextlib
import os
import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, ClassVar

from undertow.errors import InvalidInputError, StoreBusyError, StoreError, StoreUnavailableError
from undertow.store.sql import SqlStore, first_line

try:
    import fcntl
except ImportError:  # then only SQLite's own way of waiting is available
    fcntl = None  # type: ignore[assignment]

__all__ = ["SqliteStore"]

_WAITS_IN_LINE = fcntl is not None

_REMOTE = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ncpfs", "davfs", "lustre", "beegfs", "gpfs", "ceph"),
    *(f"fuse.{kind}" for kind in ("sshfs", "s3fs", "rclone", "gcsfuse", "glusterfs", "juicefs", "ceph", "ceph-fuse")),
}


class SqliteStore(SqlStore):
    """Bandits in a file; every commit is on the disk before it returns (WAL, synchronous=FULL)."""

    words: ClassVar[dict[str, str]] = {
        "blob": "BLOB",
        "real": "REAL",
        "serial": "INTEGER PRIMARY KEY",
        "key": " WITHOUT ROWID",
        "bytes": "BINARY",
    }
    mark: ClassVar[str] = "?"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        if not self.path.parent.is_dir():
            raise InvalidInputError(f"url: there is no folder {str(self.path.parent)!r}; create it first")
        if (kind := _file_system(self.path)) in _REMOTE:
            raise InvalidInputError(
                f"url: {str(self.path)!r} is on a network file system ({kind}), whose locks SQLite cannot trust; "
                f"use a local disk, or PostgreSQL"
            )
        super().__init__()

    def __repr__(self) -> str:
        return f"SqliteStore({str(self.path)!r})"

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, cached_statements=64)
        connection.execute("PRAGMA busy_timeout = 5000")
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def named(self, error: BaseException) -> Exception | None:
        """Convert an error of the database to undertow's; None if it is another one."""
        if not isinstance(error, sqlite3.Error):
            return None
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        what = f"{self.path}: {first_line(error)}"
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreBusyError(f"store: {what}; the call did not happen")
        if code == sqlite3.SQLITE_NOTADB:
            return InvalidInputError(f"url: {self.path} is no SQLite database")
        if code == sqlite3.SQLITE_CORRUPT:
            return StoreError(f"store: {what}; restore it from a backup")
        if code == sqlite3.SQLITE_CONSTRAINT:
            return StoreError(f"store: {what}; another process has written this event")
        return StoreUnavailableError(f"store: {what}; the call did not happen")

    def _is_lost(self, error: Exception) -> bool:
        return False

    @contextmanager
    def _turn(self, timeout: float) -> Iterator[None]:
        if not _WAITS_IN_LINE:
            yield
            return
        until = time.monotonic() + timeout
        with self._locked("next", until):
            file = self._locked("lock", until)
        with file:
            yield

    def _locked(self, which: str, until: float) -> IO[bytes]:
        """Lock one of the files beside the database; closed, it gives up the lock."""
        path = f"{self.path}-{which}"
        try:
            file = open(path, "ab")  # noqa: SIM115 (the holder of the lock closes it)
        except OSError as error:
            raise StoreUnavailableError(f"store: {path}: {error.strerror}; the call did not happen") from error
        if not _wait_in_line(file, until - time.monotonic()):
            raise StoreBusyError(f"store: others held the lock of {self.path} for too long; the call did not happen")
        _HELD.add(file)
        return file

    def _begin(self, connection: sqlite3.Connection, timeout: float) -> None:
        connection.execute("BEGIN IMMEDIATE")

    def _alone(self, connection: sqlite3.Connection) -> None:
        pass  # as every transaction is

    def _number(self, connection: sqlite3.Connection, name: str) -> Any:
        return connection.execute("SELECT number FROM bandits WHERE name = ?", (name,)).fetchone()

    def _has_tables(self, connection: sqlite3.Connection) -> bool:
        statement = "SELECT 1 FROM sqlite_master WHERE name = 'undertow'"
        return connection.execute(statement).fetchone() is not None


_HELD: "weakref.WeakSet[IO[bytes]]" = weakref.WeakSet()  # locks that some thread of this process holds


def _close_in_child() -> None:
    """Close a parent's locks in a forked process, which would hold them for as long as it lives."""
    for file in list(_HELD):
        file.close()


with contextlib.suppress(AttributeError):  # there are systems without forks
    os.register_at_fork(after_in_child=_close_in_child)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Have a file use WAL, which is for good; while another process has that done, SQLite does not wait, but fails."""
    until = time.monotonic() + 5.0  # as busy_timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.005)
        else:
            return


class _Place:
    """A place in the kernel's line for a lock, which a thread keeps: that line is fair, but knows no time-out."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._guard, self._mine, self._given_up = file, threading.Lock(), threading.Event(), False
        threading.Thread(target=self._wait, daemon=True, name="undertow-lock").start()

    def _wait(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        with self._guard:
            if self._given_up:
                self._file.close()
            else:
                self._mine.set()

    def comes_up(self, timeout: float) -> bool:
        """Wait until it is one's turn; after the time-out, or an interrupt, the place is given up."""
        try:
            self._mine.wait(timeout)
        finally:
            with self._guard:
                self._given_up = not self._mine.is_set()
        return not self._given_up


def _wait_in_line(file: IO[bytes], timeout: float) -> bool:
    """Lock a file; return False after the time-out, when the file must not be used any more."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _Place(file).comes_up(timeout)
    return True


def _file_system(path: Path, mounts: str | os.PathLike[str] = "/proc/mounts") -> str:
    """Return the kind of file system of a path; "" if unknown."""
    kind, length, place = "", -1, path.resolve()
    with contextlib.suppress(OSError, ValueError):
        for line in Path(mounts).read_text(encoding="utf-8").splitlines():
            _, mount, form, *_ = line.split(" ")
            folder = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), mount)
            if place.is_relative_to(folder) and len(folder) >= length:
                kind, length = form, len(folder)
    return kind
