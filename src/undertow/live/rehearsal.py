"""A rehearsal: call every kernel of a policy, so that nothing is compiled later."""

import contextlib

import numpy as np

from undertow.errors import UnknownDecisionError
from undertow.live.policy import LivePolicy

__all__ = ["rehearse"]

_ROUNDS = 40  # units change after 16 and 32, fits come after 6, 9, 13 and so on
_SHIFT = 30  # the round from which rewards change, which raises alarms


def rehearse(policy: LivePolicy) -> None:
    """Play some rounds on a new policy: immediate, late and missing rewards, a round without a decision, a new arm."""
    m, q, first = (getattr(policy, name, 0) for name in ("context_dim", "feature_dim", "context_first"))
    rng, waiting = np.random.default_rng(0), []
    for t in range(_ROUNDS):
        if m and first:
            policy.observe(rng.standard_normal(m))
        decision = policy.decide(rng.standard_normal(q) if q else None)
        reward = float(rng.standard_normal()) + 50.0 * (t >= _SHIFT) + decision.arm
        if t % 5 == 3:
            waiting.append((decision, reward))
        else:
            policy.learn(decision, reward)
        if m and not first:
            policy.observe(rng.standard_normal(m))
        if t % 10 == 9:
            for late, paid in waiting:
                with contextlib.suppress(UnknownDecisionError):  # if the policy's own settings make it too late
                    policy.learn(late, paid)
            waiting.clear()
    policy.skip()
    policy.forecast(rng.standard_normal(q) if q else None)
    if hasattr(policy, "refit"):  # models make room by their own kernels
        policy.add_arm("one more")
        policy.decide(rng.standard_normal(q) if q else None, context=None if m and first else ...)
