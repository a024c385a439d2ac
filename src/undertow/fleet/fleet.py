"""One bandit per key: a policy as the template, and the states of all keys stacked."""

import os
import secrets
import threading
from collections.abc import Iterable, Iterator
from types import EllipsisType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from undertow import _checks
from undertow.errors import InvalidInputError, OutOfTurnError
from undertow.fleet.bucket import Outcome
from undertow.fleet.data import checked_data
from undertow.fleet.decisions import Decisions, id_of
from undertow.fleet.export import exported, require_same, waiting_in
from undertow.fleet.files import FORMAT, VERSION, fill_buckets, policy_of, written
from undertow.fleet.found import Ids, found_in
from undertow.fleet.keys import Integers, Keys, decoded, encoded
from undertow.fleet.stack import Stack
from undertow.fleet.template import Template
from undertow.live import Decision, LivePolicy
from undertow.live.arms import open_arms
from undertow.live.files import archived, read_archive, unarchived, write_archive
from undertow.live.saved import DAMAGE

__all__ = ["Fleet"]

_BUCKETS = 8


class Fleet:
    """Many bandits of one kind, one for each key, whose states are the rows of a few matrices.

    A key is a string or an integer, and its bandit begins with its first decision. Each does what the policy would do
    by itself. A decision is named by fleet, key and round of the key, so that nothing else has to be stored with it.

    Parameters
    ----------
    policy
        What each key begins with: a policy that fits no model, such as LinUCB, UCB or LevelsKalman. Random choices are
        drawn from one stream for each bucket.
    buckets
        Into how many groups keys are split by their hash (`bucket_of`); each is one matrix.
    threads
        How many buckets are worked on at once.

    Examples
    --------
    >>> import undertow
    >>> from undertow.fleet import Fleet
    >>> fleet = Fleet(undertow.LinUCB(arms=["low", "high"], feature_dim=1))
    >>> decisions = fleet.decide_many(["shop 1", "shop 2"], [[0.5], [1.0]])
    >>> fleet.learn_many(decisions, [1.0, 0.3])
    array([ True,  True])
    >>> fleet.decide("shop 1", [0.2]).round
    1
    >>> fleet["shop 2"]
    LinUCB(arms=['low', 'high'], feature_dim=1)
    """

    def __init__(self, policy: LivePolicy, *, buckets: int = _BUCKETS, threads: int = 1) -> None:
        self._template = Template(policy)
        self._stack = Stack(self._template, buckets, threads)
        self._whole: bool | None = None  # whether keys are integers; None as long as there are none
        self._lives: list[str] = []  # prefixes of ids that waiting decisions may have, the present one last
        self._begin()

    def _begin(self) -> None:
        """Begin what a process has of its own: a lock, and the prefix of new ids."""
        self._lock, self._pid = threading.RLock(), os.getpid()
        self._lives.append(secrets.token_hex(8))

    def __reduce__(self) -> Any:
        return _again, (type(self), self.to_bytes(), self._stack.threads)

    # What it is

    @property
    def policy(self) -> LivePolicy:
        """The policy that every key begins with; a copy, which is unused."""
        policy: LivePolicy = self._template.policy.for_run(0)
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
    def pending(self) -> int:
        """Number of decisions that wait for their reward."""
        with self._lock:
            return sum(bucket.pending for bucket in self._stack.buckets)

    @property
    def nbytes(self) -> int:
        """Bytes of states, keys and waiting decisions."""
        with self._lock:
            return sum(bucket.nbytes for bucket in self._stack.buckets)

    def __len__(self) -> int:
        with self._lock:
            return len(self._stack)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self._template.describe()}, buckets={len(self._stack.buckets)}, {len(self)} keys)"
        )

    # Keys

    def keys(self) -> npt.NDArray[Any]:
        """Return all keys, bucket by bucket, in the order in which they appeared."""
        with self._lock:
            parts = [decoded(bucket.keys.keys) for bucket in self._stack.buckets if bucket.count]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.str_)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys().tolist())

    def __contains__(self, key: object) -> bool:
        return bool(self.rounds([key])[0] >= 0)

    def rounds(self, keys: Any) -> Integers:
        """Return how many rounds keys have begun; −1 for one that was never seen."""
        given = self._encoded(keys, new=False)
        result = np.full(len(given), -1, dtype=np.int64)
        with self._lock:
            for number, rows in self._stack.split(given):
                bucket = self._stack.buckets[number]
                slots = bucket.find(given, rows)
                known = slots >= 0
                result[rows[known]] = bucket.rounds(slots[known])
        return result

    def expire(self, keys: Any) -> int:
        """Forget keys and their waiting decisions; return how many were there.

        A key that comes again begins anew, from round 0. A reward of its earlier life could then be taken for that of a
        new decision, so expire keys whose rewards can come no more.
        """
        given = self._encoded(keys, new=False)
        with self._lock:
            before = len(self)
            for number, rows in self._stack.split(given):
                bucket = self._stack.buckets[number]
                slots = bucket.find(given, rows)
                kept = np.ones(bucket.count, dtype=np.bool_)
                kept[slots[slots >= 0]] = False
                bucket.keep(kept)
            if not len(self):
                self._whole = None
            return before - len(self)

    def __getitem__(self, key: str | int) -> LivePolicy:
        """Return the bandit of a key as an ordinary policy: a copy, whose waiting decisions have the ids of the fleet.

        Put it back with `fleet[key] = policy`.
        """
        given = self._encoded([key], new=False)
        with self._lock:
            _, bucket, slot = self._stack.one(given)
            if slot < 0:
                raise InvalidInputError(f"key: this fleet has no key {key!r:.80}")
            waiting = bucket.waiting_of(np.array([slot]))
            pairs = zip(waiting.lives.tolist(), waiting.rounds.tolist(), strict=True)
            ids = [id_of(self._lives[life], t, key) for life, t in pairs]
            stream = int(given.hashes[0] >> np.uint64(1))
            state, observes = bucket.states[slot], bucket.due(slot)
            return exported(self._template, stream, state, waiting, ids, observes=observes)

    def __setitem__(self, key: str | int, policy: LivePolicy) -> None:
        """Have the bandit of a key be this policy, which has to be the fleet's but for seed and random choices so far.

        Its waiting decisions wait here, named by their rounds.
        """
        require_same(self._template.policy, policy)
        given = self._encoded([key], new=True)
        policy.settle()
        with self._lock:
            _, bucket, _ = self._stack.one(given)
            (slot,) = bucket.add(given, np.array([0])).tolist()
            self._whole = given.whole
            player, _, _, turns, *_ = policy.parts
            waiting = waiting_in(policy, slot, len(self._lives) - 1)
            bucket.put(slot, player.state, turns.due == "observe", waiting)

    # Save files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to continue bit for bit; `Fleet.load` reads it."""
        with self._lock:
            write_archive(path, *self._snapshot())

    def to_bytes(self) -> bytes:
        """Return what `save` would write."""
        with self._lock:
            return archived(*self._snapshot())

    def _snapshot(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        header, arrays = written(self._template, self._stack.buckets, self._lives)
        return header | {"kind": type(self).__name__}, arrays

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, threads: int = 1) -> Self:
        """Read a fleet that `save` wrote; it continues bit for bit, with a new prefix in the ids of its decisions.

        Examples
        --------
        >>> import tempfile, undertow
        >>> from undertow.fleet import Fleet
        >>> fleet = Fleet(undertow.UCB(arms=3))
        >>> first = fleet.decide_many(["a", "b"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fleet.save(f"{folder}/shops.undertow")
        ...     again = Fleet.load(f"{folder}/shops.undertow")
        >>> again.learn_many(first, [1.0, 0.0])
        array([ True,  True])
        """
        name: Any = os.fspath(path)
        return cls._restored(name, *read_archive(name), threads)

    @classmethod
    def from_bytes(cls, content: bytes, *, threads: int = 1) -> Self:
        """Read a fleet from what `to_bytes` returned."""
        return cls._restored("content", *unarchived(content), threads)

    @classmethod
    def _restored(cls, name: Any, header: dict[str, Any], arrays: dict[str, Any], threads: int) -> Self:
        form, version = header.get("format"), header.get("version")
        if (form, version) != (FORMAT, VERSION):
            raise InvalidInputError(
                f"{name}: expected {FORMAT} version {VERSION}, got {form!r:.60} version {version!r:.60}"
            )
        if header.get("kind") != cls.__name__:
            raise InvalidInputError(f"{name}: holds a {header.get('kind')!r:.60}; read it with the load of that class")
        try:
            fleet = cls._made(header, policy_of(header, arrays), threads)
            fleet.fill(header, arrays)
        except InvalidInputError as error:
            raise InvalidInputError(f"{name}: damaged ({error})") from error
        except DAMAGE as error:
            raise InvalidInputError(f"{name}: damaged ({type(error).__name__}: {error!s:.200})") from error
        return fleet

    @classmethod
    def _made(cls, header: dict[str, Any], policy: LivePolicy, threads: int) -> Self:
        return cls(policy, buckets=_checks.integer("buckets", header["buckets"], least=1), threads=threads)

    def fill(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Have an unused fleet be as a save file says."""
        self._lives = [*fill_buckets(self._stack.buckets, header, arrays), *self._lives]
        self._whole = header["integers"] if len(self) else None

    # Calls for one key

    def decide(
        self,
        key: str | int,
        features: npt.ArrayLike | None = None,
        *,
        context: npt.ArrayLike | EllipsisType | None = ...,
        available: Iterable[str | int] | None = None,
    ) -> Decision:
        """Choose an arm for a key's next round, as a policy's `decide` does; its id names fleet, round and key."""
        template = self._template
        rows = None if features is None else _checks.numbers("features", features)[None]
        marks = None
        if available is not None:
            marks = open_arms(available, template.common(template.fresh).closed > 0, self.names)[None] == 0
        if context is ...:
            contexts = None
        else:
            contexts = _checks.measured(
                "context", np.full(template.m, np.nan) if context is None else context, (template.m,), missing=True
            )[None]
        with self._lock:
            decisions = self.decide_many([key], rows, contexts=contexts, available=marks)
            decision = decisions.decision(0)
            if template.draws_arms:
                _, bucket, slot = self._stack.one(decisions.encoded)
                decision = decision._replace(propensity=bucket.policy.chance_of(bucket.states[slot], decision.arm))
        return decision

    def learn(self, decision: Decision | str, reward: float) -> None:
        """Learn the reward of an earlier decision, given as the decision or as its id."""
        self.learn_many([decision], [_checks.reward(reward)])

    def observe(self, key: str | int, context: npt.ArrayLike | None) -> None:
        """Take in the context of a key's round, (m,); NaN where an entry is missing, None where all are."""
        m = self._template.m
        row = np.full(m, np.nan) if context is None else context
        self.observe_many([key], _checks.measured("context", row, (m,), missing=True)[None])

    # Calls for many keys

    def decide_many(
        self,
        keys: Any,
        features: npt.ArrayLike | None = None,
        *,
        contexts: npt.ArrayLike | None = None,
        available: npt.ArrayLike | None = None,
    ) -> Decisions:
        """Choose an arm for the next round of each key; a key that comes twice has two rounds, in this order.

        All are decided or, if one is refused, none.

        Parameters
        ----------
        keys
            A list or column of strings, or of integers.
        features
            One row for each key, (n, q), or rows for each arm, (n, k, q).
        contexts
            For policies with `context_first=True`: one row for each key, (n, m), NaN where an entry is missing. By
            default, `observe_many` comes before.
        available
            Which arms can be played, (n, k) or (k,) for all keys; all by default.
        """
        given = self._encoded(keys, new=True)
        data = checked_data(self._template, len(given), features, contexts, available)
        with self._lock:
            self._renew_after_fork()
            life = len(self._lives) - 1
            outcome = self._stack.decide(given, data, life, observed=contexts is not None)
            self._whole = given.whole if len(given) else self._whole
            return Decisions(self._lives[life], given, self.names, self._outward(outcome))

    def learn_many(
        self, decisions: Ids, rewards: npt.ArrayLike, *, missing: Literal["refuse", "skip"] = "refuse"
    ) -> npt.NDArray[np.bool_]:
        """Learn the rewards of earlier decisions, in this order; return which were learned.

        Parameters
        ----------
        decisions
            What `decide_many` returned, or some of it (`take`); a list of decisions or ids; or columns (keys, rounds).
        rewards
            One for each.
        missing
            Whether a decision that does not wait for a reward is refused, and with it all others, or skipped. A fleet
            does not remember which rewards it has learned, so a stream that delivers some of them twice needs "skip".
        """
        _checks.choice("missing", missing, ("refuse", "skip"))
        found = found_in(decisions, self._lives, whole=bool(self._whole))
        values = _checks.measured("rewards", rewards, (len(found.keys),))
        units = self._template.units
        inward = _checks.readonly(np.asarray(values if units is None else units.rewards(values)))
        with self._lock:
            return self._stack.learn(found, inward, refuse=missing == "refuse")

    def observe_many(self, keys: Any, contexts: npt.ArrayLike) -> None:
        """Take in the context of each key's round, (n, m): NaN where an entry is missing. All or, if refused, none."""
        given, m = self._encoded(keys, new=True), self._template.m
        if not m:
            raise OutOfTurnError("observe: this fleet was built without contexts; give context_dim at construction")
        rows = _checks.measured("contexts", contexts, (len(given), m), missing=True)
        inward = _checks.readonly(self._template.inward(rows, 0))
        with self._lock:
            self._stack.observe(given, inward)
            self._whole = given.whole if len(given) else self._whole

    # How calls are checked

    def _encoded(self, keys: Any, *, new: bool) -> Keys:
        """Return keys as bytes; the keys of a fleet are all of one type."""
        given = keys.encoded if isinstance(keys, Decisions) else encoded(keys)
        if new and len(given) and self._whole is not None and given.whole != self._whole:
            kind, other = ("integers", "strings") if self._whole else ("strings", "integers")
            raise InvalidInputError(f"keys: the keys of this fleet are {kind}, got {other}; keep to one type")
        return given

    def _outward(self, outcome: Outcome) -> Outcome:
        if self._template.draws_arms:
            outcome.chances[:] = np.nan
        if self._template.units is None:
            return outcome
        forecasts, widths = self._template.units.outward(outcome.forecasts, outcome.widths)
        return outcome._replace(forecasts=forecasts, widths=widths)

    def _renew_after_fork(self) -> None:
        """Have a process that was forked name its decisions, and draw, for itself."""
        if self._pid != os.getpid():
            self._begin()
            self._stack.renew()


def _again(kind: type[Fleet], content: bytes, threads: int) -> Fleet:
    """Return a copy, in this process or another one."""
    return kind.from_bytes(content, threads=threads)
