"""The names of arms, and which of them can be played."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow import _checks
from undertow._checks import FloatArray
from undertow.errors import InvalidInputError

__all__ = ["arm_index", "arm_names", "open_arms"]


def arm_names(arms: int | Sequence[str]) -> tuple[str, ...]:
    """Return the names of arms that were given as a number or by name."""
    if isinstance(arms, str):
        raise InvalidInputError(f"arms: expected a number or a list of names, got the text {arms!r}")
    if not isinstance(arms, Sequence):
        if isinstance(arms, Iterable) and np.size(arms) != 1:
            raise InvalidInputError(f"arms: expected a number or a list of names, got {arms!r:.80}")
        return tuple(str(arm) for arm in range(_checks.integer("arms", arms, least=1)))
    names = tuple(arms)
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidInputError(f"arms: expected at least one name, each a text such as '0.02', got {arms!r:.80}")
    if len(set(names)) < len(names):
        raise InvalidInputError(f"arms: expected names that differ, got {arms!r:.80}")
    return names


def arm_index(argument: str, arm: Any, names: Sequence[str]) -> int:
    """Return the index of an arm that was given by its name or its index."""
    if isinstance(arm, str):
        if arm not in names:
            raise InvalidInputError(f"{argument}: expected one of {', '.join(names)}, got {arm!r}")
        return names.index(arm)
    index = _checks.integer(argument, arm, least=0)
    if index >= len(names):
        raise InvalidInputError(f"{argument}: expected an index below {len(names)} or a name, got {index}")
    return index


def open_arms(available: Iterable[str | int], retired: npt.NDArray[np.bool_], names: Sequence[str]) -> FloatArray:
    """Return which arms are closed, 1 or 0 each, where only those given are available."""
    if isinstance(available, str) or not isinstance(available, Iterable) or getattr(available, "ndim", 1) != 1:
        raise InvalidInputError(f"available: expected names or indices of arms, got {available!r:.60}")
    closed = np.ones(len(names))
    for arm in available:
        index = arm_index("available", arm, names)
        if retired[index]:
            raise InvalidInputError(
                f"available: {names[index]!r} was retired; add_arm({names[index]!r}) brings it back"
            )
        closed[index] = 0.0
    if closed.all():
        raise InvalidInputError("available: expected at least one arm; call skip() where none can be played")
    return closed
