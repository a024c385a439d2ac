"""Maintenance of bandits: inspect, verify, copy, trim."""

from typing import NamedTuple

from undertow.errors import InvalidInputError, StoreError
from undertow.live import LivePolicy
from undertow.store.base import Checkpoint, Locked, Store
from undertow.store.checkpoints import apply_row, newest_policy, policy_of
from undertow.store.fleets import DurableFleet, buckets_of, is_fleet

__all__ = ["FleetSummary", "Summary", "copy", "summary", "trim", "verify"]

_PAGE = 1000  # answers copied at a time


class Summary(NamedTuple):
    """A summary of a bandit: its policy, number of events, first kept event, time of the last one."""

    policy: LivePolicy
    events: int
    since: int
    last: float | None


class FleetSummary(NamedTuple):
    """A summary of a fleet: keys, pending decisions, events of its buckets, and the time of the last one."""

    template: LivePolicy
    buckets: int
    keys: int
    pending: int
    events: int
    last: float | None


def summary(store: Store, name: str, *, timeout: float = 5.0) -> Summary | FleetSummary:
    """Return a summary of a bandit or a fleet."""
    if is_fleet(store, name):
        fleet, parts = DurableFleet(store, name, timeout), buckets_of(store, name)
        rows = [row for each in parts for row in store.overview(each)]
        times = [at for _, _, *both in rows for at in both if at is not None]
        events = sum(row.n for row in rows)
        return FleetSummary(fleet.policy, fleet.buckets, len(fleet), fleet.pending, events, max(times, default=None))
    with store.lock(name, timeout) as locked:
        policy, n, last = _folded(name, locked, *newest_policy(store, name, locked))
        return Summary(policy, n, int(locked.checkpoints()[0]), last)


def _folded(
    name: str, locked: Locked, checkpoint: Checkpoint, policy: LivePolicy
) -> tuple[LivePolicy, int, float | None]:
    """Return the policy after all events since a checkpoint, their last number, and the time of the last one."""
    n, last = checkpoint.n, None
    for row in locked.read(max(checkpoint.n, 1)):
        if row.n > checkpoint.n:
            apply_row(policy, row, name)
        n, last = row.n, row.at
    return policy, n, last


def verify(store: Store, name: str, *, timeout: float = 5.0) -> int:
    """Replay all events since the oldest checkpoint, and compare with the newest; return the number of events.

    They are bit-identical under one fingerprint (`undertow.fingerprint`). On other machines last digits may differ, and
    it fails.
    """
    if is_fleet(store, name):
        return sum(verify(store, each, timeout=timeout) for each in buckets_of(store, name))
    with store.lock(name, timeout) as locked:
        oldest, newest = locked.checkpoint(locked.checkpoints()[0]), locked.checkpoint()
        numbers = [row.n for row in locked.read(oldest.n + 1)]
        if numbers != list(range(oldest.n + 1, oldest.n + 1 + len(numbers))):
            raise StoreError(f"store: bandit {name!r} lacks events between {oldest.n} and {numbers[-1]}")
        one, two = (_folded(name, locked, each, policy_of(each))[0].to_bytes() for each in (oldest, newest))
    if one != two:
        raise StoreError(
            f"store: bandit {name!r} differs from the replay of its events, from event {oldest.n} and from {newest.n}"
        )
    return len(numbers)


def copy(source: Store, name: str, target: Store, *, timeout: float = 5.0) -> int:
    """Copy a bandit to another store under the same name; return its number of events.

    A bandit is there whole, or not at all. A fleet is copied bucket by bucket, each as of one event, and is there after
    its last bucket. If that is interrupted, the next copy brings what is missing.
    """
    if source.spec(name) is None:
        raise InvalidInputError(f"name: there is no bandit {name!r:.80} in {source!r}")
    _require_free(name, target)
    if not is_fleet(source, name):
        return _copy(source, name, target, timeout)
    count = sum(_copy(source, each, target, timeout, again=name) for each in buckets_of(source, name))
    _copy(source, name, target, timeout)
    return count


def _require_free(name: str, target: Store) -> None:
    if target.spec(name) is not None:
        raise InvalidInputError(f"name: {target!r} has a bandit {name!r:.80} already")


def _copy(source: Store, name: str, target: Store, timeout: float, *, again: str = "") -> int:
    """Copy a bandit; if it is a bucket of the fleet `again`, add to what an interrupted copy has left."""
    with source.lock(name, timeout) as locked:
        first, times = locked.checkpoint(locked.checkpoints()[0]), source.overview(name)[0][2:]

        def begin(to: Locked) -> None:
            to.keep_checkpoint(first)
            to.trim(first.n)
            _add(locked, to, times, -1)

        if not target.create(name, source.spec(name) or b"", first.content, begin):
            if not again:
                _require_free(name, target)
            with target.lock(name, timeout) as to:
                n = target.overview(name)[0].n
                mine, theirs = ([row for row in each.read(n) if row.n == n] for each in (locked, to))
                if mine != theirs or (n == 0 and first != to.checkpoint(0)):
                    raise InvalidInputError(
                        f"name: {target!r} has a part of {again!r:.80} that is not from {source!r}, or of events that "
                        f"were trimmed there since; copy to an empty store"
                    )
                _add(locked, to, times, n)
        return len(locked.read(1))


def _add(source: Locked, target: Locked, times: tuple[float | None, float | None], after: int) -> None:
    """Add to a bandit what another one has after an event."""
    target.append([row for row in source.read(after + 1) if row.n > after])
    target.keep_times(*times)
    last = ""
    while answers := source.answers(last, _PAGE):
        target.keep_answers([answer for answer in answers if answer.n > after])
        last = answers[-1].id
    for n in source.checkpoints():
        if n > after:
            target.keep_checkpoint(source.checkpoint(n))


def trim(store: Store, name: str, *, timeout: float = 5.0) -> int:
    """Save a checkpoint and drop the events before it; return their number. Ids and rewards stay known."""
    if is_fleet(store, name):
        return sum(trim(store, each, timeout=timeout) for each in buckets_of(store, name))
    with store.lock(name, timeout) as locked:
        policy, n, _ = _folded(name, locked, *newest_policy(store, name, locked))
        before = len([row for row in locked.read(1) if row.n < n])
        locked.keep_checkpoint(Checkpoint(n, policy.to_bytes()))
        locked.trim(n)
    return before
