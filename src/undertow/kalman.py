"""The belief about the hidden state: predict, condition, filter, smooth (Eq. 4 Kalman_Filter of the paper).

A round: the belief before any observation (the prediction) → a forecast of every arm → contexts and rewards, each entry
present or missing → the belief given them (the filter) → one step of the dynamics to the next round.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.equations import riccati
from undertow.equations.kalman import condition_step, filter_series, predict_step, smooth_series
from undertow.equations.riccati import SteadyState
from undertow.equations.symbols import Symbols
from undertow.errors import InvalidInputError
from undertow.support import checks
from undertow.support.checks import FloatArray
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


_ONE_BY_ONE = 10_000  # time steps; more go in powers of two


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
    """The beliefs along a series: before (`predicted_`) and after each round's observations.

    Attributes
    ----------
    predicted_means, predicted_covariances
        ẑ_{t|t−1}, (n, d), and P_{t|t−1}, (n, d, d).
    means, covariances
        ẑ_{t|t}, (n, d), and P_{t|t}, (n, d, d).
    forecasts
        Expected reward of every arm before the round, (n, k).
    log_likelihoods
        Log density of each round's observations given the past, (n,); 0 without any.
    elapsed
        Time steps between each round and the next, (n − 1,); None if all are 1.
    """

    predicted_means: FloatArray
    predicted_covariances: FloatArray
    means: FloatArray
    covariances: FloatArray
    forecasts: FloatArray
    log_likelihoods: FloatArray
    elapsed: FloatArray | None = None

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


def predict(belief: Belief, system: LinearGaussianSystem, rounds: float = 1) -> Belief:
    """Return the belief after some time steps without observations: ẑ ← Γẑ + μ, P ← ΓPΓ' + Q.

    Their number may be any real one, such as 2.7, if the system has `rates`.
    """
    z, P = _copy(belief, system)
    _pass(z, P, system, rounds)
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
        The round's context, (m,), NaN if missing; None if all entries are.
    rewards
        The observed rewards, as a mapping from arm to reward, or as an array (k,) with NaN for the others.
    """
    θ, x = _context(context, system), _rewards(rewards, system)
    z, P = _copy(belief, system)
    condition_step(z, P, θ, x, system.symbols)
    return Belief(z, P)


