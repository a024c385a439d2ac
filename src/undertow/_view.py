"""Views into a packed buffer that cost nothing inside kernels.

A slice or reshape in numba counts references with atomic operations; a policy's round would spend most of its time on
them. `view` borrows instead: the array it returns in a kernel owns nothing, so it must not outlive the call that holds
the buffer, is no buffer for another view, and is never returned to Python. Called from Python it is a plain NumPy view.
"""

import math
from typing import Any

import numba
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic, overload

from undertow._checks import FloatArray

__all__ = ["view"]


def view(buffer: FloatArray, start: int, shape: tuple[int, ...]) -> FloatArray:
    """Return the numbers of a contiguous float64 buffer from `start` on as an array of the given shape."""
    return buffer[start : start + math.prod(shape)].reshape(shape)


@intrinsic  # type: ignore[untyped-decorator]
def _pointer(_: Any, address: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(address), codegen


@overload(view, inline="always")  # type: ignore[untyped-decorator]
def _view(buffer: Any, start: Any, shape: Any) -> Any:
    def borrow(buffer: Any, start: Any, shape: Any) -> Any:
        return numba.carray(_pointer(buffer.ctypes.data + 8 * start), shape, np.float64)

    return borrow
