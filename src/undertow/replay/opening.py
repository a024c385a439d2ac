"""Tables as they come: text files, Parquet, Excel, JSON lines, and frames of other packages."""

import csv
import gzip
import itertools
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import polars as pl

from undertow.errors import InvalidInputError
from undertow.replay.cells import is_number
from undertow.replay.columns import separator_hint
from undertow.replay.source import Source
from undertow.reporting.numbers import count

__all__ = ["kind_of", "open_source", "table_name"]

_KINDS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "excel",
    ".xlsm": "excel",
    ".xls": "excel",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".tsv": "tsv",
    ".tab": "tsv",
}
_BROKEN = (pl.exceptions.PolarsError, UnicodeDecodeError, OSError, EOFError, zlib.error)
_INDEX = "the first column has no name, like an index that pandas wrote; it is ignored"


def kind_of(path: Path) -> str:
    """Return what kind of table a file holds, by its name: parquet, excel, json, tsv or csv."""
    return _KINDS.get(Path(path.name.lower().removesuffix(".gz")).suffix, "csv")


def table_name(data: Any) -> str:
    """Return the name of a file without its endings, as far as that can be the name of a folder."""
    if not isinstance(data, str | os.PathLike):
        return "table"
    path = Path(data)
    stem = Path(path.name.removesuffix(".gz")).stem
    return stem if stem.strip(".") else path.name


def open_source(data: Any, separator: str | None) -> Source:
    """Open a file, by the ending of its name, or a frame, and check that its columns have names and its rows cells."""
    if isinstance(data, str | os.PathLike):
        return _open_file(Path(data), separator)
    frame = _frame(data)
    frame.columns = _frame_names(frame.columns)
    return Source("table", frame, _row)


def _open_file(path: Path, separator: str | None) -> Source:
    if path.is_dir():
        raise InvalidInputError(f"{path}: this is a folder; give a file in it, such as a CSV or Parquet file")
    if not path.is_file():
        raise InvalidInputError(f"{path}: there is no such file; check its name and folder")
    kind = kind_of(path)
    separator = separator or ("\t" if kind == "tsv" else ",")
    if not isinstance(separator, str) or len(separator.encode()) != 1:
        raise InvalidInputError(f"separator: expected one character, got {separator!r}")
    try:
        if kind == "parquet":
            source = Source(str(path), pl.read_parquet(path, glob=False), _row)
        elif kind == "excel":
            source = Source(str(path), _read_excel(path), _sheet_row)
        elif kind == "json":
            source = Source(str(path), _read_json_lines(path), partial(_json_line, path))
        else:
            return _open_text(path, separator)
    except _BROKEN as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInputError(f"{path}: it cannot be read ({reason}); save it again, perhaps as CSV") from error
    names = [name.strip() for name in source.frame.columns]
    _check_names(names, source.place(-1))
    source.frame.columns = names
    return _without_index(source)


def _row(row: int) -> str:
    return f"row {row + 1}" if row >= 0 else "the header"


def _sheet_row(row: int) -> str:
    return f"row {row + 2}"  # the first row of a sheet is the header


def _without_index(source: Source) -> Source:
    """Leave out a first column without a name."""
    if source.frame.columns[:1] != [""]:
        return source
    return Source(source.label, source.frame[:, 1:], source.where, source.commas_are_decimal, [_INDEX])


def _without_blank_end(frame: pl.DataFrame) -> pl.DataFrame:
    """Leave out empty lines at the end."""
    blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
    filled = (~blank).arg_true()
    return frame[: filled[-1] + 1 if len(filled) else 0]


def _check_names(names: Sequence[str], where: str, remedy: str = "put a line of names before them") -> None:
    """Refuse missing and repeated column names; the first may be missing."""
    if not names:
        raise InvalidInputError(f"{where}: there are no columns; add some")
    for place, name in enumerate(names, start=1):
        if not name and place > 1:
            raise InvalidInputError(f"{where}: column {place} has no name; give it one")
        if names.count(name) > 1:
            raise InvalidInputError(f"{where}: two columns are called {name!r:.80}; rename one of them")
    if all(is_number(name) for name in names if name):
        raise InvalidInputError(f"{where}: expected names of columns, got numbers; {remedy}")


# Text


def _open_text(path: Path, separator: str) -> Source:
    """Read CSV as text, so that every column is converted by itself and a bad cell is known by its row."""
    try:
        line, header = next(_lines(path, separator), (0, []))
        if not header:
            raise InvalidInputError(f"{path}: the file is empty; expected a line with the names of the columns")
        _check_names([name.strip() for name in header], f"{path}: line {line}")
        content: Any = _content(path) if _zipped(path) else path
        frame = pl.read_csv(content, infer_schema=False, separator=separator, glob=False)
    except _BROKEN as error:
        _check_zip(path)
        _check_lines(path, separator)
        _check_quotes(path)
        raise InvalidInputError(f"{path}: it cannot be read ({str(error).splitlines()[0]}); write it again") from error
    if not frame.height and b"\r" in _content(path).strip():
        raise InvalidInputError(f"{path}: all is one line: lines end as on old Macs; save it with usual line ends")
    frame = _without_blank_end(frame.rename(str.strip))
    if frame[:, -1].null_count():  # the sign of a line that ends early
        _check_lines(path, separator)
    where = partial(_csv_line, path, separator)
    return _without_index(Source(str(path), frame, where, commas_are_decimal=separator == ";"))


