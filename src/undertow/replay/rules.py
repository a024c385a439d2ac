"""Simple rules that see every arm's reward, tested on rounds that they have not seen: what can be forecast at all.

They are not policies, since a policy sees only the reward of the arm it played. They show what there is to find: play
the arm that was best so far, the largest mean of the last w rounds, or the largest forecast of a regression on the last
w rounds. Each of ten blocks of rounds is forecast from the blocks before; from the middle on, forecasts count.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from undertow._checks import FloatArray
from undertow.replay.table import Table

__all__ = [
    "ALL",
    "ALL_PAST",
    "CONTEXTS",
    "FEATURES",
    "REWARDS",
    "WITHOUT",
    "Rule",
    "Rules",
    "mean_of_last",
    "try_rules",
]

ALL_PAST = "mean of all rounds before"
AVERAGE = "mean"
FEATURES, REWARDS, CONTEXTS = "features", "past rewards", "past contexts"
WITHOUT, ALL = "features and past rewards", "everything known"
_BLOCKS, _FIRST, _SCORED = 10, 2, 5  # all blocks, the first that is forecast, the first that counts
_WINDOWS = (1, 2, 3, 5, 7, 10, 14, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000)
_LENGTHS = (1, 2, 3, 5, 7, 10, 14)
_MOST_INPUTS = 300
_PENALTIES = (1.0, 10.0, 100.0, 1000.0)

Rule = tuple[str, int]  # what it knows, and how many past rounds of it; 0 where that has no meaning


@dataclass(frozen=True, eq=False)
class Rules:
    """What the rules forecast, from round `first` on, and what the best of them so far chose.

    Attributes
    ----------
    first, scored
        The first round that was forecast, and how many rounds later forecasts begin to count.
    forecasts
        Relative rewards by rule, (n − first, k).
    chosen, followed
        The arms of the rule that had earned most so far, (n − first,), and that rule in each block that counts.
    """

    first: int
    scored: int
    forecasts: Mapping[Rule, FloatArray]
    chosen: npt.NDArray[np.int64]
    followed: Sequence[Rule]

    def best(self, kind: str, relative: FloatArray) -> Rule | None:
        """Return the rule of a kind whose squared error was smallest before forecasts began to count."""
        truth = relative[self.first : self.first + self.scored]
        errors = {
            rule: float(((truth - forecast[: self.scored]) ** 2).sum())
            for rule, forecast in self.forecasts.items()
            if rule[0] == kind
        }
        return min(errors, key=lambda rule: errors[rule], default=None)


def mean_of_last(relative: FloatArray, window: int) -> FloatArray:
    """Return the mean of the last `window` relative rewards of each arm before every round; of fewer at the start."""
    sums = np.vstack([np.zeros((1, relative.shape[1])), np.cumsum(relative, axis=0)])
    ends = np.arange(len(relative))
    starts = np.maximum(ends - window, 0)
    return np.asarray((sums[ends] - sums[starts]) / np.maximum(ends - starts, 1)[:, None])


def try_rules(table: Table, *, context_first: bool = False) -> Rules:
    """Test every rule on rounds that it has not seen, and follow the one that has earned most so far."""
    rewards = table.rewards
    assert rewards is not None
    relative = rewards - rewards.mean(axis=1, keepdims=True)
    n = len(relative)
    edges = np.linspace(0, n, _BLOCKS + 1).astype(int)
    first = int(edges[_FIRST])
    forecasts: dict[Rule, FloatArray] = {(ALL_PAST, 0): mean_of_last(relative, n)[first:]}
    forecasts |= {(AVERAGE, w): mean_of_last(relative, w)[first:] for w in _WINDOWS if w <= max(1, n // _BLOCKS)}
    for rule, inputs in _inputs(table, relative, context_first):
        forecasts[rule] = _regress(inputs, relative, edges)
    earned = {
        rule: np.take_along_axis(rewards[first:], forecast.argmax(axis=1)[:, None], axis=1)[:, 0]
        for rule, forecast in forecasts.items()
    }
    chosen, followed = np.empty(n - first, dtype=np.int64), []
    for start, stop in zip(edges[_FIRST:-1] - first, edges[_FIRST + 1 :] - first, strict=True):
        best = max(forecasts, key=lambda rule: float(earned[rule][:start].sum())) if start else (ALL_PAST, 0)
        chosen[start:stop] = forecasts[best][start:stop].argmax(axis=1)
        followed.append(best)
    return Rules(first, int(edges[_SCORED]) - first, forecasts, chosen, followed[_SCORED - _FIRST :])


def _inputs(table: Table, relative: FloatArray, context_first: bool) -> Iterator[tuple[Rule, FloatArray]]:
    """Yield what each regression knows before a round."""
    features, contexts = table.features, _filled(table.contexts)
    q, m, k = features.shape[1], contexts.shape[1], relative.shape[1]
    if q:
        yield (FEATURES, 0), features
    most = min(_MOST_INPUTS, len(relative) // _BLOCKS)  # of inputs, so that the first fit has two rounds for each
    for length in _LENGTHS:
        if length > 1 and q + length * (k + m) > most:
            break
        past = np.hstack([_lag(relative, lag) for lag in range(1, length + 1)])
        ages = range(length) if context_first else range(1, length + 1)
        seen = np.hstack([_lag(contexts, age) for age in ages])
        yield (REWARDS, length), past
        if m:
            yield (CONTEXTS, length), seen
        if q and m:
            yield (WITHOUT, length), np.hstack([features, past])
        if q or m:
            yield (ALL, length), np.hstack([features, past, seen])


def _filled(contexts: FloatArray) -> FloatArray:
    """Return contexts with the mean of those before in place of what is missing."""
    gone = np.isnan(contexts)
    count = np.maximum(np.cumsum(~gone, axis=0), 1)
    return np.where(gone, np.cumsum(np.where(gone, 0.0, contexts), axis=0) / count, contexts)


def _lag(values: FloatArray, lag: int) -> FloatArray:
    return np.vstack([np.zeros((lag, values.shape[1])), values])[: len(values)]


def _regress(inputs: FloatArray, relative: FloatArray, edges: npt.NDArray[np.int64]) -> FloatArray:
    """Forecast every arm by ridge regression on standardised inputs, fitted before each block on all rounds before.

    Each block is forecast with the penalty that had the smallest squared error in the blocks before. Sums of products
    are carried from block to block, about the mean of the first blocks, so that large offsets cost no digits.
    """
    first, p, k = int(edges[_FIRST]), inputs.shape[1], relative.shape[1]
    origin = inputs[:first].mean(axis=0)
    products, sums, cross, totals = np.zeros((p, p)), np.zeros(p), np.zeros((p, k)), np.zeros(k)
    tried = np.empty((len(_PENALTIES), len(inputs) - first, k))
    forecasts = np.empty(tried.shape[1:])
    begin = 0
    for start, stop in zip(edges[_FIRST:-1], edges[_FIRST + 1 :], strict=True):
        z, y = inputs[begin:start] - origin, relative[begin:start]
        products += z.T @ z
        sums += z.sum(axis=0)
        cross += z.T @ y
        totals += y.sum(axis=0)
        begin = start
        centre, level = sums / start, totals / start
        gram = products / start - np.outer(centre, centre)
        spread = np.sqrt(np.maximum(np.diag(gram), 0))
        spread[~(spread > 1e-12 * (1 + np.abs(origin)))] = np.inf  # a constant input carries no information
        gram, slope = gram / np.outer(spread, spread), (cross / start - np.outer(centre, level)) / spread[:, None]
        ahead, here = (inputs[start:stop] - origin - centre) / spread, slice(start - first, stop - first)
        for place, penalty in enumerate(_PENALTIES):
            tried[place, here] = level + ahead @ np.linalg.solve(gram + penalty / start * np.eye(p), slope)
        errors = ((tried[:, : here.start] - relative[first:start]) ** 2).sum(axis=(1, 2))
        forecasts[here] = tried[errors.argmin(), here]
    return forecasts
