"""Inputs by name: declarations, and the conversion of a row to an array.

A number is one column. Levels have a column each, and one more for undeclared ones. Words with `hash:n` have n columns,
of which one is 1: the first eight bytes of the BLAKE2b digest of the word in UTF-8, little-endian, modulo n. With
`missing="mean"` every name has one more column, which is 1 if the name was missing; its other columns then have their
means so far.
"""

import functools
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["Inputs", "Named", "Names", "Rows", "as_row", "as_rows", "declared", "in_row"]

Names = Sequence[str] | Mapping[str, str | Sequence[str | int | float]]
Inputs = npt.ArrayLike | Mapping[str, Any]  # numbers, or a row with names
Rows = npt.ArrayLike | Sequence[Mapping[str, Any] | None]  # several of them; frames are arrays too

_MOST = 100_000  # columns
_HASH = "hash:"
_ARGUMENTS = {"feature": "features", "context": "context"}
_REMEDY = '; with missing="mean" at construction, missing ones are filled in'
_NUMBER, _LEVELS, _WORDS = range(3)


class _Part(NamedTuple):
    """One name: its kind, its first column, their number, the places of its levels, and the indicator's column."""

    name: str
    kind: int
    at: int
    size: int
    places: Mapping[Any, int]
    gap: int


class Named:
    """The rows of one argument: names, allowed values, and columns."""

    def __init__(self, kind: str, kinds: Mapping[str, Any], *, lenient: bool) -> None:
        self.kind, self.argument, self.lenient = kind, _ARGUMENTS[kind], lenient
        self.filled = lenient and kind == "feature"  # a context may have gaps
        self.parts: list[_Part] = []
        self.columns: list[str] = []
        for name, kind in kinds.items():
            self._add(name, kind)
        self.names = tuple(part.name for part in self.parts)
        self.width = len(self.columns)
        self._blank = [0.0] * self.width
        own = {column: part.gap for part in self.parts for column in range(part.at, part.at + part.size)}
        self.gap_of = np.array([own.get(column, column) for column in range(self.width)], dtype=np.int64)
        self.measured = np.array([column in own for column in range(self.width)])  # and no indicator

    def _add(self, name: str, kind: Any) -> None:
        at, places = len(self.columns), dict[Any, int]()
        if kind == "number":
            code, labels = _NUMBER, [name]
        elif isinstance(kind, str) and kind.startswith(_HASH) and kind[len(_HASH) :].isdecimal():
            size = int(kind[len(_HASH) :])
            if not 0 < size <= _MOST:
                raise InvalidInputError(f"{self.kind}_names: {name!r}: expected 1 to {_MOST} columns, got {size}")
            code, labels = _WORDS, [f"{name}#{place}" for place in range(size)]
        elif isinstance(kind, Sequence) and not isinstance(kind, str | bytes) and all(map(_is_level, kind)) and kind:
            code, places = _LEVELS, {level: place for place, level in enumerate(kind)}
            if len(places) < len(kind):
                raise InvalidInputError(f"{self.kind}_names: {name!r}: expected different levels, got {kind!r:.80}")
            labels = [*(f"{name}={level}" for level in kind), f"{name} other"]
        else:
            raise InvalidInputError(
                f'{self.kind}_names: {name!r}: expected "number", a list of levels, or "hash:16" for words in 16 '
                f"columns, got {kind!r:.60}"
            )
        self.columns += labels
        self.parts.append(_Part(name, code, at, len(labels), places, len(self.columns)))
        if self.filled:
            self.columns.append(f"{name} missing")

    def encode(self, row: Mapping[Any, Any], means: FloatArray | None = None) -> FloatArray:
        """Return a row as an array, (width,); missing entries are the mean, or NaN without means."""
        values = self._blank.copy()
        if len(row) != len(self.parts):
            self._check_names(row)
        for name, kind, at, size, places, gap in self.parts:
            try:
                given = row[name]
            except KeyError:
                self._check_names(row)
                given = None
            if kind == _NUMBER and (type(given) is float or type(given) is int) and given == given:
                values[at] = given
            elif _is_missing(given):
                self._check_gap(name)
                values[at : at + size] = [math.nan] * size if means is None else means[at : at + size].tolist()
                if self.filled:
                    values[gap] = 1.0
            elif kind == _NUMBER:
                values[at] = self._number(name, given)
            elif kind == _WORDS:
                values[at + _place_of(self._word(name, given), size)] = 1.0
            else:
                values[at + self._level(name, given, places)] = 1.0
        try:
            return np.array(values, dtype=np.float64)
        except OverflowError as error:
            raise InvalidInputError(
                f"{self.argument}: expected numbers below {checks.LARGEST:g}, got {row!r:.80}"
            ) from error

    def _check_gap(self, name: str) -> None:
        """Refuse a feature with an empty value."""
        if self.kind == "feature" and not self.lenient:
            raise InvalidInputError(f"features: {name!r}: expected a value, got none{_REMEDY}")

    def require(self, row: Mapping[Any, Any]) -> None:
        """Refuse a row that `encode` would refuse, for policies that ignore it."""
        self.encode(row, np.zeros(self.width))

    def _check_names(self, row: Mapping[Any, Any]) -> None:
        absent = [] if self.lenient else [name for name in self.names if name not in row]
        unknown = [name for name in row if name not in self.names]
        if absent or unknown:
            wrong = [f"no {', '.join(map(repr, absent))}"] if absent else []
            wrong += [f"the unknown {', '.join(map(repr, unknown))}"] if unknown else []
            remedy = _REMEDY if absent else ""
            raise InvalidInputError(
                f"{self.argument}: expected {', '.join(self.names)}, got {' and '.join(wrong)}{remedy}"
            )

    def _number(self, name: str, given: Any) -> float:
        if isinstance(given, str | bytes):
            raise InvalidInputError(f"{self.argument}: {name!r}: expected a number, got {given!r:.60}")
        return float(checks.measured(f"{self.argument}: {name!r}", given, ()))

    def _word(self, name: str, given: Any) -> str:
        if isinstance(given, str | int | np.integer):
            return str(given)
        raise InvalidInputError(f"{self.argument}: {name!r}: expected a word, got {given!r:.60}")

    def _level(self, name: str, given: Any, places: Mapping[Any, int]) -> int:
        try:
            return places.get(given, len(places))
        except TypeError as error:
            raise InvalidInputError(f"{self.argument}: {name!r}: expected a level, got {given!r:.60}") from error


