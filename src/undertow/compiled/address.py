"""The machine code of a policy's loop, called by its address: one kernel for many states serves every policy.

A kernel that linked a copy of the loop would be compiled for every policy, and LLVM would optimise the copy again, with
other roundings. Called by its address, the loop of a fleet is the same code as in live calls.
"""

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba.core import types
from numba.extending import lower_builtin, type_callable

from undertow.support.checks import FloatArray

__all__ = ["address_of", "take_step"]

_ROW, _ROWS = types.Array(types.float64, 1, "C"), types.Array(types.float64, 2, "C")
_STEP = (_ROW, _ROW, *[types.int64] * 4, _ROW, types.int64, _ROWS, types.int64, types.int64)  # arguments of `_play`


def address_of(play: Callable[..., int]) -> Any:
    """Return the address of a loop's `play`, compiled or loaded if needed; the loop itself if nothing is compiled."""
    if numba.config.DISABLE_JIT:
        return play
    loop: Any = play
    loop.compile(_STEP)
    found = loop.overloads[_STEP]
    return found.library.get_pointer_to_function(found.fndesc.llvm_func_name)


def take_step(
    play: Any,
    state: FloatArray,
    row: FloatArray,
    width: int,
    call: int,
    memory: FloatArray,
    age: int,
    out: FloatArray,
    given: int,
) -> int:
    """Take one step of the loop at an address: DECIDE, LEARN or OBSERVE, as `_play` does in a live call."""
    taken: int = play(state, row, width, call, call + 1, 0, memory, age, out, 0, given)
    return taken


@type_callable(take_step)  # type: ignore[untyped-decorator]
def _type_step(_: Any) -> Any:
    def typer(
        play: Any, state: Any, row: Any, width: Any, call: Any, memory: Any, age: Any, out: Any, given: Any
    ) -> Any:
        return types.int64

    return typer


@lower_builtin(  # type: ignore[untyped-decorator]
    take_step,
    types.Integer,
    *[types.Array] * 2,
    *[types.Integer] * 2,
    types.Array,
    types.Integer,
    types.Array,
    types.Integer,
)
def _lower_step(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    def whole(place: int) -> Any:
        return context.cast(builder, args[place], signature.args[place], types.int64)

    none, one = context.get_constant(types.int64, 0), context.get_constant(types.int64, 1)
    call = whole(4)
    steps = [call, builder.add(call, one), none]
    given = [args[1], args[2], whole(3), *steps, args[5], whole(6), args[7], none, whole(8)]
    play = builder.inttoptr(args[0], ir.PointerType(context.call_conv.get_function_type(types.int64, _STEP)))
    _, taken = context.call_conv.call_function(builder, play, types.int64, _STEP, given)
    return taken
