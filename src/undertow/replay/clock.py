"""Time of a table in steps: rows of the same hour, say, share one, and hours without a row count."""

import math
from dataclasses import replace
from datetime import datetime

import numpy as np
import numpy.typing as npt
import polars as pl

from undertow.errors import InvalidInputError
from undertow.live.clock import as_time
from undertow.replay.columns import Columns
from undertow.replay.source import Source
from undertow.support import checks

__all__ = ["UNITS", "stamps_of", "tick_of", "time_steps_between", "with_dates_first"]

_MICROSECONDS = {"second": 1e6, "minute": 60e6, "hour": 3600e6, "day": 86400e6, "week": 7 * 86400e6}
UNITS = tuple(_MICROSECONDS)
_MONDAY = 4 * 86400e6  # the first one of 1970, from which weeks are counted


def time_steps_between(source: Source, column: str, times: pl.Series, unit: str) -> tuple[npt.NDArray[np.int64], str]:
    """Return the number of time steps since the row before, (n,), 1 for the first row, and a note for the reader.

    A time step is a second, minute, hour, day or week of timestamps, or a number of units of a numeric time.
    """
    length, since = _length(unit, numbers=not times.dtype.is_temporal()), 0.0
    if times.dtype.is_temporal():
        stamps = times.cast(pl.Duration("us") if times.dtype == pl.Duration else pl.Datetime("us"))
        values, since = stamps.to_physical().to_numpy().astype(np.float64), _MONDAY if unit == "week" else 0.0
    else:
        values = times.to_numpy()
    passed = np.diff(np.floor((values - since) / length), prepend=-math.inf)
    passed[0] = 1.0
    if (long := np.flatnonzero(passed > checks.LONGEST_GAP)).size:
        row = int(long[0])
        raise InvalidInputError(
            f"{source.place(row, column)}: {passed[row]:.0f} time steps have passed since the row before, at most "
            f"{checks.LONGEST_GAP} may; take a larger time_unit than {unit!r}, or drop the rows before"
        )
    within, empty = int((passed == 0).sum()), int(np.maximum(passed - 1, 0).sum())
    note = (
        f"a time step is {_spelled(unit)}: {within} rows belong to that of the row before, and {empty} time steps pass"
    )
    return passed.astype(np.int64), f"{note} without a row"


def tick_of(times: pl.Series, unit: str) -> str | None:
    """Return the `tick` of policies for a unit; None for times that are not dates."""
    return f"1 {unit}" if times.dtype == pl.Datetime else None


def stamps_of(times: pl.Series | None) -> list[datetime] | None:
    """Return dates for policies, in UTC, also for those without a zone; None for other times."""
    if times is None or times.dtype != pl.Datetime:
        return None
    stamps = times.cast(pl.Datetime("us")).to_physical().to_list()
    return [time for time in map(as_time, stamps) if time is not None]


def with_dates_first(source: Source, columns: Columns) -> Columns:
    """Use the first column as the time if it has increasing dates and no other role."""
    first = source.frame.columns[0]
    if columns.time is not None or first not in columns.unused:
        return columns
    try:
        source.times(first, dated=True, ties=columns.logged)
    except InvalidInputError:
        return columns
    source.notes.append(f"column {first!r:.80} holds dates that increase, and is read as the time")
    return replace(columns, time=first, unused=tuple(name for name in columns.unused if name != first))


def _spelled(unit: str) -> str:
    return f"{'an' if unit == 'hour' else 'a'} {unit}" if unit in UNITS else f"{unit} of the time"


def _length(unit: str, *, numbers: bool) -> float:
    if not numbers:
        return _MICROSECONDS[checks.choice("time_unit", unit, UNITS)]
    try:
        return checks.number("time_unit", float(unit), above=0)
    except ValueError as error:
        raise InvalidInputError(
            f"time_unit: expected a number above 0, since the time is a column of numbers, got {unit!r:.80}"
        ) from error