def filter(
    system: LinearGaussianSystem,
    contexts: npt.ArrayLike | None = None,
    rewards: npt.ArrayLike | None = None,
    *,
    times: npt.ArrayLike | None = None,
) -> Filtered:
    """Run the filter over a series, from the system's initial law.

    Parameters
    ----------
    contexts
        One row per round, (n, m), NaN if missing; None without contexts.
    rewards
        Rewards of all arms, (n, k), NaN if not observed (`Trajectory.played` makes such an array for the arms that a
        learner played); None without rewards.
    times
        When each row was measured, in time steps, (n,): any real numbers that do not fall, if the system has `rates`.
        Rows of one time are several measurements of the same state. By default 0, 1, 2, …

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
    n = len(np.atleast_1d(checks.numbers(name, given)))  # type: ignore[arg-type]
    θ = checks.array("contexts", np.full((n, m), np.nan) if contexts is None else contexts, (n, m), missing=True)
    x = checks.array("rewards", np.full((n, k), np.nan) if rewards is None else rewards, (n, k), missing=True)
    d = system.state_dim
    predicted_means, means = np.empty((n, d)), np.empty((n, d))
    predicted_covariances, covariances = np.empty((n, d, d)), np.empty((n, d, d))
    log_likelihoods = np.empty(n)
    z, P = _copy(initial_belief(system), system)
    found = (predicted_means, predicted_covariances, means, covariances, log_likelihoods)
    elapsed = None if times is None else _elapsed(times, n)
    if elapsed is None:
        filter_series(z, P, θ, x, system.symbols, *found)
    else:
        steps = {time: _symbols_over(system, time) for time in np.unique(elapsed).tolist()}
        for t in range(n):
            if t:
                predict_step(z, P, steps[float(elapsed[t - 1])])
            filter_series(
                z.copy(), P.copy(), θ[t : t + 1], x[t : t + 1], system.symbols, *(p[t : t + 1] for p in found)
            )
            z[:], P[:] = means[t], covariances[t]
    _require_numbers(predicted_means, predicted_covariances, n)
    forecasts = predicted_means @ system.arms.T + system.reward_offset
    return Filtered(predicted_means, predicted_covariances, means, covariances, forecasts, log_likelihoods, elapsed)


def smooth(system: LinearGaussianSystem, filtered: Filtered) -> Smoothed:
    """Return the beliefs given the whole series, by the Rauch–Tung–Striebel recursion.

    With J_t = P_{t|t}Γ'P_{t+1|t}⁻¹ and ẑ_t, P_t the result: ẑ_t = ẑ_{t|t} + J_t (ẑ_{t+1} − ẑ_{t+1|t}) and
    P_t = P_{t|t} + J_t (P_{t+1} − P_{t+1|t}) J_t'.
    """
    d = system.state_dim
    if filtered.means.shape[1] != d:
        raise InvalidInputError(
            f"filtered: expected beliefs about {d} states, as the system has, got {filtered.means.shape[1]}; "
            f"use the system of the filter"
        )
    ahead = filtered.predicted_covariances[1:]
    # P_{t+1|t} is singular if Q is; its pseudo-inverse is taken after scaling each entry of the state to variance 1.
    variances = np.diagonal(ahead, axis1=1, axis2=2)
    scale = np.where(variances > 0, variances, 1.0) ** -0.5
    correlation = ahead * scale[:, :, None] * scale[:, None, :]
    inverse = np.linalg.pinv(correlation, rcond=1e-12, hermitian=True) * scale[:, :, None] * scale[:, None, :]
    Γ = system.dynamics
    if filtered.elapsed is not None:
        steps = {time: system.over(time).dynamics for time in np.unique(filtered.elapsed).tolist()}
        Γ = np.array([steps[time] for time in filtered.elapsed.tolist()]).reshape(-1, d, d)
    J = filtered.covariances[:-1] @ np.swapaxes(Γ, -1, -2) @ inverse
    means, covariances = filtered.means.copy(), filtered.covariances.copy()
    smooth_series(means, covariances, filtered.predicted_means, filtered.predicted_covariances, J)
    return Smoothed(means, covariances)


def steady_state(system: LinearGaussianSystem, arms: Iterable[int] = ()) -> SteadyState:
    """Return the filter's limit if it sees every context and the rewards of `arms` in every round.

    Without arms this is the paper's filter (Eq. 5 ss_Kalman_Filter); with all of them, the filter of its lower bound
    (Eq. 29 Kalman_Oracle). Observations are ordered contexts first, then arms as given.

    Examples
    --------
    >>> from undertow import paper_system
    >>> everything = steady_state(paper_system(psi=1), arms=[0, 1])
    >>> everything.filter_gain.shape
    (5, 3)
    """
    seen = checks.indices("arms", checks.entries("arms", arms), ("n",), below=system.arm_count)
    if not seen.size:
        return system.steady_state
    Γ, _, Q, C, _, R, c, _, σ2 = system.symbols
    m = len(R)
    noise = np.diag(np.concatenate([np.zeros(m), σ2[seen]]))
    noise[:m, :m] = R
    return riccati.steady_state(Γ, np.vstack([C, c[seen]]), Q, noise)


class KalmanFilter:
    """A belief that is updated round by round, for live use.

    Parameters
    ----------
    system
        The system, known.
    belief
        The first belief; by default the system's initial law.

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

    def forecast(self, ahead: float = 0) -> Forecast:
        """Return the expected reward of every arm, some time steps ahead, and the joint covariance of its error."""
        return self._seen_through(self.system.arms, self.system.reward_offset, ahead)

    def forecast_context(self, ahead: float = 0) -> Forecast:
        """Return the expected context, some time steps ahead, and the covariance of its error without its own noise."""
        return self._seen_through(self.system.context_map, self.system.context_offset, ahead)

    def _seen_through(self, H: FloatArray, offset: FloatArray, ahead: float) -> Forecast:
        z, P = self.belief
        _pass(z, P, self.system, ahead)
        return Forecast(H @ z + offset, H @ P @ H.T)

    def condition(
        self, context: npt.ArrayLike | None = None, rewards: Mapping[int, float] | npt.ArrayLike | None = None
    ) -> float:
        """Condition on any part of a round's observations (see `condition`) and return their log density."""
        θ, x = _context(context, self.system), _rewards(rewards, self.system)
        return condition_step(self._mean, self._covariance, θ, x, self.system.symbols)

    def predict(self, rounds: float = 1) -> None:
        """Let some time steps pass, any real number of them if the system has `rates`."""
        mean, covariance = self.belief
        _pass(mean, covariance, self.system, rounds)
        self._mean, self._covariance = mean, covariance


