"""The belief about the hidden state: predict, condition, filter, smooth (Eq. 4 Kalman_Filter of the paper).

A round goes: the belief before anything is seen (the prediction) → a forecast of every arm → contexts and rewards come
in, each entry present or missing → the belief given them (the filter) → one step of the dynamics to the next round.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from undertow import _checks, riccati
from undertow._checks import FloatArray
from undertow.errors import InvalidInputError
from undertow.kalman_steps import condition_step, filter_series, predict_step, smooth_series
from undertow.riccati import SteadyState
from undertow.system import LinearGaussianSystem

__all__ = [
    "Belief",
    "Filtered",
    "Forecast",
    "KalmanFilter",
    "Smoothed",
    "condition",
    "filter",
    "initial_belief",
    "predict",
    "smooth",
    "steady_state",
]


class Belief(NamedTuple):
    """The belief about the state: z ~ N(mean, covariance)."""

    mean: FloatArray
    covariance: FloatArray


class Forecast(NamedTuple):
    """Expected reward of every arm, (k,), and the joint covariance (k, k) of the error in ⟨c_a, z⟩.

    The reward itself also carries its noise: add `system.reward_noise` to the diagonal for its covariance.
    """

    mean: FloatArray
    covariance: FloatArray


@dataclass(frozen=True)
class Filtered:
    """The beliefs along a series: before (`predicted_`) and after each round's observations were seen.

    Attributes
    ----------
    predicted_means, predicted_covariances
        ẑ_{t|t−1}, (n, d), and P_{t|t−1}, (n, d, d).
    means, covariances
        ẑ_{t|t}, (n, d), and P_{t|t}, (n, d, d).
    forecasts
        Expected reward of every arm before the round, (n, k).
    log_likelihoods
        Log density of each round's observations given the past, (n,); 0 where nothing was seen.
    """

    predicted_means: FloatArray
    predicted_covariances: FloatArray
    means: FloatArray
    covariances: FloatArray
    forecasts: FloatArray
    log_likelihoods: FloatArray

    @property
    def log_likelihood(self) -> float:
        """Log density of the whole series."""
        return float(self.log_likelihoods.sum())


@dataclass(frozen=True)
class Smoothed:
    """The beliefs given the whole series: means (n, d) and covariances (n, d, d)."""

    means: FloatArray
    covariances: FloatArray


def initial_belief(system: LinearGaussianSystem) -> Belief:
    """Return the law of the first state."""
    return Belief(system.initial_mean, system.initial_covariance)


def predict(belief: Belief, system: LinearGaussianSystem, rounds: int = 1) -> Belief:
    """Return the belief after some rounds in which nothing was seen: ẑ ← Γẑ + μ, P ← ΓPΓ' + Q."""
    rounds = _checks.integer("rounds", rounds, least=0)
    z, P = _copy(belief, system)
    for _ in range(rounds):
        predict_step(z, P, system.symbols)
    _require_numbers(z, P, rounds)
    return Belief(z, P)


def condition(
    belief: Belief,
    system: LinearGaussianSystem,
    context: npt.ArrayLike | None = None,
    rewards: Mapping[int, float] | npt.ArrayLike | None = None,
) -> Belief:
    """Return the belief given any part of a round's observations.

    Parameters
    ----------
    context
        The round's context, (m,), with NaN where an entry is missing; None where all are.
    rewards
        The rewards that were seen, as a mapping from arm to reward, or as an array (k,) with NaN for the others.
    """
    θ, x = _context(context, system), _rewards(rewards, system)
    z, P = _copy(belief, system)
    condition_step(z, P, θ, x, system.symbols)
    return Belief(z, P)


