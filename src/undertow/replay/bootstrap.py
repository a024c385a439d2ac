"""Intervals for means over dependent rounds: a block bootstrap, with the same blocks for all policies.

Neighbouring rounds are alike, so single rounds must not be redrawn. Circular blocks of consecutive rounds are
(Politis and Romano 1992): the last round is followed by the first, so every round is equally likely.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import scipy.fft

from undertow.compiled import kernel
from undertow.errors import InvalidInputError
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.support.numbers import Measured

__all__ = [
    "RESAMPLES",
    "Measured",
    "block_length",
    "check_block",
    "compared",
    "interval",
    "measured",
    "resampled_means",
]

RESAMPLES = 2000
MOST_BLOCKS = 20_000  # per resample: more would not improve the spread, and take minutes
_QUIET = 2.0  # standard errors of log₁₀ n within which an autocorrelation counts as 0


def block_length(series: FloatArray) -> int:
    """Return the length of blocks that suits the mean of a series: Politis and White 2004, corrected in 2009.

    b = (2 G² / D)^(1/3) n^(1/3) for the circular bootstrap, G = Σ λ(k/M) |k| R(k), D = 4/3 (Σ λ(k/M) R(k))², R the
    autocovariance, λ a flat-top window, M twice the lag after which autocorrelations are insignificant. Blocks are long
    enough that `MOST_BLOCKS` of them cover the series: 20,000 independent blocks give its spread to half a percent.

    Examples
    --------
    >>> noise = np.random.default_rng(0).standard_normal(5000)
    >>> block_length(noise), block_length(np.convolve(noise, np.ones(50), "valid"))
    (1, 133)
    """
    size = float(np.abs(series).max(initial=0.0)) or 1.0  # so that units do not matter
    x = np.asarray(series) / size
    x -= x.mean()
    n = len(x)
    least = math.ceil(n / MOST_BLOCKS)
    if n < 8 or float(x @ x) / n <= 1e-24:
        return max(1, least)
    quiet = max(5, math.ceil(math.sqrt(math.log10(n))))
    longest = min(math.ceil(math.sqrt(n)) + quiet, n - 1)
    R = _autocovariance(x, longest)
    loud = np.abs(R[1:]) / R[0] > _QUIET * math.sqrt(math.log10(n) / n)
    # the first lag that is followed by `quiet` insignificant ones
    runs = [lag for lag in range(longest - quiet + 1) if not loud[lag : lag + quiet].any()]
    last = runs[0] if runs else int(np.flatnonzero(loud)[-1]) + 1
    M = min(2 * max(last, 1), longest)
    lags = np.arange(-M, M + 1)
    top = np.minimum(1.0, 2 * (1 - np.abs(lags) / M))
    spectrum = R[np.abs(lags)]
    G, g = float(np.sum(top * np.abs(lags) * spectrum)), float(np.sum(top * spectrum))
    D = 4 / 3 * g**2
    b = (2 * G**2 / D) ** (1 / 3) * n ** (1 / 3) if D > 0 else 1.0
    most = math.ceil(min(3 * math.sqrt(n), n / 3))
    return int(min(max(least, math.ceil(b)), most))


def _autocovariance(x: FloatArray, longest: int) -> FloatArray:
    """Return Σ x_t x_(t+lag) / n for lags 0 to `longest`; of a long series through its spectrum."""
    n = len(x)
    if n <= MOST_BLOCKS:
        return np.array([x[: n - lag] @ x[lag:] / n for lag in range(longest + 1)])
    spectrum = scipy.fft.rfft(x, scipy.fft.next_fast_len(n + longest, real=True))
    power = np.abs(spectrum) ** 2
    return np.asarray(scipy.fft.irfft(power, scipy.fft.next_fast_len(n + longest, real=True))[: longest + 1] / n)


def check_block(block: int | None, rounds: int) -> None:
    """Refuse blocks that are too long for the table, before any policy plays."""
    most = math.ceil(rounds / 3)
    if block is not None and checks.integer("block", block, least=1) > most:
        raise InvalidInputError(f"block: expected at most {most}, a third of the {rounds} rounds judged, got {block}")


def resampled_means(series: FloatArray, *, block: int, resamples: int = RESAMPLES, seed: int = 0) -> FloatArray:
    """Return the means of p series, (n, p), over rounds resampled in blocks that all of them share, (resamples, p).

    A block is some consecutive rounds; the last one is cut to give n rounds.
    """
    values = checks.array("series", series, ("n", "p"))
    n = len(values)
    block = min(checks.integer("block", block, least=1), n)
    count = math.ceil(n / block)
    centre = values.mean(axis=0)  # sums of deviations lose no digits
    sums = np.vstack([np.zeros(values.shape[1]), values, values[:block]])
    sums[1:] -= centre
    del values  # a copy
    np.cumsum(sums[1:], axis=0, out=sums[1:])
    whole, last = sums[block:] - sums[:-block], n - block * (count - 1)  # the block that begins with each round
    rng = np.random.default_rng(np.random.SeedSequence(checks.integer("seed", seed, least=0), spawn_key=(1,)))
    means = np.zeros((checks.integer("resamples", resamples, least=1), len(centre)))
    for row in means:
        starts = rng.integers(n, size=count)
        _add_rows(whole, starts[:-1], row)
        row += sums[starts[-1] + last] - sums[starts[-1]]
    means /= n
    means += centre
    return means


@kernel
def _add_rows(table: FloatArray, rows: npt.NDArray[np.int64], total: FloatArray) -> None:
    """Add up some rows of a table."""
    for i in range(len(rows)):
        for j in range(len(total)):
            total[j] += table[rows[i], j]


def measured(series: FloatArray, means: FloatArray, statistic: Callable[[FloatArray], FloatArray]) -> Measured:
    """Return a statistic of the means of several series, with its interval over their resampled means."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(statistic(series.mean(axis=0, keepdims=True))[0])
    return Measured(value, *interval(means, statistic))


def interval(means: FloatArray, statistic: Callable[[FloatArray], FloatArray]) -> tuple[float, float]:
    """Return the 95 % percentile interval of a statistic of resampled means; NaN if it has no value."""
    with np.errstate(divide="ignore", invalid="ignore"):
        values = statistic(means)
    values = values[np.isfinite(values)]
    if not len(values):
        return math.nan, math.nan
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def compared(labels: Sequence[str], earned: FloatArray, resampled: FloatArray) -> pl.DataFrame:
    """Return the difference of the means of each pair of series, (n, p), with its interval over resampled means."""
    rows, averages = [], [float(column.mean()) for column in earned.T]
    for (one, label), (two, other) in itertools.permutations(enumerate(labels), 2):
        difference = averages[one] - averages[two]
        low, high = np.quantile(resampled[:, one] - resampled[:, two], [0.025, 0.975])
        rows.append((label, other, difference, float(low), float(high)))
    schema = dict.fromkeys(("policy", "other"), pl.String) | dict.fromkeys(("difference", "low", "high"), pl.Float64)
    return pl.DataFrame(rows, schema=schema, orient="row")
