"""What a store keeps of the calls of a fleet beside their events, a row for each bucket and call.

The row of "=order 7" is the answer to the call with the id "order 7". That of "0b1c…/5" holds the rewards that event 5
brought of decisions whose ids begin with 0b1c…, by the hash of their key and their round.
"""

import hashlib
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError
from undertow.fleet import Decisions
from undertow.fleet.bucket import Data, Outcome
from undertow.fleet.decisions import prefix_of
from undertow.fleet.found import Found
from undertow.fleet.keys import Integers, Keys
from undertow.live.ids import LONGEST, is_id
from undertow.store.base import Answer, Locked
from undertow.support.checks import FloatArray

__all__ = ["answer_to", "digest_of", "joined", "learned_rewards", "require_id", "rewards_of"]

_MARK = "="  # before the ids of calls; lives have none
_PAGE = 100
_REWARDS = np.dtype([("hash", "<u8"), ("round", "<i8"), ("reward", "<f8")])


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """A part of the answer to a call: a digest of the call, the life of its decisions, and columns of the outcome."""

    request: str
    life: int
    columns: list[bytes]


def require_id(id: object) -> None:
    """Refuse what cannot be an id."""
    if not is_id(id):
        raise InvalidInputError(f"id: expected a printable text of 1 to {LONGEST} characters, got {id!r:.80}")


def digest_of(keys: Keys, data: Data) -> str:
    """Return a digest of what was given to `decide_many`."""
    total = hashlib.blake2b(repr(keys.whole).encode(), digest_size=8)
    for column in (keys.ends, keys.letters, data.contexts, data.features, data.closed):
        total.update(f"{column.shape}".encode() + np.ascontiguousarray(column).tobytes())
    return total.hexdigest()


def answer_to(id: str, n: int, request: str, life: int, outcome: Outcome, rows: Integers) -> Answer:
    """Return what is kept of a call's decisions in one bucket."""
    columns = [np.ascontiguousarray(column[rows]).tobytes() for column in outcome]
    return Answer(_MARK + id, n, msgspec.msgpack.encode(_Stored(request, life, columns)), None)


def joined(
    id: str, request: str, parts: Sequence[tuple[Integers, Locked]], keys: Keys, names: tuple[str, ...]
) -> Decisions | None:
    """Return what a call was answered with, from what its buckets know; None if it was never made."""
    outcome, lives = Outcome.of(len(keys), len(names)), set[int]()
    found = [(rows, locked.answer(_MARK + id)) for rows, locked in parts]
    if all(answer is None for _, answer in found):
        return None
    for rows, answer in found:
        stored = None if answer is None else msgspec.msgpack.decode(answer.content, type=_Stored)
        if stored is None or stored.request != request:
            raise InvalidInputError(
                f"id: {id!r} was used before, for another call of decide; an id names one call, so use a new one"
            )
        lives.add(stored.life)
        for column, content in zip(outcome, stored.columns, strict=True):
            column[rows] = np.frombuffer(content, column.dtype).reshape(column[rows].shape)
    (life,) = lives
    return Decisions(prefix_of(life), keys, names, outcome)


def rewards_of(n: int, found: Found, rows: Integers, lives: Integers, rewards: FloatArray) -> list[Answer]:
    """Return what is kept of the rewards of some decisions of one bucket, learned in event n."""
    kept = []
    for life in np.unique(lives[rows]).tolist():
        some = rows[lives[rows] == life]
        table = np.empty(len(some), _REWARDS)
        table["hash"], table["round"], table["reward"] = found.keys.hashes[some], found.rounds[some], rewards[some]
        kept.append(Answer(f"{prefix_of(life)}/{n:x}", n, table.tobytes(), None))
    return kept


def learned_rewards(locked: Locked, life: int) -> npt.NDArray[np.void]:
    """Return the rewards that were learned of decisions whose ids begin alike, in one bucket."""
    begin, after, parts = f"{prefix_of(life)}/", f"{prefix_of(life)}/", [np.empty(0, _REWARDS)]
    while rows := locked.answers(after, _PAGE):
        own = [np.frombuffer(row.content, _REWARDS) for row in rows if row.id.startswith(begin)]
        parts += own
        if any(not row.id.startswith((begin, _MARK)) for row in rows):  # a database may sort marks anywhere
            break
        after = rows[-1].id
    return np.concatenate(parts)
