"""Open a bandit: the first process creates it, and every other one finds it."""

import copy
import json
import logging
import os
import time
from typing import Any, overload

from undertow.compiled.cache import alone, is_incomplete
from undertow.errors import InvalidInputError
from undertow.fleet import Fleet, FleetKalman
from undertow.live import LivePolicy, registry
from undertow.live.events import encode
from undertow.live.files import from_bytes
from undertow.live.rehearsal import rehearse
from undertow.store.address import store_at
from undertow.store.answers import answers_of
from undertow.store.base import Answer, Locked, Row, Store
from undertow.store.checkpoints import newest_policy, spec_of
from undertow.store.durable import DurablePolicy
from undertow.store.fleets import FLEET, DurableFleet, fleet_spec, named_keys
from undertow.store.past import events_of_past
from undertow.support import checks
from undertow.support.renamed import with_new_names

__all__ = ["open"]

_LOG = logging.getLogger("undertow.store")
_LONGEST = 100  # characters of a name


@overload
def open(url: str | Store, name: str, policy: Fleet, *, timeout: float = 5.0) -> DurableFleet: ...


@overload
def open(
    url: str | Store,
    name: str,
    policy: LivePolicy | None = None,
    *,
    warm_start: str | None = None,
    timeout: float = 5.0,
) -> DurablePolicy: ...


def open(
    url: str | Store,
    name: str,
    policy: LivePolicy | Fleet | None = None,
    *,
    warm_start: str | None = None,
    timeout: float = 5.0,
) -> DurablePolicy | DurableFleet:
    """Open a bandit or a fleet in a store, and create it if there is none of this name.

    Parameters
    ----------
    url
        sqlite:///file.db, sqlite:////absolute/file.db, or postgresql://user:password@host/database.
    name
        The name of the bandit in the store.
    policy
        Its initial policy; optional for an existing bandit. If it exists, the policy must be the same but for arms and
        their costs: new arms are added with their cost, arms that it does not name stay until `retire_arm`, and costs
        stay until `set_costs`. A `Fleet` has to be the same in everything.
    warm_start
        Another bandit of the store, from whose log the policy learns if this call creates the bandit. Models are fitted
        to it before any call of the bandit.
    timeout
        Seconds that a call waits for others before it raises `StoreBusyError`.

    Examples
    --------
    >>> import tempfile, undertow
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     policy = undertow.open(f"sqlite:///{folder}/shop.db", "courier", undertow.UCB(arms=["bike", "van"]))
    ...     decision = policy.decide(id="order 1207")
    ...     again = undertow.open(f"sqlite:///{folder}/shop.db", "courier")  # in another process, days later
    ...     again.learn("order 1207", 0.7)
    ...     policy.pending
    0
    """
    store = url if isinstance(url, Store) else store_at(url)
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST or not name.isprintable():
        raise InvalidInputError(f"name: expected a printable string of 1 to {_LONGEST} characters, got {name!r:.80}")
    wait = checks.number("timeout", timeout, above=0)
    if policy is not None and not isinstance(policy, LivePolicy | Fleet):
        raise InvalidInputError(f"policy: expected a policy of undertow, or a Fleet, got {policy!r:.60}")
    if isinstance(policy, FleetKalman):
        raise InvalidInputError(
            "policy: the fits of a FleetKalman are of all its keys, and no bucket has these alone; open a Fleet, or "
            "save the FleetKalman"
        )
    known = store.spec(name)
    if known is None:
        if policy is None:
            there = ", ".join(map(repr, store.names()[:10])) or "none"
            raise InvalidInputError(f"name: there is no bandit {name!r}; there is {there}. Pass a policy to create it")
        _create(store, name, policy, warm_start, wait)
        known = store.spec(name) or b""  # another process may have been faster
    stored = json.loads(known)
    if policy is not None:
        _require_same(name, stored, json.loads(_spec_of(policy)))
    if stored["policy"] == FLEET:
        return DurableFleet(store, name, wait, policy.threads if isinstance(policy, Fleet) else 1)
    assert not isinstance(policy, Fleet)  # which was refused as another policy
    if stored["policy"] not in registry():
        raise InvalidInputError(
            f"name: bandit {name!r} is a policy called {stored['policy']!r:.60}, which is not registered here; import "
            f"the module that registers it first"
        )
    if is_incomplete(registry()[stored["policy"]].policy.__module__):
        _load_kernels(store, name, policy, wait)
    opened = DurablePolicy(store, name, wait)
    with opened.transaction():  # read it now, not in the first call
        if policy is not None:
            _add_arms(opened, name, policy)
    return opened


