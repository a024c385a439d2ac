"""The structural model: levels of the arms, a shared level, weights on features, by one Kalman filter.

The features of a round are those of `decide`, then the last contexts, newest first; a missing context entry counts as
average.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np

from undertow.compiled import Layout, Record, kernel
from undertow.compiled.kernel import inlined, plain
from undertow.models.block import HANDICAP, Block, RewardScale, note_error, watch
from undertow.models.catch_up import compile_catch_up
from undertow.models.levels.equations import Hyper, levels_size
from undertow.models.levels.filter import (
    CONSTANT,
    LIMIT,
    SLOW,
    WEIGHTS,
    Belief,
    condition,
    filter_levels,
    forecast_arms,
    limit_rewards,
    new_belief,
    predict,
    start,
)
from undertow.models.levels.fit import LevelsModel, levels_model, optimise_levels
from undertow.models.levels.prior import typical_levels
from undertow.models.log import by_time_step, same_time_step
from undertow.models.model import Fit, Model, Steps, Task, no_played
from undertow.models.table import centre_and_scale
from undertow.models.worth import lifetime, worth
from undertow.support.checks import FloatArray

__all__ = ["Levels"]

_LONGEST_LAG = 10
_WEIGHTS = 36  # maximum number of weights on lagged contexts, over all arms
_WINDOW = 1500  # rounds for fitting the hyper-parameters
_EVALUATIONS = 20  # of the likelihood in one fit
_ALL, _SOME = 8, 3  # maximum number of arms fitted together, and minimum if there are more
_MOST_WORK = 45_000.0  # microseconds that the hyper-parameters of more arms may take
_DULL, _DULL_PLAYS = 0.05, 5  # of the spread, and number of plays of an arm
_TURNS = (50, 500)  # rounds from which a fast level of the other sign is tried as well


class LevelsSizes(Record):
    """Number of lagged contexts, and of features Q = q + lags · m."""

    lags: float
    Q: float


class LevelsState(NamedTuple):
    """The block; belief and features are standardized."""

    model: Block
    sizes: LevelsSizes
    reward: RewardScale
    centre: Annotated[FloatArray, "Q"]
    scale: Annotated[FloatArray, "Q"]
    hyper: Annotated[FloatArray, "13"]
    u: Annotated[FloatArray, "Q"]  # features of the present round
    past: Annotated[FloatArray, "lags m"]  # contexts, newest first
    forecast: Annotated[FloatArray, "6 k"]  # output of `forecast_arms`
    belief: Belief


_LAYOUT = Layout(LevelsState)
open_levels = _LAYOUT.open_in_kernels


@kernel
def begin(blocks: FloatArray, at: int) -> None:
    """Advance to the present round, if the belief is still in the last one."""
    own = open_levels(blocks, at)
    head = own.model.head
    if head.over > 0.0:
        head.over = 0.0
        if head.order > 0.0:
            predict(own.belief, own.hyper, 1.0)


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
    """Return the rounds for which knowledge of an arm helps: slow level, constant and weights, by their shares."""
    hyper, P = Hyper(own.hyper, 0), own.belief.P_own[a]
    weights = 0.0
    for i in range(len(own.u)):
        weights += own.u[i] * own.u[i] * P[WEIGHTS + i, WEIGHTS + i]
    slow, constant = lifetime(hyper.slow_persistence, t), lifetime(hyper.intercept_persistence, t)
    lasting = P[SLOW, SLOW] * slow + P[CONSTANT, CONSTANT] * constant + weights * lifetime(hyper.weight_persistence, t)
    total = P[SLOW, SLOW] + P[CONSTANT, CONSTANT] + weights
    return lasting / total if total > 0.0 else constant


@kernel
def forecast(blocks: FloatArray, at: int, t: int, plays: FloatArray, first: int, last: int) -> None:
    """Write forecast, width and standard errors of arms `first` to `last` − 1, in the rewards' own units."""
    own = open_levels(blocks, at)
    out = own.model
    forecast_arms(own.belief, own.hyper, own.u, own.forecast, first, last)
    mean, scale, noise = own.reward.mean, own.reward.scale, Hyper(own.hyper, 0).reward_noise
    for a in range(first, last):
        out.forecast[a] = mean + scale * own.forecast[0, a]
        out.width[a] = scale * out.head.bonus * worth(own.forecast[2, a], noise, helps(own, a, t))
        out.state_error[a] = scale * math.sqrt(own.forecast[3, a])
        out.arm_error[a] = scale * math.sqrt(own.forecast[4, a])


@inlined
def limit(block: Block) -> float:
    """Return the number of standard deviations from which a reward is a gross error."""
    return LIMIT if block.score.rare == 0.0 else math.inf


@kernel
def learn(blocks: FloatArray, at: int, t: int, arm: int, reward: float) -> None:
    """Condition on a reward of round t, the present one."""
    own = open_levels(blocks, at)
    if own.model.head.order == 0.0:
        return
    scale = own.reward.scale
    x = (reward - own.reward.mean) / scale
    _, e, deviation = condition(own.belief, own.hyper, own.u, arm, x, limit(own.model))
    note_error(own.model, arm, e * deviation * scale, deviation * scale)
    watch(own.model.alarm, e * e, t + 1)


