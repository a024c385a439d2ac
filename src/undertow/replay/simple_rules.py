"""Simple rules that see every arm's reward, tested out of sample, to show how much can be forecast.

They are not policies, since a policy sees only the reward of the arm it played. They show the possible gains of playing
the arm that was best so far, the largest mean of the last w rounds, or the largest forecast of a regression on the last
w rounds. Each of ten blocks of rounds is forecast from the blocks before; from the middle on, forecasts count.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.replay.table import Table
from undertow.support.checks import FloatArray
from undertow.support.pool import Progress, run_tasks

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
_ON_ONE_THREAD = 200_000  # size of products for which libraries start no threads
_TOGETHER = 1_000_000  # numbers of products of pieces that are in memory together
_PIECE, _NUMBERS = 50_000, 2_500_000  # rounds whose inputs are in memory together, and at most so many numbers

Rule = tuple[str, int]  # its inputs, and the number of past rounds; 0 if that has no meaning


@dataclass(frozen=True, eq=False)
class Rules:
    """The forecasts of rules from round `first` on, and the choices of the best one so far.

    Forecasts of all rules together would take gigabytes on long tables, so each is made, measured and dropped, and made
    again on demand.

    Attributes
    ----------
    first, scored
        The first forecast round, and the number of rounds until forecasts count.
    errors
        Sums of squared errors by rule: before forecasts count, and from then on.
    chosen, followed
        The arms of the rule that had earned most so far, (n − first,), and that rule in each block that counts.
    forecast
        Makes the forecasts of a rule: relative rewards, (n − first, k).
    """

    first: int
    scored: int
    errors: Mapping[Rule, tuple[float, float]]
    chosen: npt.NDArray[np.int64]
    followed: Sequence[Rule]
    forecast: Callable[[Rule], FloatArray]

    def best(self, kind: str) -> Rule | None:
        """Return the rule of a kind with the smallest squared error before forecasts count."""
        early = {rule: before for rule, (before, _) in self.errors.items() if rule[0] == kind}
        return min(early, key=lambda rule: early[rule], default=None)


def mean_of_last(relative: FloatArray, window: int) -> FloatArray:
    """Return the mean of the last `window` relative rewards of each arm before every round; of fewer at the start."""
    sums = np.vstack([np.zeros((1, relative.shape[1])), np.cumsum(relative, axis=0)])
    ends = np.arange(len(relative))
    starts = np.maximum(ends - window, 0)
    return np.asarray((sums[ends] - sums[starts]) / np.maximum(ends - starts, 1)[:, None])


def try_rules(
    table: Table, *, context_first: bool = False, threads: int | None = None, progress: Progress | None = None
) -> Rules:
    """Test every rule out of sample, and follow the one with the largest rewards so far."""
    rewards = table.payoffs
    relative = rewards - rewards.mean(axis=1, keepdims=True)
    n = len(relative)
    edges = np.linspace(0, n, _BLOCKS + 1).astype(int)
    first, scored = int(edges[_FIRST]), int(edges[_SCORED] - edges[_FIRST])
    known = dict(_inputs(table, relative, context_first))
    windows = [w for w in _WINDOWS if w <= max(1, n // _BLOCKS)]
    rules: list[Rule] = [(ALL_PAST, 0), *((AVERAGE, w) for w in windows), *known]

    def forecast(rule: Rule) -> FloatArray:
        if rule in known:
            return _regress(known[rule], relative, edges)
        return mean_of_last(relative, n if rule[0] == ALL_PAST else rule[1])[first:]

    starts = edges[_FIRST:-1] - first

    def measure(rule: Rule) -> _Measures:
        found = forecast(rule)
        squares = ((found - relative[first:]) ** 2).sum(axis=1)
        arms = found.argmax(axis=1)
        paid = np.take_along_axis(rewards[first:], arms[:, None], axis=1)[:, 0]
        return _Measures(
            (float(squares[:scored].sum()), float(squares[scored:].sum())),
            arms.astype(np.min_scalar_type(relative.shape[1])),
            [float(paid[:start].sum()) for start in starts],
        )

    tasks = [functools.partial(measure, rule) for rule in rules]
    tried = dict(zip(rules, run_tasks(tasks, threads=threads, progress=progress), strict=True))
    followed = [max(rules, key=lambda rule: tried[rule].earned[block]) for block in range(len(starts))]
    chosen = np.empty(n - first, dtype=np.int64)
    for rule, start, stop in zip(followed, starts, edges[_FIRST + 1 :] - first, strict=True):
        chosen[start:stop] = tried[rule].arms[start:stop]
    errors = {rule: found.errors for rule, found in tried.items()}
    return Rules(first, scored, errors, chosen, followed[_SCORED - _FIRST :], forecast)


class _Measures(NamedTuple):
    """A rule's errors before forecasts count and after, its arms, and their rewards up to each block."""

    errors: tuple[float, float]
    arms: npt.NDArray[np.integer[Any]]
    earned: list[float]


