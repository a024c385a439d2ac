"""What policies that see contexts have in common."""

from dataclasses import dataclass

from undertow import _checks
from undertow._checks import FloatArray
from undertow.policies.base import LivePolicy
from undertow.policies.inputs import inputs_size, new_inputs

__all__ = ["ContextPolicy", "LaggedPolicy"]


@dataclass(kw_only=True, eq=False, repr=False)
class ContextPolicy(LivePolicy):
    """Base of policies that see contexts.

    Parameters
    ----------
    context_dim
        Number m of entries of a context; with 0 every decide is a round.
    context_first
        Whether the context of a round comes before its decision (the everyday order) or after (the paper's).
    """

    context_dim: int = 0
    context_first: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class LaggedPolicy(ContextPolicy):
    """Base of linear policies over lagged contexts, the round's features and the learner's own past rewards.

    Parameters
    ----------
    window
        How many past contexts enter; without effect when context_dim is 0.
    feature_dim
        Number q of features given to `decide`.
    reward_lags
        Over how many past rounds the learner's own rewards enter: k inputs a lag, 0 where an arm was not played or its
        reward has not come, with an indicator beside each.
    ridge
        λ > 0.
    exploration
        Factor of √(Θ'V⁻¹Θ), ≥ 0.
    """

    window: int = 10
    feature_dim: int = 0
    reward_lags: int = 0
    ridge: float = 1.0
    exploration: float = 1.0

    def _inputs(self) -> tuple[FloatArray, int]:
        """Check the parameters and return an empty past with the number of inputs."""
        self.window = _checks.integer("window", self.window, least=0)
        self.reward_lags = _checks.integer("reward_lags", self.reward_lags, least=0)
        self.ridge = _checks.number("ridge", self.ridge, above=0)
        self.exploration = _checks.number("exploration", self.exploration, least=0)
        m, s, q, lags = self._context_dim, self.window, self._feature_dim, self.reward_lags
        return new_inputs(m, s, q, lags), inputs_size(self.arm_count, m, s, q, lags)
