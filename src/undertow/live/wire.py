"""Strict JSON: reading returns exactly what was written, or refuses it.

NaN and infinity are null, since JSON has neither; objects have exactly the written keys.
"""

import json
import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from undertow.errors import InvalidInputError
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = [
    "DAMAGE",
    "read",
    "read_count",
    "read_flag",
    "read_list",
    "read_number",
    "read_numbers",
    "read_object",
    "read_text",
    "write",
    "write_number",
    "write_numbers",
]

DAMAGE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)  # of what is read


def write(entries: Mapping[str, Any]) -> str:
    """Return a JSON object."""
    try:
        return json.dumps(entries, allow_nan=False)
    except ValueError as error:
        raise InvalidInputError(f"{' '.join(entries)}: expected numbers that JSON has ({error})") from error


def write_number(value: float, null: float) -> float | None:
    """Return a number for JSON, None for the value of `null`."""
    return None if value == null or (math.isnan(value) and math.isnan(null)) else value


def write_numbers(values: FloatArray, null: float) -> list[float | None]:
    """Return numbers for JSON, None for the value of `null`."""
    return [write_number(value, null) for value in values.tolist()]


def read(
    text: str,
    keys: Collection[str],
    since: Mapping[str, Any] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a JSON object that has these keys and no others, none twice.

    `since` are those that earlier versions lack, and `renamed` gives others by their earlier names.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected a string, got {type(text).__name__}")
    entries = checks.strict_json(text)
    if isinstance(entries, dict):
        entries = {**(since or {}), **{(renamed or {}).get(key, key): value for key, value in entries.items()}}
    return read_object(entries, keys)


def read_object(entries: Any, keys: Collection[str]) -> dict[str, Any]:
    """Return an object that has these keys and no others."""
    if not isinstance(entries, dict) or entries.keys() != set(keys):
        raise ValueError(f"expected an object with {', '.join(keys)}")
    return entries


def read_list(value: Any, length: int | None = None) -> list[Any]:
    """Return a list, of a length if one is given."""
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise ValueError(f"expected a list{'' if length is None else f' of {length}'}, got {value!r:.60}")
    return value


def read_numbers(values: Any, null: float, length: int | None = None) -> FloatArray:
    """Return a list of numbers; `null` means `none`."""
    return np.array([read_number(value, null) for value in read_list(values, length)], dtype=np.float64)


def read_number(value: Any, null: float | None = None) -> float:
    """Return a finite number, or the value of `null` for None."""
    if value is None and null is not None:
        return null
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"expected a number, got {value!r:.60}")
    return float(value)


def read_count(value: Any, *, least: int = 0) -> int:
    """Return an integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"expected an integer of at least {least}, got {value!r:.60}")
    return value


def read_flag(value: Any) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, got {value!r:.60}")
    return value


def read_text(value: Any) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise ValueError(f"expected a string, got {value!r:.60}")
    return value
