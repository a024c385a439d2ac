"""One description of a state: where its parts lie, in Python and in kernels, how it grows, and what a file may hold."""

from typing import Annotated, NamedTuple

import numpy as np
import pytest

from undertow import InvalidInputError
from undertow.compiled import Index, Layout, Record, Within, kernel
from undertow.policies import LivePolicy, registry
from undertow.support.checks import FloatArray


class Sizes(Record):
    k: float
    s: float


class Head(Record):
    count: float
    newest: Annotated[float, Index("2*s")]


class Part(NamedTuple):
    grid: Annotated[FloatArray, "k s+1"]
    head: Head


class State(NamedTuple):
    sizes: Sizes
    part: Part
    order: Annotated[FloatArray, "k", Index("k")]
    last: Annotated[FloatArray, "s", Index("k", -1)]


LAYOUT = Layout(State)
SIZES = {"k": 3, "s": 2}
open_state = LAYOUT.open_in_kernels


@kernel
def touch(buffer: FloatArray, start: int) -> float:
    own = open_state(buffer, start)
    own.part.head.count += 2.0
    own.part.head.newest = own.part.head.count + 1
    own.part.grid[1, 2] = own.sizes.k
    own.last[1] = -1.0
    return own.part.head.newest


def test_the_generated_source() -> None:
    assert LAYOUT.source == (
        "def open_state(buffer, start):\n"
        "    at_0 = start\n"
        "    sizes_0 = Sizes(buffer, at_0)\n"
        "    k = int(sizes_0.k)\n"
        "    s = int(sizes_0.s)\n"
        "    at_1 = at_0 + 2\n"
        "    at_2 = at_1 + (k) * (s+1)\n"
        "    at_3 = at_2 + 2\n"
        "    at_4 = at_3 + (k)\n"
        "    at_5 = at_4 + (s)\n"
        "    return State(Sizes(buffer, at_0), Part(view(buffer, at_1, (k, s+1, )), Head(buffer, at_2)), "
        "view(buffer, at_3, (k, )), view(buffer, at_4, (s, )))\n"
    )


@pytest.mark.parametrize("start", [0, 5])
def test_kernels_and_python_see_the_same_numbers(start: int) -> None:
    buffer = np.concatenate([np.full(start, 9.0), LAYOUT.new(**SIZES), np.full(4, 9.0)])
    assert touch(buffer, start) == 3.0
    own = LAYOUT.open(buffer, start)
    assert (own.part.head.count, own.part.head.newest, own.part.grid[1, 2], own.last[1]) == (2.0, 3.0, 3.0, -1.0)
    assert repr(own.part.head) == "Head(count=2.0, newest=3.0)"
    assert np.count_nonzero(buffer) == start + 4 + 2 + 4  # around it, the sizes, and what was written
    own.part.head.count = 7.0
    assert touch(buffer, start) == 10.0


def test_parts_lie_side_by_side() -> None:
    """Every number of a buffer belongs to one part."""
    buffer = LAYOUT.new(**SIZES)
    own = LAYOUT.open(buffer)
    parts = [own.sizes.numbers, own.part.grid, own.part.head.numbers, own.order, own.last]
    for number, part in enumerate(parts):
        part[...] = number
    assert np.bincount(buffer.astype(int)).tolist() == [part.size for part in parts]
    assert LAYOUT.length(**SIZES) == len(buffer) == 2 + 9 + 2 + 3 + 2


@pytest.mark.parametrize("name", registry())
def test_every_policy_describes_all_of_its_state(name: str) -> None:
    layout = registry()[name].policy.loop.layout
    sizes = dict.fromkeys(layout.sizes, 2)
    lines = layout.describe(**sizes).splitlines()
    assert len(lines) == len(layout.leaves)
    assert lines[0].endswith("common.sizes: k, m, q, p")
    assert layout.sizes_of(layout.new(**sizes)) == sizes


