"""The structural model as a member of a learner: when and how it is fitted, and how a fit takes effect."""

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from undertow._checks import FloatArray
from undertow._kernel import plain
from undertow.identify.columns import centre_and_scale
from undertow.identify.levels import filter_levels, optimise_levels, typical_levels
from undertow.identify.levels_steps import GROUPS
from undertow.policies.levels_member_steps import (
    LevelsBlock,
    levels_block_size,
    levels_catch_up,
    open_levels_block,
)
from undertow.policies.member import (
    ALARMED,
    BEGIN,
    FACTOR,
    KIND,
    LEVEL,
    LEVELS,
    OVER,
    READY,
    SETTINGS,
    SIZE,
    TURN,
    Fit,
    Member,
    Span,
    Task,
)

__all__ = ["LevelsMember", "expected_largest"]

_LONGEST_LAG = 10
_WEIGHTS = 36  # how many weights the lagged contexts may bring, over all arms
_WINDOW = 1500  # rounds that the hyper-parameters are fitted to
_EVALUATIONS = 20  # of the likelihood in one fit
_TURNS = (50, 500)  # rounds after which a fast level of the other sign is tried as well


def expected_largest(k: int) -> float:
    """Return the expected maximum of k standard normal numbers, to 0.002: by how much the best of k arms stands out."""
    x = np.linspace(-8.0, 8.0, 4001)
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2.0)) for value in x])
    return max(float(np.trapezoid(np.where(x > 0, 1.0, 0.0) - below**k, x)), 0.0)


class LevelsModel(NamedTuple):
    """The hyper-parameters of the structural model, variances in the rewards' units; see `identify.FittedLevels`."""

    shared_persistence: float
    slow_persistence: float
    fast_persistence: float
    shared_variance: float
    slow_variance: float
    fast_variance: float
    intercept_variance: float
    weight_variance: float
    shared_weight_variance: float
    reward_noise: float