Inputs = Callable[[int, int], FloatArray]  # a regression's inputs before each round, from one round to another


def _inputs(table: Table, relative: FloatArray, context_first: bool) -> Iterator[tuple[Rule, Inputs]]:
    """Yield the inputs of each regression."""
    features, contexts = table.known, _filled(table.contexts)
    before = [_with_past(values) for values in (relative, contexts)]  # once, for the windows of all lengths
    q, m, k = features.shape[1], contexts.shape[1], relative.shape[1]
    most = min(_MOST_INPUTS, len(relative) // _BLOCKS)  # of inputs, so that the first fit has two rounds for each
    if q:
        yield (FEATURES, 0), _side_by_side(features)
    for length in _LENGTHS:
        if length > 1 and q + length * (k + m) > most:
            break
        known, past = features, _windows(before[0], length, 1)
        seen = _windows(before[1], length, 0 if context_first else 1)
        yield (REWARDS, length), _side_by_side(past)
        if m:
            yield (CONTEXTS, length), _side_by_side(seen)
        if q and m:
            yield (WITHOUT, length), _side_by_side(known, past)
        if q or m:
            yield (ALL, length), _side_by_side(known, past, seen)


def _side_by_side(*parts: FloatArray) -> Inputs:
    """Join columns for the given rounds only; all rounds together might fill the memory."""
    return lambda start, stop: np.hstack([part[start:stop] for part in parts])


def _with_past(values: FloatArray) -> FloatArray:
    """Return values with zeros before the first, for the longest window."""
    return np.vstack([np.zeros((_LENGTHS[-1], values.shape[1])), values])


def _windows(padded: FloatArray, length: int, age: int) -> FloatArray:
    """Return the `length` values up to `age` rounds before each round, oldest first, as a view.

    Rows are `length · columns` consecutive numbers in memory, each row beginning one round later.
    """
    n, width = len(padded) - _LENGTHS[-1], padded.shape[1]
    if not width:
        return np.empty((n, 0))
    first = _LENGTHS[-1] - (length - 1 + age)
    return np.asarray(np.lib.stride_tricks.sliding_window_view(padded[first:].ravel(), length * width)[::width][:n])


def _filled(contexts: FloatArray) -> FloatArray:
    """Return contexts with the mean of earlier ones in place of missing entries."""
    gone = np.isnan(contexts)
    count = np.maximum(np.cumsum(~gone, axis=0), 1)
    return np.where(gone, np.cumsum(np.where(gone, 0.0, contexts), axis=0) / count, contexts)


def _regress(inputs: Inputs, relative: FloatArray, edges: npt.NDArray[np.int64]) -> FloatArray:
    """Forecast every arm by ridge regression on standardized inputs, fitted before each block on all rounds before.

    Each block is forecast with the penalty that had the smallest squared error in the blocks before. Sums of products
    are carried from block to block, about the mean of the first blocks, so that large offsets cost no digits.
    """
    first, n = int(edges[_FIRST]), len(relative)
    width = inputs(0, 1).shape[1]
    origin = sum(inputs(*part).sum(axis=0) for part in _parts(0, first, width)) / first
    sums = _Sums(origin, relative.shape[1])
    sums.add(inputs, relative, 0, first)
    forecasts, errors = np.empty((n - first, relative.shape[1])), np.zeros(len(_PENALTIES))
    for start, stop in zip(edges[_FIRST:-1], edges[_FIRST + 1 :], strict=True):
        slopes, best = sums.slopes(), int(errors.argmin())
        for begin, end in _parts(int(start), int(stop), width):
            ahead = (inputs(begin, end) - sums.middle) / sums.spread
            for place, slope in enumerate(slopes):
                tried = sums.level + _times(ahead, slope)
                errors[place] += ((tried - relative[begin:end]) ** 2).sum()
                if place == best:
                    forecasts[begin - first : end - first] = tried
        if stop < n:
            sums.add(inputs, relative, int(start), int(stop))
    return forecasts


def _parts(start: int, stop: int, width: int) -> Iterator[tuple[int, int]]:
    """Yield pieces of some rounds, so that only one piece's inputs are in memory."""
    rounds = max(1, min(_PIECE, _NUMBERS // width))
    for begin in range(start, stop, rounds):
        yield begin, min(begin + rounds, stop)


# Products of matrices are computed in pieces for which the linear algebra library starts no threads: on a busy machine
# these wait for one another, and a second's work takes minutes.


def _transposed_times(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return aᵀ b."""
    size = a.shape[1] * b.shape[1]
    (left, right), rest = _pieces(size, a, b)
    total, some = rest[0].T @ rest[1], max(1, _TOGETHER // size)
    for begin in range(0, len(left), some):
        total += (left[begin : begin + some].transpose(0, 2, 1) @ right[begin : begin + some]).sum(axis=0)
    return np.asarray(total)


def _times(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return a b."""
    (pieces,), (rest,) = _pieces(b.size, a)
    return np.vstack([(pieces @ b).reshape(-1, b.shape[1]), rest @ b])


def _pieces(cost: int, *arrays: FloatArray) -> tuple[list[FloatArray], list[FloatArray]]:
    """Return arrays as stacks of pieces, small enough for `cost` products per row, and the rest."""
    rows = max(1, _ON_ONE_THREAD // max(cost, 1))
    whole = len(arrays[0]) // rows * rows
    return [a[:whole].reshape(-1, rows, a.shape[1]) for a in arrays], [a[whole:] for a in arrays]


class _Sums:
    """The sums of a regression over the rounds so far, about an origin."""

    def __init__(self, origin: FloatArray, arms: int) -> None:
        p = len(origin)
        self.origin, self.rounds = origin, 0
        self.products, self.sums, self.cross, self.totals = np.zeros((p, p)), np.zeros(p), np.zeros((p, arms)), 0.0

    def add(self, inputs: Inputs, relative: FloatArray, start: int, stop: int) -> None:
        """Add the next rounds."""
        for begin, end in _parts(start, stop, len(self.origin)):
            z, y = inputs(begin, end) - self.origin, relative[begin:end]
            self.products += _transposed_times(z, z)
            self.sums += z.sum(axis=0)
            self.cross += _transposed_times(z, y)
            self.totals = self.totals + y.sum(axis=0)
        self.rounds = stop
        self.centre, self.level = self.sums / stop, self.totals / stop
        self.middle = self.origin + self.centre
        self.gram = self.products / stop - np.outer(self.centre, self.centre)
        spread = np.sqrt(np.maximum(np.diag(self.gram), 0))
        spread[~(spread > 1e-12 * (1 + np.abs(self.origin)))] = np.inf  # a constant input carries no information
        self.spread = spread

    def slopes(self) -> list[FloatArray]:
        """Return the regression on standardized inputs with every penalty."""
        gram = self.gram / np.outer(self.spread, self.spread)
        slope = (self.cross / self.rounds - np.outer(self.centre, self.level)) / self.spread[:, None]
        ridges = [gram + penalty / self.rounds * np.eye(len(gram)) for penalty in _PENALTIES]
        return [np.linalg.solve(ridge, slope) for ridge in ridges]
