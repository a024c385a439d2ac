"""One compiled loop for every policy, live and simulated, built from the policy's few steps.

A policy describes its state (`Layout`) and defines steps on it: `decide` proposes an arm, `played` counts the played
arm (−1 if a round is skipped), `learn` and `observe` learn; `see` stores the features of the played arm, if arms may
have their own. If `common.head.still` is 1, the round is in the same time step as the last one: the hidden state has
not moved. Live calls and complete episodes go through one compiled loop with each step once: both run the same
instructions, so live and simulated decisions are bit-identical.

numba's cache on disk does not accept functions as arguments, so the functions below are templates: `compile_loop`
copies each with these names bound to a policy's own steps, and compiles the copy as if it stood in the policy's file.
"""

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from undertow.compiled.common import Common, Head, count_open, features_of_arm
from undertow.compiled.kernel import inlined, kernel, spliced
from undertow.compiled.layout import Layout
from undertow.compiled.views import view
from undertow.support.checks import FloatArray

__all__ = [
    "DECIDE",
    "LEARN",
    "OBSERVE",
    "Loop",
    "bound",
    "compile_loop",
    "count_round",
    "ignore_arm",
    "ignore_context",
    "ignore_row",
    "order_of",
]

DECIDE, LEARN, OBSERVE = 0, 1, 2  # the steps of a round, in the paper's order


def order_of(context_first: bool) -> tuple[int, int, int]:
    """Return the steps of a round in their order: a context ends it, or comes first."""
    return (OBSERVE, DECIDE, LEARN) if context_first else (DECIDE, LEARN, OBSERVE)


if TYPE_CHECKING:  # the names that every copy of a template binds to its own steps

    def open_state(state: FloatArray, start: int) -> Any: ...
    def decide(own: Any, features: FloatArray, draws: FloatArray) -> int: ...
    def see(own: Any, features: FloatArray) -> None: ...
    def played(own: Any, arm: int) -> None: ...
    def learn(own: Any, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None: ...
    def observe(own: Any, context: FloatArray) -> None: ...


class Loop(NamedTuple):
    """The compiled functions of a policy: `play` takes steps, `skip` skips a round, `layout` describes the state."""

    play: Callable[..., int]
    skip: Callable[..., None]
    layout: Layout[Any]


@inlined
def count_round(head: Head) -> None:
    """Count a round that has begun, and its time step unless it is that of the last round."""
    head.time_steps += 1.0 - head.still
    head.still = 0.0
    head.rounds += 1.0  # last: now the round has begun


@spliced
def explored(common: Common, arm: int, draws: FloatArray) -> int:
    """Return the pinned arm if it is open, else the proposed one or, with probability ε, a random open one."""
    pinned = int(common.head.pinned)
    if pinned >= 0 and common.closed[pinned] == 0.0:
        return pinned
    ε, last = common.head.explore, len(draws) - 1
    if ε > 0.0 and draws[last - 1] < ε:
        left = int(draws[last] * count_open(common.closed))
        for a in range(len(common.closed)):
            if common.closed[a] == 0.0:
                if left == 0:
                    return a
                left -= 1
    return arm


def _play(
    state: FloatArray,
    data: FloatArray,
    width: int,
    first: int,
    last: int,
    shift: int,
    memory: FloatArray,
    age: int,
    out: FloatArray,
    kept: int,
    given: int,
) -> int:
    """Take steps `first` to `last`, three per round: decide, learn, observe; with a shift of 2, observe comes first.

    Round t reads from `data` the `width` numbers from t · width on: draws, context, every arm's reward and the `given`
    features, q for all arms or a row of q for each. It writes the chosen arm to column 0 of row t of `out` and the
    forecast, width and window of every arm behind it (with `kept` = 0, these always in row 0). A reward is learned with
    `memory`, `age` rounds after its decision; one that is NaN never comes. No branch distinguishes live and simulated
    rounds: the compiler would make a second copy of the loop for it, with other roundings.

    Returns how many steps were taken: fewer than asked for where `decide` answers −1, which is how a policy asks to be
    attended to before it decides.
    """
    own = open_state(state, 0)
    common = own.common
    k, m, q = int(common.sizes.k), int(common.sizes.m), int(common.sizes.q)
    for step in range(first, last):
        t = step // 3
        call = (step + shift) % 3
        seen = (t + 1) * width - given - k - m  # where the context begins
        if call == DECIDE:
            features = view(data, seen + m + k, (given,))
            draws = view(data, t * width, (width - given - k - m,))
            arm = decide(own, features, draws)
            if arm < 0:
                return step
            common.head.proposed = arm
            arm = explored(common, arm, draws)
            if given > q:  # `decide` has stored shared features
                see(own, features_of_arm(features, arm, q))
            played(own, arm)
            count_round(common.head)
            out[t, 0] = arm
            row = t * kept
            for a in range(k):
                out[row, 1 + a] = common.forecast[a]
                out[row, 1 + k + a] = common.width[a]
                out[row, 1 + 2 * k + a] = common.window[a]
        elif call == LEARN:
            arm = int(out[t, 0])
            rewards = view(data, seen + m, (k,))
            if not np.isnan(rewards[arm]):
                learn(own, memory, arm, rewards, age)
        else:
            observe(own, view(data, seen, (m,)))
    return last


def _skip(state: FloatArray) -> None:
    own = open_state(state, 0)
    played(own, -1)
    count_round(own.common.head)


@inlined
def ignore_row(own: Any, features: FloatArray) -> None:
    """Ignore the features of the played arm."""


@inlined
def ignore_arm(own: Any, arm: int) -> None:
    """Ignore the played arm."""


@inlined
def ignore_context(own: Any, context: FloatArray) -> None:
    """Ignore a context."""


def compile_loop(
    module: str,
    layout: Layout[Any],
    *,
    decide: Callable[..., Any],
    learn: Callable[..., Any],
    see: Callable[..., Any] = ignore_row,
    played: Callable[..., Any] = ignore_arm,
    observe: Callable[..., Any] = ignore_context,
) -> Loop:
    """Return the loop of a policy; `module` is its file."""
    steps = {"decide": decide, "learn": learn, "see": see, "played": played, "observe": observe}
    steps["open_state"] = layout.open_in_kernels
    name = f"{decide.__name__}_{learn.__name__}"
    play, skip = (kernel(bound(template, steps, f"{name}{template.__name__}", module)) for template in (_play, _skip))
    return Loop(play, skip, layout)


def bound(template: Any, names: dict[str, Any], name: str, module: str) -> Callable[..., Any]:
    """Return a copy of a template with some of its names bound, as if it were a function of another module."""
    copy = types.FunctionType(template.__code__, template.__globals__ | names, name)
    copy.__module__, copy.__qualname__ = module, name
    return copy
