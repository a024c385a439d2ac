"""What policies that see contexts have in common."""

import abc
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from undertow import _checks
from undertow._checks import FloatArray
from undertow.policies.base import LivePolicy
from undertow.policies.inputs import inputs_size, new_inputs
from undertow.policies.scaling import FIRST_SCALING, Change, Moments
from undertow.policies.units import Units

__all__ = ["ContextPolicy", "LaggedPolicy", "RidgePolicy"]


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
class RidgePolicy(ContextPolicy):
    """Base of policies that regress rewards on lagged contexts.

    Parameters
    ----------
    standardise
        Whether contexts, features and rewards are brought to mean 0 and deviation 1: after 16 rounds and at every
        doubling, by what was seen until then; before that, they are counted from their first values. What is given in
        units of reward stays in those units.
    """

    standardise: bool = False

    def __post_init__(self) -> None:
        self.standardise = _checks.flag("standardise", self.standardise)
        LivePolicy.__post_init__(self)
        m, q = self._context_dim, self._feature_dim
        if self.standardise:
            self._units = Units.plain(m, q, minimise=self.minimise)
            self._pause = FIRST_SCALING
        self._moments = Moments(m + q + 1)

    @abc.abstractmethod
    def _change_units(self, change: Change) -> None:
        """Bring the state into new units."""

    def _window_sizes(self) -> dict[str, int]:
        """Return how many contexts, and how many past rewards of every arm, are among the inputs."""
        return {"window": getattr(self, "window", 0), "lags": getattr(self, "reward_lags", 0)}

    def _rescale_if_due(self) -> None:
        if self.round < self._pause:
            return
        assert self._units is not None
        new = self._moments.units(minimise=self.minimise)
        sizes = {"m": self._context_dim, "q": self._feature_dim, "arms": self.arm_count, **self._window_sizes()}
        change = Change.between(self._units, new, **sizes)
        self._change_units(change)
        for waiting in self._pending.values():
            waiting.memory[:] = change.T @ waiting.memory
        self._units, self._pause = new, 2 * self.round

    def _column(self, name: str) -> int:
        """Return the first column of contexts, features or the reward."""
        m, q = self._context_dim, self._feature_dim
        return {"context": 0, "features": m, "reward": m + q}[name]

    def _begin_columns(self, **columns: FloatArray | float) -> None:
        if self._units is None or not self.standardise or not self._moments.unseen.any():
            return
        for name, values in columns.items():
            self._moments.begin(self._column(name), np.atleast_2d(values))
        centre = np.where(self._moments.unseen, self._moments.rows[1], self._units.centre)
        self._units = self._units._replace(centre=centre)

    def _note_seen(self, **columns: FloatArray | float) -> None:
        if self.standardise:
            self._begin_columns(**columns)
            for name, values in columns.items():
                self._moments.add(self._column(name), np.atleast_2d(values))

    def _take_over(self, old: Self) -> None:
        LivePolicy._take_over(self, old)
        self._moments, self._pause = old._moments, old._pause

    def _extra_arrays(self) -> dict[str, FloatArray]:
        if self._units is None or not self.standardise:
            return {}
        return {"moments": self._moments.rows, "units": np.array(self._units), "pause": np.array([self._pause])}

    def _restore_extra(self, arrays: dict[str, FloatArray]) -> None:
        if self.standardise:
            columns = len(self._moments.rows[0])
            self._moments.rows[:] = _checks.array("moments", arrays["moments"], (4, columns))
            self._units = Units(*_checks.array("units", arrays["units"], (2, columns)))
            self._pause = int(arrays["pause"][0])


@dataclass(kw_only=True, eq=False, repr=False)
class LaggedPolicy(RidgePolicy):
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

    def _input_places(self, old: Self) -> npt.NDArray[np.int64]:
        """Return where the old inputs stand among ours: at every lag, the pair of a new arm comes last."""
        k, lags = old.arm_count, self.reward_lags
        fixed = len(old._memory) - 2 * k * lags
        pairs = fixed + 2 * (k + 1) * np.arange(lags)[:, None] + np.arange(2 * k)
        return np.concatenate([np.arange(fixed), pairs.ravel()])
