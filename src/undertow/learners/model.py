"""What every model inside a learner has in common: the beginning of its block, its steps, its fits, and its score.

A model keeps all that changes in a block of the learner's packed state. Round by round it goes through compiled steps
with the same names in every family:

    begin       step to the present round
    see         take in the round's features, of all arms or of one of them
    forecast    write forecast, width and standard errors of the arms that have these features
    played      take note of the arm that was played, −1 for none
    learn       predict the reward of the played arm, be scored, and take it in
    observe     take in the round's context

Outside kernels it is fitted to a log (`fit`), led through rounds that it has missed (`catch_up`), and shown to users
(`describe`). A family is one file that holds its block, its steps and a subclass of `Model`.
"""

import abc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from undertow._checks import FloatArray
from undertow.compiled.kernel import inlined, plain
from undertow.compiled.layout import Fixed, Index, Layout, Within
from undertow.compiled.views import Record
from undertow.identify.table import centre_and_scale, mostly_one_value
from undertow.live.health import ALARM

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

HANDICAP = 8.0  # nats by which a model has to lead the one that is trusted first
_FOLLOW, _FIRST, _PRIOR = 0.003, 2.0, 4.0  # an arm's mean squared error follows by 2/(n + 4), at least by 0.003
_GROSS = 9.0  # times the mean: an error beyond it counts as this
_ENOUGH = 50.0  # an arm's errors count as n · 50/(n + 50) of them
_STAY = 0.1  # prediction that one counts as with contexts, if the same arm was played before
_FINE = 0.1  # of the rewards' spread: to predict closer than this is not worth more
_NOTHING = 1e-300
_RATE = 0.03  # at which the mean squared innovation follows
_LARGEST = 9.0  # squared innovation: a single gross error is no alarm
_QUIET, _PATIENCE = 32, 0.05  # rounds after a fit without an alarm, and at least this share of all rounds


class BlockSizes(Record):
    """Numbers of arms k, context entries m and features q."""

    k: float
    m: float
    q: float


class ModelHead(Record):
    """The model as it was fitted last."""

    length: Annotated[float, Fixed()]  # of its block
    order: Annotated[float, Index("9")]  # 0 before the first fit
    fitted: Annotated[float, Index("2**53")]  # the round of the last fit
    begin: Annotated[float, Index("2**53")]  # the first round that fits look at
    over: float  # whether the belief is still in a round that is over
    bonus: float  # factor of the width
    handicap: float  # nats by which the model has to lead the others to decide
    early: float  # whether the handicap falls off with the rounds
    spent: Annotated[float, Within(0.0, 2.0**53)]  # of the compute budget
    turn: Annotated[float, Index("2**53")]  # in the cycle of models that fits try against the one in use


class Running(Record):
    """What a fit does not change: when the next one is due, how many there were, whether one is under way."""

    next_fit: float
    fits: Annotated[float, Index("2**53")]
    busy: Annotated[float, Index("2")]  # whether a fit is under way elsewhere
    alarms: Annotated[float, Index("2**53")]  # how often the innovations were too large


class Alarm(Record):
    """Mean squared innovation, whether it is too large, and the round of the last fit, also of one that failed."""

    level: float
    raised: Annotated[float, Index("2")]
    tried: float


class Score(Record):
    """By what models are compared, see `note_error`, and how many rewards were predicted."""

    total: float
    fineness: Annotated[float, Within(0.0, math.inf)]  # a deviation below which predictions count as equally good
    count: Annotated[float, Index("2**53")]
    arm: Annotated[float, Index("k+1")]  # of the last prediction, counted from 1 on; 0 before the first
    rare: Annotated[float, Index("2")]  # whether most rewards are the same, and those far away no gross errors


class Block(NamedTuple):
    """What the block of every model begins with."""

    sizes: BlockSizes
    head: ModelHead
    running: Running
    alarm: Alarm
    score: Score
    innovations: Annotated[FloatArray, "128"]  # the last ones, standardised, in a ring
    forecast: Annotated[FloatArray, "k"]
    width: Annotated[FloatArray, "k"]
    state_error: Annotated[FloatArray, "k"]  # standard error of the forecast: what is unknown of the state
    arm_error: Annotated[FloatArray, "k"]  # ... and of the arm itself
    squares: Annotated[FloatArray, "k"]  # mean squared error of the predictions of an arm's rewards
    scored: Annotated[FloatArray, "k"]  # how many there were


