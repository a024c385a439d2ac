"""Cells of a CSV or Parquet file; error messages name the line and column."""

import csv
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from undertow._checks import LARGEST, FloatArray
from undertow.errors import InvalidInputError
from undertow.replay.columns import separator_hint

__all__ = ["Source", "is_number", "open_source"]

_NUMBER = "expected a number"
_MISSING = ("", "nan", "na", "n/a", "null", "none")


@dataclass(frozen=True, eq=False)
class Source:
    """A file as a frame: of text where it is CSV, typed where it is Parquet."""

    path: Path
    frame: pl.DataFrame
    separator: str | None  # None for Parquet

    def place(self, row: int, column: str | None = None) -> str:
        """Return the place of a row, counted from 0 (−1 for the header); CSV lines are numbered as in an editor."""
        where = f"row {row + 1}"
        if self.separator is not None:
            for line, _ in itertools.islice(_lines(self.path, self.separator), row + 2):
                where = f"line {line}"
        elif row < 0:
            where = "the schema"
        return f"{self.path}: {where}" + (f", column {column!r:.80}" if column else "")

    def numbers(self, column: str, *, missing: bool = False) -> FloatArray:
        """Return a column of finite numbers; if values may be missing, they are NaN."""
        cells = self.frame[column]
        if cells.dtype == pl.String:
            text = cells.fill_null("").str.strip_chars()
            empty = text.str.to_lowercase().is_in(_MISSING)
            values = text.set(empty, "nan").cast(pl.Float64, strict=False)
            comma = text.filter(values.is_null()).head(1).str.contains(r"^[+-]?\d+,\d+$").any()
            self._refuse(values.is_null(), column, "expected a number with a decimal point" if comma else _NUMBER)
        elif cells.dtype.is_numeric() or cells.dtype == pl.Boolean:
            values = cells.cast(pl.Float64).fill_null(np.nan)
        else:
            raise InvalidInputError(f"{self.path}: column {column!r:.80}: expected numbers, got {cells.dtype}")
        self._refuse(values.is_infinite(), column, "expected a finite number")
        self._refuse(values.fill_nan(0.0).abs() >= LARGEST, column, f"expected a number below {LARGEST:g} in size")
        if not missing:
            wanted = "expected a number (only contexts may be missing; fill the cell or drop the row)"
            self._refuse(values.is_nan(), column, wanted)
        return values.to_numpy().astype(np.float64)

    def words(self, column: str) -> list[str]:
        """Return a column of names; none may be missing."""
        cells = self.frame[column]
        if cells.dtype.is_float() and (cells.abs() < 2**53).all() and (cells == cells.round()).all():
            cells = cells.cast(pl.Int64)
        text = cells.cast(pl.String).fill_null("").str.strip_chars()
        self._refuse(text.str.to_lowercase().is_in(_MISSING), column, "expected the name of an arm")
        return text.to_list()

    def times(self, column: str, *, dated: bool) -> pl.Series:
        """Return a column of times, checked to increase; as timestamps where `dated`."""
        cells = self.frame[column]
        if cells.dtype == pl.String:
            text = cells.fill_null("").str.strip_chars()
            values = text.cast(pl.Float64, strict=False)
            if dated or values.null_count():
                values = _timestamps(text)
                self._refuse(values.is_null(), column, "expected a timestamp such as 2024-03-31 or 2024-03-31 14:00")
        elif dated and cells.dtype in (pl.Duration, pl.Time):
            raise InvalidInputError(
                f"{self.path}: column {column!r:.80}: phases need timestamps with a date, and these are {cells.dtype}"
            )
        elif cells.dtype.is_temporal():
            values = cells.cast(pl.Datetime("us")) if cells.dtype == pl.Date else cells
        else:
            values = pl.Series(self.numbers(column))
            if dated:
                raise InvalidInputError(
                    f"{self.path}: column {column!r:.80}: phases need timestamps, and these are {cells.dtype}"
                )
        self._refuse(values.is_null(), column, "expected a time")
        before = values.shift(1)
        for wrong, words in (
            (values == before, "the same time as in the row before"),
            (values < before, "earlier than the row before; sort the rows by time"),
        ):
            if wrong.any():
                row = int(wrong.fill_null(False).arg_max() or 0)
                raise InvalidInputError(f"{self.place(row, column)}: {self._cell(row, column)} is {words}")
        return values

    def _refuse(self, wrong: pl.Series, column: str, wanted: str) -> None:
        if wrong.any():
            row = int(wrong.arg_max() or 0)
            raise InvalidInputError(f"{self.place(row, column)}: {wanted}, got {self._cell(row, column)}")

    def _cell(self, row: int, column: str) -> str:
        value = self.frame[column][row]
        words = f"{value!r:.80}" if isinstance(value, str) else str(value)
        return "nothing" if value is None or value == "" else words


