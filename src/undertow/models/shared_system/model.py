"""One shared hidden system of unknown order: its filter, the uncertainty about each arm, and its fits.

Between two fits the filter runs with the present model. Every arm has the posterior covariance V_a of its [C_a; D_a]
given the states, and both are updated with every reward: recursive least squares, whose noise is the filter's predicted
variance; for the filter, in turn, the uncertainty about the arm is noise. The belief advances when the next round
begins, so that the reward of a round may come until then.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np

from undertow.compiled import Layout
from undertow.compiled.kernel import inlined, straight_kernel
from undertow.models.block import HANDICAP, Block, note_error, watch
from undertow.models.catch_up import compile_catch_up
from undertow.models.log import same_time_step
from undertow.models.model import Fit, Model, Steps, Task, no_played, no_see
from undertow.models.shared_system.information import spectral_radius
from undertow.models.shared_system.rows import dot, row, times_rows
from undertow.models.shared_system.score import condition_on, filter_table, move
from undertow.models.shared_system.search import Attempt, Search, challenge, expected_cost, fit_one
from undertow.models.shared_system.vector import (
    Prior,
    Scales,
    VectorModel,
    open_vector,
    rescaled,
    scales_of,
    split_vector,
    standardized,
    to_system,
)
from undertow.support.checks import FloatArray
from undertow.system import LinearGaussianSystem

__all__ = ["SharedSystem"]

_BUDGET, _ADVANCE = 20.0, 2500  # units of work per round, and the initial budget in rounds
_SHARE = 0.35  # of the budget at hand that one refit may spend
_GROWTH = ((400, 1.4), (1500, 1.6), (math.inf, 2.0))  # factor of the data between two fits, up to a number of rounds
_RECENT = 64  # rounds for the fit after an alarm
_FAR_BETTER = 20.0  # nats
_UNIT_ROOT = 0.999
_SHORT, _WIDEST = 1.5, 2.0  # underplayed_factor of a rarely played, uncertain arm


class SharedState(NamedTuple):
    """The block; everything but forecasts and units is standardized."""

    model: Block
    mean: Annotated[FloatArray, "m+1"]
    scale: Annotated[FloatArray, "m+1"]
    vector: Annotated[FloatArray, "72+9*(m+k)+m+1"]  # the system, as `models.shared_system.vector` splits it
    prior: Annotated[FloatArray, "8+m"]
    At: Annotated[FloatArray, "8 8"]
    noise: Annotated[FloatArray, "m+1"]
    z: Annotated[FloatArray, "1 8"]
    P: Annotated[FloatArray, "8 8"]
    X: Annotated[FloatArray, "8 8"]  # scratch
    K: Annotated[FloatArray, "1 8"]
    V: Annotated[FloatArray, "k 9 9"]


_LAYOUT = Layout(SharedState)
open_shared = _LAYOUT.open_in_kernels


@straight_kernel
def begin(blocks: FloatArray, at: int) -> None:
    """Advance to the present round, if the belief is still in the last one."""
    own = open_shared(blocks, at)
    head = own.model.head
    if head.over > 0.0:
        head.over = 0.0
        if head.order > 0.0:
            system = open_vector(own.vector, len(own.mean) - 1, len(own.V))
            move(own.z, own.P, system.A, own.At, system.b, own.X, int(head.order))


@inlined
def bonus_factor(most: float, t: int, k: int) -> float:
    """Return the factor of the width after t rounds: √ln((t + 1)/√k), at least 1 and at most `most`.

    Early models are poor guides for exploration.
    """
    return min(most, math.sqrt(max(1.0, math.log(t + 1.0) - 0.5 * math.log(k))))


@inlined
def underplayed_factor(t: int, k: int, plays: float, unseen: float) -> float:
    """Return the factor that widens an arm with less than its share t/k of the plays.

    √(ln(t / k n) − 1.5), at least 1, which it is from a twelfth of the share on, and at most 2. Its excess over 1 is
    multiplied by `unseen`, the remaining share of the arm's prior variance. The prior variance is an estimate: an arm
    whose prior just fails to reach the best arm would otherwise never be played again.
    """
    short = math.log(max(t / (k * max(plays, 1.0)), 1.0))
    return 1.0 + unseen * (min(_WIDEST, math.sqrt(max(1.0, short - _SHORT))) - 1.0)


@straight_kernel
def forecast(blocks: FloatArray, at: int, t: int, plays: FloatArray, first: int, last: int) -> None:
    """Write forecast, width and standard errors of arms `first` to `last` − 1, in the rewards' own units."""
    own = open_shared(blocks, at)
    out, k, m = own.model, len(own.V), len(own.mean) - 1
    system, prior = open_vector(own.vector, m, k), Prior(own.prior, 0)
    d, C, D = int(out.head.order), system.C, system.D
    factor = bonus_factor(out.head.bonus, t, k)
    mean, scale = own.mean[m], own.scale[m]
    z = row(own.z, 0)
    full = scale * math.sqrt(dot(z, z) / prior.arm_loading_precision + 1.0 / prior.offset_precision)
    for a in range(first, last):
        V = own.V[a]
        unknown = V[d, d]
        for i in range(d):
            total = 2.0 * V[i, d]
            for j in range(d):
                total += V[i, j] * own.z[0, j]
            unknown += own.z[0, i] * total
        h = row(C, m + a)
        moved = dot(h, times_rows(C, m + a, own.P, d))
        error = math.sqrt(max(unknown, 0.0))
        out.forecast[a] = mean + scale * (D[m + a] + dot(h, z))
        out.state_error[a] = scale * math.sqrt(max(moved, 0.0))
        out.arm_error[a] = scale * error
        unseen = min((out.arm_error[a] / full) ** 2, 1.0) if full > 0.0 else 1.0
        out.width[a] = scale * factor * error * underplayed_factor(t, k, plays[a], unseen)


