"""What a policy is, what it decides, and what it claims of itself."""

import json
import math
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from undertow._checks import FloatArray
from undertow.errors import InvalidInputError

__all__ = ["Claims", "Decision", "Outlook", "Policy"]


class Claims(NamedTuple):
    """What a policy says of itself; `undertow.contracts.check_policy` holds it to it."""

    needs_system: bool = False
    uses_contexts: bool = False
    takes_features: bool = False
    uses_own_rewards: bool = True
    deterministic: bool = True
    handles_missing_contexts: bool = False
    simulates_only: bool = False


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
    """

    id: int
    round: int
    arm: int
    name: str
    forecast: FloatArray
    width: FloatArray
    window: npt.NDArray[np.int64] | None

    def to_json(self) -> str:
        """Return the decision as a JSON object; an infinite width is written as null."""
        width = [None if math.isinf(value) else value for value in self.width.tolist()]
        window = None if self.window is None else self.window.tolist()
        return json.dumps(self._asdict() | {"forecast": self.forecast.tolist(), "width": width, "window": window})

    @classmethod
    def from_json(cls, text: str) -> "Decision":
        """Read what `to_json` wrote."""
        try:
            entries = json.loads(text)
            width = [math.inf if value is None else value for value in entries["width"]]
            window = None if entries["window"] is None else np.array(entries["window"], dtype=np.int64)
            return cls(
                int(entries["id"]),
                int(entries["round"]),
                int(entries["arm"]),
                str(entries["name"]),
                np.array(entries["forecast"], dtype=np.float64),
                np.array(width, dtype=np.float64),
                window,
            )
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidInputError(f"decision: expected JSON from Decision.to_json, got {text!r:.60}") from error


class Outlook(NamedTuple):
    """What a policy would predict now: forecast and width of every arm, and windows where it has any."""

    forecast: FloatArray
    width: FloatArray
    window: npt.NDArray[np.int64] | None


@runtime_checkable
class Policy(Protocol):
    """What everything else in undertow asks of a policy; anything with these methods can be simulated."""

    def decide(self, features: npt.ArrayLike | None = None) -> Decision:
        """Choose an arm for this round."""

    def learn(self, decision: Decision | int, reward: float) -> None:
        """Take in the reward of an earlier decision."""

    def observe(self, context: npt.ArrayLike | None) -> None:
        """Take in the round's context."""
