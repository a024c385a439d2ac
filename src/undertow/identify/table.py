"""Columns of a log: arms that were played, moments they were played in, units of mean 0 and deviation 1."""

import math

import numpy as np
import numpy.typing as npt

from undertow import _checks
from undertow._checks import FloatArray
from undertow.errors import InvalidInputError

__all__ = ["centre_and_scale", "played_arms", "rows_in_time", "with_one_context"]

_CONSTANT = 1e-13  # a column that varies less than this, relative to its size, is taken as constant
_TINY = 1.0 / _checks.LARGEST  # below this a square may be nothing
_MOST_ROWS = 5_000_000


def played_arms(arms: npt.ArrayLike, arm_count: int | None = None) -> tuple[npt.NDArray[np.int64], int]:
    """Return checked arms, −1 where none was played, and their number k, one more than the largest unless given."""
    try:
        given = np.asarray(arms)
    except ValueError as error:  # lists of different lengths
        raise InvalidInputError(f"arms: expected one whole number per round, got {arms!r:.80}") from error
    if given.dtype.kind not in "iu" and given.size:
        raise InvalidInputError(f"arms: expected whole numbers, -1 where no arm was played, got {arms!r:.80}")
    result = _checks.array("arms", given, ("n",)).astype(np.int64)
    if result.min(initial=0) < -1:
        raise InvalidInputError(f"arms: expected numbers from 0 on, -1 where no arm was played, got {result.min()}")
    least = max(int(result.max(initial=0)) + 1, 1)
    k = least if arm_count is None else _checks.integer("arm_count", arm_count, least=1)
    if k < least:
        raise InvalidInputError(f"arm_count: expected at least {least}, as arm {least - 1} was played, got {k}")
    return result, k


def rows_in_time(elapsed: npt.ArrayLike | None, rounds: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the row of each round in a table where moments that pass have rows too, and which rounds share a moment.

    `elapsed` (n,) is how many moments began since the round before, 1 for all where it is None; 0 where the round is of
    the same moment as the one before. Where the first round stands does not matter.
    """
    if elapsed is None:
        return np.arange(rounds), np.zeros(rounds, dtype=bool)
    counts = _checks.indices("elapsed", elapsed, (rounds,), below=_checks.LONGEST_GAP + 1)
    counts[:1] = 1
    places = np.cumsum(np.maximum(counts, 1)) - 1
    if rounds and places[-1] >= _MOST_ROWS:
        raise InvalidInputError(
            f"elapsed: expected at most {_MOST_ROWS} moments in all, got {places[-1] + 1}; count time in a larger unit"
        )
    return places, counts == 0


def with_one_context(contexts: FloatArray, same: npt.NDArray[np.bool_], *, last: bool) -> FloatArray:
    """Return contexts (n, m) in which rounds that share a moment have its context once: in the first, or the last."""
    if not same.any() or not contexts.shape[1]:
        return contexts
    first = np.flatnonzero(~same)
    found, most = (pick.reduceat(contexts, first, axis=0) for pick in (np.fmin, np.fmax))
    if (found < most).any():
        row = first[np.argmax((found < most).any(axis=1))]
        raise InvalidInputError(
            f"contexts: expected one context in a moment, got several in the one of round {row}; give the same one to "
            f"all rounds of a moment, NaN to all but one, or count time in a smaller unit"
        )
    result = np.full(contexts.shape, math.nan)
    result[np.append(first[1:], len(contexts)) - 1 if last else first] = found
    return result


def centre_and_scale(column: FloatArray, arms: FloatArray | None = None) -> tuple[float, float]:
    """Return mean and standard deviation of what was seen; for a constant column its size, or 1, as the scale.

    With arms, every arm counts alike: an arm that is played all the time does not set the scale for the others.
    """
    there = ~np.isnan(column) if arms is None else ~np.isnan(column) & (arms >= 0.0)
    seen = column[there]
    if not len(seen):
        return 0.0, 1.0
    if arms is None:
        centre, spread = float(seen.mean()), float(seen.std())
    else:
        played = arms[there].astype(np.int64)
        weights = 1.0 / np.bincount(played)[played]
        centre = float(np.average(seen, weights=weights))
        spread = math.sqrt(np.average((seen - centre) ** 2, weights=weights))
    size = float(np.abs(seen).max())
    if spread > max(_CONSTANT * size, _TINY):  # rounding of a constant column is no signal
        return centre, spread
    return centre, size if size > _TINY else 1.0
