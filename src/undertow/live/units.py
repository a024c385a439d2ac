"""The units in which a policy computes: costs as negative rewards, columns standardised.

All data pass through the units on their way in, and forecasts on their way out; kernels know nothing of them.
"""

import math
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow import _checks
from undertow._checks import FloatArray
from undertow.compiled.player import Player
from undertow.errors import InvalidInputError
from undertow.live.decision import Claims
from undertow.live.saved import Saved

__all__ = ["Columns", "Units"]


class Units(NamedTuple):
    """Centre c and scale s of every column, in the order contexts, features, reward: x becomes (x − c) / s.

    Where rewards are costs, their scale is negative: the least cost has the largest reward.
    """

    centre: FloatArray  # (m + q + 1,)
    scale: FloatArray

    @classmethod
    def as_given(cls, context_dim: int, feature_dim: int, *, minimise: bool) -> "Units":
        """Return units that change nothing but, where costs are to be minimised, the sign of the rewards."""
        scale = np.ones(context_dim + feature_dim + 1)
        if minimise:
            scale[-1] = -1.0
        return cls(np.zeros_like(scale), scale)

    def inward(self, values: FloatArray, first: int) -> FloatArray:
        """Return values of the columns from `first` on in these units."""
        columns = slice(first, first + values.shape[-1])
        return np.asarray((values - self.centre[columns]) / self.scale[columns])

    def reward(self, value: float) -> float:
        """Return a reward in these units."""
        return float((value - self.centre[-1]) / self.scale[-1])

    def rewards(self, values: FloatArray) -> FloatArray:
        """Return rewards, of whatever shape, in these units."""
        return np.asarray((values - self.centre[-1]) / self.scale[-1])

    def outward(self, forecast: FloatArray, width: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return forecasts and widths in the units of the rewards."""
        return forecast * self.scale[-1] + self.centre[-1], width * abs(self.scale[-1])


class Columns:
    """The columns that reach a policy, checked and brought into units that never change."""

    remembers: ClassVar[tuple[str, ...]] = ()
    follows = False  # whether the units follow what is seen

    def __init__(self, context_dim: int, feature_dim: int, *, minimise: bool) -> None:
        self.context_dim, self.feature_dim, self.minimise = context_dim, feature_dim, minimise
        self.units = Units.as_given(context_dim, feature_dim, minimise=True) if minimise else None  # None: as given
        self.pause = math.inf  # the round before whose decision the units change

    @property
    def awaits_reward(self) -> bool:
        """Whether the units will change with the first reward."""
        return False

    def checked_features(self, features: npt.ArrayLike | None, arms: int, claims: Claims) -> FloatArray | None:
        """Return the round's features, checked: (q,) for all arms, or a row for each where the policy takes it."""
        q = self.feature_dim
        if features is None:
            if q:
                raise InvalidInputError(f"features: expected shape ({q},), got None; give features=…")
            return None
        if not q:
            remedy = "give feature_dim at construction" if claims.takes_features else "this policy takes no features"
            context = ". A context goes to decide(context=…) or observe(context)" if self.context_dim else ""
            raise InvalidInputError(f"features: expected None, got {features!r:.60}; {remedy}{context}")
        given = features if isinstance(features, np.ndarray) else _checks.numbers("features", features)
        shape = (arms, q) if given.ndim == 2 and claims.takes_arm_features else (q,)
        if given.shape != shape:
            raise InvalidInputError(f"features: {_expected(given.shape, arms, q, claims)}")
        return _checks.row("features", given, shape)

    def put_features(self, given: FloatArray | None, player: Player) -> None:
        """Give checked features to the player, in the policy's units."""
        if given is not None:
            player.give(given if self.units is None else self.units.inward(given, self.context_dim))

    def checked_context(self, context: npt.ArrayLike | None) -> FloatArray | None:
        """Return a context, checked: (m,), None if there is none."""
        return None if context is None else _checks.row("context", context, (self.context_dim,), missing=True)

    def put_context(self, context: FloatArray | None, row: FloatArray) -> None:
        """Write a checked context into a row, in the policy's units."""
        if context is None:
            row.fill(math.nan)
            return
        row[...] = context
        if self.units is not None:
            self.note(context=row)
            row[:] = self.units.inward(row, 0)

    def reward(self, value: float) -> float:
        """Take note of a reward and return it in the policy's units."""
        self.note(reward=value)
        return value if self.units is None else self.units.reward(value)

    def begin(self, **columns: FloatArray | float) -> None:
        """Have columns that were not seen before begin with these values: context, features or reward."""

    def note(self, **columns: FloatArray | float) -> None:
        """Take note of values in their own units: context, features or reward, one row each."""

    def arrays(self) -> dict[str, FloatArray]:
        """Return what a save file keeps."""
        return {}

    def saved(self) -> dict[str, Saved]:
        """Return what `arrays` may be."""
        return {}

    def restore(self, arrays: Mapping[str, FloatArray]) -> None:
        """Take back what `arrays` returned."""


def _expected(shape: tuple[int, ...], arms: int, q: int, claims: Claims) -> str:
    """Say which shapes features may have, and what to do about another one."""
    if claims.takes_arm_features:
        hint = "; a number for each arm is a column, [[…], […]]" if shape == (arms,) and q == 1 else ""
        return f"expected shape ({q},), the same for all arms, or ({arms}, {q}), a row for each arm, got {shape}{hint}"
    remedy = "; this policy takes one row for all arms, and those with the capability takes_arm_features, such as"
    remedy += " LinUCB, StructuralKalman and Autopilot, one for each"
    return f"expected shape ({q},), got {shape}{remedy if shape == (arms, q) else ''}"
