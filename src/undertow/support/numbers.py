"""Numbers of all reports: standard errors, the share won, and formats."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = [
    "Measured",
    "cells",
    "count",
    "decimals",
    "duration",
    "interval_rows",
    "listed",
    "number",
    "plus_minus",
    "share",
    "share_won",
    "signed",
    "spelled",
    "standard_error",
    "with_interval",
    "with_values",
]

_MISSING = "–"


class Measured(NamedTuple):
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


def standard_error(values: npt.ArrayLike) -> float:
    """Return the standard error of the mean; 0 for a single value."""
    values = np.asarray(values)
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def share(earned: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> FloatArray:
    """Return the share of the gap from `low` to `high` that was won: 0 for `low`, 1 for `high`, NaN without a gap."""
    won, gap = np.subtract(earned, low, dtype=np.float64), np.subtract(high, low, dtype=np.float64)
    shape = np.broadcast_shapes(won.shape, gap.shape)
    return np.asarray(np.divide(won, gap, out=np.full(shape, np.nan), where=gap != 0))


def share_won(rewards: FloatArray, arms: npt.ArrayLike) -> float:
    """Return the share won by playing `arms` on a table of rewards, (n, k): 0 for random choice, 1 for a clairvoyant.

    A clairvoyant plays the best arm of every round.

    Examples
    --------
    >>> table = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> share_won(table, [0, 1]), round(share_won(table, [1, 1]), 3)
    (1.0, 0.333)
    """
    played = checks.indices("arms", arms, (len(rewards),), below=rewards.shape[1])
    earned = rewards[np.arange(len(rewards)), played].mean()
    return float(share(earned, rewards.mean(), rewards.max(axis=1).mean()))


def plus_minus(values: npt.ArrayLike, digits: int = 1) -> str:
    """Return the mean with its standard error, as in "3.1 ± 0.2"."""
    return f"{_minus(f'{np.asarray(values).mean():.{digits}f}')} ± {standard_error(values):.{digits}f}"


def signed(value: float, digits: int = 0) -> str:
    """Return a change with its sign; one that rounds to zero has none.

    Examples
    --------
    >>> signed(3.2), signed(-3.2), signed(-0.2)
    ('+3', '−3', '0')
    """
    text = _minus(f"{value:.{digits}f}")
    return text if text[0] == "−" or float(text) == 0 else f"+{text}"


def count(number: int, one: str, many: str = "") -> str:
    """Return "1 round", "2,000 rounds"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(words: Iterable[str]) -> str:
    """Return words joined by commas and an "and"."""
    *most, last = list(words) or [""]
    return f"{', '.join(most)} and {last}" if most else last


def number(value: float | None) -> str:
    """Return a number with about three significant digits."""
    if value is None or not math.isfinite(value):
        return _MISSING
    if abs(value) >= 100:
        return _minus(f"{value:,.0f}")
    return _minus(f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.3f}")


def duration(seconds: float) -> str:
    """Return a duration, as in "5 minutes"."""
    if seconds < 120:
        return count(round(seconds), "second")
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def with_interval(measure: str) -> tuple[str, str, str]:
    """Return the names of the columns of a measure and of the ends of its interval."""
    return measure, f"{measure}_low", f"{measure}_high"


def with_values(rows: Sequence[Mapping[str, Any]], measures: Mapping[str, str]) -> dict[str, str]:
    """Return the measures that have a value in some row."""
    known = {name for row in rows for name in measures if number(row.get(name)) != _MISSING}
    return {name: title for name, title in measures.items() if name in known}


def cells(rows: Sequence[Mapping[str, Any]], measures: Mapping[str, str]) -> list[list[tuple[str, str]]]:
    """Return each row's measures and intervals as strings, with the digits that the intervals support.

    `measures` gives the titles of the columns; those that end in % are shares, and are multiplied by 100.
    """
    factors = {measure: 100 if title.endswith("%") else 1 for measure, title in measures.items()}
    digits = {measure: decimals(rows, measure, factor) for measure, factor in factors.items()}
    return [[spelled(row, measure, digits[measure], factors[measure]) for measure in measures] for row in rows]


def interval_rows(rows: Sequence[Mapping[str, Any]], measures: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the policy of each row, and its measures with their intervals in brackets, for a small table."""
    spells = cells(rows, measures)
    return [
        (row["policy"], *(f"{value} ({spread})" if spread else value for value, spread in spell))
        for row, spell in zip(rows, spells, strict=True)
    ]


def decimals(rows: Sequence[Mapping[str, Any]], measure: str, factor: float = 1) -> int:
    """Return the decimals that a column's median interval supports: two digits of its width.

    Examples
    --------
    >>> decimals([{"x": 3.14159, "x_low": 3.0, "x_high": 3.2}], "x")
    2
    """
    pairs = [(row[f"{measure}_low"], row[f"{measure}_high"]) for row in rows]
    widths = sorted(factor * (high - low) for low, high in pairs if low is not None and high is not None and high > low)
    if not widths:
        return 2
    return min(max(math.ceil(-math.log10(widths[len(widths) // 2])) + 1, 0), 12)


def spelled(row: Mapping[str, Any], measure: str, digits: int, factor: float = 1) -> tuple[str, str]:
    """Return a number and its interval as strings; the interval is "" for a point, and "1 round" without one.

    Examples
    --------
    >>> spelled({"x": 3.14159, "x_low": -1.0, "x_high": 3.2}, "x", 1)
    ('3.1', '−1.0 to 3.2')
    >>> spelled({"x": 3.14159, "x_low": math.nan, "x_high": math.nan}, "x", 1)
    ('3.1', '1 round')
    """
    value, low, high = (_text(row[name], digits, factor) for name in with_interval(measure))
    if low == high:
        return value, "1 round" if low == _MISSING != value else ""
    return value, f"{low} to {high}"


def _text(value: float | None, digits: int, factor: float) -> str:
    if value is None or not math.isfinite(value):
        return _MISSING
    return _minus(f"{factor * value:,.{digits}f}")


def _minus(text: str) -> str:
    """Return a number with a minus sign for a hyphen, and none before zero."""
    return (text[1:] if text[0] == "-" and float(text.replace(",", "")) == 0 else text).replace("-", "−")
