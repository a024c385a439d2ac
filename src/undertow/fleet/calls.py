"""The calls of a fleet: their checks and answers."""

import abc
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from types import EllipsisType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError, OutOfTurnError
from undertow.fleet.bucket import Data
from undertow.fleet.data import checked_data
from undertow.fleet.decisions import Decisions, id_of, prefix_of
from undertow.fleet.export import exported, require_same
from undertow.fleet.files import written
from undertow.fleet.found import Found, Ids, found_in
from undertow.fleet.keys import Integers, Keys, decoded, encoded
from undertow.fleet.stack import Stack
from undertow.fleet.template import Template
from undertow.live import Decision, LivePolicy
from undertow.live.arms import open_arms
from undertow.live.files import archived
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["Calls"]


class Calls(abc.ABC):
    """A fleet without its storage: in memory it is a `Fleet`, in a store a `DurableFleet`."""

    def __init__(self, policy: LivePolicy, buckets: int, threads: int) -> None:
        self._template = Template(policy)
        self._stack = Stack(self._template, buckets, threads)
        self._whole: bool | None = None  # whether keys are integers; None without keys

    @abc.abstractmethod
    def _inside(self, keys: Keys | None = None, *, new: bool = False) -> AbstractContextManager[int]:
        """Lock the buckets of some keys, or all; yield the life of the decisions made there.

        With `new`, there may be unknown keys.
        """

    def _are_integers(self) -> bool | None:
        """Return whether keys are integers; None without keys."""
        return self._whole

    # Properties

    @property
    def policy(self) -> LivePolicy:
        """A new copy of the initial policy."""
        policy: LivePolicy = self._template.policy.parts.for_run(0)
        return policy

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arms."""
        names: tuple[str, ...] = self._template.policy.names
        return names

    @property
    def buckets(self) -> int:
        """Number of buckets."""
        return len(self._stack.buckets)

    @property
    def threads(self) -> int:
        """Number of buckets processed concurrently."""
        return self._stack.threads

    @property
    def pending(self) -> int:
        """Number of pending decisions."""
        with self._inside():
            return sum(bucket.pending for bucket in self._stack.buckets)

    @property
    def nbytes(self) -> int:
        """Bytes of states, keys and pending decisions."""
        with self._inside():
            return sum(bucket.nbytes for bucket in self._stack.buckets)

    def __len__(self) -> int:
        with self._inside():
            return len(self._stack)

    @property
    def parts(self) -> Stack:
        """The states, for storage."""
        return self._stack

    # Keys

    def keys(self) -> npt.NDArray[Any]:
        """Return all keys, bucket by bucket, in the order in which they appeared."""
        with self._inside():
            parts = [decoded(bucket.keys.keys) for bucket in self._stack.buckets if bucket.count]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.str_)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys().tolist())

    def __contains__(self, key: object) -> bool:
        return bool(self.rounds([key])[0] >= 0)

    def rounds(self, keys: Any) -> Integers:
        """Return the numbers of rounds of keys; −1 for unknown ones."""
        given = self._encoded(keys, new=False)
        result = np.full(len(given), -1, dtype=np.int64)
        with self._inside(given):
            for number, rows in self._stack.split(given):
                bucket = self._stack.buckets[number]
                slots = bucket.find(given, rows)
                known = slots >= 0
                result[rows[known]] = bucket.rounds(slots[known])
        return result

    def expire(self, keys: Any) -> int:
        """Drop keys and their pending decisions; return how many existed.

        A key that returns starts again from round 0. A late reward from before could then be taken for that of a new
        decision, so expire only keys without rewards to come.
        """
        given = self._encoded(keys, new=False)
        with self._inside(given):
            gone = self._stack.expire(given)
            self._whole = self._whole if len(self._stack) else None
            return gone

    def __getitem__(self, key: str | int) -> LivePolicy:
        """Return the bandit of a key as an ordinary policy: a copy, whose pending decisions have the ids of the fleet.

        Put it back with `fleet[key] = policy`.
        """
        given = self._encoded([key], new=False)
        with self._inside(given):
            _, bucket, slot = self._stack.one(given)
            if slot < 0:
                raise InvalidInputError(f"key: this fleet has no key {key!r:.80}")
            waiting = bucket.waiting_of(np.array([slot]))
            pairs = zip(waiting.lives.tolist(), waiting.rounds.tolist(), strict=True)
            ids = [id_of(prefix_of(life), t, key) for life, t in pairs]
            stream = int(given.hashes[0] >> np.uint64(1))
            state, observes = bucket.states[slot], bucket.due(slot)
            return exported(self._template, stream, state, waiting, ids, observes=observes)

    def __setitem__(self, key: str | int, policy: LivePolicy) -> None:
        """Set the bandit of a key to this policy, which must be the fleet's but for seed and random choices so far.

        Its pending decisions are pending here, under the ids of their rounds.
        """
        require_same(self._template.policy, policy)
        given = self._encoded([key], new=True)
        with self._inside(given, new=True) as life:
            self._stack.place(given, policy, life)
            self._whole = given.whole

    def to_bytes(self) -> bytes:
        """Return the input of `Fleet.from_bytes`."""
        with self._inside():
            return archived(*self._snapshot())

    def _snapshot(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        return written(self._template, self._stack.buckets)

    # Calls for one key

    def decide(
        self,
        key: str | int,
        features: "npt.ArrayLike | None" = None,
        *,
        context: "npt.ArrayLike | EllipsisType | None" = ...,
        available: Iterable[str | int] | None = None,
    ) -> Decision:
        """Choose an arm for a key's next round, as a policy's `decide` does; its id names fleet, round and key."""
        return self._decide_one(key, features, context, available)

    def _decide_one(self, key: Any, features: Any, context: Any, available: Any, **how: Any) -> Decision:
        template = self._template
        rows = None if features is None else checks.numbers("features", features)[None]
        marks = contexts = None
        if available is not None:
            marks = open_arms(available, template.common(template.fresh).closed > 0, self.names)[None] == 0
        if context is not ...:
            row = np.full(template.m, np.nan) if context is None else context
            contexts = checks.measured("context", row, (template.m,), missing=True)[None]
        given = self._encoded([key], new=True)
        data = checked_data(template, 1, rows, contexts, marks)
        return self._decide(given, data, observed=contexts is not None, exact=True, **how).decision(0)

    def learn(self, decision: Decision | str, reward: float) -> None:
        """Learn the reward of an earlier decision, given as the decision or as its id."""
        self.learn_many([decision], [checks.reward(reward)])

    def observe(self, key: str | int, context: "npt.ArrayLike | None") -> None:
        """Observe the context of a key's round, (m,); NaN if an entry is missing, None if all are."""
        m = self._template.m
        row = np.full(m, np.nan) if context is None else context
        self.observe_many([key], checks.measured("context", row, (m,), missing=True)[None])

    # Calls for many keys

    def decide_many(
        self,
        keys: Any,
        features: "npt.ArrayLike | None" = None,
        *,
        contexts: "npt.ArrayLike | None" = None,
        available: "npt.ArrayLike | None" = None,
    ) -> Decisions:
        """Choose an arm for the next round of each key; a repeated key has several rounds, in this order.

        All are decided or, if one is refused, none.

        Parameters
        ----------
        keys
            A list or column of strings, or of integers.
        features
            One row for each key, (n, q), or rows for each arm, (n, k, q).
        contexts
            For policies with `context_first=True`: one row for each key, (n, m), NaN if missing. By default,
            `observe_many` comes before.
        available
            Which arms can be played, (n, k) or (k,) for all keys; all by default.
        """
        given = self._encoded(keys, new=True)
        data = checked_data(self._template, len(given), features, contexts, available)
        return self._decide(given, data, observed=contexts is not None)

    def _decide(self, given: Keys, data: Data, *, observed: bool, exact: bool = False) -> Decisions:
        """Decide rounds; with `exact`, a single one, whose probability is computed for any policy."""
        with self._inside(given, new=True) as life:
            return self._decided(given, data, life, observed=observed, exact=exact)

    def _decided(self, given: Keys, data: Data, life: int, *, observed: bool, exact: bool) -> Decisions:
        outcome = self._stack.decide(given, data, life, observed=observed, exact=exact and len(given) == 1)
        self._whole = given.whole if len(given) else self._whole
        if self._template.units is not None:
            forecasts, widths = self._template.units.outward(outcome.forecasts, outcome.widths)
            outcome = outcome._replace(forecasts=forecasts, widths=widths)
        return Decisions(prefix_of(life), given, self.names, outcome)

    def learn_many(
        self, decisions: Ids, rewards: "npt.ArrayLike", *, missing: Literal["refuse", "skip"] = "refuse"
    ) -> npt.NDArray[np.bool_]:
        """Learn the rewards of earlier decisions, in this order; return which were learned.

        Parameters
        ----------
        decisions
            The output of `decide_many`, or a part of it (`take`); a list of decisions or ids; or columns (keys,
            rounds).
        rewards
            One for each.
        missing
            Whether a decision that is not pending is refused, and with it all others, or skipped. A fleet
            does not remember which rewards it has learned, so a stream with repeated rewards needs "skip".
        """
        checks.choice("missing", missing, ("refuse", "skip"))
        found = found_in(decisions, whole=bool(self._are_integers()))
        values = checks.measured("rewards", rewards, (len(found.keys),))
        return self._learn(found, values, refuse=missing == "refuse")

    def _learn(self, found: Found, rewards: FloatArray, *, refuse: bool) -> npt.NDArray[np.bool_]:
        with self._inside(found.keys):
            return self._stack.learn(found, self._inward(rewards), refuse=refuse)

    def _inward(self, rewards: FloatArray) -> FloatArray:
        """Return rewards in the policy's units."""
        units = self._template.units
        return checks.readonly(np.asarray(rewards if units is None else units.rewards(rewards)))

    def observe_many(self, keys: Any, contexts: "npt.ArrayLike") -> None:
        """Observe the context of each key's round, (n, m): NaN if missing. All or, if refused, none."""
        given, m = self._encoded(keys, new=True), self._template.m
        if not m:
            raise OutOfTurnError("observe: this fleet was built without contexts; give context_dim at construction")
        rows = checks.measured("contexts", contexts, (len(given), m), missing=True)
        inward = checks.readonly(self._template.inward(rows, 0))
        with self._inside(given, new=True):
            self._stack.observe(given, inward)
            self._whole = given.whole if len(given) else self._whole

    # Checks of calls

    def _encoded(self, keys: Any, *, new: bool) -> Keys:
        """Return keys as bytes; the keys of a fleet are all of one type."""
        given = keys.encoded if isinstance(keys, Decisions) else encoded(keys)
        if new and len(given):
            self._require_kind(whole=given.whole)
        return given

    def _require_kind(self, *, whole: bool) -> None:
        if self._are_integers() is not None and whole != self._are_integers():
            kind, other = ("strings", "integers") if whole else ("integers", "strings")
            raise InvalidInputError(f"keys: the keys of this fleet are {kind}, got {other}; keep to one type")
