"""The past of a fleet: its rewarded decisions as columns for `undertow replay`, one bucket at a time.

A round of a key has one decision and, perhaps, one reward and one context. Events hold the rounds of rewards; those of
decisions and contexts are counted. So the three are joined by key and round, however many events there are.

Keys come and go, and their rounds begin again. A *stay* of a key ends when it expires or is replaced by a policy.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow.errors import StoreError
from undertow.fleet.bucket import Bucket
from undertow.fleet.decisions import life_of, parts_of
from undertow.fleet.events import keys_in
from undertow.fleet.keys import Integers, decoded
from undertow.live import LivePolicy
from undertow.live.events import ManyDecided, ManyExpired, ManyObserved, ManyRewarded, OnePlaced, decode
from undertow.policies import from_bytes
from undertow.store.base import Row, Store
from undertow.store.checkpoints import policy_of
from undertow.store.fleets import DurableFleet, buckets_of
from undertow.store.past import context_names, feature_names

__all__ = ["logs_of"]

_PAGE = 64  # events read at a time; one may be of all keys of a bucket
Columns = dict[str, npt.NDArray[Any]]
Part = tuple[npt.NDArray[Any], ...]  # some rows of a few columns


def logs_of(store: Store, name: str, *, timeout: float = 5.0) -> Iterator[Columns]:
    """Yield the rewarded decisions of each bucket of a fleet as columns, in the order of its events.

    The columns are those of `log_of`, and the key. If no decision has a reward, there is one log without rows.
    """
    fleet, empty = DurableFleet(store, name, timeout), True
    for each in buckets_of(store, name):
        columns = _log_of(store, each, timeout).columns(fleet.policy)
        if len(columns["key"]):
            empty = False
            yield columns
    if empty:
        yield _Log(fleet.parts.buckets[0]).columns(fleet.policy)


def _log_of(store: Store, name: str, timeout: float) -> "_Log":
    """Return the log of a bucket since its oldest checkpoint."""
    with store.lock(name, timeout) as locked:
        oldest = locked.checkpoint(locked.checkpoints()[0])
    log, n = _Log(policy_of(oldest).parts.buckets[0]), max(oldest.n - 1, 0)
    while rows := store.events(name, n, _PAGE):
        if [row.n for row in rows] != list(range(n + 1, n + 1 + len(rows))):
            raise StoreError(f"store: bandit {name!r} lacks events after {n}; if they were just trimmed, export again")
        try:
            log.add(rows, included=rows[0].n == oldest.n)
        except (ValueError, IndexError) as error:
            raise StoreError(
                f"store: the events of {name!r} from {n + 1} to {rows[-1].n} cannot be read ({error!s:.200}); update "
                f"undertow in this process, or restore a backup"
            ) from error
        n = rows[-1].n
    return log


class _Log:
    """The events of a bucket as columns, from the state of `bucket` on."""

    def __init__(self, bucket: Bucket) -> None:
        self._template, self._keys = bucket.template, bucket.keys
        self._stays = np.arange(bucket.count)  # of each key, its present stay
        self._key_of = np.arange(bucket.count)  # of each stay, its key
        self._decides = bucket.all_rounds()  # of each stay, the round of its first decision in the log, …
        self._observes = self._decides + self._ahead(bucket.dues())  # … and that of its first context
        self._decisions: list[Part] = []  # stays, times, lives, arms, propensities, features
        self._contexts: list[Part] = []  # stays, contexts
        self._rewards: list[Part] = []  # stays, rounds, rewards
        self._placed: dict[int, int] = {}  # by stay, the life of the decisions that came with its policy, …
        self._moved: dict[tuple[int, int], tuple[int, int]] = {}  # … and by their rounds, their earlier stay and life

    def _ahead(self, due: Any) -> Any:
        """Return how far the next context is ahead of the next decision; `due` is 1 if the context is due."""
        return 1 - due if self._template.context_first else -due

    # Events

    def add(self, rows: Sequence[Row], *, included: bool = False) -> None:
        """Add events; with `included`, the log began in the state after the first of them."""
        together: list[tuple[float, Any]] = []
        for number, row in enumerate(rows):
            event: Any = decode(row.body)
            if included and not number:
                self._go_back(event)
            if isinstance(event, ManyExpired | OnePlaced):
                self._take(together)
                together = []
                self._end(event)
            else:
                together.append((row.at, event))
        self._take(together)

    def _go_back(self, event: Any) -> None:
        """Begin before an event that the state has seen already."""
        stays = self._find([event])
        if isinstance(event, ManyDecided):
            np.subtract.at(self._decides, stays, 1)
        if isinstance(event, ManyDecided | ManyObserved) and event.contexts:
            np.subtract.at(self._observes, stays, 1)

    def _take(self, events: Sequence[tuple[float, Any]]) -> None:
        """Add decisions, contexts and rewards."""
        if not events:
            return
        sizes = [len(event.letters) // 8 if event.whole else len(event.lengths) // 2 for _, event in events]
        stays = np.split(self._find([event for _, event in events]), np.cumsum(sizes)[:-1])
        decisions, contexts, rewards = list[Part](), list[Part](), list[Part]()
        for (at, event), own in zip(events, stays, strict=True):
            if isinstance(event, ManyRewarded):
                rewards.append((own, _numbers(event.rounds, np.int64), _numbers(event.rewards)))
                continue
            if isinstance(event, ManyDecided):
                decisions.append((own, *self._decided(at, event, len(own))))
            if event.contexts:
                contexts.append((own, _numbers(event.contexts).reshape(len(own), self._template.m)))
        for parts, new in ((self._decisions, decisions), (self._contexts, contexts), (self._rewards, rewards)):
            parts += [_joined(new)] if new else []

    def _decided(self, at: float, event: ManyDecided, n: int) -> Part:
        q, k, arms = self._template.q, self._template.k, _numbers(event.arms, "<i4")
        features = _numbers(event.features).reshape(n, -1) if q else np.empty((n, 0))
        if features.shape[1] != q:  # a row for each arm
            features = features.reshape(n, k, q)[np.arange(n), arms]
        chances = _numbers(event.propensities) if event.propensities else np.ones(n)
        return np.full(n, at), np.full(n, event.life), arms, chances, features

    def _end(self, event: ManyExpired | OnePlaced) -> None:
        """End the stays of keys, and begin others."""
        ended = self._find([event])
        keys = self._key_of[ended]
        if isinstance(event, ManyExpired):
            self._stays[keys] = self._begin(keys, 0, self._template.due)
            return
        policy = from_bytes(event.policy)
        player, _, _, turns, pending, _ = policy.parts
        self._stays[keys] = self._begin(keys, player.rounds, int(turns.due == "observe"))
        (now,) = self._stays[keys].tolist()
        self._placed[now] = event.life
        for prefix, t, key in filter(None, map(parts_of, pending.waiting)):
            if key == str(decoded(keys_in(event))[0]):  # the policy may be that of the ended stay
                self._moved[now, t] = int(ended[0]), life_of(prefix)

    def _find(self, events: Sequence[Any]) -> Integers:
        """Return the present stays of the keys of some events, in their order; new keys begin one."""
        letters, lengths = (b"".join(getattr(each, part) for each in events) for part in ("letters", "lengths"))
        keys = keys_in(ManyExpired(letters=letters, lengths=lengths, whole=events[0].whole))
        rows = np.arange(len(keys))
        found = self._keys.find(keys, rows)
        self._keys.add(keys, rows, found)
        new = np.arange(len(self._stays), self._keys.count)
        self._stays = np.append(self._stays, self._begin(new, 0, self._template.due))
        return np.asarray(self._stays[found])

    def _begin(self, keys: Integers, rounds: int, due: int) -> Integers:
        """Begin stays of keys in some round; return their numbers."""
        begun, before = np.full(len(keys), rounds), len(self._key_of)
        self._key_of, self._decides = np.append(self._key_of, keys), np.append(self._decides, begun)
        self._observes = np.append(self._observes, begun + self._ahead(due))
        return np.arange(before, before + len(keys))

    # The table

    def columns(self, policy: LivePolicy) -> Columns:
        """Return the decisions that have a reward, in the user's units."""
        m, q, units = self._template.m, self._template.q, self._template.units
        whole, some = np.empty(0, dtype=np.int64), np.empty(0)
        nothing = (whole, some, whole, whole, some, np.empty((0, q)))
        stays, times, lives, arms, chances, features = _joined([nothing, *self._decisions])
        place = _Places(stays, self._decides)
        of, rounds, values = _joined([(whole, whole, some), *self._rewards])
        rows, rewards = self._rows(place, lives, of, rounds), np.full(len(stays), np.nan)
        rewards[rows[rows >= 0]] = values[rows >= 0]
        of, seen = _joined([(whole, np.empty((0, m))), *self._contexts])
        rows, contexts = self._rows(place, lives, of, self._observes[of] + _ranks(of)), np.full((len(stays), m), np.nan)
        contexts[rows[rows >= 0]] = seen[rows >= 0]
        paid = np.flatnonzero(~np.isnan(rewards))
        columns = {
            "time": times[paid],
            "key": decoded(self._keys.keys)[self._key_of[stays[paid]]],
            "arm": np.array(policy.names)[arms[paid]],
            "reward": rewards[paid] if units is None else units.rewards_outward(rewards[paid]),
            "propensity": chances[paid],
        }
        columns |= dict(zip(feature_names(policy), features[paid].T, strict=True))
        return columns | dict(zip(context_names(policy), contexts[paid].T, strict=True))

    def _rows(self, place: "_Places", lives: Integers, stays: Integers, rounds: Integers) -> Integers:
        """Return the decisions of rounds; −1 for those that the log does not have."""
        rows = place.of(stays, rounds)
        for i in np.flatnonzero(rows < 0).tolist() if self._moved else ():
            rows[i] = self._moved_to(place, lives, int(stays[i]), int(rounds[i]))
        return rows

    def _moved_to(self, place: "_Places", lives: Integers, stay: int, t: int) -> int:
        """Return the decision of a round before a stay, if it came with the policy and is in the log; else −1."""
        life = self._placed.get(stay)
        while (stay, t) in self._moved and self._placed[stay] == life:
            stay, life = self._moved[stay, t]
            (row,) = place.of(np.array([stay]), np.array([t])).tolist()
            if row >= 0:
                return row if lives[row] == life else -1
        return -1


class _Places:
    """The place of each decision in the log, by its stay and round: the rounds of a stay follow one another."""

    def __init__(self, stays: Integers, first: Integers) -> None:
        self._order, self._first = np.argsort(stays, kind="stable"), first
        self._counts = np.bincount(stays, minlength=len(first))
        self._starts = np.cumsum(self._counts) - self._counts

    def of(self, stays: Integers, rounds: Integers) -> Integers:
        """Return the rows of rounds; −1 for those before the log."""
        since = rounds - self._first[stays]
        there = (since >= 0) & (since < self._counts[stays])
        rows = np.full(len(stays), -1)
        rows[there] = self._order[(self._starts[stays] + since)[there]]
        return rows


def _ranks(values: Integers) -> Integers:
    """Return how many equal values come before each one."""
    order = np.argsort(values, kind="stable")
    ordered, ranks = values[order], np.empty(len(values), dtype=np.int64)
    ranks[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return ranks


def _numbers(content: bytes, kind: Any = np.float64) -> npt.NDArray[Any]:
    return np.frombuffer(content, dtype=kind)


def _joined(parts: Sequence[Part]) -> Part:
    """Return the columns of all parts."""
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
