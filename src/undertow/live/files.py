"""Save files: a zip archive with a JSON header and plain NumPy arrays, read without pickle."""

import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow import _checks
from undertow.errors import InvalidInputError
from undertow.live.policy import LivePolicy
from undertow.live.registry import make, registry
from undertow.live.streams import Streams
from undertow.system import LinearGaussianSystem

__all__ = ["load", "snapshot", "write_policy"]

_FORMAT = "undertow.policy"
_VERSION = 4
_DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, RuntimeError)  # reading it


def snapshot(policy: LivePolicy) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return header and arrays of a save file."""
    player, columns, streams, turns, pending, timeline = policy.parts
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "policy": policy.registered_name,
        "parameters": {name: _plain_value(value) for name, value in policy.parameters.items() if name != "rng"},
        "random": streams.header(),
        "due": turns.due,
        "decisions": pending.made,
        "forgotten": pending.forgotten,
    }
    arrays = {"state": player.state} | pending.arrays(len(player.common.memory))
    return header, arrays | columns.arrays() | timeline.arrays()


def write_policy(policy: LivePolicy, path: str | os.PathLike[str]) -> None:
    """Write a policy to a file, whole or not at all."""
    header, arrays = snapshot(policy)
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path: there is no folder {str(target.parent)!r} to save into")
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **{"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8), **arrays})  # type: ignore[arg-type]
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(path: str | os.PathLike[str]) -> LivePolicy:
    """Read a policy that `save` wrote; it continues bit for bit.

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
    name = os.fspath(path)
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
        header = json.loads(arrays["header"].tobytes().decode())
        form, version = header["format"], header["version"]
    except FileNotFoundError:
        raise
    except (*_DAMAGE, zipfile.BadZipFile) as error:
        raise InvalidInputError(f"{name}: not a policy file, or a damaged one; expected one from save()") from error
    if form != _FORMAT or version != _VERSION:
        raise InvalidInputError(
            f"{name}: expected {_FORMAT} version {_VERSION}, got {form!r} version {version!r}; "
            f"load it with the undertow that saved it"
        )
    if header.get("policy") not in registry():
        raise InvalidInputError(
            f"{name}: holds a policy called {header.get('policy')!r}, which is not registered here; "
            f"import the module that registers it first"
        )
    try:
        parameters = header["parameters"]
        if "system" in parameters:
            parameters["system"] = LinearGaussianSystem.from_dict(parameters["system"])
        policy = make(header["policy"], **parameters, rng=Streams.seed_of(header["random"]))
        _restore(policy, header, arrays)
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: damaged ({error})") from error
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InvalidInputError(f"{name}: damaged ({type(error).__name__}: {error})") from error
    return policy


def _restore(policy: LivePolicy, header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Have a fresh policy continue from a snapshot."""
    player, columns, streams, turns, pending, timeline = policy.parts
    timeline.check(arrays["state"])
    player.state[:] = arrays["state"]
    turns.due = _checks.choice("due", header["due"], ("decide", "observe") if turns.context_dim else ("decide",))
    pending.made = _checks.integer("decisions", header["decisions"], least=0)
    streams.restore(header["random"], pending.made)
    pending.forgotten = _checks.integer("forgotten", header["forgotten"], least=-1)
    pending.restore(arrays, len(player.common.memory), policy.arm_count)
    columns.restore(arrays)
    timeline.restore(arrays)


def _plain_value(value: Any) -> Any:
    """Return a parameter as JSON takes it."""
    if isinstance(value, LinearGaussianSystem):
        return value.to_dict()
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, frozenset | set | tuple):
        return sorted(value) if isinstance(value, frozenset | set) else list(value)
    return value
