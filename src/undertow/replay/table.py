"""A user's table, read and checked; error messages name the line and column."""

import functools
import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from undertow.errors import InvalidInputError
from undertow.replay.clock import stamps_of, tick_of, time_steps_between, with_dates_first
from undertow.replay.columns import AT, ESTIMATE, UNIFORM, Columns, find_columns
from undertow.replay.opening import open_source, table_name
from undertow.replay.phases import phase_features
from undertow.replay.propensities import ESTIMATED, estimated_propensities
from undertow.replay.reading import Reading
from undertow.replay.source import Source
from undertow.replay.table_inputs import EACH, features_of_arms, numbers_of, shared_features
from undertow.replay.table_notes import gap_notes, offset_notes, propensity_notes, step_notes, unpaid_notes
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.support.display import Framed, html_table
from undertow.support.numbers import count
from undertow.support.timesteps import with_one_context

__all__ = ["Log", "Table", "read_table", "require_table"]

_LEAST_CHANCE = 1e-12  # of an arm that was played
_LONGEST = 800  # letters of a message; a table may have thousands of columns


@dataclass(frozen=True, eq=False)
class Log:
    """Logged decisions: arms by index, (n,), their rewards, NaN if none came, and their propensities."""

    arms: npt.NDArray[np.int64]
    rewards: FloatArray
    propensities: FloatArray

    @property
    def paid(self) -> npt.NDArray[np.bool_]:
        """Whether the reward of a round came."""
        return ~np.isnan(self.rewards)

    def part(self, rows: slice | npt.NDArray[np.bool_]) -> "Log":
        """Return some of the rounds."""
        return Log(self.arms[rows], self.rewards[rows], self.propensities[rows])


