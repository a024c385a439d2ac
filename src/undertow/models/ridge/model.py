"""A ridge regression on lagged contexts, features and own rewards, and its special case: constant arms.

The inputs are those of `undertow.live.inputs`; every arm has its own regression (`undertow.ridge`). Predictions are
scored with a noise variance estimated from their own errors.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np

from undertow.compiled import Layout, Record, kernel
from undertow.compiled.layout import Index, Within
from undertow.live.inputs import Inputs, begin_inputs, build_inputs, inputs_sizes, note_reward, note_round, push_context
from undertow.models.block import BLOCK, HANDICAP, Block, RewardScale, note_error
from undertow.models.catch_up import compile_catch_up
from undertow.models.model import Fit, Model, Steps, Task
from undertow.models.table import centre_and_scale
from undertow.models.worth import worth
from undertow.ridge import ridge_project, ridge_update
from undertow.support.checks import FloatArray

__all__ = ["Ridge"]

_LAG_INPUTS = 60  # maximum number of inputs from past rewards
_LEAST_APART = 0.05  # variance between arms in units of the noise
_DRIFT = 0.25  # change of mean or scale, relative to the scale, that rebuilds the regression


class RidgeSizes(Record):
    """Number p of inputs."""

    p: float


class Now(Record):
    """The time step of the inputs, counted from the beginning of the regression."""

    time_step: Annotated[float, Index("2**53")]


class Errors(Record):
    """Sum and number of squared errors, and the variance between the arms' means in units of the noise."""

    squares: float
    count: float
    apart: Annotated[float, Within(0.0, 1.0)]


class RidgeState(NamedTuple):
    """The block; inputs and rewards are standardized."""

    model: Block
    sizes: RidgeSizes
    reward: RewardScale
    now: Now
    errors: Errors
    centre: Annotated[FloatArray, "m+q"]
    scale: Annotated[FloatArray, "m+q"]
    row: Annotated[FloatArray, "m+q"]  # standardized context and features
    Θ: Annotated[FloatArray, "p"]
    u: Annotated[FloatArray, "k p"]
    W: Annotated[FloatArray, "k p p"]
    scratch: Annotated[FloatArray, "3 p"]
    inputs: Inputs


_LAYOUT = Layout(RidgeState)
open_ridge = _LAYOUT.open_in_kernels


@kernel
def begin(blocks: FloatArray, at: int) -> None:
    """Advance to the present time step, if that of the last round is over; lags are in time steps."""
    own = open_ridge(blocks, at)
    if own.model.head.over > 0.0:
        own.model.head.over = 0.0
        own.now.time_step += 1.0


@kernel
def see(blocks: FloatArray, at: int, t: int, features: FloatArray) -> None:
    """Build the inputs of round t."""
    own = open_ridge(blocks, at)
    m = int(own.model.sizes.m)
    for i in range(int(own.model.sizes.q)):
        own.row[m + i] = (features[i] - own.centre[m + i]) / own.scale[m + i]
    build_inputs(own.inputs, len(own.u), int(own.now.time_step), own.row[m:], own.Θ)


@kernel
def forecast(blocks: FloatArray, at: int, t: int, plays: FloatArray, first: int, last: int) -> None:
    """Write forecast, width and standard error of arms `first` to `last` − 1, in the rewards' own units."""
    own = open_ridge(blocks, at)
    out, p, y = own.model, len(own.Θ), own.scratch[0]
    mean, scale = own.reward.mean, own.reward.scale
    noise = scale * scale * own.errors.squares / own.errors.count
    before = 0.0  # the uncertainty of an arm that was never played
    for i in range(p):
        before += own.Θ[i] * own.Θ[i]
    for a in range(first, last):
        ridge_project(own.W[a], own.Θ, y, p)
        expected = 0.0
        uncertainty = 0.0
        for i in range(p):
            expected += own.u[a, i] * y[i]
            uncertainty += y[i] * y[i]
        out.forecast[a] = mean + scale * expected
        unknown = noise / (1.0 / uncertainty + (1.0 / own.errors.apart - 1.0) / before)
        out.width[a] = out.head.bonus * worth(unknown, noise, t + 1.0)
        out.arm_error[a] = math.sqrt(noise * uncertainty)


