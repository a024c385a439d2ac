"""Sources of tables: text files, Parquet, Excel, JSON lines, and frames of other packages."""

import itertools
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from undertow.errors import InvalidInputError
from undertow.replay.reading import Reading
from undertow.replay.source import Source
from undertow.replay.text_files import BROKEN, check_names, content_of, open_text, without_blank_end

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
_INDEX = "the first column has no name, like an index that pandas wrote; it is ignored"


def kind_of(path: Path) -> str:
    """Return the format of a file by its name: parquet, excel, json, tsv or csv."""
    return _KINDS.get(Path(path.name.lower().removesuffix(".gz")).suffix, "csv")


def table_name(data: Any) -> str:
    """Return the name of a file without its endings, without characters that a folder's name cannot have."""
    if not isinstance(data, str | os.PathLike):
        return "table"
    path = Path(data)
    stem = Path(path.name.removesuffix(".gz")).stem
    return stem if stem.strip(".") else path.name


def open_source(data: Any, reading: Reading) -> Source:
    """Open a file, by the ending of its name, or a frame, and check that its columns have names and its rows cells."""
    if isinstance(data, str | os.PathLike):
        return _open_file(Path(data), reading)
    frame = _frame(data)
    frame.columns = _frame_names(frame.columns)
    return Source("table", frame, _row, reading)


def _open_file(path: Path, reading: Reading) -> Source:
    if path.is_dir():
        raise InvalidInputError(f"{path}: this is a folder; pass a file in it, such as a CSV or Parquet file")
    if not path.exists():
        raise InvalidInputError(f"{path}: there is no such file; check its name and folder")
    if not path.is_file():
        raise InvalidInputError(f"{path}: this is a pipe or a device, and a table is read twice; save it to a file")
    kind = kind_of(path)
    try:
        if kind == "parquet":
            source = Source(str(path), pl.read_parquet(path, glob=False), _row, reading)
        elif kind == "excel":
            source = Source(str(path), _read_excel(path), _sheet_row, reading)
        elif kind == "json":
            source = Source(str(path), _read_json_lines(path), partial(_json_line, path), reading)
        else:
            return _without_index(open_text(path, reading, "\t" if kind == "tsv" else ","))
    except BROKEN as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInputError(f"{path}: it cannot be read ({reason}); save it again, perhaps as CSV") from error
    names = [name.strip() for name in source.frame.columns]
    check_names(names, source.place(-1))
    source.frame.columns = names
    return _without_index(source)


def _row(row: int) -> str:
    return f"row {row + 1}" if row >= 0 else "the header"


def _sheet_row(row: int) -> str:
    return f"row {row + 2}"  # the first row of a sheet is the header


def _without_index(source: Source) -> Source:
    """Drop a first column without a name."""
    if source.frame.columns[:1] != [""]:
        return source
    return replace(source, frame=source.frame[:, 1:], notes=[_INDEX])


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
    return without_blank_end(frame)


def _read_json_lines(path: Path) -> pl.DataFrame:
    content = content_of(path)
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
    lines = _json_lines(content_of(path))
    return "the header" if row < 0 else f"line {next(itertools.islice(lines, row, None))[0]}"


def _check_object(text: bytes, where: str) -> None:
    """Refuse a line that is not a JSON object."""

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
    """Return the checked names of a frame's columns as strings."""
    names = [str(name).strip() for name in given]
    check_names(names, "table: the header", "rename the columns")
    return names


def _from_pandas(data: Any) -> pl.DataFrame:
    """Convert column by column, without pyarrow; an index with a name is a column too."""
    levels = [name for name in data.index.names if name is not None]
    _frame_names([*levels, *data.columns])  # pandas and polars fail on repeated names
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
