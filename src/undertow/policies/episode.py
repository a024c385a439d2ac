"""A policy's entry points, compiled from its few kernels: for live calls, and for whole rounds of a stored trajectory.

A policy writes `open_state`, which splits its packed state into named views, and `decide`, `learn`, `observe` and
`skip` on those views. numba's cache on disk does not accept functions as arguments, so the loops below are templates:
`compile_kernels` copies each with these names bound to a policy's own kernels, and compiles the copy as if it had been
written in the policy's file. Live object and episode run the same kernels, so both compute the same bits.
"""

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow._checks import FloatArray
from undertow._kernel import kernel
from undertow.policies.base import Kernels

__all__ = ["compile_kernels"]

if TYPE_CHECKING:  # the names that every copy of a template binds to kernels of its own

    def open_state(state: FloatArray) -> Any: ...
    def decide(own: Any, features: FloatArray, draws: FloatArray) -> int: ...
    def learn(own: Any, memory: FloatArray, arm: int, reward: float, age: int) -> None: ...
    def observe(own: Any, context: FloatArray) -> None: ...
    def skip(own: Any) -> None: ...


def _decide(state: FloatArray, features: FloatArray, draws: FloatArray) -> int:
    return decide(open_state(state), features, draws)


def _learn(state: FloatArray, memory: FloatArray, arm: int, reward: float, age: int) -> None:
    learn(open_state(state), memory, arm, reward, age)


def _observe(state: FloatArray, context: FloatArray) -> None:
    observe(open_state(state), context)


def _skip(state: FloatArray) -> None:
    skip(open_state(state))


def _episode(
    state: FloatArray,
    contexts: FloatArray,
    features: FloatArray,
    rewards: FloatArray,
    draws: FloatArray,
    context_first: bool,
    arms: Any,
    forecasts: FloatArray,
    widths: FloatArray,
    windows: FloatArray,
) -> None:
    """Play every round of a block; what is not to be recorded comes as an array of length 0."""
    own = open_state(state)
    shared = own.shared
    m = contexts.shape[1]
    for t in range(len(arms)):
        if context_first and m > 0:
            observe(own, contexts[t])
        arm = decide(own, features[t], draws[t])
        learn(own, shared.memory, arm, rewards[t, arm], 0)
        if not context_first and m > 0:
            observe(own, contexts[t])
        arms[t] = arm
        if len(forecasts) > 0:
            forecasts[t] = shared.forecast
        if len(widths) > 0:
            widths[t] = shared.width
        if len(windows) > 0:
            windows[t] = shared.window


def compile_kernels(
    module: str,
    open_state: Callable[..., Any],
    decide: Callable[..., Any],
    learn: Callable[..., Any],
    observe: Callable[..., Any],
    skip: Callable[..., Any],
) -> Kernels:
    """Return the entry points of a policy; `module` is the file that it lives in."""
    bound = {"open_state": open_state, "decide": decide, "learn": learn, "observe": observe, "skip": skip}

    def specialise(template: Any) -> Callable[..., Any]:
        name = f"{decide.__name__}{template.__name__}"
        copy = types.FunctionType(template.__code__, bound, name)
        copy.__module__, copy.__qualname__ = module, name
        return kernel(copy)

    return Kernels(*map(specialise, (_decide, _learn, _observe, _skip, _episode)))
