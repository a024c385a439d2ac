"""The decisions of a batch, as columns."""

import secrets
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.fleet.bucket import Outcome
from undertow.fleet.keys import Integers, Keys, decoded, some_of
from undertow.live import Decision
from undertow.support.checks import FloatArray

__all__ = ["Decisions", "id_of", "life_of", "new_life", "parts_of", "prefix_of"]


_BITS = 53  # of a life: JSON and save files count that far
_DIGITS = 14  # in base 16


class Decisions(NamedTuple):
    """Decisions of many keys, one row each; `learn_many` takes them, or some of them, with their rewards.

    Attributes
    ----------
    fleet
        Prefix of the ids: an id has fleet, round and key.
    encoded
        The keys, as bytes.
    names
        Names of the arms.
    outcome
        Arms, rounds, probabilities, forecasts and widths.
    """

    fleet: str
    encoded: Keys
    names: tuple[str, ...]
    outcome: Outcome

    def __len__(self) -> int:
        return len(self.outcome.arms)

    @property
    def keys(self) -> npt.NDArray[Any]:
        """The key of each decision."""
        return decoded(self.encoded)

    @property
    def arms(self) -> Integers:
        """Index of the chosen arm."""
        return self.outcome.arms

    @property
    def rounds(self) -> Integers:
        """The round of the key, counted from 0."""
        return self.outcome.rounds

    @property
    def propensities(self) -> FloatArray:
        """Probability of the arm; NaN for a random policy, for which `decide` computes it."""
        return self.outcome.chances

    @property
    def forecasts(self) -> FloatArray:
        """Predicted reward of every arm, (n, k)."""
        return self.outcome.forecasts

    @property
    def widths(self) -> FloatArray:
        """Exploration bonus of every arm, (n, k)."""
        return self.outcome.widths

    @property
    def ids(self) -> list[str]:
        """An id of each decision, as `decide` returns it."""
        return [id_of(self.fleet, t, key) for t, key in zip(self.rounds.tolist(), self.keys.tolist(), strict=True)]

    def take(self, rows: npt.ArrayLike) -> "Decisions":
        """Return some of the decisions: row numbers, or a mask."""
        chosen = np.arange(len(self))[np.asarray(rows)]
        some = some_of(self.encoded, chosen)
        return Decisions(self.fleet, some, self.names, Outcome(*(column[chosen] for column in self.outcome)))

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return key, round, arm and propensity as columns, for a data frame or an Arrow table."""
        return {"key": self.keys, "round": self.rounds, "arm": self.arms, "propensity": self.propensities}

    def decision(self, row: int) -> Decision:
        """Return one of the decisions as `decide` returns it."""
        arms, rounds, chances, forecasts, widths = (column[row] for column in self.outcome)
        id = id_of(self.fleet, int(rounds), self.take([row]).keys[0])
        return Decision(
            id, int(rounds), int(arms), self.names[arms], forecasts, widths, None, propensity=float(chances)
        )


def new_life() -> int:
    """Return a number that nobody else has, for the ids of new decisions."""
    return secrets.randbits(_BITS)


def prefix_of(life: int) -> str:
    """Return what the ids of decisions begin with."""
    return f"{life:0{_DIGITS}x}"


def life_of(prefix: str) -> int:
    """Return the number that `prefix_of` was given; −2 for another text."""
    known = len(prefix) == _DIGITS and set(prefix) <= set("0123456789abcdef")
    return int(prefix, 16) if known else -2


def id_of(fleet: str, t: int, key: Any) -> str:
    """Return the id of a decision."""
    return f"{fleet}/{t}/{key}"


def parts_of(id: str) -> tuple[str, int, str] | None:
    """Return fleet, round and key of an id; None if it is not a fleet's."""
    fleet, _, rest = id.partition("/")
    t, slash, key = rest.partition("/")
    return (fleet, int(t), key) if slash and t.isascii() and t.isdigit() and len(t) < 16 else None