def _pass(z: FloatArray, P: FloatArray, system: LinearGaussianSystem, rounds: float) -> None:
    """Let time steps pass, in place."""
    rounds = checks.number("rounds", rounds, least=0)
    if rounds.is_integer() and rounds <= _ONE_BY_ONE:
        for _ in range(int(rounds)):
            predict_step(z, P, system.symbols)
    else:
        predict_step(z, P, _symbols_over(system, rounds))
    _require_numbers(z, P, rounds)


def _symbols_over(system: LinearGaussianSystem, time: float) -> Symbols:
    """Return the system's symbols with the dynamics over a time of any length."""
    if time == 1:
        return system.symbols
    Γ, μ, Q = system.over(time)
    return system.symbols._replace(Γ=np.ascontiguousarray(Γ), μ=μ, Q=np.ascontiguousarray(Q))


def _elapsed(times: npt.ArrayLike, rounds: int) -> FloatArray:
    """Return the time steps between each row and the next."""
    elapsed = np.diff(checks.array("times", times, (rounds,)))
    if (elapsed < 0).any():
        row = int((elapsed < 0).argmax()) + 1
        raise InvalidInputError(
            f"times: expected times that do not fall, got an earlier one in row {row}; sort the rows"
        )
    return elapsed


def _require_numbers(means: FloatArray, covariances: FloatArray, rounds: float) -> None:
    if not (np.isfinite(means).all() and np.isfinite(covariances).all()):
        raise InvalidInputError(
            f"system: within {rounds:g} rounds the belief about its state overflowed, since a "
            f"growing mode was never observed; use fewer rounds, or drop the mode"
        )


def _copy(belief: Belief, system: LinearGaussianSystem) -> tuple[FloatArray, FloatArray]:
    mean = checks.array("belief.mean", belief.mean, (system.state_dim,))
    covariance = checks.covariance("belief.covariance", belief.covariance, system.state_dim)
    return mean.copy(), covariance.copy()


def _context(context: npt.ArrayLike | None, system: LinearGaussianSystem) -> FloatArray:
    m = system.context_dim
    return checks.array("context", np.full(m, np.nan) if context is None else context, (m,), missing=True)


def _rewards(rewards: Mapping[int, float] | npt.ArrayLike | None, system: LinearGaussianSystem) -> FloatArray:
    x = np.full(system.arm_count, np.nan)
    if isinstance(rewards, Mapping):
        arms = checks.indices("rewards", list(rewards), (len(rewards),), below=len(x))
        x[arms] = checks.array("rewards", list(rewards.values()), (len(rewards),))
        rewards = None
    return checks.array("rewards", x if rewards is None else rewards, x.shape, missing=True)
