"""Columns of a log: the played arms, and units with mean 0 and standard deviation 1."""

import math

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["centre_and_scale", "mostly_one_value", "played_arms"]

_CONSTANT = 1e-13  # a column that varies less than this, relative to its size, is taken as constant
_TINY = 1.0 / checks.LARGEST  # below this a square may underflow


def played_arms(arms: npt.ArrayLike, arm_count: int | None = None) -> tuple[npt.NDArray[np.int64], int]:
    """Return checked arms, −1 if none was played, and their number k, one more than the largest unless given."""
    try:
        given = np.asarray(arms)
    except ValueError as error:  # lists of different lengths
        raise InvalidInputError(f"arms: expected one integer per round, got {arms!r:.80}") from error
    if given.dtype.kind not in "iu" and given.size:
        raise InvalidInputError(f"arms: expected integers, -1 if no arm was played, got {arms!r:.80}")
    result = checks.array("arms", given, ("n",)).astype(np.int64)
    if result.min(initial=0) < -1:
        raise InvalidInputError(f"arms: expected numbers from 0 on, -1 if no arm was played, got {result.min()}")
    least = max(int(result.max(initial=0)) + 1, 1)
    k = least if arm_count is None else checks.integer("arm_count", arm_count, least=1)
    if k < least:
        raise InvalidInputError(f"arm_count: expected at least {least}, as arm {least - 1} was played, got {k}")
    return result, k


def centre_and_scale(column: FloatArray, arms: FloatArray | None = None) -> tuple[float, float]:
    """Return mean and standard deviation of the observations; for a constant column its size, or 1, as the scale.

    With arms, every arm counts equally, so a frequently played arm does not set the scale for the others.
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


def mostly_one_value(rewards: FloatArray, arms: FloatArray) -> bool:
    """Return whether more than half of an arm's rewards are the same, on average over the arms.

    Then the others, such as rare clicks among zeros, are the differences between arms and not errors, however large.
    The share of an arm is (longest run − 1)/(plays − 1) of its sorted rewards, so that two plays or more are needed.
    """
    there = ~np.isnan(rewards) & (arms >= 0.0)
    order = np.lexsort((rewards[there], arms[there]))
    played, values = arms[there][order].astype(np.int64), rewards[there][order]
    plays = np.bincount(played)
    if not (plays > 1).any():
        return False
    same = (played[1:] == played[:-1]) & (values[1:] == values[:-1])
    starts = np.flatnonzero(np.append(True, ~same))
    longest = np.zeros(len(plays), dtype=np.int64)
    np.maximum.at(longest, played[starts], np.diff(np.append(starts, len(values))))
    often = plays > 1
    return bool(np.mean((longest[often] - 1) / (plays[often] - 1)) > 0.5)
