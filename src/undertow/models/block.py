"""The beginning of every model's block: its forecasts, its alarm, and the score by which models are compared.

The score of a model, from its predictions of the played arms' rewards, is

    −½ Σ_a w(n_a) log((s_a² + f²) / s²),   w(n) = 50 n / (n + 50).                     (1)

s_a² is its own mean squared error on arm a, n_a the number of predictions, s the spread of the rewards, and f a tenth
of it. It is the log likelihood of Gaussian errors with a variance for each arm, changed in two ways: no arm counts much
more than the others, however often it is played, and errors below a limit count as equal. In units of the spread, a
model that has learned more late rewards than another gains nothing by their number.
"""

import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple

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
    "ModelHead",
    "RewardScale",
    "last_innovations",
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
    """The score (1) of a model, and the number of predicted rewards."""

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
    """Compute the score (1) from the errors on each arm."""
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
