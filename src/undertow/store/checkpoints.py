"""Policies from a store: a checkpoint, and the events since.

A later version opens the stores of an earlier one. If it cannot read a checkpoint, it replays the events since an
earlier one, since the beginning if necessary. If it cannot read a fitted model, it repeats that fit. Both are logged.
"""

import json
import logging
from typing import Any

from undertow.errors import InvalidInputError, StoreError
from undertow.fleet import Fleet
from undertow.fleet.files import FORMAT
from undertow.live import LivePolicy
from undertow.live.events import Event, Installed, decode
from undertow.live.files import made, restored, snapshot, unarchived
from undertow.store.base import Checkpoint, Locked, Row, Store

__all__ = ["apply_row", "newest_policy", "policy_of", "spec_of"]

_LOG = logging.getLogger("undertow.store")


def spec_of(policy: LivePolicy) -> bytes:
    """Return the spec of a policy, which is stored for all versions.

    That is its name, the parameters that must be the same in every process, and, if it is new, its initial state.
    """
    header, _ = snapshot(policy)
    own = ("arms", "cost", "candidates")  # which may differ
    parameters = {key: value for key, value in header["parameters"].items() if key not in own}
    if "candidates" in header["parameters"]:  # not in their kinds
        parameters["candidates"] = [entry["kind"] for entry in header["parameters"]["candidates"]]
    spec: dict[str, Any] = {"policy": header["policy"], "parameters": parameters}
    if policy.parts.unused:
        begin = {key: value for key, value in header["parameters"].items() if key in own}
        spec["begin"] = {"parameters": begin, "random": header["random"]}
    return json.dumps(spec, sort_keys=True).encode()


def policy_of(checkpoint: Checkpoint) -> Any:
    """Return the policy of a checkpoint; the store, not the policy, remembers answers and rewards.

    If it is that of a bucket of a fleet, the result is a fleet, of which there is no more than this bucket.
    """
    header, arrays = unarchived(checkpoint.content)
    if header.get("format") == FORMAT:
        return Fleet.restored("content", header, arrays)
    return _of_a_store(restored("content", header, arrays))


def _of_a_store(policy: LivePolicy) -> LivePolicy:
    policy.parts.pending.remembered = 0
    return policy


def newest_policy(store: Store, name: str, locked: Locked) -> tuple[Checkpoint, Any]:
    """Return the newest checkpoint that this version can read, and its policy."""
    numbers = locked.checkpoints()
    for n in reversed(numbers):
        checkpoint = locked.checkpoint(n)
        try:
            return checkpoint, policy_of(checkpoint)
        except InvalidInputError as error:
            why = error
        _LOG.warning("%s: the checkpoint at event %d cannot be read (%s); earlier events are replayed", name, n, why)
    begin = json.loads(store.spec(name) or b"{}").get("begin")
    if numbers[0] or begin is None:
        raise StoreError(
            f"store: bandit {name!r} has no checkpoint that this undertow can read ({why!s:.200}), and its first "
            f"events were trimmed; open it with the undertow that wrote it"
        ) from why
    return checkpoint, _of_a_store(_begun(json.loads(store.spec(name) or b"{}"), begin))


def _begun(spec: dict[str, Any], begin: dict[str, Any]) -> LivePolicy:
    """Return the initial policy of a spec."""
    return made(spec["policy"], spec["parameters"] | begin["parameters"], begin["random"])


def apply_row(policy: LivePolicy, row: Row, name: str) -> Event:
    """Apply a stored event to the policy of a bandit, and return it."""
    try:
        event = decode(row.body)
    except InvalidInputError as error:
        raise StoreError(
            f"store: event {row.n} of {name!r} is of a kind that this undertow does not know; nothing was done. Update "
            f"undertow in this process ({error!s:.100})"
        ) from error
    try:
        policy.follow(event)
    except InvalidInputError as error:
        if not isinstance(event, Installed):
            raise StoreError(
                f"store: event {row.n} of {name!r} does not follow from those before it ({error!s:.200}); restore a "
                f"backup"
            ) from error
        _LOG.warning(
            "%s: the fit of the %s in event %d cannot be used (%s); it is made again", name, event.model, row.n, error
        )
    return event
