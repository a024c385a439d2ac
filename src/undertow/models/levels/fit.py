"""Fit of the structural model: levels of the arms, a shared level and weights on features, from a log of plays.

The model is that of `undertow.models.levels.equations`, for rewards and features of mean 0 and standard deviation 1.
Its free numbers are φ of the three kinds of levels, V of the six groups and σ². On the unbounded scale c
= (atanh φ, log V, log σ²), each has a Gaussian prior, and the fit maximises

    log p(rewards | c) − ½ Σ ((c_i − centre_i) / width_i)²

by BFGS with the exact score. Intercepts are constant: φ = 1, and width 0 marks fixed numbers. Weights may drift, and
are constant as φ approaches 1. Rewards far from the model's forecast count as `LIMIT` standard deviations away.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.compiled.kernel import inlined, kernel, plain, spliced
from undertow.compiled.views import view
from undertow.errors import InvalidInputError
from undertow.models.levels.equations import GROUPS, HYPERS, Hyper, levels_size
from undertow.models.levels.filter import (
    LIMIT,
    Belief,
    filter_levels,
    forecast_arms,
    limit_rewards,
    new_belief,
    predict,
)
from undertow.models.levels.prior import levels_prior, typical_levels
from undertow.models.levels.score import levels_likelihood, levels_workspace
from undertow.models.table import centre_and_scale, mostly_one_value, played_arms
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.support.timesteps import time_steps_passed

__all__ = ["FittedLevels", "LevelsModel", "fit_levels", "levels_model", "levels_optimise", "optimise_levels"]

_COLD_EVALUATIONS, _AGAIN_EVALUATIONS = 60, 20  # at first, and once gross rewards are known
_SECOND_START = 50  # rounds from which a fast level that alternates in sign is tried as well
_MOST_BYTES = 4e9  # of a covariance; some are needed
_TOLERANCE = 3e-3  # expected gain of the next step, in nats: closer hyper-parameters decide no better


class LevelsModel(NamedTuple):
    """The hyper-parameters of a fit, variances in the rewards' units; see `FittedLevels`."""

    shared_persistence: float
    slow_persistence: float
    fast_persistence: float
    weight_persistence: float
    shared_weight_persistence: float
    shared_variance: float
    slow_variance: float
    fast_variance: float
    intercept_variance: float
    weight_variance: float
    shared_weight_variance: float
    reward_noise: float


def levels_model(hyper: FloatArray, scale: float) -> LevelsModel:
    """Return packed hyper-parameters of standardized rewards in the units of rewards with a given scale."""
    own, names = Hyper(hyper, 0), LevelsModel._fields
    return LevelsModel(*(getattr(own, name) * (1.0 if name.endswith("persistence") else scale**2) for name in names))


