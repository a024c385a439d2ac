"""The packed state of a policy: one float64 buffer, the same for the live object, the episode and the save file.

It begins with a header (k, m, the length of a memory, the number of rounds begun, the number of features, the share of
rounds that explore, the arm that the policy proposed last), then for every arm its place in the order of start-up and
of ties, its forecast, width and window of the last decision, and whether it is closed; then the memory of that decision
(what learning its reward will need); then what is private to the policy. Each policy splits it into named views.
"""

from typing import NamedTuple

import numpy as np

from undertow._checks import FloatArray
from undertow._kernel import inlined
from undertow._view import view

__all__ = [
    "EXPLORE",
    "FEATURES",
    "HEADER",
    "PER_ARM",
    "PROPOSED",
    "ROUNDS",
    "Shared",
    "count_open",
    "new_state",
    "open_shared",
    "private_start",
]

HEADER = 7
ROUNDS = 3  # index of the number of rounds begun: the current round is one less
FEATURES = 4  # index of the number of features q
EXPLORE = 5  # index of ε, the share of rounds in which an arm is drawn
PROPOSED = 6  # index of the arm that the policy itself chose last
PER_ARM = 5  # numbers that every policy keeps of an arm


class Shared(NamedTuple):
    """Views of the parts that every policy has."""

    header: FloatArray
    order: FloatArray
    forecast: FloatArray
    width: FloatArray
    window: FloatArray
    closed: FloatArray  # 1 for an arm that cannot be played: retired, or not available in this round
    memory: FloatArray


@inlined
def open_shared(state: FloatArray) -> Shared:
    """Split what every state begins with."""
    k, memory = int(state[0]), int(state[2])
    return Shared(
        view(state, 0, (HEADER,)),
        view(state, HEADER, (k,)),
        view(state, HEADER + k, (k,)),
        view(state, HEADER + 2 * k, (k,)),
        view(state, HEADER + 3 * k, (k,)),
        view(state, HEADER + 4 * k, (k,)),
        view(state, HEADER + PER_ARM * k, (memory,)),
    )


@inlined
def private_start(state: FloatArray) -> int:
    """Return where the policy's private part begins."""
    return HEADER + PER_ARM * int(state[0]) + int(state[2])


@inlined
def count_open(closed: FloatArray) -> int:
    """Return how many arms can be played."""
    count = 0
    for a in range(len(closed)):
        if closed[a] == 0.0:
            count += 1
    return count


def new_state(arm_count: int, context_dim: int, memory: int, *private: FloatArray) -> FloatArray:
    """Return a state with an empty memory of the given length and a private part made of the given arrays, in order."""
    header = np.zeros(HEADER)
    header[:3] = arm_count, context_dim, memory
    order = np.arange(arm_count)
    parts = [np.ravel(part) for part in private]
    return np.concatenate([header, order, np.zeros((PER_ARM - 1) * arm_count + memory), *parts]).astype(np.float64)
