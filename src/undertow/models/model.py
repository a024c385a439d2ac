"""Common to all models of a learner: the beginning of the block, the steps, the fits, and the score.

A model's mutable state is a block of the learner's packed state. Every round it runs compiled steps, with the same
names in every family:

    begin       advance to the present round
    see         store the round's features, of all arms or of one of them
    forecast    write forecast, width and standard errors of the arms that have these features
    played      count the played arm, −1 for none
    learn       predict the reward of the played arm, score the forecast, and learn
    observe     learn the round's context

Outside kernels it is fitted to a log (`fit`), replays missed rounds (`catch_up`), and is described to users
(`describe`). A family is one folder; its `model.py` has the block, the steps and a subclass of `Model`.
"""

import abc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from undertow.compiled.kernel import inlined, plain
from undertow.compiled.layout import Fixed, Index, Layout, Within
from undertow.compiled.views import Record
from undertow.live.health import ALARM
from undertow.models.table import centre_and_scale, mostly_one_value
from undertow.support.checks import FloatArray

__all__ = [
    "BLOCK",
    "HANDICAP",
    "Block",
    "Fit",
    "Model",
    "RewardScale",
    "Span",
    "Steps",
    "Task",
    "last_innovations",
    "no_played",
    "no_see",
    "note_error",
    "open_block",
    "score_again",
    "set_units",
    "watch",
]

HANDICAP = 8.0  # lead in nats that a model needs over the preferred one
_FOLLOW, _FIRST, _PRIOR = 0.003, 2.0, 4.0  # an arm's mean squared error follows by 2/(n + 4), at least by 0.003
_GROSS = 9.0  # times the mean: a larger error counts as this
_ENOUGH = 50.0  # an arm's errors count as n · 50/(n + 50) of them
_STAY = 0.1  # weight of a prediction with contexts, if the same arm was played before
_FINE = 0.1  # of the rewards' spread: smaller errors count as equal
_NOTHING = 1e-300
_RATE = 0.03  # rate of the mean squared innovation
_LARGEST = 9.0  # squared innovation: a single gross error gives no alarm
_QUIET, _PATIENCE = 32, 0.05  # rounds after a fit without an alarm, and at least this share of all rounds


class BlockSizes(Record):
    """Numbers of arms k, context entries m and features q."""

    k: float
    m: float
    q: float


class ModelHead(Record):
    """The last fit of the model."""

    length: Annotated[float, Fixed()]  # of its block
    order: Annotated[float, Index("9")]  # 0 before the first fit
    fitted: Annotated[float, Index("2**53")]  # the round of the last fit
    begin: Annotated[float, Index("2**53")]  # the first round that fits look at
    over: float  # whether the belief is still in the last round
    bonus: float  # factor of the width
    handicap: float  # lead in nats that the model needs to decide
    early: float  # whether the handicap decays with the rounds
    spent: Annotated[float, Within(0.0, 2.0**53)]  # of the compute budget
    turn: Annotated[float, Index("2**53")]  # in the cycle of models that fits compare with the one in use


class Running(Record):
    """Unchanged by a fit: the round of the next one, their number, whether one is under way."""

    next_fit: float
    fits: Annotated[float, Index("2**53")]
    busy: Annotated[float, Index("2")]  # whether a fit is under way elsewhere
    alarms: Annotated[float, Index("2**53")]  # number of alarms


class Alarm(Record):
    """Mean squared innovation, whether it is too large, and the round of the last fit, failed ones included."""

    level: float
    raised: Annotated[float, Index("2")]
    tried: float


class Score(Record):
    """The score of a model, see `note_error`, and the number of predicted rewards."""

    total: float
    error_floor: Annotated[float, Within(0.0, math.inf)]  # a deviation below which predictions count as equal
    count: Annotated[float, Index("2**53")]
    arm: Annotated[float, Index("k+1")]  # of the last prediction, counted from 1 on; 0 before the first
    rare: Annotated[float, Index("2")]  # whether most rewards are equal, and distant ones are no gross errors


class Block(NamedTuple):
    """The beginning of every model's block."""

    sizes: BlockSizes
    head: ModelHead
    running: Running
    alarm: Alarm
    score: Score
    innovations: Annotated[FloatArray, "128"]  # the last ones, standardized, in a ring
    forecast: Annotated[FloatArray, "k"]
    width: Annotated[FloatArray, "k"]
    state_error: Annotated[FloatArray, "k"]  # standard error of the forecast: uncertainty about the state
    arm_error: Annotated[FloatArray, "k"]  # ... and of the arm itself
    squares: Annotated[FloatArray, "k"]  # mean squared error of the predictions of an arm's rewards
    scored: Annotated[FloatArray, "k"]  # how many there were


