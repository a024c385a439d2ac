"""The layout of a packed state, from a single description.

A state is one float64 buffer: the same for the live object, the compiled episode and the save file. A NamedTuple names
its contents: arrays, with the sizes of their axes; records of named numbers; nested parts. A record called `sizes` has
these sizes, by names that every later axis may use.

    class Sizes(Record):
        k: float                                         # arms

    class State(NamedTuple):
        sizes: Sizes
        counts: Annotated[FloatArray, "k"]
        last: Annotated[FloatArray, "2 k", Index("k")]   # entries are numbers of arms

A file may come from anywhere, so numbers that a kernel relies on are marked: `Index` for integers that point or count,
`Within` for others with bounds, `Fixed` for constants that follow from the parameters.

`Layout(State)` allocates such a state, opens it as a `State` of views (in Python and in kernels), copies it into a
larger one, and checks one that comes from a file. Nothing else in undertow knows where a part of a buffer is.
"""

import contextlib
import functools
import linecache
import math
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from undertow.compiled.kernel import inlined
from undertow.compiled.views import Record, view
from undertow.errors import InvalidInputError
from undertow.support.checks import FloatArray

__all__ = ["Fixed", "Index", "Layout", "Within", "size_of", "states_of_at_most"]

S = TypeVar("S")
Sizes = Mapping[str, int]
_MANY = 2**20  # largest size of an axis that takes no room
_LARGEST: ContextVar[float] = ContextVar("largest", default=math.inf)


class Index(NamedTuple):
    """Marks indices: integers from `least` to one below the size `below`.

    With `once`, no two of them are the same.
    """

    below: str
    least: int = 0
    once: bool = False

    def describe(self, sizes: "Sizes") -> str:
        """Describe the expected numbers."""
        once = ", each once" if self.once else ""
        return f"integers from {self.least} to {size_of(self.below, sizes) - 1}{once}"

    def holds(self, values: Any, fresh: Any, sizes: "Sizes") -> Any:
        """Return which numbers are as expected; `fresh` are those of a fresh state."""
        inside = (values >= self.least) & (values < max(size_of(self.below, sizes), 1)) & (np.floor(values) == values)
        if self.once:
            inside &= (np.diff(np.sort(values), axis=-1) > 0).all(axis=-1, keepdims=True)
        return inside


class Within(NamedTuple):
    """Marks numbers from `least` to `most`."""

    least: float
    most: float

    def describe(self, sizes: "Sizes") -> str:
        """Describe the expected numbers."""
        return f"numbers from {self.least:g} to {self.most:g}"

    def holds(self, values: Any, fresh: Any, sizes: "Sizes") -> Any:
        """Return which numbers are as expected; `fresh` are those of a fresh state."""
        return (values >= self.least) & (values <= self.most)


class Fixed(NamedTuple):
    """Marks numbers that are those of a fresh state with the same parameters."""

    def describe(self, sizes: "Sizes") -> str:
        """Describe the expected numbers."""
        return "what the parameters say"

    def holds(self, values: Any, fresh: Any, sizes: "Sizes") -> Any:
        """Return which numbers are as expected; `fresh` are those of a fresh state."""
        return values == fresh


Mark = Index | Within | Fixed


@contextlib.contextmanager
def states_of_at_most(numbers: int) -> Iterator[None]:
    """Refuse larger states meanwhile: parameters from a file may require too much memory."""
    token = _LARGEST.set(numbers)
    try:
        yield
    finally:
        _LARGEST.reset(token)


class _Leaf(NamedTuple):
    """An array or a record of a state: its path, the sizes of its axes, and the marks of its numbers."""

    path: str
    axes: tuple[str, ...]
    record: type[Record] | None
    marks: tuple[tuple[str, Mark], ...]  # each with the name of a record's number; "" for a whole array

    @property
    def holds_sizes(self) -> bool:
        return self.record is not None and self.path.split(".")[-1] == "sizes"


