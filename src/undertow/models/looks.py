"""Looks: when a learner plays an abandoned arm again, and for how long.

Fits and scores use played arms only, and a model with stationary arms never expects one of them to change. Suppose that
an arm whose forecast, less its cost, lies Δ below the best jumps at rate h, by s T, T a Student t with two degrees of
freedom, so that no jump is out of the question. On average, the arm is then better than the best by

    G(Δ) = E(s T − Δ)⁺ = (√(Δ² + 2 s²) − Δ) / 2                                        (1)

per round. A look at it takes n plays, which bring the expected odds that it has jumped to four to one, σ² being the
noise. Looks that are L rounds apart cost n Δ / L per round, and the jumps that they miss h G L / 2. The sum is least at

    L = √(2 n Δ / (h G)),   n = 1 + 2 log 4 σ² / (Δ + s)².                             (2)

In the k t arm-rounds so far no jump was seen, from which Jeffreys' prior estimates

    h = 1 / (2 k t).                                                                   (3)

The size of a jump is that of the differences between arms, as far as the model does not see them move:

    s² = ρ (σ² + b²),                                                                  (4)

b the median over arms of how far behind they were when they were left. ρ compares squared errors at plays of arms that
had been left: those of the forecasts then, and those of the forecasts when they were left. If contexts or features
inform about the other arms, ρ is small, and looks are rare; if not, it is 1. If arms diverge because a state does, no
jump of that size was observed, and looks are rare, too.

A look goes on while its rewards are likelier for an arm that is better than the best by a margin μ than for one that is
as it was forecast: while the odds of a jump are better than those at which the look began. With e a reward's difference
from its forecast, and d the difference of the best forecast from it, the log likelihood ratio of n rewards is

    (Σ (d e − d²/2) + μ Σ (e − d) − n μ²/2) / σ².                                      (5)
"""

import math
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np

from undertow.compiled.common import Common, known_cost
from undertow.compiled.kernel import inlined, plain
from undertow.compiled.layout import Index
from undertow.compiled.views import Record
from undertow.models.block import Block
from undertow.support.checks import FloatArray

if TYPE_CHECKING:
    from undertow.models.judge import LearnerState

__all__ = ["Looks", "look_again", "note_late_reward", "note_play", "note_reward"]

_BEFORE = 300.0  # prior rounds without a jump
_TELL = 2.0 * math.log(4.0)
_CLOSEST = 0.1  # of s: no arm is taken to be closer to the best
_LEAST, _LARGEST = 0.5, 2.0  # margin, in units of s
_SHRINK = 4.0  # errors of an arm that the mean over all arms counts as
_FEW, _MANY = 3, 40  # plays after which a look ends if its arm is the best, and in any case
_RETURNS, _FADE = 10.0, 0.99  # prior plays of abandoned arms; their fading
_FINEST = 1e-12  # of s²: no noise is smaller
_NATS = 50.0  # the largest evidence in the odds


class Returns(Record):
    """The last play; faded sums of squared errors of two forecasts, over plays of abandoned arms."""

    arm: Annotated[float, Index("k")]  # of the last play
    begun: Annotated[float, Index("2")]  # whether a model has decided
    errors: float  # squared errors of the forecasts when the arm was played again
    moves: float  # ... and of those when it was left


class Looks(NamedTuple):
    """The last play of each arm, and the evidence of its look, if one is in progress."""

    returns: Returns
    last: Annotated[FloatArray, "k", Index("2**53")]  # rounds begun with the last play; 0 before the first
    plays: Annotated[FloatArray, "k", Index("2**53")]  # of the look; 0 if none is in progress
    awaited: Annotated[FloatArray, "k", Index("2**53")]  # `last` of the play whose reward has to come; 0 if none has
    odds: Annotated[FloatArray, "k"]  # of a jump when the look began
    forecast: Annotated[FloatArray, "k"]  # of the last play
    gap: Annotated[FloatArray, "k"]  # d, by how much the best forecast was larger, costs taken off
    away: Annotated[FloatArray, "k", Index("2")]  # whether the arm was left, and no reward has come since
    left: Annotated[FloatArray, "k"]  # the forecast when it was left
    behind: Annotated[FloatArray, "k"]  # by how much the best forecast was larger then
    evidence: Annotated[FloatArray, "k"]  # Σ (d e − d²/2) in (5)
    excess: Annotated[FloatArray, "k"]  # Σ (e − d) in (5), by how much rewards exceeded the best forecasts


@inlined
def best_forecast(own: "LearnerState") -> float:
    """Return the largest forecast of an arm that is open."""
    forecast, closed, top = own.common.forecast, own.common.closed, -math.inf
    for a in range(len(closed)):
        if closed[a] == 0.0:
            top = max(top, forecast[a])
    return top


@inlined
def net(common: Common, arm: int) -> float:
    """Return an arm's forecast less its cost."""
    result: float = common.forecast[arm] - known_cost(common, arm)
    return result


@inlined
def best_net(common: Common) -> float:
    """Return the largest forecast less cost of an arm that is open."""
    top = -math.inf
    for a in range(len(common.closed)):
        if common.closed[a] == 0.0:
            top = max(top, net(common, a))
    return top


