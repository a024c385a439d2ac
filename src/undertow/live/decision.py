"""What a policy is, what it decides, and what it claims."""

import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from undertow._checks import FloatArray
from undertow.errors import InvalidInputError
from undertow.live import wire
from undertow.showing import html_table, shortly

__all__ = ["Claims", "Decision", "Outlook", "Policy", "Why"]

_ROUNDING = 1e-9  # by which a probability that was computed may exceed 1


class Claims(NamedTuple):
    """What a policy says of itself; `undertow.contracts.check_policy` holds it to it.

    Attributes
    ----------
    needs_system
        It knows the system, and takes in no arm that the system does not have.
    uses_contexts, takes_features, uses_own_rewards
        What its choices depend on.
    takes_arm_features
        Features may be a row for each arm, (k, q), in place of one for all, (q,).
    deterministic
        It draws nothing: data decide alone. One that draws reports the probability of every arm that it plays.
    handles_missing_contexts
        It is better than a random choice also where a third of the contexts are missing.
    simulates_only
        It sees what nobody sees, and cannot be played by hand.
    late_rewards_count_alike
        Once a reward has come, it does not matter how many rounds late it was.
    """

    needs_system: bool = False
    uses_contexts: bool = False
    takes_features: bool = False
    uses_own_rewards: bool = True
    deterministic: bool = True
    handles_missing_contexts: bool = False
    simulates_only: bool = False
    late_rewards_count_alike: bool = False
    takes_arm_features: bool = False


class Why(NamedTuple):
    """How a learner came to its forecasts.

    Attributes
    ----------
    state_error, arm_error
        Standard error of every arm's forecast, (k,): what is unknown of the hidden state, and of the arm itself.
    model
        The model that decided.
    lead
        Its score minus the next best model's, in nats (`undertow.learners.model.note_error`), each less its handicap;
        infinite if it is the only one.
    since_fit
        Rounds since the model was fitted; −1 before its first fit.
    look
        Odds that the arm has changed since it was left, if the decision is a look at it; 0 if the model's own best arm
        was played.
    """

    state_error: FloatArray
    arm_error: FloatArray
    model: str
    lead: float
    since_fit: int
    look: float = 0.0


class Decision(NamedTuple):
    """One choice, and why.

    Attributes
    ----------
    id
        What names the decision, and no other one: given to `decide`, or made by the policy; `learn` takes it in place
        of the decision.
    round
        The round it was made for.
    arm, name
        The chosen arm: its index and its name.
    forecast, width
        Predicted reward of every arm and the exploration bonus that was added to it; the width is infinite for an arm
        that has to be tried first.
    window
        How many contexts each arm's forecast used; None where a policy has no windows.
    why
        Standard errors and the model behind the forecast; None where a policy does not learn one.
    propensity
        Probability with which the arm was chosen, given what the policy knew; 1 where nothing was drawn.
    moment
        The moment of the hidden state that the round is of, counted from 0 on; None where a policy does not count them.
    value
        What was compared, for every arm: forecast + width − known cost, or what was drawn in place of the first two;
        with `minimise`, forecast − width + cost. None where a policy does not say.
    propensities
        Probability with which each arm was chosen, (k,), summing to 1; None where nothing was drawn.
    again
        Whether it is an earlier decision of the same subject, which has been made, and rewarded perhaps, before.
    """

    id: str
    round: int
    arm: int
    name: str
    forecast: FloatArray
    width: FloatArray
    window: npt.NDArray[np.int64] | None
    why: Why | None = None
    propensity: float = 1.0
    moment: int | None = None
    value: FloatArray | None = None
    propensities: FloatArray | None = None
    again: bool = False

    def _repr_html_(self) -> str:
        errors = (
            [()] * len(self.forecast)
            if self.why is None
            else zip(self.why.state_error, self.why.arm_error, strict=True)
        )
        rows = [
            (f"{arm}{' ← chosen' if arm == self.arm else ''}", forecast, width, *more)
            for arm, (forecast, width, more) in enumerate(zip(self.forecast, self.width, errors, strict=True))
        ]
        head = ["arm", "forecast", "width", *(() if self.why is None else ("state error", "arm error"))]
        note = f"Probability {shortly(self.propensity)}."
        if self.why is not None:
            note += f" Decided by {self.why.model or 'no model yet'}, leading by {shortly(self.why.lead)} nats."
            if self.why.look:
                note += f" A look, at odds of {shortly(self.why.look)} that the arm has changed."
        return html_table(f"Decision {self.id}, round {self.round}: {self.name}", rows, head, note)

    def to_json(self) -> str:
        """Return the decision as a JSON object; an infinite width, error, lead or value is written as null."""
        why = None
        if self.why is not None:
            errors = {
                name: wire.write_numbers(getattr(self.why, name), math.inf) for name in ("state_error", "arm_error")
            }
            why = self.why._asdict() | errors | {"lead": wire.write_number(self.why.lead, math.inf)}
        value = None if self.value is None else [_value_for_json(each) for each in self.value.tolist()]
        chances = None if self.propensities is None else self.propensities.tolist()
        plain = _plain(self.forecast, self.width, self.window)
        return wire.write(self._asdict() | plain | {"why": why, "value": value, "propensities": chances})

    @classmethod
    def from_json(cls, text: str) -> "Decision":
        """Read what `to_json` wrote; whatever else is refused."""
        try:
            entries = wire.read(text, cls._fields, since={"value": None, "propensities": None, "again": False})
            outlook = _read_outlook(entries)
            k = len(outlook.forecast)
            arm, why, chance = wire.read_count(entries["arm"]), entries["why"], wire.read_number(entries["propensity"])
            moment, value, chances = entries["moment"], entries["value"], entries["propensities"]
            if arm >= k or not 0 < chance <= 1 + _ROUNDING:
                raise ValueError(f"expected one of {k} arms and its probability, got {arm} and {chance}")
            return cls(
                wire.read_text(entries["id"]),
                wire.read_count(entries["round"]),
                arm,
                wire.read_text(entries["name"]),
                *outlook,
                None if why is None else _read_why(why, k),
                chance,
                None if moment is None else wire.read_count(moment),
                None if value is None else np.array([_read_value(each) for each in wire.read_list(value, k)]),
                None if chances is None else wire.read_numbers(chances, math.nan, k),
                wire.read_flag(entries["again"]),
            )
        except wire.DAMAGE as error:
            raise InvalidInputError(
                f"decision: expected JSON from Decision.to_json, got {text!r:.60} ({error!s:.80})"
            ) from error


