"""Save files: a zip archive with a JSON header and plain NumPy arrays, read without pickle."""

import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from undertow._checks import FloatArray
from undertow.errors import InvalidInputError
from undertow.policies.base import LivePolicy
from undertow.policies.catalogue import make, registry
from undertow.system import LinearGaussianSystem

__all__ = ["load", "save_policy"]

_FORMAT = "undertow.policy"
_VERSION = 3
_DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, RuntimeError)  # reading it


def save_policy(policy: LivePolicy, path: str | os.PathLike[str]) -> None:
    """Write a policy to a file, whole or not at all."""
    seeds = policy._seeds
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "policy": policy.registered_name,
        "parameters": {name: _plain(value) for name, value in policy.parameters.items() if name != "rng"},
        "seed": {
            "entropy": _plain(seeds.entropy),
            "spawn_key": [int(key) for key in seeds.spawn_key],
            "pool_size": seeds.pool_size,
        },
        "random": policy._rng.bit_generator.state,
        "explore_random": policy._explore_rng.bit_generator.state,
        "due": policy._due,
        "decisions": policy._decisions,
        "forgotten": policy._forgotten,
    }
    waiting = policy._pending.values()
    memories = np.array([entry.memory for entry in waiting]).reshape(len(waiting), len(policy._memory))
    arrays: dict[str, Any] = {
        "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
        "state": policy._state,
        "pending_ids": np.array(list(policy._pending), dtype=np.int64),
        "pending_rounds": np.array([entry.round for entry in waiting], dtype=np.int64),
        "pending_arms": np.array([entry.arm for entry in waiting], dtype=np.int64),
        "pending_memories": memories,
    }
    arrays |= {f"extra_{name}": value for name, value in policy._extra_arrays().items()}
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path: there is no folder {str(target.parent)!r} to save into")
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)
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
        return _restore(header, arrays)
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: damaged ({error})") from error
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InvalidInputError(f"{name}: damaged ({type(error).__name__}: {error})") from error


def _restore(header: dict[str, Any], arrays: dict[str, Any]) -> LivePolicy:
    parameters = header["parameters"]
    if "system" in parameters:
        parameters["system"] = LinearGaussianSystem.from_dict(parameters["system"])
    seed = header["seed"]
    seeds = np.random.SeedSequence(seed["entropy"], spawn_key=tuple(seed["spawn_key"]), pool_size=seed["pool_size"])
    policy = make(header["policy"], **parameters, rng=seeds)
    state: FloatArray = arrays["state"]
    if state.dtype != np.float64 or not policy._fits(state):
        raise InvalidInputError(
            f"state: expected {policy._state.size} numbers that fit this policy, got shape {state.shape}"
        )
    policy._state[:] = state
    policy._rng.bit_generator.state = header["random"]
    policy._explore_rng.bit_generator.state = header["explore_random"]
    policy._due, policy._decisions, policy._forgotten = header["due"], header["decisions"], header["forgotten"]
    pending = (arrays[f"pending_{part}"] for part in ("ids", "rounds", "arms", "memories"))
    policy._restore_pending(*pending)
    prefix = "extra_"
    policy._restore_extra({key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)})
    return policy


def _plain(value: Any) -> Any:
    if isinstance(value, LinearGaussianSystem):
        return value.to_dict()
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, frozenset | set | tuple):
        return sorted(value) if isinstance(value, frozenset | set) else list(value)
    return value
