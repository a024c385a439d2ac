"""The structural model, learned: levels of the arms, a level that all share, weights on features, by one Kalman filter.

The features of a round are those given to `decide`, then the last contexts, newest first; a context entry that is
missing counts as average.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np

from undertow._checks import FloatArray
from undertow.compiled import Layout, Record, kernel
from undertow.compiled.kernel import inlined, plain
from undertow.identify.levels.fit import LevelsModel, filter_levels, levels_model, optimise_levels, typical_levels
from undertow.identify.levels.steps import (
    Hyper,
    levels_condition,
    levels_forecast,
    levels_limit,
    levels_predict,
    levels_size,
)
from undertow.identify.table import centre_and_scale
from undertow.learners.model import (
    HANDICAP,
    Block,
    Fit,
    Model,
    RewardScale,
    Steps,
    Task,
    compile_catch_up,
    no_played,
    note_error,
    watch,
)
from undertow.learners.worth import lifetime, worth

__all__ = ["LEVELS_STEPS", "Levels"]

_LONGEST_LAG = 10
_WEIGHTS = 36  # how many weights the lagged contexts may bring, over all arms
_WINDOW = 1500  # rounds that the hyper-parameters are fitted to
_EVALUATIONS = 20  # of the likelihood in one fit
_DULL, _DULL_PLAYS = 0.05, 5  # of the spread, and how often an arm was played
_TURNS = (50, 500)  # rounds after which a fast level of the other sign is tried as well


class LevelsSizes(Record):
    """Number of lagged contexts, of features Q = q + lags · m, and of entries D of the filter's state."""

    lags: float
    Q: float
    D: float


class LevelsState(NamedTuple):
    """The block; belief and features are standardised."""

    model: Block
    sizes: LevelsSizes
    reward: RewardScale
    centre: Annotated[FloatArray, "Q"]
    scale: Annotated[FloatArray, "Q"]
    hyper: Annotated[FloatArray, "13"]
    u: Annotated[FloatArray, "Q"]  # features of the present round
    past: Annotated[FloatArray, "lags m"]  # contexts, newest first
    forecast: Annotated[FloatArray, "6 k"]  # what `levels_forecast` writes
    z: Annotated[FloatArray, "D"]
    P: Annotated[FloatArray, "D D"]
    scratch: Annotated[FloatArray, "2*D"]


_LAYOUT = Layout(LevelsState)
open_levels = _LAYOUT.open_in_kernels


@kernel
def begin(blocks: FloatArray, at: int) -> None:
    """Step to the present round, if the belief is still in the last one."""
    own = open_levels(blocks, at)
    head = own.model.head
    if head.over > 0.0:
        head.over = 0.0
        if head.order > 0.0:
            levels_predict(own.z, own.P, own.hyper, len(own.model.forecast), len(own.u), own.scratch)


@kernel
def see(blocks: FloatArray, at: int, t: int, features: FloatArray) -> None:
    """Set the features of the present round: those given, and the lagged contexts."""
    own = open_levels(blocks, at)
    q, m, lags = int(own.model.sizes.q), int(own.model.sizes.m), len(own.past)
    for i in range(q):
        own.u[i] = (features[i] - own.centre[i]) / own.scale[i]
    for lag in range(lags):
        for j in range(m):
            i = q + lag * m + j
            x = own.past[lag, j]
            own.u[i] = 0.0 if np.isnan(x) else (x - own.centre[i]) / own.scale[i]


@inlined
def helps(own: LevelsState, a: int, t: int) -> float:
    """Return for how many rounds it helps to know an arm: its slow level, constant and weights, each by its share."""
    hyper, P, k, q = Hyper(own.hyper, 0), own.P, len(own.model.forecast), len(own.u)
    s, b = 1 + a, 1 + 2 * k + a * (1 + q)
    weights = 0.0
    for i in range(q):
        weights += own.u[i] * own.u[i] * P[b + 1 + i, b + 1 + i]
    slow, constant = lifetime(hyper.slow_persistence, t), lifetime(hyper.intercept_persistence, t)
    lasting = P[s, s] * slow + P[b, b] * constant + weights * lifetime(hyper.weight_persistence, t)
    total = P[s, s] + P[b, b] + weights
    return lasting / total if total > 0.0 else constant


