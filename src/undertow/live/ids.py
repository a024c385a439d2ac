"""Ids of decisions: which texts can be one, and how a save file keeps them."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError

__all__ = ["LONGEST", "is_id", "read_ids", "written_ids"]

LONGEST = 64  # characters of an id


def is_id(id: object) -> bool:
    """Whether something can be the id of a decision."""
    return isinstance(id, str) and 0 < len(id) <= LONGEST and id.isprintable()


def written_ids(ids: Iterable[str]) -> npt.NDArray[np.uint8]:
    """Return ids as bytes; what is printable has no line feeds."""
    return np.frombuffer("\n".join(ids).encode(), dtype=np.uint8)


def read_ids(name: str, arrays: Mapping[str, npt.NDArray[Any]], most: int) -> list[str]:
    """Return the ids that `written_ids` returned, at most so many."""
    content = arrays[name].astype(np.uint8).tobytes()
    count = content.count(b"\n") + 1 if content else 0
    if count > most:
        raise InvalidInputError(f"{name}: expected at most max_pending = {most}, got {count}")
    ids = content.decode().split("\n") if content else []
    if not all(map(is_id, ids)) or len(set(ids)) < count:
        raise InvalidInputError(f"{name}: expected texts of 1 to {LONGEST} characters that differ")
    return ids