@dataclass(frozen=True, eq=False, repr=False)
class Table(Framed):
    """A checked table, one row per round.

    Attributes
    ----------
    name
        File name without its endings; "table" for a frame.
    columns
        The role of each column.
    arms
        Names of the arms.
    contexts
        (n, m); NaN if missing.
    features, feature_names
        (n, q), phases of the time and categories included; (n, k, q) if arms have their own features, whose names end
        with `@*`.
    rewards
        Every arm's reward, (n, k), NaN in rounds without the arm; None for a log.
    log
        Logged decisions; None if every arm's reward is known.
    notes
        Remarks on the table that matter for its results.
    elapsed
        Time steps that began since the row before, (n,); None if every row is a time step.
    skipped
        Number of earlier rows that were dropped.
    minimize
        Whether rewards are costs with their sign changed; results show costs.
    times
        The time of each row, if there is a column of times.
    tick
        The length of a time step for policies, if `time_unit` applies to timestamps; a policy with its own `tick` keeps
        that.
    keys
        The key of each row, (n,), if there is a column of keys: then a fleet plays the table.
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
    elapsed: npt.NDArray[np.int64] | None = None
    skipped: int = 0
    minimize: bool = False
    times: pl.Series | None = None
    tick: str | None = None
    keys: npt.NDArray[np.str_] | None = None

    @property
    def estimated(self) -> bool:
        """Whether the propensities of a log are estimated."""
        return self.columns.propensity == ESTIMATE

    @property
    def rounds(self) -> int:
        """Number of rounds n."""
        return len(self.features)

    @property
    def extent(self) -> str:
        """The number of rounds in words, and of all rows before them."""
        if not self.skipped:
            return count(self.rounds, "round")
        return f"the last {self.rounds:,} of {self.rounds + self.skipped:,} rounds"

    def _frame(self) -> dict[str, Any]:
        names = dict(zip(self.columns.contexts, self.contexts.T, strict=True))
        shared, own = self._feature_names
        own = [f"{name}{AT}{arm}" for arm in self.arms for name in own]
        names |= zip([*shared, *own], self.known.T, strict=True)
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
        return html_table(f"{self.name}: a {kind} of {self.rounds:,} rounds", rows, note="; ".join(self.notes))

    @property
    def known(self) -> FloatArray:
        """The features, (n, …): those that all arms share, then those of each arm."""
        if self.features.ndim == 2:
            return self.features
        shared = len(self._feature_names[0])
        return np.hstack([self.features[:, 0, :shared], self.features[:, :, shared:].reshape(self.rounds, -1)])

    @property
    def _feature_names(self) -> tuple[list[str], list[str]]:
        """Names of the features that all arms share, then of those of each arm."""
        own = [name.removesuffix(EACH) for name in self.feature_names if name.endswith(EACH)]
        return list(self.feature_names[: len(self.feature_names) - len(own)]), own

    @functools.cached_property
    def stamps(self) -> list[datetime] | None:
        """The time of each row in UTC, also for those without a zone; None without timestamps."""
        return stamps_of(self.times)

    @functools.cached_property
    def available(self) -> npt.NDArray[np.bool_] | None:
        """The available arms in each round, (n, k); None if all of them always were."""
        gone = np.isnan(self._every_reward)
        return ~gone if gone.any() else None

    @functools.cached_property
    def payoffs(self) -> FloatArray:
        """Every arm's reward, (n, k), with the mean of the available arms in place of the others.

        So the mean and the maximum of a row are those of the available arms, and an unavailable arm has the expected
        reward of a random choice.
        """
        if self.available is None:
            return self._every_reward
        return np.where(self.available, self._every_reward, np.nanmean(self._every_reward, axis=1, keepdims=True))

    @property
    def _every_reward(self) -> FloatArray:
        if self.rewards is None:
            raise InvalidInputError("table: this is a log, with one reward per round, and every arm's is needed")
        return self.rewards

    @property
    def missing(self) -> int:
        """Number of context entries that are missing."""
        return int(np.isnan(self.contexts).sum())


def read_table(
    data: str | os.PathLike[str] | Any,
    *,
    rewards: Sequence[str] = (),
    contexts: Sequence[str] = (),
    features: Sequence[str] = (),
    time: str | None = None,
    time_unit: str | None = None,
    phases: Sequence[str] = (),
    arm: str | None = None,
    reward: str | None = None,
    propensity: str | None = None,
    key: str | None = None,
    minimize: bool = False,
    encoding: str | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    date_format: str | None = None,
    na: Sequence[str] | None = None,
    every_arm: bool = False,
    rows: int | None = None,
) -> Table:
    """Read a table from a file or a frame; `undertow.replay.columns.find_columns` describes the default columns.

    Parameters
    ----------
    data
        A file with a known ending: Parquet (.parquet, .pq), Excel (.xlsx, its first sheet), JSON lines
        (.jsonl, .ndjson), text separated by tabs (.tsv) or else CSV, with column names in its first line; text may be
        compressed (.csv.gz). Or a frame of pandas or polars, or an Arrow table.
    rewards
        Columns with the reward of every arm, one column per arm. An arm was not available in rounds in which its reward
        is missing; rows without any reward are dropped.
    contexts
        Columns of measurements; empty cells and NaN are missing values.
    features
        Columns known before a round's decision. A column of words is one feature per category, 1 or 0. Columns of
        numbers `price@a`, `price@b`, …, one for every arm, are a feature of each arm.
    time
        Column of timestamps (2024-03-31, 2024-03-31 14:00, with or without a zone) or of numbers. It must increase;
        rounds of a log may share a time. By default one of that name, or a first column of dates.
    time_unit
        A time step of the hidden state: "second", "minute", "hour", "day" or "week" of the timestamps, or a number of
        units of a numeric time. Rows of the same time step have the same contexts, or lack them, and time steps without
        a row count. By default every row is a time step.
    phases
        Any of "hour", "weekday", "month": these phases of the time become features.
    arm, reward, propensity
        Columns of a log, in place of `rewards`; a propensity of "uniform" means one over the number of arms, and
        "estimate" estimates it from features and past contexts. If the reward is missing, none came.
    key
        Column that names a shop, a user, a machine: each key gets a bandit. Rows of different keys may share a time.
    minimize
        Whether rewards are costs, to be minimized; their sign is changed.
    encoding, separator
        Of a text file: an encoding that Python knows, and the character between cells. Recognised by default, as are
        the next three; a note names unusual ones.
    decimal
        The decimal mark, "." or ",".
    date_format
        The format of times: "dd.mm.yyyy hh:mm", or as in `strptime`. ISO 8601 needs none.
    na
        Words for a missing value, beside an empty cell; by default NA, NaN, n/a, null, -, ? and the like.
    every_arm
        Whether to read a table with the columns of a log and with rewards of every arm as the latter, not to refuse it.
    rows
        Number of rows to use, from the end; by default all.

    Examples
    --------
    >>> frame = pl.DataFrame({"reward_a": ["1,200.5", "900"], "reward_b": [1, 2], "feature_sky": ["rain", "sun"]})
    >>> table = read_table(frame)
    >>> table.features.tolist(), table.feature_names
    ([[1.0, 0.0], [0.0, 1.0]], ('feature_sky=rain', 'feature_sky=sun'))
    >>> for note in table.notes:
    ...     print(note)
    column 'reward_a': commas are read as thousands separators: 1,200.5 is 1200.5
    column 'feature_sky': 2 categories, each a feature that is 1 or 0: rain, sun
    """
    source = open_source(data, Reading(encoding, separator, decimal, date_format, na))
    if rows is not None:
        source = source.last(checks.integer("rows", rows, least=1))
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
            key=key,
            every_arm=every_arm,
        )
    except InvalidInputError as error:
        raise InvalidInputError(f"{source.place(-1)}: {textwrap.shorten(str(error), _LONGEST)}") from error
    if source.frame.height == 0:
        raise InvalidInputError(f"{source.label}: there are column names but no rows; add rows")
    sign, full = -1 if minimize else 1, None
    if not columns.logged:
        full = sign * numbers_of(source, columns.rewards, missing=True)
        source, full = source.with_some_arm(full)
        source.notes.extend(gap_notes(full, columns))
    columns = with_dates_first(source, columns)
    if key is not None and time_unit is not None:
        raise InvalidInputError("time_unit: each key counts its own rows; leave out time_unit, or key")
    keys = None if key is None else source.words(key, "the name of a key")
    if time_unit is not None and columns.time is None:
        raise InvalidInputError(f"{source.label}: time_unit: there is no column of times; name it with time")
    notes, elapsed, times, tick = source.notes, None, None, None
    known, feature_names = shared_features(source, [name for name in columns.features if AT not in name])
    if columns.time is not None:
        times = source.times(columns.time, dated=bool(columns.phases), ties=columns.logged or bool(key or time_unit))
        if time_unit is None:
            notes += step_notes(times) if key is None else []
        else:
            elapsed, note = time_steps_between(source, columns.time, times, time_unit)
            notes.append(note)
            tick = tick_of(times, time_unit)
        if columns.phases:
            calendar, names = phase_features(times, columns.phases)
            known, feature_names = np.hstack([known, calendar]), [*feature_names, *names]
    observed = numbers_of(source, columns.contexts, missing=True)
    if elapsed is not None:
        try:
            with_one_context(observed, elapsed == 0, last=False)
        except InvalidInputError as error:
            raise InvalidInputError(f"{source.label}: {error}") from error
    arms, log = columns.arms, None
    if columns.logged:
        log, arms = _log(source, columns, sign, np.hstack([known, _before(observed)]))
        notes += [ESTIMATED] if columns.propensity == ESTIMATE else []
        notes += [*unpaid_notes(log.paid), *propensity_notes(log.arms, log.propensities, arms)]
    notes += offset_notes(full if log is None else log.rewards[log.paid, None])
    if of_arms := [name for name in columns.features if AT in name]:
        own, names = features_of_arms(source, of_arms, arms)
        shared = np.broadcast_to(known[:, None], (len(known), len(arms), known.shape[1]))
        known, feature_names = np.concatenate([shared, own], axis=2), [*feature_names, *names]
    said = (*source.reading.remark(), *notes)
    parts = (columns, arms, observed, known, tuple(feature_names), full, log, said)
    more = (elapsed, source.skipped, minimize, times, tick)
    return Table(table_name(data), *parts, *more, None if keys is None else np.array(keys.names)[keys.places])


def require_table(table: object) -> None:
    """Refuse a table that was not read yet."""
    if not isinstance(table, Table):
        kind = type(table).__name__
        raise InvalidInputError(f"table: expected a table, got {kind}; read it first, with read_table(…)")


def _before(contexts: FloatArray) -> FloatArray:
    """Return the contexts of the round before, with zeros for missing entries."""
    return np.nan_to_num(np.vstack([np.zeros((1, contexts.shape[1])), contexts[:-1]]))


def _log(source: Source, columns: Columns, sign: int, inputs: FloatArray) -> tuple[Log, tuple[str, ...]]:
    assert columns.arm is not None
    assert columns.reward is not None
    assert columns.propensity is not None
    arms, played = source.words(columns.arm)
    if len(arms) < 2:
        raise InvalidInputError(
            f"{source.label}: column {columns.arm!r:.80}: expected at least two arms, got {arms[0]!r:.80} alone; name "
            "the column of the played arms"
        )
    if columns.propensity == UNIFORM:
        chances = np.full(source.frame.height, 1 / len(arms))
    elif columns.propensity == ESTIMATE:
        chances = estimated_propensities(played, len(arms), inputs)
    else:
        chances = source.numbers(columns.propensity)
        if (wrong := np.flatnonzero((chances < _LEAST_CHANCE) | (chances > 1))).size:
            at = int(wrong[0])
            raise InvalidInputError(
                f"{source.place(at, columns.propensity)}: expected a probability above 0 and at most 1, got "
                f"{chances[at]:g}"
                + (f"; events with a probability below {_LEAST_CHANCE:g} do not happen" if 0 < chances[at] < 1 else "")
                + "; write the probability with which the arm of the row was chosen"
            )
    rewards = sign * source.numbers(columns.reward, missing=True)
    if np.isnan(rewards).all():
        raise InvalidInputError(f"{source.label}: column {columns.reward!r:.80}: there is no reward at all; fill it in")
    return Log(played, rewards, chances), arms
