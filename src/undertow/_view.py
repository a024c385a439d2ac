"""Views into a packed buffer that cost nothing inside kernels.

A slice or reshape in numba counts references with atomic operations; a policy's round would spend most of its time on
them. `view` borrows instead: the array it returns in a kernel owns nothing, so it must not outlive the call that holds
the buffer, and is never returned to Python. Called from Python it is a plain NumPy view.

It is lowered directly rather than written as an inlined overload: numba removes what looks like dead code after it has
inlined one, and takes a store to a borrowed array for dead.
"""

import math
from typing import Any

from numba.core import cgutils, types
from numba.extending import lower_builtin, type_callable
from numba.np.arrayobj import make_array, populate_array

from undertow._checks import FloatArray

__all__ = ["view"]


def view(buffer: FloatArray, start: int, shape: tuple[int, ...]) -> FloatArray:
    """Return the numbers of a contiguous float64 buffer from `start` on as an array of the given shape."""
    return buffer.reshape(-1)[start : start + math.prod(shape)].reshape(shape)


@type_callable(view)  # type: ignore[untyped-decorator]
def _type_view(_: Any) -> Any:
    def typer(buffer: Any, start: Any, shape: Any) -> Any:
        return types.Array(types.float64, len(shape), "C")

    return typer


@lower_builtin(view, types.Array, types.Integer, types.BaseTuple)  # type: ignore[attr-defined, untyped-decorator]
def _lower_view(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    source, start, sizes = signature.args
    data = make_array(source)(context, builder, args[0]).data
    shift = context.cast(builder, args[1], start, types.intp)
    shape = [
        context.cast(builder, size, kind, types.intp)
        for size, kind in zip(cgutils.unpack_tuple(builder, args[2]), sizes.types, strict=True)
    ]
    itemsize = context.get_constant(types.intp, 8)
    strides = [itemsize]
    for size in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], size))
    result = make_array(signature.return_type)(context, builder)
    populate_array(result, builder.gep(data, [shift]), shape, strides, itemsize, None)
    return result._getvalue()
