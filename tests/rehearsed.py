"""The kinds of arguments that kernels of fleets meet only after a rehearsal: none, as it prints."""

from typing import Any

import numpy as np

import undertow
from undertow.fleet import Fleet, keys, pooling, stacked
from undertow.fleet.rehearsal import rehearse
from undertow.policies import LevelsKalman, LinUCB, LivePolicy

POLICIES: list[LivePolicy] = [
    undertow.UCB(arms=3),
    LinUCB(arms=3, feature_dim=2, explore=0.1, default_reward=0.0, max_wait=3, rng=0),
    LinUCB(arms=2, context_dim=2, context_first=True),
    LinUCB(arms=2, context_dim=1, feature_dim=1),
    LevelsKalman(arms=2, rng=0),
]


def met(policy: LivePolicy) -> set[tuple[str, str]]:
    """Return the kinds of arguments that kernels have met in this process."""
    found = [
        each for module in (keys, stacked, pooling) for each in vars(module).values() if hasattr(each, "overloads")
    ]
    loop: Any = policy.loop
    return {(each.__name__, str(kinds)) for each in [*found, loop.play] for kinds in each.overloads}


def use(policy: LivePolicy) -> None:
    """Ask fleets of a policy for everything that they do."""
    k, m, q = policy.arm_count, *(int(getattr(policy, name, 0)) for name in ("context_dim", "feature_dim"))
    first, log = bool(getattr(policy, "context_first", False)), list[Any]()
    for names in (["Aachen", "Basel"], [7, 1207]):
        for fleet in (Fleet(policy), Fleet(policy, threads=2)):
            fleet.events(log.append)
            contexts: Any = np.ones((2, m)) if m and first else None
            for open_ in (None, np.ones((2, k), dtype=np.bool_)):
                decisions = fleet.decide_many(names, np.ones((2, q)) if q else None, contexts=contexts, available=open_)
                if m and not first:
                    fleet.observe_many(names, np.ones((2, m)))
                fleet.learn_many((names, decisions.rounds), [0.0, 1.0])
            fleet[names[0]] = fleet[names[1]]
            fleet.expire(names[:1])
            other = Fleet.from_bytes(Fleet(policy).to_bytes())
            for event in log:
                other.follow(event)
            assert other.keys().tolist() == fleet.keys().tolist()
            log.clear()


if __name__ == "__main__":
    for each in POLICIES:
        rehearse(each)
        before = met(each)
        use(each)
        print(len(before) > 10, met(each) - before)
