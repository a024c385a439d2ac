"""Save files: a zip archive with a JSON header and plain NumPy arrays, read without pickle."""

import errno
import io
import json
import os
import zipfile
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from undertow.compiled.layout import states_of_at_most
from undertow.errors import InvalidInputError
from undertow.live.clock import duration, spelled
from undertow.live.events import Event
from undertow.live.fields import arrays_of, header_of, read_arrays_into, read_header_into
from undertow.live.policy import LivePolicy
from undertow.live.registry import NotRegisteredError, make, name_of, read_candidate, registry, written_candidate
from undertow.live.saved import DAMAGE, read_arrays
from undertow.live.streams import Streams
from undertow.support import checks
from undertow.support.renamed import with_new_names
from undertow.support.writing import replacing, require_file
from undertow.system import LinearGaussianSystem

__all__ = [
    "archived",
    "fold",
    "from_bytes",
    "load",
    "made",
    "packed",
    "read_archive",
    "restored",
    "snapshot",
    "unarchived",
    "write_archive",
    "write_policy",
]

_FORMAT = "undertow.policy"
_VERSION = 10
_BEFORE = (6, 7, 8)  # also readable for policies that fit no models: the states of models have changed
_NO_COSTS = 9  # the last version whose states had no costs and no pinned arm
_LONGEST_HEADER = 2**22  # bytes


def snapshot(policy: LivePolicy) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return header and arrays of a save file."""
    policy.parts.settle()
    parts = policy.parts  # others than before, if kernels have come
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "policy": _registered(policy),
        "parameters": {name: _plain_value(name, value) for name, value in parts.parameters().items() if name != "rng"},
        "random": parts.streams.header(),
    }
    return header | header_of(parts.all), arrays_of(parts.all, parts.sizes)


def _registered(policy: LivePolicy) -> str:
    name = name_of(type(policy))
    if name is None:
        raise InvalidInputError(f"policy: {type(policy).__name__} cannot be saved; register it under a name first")
    return name


def write_policy(policy: LivePolicy, path: str | os.PathLike[str]) -> None:
    """Write a policy to a file, atomically."""
    write_archive(path, *snapshot(policy))


def write_archive(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Write a header and arrays to a file, atomically."""
    with replacing(path) as part, part.open("wb") as file:
        _write(file, header, arrays)


def packed(policy: LivePolicy) -> bytes:
    """Return the content of a save file."""
    return archived(*snapshot(policy))


