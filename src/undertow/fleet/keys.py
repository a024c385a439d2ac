"""Keys of a fleet: their bytes, their hash, and the table that finds a key's row.

A key is a string or an integer. Its hash is FNV-1a over its bytes, UTF-8 of a string and eight little-endian bytes of
an integer, followed by the finalizer of SplitMix64; its bucket is the hash modulo the number of buckets. Both are
guaranteed: data split by bucket stay valid.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.compiled.kernel import inlined, kernel
from undertow.errors import InvalidInputError
from undertow.support import checks

__all__ = [
    "Bytes",
    "Integers",
    "KeyTable",
    "Keys",
    "bucket_numbers",
    "bucket_of",
    "decoded",
    "encoded",
    "enlarge",
    "hashed",
    "some_of",
]

Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]

_LONGEST = 200  # characters of a key
_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # of FNV-1a
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # of SplitMix64
_LOAD = 2  # minimum places of a table per key


class Keys(NamedTuple):
    """Keys of one kind: their concatenated bytes, the end of each, and their hashes."""

    letters: Bytes
    ends: Integers
    hashes: Hashes
    whole: bool  # whether they are integers

    def __len__(self) -> int:
        return len(self.hashes)


def encoded(keys: Any) -> Keys:
    """Return keys as bytes, checked: a list or a column of strings, or of integers."""
    given = keys if isinstance(keys, np.ndarray) else _column(keys)
    if given.ndim != 1:
        raise InvalidInputError(f"keys: expected a list of keys, one for each row, got shape {given.shape}")
    if given.dtype.kind == "O":
        given = _of_objects(given)
    if given.dtype.kind in "iu":
        values = np.ascontiguousarray(given, dtype="<i8")
        if given.dtype.kind == "u" and len(given) and given.max() > np.iinfo(np.int64).max:
            raise InvalidInputError(f"keys: expected integers below 2**63, got {given.max()}")
        return hashed(values.view(np.uint8), 8 * np.arange(1, len(values) + 1), whole=True)
    if given.dtype.kind in "UT":
        codes = np.ascontiguousarray(given, dtype=np.str_)
        width = codes.dtype.itemsize // 4
        if width > _LONGEST:
            raise InvalidInputError(f"keys: expected at most {_LONGEST} characters, got a key with {width}")
        points = codes.view(np.uint32).reshape(len(codes), width)
        ends = np.cumsum(utf8_lengths(_unwritable(points)))
        letters = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
        write_utf8(_unwritable(points), letters)
        return hashed(letters, ends, whole=False)
    raise InvalidInputError(f"keys: expected strings or integers, got {given.dtype}")


def _column(keys: Any) -> npt.NDArray[Any]:
    """Return a column of any library as an array."""
    if isinstance(keys, str | bytes) or not hasattr(keys, "__len__"):
        raise InvalidInputError(f"keys: expected a list of keys, one for each row, got {keys!r:.60}")
    if isinstance(keys, Sequence):
        kinds = set(map(type, keys))
        if len(kinds) > 1:  # NumPy would make strings of integers
            raise _mixed(kinds)
    return np.asarray(keys) if len(keys) else np.empty(0, dtype=np.str_)


def _of_objects(given: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column of Python objects, as DuckDB and pandas return strings, as strings or integers."""
    kinds = set(map(type, given.tolist()))
    if kinds <= {str}:
        return given.astype(np.str_)
    if kinds == {int}:
        return given.astype(np.int64)
    raise _mixed(kinds)


def _mixed(kinds: set[type]) -> InvalidInputError:
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    return InvalidInputError(f"keys: expected strings or integers, all of one type and none missing, got {names}")