class RewardScale(Record):
    """Mean and scale of the rewards, for models that standardize them."""

    mean: float
    scale: float


BLOCK = Layout(Block)
open_block = BLOCK.open_in_kernels


@inlined
def watch(alarm: Alarm, squared: float, t: int) -> None:
    """Update the mean squared innovation, which is 1 if the model fits the data, and raise the alarm."""
    alarm.level += _RATE * (min(squared, _LARGEST) - alarm.level)
    if alarm.level > ALARM and t - alarm.tried >= max(_QUIET, _PATIENCE * t):
        alarm.raised = 1.0


@inlined
def add_up(block: Block) -> None:
    """Compute the score from the errors on each arm, in units of the rewards' spread, see `note_error`."""
    fine, total = block.score.error_floor**2, 0.0
    spread = fine / _FINE**2 if fine > 0.0 else 1.0
    for a in range(len(block.scored)):
        if block.scored[a] > 0.0:
            weight = _ENOUGH * block.scored[a] / (_ENOUGH + block.scored[a])
            total -= 0.5 * weight * math.log(max((block.squares[a] + fine) / spread, _NOTHING))
    block.score.total = total


@inlined
def note_error(block: Block, arm: int, error: float, deviation: float) -> None:
    """Score the prediction of an arm's reward: its error, and the standard deviation that the model predicted.

    The score of a model is −½ Σ_a w(n_a) log((s_a² + f²)/s²): s_a² is its own mean squared error on arm a, n_a the
    number of predictions, w(n) = 50 n/(n + 50), s the spread of the rewards, and f a tenth of it. It is the log
    likelihood of Gaussian errors with a variance for each arm, changed in two ways: no arm counts much more than the
    others, however often it is played, and errors below a limit count as equal. In units of
    the spread, a model that has learned more late rewards than another gains nothing by their number.

    With contexts, knowledge of the other arms matters, and a prediction of the arm that was just played says little
    about it. It counts as a tenth of one.
    """
    score, fine = block.score, block.score.error_floor**2
    n = block.scored[arm]
    share = _STAY if block.sizes.m > 0.0 and arm + 1.0 == score.arm else 1.0
    score.arm = arm + 1.0
    unseen = fine / _FINE**2 if fine > 0.0 else error * error  # the spread is known after the first fit
    mean = block.squares[arm] if n > 0.0 else unseen
    most = _GROSS * (mean + fine) if score.rare == 0.0 else math.inf
    squared = error * error if error * error < most else most  # also if the forecast is NaN
    block.squares[arm] = mean + share * max(_FOLLOW, _FIRST / (n + _PRIOR)) * (squared - mean)
    block.scored[arm] = n + share
    add_up(block)
    block.innovations[int(score.count) % len(block.innovations)] = error / deviation
    score.count += 1.0


score_again = plain(add_up)


def set_units(blocks: Sequence[Block], rows: FloatArray) -> None:
    """Set in models which errors count as equal, for rewards as in the rows of a log, and whether any are gross."""
    rewards, arms = rows[:, -1], rows[:, -2]
    fine, rare = _FINE * centre_and_scale(rewards, arms)[1], mostly_one_value(rewards, arms)
    for block in blocks:
        block.score.error_floor, block.score.rare = fine, rare
        score_again(block)


def last_innovations(block: Block) -> FloatArray:
    """Return the last standardized innovations of a model, oldest first."""
    count, ring = int(block.score.count), block.innovations
    length = len(ring)
    return np.roll(ring, -count % length if count > length else 0)[: min(count, length)].copy()


class Steps(NamedTuple):
    """The compiled steps of a model; each takes the buffer of all blocks and the beginning of the model's own."""

    begin: Callable[[FloatArray, int], None]
    see: Callable[[FloatArray, int, int, FloatArray], None]
    forecast: Callable[[FloatArray, int, int, FloatArray, int, int], None]
    played: Callable[[FloatArray, int, int, int], None]
    learn: Callable[[FloatArray, int, int, int, float], None]
    observe: Callable[[FloatArray, int, int, FloatArray, bool], None]


@inlined
def no_see(blocks: FloatArray, at: int, t: int, features: FloatArray) -> None:
    """Ignore the features."""


@inlined
def no_played(blocks: FloatArray, at: int, t: int, arm: int) -> None:
    """Ignore the played arm."""


class Task(NamedTuple):
    """A requested fit: copies of its inputs."""

    round: int
    begin: int  # the round of the first row
    rows: FloatArray
    block: FloatArray
    seed: tuple[int, ...]
    late: int = 0  # recent delays of rewards, in rounds
    missing: float = math.inf  # the oldest round whose reward the block lacks


class Span(NamedTuple):
    """The rounds to replay, from `begin` on.

    The choices of those before `decided`, and the contexts of those from `fresh` to before `seen`.
    """

    begin: int
    decided: int
    fresh: int
    seen: int