@dataclass(frozen=True, eq=False)
class FittedLevels:
    """The structural model that a log of plays supports, in the units of the rewards.

    Variances of levels are stationary ones: a level with persistence φ and variance V moves by N(0, V (1 − φ²)) per
    round.

    Attributes
    ----------
    shared_persistence, slow_persistence, fast_persistence
        φ of the level shared by all arms and of the two levels of each arm; −1 < φ < 1.
    weight_persistence, shared_weight_persistence
        φ of the weights on features, near 1 if they are constant.
    shared_variance, slow_variance, fast_variance
        V of these levels.
    intercept_variance, weight_variance, shared_weight_variance
        V of an arm's constant, of an arm's weight on a feature, and of the weight that all arms share; for features
        scaled to standard deviation 1.
    reward_noise
        σ².
    log_likelihood
        Log density of the rewards.
    objective
        Log-likelihood minus the penalty of the prior, which the fit maximises.
    evaluations
        Number of evaluations of the likelihood.
    arm_count
        k.
    innovations
        Reward minus its forecast, standardized, (n,); NaN without a reward. Those beyond ±4 were fitted as ±4.
    """

    shared_persistence: float
    slow_persistence: float
    fast_persistence: float
    weight_persistence: float
    shared_weight_persistence: float
    shared_variance: float
    slow_variance: float
    fast_variance: float
    intercept_variance: float
    weight_variance: float
    shared_weight_variance: float
    reward_noise: float
    log_likelihood: float
    objective: float
    evaluations: int
    arm_count: int
    innovations: FloatArray
    _hyper: FloatArray
    _belief: Belief
    _reward_scale: tuple[float, float]
    _feature_scales: tuple[FloatArray, FloatArray]

    def forecast(self, features: npt.ArrayLike | None = None) -> tuple[FloatArray, FloatArray]:
        """Return every arm's expected reward in the round after the last, and its standard error, each (k,).

        `features` are (q,) for all arms, or (k, q), a row for each. The error is that of g + ⟨w_0, u⟩ + s_a + f_a +
        ⟨w_a, [1, u]⟩; a reward varies by `reward_noise` more.
        """
        (m, s), (centre, scale) = self._reward_scale, self._feature_scales
        k, q = self.arm_count, len(scale)
        numbers = checks.numbers("features", np.zeros(0) if features is None else features)
        given = checks.array("features", numbers, (k, q) if numbers.ndim == 2 else (q,))
        u = np.broadcast_to((given - centre) / scale, (k, q))
        belief, result = Belief(*(part.copy() for part in self._belief)), np.empty((6, k))
        predict(belief, self._hyper, 1.0)
        for a in range(k):
            forecast_arms(belief, self._hyper, u[a].copy(), result, a, a + 1)
        return m + s * result[0], s * np.sqrt(np.maximum(result[5] - Hyper(self._hyper, 0).reward_noise, 0.0))


def fit_levels(
    arms: npt.ArrayLike,
    rewards: npt.ArrayLike,
    *,
    features: npt.ArrayLike | None = None,
    elapsed: npt.ArrayLike | None = None,
    arm_count: int | None = None,
) -> FittedLevels:
    """Fit the structural model to a log of plays by penalised likelihood.

    Parameters
    ----------
    arms
        The arm played in each round, (n,); −1 if none was.
    rewards
        Its reward, (n,); NaN if none came. Rewards of rounds without an arm are ignored.
    features
        Features of the played arm before each decision, (n, q); none by default.
    elapsed
        Time steps that began since the round before, (n,): 1 for all by default, 0 for rounds of the same time step.
    arm_count
        k; one more than the largest number in `arms` by default.

    Returns
    -------
    FittedLevels
        Hyper-parameters in the rewards' units, innovations, and the belief after the last round.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> arms = rng.integers(0, 2, 300)
    >>> level = np.cumsum(rng.standard_normal((300, 2)), axis=0)
    >>> fit = fit_levels(arms, level[np.arange(300), arms] + rng.standard_normal(300))
    >>> mean, error = fit.forecast()
    >>> bool(np.all(np.abs(mean - level[-1]) < 3 * error))
    True
    """
    played, k = played_arms(arms, arm_count)
    n = len(played)
    x = np.array(checks.measured("rewards", rewards, (n,), missing=True))
    given = checks.measured("features", np.zeros((n, 0)) if features is None else features, (n, "q"))
    q = given.shape[1]
    D = plain(levels_size)(k, q)
    if 8 * D**2 > _MOST_BYTES:
        raise InvalidInputError(
            f"arms: {k} of them with {q} features need {8 * D**2 / 1e9:.0f} GB; number the arms from 0 on, without gaps"
        )
    x[played < 0] = np.nan
    m, s = centre_and_scale(x)
    centre, scale = np.array([centre_and_scale(column) for column in given.T]).reshape(q, 2).T
    table = np.column_stack([played, (x - m) / s, (given - centre) / scale])
    if elapsed is not None:
        table = np.column_stack([table, time_steps_passed(elapsed, n)])
    hyper, objective, log_likelihood, used = optimise_levels(table, k, q, typical_levels(), _COLD_EVALUATIONS)
    if n > _SECOND_START:
        turned = typical_levels()
        Hyper(turned, 0).fast_persistence *= -1.0
        second = optimise_levels(table, k, q, turned, _COLD_EVALUATIONS)
        used += second[3]
        if second[1] > objective:
            hyper, objective, log_likelihood, _ = second
    limited, belief = table.copy(), new_belief(k, q)
    limit = math.inf if mostly_one_value(x, table[:, 0]) else LIMIT
    if limit < math.inf:
        limit_rewards(limited, hyper, belief)
    hyper, objective, log_likelihood, more = optimise_levels(limited, k, q, hyper, _AGAIN_EVALUATIONS)
    used += more
    if not math.isfinite(objective):
        raise InvalidInputError("rewards: no levels with a finite likelihood were found for this log")
    innovations = np.empty(n)
    filter_levels(table, hyper, belief, innovations, limit)
    density = -math.log(s) * int(np.sum(~np.isnan(x)))
    return FittedLevels(
        **levels_model(hyper, s)._asdict(),
        log_likelihood=log_likelihood + density,
        objective=objective + density,
        evaluations=used,
        arm_count=k,
        innovations=checks.readonly(innovations),
        _hyper=hyper,
        _belief=belief,
        _reward_scale=(m, s),
        _feature_scales=(centre, scale),
    )