@kernel
def forecast(blocks: FloatArray, at: int, t: int, plays: FloatArray, first: int, last: int) -> None:
    """Write forecast, width and standard errors of arms `first` to `last` − 1, in the rewards' own units."""
    own = open_levels(blocks, at)
    out, k = own.model, len(own.model.forecast)
    levels_forecast(own.z, own.P, own.hyper, k, len(own.u), own.u, own.forecast, first, last)
    mean, scale, noise = own.reward.mean, own.reward.scale, Hyper(own.hyper, 0).reward_noise
    for a in range(first, last):
        out.forecast[a] = mean + scale * own.forecast[0, a]
        out.width[a] = scale * out.head.bonus * worth(own.forecast[2, a], noise, helps(own, a, t))
        out.state_error[a] = scale * math.sqrt(own.forecast[3, a])
        out.arm_error[a] = scale * math.sqrt(own.forecast[4, a])


@kernel
def learn(blocks: FloatArray, at: int, t: int, arm: int, reward: float) -> None:
    """Condition on a reward of round t, the present one."""
    own = open_levels(blocks, at)
    if own.model.head.order == 0.0:
        return
    k, scale = len(own.model.forecast), own.reward.scale
    x = (reward - own.reward.mean) / scale
    _, e, deviation = levels_condition(own.z, own.P, own.hyper, k, len(own.u), own.u, arm, x, own.scratch)
    note_error(own.model, arm, e * deviation * scale, deviation * scale)
    watch(own.model.alarm, e * e, t + 1)


@kernel
def observe(blocks: FloatArray, at: int, t: int, context: FloatArray, first: bool) -> None:
    """File a context, which begins the round or ends it."""
    if first:
        begin(blocks, at)
    own = open_levels(blocks, at)
    m, lags = int(own.model.sizes.m), len(own.past)
    for lag in range(lags - 1, 0, -1):
        for j in range(m):
            own.past[lag, j] = own.past[lag - 1, j]
    if lags > 0:
        for j in range(m):
            own.past[0, j] = context[j]
    if not first:
        own.model.head.over = 1.0


LEVELS_STEPS = Steps(begin, see, forecast, no_played, learn, observe)


def without_dull(table: FloatArray, k: int) -> FloatArray:
    """Return the table without the rewards of dull arms, which say nothing about how the others move.

    A dull arm has always paid the same, up to a twentieth of the rewards' spread, in at least five plays. Where all
    arms are dull, or none, the table stays as it is.
    """
    arms, x = table[:, 0], table[:, 1]
    spread = centre_and_scale(x, arms)[1]
    plays = [np.flatnonzero((arms == a) & ~np.isnan(x)) for a in range(k)]
    seen = [rows for rows in plays if len(rows)]
    dull = [rows for rows in seen if len(rows) >= _DULL_PLAYS and np.std(x[rows]) < _DULL * spread]
    if not dull or len(dull) == len(seen):
        return table
    result = table.copy()
    result[np.concatenate(dull), 1] = math.nan
    return result


