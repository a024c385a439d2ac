"""How a learner's packed state begins, and the parts of a decision that all learners share."""

import math
from typing import NamedTuple

import numpy as np

from undertow._checks import FloatArray
from undertow._kernel import inlined, spliced
from undertow._view import view
from undertow.policies.member import ALARMED, BUSY, CONSTANT, GUEST, KIND, NEXT, SETTINGS, SHARED, UNSEEN
from undertow.policies.state import ROUNDS, Shared, open_shared, private_start

__all__ = [
    "HEAD",
    "LEAD",
    "LEADER",
    "SEED",
    "LearnerState",
    "choose",
    "count_round",
    "fit_is_due",
    "handicap",
    "open_learner",
    "start_up",
]

_SHORT, _WIDEST = 1.5, 2.0  # how an arm of a shared system is widened that is seldom played and hardly known
_HANDICAP, _EARLY = 8.0, 100.0  # nats, and rounds that say little about whether anything moves
HEAD, SEED = 5, 2  # rounds of start-up, whether the context comes first, seed of the fits, and of the last decision:
LEADER, LEAD = 3, 4  # where the block of the model that made it begins, -1 in start-up, and by how many nats it led


class LearnerState(NamedTuple):
    """The state of a learner: start-up, and where the block of its first model begins."""

    shared: Shared
    state: FloatArray
    head: FloatArray
    plays: FloatArray
    at: int


@spliced
def open_learner(state: FloatArray) -> LearnerState:
    """Split the packed state into its parts."""
    k = int(state[0])
    at = private_start(state)
    head, plays = view(state, at, (HEAD,)), view(state, at + HEAD, (k,))
    return LearnerState(open_shared(state), state, head, plays, at + HEAD + k)


@spliced
def start_up(own: LearnerState, draws: FloatArray) -> int:
    """Return an open arm among those played least, drawn at random; the first draw of all also seeds the fits."""
    plays, closed = own.plays, own.shared.closed
    if own.head[SEED] == 0.0:
        own.head[SEED] = math.floor(draws[0] * 2.0**53)
    arm = -1
    for a in range(len(plays)):
        first = arm < 0 or plays[a] < plays[arm] or (plays[a] == plays[arm] and draws[a] > draws[arm])
        if closed[a] == 0.0 and first:
            arm = a
    return arm


@spliced
def fit_is_due(state: FloatArray, at: int, t: int) -> bool:
    """Tell whether the model whose block begins at `at` wants to be fitted before round t is decided."""
    return bool(state[at + BUSY] == 0.0 and (t >= state[at + NEXT] or state[at + ALARMED] > 0.0))


@inlined
def handicap(kind: float, m: int, scored: float) -> float:
    """Return by how many nats a kind of model has to lead to decide, after so many predictions were scored.

    By none where there are no contexts. Where there are, levels and ridge have to lead by 8: they know an arm from its
    own plays alone, and follow the one that is played as closely as a shared system, which knows the others by the
    contexts, too; the score is that of the played arm and does not tell the difference. Constant arms have to lead by 8
    in the first hundred rounds, which say little about whether anything moves, and by 800/t after t.
    """
    if m == 0 or kind in (SHARED, GUEST):
        return 0.0
    return _HANDICAP if kind != CONSTANT else _HANDICAP * min(1.0, _EARLY / max(scored, 1.0))


@inlined
def widening(kind: float, t: int, k: int, plays: float, unseen: float) -> float:
    """Return by which factor to widen an arm that has had less than its share t/k of the plays.

    In a shared system √(ln(t / k n) − 1.5), at least 1, which it is from a twelfth of the share on, and at most 2; of
    what that adds, `unseen`: the share of the arm's variance before anything was seen of it that is left. What was seen
    of an arm is known, but how far arms lie apart that were not seen is an estimate, and one whose prior just does not
    reach the best arm would be given up for good. Where arms are constant √(¼ + ln(t / k n)), as in MOSS (Audibert and
    Bubeck 2009; Degenne and Perchet 2016 for any horizon). Levels widen by themselves as time passes.
    """
    short = math.log(max(t / (k * max(plays, 1.0)), 1.0))
    if kind == SHARED:
        return 1.0 + unseen * (min(_WIDEST, math.sqrt(max(1.0, short - _SHORT))) - 1.0)
    return math.sqrt(0.25 + short) if kind == CONSTANT else 1.0


@spliced
def choose(own: LearnerState, leader: int, lead: float, draws: FloatArray) -> int:
    """Return the open arm with the largest forecast + width of the leading model, and note which one that was.

    In the rounds of start-up, and while no model is ready (`leader` is −1), the arms take turns instead.
    """
    shared = own.shared
    k, t = int(shared.header[0]), int(shared.header[ROUNDS])
    arm = start_up(own, draws)
    own.head[LEADER] = leader if t >= own.head[0] else -1
    own.head[LEAD] = lead
    if leader >= 0:
        out = view(own.state, leader + SETTINGS, (4, k))
        best, top = -1, 0.0
        kind, full = own.state[leader + KIND], own.state[leader + UNSEEN]
        for r in range(k):
            a = int(shared.order[r])
            shared.forecast[a] = out[0, a]
            unseen = min((out[3, a] / full) ** 2, 1.0) if full > 0.0 else 1.0
            shared.width[a] = out[1, a] * widening(kind, t, k, own.plays[a], unseen)
            if shared.closed[a] == 0.0 and (best < 0 or shared.forecast[a] + shared.width[a] > top):
                best, top = a, shared.forecast[a] + shared.width[a]
        if t >= own.head[0]:
            arm = best
    else:
        for a in range(k):
            shared.forecast[a] = 0.0
            shared.width[a] = np.inf
    return arm


@spliced
def count_round(own: LearnerState, arm: int) -> None:
    """Count the round and the play of its arm, −1 where there was none."""
    own.shared.header[ROUNDS] += 1.0
    if arm >= 0:
        own.plays[arm] += 1.0