@kernel
def played(blocks: FloatArray, at: int, t: int, arm: int) -> None:
    """Record the played arm of round t; −1 for none."""
    own = open_ridge(blocks, at)
    note_round(own.inputs, int(own.now.time_step), t, arm)


@kernel
def learn(blocks: FloatArray, at: int, t: int, arm: int, reward: float) -> None:
    """Add a row to the played arm's regression; t is the round of the reward."""
    own = open_ridge(blocks, at)
    errors, scale, p, y = own.errors, own.reward.scale, len(own.Θ), own.scratch[0]
    x = (reward - own.reward.mean) / scale
    note_reward(own.inputs, t, x)
    ridge_project(own.W[arm], own.Θ, y, p)
    e = x
    variance = 1.0
    for i in range(p):
        e -= own.u[arm, i] * y[i]
        variance += y[i] * y[i]
    if own.model.head.order > 0.0:
        deviation = math.sqrt(variance * errors.squares / errors.count)
        note_error(own.model, arm, e * scale, deviation * scale)
    errors.squares += e * e / variance
    errors.count += 1.0
    ridge_update(own.W[arm], own.u[arm], y, x, own.scratch[1], own.scratch[2])


@kernel
def observe(blocks: FloatArray, at: int, t: int, context: FloatArray, first: bool) -> None:
    """Store a context, which begins the time step or ends it."""
    if first:
        begin(blocks, at)
    own = open_ridge(blocks, at)
    m = len(context)
    for i in range(m):
        own.row[i] = (context[i] - own.centre[i]) / own.scale[i]
    push_context(own.inputs, own.row[:m])
    if not first:
        own.model.head.over = 1.0


