"""Notes for the reader of a table: gaps, irregular time steps, impossible propensities."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from undertow.errors import InvalidInputError
from undertow.replay.columns import Columns
from undertow.support.checks import FloatArray

__all__ = ["gap_notes", "offset_notes", "propensity_notes", "step_notes", "unpaid_notes"]

_FAR = 1e13  # standard deviations from zero


def gap_notes(rewards: FloatArray, columns: Columns) -> list[str]:
    """Name the arms that were not always available; refuse one that never was."""
    gaps = np.isnan(rewards).sum(axis=0)
    if (never := gaps == len(rewards)).any():
        name = columns.rewards[int(never.argmax())]
        raise InvalidInputError(f"column {name!r:.80}: there is no reward at all; fill it in, or leave the column out")
    arms = [f"{name} in {gap:,}" for name, gap in zip(columns.arms, gaps, strict=True) if gap]
    if not arms:
        return []
    return [
        f"arms without a reward were not there in these rounds, and nobody could play them: {', '.join(arms):.300} "
        f"of {len(rewards):,} rounds"
    ]


def unpaid_notes(paid: npt.NDArray[np.bool_]) -> list[str]:
    """Count the rounds of a log without a reward."""
    lacking = int((~paid).sum())
    if not lacking:
        return []
    return [f"{lacking} of {len(paid)} rounds have no reward: nothing is learned in them, and estimates use the others"]


def offset_notes(rewards: FloatArray | None) -> list[str]:
    """Warn of rewards so far from zero that their differences are lost in rounding."""
    assert rewards is not None
    mean, spread = np.abs(np.nanmean(rewards, axis=0)), np.nanstd(rewards, axis=0)
    if not ((spread > 0) & (mean > _FAR * spread)).any():
        return []
    return [
        f"rewards are more than {_FAR:g} times as large as they vary, and double precision keeps 16 digits: most of "
        "what tells the arms apart is rounding; subtract a constant from all rewards first"
    ]


def propensity_notes(played: npt.NDArray[np.int64], propensities: FloatArray, arms: Sequence[str]) -> list[str]:
    """Check propensities: 1/p if an arm was played, else 0, has mean 1 over all rounds."""
    notes = []
    for place, name in enumerate(arms):
        weights = np.where(played == place, 1 / propensities, 0.0)
        error = weights.std() / np.sqrt(len(weights))
        if abs(weights.mean() - 1) > 5 * error:
            notes.append(
                f"the propensities of arm {name} do not fit how often it was played: the sum of 1/p over its rounds, "
                f"divided by the number of all rounds, is {weights.mean():.2f} ± {error:.2f}, and should be 1; "
                "estimates from this log may be wrong"
            )
    return notes


def step_notes(times: pl.Series) -> list[str]:
    """Report steps in time that differ from the usual one, since every row counts as one round."""
    steps = times.diff().drop_nulls()
    if steps.is_empty():
        return []
    if ties := int((times == times.shift(1)).sum()):
        return [f"{ties} rows have the same time as the row before; rounds follow the order of the rows"]
    usual = steps.mode().min()
    others = int((steps != usual).sum())
    note = (
        f"{others} of {len(steps)} steps in time differ from the usual {usual!s}; every row still counts as one round"
    )
    return [note] if others else []
