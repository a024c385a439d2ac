"""One bandit per key: a policy as the template, and the states of all keys stacked."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from undertow.errors import InvalidInputError
from undertow.fleet.calls import Calls
from undertow.fleet.decisions import new_life
from undertow.fleet.files import FORMAT, VERSION, fill_buckets, policy_of
from undertow.fleet.keys import Keys
from undertow.live import LivePolicy
from undertow.live.events import Event
from undertow.live.files import read_archive, unarchived, write_archive
from undertow.live.saved import DAMAGE
from undertow.support import checks

__all__ = ["Fleet"]

_BUCKETS = 8


class Fleet(Calls):
    """Many bandits of one kind, one for each key, whose states are the rows of a few matrices.

    A key is a string or an integer, and its bandit begins with its first decision. Each behaves like a single policy.
    An id consists of fleet, key and round of the key, so nothing else is stored for it.

    Parameters
    ----------
    policy
        The initial policy of each key, one that fits no model, such as LinUCB, UCB or LevelsKalman. Each bucket has one
        random stream.
    buckets
        Number of groups of keys, by their hash (`bucket_of`); each is one matrix.
    threads
        Number of buckets processed concurrently.

    Examples
    --------
    >>> import undertow
    >>> from undertow.fleet import Fleet
    >>> fleet = Fleet(undertow.LinUCB(arms=["low", "high"], feature_dim=1))
    >>> decisions = fleet.decide_many(["shop 1", "shop 2"], [[0.5], [1.0]])
    >>> fleet.learn_many(decisions, [1.0, 0.3])
    array([ True,  True])
    >>> fleet.decide("shop 1", [0.2]).round
    1
    >>> fleet["shop 2"]
    LinUCB(arms=['low', 'high'], feature_dim=1)
    """

    def __init__(self, policy: LivePolicy, *, buckets: int = _BUCKETS, threads: int = 1) -> None:
        super().__init__(policy, buckets, threads)
        self._begin()

    def _begin(self) -> None:
        """Set up the state of this process: a lock, and the life of its decisions."""
        self._lock, self._pid, self._life = threading.RLock(), os.getpid(), new_life()

    @contextmanager
    def _inside(self, keys: Keys | None = None, *, new: bool = False) -> Iterator[int]:
        if self._pid != os.getpid():
            self._begin()
            self._stack.renew()
        with self._lock:
            yield self._life

    def __reduce__(self) -> Any:
        return _again, (type(self), self.to_bytes(), self._stack.threads)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self._template.describe()}, buckets={len(self._stack.buckets)}, {len(self)} keys)"
        )

    # Events

    def events(self, listener: Callable[[Event], object] | None) -> None:
        """Call `listener` with every event from now on, one for each bucket that a call changes. None removes it."""
        self._stack.listener = None if listener is None else lambda _, event: listener(event)

    def follow(self, event: Event) -> None:
        """Apply an event of another fleet that had this one's state."""
        with self._inside():
            self._stack.follow(event)

    # Save files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to continue bit-identically; `Fleet.load` reads it."""
        with self._inside():
            write_archive(path, *self._snapshot())

    def _snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        header, arrays = super()._snapshot()
        return header | {"kind": type(self).__name__}, arrays

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, threads: int = 1) -> Self:
        """Read a fleet from a file of `save`; it continues bit-identically, with a new prefix of decision ids.

        Examples
        --------
        >>> import tempfile, undertow
        >>> from undertow.fleet import Fleet
        >>> fleet = Fleet(undertow.UCB(arms=3))
        >>> first = fleet.decide_many(["a", "b"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fleet.save(f"{folder}/shops.undertow")
        ...     again = Fleet.load(f"{folder}/shops.undertow")
        >>> again.learn_many(first, [1.0, 0.0])
        array([ True,  True])
        """
        name: Any = os.fspath(path)
        return cls.restored(name, *read_archive(name), threads)

    @classmethod
    def from_bytes(cls, content: bytes, *, threads: int = 1) -> Self:
        """Read a fleet from the output of `to_bytes`."""
        return cls.restored("content", *unarchived(content), threads)

    @classmethod
    def restored(cls, name: Any, header: dict[str, Any], arrays: dict[str, Any], threads: int = 1) -> Self:
        """Return a fleet from header and arrays of a save file."""
        form, version = header.get("format"), header.get("version")
        if (form, version) != (FORMAT, VERSION):
            raise InvalidInputError(
                f"{name}: expected {FORMAT} version {VERSION}, got {form!r:.60} version {version!r:.60}"
            )
        if header.get("kind") != cls.__name__:
            raise InvalidInputError(f"{name}: holds a {header.get('kind')!r:.60}; read it with the load of that class")
        try:
            fleet = cls._made(header, policy_of(header, arrays), threads)
            fleet.fill(header, arrays)
        except InvalidInputError as error:
            raise InvalidInputError(f"{name}: damaged ({error})") from error
        except DAMAGE as error:
            raise InvalidInputError(f"{name}: damaged ({type(error).__name__}: {error!s:.200})") from error
        return fleet

    @classmethod
    def _made(cls, header: dict[str, Any], policy: LivePolicy, threads: int) -> Self:
        return cls(policy, buckets=checks.integer("buckets", header["buckets"], least=1), threads=threads)

    def fill(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Restore an unused fleet from a save file."""
        fill_buckets(self._stack.buckets, header, arrays)
        self._whole = header["integers"] if len(self._stack) else None


def _again(kind: type[Fleet], content: bytes, threads: int) -> Fleet:
    """Return a copy, in this process or another one."""
    return kind.from_bytes(content, threads=threads)
