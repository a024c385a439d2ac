"""JSON of events, decisions, outlooks and health: msgspec compares it with types when it is read.

JSON has neither NaN nor infinity. Null is NaN, or +∞ in fields that are often infinite. The other numbers are strings,
"nan", "inf" and "-inf"; they come from forecasts that have overflowed.
"""

import json
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np

from undertow.errors import InvalidInputError
from undertow.support import checks

__all__ = ["ENCODER", "Count", "Form", "Number", "Numbers", "array", "entries", "number", "plain", "read", "write"]

T = TypeVar("T")
Null = Literal["nan", "inf"]
Number = float | Literal["nan", "inf", "-inf"] | None
Numbers = list[Number]
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]

_KEYS = json.JSONDecoder(object_pairs_hook=checks.once, parse_float=str, parse_int=str)


class Form(msgspec.Struct, forbid_unknown_fields=True):
    """The entries of a record as they are read, in its order."""

    def made(self) -> Any:
        """Return the record; raise ValueError if entries contradict each other."""
        raise NotImplementedError


def plain(values: Any, null: Null = "nan") -> Any:
    """Return a number, numbers or None for JSON.

    Examples
    --------
    >>> plain(np.array([0.5, math.inf, -math.inf, math.nan]), null="inf")
    [0.5, None, '-inf', 'nan']
    """
    if isinstance(values, np.ndarray):
        if values.ndim > 1:
            return [plain(row, null) for row in values]
        listed: list[float] = values.tolist()
        if math.isfinite(sum(listed)):
            return listed
        return [value if math.isfinite(value) else plain(value, null) for value in listed]
    value = values.item() if isinstance(values, np.generic) else values
    if value is None or math.isfinite(value):
        return value
    return None if str(value) == null else str(value)


def number(value: Number, null: Null = "nan") -> float:
    """Return the number that `plain` was given."""
    return float(null if value is None else value)


def array(values: Sequence[Any] | None, null: Null = "nan", kind: type = np.float64) -> Any:
    """Return the array, or None, that `plain` was given."""
    if values is None:
        return None
    listed = [number(value, null) for value in values] if null == "inf" and None in values else values
    return np.array(listed, dtype=kind)  # None is NaN, and numpy reads the strings


ENCODER = msgspec.json.Encoder(enc_hook=plain)


def entries(record: Any, *unlimited: str) -> dict[str, Any]:
    """Return the entries of a record for JSON; null is +∞ in those that are `unlimited`."""
    found: dict[str, Any] = record._asdict()
    return found | {name: plain(found[name], "inf") for name in unlimited}


def write(entries: dict[str, Any]) -> str:
    """Return a JSON object."""
    return ENCODER.encode(entries).decode()


def read(kind: type[T], text: str, form: type[Form]) -> T:
    """Return a record from JSON of exactly these entries, none twice."""
    try:
        if not isinstance(text, str):
            raise TypeError(f"expected a string, got {type(text).__name__}")
        record: T = msgspec.json.decode(text, type=form).made()
        _KEYS.decode(text)  # msgspec takes the last of two
    except (ValueError, TypeError, RecursionError) as error:
        name = kind.__name__
        raise InvalidInputError(
            f"{name.lower()}: expected JSON from {name}.to_json, got {text!r:.60} ({error!s:.80})"
        ) from error
    return record
