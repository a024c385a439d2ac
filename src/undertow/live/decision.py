"""The interface of policies, their decisions, and their capabilities."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple, NoReturn, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from undertow.live import wire
from undertow.support.checks import FloatArray
from undertow.support.display import html_table, shortly
from undertow.support.renamed import OF_DECISIONS, renamed_attribute

__all__ = ["Capabilities", "Decision", "Outlook", "Policy", "Why"]

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
        """Return the decision as a JSON object.

        Null is NaN among forecasts and probabilities, and +∞ among widths, errors and values and as the lead. The other
        numbers that JSON lacks are "nan", "inf" and "-inf".
        """
        why = self.why and wire.entries(self.why, "state_error", "arm_error", "lead", "look")
        return wire.write(wire.entries(self, "width", "value") | {"why": why})

    @classmethod
    def from_json(cls, text: str) -> "Decision":
        """Parse the output of `to_json`, of any version; raise `InvalidInputError` for anything else."""
        # a key and no part of a string, whose quotes are escaped
        renamed = text.replace('"moment":', '"time_step":') if isinstance(text, str) else text
        return wire.read(cls, renamed, _Decision)


class Outlook(NamedTuple):
    """The present forecast and width of every arm, and windows if the policy has any."""

    forecast: FloatArray
    width: FloatArray
    window: npt.NDArray[np.int64] | None

    def to_json(self) -> str:
        """Return the outlook as a JSON object; null is NaN among forecasts, and +∞ among widths."""
        return wire.write(wire.entries(self, "width"))

    @classmethod
    def from_json(cls, text: str) -> "Outlook":
        """Parse the output of `to_json`; raise `InvalidInputError` for anything else."""
        return wire.read(cls, text, _Outlook)


class _Outlook(wire.Form):
    forecast: wire.Numbers
    width: wire.Numbers
    window: list[wire.Count] | None

    def made(self) -> Outlook:
        _require_arms(len(self.forecast), self.width, self.window)
        forecast, width = wire.array(self.forecast), wire.array(self.width, "inf")
        return Outlook(forecast, width, wire.array(self.window, kind=np.int64))


class _Why(wire.Form):
    state_error: wire.Numbers
    arm_error: wire.Numbers
    model: str
    lead: wire.Number
    since_fit: Annotated[int, msgspec.Meta(ge=-1, lt=2**53)]
    look: wire.Number = 0.0  # earlier versions lack it

    def made(self) -> Why:
        errors = wire.array(self.state_error, "inf"), wire.array(self.arm_error, "inf")
        lead, look = wire.number(self.lead, "inf"), wire.number(self.look, "inf")
        return Why(*errors, self.model, lead, self.since_fit, look)


class _Decision(wire.Form):
    id: str
    round: wire.Count
    arm: wire.Count
    name: str
    forecast: wire.Numbers
    width: wire.Numbers
    window: list[wire.Count] | None
    why: _Why | None
    propensity: Annotated[float, msgspec.Meta(gt=0, le=1 + _ROUNDING)]
    time_step: wire.Count | None
    value: wire.Numbers | None = None  # earlier versions lack it and the next ones
    propensities: wire.Numbers | None = None
    again: bool = False

    def made(self) -> Decision:
        k, why = len(self.forecast), self.why
        if self.arm >= k:
            raise ValueError(f"expected one of {k} arms, got {self.arm}")
        errors = () if why is None else (why.state_error, why.arm_error)
        _require_arms(k, self.width, self.window, self.value, self.propensities, *errors)
        return Decision(*msgspec.structs.astuple(self))._replace(
            forecast=wire.array(self.forecast),
            width=wire.array(self.width, "inf"),
            window=wire.array(self.window, kind=np.int64),
            why=None if why is None else why.made(),
            value=wire.array(self.value, "inf"),
            propensities=wire.array(self.propensities),
        )


def _require_arms(k: int, *lists: Sequence[object] | None) -> None:
    if any(each is not None and len(each) != k for each in lists):
        raise ValueError(f"expected a number for each of {k} arms")


@runtime_checkable
class Policy(Protocol):
    """The methods of a policy; any object that has them can be simulated."""

    def decide(self, features: npt.ArrayLike | None = None) -> Decision:
        """Choose an arm for this round; undertow's policies also take `context`, `available`, `id` and `elapsed`."""

    def learn(self, decision: Decision | str, reward: float) -> None:
        """Learn the reward of an earlier decision."""

    def observe(self, context: npt.ArrayLike | None) -> None:
        """Observe the round's context."""
