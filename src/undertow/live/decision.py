"""The interface of policies, their decisions, and their capabilities."""

import math
from typing import Any, NamedTuple, NoReturn, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError
from undertow.live import wire
from undertow.support.checks import FloatArray
from undertow.support.display import html_table, shortly
from undertow.support.renamed import OF_DECISIONS, renamed_attribute

__all__ = ["Capabilities", "Decision", "Outlook", "Policy", "Why"]

_SINCE = {"value": None, "propensities": None, "again": False}  # which earlier versions did not write

_ROUNDING = 1e-9  # rounding by which a probability may exceed 1


class Capabilities(NamedTuple):
    """Capabilities that a policy declares; `undertow.contracts.check_policy` tests each of them.

    Attributes
    ----------
    needs_system
        It knows the system, and accepts no arm outside it.
    uses_contexts, takes_features, uses_own_rewards
        The inputs of its choices.
    takes_arm_features
        Features may be a row for each arm, (k, q), in place of one for all, (q,).
    deterministic
        It uses no random numbers. A random policy reports the probability of every arm that it plays.
    handles_missing_contexts
        It is better than a random choice also if a third of the contexts are missing.
    simulates_only
        It needs every arm's reward, so it only runs in simulation.
    late_rewards_count_alike
        The delay of a reward does not matter once it has come.
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
    """The model behind a learner's forecasts.

    Attributes
    ----------
    state_error, arm_error
        Standard error of every arm's forecast, (k,): the uncertainty about the hidden state, and about the arm.
    model
        The model that decided.
    lead
        Its score minus the next best model's, in nats (`undertow.models.block`), each less its handicap;
        infinite if it is the only one.
    since_fit
        Rounds since the model was fitted; −1 before its first fit.
    look
        Odds that the arm has changed since it was last played, if the decision is a look at it; 0 if the model's own
        best arm was played.
    """

    state_error: FloatArray
    arm_error: FloatArray
    model: str
    lead: float
    since_fit: int
    look: float = 0.0


class Decision(NamedTuple):
    """A decision, and its reasons.

    Attributes
    ----------
    id
        Unique id, yours or generated. Pass it to `learn` in place of the decision.
    round
        The number of its round, from 0.
    arm, name
        The chosen arm: its index and its name.
    forecast, width
        Predicted reward of every arm and the exploration bonus that was added to it; the width is infinite for an arm
        that must be tried first.
    window
        Number of contexts in each arm's forecast; None if the policy has no windows.
    why
        Standard errors and the model behind the forecast; None if the policy does not learn one.
    propensity
        Probability of the chosen arm, given the policy's state; 1 if the policy is deterministic.
    time_step
        Time step of the hidden state, counted from 0; None if a policy does not count them.
    value
        The compared value of every arm: forecast + width − known cost, or a random number in place of the first two;
        with `minimize`, forecast − width + cost. None if the policy reports none.
    propensities
        Probability of each arm, (k,), summing to 1; None if the policy is deterministic.
    again
        Whether it is an earlier decision of the same subject, which may have been rewarded already.
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
    time_step: int | None = None
    value: FloatArray | None = None
    propensities: FloatArray | None = None
    again: bool = False

    @property
    def moment(self) -> NoReturn:
        """Raise an error that gives the name of today."""
        raise renamed_attribute(self, "moment", OF_DECISIONS)

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
        """Parse the output of `to_json`; raise `InvalidInputError` for anything else."""
        try:
            entries = wire.read(text, cls._fields, _SINCE, {"moment": "time_step"})
            outlook = _read_outlook(entries)
            k = len(outlook.forecast)
            arm, why, chance = wire.read_count(entries["arm"]), entries["why"], wire.read_number(entries["propensity"])
            time_step, value, chances = entries["time_step"], entries["value"], entries["propensities"]
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
                None if time_step is None else wire.read_count(time_step),
                None if value is None else np.array([_read_value(each) for each in wire.read_list(value, k)]),
                None if chances is None else wire.read_numbers(chances, math.nan, k),
                wire.read_flag(entries["again"]),
            )
        except wire.DAMAGE as error:
            raise InvalidInputError(
                f"decision: expected JSON from Decision.to_json, got {text!r:.60} ({error!s:.80})"
            ) from error


class Outlook(NamedTuple):
    """The present forecast and width of every arm, and windows if the policy has any."""

    forecast: FloatArray
    width: FloatArray
    window: npt.NDArray[np.int64] | None

    def to_json(self) -> str:
        """Return the outlook as a JSON object; an infinite width is written as null."""
        return wire.write(_plain(*self))

    @classmethod
    def from_json(cls, text: str) -> "Outlook":
        """Parse the output of `to_json`; raise `InvalidInputError` for anything else."""
        try:
            return _read_outlook(wire.read(text, cls._fields))
        except wire.DAMAGE as error:
            raise InvalidInputError(
                f"outlook: expected JSON from Outlook.to_json, got {text!r:.60} ({error!s:.80})"
            ) from error


def _value_for_json(value: float) -> float | str | None:
    """Return the compared value of an arm: null for +∞ and NaN, "-inf" for −∞, which JSON lacks."""
    return "-inf" if value == -math.inf else value if math.isfinite(value) else None


def _read_value(value: Any) -> float:
    return -math.inf if value == "-inf" else wire.read_number(value, math.inf)


def _plain(forecast: FloatArray, width: FloatArray, window: npt.NDArray[np.int64] | None) -> dict[str, Any]:
    """Return forecasts, widths and windows for JSON; NaN is null among the forecasts."""
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
    """The methods of a policy; any object that has them can be simulated."""

    def decide(self, features: npt.ArrayLike | None = None) -> Decision:
        """Choose an arm for this round; undertow's policies also take `context`, `available`, `id` and `elapsed`."""

    def learn(self, decision: Decision | str, reward: float) -> None:
        """Learn the reward of an earlier decision."""

    def observe(self, context: npt.ArrayLike | None) -> None:
        """Observe the round's context."""