@straight_kernel
def learn(blocks: FloatArray, at: int, t: int, arm: int, reward: float) -> None:
    """Condition state and arm on a reward of round t, the present one."""
    own = open_shared(blocks, at)
    k, m = len(own.V), len(own.mean) - 1
    system, d = open_vector(own.vector, m, k), int(own.model.head.order)
    C, D = system.C, system.D
    if d == 0:
        return
    V = own.V[arm]
    X = own.X  # row 0: V z̃ without its last entry
    unknown = V[d, d]
    last = V[d, d]
    for i in range(d):
        total = V[i, d]
        for j in range(d):
            total += V[i, j] * own.z[0, j]
        X[0, i] = total
        last += V[d, i] * own.z[0, i]
        unknown += own.z[0, i] * (total + V[i, d])
    unknown = max(unknown, 0.0)
    h = row(C, m + arm)
    e = (reward - own.mean[m]) / own.scale[m] - D[m + arm] - dot(h, row(own.z, 0))
    F = condition_on(own.z, own.P, h, own.K, e, own.noise[m] + unknown, d)
    for i in range(d):  # the filter's predicted variance and the uncertainty about the arm add up to F either way
        for j in range(d):
            V[i, j] -= X[0, i] * X[0, j] / F
        V[i, d] -= X[0, i] * last / F
        V[d, i] = V[i, d]
        C[m + arm, i] += X[0, i] * e / F
    V[d, d] -= last * last / F
    D[m + arm] += last * e / F
    note_error(own.model, arm, e * own.scale[m], math.sqrt(F) * own.scale[m])
    watch(own.model.alarm, e * e / F, t + 1)


