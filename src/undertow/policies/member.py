"""What the models inside a learner have in common: a block of the packed state that begins with the same numbers."""

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from undertow._checks import FloatArray
from undertow._kernel import inlined
from undertow.policies import beside

__all__ = [
    "ALARMED",
    "ALARMS",
    "BEGIN",
    "BUSY",
    "CONSTANT",
    "DENSITY",
    "FACTOR",
    "FITS",
    "FITTED",
    "GUEST",
    "KIND",
    "LEVEL",
    "LEVELS",
    "NEXT",
    "OVER",
    "READY",
    "RIDGE",
    "RING",
    "SCORE",
    "SCORED",
    "SCORES",
    "SETTINGS",
    "SHARED",
    "SIZE",
    "SPENT",
    "TRIED",
    "TURN",
    "UNSEEN",
    "Fit",
    "Member",
    "Span",
    "Task",
    "attempt",
    "last_innovations",
    "note_density",
    "watch",
]

RING = 128  # standardised innovations that are remembered
SETTINGS = 20 + RING
READY = 0  # 0 before the first fit, then the order of the model
OVER = 1  # whether the belief is still in a round that is over
FITTED, NEXT = 2, 3  # the round of the last fit, and from which round on the next is due
LEVEL, ALARMED, ALARMS = 4, 5, 6  # mean squared innovation, whether it is too large, how often it was
BEGIN = 7  # the first round that fits look at
SPENT, TURN, FITS = 8, 9, 10  # of the compute budget, in the cycle of challengers, and how many fits there were
SCORE, DENSITY = 11, 12  # discounted log density of the rewards, and that of the last one
FACTOR = 13  # of the exploration bonus
BUSY = 14  # whether a fit is under way elsewhere
KIND, SIZE = 15, 16  # which kind of model this is, and the length of its block
UNSEEN = 17  # standard error of an arm of which nothing has been seen, in the present round, where that is known
TRIED = 18  # the round of the last fit or of the last that failed
SCORED = 19  # how many rewards were predicted; the last innovations follow
SCORES = [SCORE, DENSITY, *range(SCORED, SETTINGS)]  # what was made of the rewards so far
SHARED, LEVELS, RIDGE, GUEST, CONSTANT = 0, 1, 2, 3, 4

_TAIL = 5.0  # degrees of freedom
_FORGETTING = 0.001  # of the log densities by which models are compared, a round
_FADING = 3.0  # early on they are weighted by (s / t)³, s their round: a model of few rounds is not yet what it will be
_RATE = 0.03  # at which the mean squared innovation follows
_LARGEST = 9.0  # squared innovation: a single gross error is no alarm
_ALARM = 2.0
_QUIET, _PATIENCE = 32, 0.05  # rounds after a fit without an alarm, and at least this share of all rounds


@inlined
def watch(settings: FloatArray, squared: float, t: int) -> None:
    """Follow the squared standardised innovations, whose mean is 1 while the model holds, and raise the alarm."""
    settings[LEVEL] += _RATE * (min(squared, _LARGEST) - settings[LEVEL])
    if settings[LEVEL] > _ALARM and t - settings[TRIED] >= max(_QUIET, _PATIENCE * t):
        settings[ALARMED] = 1.0


@inlined
def note_density(settings: FloatArray, innovation: float, deviation: float, t: int) -> None:
    """Score a prediction of the played arm's reward: standardised innovation, predicted standard deviation.

    The log density is that of Student's t with 5 degrees of freedom and the predicted variance, without its constant:
    one outlier says little about which model is better, and a model that is too sure of itself still loses.
    """
    density = -math.log(deviation) - 0.5 * (_TAIL + 1.0) * math.log(1.0 + innovation * innovation / (_TAIL - 2.0))
    settings[SCORE] = (1.0 - max(_FORGETTING, _FADING / (t + _FADING))) * settings[SCORE] + density
    settings[DENSITY] = density
    settings[SCORED + 1 + int(settings[SCORED]) % RING] = innovation
    settings[SCORED] += 1.0


class Task(NamedTuple):
    """A fit to be made: copies of what it needs."""

    round: int
    begin: int  # the round of the first row
    rows: FloatArray
    block: FloatArray
    seed: tuple[int, ...]


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


@dataclass(frozen=True)
class Member(abc.ABC):
    """One model inside a learner; all that changes is in its block of the state."""

    arms: int
    context_dim: int
    feature_dim: int
    context_first: bool

    fitted_by: ClassVar[str] = ""  # the function of `identify` that needs the same kernels as a fit, where there is one

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What people call the model."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Length of the block."""

    def growth(self, rounds: int) -> float:
        """Return by which factor the data grow between a fit after `rounds` rounds and the next."""
        return 1.4

    @property
    def sizes(self) -> list[int]:
        """Places in the block that hold sizes and never change."""
        return [KIND, SIZE]

    def describe(self, block: FloatArray) -> Any:
        """Return the model in use for people to read; None where there is nothing to show."""
        return None

    @abc.abstractmethod
    def fit(self, task: Task) -> Fit:
        """Fit the model to the rows of a task, from its block; called from any thread."""

    @abc.abstractmethod
    def believe(self, block: FloatArray, rows: FloatArray, end: int) -> None:
        """Set the belief to that after the rows of a log, which end before round `end`, with the model as it is."""

    @abc.abstractmethod
    def adopt(self, old: Self, block: FloatArray, rows: FloatArray, end: int) -> FloatArray:
        """Return the block of this model where `old`, which has one arm less, has `block`.

        The belief is that after the rows of a log, which end before round `end`.
        """

    @abc.abstractmethod
    def catch_up(self, state: FloatArray, at: int, rows: FloatArray, span: "Span") -> None:
        """Go through rows of a log."""


def attempt(make: Callable[[], Fit]) -> Fit | Exception:
    """Make a fit, or return why it failed: whatever it is, the policy goes on with the model it has."""
    beside.finish()
    try:
        return make()
    except Exception as error:
        return error


def last_innovations(block: FloatArray) -> FloatArray:
    """Return the last standardised innovations of a model, oldest first."""
    count, ring = int(block[SCORED]), block[SCORED + 1 : SETTINGS]
    return np.roll(ring, -count % RING if count > RING else 0)[: min(count, RING)].copy()