def filter(
    system: LinearGaussianSystem,
    contexts: npt.ArrayLike | None = None,
    rewards: npt.ArrayLike | None = None,
) -> Filtered:
    """Run the filter over a series, from the system's initial law.

    Parameters
    ----------
    contexts
        One row per round, (n, m), NaN where an entry is missing; None where no context was seen.
    rewards
        Rewards of all arms, (n, k), NaN where one was not seen (`Trajectory.played` makes such an array for the arms
        that a learner played); None where no reward was.

    Examples
    --------
    >>> from undertow import paper_system
    >>> path = paper_system(psi=1).sample(200, rng=0)
    >>> beliefs = filter(paper_system(psi=1), path.contexts)
    >>> beliefs.forecasts.shape
    (200, 2)
    """
    if contexts is None and rewards is None:
        raise InvalidInputError("contexts, rewards: expected at least one of them, got neither")
    m, k = system.context_dim, system.arm_count
    name, given = ("rewards", rewards) if contexts is None else ("contexts", contexts)
    n = len(np.atleast_1d(_checks.numbers(name, given)))  # type: ignore[arg-type]
    θ = _checks.array("contexts", np.full((n, m), np.nan) if contexts is None else contexts, (n, m), missing=True)
    x = _checks.array("rewards", np.full((n, k), np.nan) if rewards is None else rewards, (n, k), missing=True)
    d = system.state_dim
    predicted_means, means = np.empty((n, d)), np.empty((n, d))
    predicted_covariances, covariances = np.empty((n, d, d)), np.empty((n, d, d))
    log_likelihoods = np.empty(n)
    z, P = _copy(initial_belief(system), system)
    filter_series(
        z, P, θ, x, system.symbols, predicted_means, predicted_covariances, means, covariances, log_likelihoods
    )
    _require_numbers(predicted_means, predicted_covariances, n)
    forecasts = predicted_means @ system.arms.T + system.reward_offset
    return Filtered(predicted_means, predicted_covariances, means, covariances, forecasts, log_likelihoods)


def smooth(system: LinearGaussianSystem, filtered: Filtered) -> Smoothed:
    """Return the beliefs given the whole series, by the Rauch–Tung–Striebel recursion.

    With J_t = P_{t|t}Γ'P_{t+1|t}⁻¹ and ẑ_t, P_t the result: ẑ_t = ẑ_{t|t} + J_t (ẑ_{t+1} − ẑ_{t+1|t}) and
    P_t = P_{t|t} + J_t (P_{t+1} − P_{t+1|t}) J_t'.
    """
    d = system.state_dim
    if filtered.means.shape[1] != d:
        raise InvalidInputError(
            f"filtered: expected beliefs about {d} states, as the system has, got {filtered.means.shape[1]}; "
            f"smooth with the system that filtered"
        )
    ahead = filtered.predicted_covariances[1:]
    # P_{t+1|t} is singular where Q is; its pseudo-inverse is taken after scaling each entry of the state to variance 1.
    variances = np.diagonal(ahead, axis1=1, axis2=2)
    scale = np.where(variances > 0, variances, 1.0) ** -0.5
    correlation = ahead * scale[:, :, None] * scale[:, None, :]
    inverse = np.linalg.pinv(correlation, rcond=1e-12, hermitian=True) * scale[:, :, None] * scale[:, None, :]
    J = filtered.covariances[:-1] @ system.dynamics.T @ inverse
    means, covariances = filtered.means.copy(), filtered.covariances.copy()
    smooth_series(means, covariances, filtered.predicted_means, filtered.predicted_covariances, J)
    return Smoothed(means, covariances)


