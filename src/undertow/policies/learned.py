"""LearnedKalman: one shared hidden system, estimated from the policy's own history, and its Kalman filter."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from undertow.learning.policy import LearningPolicy
from undertow.live import Capabilities, register
from undertow.models.chain import compile_learner
from undertow.models.model import Model
from undertow.models.shared_system.model import SharedSystem
from undertow.support import checks

__all__ = ["LearnedKalman"]


@register("learned-kalman", citation="undertow")
@dataclass(kw_only=True, eq=False, repr=False)
class LearnedKalman(LearningPolicy):
    """Learn the hidden system from contexts and own rewards, and play the largest forecast + width of its filter.

    The width is β √(z̃'V_a z̃): the uncertainty about the arm, not about the state, which all share. β grows with the
    rounds, from 1 up to `exploration`. It is larger for a rarely played, uncertain arm
    (`models.shared_system.model.widening`).

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

    capabilities: ClassVar[Capabilities] = Capabilities(
        uses_contexts=True, deterministic=False, handles_missing_contexts=True
    )
    loop = compile_learner(__name__, "learned", [SharedSystem.steps])

    exploration: float = 2.0

    def _make_models(self) -> Sequence[Model]:
        self.exploration = checks.number("exploration", self.exploration, least=0)
        first = self._turns.context_first
        return [SharedSystem(self.arm_count, self._context_dim, 0, first, bonus=self.exploration)]