def open_source(path: Path, separator: str) -> Source:
    """Open a Parquet file (.parquet or .pq) or else a CSV file, and check that its rows are complete."""
    if path.is_dir():
        raise InvalidInputError(f"{path}: this is a folder; name a file in it, CSV or Parquet")
    if not path.is_file():
        raise InvalidInputError(f"{path}: there is no such file")
    if len(separator.encode()) != 1:
        raise InvalidInputError(f"separator: expected one character, got {separator!r}")
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return Source(path, pl.read_parquet(path, glob=False), None)
        _check_header(path, separator)
        frame = pl.read_csv(path, infer_schema=False, separator=separator, glob=False)
    except (pl.exceptions.PolarsError, UnicodeDecodeError, OSError) as error:
        if path.suffix.lower() not in (".parquet", ".pq"):
            _check_lines(path, separator)
            _check_quotes(path)
        raise InvalidInputError(f"{path}: it cannot be read ({str(error).splitlines()[0]})") from error
    frame = frame.rename(str.strip)
    blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
    while blank.len() and blank[-1]:  # empty lines at the end
        blank = blank[:-1]
    frame = frame[: blank.len()]
    if frame[:, -1].null_count():  # the sign of a line that ends early
        _check_lines(path, separator)
    return Source(path, frame, separator)


def _timestamps(text: pl.Series) -> pl.Series:
    """Read ISO 8601, year first; other formats are ambiguous in day and month."""
    iso = text.set(~text.str.contains(r"^\d{4}-\d{2}-\d{2}"), None)
    try:
        return iso.str.to_datetime(strict=False)
    except pl.exceptions.PolarsError:  # not one of them has a known format
        return pl.Series([None] * len(text), dtype=pl.Datetime("us"))


def _check_header(path: Path, separator: str) -> None:
    """Refuse missing and repeated column names."""
    line, header = next(_lines(path, separator), (0, []))
    if not header:
        raise InvalidInputError(f"{path}: the file is empty")
    names, where = [name.strip() for name in header], f"{path}: line {line}"
    for place, name in enumerate(names, start=1):
        if not name:
            raise InvalidInputError(f"{where}: column {place} has no name")
        if names.count(name) > 1:
            raise InvalidInputError(f"{where}: two columns are called {name!r:.80}")
    if all(is_number(name) for name in names):
        raise InvalidInputError(f"{where}: expected names of columns, got numbers")


def _check_lines(path: Path, separator: str) -> None:
    """Refuse the first line that is not UTF-8, or that has more or fewer cells than there are columns."""
    with path.open("rb") as raw:
        for line, content in enumerate(raw, start=1):
            try:
                content.decode("utf-8")
            except UnicodeDecodeError as error:
                raise InvalidInputError(f"{path}: line {line} is not UTF-8 text ({error.reason})") from error
    _, names = next(_lines(path, separator), (0, []))
    for line, row in _lines(path, separator):
        if row and len(row) != len(names):
            hint = separator_hint(names)
            wrong = f"{path}: line {line}: expected {len(names)} cells, got {len(row)}"
            raise InvalidInputError(wrong + (f"; {hint}" if hint else ""))


def _check_quotes(path: Path) -> None:
    """Refuse the first line in which a quotation mark is left open, as an inch sign does."""
    with path.open(encoding="utf-8-sig", newline="") as lines:
        for line, content in enumerate(lines, start=1):
            if content.count('"') % 2:
                raise InvalidInputError(
                    f"{path}: line {line}: a quotation mark is left open; put a cell that holds one into quotation "
                    'marks, and double its own: "5"" pipe"'
                )


def _lines(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the header and all rows after it, each with the line at which it begins."""
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader, first, begun = csv.reader(lines, delimiter=separator), 1, False
        for cells in reader:
            begun |= bool(cells)
            if begun:  # empty lines may come before the header
                yield first, cells
            first = reader.line_num + 1


def is_number(word: str) -> bool:
    """Tell whether a word reads as a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True
