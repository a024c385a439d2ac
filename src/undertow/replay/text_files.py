"""Text files as tables: their encoding, the separator of their cells, and the line of every row."""

import codecs
import csv
import gzip
import itertools
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any

import polars as pl

from undertow.errors import InvalidInputError
from undertow.replay.columns import separator_hint
from undertow.replay.reading import Reading
from undertow.replay.source import CONTROL, Source
from undertow.support.numbers import count

__all__ = ["BROKEN", "check_names", "content_of", "open_text", "without_blank_end"]

BROKEN = (pl.exceptions.PolarsError, UnicodeDecodeError, OSError, EOFError, zlib.error)
_UTF8 = "utf-8-sig"  # with or without a mark in front
_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_WINDOWS = "cp1252"  # what Excel writes in western Europe and the Americas
_SEPARATORS = {",": "','", ";": "';'", "\t": "tab", "|": "'|'"}
_SAMPLE = 100  # rows for recognising the separator
_CHUNK = 1 << 20


@dataclass(frozen=True)
class _TextFile:
    """A text file, its encoding, and its separator."""

    path: Path
    encoding: str
    separator: str

    def raw(self) -> IO[bytes]:
        return gzip.open(self.path) if _zipped(self.path) else self.path.open("rb")  # type: ignore[return-value]

    def text(self) -> IO[str]:
        if _zipped(self.path):
            return gzip.open(self.path, "rt", encoding=self.encoding, newline="")
        return self.path.open(encoding=self.encoding, newline="")

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the header and all rows after it, each with the line at which it begins."""
        with self.text() as lines:
            reader, first, begun = csv.reader(lines, delimiter=self.separator), 1, False
            try:
                for cells in reader:
                    begun |= bool(cells)
                    if begun:  # empty lines may come before the header
                        yield first, cells
                    first = reader.line_num + 1
            except csv.Error as error:
                raise InvalidInputError(f"{self.path}: line {first}: {error}; shorten or correct its cells") from error

    def line(self, row: int) -> str:
        """Return the line of a row, counted as in an editor."""
        line = next(itertools.islice((line for line, _ in self.rows()), row + 1, None), None)
        return f"row {row + 1}" if line is None else f"line {line}"

    @cached_property
    def for_polars(self) -> Any:
        """The input for polars: the file itself, or its text as UTF-8."""
        if self.encoding == _UTF8:
            return content_of(self.path) if _zipped(self.path) else self.path
        with self.text() as lines:
            return lines.read().encode()


def open_text(path: Path, reading: Reading, separator: str) -> Source:
    """Read CSV as strings, so that every column is converted separately and the row of a bad cell is known.

    `separator` is the usual one for the file's name.
    """
    try:
        encoding = reading.encoding or _encoding_of(path)
        encoding = _UTF8 if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig") else encoding
        file = _with_separator(_TextFile(path, encoding, reading.separator or separator), reading)
        line, header = next(file.rows(), (0, []))
        if not header:
            raise InvalidInputError(f"{path}: the file is empty; expected a line with the names of the columns")
        check_names([name.strip() for name in header], f"{path}: line {line}")
        frame = pl.read_csv(file.for_polars, infer_schema=False, separator=file.separator, glob=False)
    except BROKEN as error:
        _check_zip(path)
        _check_letters(_TextFile(path, reading.encoding or _UTF8, ","))
        _check_cells(file)
        _check_quotes(file)
        raise InvalidInputError(f"{path}: it cannot be read ({str(error).splitlines()[0]}); write it again") from error
    if not frame.height and b"\r" in content_of(path).strip():
        raise InvalidInputError(f"{path}: the file has one line (old Mac line endings, CR); save it with LF or CRLF")
    frame = without_blank_end(frame.rename(str.strip))
    if frame[:, -1].null_count():  # the sign of a line that ends early
        _check_cells(file)
    if reading.encoding is None and encoding != _UTF8:
        reading.recognised("encoding", encoding)
    if reading.separator is None and file.separator != separator:
        reading.recognised("separator", _SEPARATORS[file.separator])
    return Source(str(path), frame, file.line, replace(reading), "," if file.separator == ";" else ".")


def without_blank_end(frame: pl.DataFrame) -> pl.DataFrame:
    """Drop empty lines at the end."""
    blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
    filled = (~blank).arg_true()
    return frame[: filled[-1] + 1 if len(filled) else 0]


def check_names(names: Sequence[str], where: str, remedy: str = "put a line of names before them") -> None:
    """Refuse missing and repeated column names; the first may be missing."""
    if not names:
        raise InvalidInputError(f"{where}: there are no columns; add some")
    for place, name in enumerate(names, start=1):
        if not name and place > 1:
            raise InvalidInputError(f"{where}: column {place} has no name; give it one")
        if names.count(name) > 1:
            raise InvalidInputError(f"{where}: two columns are called {name!r:.80}; rename one of them")
        if re.search(CONTROL, name):
            raise InvalidInputError(f"{where}: column {place} is called {name!r:.80}; rename it, without control codes")
    if all(_is_number(name) for name in names if name):
        raise InvalidInputError(f"{where}: expected names of columns, got numbers; {remedy}")


def content_of(path: Path) -> bytes:
    """Return the bytes of a file, unpacked."""
    with gzip.open(path) if _zipped(path) else path.open("rb") as raw:
        return raw.read()


def _zipped(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


# Recognition


def _encoding_of(path: Path) -> str:
    """Return UTF-8 or UTF-16 if a file is that, else the encoding of Windows."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with _TextFile(path, _UTF8, ",").raw() as raw:
        for chunk in iter(partial(raw.read, _CHUNK), b""):
            if raw.tell() == len(chunk) and chunk[:2] in _MARKS:
                return _MARKS[chunk[:2]]
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError:
                return _WINDOWS
    return _UTF8


