"""A user's own table, read and checked: every mistake is told with its line and column."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from undertow._checks import FloatArray
from undertow.errors import InvalidInputError
from undertow.replay.columns import UNIFORM, Columns, find_columns
from undertow.replay.phases import phase_features
from undertow.replay.source import Source, is_number, open_source

__all__ = ["Log", "Table", "read_table"]


@dataclass(frozen=True, eq=False)
class Log:
    """What was played: arms by index, (n,), their rewards and the probabilities with which they were chosen."""

    arms: npt.NDArray[np.int64]
    rewards: FloatArray
    propensities: FloatArray


@dataclass(frozen=True, eq=False)
class Table:
    """Rounds of a user's own, one row each, checked.

    Attributes
    ----------
    name
        The file's name without its ending.
    columns
        Which column was taken as what.
    arms
        Names of the arms.
    contexts
        (n, m); NaN where an entry is missing.
    features, feature_names
        (n, q), phases of the time included.
    rewards
        Every arm's reward, (n, k); None for a log.
    log
        What was played; None where every arm's reward is known.
    notes
        What a person should know of the table before trusting a number made from it.
    """

    name: str
    columns: Columns
    arms: tuple[str, ...]
    contexts: FloatArray
    features: FloatArray
    feature_names: tuple[str, ...]
    rewards: FloatArray | None
    log: Log | None
    notes: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        """Number of rounds n."""
        return len(self.features)

    @property
    def missing(self) -> int:
        """Number of context entries that are missing."""
        return int(np.isnan(self.contexts).sum())


def read_table(
    path: str | os.PathLike[str],
    *,
    rewards: Sequence[str] = (),
    contexts: Sequence[str] = (),
    features: Sequence[str] = (),
    time: str | None = None,
    phases: Sequence[str] = (),
    arm: str | None = None,
    reward: str | None = None,
    propensity: str | None = None,
    minimise: bool = False,
    separator: str = ",",
) -> Table:
    """Read a table from CSV or Parquet; `undertow.replay.columns.find_columns` tells which column is what by default.

    Parameters
    ----------
    path
        A file whose name ends in .parquet, or else CSV with names of columns in its first line.
    rewards
        Columns with the reward of every arm, one column per arm.
    contexts
        Columns of measurements; a cell that is empty or NaN is missing, and policies are told so.
    features
        Columns of what is known before a round's decision.
    time
        Column of timestamps (2024-03-31, 2024-03-31 14:00, with or without a zone) or of numbers; it has to increase.
    phases
        Any of "hour", "weekday", "month": these phases of the time become features.
    arm, reward, propensity
        Columns of a log, in place of `rewards`; a propensity of "uniform" stands for one over the number of arms.
    minimise
        Whether the rewards are costs, of which less is better; their sign is changed.
    separator
        What stands between the cells of a CSV file.
    """
    source = open_source(Path(path), separator)
    try:
        columns = find_columns(
            source.names,
            rewards=rewards,
            contexts=contexts,
            features=features,
            time=time,
            phases=phases,
            arm=arm,
            reward=reward,
            propensity=propensity,
        )
    except InvalidInputError as error:
        raise InvalidInputError(f"{source.place(-1)}: {error}") from error
    if source.rows == 0:
        raise InvalidInputError(f"{source.path}: there are names of columns, and no row follows")
    notes = []
    known, feature_names = _numbers(source, columns.features), list(columns.features)
    if columns.time is not None:
        times = source.times(columns.time, dated=bool(columns.phases))
        notes += _gaps(times)
        calendar, names = phase_features(times, columns.phases) if columns.phases else (np.empty((source.rows, 0)), [])
        known, feature_names = np.hstack([known, calendar]), [*feature_names, *names]
    observed = _numbers(source, columns.contexts, missing=True)
    sign = -1 if minimise else 1
    if minimise:
        notes.append("rewards are costs: their sign is changed, here and in all tables")
    if columns.logged:
        log, arms = _log(source, columns, sign)
        full = None
        notes += _propensity_notes(log, arms)
    else:
        log, arms, full = None, columns.arms, sign * _numbers(source, columns.rewards)
    name = Path(path).stem
    return Table(name, columns, arms, observed, known, tuple(feature_names), full, log, tuple(notes))


def _numbers(source: Source, names: Sequence[str], *, missing: bool = False) -> FloatArray:
    parts = [source.numbers(name, missing=missing) for name in names]
    return np.stack(parts, axis=1) if parts else np.empty((source.rows, 0))


def _log(source: Source, columns: Columns, sign: int) -> tuple[Log, tuple[str, ...]]:
    assert columns.arm is not None
    assert columns.reward is not None
    assert columns.propensity is not None
    played = source.words(columns.arm)
    arms = sorted(set(played), key=lambda name: (0, float(name), name) if is_number(name) else (1, 0.0, name))
    if len(arms) < 2:
        raise InvalidInputError(f"{source.path}: column {columns.arm!r}: expected at least two arms, got {arms}")
    places = {name: place for place, name in enumerate(arms)}
    if columns.propensity == UNIFORM:
        chances = np.full(source.rows, 1 / len(arms))
    else:
        chances = source.numbers(columns.propensity)
        if (wrong := np.flatnonzero((chances <= 0) | (chances > 1))).size:
            at = int(wrong[0])
            raise InvalidInputError(
                f"{source.place(at, columns.propensity)}: expected a probability above 0 and at most 1, got "
                f"{chances[at]:g}"
            )
    rewards = sign * source.numbers(columns.reward)
    return Log(np.array([places[name] for name in played]), rewards, chances), tuple(arms)


def _propensity_notes(log: Log, arms: Sequence[str]) -> list[str]:
    """Doubt propensities that cannot be: 1/p where an arm was played and 0 elsewhere has mean 1 over all rounds."""
    notes = []
    for place, name in enumerate(arms):
        weights = np.where(log.arms == place, 1 / log.propensities, 0.0)
        error = weights.std() / np.sqrt(len(weights))
        if abs(weights.mean() - 1) > 5 * error:
            notes.append(
                f"the propensities of arm {name} do not fit how often it was played: the sum of 1/p over its rounds, "
                f"divided by the number of all rounds, is {weights.mean():.2f} ± {error:.2f}, and should be 1; "
                "estimates from this log may be wrong"
            )
    return notes


def _gaps(times: pl.Series) -> list[str]:
    """Tell of steps in time that differ from the usual one, since every row counts as one round."""
    steps = times.diff().drop_nulls()
    if steps.is_empty():
        return []
    usual = steps.mode().min()
    others = int((steps != usual).sum())
    if not others:
        return []
    return [
        f"{others} of {len(steps)} steps in time differ from the usual {usual!s}; every row still counts as one round"
    ]
