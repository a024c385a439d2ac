"""A bandit's policy in one process: as of an event, and updated by later ones."""

import logging
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

from undertow.errors import StoreError
from undertow.live import LivePolicy
from undertow.live.events import Event
from undertow.live.pending import Pending
from undertow.store.base import Checkpoint, Locked, Row, Store
from undertow.store.checkpoints import apply_row, newest_policy
from undertow.store.delays import Delays

__all__ = ["Replica"]

_LOG = logging.getLogger("undertow.store")
_LEAST = 2**16  # minimum bytes of events between two checkpoints, or half the last one's
_PAGE = 2000  # events read at a time without a lock
_WHILE = 0.5  # seconds in which few events of others accumulate

Claim = Callable[[str, int, float], bool]


class Replica:
    """The policy of a bandit in this process.

    Parameters
    ----------
    store, name
        The bandit.
    claim
        Called before a background fit.
    """

    def __init__(self, store: Store, name: str, claim: Claim) -> None:
        self._store, self._name, self._claim = store, name, claim
        self._policy: LivePolicy | None = None  # none at first, and after errors: then it is read from the store
        self._kept = self._size = self._since = 0  # the newest checkpoint, its bytes, and those of the events since
        self._seen = 0.0  # when it caught up last
        self._told = 0  # number of the last event reported to the listener, if any
        self._refused: tuple[Counter[str], deque[bool]] | None = None  # kept if the policy is dropped
        self.row = Row(0, b"", 0.0, b"")  # the last applied event
        self.events: list[Event] = []  # its own since then
        self.delays = Delays()
        self.listener: Callable[[Event], object] | None = None

    @property
    def policy(self) -> LivePolicy:
        """The policy; only within a transaction that has caught up."""
        assert self._policy is not None
        return self._policy

    @property
    def pending(self) -> Pending:
        """The policy's pending decisions."""
        return self._pending

    def drop(self) -> None:
        """Drop the policy, so that the next transaction reads it from the store."""
        self._policy = None

    def load(self, timeout: float) -> None:
        """Read the policy from its newest checkpoint and the events since, without a lock.

        If it exists, but was not used for a while, apply the many events since.
        """
        if self._policy is not None and self._follow_much():
            return
        with self._store.lock(self._name, timeout) as locked:
            checkpoint, policy = newest_policy(self._store, self._name, locked)
        self._adopt(policy)
        self._kept, self._size, self._since = checkpoint.n, len(checkpoint.content), 0
        self.row, n = Row(checkpoint.n, b"", 0.0, b""), checkpoint.n
        if n:
            self.row = next(iter(self._store.events(self._name, n - 1, 1)), self.row)
        self.events.clear()
        while rows := self._store.events(self._name, self.row.n, _PAGE):
            self._follow(policy, rows)
        self._told = min(self._told, self.row.n)
        self._policy = policy

    def _follow_much(self) -> bool:
        if time.monotonic() - self._seen < _WHILE:
            return True
        try:
            rows: Sequence[Row] = [self.row] * _PAGE
            while len(rows) == _PAGE:
                rows = self._store.events(self._name, max(self.row.n - 1, 0), _PAGE)
                if not self._catch_up(rows):
                    return False
        except BaseException:
            self.drop()
            raise
        return True

    def _adopt(self, policy: LivePolicy) -> None:
        """Hear of the events of a policy that was read from the store, and share its fits."""
        policy.events(self._hear)
        policy.parts.timeline.share_fits(self._claim)
        self._pending = pending = policy.parts.pending
        pending.refused, pending.lately = self._refused = self._refused or (pending.refused, pending.lately)

    def catch_up(self, locked: Locked) -> bool:
        """Apply the events of others; False, and drop the policy, if its events were replaced."""
        self._seen = time.monotonic()
        return self._catch_up(locked.read(max(self.row.n, 1)))

    def _catch_up(self, rows: Sequence[Row]) -> bool:
        n = self.row.n
        if n and (not rows or rows[0].n != n or rows[0].mark != self.row.mark):
            _LOG.warning("%s: its events have been replaced, as by a backup; it is read again", self._name)
            self._told = sys.maxsize  # reported events cannot be matched with the new ones
            self.drop()
            return False
        self._follow(self.policy, rows[1:] if n else rows)
        return True

    def _hear(self, event: Event) -> None:
        self.events.append(event)

    def _follow(self, policy: LivePolicy, rows: Iterable[Row]) -> None:
        for row in rows:
            if row.n != self.row.n + 1:
                raise StoreError(f"store: bandit {self._name!r} lacks events between {self.row.n} and {row.n}")
            event = apply_row(policy, row, self._name)
            self.row = row
            self._since += len(row.body)
            self._tell(row, event)
        self.events.clear()

    def committed(self, rows: list[Row]) -> None:
        """Record that the policy's own events are in the store."""
        events, self.events = self.events, []
        self.row = rows[-1] if rows else self.row
        for row, event in zip(rows, events, strict=True):
            self._tell(row, event)

    def keep_checkpoint(self, locked: Locked, rows: list[Row], *, may: bool = True) -> bool:
        """Keep a checkpoint with these new events if it may be now, and is time; return whether it was.

        If another process has kept one meanwhile, that is the one.
        """
        self._since += sum(len(row.body) for row in rows)
        if not may or self._policy is None or self._since <= max(self._size // 2, _LEAST):
            return False
        newest = locked.checkpoint()
        if newest.n == self._kept:
            newest = Checkpoint(rows[-1].n, self._policy.to_bytes())
            locked.keep_checkpoint(newest)
        self._kept, self._size, self._since = newest.n, len(newest.content), 0
        return True

    def _tell(self, row: Row, event: Event) -> None:
        """Record delays and call the listener, once per event, however often the policy is read from the store."""
        if row.n <= self._told:
            return
        self._told = row.n
        self.delays.note(row.at, event)
        if self.listener is None:
            return
        try:
            self.listener(event)
        except Exception:
            _LOG.exception("a listener of events failed with %s", type(event).__name__)
