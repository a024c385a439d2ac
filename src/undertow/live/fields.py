"""What the parts of a policy remember, declared once.

A part lists its fields in `remembers`, one line each. From that list follow a checkpoint and the way back to it, the
header and the arrays of a save file, what these may hold, and the bytes of all numbers that are remembered:

    Field("leader")                                     only ever replaced, or a container; not saved
    Number("latest", file="latest", most="rounds")      one number
    Written("sums", "moments", Saved(…))                an array that is written into
    Entry("due", "due", check)                          an entry of the header
    Table("rounds", {"round_arms": Saved(…), …}, …)     rows, each column as an array
    Field("records", {"fit_records": Saved(…)}, …)      anything else that arrays can hold
    Each("past", {"past_{}": Saved(…)}, …)              the same for every entry of a dictionary by number

Formulas in bounds and shapes count what `Parts.sizes` says: arms k, context entries m, features q, numbers p that a
decision remembers, numbers n of the state, rounds, decisions. What more has to fit together, a part says in
`check_loaded`.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError
from undertow.live.ids import read_ids, written_ids
from undertow.live.saved import COUNT, LETTERS, Saved, check_arrays
from undertow.support import checks

__all__ = [
    "Each",
    "Entry",
    "Field",
    "Number",
    "Table",
    "Written",
    "arrays_of",
    "copy_part",
    "header_of",
    "nbytes_of",
    "read_arrays_into",
    "read_count",
    "read_header_into",
    "restore_part",
]

Sizes = Mapping[str, int]
_CONTAINERS = (dict, deque, list)  # a union of them would be made in every call
_NO_FILES: Mapping[str, Saved] = {}
Files = Mapping[str, npt.NDArray[Any]]


def read_count(name: str, value: Any, *, least: int, most: int) -> int:
    """Return an integer from a header."""
    number = checks.integer(name, value, least=least)
    if number > most:
        raise InvalidInputError(f"{name}: expected at most {most}, got {number!r:.60}")
    return number


class Field:
    """An attribute that is only ever replaced, or a container, which is copied.

    A save file may keep it in some `files`, arrays by name: `write` takes the part and returns as many of them, or None
    for nothing; `read` takes the part and the arrays, None for those that older files lack. `when` names an attribute
    of the part that says whether it is saved.
    """

    def __init__(
        self,
        name: str,
        files: Mapping[str, Saved] = _NO_FILES,
        write: Callable[..., Any] = lambda part: (),
        read: Callable[..., None] = lambda part: None,
        *,
        when: str = "",
    ) -> None:
        self.name, self.files, self.write, self.read, self.when = name, files, write, read, when

    def copy(self, part: Any) -> Any:
        """Return what a checkpoint keeps."""
        value = getattr(part, self.name)
        return value.copy() if isinstance(value, _CONTAINERS) else value

    def put_back(self, part: Any, kept: Any) -> None:
        """Have the attribute be as it was; may be done twice."""
        setattr(part, self.name, kept.copy() if isinstance(kept, _CONTAINERS) else kept)

    def is_saved(self, part: Any) -> bool:
        """Return whether a save file keeps it."""
        return not self.when or bool(getattr(part, self.when))

    def arrays(self, part: Any, sizes: Sizes) -> dict[str, npt.NDArray[Any]]:
        """Return what a save file keeps as arrays."""
        written = self.write(part) if self.is_saved(part) else None
        return {} if written is None else dict(zip(self.files, written, strict=True))

    def expected(self, part: Any, names: Collection[str]) -> dict[str, Saved]:
        """Return what these may be, where arrays of these names are there."""
        saved = self.is_saved(part)
        return {name: each for name, each in self.files.items() if saved and (name in names or not each.since)}

    def take(self, part: Any, arrays: Files) -> None:
        """Take back what `arrays` returned, after it was compared with `expected`."""
        if self.is_saved(part):
            self.read(part, *(arrays.get(name) for name in self.files))


class Number(Field):
    """One number, an array with one entry."""

    def __init__(self, name: str, *, file: str, least: float = 0, most: float | str = COUNT, when: str = "") -> None:
        super().__init__(
            name,
            {file: Saved((1,), least, most, whole=True)},
            lambda part: (np.array([float(getattr(part, name))]),),
            lambda part, values: setattr(part, name, int(values.item())),
            when=when,
        )


class Written(Field):
    """An array that is written into."""

    def __init__(self, name: str, file: str, saved: Saved, *, when: str = "") -> None:
        super().__init__(name, {file: saved}, lambda part: (getattr(part, name),), self.put_back, when=when)

    def copy(self, part: Any) -> Any:
        """Return a copy of the array."""
        return getattr(part, self.name).copy()

    def put_back(self, part: Any, kept: Any) -> None:
        """Write the numbers back."""
        getattr(part, self.name)[...] = kept


class Entry(Field):
    """An attribute that the header of a save file keeps under its key; "a.b" is the key b of the object a.

    `check` takes the part and what the header holds, and returns the value or refuses it.
    """

    def __init__(self, name: str, key: str, check: Callable[[Any, Any], Any], *, since: bool = False) -> None:
        super().__init__(name)
        self.key, self.check, self.since = key.split("."), check, since

    def read_entry(self, part: Any, header: Mapping[str, Any]) -> None:
        """Take back an entry of a header."""
        if self.since and self.key[0] not in header:
            return
        value: Any = header
        for key in self.key:
            value = value[key]
        setattr(part, self.name, self.check(part, value))


class Table(Field):
    """Rows, each column as an array; None is written as −1 among integers, and as NaN among others.

    A column of the kind `np.str_` holds ids. `write` returns the rows of a part, and `read` takes them; columns that
    older files lack are there together, or all None.
    """

    def arrays(self, part: Any, sizes: Sizes) -> dict[str, npt.NDArray[Any]]:
        """Return the columns."""
        rows = list(self.write(part) or ())
        columns = zip(*rows, strict=True) if rows else ((),) * len(self.files)
        named = zip(self.files.items(), columns, strict=True)
        return {name: _column(saved, values, sizes) for (name, saved), values in named}

    def expected(self, part: Any, names: Collection[str]) -> dict[str, Saved]:
        """Return what they may be."""
        optional = {name for name, saved in self.files.items() if saved.since}
        kept = self.files if optional & set(names) else self.files.keys() - optional
        return {name: _as_letters(name, saved) for name, saved in self.files.items() if name in kept}

    def take(self, part: Any, arrays: Files) -> None:
        """Take the rows back."""
        known = {name: _values(name, saved, arrays[name]) for name, saved in self.files.items() if name in arrays}
        counts = {len(values) for values in known.values()}
        if len(counts) > 1:
            raise InvalidInputError(f"{next(iter(known))}: expected one for each row, got {min(counts)}, {max(counts)}")
        nothing = [None] * max(counts, default=0)
        self.read(part, list(zip(*(known.get(name, nothing) for name in self.files), strict=True)))


class Each(Field):
    """A dictionary by number, in arrays of its own for every number, which stands for the {} in their names.

    `write` takes the part and the number, `read` takes the part, the number and the arrays. The entries are those that
    a fresh part has, and those of which there are arrays.
    """

    def arrays(self, part: Any, sizes: Sizes) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of every entry."""
        return {
            name.format(number): values
            for number in getattr(part, self.name)
            for name, values in zip(self.files, self.write(part, number), strict=True)
        }

    def expected(self, part: Any, names: Collection[str]) -> dict[str, Saved]:
        """Return what they may be, for the entries that may be there."""
        return {
            name.format(number): saved.numbered(number)
            for number in self._numbers(part, names)
            for name, saved in self.files.items()
        }

    def take(self, part: Any, arrays: Files) -> None:
        """Take the entries back."""
        for number in self._numbers(part, arrays):
            self.read(part, number, *(arrays[name.format(number)] for name in self.files))

    def _numbers(self, part: Any, names: Collection[str]) -> list[int]:
        first = next(iter(self.files))
        there = (number for number in range(len(part.models)) if first.format(number) in names)
        return sorted({*getattr(part, self.name), *there})