class Outlook(NamedTuple):
    """What a policy would predict now: forecast and width of every arm, and windows where it has any."""

    forecast: FloatArray
    width: FloatArray
    window: npt.NDArray[np.int64] | None

    def to_json(self) -> str:
        """Return the outlook as a JSON object; an infinite width is written as null."""
        return wire.write(_plain(*self))

    @classmethod
    def from_json(cls, text: str) -> "Outlook":
        """Read what `to_json` wrote; whatever else is refused."""
        try:
            return _read_outlook(wire.read(text, cls._fields))
        except wire.DAMAGE as error:
            raise InvalidInputError(
                f"outlook: expected JSON from Outlook.to_json, got {text!r:.60} ({error!s:.80})"
            ) from error


def _value_for_json(value: float) -> float | str | None:
    """Return what was compared of an arm: null for +∞ and what is no number, "-inf" for −∞, which JSON has not."""
    return "-inf" if value == -math.inf else value if math.isfinite(value) else None


def _read_value(value: Any) -> float:
    return -math.inf if value == "-inf" else wire.read_number(value, math.inf)


def _plain(forecast: FloatArray, width: FloatArray, window: npt.NDArray[np.int64] | None) -> dict[str, Any]:
    """Return forecasts, widths and windows as JSON takes them; what is not a number is null among the forecasts."""
    return {
        "forecast": wire.write_numbers(forecast, math.nan),
        "width": wire.write_numbers(width, math.inf),
        "window": None if window is None else window.tolist(),
    }


def _read_outlook(entries: dict[str, Any]) -> Outlook:
    forecast, window = wire.read_numbers(entries["forecast"], math.nan), entries["window"]
    k = len(forecast)
    if window is not None:
        window = np.array([wire.read_count(value) for value in wire.read_list(window, k)], dtype=np.int64)
    return Outlook(forecast, wire.read_numbers(entries["width"], math.inf, k), window)


def _read_why(entries: Any, k: int) -> Why:
    fields = wire.read_object(entries, Why._fields)
    return Why(
        wire.read_numbers(fields["state_error"], math.inf, k),
        wire.read_numbers(fields["arm_error"], math.inf, k),
        wire.read_text(fields["model"]),
        wire.read_number(fields["lead"], math.inf),
        wire.read_count(fields["since_fit"], least=-1),
        wire.read_number(fields["look"]),
    )


@runtime_checkable
class Policy(Protocol):
    """What a policy has to do; anything with these methods can be simulated."""

    def decide(self, features: npt.ArrayLike | None = None) -> Decision:
        """Choose an arm for this round; policies of ours also take `context`, `available`, `id` and `elapsed`."""

    def learn(self, decision: Decision | str, reward: float) -> None:
        """Take in the reward of an earlier decision."""

    def observe(self, context: npt.ArrayLike | None) -> None:
        """Take in the round's context."""
