"""What a store keeps of a bandit, and the few calls that a policy needs of it.

A bandit is a name, the policy that it began with, and its events: rows numbered 1, 2, … A checkpoint is the policy as
of one of them. Whoever holds a bandit's lock reads what others have appended, appends its own, and commits; nothing
else changes a bandit. `undertow.contracts.check_store` tries all of this on any store.
"""

import abc
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

__all__ = ["HIDDEN", "SCHEMA", "Answer", "Checkpoint", "Claim", "Locked", "Overview", "Row", "Store", "bucket_name"]

SCHEMA = 1  # version of the tables
HIDDEN = "\x1f"  # in the names of buckets, which no user can give


def bucket_name(fleet: str, number: int) -> str:
    """Return the name of the bandit that a bucket of a fleet is."""
    return f"{fleet}{HIDDEN}{number}"


class Row(NamedTuple):
    """An event as it is stored.

    Attributes
    ----------
    n
        Its number, counted from 1.
    mark
        Eight random bytes. A process that finds another mark at the number where it stands knows that the store has
        been replaced, as by a backup.
    at
        When it happened, in seconds since 1970 by the clock of its process; nothing depends on it.
    body
        The encoded event.
    """

    n: int
    mark: bytes
    at: float
    body: bytes


class Answer(NamedTuple):
    """What a decision was answered with, by its id.

    Attributes
    ----------
    id
        Id of the decision.
    n
        Number of its event.
    content
        The encoded answer, and what learning its reward will need.
    reward
        Its reward; None while that has not come.
    """

    id: str
    n: int
    content: bytes
    reward: float | None


class Checkpoint(NamedTuple):
    """A policy as of event n, as `to_bytes` wrote it."""

    n: int
    content: bytes


class Claim(NamedTuple):
    """The right to make a fit beside one's calls.

    Attributes
    ----------
    model, requested
        Name of the model, and the round in which the fit was requested.
    holder
        Random bytes of the process.
    until
        When it expires, in seconds since 1970.
    """

    model: str
    requested: int
    holder: bytes
    until: float


class Overview(NamedTuple):
    """A bandit without its policy: name, number of its newest event, times of its last decision and last reward.

    The times are as in `Row`; None if there was none.
    """

    name: str
    n: int
    decided: float | None
    rewarded: float | None


class Locked(abc.ABC):
    """A bandit that is locked, within one transaction: all that is written here is kept, or nothing."""

    @abc.abstractmethod
    def also(self, name: str) -> "Locked":
        """Lock another bandit in the same transaction; whoever locks several does so in the same order."""

    @abc.abstractmethod
    def read(self, first: int) -> Sequence[Row]:
        """Return the events from number `first` on."""

    @abc.abstractmethod
    def append(self, rows: Sequence[Row]) -> None:
        """Append events."""

    @abc.abstractmethod
    def answer(self, id: str) -> Answer | None:
        """Return what a decision was answered with."""

    @abc.abstractmethod
    def keep_answers(self, answers: Sequence[Answer]) -> None:
        """Keep the answers of new decisions."""

    @abc.abstractmethod
    def keep_rewards(self, rewards: Sequence[tuple[str, float]]) -> None:
        """Note the rewards of earlier decisions."""

    @abc.abstractmethod
    def keep_times(self, decided: float | None, rewarded: float | None) -> None:
        """Note when the last decision and the last reward were; None for no new one."""

    @abc.abstractmethod
    def answers(self, after: str, most: int) -> Sequence[Answer]:
        """Return answers in the order of their ids, those after one of them, at most so many."""

    @abc.abstractmethod
    def claim(self, claim: Claim, now: float) -> bool:
        """Claim a fit; False, and nothing is changed, if another holder's claim of the same fit has not expired."""

    @abc.abstractmethod
    def checkpoints(self) -> Sequence[int]:
        """Return the numbers of the events that checkpoints are as of, in order."""

    @abc.abstractmethod
    def checkpoint(self, n: int | None = None) -> Checkpoint:
        """Return the newest checkpoint, or the one as of event n."""

    @abc.abstractmethod
    def keep_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint, and of the older ones the first and the newest."""

    @abc.abstractmethod
    def trim(self, n: int) -> None:
        """Drop the checkpoints before the one as of event n, and the events before n; answers stay."""


class Store(abc.ABC):
    """Where bandits live."""

    @abc.abstractmethod
    def names(self) -> list[str]:
        """Return the names of all bandits, sorted; without the buckets of fleets, as all lists."""

    @abc.abstractmethod
    def overview(self, name: str | None = None) -> list[Overview]:
        """Return an overview of each bandit, sorted by name, or of one; without a lock, at the cost of a few reads."""

    @abc.abstractmethod
    def spec(self, name: str) -> bytes | None:
        """Return what `create` was given for a bandit; None if there is none of this name."""

    @abc.abstractmethod
    def page(self, after: str, most: int) -> Sequence[tuple[str, bytes]]:
        """Return bandits in the order of their names, each with its spec: those after a name, at most so many."""

    @abc.abstractmethod
    def events(self, name: str, after: int, most: int) -> Sequence[Row]:
        """Return committed events of a bandit after number `after`, at most so many. Nobody waits for this."""

    @abc.abstractmethod
    def answers(self, name: str, ids: Sequence[str]) -> Sequence[Answer]:
        """Return what these decisions were answered with, in any order. Nobody waits for this."""

    @abc.abstractmethod
    def create(self, name: str, spec: bytes, content: bytes, rows: Sequence[Row] = ()) -> bool:
        """Create a bandit with its first checkpoint and events; False, and nothing is changed, if the name is taken."""

    @abc.abstractmethod
    def lock(self, name: str, timeout: float) -> AbstractContextManager[Locked]:
        """Lock a bandit for one transaction, which is committed at the end and rolled back by an exception.

        Raises `StoreBusyError` if others hold the lock for `timeout` seconds, and `StoreUnavailableError` if the store
        cannot be reached. After the latter, `happened` says whether the transaction was committed.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close the connections of this process."""