def _unwritable(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return a read-only view: kernels are compiled for one kind of array."""
    result = values.view()
    result.setflags(write=False)
    return result


def hashed(letters: Bytes, ends: Integers, *, whole: bool) -> Keys:
    """Return keys with their hashes."""
    hashes = np.empty(len(ends), dtype=np.uint64)
    if (np.diff(ends, prepend=0) == 0).any():
        raise InvalidInputError(
            f"keys: expected at least one character, got '' in row {np.argmin(np.diff(ends, prepend=0))}"
        )
    own = np.array(letters)  # writable in any case
    hash_letters(own, ends, hashes)
    return Keys(own, ends, hashes, whole)


def some_of(keys: Keys, rows: Integers) -> Keys:
    """Return the keys of some rows, in their order."""
    starts = np.where(rows > 0, keys.ends[rows - 1], 0)
    lengths = keys.ends[rows] - starts
    ends = np.cumsum(lengths)
    letters = keys.letters[np.repeat(starts - (ends - lengths), lengths) + np.arange(lengths.sum())]
    return Keys(letters, ends, keys.hashes[rows], keys.whole)


def decoded(keys: Keys, rows: npt.NDArray[Any] | slice = slice(None)) -> npt.NDArray[Any]:
    """Return some of the keys in their original form: an array of integers, or of strings."""
    starts = np.concatenate([[0], keys.ends[:-1]]) if len(keys) else keys.ends
    if keys.whole:
        return keys.letters.view("<i8")[rows].astype(np.int64)
    content = keys.letters.tobytes()
    pairs = zip(starts[rows].tolist(), keys.ends[rows].tolist(), strict=True)
    return np.array([content[start:end].decode() for start, end in pairs], dtype=np.str_)


def bucket_of(keys: Any, buckets: int) -> Integers:
    """Return the bucket of each key, from 0 to `buckets` − 1: its hash modulo their number.

    Examples
    --------
    >>> bucket_of(["shop 1", "shop 2", "shop 3"], 8).tolist()
    [4, 5, 4]
    """
    return bucket_numbers(encoded(keys), checks.integer("buckets", buckets, least=1))


def bucket_numbers(keys: Keys, buckets: int) -> Integers:
    """Return the bucket of each key."""
    return np.asarray(keys.hashes % np.uint64(buckets)).astype(np.int64)


@kernel
def utf8_lengths(points: npt.NDArray[np.uint32]) -> Integers:
    """Return the number of bytes of strings whose code points are the rows, padded with zeros."""
    lengths = np.zeros(len(points), dtype=np.int64)
    for i in range(len(points)):
        for j in range(points.shape[1]):
            c = points[i, j]
            lengths[i] += 0 if c == 0 else 1 if c < 0x80 else 2 if c < 0x800 else 3 if c < 0x10000 else 4
    return lengths


@kernel
def write_utf8(points: npt.NDArray[np.uint32], letters: Bytes) -> None:
    """Write strings as concatenated UTF-8."""
    at = 0
    for i in range(len(points)):
        for j in range(points.shape[1]):
            c = points[i, j]
            if c == 0:
                continue
            if c < 0x80:
                letters[at] = c
                at += 1
                continue
            more = 1 if c < 0x800 else 2 if c < 0x10000 else 3
            letters[at] = (0xC0 if more == 1 else 0xE0 if more == 2 else 0xF0) | (c >> (6 * more))
            for shift in range(more - 1, -1, -1):
                at += 1
                letters[at] = 0x80 | ((c >> (6 * shift)) & 0x3F)
            at += 1


@kernel
def hash_letters(letters: Bytes, ends: Integers, hashes: Hashes) -> None:
    """Write the hash of each key."""
    at = 0
    for i in range(len(ends)):
        x = _BASIS
        while at < ends[i]:
            x = (x ^ np.uint64(letters[at])) * _PRIME
            at += 1
        x = (x ^ (x >> np.uint64(30))) * _FIRST
        x = (x ^ (x >> np.uint64(27))) * _SECOND
        hashes[i] = x ^ (x >> np.uint64(31))


class KeyTable:
    """The row of each key: an open table of hashes, and the keys' bytes in the order of their rows."""

    def __init__(self) -> None:
        self.count = 0
        self.letters, self.ends = np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.int64)
        self.hashes, self.places = np.empty(0, dtype=np.uint64), np.full(16, -1, dtype=np.int32)
        self.whole = False

    @property
    def keys(self) -> Keys:
        """The keys, in the order of their rows."""
        ends = self.ends[: self.count]
        letters = self.letters[: int(ends[-1]) if self.count else 0]
        return Keys(letters, ends, self.hashes[: self.count], self.whole)

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return self.letters.nbytes + self.ends.nbytes + self.hashes.nbytes + self.places.nbytes

    def find(self, keys: Keys, rows: Integers) -> Integers:
        """Return the row in the table of the keys numbered `rows`; −1 for unknown ones."""
        slots = np.empty(len(rows), dtype=np.int64)
        if self.count == 0 or keys.whole != self.whole:
            slots[:] = -1
        else:
            find_keys(
                keys.letters,
                keys.ends,
                keys.hashes,
                rows,
                self.letters,
                self.ends,
                self.hashes,
                self.places,
                slots,
            )
        return slots

    def add(self, keys: Keys, rows: Integers, slots: Integers) -> int:
        """Give a row to each key that has none, writing it to `slots`; return how many were added."""
        before, new = self.count, np.flatnonzero(slots < 0)
        if len(new) == 0:
            return 0
        self.whole = keys.whole
        of = rows[new]
        lengths = keys.ends[of] - np.where(of > 0, keys.ends[of - 1], 0)
        used = int(self.ends[before - 1]) if before else 0
        self._make_room(before + len(new), used + int(lengths.sum()))
        self.count = add_keys(
            keys.letters, keys.ends, keys.hashes, rows, self.letters, self.ends, self.hashes, self.places, before, slots
        )
        return self.count - before

    def keep_first(self, count: int) -> None:
        """Drop the last keys, until `count` are left."""
        self.count = count
        self.places[:] = -1
        place_keys(self.hashes, self.places, count)

    def keep(self, rows: Integers) -> None:
        """Drop all keys but those of some rows, in their order."""
        starts = np.concatenate([[0], self.ends[:-1]])
        lengths = (self.ends - starts)[rows]
        ends = np.cumsum(lengths)
        of = np.repeat(starts[rows] - (ends - lengths), lengths) + np.arange(int(ends[-1]) if len(rows) else 0)
        self.letters, self.ends, self.hashes = self.letters[of], ends, self.hashes[rows]
        self.keep_first(len(rows))

    def _make_room(self, count: int, letters: int) -> None:
        enlarge(self.ends, count)
        enlarge(self.hashes, count)
        enlarge(self.letters, letters)
        if _LOAD * count > len(self.places):
            self.places = np.full(1 << (_LOAD * count - 1).bit_length(), -1, dtype=np.int32)
            place_keys(self.hashes, self.places, self.count)


