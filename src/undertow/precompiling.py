"""Compile policies ahead: for container images, installers, and the first run of a server."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undertow.compiled.cache import alone, cache_folder, is_incomplete, mark_complete
from undertow.contenders import build
from undertow.errors import InvalidInputError
from undertow.example_systems import random_system
from undertow.fleet.rehearsal import rehearse as rehearse_fleet
from undertow.live.rehearsal import rehearse
from undertow.policies import registry
from undertow.simulation import simulate
from undertow.support import checks
from undertow.support.display import Progress

__all__ = ["precompile", "precompile_alone", "to_precompile"]

_SETTINGS: dict[str, Any] = {"standardize": True, "refit": "inline"}  # these compile more, and in this process


def precompile(*names: str, progress: Progress | None = None) -> Path | None:
    """Compile or load the kernels of policies, and return their folder.

    Later calls of this process do not wait for compilation, and later processes load the kernels from disk. Returns
    None if no folder is writable; the kernels are then compiled for this process only.

    Parameters
    ----------
    names
        Names of policies, as `undertow policies` lists them; all that come with undertow by default.
    progress
        Called with the number of policies that are ready, and the total.

    Examples
    --------
    >>> folder = precompile("ucb")
    """
    chosen = to_precompile(names)
    for done, name in enumerate(chosen):
        if progress is not None:
            progress(done, len(chosen))
        _use(name)
        mark_complete(registry()[name].policy.__module__)
    if progress is not None:
        progress(len(chosen), len(chosen))
    folder = cache_folder("undertow.live.standardize")
    return None if folder is None else folder.parent


def to_precompile(names: Sequence[str]) -> list[str]:
    """Return the names of policies to compile, checked: all that come with undertow if none is given."""
    known = registry()
    for name in names:
        if name not in known:
            near = checks.did_you_mean(name, known)
            raise InvalidInputError(
                f"names: no policy is called {name!r:.60}{near}; known are {', '.join(sorted(known))}"
            )
    return list(names) or [name for name, entry in known.items() if entry.policy.__module__.startswith("undertow.")]


def precompile_alone(name: str) -> None:
    """Compile the kernels of a policy, unless another process is doing so or has."""
    module = registry()[name].policy.__module__
    with alone(module):
        if is_incomplete(module):
            precompile(name)


def _use(name: str) -> None:
    """Call every kernel of a small policy; compilation does not depend on sizes."""
    known = registry()[name].parameters
    settings = {key: value for key, value in _SETTINGS.items() if key in known}
    system = random_system(2, 1, 2, rng=0)
    policy = build(name, arms=["a", "b"], context_dim=1, system=system, rng=0, **settings)
    if policy.capabilities.simulates_only:
        simulate(policy, system.sample(2, rng=0))
        return
    policy.parts.compile_here()
    rehearse(policy)
    plain = {key: value for key, value in settings.items() if key != "standardize"}
    rehearse_fleet(build(name, arms=["a", "b"], context_dim=1, system=system, rng=0, **plain))
