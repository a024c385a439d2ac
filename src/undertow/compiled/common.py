"""The part that every policy's state begins with: sizes, rounds, arms, the last decision."""

from typing import Annotated, NamedTuple

from undertow._checks import FloatArray
from undertow.compiled.kernel import inlined
from undertow.compiled.layout import Fixed, Index
from undertow.compiled.views import Record, view

__all__ = ["Common", "CommonSizes", "Head", "count_open", "features_of_arm", "present_moment"]


class CommonSizes(Record):
    """Numbers of arms k, context entries m, features q, and p, the length of a decision's memory."""

    k: float
    m: float
    q: float
    p: float


class Head(Record):
    """How many rounds and moments have begun, which share of rounds explores, and the arm that was proposed last."""

    rounds: Annotated[float, Index("2**53")]
    moments: Annotated[float, Index("2**53")]
    still: Annotated[float, Index("2")]  # whether the next round is of the same moment as the last one
    explore: Annotated[float, Fixed()]
    proposed: Annotated[float, Index("k")]


class Common(NamedTuple):
    """The part that every policy's state begins with."""

    sizes: CommonSizes
    head: Head
    order: Annotated[FloatArray, "k", Index("k", once=True)]  # of start-up and of ties
    forecast: Annotated[FloatArray, "k"]  # of the last decision, as width and window
    width: Annotated[FloatArray, "k"]
    window: Annotated[FloatArray, "k"]
    closed: Annotated[FloatArray, "k", Index("2")]  # 1 for an arm that cannot be played: retired, or not available
    memory: Annotated[FloatArray, "p"]  # of the last decision: what learning its reward will need


@inlined
def present_moment(head: Head) -> int:
    """Return the moment that a round is of which is being decided; moments are counted from 0 on."""
    return int(head.moments - head.still)


@inlined
def count_open(closed: FloatArray) -> int:
    """Return how many arms can be played."""
    count = 0
    for a in range(len(closed)):
        if closed[a] == 0.0:
            count += 1
    return count


@inlined
def features_of_arm(features: FloatArray, arm: int, q: int) -> FloatArray:
    """Return the features of an arm, (q,): its own of k rows that follow one another, or the one that all share."""
    return view(features, arm * q if len(features) > q else 0, (q,))