class Layout(Generic[S]):
    """The places of a state's parts in its buffer.

    Parameters
    ----------
    state
        The NamedTuple that describes the state.

    Examples
    --------
    >>> class Sizes(Record):
    ...     k: float
    >>> class State(NamedTuple):
    ...     sizes: Sizes
    ...     sums: Annotated[FloatArray, "2 k"]
    >>> layout = Layout(State)
    >>> buffer = layout.new(k=3)
    >>> layout.open(buffer).sums[1] = 7.0
    >>> buffer
    array([3., 0., 0., 0., 7., 7., 7.])
    """

    def __init__(self, state: type[S]) -> None:
        self.state = state
        self.leaves = tuple(_leaves(state, ""))
        self.sizes = tuple(
            name for leaf in self.leaves if leaf.holds_sizes and leaf.record for name in leaf.record.names
        )
        if len(set(self.sizes)) < len(self.sizes):
            raise TypeError(f"{state.__name__}: expected different sizes, got {', '.join(self.sizes)}")
        unknown = {name for leaf in self.leaves for axis in leaf.axes for name in _code(axis).co_names} - set(
            self.sizes
        )
        if unknown:
            raise TypeError(
                f"{state.__name__}: axes count {', '.join(sorted(unknown))}, which no record of sizes holds"
            )
        self.source, self._open = _opener(state, self.leaves)
        self.open_in_kernels: Callable[[FloatArray, int], S] = inlined(self._open)

    def open(self, buffer: FloatArray, start: int = 0) -> S:
        """Return the state that begins at a place of a buffer as views."""
        return self._open(buffer, start)

    def length(self, **sizes: int) -> int:
        """Return the length of a state of the given sizes."""
        return sum(math.prod(shape) for _, shape in self._shapes(sizes))

    def new(self, **sizes: int) -> FloatArray:
        """Return a state of the given sizes; everything else is zero."""
        if sizes.keys() != set(self.sizes):
            raise TypeError(
                f"{self.state.__name__}: expected the sizes {', '.join(self.sizes)}, got {', '.join(sizes)}"
            )
        length = self.length(**sizes)
        if length > _LARGEST.get():
            raise InvalidInputError(f"state: expected {length} numbers that fit this policy, got {_LARGEST.get()}")
        buffer = np.zeros(length)
        for leaf, numbers in self._parts(buffer, sizes):
            if leaf.holds_sizes and leaf.record:
                numbers[:] = [sizes[name] for name in leaf.record.names]
        return buffer

    def sizes_of(self, buffer: FloatArray, start: int = 0) -> dict[str, int]:
        """Return the sizes of the state that begins at a place of a buffer."""
        own = self.open(buffer, start)
        sizes: dict[str, int] = {}
        for leaf in self.leaves:
            if leaf.holds_sizes:
                record = functools.reduce(getattr, leaf.path.split("."), own)
                sizes |= {name: int(getattr(record, name)) for name in record.names}  # type: ignore[attr-defined]
        return sizes

    def claimed_sizes(self, buffer: Any) -> dict[str, int]:
        """Return the sizes in an untrusted buffer, if they match its length."""
        sizes: dict[str, int] = {}
        at, length = 0, len(buffer)
        for leaf in self.leaves:
            if leaf.holds_sizes and leaf.record:
                numbers = buffer[at : at + len(leaf.record.names)].tolist()
                if not all(0 <= number <= max(length, _MANY) and number == int(number) for number in numbers):
                    raise InvalidInputError(f"state: {leaf.path}: expected sizes, got {numbers}")
                sizes |= {name: int(number) for name, number in zip(leaf.record.names, numbers, strict=False)}
            at += len(leaf.record.names) if leaf.record else math.prod(size_of(axis, sizes) for axis in leaf.axes)
            if at > length:
                break
        if at != length:
            raise InvalidInputError(f"state: expected as many numbers as its sizes say, got {length}")
        return sizes

    def carry(self, old: FloatArray, new: FloatArray, places: Mapping[str, npt.NDArray[np.int64] | None]) -> None:
        """Copy a state into a larger one, whose sizes stay.

        `places` has the new places of entries along a grown axis, by the axis's size; without it they stay, and new
        entries come after them. With None, parts along that axis are skipped.
        """
        before, after = self.sizes_of(old), self.sizes_of(new)
        parts = zip(self._parts(old, before), self._parts(new, after), strict=True)
        for (leaf, numbers), (_, target) in parts:
            axes = leaf.axes or ("",)
            moved = [places.get(axis, np.arange(length)) for axis, length in zip(axes, numbers.shape, strict=True)]
            if not leaf.holds_sizes and numbers.size and not any(place is None for place in moved):
                target[np.ix_(*moved)] = numbers

    def check(self, buffer: Any, sizes: Sizes, fresh: FloatArray | None = None) -> None:
        """Refuse a buffer that is not a state of the given sizes, or has an invalid marked number.

        Fixed numbers are compared with a fresh state, if given.
        """
        length = self.length(**sizes)
        if not isinstance(buffer, np.ndarray) or buffer.dtype != np.float64 or buffer.shape != (length,):
            shape = getattr(buffer, "shape", None)
            raise InvalidInputError(f"state: expected {length} numbers that fit this policy, got shape {shape}")
        self.check_rows(buffer[None], sizes, buffer if fresh is None else fresh)

    def check_rows(self, rows: FloatArray, sizes: Sizes, fresh: FloatArray) -> None:
        """Check many states of the same sizes, (n, length)."""
        for leaf, part in self._slices(sizes):
            if leaf.holds_sizes and leaf.record:
                expected = [sizes[name] for name in leaf.record.names]
                right = (rows[:, part] == expected).all(axis=1)
                if not right.all():
                    wrong = rows[np.argmin(right), part].tolist()
                    raise InvalidInputError(f"state: {leaf.path}: expected {expected}, got {wrong}")
            for name, mark in leaf.marks:
                place = slice(None) if leaf.record is None else [leaf.record.names.index(name)]
                values = rows[:, part][:, place]
                with np.errstate(invalid="ignore"):
                    outside = ~mark.holds(values, fresh[part][place], sizes)
                if outside.any():
                    path = f"{leaf.path}.{name}" if name else leaf.path
                    raise InvalidInputError(
                        f"state: {path}: expected {mark.describe(sizes)}, got {values[outside][0]:g}"
                    )

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names of a record's numbers."""
        record = next(leaf.record for leaf in self.leaves if leaf.path == path)
        return record.names if record else ()

    def place(self, path: str, **sizes: int) -> slice:
        """Return the place of a part in a state of the given sizes."""
        return next(part for leaf, part in self._slices(sizes) if leaf.path == path)

    def describe(self, **sizes: int) -> str:
        """Return a table of the parts: the place, shape and name of each."""
        rows, at = [], 0
        for leaf, shape in self._shapes(sizes):
            names = f"{leaf.path}: {', '.join(leaf.record.names)}" if leaf.record else leaf.path
            rows.append(f"{at:>6} {' × '.join(map(str, shape)):>12}  {names}")
            at += math.prod(shape)
        return "\n".join(rows)

    def _shapes(self, sizes: Sizes) -> Iterator[tuple[_Leaf, tuple[int, ...]]]:
        for leaf in self.leaves:
            yield leaf, (len(leaf.record.names),) if leaf.record else tuple(size_of(axis, sizes) for axis in leaf.axes)

    def _slices(self, sizes: Sizes) -> Iterator[tuple[_Leaf, slice]]:
        at = 0
        for leaf, shape in self._shapes(sizes):
            yield leaf, slice(at, at + math.prod(shape))
            at += math.prod(shape)

    def _parts(self, buffer: FloatArray, sizes: Sizes) -> Iterator[tuple[_Leaf, FloatArray]]:
        at = 0
        for leaf, shape in self._shapes(sizes):
            yield leaf, view(buffer, at, shape)
            at += math.prod(shape)


