"""What a policy is, what it decides, and what it claims."""

import json
import math
import operator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from undertow._checks import FloatArray
from undertow.errors import InvalidInputError
from undertow.showing import html_table, shortly

__all__ = ["Claims", "Decision", "Outlook", "Policy", "Why"]


class Claims(NamedTuple):
    """What a policy says of itself; `undertow.contracts.check_policy` holds it to it.

    Attributes
    ----------
    needs_system
        It knows the system, and takes in no arm that the system does not have.
    uses_contexts, takes_features, uses_own_rewards
        What its choices depend on.
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


class Why(NamedTuple):
    """How a learner came to its forecasts.

    Attributes
    ----------
    state_error, arm_error
        Standard error of every arm's forecast, (k,): what is unknown of the hidden state, and of the arm itself.
    model
        The model that decided.
    lead
        By how many nats its discounted log density of the rewards leads that of the next best model; infinite where
        there is no other.
    since_fit
        Rounds since the model was fitted; −1 before its first fit.
    """

    state_error: FloatArray
    arm_error: FloatArray
    model: str
    lead: float
    since_fit: int


class Decision(NamedTuple):
    """One choice, and why.

    Attributes
    ----------
    id
        Number of the decision, counted by the policy that made it; `learn` takes it in place of the decision.
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
    """

    id: int
    round: int
    arm: int
    name: str
    forecast: FloatArray
    width: FloatArray
    window: npt.NDArray[np.int64] | None
    why: Why | None = None
    propensity: float = 1.0

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
        return html_table(f"Decision {self.id}, round {self.round}: {self.name}", rows, head, note)

    def to_json(self) -> str:
        """Return the decision as a JSON object; an infinite width is written as null."""
        width = _plain(self.width)
        window = None if self.window is None else self.window.tolist()
        why = None
        if self.why is not None:
            errors = {"state_error": _plain(self.why.state_error), "arm_error": _plain(self.why.arm_error)}
            why = self.why._asdict() | errors | {"lead": None if math.isinf(self.why.lead) else self.why.lead}
        return json.dumps(
            self._asdict() | {"forecast": self.forecast.tolist(), "width": width, "window": window, "why": why}
        )

    @classmethod
    def from_json(cls, text: str) -> "Decision":
        """Read what `to_json` wrote."""
        try:
            entries = json.loads(text)
            width = [math.inf if value is None else value for value in entries["width"]]
            window = None if entries["window"] is None else np.array(entries["window"], dtype=np.int64)
            return cls(
                operator.index(entries["id"]),
                operator.index(entries["round"]),
                operator.index(entries["arm"]),
                str(entries["name"]),
                np.array(entries["forecast"], dtype=np.float64),
                np.array(width, dtype=np.float64),
                window,
                None if entries.get("why") is None else _why(entries["why"]),
                _probability(entries.get("propensity", 1.0)),
            )
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise InvalidInputError(f"decision: expected JSON from Decision.to_json, got {text!r:.60}") from error


def _plain(values: FloatArray) -> list[float | None]:
    return [None if math.isinf(value) else value for value in values.tolist()]


def _probability(value: Any) -> float:
    if not 0 < value <= 1:
        raise ValueError(f"expected a probability, got {value}")
    return float(value)


def _why(entries: dict[str, Any]) -> Why:
    state_error, arm_error = (
        np.array([math.inf if value is None else value for value in entries[name]], dtype=np.float64)
        for name in ("state_error", "arm_error")
    )
    lead = math.inf if entries["lead"] is None else float(entries["lead"])
    return Why(state_error, arm_error, str(entries["model"]), lead, operator.index(entries["since_fit"]))


class Outlook(NamedTuple):
    """What a policy would predict now: forecast and width of every arm, and windows where it has any."""

    forecast: FloatArray
    width: FloatArray
    window: npt.NDArray[np.int64] | None


@runtime_checkable
class Policy(Protocol):
    """What a policy has to do; anything with these methods can be simulated."""

    def decide(self, features: npt.ArrayLike | None = None) -> Decision:
        """Choose an arm for this round; policies of ours also take `available`."""

    def learn(self, decision: Decision | int, reward: float) -> None:
        """Take in the reward of an earlier decision."""

    def observe(self, context: npt.ArrayLike | None) -> None:
        """Take in the round's context."""
