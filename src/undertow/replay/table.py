"""A user's table, read and checked; error messages name the line and column."""

import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from undertow._checks import FloatArray
from undertow.errors import InvalidInputError
from undertow.replay.columns import UNIFORM, Columns, find_columns
from undertow.replay.phases import phase_features
from undertow.replay.source import Source, is_number, open_source
from undertow.showing import Framed, html_table

__all__ = ["Log", "Table", "read_table"]

_LEAST_CHANCE = 1e-12  # of an arm that was played
_FAR = 1e13  # standard deviations from zero
_LONGEST = 800  # letters of a message; a table may have thousands of columns


@dataclass(frozen=True, eq=False)
class Log:
    """Logged decisions: arms by index, (n,), their rewards and their propensities."""

    arms: npt.NDArray[np.int64]
    rewards: FloatArray
    propensities: FloatArray


@dataclass(frozen=True, eq=False)
class Table(Framed):
    """A checked table, one row per round.

    Attributes
    ----------
    name
        File name without its extension.
    columns
        The role of each column.
    arms
        Names of the arms.
    contexts
        (n, m); NaN where an entry is missing.
    features, feature_names
        (n, q), phases of the time included.
    rewards
        Every arm's reward, (n, k); None for a log.
    log
        Logged decisions; None if every arm's reward is known.
    notes
        Remarks on the table that matter for its results.
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

    def _frame(self) -> dict[str, Any]:
        names = dict(zip(self.columns.contexts, self.contexts.T, strict=True))
        names |= zip(self.feature_names, self.features.T, strict=True)
        if self.rewards is not None:
            return names | {f"reward_{arm}": column for arm, column in zip(self.arms, self.rewards.T, strict=True)}
        assert self.log is not None
        arms = [self.arms[arm] for arm in self.log.arms]
        return names | {"arm": arms, "reward": self.log.rewards, "propensity": self.log.propensities}

    def _repr_html_(self) -> str:
        kind = "log" if self.rewards is None else "table"
        rows = [("arms", f"{len(self.arms)}: {', '.join(self.arms)}")]
        rows += [("contexts", ", ".join(self.columns.contexts) or "none")]
        rows += [("features", ", ".join(self.feature_names) or "none")]
        rows += [("time", self.columns.time)] if self.columns.time else []
        rows += [("missing context entries", f"{self.missing:,}")] if self.missing else []
        return html_table(f"{self.name}: a {kind} of {self.rounds:,} rounds", rows, note=" ".join(self.notes))

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
    """Read a table from CSV or Parquet; `undertow.replay.columns.find_columns` describes the default columns.

    Parameters
    ----------
    path
        A Parquet file (.parquet or .pq), or else a CSV file with column names in its first line.
    rewards
        Columns with the reward of every arm, one column per arm.
    contexts
        Columns of measurements; empty cells and NaN are missing values.
    features
        Columns known before a round's decision.
    time
        Column of timestamps (2024-03-31, 2024-03-31 14:00, with or without a zone) or of numbers; it has to increase.
    phases
        Any of "hour", "weekday", "month": these phases of the time become features.
    arm, reward, propensity
        Columns of a log, in place of `rewards`; a propensity of "uniform" means one over the number of arms.
    minimise
        Whether rewards are costs, to be minimised; their sign is changed.
    separator
        Column separator of a CSV file.
    """
    source = open_source(Path(path), separator)
    try:
        columns = find_columns(
            source.frame.columns,
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
        raise InvalidInputError(f"{source.place(-1)}: {textwrap.shorten(str(error), _LONGEST)}") from error
    if source.frame.height == 0:
        raise InvalidInputError(f"{source.path}: there are names of columns, and no row follows")
    notes = []
    known, feature_names = _numbers(source, columns.features), columns.features
    if columns.time is not None:
        times = source.times(columns.time, dated=bool(columns.phases))
        notes += _gaps(times)
        if columns.phases:
            calendar, names = phase_features(times, columns.phases)
            known, feature_names = np.hstack([known, calendar]), (*feature_names, *names)
    observed = _numbers(source, columns.contexts, missing=True)
    sign = -1 if minimise else 1
    if minimise:
        notes.append("rewards are costs: their sign is changed, here and in all tables")
    arms, full, log = columns.arms, None, None
    if columns.logged:
        log, arms = _log(source, columns, sign)
        notes += _propensity_notes(log, arms)
    else:
        full = sign * _numbers(source, columns.rewards)
    notes += _offset_notes(arms, full if log is None else log.rewards[:, None])
    return Table(_name(Path(path)), columns, arms, observed, known, feature_names, full, log, tuple(notes))


def _numbers(source: Source, names: Sequence[str], *, missing: bool = False) -> FloatArray:
    parts = [source.numbers(name, missing=missing) for name in names]
    return np.stack(parts, axis=1) if parts else np.empty((source.frame.height, 0))


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
        chances = np.full(source.frame.height, 1 / len(arms))
    else:
        chances = source.numbers(columns.propensity)
        if (wrong := np.flatnonzero((chances < _LEAST_CHANCE) | (chances > 1))).size:
            at = int(wrong[0])
            raise InvalidInputError(
                f"{source.place(at, columns.propensity)}: expected a probability above 0 and at most 1, got "
                f"{chances[at]:g}"
                + (f"; what has a probability below {_LEAST_CHANCE:g} does not happen" if chances[at] > 0 else "")
            )
    rewards = sign * source.numbers(columns.reward)
    return Log(np.array([places[name] for name in played]), rewards, chances), tuple(arms)


def _name(path: Path) -> str:
    """Return the name of a file without its ending, as far as that can be the name of a folder."""
    return path.stem if path.stem.strip(".") else path.name


def _offset_notes(arms: Sequence[str], rewards: FloatArray | None) -> list[str]:
    """Warn of rewards that are so far from zero that their differences are lost in rounding."""
    assert rewards is not None
    mean, spread = np.abs(rewards.mean(axis=0)), rewards.std(axis=0)
    if not ((spread > 0) & (mean > _FAR * spread)).any():
        return []
    return [
        f"rewards are more than {_FAR:g} times as large as they vary, and double precision keeps 16 digits: most of "
        "what tells the arms apart is rounding; subtract a constant from all rewards first"
    ]


def _propensity_notes(log: Log, arms: Sequence[str]) -> list[str]:
    """Check propensities: 1/p where an arm was played, and 0 elsewhere, has mean 1 over all rounds."""
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
    """Report steps in time that differ from the usual one, since every row counts as one round."""
    steps = times.diff().drop_nulls()
    if steps.is_empty():
        return []
    usual = steps.mode().min()
    others = int((steps != usual).sum())
    note = (
        f"{others} of {len(steps)} steps in time differ from the usual {usual!s}; every row still counts as one round"
    )
    return [note] if others else []
