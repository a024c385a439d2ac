"""The tables of a store, and the common code of both databases."""

import abc
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from types import TracebackType
from typing import Any, ClassVar

from undertow.errors import InvalidInputError, StoreError, StoreUnavailableError
from undertow.store.base import HIDDEN, SCHEMA, Answer, Locked, Overview, Row, Store
from undertow.store.sql_locked import SqlLocked, answer_of, row_of

__all__ = ["SqlStore", "first_line"]

_PARAMETERS = 500  # of one statement; SQLite takes 999
PATIENCE = 30.0  # seconds in which tables and bandits must be created

# One statement each; {blob}, {real}, {serial} and {key} are the words of a database, {bytes} its order of UTF-8
_TABLES = (
    "CREATE TABLE undertow (version INTEGER NOT NULL)",
    "CREATE TABLE bandits (number {serial}, name TEXT NOT NULL UNIQUE, spec {blob} NOT NULL)",
    "CREATE TABLE events (bandit INTEGER NOT NULL, n BIGINT NOT NULL, mark {blob} NOT NULL, at {real} NOT NULL,"
    " body {blob} NOT NULL, PRIMARY KEY (bandit, n)){key}",
    "CREATE TABLE checkpoints (bandit INTEGER NOT NULL, n BIGINT NOT NULL, content {blob} NOT NULL,"
    " PRIMARY KEY (bandit, n))",
    "CREATE TABLE ids (bandit INTEGER NOT NULL, id TEXT NOT NULL, n BIGINT NOT NULL, content {blob} NOT NULL,"
    " reward {real}, PRIMARY KEY (bandit, id)){key}",
    "CREATE TABLE claims (bandit INTEGER NOT NULL, model TEXT NOT NULL, requested BIGINT NOT NULL,"
    " holder {blob} NOT NULL, until {real} NOT NULL, PRIMARY KEY (bandit, model))",
    "CREATE TABLE times (bandit INTEGER PRIMARY KEY, decided {real}, rewarded {real})",
)
_OVERVIEW = (
    "SELECT name, COALESCE((SELECT MAX(n) FROM events WHERE bandit = number), 0), decided, rewarded"
    " FROM bandits JOIN times ON bandit = number "
)
_MIGRATIONS: dict[int, Sequence[str]] = {}  # from a version to the next one