class RewardScale(Record):
    """Mean and scale of the rewards, for models that standardise them."""

    mean: float
    scale: float


BLOCK = Layout(Block)
open_block = BLOCK.open_in_kernels


@inlined
def watch(alarm: Alarm, squared: float, t: int) -> None:
    """Follow the squared standardised innovations, whose mean is 1 while the model holds, and raise the alarm."""
    alarm.level += _RATE * (min(squared, _LARGEST) - alarm.level)
    if alarm.level > ALARM and t - alarm.tried >= max(_QUIET, _PATIENCE * t):
        alarm.raised = 1.0


@inlined
def add_up(block: Block) -> None:
    """Compute the score from the errors on each arm, in units of the rewards' spread, see `note_error`."""
    fine, total = block.score.fineness**2, 0.0
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
    others, however often it is played, and a prediction that is fine enough is not beaten by a finer one. In units of
    the spread, a model that has heard of more late rewards than another gains nothing by their number.

    With contexts, what matters is whether a model knows what the other arms do, and a prediction of the arm that was
    just played says little about that. It counts as a tenth of one.
    """
    score, fine = block.score, block.score.fineness**2
    n = block.scored[arm]
    share = _STAY if block.sizes.m > 0.0 and arm + 1.0 == score.arm else 1.0
    score.arm = arm + 1.0
    unseen = fine / _FINE**2 if fine > 0.0 else error * error  # the spread is known from the first fit on
    mean = block.squares[arm] if n > 0.0 else unseen
    most = _GROSS * (mean + fine) if score.rare == 0.0 else math.inf
    squared = error * error if error * error < most else most  # also where the forecast is no number
    block.squares[arm] = mean + share * max(_FOLLOW, _FIRST / (n + _PRIOR)) * (squared - mean)
    block.scored[arm] = n + share
    add_up(block)
    block.innovations[int(score.count) % len(block.innovations)] = error / deviation
    score.count += 1.0


score_again = plain(add_up)


def set_units(blocks: Sequence[Block], rows: FloatArray) -> None:
    """Tell models which errors count as equally good for rewards as in the rows of a log, and whether any are gross."""
    rewards, arms = rows[:, -1], rows[:, -2]
    fine, rare = _FINE * centre_and_scale(rewards, arms)[1], mostly_one_value(rewards, arms)
    for block in blocks:
        block.score.fineness, block.score.rare = fine, rare
        score_again(block)


def last_innovations(block: Block) -> FloatArray:
    """Return the last standardised innovations of a model, oldest first."""
    count, ring = int(block.score.count), block.innovations
    length = len(ring)
    return np.roll(ring, -count % length if count > length else 0)[: min(count, length)].copy()


class Steps(NamedTuple):
    """The compiled steps of a model; each takes the buffer of all blocks and where the model's own begins."""

    begin: Callable[[FloatArray, int], None]
    see: Callable[[FloatArray, int, int, FloatArray], None]
    forecast: Callable[[FloatArray, int, int, FloatArray, int, int], None]
    played: Callable[[FloatArray, int, int, int], None]
    learn: Callable[[FloatArray, int, int, int, float], None]
    observe: Callable[[FloatArray, int, int, FloatArray, bool], None]


@inlined
def no_see(blocks: FloatArray, at: int, t: int, features: FloatArray) -> None:
    """Look at no features."""


@inlined
def no_played(blocks: FloatArray, at: int, t: int, arm: int) -> None:
    """Take no note of the arm that was played."""


class Task(NamedTuple):
    """A fit to be made: copies of what it needs."""

    round: int
    begin: int  # the round of the first row
    rows: FloatArray
    block: FloatArray
    seed: tuple[int, ...]
    late: int = 0  # how many rounds late rewards have been lately
    missing: float = math.inf  # the oldest round whose reward the block does not know


class Span(NamedTuple):
    """Which rounds to go through again, from `begin` on.

    The choices of those before `decided`, and the contexts of those from `fresh` to before `seen`.
    """

    begin: int
    decided: int
    fresh: int
    seen: int