@dataclass(frozen=True)
class Ridge(Model):
    """LinUCB with reward lags as a model, at any scale: rewards need not be linear in any hidden state.

    `memory` is the number of past rounds of contexts and own rewards among the inputs; with 0, an arm is a constant and
    fixed weights on the features.
    """

    layout = _LAYOUT
    steps = Steps(begin, see, forecast, played, learn, observe)
    catch_up_kernel = compile_catch_up(__name__, steps)
    watched: ClassVar[bool] = False

    name: str = "ridge"
    memory: int = 5

    def growth(self, rounds: int) -> float:
        """Return the factor by which the data grow until the next fit, which only measures the columns again."""
        return 2.0

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the block."""
        k, m, q = self.arms, self.context_dim, self.feature_dim
        lags = min(self.memory, _LAG_INPUTS // (2 * k))  # number of past rounds of own rewards among the inputs
        return {"k": k, "m": m, "q": q, **inputs_sizes(k, m, q, self.memory, lags)}

    def fill(self, own: RidgeState) -> None:
        """Write an empty regression, and the handicap: constant arms need one if there are contexts, and early."""
        own.model.head.handicap = HANDICAP if self.memory or self.context_dim else 0.0
        own.model.head.early = self.memory == 0
        own.reward.scale = own.errors.squares = own.errors.count = own.errors.apart = 1.0
        own.scale[:] = 1.0
        for W in own.W:
            W.flat[:: W.shape[0] + 1] = 1.0
        begin_inputs(own.inputs)

    def work(self, task: Task) -> float:
        """Return the expected microseconds of a fit, if the regression is rebuilt."""
        return len(task.rows) * (0.5 + 0.002 * self.sizes()["p"] ** 2)

    def fit(self, task: Task) -> Fit:
        """Fit the model to the rows of a task, from its block."""
        own, rows, same = self.open(task.block), task.rows, Fit(task.block.copy(), (), 1, math.nan, whole=False)
        units = [centre_and_scale(rows[:, i]) for i in range(self.context_dim + self.feature_dim)]
        reward = centre_and_scale(rows[:, -1])
        old = [*zip(own.centre, own.scale, strict=True), (own.reward.mean, own.reward.scale)]
        moved = max(
            max(abs(c - c0) / s0, abs(s - s0) / s0) for (c, s), (c0, s0) in zip([*units, reward], old, strict=True)
        )
        if own.model.head.order and moved < _DRIFT:
            self._note_apart(same.block, rows)
            return same
        block = self.block()
        fresh: RidgeState = self.open(block)
        for i, (centre, scale) in enumerate(units):
            fresh.centre[i], fresh.scale[i] = centre, scale
        fresh.reward.mean, fresh.reward.scale = reward
        fresh.model.head.begin = task.begin
        self._rebuild(block, rows, task.begin)
        self._note_apart(block, rows)
        return same._replace(block=block, whole=True)

    def _note_apart(self, block: FloatArray, rows: FloatArray) -> None:
        """Estimate the variance between the arms' means beyond the noise, which is 1 in these units.

        The regression starts from weights as large as the noise. If arms differ by less, the possible gain is smaller,
        too.
        """
        own: RidgeState = self.open(block)
        there = ~np.isnan(rows[:, -1]) & (rows[:, -2] >= 0.0)
        arms, rewards = rows[there, -2].astype(np.int64), rows[there, -1]
        plays, sums = (np.bincount(arms, weights, self.arms) for weights in (None, rewards))
        seen = plays > 0
        noise = own.reward.scale**2 * own.errors.squares / own.errors.count
        if seen.sum() > 2 and noise > 0.0:
            between = np.var(sums[seen] / plays[seen], ddof=1) / noise - np.mean(1.0 / plays[seen])
            own.errors.apart = min(max(float(between), _LEAST_APART), 1.0)

    def _rebuild(self, block: FloatArray, rows: FloatArray, begin: int) -> None:
        """Replay rows of a log with a fresh block."""
        end = begin + len(rows)
        type(self).catch_up_kernel(block, 0, rows, begin, end, begin, end, self.context_first)
        self.open(block).model.head.order = 1.0

    def believe(self, block: FloatArray, rows: FloatArray, end: int) -> None:
        """Replay the rows of a log with a fresh regression, in the present units."""
        block[:] = self._led(block, rows, end)

    def adopt(self, old: Self, block: FloatArray, rows: FloatArray, end: int) -> FloatArray:
        """Return the block with one more arm, rebuilt from the log."""
        return self._led(block, rows, end)

    def _led(self, old: FloatArray, rows: FloatArray, end: int) -> FloatArray:
        fresh = self.rewound(old)
        self._rebuild(fresh, rows, end - len(rows))
        own = self.open(fresh).model.head
        over = own.over
        self.inherit(fresh, old)
        own.over = over  # of the last of these rows
        return fresh

    def rewound(self, block: FloatArray) -> FloatArray:
        """Return an empty regression, in the units of another."""
        fresh = self.block()
        new, was = self.open(fresh), _LAYOUT.open(block)
        new.centre[:], new.scale[:] = was.centre, was.scale
        new.reward.numbers[:], new.errors.apart = was.reward.numbers, was.errors.apart
        return fresh

    def with_belief(self, block: FloatArray, led: FloatArray) -> FloatArray:
        """Return the regression of another block, with the common beginning of this one."""
        copy = led.copy()
        common = BLOCK.length(k=self.arms, m=self.context_dim, q=self.feature_dim)
        copy[:common] = block[:common]
        BLOCK.open(copy).head.over = BLOCK.open(led).head.over
        return copy

    @property
    def step_work(self) -> float:
        """The expected microseconds of replaying one round."""
        return 0.3 + 0.0008 * self.sizes()["p"] ** 2
