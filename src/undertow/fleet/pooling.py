"""Common parameters of many keys: those of their levels, and the means of the arms, by empirical Bayes.

The reward of arm a of key i is x = m_a + √c_i (g_i + s_ia + f_ia + b_ia + ⟨w_ia + w_i, u⟩ + v). Everything in brackets
is a process of the key's own, with a law that all keys share (`undertow.models.levels.equations`). Given m, c and the
numbers of that law the keys are independent, so their log-likelihoods add up. Estimated in turn are

    m        by generalised least squares: innovations are linear in m, e(m) = e(0) − Σ_a m_a e(1_a), where e(1_a) are
             those of a log whose rewards are 1 for arm a and 0 for the others; m ~ N(0, 1) before,
    c        the scale of a key's variances, ν / c_i ~ χ²_ν before, where ν maximises the likelihood of all keys,
    numbers  by penalised likelihood of (x − m_a) / √c_i, summed over keys (`undertow.models.levels.fit`).
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from undertow.compiled.kernel import kernel
from undertow.models.levels.equations import Hyper
from undertow.models.levels.filter import LIMIT, Belief, filter_levels, limit_rewards, new_belief
from undertow.models.levels.fit import optimise_levels
from undertow.models.levels.model import arms_and_rows, in_groups
from undertow.models.levels.prior import typical_levels
from undertow.models.table import centre_and_scale, mostly_one_value
from undertow.support.checks import FloatArray

__all__ = ["Pooled", "Units", "pool", "units_of"]

_FIRST, _AGAIN = 60, 20  # evaluations of the likelihood in the first fit, and in later ones
_ALIKE = 1e9  # degrees where all scales are 1
_DEGREES = (*np.geomspace(2.0, 256.0, 15), _ALIKE)
_TURNS = 2  # how often means and numbers are estimated in turn


class Units(NamedTuple):
    """Mean and scale of rewards, centre and scale of features, over all keys together."""

    mean: float
    scale: float
    centre: FloatArray
    spread: FloatArray


class Pooled(NamedTuple):
    """The common parameters of keys.

    Parameters of the levels (13,), means of the arms and their variances, the similarity of the scales of the keys'
    variances, and the limit of a reward in standard deviations from its forecast.
    """

    hyper: FloatArray
    means: FloatArray
    variances: FloatArray
    degrees: float
    limit: float


def units_of(rows: FloatArray) -> Units:
    """Return the units of a log of arm, reward, features and elapsed time steps."""
    features = [centre_and_scale(column) for column in rows[:, 2:-1].T]
    centre, spread = np.array(features).reshape(len(features), 2).T
    return Units(*centre_and_scale(rows[:, 1]), centre, spread)


def pool(rows: FloatArray, starts: FloatArray, units: Units, k: int, before: Pooled | None = None) -> Pooled:
    """Estimate the common parameters of keys.

    Parameters
    ----------
    rows
        A log (n, 3 + q) of arm, reward, features, and time steps since the row before, key after key; every row has an
        arm and a reward.
    starts
        Where each key begins.
    units
        In which the numbers are; estimated once.
    k
        Number of arms.
    before
        An earlier estimate, to begin with.
    """
    q = rows.shape[1] - 3
    table = rows.copy()
    table[:, 1] = (rows[:, 1] - units.mean) / units.scale
    table[:, 2:-1] = (rows[:, 2:-1] - units.centre) / units.spread
    bounds = np.append(starts, len(table)).astype(np.float64)
    limit = math.inf if mostly_one_value(table[:, 1], table[:, 0]) else LIMIT
    found = Pooled(typical_levels(), np.zeros(k), np.ones(k), _ALIKE, limit) if before is None else before
    lengths, scales = np.diff(bounds).astype(np.int64), np.ones(len(starts))
    products = _products(table, bounds, found.hyper, k, q)
    for turn in range(_TURNS if before is None else 1):
        means, variances = _means(products, scales)
        degrees, scales = _scales(_squares(products, means), lengths)
        left = table.copy()
        left[:, 1] -= means[table[:, 0].astype(np.int64)]
        left[:, 1] /= np.repeat(np.sqrt(scales), lengths)
        if limit < math.inf:
            limit_keys(left, bounds, found.hyper, new_belief(k, q))
        hyper = _numbers(left, bounds, found.hyper, k, q, _FIRST if before is None and turn == 0 else _AGAIN)
        products = _products(table, bounds, hyper, k, q)
        found = Pooled(hyper, means, variances, degrees, limit)
    means, variances = _means(products, scales)
    degrees, _ = _scales(_squares(products, means), lengths)
    return Pooled(found.hyper, means, variances, degrees, limit)


def _products(table: FloatArray, bounds: FloatArray, hyper: FloatArray, k: int, q: int) -> FloatArray:
    """Return the inner products of each key's innovations, (keys, 1 + k, 1 + k): rewards, then indicators of arms."""
    products = np.zeros((len(bounds) - 1, k + 1, k + 1))
    add_innovations(table, bounds, hyper, new_belief(k, q), products)
    return products


