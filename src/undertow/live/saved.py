"""The allowed arrays of a save file, and how they are read: nothing in a file is trusted before it is checked.

A file may come from anywhere. Sizes that it claims are compared with the bytes that are there before memory is taken
for them, and every number that will be used as an index, a size or a round is compared with its bounds before it is.
"""

import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.compiled.layout import size_of
from undertow.errors import InvalidInputError
from undertow.support.checks import LARGEST

__all__ = ["COUNT", "DAMAGE", "FINITE", "LETTERS", "MEASURED", "Saved", "check_arrays", "read_arrays"]

# What damage looks like; a timeout, lack of memory or a failing disk is none, and is raised unchanged. The last
# three are of numbers, versions and depths that nobody writes
_OF_VALUES = (ValueError, TypeError, LookupError, AttributeError, EOFError)
DAMAGE = (*_OF_VALUES, zipfile.BadZipFile, zlib.error, struct.error, OverflowError, NotImplementedError, RecursionError)
COUNT = 2.0**53  # counts are smaller, in float64 as in the header
MEASURED = (-LARGEST, LARGEST)
FINITE = (-float(np.finfo(np.float64).max), float(np.finfo(np.float64).max))
LETTERS = (0, 255)
_KINDS = {b"<f8": np.float64, b"<i8": np.int64, b"|u1": np.uint8}
_HEADER = re.compile(rb"\{'descr': '(<f8|<i8|\|u1)', 'fortran_order': False, 'shape': \(((?:\d{1,15},? ?)*)\), \} *\n")
_NAME = re.compile(r"[a-z]+")
_MAGIC = b"\x93NUMPY\x01\x00"  # of arrays with a short header


class Saved(NamedTuple):
    """One array of a save file.

    Attributes
    ----------
    shape
        A word stands for a length that all arrays with that word have, or for a formula of sizes, such as "k".
    least, most
        Bounds of its numbers, both included; the larger one may be a formula of sizes.
    whole, rising
        Whether they are integers, and each larger than the one before.
    missing
        Whether NaN is allowed.
    kind
        Of which type it is written.
    since
        Whether older files lack it.
    """

    shape: tuple[int | str, ...]
    least: float = -math.inf
    most: float | str = math.inf
    whole: bool = False
    rising: bool = False
    missing: bool = False
    kind: type[np.generic] = np.float64
    since: bool = False

    def of(self, sizes: Mapping[str, int]) -> "Saved":
        """Return the same with numbers in place of formulas of sizes; other words stay free."""
        known = (
            size_of(each, sizes) if isinstance(each, str) and sizes.keys() >= set(_NAME.findall(each)) else each
            for each in self.shape
        )
        most = size_of(self.most, sizes) if isinstance(self.most, str) else self.most
        return self._replace(shape=tuple(known), most=most)

    def numbered(self, number: int) -> "Saved":
        """Return the same for one of several arrays: the number stands for {} in its words."""
        shape = (each.format(number) if isinstance(each, str) else each for each in self.shape)
        return self._replace(shape=tuple(shape))

    def fits(self, shape: tuple[int, ...], lengths: dict[str, int]) -> bool:
        """Whether an array has this shape; words without a length yet then get its lengths."""
        return len(shape) == len(self.shape) and all(
            got == (lengths.setdefault(want, got) if isinstance(want, str) else want)
            for got, want in zip(shape, self.shape, strict=True)
        )

    def holds(self, values: npt.NDArray[Any]) -> bool:
        """Whether numbers are as described."""
        with np.errstate(invalid="ignore"):
            inside = (values >= self.least) & (values <= float(self.most))
            if self.whole:
                inside &= np.floor(values) == values
        if self.missing:
            inside |= np.isnan(values)
        return bool(inside.all()) and not (self.rising and (np.diff(values) <= 0).any())


def check_arrays(arrays: Mapping[str, npt.NDArray[Any]], expected: Mapping[str, Saved]) -> None:
    """Refuse unexpected arrays."""
    if unknown := sorted(arrays.keys() - expected.keys()):
        raise InvalidInputError(f"{unknown[0]}: unknown array for this policy")
    lengths: dict[str, int] = {}
    for name, saved in expected.items():
        if name not in arrays:
            raise InvalidInputError(f"{name}: expected an array, got none")
        values = arrays[name]
        if not saved.fits(values.shape, lengths):
            wanted = tuple(lengths.get(length, length) if isinstance(length, str) else length for length in saved.shape)
            raise InvalidInputError(f"{name}: expected shape {wanted}, got {values.shape}")
        if not saved.whole and values.dtype != np.float64:  # kernels interpret the bytes as declared
            raise InvalidInputError(f"{name}: expected float64, got {values.dtype}")
        if not saved.holds(values):
            kind = "integers" if saved.whole else "numbers"
            order = ", each larger than the one before" if saved.rising else ""
            raise InvalidInputError(f"{name}: expected {kind} from {saved.least:g} to {float(saved.most):g}{order}")


def read_arrays(file: IO[bytes]) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an archive of NumPy arrays; none of them takes more memory than the file does.

    Members are stored uncompressed and apart: compressed or overlapping ones can be larger than any file.
    """
    room = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        plain = all(
            member.compress_type == zipfile.ZIP_STORED and member.compress_size == member.file_size
            for member in members
        )
        names = [member.filename for member in members]
        plain = plain and not any(member.flag_bits for member in members)  # encrypted, say
        if not plain or sum(member.file_size for member in members) > room or len(set(names)) < len(names):
            raise InvalidInputError("expected arrays that are stored one by one, uncompressed")
        return {member.filename.removesuffix(".npy"): _array(archive.read(member)) for member in members}


def _array(content: bytes) -> npt.NDArray[Any]:
    """Return the array of a file in NumPy's format."""
    begin = len(_MAGIC) + 2
    end = begin + int.from_bytes(content[len(_MAGIC) : begin], "little")
    found = _HEADER.fullmatch(content[begin:end])
    if not content.startswith(_MAGIC) or found is None:
        raise InvalidInputError("expected an array of numbers")
    kind = np.dtype(_KINDS[found[1]])
    shape = tuple(int(length) for length in found[2].replace(b",", b" ").split())
    if math.prod(shape) * kind.itemsize != len(content) - end:
        raise InvalidInputError(f"expected an array of shape {shape}, got {len(content) - end} bytes")
    return np.frombuffer(content, kind, offset=end).reshape(shape).copy()