def _leaves(state: type, prefix: str) -> Iterator[_Leaf]:
    for name, kind in get_type_hints(state, include_extras=True).items():
        path = f"{prefix}{name}"
        if isinstance(kind, type) and issubclass(kind, Record):
            hints = get_type_hints(kind, include_extras=True)
            yield _Leaf(path, (), kind, tuple(mark for number in kind.names for mark in _marks(number, hints[number])))
        elif isinstance(kind, type) and hasattr(kind, "_fields"):
            yield from _leaves(kind, f"{path}.")
        elif get_origin(kind) is Annotated:
            yield _Leaf(path, tuple(get_args(kind)[1].split()), None, tuple(_marks("", kind)))
        else:
            raise TypeError(f'{state.__name__}.{name}: expected a Record, a NamedTuple or Annotated[FloatArray, "k"]')


def _marks(name: str, annotation: Any) -> Iterator[tuple[str, Mark]]:
    """Yield the marks of an annotation, without foreign metadata."""
    return ((name, mark) for mark in get_args(annotation)[1:] if isinstance(mark, Mark))


@functools.cache
def _code(axis: str) -> Any:
    try:
        return compile(axis, "axis", "eval")
    except SyntaxError as error:
        raise TypeError(
            f"axes: expected sizes or formulas without spaces, which separate axes, as in '2*k p', got {axis!r}"
        ) from error


def size_of(axis: str, sizes: Sizes) -> int:
    """Return what a formula of sizes says, such as "2*k"."""
    return int(eval(_code(axis), {"__builtins__": {}}, dict(sizes)))


def _opener(state: type[S], leaves: tuple[_Leaf, ...]) -> tuple[str, Callable[[FloatArray, int], S]]:
    """Return the source of the function that splits a buffer into a state, and that function."""
    lines = ["def open_state(buffer, start):", "    at_0 = start"]
    parts: dict[str, str] = {}
    known: dict[str, Any] = {"view": view}
    for number, leaf in enumerate(leaves):
        at = f"at_{number}"
        if leaf.record:
            known[leaf.record.__name__] = leaf.record
            parts[leaf.path] = f"{leaf.record.__name__}(buffer, {at})"
            length = str(len(leaf.record.names))
            if leaf.holds_sizes:
                lines += [f"    sizes_{number} = {parts[leaf.path]}"]
                lines += [f"    {name} = int(sizes_{number}.{name})" for name in leaf.record.names]
        else:
            shape = "".join(f"{axis}, " for axis in leaf.axes)
            parts[leaf.path] = f"view(buffer, {at}, ({shape}))"
            length = " * ".join(f"({axis})" for axis in leaf.axes)
        lines.append(f"    at_{number + 1} = {at} + {length}")
    lines.append(f"    return {_built(state, '', parts, known)}")
    source = "\n".join(lines) + "\n"
    name = f"<layout of {state.__module__}.{state.__qualname__}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)  # for tracebacks
    exec(compile(source, name, "exec"), known)
    return source, known["open_state"]


def _built(state: type, prefix: str, parts: Mapping[str, str], known: dict[str, Any]) -> str:
    known[state.__name__] = state
    fields = []
    for name, kind in get_type_hints(state).items():
        path = f"{prefix}{name}"
        fields.append(parts[path] if path in parts else _built(kind, f"{path}.", parts, known))
    return f"{state.__name__}({', '.join(fields)})"
