"""StructuralKalman: every arm has its own levels, next to a shared level and features."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from undertow.learning.policy import LearningPolicy
from undertow.live import Capabilities, register
from undertow.models.chain import compile_learner
from undertow.models.levels.model import Levels
from undertow.models.model import Model
from undertow.support import checks

__all__ = ["StructuralKalman"]


@register("structural-kalman", citation="undertow")
@dataclass(kw_only=True, eq=False, repr=False)
class StructuralKalman(LearningPolicy):
    """Learn a level shared by all arms, a slow and a fast level of each, and weights on features.

    Play the largest forecast + width, the width `exploration` · √(variance of the arm's slow level and weights): an arm
    that has not been played for long may have changed. The uncertainty of its fast level is left out, since that level
    has changed by the time it is known. The last contexts enter as further features.

    Parameters
    ----------
    feature_dim
        Number q of features given to `decide`, (q,) for all arms or (k, q), a row for each.
    exploration
        Factor of the width, the value of exploring an arm (`models.worth`).

    Examples
    --------
    >>> policy = StructuralKalman(arms=3, feature_dim=2, rng=0)
    >>> policy.learn(policy.decide(features=[0.1, 0.7]), reward=0.4)
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        uses_contexts=True,
        takes_features=True,
        deterministic=False,
        handles_missing_contexts=True,
        takes_arm_features=True,
    )
    loop = compile_learner(__name__, "structural", [Levels.steps])

    feature_dim: int = 0
    exploration: float = 1.0

    def _make_models(self) -> Sequence[Model]:
        bonus = checks.number("exploration", self.exploration, least=0)
        first = self._turns.context_first
        return [Levels(self.arm_count, self._context_dim, self._feature_dim, first, bonus)]
