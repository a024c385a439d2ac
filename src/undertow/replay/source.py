"""Cells of a table; error messages name line, column and value, and the remedy."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from undertow.errors import InvalidInputError
from undertow.replay.cells import decimal_mark, missing_cells, read_numbers, tidy
from undertow.replay.dates import read_times
from undertow.replay.reading import Reading
from undertow.support.checks import LARGEST, FloatArray
from undertow.support.numbers import count

__all__ = ["CONTROL", "Source", "Words"]

CONTROL = "[\x00-\x08\x0e-\x1f\x7f-\x9f]"  # control codes of a terminal; a name may have a line feed or a tab


_MOST_CATEGORIES = 50
_LIKE_A_NUMBER = r"^[+-]?[\d.,'’%\s]+$"
_GROUPED_DECIMAL = r"\d\.\d{3},\d"  # so the meaning of the points is clear
_MAY_LACK = "correct the cell, or leave it empty; --na names words for a missing value"
_MUST_HAVE = "correct the cell, or drop the row"


class Words(NamedTuple):
    """A column of names: the names in order, and the index of each row's name, (n,)."""

    names: tuple[str, ...]
    places: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Source:
    """A raw table: a frame, of strings for a text file, and the places of its rows.

    Attributes
    ----------
    label
        The table's name in messages: its file.
    frame
        The cells.
    where
        Returns the place of a row, counted from 0; −1 is the header.
    reading
        The formats of cells.
    usual_decimal
        The decimal mark of such a table, if its numbers do not tell.
    notes
        Notes for the reader on the formats of cells.
    skipped
        Number of rows of the table before those of the frame.
    """

    label: str
    frame: pl.DataFrame
    where: Callable[[int], str]
    reading: Reading = field(default_factory=Reading)
    usual_decimal: str = "."
    notes: list[str] = field(default_factory=list)
    skipped: int = 0

    def last(self, rows: int) -> "Source":
        """Return the last rows; itself if there are no more."""
        before = self.frame.height - rows
        if before <= 0:
            return self
        note = (
            f"of {self.frame.height:,} rows, the last {rows:,} are used, and the others are not read; "
            f"--rows {self.frame.height} uses all"
        )
        self.notes.append(note)
        return replace(self.part(np.arange(before, self.frame.height)), skipped=before)

    def part(self, rows: npt.NDArray[np.int64]) -> "Source":
        """Return some of the rows."""
        return replace(self, frame=self.frame[rows], where=lambda row: self.where(int(rows[row]) if row >= 0 else row))

    def with_some_arm(self, rewards: FloatArray) -> tuple["Source", FloatArray]:
        """Drop the rows in which no arm has a reward."""
        some = ~np.isnan(rewards).all(axis=1)
        if some.all():
            return self, rewards
        if not some.any():
            raise InvalidInputError(f"{self.label}: no arm has a reward in any row; name the columns of the rewards")
        self.notes.append(f"left out: {count(int((~some).sum()), 'row')} without any reward")
        return self.part(np.flatnonzero(some)), rewards[some]

    @cached_property
    def decimal(self) -> str:
        """The decimal mark of the table, if its text determines one."""
        columns = [cells for cells in self.frame.iter_columns() if _is_text(cells)]
        return self.reading.decimal or decimal_mark(columns, self.usual_decimal)

    def place(self, row: int, column: str | None = None) -> str:
        """Return the place of a row, counted from 0 (−1 for the header), and of a column."""
        return f"{self.label}: {self.where(row)}" + (f", column {column!r:.80}" if column else "")

    def numbers(self, column: str, *, missing: bool = False) -> FloatArray:
        """Return a column of finite numbers; if values may be missing, they are NaN."""
        cells = self.frame[column]
        if _is_text(cells):
            text = tidy(cells)
            values, note = self._read_numbers(text)
            if note and not text.str.contains(_GROUPED_DECIMAL).any():
                self.notes.append(f"column {column!r:.80}: {note}")
            self._refuse(values.is_null(), column, "expected a number", _MAY_LACK if missing else _MUST_HAVE)
            self._tell_missing(text.filter(values.is_nan()))
        elif cells.dtype.is_numeric() or cells.dtype == pl.Boolean:
            values = cells.cast(pl.Float64).fill_null(np.nan)
            if self.reading.na is not None:
                standing_for_none = pl.Series(self.reading.missing).cast(pl.Float64, strict=False).drop_nulls()
                values = values.set(values.is_in(standing_for_none), np.nan)
        else:
            remedy = "name it as the time" if cells.dtype.is_temporal() else "convert it, or leave the column out"
            raise self._odd_column(column, f"expected numbers, got {cells.dtype}; {remedy}")
        remedy = _MAY_LACK if missing else _MUST_HAVE
        self._refuse(values.is_infinite(), column, "expected a finite number", remedy)
        wanted = f"expected a number below {LARGEST:g} in size"
        self._refuse(values.fill_nan(0.0).abs() >= LARGEST, column, wanted, remedy)
        if not missing:
            wanted = "expected a number (only contexts and rewards may be missing)"
            self._refuse(values.is_nan(), column, wanted, "fill the cell, or drop the row")
        return values.to_numpy().astype(np.float64)

    def _read_numbers(self, text: pl.Series) -> tuple[pl.Series, str]:
        """Read numbers with the decimal mark of the table or, if that fails and none was given, the other."""
        other = [] if self.reading.decimal else ["." if self.decimal == "," else ","]
        ways = []
        for mark in (self.decimal, *other):
            values, note = read_numbers(text, decimal=mark, missing=self.reading.missing)
            if not values.null_count():
                if mark == "," and not self.reading.decimal and text.str.contains(r"\d,\d").any():
                    self.reading.recognised("decimal", "','")
                return values, note
            ways.append((values, note))
        return min(ways, key=lambda way: way[0].null_count())

    def _tell_missing(self, text: pl.Series) -> None:
        if self.reading.na is None:
            for word in text.filter(text != "").unique(maintain_order=True):
                self.reading.recognised("na", repr(word))

    def features(self, column: str) -> tuple[FloatArray, list[str]]:
        """Return the features of a column, (n, q), and their names: its numbers, or one for each category."""
        if not self._holds_categories(column):
            return self.numbers(column)[:, None], [column]
        words = self.words(column, "a category")
        size = len(words.names)
        if size > _MOST_CATEGORIES:
            raise InvalidInputError(
                f"{self.place(0, column)}: expected numbers, or at most {_MOST_CATEGORIES} categories, got {size} "
                f"different words, the first of them {self._cell(0, column)}; group them, or leave the column out"
            )
        names = [f"{column}={word}" for word in words.names]
        listed = ", ".join(words.names)
        found = count(size, "category", "categories")
        self.notes.append(f"column {column!r:.80}: {found}, each a feature that is 1 or 0: {listed:.200}")
        return (words.places[:, None] == np.arange(size)).astype(np.float64), names

    def _holds_categories(self, column: str) -> bool:
        """Whether a column holds words, without a single number or attempt at one."""
        if not _is_text(self.frame[column]):
            return False
        text = tidy(self.frame[column])
        text = text.filter(~missing_cells(text, self.reading.missing))
        values, _ = read_numbers(text, decimal=self.decimal)
        return len(text) > 0 and values.null_count() == len(text) and not text.str.contains(_LIKE_A_NUMBER).any()

    def words(self, column: str, what: str = "the name of an arm") -> Words:
        """Return a column of names, numbers among them in the order of numbers; none may be missing."""
        cells = self.frame[column]
        if cells.dtype.is_float() and (cells.abs() < 2**53).all() and (cells == cells.round()).all():
            cells = cells.cast(pl.Int64)
        text = tidy(cells)
        missing = missing_cells(text, self.reading.missing)
        self._refuse(missing, column, f"expected {what}", "fill the cell, or drop the row")
        wanted = f"expected {what} without control codes"
        self._refuse(text.str.contains(CONTROL), column, wanted, "a terminal would obey them; rename it")
        names = text.unique()
        order = pl.DataFrame({"name": names, "size": names.cast(pl.Float64, strict=False)})
        names = order.sort("size", "name", nulls_last=True)["name"]
        places = text.replace_strict(names, pl.Series(range(len(names))), return_dtype=pl.Int64)
        return Words(tuple(names), places.to_numpy())

    def times(self, column: str, *, dated: bool, ties: bool) -> pl.Series:
        """Return a column of times, checked to increase (or, with `ties`, not to fall); timestamps if `dated`."""
        cells = self.frame[column]
        if _is_text(cells):
            text = tidy(cells)
            values = text.cast(pl.Float64, strict=False)
            if dated or values.null_count() or self.reading.date_format:
                values, form = read_times(text, self.reading.date_format)
                wanted = f"expected a time as {self.reading.date_format or form or '2024-03-31 14:00'}"
                remedy = "correct it, or say how times are written, as with --date-format dd.mm.yyyy"
                if form == "?":
                    wanted, remedy = (
                        "day and month could be exchanged",
                        "say which is first, as --date-format dd/mm/yyyy",
                    )
                self._refuse(values.is_null(), column, wanted, remedy)
                if form:
                    self.reading.recognised("date_format", form)
        elif dated and (cells.dtype in (pl.Duration, pl.Time) or not cells.dtype.is_temporal()):
            needed = f"phases need timestamps with a date, and these are {cells.dtype}"
            raise self._odd_column(column, f"{needed}; convert the column, or leave out the phases")
        elif cells.dtype.is_temporal():
            values = cells.cast(pl.Datetime("us")) if cells.dtype == pl.Date else cells
        else:
            values = pl.Series(self.numbers(column))
        self._refuse(values.is_null(), column, "expected a time", "fill the cell, or drop the row")
        before = values.shift(1)
        self._refuse_time(values < before, column, "earlier than the row before; sort the rows by time")
        if not ties:
            words = "the same time as in the row before; drop one of the two, or name another column as the time"
            self._refuse_time(values == before, column, words)
        return values

    def _refuse_time(self, wrong: pl.Series, column: str, words: str) -> None:
        if wrong.any():
            row = int(wrong.fill_null(False).arg_max() or 0)
            raise InvalidInputError(f"{self.place(row, column)}: {self._cell(row, column)} is {words}")

    def _refuse(self, wrong: pl.Series, column: str, wanted: str, remedy: str) -> None:
        if wrong.any():
            row = int(wrong.arg_max() or 0)
            raise InvalidInputError(f"{self.place(row, column)}: {wanted}, got {self._cell(row, column)}; {remedy}")

    def _odd_column(self, column: str, words: str) -> InvalidInputError:
        return InvalidInputError(f"{self.label}: column {column!r:.80}: {words}")

    def _cell(self, row: int, column: str) -> str:
        value = self.frame[column][row]
        words = f"{value!r:.80}" if isinstance(value, str) else str(value)
        return "nothing" if value is None or value == "" else words


def _is_text(cells: pl.Series) -> bool:
    return cells.dtype in (pl.String, pl.Categorical, pl.Enum)