def declared(kind: str, names: Any, *, lenient: bool) -> tuple[Named, dict[str, Any]] | None:
    """Return the declaration in `feature_names` or `context_names`, and its form in save files; None for None."""
    if names is None:
        return None
    if isinstance(names, Sequence) and not isinstance(names, str | bytes) and len(set(map(str, names))) == len(names):
        names = dict.fromkeys(names, "number")
    if not isinstance(names, Mapping) or not names or not all(isinstance(n, str) and n.isprintable() for n in names):
        raise InvalidInputError(
            f'{kind}_names: expected different names, or the kind of each, such as {{"weight": "number", '
            f'"country": ["DE", "FR"]}}, got {names!r:.80}'
        )
    kinds = {name: list(each) if isinstance(each, tuple) else each for name, each in names.items()}
    return Named(kind, kinds, lenient=lenient), kinds


def as_row(given: Any) -> Mapping[Any, Any] | None:
    """Return a row that has names: a mapping, a named tuple, or a row of pandas or polars; None for anything else."""
    if type(given) is dict or isinstance(given, Mapping):  # the first is faster
        row: Mapping[Any, Any] = given
        return row
    if isinstance(given, np.ndarray | list) or given is None:
        return None
    if isinstance(given, tuple):
        return given._asdict() if hasattr(given, "_asdict") else None
    if hasattr(given, "to_dicts") and len(given) == 1:  # a frame of polars with one row
        return dict(given.to_dicts()[0])
    if hasattr(given, "to_dict") and getattr(given, "ndim", 0) == 1:  # a row of pandas
        row = given.to_dict()
        return row if all(isinstance(name, str) for name in row) else None
    return None


def as_rows(given: Any) -> list[Any] | None:
    """Return the rows of a list of rows with names, or of a frame of pandas or polars; None for anything else."""
    if isinstance(given, list | tuple):
        rows = [as_row(row) for row in given]
        return rows if any(row is not None for row in rows) else None
    if hasattr(given, "iter_rows"):
        return list(given.iter_rows(named=True))
    if hasattr(given, "to_dict") and getattr(given, "ndim", 0) == 2:
        return list(given.to_dict("records"))
    return None


@contextmanager
def in_row(place: int) -> Iterator[None]:
    """Add the row of the table to errors."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"{error} (in row {place})") from error


def _is_level(level: Any) -> bool:
    return isinstance(level, str | int) or (isinstance(level, float) and math.isfinite(level))


def _is_missing(given: Any) -> bool:
    if given is None:
        return True
    try:
        return bool(given != given)
    except (TypeError, ValueError):  # pandas has an NA that equals nothing, and does not differ either
        return type(given).__name__ == "NAType"


@functools.lru_cache(maxsize=10_000)
def _place_of(word: str, size: int) -> int:
    """Return the column of a word among so many."""
    return int.from_bytes(hashlib.blake2b(word.encode()).digest()[:8], "little") % size