def optimise_levels(
    table: FloatArray, k: int, q: int, start_hyper: FloatArray, evaluations: int, starts: Sequence[int] = (0,)
) -> tuple[FloatArray, float, float, int]:
    """Improve packed hyper-parameters on a standardized table (n, 2 + q) of arm, reward, features.

    The table may consist of several, one behind another, each with at most k arms, independent of the others; `starts`
    has the first row of each. Returns the better hyper-parameters, their penalised log-likelihood, their
    log-likelihood, and how many evaluations were used. It is `levels_optimise` with the prior of this module and its
    own scratch.
    """
    assert len(table) == 0 or table[:, 0].max() < k  # kernels use the number of an arm as an index
    hyper, bounds = start_hyper.copy(), np.array([*starts, len(table)], dtype=np.float64)
    work = np.empty(plain(levels_workspace)(int(np.diff(bounds).max()), k, q))
    return hyper, *levels_optimise(table, bounds, hyper, k, q, levels_prior(), evaluations, work)


@inlined
def _bounded(c: float, i: int) -> float:
    """Keep φ away from ±1 and variances from zero, which only constant or nearly noise-free rewards approach."""
    largest = 7.0 if i < GROUPS else 14.0
    return min(max(c, -largest), largest)


@spliced
def _penalised(
    table: FloatArray,
    bounds: FloatArray,
    hyper: FloatArray,
    k: int,
    q: int,
    centre: FloatArray,
    width: FloatArray,
    c: FloatArray,
    gradient: FloatArray,
    score: FloatArray,
    work: FloatArray,
) -> tuple[float, float]:
    """Return the penalised log-likelihood and the likelihood at c; `hyper`, `gradient` and `score` are overwritten."""
    for i in range(HYPERS):
        if width[i] > 0.0:
            at = _bounded(c[i], i)
            hyper[i] = math.tanh(at) if i < GROUPS else math.exp(at)
    gradient[:] = 0.0
    log_likelihood, columns = 0.0, table.shape[1]
    for part in range(len(bounds) - 1):
        first, last = int(bounds[part]), int(bounds[part + 1])
        rows = view(table, first * columns, (last - first, columns))
        log_likelihood += levels_likelihood(rows, hyper, k, q, score, work)
        for i in range(HYPERS):
            gradient[i] += score[i]
    objective = log_likelihood
    for i in range(HYPERS):
        if width[i] > 0.0:
            at = _bounded(c[i], i)
            away = (at - centre[i]) / width[i]
            objective -= 0.5 * away * away
            gradient[i] -= away / width[i]
        if width[i] == 0.0 or _bounded(c[i], i) != c[i]:
            gradient[i] = 0.0
    return objective, log_likelihood