def steady_state(system: LinearGaussianSystem, arms: Iterable[int] = ()) -> SteadyState:
    """Return what the filter converges to when it sees every context and the rewards of `arms` in every round.

    Without arms this is the paper's filter (Eq. 5 ss_Kalman_Filter); with all of them, the filter of its lower bound
    (Eq. 29 Kalman_Oracle). Observations are ordered contexts first, then arms as given.

    Examples
    --------
    >>> from undertow import paper_system
    >>> everything = steady_state(paper_system(psi=1), arms=[0, 1])
    >>> everything.filter_gain.shape
    (5, 3)
    """
    seen = _checks.indices("arms", _checks.entries("arms", arms), ("n",), below=system.arm_count)
    if not seen.size:
        return system.steady_state
    Γ, _, Q, C, _, R, c, _, σ2 = system.symbols
    m = len(R)
    noise = np.diag(np.concatenate([np.zeros(m), σ2[seen]]))
    noise[:m, :m] = R
    return riccati.steady_state(Γ, np.vstack([C, c[seen]]), Q, noise)


class KalmanFilter:
    """A belief that moves with the rounds, for live use.

    Parameters
    ----------
    system
        The system, known.
    belief
        Where to start; by default the system's initial law.

    Examples
    --------
    >>> from undertow import paper_system
    >>> kalman = KalmanFilter(paper_system(psi=1))
    >>> kalman.forecast().mean
    array([0., 0.])
    >>> round(kalman.condition(context=[1.5], rewards={1: -0.7}), 6)
    -4.378803
    >>> kalman.predict()
    >>> kalman.forecast().covariance.shape
    (2, 2)
    """

    def __init__(self, system: LinearGaussianSystem, belief: Belief | None = None) -> None:
        self.system = system
        self._mean, self._covariance = _copy(initial_belief(system) if belief is None else belief, system)

    @property
    def belief(self) -> Belief:
        """A copy of the present belief."""
        return Belief(self._mean.copy(), self._covariance.copy())

    def forecast(self) -> Forecast:
        """Return the expected reward of every arm, and the joint covariance of its error."""
        c = self.system.arms
        return Forecast(c @ self._mean + self.system.reward_offset, c @ self._covariance @ c.T)

    def condition(
        self, context: npt.ArrayLike | None = None, rewards: Mapping[int, float] | npt.ArrayLike | None = None
    ) -> float:
        """Take in any part of a round's observations (see `condition`) and return their log density."""
        θ, x = _context(context, self.system), _rewards(rewards, self.system)
        return condition_step(self._mean, self._covariance, θ, x, self.system.symbols)

    def predict(self, rounds: int = 1) -> None:
        """Let some rounds pass."""
        mean, covariance = self._mean.copy(), self._covariance.copy()
        for _ in range(_checks.integer("rounds", rounds, least=0)):
            predict_step(mean, covariance, self.system.symbols)
        _require_numbers(mean, covariance, rounds)
        self._mean, self._covariance = mean, covariance


def _require_numbers(means: FloatArray, covariances: FloatArray, rounds: int) -> None:
    if not (np.isfinite(means).all() and np.isfinite(covariances).all()):
        raise InvalidInputError(
            f"system: within {rounds} rounds the belief about its state overflowed, since nothing was "
            f"seen of a mode that grows; take fewer rounds, or leave the mode out"
        )


def _copy(belief: Belief, system: LinearGaussianSystem) -> tuple[FloatArray, FloatArray]:
    mean = _checks.array("belief.mean", belief.mean, (system.state_dim,))
    covariance = _checks.covariance("belief.covariance", belief.covariance, system.state_dim)
    return mean.copy(), covariance.copy()


def _context(context: npt.ArrayLike | None, system: LinearGaussianSystem) -> FloatArray:
    m = system.context_dim
    return _checks.array("context", np.full(m, np.nan) if context is None else context, (m,), missing=True)


def _rewards(rewards: Mapping[int, float] | npt.ArrayLike | None, system: LinearGaussianSystem) -> FloatArray:
    x = np.full(system.arm_count, np.nan)
    if isinstance(rewards, Mapping):
        arms = _checks.indices("rewards", list(rewards), (len(rewards),), below=len(x))
        x[arms] = _checks.array("rewards", list(rewards.values()), (len(rewards),))
        rewards = None
    return _checks.array("rewards", x if rewards is None else rewards, x.shape, missing=True)