def _means(products: FloatArray, scales: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return means of the arms and their posterior variances, given the scales of the keys' variances."""
    total = (products / scales[:, None, None]).sum(axis=0)
    covariance = np.linalg.inv(total[1:, 1:] + np.eye(len(total) - 1))
    return covariance @ total[1:, 0], np.diag(covariance).copy()


def _squares(products: FloatArray, means: FloatArray) -> FloatArray:
    """Return the sum of squared innovations of each key, e(0) − Σ_a m_a e(1_a)."""
    weights = np.append(1.0, -means)
    return np.asarray(np.einsum("i,nij,j->n", weights, products, weights))


def _scales(squares: FloatArray, counts: npt.NDArray[np.int64]) -> tuple[float, FloatArray]:
    """Return the similarity ν of the scales of the keys' variances, and these scales.

    With χ²_ν / ν for the inverse of a scale, the innovations of a key have a t density, of which ν has the largest
    product.
    """
    best, degrees = -math.inf, _ALIKE
    for ν in _DEGREES:
        terms = gammaln((ν + counts) / 2) - gammaln(ν / 2) - counts / 2 * math.log(ν)
        total = float((terms - (ν + counts) / 2 * np.log1p(squares / ν)).sum())
        if total > best:
            best, degrees = total, float(ν)
    return degrees, (degrees + squares) / (degrees + counts)


def _numbers(left: FloatArray, bounds: FloatArray, hyper: FloatArray, k: int, q: int, evaluations: int) -> FloatArray:
    """Return improved parameters of the levels, for the rewards without means and scales."""
    size, _ = arms_and_rows(len(left), k, q)
    parts, starts, at = list[FloatArray](), list[int](), 0
    for first, last in zip(bounds[:-1].astype(int), bounds[1:].astype(int), strict=True):
        grouped, begins = in_groups(left[first:last], size, k)
        parts.append(grouped)
        starts += [at + begin for begin in begins]
        at += len(grouped)
    rows = np.concatenate(parts)
    better, best, *_ = optimise_levels(rows, size, q, hyper, evaluations, starts)
    if evaluations == _FIRST:  # do the fast levels change sign every round?
        turned = hyper.copy()
        Hyper(turned, 0).fast_persistence *= -1.0
        other, objective, *_ = optimise_levels(rows, size, q, turned, evaluations, starts)
        better = other if objective > best else better
    return better


@kernel
def limit_keys(table: FloatArray, bounds: FloatArray, hyper: FloatArray, belief: Belief) -> None:
    """Clip gross rewards of each key, in place, to within `LIMIT` standard deviations of their forecasts."""
    for part in range(len(bounds) - 1):
        limit_rewards(table[int(bounds[part]) : int(bounds[part + 1])], hyper, belief)


@kernel
def add_innovations(
    table: FloatArray, bounds: FloatArray, hyper: FloatArray, belief: Belief, products: FloatArray
) -> None:
    """Add the inner products of standardized innovations, of the rewards (0) and of the indicators of arms (1 + a)."""
    k = products.shape[1] - 1
    for part in range(len(bounds) - 1):
        rows = table[int(bounds[part]) : int(bounds[part + 1])].copy()
        e = np.zeros((k + 1, len(rows)))
        for a in range(k + 1):
            for t in range(len(rows)):
                if a > 0:
                    rows[t, 1] = 1.0 if int(rows[t, 0]) == a - 1 else 0.0
            filter_levels(rows, hyper, belief, e[a], np.inf)
        for i in range(k + 1):
            for j in range(k + 1):
                for t in range(len(rows)):
                    products[part, i, j] += e[i, t] * e[j, t]
