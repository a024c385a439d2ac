"""A locked bandit, in the tables of a database."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow.store.base import Answer, Checkpoint, Claim, Locked, Row

if TYPE_CHECKING:
    from undertow.store.sql import SqlStore

__all__ = ["SqlLocked", "answer_of", "row_of"]

_CLAIM = (
    "INSERT INTO claims VALUES (?, ?, ?, ?, ?) ON CONFLICT (bandit, model)"
    " DO UPDATE SET requested = excluded.requested, holder = excluded.holder, until = excluded.until"
    " WHERE claims.until <= ? OR claims.requested <> excluded.requested OR claims.holder = excluded.holder RETURNING 1"
)


class SqlLocked(Locked):
    """A locked bandit in a transaction."""

    def __init__(self, connection: Any, number: int, store: "SqlStore", first: "SqlLocked | None" = None) -> None:
        self._connection, self._number, self._store = connection, number, store
        self._first = self if first is None else first
        self.last: tuple[int, Row] | None = None  # bandit and event that were written last, in the whole transaction

    def also(self, name: str) -> "SqlLocked":
        """Lock another bandit in the same transaction."""
        with self._store.failing():
            return SqlLocked(self._connection, self._store.number(self._connection, name), self._store, self._first)

    def _all(self, statement: str, *parameters: Any) -> list[Any]:
        with self._store.failing():
            cursor = self._connection.execute(self._store.sql(statement), (self._number, *parameters))
            found: list[Any] = cursor.fetchall()
            return found

    def _many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        with self._store.failing():
            if len(rows) == 1:
                self._connection.execute(self._store.sql(statement), rows[0])
            elif rows:
                self._connection.cursor().executemany(self._store.sql(statement), rows)

    def read(self, first: int) -> Sequence[Row]:
        """Return the events from number `first` on."""
        found = self._all("SELECT n, mark, at, body FROM events WHERE bandit = ? AND n >= ? ORDER BY n", first)
        return [row_of(row) for row in found]

    def append(self, rows: Sequence[Row]) -> None:
        """Append events."""
        self._many("INSERT INTO events VALUES (?, ?, ?, ?, ?)", [(self._number, *row) for row in rows])
        if rows:
            self._first.last = self._number, rows[-1]

    def answer(self, id: str) -> Answer | None:
        """Return the answer of a decision."""
        found = self._all("SELECT id, n, content, reward FROM ids WHERE bandit = ? AND id = ?", id)
        return answer_of(found[0]) if found else None

    def answers(self, after: str, most: int) -> Sequence[Answer]:
        """Return answers in the order of their ids, from after one of them, up to a maximum number."""
        statement = "SELECT id, n, content, reward FROM ids WHERE bandit = ? AND id > ? ORDER BY id LIMIT ?"
        return [answer_of(row) for row in self._all(statement, after, most)]

    def keep_answers(self, answers: Sequence[Answer]) -> None:
        """Store the answers of new decisions."""
        self._many("INSERT INTO ids VALUES (?, ?, ?, ?, ?)", [(self._number, *answer) for answer in answers])

    def keep_rewards(self, rewards: Sequence[tuple[str, float]]) -> None:
        """Store the rewards of earlier decisions."""
        rows = [(reward, self._number, id) for id, reward in rewards]
        self._many("UPDATE ids SET reward = ? WHERE bandit = ? AND id = ?", rows)

    def keep_times(self, decided: float | None, rewarded: float | None) -> None:
        """Store the times of the last decision and the last reward; None for no new one."""
        statement = "UPDATE times SET decided = COALESCE(?, decided), rewarded = COALESCE(?, rewarded) WHERE bandit = ?"
        self._many(statement, [(decided, rewarded, self._number)])

    def claim(self, claim: Claim, now: float) -> bool:
        """Claim a fit; False, without a change, if another holder's claim of the same fit has not expired."""
        return bool(self._all(_CLAIM, *claim, now))

    def checkpoints(self) -> Sequence[int]:
        """Return the event numbers of the checkpoints, in order."""
        return [n for (n,) in self._all("SELECT n FROM checkpoints WHERE bandit = ? ORDER BY n")]

    def checkpoint(self, n: int | None = None) -> Checkpoint:
        """Return the newest checkpoint, or the one as of event n."""
        n = self.checkpoints()[-1] if n is None else n
        ((content,),) = self._all("SELECT content FROM checkpoints WHERE bandit = ? AND n = ?", n)
        return Checkpoint(n, bytes(content))

    def keep_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint, and keep the first and the newest of the older ones."""
        kept = self.checkpoints()
        if checkpoint.n in kept:
            return
        self._many("DELETE FROM checkpoints WHERE bandit = ? AND n = ?", [(self._number, n) for n in kept[1:-1]])
        self._many("INSERT INTO checkpoints VALUES (?, ?, ?)", [(self._number, *checkpoint)])

    def trim(self, n: int) -> None:
        """Drop the checkpoints before the one as of event n, and the events before n; answers stay."""
        self._many("DELETE FROM checkpoints WHERE bandit = ? AND n < ?", [(self._number, n)])
        self._many("DELETE FROM events WHERE bandit = ? AND n < ?", [(self._number, n)])


def row_of(row: Sequence[Any]) -> Row:
    """Return an event of the table."""
    n, mark, at, body = row
    return Row(n, bytes(mark), at, bytes(body))


def answer_of(row: Sequence[Any]) -> Answer:
    """Return an answer from its row of a table."""
    id, n, content, reward = row
    return Answer(id, n, bytes(content), reward)
