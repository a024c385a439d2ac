"""Propensities that were not logged, estimated from the features and contexts before each choice."""

import numpy as np
import numpy.typing as npt

from undertow.support.checks import FloatArray

__all__ = ["ESTIMATED", "estimated_propensities"]

ESTIMATED = (
    "the propensities are estimated from features and past contexts: whatever else the choices followed makes the "
    "estimates wrong, and nothing in the log can tell; log the probabilities from now on"
)
_PARTS = 5  # of the log; each is estimated from the others, so its fit is out of sample
_PENALTY = 1.0
_LEAST = 1e-3  # smaller probabilities are clipped
_STEPS = 100


def estimated_propensities(played: npt.NDArray[np.int64], arms: int, inputs: FloatArray) -> FloatArray:
    """Return the estimated probability of the played arm in each round, (n,).

    A multinomial logistic regression with a ridge penalty on the standardized inputs, (n, q), fitted five times, each
    to four fifths of the log. Without inputs it gives the arms' frequencies.

    Examples
    --------
    >>> x = np.random.default_rng(0).standard_normal((4000, 1))
    >>> chance = 1 / (1 + np.exp(-x[:, 0]))  # of arm 1
    >>> played = (np.random.default_rng(1).random(4000) < chance).astype(int)
    >>> found = estimated_propensities(played, 2, x)
    >>> bool(np.abs(found - np.where(played, chance, 1 - chance)).mean() < 0.02)
    True
    """
    from scipy.optimize import minimize

    n, spread = len(played), inputs.std(axis=0)
    x = (inputs - inputs.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    x = np.hstack([np.ones((n, 1)), x])
    hits = (played[:, None] == np.arange(arms)).astype(np.float64)
    ridge = np.full((x.shape[1], 1), _PENALTY)
    ridge[0] = 1e-6  # the frequencies are not shrunk
    part, chances = np.arange(n) * _PARTS // n, np.empty(n)
    for held in range(_PARTS):
        rows = part != held

        def loss(flat: FloatArray, rows: npt.NDArray[np.bool_] = rows) -> tuple[float, FloatArray]:
            slopes = flat.reshape(x.shape[1], arms)
            logs = _log_chances(x[rows] @ slopes)
            value = -(hits[rows] * logs).sum() + 0.5 * (ridge * slopes**2).sum()
            return float(value), (x[rows].T @ (np.exp(logs) - hits[rows]) + ridge * slopes).ravel()

        start = np.zeros(x.shape[1] * arms)
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
        logs = _log_chances(x[~rows] @ found.x.reshape(x.shape[1], arms))
        chances[~rows] = np.exp(logs[np.arange(len(logs)), played[~rows]])
    return np.maximum(chances, _LEAST)


def _log_chances(scores: FloatArray) -> FloatArray:
    scores = scores - scores.max(axis=1, keepdims=True)
    return np.asarray(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))
