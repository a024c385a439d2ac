"""Time steps of the hidden state in tables: how many passed between two rounds, and which rounds share one.

If every round is its own time step, `elapsed` is None, for 1 throughout.
"""

import math

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["rows_in_time", "time_steps_passed", "with_one_context"]

_MOST_ROWS = 5_000_000


def time_steps_passed(elapsed: npt.ArrayLike, rounds: int) -> npt.NDArray[np.int64]:
    """Return checked numbers of time steps that began since the round before, (n,); 1 for the first round."""
    counts = checks.indices("elapsed", elapsed, (rounds,), below=checks.LONGEST_GAP + 1)
    counts[:1] = 1
    return counts


def rows_in_time(elapsed: npt.ArrayLike | None, rounds: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the row of each round in a table with rows for skipped time steps too, and which rounds share one.

    `elapsed` (n,) is the number of time steps that began since the round before: 0 if the round shares its time step;
    None stands for 1 throughout. The first entry does not matter.
    """
    if elapsed is None:
        return np.arange(rounds), np.zeros(rounds, dtype=bool)
    counts = time_steps_passed(elapsed, rounds)
    places = np.cumsum(np.maximum(counts, 1)) - 1
    if rounds and places[-1] >= _MOST_ROWS:
        raise InvalidInputError(
            f"elapsed: expected at most {_MOST_ROWS} time steps, got {places[-1] + 1}; count time in a larger unit"
        )
    return places, counts == 0


def with_one_context(contexts: FloatArray, same: npt.NDArray[np.bool_], *, last: bool) -> FloatArray:
    """Return contexts (n, m) in which rounds that share a time step have its context once: in the first or last."""
    if not same.any() or not contexts.shape[1]:
        return contexts
    first = np.flatnonzero(~same)
    found, most = (pick.reduceat(contexts, first, axis=0) for pick in (np.fmin, np.fmax))
    if (found < most).any():
        row = first[np.argmax((found < most).any(axis=1))]
        raise InvalidInputError(
            f"contexts: expected one context in a time step, got several in that of round {row}; give the same one to "
            f"all rounds of a time step, NaN to all but one, or count time in a smaller unit"
        )
    result = np.full(contexts.shape, math.nan)
    result[np.append(first[1:], len(contexts)) - 1 if last else first] = found
    return result