def _as_letters(name: str, saved: Saved) -> Saved:
    """Return what a column may be as an array: ids are written as letters."""
    return Saved((f"letters of {name}",), *LETTERS, whole=True) if saved.kind is np.str_ else saved


def _values(name: str, saved: Saved, values: npt.NDArray[Any]) -> Sequence[Any]:
    """Return the entries of a column."""
    if saved.kind is np.str_:
        return read_ids(name, values)
    if values.ndim > 1:
        return list(values)
    listed: list[Any] = (values.astype(np.int64) if saved.whole else values).tolist()
    return listed


def _column(saved: Saved, values: Sequence[Any], sizes: Sizes) -> npt.NDArray[Any]:
    """Return a column of a table."""
    if saved.kind is np.str_:
        return written_ids(values)
    shape = saved.of(sizes).shape[1:]
    nothing: Any = -1 if saved.whole else np.full(shape, np.nan)
    known = [nothing if value is None else value for value in values]
    return np.array(known, dtype=saved.kind).reshape(len(known), *shape)


# Functions of all fields of parts


def copy_part(part: Any) -> Any:
    """Return what a part remembers; one that grows without bound copies itself, `mark`, at the cost of what changed."""
    return part.mark() if hasattr(part, "mark") else [field.copy(part) for field in part.remembers]


def restore_part(part: Any, kept: Any) -> None:
    """Have a part be as it was; may be done twice."""
    if hasattr(part, "mark"):
        part.go_back(kept)
        return
    for field, value in zip(part.remembers, kept, strict=True):
        field.put_back(part, value)


def nbytes_of(parts: Iterable[Any]) -> int:
    """Return the bytes of all numbers that parts remember, those of Python's own objects left out."""
    return sum(_nbytes(getattr(part, field.name)) for part in parts for field in part.remembers)


def _nbytes(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, dict):
        return sum(map(_nbytes, value.values()))
    return sum(map(_nbytes, value)) if isinstance(value, list | tuple | deque) else 0


def header_of(parts: Iterable[Any]) -> dict[str, Any]:
    """Return the entries that the header of a save file keeps."""
    header: dict[str, Any] = {}
    for part in parts:
        for field in part.remembers:
            if isinstance(field, Entry):
                *folders, key = field.key
                target = header
                for folder in folders:
                    target = target.setdefault(folder, {})
                target[key] = getattr(part, field.name)
    return header


def read_header_into(parts: Iterable[Any], header: Mapping[str, Any]) -> None:
    """Take back what `header_of` returned."""
    for part in parts:
        for field in part.remembers:
            if isinstance(field, Entry):
                field.read_entry(part, header)


def arrays_of(parts: Iterable[Any], sizes: Sizes) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays that a save file keeps."""
    return {
        name: values for part in parts for field in part.remembers for name, values in field.arrays(part, sizes).items()
    }


def read_arrays_into(parts: Sequence[Any], arrays: Files, sizes: Sizes) -> None:
    """Take back what `arrays_of` returned, if all arrays are as expected and fit together."""
    expected: dict[str, Saved] = {}
    for part in parts:
        for field in part.remembers:
            expected |= field.expected(part, arrays.keys())
    check_arrays(arrays, {name: saved.of(sizes) for name, saved in expected.items()})
    for part in parts:
        for field in part.remembers:
            field.take(part, arrays)
    for part in parts:
        if hasattr(part, "check_loaded"):
            part.check_loaded()
