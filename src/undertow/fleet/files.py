"""Save files of a fleet: one archive with the policy, the keys, their states and their pending decisions."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError
from undertow.fleet.bucket import Bucket, Waiting
from undertow.fleet.keys import Keys, hashed
from undertow.fleet.template import Template
from undertow.live.files import restored, snapshot
from undertow.live.saved import COUNT, Saved, check_arrays
from undertow.policies import LivePolicy
from undertow.support import checks

__all__ = ["FORMAT", "VERSION", "fill_buckets", "policy_of", "written"]

FORMAT, VERSION = "undertow.fleet", 2
_POLICY = "policy."  # prefix of the names of the template's arrays
Arrays = dict[str, Any]


def written(template: Template, buckets: list[Bucket]) -> tuple[dict[str, Any], Arrays]:
    """Return header and arrays of a save file."""
    policy, arrays = snapshot(template.policy)
    keys = [bucket.keys.keys for bucket in buckets]
    starts = np.cumsum([0, *(bucket.count for bucket in buckets)])
    waiting = [bucket.waiting_of() for bucket in buckets]
    lengths = np.cumsum([0, *(len(each.letters) for each in keys)])
    header: dict[str, Any] = {
        "kind": "Fleet",
        "format": FORMAT,
        "version": VERSION,
        "policy": policy,
        "integers": any(each.whole for each in keys),
        "buckets": len(buckets),
        "random": [bucket.stream() for bucket in buckets],
        "decided": [bucket.decided for bucket in buckets],
    }
    return header, {_POLICY + name: values for name, values in arrays.items()} | {
        "letters": np.concatenate([each.letters for each in keys]),
        "ends": np.concatenate([each.ends + at for each, at in zip(keys, lengths, strict=False)]),
        "states": np.concatenate([bucket.states[: bucket.count] for bucket in buckets]),
        "due": np.concatenate([bucket.dues() for bucket in buckets]).astype(np.int64),
        "slots": np.concatenate([each.slots + at for each, at in zip(waiting, starts, strict=False)]),
        "rounds": np.concatenate([each.rounds for each in waiting]),
        "arms": np.concatenate([each.arms for each in waiting]),
        "lives": np.concatenate([each.lives for each in waiting]),
        "memories": np.concatenate([each.memories for each in waiting]),
    }


def policy_of(header: Mapping[str, Any], arrays: Arrays) -> LivePolicy:
    """Return the template of a save file, and leave the arrays of the fleet."""
    names = [name for name in arrays if name.startswith(_POLICY)]
    return restored("policy", header["policy"], {name.removeprefix(_POLICY): arrays.pop(name) for name in names})


def fill_buckets(buckets: list[Bucket], header: Mapping[str, Any], arrays: Arrays) -> None:
    """Restore empty buckets from a save file."""
    template = buckets[0].template
    check_arrays(
        arrays,
        {
            "letters": Saved(("letters",), 0, 255, whole=True),
            "ends": Saved(("keys",), 1, COUNT, whole=True, rising=True),
            "states": Saved(("keys", len(template.fresh)), missing=True),
            "due": Saved(("keys",), 0, int(template.m > 0), whole=True),
            "slots": Saved(("waiting",), 0, len(arrays["ends"]) - 1, whole=True),
            "rounds": Saved(("waiting",), 0, COUNT, whole=True),
            "arms": Saved(("waiting",), 0, template.k - 1, whole=True),
            "lives": Saved(("waiting",), 0, COUNT, whole=True),
            "memories": Saved(("waiting", template.p), missing=True),
        },
    )
    template.check_states(arrays["states"])
    keys = _keys(arrays, whole=checks.flag("integers", header["integers"]))
    numbers = (keys.hashes % np.uint64(len(buckets))).astype(np.int64)
    waiting = Waiting(*(arrays[name] for name in Waiting._fields))
    _check_order(arrays["states"][:, template.rounds_at], numbers, waiting)
    starts = np.searchsorted(numbers, np.arange(len(buckets) + 1))
    of_waiting = np.searchsorted(waiting.slots, starts)
    for number, bucket in enumerate(buckets):
        first, last = int(starts[number]), int(starts[number + 1])
        bucket.add(keys, np.arange(first, last))
        if bucket.count < last - first:
            raise InvalidInputError("keys: expected every key once")
        own = waiting.take(slice(of_waiting[number], of_waiting[number + 1]))
        bucket.fill(arrays["states"][first:last], arrays["due"][first:last], own._replace(slots=own.slots - first))
        decided = checks.integer("decided", header["decided"][number], least=0)
        bucket.restore_stream(header["random"][number], decided)


def _keys(arrays: Arrays, *, whole: bool) -> Keys:
    letters, ends = arrays["letters"].astype(np.uint8), arrays["ends"].astype(np.int64)
    if len(letters) != (ends[-1] if len(ends) else 0) or (whole and (np.diff(ends, prepend=0) != 8).any()):
        raise InvalidInputError("keys: expected as many letters as their ends say")
    if not whole:
        letters.tobytes().decode()
    return hashed(letters, ends, whole=whole)


def _check_order(begun: npt.NDArray[Any], numbers: npt.NDArray[np.int64], waiting: Waiting) -> None:
    """Refuse keys that are not in the order of their buckets, and impossible decisions."""
    if (np.diff(numbers) < 0).any():
        raise InvalidInputError("keys: expected those of one bucket after another")
    steps, later = np.diff(waiting.slots), np.diff(waiting.rounds)
    if (steps < 0).any() or (later[steps == 0] <= 0).any() or (waiting.rounds >= begun[waiting.slots]).any():
        raise InvalidInputError("rounds: expected those of decisions that were made, in their order")
