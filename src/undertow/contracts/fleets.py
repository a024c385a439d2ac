"""A policy in a fleet: bit-identical to a single policy."""

from typing import Any

import numpy as np

from undertow.contracts import inside, rules, serving, timing  # noqa: F401 (its rules come first)
from undertow.contracts.trial import Trial, require, rule
from undertow.errors import InvalidInputError, UnknownDecisionError
from undertow.fleet import Fleet, bucket_of

_BUCKETS = 2


@rule("a fleet plays as single policies", "ours", "live")
def _as_single(trial: Trial) -> None:
    """Play 60 batches of keys in a fleet, and each key alone, with late and lost rewards (seed 0)."""
    policy: Any = trial.make(3)
    try:
        fleet = Fleet(policy, buckets=_BUCKETS)
    except InvalidInputError:
        return  # a policy that fleets do not accept
    keys, buckets = np.arange(6), bucket_of(np.arange(6), _BUCKETS)
    if len(policy.parts.player.draws):  # one key in each bucket, which then has the policy's random numbers
        keys = np.array([int(np.argmax(buckets == number)) for number in range(_BUCKETS)])
    single = {key: policy.parts.for_run(int(buckets[key])) for key in keys.tolist()}
    rng, first = np.random.default_rng(0), getattr(policy, "context_first", False)
    waiting: list[tuple[Any, Any]] = []
    for t in range(60):
        some = rng.choice(keys, rng.integers(1, len(keys) + 1), replace=False)
        contexts = trial.path.contexts[t : t + len(some)] if trial.sees_contexts else None
        open_ = rng.random((len(some), trial.arms)) < 0.7
        open_[np.arange(len(some)), rng.integers(trial.arms, size=len(some))] = True
        if contexts is not None and first:
            fleet.observe_many(some, contexts)
        decisions = fleet.decide_many(some, available=open_)
        for row, key in enumerate(some.tolist()):
            if contexts is not None and first:
                single[key].observe(contexts[row])
            alone = single[key].decide(available=np.flatnonzero(open_[row]))
            for name, one, other in (
                ("arm", decisions.arms[row], alone.arm),
                ("forecast", decisions.forecasts[row], alone.forecast),
                ("width", decisions.widths[row], alone.width),
            ):
                same = np.array_equal(one, other, equal_nan=True)
                require(same, f"round {alone.round} of key {key}: {name} {one} in a fleet, {other} alone")
            waiting.append((decisions.take([row]), alone))
        if contexts is not None and not first:
            fleet.observe_many(some, contexts)
            for row, key in enumerate(some.tolist()):
                single[key].observe(contexts[row])
        rng.shuffle(waiting)
        while len(waiting) > rng.integers(0, 8):
            decision, alone = waiting.pop()
            if rng.random() < 0.9:
                reward = trial.reward(alone.round, alone)
                (learned,) = fleet.learn_many(decision, [reward], missing="skip")
                key = int(decision.keys[0])
                same = learned == _learns(single[key], alone, reward)
                require(same, f"the reward of round {alone.round} of key {key} is not learned in both, or in neither")
    for key, alone in single.items():
        if key in fleet:
            same = fleet[key].parts.player.state.tobytes() == alone.parts.player.state.tobytes()
            require(same, f"the state of key {key} in a fleet differs from that of the policy alone")


def _learns(policy: Any, decision: Any, reward: float) -> bool:
    """Learn a reward; return whether it was accepted."""
    try:
        policy.learn(decision, reward)
    except UnknownDecisionError:
        return False
    return True