@dataclass(frozen=True)
class LevelsMember(Member):
    """A shared level, a slow and a fast level of each arm, and weights on features (`identify.fit_levels`)."""

    fitted_by = "fit_levels"

    @property
    def lags(self) -> int:
        """How many past contexts serve as features."""
        m, k = self.context_dim, self.arms
        return min(_LONGEST_LAG, _WEIGHTS // (m * (k + 1))) if m else 0

    @property
    def name(self) -> str:
        """What people call the model."""
        return "structural levels"

    @property
    def size(self) -> int:
        """Length of the block."""
        return levels_block_size(self.arms, self.context_dim, self.feature_dim, self.lags)

    @property
    def sizes(self) -> list[int]:
        """Places in the block that hold sizes and never change."""
        first = SETTINGS + 4 * self.arms
        return [KIND, SIZE, first, first + 1]

    def block(self, factor: float) -> FloatArray:
        """Return the block before the first round."""
        block = np.zeros(self.size)
        block[KIND], block[SIZE], block[FACTOR] = LEVELS, self.size, factor
        sizes = SETTINGS + 4 * self.arms
        block[sizes : sizes + 4] = self.feature_dim, self.lags, 0.0, 1.0
        own = self.open(block)
        own.scale[:] = 1.0
        own.past[:] = math.nan
        own.hyper[:] = typical_levels()
        return block

    def open(self, block: FloatArray) -> LevelsBlock:
        """Return named views of a block."""
        own: LevelsBlock = plain(open_levels_block)(block, 0, self.arms, self.context_dim)
        return own

    def inputs(self, rows: FloatArray) -> FloatArray:
        """Return the features of every row of a log: those given, then lagged contexts, NaN where missing."""
        m, q = self.context_dim, self.feature_dim
        result = np.full((len(rows), q + self.lags * m), math.nan)
        result[:, :q] = rows[:, m : m + q]
        for lag in range(self.lags):
            back = lag if self.context_first else lag + 1
            if back < len(rows):
                result[back:, q + lag * m : q + (lag + 1) * m] = rows[: len(rows) - back, :m]
        return result

    def fit(self, task: Task) -> Fit:
        """Fit the model to the rows of a task, from its block."""
        block, rows = task.block.copy(), task.rows
        own, k = self.open(block), self.arms
        inputs = self.inputs(rows)
        rewards = rows[:, -1]
        own.sizes[2], own.sizes[3] = centre_and_scale(rewards)
        m, q = self.context_dim, self.feature_dim
        for i in range(q):
            own.centre[i], own.scale[i] = centre_and_scale(rows[:, m + i])
        self._scale_contexts(own, rows)
        table = self.table(own, rows)
        recent = np.ascontiguousarray(table[-_WINDOW:])
        Q = inputs.shape[1]
        hyper, best, likelihood, used = optimise_levels(recent, k, Q, own.hyper, _EVALUATIONS)
        turn = int(own.settings[TURN])
        if turn < len(_TURNS) and len(rows) >= _TURNS[turn]:  # do the fast levels change sign every round?
            own.settings[TURN] += 1
            own.hyper[2] *= -1.0
            turned, objective, other, more = optimise_levels(recent, k, Q, own.hyper, _EVALUATIONS)
            used += more
            if objective > best:
                hyper, likelihood = turned, other
        if not math.isfinite(likelihood):
            raise FloatingPointError("no levels with a finite likelihood were found")
        own.hyper[:] = hyper
        filter_levels(table, own.hyper, k, Q, own.z, own.P)
        self._remember(own, rows)
        own.settings[READY], own.settings[OVER] = 1.0, 1.0
        own.settings[LEVEL], own.settings[ALARMED] = 1.0, 0.0
        own.settings[BEGIN] = task.begin
        return Fit(block, (used,), 1, likelihood)

    def describe(self, block: FloatArray) -> LevelsModel | None:
        """Return the model in words; None before the first fit."""
        own = self.open(block)
        if own.settings[READY] == 0:
            return None
        φ, unit = own.hyper[:GROUPS], own.sizes[3] ** 2
        return LevelsModel(*map(float, φ[:3]), *map(float, unit * own.hyper[GROUPS:]))

    def _remember(self, own: LevelsBlock, rows: FloatArray) -> None:
        """File the contexts of the last rows."""
        past = rows[::-1][: self.lags, : self.context_dim]
        own.past[:] = math.nan
        own.past[: len(past)] = past

    def table(self, own: LevelsBlock, rows: FloatArray) -> FloatArray:
        """Return arm, reward and features of the rows of a log, standardised."""
        inputs = (self.inputs(rows) - own.centre) / own.scale
        rewards = (rows[:, -1] - own.sizes[2]) / own.sizes[3]
        return np.column_stack([rows[:, -2], rewards, np.nan_to_num(inputs, nan=0.0)])

    def believe(self, block: FloatArray, rows: FloatArray, end: int) -> None:
        """Filter through the rows of a log with the model as it is."""
        own = self.open(block)
        self._remember(own, rows)
        if own.settings[READY] and len(rows):
            table = self.table(own, rows)
            filter_levels(table, own.hyper, self.arms, len(own.u), own.z, own.P)
            own.u[:] = table[-1, 2:]  # the reward of the last round may still come
            own.settings[OVER] = 1.0

    def adopt(self, old: Self, block: FloatArray, rows: FloatArray, end: int) -> FloatArray:
        """Return the block with one more arm, whose levels and weights are as unknown as the others' were."""
        fresh = self.block(block[FACTOR])
        own, was = self.open(fresh), old.open(block)
        own.settings[:] = was.settings
        own.settings[SIZE] = self.size
        own.sizes[2:4], own.hyper[:] = was.sizes[2:4], was.hyper
        inputs = len(own.u)  # with more arms there may be fewer lags
        own.centre[:], own.scale[:] = was.centre[:inputs], was.scale[:inputs]
        self.believe(fresh, rows, end)
        return fresh

    def _scale_contexts(self, own: LevelsBlock, rows: FloatArray) -> None:
        m, q = self.context_dim, self.feature_dim
        for j in range(m):  # the same for all lags of a context entry
            centre, scale = centre_and_scale(rows[:, j])
            unseen = np.isnan(rows[:, j]).all()  # nobody knows its units, so that its values say nothing until a fit
            own.centre[q + j :: m], own.scale[q + j :: m] = centre, math.inf if unseen else scale

    def catch_up(self, state: FloatArray, at: int, rows: FloatArray, span: Span) -> None:
        """Go through rows of a log with the block in place."""
        levels_catch_up(state, at, self.arms, self.context_dim, rows, *span, self.context_first)