def _zipped(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


def _content(path: Path) -> bytes:
    with gzip.open(path) if _zipped(path) else path.open("rb") as raw:
        return raw.read()


def _text(path: Path) -> IO[str]:
    if _zipped(path):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _lines(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the header and all rows after it, each with the line at which it begins."""
    with _text(path) as lines:
        reader, first, begun = csv.reader(lines, delimiter=separator), 1, False
        try:
            for cells in reader:
                begun |= bool(cells)
                if begun:  # empty lines may come before the header
                    yield first, cells
                first = reader.line_num + 1
        except csv.Error as error:
            raise InvalidInputError(f"{path}: line {first}: {error}; shorten or correct its cells") from error


def _csv_line(path: Path, separator: str, row: int) -> str:
    """Return the line of a row, counted as in an editor."""
    line = next(itertools.islice((line for line, _ in _lines(path, separator)), row + 1, None), None)
    return f"row {row + 1}" if line is None else f"line {line}"


def _check_zip(path: Path) -> None:
    """Refuse a compressed file that is damaged."""
    if _zipped(path):
        try:
            _content(path)
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidInputError(f"{path}: not a gzip file, or damaged ({error}); write it again") from error


def _check_lines(path: Path, separator: str) -> None:
    """Refuse the first line that is not UTF-8, or that has more or fewer cells than there are columns."""
    for line, content in enumerate(_content(path).splitlines(), start=1):
        try:
            content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidInputError(
                f"{path}: line {line} is not UTF-8 text ({error.reason}); save the file as UTF-8"
            ) from error
    _, names = next(_lines(path, separator), (0, []))
    for line, row in _lines(path, separator):
        if row and len(row) != len(names):
            remedy = separator_hint(names) or "complete it, and put cells that hold a separator into quotation marks"
            wanted = count(len(names), "cell")
            raise InvalidInputError(f"{path}: line {line}: expected {wanted}, got {len(row)}; {remedy}")


def _check_quotes(path: Path) -> None:
    """Refuse the first line in which a quotation mark is left open, as an inch sign does."""
    with _text(path) as lines:
        for line, content in enumerate(lines, start=1):
            if content.count('"') % 2:
                raise InvalidInputError(
                    f"{path}: line {line}: a quotation mark is left open; put a cell that holds one into quotation "
                    'marks, and double its own: "5"" pipe"'
                )


# Excel and JSON lines


def _read_excel(path: Path) -> pl.DataFrame:
    try:
        import fastexcel
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f"{path}: sheets of Excel need fastexcel; pip install 'undertow[excel]', or save the sheet as CSV"
        ) from error
    try:
        frame = pl.read_excel(path, drop_empty_rows=False)
    except fastexcel.FastExcelError as error:
        raise InvalidInputError(f"{path}: not an Excel file, or damaged; save the sheet as CSV") from error
    return _without_blank_end(frame)


def _read_json_lines(path: Path) -> pl.DataFrame:
    content = _content(path)
    if not content.strip():
        raise InvalidInputError(f"{path}: the file is empty; expected one JSON object per line")
    try:
        return pl.read_ndjson(content, infer_schema_length=None)
    except (pl.exceptions.PolarsError, UnicodeDecodeError):
        for line, text in _json_lines(content):
            _check_object(text, f"{path}: line {line}")
        raise


def _json_lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    lines = enumerate(content.split(b"\n"), start=1)
    return ((line, text) for line, text in lines if text.strip())


def _json_line(path: Path, row: int) -> str:
    lines = _json_lines(_content(path))
    return "the header" if row < 0 else f"line {next(itertools.islice(lines, row, None))[0]}"


def _check_object(text: bytes, where: str) -> None:
    """Refuse a line that is no JSON object."""

    def no_number(word: str) -> None:
        raise InvalidInputError(f"{where}: {word} is not JSON; write null for a missing value")

    try:
        entry = json.loads(text, parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            f"{where}: expected a JSON object, got {text[:60]!r} ({error}); write one object per line"
        ) from error
    if not isinstance(entry, dict):
        raise InvalidInputError(f"{where}: expected a JSON object, got {text[:60]!r}; write one object per line")


# Frames


def _frame(data: Any) -> pl.DataFrame:
    """Return a frame of polars or pandas, or anything that gives Arrow data, as a frame of polars."""
    if isinstance(data, pl.LazyFrame):
        return data.collect()
    if isinstance(data, pl.DataFrame):
        return data.clone()
    if type(data).__module__.partition(".")[0] == "pandas":
        if hasattr(data, "columns"):  # a series has none
            return _from_pandas(data)
    elif hasattr(data, "__arrow_c_stream__"):
        try:
            return pl.DataFrame(data)
        except pl.exceptions.PolarsError as error:  # such as two columns of one name
            raise InvalidInputError(f"table: it cannot be read ({error}); correct it") from error
    kind = type(data).__name__
    raise InvalidInputError(
        f"data: expected the name of a file, a frame of pandas or polars, or an Arrow table, got {kind}"
    )


def _frame_names(given: Iterable[object]) -> list[str]:
    """Return the names of a frame's columns as text, checked."""
    names = [str(name).strip() for name in given]
    _check_names(names, "table: the header", "rename the columns")
    return names


def _from_pandas(data: Any) -> pl.DataFrame:
    """Convert column by column, without pyarrow; an index with a name is a column too."""
    levels = [name for name in data.index.names if name is not None]
    _frame_names([*levels, *data.columns])  # pandas and polars would stumble over a name that is there twice
    if levels:
        data = data.reset_index()
    return pl.DataFrame([_series(data.iloc[:, place], str(name)) for place, name in enumerate(data.columns)])


def _series(column: Any, name: str) -> pl.Series:
    if getattr(column.dtype, "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    values = column.to_numpy()
    if values.dtype.kind in "biufM":
        return pl.Series(name, values)
    cells = [None if gone else cell for cell, gone in zip(column.tolist(), column.isna(), strict=True)]
    return pl.Series(name, cells, strict=False)