def enlarge(values: npt.NDArray[Any], count: int) -> None:
    """Make room for some rows, and a few more, in an array without other references."""
    if count > len(values):
        values.resize((count + count // 32 + 8, *values.shape[1:]), refcheck=False)


@inlined
def free_place(hash: np.uint64, places: npt.NDArray[np.int32]) -> int:
    """Return the first free place for a hash."""
    mask = len(places) - 1
    at = int(hash >> np.uint64(32)) & mask
    while places[at] >= 0:
        at = (at + 1) & mask
    return at


@inlined
def find_key(
    letters: Bytes,
    ends: Integers,
    hash: np.uint64,
    r: int,
    own_letters: Bytes,
    own_ends: Integers,
    own_hashes: Hashes,
    places: npt.NDArray[np.int32],
) -> int:
    """Return the row of a key; −1 if it is not in the table."""
    mask = len(places) - 1
    at = int(hash >> np.uint64(32)) & mask
    first = ends[r - 1] if r > 0 else 0
    while places[at] >= 0:
        s = places[at]
        if own_hashes[s] == hash:
            begin = own_ends[s - 1] if s > 0 else 0
            same = own_ends[s] - begin == ends[r] - first
            for j in range(ends[r] - first if same else 0):
                same = same and letters[first + j] == own_letters[begin + j]
            if same:
                return int(s)
        at = (at + 1) & mask
    return -1


@kernel
def find_keys(
    letters: Bytes,
    ends: Integers,
    hashes: Hashes,
    rows: Integers,
    own_letters: Bytes,
    own_ends: Integers,
    own_hashes: Hashes,
    places: npt.NDArray[np.int32],
    slots: Integers,
) -> None:
    """Write the row of each key to `slots`, −1 for one that is not in the table."""
    for i in range(len(rows)):
        r = rows[i]
        slots[i] = find_key(letters, ends, hashes[r], r, own_letters, own_ends, own_hashes, places)


@kernel
def add_keys(
    letters: Bytes,
    ends: Integers,
    hashes: Hashes,
    rows: Integers,
    own_letters: Bytes,
    own_ends: Integers,
    own_hashes: Hashes,
    places: npt.NDArray[np.int32],
    count: int,
    slots: Integers,
) -> int:
    """Add the keys whose slot is −1, some perhaps equal; return the new number of keys."""
    for i in range(len(rows)):
        if slots[i] >= 0:
            continue
        r = rows[i]
        slots[i] = find_key(letters, ends, hashes[r], r, own_letters, own_ends, own_hashes, places)
        if slots[i] < 0:
            first = ends[r - 1] if r > 0 else 0
            at = own_ends[count - 1] if count > 0 else 0
            for j in range(ends[r] - first):
                own_letters[at + j] = letters[first + j]
            own_ends[count], own_hashes[count] = at + ends[r] - first, hashes[r]
            places[free_place(hashes[r], places)] = count
            slots[i] = count
            count += 1
    return count


@kernel
def place_keys(hashes: Hashes, places: npt.NDArray[np.int32], count: int) -> None:
    """Fill an empty table."""
    for s in range(count):
        places[free_place(hashes[s], places)] = s