class Fit(NamedTuple):
    """A fit that was made: the block it leads to, what was tried, and the size and likelihood of the model chosen."""

    block: FloatArray
    tried: tuple[Any, ...]
    order: int
    log_likelihood: float
    whole: bool = True  # whether the belief is that of all rows, and not the one that the task came with
    seconds: float = 0.0  # that it took
    earlier: tuple[int, FloatArray] | None = None  # an earlier round, and the block rewound to it, for late rewards

    def unseen(self, task: Task, *, first: bool) -> int:
        """Return the first round whose context the block has not seen; a round may begin with its context."""
        return task.round + (first and not self.whole)


@dataclass(frozen=True)
class Model(abc.ABC):
    """One model inside a learner, for given sizes; all that changes is in its block."""

    layout: ClassVar[Layout[Any]]
    steps: ClassVar[Steps]
    catch_up_kernel: ClassVar[Callable[..., None]]
    fitted_by: ClassVar[str] = ""  # the function of `identify` that needs the same kernels as a fit, where there is one
    watched: ClassVar[bool] = True  # whether its innovations raise alarms
    filtered: ClassVar[bool] = True  # whether its belief follows from the log

    @property
    def handicap(self) -> float:
        """By how many nats the model has to lead the others to decide."""
        return 0.0

    @property
    def early(self) -> bool:
        """Whether the handicap falls off with the rounds."""
        return False

    arms: int
    context_dim: int
    feature_dim: int
    context_first: bool
    bonus: float

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The model's name in reports."""

    @abc.abstractmethod
    def fit(self, task: Task) -> Fit:
        """Fit the model to the rows of a task, from its block; called from any thread."""

    @abc.abstractmethod
    def believe(self, block: FloatArray, rows: FloatArray, end: int) -> None:
        """Set the belief to that after the rows of a log, which end before round `end`, with the model as it is."""

    @abc.abstractmethod
    def rewound(self, block: FloatArray) -> FloatArray:
        """Return a copy of a block with the belief before its first round.

        Led through the log, it comes to the belief of the block; the model stays as it is on the way.
        """

    @abc.abstractmethod
    def with_belief(self, block: FloatArray, led: FloatArray) -> FloatArray:
        """Return a copy of a block with the belief of another one, which was rewound and led through the log."""

    @property
    def step_work(self) -> float:
        """About how many microseconds the model takes to go through one round of the log, by a formula."""
        return 1.0

    @abc.abstractmethod
    def adopt(self, old: Self, block: FloatArray, rows: FloatArray, end: int) -> FloatArray:
        """Return the block of this model where `old`, which has one arm less, has `block`.

        The belief is that after the rows of a log, which end before round `end`.
        """

    def describe(self, block: FloatArray) -> Any:
        """Return the model in use in readable form; None where there is nothing to show."""
        return None

    def work(self, task: Task) -> float:
        """Return about how many microseconds a fit will take: by a formula, so that a seed fixes what is done where."""
        return 0.0

    def growth(self, rounds: int) -> float:
        """Return by which factor the data grow between a fit after `rounds` rounds and the next."""
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
        own.model.head.handicap, own.model.head.early = self.handicap, self.early
        self.fill(own)
        return block

    def fill(self, own: Any) -> None:  # noqa: B027
        """Write what the block holds before the first round, beyond what all models share; everything else is 0."""

    def open(self, block: FloatArray) -> Any:
        """Return named views of a block."""
        return self.layout.open(block)

    def inherit(self, block: FloatArray, old: FloatArray) -> None:
        """Take over what all models keep from a model with as many arms, or one less."""
        own, was = BLOCK.open(block), BLOCK.open(old)
        for name in ("head", "running", "alarm", "score"):
            getattr(own, name).numbers[:] = getattr(was, name).numbers
        arms = len(was.scored)
        own.squares[:arms], own.scored[:arms] = was.squares, was.scored
        own.innovations[:] = was.innovations
        own.head.length, own.head.bonus = len(block), self.bonus

    def catch_up(self, blocks: FloatArray, at: int, rows: FloatArray, span: Span) -> None:
        """Go through rows of a log with the block in place."""
        type(self).catch_up_kernel(blocks, at, rows, *span, self.context_first)

    def led(self, block: FloatArray, rows: FloatArray, span: Span) -> FloatArray:
        """Return a copy of a block that has gone through rows of a log."""
        copy = block.copy()
        if len(rows):  # so that the kernel is compiled when it is needed
            type(self).catch_up_kernel(copy, 0, rows, *span, self.context_first)
        return copy
