"""What is done to bandits from outside: look, verify, export, copy, trim."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from undertow.errors import InvalidInputError, StoreError
from undertow.live import LivePolicy
from undertow.live.events import Decided, Event, Observed, Rewarded, Skipped, decode
from undertow.policies import from_bytes
from undertow.store.base import Checkpoint, Locked, Store

__all__ = ["Summary", "copy", "history", "log_of", "summary", "trim", "verify"]

_PAGE = 1000  # answers that are copied at a time


class Summary(NamedTuple):
    """A bandit at a glance: its policy, how many events there were, since when they are kept, when the last one was."""

    policy: LivePolicy
    events: int
    since: int
    last: float | None


def summary(store: Store, name: str, *, timeout: float = 5.0) -> Summary:
    """Return a bandit at a glance."""
    with store.lock(name, timeout) as locked:
        policy, n, last = _folded(locked, locked.checkpoint())
        return Summary(policy, n, int(locked.checkpoints()[0]), last)


def _folded(locked: Locked, checkpoint: Checkpoint) -> tuple[LivePolicy, int, float | None]:
    """Return the policy after all events since a checkpoint, their last number, and when the last one was."""
    policy, n, last = from_bytes(checkpoint.content), checkpoint.n, None
    for row in locked.read(max(checkpoint.n, 1)):
        if row.n > checkpoint.n:
            policy.follow(decode(row.body))
        n, last = row.n, row.at
    return policy, n, last


def verify(store: Store, name: str, *, timeout: float = 5.0) -> int:
    """Fold all events since the oldest checkpoint, and compare with the newest; return how many events were folded.

    Bits are equal on one fingerprint (`undertow.fingerprint`). On other machines last digits may differ; then it fails.
    """
    with store.lock(name, timeout) as locked:
        oldest, newest = locked.checkpoint(locked.checkpoints()[0]), locked.checkpoint()
        numbers = [row.n for row in locked.read(oldest.n + 1)]
        if numbers != list(range(oldest.n + 1, oldest.n + 1 + len(numbers))):
            raise StoreError(f"store: bandit {name!r} lacks events between {oldest.n} and {numbers[-1]}")
        one, two = _folded(locked, oldest)[0].to_bytes(), _folded(locked, newest)[0].to_bytes()
    if one != two:
        raise StoreError(
            f"store: bandit {name!r} is not what its events make of it, from event {oldest.n} and from {newest.n}"
        )
    return len(numbers)


def history(store: Store, name: str, *, timeout: float = 5.0) -> Iterator[tuple[float, Event]]:
    """Yield the events of a bandit that are kept, each with when it happened."""
    with store.lock(name, timeout) as locked:
        rows = locked.read(1)
    for row in rows:
        yield row.at, decode(row.body)


def log_of(store: Store, name: str, *, timeout: float = 5.0) -> dict[str, list[Any]]:
    """Return the decisions that have a reward as columns that `undertow replay` reads: a table of what was played."""
    with store.lock(name, timeout) as locked:
        policy = from_bytes(locked.checkpoint().content)
    context: Any = None
    decided: dict[str, tuple[float, Decided, Any]] = {}
    rewards: dict[str, float] = {}
    last = None
    first = bool(getattr(policy, "context_first", False))
    for at, event in history(store, name, timeout=timeout):
        match event:
            case Decided():
                decided[event.id], last = (at, event, context if first else None), event.id
            case Observed() if first:
                context = event.context
            case Observed() if last is not None:
                decided[last] = (*decided[last][:2], event.context)
            case Skipped():
                last = None
            case Rewarded():
                rewards[event.id] = event.reward
            case _:
                pass
    rows = [(*decided[id], reward) for id, reward in rewards.items() if id in decided]
    rows.sort(key=lambda row: row[1].round)
    columns: dict[str, list[Any]] = {"time": [at for at, *_ in rows]}
    columns["arm"] = [policy.names[event.arm] for _, event, _, _ in rows]
    columns["reward"] = [reward for *_, reward in rows]
    columns["propensity"] = [event.propensity for _, event, _, _ in rows]
    for i in range(int(getattr(policy, "feature_dim", 0))):
        columns[f"feature_{i}"] = [_entry(event.features, event.arm, i) for _, event, _, _ in rows]
    for i in range(int(getattr(policy, "context_dim", 0))):
        columns[f"context_{i}"] = [None if seen is None else float(seen[i]) for _, _, seen, _ in rows]
    return columns


def _entry(features: Any, arm: int, i: int) -> float | None:
    if features is None:
        return None
    return float(features[i] if np.ndim(features) == 1 else features[arm, i])


def copy(source: Store, name: str, target: Store, *, timeout: float = 5.0) -> int:
    """Copy a bandit to another store under the same name; return how many events it has."""
    spec = source.spec(name)
    if spec is None:
        raise InvalidInputError(f"name: there is no bandit {name!r:.80} in {source!r}")
    with source.lock(name, timeout) as locked:
        numbers = locked.checkpoints()
        if not target.create(name, spec, locked.checkpoint(numbers[0]).content):
            raise InvalidInputError(f"name: {target!r} has a bandit {name!r:.80} already")
        rows = locked.read(1)
        with target.lock(name, timeout) as written:
            written.append(rows)
            after = ""
            while answers := locked.answers(after, _PAGE):
                written.keep_answers(answers)
                after = answers[-1].id
            for n in numbers:
                written.keep_checkpoint(locked.checkpoint(n))
            if numbers[0]:
                written.trim(numbers[0])
    return len(rows)


def trim(store: Store, name: str, *, timeout: float = 5.0) -> int:
    """Drop the events before a checkpoint as of now; return how many there were. Ids and rewards stay known."""
    with store.lock(name, timeout) as locked:
        policy, n, _ = _folded(locked, locked.checkpoint())
        before = len([row for row in locked.read(1) if row.n < n])
        locked.keep_checkpoint(Checkpoint(n, policy.to_bytes()))
        locked.trim(n)
    return before
