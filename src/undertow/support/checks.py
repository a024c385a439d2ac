"""Checks of arguments: each returns the checked value or raises an error that names the argument and the remedy."""

import contextlib
import dataclasses
import difflib
import json
import math
import operator
import os
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError

C = TypeVar("C", bound=str)
FloatArray = npt.NDArray[np.float64]

# Branches of a seed next to its plain children, which are the runs of a system: a system, its paths and a policy may
# get the same seed and are still independent.
POLICY_BRANCH, SYSTEM_BRANCH = 2**32 - 1, 2**32 - 2

_SYMMETRY = 1e-10  # relative; asymmetry from rounding in a user's own computation
_POSITIVITY = 1e-12
_FEW = 100  # numbers up to which Python is faster than NumPy
LONGEST_GAP = 10_000  # time steps between two decisions: each is a round, and a learner's history has 20,000
LARGEST = 1e152  # no measurement is larger than this, and its square is still finite
# Raised by objects that cannot be converted to a number; other exceptions may come from a signal
_ODD = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RuntimeError)
_FLOAT = np.dtype(np.float64)  # a single dtype, in the byte order of the machine
_PLAUSIBLE = 0.999 * LARGEST  # also if rounding says otherwise


@contextlib.contextmanager
def needing(what: str, extra: str) -> Iterator[None]:
    """Say which extra to install if an import fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        remedy = f"{what} needs {error.name}; pip install 'undertow[{extra}]'"
        raise ModuleNotFoundError(remedy, name=error.name) from error


def array(name: str, value: npt.ArrayLike, shape: tuple[int | str, ...], *, missing: bool = False) -> FloatArray:
    """Return a read-only float64 copy of the wanted shape; a letter stands for any length."""
    result = np.array(_real(name, value, f" of shape {_spell(shape)}"), order="C")
    fits = result.ndim == len(shape) and all(
        isinstance(want, str) or got == want for got, want in zip(result.shape, shape, strict=True)
    )
    if not fits:
        raise InvalidInputError(f"{name}: expected shape {_spell(shape)}, got {_spell(result.shape)}")
    if not _plain_numbers(result):
        finite = ~np.isinf(result) if missing else np.isfinite(result)
        if not finite.all():
            where = tuple(int(i) for i in np.argwhere(~finite)[0])
            wanted = "finite numbers, or NaN if missing" if missing else "finite numbers"
            place = f" at index {_spell(where)}" if where else ""
            raise InvalidInputError(f"{name}: expected {wanted}, got {result[where]}{place}")
    result.setflags(write=False)
    return result


def numbers(name: str, value: npt.ArrayLike) -> FloatArray:
    """Return real numbers of any shape, for callers that need the shape before `array` checks both."""
    return _real(name, value, "")


def _real(name: str, value: npt.ArrayLike, wanted: str) -> FloatArray:
    try:
        given = np.asarray(value)
        if given.dtype.kind not in "biufO" or (given.dtype.kind == "O" and any(map(_is_text, given.flat))):
            raise TypeError
        result = given.astype(np.float64, copy=False)
    except _ODD as error:
        raise InvalidInputError(f"{name}: expected real numbers{wanted}, got {value!r:.80}") from error
    if isinstance(value, np.ma.MaskedArray):  # masked entries are missing, whatever their value
        return np.where(np.ma.getmaskarray(value), math.nan, result)
    return result


def _is_text(entry: Any) -> bool:
    return isinstance(entry, str | bytes)


def entries(name: str, value: Any) -> list[Any]:
    """Return the entries of a list or another iterable; refuse a string."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:
        raise InvalidInputError(f"{name}: expected a list, got {value!r:.80}")
    return list(value)


def row(name: str, value: npt.ArrayLike, shape: tuple[int, ...], *, missing: bool = False) -> FloatArray:
    """Do the same as `array` for a few numbers, without a copy if possible: for reading only."""
    if type(value) is np.ndarray and value.dtype is _FLOAT and value.shape == shape and value.size <= _FEW:
        few = value.tolist() if len(shape) == 1 else value.ravel().tolist()
        if math.hypot(*few) < _PLAUSIBLE:  # as in `_plain_numbers`, without one more call
            return value
    return measured(name, value, shape, missing=missing)


