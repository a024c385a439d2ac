"""Events of the keys of one bucket, in columns."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError
from undertow.fleet.bucket import Data, Outcome
from undertow.fleet.found import Found
from undertow.fleet.keys import Integers, Keys, hashed, some_of
from undertow.fleet.template import Template
from undertow.live.events import ManyDecided, ManyExpired, ManyObserved, ManyRewarded
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = [
    "columns_of",
    "contexts_in",
    "data_in",
    "decided",
    "expired",
    "keys_in",
    "observed",
    "rewarded",
    "rewards_in",
]


_ARM, _LENGTH = np.dtype("<i4"), np.dtype("<u2")
_WHOLE = 8  # bytes of an integer


def columns_of(keys: Keys, rows: Integers) -> dict[str, Any]:
    """Return the fields by which an event names keys."""
    some = some_of(keys, rows)
    lengths = b"" if some.whole else np.diff(some.ends, prepend=0).astype(_LENGTH).tobytes()
    return {"letters": some.letters.tobytes(), "whole": some.whole, "lengths": lengths}


def decided(keys: Keys, rows: Integers, data: Data, life: int, outcome: Outcome) -> ManyDecided:
    """Return the event that rounds of some keys were decided."""
    chances = outcome.chances[rows]
    return ManyDecided(
        **columns_of(keys, rows),
        life=life,
        arms=outcome.arms[rows].astype(_ARM).tobytes(),
        propensities=b"" if (chances == 1.0).all() else chances.tobytes(),
        contexts=_bytes(data.contexts, rows),
        features=_bytes(data.features, rows),
        closed=_bytes(data.closed, rows),
    )


def rewarded(found: Found, rows: Integers, rewards: FloatArray) -> ManyRewarded:
    """Return the event that rewards of some decisions came."""
    columns = columns_of(found.keys, rows)
    return ManyRewarded(**columns, rounds=found.rounds[rows].tobytes(), rewards=rewards[rows].tobytes())


def observed(keys: Keys, rows: Integers, contexts: FloatArray) -> ManyObserved:
    """Return the event that contexts of some keys came."""
    return ManyObserved(**columns_of(keys, rows), contexts=contexts[rows].tobytes())


def expired(keys: Keys, rows: Integers) -> ManyExpired:
    """Return the event that some keys were forgotten."""
    return ManyExpired(**columns_of(keys, rows))


def _bytes(values: FloatArray, rows: Integers) -> bytes:
    return values[rows].tobytes() if values.size else b""


# Reading events; nothing in them is trusted, since kernels check no bounds


def keys_in(event: Any) -> Keys:
    """Return the keys of an event."""
    letters = np.frombuffer(event.letters, dtype=np.uint8)
    if event.whole:
        lengths = np.full(len(letters) // _WHOLE, _WHOLE)
    else:
        lengths = _numbers("lengths", event.lengths, _LENGTH).astype(np.int64)
    if (lengths < 1).any() or int(lengths.sum()) != len(letters):
        raise InvalidInputError("keys: expected as many letters as their lengths say")
    return hashed(letters, np.cumsum(lengths), whole=event.whole)


def data_in(event: ManyDecided, template: Template, n: int) -> Data:
    """Return the inputs of the decisions of an event, and their arms."""
    k, m, q = template.k, template.m, template.q
    contexts = _matrix("contexts", event.contexts, n, (m,)) if event.contexts else np.empty((0, m))
    widths = (q, k * q) if template.policy.capabilities.takes_arm_features else (q,)
    features = _matrix("features", event.features, n, widths) if q else np.empty((n, 0))
    closed = _matrix("closed", event.closed, n, (k,)) if event.closed else np.empty((0, k))
    arms = _numbers("arms", event.arms, _ARM, n).astype(np.int64)
    if len(arms) and not 0 <= arms.min() <= arms.max() < k:
        raise InvalidInputError(f"arms: expected numbers from 0 to {k - 1}")
    arms.setflags(write=False)
    return Data(checks.readonly(contexts), checks.readonly(features), checks.readonly(closed), arms)


def rewards_in(event: ManyRewarded, keys: Keys) -> tuple[Found, FloatArray]:
    """Return the decisions of an event, and their rewards."""
    n = len(keys)
    rounds, rewards = _numbers("rounds", event.rounds, np.int64, n), _numbers("rewards", event.rewards, np.float64, n)
    checks.array("rewards", rewards, (n,))
    return Found(keys, rounds, np.full(n, -1)), checks.readonly(rewards)


def contexts_in(event: ManyObserved, template: Template, n: int) -> FloatArray:
    """Return the contexts of an event."""
    return checks.readonly(_matrix("contexts", event.contexts, n, (template.m,)))


def _numbers(name: str, content: bytes, kind: Any, count: int | None = None) -> npt.NDArray[Any]:
    """Return a column as a new array."""
    size, rest = divmod(len(content), np.dtype(kind).itemsize)
    if rest or size != (size if count is None else count):
        raise InvalidInputError(f"{name}: expected {count} numbers, got {len(content)} bytes")
    return np.frombuffer(content, dtype=kind).copy()


def _matrix(name: str, content: bytes, n: int, widths: tuple[int, ...]) -> FloatArray:
    """Return a table of numbers, one row for each key, of one of some widths."""
    width = len(content) // (8 * max(n, 1))
    if width not in widths:
        raise InvalidInputError(f"{name}: expected {' or '.join(map(str, widths))} numbers for each key, got {width}")
    return _numbers(name, content, np.float64, math.prod((n, width))).reshape(n, width)