def test_a_state_is_carried_into_a_larger_one() -> None:
    old, new = LAYOUT.new(**SIZES), LAYOUT.new(k=5, s=2)
    was, own = LAYOUT.open(old), LAYOUT.open(new)
    was.part.grid[:] = np.arange(9.0).reshape(3, 3)
    was.order[:], was.part.head.count = [2, 0, 1], 4.0
    LAYOUT.carry(old, new, {"k": np.array([0, 2, 4])})
    assert LAYOUT.sizes_of(new) == {"k": 5, "s": 2}
    np.testing.assert_array_equal(own.part.grid[[0, 2, 4]], was.part.grid)
    np.testing.assert_array_equal(own.part.grid[[1, 3]], 0.0)
    np.testing.assert_array_equal(own.order, [2, 0, 0, 0, 1])
    assert own.part.head.count == 4.0
    fresh = LAYOUT.new(k=5, s=2)
    LAYOUT.carry(old, fresh, {"k": None})
    assert not LAYOUT.open(fresh).part.grid.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda own: own.order.__setitem__(1, 3.0), "state: order: expected integers from 0 to 2, got 3"),
        (lambda own: own.order.__setitem__(1, 1e12), "state: order: expected integers from 0 to 2, got 1e.12"),
        (lambda own: own.order.__setitem__(1, -1.0), "state: order: expected integers from 0 to 2, got -1"),
        (lambda own: own.order.__setitem__(1, 0.5), "state: order: expected integers from 0 to 2, got 0.5"),
        (lambda own: own.last.__setitem__(0, np.nan), "state: last: expected integers from -1 to 2, got nan"),
        (lambda own: setattr(own.part.head, "newest", 4.0), "state: part.head.newest: expected integers from 0"),
        (lambda own: setattr(own.sizes, "k", 4.0), r"state: sizes: expected \[3, 2\], got \[4.0, 2.0\]"),
    ],
)
def test_a_state_from_a_file_is_checked(change: object, message: str) -> None:
    buffer = LAYOUT.new(**SIZES)
    LAYOUT.check(buffer, SIZES)
    change(LAYOUT.open(buffer))  # type: ignore[operator]
    with pytest.raises(InvalidInputError, match=message):
        LAYOUT.check(buffer, SIZES)


@pytest.mark.parametrize("odd", [np.zeros(17), np.zeros((18, 1)), np.zeros(18, dtype=np.float32), None, [0.0] * 18])
def test_what_is_no_buffer_of_the_right_length_is_refused(odd: object) -> None:
    with pytest.raises(InvalidInputError, match="state: expected 18 numbers that fit this policy"):
        LAYOUT.check(odd, SIZES)


def test_a_description_that_cannot_hold_is_refused() -> None:
    class Unknown(NamedTuple):
        sizes: Sizes
        sums: Annotated[FloatArray, "k n"]

    class Twice(NamedTuple):
        sizes: Sizes
        more: State

    class Bare(NamedTuple):
        sums: FloatArray

    for state, message in (
        (Unknown, "axes count n"),
        (Twice, "expected different sizes"),
        (Bare, "expected a Record"),
    ):
        with pytest.raises(TypeError, match=message):
            Layout(state)
    with pytest.raises(TypeError, match="expected the sizes k, s, got k"):
        LAYOUT.new(k=3)


def test_policies_are_names_of_the_package() -> None:
    import undertow

    for name, entry in registry().items():
        assert issubclass(entry.policy, LivePolicy)
        assert getattr(undertow, entry.policy.__name__) is entry.policy, name


class Spaced(NamedTuple):
    sizes: Sizes
    both: Annotated[FloatArray, "2 * k"]


def test_a_formula_has_no_spaces() -> None:
    with pytest.raises(TypeError, match=r"formulas without spaces, which separate axes, .* got '\*'"):
        Layout(Spaced)


class Marked(NamedTuple):
    sizes: Sizes
    both: Annotated[FloatArray, "k", Index("k"), Within(1.0, 5.0), "what it is"]


def test_a_part_may_have_several_marks_and_words_of_others() -> None:
    layout, sizes = Layout(Marked), {"k": 3, "s": 0}
    buffer = layout.new(**sizes)
    own = layout.open(buffer)
    own.both[:] = 1.0, 2.0, 1.0
    layout.check(buffer, sizes)
    for value, message in (
        (3.0, "both: expected integers from 0 to 2"),
        (0.0, "both: expected numbers from 1 to 5"),
    ):
        own.both[1] = value
        with pytest.raises(InvalidInputError, match=message):
            layout.check(buffer, sizes)