def measured(
    name: str, value: npt.ArrayLike, shape: tuple[int | str, ...], *, missing: bool = False, below: float = LARGEST
) -> FloatArray:
    """Do the same as `array` for measured values, and refuse implausibly large ones."""
    result = array(name, value, shape, missing=missing)
    if not _plain_numbers(result) and np.nanmax(np.abs(result), initial=0.0) >= below:
        raise InvalidInputError(
            f"{name}: expected numbers below {below:g} in size, got {np.nanmax(np.abs(result)):g}; "
            f"check the measurement and its units"
        )
    return result


def _plain_numbers(values: FloatArray) -> bool:
    """Return quickly whether a few numbers are all finite and plausible; False means "not sure"."""
    row = values if values.ndim == 1 else values.ravel()
    return len(row) <= _FEW and math.hypot(*row.tolist()) < _PLAUSIBLE  # no entry is larger than their hypotenuse


def readonly(values: FloatArray) -> FloatArray:
    """Return a read-only view: kernels are compiled for read-only arrays."""
    result = values.view()
    result.setflags(write=False)
    return result


def restore_frozen(target: Any, entries: dict[str, Any]) -> None:
    """Set the fields of a frozen dataclass after a copy or unpickling: read-only arrays, nothing recomputed."""
    for field in dataclasses.fields(target):
        value = entries[field.name]
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
        object.__setattr__(target, field.name, value)


def covariance(name: str, value: npt.ArrayLike, size: int, *, definite: bool = False) -> FloatArray:
    """Return a symmetric positive semi-definite (or definite) matrix, exactly symmetric and read-only."""
    matrix = measured(name, value, (size, size), below=LARGEST**2)
    scale = np.abs(matrix).max(initial=0.0)
    asymmetry = np.abs(matrix - matrix.T).max(initial=0.0)
    if asymmetry > _SYMMETRY * scale:
        raise InvalidInputError(
            f"{name}: expected a symmetric matrix, but it differs from its transpose by {asymmetry:.3g}; "
            f"pass (M + M.T) / 2 to make it symmetric"
        )
    matrix = (matrix + matrix.T) / 2
    smallest = float(np.linalg.eigvalsh(matrix)[0]) if size else math.inf
    if definite and not _is_definite(matrix):
        raise InvalidInputError(
            f"{name}: expected a positive definite matrix, but its smallest eigenvalue is {smallest:.3g}; "
            f"add a little noise to its diagonal"
        )
    if smallest < -_POSITIVITY * scale * size:
        raise InvalidInputError(
            f"{name}: expected a positive semi-definite matrix, but its smallest eigenvalue is {smallest:.3g}"
        )
    matrix.setflags(write=False)
    return matrix


def _is_definite(matrix: FloatArray) -> bool:
    """Return whether a matrix is positive definite beyond rounding, whatever the units of its rows."""
    variances = np.diag(matrix)
    if not (variances > 0).all():
        return False
    unit = np.sqrt(variances)
    return bool(np.linalg.eigvalsh(matrix / unit / unit[:, None]).min(initial=math.inf) > _POSITIVITY)


def integer(name: str, value: Any, *, least: int) -> int:
    """Return an integer not below `least`."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        number = operator.index(value)
    except TypeError as error:
        raise InvalidInputError(f"{name}: expected an integer, got {value!r:.80}") from error
    if number < least:
        raise InvalidInputError(f"{name}: expected at least {least}, got {number}")
    return number


def thread_count(threads: int | None) -> int:
    """Return a number of threads, by default one per core."""
    return integer("threads", os.cpu_count() if threads is None else threads, least=1)


def elapsed(value: Any) -> int:
    """Return the number of time steps before a decision."""
    count = integer("elapsed", value, least=0)
    if count > LONGEST_GAP:
        raise InvalidInputError(
            f"elapsed: expected at most {LONGEST_GAP} time steps, got {count}; use a larger time unit"
        )
    return count


def number(name: str, value: Any, *, above: float = -math.inf, least: float = -math.inf) -> float:
    """Return a finite number above `above` and at least `least`."""
    plain = isinstance(value, float) and math.isfinite(value)  # the common case, without the cost of an array
    result = float(value if plain else array(name, value, ()))
    if result <= above:
        raise InvalidInputError(f"{name}: expected a number above {above:g}, got {result:g}")
    if result < least:
        raise InvalidInputError(f"{name}: expected a number of at least {least:g}, got {result:g}")
    return result


def reward(value: Any) -> float:
    """Return a reward."""
    if isinstance(value, float) and -LARGEST < value < LARGEST:  # the common case, without the cost of an array
        return float(value)
    if value is None:
        raise InvalidInputError("reward: expected a number, got None. If no reward has arrived, do not call learn")
    return float(measured("reward", value, ()))


def fraction(name: str, value: Any) -> float:
    """Return a number strictly between 0 and 1."""
    result = number(name, value)
    if not 0 < result < 1:
        raise InvalidInputError(f"{name}: expected a number between 0 and 1, both excluded, got {result:g}")
    return result


def auto_number(name: str, value: Any) -> float | None:
    """Return a positive number, or None for "auto"."""
    if isinstance(value, str):
        if value != "auto":
            raise InvalidInputError(f"{name}: expected a number above 0 or 'auto', got {value!r:.80}")
        return None
    return number(name, value, above=0)


def flag(name: str, value: Any) -> bool:
    """Return True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidInputError(f"{name}: expected True or False, got {value!r:.80}")
    return bool(value)