@spliced
def _rank_two(B: FloatArray, s: FloatArray, y: FloatArray, By: FloatArray) -> None:
    """Update the inverse curvature B after a step s along which the (ascending) gradient fell by y: BFGS."""
    sy = 0.0
    yBy = 0.0
    for i in range(HYPERS):
        By[i] = 0.0
        for j in range(HYPERS):
            By[i] += B[i, j] * y[j]
        sy += s[i] * y[i]
        yBy += y[i] * By[i]
    if sy > 1e-12:
        for i in range(HYPERS):
            for j in range(HYPERS):
                B[i, j] += ((1.0 + yBy / sy) * s[i] * s[j] - By[i] * s[j] - s[i] * By[j]) / sy


@kernel
def levels_optimise(
    table: FloatArray,
    bounds: FloatArray,
    hyper: FloatArray,
    k: int,
    q: int,
    prior: FloatArray,
    evaluations: int,
    work: FloatArray,
) -> tuple[float, float, int]:
    """Climb the penalised likelihood from `hyper` (13,), in place, by BFGS with backtracking.

    Returns the penalised log-likelihood and the log-likelihood of the resulting hyper-parameters, and the number of
    evaluations, at least one. A step is at most 1 long in every coordinate; one that brings no improvement is
    shortened, and `hyper` never gets worse. The rows of part i of the table are those from bounds[i] to bounds[i + 1].
    `prior` is `levels_prior()`, `work` has `levels_workspace(n, k, q)` numbers for the longest part.
    """
    centre, width = view(prior, 0, (HYPERS,)), view(prior, HYPERS, (HYPERS,))
    c, g, s, y = np.zeros(HYPERS), np.zeros(HYPERS), np.zeros(HYPERS), np.zeros(HYPERS)
    new_c, new_g, score, B = np.zeros(HYPERS), np.zeros(HYPERS), np.zeros(HYPERS), np.zeros((HYPERS, HYPERS))
    new, information = hyper.copy(), np.full(HYPERS, 0.02)  # of a reward, roughly
    Hyper(information, 0).reward_noise = 0.2
    rewards = 0
    for t in range(len(table)):
        rewards += table[t, 0] >= 0.0 and not np.isnan(table[t, 1])
    for i in range(HYPERS):
        if width[i] > 0.0:
            c[i] = math.atanh(hyper[i]) if i < GROUPS else math.log(hyper[i])
            B[i, i] = 1.0 / (1.0 / width[i] ** 2 + information[i] * rewards)
    f, log_likelihood, slope, step, longest = -np.inf, -np.inf, 0.0, 0.0, 1.0
    used = 0
    while used == 0 or used < evaluations:
        for i in range(HYPERS):
            new_c[i] = c[i] + step * s[i]
        new_f, new_log_likelihood = _penalised(table, bounds, new, k, q, centre, width, new_c, new_g, score, work)
        used += 1
        if used > 1 and not new_f >= f + 1e-4 * step * slope:
            vertex = 0.5 * slope * step * step / (f + slope * step - new_f)  # of the parabola through the known values
            step = min(max(vertex, 0.1 * step), 0.5 * step) if np.isfinite(vertex) else 0.1 * step
            if step * longest > 1e-6:
                continue
            break
        f, log_likelihood = new_f, new_log_likelihood
        for i in range(HYPERS):
            s[i] *= step
            y[i] = g[i] - new_g[i]
            hyper[i], c[i], g[i] = new[i], new_c[i], new_g[i]
        if used > 1:
            _rank_two(B, s, y, new_c)
        slope = 0.0
        longest = 1.0
        for i in range(HYPERS):
            s[i] = 0.0
            for j in range(HYPERS):
                s[i] += B[i, j] * g[j]
            slope += s[i] * g[i]
            longest = max(longest, abs(s[i]))
        if not slope > _TOLERANCE:
            break
        step = 1.0 / longest
    return f, log_likelihood, used
