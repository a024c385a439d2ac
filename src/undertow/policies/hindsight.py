"""How a learner goes back in time: for a reward that comes late, and for one more arm.

Both begin with a state as it was before some round, and go through the log from there once more.
"""

from typing import TYPE_CHECKING

import numpy as np

from undertow.policies.arms import copy_parts
from undertow.policies.learner_state import HEAD, LearnerState
from undertow.policies.member import ALARMS, BEGIN, BUSY, FACTOR, FITS, NEXT, SCORES, Span
from undertow.policies.state import HEADER, ROUNDS

if TYPE_CHECKING:
    from undertow.policies.learning import LearningPolicy

__all__ = ["filter_again", "take_learner"]

_RUNNING = [BUSY, NEXT, FITS, ALARMS]  # what a late reward leaves as it is


def filter_again(policy: "LearningPolicy", then: int) -> None:
    """Go back to a state before round `then`, and from there through the log once more."""
    now, seen, checkpoints = policy.round, policy._seen, policy._checkpoints
    while len(checkpoints) > 1 and checkpoints[-1][0] > then:
        checkpoints.pop()
    begin, state = checkpoints[-1]
    if begin > then:  # a fit has been made since: its belief is to hold the reward, too
        for number, member in enumerate(policy._members):
            block = policy._block(number, state)
            member.believe(block, policy._log.rows(max(int(block[BEGIN]), policy._log.begin), begin), begin)
            if policy._context_first:
                rows, span = policy._log.rows(begin, begin + 1), Span(begin, begin, begin, begin + 1)
                member.catch_up(state, policy._places[number], rows, span)
    head = slice(policy._head, policy._head + HEAD + policy.arm_count)
    kept, closed = policy._state[head].copy(), policy._closed.copy()
    running = [policy._block(i)[_RUNNING] for i in range(len(policy._members))]
    policy._state[:] = state
    policy._state[ROUNDS] = now
    policy._state[head], policy._closed[:] = kept, closed
    for number, settings in enumerate(running):
        policy._block(number)[_RUNNING] = settings
    for number in range(len(policy._members)):
        policy._catch_up(number, begin, begin + policy._context_first, seen)


def take_learner(new: "LearningPolicy", old: "LearningPolicy") -> None:
    """Bring a new learner to where an old one stands, which has one arm less."""
    now, ours = old.kernels.open(old._state), new.kernels.open(new._state)
    assert isinstance(now, LearnerState)
    sizes = new._state[:HEADER].copy()
    places = {"k": np.arange(old.arm_count)}
    shared = dict.fromkeys(("order", "forecast", "width", "window", "closed"), "k")
    copy_parts(now.shared, ours.shared, shared, places)
    new._state[[0, 2]] = sizes[[0, 2]]
    ours.head[1:] = now.head[1:]
    ours.plays[: old.arm_count] = now.plays
    new._log, new._records, new._pending, new._due = old._log, old._records, old._pending, old._due
    new._latest, new._worker = old._latest, old._worker
    seen, first = old._seen, new._context_first and bool(new._context_dim)
    begin = old.round if not new._context_dim else seen - first  # the last round that could be decided
    if begin < 0:
        return
    new._log.open(max(old.round, seen) - 1)
    for number, member in enumerate(new._members):
        block, was = new._block(number), old._block(number)
        factor = block[FACTOR]
        rows = new._log.rows(max(int(was[BEGIN]), new._log.begin), begin)
        block[:] = member.adopt(old._members[number], was, rows, begin)
        block[FACTOR] = factor
        if number in old._under_way:  # a fit that is being made lacks the new arm
            block[BUSY], block[NEXT] = 0.0, old.round
        if first:
            again = new._log.rows(begin, begin + 1)
            member.catch_up(new._state, new._places[number], again, Span(begin, begin, begin, begin + 1))
    new._checkpoints.append((begin, new._state.copy()))
    new._state[ROUNDS] = old.round
    for number in range(len(new._members)):
        new._catch_up(number, begin, begin + first, seen)
        new._block(number)[SCORES] = old._block(number)[SCORES]  # these rounds were scored when they were played