@dataclass(frozen=True)
class Levels(Model):
    """The model for a learner: `identify.fit_levels`, kept up to date."""

    layout = _LAYOUT
    steps = LEVELS_STEPS
    catch_up_kernel = compile_catch_up(__name__, LEVELS_STEPS)
    fitted_by: ClassVar[str] = "fit_levels"

    @property
    def name(self) -> str:
        """The model's name in reports."""
        return "structural levels"

    @property
    def handicap(self) -> float:
        """By how many nats the model has to lead: with contexts, a shared system also knows arms not played."""
        return HANDICAP if self.context_dim else 0.0

    @property
    def lags(self) -> int:
        """How many past contexts serve as features."""
        m, k = self.context_dim, self.arms
        return min(_LONGEST_LAG, _WEIGHTS // (m * (k + 1))) if m else 0

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the block."""
        k, m, q, lags = self.arms, self.context_dim, self.feature_dim, self.lags
        Q = q + lags * m
        return {"k": k, "m": m, "q": q, "lags": lags, "Q": Q, "D": plain(levels_size)(k, Q)}

    def fill(self, own: LevelsState) -> None:
        """Write typical levels, and a past of which nothing is known."""
        own.reward.scale = 1.0
        own.scale[:], own.past[:], own.hyper[:] = 1.0, math.nan, typical_levels()

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

    def work(self, task: Task) -> float:
        """Return about how many microseconds a fit will take."""
        n, D, turn = len(task.rows), self.sizes()["D"], int(self.open(task.block).model.head.turn)
        times = 2 if turn < len(_TURNS) and n >= _TURNS[turn] else 1
        return times * _EVALUATIONS * min(n, _WINDOW) * (0.2 + 0.0009 * D * D) + n * (0.1 + 0.0004 * D * D)

    def fit(self, task: Task) -> Fit:
        """Fit the model to the rows of a task, from its block."""
        block, rows, k = task.block.copy(), task.rows, self.arms
        own: LevelsState = self.open(block)
        head, Q, m = own.model.head, len(own.u), self.context_dim
        own.reward.mean, own.reward.scale = centre_and_scale(rows[:, -1])
        for i in range(self.feature_dim):
            own.centre[i], own.scale[i] = centre_and_scale(rows[:, m + i])
        self._scale_contexts(own, rows)
        table = self.table(own, rows)
        recent = table[-_WINDOW:].copy()
        if head.order:
            levels_limit(recent, own.hyper, k, Q)
        recent = without_dull(recent, k)
        hyper, best, likelihood, used = optimise_levels(recent, k, Q, own.hyper, _EVALUATIONS)
        turn = int(head.turn)
        if turn < len(_TURNS) and len(rows) >= _TURNS[turn]:  # do the fast levels change sign every round?
            head.turn += 1
            Hyper(own.hyper, 0).fast_persistence *= -1.0
            turned, objective, other, more = optimise_levels(recent, k, Q, own.hyper, _EVALUATIONS)
            used += more
            if objective > best:
                hyper, likelihood = turned, other
        if not math.isfinite(likelihood):
            raise FloatingPointError("no levels with a finite likelihood were found")
        own.hyper[:] = hyper
        filter_levels(table, own.hyper, k, Q, own.z, own.P)
        self._remember(own, rows)
        head.order, head.over, head.begin = 1.0, 1.0, task.begin
        own.model.alarm.level, own.model.alarm.raised = 1.0, 0.0
        return Fit(block, (used,), 1, likelihood)

    def describe(self, block: FloatArray) -> LevelsModel | None:
        """Return the model in words; None before the first fit."""
        own: LevelsState = self.open(block)
        return levels_model(own.hyper, own.reward.scale) if own.model.head.order else None

    def _remember(self, own: LevelsState, rows: FloatArray) -> None:
        """File the contexts of the last rows."""
        past = rows[::-1][: self.lags, : self.context_dim]
        own.past[:] = math.nan
        own.past[: len(past)] = past

    def table(self, own: LevelsState, rows: FloatArray) -> FloatArray:
        """Return arm, reward and features of the rows of a log, standardised."""
        inputs = (self.inputs(rows) - own.centre) / own.scale
        rewards = (rows[:, -1] - own.reward.mean) / own.reward.scale
        return np.column_stack([rows[:, -2], rewards, np.nan_to_num(inputs, nan=0.0)])

    def believe(self, block: FloatArray, rows: FloatArray, end: int) -> None:
        """Filter through the rows of a log with the model as it is."""
        own: LevelsState = self.open(block)
        self._remember(own, rows)
        if own.model.head.order and len(rows):
            table = self.table(own, rows)
            filter_levels(table, own.hyper, self.arms, len(own.u), own.z, own.P)
            own.u[:] = table[-1, 2:]  # the reward of the last round may still come
            own.model.head.over = 1.0

    def rewound(self, block: FloatArray) -> FloatArray:
        """Return a copy with the belief before its first round."""
        copy = block.copy()
        own: LevelsState = self.open(copy)
        own.past[:], own.model.head.over = math.nan, 0.0
        filter_levels(np.empty((0, 2 + len(own.u))), own.hyper, self.arms, len(own.u), own.z, own.P)
        return copy

    def with_belief(self, block: FloatArray, led: FloatArray) -> FloatArray:
        """Return a copy with the belief of another block."""
        copy = block.copy()
        own, other = self.open(copy), self.open(led)
        for mine, theirs in ((own.z, other.z), (own.P, other.P), (own.past, other.past), (own.u, other.u)):
            mine[:] = theirs
        own.model.head.over = other.model.head.over
        return copy

    @property
    def step_work(self) -> float:
        """About how many microseconds the model takes to go through one round."""
        return 0.4 + 0.0005 * self.sizes()["D"] ** 2

    def adopt(self, old: Self, block: FloatArray, rows: FloatArray, end: int) -> FloatArray:
        """Return the block with one more arm, whose levels and weights are as unknown as the others' were."""
        fresh = self.block()
        own, was = self.open(fresh), old.open(block)
        self.inherit(fresh, block)
        own.reward.numbers[:], own.hyper[:] = was.reward.numbers, was.hyper
        inputs = len(own.u)  # with more arms there may be fewer lags
        own.centre[:], own.scale[:] = was.centre[:inputs], was.scale[:inputs]
        self.believe(fresh, rows, end)
        return fresh

    def _scale_contexts(self, own: LevelsState, rows: FloatArray) -> None:
        m, q = self.context_dim, self.feature_dim
        for j in range(m):  # the same for all lags of a context entry
            centre, scale = centre_and_scale(rows[:, j])
            unseen = np.isnan(rows[:, j]).all()  # its units are unknown, so its values say nothing until a fit
            own.centre[q + j :: m], own.scale[q + j :: m] = centre, math.inf if unseen else scale