class Fit(NamedTuple):
    """A finished fit: its block, the models tried, and the size and likelihood of the chosen one."""

    block: FloatArray
    tried: tuple[Any, ...]
    order: int
    log_likelihood: float
    whole: bool = True  # whether the belief covers all rows, instead of being that of the task
    seconds: float = 0.0  # that it took
    earlier: tuple[int, FloatArray] | None = None  # an earlier round, and the block rewound to it, for late rewards

    def unseen(self, task: Task, *, first: bool) -> int:
        """Return the first round whose context the block lacks; a round may begin with its context."""
        return task.round + (first and not self.whole)


@dataclass(frozen=True)
class Model(abc.ABC):
    """One model of a learner, for given sizes; its mutable state is in its block."""

    layout: ClassVar[Layout[Any]]
    steps: ClassVar[Steps]
    catch_up_kernel: ClassVar[Callable[..., None]]
    fitted_by: ClassVar[str] = ""  # the function of `identify` that needs the same kernels as a fit, if any
    watched: ClassVar[bool] = True  # whether its innovations raise alarms
    filtered: ClassVar[bool] = True  # whether its belief follows from the log

    arms: int
    context_dim: int
    feature_dim: int
    context_first: bool
    bonus: float
    name: str  # in reports

    @abc.abstractmethod
    def fit(self, task: Task) -> Fit:
        """Fit the model to the rows of a task, from its block; called from any thread."""

    @abc.abstractmethod
    def believe(self, block: FloatArray, rows: FloatArray, end: int) -> None:
        """Set the belief to that after the rows of a log, which end before round `end`, with the present model."""

    @abc.abstractmethod
    def rewound(self, block: FloatArray) -> FloatArray:
        """Return a copy of a block with the belief before its first round.

        Replaying the log gives the belief of the block; the model does not change.
        """

    @abc.abstractmethod
    def with_belief(self, block: FloatArray, led: FloatArray) -> FloatArray:
        """Return a copy of a block with the belief of another one, which was rewound and has replayed the log."""

    @property
    def step_work(self) -> float:
        """The expected microseconds of replaying one round of the log, by a formula."""
        return 1.0

    @abc.abstractmethod
    def adopt(self, old: Self, block: FloatArray, rows: FloatArray, end: int) -> FloatArray:
        """Return the block of this model for the `block` of `old`, which has one arm less.

        The belief is that after the rows of a log, which end before round `end`.
        """

    def describe(self, block: FloatArray) -> Any:
        """Return the model in use in readable form; None if there is nothing to show."""
        return None

    def work(self, task: Task) -> float:
        """Return the expected microseconds of a fit, by a formula, so that a seed fixes which fits are inline."""
        return 0.0

    def growth(self, rounds: int) -> float:
        """Return the factor by which the data grow between a fit after `rounds` rounds and the next."""
        return 1.4

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the block."""
        return {"k": self.arms, "m": self.context_dim, "q": self.feature_dim}

    @property
    def length(self) -> int:
        """Length of the block."""
        return self.layout.length(**self.sizes())

    def block(self) -> FloatArray:
        """Return the block before the first round."""
        block = self.layout.new(**self.sizes())
        own = self.open(block)
        own.model.head.length, own.model.head.bonus = len(block), self.bonus
        self.fill(own)
        return block

    def fill(self, own: Any) -> None:  # noqa: B027
        """Write the handicap, and the initial block beyond its common beginning; everything else is 0."""

    def open(self, block: FloatArray) -> Any:
        """Return named views of a block."""
        return self.layout.open(block)

    def inherit(self, block: FloatArray, old: FloatArray) -> None:
        """Carry over the common state from a model with as many arms, or one less."""
        own, was = BLOCK.open(block), BLOCK.open(old)
        for name in ("head", "running", "alarm", "score"):
            getattr(own, name).numbers[:] = getattr(was, name).numbers
        arms = len(was.scored)
        own.squares[:arms], own.scored[:arms] = was.squares, was.scored
        own.innovations[:] = was.innovations
        own.head.length, own.head.bonus = len(block), self.bonus

    def catch_up(self, blocks: FloatArray, at: int, rows: FloatArray, span: Span) -> None:
        """Replay rows of a log with the block in place."""
        type(self).catch_up_kernel(blocks, at, rows, *span, self.context_first)

    def led(self, block: FloatArray, rows: FloatArray, span: Span) -> FloatArray:
        """Return a copy of a block after replaying rows of a log."""
        copy = block.copy()
        if len(rows):  # so that the kernel is compiled on demand
            type(self).catch_up_kernel(copy, 0, rows, *span, self.context_first)
        return copy
