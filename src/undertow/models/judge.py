"""How a learner decides: its state, its initial rounds, and the choice by the leading model.

Every model predicts the reward of the played arm, no matter which model chose it; the one with the largest score, less
its handicap, decides.
"""

import math
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np

from undertow.compiled import Common, Index, Layout, Record, Within, best_arm, spliced
from undertow.compiled.kernel import inlined
from undertow.models.block import Block, ModelHead, open_block
from undertow.models.looks import Looks, look_again, note_play, note_reward
from undertow.support.checks import FloatArray

__all__ = [
    "LEARNER",
    "LearnerHead",
    "LearnerState",
    "decide",
    "fit_is_due",
    "handicap",
    "learn",
    "observe",
    "played",
    "see",
    "start_up",
    "start_up_chances",
    "start_up_rounds",
]

_START = 6  # rounds before the first fit, in which the arms take turns; up to twice as many for many arms
_EARLY = 100.0  # rounds that show little about whether arms are stationary


class LearnerSizes(Record):
    """Length n of all blocks together."""

    n: float


class LearnerHead(Record):
    """The state of a learner beyond its models."""

    start: float  # initial rounds
    context_first: float
    seed: Annotated[float, Index("2**53")]  # of the fits
    leader: float  # beginning of the block of the model that made the last decision; −1 in initial rounds
    lead: float  # its lead in nats
    looks: Annotated[float, Index("2")]  # whether it looks at abandoned arms again
    look: Annotated[float, Within(0.0, math.inf)]  # if the decision is a look, the odds of a change; 0 if not


class LearnerState(NamedTuple):
    """Initial rounds, and the blocks of the models in order."""

    common: Common
    sizes: LearnerSizes
    learner: LearnerHead
    looks: Looks
    plays: Annotated[FloatArray, "k", Within(0.0, 2.0**53)]
    blocks: Annotated[FloatArray, "n"]


LEARNER = Layout(LearnerState)


def start_up_rounds(k: int) -> int:
    """Return the number of initial rounds for k arms."""
    return max(_START, min(k, 2 * _START))


@spliced
def start_up(own: LearnerState, draws: FloatArray) -> int:
    """Return a random open arm among those played least; the first random number also seeds the fits."""
    plays, closed = own.plays, own.common.closed
    if own.learner.seed == 0.0:
        own.learner.seed = math.floor(draws[0] * 2.0**53)
    arm = -1
    for a in range(len(plays)):
        first = arm < 0 or plays[a] < plays[arm] or (plays[a] == plays[arm] and draws[a] > draws[arm])
        if closed[a] == 0.0 and first:
            arm = a
    return arm


def start_up_chances(own: LearnerState, played: int) -> FloatArray:
    """Return the arms' probabilities in an initial round, given the counts before."""
    plays, closed = own.plays.copy(), own.common.closed
    plays[played] -= 1.0
    least = (closed == 0) & (plays == plays[closed == 0].min())
    return np.asarray(least / least.sum())


@inlined
def fit_is_due(block: Block, t: int) -> bool:
    """Return whether a fit of a model is due before round t is decided."""
    return block.running.busy == 0.0 and (t >= block.running.next_fit or block.alarm.raised > 0.0)


@inlined
def handicap(head: ModelHead, scored: float) -> float:
    """Return the lead in nats that a model needs to decide, after some number of scored predictions.

    With contexts, the others need a lead of 8 over the shared system. They learn an arm from its own plays alone, and
    predict the played arm as well as a shared system, which also predicts the other arms from the contexts; the score
    of the played arm does not show the difference. Constant arms need all of it in the first hundred rounds, which show
    little about whether arms are stationary, and a share of 100/t after t. Without contexts, levels and constant arms
    have no handicap, the shared system needs a lead of 4, and the ridge of 8.

    With features, the shared system needs 8 as well, since it ignores them: while it plays poor arms, it predicts them
    as well as models which use features.
    """
    return head.handicap if head.early == 0.0 else head.handicap * min(1.0, _EARLY / max(scored, 1.0))


