"""Opening a bandit: it is created by the first process, and every other one finds it."""

import json
import logging
from typing import Any

from undertow import _checks
from undertow.compiled.cache import alone, is_incomplete
from undertow.errors import InvalidInputError
from undertow.live import LivePolicy
from undertow.live.files import snapshot
from undertow.live.rehearsal import rehearse
from undertow.policies import from_bytes
from undertow.store.address import store_at
from undertow.store.base import Store
from undertow.store.durable import DurablePolicy

__all__ = ["open"]

_LOG = logging.getLogger("undertow.store")
_LONGEST = 100  # characters of a name


def open(url: str | Store, name: str, policy: LivePolicy | None = None, *, timeout: float = 5.0) -> DurablePolicy:
    """Open a bandit in a store, and create it if there is none of this name.

    Parameters
    ----------
    url
        sqlite:///file.db, sqlite:////absolute/file.db, or postgresql://user:password@host/database.
    name
        Which bandit of the store.
    policy
        What it begins with; may be left out for a bandit that exists. If it exists, the policy has to be the same but
        for arms: those that are new are added, and arms that it does not name stay until `retire_arm`.
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
    wait = _checks.number("timeout", timeout, above=0)
    if policy is not None and not isinstance(policy, LivePolicy):
        raise InvalidInputError(f"policy: expected a policy of undertow, got {policy!r:.60}")
    known = store.spec(name)
    if known is None:
        if policy is None:
            there = ", ".join(map(repr, store.names()[:10])) or "none"
            raise InvalidInputError(f"name: there is no bandit {name!r}; there is {there}. Give a policy to create it")
        store.create(name, _spec(policy), policy.to_bytes())
        known = store.spec(name) or b""  # another process may have been faster
    _load_kernels(store, name, policy, wait)
    opened = DurablePolicy(store, name, wait)
    if policy is not None:
        _require_same(name, json.loads(known), json.loads(_spec(policy)))
        _add_arms(opened, name, policy.names)
    return opened


def _load_kernels(store: Store, name: str, policy: LivePolicy | None, timeout: float) -> None:
    """Compile what is missing before any call, which would hold the bandit's lock meanwhile; one process at a time."""
    if policy is None:
        with store.lock(name, timeout) as locked:
            content = locked.checkpoint(0 if 0 in locked.checkpoints() else None).content
        policy = from_bytes(content)
    module = type(policy).__module__
    if is_incomplete(module) and not policy.claims.simulates_only:
        with alone(module):
            rehearse(policy.for_run(0))


def _spec(policy: LivePolicy) -> bytes:
    """Return what has to be the same in every process: the policy and its parameters, without arms and seed."""
    header, _ = snapshot(policy)
    parameters = {key: value for key, value in header["parameters"].items() if key != "arms"}
    return json.dumps({"policy": header["policy"], "parameters": parameters}, sort_keys=True).encode()


def _require_same(name: str, stored: dict[str, Any], given: dict[str, Any]) -> None:
    """Refuse a policy that is not the one that a bandit was created with."""
    remedy = "open it under another name for a new bandit, or without a policy to go on as it is"
    if stored["policy"] != given["policy"]:
        raise InvalidInputError(f"policy: bandit {name!r} is {stored['policy']}, not {given['policy']}; {remedy}")
    before, now = stored["parameters"], given["parameters"]
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) != now.get(key):
            raise InvalidInputError(
                f"{key}: bandit {name!r} was created with {before.get(key)!r:.60}, not {now.get(key)!r:.60}; {remedy}"
            )


def _add_arms(opened: DurablePolicy, name: str, wanted: tuple[str, ...]) -> None:
    """Add the arms that only the code has; say which arms only the store has."""
    there, retired = opened.names, set(opened.retired)
    for arm in wanted:
        if arm not in there:
            opened.add_arm(arm)
            _LOG.info("%s: arm %r is new, and was added", name, arm)
    if left := [arm for arm in there if arm not in wanted and arm not in retired]:
        _LOG.info("%s: the code names %s no more; retire_arm stops playing an arm", name, ", ".join(map(repr, left)))