class SqlStore(Store):
    """A store in a database; connections are shared by the threads of a process, and never used after a fork."""

    words: ClassVar[dict[str, str]]  # of the tables
    mark: ClassVar[str]  # the mark of a parameter in a statement

    def __init__(self) -> None:
        self._renew()
        self._prepare()

    # Different for each database

    @abc.abstractmethod
    def _connect(self) -> Any:
        """Return a new connection, in which every statement is its own transaction unless one is begun."""

    @abc.abstractmethod
    def named(self, error: BaseException) -> Exception | None:
        """Convert an error of the database to undertow's; None if it is another one."""

    @abc.abstractmethod
    def _is_lost(self, error: Exception) -> bool:
        """Return whether an error says that a connection is lost."""

    @abc.abstractmethod
    def _turn(self, timeout: float) -> AbstractContextManager[None]:
        """Wait for a turn, if the database has no fair queue."""

    @abc.abstractmethod
    def _begin(self, connection: Any, timeout: float) -> None:
        """Begin a transaction, with a time limit for locks."""

    @abc.abstractmethod
    def _alone(self, connection: Any) -> None:
        """Lock tables and the creation of bandits until this transaction ends."""

    @abc.abstractmethod
    def _number(self, connection: Any, name: str) -> Any:
        """Return the row of a bandit's number, locked until the transaction ends."""

    @abc.abstractmethod
    def _has_tables(self, connection: Any) -> bool:
        """Return whether the tables exist."""

    def failing(self) -> "_Failing":
        """Raise the errors of the database as undertow's."""
        return _Failing(self)

    # Connections

    def _renew(self) -> None:
        """Drop all connections, in a forked process."""
        self._idle: list[Any] = []
        self._guard, self._pid = threading.Lock(), os.getpid()
        weakref.finalize(self, _discard_all, self._idle, self._pid)

    def _take(self) -> Any:
        """Return a free connection."""
        if os.getpid() != self._pid:
            _LEFT.append(self._idle)
            self._renew()
        with self._guard:
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def _give(self, connection: Any) -> None:
        """Take a connection back."""
        with self._guard:
            self._idle.append(connection)

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """Lend a connection; after a failure it is closed, which ends its transaction."""
        connection = self._take()
        try:
            yield connection
        except BaseException:
            _discard(connection)
            raise
        self._give(connection)

    def close(self) -> None:
        """Close the connections of this process."""
        with self._guard:
            _discard_all(self._idle, self._pid)

    def _begun(self, timeout: float) -> Any:
        """Return a connection in a new transaction; if the server has dropped it meanwhile, a new one."""
        for last in (False, True):
            connection = self._take()
            try:
                self._begin(connection, timeout)
            except Exception as error:
                _discard(connection)
                if last or not self._is_lost(error):
                    raise
                self.close()  # the others are lost, too
            except BaseException:
                _discard(connection)
                raise
            else:
                return connection
        raise AssertionError("unreachable")

    @contextmanager
    def _transaction(self, timeout: float) -> Iterator[Any]:
        """Lend a connection for a transaction that locks tables and the creation of bandits."""
        with self.failing(), self._turn(timeout):
            connection = self._begun(timeout)
            try:
                self._alone(connection)
                yield connection
                self._commit(connection)
            except BaseException:
                _discard(connection)
                raise
            self._give(connection)

    def _commit(self, connection: Any) -> None:
        connection.execute("COMMIT")

    def sql(self, text: str) -> str:
        """Return a statement with the marks of this database for its parameters."""
        return text.replace("?", self.mark)

    # Tables

    def _prepare(self) -> None:
        """Make the tables, or bring those of an older version to this one, in one transaction."""
        with self.failing(), self._connection() as connection:
            if self._has_tables(connection) and self._version(connection) == SCHEMA:
                return
        with self._transaction(PATIENCE) as connection:
            if not self._has_tables(connection):
                for statement in _TABLES:
                    connection.execute(statement.format(**self.words))
                connection.execute(self.sql("INSERT INTO undertow VALUES (?)"), (SCHEMA,))
            for version in range(self._version(connection), SCHEMA):
                for statement in _MIGRATIONS[version]:
                    connection.execute(statement.format(**self.words))
                connection.execute(self.sql("UPDATE undertow SET version = ?"), (version + 1,))

    def _version(self, connection: Any) -> int:
        version = int(connection.execute("SELECT version FROM undertow").fetchone()[0])
        if version > SCHEMA:
            raise StoreError(
                f"store: its tables are of version {version}, and this undertow knows {SCHEMA}; nothing was changed. "
                f"Update undertow in this process"
            )
        return version

    # Bandits

    def names(self) -> list[str]:
        """Return the names of all bandits, sorted."""
        return sorted(name for (name,) in self._read("SELECT name FROM bandits") if HIDDEN not in name)

    def overview(self, name: str | None = None) -> list[Overview]:
        """Return an overview of each bandit, sorted by name, or of one."""
        one = (name,) * (name is not None)
        found = sorted(Overview(*row) for row in self._read(_OVERVIEW + "WHERE name = ?" * len(one), *one))
        return [each for each in found if one or HIDDEN not in each.name]

    def spec(self, name: str) -> bytes | None:
        """Return the spec of a bandit, as passed to `create`; None if there is none of this name."""
        found = self._read("SELECT spec FROM bandits WHERE name = ?", name)
        return bytes(found[0][0]) if found else None

    def page(self, after: str, most: int) -> Sequence[tuple[str, bytes]]:
        """Return bandits in the order of their names, each with its spec, from after a name, up to a maximum number."""
        name = "name COLLATE {bytes}".format(**self.words)
        statement = f"SELECT name, spec FROM bandits WHERE {name} > ? AND name NOT LIKE ? ORDER BY {name} LIMIT ?"
        found = self._read(statement, after, f"%{HIDDEN}%", most)
        return [(each, bytes(spec)) for each, spec in found]

    def events(self, name: str, after: int, most: int) -> Sequence[Row]:
        """Return committed events of a bandit after number `after`, up to a maximum number, without a lock."""
        statement = (
            "SELECT n, mark, at, body FROM events WHERE bandit = (SELECT number FROM bandits WHERE name = ?) AND n > ? "
            "ORDER BY n LIMIT ?"
        )
        return [row_of(row) for row in self._read(statement, name, after, most)]

    def answers(self, name: str, ids: Sequence[str]) -> Sequence[Answer]:
        """Return the answers of these decisions, in any order, without a lock."""
        found: list[Answer] = []
        for start in range(0, len(ids), _PARAMETERS):
            some = ids[start : start + _PARAMETERS]
            statement = (
                "SELECT id, n, content, reward FROM ids WHERE bandit = (SELECT number FROM bandits WHERE name = ?) "
                f"AND id IN ({', '.join('?' * len(some))})"
            )
            found += map(answer_of, self._read(statement, name, *some))
        return found

    def _read(self, statement: str, *parameters: Any) -> list[Any]:
        """Return the rows of a statement that changes and locks nothing; if a connection is lost, of a new one."""
        with self.failing():
            try:
                return self._rows(statement, parameters)
            except Exception as error:
                if not self._is_lost(error):
                    raise
                self.close()  # the others are lost, too
                return self._rows(statement, parameters)

    def _rows(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        with self._connection() as connection:
            found: list[Any] = connection.execute(self.sql(statement), parameters).fetchall()
            return found

    def create(self, name: str, spec: bytes, content: bytes, begin: Callable[[Locked], object] | None = None) -> bool:
        """Create a bandit with its first checkpoint; False, without a change, if the name is in use."""
        with self._transaction(PATIENCE) as connection:
            if connection.execute(self.sql("SELECT 1 FROM bandits WHERE name = ?"), (name,)).fetchone():
                return False
            statement = "INSERT INTO bandits (name, spec) VALUES (?, ?) RETURNING number"
            number = connection.execute(self.sql(statement), (name, spec)).fetchone()[0]
            connection.execute(self.sql("INSERT INTO checkpoints VALUES (?, 0, ?)"), (number, content))
            connection.execute(self.sql("INSERT INTO times (bandit) VALUES (?)"), (number,))
            if begin is not None:
                begin(SqlLocked(connection, number, self))
        return True

    @contextmanager
    def lock(self, name: str, timeout: float) -> Iterator[Locked]:
        """Lock a bandit for one transaction, which is committed at the end and rolled back by an exception."""
        with self.failing(), self._turn(timeout):
            connection = self._begun(timeout)
            try:
                locked = SqlLocked(connection, self.number(connection, name), self)
                yield locked
            except BaseException:
                _discard(connection)
                raise
            try:
                self._commit(connection)
            except BaseException as error:
                _discard(connection)
                self._settle(locked.last, error)
            else:
                self._give(connection)

    def number(self, connection: Any, name: str) -> int:
        """Return the number of a bandit, which is locked until the transaction ends."""
        found = self._number(connection, name)
        if found is None:
            raise InvalidInputError(f"name: there is no bandit {name!r:.80} in this store")
        return int(found[0])

    def _settle(self, last: tuple[int, Row] | None, error: BaseException) -> None:
        """Check whether a failed commit has happened; raise the error if not."""
        happened = self._look_up(last)
        if happened and isinstance(error, Exception):
            return
        if happened or not isinstance(error, Exception):
            raise error
        said = "whether the call happened is unknown" if happened is None else "the call did not happen"
        raise StoreUnavailableError(
            f"store: the commit failed ({first_line(error)}), and {said}; repeat the call with the same id",
            happened=happened,
        ) from error

    def _look_up(self, last: tuple[int, Row] | None) -> bool | None:
        """Return whether the last event of a transaction is stored; None if unknown."""
        if last is None:
            return False
        number, row = last
        statement = "SELECT mark FROM events WHERE bandit = ? AND n = ?"
        try:
            with self._connection() as connection:
                found = connection.execute(self.sql(statement), (number, row.n)).fetchone()
        except Exception:
            return None
        return found is not None and bytes(found[0]) == row.mark


class _Failing:
    """Raises the errors of a database as undertow's; a generator would take longer than a statement."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        named = None if error is None else self._store.named(error)
        if named is not None:
            raise named from error


_LEFT: list[Any] = []  # connections of a parent process: closing them here would end its transactions


def _discard(connection: Any) -> None:
    with suppress(Exception):
        connection.close()


def _discard_all(connections: list[Any], pid: int) -> None:
    """Close connections that this process has opened."""
    while connections and os.getpid() == pid:
        _discard(connections.pop())


def first_line(error: BaseException) -> str:
    """Return the first line of an error."""
    return str(error).strip().partition("\n")[0][:200]
