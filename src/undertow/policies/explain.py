"""What a learner says of itself when it is asked: its models, why it decided as it did, and how it fares."""

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from undertow._kernel import plain
from undertow.policies.decision import Why
from undertow.policies.health import Health, ModelInUse
from undertow.policies.learner_state import LEAD, LEADER, handicap
from undertow.policies.member import (
    ALARMS,
    FITTED,
    KIND,
    LEVEL,
    LEVELS,
    READY,
    SCORE,
    SCORED,
    SETTINGS,
    SHARED,
    last_innovations,
)
from undertow.system import LinearGaussianSystem

if TYPE_CHECKING:
    from undertow.policies.learning import LearningPolicy

__all__ = ["explain", "health_of", "models_of"]

_handicap = plain(handicap)


def explain(policy: "LearningPolicy") -> Why:
    """Return how the decision that was just made came about, as the kernel noted it."""
    k, entry = policy.arm_count, policy._state.item
    at = int(entry(policy._head + LEADER))
    if at < 0:
        return Why(np.full(k, math.inf), np.full(k, math.inf), "start-up", math.inf, -1)
    errors = policy._state[at + SETTINGS + 2 * k : at + SETTINGS + 4 * k].copy()
    name, since_fit = policy._members[policy._places.index(at)].name, policy.round - 1 - int(entry(at + FITTED))
    return Why(errors[:k], errors[k:], name, entry(policy._head + LEAD), since_fit)


def models_of(policy: "LearningPolicy") -> tuple[ModelInUse, ...]:
    """Return the models that have been fitted, the one with the largest score, less its handicap, first."""
    found = [_model(policy, number) for number, at in enumerate(policy._places) if policy._state[at + READY]]
    return tuple(sorted(found, key=lambda model: -model.score))


def _model(policy: "LearningPolicy", number: int) -> ModelInUse:
    block, member = policy._block(number), policy._members[number]
    content = member.describe(block)
    if policy.minimise and isinstance(content, LinearGaussianSystem):  # fitted to the negative of the costs
        content = dataclasses.replace(content, arms=-content.arms, reward_offset=-content.reward_offset)
    score = float(block[SCORE] - _handicap(block[KIND], policy._context_dim, block[SCORED]))
    return ModelInUse(member.name, int(block[READY]), int(block[FITTED]), score, content)


def health_of(policy: "LearningPolicy") -> Health:
    """Return innovations, alarms, fits and their failures."""
    blocks = {member.name: policy._block(number) for number, member in enumerate(policy._members)}
    watched = {name: block for name, block in blocks.items() if block[READY] and block[KIND] in (SHARED, LEVELS)}
    return Health(
        {name: last_innovations(block) for name, block in blocks.items()},
        {name: float(block[LEVEL]) for name, block in watched.items()},
        {name: int(block[ALARMS]) for name, block in blocks.items()},
        tuple(policy._records),
        tuple(policy._members[number].name for number in policy._under_way),
    )
