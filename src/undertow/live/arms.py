"""The names of arms, and which of them can be played."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["arm_index", "arm_names", "checked_costs", "indices_of_names", "is_name", "open_arms"]

_MOST = 1_000_000


def arm_names(arms: int | Sequence[str]) -> tuple[str, ...]:
    """Return the names of arms that were given as a number or by name."""
    if isinstance(arms, str):
        raise InvalidInputError(f"arms: expected a number or a list of names, got the string {arms!r}")
    if not isinstance(arms, Sequence):
        if isinstance(arms, Iterable) and np.size(arms) != 1:
            raise InvalidInputError(f"arms: expected a number or a list of names, got {arms!r:.80}")
        return tuple(str(arm) for arm in range(_few(checks.integer("arms", arms, least=1))))
    _few(len(arms))
    names = tuple(arms)
    if not names or not all(map(is_name, names)):
        raise InvalidInputError(f"arms: expected at least one name, each a string such as '0.02', got {arms!r:.80}")
    if len(set(names)) < len(names):
        raise InvalidInputError(f"arms: expected names that differ, got {arms!r:.80}")
    return names


def is_name(value: object) -> bool:
    """Whether a value can be the name of an arm: a string that JSON in UTF-8 can hold, so without half characters."""
    return isinstance(value, str) and (value.isascii() or value.encode(errors="ignore").decode() == value)


def _few(count: int) -> int:
    """Refuse more arms than could be tried once each, before making names for them."""
    if count > _MOST:
        raise InvalidInputError(f"arms: expected at most {_MOST}, got {count}; choose among groups of arms")
    return count


def arm_index(argument: str, arm: Any, names: Sequence[str]) -> int:
    """Return the index of an arm that was given by its name or its index."""
    if isinstance(arm, str):
        if arm not in names:
            raise InvalidInputError(f"{argument}: expected one of {', '.join(names)}, got {arm!r}")
        return names.index(arm)
    index = checks.integer(argument, arm, least=0)
    if index >= len(names):
        raise InvalidInputError(f"{argument}: expected an index below {len(names)} or a name, got {index}")
    return index


def checked_costs(argument: str, costs: Any, names: Sequence[str]) -> dict[str, float]:
    """Return the costs of arms by name, for arms given by name or index."""
    if not isinstance(costs, Mapping):
        raise InvalidInputError(f"{argument}: expected a cost by arm, such as {{{names[0]!r}: 0.5}}, got {costs!r:.60}")
    return {
        names[arm_index(argument, arm, names)]: float(checks.measured(f"{argument}: {arm!r}", cost, ()))
        for arm, cost in costs.items()
    }


def indices_of_names(arms: Any, names: Sequence[str]) -> Any:
    """Return the index of every arm given by name, −1 for None and NaN, and other arms unchanged.

    A list may hold names, None and −1 next to one another.
    """
    kind = getattr(getattr(arms, "dtype", None), "kind", "O")
    if isinstance(arms, str) or not isinstance(arms, Collection) or getattr(arms, "ndim", 1) != 1 or kind in "biuf":
        return arms
    listed = list(arms)
    if not any(isinstance(arm, str) for arm in listed):
        return arms
    indices = {name: index for index, name in enumerate(names)}
    found = [indices.get(arm) if isinstance(arm, str) else _unplayed(arm) for arm in listed]
    if None in found:
        row = found.index(None)
        raise InvalidInputError(
            f"arms: expected names among {', '.join(names)}, or None if none was played, got {listed[row]!r:.60} in "
            f"row {row}"
        )
    return np.array(found, dtype=np.int64)


def _unplayed(arm: Any) -> int | None:
    """Return −1 for an entry that means no arm, next to names."""
    missing = arm is None or (isinstance(arm, float) and math.isnan(arm))
    return -1 if missing or (isinstance(arm, int | np.integer) and arm == -1) else None


def open_arms(available: Iterable[str | int], retired: npt.NDArray[np.bool_], names: Sequence[str]) -> FloatArray:
    """Return which arms are closed, 1 or 0 each, if only the given ones are available."""
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
        raise InvalidInputError("available: expected at least one arm; call skip() if none can be played")
    return closed
