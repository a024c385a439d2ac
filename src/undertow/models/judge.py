"""How a learner decides: its state, initial rounds, leading model, and the loop bound to a list of models.

Every model predicts the reward of the played arm, no matter which model chose it; the one with the largest score, less
its handicap, decides.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from undertow.compiled import Common, Index, Layout, Record, Within, best_arm, compile_loop, features_of_arm, spliced
from undertow.compiled.kernel import inlined
from undertow.compiled.loop import Loop, bound
from undertow.models.looks import Looks, look_again, note_play, note_reward
from undertow.models.model import Block, ModelHead, Steps, open_block
from undertow.support.checks import FloatArray

__all__ = [
    "LEARNER",
    "LearnerHead",
    "LearnerState",
    "compile_learner",
    "handicap",
    "level_with_last",
    "start_up_chances",
    "start_up_rounds",
    "unfitted",
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


def unfitted(block: Block) -> tuple[FloatArray, ...]:
    """Return the ranges of a block that a fit keeps: the schedule of fits, then the score."""
    return block.running.numbers, block.innovations, *_scores(block)


def _scores(block: Block) -> tuple[FloatArray, ...]:
    return block.score.numbers, block.squares, block.scored


def level_with_last(newcomer: Block, blocks: Sequence[Block]) -> None:
    """Give a new model the lowest score of the other fitted models, if any."""
    others = [block for block in blocks if block is not newcomer and block.head.order > 0.0]
    if others:
        last = min(others, key=lambda block: block.score.total)
        for mine, theirs in zip(_scores(newcomer), _scores(last), strict=True):
            mine[:] = theirs


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


if TYPE_CHECKING:  # the names that every copy of a template below binds to a learner's own
    from undertow.models.catch_up import begin_step, learn_step, observe_step, played_step, see_step

    def forecast_step(blocks: FloatArray, at: int, t: int, plays: FloatArray, first: int, last: int) -> None: ...
    def rest(*args: Any) -> None: ...
    def forecast_all(blocks: FloatArray, at: int, t: int, features: FloatArray, plays: FloatArray) -> None: ...
    def see_all(blocks: FloatArray, at: int, t: int, features: FloatArray, more: int) -> None: ...
    def played_all(blocks: FloatArray, at: int, t: int, arm: int, over: bool) -> None: ...
    def learn_all(blocks: FloatArray, at: int, t: int, arm: int, reward: float) -> None: ...
    def observe_all(blocks: FloatArray, at: int, t: int, context: FloatArray, first: bool) -> None: ...


def _forecast_all(blocks: FloatArray, at: int, t: int, features: FloatArray, plays: FloatArray) -> None:
    """Advance and let one model forecast, all arms together or each with its own features; then the others."""
    block = open_block(blocks, at)
    begin_step(blocks, at)
    k, q = len(block.forecast), int(block.sizes.q)
    together = 1 if len(features) > q else k
    for a in range(0, k, together):
        see_step(blocks, at, t, features_of_arm(features, a, q))
        if block.head.order > 0.0:
            forecast_step(blocks, at, t, plays, a, a + together)
    rest(blocks, at + int(block.head.length), t, features, plays)


def _see_all(blocks: FloatArray, at: int, t: int, features: FloatArray, more: int) -> None:
    """Pass the features of the played arm of round t to one model, then to the others."""
    see_step(blocks, at, t, features)
    rest(blocks, at + int(open_block(blocks, at).head.length), t, features, more)


def _played_all(blocks: FloatArray, at: int, t: int, arm: int, over: bool) -> None:
    """Pass the played arm, −1 for none, and whether the round is over to one model, then to the others."""
    block = open_block(blocks, at)
    begin_step(blocks, at)
    played_step(blocks, at, t, arm)
    if over:
        block.head.over = 1.0
    rest(blocks, at + int(block.head.length), t, arm, over)


def _learn_all(blocks: FloatArray, at: int, t: int, arm: int, reward: float) -> None:
    """Let one model predict the reward of round t, score it, and let it learn; then the others."""
    learn_step(blocks, at, t, arm, reward)
    rest(blocks, at + int(open_block(blocks, at).head.length), t, arm, reward)


def _observe_all(blocks: FloatArray, at: int, t: int, context: FloatArray, first: bool) -> None:
    """Pass a context to one model, after t rounds have begun; then to the others."""
    observe_step(blocks, at, t, context, first)
    rest(blocks, at + int(open_block(blocks, at).head.length), t, context, first)


@inlined
def _nothing_more(blocks: FloatArray, at: int, t: int, given: Any, more: Any) -> None:
    """End the list of models; candidates, which come after them, take their steps in Python."""


def _decide(own: LearnerState, features: FloatArray, draws: FloatArray) -> int:
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


def _see(own: LearnerState, features: FloatArray) -> None:
    """Pass the features of the played arm, whose reward is learned, to every model."""
    see_all(own.blocks, 0, int(own.common.head.rounds), features, 0)


def _played(own: LearnerState, arm: int) -> None:
    """Pass the played arm to every model; the round is over unless its context is still to come."""
    over = own.learner.context_first > 0.0 or own.common.sizes.m == 0.0
    if arm >= 0:
        own.plays[arm] += 1.0
        note_play(own, arm)
    played_all(own.blocks, 0, int(own.common.head.rounds), arm, over)


def _learn(own: LearnerState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Let every model predict a reward of the present round, score it, and let it learn."""
    learn_all(own.blocks, 0, int(own.common.head.rounds) - 1, arm, rewards[arm])
    note_reward(own.looks, int(own.common.head.rounds) - 1, arm, rewards[arm])


def _observe(own: LearnerState, context: FloatArray) -> None:
    """Pass a context to every model."""
    observe_all(own.blocks, 0, int(own.common.head.rounds), context, own.learner.context_first > 0.0)


def compile_learner(module: str, name: str, models: Sequence[Steps]) -> Loop:
    """Return the loop of a learner with these models, in their order."""
    every: dict[str, Any] = {}
    for template in (_forecast_all, _see_all, _played_all, _learn_all, _observe_all):
        link: Any = _nothing_more
        for steps in reversed(models):
            names = {f"{step}_step": function for step, function in steps._asdict().items()} | {"rest": link}
            link = spliced(bound(template, names, f"{name}{template.__name__}", module))
        every[template.__name__.removeprefix("_")] = link
    decide, see, played, learn, observe = (
        spliced(bound(template, every, f"{name}{template.__name__}", module))
        for template in (_decide, _see, _played, _learn, _observe)
    )
    return compile_loop(module, LEARNER, decide=decide, learn=learn, see=see, played=played, observe=observe)
