"""Any object that decides and learns, as a policy."""

import copy
import operator
from typing import Any, NamedTuple

import numpy.typing as npt

from undertow.errors import InvalidInputError
from undertow.live import LivePolicy

__all__ = ["Choice", "PlainPolicy", "as_policy"]


class Choice(NamedTuple):
    """Decision of such an object: the arm, and its own answer, which it gets back with the reward."""

    arm: int
    answer: Any


class PlainPolicy:
    """An object with `decide` and `learn` in place of a policy.

    `decide` gets the features if there are any, and returns the arm's number, or an object with an attribute `arm`.
    `learn` gets what `decide` returned, and the reward. `observe`, if there is one, gets the contexts.
    """

    def __init__(self, player: Any) -> None:
        self.player = player

    def __getattr__(self, name: str) -> Any:
        if name == "player" or name.startswith("__"):  # while it is copied
            raise AttributeError(name)
        return getattr(self.player, name)

    def decide(self, *features: npt.ArrayLike) -> Any:
        """Return the decision of the object, or its arm."""
        answer = self.player.decide(*features)
        if hasattr(answer, "arm"):
            return answer
        try:
            return Choice(operator.index(answer), answer)
        except TypeError as error:
            raise InvalidInputError(
                f"policy: expected decide to return the number of an arm, or an object with arm, got {answer!r:.80}"
            ) from error

    def learn(self, choice: Any, reward: float) -> None:
        """Pass the reward on."""
        self.player.learn(choice.answer if isinstance(choice, Choice) else choice, reward)

    def observe(self, context: npt.ArrayLike | None) -> None:
        """Pass the context on, if the object takes one."""
        if hasattr(self.player, "observe"):
            self.player.observe(context)

    def for_run(self, number: int) -> "PlainPolicy":
        """Return a fresh copy for a run."""
        if hasattr(self.player, "for_run"):
            return PlainPolicy(self.player.for_run(number))
        return PlainPolicy(copy.deepcopy(self.player))


def as_policy(given: Any) -> Any:
    """Return undertow's own policies unchanged, and wrap any other object with `decide` and `learn`.

    Examples
    --------
    >>> class Always:
    ...     def decide(self):
    ...         return 1
    ...
    ...     def learn(self, arm, reward):
    ...         print(arm, reward)
    >>> policy = as_policy(Always())
    >>> policy.learn(policy.decide(), 0.5)
    1 0.5
    """
    if isinstance(given, type | LivePolicy | PlainPolicy):
        return given
    decides = callable(getattr(given, "decide", None)) and callable(getattr(given, "learn", None))
    return PlainPolicy(given) if decides else given
