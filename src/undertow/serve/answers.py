"""Answers of the service, as structs. The OpenAPI document is generated from them, too."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

__all__ = [
    "Access",
    "Arm",
    "Arms",
    "Bandit",
    "BanditPage",
    "Costed",
    "Created",
    "Decision",
    "Earned",
    "EventPage",
    "EventRow",
    "Figures",
    "Health",
    "History",
    "Mark",
    "Model",
    "Observed",
    "Overview",
    "Pinned",
    "Problem",
    "Rewarded",
    "Status",
    "Why",
]


class Created(msgspec.Struct):
    """A bandit that exists."""

    name: str
    policy: str
    arms: list[str]


class Why(msgspec.Struct):
    """The model behind a learner's forecasts.

    Attributes
    ----------
    model
        The model that decided.
    lead
        Its score minus that of the next best model, in nats; null if it is the only one.
    since_fit
        Rounds since the model was fitted; −1 before its first fit.
    look
        Odds that the arm has changed since it was last played, if the decision is a look at it, else 0.
    state_error, arm_error
        Standard errors of every arm's forecast: of the hidden state, and of the arm itself.
    """

    model: str
    lead: float | None
    since_fit: int
    look: float
    state_error: dict[str, float | None]
    arm_error: dict[str, float | None]


class Decision(msgspec.Struct):
    """A decision.

    Attributes
    ----------
    id, round
        Its unique id, and its round.
    arm
        The chosen arm.
    propensity
        Probability with which the arm was chosen.
    forecast, width
        Predicted reward of every arm and its exploration bonus; null if unknown or infinite.
    value
        The compared value of every arm, known costs included; null if the policy reports none.
    time_step
        The time step of the hidden state, counted from 0.
    why
        Standard errors and the model behind the forecast; null if the policy learns none.
    reward
        Its reward; null if that has not come. Only if a decision is looked up.
    """

    id: str
    round: int
    arm: str
    propensity: float
    forecast: dict[str, float | None]
    width: dict[str, float | None]
    value: dict[str, float | None] | None
    time_step: int | None
    why: Why | None
    reward: float | UnsetType | None = UNSET


class Rewarded(msgspec.Struct):
    """A reward that was learned, now or before, and the number of `pending` decisions."""

    id: str
    reward: float
    pending: int


class Observed(msgspec.Struct):
    """The number of rounds that have begun, and of rounds whose context was observed or is missing."""

    round: int
    contexts_seen: int


class Arm(msgspec.Struct):
    """An arm; a retired one is no longer played."""

    name: str
    retired: bool


class Arms(msgspec.Struct):
    """The arms of a bandit."""

    arms: list[Arm]


class Pinned(msgspec.Struct):
    """The arm of all decisions until further notice; null if none."""

    pinned: str | None


class Costed(msgspec.Struct):
    """The known cost of playing each arm."""

    costs: dict[str, float]


class Health(msgspec.Struct):
    """A health summary; `undertow.live.Health` describes the fields."""

    policy: str
    ok: bool
    problems: list[str]
    round: int
    pending: int
    waited: int
    refused: dict[str, int]
    refused_lately: int
    innovations: dict[str, list[float | None]]
    level: dict[str, float | None]
    alarms: dict[str, int]
    fits: list[dict[str, Any]]
    under_way: list[str]


class Model(msgspec.Struct):
    """A model of a learner, the deciding one first: its order, the round of its last fit, its score in nats."""

    name: str
    order: int
    fitted: int
    score: float | None


class Figures(msgspec.Struct):
    """A bandit at a glance.

    Attributes
    ----------
    ok, problems
        Whether all is well, and the problems if not.
    round, pending, waited
        Rounds begun, pending decisions, and for how many rounds the oldest of them has been pending.
    model, pinned
        The model that decides, and the pinned arm; null if none.
    per_hour, delay
        Rewards per hour, and the 95th percentile of their delays in seconds, over the last events; null if too few.
    refused, alarms
        Rewards that this worker refused, by reason, and alarms of models.
    """

    ok: bool
    problems: list[str]
    round: int
    pending: int
    waited: int
    model: str | None
    pinned: str | None
    per_hour: float | None
    delay: float | None
    refused: dict[str, int]
    alarms: int


class Bandit(msgspec.Struct):
    """A bandit as of its newest event.

    Attributes
    ----------
    name, policy, parameters, arms
        Its definition.
    round, contexts_seen, pending
        Rounds begun, rounds whose context was observed, and pending decisions.
    events, decided, rewarded
        Number of its newest event, and the times of its last decision and reward.
    pinned, costs
        The arm that is played until further notice, null if none, and the known cost of each arm.
    figures, health, models
        A summary, its health, and the models of a learner.
    forecast, width
        Its forecast for the next round; null if that depends on features.
    """

    name: str
    policy: str
    parameters: dict[str, Any]
    arms: list[Arm]
    round: int
    contexts_seen: int
    pending: int
    events: int
    decided: float | None
    rewarded: float | None
    pinned: str | None
    costs: dict[str, float]
    figures: Figures
    health: Health
    models: list[Model]
    forecast: dict[str, float | None] | None
    width: dict[str, float | None] | None


class Overview(msgspec.Struct):
    """A bandit in a list: its policy, its newest event, and the times of its last decision and reward, Unix seconds.

    It has figures if the call asked for them.
    """

    name: str
    policy: str
    events: int
    decided: float | None
    rewarded: float | None
    figures: Figures | None = None


class Earned(msgspec.Struct):
    """Mean rewards so far, at each row, of the bandit and of two baselines, estimated from the bandit's own decisions.

    Attributes
    ----------
    rounds
        Number of decisions that count: with a reward, and with a random arm (propensity below 1).
    share
        Their share of the rewarded decisions.
    bandit, uniform, fixed
        Mean reward of the bandit, and self-normalised inverse propensity estimates of the uniform policy and of the
        best fixed arm; null before its first reward.
    best, error
        The best fixed arm, by this estimate less its standard error, and that error; null if no arm was sampled ten
        times.
    missing
        The reason if there are no baselines, else null.
    """

    rounds: int
    share: float
    bandit: list[float | None]
    uniform: list[float | None]
    fixed: list[float | None]
    best: str | None
    error: float | None
    missing: str | None


class Mark(msgspec.Struct):
    """An event between two rounds."""

    n: int
    at: float
    round: int
    event: str
    text: str


class History(msgspec.Struct):
    """Decisions of a bandit as columns, thinned to so many rows; extreme rewards are kept.

    Attributes
    ----------
    arms, models
        Names, which `arm` and `model` are indices of.
    first, next
        Numbers of the first and the last event that was read.
    decisions, plays, means
        Number of decisions, of each arm's decisions, and each arm's mean reward.
    id, round, at, arm, propensity, reward, delay
        One entry for each row; a reward that has not come is null.
    model, lead
        The model that decided, −1 if none, and its lead.
    forecast, band
        For each arm a list: forecasts, and their standard errors or, if the policy has none, exploration bonuses.
    earned
        The bandit's mean reward, against baselines.
    marks
        Fits, arms, pins and costs.
    """

    arms: list[str]
    models: list[str]
    first: int
    next: int
    decisions: int
    plays: list[int]
    means: list[float | None]
    id: list[str]
    round: list[int]
    at: list[float]
    arm: list[int]
    propensity: list[float]
    reward: list[float | None]
    delay: list[float | None]
    model: list[int]
    lead: list[float | None]
    forecast: list[list[float | None]]
    band: list[list[float | None]]
    earned: Earned
    marks: list[Mark]


class Access(msgspec.Struct):
    """The role of the caller."""

    role: str


class BanditPage(msgspec.Struct):
    """Bandits in the order of their names; ask for those `after` the last one, until `next` is null."""

    bandits: list[Overview]
    next: str | None


class EventRow(msgspec.Struct):
    """An event: its number, its time in Unix seconds, and its content."""

    n: int
    at: float
    event: msgspec.Raw


class EventPage(msgspec.Struct):
    """Committed events in order; ask for those `after` the number `next`."""

    events: list[EventRow]
    next: int


class Status(msgspec.Struct):
    """Whether the service is healthy, or ready, in one word."""

    status: str


class Problem(msgspec.Struct, omit_defaults=True):
    """The reason for a refused call, as in RFC 9457.

    Attributes
    ----------
    type, title, status
        The kind of problem, for programs and in words, and the status of the answer.
    detail
        The mistake and its remedy.
    field
        The field at fault.
    happened
        Whether the call was committed nevertheless: null if unknown. Repeat it with the same id.
    """

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    happened: bool | UnsetType | None = UNSET