def choice(name: str, value: Any, choices: tuple[C, ...]) -> C:
    """Return one of the given words."""
    for known in choices:
        if isinstance(value, type(known)) and value == known:
            return known
    near = did_you_mean(value, choices)
    raise InvalidInputError(f"{name}: expected {' or '.join(map(repr, choices))}, got {value!r:.80}{near}")


def indices(name: str, value: npt.ArrayLike, shape: tuple[int | str, ...], *, below: int) -> npt.NDArray[np.int64]:
    """Return integers from 0 to below - 1, such as arms."""
    try:
        given = np.asarray(value)
    except ValueError as error:  # lists of different lengths
        raise InvalidInputError(f"{name}: expected integers of shape {_spell(shape)}, got {value!r:.80}") from error
    if given.dtype.kind not in "iu" and given.size:
        raise InvalidInputError(f"{name}: expected integers, got {value!r:.80}")
    result = array(name, given, shape).astype(np.int64)
    outside = result[(result < 0) | (result >= below)]
    if outside.size:
        raise InvalidInputError(f"{name}: expected numbers from 0 to {below - 1}, got {outside[0]}")
    return result


def seed_sequence(rng: "int | np.random.SeedSequence | np.random.Generator | None") -> np.random.SeedSequence:
    """Return the seed sequence behind `rng`: a new one at every call for a Generator, the same for a seed."""
    if isinstance(rng, np.random.SeedSequence):
        return rng
    if isinstance(rng, np.random.Generator):
        seeds = rng.bit_generator.seed_seq
        if not isinstance(seeds, np.random.SeedSequence):  # a generator made from a RandomState
            raise InvalidInputError(
                f"rng: expected a Generator that knows its seed, got {rng!r:.60}; make it with numpy.random.default_rng"
            )
        return seeds.spawn(1)[0]
    if rng is None:
        return np.random.SeedSequence()
    return np.random.SeedSequence(integer("rng", rng, least=0))


def child(sequence: np.random.SeedSequence, *key: int) -> np.random.Generator:
    """Return the generator of a child (or grandchild) of a seed sequence, without counting it as spawned."""
    path = (*sequence.spawn_key, *key)
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence(sequence.entropy, spawn_key=path, pool_size=sequence.pool_size))
    )


def strict_json(text: str) -> Any:
    """Parse JSON; raise ValueError if a key is repeated or the nesting is too deep."""
    try:
        return json.loads(text, object_pairs_hook=once)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the entries of a JSON object; raise ValueError if a key is repeated."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("expected every key once")
    return entries


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return a hint at the known word nearest to an unknown one; "" if none is near.

    Examples
    --------
    >>> did_you_mean("linUBC", ["linucb", "random"])
    " (did you mean 'linucb'?)"
    """
    by_letters = {name.lower(): name for name in known}
    near = difflib.get_close_matches(str(word)[:80].lower(), by_letters, n=1, cutoff=0.7)
    return f" (did you mean {by_letters[near[0]]!r:.80}?)" if near else ""


def _spell(shape: tuple[int | str, ...]) -> str:
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
