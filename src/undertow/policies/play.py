"""A policy's entry points, compiled from its few kernels.

A policy writes `open_state`, which splits its packed state into named views, and `decide`, `learn`, `observe` and
`skip` on those views. Live calls and whole episodes go through one compiled loop over steps, in which each of the three
stands once: whoever takes a step runs the same instructions, so live and simulated decisions agree bit for bit.

numba's cache on disk does not accept functions as arguments, so the functions below are templates: `compile_kernels`
copies each with these names bound to a policy's own kernels, and compiles the copy as if it stood in the policy's file.
"""

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from undertow._checks import FloatArray, readonly
from undertow._kernel import kernel

__all__ = ["DECIDE", "LEARN", "OBSERVE", "Kernels", "Stage", "compile_kernels"]

DECIDE, LEARN, OBSERVE = 0, 1, 2
_NO_DRAWS, _NO_MEMORY = np.empty((1, 0)), np.empty(0)

if TYPE_CHECKING:  # the names that every copy of a template binds to kernels of its own

    def open_state(state: FloatArray) -> Any: ...
    def decide(own: Any, features: FloatArray, draws: FloatArray) -> int: ...
    def learn(own: Any, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None: ...
    def observe(own: Any, context: FloatArray) -> None: ...
    def skip(own: Any) -> None: ...


class Kernels(NamedTuple):
    """The compiled functions behind a policy: `play` takes steps, `skip` lets a round pass without a decision."""

    play: Callable[..., None]
    skip: Callable[..., None]


class Stage:
    """One row of everything that `play` reads and writes, for steps that are taken one at a time."""

    def __init__(self, arm_count: int, context_dim: int, feature_dim: int) -> None:
        self.context, self.features = np.zeros(context_dim), np.zeros(feature_dim)
        self.rewards, self.arms = np.zeros(arm_count), np.zeros(1, dtype=np.int64)
        self.records = np.zeros((1, 3, arm_count))
        self._rows = tuple(readonly(row[None]) for row in (self.context, self.features, self.rewards))

    def take(
        self,
        kernels: Kernels,
        state: FloatArray,
        call: int,
        *,
        draws: FloatArray = _NO_DRAWS,
        memory: FloatArray = _NO_MEMORY,
        age: int = 0,
    ) -> None:
        """Take one step on a state, with the row as it stands."""
        contexts, features, rewards = self._rows
        kernels.play(
            state, call, call + 1, 0, contexts, features, rewards, draws, memory, age, self.arms, self.records, 0
        )


def _play(
    state: FloatArray,
    first: int,
    last: int,
    shift: int,
    contexts: FloatArray,
    features: FloatArray,
    rewards: FloatArray,
    draws: FloatArray,
    memory: FloatArray,
    age: int,
    arms: Any,
    records: FloatArray,
    kept: int,
) -> None:
    """Take steps `first` to `last`, three a round: decide, learn, observe; a shift of 2 has observe come first.

    Row t of each array belongs to round t. A reward is learned with `memory`, `age` rounds after its decision. The
    forecasts, widths and windows of a decision go to row t too, or with `kept` = 0 to row 0 each time. There is no
    branch on these settings: the compiler would make a second copy of the loop for it, with other roundings.
    """
    own = open_state(state)
    shared = own.shared
    for step in range(first, last):
        t = step // 3
        call = (step + shift) % 3
        if call == DECIDE:
            arms[t] = decide(own, features[t], draws[t])
            row = t * kept
            for a in range(len(shared.forecast)):
                records[row, 0, a] = shared.forecast[a]
                records[row, 1, a] = shared.width[a]
                records[row, 2, a] = shared.window[a]
        elif call == LEARN:
            learn(own, memory, arms[t], rewards[t], age)
        else:
            observe(own, contexts[t])


def _skip(state: FloatArray) -> None:
    skip(open_state(state))


def compile_kernels(
    module: str,
    open_state: Callable[..., Any],
    decide: Callable[..., Any],
    learn: Callable[..., Any],
    observe: Callable[..., Any],
    skip: Callable[..., Any],
) -> Kernels:
    """Return the entry points of a policy; `module` is the file that it lives in."""
    bound: dict[str, Any] = {
        "open_state": open_state,
        "decide": decide,
        "learn": learn,
        "observe": observe,
        "skip": skip,
    }
    bound |= {"DECIDE": DECIDE, "LEARN": LEARN}

    def specialise(template: Any) -> Callable[..., Any]:
        name = f"{decide.__name__}_{learn.__name__}{template.__name__}"
        copy = types.FunctionType(template.__code__, bound, name)
        copy.__module__, copy.__qualname__ = module, name
        return kernel(copy)

    return Kernels(specialise(_play), specialise(_skip))