def _with_separator(file: _TextFile, reading: Reading) -> _TextFile:
    """Return a file with the separator that splits its first rows alike, and its header most; the usual one if equal.

    A separator within names or values rarely gives equal rows; if none does, some row is wrong, and the header decides.
    """
    if reading.separator is not None:
        return file
    found = {}
    for mark in dict.fromkeys((file.separator, *_SEPARATORS)):
        try:
            rows = [cells for _, cells in itertools.islice(replace(file, separator=mark).rows(), _SAMPLE) if cells]
        except InvalidInputError:  # a cell without end
            continue
        size, *others = [len(cells) for cells in rows] or [0]
        found[mark] = (size > 1 and set(others) <= {size}, size)
    return replace(file, separator=max(found, key=found.__getitem__)) if found else file


# Errors of a file that cannot be read


def _check_zip(path: Path) -> None:
    """Refuse a compressed file that is damaged."""
    if _zipped(path):
        try:
            content_of(path)
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidInputError(f"{path}: not a gzip file, or damaged ({error}); write it again") from error


def _check_letters(file: _TextFile) -> None:
    """Refuse the first line that is not text."""
    tried = [file.encoding] if file.encoding != _UTF8 else ["utf-8", _WINDOWS]
    for line, content in enumerate(content_of(file.path).splitlines(), start=1):
        wrong = [name for name in tried if not _decodes(content, name)]
        if wrong == tried and not file.encoding.startswith("utf-16"):
            raise InvalidInputError(
                f"{file.path}: line {line} is not text in {' or '.join(tried)}; name its encoding, --encoding"
            )


def _decodes(content: bytes, encoding: str) -> bool:
    try:
        content.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _check_cells(file: _TextFile) -> None:
    """Refuse the first line that has more or fewer cells than there are columns."""
    _, names = next(file.rows(), (0, []))
    for line, row in file.rows():
        if row and len(row) != len(names):
            remedy = separator_hint(names) or "complete it, and put cells that hold a separator into quotation marks"
            wanted = count(len(names), "cell")
            raise InvalidInputError(f"{file.path}: line {line}: expected {wanted}, got {len(row)}; {remedy}")


def _check_quotes(file: _TextFile) -> None:
    """Refuse the first line in which a quotation mark is left open, as an inch sign does."""
    with file.text() as lines:
        for line, content in enumerate(lines, start=1):
            if content.count('"') % 2:
                raise InvalidInputError(
                    f"{file.path}: line {line}: a quotation mark is left open; put a cell that holds one into "
                    'quotation marks, and double its own: "5"" pipe"'
                )
