"""The units in which a policy computes: costs as negative rewards, columns standardized.

All data pass through the units on their way in, and forecasts on their way out; kernels do not depend on them.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from undertow.compiled.player import Player
from undertow.errors import InvalidInputError
from undertow.live.decision import Capabilities
from undertow.live.fields import Field, Written
from undertow.live.names import Named, Rows, as_rows, in_row
from undertow.live.saved import FINITE, Saved
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["Columns", "Units"]


_PLAIN = (float, int, str, bool)  # the usual values of a row of features


class Units(NamedTuple):
    """Centre c and scale s of every column, in the order contexts, features, reward: x becomes (x − c) / s.

    If rewards are costs, their scale is negative: the least cost has the largest reward.
    """

    centre: FloatArray  # (m + q + 1,)
    scale: FloatArray

    @classmethod
    def as_given(cls, context_dim: int, feature_dim: int, *, minimize: bool) -> "Units":
        """Return units that change nothing but, if costs are minimized, the sign of the rewards."""
        scale = np.ones(context_dim + feature_dim + 1)
        if minimize:
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
        """Return rewards, of any shape, in these units."""
        return np.asarray((values - self.centre[-1]) / self.scale[-1])

    def rewards_outward(self, values: FloatArray) -> FloatArray:
        """Convert rewards from these units to the user's."""
        return np.asarray(values * self.scale[-1] + self.centre[-1])

    def outward(self, forecast: FloatArray, width: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return forecasts and widths in the units of the rewards."""
        return self.rewards_outward(forecast), width * abs(self.scale[-1])


class Columns:
    """The columns of a policy, checked and in units that never change."""

    remembers: ClassVar[tuple[Field, ...]] = (Written("seen", "features_seen", Saved((2, "q"), *FINITE), when="fills"),)
    follows = False  # whether the units follow the data

    def __init__(self, context_dim: int, feature_dim: int, *, minimize: bool) -> None:
        self.context_dim, self.feature_dim, self.minimize = context_dim, feature_dim, minimize
        self.units = Units.as_given(context_dim, feature_dim, minimize=True) if minimize else None  # None: unchanged
        self.pause = math.inf  # the round before whose decision the units change
        self.features: Named | None = None  # names of the features, if any
        self.contexts: Named | None = None
        self.seen = np.zeros((2, 0))  # number of values in each column of the features, and their sum

    @property
    def awaits_reward(self) -> bool:
        """Whether the units will change with the first reward."""
        return False

    def declare(self, features: Named | None, contexts: Named | None) -> None:
        """Set names for the columns of features and contexts."""
        self.features, self.contexts = features, contexts
        if features is not None and features.filled and self.feature_dim:
            self.seen = np.zeros((2, features.width))

    @property
    def fills(self) -> bool:
        """Whether the means of the features are remembered."""
        return self.seen.size > 0

    def note_row(self, features: FloatArray) -> None:
        """Record the features, in one row or in a row for each arm."""
        assert self.features is not None
        for row in np.atleast_2d(features):
            given = self.features.measured & (row[self.features.gap_of] == 0.0)
            self.seen[0] += given
            self.seen[1] += np.where(given, row, 0.0)

    def named_features(self, row: Mapping[Any, Any], arms: Sequence[str], closed: FloatArray) -> FloatArray | None:
        """Return features given by name, (q,), or (k, q) if each arm has a row under its own name."""
        names = self.features
        if names is None:
            if not self.feature_dim:
                return None  # ignored by policies without features; others would have names for them
            raise InvalidInputError(
                f"features: expected shape ({self.feature_dim},), got names; pass feature_names at construction"
            )
        if not row or type(next(iter(row.values()))) in _PLAIN or not all(isinstance(o, Mapping) for o in row.values()):
            return self._encoded(names, row)
        if unknown := [arm for arm in row if arm not in arms]:
            raise InvalidInputError(f"features: expected rows for {', '.join(arms)}, got one for {unknown[0]!r:.60}")
        if absent := [arm for arm, shut in zip(arms, closed, strict=True) if arm not in row and not shut]:
            raise InvalidInputError(f"features: expected a row for every arm, got none for {', '.join(absent)}")
        rows = [self._encoded(names, row[arm]) if arm in row else np.zeros(names.width) for arm in arms]
        return np.array(rows) if self.feature_dim else None

    def _encoded(self, names: Named, row: Mapping[Any, Any]) -> FloatArray | None:
        if not self.feature_dim:
            names.require(row)
            return None
        means = self.seen[1] / np.maximum(self.seen[0], 1.0) if self.fills else None
        return checks.row("features", names.encode(row, means), (names.width,))

    def named_context(self, row: Mapping[Any, Any]) -> FloatArray:
        """Return a context given by name, (m,); NaN if missing."""
        if self.contexts is None:
            raise InvalidInputError(
                f"context: expected shape ({self.context_dim},), got names; pass context_names at construction"
            )
        return checks.row("context", self.contexts.encode(row), (self.context_dim,), missing=True)

    def past_features(
        self, given: Rows | None, arms: Sequence[str], closed: FloatArray, played: npt.NDArray[np.int64]
    ) -> npt.ArrayLike | None:
        """Return features of past rounds, (n, q), if they have names; others unchanged; None if the policy takes none.

        Missing ones are the mean over the rounds before.
        """
        if (rows := _rows("features", given, self.features, len(played))) is None:
            return cast("npt.ArrayLike | None", given)
        past, found = copy.copy(self), np.zeros((len(played), self.feature_dim))
        past.seen = self.seen.copy()
        for place, (row, arm) in enumerate(zip(rows, played, strict=True)):
            with in_row(place):
                if row is None:
                    raise InvalidInputError("features: expected a row with names, got none")
                known = past.named_features(row, arms, closed)
            if known is not None:
                found[place] = known if known.ndim == 1 else known[arm]
                if arm >= 0 and past.fills:
                    past.note_row(found[place])
        return found if self.feature_dim else None

    def past_contexts(self, given: Rows | None, rounds: int) -> npt.ArrayLike | None:
        """Return contexts of past rounds, as `past_features` does; missing ones are NaN."""
        if (rows := _rows("contexts", given, self.contexts, rounds)) is None:
            return cast("npt.ArrayLike | None", given)
        found = np.full((rounds, self.context_dim), math.nan)
        for place, row in enumerate(rows):
            with in_row(place):
                if row is not None and self.context_dim:
                    found[place] = self.named_context(row)
                elif row is not None and self.contexts is not None:
                    self.contexts.require(row)
        return found if self.context_dim else None

    def checked_features(
        self, features: npt.ArrayLike | None, arms: int, capabilities: Capabilities
    ) -> FloatArray | None:
        """Return the round's features, checked: (q,) for all arms, or a row for each if the policy takes these."""
        q = self.feature_dim
        if features is None:
            if q:
                raise InvalidInputError(f"features: expected shape ({q},), got None; pass features=…")
            return None
        if not q:
            remedy = (
                "give feature_dim at construction" if capabilities.takes_features else "this policy takes no features"
            )
            context = ". A context goes to decide(context=…) or observe(context)" if self.context_dim else ""
            raise InvalidInputError(f"features: expected None, got {features!r:.60}; {remedy}{context}")
        given = features if isinstance(features, np.ndarray) else checks.numbers("features", features)
        shape = (arms, q) if given.ndim == 2 and capabilities.takes_arm_features else (q,)
        if given.shape != shape:
            raise InvalidInputError(f"features: {_expected(given.shape, arms, q, capabilities)}")
        return checks.row("features", given, shape)

    def put_features(self, given: FloatArray | None, player: Player) -> None:
        """Write checked features for the player, in the policy's units."""
        if given is not None:
            player.give(given if self.units is None else self.units.inward(given, self.context_dim))

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
        """Record a reward and return it in the policy's units."""
        self.note(reward=value)
        return value if self.units is None else self.units.reward(value)

    def begin(self, **columns: FloatArray | float) -> None:
        """Begin new columns with these values: context, features or reward."""

    def note(self, **columns: FloatArray | float) -> None:
        """Record values in their own units: context, features or reward, one row each."""


def _rows(argument: str, given: Rows | None, names: Named | None, rounds: int) -> list[Any] | None:
    """Return rows given by name; without declared names, a frame is an array."""
    rows = as_rows(given) if names is not None or isinstance(given, list | tuple) else None
    if rows is not None and len(rows) != rounds:
        raise InvalidInputError(f"{argument}: expected {rounds} rows, one for each round, got {len(rows)}")
    return rows


def _expected(shape: tuple[int, ...], arms: int, q: int, capabilities: Capabilities) -> str:
    """Describe the allowed shapes of features, and the remedy for others."""
    if capabilities.takes_arm_features:
        hint = "; a number for each arm is a column, [[…], […]]" if shape == (arms,) and q == 1 else ""
        return f"expected shape ({q},), the same for all arms, or ({arms}, {q}), a row for each arm, got {shape}{hint}"
    remedy = "; this policy takes one row for all arms, and those with the capability takes_arm_features, such as"
    remedy += " LinUCB, StructuralKalman and Autopilot, one for each"
    return f"expected shape ({q},), got {shape}{remedy if shape == (arms, q) else ''}"
