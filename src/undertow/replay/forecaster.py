"""The forecast behind the doubly robust estimate: every arm's reward, from the rounds of a log before it."""

import numpy as np

from undertow._checks import FloatArray
from undertow.replay.table import Table

__all__ = ["forecast_log"]

_DISCOUNTS = (1.0, 0.995, 0.97)
_RIDGE = 1.0


def forecast_log(table: Table, *, context_first: bool = False) -> FloatArray:
    """Forecast the reward of every arm in every round of a log, (n, k).

    One ridge regression for each arm on the features and the last context, with three rates of forgetting; in each
    round the rate with the smallest squared error so far forecasts. Nothing of a round's own reward or later ones is
    used, so the doubly robust estimate stays unbiased, however poor the forecast.
    """
    log = table.log
    assert log is not None
    inputs = _inputs(table, context_first)
    n, p, k = len(inputs), inputs.shape[1], len(table.arms)
    V = np.tile(_RIDGE * np.eye(p), (len(_DISCOUNTS), k, 1, 1))
    b, G = np.zeros((len(_DISCOUNTS), k, p)), np.zeros((len(_DISCOUNTS), k, p))
    errors = np.zeros(len(_DISCOUNTS))
    forecasts, level = np.empty((n, k)), 0.0
    keep = np.array(_DISCOUNTS)[:, None]
    for t in range(n):
        x, arm, reward = inputs[t], log.arms[t], log.rewards[t]
        forecasts[t] = level + G[errors.argmin()] @ x
        errors = 0.999 * errors + (reward - level - G[:, arm] @ x) ** 2
        level += (reward - level) / (t + 1)  # arms that were hardly played are expected to be like all
        V[:, arm] = keep[:, :, None] * V[:, arm] + (1 - keep[:, :, None]) * _RIDGE * np.eye(p) + np.outer(x, x)
        b[:, arm] = keep * b[:, arm] + (reward - level) * x
        G[:, arm] = np.linalg.solve(V[:, arm], b[:, arm, :, None])[..., 0]
    return forecasts


def _inputs(table: Table, context_first: bool) -> FloatArray:
    """Return the constant, the features and the last context known, each scaled to unit variance, (n, p)."""
    contexts = table.contexts
    if contexts.shape[1]:
        last = np.maximum.accumulate(np.where(np.isnan(contexts), -1, np.arange(len(contexts))[:, None]), axis=0)
        contexts = np.where(last >= 0, np.take_along_axis(contexts, np.maximum(last, 0), axis=0), 0.0)
        if not context_first:
            contexts = np.vstack([np.zeros((1, contexts.shape[1])), contexts[:-1]])
    columns = np.hstack([table.features, contexts])
    spread = columns.std(axis=0)
    scaled = (columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.hstack([np.ones((len(columns), 1)), scaled])
