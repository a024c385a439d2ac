"""Complete buckets, for engines on many machines: a pure function of columns.

An engine groups events by `bucket_of` their keys, passes each group to `play` with the state of its bucket, and stores
the results. A bucket's decisions depend on its state and its events alone, whichever engine plays them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError, UnknownDecisionError
from undertow.fleet.bucket import Bucket, Data, Outcome
from undertow.fleet.export import require_same
from undertow.fleet.files import FORMAT, VERSION, fill_buckets, policy_of, written
from undertow.fleet.keys import Keys, bucket_numbers, decoded, encoded
from undertow.fleet.template import Template
from undertow.live import LivePolicy
from undertow.live.files import archived, unarchived
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["play"]

_BUCKETS = 64
Columns = dict[str, npt.NDArray[Any]]


def play(
    template: LivePolicy,
    states: Any,
    events: Any,
    *,
    buckets: int = _BUCKETS,
    missing: Literal["refuse", "skip"] = "refuse",
) -> tuple[Columns, Columns]:
    """Play the events of complete buckets, in the order of their rows.

    Tables may be dictionaries of columns, Arrow tables, or frames of pandas or polars. The arguments do not change.

    Parameters
    ----------
    template
        The initial policy of each key, one that `Fleet` accepts; with a seed, if it is random.
    states
        The buckets so far: columns "bucket" and "state". None for none; a missing bucket is empty.
    events
        A row for each event, with its "key". A row with a "reward" is that of the decision of a "round" of the key. Any
        other row is a decision, with features in columns `feature_…` and its context in `context_…`.
        If there are columns "reward_<arm>" for all arms, a decision learns its arm's reward immediately.
    buckets
        Number of all buckets. It must stay the same.
    missing
        Whether rewards of decisions that are not pending are refused, or skipped.

    Returns
    -------
    tuple
        Columns "bucket" and "state" of all buckets that were given or played; and for each decision "key", "round",
        "arm" and "propensity", in the order of the events.

    Examples
    --------
    >>> import undertow
    >>> template = undertow.UCB(arms=["low", "high"])
    >>> states, first = play(template, None, {"key": ["a", "b", "a"]})
    >>> rewards = {"key": ["a", "b"], "round": [0, 0], "reward": [0.3, 0.9]}
    >>> states, _ = play(template, states, rewards)
    >>> first["round"].tolist()
    [0, 0, 1]
    """
    known, policy = Template(template), template
    checks.choice("missing", missing, ("refuse", "skip"))
    count = checks.integer("buckets", buckets, least=1)
    if known.draws and not policy.parts.streams.seeded:
        raise InvalidInputError("template: a random policy needs a seed, so that all processes agree; pass rng")
    table = _table("events", events)
    keys, given = _events(known, table)
    before = _states(states, count)
    order, loop = _by_bucket(keys, count), known.address()
    for number, rows in order.items():
        bucket = _bucket(known, number, before.get(number))
        refused = bucket.play(loop, rows, bucket.add(keys, rows), *given[:3], full=given.full)
        if refused < len(rows) and missing == "refuse":
            row = int(rows[refused])
            raise UnknownDecisionError(
                f"events: row {row}: round {given.outcome.rounds[row]} of key {decoded(keys)[row].item()!r} is not "
                f"pending; pass missing='skip' to skip such rewards"
            )
        before[number] = archived(*written(known, [bucket]))
    after = {"bucket": np.array(sorted(before), dtype=np.int64), "state": np.empty(len(before), dtype=object)}
    after["state"][:] = [before[number] for number in sorted(before)]
    decided = np.flatnonzero(given.decides)
    arms, rounds, chances, *_ = given.outcome
    named = {"round": rounds[decided], "arm": arms[decided], "propensity": chances[decided]}
    return after, {"key": decoded(keys, decided)} | named


class _Events(NamedTuple):
    """Events as arrays: data, rewards, room for answers; whether rewards are of every arm; which rows are decisions."""

    data: Data
    rewards: FloatArray
    outcome: Outcome
    full: bool
    decides: npt.NDArray[np.bool_]


def _table(name: str, table: Any) -> Mapping[str, Any]:
    """Return the columns of a table by name, from any library."""
    names = (
        table.keys() if isinstance(table, Mapping) else getattr(table, "column_names", getattr(table, "columns", None))
    )
    if names is None:
        raise InvalidInputError(f"{name}: expected a table with named columns, got {table!r:.60}")
    return {str(column): table[column] for column in names}


def _numbers(name: str, column: Any, count: int) -> FloatArray:
    """Return a column of numbers, NaN if missing."""
    values = column if isinstance(column, np.ma.MaskedArray) else np.asarray(column)
    if values.dtype.kind == "O":  # as DuckDB and Ray return decimals, and numbers with missing ones
        values = np.array([np.nan if value is None else value for value in values])
    return checks.measured(name, values, (count,), missing=True)


def _matrix(names: Sequence[str], table: Mapping[str, Any], width: int, what: str, count: int) -> FloatArray:
    """Return columns as a table of numbers."""
    if len(names) != width:
        raise InvalidInputError(f"events: expected {width} columns {what}, got {', '.join(names) or 'none'}")
    columns = [_numbers(name, table[name], count) for name in names]
    return np.ascontiguousarray(np.array(columns).reshape(width, count).T)


def _events(template: Template, table: Mapping[str, Any]) -> tuple[Keys, _Events]:
    if "key" not in table:
        raise InvalidInputError(f"events: expected a column 'key', got {', '.join(table) or 'none'}")
    keys = encoded(table["key"])
    n, names = len(keys), template.policy.names
    full = [f"reward_{arm}" for arm in names]
    is_full = all(name in table for name in full)
    late = _numbers("reward", table["reward"], n) if "reward" in table else np.full(n, np.nan)
    decides = np.isnan(late)
    rounds = np.full(n, -1, dtype=np.int64)
    if not decides.all():
        if is_full or "round" not in table:
            raise InvalidInputError("events: a reward needs its 'round', and no table of every arm's reward")
        given = _numbers("round", table["round"], n)[~decides]
        if not (given >= 0).all() or (given != np.floor(given)).any():
            raise InvalidInputError("round: expected the round of the decision for every reward, an integer from 0 on")
        rounds[~decides] = given
    rewards = _matrix(full, table, template.k, "reward_<arm>", n) if is_full else late[:, None]
    units = template.units
    rewards = rewards if units is None else units.rewards(rewards)
    sizes = {"feature_": template.q, "context_": template.m}
    features, contexts = (
        _matrix([name for name in table if name.startswith(prefix)], table, size, f"{prefix}…", n)
        if decides.any()
        else np.full((n, size), np.nan)  # a table of rewards needs none
        for prefix, size in sizes.items()
    )
    if np.isnan(features[decides]).any():
        raise InvalidInputError("events: a feature is missing; give every decision all of them")
    seen, known = (
        checks.readonly(np.ascontiguousarray(template.inward(each, first)))
        for each, first in ((contexts, 0), (features, template.m))
    )
    data = Data(seen, known, checks.readonly(np.empty((0, template.k))))
    outcome = Outcome.of(n, template.k)
    outcome.rounds[:] = rounds
    return keys, _Events(data, checks.readonly(np.ascontiguousarray(rewards)), outcome, is_full, decides)


def _states(states: Any, count: int) -> dict[int, bytes]:
    """Return the content of each bucket."""
    if states is None:
        return {}
    table = _table("states", states)
    numbers, contents = np.asarray(table["bucket"]).tolist(), [bytes(content) for content in table["state"]]
    if len(set(numbers)) < len(numbers) or not all(0 <= number < count for number in numbers):
        raise InvalidInputError(
            f"states: expected each bucket once, numbered from 0 to {count - 1}, got {numbers!r:.60}"
        )
    return dict(zip(map(int, numbers), contents, strict=True))


def _by_bucket(keys: Keys, count: int) -> dict[int, npt.NDArray[np.int64]]:
    """Return the rows of each bucket of some keys, in order."""
    numbers = bucket_numbers(keys, count)
    order = np.argsort(numbers, kind="stable")
    first = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    return {int(numbers[rows[0]]): rows for rows in np.split(order, first[1:]) if len(rows)}


def _bucket(template: Template, number: int, content: bytes | None) -> Bucket:
    """Return a bucket from its content."""
    bucket = Bucket(template, number)
    if content is not None:
        header, arrays = unarchived(content)
        if (header.get("format"), header.get("version")) != (FORMAT, VERSION):
            raise InvalidInputError(f"states: bucket {number} is no state of a fleet of this version of undertow")
        require_same(template.policy, policy_of(header, arrays))
        fill_buckets([bucket], header, arrays)
    return bucket
