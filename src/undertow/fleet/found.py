"""Decisions whose rewards have come, by ids, decisions or columns."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from undertow.errors import InvalidInputError, UnknownDecisionError
from undertow.fleet.decisions import Decisions, life_of, parts_of
from undertow.fleet.keys import Integers, Keys, encoded, some_of
from undertow.live import Decision
from undertow.support import checks

__all__ = ["Found", "Ids", "found_in"]

Ids = Decisions | Iterable[Decision | str] | tuple[Any, Any]


class Found(NamedTuple):
    """Decisions whose rewards have come: their keys, rounds and lives, −1 for any life, −2 for an invalid one."""

    keys: Keys
    rounds: Integers
    lives: Integers

    def take(self, rows: Integers) -> "Found":
        """Return some of them."""
        return Found(some_of(self.keys, rows), self.rounds[rows], self.lives[rows])


def found_in(decisions: Ids, *, whole: bool) -> Found:
    """Return keys, rounds and lives of decisions; `whole` says whether the keys of the fleet are integers."""
    if isinstance(decisions, Decisions):
        return Found(decisions.encoded, decisions.rounds, np.full(len(decisions), life_of(decisions.fleet)))
    if isinstance(decisions, tuple) and len(decisions) == 2 and not isinstance(decisions[0], str | Decision):
        keys, given = encoded(decisions[0]), np.asarray(decisions[1])
        rounds = np.array(checks.indices("rounds", given, (len(keys),), below=2**53))
        return Found(keys, rounds, np.full(len(keys), -1))
    if isinstance(decisions, str | Decision) or not isinstance(decisions, Iterable):
        raise InvalidInputError(f"decisions: expected a list of decisions or ids, got {decisions!r:.60}")
    parts = [_parts(each) for each in decisions]
    names: list[Any] = [key for *_, key in parts]
    if whole and all(map(_is_integer, names)):
        names = [int(key) for key in names]
    of_lives = np.array([life_of(fleet) for fleet, *_ in parts], dtype=np.int64)
    return Found(encoded(names), np.array([t for _, t, _ in parts], dtype=np.int64), of_lives)


def _parts(decision: Any) -> tuple[str, int, str]:
    id = decision.id if isinstance(decision, Decision) else decision
    parts = parts_of(id) if isinstance(id, str) else None
    if parts is None:
        raise UnknownDecisionError(f"decision: {id!r:.80} is no id of a fleet")
    return parts


def _is_integer(key: str) -> bool:
    digits = key.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 19
