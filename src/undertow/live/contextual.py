"""Bases of policies that see contexts, and of those that regress rewards on them."""

import abc
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow.live.decision import Capabilities
from undertow.live.inputs import input_places, inputs_sizes
from undertow.live.policy import LivePolicy
from undertow.live.standardize import Change, StandardizedColumns
from undertow.live.units import Columns
from undertow.support import checks

__all__ = ["ContextPolicy", "LaggedPolicy", "RidgePolicy"]


@dataclass(kw_only=True, eq=False, repr=False)
class ContextPolicy(LivePolicy):
    """Base of policies that observe contexts.

    Parameters
    ----------
    context_dim
        Number m of entries of a context; with 0 every decide is a round.
    context_first
        Whether the context of a round comes before its decision (the usual order) or after (the paper's).
    """

    context_dim: int = 0
    context_first: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class RidgePolicy(ContextPolicy):
    """Base of policies that regress rewards on lagged contexts.

    Parameters
    ----------
    standardize
        Whether contexts, features and rewards are scaled to mean 0 and standard deviation 1, by the data so far, after
        16 rounds and at every doubling; before that, they are relative to their first values. Parameters in units of
        reward keep those units.
    """

    standardize: bool = False

    @abc.abstractmethod
    def _change_units(self, own: Any, change: Change) -> None:
        """Convert the state to new units."""

    def _claims_as_built(self) -> Capabilities:
        """Return the claims; if rewards enter inputs or units, their delay matters."""
        if self.standardize or self._window_sizes()["lags"]:
            return self.capabilities._replace(late_rewards_count_alike=False)
        return self.capabilities

    def _make_columns(self) -> Columns:
        self.standardize = checks.flag("standardize", self.standardize)
        kind = StandardizedColumns if self.standardize else Columns
        return kind(self._context_dim, self._feature_dim, minimize=self.minimize)

    def _window_sizes(self) -> dict[str, int]:
        """Return the numbers of contexts, and of past rewards of every arm, among the inputs."""
        return {"window": getattr(self, "window", 0), "lags": getattr(self, "reward_lags", 0)}

    def _rescale(self) -> None:
        assert isinstance(self._columns, StandardizedColumns)
        change = self._columns.change(self.round, arms=self.arm_count, **self._window_sizes())
        self._player.common.head.reward_unit = 1.0 / abs(float(self._columns.units.scale[-1]))
        self._change_units(self._player.own, change)
        self._pending.change_memories(change.inputs)


@dataclass(kw_only=True, eq=False, repr=False)
class LaggedPolicy(RidgePolicy):
    """Base of linear policies over lagged contexts, the round's features and the learner's own past rewards.

    Parameters
    ----------
    window
        Number of past contexts among the inputs; without effect if context_dim is 0.
    feature_dim
        Number q of features given to `decide`, (q,) for all arms or (k, q), a row for each.
    reward_lags
        How many past rounds of its own rewards the policy uses as inputs. Each lag adds, for every arm, the reward (0
        if none) and an indicator.
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

    def _input_sizes(self) -> dict[str, int]:
        """Check the parameters and return the sizes of the inputs."""
        self.window = checks.integer("window", self.window, least=0)
        self.reward_lags = checks.integer("reward_lags", self.reward_lags, least=0)
        self.ridge = checks.number("ridge", self.ridge, above=0)
        self.exploration = checks.number("exploration", self.exploration, least=0)
        return inputs_sizes(self.arm_count, self._context_dim, self._feature_dim, self.window, self.reward_lags)

    def _index_map(self, old_arms: int) -> dict[str, npt.NDArray[np.int64] | None]:
        """Return the places of the old inputs among ours."""
        return {
            "p": input_places(old_arms, self._context_dim, self._feature_dim, self.window, self.reward_lags),
        }
