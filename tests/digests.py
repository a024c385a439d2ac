"""Digests of what policies have become after some rounds, in this process or, as a program, in another one.

python digests.py ROUNDS POLICY…        prints them as JSON
"""

import hashlib
import json
import sys
from typing import Any

import numpy as np

from undertow import random_system, simulate
from undertow.contenders import build
from undertow.live.fields import arrays_of
from undertow.policies import LivePolicy, registry

SYSTEM = random_system(3, 2, 3, rng=2, spectral_radius=0.97)
_MORE: dict[str, Any] = {"standardize": True, "refit": "inline", "window": 30}  # inputs enough for threads of BLAS


def digest(policy: LivePolicy, without: str = "-") -> str:
    """A digest of everything that a policy has learned, without arrays whose names begin in a certain way."""
    found = hashlib.blake2b(policy.parts.player.state.tobytes(), digest_size=8)
    parts = policy.parts
    kept = arrays_of((parts.columns, parts.timeline, *parts.timeline.parts), parts.sizes)
    for name, values in sorted(kept.items()):
        if not name.startswith(without):
            found.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return found.hexdigest()


def played(name: str, rounds: int) -> str:
    """A digest of a policy after some rounds, with rewards that come late among them."""
    known = registry()[name].parameters
    given = {key: value for key, value in _MORE.items() if key in known}
    policy = build(name, arms=3, context_dim=2, system=SYSTEM, rng=0, **given)
    path, waiting = SYSTEM.sample(rounds, rng=3), []
    if policy.capabilities.simulates_only:
        run = simulate(policy, path, record=["forecasts"])
        return hashlib.blake2b(np.array(run.forecasts).tobytes(), digest_size=8).hexdigest()
    for t in range(rounds):
        decision = policy.decide()
        waiting.append((decision, float(path.rewards[t, decision.arm])))
        if getattr(policy, "context_dim", 0):
            policy.observe(path.contexts[t])
        while len(waiting) > (6 if t % 7 == 0 else 0):
            policy.learn(*waiting.pop(0))
    return digest(policy)


if __name__ == "__main__":
    print(json.dumps({name: played(name, int(sys.argv[1])) for name in sys.argv[2:]}))
