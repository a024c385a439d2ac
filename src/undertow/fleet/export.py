"""The bandit of one key as an ordinary policy, and back."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from undertow.errors import InvalidInputError
from undertow.fleet.bucket import Waiting
from undertow.fleet.template import Template
from undertow.live import LivePolicy
from undertow.live.rounds import Waiting as Decided
from undertow.support.checks import FloatArray

__all__ = ["exported", "require_same", "waiting_in"]


def exported(
    template: Template, number: int, state: FloatArray, waiting: Waiting, ids: Sequence[str], *, observes: bool
) -> LivePolicy:
    """Return a policy in a state, with pending decisions of these ids and random stream `number`."""
    policy: LivePolicy = template.policy.parts.for_run(number)
    player, _, streams, turns, pending, _ = policy.parts
    player.state[:] = state
    turns.due = "observe" if observes else "decide"
    pending.made = player.rounds
    streams.note(pending.made)
    rows = zip(ids, waiting.rounds.tolist(), waiting.arms.tolist(), waiting.memories, strict=True)
    for id, t, arm, memory in rows:
        pending.entries[id] = Decided(t, arm, memory.copy(), t)
    pending.count = len(ids)
    policy.parts.begin_log()
    return policy


def waiting_in(policy: LivePolicy, slot: int, life: int) -> Waiting:
    """Return the pending decisions of a policy, for a slot."""
    player, *_, pending, _ = policy.parts
    entries = list(pending.waiting.values())
    rounds, arms = (np.array([each[column] for each in entries], dtype=np.int64) for column in (0, 1))
    memories = np.array([each.memory for each in entries]).reshape(len(entries), len(player.common.memory))
    return Waiting(np.full(len(entries), slot), rounds, arms, np.full(len(entries), life), memories)


def require_same(own: LivePolicy, policy: Any) -> None:
    """Refuse a policy that differs from the fleet's, but for its seed."""
    if type(policy) is not type(own):
        raise InvalidInputError(f"policy: expected a {type(own).__name__}, got {policy!r:.60}")
    if policy.pinned is not None:
        raise InvalidInputError(f"policy: arm {policy.pinned!r} is pinned; call unpin() before")
    given = policy.parts.parameters()
    for name, value in own.parts.parameters().items():
        if name != "rng" and not _same(value, given[name]):
            raise InvalidInputError(f"{name}: expected {value!r:.60} as in the fleet's policy, got {given[name]!r:.60}")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray | list | tuple) and isinstance(other, np.ndarray | list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one is other or one == other)