def _spec_of(policy: LivePolicy | Fleet) -> bytes:
    return fleet_spec(policy) if isinstance(policy, Fleet) else spec_of(policy)


def _create(store: Store, name: str, policy: LivePolicy | Fleet, warm_start: str | None, timeout: float) -> None:
    """Create a bandit, with the ids that its policy remembers and the events of learning from another one's log."""
    spec, content, rows, answers = _spec_of(policy), policy.to_bytes(), list[Row](), list[Answer]()
    if isinstance(policy, LivePolicy) and not policy.parts.unused:
        answers = answers_of(from_bytes(content))  # as of this checkpoint, whatever other threads do to the policy
    if isinstance(policy, Fleet):
        if warm_start is not None:
            raise InvalidInputError("warm_start: a fleet learns from no other log; leave it out")
        rows = named_keys(policy)
    elif warm_start is not None:
        now, events = time.time(), events_of_past(store, warm_start, copy.deepcopy(policy), timeout=timeout)
        rows = [Row(n, os.urandom(8), now, encode(event)) for n, event in enumerate(events, 1)]
        _LOG.info("%s: starts from the log of %s", name, warm_start)

    def begin(locked: Locked) -> None:
        locked.append(rows)
        locked.keep_answers(answers)

    store.create(name, spec, content, begin)


def _load_kernels(store: Store, name: str, policy: LivePolicy | None, timeout: float) -> None:
    """Compile missing kernels before any call, which would hold the bandit's lock meanwhile; one process at a time."""
    if policy is None:
        with store.lock(name, timeout) as locked:
            _, policy = newest_policy(store, name, locked)
    if not policy.capabilities.simulates_only:
        with alone(type(policy).__module__):
            rehearsed = policy.parts.for_run(0)
            rehearsed.parts.compile_here()  # another process would wait for this one
            rehearse(rehearsed)


def _require_same(name: str, stored: dict[str, Any], given: dict[str, Any]) -> None:
    """Refuse a policy that differs from the one that created the bandit."""
    learned = f"with warm_start={name!r} to learn from this one's log first, " * (stored["policy"] != FLEET)
    remedy = f"open it under another name, {learned}or without a policy to continue unchanged"
    if stored["policy"] != given["policy"]:
        raise InvalidInputError(f"policy: bandit {name!r} is {stored['policy']}, not {given['policy']}; {remedy}")
    before, now = with_new_names(stored["parameters"]), given["parameters"]
    for key in sorted(before.keys() | now.keys(), key=lambda each: (each != "template", each)):
        if before.get(key) != now.get(key):
            raise InvalidInputError(
                f"{key}: bandit {name!r} was created with {before.get(key)!r:.60}, not {now.get(key)!r:.60}; {remedy}"
            )


def _add_arms(opened: DurablePolicy, name: str, policy: LivePolicy) -> None:
    """Add the arms that only the code has, with their costs; log the arms that only the store has."""
    there, retired, wanted = opened.names, set(opened.retired), policy.names
    for arm in wanted:
        if arm not in there:
            opened.add_arm(arm)
            opened.set_costs({arm: policy.costs[arm]})
            _LOG.info("%s: arm %r is new, and was added", name, arm)
    if left := [arm for arm in there if arm not in wanted and arm not in retired]:
        _LOG.info("%s: the code no longer names %s; retire_arm stops playing an arm", name, ", ".join(map(repr, left)))
