"""Bodies of requests: strict JSON, as these structs. The OpenAPI document is generated from them, too."""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

__all__ = [
    "Context",
    "Costs",
    "Create",
    "Decide",
    "Pin",
    "Reward",
    "Skip",
]

LARGEST_NUMBER = 2**53  # above it, JSON in other languages loses digits
LONGEST_ID, LONGEST_NAME = 64, 100

Id = Annotated[str, Meta(min_length=1, max_length=LONGEST_ID, description="Unique id of one decision, forever.")]
Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
Count = Annotated[int, Meta(ge=0, le=LARGEST_NUMBER)]
Page = Annotated[int, Meta(ge=1, le=1000)]
Points = Annotated[int, Meta(ge=10, le=10_000)]
Row = (
    Annotated[list[float | None], Meta(max_length=1000, description="Null if an entry is missing.")]
    | Annotated[dict[Name, float | str | None], Meta(max_length=1000, description="By name.")]
)
Features = (
    Annotated[list[float | list[float]], Meta(max_length=1000, description="Numbers, or a list for each arm.")]
    | Annotated[
        dict[Name, float | str | dict[Name, float | str | None] | None],
        Meta(max_length=1000, description="By name, or a row with names under the name of each arm."),
    ]
)


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The body of a request."""


class Create(Body):
    """A new bandit.

    Attributes
    ----------
    policy
        Its policy, as `undertow policies` lists them.
    arms
        Names of the arms.
    parameters
        Parameters of the policy, such as feature_dim or explore.
    """

    policy: Name
    arms: Annotated[list[Name], Meta(min_length=1, max_length=1000)]
    parameters: dict[str, Any] = {}


class Decide(Body):
    """A round to decide.

    Attributes
    ----------
    id
        Your own id, such as the number of an order. By default the bandit generates one, and a repeated call makes
        another decision.
    features
        The features: numbers in order, or values by name if the bandit has `feature_names`.
    context
        The round's context, if the bandit sees it before it decides. Null if it is missing.
    available
        The arms that can be played now, by default all.
    elapsed
        Time steps since the last decision.
    at
        The time, with its zone, if the bandit has a `tick`; it determines the elapsed time steps.
    subject, sticky
        The subject of the decision, such as a user. Its earlier decision is returned again for this long, such as "7
        days", or for this many rounds.
    """

    id: Id | None = None
    features: Features | None = None
    context: Row | UnsetType | None = UNSET
    available: Annotated[list[Name], Meta(min_length=1, max_length=1000)] | None = None
    elapsed: Annotated[int, Meta(ge=0, le=10_000)] = 1
    at: Annotated[datetime, Meta(tz=True)] | None = None
    subject: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    sticky: Annotated[str, Meta(max_length=40)] | Annotated[int, Meta(ge=1, le=LARGEST_NUMBER)] | None = None


class Reward(Body):
    """The reward of a decision.

    Attributes
    ----------
    reward
        The reward.
    context
        The context of the decision's round, if it comes with the reward. Null if it is missing.
    at
        The time of the reward, with its zone, if the bandit has a `tick`.
    """

    reward: float
    context: Row | UnsetType | None = UNSET
    at: Annotated[datetime, Meta(tz=True)] | None = None


class Context(Body):
    """The context of a round; null if it is missing."""

    context: Row | None


class Skip(Body):
    """Rounds without a decision.

    Attributes
    ----------
    round
        The first of them, which is the bandit's `round`. A repeated call changes nothing.
    rounds
        Their number.
    contexts
        Their contexts, if there were any.
    """

    round: Count
    rounds: Annotated[int, Meta(ge=1, le=10_000)] = 1
    contexts: Annotated[list[Row], Meta(max_length=10_000)] | None = None


class Costs(Body):
    """The cost of playing some arms from now on, in units of reward; other arms keep theirs."""

    costs: Annotated[dict[Name, float], Meta(min_length=1, max_length=1000)]


class Pin(Body):
    """How an arm is pinned; without `learn`, rewards of pinned decisions are accepted and not learned."""

    learn: bool = True