@inlined
def mean_error(block: Block) -> float:
    """Return a model's mean squared error, every arm counting alike; infinite before the first."""
    total, arms = 0.0, 0
    for a in range(len(block.scored)):
        if block.scored[a] > 0.0:
            total += block.squares[a]
            arms += 1
    return total / arms if arms > 0 else math.inf


@inlined
def unseen(looks: Looks, error: float) -> float:
    """Return ρ, the share of abandoned arms' changes that the forecasts miss; 1 before any arm was abandoned."""
    returns, some = looks.returns, _RETURNS * error
    return min((some + returns.errors) / (some + returns.moves), 1.0)


@inlined
def evidence_of(looks: Looks, a: int, s: float, noise: float) -> float:
    """Return the log likelihood ratio (5) of a jump, by the likeliest margin over the best, to none."""
    n = looks.plays[a]
    margin = min(max(looks.excess[a] / n, _LEAST * s), _LARGEST * s)
    result: float = (looks.evidence[a] + margin * looks.excess[a] - 0.5 * n * margin * margin) / noise
    return result


@inlined
def odds_of(own: "LearnerState", block: Block, a: int, best: int, top: float, error: float, s: float) -> float:
    """Return the odds of a jump of an arm that is due for a look, else 0."""
    looks, t, k, odds = own.looks, own.common.head.rounds, len(own.plays), 0.0
    n = block.scored[a]
    noise = max((n * block.squares[a] + _SHRINK * error) / (n + _SHRINK), _FINEST * s * s)
    if looks.plays[a] > 0.0 and looks.awaited[a] == 0.0:
        evidence = evidence_of(looks, a, s, noise)
        if evidence > 0.0 and looks.plays[a] < (_FEW if a == best else _MANY):
            odds = looks.odds[a] * math.exp(min(evidence, _NATS))
        else:
            looks.plays[a] = 0.0
    Δ = max(top - net(own.common, a), _CLOSEST * s)
    G = 0.5 * (math.sqrt(Δ * Δ + 2.0 * s * s) - Δ)  # (1)
    plays, h, L = 1.0 + _TELL * noise / (Δ + s) ** 2, 0.5 / (k * (t + _BEFORE)), t - looks.last[a]  # (2), (3)
    if odds == 0.0 and a != best and L * L * h * G >= 2.0 * plays * Δ:  # (2), squared
        odds = h * L
        looks.plays[a], looks.awaited[a], looks.odds[a] = 0.0, 0.0, odds
    return odds


@inlined
def look_again(own: "LearnerState", block: Block, best: int) -> int:
    """Return the best arm, or one that is due for a look: of several, that with the largest odds of a jump.

    A look waits for the reward of its last play, but no longer than until the next one would begin.
    """
    error, common, chosen, most = mean_error(block), own.common, best, 0.0
    s = math.sqrt(unseen(own.looks, error) * (error + np.median(own.looks.behind) ** 2))  # (4)
    top = best_net(common)
    if own.learner.looks > 0.0 and 0.0 < s < math.inf:
        for r in range(len(common.order)):
            a = int(common.order[r])
            if common.closed[a] == 0.0:
                odds = odds_of(own, block, a, best, top, error, s)
                if a != best and odds > most:
                    chosen, most = a, odds
    own.learner.look = most
    return chosen


@inlined
def note_play(own: "LearnerState", arm: int) -> None:
    """Record the played arm, and whether its reward belongs to a look: a random arm may be played instead."""
    common, looks, returns, before = own.common, own.looks, own.looks.returns, int(own.looks.returns.arm)
    if arm != int(common.head.proposed):
        own.learner.look = 0.0
    top = best_forecast(own)
    if own.learner.leader >= 0.0:
        for a in range(len(looks.behind)):
            if returns.begun == 0.0 or a == before:
                looks.behind[a] = top - common.forecast[a]
        returns.begun = 1.0
        if arm != before and looks.last[before] > 0.0:
            looks.away[before], looks.left[before] = 1.0, common.forecast[before]
    if arm == before:
        looks.away[arm] = 0.0
    returns.arm, looks.last[arm], looks.forecast[arm] = arm, common.head.rounds + 1.0, common.forecast[arm]
    begins = own.learner.look > 0.0 and looks.plays[arm] == 0.0
    if begins:
        looks.evidence[arm] = looks.excess[arm] = 0.0
    if begins or (looks.plays[arm] > 0.0 and looks.awaited[arm] == 0.0):
        looks.plays[arm] += 1.0
        looks.awaited[arm] = looks.last[arm]
        looks.gap[arm] = best_net(common) - net(common, arm)


@inlined
def note_reward(looks: Looks, round: int, arm: int, reward: float) -> None:
    """Learn the reward of an arm's last play, which a look may need."""
    if looks.last[arm] != round + 1.0:
        return
    error, gap, returns = reward - looks.forecast[arm], looks.gap[arm], looks.returns
    if looks.away[arm] > 0.0:
        looks.away[arm] = 0.0
        returns.errors = _FADE * returns.errors + error * error
        returns.moves = _FADE * returns.moves + (reward - looks.left[arm]) ** 2
    if looks.awaited[arm] == round + 1.0:
        looks.awaited[arm] = 0.0
        looks.evidence[arm] += gap * error - 0.5 * gap * gap
        looks.excess[arm] += error - gap


note_late_reward = plain(note_reward)
