"""The beginning of every policy's state: sizes, rounds, arms, the last decision."""

from typing import Annotated, NamedTuple

from undertow.compiled.kernel import inlined
from undertow.compiled.layout import Fixed, Index, Within
from undertow.compiled.views import Record, view
from undertow.support.checks import LARGEST, FloatArray

__all__ = [
    "Common",
    "CommonSizes",
    "Head",
    "best_arm",
    "count_open",
    "features_of_arm",
    "known_cost",
    "present_time_step",
]


class CommonSizes(Record):
    """Numbers of arms k, context entries m, features q, and p, the length of a decision's memory."""

    k: float
    m: float
    q: float
    p: float


class Head(Record):
    """Rounds and time steps so far, the share of rounds that explores, the arm proposed last, the pinned arm."""

    rounds: Annotated[float, Index("2**53")]
    time_steps: Annotated[float, Index("2**53")]
    still: Annotated[float, Index("2")]  # whether the next round is of the same time step as the last one
    explore: Annotated[float, Fixed()]
    proposed: Annotated[float, Index("k")]
    pinned: Annotated[float, Index("k", -1)]  # the arm that is played instead of the proposed one; −1 for none
    unlearned: Annotated[float, Index("2")]  # whether rewards of pinned decisions are not learned
    reward_unit: Annotated[float, Within(0.0, LARGEST)]  # one unit of reward in the policy's own units


class Common(NamedTuple):
    """The beginning of every policy's state."""

    sizes: CommonSizes
    head: Head
    cost: Annotated[FloatArray, "k", Within(-LARGEST, LARGEST)]  # known cost of a play, in units of reward
    value: Annotated[FloatArray, "k"]  # values compared in the last decision
    order: Annotated[FloatArray, "k", Index("k", once=True)]  # of initial rounds and ties
    forecast: Annotated[FloatArray, "k"]  # of the last decision, as width and window
    width: Annotated[FloatArray, "k"]
    window: Annotated[FloatArray, "k"]
    closed: Annotated[FloatArray, "k", Index("2")]  # 1 for an arm that cannot be played: retired, or not available
    memory: Annotated[FloatArray, "p"]  # of the last decision: numbers for learning its reward


@inlined
def present_time_step(head: Head) -> int:
    """Return the time step of the round that is being decided, counted from 0."""
    return int(head.time_steps - head.still)


@inlined
def known_cost(common: Common, arm: int) -> float:
    """Return the known cost of playing an arm, in the policy's own units."""
    result: float = common.cost[arm] * common.head.reward_unit
    return result


@inlined
def best_arm(common: Common) -> int:
    """Value every arm by forecast + width − cost; return the open one with the largest value, by order among equals."""
    value, arm = common.value, -1
    for r in range(len(value)):
        a = int(common.order[r])
        value[a] = common.forecast[a] + common.width[a] - known_cost(common, a)
        if common.closed[a] == 0.0 and (arm < 0 or value[a] > value[arm]):
            arm = a
    return arm


@inlined
def count_open(closed: FloatArray) -> int:
    """Return the number of open arms."""
    count = 0
    for a in range(len(closed)):
        if closed[a] == 0.0:
            count += 1
    return count


@inlined
def features_of_arm(features: FloatArray, arm: int, q: int) -> FloatArray:
    """Return the features of an arm, (q,): its own among k consecutive rows, or the shared one."""
    return view(features, arm * q if len(features) > q else 0, (q,))
