"""A learned shared system as a member of a learner: when and how it is fitted, and how a fit takes effect."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from undertow._checks import FloatArray
from undertow._kernel import plain
from undertow.identify.information import spectral_radius
from undertow.identify.model import Model, Units, rescaled, standardised, to_system, units_of
from undertow.identify.score import filter_table
from undertow.identify.search import Attempt, Search, challenge, fit_one
from undertow.policies.member import (
    ALARMED,
    BEGIN,
    FACTOR,
    KIND,
    LEVEL,
    OVER,
    READY,
    SHARED,
    SIZE,
    SPENT,
    TURN,
    Fit,
    Member,
    Span,
    Task,
)
from undertow.policies.shared_steps import SharedBlock, open_shared_block, shared_block_size, shared_catch_up
from undertow.system import LinearGaussianSystem

__all__ = ["SharedMember"]

_BUDGET, _ADVANCE = 20.0, 2500  # units of work a round, and how many rounds' worth is there from the start
_SHARE = 0.35  # of the budget at hand that one refit may spend
_GROWTH = ((400, 1.4), (1500, 1.6), (math.inf, 2.0))  # factor of the data between two fits, up to so many rounds
_RECENT = 64  # rounds that an alarm looks at
_FAR_BETTER = 20.0  # nats
_UNIT_ROOT = 0.999


@dataclass(frozen=True)
class SharedMember(Member):
    """One shared hidden system of unknown order (`identify.fit`, kept up to date)."""

    fitted_by = "fit"

    @property
    def name(self) -> str:
        """What people call the model."""
        return "shared system"

    @property
    def size(self) -> int:
        """Length of the block."""
        return shared_block_size(self.arms, self.context_dim)

    def growth(self, rounds: int) -> float:
        """Return by which factor the data grow until the next fit: early fits matter most, late ones cost most."""
        return next(factor for end, factor in _GROWTH if rounds < end)

    def block(self, factor: float) -> FloatArray:
        """Return the block before the first round."""
        block = np.zeros(self.size)
        block[KIND], block[SIZE], block[FACTOR] = SHARED, self.size, factor
        return block

    def open(self, block: FloatArray) -> SharedBlock:
        """Return named views of a block."""
        own: SharedBlock = plain(open_shared_block)(block, 0, self.arms, self.context_dim)
        return own

    def table(self, rows: FloatArray) -> FloatArray:
        """Return the columns of a log that the model looks at."""
        m = self.context_dim
        return np.ascontiguousarray(rows[:, [*range(m), -2, -1]])

    def fit(self, task: Task) -> Fit:
        """Fit the model to the rows of a task, from its block."""
        m, k = self.context_dim, self.arms
        block, table = task.block.copy(), self.table(task.rows)
        own = self.open(block)
        units = units_of(table, m)
        search = Search.on(standardised(table, units), m, k)
        model = None
        if own.settings[READY] > 0:
            model = rescaled(self.model(block), Units(own.mean.copy(), own.scale.copy()), units)
        rng = np.random.default_rng(task.seed)
        left = _BUDGET * (task.round + _ADVANCE) - own.settings[SPENT]
        best, spent, turn, tried = challenge(search, model, rng, _SHARE * left, int(own.settings[TURN]))
        begin = task.begin
        if own.settings[ALARMED] and model is not None:
            recent = self._recent(search, best, rng, tried)
            if recent is not None:
                best, search = recent
                begin = task.round - len(search.table)
        if not math.isfinite(best.log_likelihood):
            raise FloatingPointError("no system with a finite likelihood was found")
        self._settle(own, search, best, units)
        own.settings[SPENT] += spent
        own.settings[TURN] = turn
        own.settings[BEGIN] = begin
        return Fit(block, tuple(tried), best.order, best.log_likelihood)

    def _recent(
        self, search: Search, model: Model, rng: np.random.Generator, tried: list[Attempt]
    ) -> tuple[Model, Search] | None:
        """Return a model of the last rounds alone, where it explains them far better than the one of all rounds.

        It is short, comes with alarms only, and is not charged to the budget.
        """
        length = max(_RECENT, 3 * self.arms)
        if len(search.table) <= 2 * length or spectral_radius(model.vector, model.order) > _UNIT_ROOT:
            return None
        m = self.context_dim
        filter_table(model.vector, model.order, m, self.arms, search.table, model.prior[0], search.store)
        v, F = (values[-length:] for values in search.innovations())
        old = -0.5 * float(np.nansum(math.log(2 * math.pi) + np.log(F) + v * v / F))
        fresh = Search.on(np.ascontiguousarray(search.table[-length:]), m, self.arms)
        rival, _, _, more = challenge(fresh, None, rng, 10_000.0, 0)
        tried.extend(more)
        return (rival, fresh) if rival.criterion - old > _FAR_BETTER else None

    def _settle(self, own: SharedBlock, search: Search, model: Model, units: Units) -> None:
        """Write a model into a block, with the belief after the last round and what is unknown of each arm."""
        d, m, k = model.order, self.context_dim, self.arms
        settled, _ = fit_one(search, model, em_steps=0, evaluations=1)
        own.settings[READY], own.settings[OVER] = d, 1.0
        own.settings[LEVEL], own.settings[ALARMED] = 1.0, 0.0
        own.mean[:], own.scale[:] = units
        own.vector[:], own.prior[:] = settled.vector, settled.prior
        own.At[:] = own.A.T
        own.noise[:] = np.exp(settled.vector[len(settled.vector) - m - 1 :])
        own.z[0], own.P[:] = search.belief()
        own.V[:] = search.inverse.reshape(m + k + 1, *own.V.shape[1:])[m : m + k]

    def believe(self, block: FloatArray, rows: FloatArray, end: int) -> None:
        """Filter through the rows of a log with the model as it is."""
        own, m, k = self.open(block), self.context_dim, self.arms
        d = int(own.settings[READY])
        if d == 0 or not len(rows):
            return
        table = standardised(self.table(rows), Units(own.mean, own.scale))
        search = Search.on(table, m, k)
        filter_table(own.vector, d, m, k, table, own.prior[0], search.store)
        own.z[0], own.P[:] = search.belief()
        own.settings[OVER] = 1.0

    def adopt(self, old: Self, block: FloatArray, rows: FloatArray, end: int) -> FloatArray:
        """Return the block with one more arm, of which only the prior is known."""
        fresh = self.block(block[FACTOR])
        own, was = self.open(fresh), old.open(block)
        own.settings[:] = was.settings
        own.settings[SIZE] = self.size
        if not was.settings[READY]:
            return fresh
        m, k = self.context_dim, self.arms
        own.A[:], own.b[:] = was.A, was.b
        own.C[: m + k - 1], own.D[: m + k - 1] = was.C, was.D
        own.vector[len(own.vector) - m - 1 :] = was.vector[len(was.vector) - m - 1 :]
        units = Units(was.mean.copy(), was.scale.copy())
        search = Search.on(standardised(self.table(rows), units), m, k)
        self._settle(own, search, Model(int(own.settings[READY]), own.vector.copy(), was.prior.copy()), units)
        return fresh

    def catch_up(self, state: FloatArray, at: int, rows: FloatArray, span: Span) -> None:
        """Go through rows of a log with the block in place."""
        shared_catch_up(state, at, self.arms, self.context_dim, rows, *span, self.context_first)

    def model(self, block: FloatArray) -> Model:
        """Return the model in use, in its own units."""
        own = self.open(block)
        return Model(int(own.settings[READY]), own.vector.copy(), own.prior.copy())

    def describe(self, block: FloatArray) -> LinearGaussianSystem | None:
        """Return the model in words; None before the first fit."""
        own = self.open(block)
        if own.settings[READY] == 0:
            return None
        return to_system(self.model(block), Units(own.mean, own.scale))
