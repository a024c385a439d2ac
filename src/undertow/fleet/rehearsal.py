"""A rehearsal: call every kernel of a fleet, so that nothing is compiled later."""

import numpy as np

from undertow.errors import InvalidInputError
from undertow.fleet.engines import play
from undertow.fleet.fleet import Fleet
from undertow.fleet.kalman import FleetKalman
from undertow.live import LivePolicy
from undertow.policies.levels import LevelsKalman

__all__ = ["rehearse"]

_ROUNDS = 25  # of two keys each: the first fit comes after 40 rewards


def rehearse(policy: LivePolicy) -> None:
    """Play some rounds of fleets of a policy with a seed, in memory and as engines do; nothing if no fleet takes it."""
    m, q = (int(getattr(policy, name, 0)) for name in ("context_dim", "feature_dim"))
    try:
        kinds = [
            Fleet(policy, buckets=1),
            *([FleetKalman(policy, buckets=1)] if isinstance(policy, LevelsKalman) else []),
        ]
    except InvalidInputError:
        return
    for fleet in kinds:
        _play(fleet, m, q, first=bool(getattr(policy, "context_first", False)))
    events = {"key": ["a", "b"]} | {f"feature_{i}": np.zeros(2) for i in range(q)}
    play(policy, None, events | {f"context_{i}": np.zeros(2) for i in range(m)})


def _play(fleet: Fleet, m: int, q: int, *, first: bool) -> None:
    for t in range(_ROUNDS):
        keys, features, contexts = ["a", f"b{t}"], np.zeros((2, q)) if q else None, np.zeros((2, m))
        if m and first:
            fleet.observe_many(keys, contexts)
        decisions = fleet.decide_many(keys, features)
        if m and not first:
            fleet.observe_many(keys, contexts)
        fleet.learn_many(decisions, decisions.arms * 0.5)
    fleet.decide_many(["c"], None if features is None else features[:1], contexts=contexts[:1] if first and m else None)
    type(fleet).from_bytes(fleet.to_bytes())
