"""Common to all models of a learner: their steps, and their fits.

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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from undertow.compiled.kernel import inlined
from undertow.compiled.layout import Layout
from undertow.models.block import BLOCK
from undertow.support.checks import FloatArray

__all__ = ["Fit", "Model", "Span", "Steps", "Task", "no_played", "no_see"]


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
    context_first: bool  # false without contexts
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
