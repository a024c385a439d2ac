"""The penalised fit of a shared system of known order: EM for a cold start, then preconditioned L-BFGS.

A gradient step preconditioned by the inverse information of the complete data is a step of EM; L-BFGS on top of it
corrects for the unobserved data. One compiled call does a whole fit, without the GIL.
"""

import math

import numpy as np

from undertow.compiled.kernel import inlined, straight_kernel
from undertow.models.shared_system.em import em_step
from undertow.models.shared_system.information import (
    invert_information,
    limit_radius,
    precondition,
    renew_prior,
    shift_origin,
    spectral_radius,
)
from undertow.models.shared_system.rows import WIDTH
from undertow.models.shared_system.score import score
from undertow.models.shared_system.vector import open_vector
from undertow.support.checks import FloatArray

__all__ = ["fit_model"]

_MEMORY = 8
_LONGEST_NOISE_STEP = 2.0  # of log r, in one step
_OVERSHOOT = 1.02  # of the spectral radius during the descent; in the end it is at most 1
_STRETCH = 100.0  # factor by which a step may be longer than that of EM
_ENOUGH = 0.03  # nats: a step that gains less ends the descent


@inlined
def _dot(X: FloatArray, j: int, y: FloatArray) -> float:
    total = 0.0
    for i in range(len(y)):
        total += X[j, i] * y[i]
    return total


@straight_kernel
def fit_model(
    π: FloatArray,
    d: int,
    m: int,
    k: int,
    table: FloatArray,
    prior: FloatArray,
    em_steps: int,
    evaluations: int,
    store: FloatArray,
    information: FloatArray,
    inverse: FloatArray,
) -> tuple[float, float, int]:
    """Improve a model in place; return its log likelihood, its effective degrees of freedom and the evaluations used.

    The prior is renewed after every step of EM, and before and after the descent; information and inverse are those of
    the returned model. If nothing finite is found, the log likelihood is NaN.
    """
    size = len(π)
    g, trial, g_trial = np.empty(size), np.empty(size), np.empty(size)
    step, scratch = np.empty(size), np.empty(size)
    changes, slopes, products = np.zeros((_MEMORY, size)), np.zeros((_MEMORY, size)), np.zeros(_MEMORY)
    weights = np.zeros(_MEMORY)
    disturbed = np.empty((2 * WIDTH + 1, WIDTH))
    information_trial = np.empty(len(information))
    freedom = 0.0
    used = 0

    for _ in range(em_steps):
        f, log_likelihood = score(π, d, m, k, table, prior, store, g, information, disturbed)
        used += 1
        if not math.isfinite(f) or not invert_information(π, d, m, k, information, prior, inverse):
            return np.nan, 0.0, used
        em_step(π, d, m, k, prior, g, information, disturbed, inverse, True)
        limit_radius(π, d, 1.0)
        renew_prior(π, d, m, k, information, prior, inverse)

    if evaluations > 1:
        shift_origin(π, d, m, k, prior)
    f, log_likelihood = score(π, d, m, k, table, prior, store, g, information, disturbed)
    used += 1
    if not math.isfinite(f) or not invert_information(π, d, m, k, information, prior, inverse):
        return np.nan, 0.0, used
    kept = 0
    stretch = 1.0
    while used < evaluations:
        # The two loops of L-BFGS around the preconditioner
        for i in range(size):
            scratch[i] = g[i]
        for back in range(min(kept, _MEMORY)):
            j = (kept - 1 - back) % _MEMORY
            weights[j] = _dot(changes, j, scratch) / products[j]
            for i in range(size):
                scratch[i] -= weights[j] * slopes[j, i]
        precondition(scratch, d, m, k, information, inverse, step)
        for i in range(size):
            step[i] *= stretch
        for forth in range(min(kept, _MEMORY)):
            j = (kept - min(kept, _MEMORY) + forth) % _MEMORY
            weight = weights[j] - _dot(slopes, j, step) / products[j]
            for i in range(size):
                step[i] += weight * changes[j, i]
        downhill = 0.0
        for i in range(size):
            downhill += step[i] * g[i]
        if not downhill > 0.0:
            precondition(g, d, m, k, information, inverse, step)
            kept = 0
            stretch = 1.0
        length = 1.0
        noise_step = open_vector(step, m, k).log_r
        for q in range(m + 1):
            length = min(length, _LONGEST_NOISE_STEP / max(abs(noise_step[q]), 1e-300))
        better = False
        f_trial = f
        while used < evaluations and length > 1e-4:
            for i in range(size):
                trial[i] = π[i] - length * step[i]
            limit_radius(trial, d, _OVERSHOOT)
            f_trial, ll_trial = score(trial, d, m, k, table, prior, store, g_trial, information_trial, disturbed)
            used += 1
            if f_trial < f:
                better = True
                break
            length *= 0.3
        if not better:
            if kept == 0:
                break
            stretch = 1.0
            kept = 0  # the history of L-BFGS leads nowhere: continue from the gradient
            continue
        curvature = 0.0
        slot = kept % _MEMORY
        for i in range(size):
            changes[slot, i] = trial[i] - π[i]
            slopes[slot, i] = g_trial[i] - g[i]
            curvature += changes[slot, i] * slopes[slot, i]
            π[i] = trial[i]
            g[i] = g_trial[i]
        for i in range(len(information)):
            information[i] = information_trial[i]
        if curvature > 0.0:
            products[slot] = curvature
            kept += 1
        log_likelihood = ll_trial
        if not invert_information(π, d, m, k, information, prior, inverse):
            return np.nan, 0.0, used
        if curvature > 0.0:  # the observed data have less information than the complete data
            for i in range(size):
                trial[i] = slopes[slot, i]
            precondition(trial, d, m, k, information, inverse, scratch)
            stretch = min(max(curvature / _dot(slopes, slot, scratch), 1.0), _STRETCH)
        gained = f - f_trial
        f = f_trial
        if gained < _ENOUGH:
            break
    if spectral_radius(π, d) > 1.0:
        limit_radius(π, d, 1.0)
        f, log_likelihood = score(π, d, m, k, table, prior, store, g, information, disturbed)
        if not math.isfinite(f) or not invert_information(π, d, m, k, information, prior, inverse):
            return np.nan, 0.0, used
    freedom = renew_prior(π, d, m, k, information, prior, inverse)
    return log_likelihood, freedom, used
