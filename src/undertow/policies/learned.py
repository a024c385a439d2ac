"""LearnedKalman: one shared hidden system, estimated from the learner's own log, and the filter that it implies."""

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
from undertow.policies.member import OVER, READY, Member
from undertow.policies.play import compile_kernels
from undertow.policies.shared_member import SharedMember
from undertow.policies.shared_steps import shared_begin, shared_forecast, shared_learn, shared_observe
from undertow.policies.state import ROUNDS

__all__ = ["LearnedKalman"]


@register("learned-kalman", citation="undertow")
@dataclass(kw_only=True, eq=False, repr=False)
class LearnedKalman(LearningPolicy):
    """Learn the hidden system from contexts and own rewards, and play the largest forecast + width of its filter.

    The width is β √(z̃'V_a z̃): what is unknown of the arm, not of the state, which all share. β grows with the rounds,
    from 1 up to `exploration`; an arm that is seldom played and hardly known is widened (`learner_state.widening`).

    Parameters
    ----------
    exploration
        Largest factor of the width, ≥ 0.

    Examples
    --------
    >>> policy = LearnedKalman(arms=2, context_dim=1, rng=0)
    >>> policy.learn(policy.decide(), reward=0.4)
    >>> policy.observe([0.2])
    """

    claims: ClassVar[Claims] = Claims(uses_contexts=True, deterministic=False, handles_missing_contexts=True)

    exploration: float = 2.0

    def _make_members(self) -> Sequence[tuple[Member, FloatArray]]:
        self.exploration = _checks.number("exploration", self.exploration, least=0)
        member = SharedMember(self.arm_count, self._context_dim, 0, self._context_first)
        return [(member, member.block(self.exploration))]


@spliced
def learned_decide(own: LearnerState, features: FloatArray, draws: FloatArray) -> int:
    """Play the largest forecast + width; ask for a fit first, where one is due."""
    header = own.shared.header
    k, m, t = int(header[0]), int(header[1]), int(header[ROUNDS])
    state, at = own.state, own.at
    if fit_is_due(state, at, t):
        return -1
    shared_begin(state, at, k, m)
    if state[at + READY] > 0.0:
        shared_forecast(state, at, k, m, t)
    return choose(own, at if state[at + READY] > 0.0 else -1, math.inf, draws)


@spliced
def learned_played(own: LearnerState, arm: int) -> None:
    """Take note of the arm; the round is over unless its context is still to come."""
    k, m = int(own.shared.header[0]), int(own.shared.header[1])
    shared_begin(own.state, own.at, k, m)
    count_round(own, arm)
    if own.head[1] > 0.0 or m == 0:
        own.state[own.at + OVER] = 1.0


@spliced
def learned_learn(own: LearnerState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Condition the model on a reward of the present round."""
    k, m, t = int(own.shared.header[0]), int(own.shared.header[1]), int(own.shared.header[ROUNDS])
    shared_learn(own.state, own.at, k, m, t, arm, rewards[arm])


@spliced
def learned_observe(own: LearnerState, context: FloatArray) -> None:
    """Condition the model on a context."""
    k, m, t = int(own.shared.header[0]), int(own.shared.header[1]), int(own.shared.header[ROUNDS])
    shared_observe(own.state, own.at, k, m, t, context, own.head[1] > 0.0)


LearnedKalman.kernels = compile_kernels(
    __name__, open_learner, learned_decide, learned_played, learned_learn, learned_observe
)
