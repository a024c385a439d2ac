"""Autopilot: several models side by side; the best predictor of the played arms' rewards decides."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from undertow.errors import InvalidInputError
from undertow.learning.candidate import Candidate, CandidateModel, WithCandidates
from undertow.learning.learner import Learner
from undertow.learning.policy import LearningPolicy
from undertow.live import Capabilities, register
from undertow.models.chain import compile_learner
from undertow.models.levels.model import Levels
from undertow.models.model import Model
from undertow.models.ridge.model import Ridge
from undertow.models.shared_system.model import SharedSystem

__all__ = ["Autopilot"]

_MODELS: tuple[tuple[type[Model], dict[str, Any]], ...] = (
    (SharedSystem, {"bonus": 2.0}),  # times its own width; the other models' bonus is the value of exploring an arm
    (Levels, {"bonus": 1.0}),
    (Ridge, {"bonus": 1.0}),
    (Ridge, {"bonus": 1.0, "name": "constant arms", "memory": 0}),
)
_ASKED = ("name", "forecast", "learn", "observe")  # of a candidate


@register("autopilot", citation="undertow")
@dataclass(kw_only=True, eq=False, repr=False)
class Autopilot(LearningPolicy):
    """Run a shared system, structural levels, a ridge with reward lags and constant arms; the best predictor decides.

    Every model predicts the reward of the played arm, no matter which one chose it, so comparing them costs no regret.
    The score is the log likelihood of a model's errors with a variance for each arm, in which no arm counts for more
    than fifty rewards and no error below a tenth of the rewards' spread counts (`models.block`). If there
    are contexts, another model needs a lead of some nats over the shared system (`models.judge.handicap`).

    Parameters
    ----------
    feature_dim
        Number q of features given to `decide`, (q,) for all arms or (k, q), a row for each.
    candidates
        Your own models, which compete with the others; see `undertow.policies.Candidate`.

    Examples
    --------
    >>> policy = Autopilot(arms=["low", "mid", "high"], context_dim=2, rng=0)
    >>> policy.learn(policy.decide(), reward=1.7)
    >>> policy.observe([0.3, -1.2])
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        uses_contexts=True,
        takes_features=True,
        deterministic=False,
        handles_missing_contexts=True,
        takes_arm_features=True,
    )
    loop = compile_learner(__name__, "autopilot", [kind.steps for kind, _ in _MODELS])

    feature_dim: int = 0
    candidates: Sequence[Candidate] = ()

    def _make_models(self) -> Sequence[Model]:
        given = self.candidates
        if not isinstance(given, Sequence) or not all(hasattr(candidate, a) for candidate in given for a in _ASKED):
            raise InvalidInputError(f"candidates: expected a list of models with {', '.join(_ASKED)}")
        sizes = (self.arm_count, self._context_dim, self._feature_dim, self._turns.context_first)
        models = [
            *(kind(*sizes, **more) for kind, more in _MODELS),
            *(CandidateModel(*sizes, 0.0, candidate.name) for candidate in given),
        ]
        names = [model.name for model in models]
        if len(set(names)) < len(names):
            raise InvalidInputError(f"candidates: expected different names, got {names}")
        return models

    def _make_learner(self, *parts: Any, **settings: Any) -> Learner:
        given = self.candidates
        return WithCandidates(given, *parts, **settings) if given else Learner(*parts, **settings)

    def _run_parameters(self) -> dict[str, Any]:
        return super()._run_parameters() | {"candidates": copy.deepcopy(self.candidates)}

    def _runs_in_python(self) -> bool:
        """Whether `simulate` must call the methods: candidates are not compiled."""
        return bool(self.candidates)