@straight_kernel
def observe(blocks: FloatArray, at: int, t: int, context: FloatArray, first: bool) -> None:
    """Condition the belief on a context, which begins the round or ends it, after t rounds have begun."""
    if first:
        begin(blocks, at)
    own = open_shared(blocks, at)
    m = len(own.mean) - 1
    system, d = open_vector(own.vector, m, len(own.V)), int(own.model.head.order)
    if d > 0:
        for i in range(m):
            if not np.isnan(context[i]):
                h = row(system.C, i)
                e = (context[i] - own.mean[i]) / own.scale[i] - system.D[i] - dot(h, row(own.z, 0))
                F = condition_on(own.z, own.P, h, own.K, e, own.noise[i], d)
                watch(own.model.alarm, e * e / F, t)
    if not first:
        own.model.head.over = 1.0


@dataclass(frozen=True)
class SharedSystem(Model):
    """The model for a learner: `identify.fit`, kept up to date."""

    layout = _LAYOUT
    steps = Steps(begin, no_see, forecast, no_played, learn, observe)
    catch_up_kernel = compile_catch_up(__name__, steps)
    fitted_by: ClassVar[str] = "fit"

    name: str = "shared system"

    def fill(self, own: SharedState) -> None:
        """Write the handicap: the model ignores features, and its advantage are contexts."""
        own.model.head.handicap = HANDICAP if self.feature_dim else 0.0 if self.context_dim else HANDICAP / 2

    def growth(self, rounds: int) -> float:
        """Return the factor by which the data grow until the next fit: early fits matter most, late ones cost most."""
        return next(factor for end, factor in _GROWTH if rounds < end)

    def work(self, task: Task) -> float:
        """Return the expected microseconds of a fit."""
        order = int(self.open(task.block).model.head.order)
        return expected_cost(order, self.context_dim, self.arms, len(task.rows), self._budget(task))

    def _budget(self, task: Task) -> float:
        """Return the work that a fit may spend on challenges."""
        spent: float = self.open(task.block).model.head.spent
        return _SHARE * (_BUDGET * (task.round + _ADVANCE) - spent)

    def table(self, rows: FloatArray) -> FloatArray:
        """Return the model's columns of a log, and the shared time steps, if any."""
        same = same_time_step(rows)
        table = np.ascontiguousarray(rows[:, [*range(self.context_dim), -2, -1]])
        return np.column_stack([table, same]) if same.any() else table

    def fit(self, task: Task) -> Fit:
        """Fit the model to the rows of a task, from its block."""
        m, k = self.context_dim, self.arms
        block, table = task.block.copy(), self.table(task.rows)
        own: SharedState = self.open(block)
        head, scales = own.model.head, scales_of(table, m)
        search = Search.on(standardized(table, scales), m, k)
        model = None
        if head.order > 0:
            model = rescaled(_model(own), Scales(own.mean.copy(), own.scale.copy()), scales)
        rng = np.random.default_rng(task.seed)
        best, spent, turn, tried = challenge(search, model, rng, self._budget(task), int(head.turn))
        begin = task.begin
        if own.model.alarm.raised and model is not None:
            recent = self._recent(search, best, rng, tried)
            if recent is not None:
                best, search = recent
                begin = task.round - len(search.table)
        if not math.isfinite(best.log_likelihood):
            raise FloatingPointError("no system with a finite likelihood was found")
        self._settle(own, search, best, scales)
        head.spent += spent
        head.turn, head.begin = turn, begin
        return Fit(block, tuple(tried), best.order, best.log_likelihood)

    def _recent(
        self, search: Search, model: VectorModel, rng: np.random.Generator, tried: list[Attempt]
    ) -> tuple[VectorModel, Search] | None:
        """Return a model of the last rounds alone, if it explains them far better than the one of all rounds.

        It is fast, follows alarms only, and is not charged to the budget.
        """
        length = max(_RECENT, 3 * self.arms)
        if len(search.table) <= 2 * length or spectral_radius(model.vector, model.order) > _UNIT_ROOT:
            return None
        m, start = self.context_dim, Prior(model.prior, 0).start_variance
        filter_table(model.vector, model.order, m, self.arms, search.table, start, search.store)
        v, F = (values[-length:] for values in search.innovations())
        old = -0.5 * float(np.nansum(math.log(2 * math.pi) + np.log(F) + v * v / F))
        fresh = Search.on(np.ascontiguousarray(search.table[-length:]), m, self.arms)
        short, _, _, more = challenge(fresh, None, rng, 10_000.0, 0)
        tried.extend(more)
        return (short, fresh) if short.criterion - old > _FAR_BETTER else None

    def _settle(self, own: SharedState, search: Search, model: VectorModel, scales: Scales) -> None:
        """Write a model into a block, with the belief after the last round and the uncertainty about each arm."""
        m, k = self.context_dim, self.arms
        settled, _ = fit_one(search, model, em_steps=0, evaluations=1)
        own.model.head.order, own.model.head.over = model.order, 1.0
        own.model.alarm.level, own.model.alarm.raised = 1.0, 0.0
        own.mean[:], own.scale[:] = scales
        own.vector[:], own.prior[:] = settled.vector, settled.prior
        system = split_vector(own.vector, m, k)
        own.At[:] = system.A.T
        own.noise[:] = np.exp(system.log_r)
        own.z[0], own.P[:] = search.belief()
        own.V[:] = search.inverse.reshape(m + k + 1, *own.V.shape[1:])[m : m + k]

    def believe(self, block: FloatArray, rows: FloatArray, end: int) -> None:
        """Filter the rows of a log with the present model."""
        own, m, k = self.open(block), self.context_dim, self.arms
        d = int(own.model.head.order)
        if d == 0 or not len(rows):
            return
        table = standardized(self.table(rows), Scales(own.mean, own.scale))
        search = Search.on(table, m, k)
        filter_table(own.vector, d, m, k, table, Prior(own.prior, 0).start_variance, search.store)
        own.z[0], own.P[:] = search.belief()
        own.model.head.over = 1.0

    def rewound(self, block: FloatArray) -> FloatArray:
        """Return a copy with the belief before its first round; its arms are fixed."""
        copy = block.copy()
        own: SharedState = self.open(copy)
        own.V[:], own.z[:], own.P[:], own.model.head.over = 0.0, 0.0, 0.0, 0.0
        known = range(int(own.model.head.order))
        own.P[known, known] = Prior(own.prior, 0).start_variance
        return copy

    def with_belief(self, block: FloatArray, led: FloatArray) -> FloatArray:
        """Return a copy with the belief of another block."""
        copy = block.copy()
        own, other = self.open(copy), self.open(led)
        own.z[:], own.P[:], own.model.head.over = other.z, other.P, other.model.head.over
        return copy

    @property
    def step_work(self) -> float:
        """The expected microseconds of replaying one round."""
        return 0.6 + 0.1 * self.context_dim

    def adopt(self, old: Self, block: FloatArray, rows: FloatArray, end: int) -> FloatArray:
        """Return the block with one more arm, which has the prior."""
        fresh = self.block()
        own, was = self.open(fresh), old.open(block)
        self.inherit(fresh, block)
        if not was.model.head.order:
            return fresh
        m, k = self.context_dim, self.arms
        ours, theirs = split_vector(own.vector, m, k), split_vector(was.vector, m, k - 1)
        ours.A[:], ours.b[:], ours.log_r[:] = theirs.A, theirs.b, theirs.log_r
        ours.C[: m + k - 1], ours.D[: m + k - 1] = theirs.C, theirs.D
        scales = Scales(was.mean.copy(), was.scale.copy())
        search = Search.on(standardized(self.table(rows), scales), m, k)
        model = VectorModel(int(own.model.head.order), own.vector.copy(), was.prior.copy())
        self._settle(own, search, model, scales)
        return fresh

    def describe(self, block: FloatArray) -> LinearGaussianSystem | None:
        """Return the system in the rewards' own units; None before the first fit."""
        own = self.open(block)
        return to_system(_model(own), Scales(own.mean, own.scale)) if own.model.head.order else None


def _model(own: SharedState) -> VectorModel:
    """Return the model in use, in its own units."""
    return VectorModel(int(own.model.head.order), own.vector.copy(), own.prior.copy())
