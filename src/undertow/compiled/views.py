"""Borrowed parts of a packed buffer that cost nothing inside kernels: arrays and records of named numbers.

A slice or reshape in numba counts references with atomic operations, which would take most of a round's time. `view`
and `Record` borrow instead: their results in a kernel own nothing, so they must not outlive the call that holds the
buffer, and never reach Python. Called from Python, both are plain views of the buffer.

They are lowered directly rather than written as inlined overloads: after inlining, numba removes apparently dead code,
such as a store to a borrowed array.
"""

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.imputils import lower_getattr_generic, lower_setattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import lower_builtin, register_model, type_callable
from numba.np.arrayobj import make_array, populate_array

from undertow.support.checks import FloatArray

__all__ = ["Record", "view"]


def view(buffer: FloatArray, start: int, shape: tuple[int, ...]) -> FloatArray:
    """Return the numbers of a contiguous float64 buffer from `start` on as an array of the given shape."""
    part = (buffer if buffer.ndim == 1 else buffer.reshape(-1))[start : start + math.prod(shape)]
    return part if part.shape == shape else part.reshape(shape)


@type_callable(view)  # type: ignore[untyped-decorator]
def _type_view(_: Any) -> Any:
    def typer(buffer: Any, start: Any, shape: Any) -> Any:
        return types.Array(types.float64, len(shape), "C")

    return typer


@lower_builtin(view, types.Array, types.Integer, types.BaseTuple)  # type: ignore[attr-defined, untyped-decorator]
def _lower_view(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    _, _, sizes = signature.args
    shape = [
        context.cast(builder, size, kind, types.intp)
        for size, kind in zip(cgutils.unpack_tuple(builder, args[2]), sizes.types, strict=True)
    ]
    itemsize = context.get_constant(types.intp, 8)
    strides = [itemsize]
    for size in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], size))
    result = make_array(signature.return_type)(context, builder)
    populate_array(result, _place(context, builder, signature, args), shape, strides, itemsize, None)
    return result._getvalue()  # noqa: SLF001 (numba has no other way)


def _place(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Return a pointer to number args[1] of the buffer args[0]."""
    source, start = signature.args[:2]
    data = make_array(source)(context, builder, args[0]).data
    return builder.gep(data, [context.cast(builder, args[1], start, types.intp)])


class Record:
    """Numbers of a packed buffer under their names, to read and to write, in kernels as in Python.

    A subclass names them as annotations, in their order; `MyRecord(buffer, start)` borrows them from a buffer.

    Examples
    --------
    >>> import numpy as np
    >>> class Sums(Record):
    ...     count: float
    ...     total: float
    >>> buffer = np.array([0.0, 3.0, 4.5])
    >>> sums = Sums(buffer, 1)
    >>> sums.total += 1.0
    >>> sums, buffer
    (Sums(count=3.0, total=5.5), array([0. , 3. , 5.5]))
    """

    names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.names = tuple(name for name in cls.__annotations__)
        for place, name in enumerate(cls.names):
            setattr(cls, name, _number_at(place))
        _borrow_in_kernels(cls)

    def __init__(self, buffer: FloatArray, start: int) -> None:
        self.numbers = view(buffer, start, (len(self.names),))

    def cell(self, name: str) -> FloatArray:
        """Return one of the numbers as an array, (1,), which is faster to read."""
        place = self.names.index(name)
        return self.numbers[place : place + 1]

    def __iter__(self) -> Iterator[float]:
        return iter(self.numbers.tolist())

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={value}" for name, value in zip(self.names, self, strict=True))
        return f"{type(self).__name__}({named})"


def _number_at(place: int) -> property:
    def get(record: Record) -> float:
        return record.numbers.item(place)

    def put(record: Record, value: float) -> None:
        record.numbers[place] = value

    return property(get, put)


class RecordType(types.Type):
    """A record inside a kernel: a pointer to its first number."""

    def __init__(self, name: str, names: tuple[str, ...]) -> None:
        self.names = names
        super().__init__(f"Record({name}: {', '.join(names)})")


@register_model(RecordType)
class _RecordModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: RecordType) -> None:
        super().__init__(manager, kind, ir.DoubleType().as_pointer())


@infer_getattr
class _RecordAttributes(AttributeTemplate):  # type: ignore[misc]
    key = RecordType

    def generic_resolve(self, kind: RecordType, name: str) -> Any:
        return types.float64 if name in kind.names else None


def _number(builder: Any, kind: RecordType, pointer: Any, name: str) -> Any:
    return builder.gep(pointer, [ir.Constant(ir.IntType(64), kind.names.index(name))])


@lower_getattr_generic(RecordType)  # type: ignore[untyped-decorator]
def _get_number(context: Any, builder: Any, kind: RecordType, value: Any, name: str) -> Any:
    return builder.load(_number(builder, kind, value, name))


@lower_setattr_generic(RecordType)  # type: ignore[untyped-decorator]
def _put_number(context: Any, builder: Any, signature: Any, args: Any, name: str) -> None:
    kind, given = signature.args
    value = context.cast(builder, args[1], given, types.float64)
    builder.store(value, _number(builder, kind, args[0], name))


def _borrow_in_kernels(record: type[Record]) -> None:
    """Let kernels call a class of records as Python does."""
    kind = RecordType(record.__qualname__, record.names)

    def typer(buffer: Any, start: Any) -> Any:
        return kind

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _place(context, builder, signature, args)

    type_callable(record)(lambda _: typer)
    lower_builtin(record, types.Array, types.Integer)(lower)