def archived(header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return a header and arrays as the content of a file."""
    file = io.BytesIO()
    _write(file, header, arrays)
    return file.getvalue()


def _write(file: IO[bytes], header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    text = np.frombuffer(_as_json(header), dtype=np.uint8)
    archive = zipfile.ZipFile(file, "w")
    try:
        for name, values in {"header": text, **arrays}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)
        archive.close()
    finally:
        archive.fp = None  # if interrupted, it would raise another error in place of the interrupt


def _as_json(header: Mapping[str, Any]) -> bytes:
    """Return a header; only the states of candidates may not be JSON, or very long."""
    try:
        text = json.dumps(header).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"candidates: expected states as JSON has them ({error!s:.100})") from error
    if len(text) > _LONGEST_HEADER:
        raise InvalidInputError(
            f"candidates: expected states of at most {_LONGEST_HEADER} bytes in all, got {len(text)}"
        )
    return text


def load(path: str | os.PathLike[str]) -> LivePolicy:
    """Read a policy from a file of `save`; it continues bit-identically, with a new prefix of decision ids.

    Examples
    --------
    >>> import tempfile, undertow
    >>> policy = undertow.make("ucb", arms=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     policy.save(f"{folder}/policy.undertow")
    ...     again = undertow.load(f"{folder}/policy.undertow")
    >>> again
    UCB(arms=3)
    """
    name: Any = os.fspath(path)
    return restored(name, *read_archive(name))


def from_bytes(content: bytes) -> LivePolicy:
    """Read a policy from the output of `to_bytes`, as `load` does from a file.

    Examples
    --------
    >>> import undertow
    >>> undertow.from_bytes(undertow.make("ucb", arms=3).to_bytes())
    UCB(arms=3)
    """
    return restored("content", *unarchived(content))


def unarchived(content: Any) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return header and arrays from the output of `archived`."""
    if not isinstance(content, bytes | bytearray | memoryview):
        raise InvalidInputError(f"content: expected bytes from to_bytes(), got {content!r:.60}")
    return _read("content", io.BytesIO(content))


def fold(checkpoint: bytes, events: Iterable[Event]) -> LivePolicy:
    """Return the policy of `to_bytes` after its later events.

    With the same fingerprint (`undertow.fingerprint`) it is bit-identical, but for the prefix of its ids. On another
    machine the same arms are played and the same rewards learned, and last digits differ.

    Examples
    --------
    >>> import undertow
    >>> policy, log = undertow.make("ucb", arms=3), []
    >>> before = policy.to_bytes()
    >>> policy.events(log.append)
    >>> policy.learn(policy.decide(), reward=0.3)
    >>> undertow.fold(before, log).round
    1
    """
    policy = from_bytes(checkpoint)
    for event in events:
        policy.follow(event)
    return policy


def restored(name: Any, header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> LivePolicy:
    """Return the policy of a header and arrays; `name` is their file in error messages."""
    form, version = header.get("format"), header.get("version")
    parameters = header.get("parameters")
    before = version in _BEFORE and isinstance(parameters, dict) and "refit" not in parameters
    if form != _FORMAT or not (before or version in (_NO_COSTS, _VERSION)):
        raise InvalidInputError(
            f"{name}: expected {_FORMAT} version {_VERSION}, got {form!r:.60} version {version!r:.60}; "
            f"load it with the undertow that saved it"
        )
    kind = header.get("policy")
    if not isinstance(kind, str) or kind not in registry():
        raise InvalidInputError(
            f"{name}: holds a policy called {kind!r:.60}, which is not registered here; "
            f"import the module that registers it first"
        )
    try:
        if version != _VERSION:
            arrays = {name: _with_costs(name, values) for name, values in arrays.items()}
        policy = _fresh(kind, header, arrays["state"])
        _restore(policy, header, arrays)
    except NotRegisteredError as error:
        raise InvalidInputError(f"{name}: {error}") from error
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: damaged ({error})") from error
    except DAMAGE as error:
        raise InvalidInputError(f"{name}: damaged ({type(error).__name__}: {error!s:.200})") from error
    policy.parts.begin_log()
    return policy


def read_archive(name: Any) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return header and arrays of a file of `write_archive`."""
    require_file(name)
    with open(name, "rb") as file:
        return _read(name, file)


def _read(name: Any, file: IO[bytes]) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return header and arrays of a file."""
    try:
        arrays = read_arrays(file)
        text = arrays.pop("header").tobytes()
        header = checks.strict_json(text.decode()) if len(text) <= _LONGEST_HEADER else None
        if not isinstance(header, dict):
            raise InvalidInputError("expected a JSON object as its header")
    except (*DAMAGE, OSError) as error:
        fault = error if isinstance(error, OSError) else error.__context__  # which zipfile reports as damage
        if isinstance(fault, OSError) and fault.errno != errno.EINVAL:  # an offset before the beginning of the file
            raise fault from None
        raise InvalidInputError(f"{name}: not a policy file, or damaged; expected one from save()") from error
    return header, arrays


def _fresh(kind: str, header: Mapping[str, Any], state: npt.NDArray[Any]) -> LivePolicy:
    """Return a policy with the parameters of a file; its sizes must match the file's state."""
    parameters = dict(header["parameters"])
    sizes = registry()[kind].policy.loop.layout.claimed_sizes(state)
    for name, size in (("arms", "k"), ("context_dim", "m"), ("feature_dim", "q")):
        if isinstance(parameters.get(name), int) and parameters[name] != sizes[size]:
            raise InvalidInputError(f"state: expected {parameters[name]} {name}, got {sizes[size]}")
    with states_of_at_most(len(state)):
        return made(kind, parameters, header["random"])


def made(kind: str, parameters: Mapping[str, Any], random: Mapping[str, Any]) -> LivePolicy:
    """Return a fresh policy with the parameters and the random numbers of a header."""
    given = with_new_names(parameters)
    if "system" in given:
        given["system"] = LinearGaussianSystem.from_dict(given["system"])
    if "candidates" in given:
        given["candidates"] = [read_candidate(entry) for entry in given["candidates"]]
    return make(kind, **given, rng=Streams.seed_of(dict(random)))


def _with_costs(name: str, states: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert states without costs and pins to the present layout; return other arrays unchanged."""
    if name not in ("state", "round_states") or not states.size:
        return states
    k, begin = states.flat[0], 9  # after the sizes, of which k is the first, and five numbers of the head
    if not 0 <= k <= states.shape[-1]:
        raise InvalidInputError(f"{name}: expected a number of arms, got {k}")
    added = np.concatenate([[-1.0, 0.0, 1.0], np.zeros(2 * int(k))])
    return np.insert(states, [begin] * len(added), added, axis=-1)


def _restore(policy: LivePolicy, header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Restore a fresh policy from a snapshot."""
    parts = policy.parts
    parts.timeline.check(arrays["state"])
    parts.player.state[:] = arrays["state"]  # the bounds of other arrays count its rounds
    read_header_into(parts.all, header)
    parts.streams.restore(header["random"], parts.pending.made)
    read_arrays_into(parts.all, arrays, parts.sizes)


def _plain_value(name: str, value: Any) -> Any:
    """Return a parameter for JSON."""
    if name == "candidates":
        return [written_candidate(candidate) for candidate in value]
    if isinstance(value, timedelta):
        return spelled(duration("time", value))
    if isinstance(value, LinearGaussianSystem):
        return value.to_dict()
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, frozenset | set | tuple):
        return sorted(value) if isinstance(value, frozenset | set) else list(value)
    return value
