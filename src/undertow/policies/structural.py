"""StructuralKalman: every arm has a life of its own, beside a level that all share and features known beforehand."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from undertow import _checks
from undertow._checks import FloatArray
from undertow._kernel import spliced
from undertow.policies.catalogue import register
from undertow.policies.decision import Claims
from undertow.policies.learner_state import LearnerState, choose, count_round, fit_is_due, open_learner
from undertow.policies.learning import LearningPolicy
from undertow.policies.levels_member import LevelsMember, expected_largest
from undertow.policies.levels_member_steps import (
    levels_begin,
    levels_decide,
    levels_learn,
    levels_observe,
    levels_see,
)
from undertow.policies.member import OVER, READY, Member
from undertow.policies.play import compile_kernels
from undertow.policies.state import ROUNDS

__all__ = ["StructuralKalman"]


@register("structural-kalman", citation="undertow")
@dataclass(kw_only=True, eq=False, repr=False)
class StructuralKalman(LearningPolicy):
    """Learn a level that all arms share, a slow and a fast level of each, and weights on features.

    Play the largest forecast + width, the width `exploration` · √(variance of the arm's slow level and weights): an arm
    that has not been played for long has wandered off unseen. What is unknown of its fast level is left out: once found
    out, it would have passed. The last contexts enter as further features.

    Parameters
    ----------
    feature_dim
        Number q of features given to `decide`.
    exploration
        Factor of the width; "auto" is the expected maximum of k standard normal numbers.

    Examples
    --------
    >>> policy = StructuralKalman(arms=3, feature_dim=2, rng=0)
    >>> policy.learn(policy.decide(features=[0.1, 0.7]), reward=0.4)
    """

    claims: ClassVar[Claims] = Claims(
        uses_contexts=True, takes_features=True, deterministic=False, handles_missing_contexts=True
    )

    feature_dim: int = 0
    exploration: float | str = "auto"

    def _make_members(self) -> Sequence[tuple[Member, FloatArray]]:
        given = _checks.auto_number("exploration", self.exploration)
        factor = expected_largest(self.arm_count) if given is None else given
        member = LevelsMember(self.arm_count, self._context_dim, self._feature_dim, self._context_first)
        return [(member, member.block(factor))]


@spliced
def structural_decide(own: LearnerState, features: FloatArray, draws: FloatArray) -> int:
    """Play the largest forecast + width; ask for a fit first, where one is due."""
    header = own.shared.header
    k, m, t = int(header[0]), int(header[1]), int(header[ROUNDS])
    state, at = own.state, own.at
    if fit_is_due(state, at, t):
        return -1
    levels_begin(state, at, k, m)
    levels_see(state, at, k, m, features)
    if state[at + READY] > 0.0:
        levels_decide(state, at, k, m)
    return choose(own, at if state[at + READY] > 0.0 else -1, math.inf, draws)


@spliced
def structural_played(own: LearnerState, arm: int) -> None:
    """Take note of the arm; the round is over unless its context is still to come."""
    header = own.shared.header
    levels_begin(own.state, own.at, int(header[0]), int(header[1]))
    count_round(own, arm)
    if own.head[1] > 0.0 or header[1] == 0.0:
        own.state[own.at + OVER] = 1.0


@spliced
def structural_learn(own: LearnerState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Condition the model on a reward of the present round."""
    header = own.shared.header
    levels_learn(own.state, own.at, int(header[0]), int(header[1]), int(header[ROUNDS]), arm, rewards[arm])


@spliced
def structural_observe(own: LearnerState, context: FloatArray) -> None:
    """File a context."""
    header = own.shared.header
    levels_observe(own.state, own.at, int(header[0]), int(header[1]), context, own.head[1] > 0.0)


StructuralKalman.kernels = compile_kernels(
    __name__, open_learner, structural_decide, structural_played, structural_learn, structural_observe
)