@kernel
def observe(blocks: FloatArray, at: int, t: int, context: FloatArray, first: bool) -> None:
    """Store a context, which begins the round or ends it."""
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


def without_dull(table: FloatArray, k: int) -> FloatArray:
    """Return the table without the rewards of dull arms, which are uninformative about changes of the others.

    A dull arm always had the same reward, up to a twentieth of the rewards' spread, in at least five plays. If all arms
    are dull, or none, the table is unchanged.
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


def evaluation_work(rows: int, k: int, Q: int) -> float:
    """Return the expected microseconds of the likelihood for some rows and arms, for all evaluations of a fit."""
    D: int = plain(levels_size)(k, Q)
    return _EVALUATIONS * rows * (0.2 + 0.0009 * D**2)


def arms_and_rows(n: int, k: int, Q: int) -> tuple[int, int]:
    """Return the number of arms fitted together, and of rows among n, when the hyper-parameters are fitted.

    The cost of a row grows with the square of the number of arms fitted together.
    """
    rows = min(n, _WINDOW)
    if k <= _ALL:
        return k, rows
    arms = max((arms for arms in range(_SOME, _ALL + 1) if evaluation_work(rows, arms, Q) <= _MOST_WORK), default=_SOME)
    return arms, min(rows, int(_MOST_WORK / evaluation_work(1, arms, Q)))


def in_groups(table: FloatArray, size: int, k: int) -> tuple[FloatArray, list[int]]:
    """Return the table in groups of limited numbers of arms, one after another, and the first row of each.

    All arms have the same hyper-parameters, so their likelihood may be composed of independent groups, and every row
    counts in one group only. Uninformative rows are dropped; a last column has the time steps since the row before.
    Groups have equal parts of often and rarely played arms.
    """
    times = np.cumsum(table[:, -1])
    told = np.flatnonzero((table[:, 0] >= 0.0) & ~np.isnan(table[:, 1]))
    arms = table[told, 0].astype(np.int64)
    plays = np.bincount(arms, minlength=k)
    groups = max(1, -(-int(np.count_nonzero(plays)) // size)) if k > size else 1
    place = np.empty(k, dtype=np.int64)  # by plays if not all arms fit into one group, even if the played ones do
    place[np.argsort(-plays, kind="stable") if k > size else np.arange(k)] = np.arange(k)
    order = told[np.argsort(place[arms] % groups, kind="stable")]
    result, of = table[order], place[table[order, 0].astype(np.int64)]
    result[:, 0] = of // groups
    result[:, -1] = np.diff(times[order], prepend=0.0)
    starts = np.searchsorted(of % groups, np.arange(groups)).tolist()
    return result, starts


@dataclass(frozen=True)
class Levels(Model):
    """The model for a learner: `identify.fit_levels`, kept up to date."""

    layout = _LAYOUT
    steps = Steps(begin, see, forecast, no_played, learn, observe)
    catch_up_kernel = compile_catch_up(__name__, steps)
    fitted_by: ClassVar[str] = "fit_levels"

    name: str = "structural levels"

    @property
    def lags(self) -> int:
        """Number of past contexts that serve as features."""
        m, k = self.context_dim, self.arms
        return min(_LONGEST_LAG, _WEIGHTS // (m * (k + 1))) if m else 0

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the block."""
        k, m, q, lags = self.arms, self.context_dim, self.feature_dim, self.lags
        Q = q + lags * m
        return {"k": k, "m": m, "q": q, "lags": lags, "Q": Q}

    def fill(self, own: LevelsState) -> None:
        """Write the handicap, as with contexts a shared system also learns about other arms, and typical levels."""
        own.model.head.handicap = HANDICAP if self.context_dim else 0.0
        own.reward.scale = 1.0
        own.scale[:], own.past[:], own.hyper[:] = 1.0, math.nan, typical_levels()

    def inputs(self, rows: FloatArray) -> FloatArray:
        """Return the features of every row of a log: those given, then lagged contexts, NaN if missing."""
        m, q = self.context_dim, self.feature_dim
        result = np.full((len(rows), q + self.lags * m), math.nan)
        result[:, :q] = rows[:, m : m + q]
        contexts, time_steps, _ = by_time_step(rows, m, context_first=self.context_first)
        for lag in range(self.lags):
            then = time_steps - (lag if self.context_first else lag + 1)
            known = int(np.searchsorted(then, 0))
            result[known:, q + lag * m : q + (lag + 1) * m] = contexts[then[known:]]
        return result

    def work(self, task: Task) -> float:
        """Return the expected microseconds of a fit."""
        n, Q = len(task.rows), self.sizes()["Q"]
        arms, rows = arms_and_rows(n, self.arms, Q)
        times = 2 if self._turns(task) else 1
        return times * evaluation_work(rows, arms, Q) + n * self.step_work

    def _turns(self, task: Task) -> bool:
        """Return whether a fit asks if the fast levels change sign every round."""
        turn = int(self.open(task.block).model.head.turn)
        return turn < len(_TURNS) and len(task.rows) >= _TURNS[turn]

    def fit(self, task: Task) -> Fit:
        """Fit the model to the rows of a task, from its block."""
        block, rows = task.block.copy(), task.rows
        own: LevelsState = self.open(block)
        head, Q, m = own.model.head, len(own.u), self.context_dim
        own.reward.mean, own.reward.scale = centre_and_scale(rows[:, -1])
        for i in range(self.feature_dim):
            own.centre[i], own.scale[i] = centre_and_scale(rows[:, m + i])
        self._scale_contexts(own, rows)
        table = self.table(own, rows)
        k, window = arms_and_rows(len(rows), self.arms, Q)
        recent, starts = in_groups(without_dull(table[len(table) - window :], self.arms), k, self.arms)
        most = plain(limit)(own.model)
        if head.order and most < math.inf:
            for part in np.split(recent, starts[1:]):
                limit_rewards(part, own.hyper, new_belief(k, Q))
        hyper, best, likelihood, used = optimise_levels(recent, k, Q, own.hyper, _EVALUATIONS, starts)
        if self._turns(task):
            head.turn += 1
            Hyper(own.hyper, 0).fast_persistence *= -1.0
            turned, objective, other, more = optimise_levels(recent, k, Q, own.hyper, _EVALUATIONS, starts)
            used += more
            if objective > best:
                hyper, likelihood = turned, other
        if not math.isfinite(likelihood):
            raise FloatingPointError("no levels with a finite likelihood were found")
        own.hyper[:] = hyper
        filter_levels(table, own.hyper, own.belief, np.empty(0), most)
        self._remember(own, rows)
        head.order, head.over, head.begin = 1.0, 1.0, task.begin
        own.model.alarm.level, own.model.alarm.raised = 1.0, 0.0
        return Fit(block, (used,), 1, likelihood)

    def describe(self, block: FloatArray) -> LevelsModel | None:
        """Return the model in words; None before the first fit."""
        own: LevelsState = self.open(block)
        return levels_model(own.hyper, own.reward.scale) if own.model.head.order else None

    def _remember(self, own: LevelsState, rows: FloatArray) -> None:
        """Store the contexts of the last rows."""
        contexts, _, over = by_time_step(rows, self.context_dim, context_first=self.context_first)
        past = contexts[::-1][0 if over else 1 :][: self.lags]
        own.past[:] = math.nan
        own.past[: len(past)] = past

    def table(self, own: LevelsState, rows: FloatArray) -> FloatArray:
        """Return arm, reward and features of the rows of a log, standardized, and the time steps between rows."""
        inputs = (self.inputs(rows) - own.centre) / own.scale
        rewards = (rows[:, -1] - own.reward.mean) / own.reward.scale
        return np.column_stack([rows[:, -2], rewards, np.nan_to_num(inputs, nan=0.0), ~same_time_step(rows)])

    def believe(self, block: FloatArray, rows: FloatArray, end: int) -> None:
        """Filter the rows of a log with the present model."""
        own: LevelsState = self.open(block)
        self._remember(own, rows)
        if own.model.head.order and len(rows):
            table = self.table(own, rows)
            filter_levels(table, own.hyper, own.belief, np.empty(0), plain(limit)(own.model))
            own.u[:] = table[-1, 2 : 2 + len(own.u)]  # the reward of the last round may still come
            own.model.head.over = 1.0

    def rewound(self, block: FloatArray) -> FloatArray:
        """Return a copy with the belief before its first round."""
        copy = block.copy()
        own: LevelsState = self.open(copy)
        own.past[:], own.model.head.over = math.nan, 0.0
        start(own.belief, own.hyper)
        return copy

    def with_belief(self, block: FloatArray, led: FloatArray) -> FloatArray:
        """Return a copy with the belief of another block."""
        copy = block.copy()
        own, other = self.open(copy), self.open(led)
        for mine, theirs in zip((*own.belief, own.past, own.u), (*other.belief, other.past, other.u), strict=True):
            mine[:] = theirs
        own.model.head.over = other.model.head.over
        return copy

    @property
    def step_work(self) -> float:
        """The expected microseconds of replaying one round."""
        Q = self.sizes()["Q"]
        return 0.4 + 0.001 * self.arms * (3 + Q) * (4 + 2 * Q)

    def adopt(self, old: Self, block: FloatArray, rows: FloatArray, end: int) -> FloatArray:
        """Return the block with one more arm, whose levels and weights have the prior."""
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
            unseen = np.isnan(rows[:, j]).all()  # its units are unknown, so its values are meaningless until a fit
            own.centre[q + j :: m], own.scale[q + j :: m] = centre, math.inf if unseen else scale
