"""The events of a policy, as small frozen records: the same in memory, in a file and on the wire.

An event is a fact. `Decided` says which arm was played and with which probability, `Installed` has the fitted block,
so that a policy that follows the events of another one plays its arms on every machine. See docs/events.md.
"""

from datetime import datetime
from typing import Any, Literal

import msgspec

from undertow.errors import InvalidInputError
from undertow.live import wire
from undertow.support.checks import FloatArray as Numbers

__all__ = [
    "ArmAdded",
    "ArmRetired",
    "CostsSet",
    "Decided",
    "Defaulted",
    "Event",
    "Installed",
    "Keyed",
    "KeysNamed",
    "ManyDecided",
    "ManyExpired",
    "ManyObserved",
    "ManyRewarded",
    "Observed",
    "OnePlaced",
    "Pinned",
    "Recalled",
    "Reseeded",
    "Rewarded",
    "Skipped",
    "Unpinned",
    "WarmStarted",
    "decode",
    "encode",
]


class Event(msgspec.Struct, frozen=True, eq=False, tag_field="event", forbid_unknown_fields=True):
    """An event of a policy; `version` is that of its fields."""

    version: Literal[1] = msgspec.field(default=1, name="version")


class Decided(Event, frozen=True, eq=False, kw_only=True, tag="decided"):
    """A round was decided.

    Attributes
    ----------
    id
        Unique id of the decision.
    round, arm, propensity
        The round, the index of the arm that was played, and its probability.
    features
        The features of the round, (q,) or (k, q); None if the policy takes none.
    available
        Indices of the arms that could be played; None for all but retired ones.
    still
        Whether the round is in the same time step as the one before.
    request
        A digest of the call, if the caller gave the id: the same call is answered with the same decision.
    at
        Its time, if given.
    subject
        A keyed hash of its subject, if given.
    """

    id: str
    round: int
    arm: int
    propensity: float
    features: Numbers | None = None
    available: tuple[int, ...] | None = None
    still: bool = False
    request: str | None = None
    at: datetime | None = None
    subject: str | None = None


class Rewarded(Event, frozen=True, eq=False, kw_only=True, tag="rewarded"):
    """The reward of a decision came."""

    id: str
    reward: float
    at: datetime | None = None


class Defaulted(Event, frozen=True, eq=False, kw_only=True, tag="defaulted"):
    """The reward of a decision did not come for `max_wait`, a time, and the default replaced it."""

    id: str


class Recalled(Event, frozen=True, eq=False, kw_only=True, tag="recalled"):
    """A decision that a policy had dropped is pending again.

    Attributes
    ----------
    id, round, arm
        The decision.
    memory
        The numbers for learning its reward.
    learns
        Whether the reward is learned, or only accepted.
    """

    id: str
    round: int
    arm: int
    memory: Numbers
    learns: bool = True


class Observed(Event, frozen=True, eq=False, kw_only=True, tag="observed"):
    """A context came, (m,); NaN for a missing entry, None if all are missing."""

    context: Numbers | None
    at: datetime | None = None


class Skipped(Event, frozen=True, eq=False, kw_only=True, tag="skipped"):
    """Rounds passed without a decision, with their contexts, (rounds, m), if there were any."""

    rounds: int
    contexts: Numbers | None = None


class ArmAdded(Event, frozen=True, eq=False, kw_only=True, tag="arm added"):
    """An arm was added, or reactivated."""

    name: str


class ArmRetired(Event, frozen=True, eq=False, kw_only=True, tag="arm retired"):
    """An arm was retired."""

    name: str


class CostsSet(Event, frozen=True, eq=False, kw_only=True, tag="costs set"):
    """The costs of playing these arms, by name, from now on."""

    costs: dict[str, float]


class Pinned(Event, frozen=True, eq=False, kw_only=True, tag="pinned"):
    """From now on every decision is this arm; `learn` says whether their rewards are learned."""

    name: str
    learn: bool = True


class Unpinned(Event, frozen=True, eq=False, kw_only=True, tag="unpinned"):
    """The policy chooses again."""


class Keyed(Event, frozen=True, eq=False, kw_only=True, tag="keyed"):
    """The first subject was named; this is the key of all hashes of subjects."""

    key: str


