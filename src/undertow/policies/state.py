"""The packed state of a policy: one float64 buffer, the same for the live object, the episode and the save file.

It begins with a header (k, m, the length of a memory, the number of rounds begun, the number of features), then for
every arm its place in the order of start-up and of ties, and its forecast, width and window of the last decision; then
the memory of that decision (what learning its reward will need); then what is private to the policy. Each policy splits
it into named views.
"""

from typing import NamedTuple

import numpy as np

from undertow._checks import FloatArray
from undertow._kernel import inlined
from undertow._view import view

__all__ = ["FEATURES", "HEADER", "ROUNDS", "Shared", "new_state", "open_shared", "private_start"]

HEADER = 5
ROUNDS = 3  # index of the number of rounds begun: the current round is one less
FEATURES = 4  # index of the number of features q


class Shared(NamedTuple):
    """Views of the parts that every policy has."""

    header: FloatArray
    order: FloatArray
    forecast: FloatArray
    width: FloatArray
    window: FloatArray
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
        view(state, HEADER + 4 * k, (memory,)),
    )


@inlined
def private_start(state: FloatArray) -> int:
    """Return where the policy's private part begins."""
    return HEADER + 4 * int(state[0]) + int(state[2])


def new_state(arm_count: int, context_dim: int, memory: int, *private: FloatArray) -> FloatArray:
    """Return a state with an empty memory of the given length and a private part made of the given arrays, in order."""
    header = [arm_count, context_dim, memory, 0, 0]
    order = np.arange(arm_count)
    parts = [np.ravel(part) for part in private]
    return np.concatenate([header, order, np.zeros(3 * arm_count + memory), *parts]).astype(np.float64)
