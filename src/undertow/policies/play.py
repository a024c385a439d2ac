"""A policy's entry points, compiled from its few kernels.

A policy writes `open_state`, which splits its packed state into named views, and on those views `decide`, which
proposes an arm, `played`, which takes note of the arm that was played (−1 where a round passes without one), `learn`
and `observe`. Live calls and whole episodes go through one compiled loop over steps, in which each of the three
stands once: whoever takes a step runs the same instructions, so live and simulated decisions agree bit for bit.

numba's cache on disk does not accept functions as arguments, so the functions below are templates: `compile_kernels`
copies each with these names bound to a policy's own kernels, and compiles the copy as if it stood in the policy's file.
"""

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from undertow._checks import FloatArray
from undertow._kernel import kernel, plain, spliced
from undertow._view import view
from undertow.policies.state import EXPLORE, FEATURES, PROPOSED, Shared, count_open

__all__ = ["DECIDE", "LEARN", "OBSERVE", "Kernels", "Stage", "compile_kernels"]

DECIDE, LEARN, OBSERVE = 0, 1, 2
_NO_MEMORY = np.empty(0)

if TYPE_CHECKING:  # the names that every copy of a template binds to kernels of its own

    def open_state(state: FloatArray) -> Any: ...
    def decide(own: Any, features: FloatArray, draws: FloatArray) -> int: ...
    def played(own: Any, arm: int) -> None: ...
    def learn(own: Any, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None: ...
    def observe(own: Any, context: FloatArray) -> None: ...


class Kernels(NamedTuple):
    """What stands behind a policy: `play` takes steps, `skip` lets a round pass, `open` names the parts of a state."""

    play: Callable[..., int]
    skip: Callable[..., None]
    open: Callable[[FloatArray], Any]


class Stage:
    """One row of everything that `play` reads and writes, for steps that are taken one at a time."""

    def __init__(self, arm_count: int, context_dim: int, feature_dim: int, draws: int) -> None:
        self._row = np.zeros(context_dim + feature_dim + arm_count + draws)
        cuts = np.cumsum([context_dim, feature_dim, arm_count])
        self.context, self.features, self.rewards, self.draws = np.split(self._row, cuts)
        self._out = np.zeros((1, 1 + 3 * arm_count))
        self.arm, self.record = self._out[0, :1], self._out[0, 1:].reshape(3, arm_count)

    def take(
        self, kernels: Kernels, state: FloatArray, call: int, memory: FloatArray = _NO_MEMORY, age: int = 0
    ) -> bool:
        """Take one step on a state, with the row as it stands; False where the policy wants to be attended to first."""
        done = kernels.play(state, self._row, len(self._row), call, call + 1, 0, memory, age, self._out, 0)
        return bool(done > call)


@spliced
def explored(shared: Shared, arm: int, draws: FloatArray) -> int:
    """Return the proposed arm or, with probability ε, one drawn from all that are open."""
    ε, last = shared.header[EXPLORE], len(draws) - 1
    if ε > 0.0 and draws[last - 1] < ε:
        left = int(draws[last] * count_open(shared.closed))
        for a in range(len(shared.closed)):
            if shared.closed[a] == 0.0:
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
) -> int:
    """Take steps `first` to `last`, three a round: decide, learn, observe; a shift of 2 has observe come first.

    Round t reads from `data` the `width` numbers from t · width on: context, features, every arm's reward, draws. It
    writes the chosen arm to column 0 of row t of `out` and the forecast, width and window of every arm behind it (with
    `kept` = 0, these always in row 0). A reward is learned with `memory`, `age` rounds after its decision. There is no
    branch on these settings: the compiler would make a second copy of the loop for it, with other roundings.

    Returns how many steps were taken: fewer than asked for where `decide` answers −1, which is how a policy asks to be
    attended to (`LivePolicy._attend`) before it decides.
    """
    own = open_state(state)
    shared = own.shared
    k, m, q = int(shared.header[0]), int(shared.header[1]), int(shared.header[FEATURES])
    for step in range(first, last):
        t = step // 3
        call = (step + shift) % 3
        at = t * width
        if call == DECIDE:
            features = view(data, at + m, (q,))
            draws = view(data, at + m + q + k, (width - m - q - k,))
            arm = decide(own, features, draws)
            if arm < 0:
                return step
            shared.header[PROPOSED] = arm
            arm = explored(shared, arm, draws)
            played(own, arm)
            out[t, 0] = arm
            row = t * kept
            for a in range(k):
                out[row, 1 + a] = shared.forecast[a]
                out[row, 1 + k + a] = shared.width[a]
                out[row, 1 + 2 * k + a] = shared.window[a]
        elif call == LEARN:
            learn(own, memory, int(out[t, 0]), view(data, at + m + q, (k,)), age)
        else:
            observe(own, view(data, at, (m,)))
    return last


def _skip(state: FloatArray) -> None:
    played(open_state(state), -1)


def compile_kernels(
    module: str,
    open_state: Callable[..., Any],
    decide: Callable[..., Any],
    played: Callable[..., Any],
    learn: Callable[..., Any],
    observe: Callable[..., Any],
) -> Kernels:
    """Return the entry points of a policy; `module` is the file that it lives in."""
    own = {"open_state": open_state, "decide": decide, "played": played, "learn": learn, "observe": observe}

    def specialise(template: Any) -> Callable[..., Any]:
        name = f"{decide.__name__}_{learn.__name__}{template.__name__}"
        copy = types.FunctionType(template.__code__, globals() | own, name)
        copy.__module__, copy.__qualname__ = module, name
        return kernel(copy)

    return Kernels(specialise(_play), specialise(_skip), plain(open_state))
