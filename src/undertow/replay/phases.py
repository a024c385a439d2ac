"""Phases of the calendar: a timestamp as cosines and sines, so that midnight is next to 23:00."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from undertow.problems.datasets import fourier
from undertow.support.checks import FloatArray

__all__ = ["phase_features"]

_PAIRS = {"hour": 2, "weekday": 3, "month": 2}  # three pairs distinguish all seven weekdays


def phase_features(times: pl.Series, phases: Sequence[str]) -> tuple[FloatArray, list[str]]:
    """Return features of timestamps, (n, q), with their names.

    Each phase is a position in a cycle: the hour with its minutes in the day, the weekday in the week, the month with
    its days in the year. It becomes pairs of cosine and sine at the cycle's period and its first fractions.

    Examples
    --------
    >>> times = pl.Series(["2024-01-01T06:00", "2024-01-01T18:00"]).str.to_datetime()
    >>> values, names = phase_features(times, ["hour"])
    >>> names
    ['hour cos 1', 'hour sin 1', 'hour cos 2', 'hour sin 2']
    >>> values.round(6).tolist()
    [[0.0, 1.0, -1.0, 0.0], [-0.0, -1.0, -1.0, 0.0]]
    """
    days = (times.dt.day() - 1).to_numpy() / times.dt.date().dt.month_end().dt.day().to_numpy()
    positions = {
        "hour": (times.dt.hour().to_numpy() + times.dt.minute().to_numpy() / 60) / 24,
        "weekday": (times.dt.weekday().to_numpy() - 1) / 7,
        "month": (times.dt.month().to_numpy() - 1 + days) / 12,
    }
    parts = [fourier(positions[phase], period=1, pairs=_PAIRS[phase]) for phase in phases]
    names = [
        f"{phase} {wave} {pair}" for phase in phases for pair in range(1, _PAIRS[phase] + 1) for wave in ("cos", "sin")
    ]
    return np.hstack(parts) if parts else np.empty((len(times), 0)), names
