"""Ids of decisions: valid strings, and their format in save files."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError

__all__ = ["LONGEST", "is_id", "read_ids", "written_ids"]

LONGEST = 64  # characters of an id


def is_id(id: object) -> bool:
    """Whether a value can be the id of a decision."""
    return isinstance(id, str) and 0 < len(id) <= LONGEST and id.isprintable()


def written_ids(ids: Iterable[str]) -> npt.NDArray[np.uint8]:
    """Return ids as bytes; printable strings have no line feeds."""
    return np.frombuffer("\n".join(ids).encode(), dtype=np.uint8)


def read_ids(name: str, content: npt.NDArray[Any]) -> list[str]:
    """Return the ids that `written_ids` returned."""
    text = content.astype(np.uint8).tobytes().decode()
    ids = text.split("\n") if text else []
    if not all(map(is_id, ids)) or len(set(ids)) < len(ids):
        raise InvalidInputError(f"{name}: expected different strings of 1 to {LONGEST} characters")
    return ids