class Installed(Event, frozen=True, eq=False, kw_only=True, tag="installed"):
    """A background fit is ready: the model catches up with the rounds since, and then takes effect.

    Attributes
    ----------
    model
        Name of the model.
    requested, round
        The rounds before whose decisions the fit was requested, and was ready.
    failure
        The reason if the fit failed, else None.
    order, log_likelihood, tried, seconds
        Size and likelihood of the model, the number of models tried, and the duration.
    block
        The numbers of the fitted model, little-endian float64.
    whole
        Whether its belief covers all rows of the fit.
    earlier_round, earlier_block
        An earlier round, and the model's state before it, for late rewards.
    """

    model: str
    requested: int
    round: int
    failure: str | None = None
    order: int = 0
    log_likelihood: float | None = None
    tried: int = 0
    seconds: float = 0.0
    block: bytes = b""
    whole: bool = True
    earlier_round: int | None = None
    earlier_block: bytes = b""


class WarmStarted(Event, frozen=True, eq=False, kw_only=True, tag="warm started"):
    """A learner learned rounds of a table, as rows of its history."""

    rows: Numbers


class Reseeded(Event, frozen=True, eq=False, kw_only=True, tag="reseeded"):
    """A forked process began its own random numbers."""

    entropy: str


class KeysNamed(Event, frozen=True, eq=False, kw_only=True, tag="keys named"):
    """The first keys of a fleet came; `whole` says whether all its keys are integers, or strings."""

    whole: bool


class _Many(Event, frozen=True, eq=False, kw_only=True):
    """Something that has happened to keys of one bucket of a fleet, in columns with a row for each.

    Columns are the bytes of little-endian numbers; those of the policy are in its units.

    Attributes
    ----------
    letters, lengths, whole
        Bytes of the keys, one behind another, how many each has, and whether they are integers, which have eight each.
    """

    letters: bytes
    whole: bool
    lengths: bytes = b""


class ManyDecided(_Many, frozen=True, eq=False, kw_only=True, tag="many decided"):
    """Rounds of keys were decided.

    Attributes
    ----------
    life
        Of the decisions: what their ids begin with.
    arms, propensities
        The arms that were played, and their probabilities; empty if all are 1.
    contexts, features, closed
        What was given with the decisions; empty for nothing.
    """

    life: int
    arms: bytes
    propensities: bytes = b""
    contexts: bytes = b""
    features: bytes = b""
    closed: bytes = b""


class ManyRewarded(_Many, frozen=True, eq=False, kw_only=True, tag="many rewarded"):
    """The rewards of these rounds came."""

    rounds: bytes
    rewards: bytes


class ManyObserved(_Many, frozen=True, eq=False, kw_only=True, tag="many observed"):
    """Contexts came."""

    contexts: bytes


class ManyExpired(_Many, frozen=True, eq=False, kw_only=True, tag="many expired"):
    """Keys were forgotten."""


class OnePlaced(_Many, frozen=True, eq=False, kw_only=True, tag="one placed"):
    """The bandit of a key was replaced by a policy, as `to_bytes` wrote it."""

    life: int
    policy: bytes


_KINDS = (
    Decided
    | Rewarded
    | Defaulted
    | Recalled
    | Observed
    | Skipped
    | ArmAdded
    | ArmRetired
    | CostsSet
    | Pinned
    | Unpinned
    | Keyed
    | Installed
    | WarmStarted
    | Reseeded
    | KeysNamed
    | ManyDecided
    | ManyRewarded
    | ManyObserved
    | ManyExpired
    | OnePlaced
)


class _Lists(msgspec.Struct):
    row: wire.Numbers = []
    rows: list[wire.Numbers] = []


def _array(kind: type, values: Any) -> Numbers:
    name = "rows" if isinstance(values, list) and values and isinstance(values[0], list) else "row"
    numbers: Numbers = wire.array(getattr(msgspec.convert({name: values}, _Lists), name))
    return numbers


_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_KINDS, dec_hook=_array)


def encode(event: Event) -> bytes:
    """Return an event as JSON; NaN is null."""
    return wire.ENCODER.encode(event)


def decode(content: bytes | str) -> Event:
    """Parse the output of `encode`.

    Examples
    --------
    >>> decode(encode(Rewarded(id="order 7", reward=1.5)))
    Rewarded(version=1, id='order 7', reward=1.5, at=None)
    """
    try:
        event: Event = _DECODER.decode(content)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInputError(f"event: expected JSON from encode, got {content!r:.60} ({error!s:.80})") from error
    return event
