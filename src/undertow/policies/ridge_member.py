"""A ridge regression on lagged contexts, features and own rewards as a member of a learner."""

from dataclasses import dataclass
from typing import Self

from undertow._checks import FloatArray
from undertow._kernel import plain
from undertow.identify.columns import centre_and_scale
from undertow.policies.inputs import inputs_size, new_inputs
from undertow.policies.member import (
    BEGIN,
    CONSTANT,
    FACTOR,
    KIND,
    READY,
    RIDGE,
    SETTINGS,
    SIZE,
    Fit,
    Member,
    Span,
    Task,
)
from undertow.policies.ridge_member_steps import RidgeBlock, open_ridge_block, ridge_block, ridge_catch_up

__all__ = ["RidgeMember"]

_LAG_INPUTS = 60  # how many inputs past rewards may bring
_DRIFT = 0.25  # change of mean or scale, relative to the scale, from which the regression is built anew


@dataclass(frozen=True)
class RidgeMember(Member):
    """What LinUCB with reward lags knows, at any scale: rewards need not be linear in any hidden state.

    `memory` is over how many past rounds contexts and own rewards enter; with 0, an arm is a constant and fixed weights
    on the features.
    """

    memory: int = 5

    def growth(self, rounds: int) -> float:
        """Return by which factor the data grow until the next fit, which only measures the columns anew."""
        return 2.0

    @property
    def lags(self) -> int:
        """Over how many past rounds own rewards enter."""
        return min(self.memory, _LAG_INPUTS // (2 * self.arms))

    @property
    def name(self) -> str:
        """What people call the model."""
        return "ridge" if self.memory else "constant arms"

    @property
    def size(self) -> int:
        """Length of the block."""
        return len(self.block(0.0))

    @property
    def sizes(self) -> list[int]:
        """Places in the block that hold sizes and never change."""
        first = SETTINGS + 4 * self.arms
        inputs = self.size - len(new_inputs(self.context_dim, self.memory, self.feature_dim, self.lags))
        return [KIND, SIZE, first, first + 1, inputs, inputs + 1, inputs + 2]

    def block(self, factor: float) -> FloatArray:
        """Return the block before the first round."""
        k, m, q = self.arms, self.context_dim, self.feature_dim
        p = inputs_size(k, m, self.memory, q, self.lags)
        block = ridge_block(k, m, q, self.memory, self.lags, p)
        block[KIND], block[SIZE], block[FACTOR] = RIDGE if self.memory else CONSTANT, len(block), factor
        return block

    def open(self, block: FloatArray) -> RidgeBlock:
        """Return named views of a block."""
        own: RidgeBlock = plain(open_ridge_block)(block, 0, self.arms, self.context_dim)
        return own

    def fit(self, task: Task) -> Fit:
        """Fit the model to the rows of a task, from its block."""
        own, rows = self.open(task.block), task.rows
        m, q = self.context_dim, self.feature_dim
        units = [centre_and_scale(rows[:, i]) for i in range(m + q)]
        reward = centre_and_scale(rows[:, -1])
        old = [*zip(own.centre, own.scale, strict=True), (own.sizes[2], own.sizes[3])]
        moved = max(
            max(abs(c - c0) / s0, abs(s - s0) / s0) for (c, s), (c0, s0) in zip([*units, reward], old, strict=True)
        )
        if own.settings[READY] and moved < _DRIFT:
            return Fit(task.block.copy(), (), 1, float("nan"))
        block = self.block(task.block[FACTOR])
        fresh = self.open(block)
        for i, (centre, scale) in enumerate(units):
            fresh.centre[i], fresh.scale[i] = centre, scale
        fresh.sizes[2], fresh.sizes[3] = reward
        block[BEGIN] = task.begin
        self._rebuild(block, rows, task.begin)
        return Fit(block, (), 1, float("nan"))

    def _rebuild(self, block: FloatArray, rows: FloatArray, begin: int) -> None:
        end = begin + len(rows)
        ridge_catch_up(block, 0, self.arms, self.context_dim, rows, begin, end, begin, end, self.context_first)
        block[READY] = 1.0

    def believe(self, block: FloatArray, rows: FloatArray, end: int) -> None:
        """Filter through the rows of a log with the model as it is."""
        fresh = self.block(block[FACTOR])
        new, old = self.open(fresh), self.open(block)
        new.centre[:], new.scale[:], new.sizes[2:4] = old.centre, old.scale, old.sizes[2:4]
        self._rebuild(fresh, rows, end - len(rows))
        new.settings[:] = old.settings
        block[:] = fresh

    def adopt(self, old: Self, block: FloatArray, rows: FloatArray, end: int) -> FloatArray:
        """Return the block with one more arm, built anew from the log."""
        fresh = self.block(block[FACTOR])
        own, was = self.open(fresh), old.open(block)
        own.settings[:] = was.settings
        own.settings[SIZE] = self.size
        own.centre[:], own.scale[:], own.sizes[2:4] = was.centre, was.scale, was.sizes[2:4]
        self.believe(fresh, rows, end)
        return fresh

    def catch_up(self, state: FloatArray, at: int, rows: FloatArray, span: Span) -> None:
        """Go through rows of a log with the block in place."""
        ridge_catch_up(state, at, self.arms, self.context_dim, rows, *span, self.context_first)
