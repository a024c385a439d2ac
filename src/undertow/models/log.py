"""The history of a learner, in bounded memory."""

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError
from undertow.live.fields import Field
from undertow.live.saved import COUNT, MEASURED, Saved
from undertow.models.table import played_arms
from undertow.support.checks import FloatArray

__all__ = [
    "AFTER",
    "BEFORE",
    "LARGEST",
    "ROWS",
    "RoundLog",
    "arms_played",
    "by_time_step",
    "has_context",
    "require_small",
    "same_time_step",
]

BEFORE, AFTER = 1, 2  # flags: a round shares its time step with the one before, with the one after

LARGEST = 1e100  # of the rewards: the cube of one is finite, since a loading times a state is learned from it
_ROOM = 64  # rows, at least
ROWS = Saved(("log", "m+q+3"), *MEASURED, missing=True)  # `check` has the bounds of their arms


class RoundLog:
    """One row per round: m contexts, q features, flags of shared time steps, the arm, its reward.

    The arm is −1 if none was played, the reward NaN until it comes. If arms have their own features, those of the
    played arm are stored: fits need no others. Of rounds that share a time step, the first one has its context, or the
    last one if contexts come after decisions. At least the last `keep` rounds are remembered, at most twice as many.
    """

    remembers: ClassVar[tuple[Field, ...]] = (
        Field(
            "_rows",
            {
                "log_begin": Saved((1,), 0, "rounds", whole=True),
                "log_room": Saved((1,), 1, COUNT, whole=True),
                "log_rows": ROWS,
            },
            lambda log: (np.array([float(log.begin)]), np.array([float(log.room)]), log.rows(log.begin, log.end)),
            lambda log, begin, room, rows: log.read(int(begin.item()), rows, int(room.item())),
        ),
    )

    def __init__(self, context_dim: int, feature_dim: int, keep: int) -> None:
        self.context_dim, self.feature_dim, self.keep = context_dim, feature_dim, keep
        self.shared, self.arm, self.reward = (context_dim + feature_dim + place for place in range(3))
        self.context = slice(context_dim)
        self.begin = self.end = 0  # the rounds that are remembered
        self._paid: list[int] = []  # rounds whose reward came since the last checkpoint
        self._rows = self.blank(_ROOM)

    def open(self, last: int) -> None:
        """Add rows for every round up to `last`, empty ones for unknown data."""
        if last < self.end:
            return
        if last - self.begin >= len(self._rows):
            first = max(self.begin, last + 1 - self.keep)
            kept = self.rows(first, self.end)
            rows = self.blank(self.room_for(last + 1 - first))
            rows[: len(kept)] = kept
            self._rows, self.begin = rows, first
        self.end = last + 1  # rows beyond the end have been blank from the start

    def share(self, number: int) -> None:
        """Record that a round is in the same time step as the one before; may be repeated."""
        self.row(number)[self.shared] = BEFORE
        last = self.row(number - 1)
        last[self.shared] = last[self.shared] % AFTER + AFTER

    def mark(self) -> Any:
        """Return the data for `go_back`: of the rows so far, only the last one and rewards may change."""
        self._paid = []
        return self._rows, self.begin, self.end, self.keep, self.rows(self.end - 1, self.end).copy()

    def go_back(self, mark: Any) -> None:
        """Restore the state of a `mark`."""
        self._rows, self.begin, self.end, self.keep, last = mark
        end = self.end - self.begin
        self._rows[end:] = self.blank(len(self._rows) - end)
        for number in self._paid:
            if self.begin <= number < self.end:
                self._rows[number - self.begin, self.reward] = math.nan
        self.rows(self.end - 1, self.end)[:] = last

    def pay(self, number: int, reward: float) -> None:
        """Store the reward of a round that had none."""
        self._paid.append(number)
        self.put(number, self.reward, reward)

    def blank(self, count: int) -> FloatArray:
        """Return empty rows in a batch; clearing each on its own would slow every round."""
        rows = np.full((count, self.reward + 1), math.nan)
        rows[:, self.shared], rows[:, self.arm] = 0.0, -1.0
        return rows

    def row(self, number: int) -> FloatArray:
        """Return a round's row, to read or to write."""
        self.open(number)
        row: FloatArray = self._rows[number - self.begin]
        return row

    def put(self, number: int, column: int | slice, value: float | FloatArray) -> None:
        """Write into a round's row, faster than through `row`."""
        if number >= self.end:
            self.open(number)
        self._rows[number - self.begin, column] = value

    def rows(self, first: int, last: int) -> FloatArray:
        """Return the rows of rounds `first` to `last`, the last excluded."""
        return self._rows[max(first - self.begin, 0) : max(last - self.begin, 0)]

    def room_for(self, rows: int) -> int:
        """Return the number of rows to allocate."""
        return min(_ROOM + 5 * rows // 4, 2 * max(self.keep, rows))

    @property
    def room(self) -> int:
        """Number of allocated rows; when they are full, the oldest are dropped."""
        return len(self._rows)

    def check(self, rows: FloatArray, arms: int) -> None:
        """Refuse rows with an unknown arm, a missing feature, or inconsistent flags of time steps."""
        played, features = rows[:, self.arm], rows[:, self.context_dim : self.shared]
        if not Saved(("n",), 0, BEFORE + AFTER, whole=True).holds(rows[:, self.shared]):
            raise InvalidInputError(f"log: expected 0 to {BEFORE + AFTER} as the flags of shared time steps")
        if not Saved(("n",), -1, arms - 1, whole=True).holds(played) or np.isnan(features[played >= 0]).any():
            raise InvalidInputError(f"log: expected arms from -1 to {arms - 1}, and their features")

    def read(self, begin: int, rows: FloatArray, room: int) -> None:
        """Restore saved rows, with the same allocation, so that rows are dropped at the same time."""
        if not len(rows) <= room <= self.room_for(len(rows)):
            raise InvalidInputError(f"log_room: {room} rows do not fit {len(rows)} that are kept")
        self.begin, self.end = begin, begin + len(rows)
        self._rows = self.blank(room)
        self._rows[: len(rows)] = rows


def require_small(reward: float) -> None:
    """Refuse a reward with which models would overflow."""
    if not -LARGEST <= reward <= LARGEST:
        raise InvalidInputError(
            f"reward: expected at most {LARGEST:g} in size, got {reward:g}; check the measurement, or pass all "
            "rewards in a larger unit"
        )


def arms_played(arms: npt.ArrayLike, k: int) -> npt.NDArray[np.int64]:
    """Return checked indices of k arms, −1 if none was played."""
    played, _ = played_arms(arms)
    if len(played) and played.max() >= k:
        raise InvalidInputError(f"arms: expected numbers from -1 to {k - 1}, got {played.max()}")
    return played


def same_time_step(rows: FloatArray) -> npt.NDArray[np.bool_]:
    """Return for every row of a log whether it is in the same time step as the one before."""
    return np.asarray(rows[:, -3] % AFTER == BEFORE)


def has_context(shared: Any, *, context_first: bool) -> Any:
    """Return whether a round has the context of its time step: the first or, if it comes after decisions, the last.

    `shared` says with which rounds it shares the time step; a number, or several.
    """
    return shared % AFTER == 0 if context_first else shared < AFTER


def by_time_step(rows: FloatArray, m: int, *, context_first: bool) -> tuple[FloatArray, npt.NDArray[np.int64], bool]:
    """Return the m contexts of every time step of a log, the time step of every row, and whether the last is over.

    It is not if the context comes after the decisions, and another decision came first.
    """
    shared = rows[:, -3]
    if not shared.any():
        return rows[:, :m], np.arange(len(rows)), True
    begun = np.cumsum(~same_time_step(rows), dtype=np.int64)
    time_steps = begun - begun[0]
    holds = has_context(shared, context_first=context_first)
    contexts = np.full((int(time_steps[-1]) + 1, m), math.nan)
    contexts[time_steps[holds]] = rows[holds, :m]
    return contexts, time_steps, context_first or bool(shared[-1] < AFTER)
