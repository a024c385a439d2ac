"""The forecast behind the doubly robust estimate: every arm's reward, from the rounds of a log before it."""

import numpy as np
import numpy.typing as npt

from undertow.compiled import kernel
from undertow.policies.forgetting import factorise, solve
from undertow.replay.table import Table
from undertow.support.checks import FloatArray

__all__ = ["forecast_log"]

_DISCOUNTS = (1.0, 0.995, 0.97)
_RIDGE = 1.0
_MEMORY = 0.999  # of errors, from one round to the next


def forecast_log(table: Table, *, context_first: bool = False) -> FloatArray:
    """Forecast the reward of every arm in every round of a log, (n, k).

    One ridge regression for each arm on the features and the last context, with three rates of forgetting; in each
    round the rate with the smallest squared error so far forecasts. A forecast uses only the rewards of earlier rounds,
    so the doubly robust estimate stays unbiased, however poor the forecast. Rounds without a reward are forecast, and
    teach nothing.
    """
    log = table.log
    assert log is not None
    inputs = np.ascontiguousarray(_inputs(table, context_first))
    forecasts = np.empty((len(inputs), len(table.arms)))
    _forecast(
        inputs, np.ascontiguousarray(log.arms), np.ascontiguousarray(log.rewards), np.array(_DISCOUNTS), forecasts
    )
    return forecasts


@kernel
def _forecast(
    inputs: FloatArray, arms: npt.NDArray[np.int64], rewards: FloatArray, discounts: FloatArray, forecasts: FloatArray
) -> None:
    n, rows, p = inputs.shape
    d, k = len(discounts), forecasts.shape[1]
    V, b, G, L = np.zeros((d, k, p, p)), np.zeros((d, k, p)), np.zeros((d, k, p)), np.zeros((p, p))
    for r in range(d):
        for a in range(k):
            for i in range(p):
                V[r, a, i, i] = _RIDGE
    errors, level, count = np.zeros(d), 0.0, 0.0
    for t in range(n):
        arm, reward = arms[t], rewards[t]
        best = errors.argmin()
        for a in range(k):
            forecasts[t, a] = level + (G[best, a] * inputs[t, a % rows]).sum()
        if np.isnan(reward):
            continue
        x = inputs[t, arm % rows]
        count += 1.0
        for r in range(d):
            errors[r] = _MEMORY * errors[r] + (reward - level - (G[r, arm] * x).sum()) ** 2
        level += (reward - level) / count  # rarely played arms are expected to be like all
        for r in range(d):
            keep, own = discounts[r], V[r, arm]
            for i in range(p):
                for j in range(p):
                    own[i, j] = keep * own[i, j] + x[i] * x[j]
                own[i, i] += (1 - keep) * _RIDGE
                b[r, arm, i] = keep * b[r, arm, i] + (reward - level) * x[i]
            factorise(own, 0.0, L)  # includes the ridge
            solve(L, b[r, arm], G[r, arm])


def _inputs(table: Table, context_first: bool) -> FloatArray:
    """Return the constant, the features and the last context known, each scaled to unit variance.

    They are (n, 1, p), or (n, k, p) if arms have their own features.
    """
    contexts = table.contexts
    if contexts.shape[1]:
        last = np.maximum.accumulate(np.where(np.isnan(contexts), -1, np.arange(len(contexts))[:, None]), axis=0)
        contexts = np.where(last >= 0, np.take_along_axis(contexts, np.maximum(last, 0), axis=0), 0.0)
        if not context_first:
            contexts = np.vstack([np.zeros((1, contexts.shape[1])), contexts[:-1]])
    features = table.features if table.features.ndim == 3 else table.features[:, None]
    n, rows, _ = features.shape
    columns = np.concatenate([features, np.repeat(contexts[:, None], rows, axis=1)], axis=2).reshape(n * rows, -1)
    spread = columns.std(axis=0)
    scaled = (columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.hstack([np.ones((len(columns), 1)), scaled]).reshape(n, rows, -1)
