"""The tables of a store, and the few calls that a policy needs.

A bandit is a name, the policy that it began with, and its events: rows numbered 1, 2, … A checkpoint is the policy as
of one of them. The holder of a bandit's lock reads the events of others, appends its own, and commits; nothing else
changes a bandit. `undertow.contracts.check_store` tests all of this on any store.
"""

import abc
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

__all__ = ["HIDDEN", "SCHEMA", "Answer", "Checkpoint", "Claim", "Locked", "Overview", "Row", "Store", "bucket_name"]

SCHEMA = 1  # version of the tables
HIDDEN = "\x1f"  # in the names of buckets, which no user can give


def bucket_name(fleet: str, number: int) -> str:
    """Return the name of the bandit that a bucket of a fleet is."""
    return f"{fleet}{HIDDEN}{number}"


class Row(NamedTuple):
    """A stored event.

    Attributes
    ----------
    n
        Its number, counted from 1.
    mark
        Eight random bytes. If a process finds another mark at the number of its last event, the store has been
        replaced, as by a backup.
    at
        Its time, in seconds since 1970 by the clock of its process; nothing depends on it.
    body
        The encoded event.
    """

    n: int
    mark: bytes
    at: float
    body: bytes


class Answer(NamedTuple):
    """The answer of a decision, by its id.

    Attributes
    ----------
    id
        Id of the decision.
    n
        Number of its event.
    content
        The encoded answer, and the numbers for learning its reward.
    reward
        Its reward; None while that has not come.
    """

    id: str
    n: int
    content: bytes
    reward: float | None


class Checkpoint(NamedTuple):
    """A policy as of event n, as the output of `to_bytes`."""

    n: int
    content: bytes


class Claim(NamedTuple):
    """The right to make a background fit.

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
    """A locked bandit, within one atomic transaction."""

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
        """Return the answer of a decision."""

    @abc.abstractmethod
    def keep_answers(self, answers: Sequence[Answer]) -> None:
        """Store the answers of new decisions."""

    @abc.abstractmethod
    def keep_rewards(self, rewards: Sequence[tuple[str, float]]) -> None:
        """Store the rewards of earlier decisions."""

    @abc.abstractmethod
    def keep_times(self, decided: float | None, rewarded: float | None) -> None:
        """Store the times of the last decision and the last reward; None for no new one."""

    @abc.abstractmethod
    def answers(self, after: str, most: int) -> Sequence[Answer]:
        """Return answers in the order of their ids, from after one of them, up to a maximum number."""

    @abc.abstractmethod
    def claim(self, claim: Claim, now: float) -> bool:
        """Claim a fit; False, without a change, if another holder's claim of the same fit has not expired."""

    @abc.abstractmethod
    def checkpoints(self) -> Sequence[int]:
        """Return the event numbers of the checkpoints, in order."""

    @abc.abstractmethod
    def checkpoint(self, n: int | None = None) -> Checkpoint:
        """Return the newest checkpoint, or the one as of event n."""

    @abc.abstractmethod
    def keep_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint, and keep the first and the newest of the older ones."""

    @abc.abstractmethod
    def trim(self, n: int) -> None:
        """Drop the checkpoints before the one as of event n, and the events before n; answers stay."""


class Store(abc.ABC):
    """A store of bandits."""

    @abc.abstractmethod
    def names(self) -> list[str]:
        """Return the names of all bandits, sorted; without the buckets of fleets, as all lists."""

    @abc.abstractmethod
    def overview(self, name: str | None = None) -> list[Overview]:
        """Return an overview of each bandit, sorted by name, or of one; without a lock, at the cost of a few reads."""

    @abc.abstractmethod
    def spec(self, name: str) -> bytes | None:
        """Return the spec of a bandit, as passed to `create`; None if there is none of this name."""

    @abc.abstractmethod
    def page(self, after: str, most: int) -> Sequence[tuple[str, bytes]]:
        """Return bandits in the order of their names, each with its spec, from after a name, up to a maximum number."""

    @abc.abstractmethod
    def events(self, name: str, after: int, most: int) -> Sequence[Row]:
        """Return committed events of a bandit after number `after`, up to a maximum number, without a lock."""

    @abc.abstractmethod
    def answers(self, name: str, ids: Sequence[str]) -> Sequence[Answer]:
        """Return the answers of these decisions, in any order, without a lock."""

    @abc.abstractmethod
    def create(self, name: str, spec: bytes, content: bytes, begin: "Callable[[Locked], object] | None" = None) -> bool:
        """Create a bandit with its first checkpoint; False, without a change, if the name is in use.

        `begin` is called with the locked bandit in the same transaction, to give it events and answers.
        """

    @abc.abstractmethod
    def lock(self, name: str, timeout: float) -> AbstractContextManager[Locked]:
        """Lock a bandit for one transaction, which is committed at the end and rolled back by an exception.

        Raises `StoreBusyError` if others hold the lock for `timeout` seconds, and `StoreUnavailableError` if the store
        cannot be reached. After the latter, `happened` says whether the transaction was committed.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close the connections of this process."""