@spliced
def choose(own: LearnerState, leader: int, lead: float, draws: FloatArray) -> int:
    """Return the open arm with the largest forecast + width − cost by the leading model, and record that model.

    In the initial rounds, and while no model is ready (`leader` is −1), the arms take turns instead.
    """
    common, t = own.common, int(own.common.head.rounds)
    arm = start_up(own, draws)
    own.learner.leader = leader if t >= own.learner.start else -1
    own.learner.lead = lead
    own.learner.look = 0.0
    if leader >= 0:
        block = open_block(own.blocks, leader)
        for a in range(len(common.order)):
            common.forecast[a] = block.forecast[a]
            common.width[a] = block.width[a]
        best = best_arm(common)
        if t >= own.learner.start:
            arm = look_again(own, block, best)
    else:
        for a in range(len(common.order)):
            common.forecast[a] = 0.0
            common.width[a] = np.inf
        best_arm(common)  # records their values
    return arm


if TYPE_CHECKING:  # bound to the steps of a learner's models, one after the other (`models.chain`)

    def forecast_all(blocks: FloatArray, at: int, t: int, features: FloatArray, plays: FloatArray) -> None: ...
    def see_all(blocks: FloatArray, at: int, t: int, features: FloatArray, more: int) -> None: ...
    def played_all(blocks: FloatArray, at: int, t: int, arm: int, over: bool) -> None: ...
    def learn_all(blocks: FloatArray, at: int, t: int, arm: int, reward: float) -> None: ...
    def observe_all(blocks: FloatArray, at: int, t: int, context: FloatArray, first: bool) -> None: ...


def decide(own: LearnerState, features: FloatArray, draws: FloatArray) -> int:
    """Let every model forecast, and play the largest forecast + width of the leader; request fits that are due.

    In another round of the same time step, no belief advances.
    """
    blocks, t, still = own.blocks, int(own.common.head.rounds), own.common.head.still > 0.0
    at = 0
    while at < len(blocks):
        block = open_block(blocks, at)
        if still:
            block.head.over = 0.0
        if fit_is_due(block, t):
            return -1
        at += int(block.head.length)
    forecast_all(blocks, 0, t, features, own.plays)
    leader, top, second = -1, -math.inf, -math.inf
    at = 0
    while at < len(blocks):
        block = open_block(blocks, at)
        score = block.score.total - handicap(block.head, block.score.count)
        if np.isnan(score):
            score = -math.inf
        if block.head.order > 0.0 and (leader < 0 or score > top):
            leader, top, second = at, score, top
        elif block.head.order > 0.0 and score > second:
            second = score
        at += int(block.head.length)
    return choose(own, leader, top - second if leader >= 0 else 0.0, draws)


def see(own: LearnerState, features: FloatArray) -> None:
    """Pass the features of the played arm, whose reward is learned, to every model."""
    see_all(own.blocks, 0, int(own.common.head.rounds), features, 0)


def played(own: LearnerState, arm: int) -> None:
    """Pass the played arm to every model; the round is over unless its context is still to come."""
    over = own.learner.context_first > 0.0 or own.common.sizes.m == 0.0
    if arm >= 0:
        own.plays[arm] += 1.0
        note_play(own, arm)
    played_all(own.blocks, 0, int(own.common.head.rounds), arm, over)


def learn(own: LearnerState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Let every model predict a reward of the present round, score it, and let it learn."""
    learn_all(own.blocks, 0, int(own.common.head.rounds) - 1, arm, rewards[arm])
    note_reward(own.looks, int(own.common.head.rounds) - 1, arm, rewards[arm])


def observe(own: LearnerState, context: FloatArray) -> None:
    """Pass a context to every model."""
    observe_all(own.blocks, 0, int(own.common.head.rounds), context, own.learner.context_first > 0.0)
