"""Contenders: the policies of a comparison, each a label, a name in the registry and parameters.

Sizes come from the problem, not from the contender. They are filled in here, but only those that the policy takes.
"""

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from undertow.errors import InvalidInputError
from undertow.live.plain import as_policy
from undertow.policies import Capabilities, LivePolicy, make, registry
from undertow.support import checks
from undertow.system import LinearGaussianSystem
from undertow.trajectory import Trajectory

__all__ = ["Contender", "build", "known_policy", "load_policies"]


def build(
    name: str,
    *,
    arms: int | Sequence[str],
    context_dim: int = 0,
    feature_dim: int = 0,
    system: LinearGaussianSystem | None = None,
    rng: int | None = None,
    **parameters: Any,
) -> LivePolicy:
    """Make a policy by name for a problem of given sizes.

    Parameters
    ----------
    name
        Name in the registry.
    arms, context_dim, feature_dim
        Sizes of the problem; the policy gets those it takes.
    system
        The true system, for policies that need it; their sizes follow from it.
    rng
        Seed of the policy.
    **parameters
        Other parameters of the policy.

    Examples
    --------
    >>> build("ucb", arms=3, context_dim=2)
    UCB(arms=3)
    >>> build("linucb", arms=3, context_dim=2, window=5)
    LinUCB(arms=3, context_dim=2, window=5)
    """
    sizes = {"arms": arms, "context_dim": context_dim, "feature_dim": feature_dim, "rng": rng}
    policy: LivePolicy = Contender(name, name, parameters).build(system=system, **sizes)
    return policy


@dataclass(frozen=True)
class Contender:
    """A policy of a comparison.

    Attributes
    ----------
    label
        Its name in tables and figures.
    policy, parameters
        Its name in the registry, or the module and name of a class in plain Python, as in "my_policies:EpsilonGreedy",
        and the parameters that do not follow from the problem.
    detail
        Whether a study records its widths, windows and errors too.
    needs_contexts
        Whether it skips problems without contexts.
    needs
        What a problem must provide, such as prices; it skips others.
    """

    label: str
    policy: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    detail: bool = False
    needs_contexts: bool = False
    needs: str = ""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the policy."""
        return known_policy(self.policy).capabilities

    @property
    def randomised(self) -> bool:
        """Whether the policy is random: another seed may give another run."""
        return not self.capabilities.deterministic or bool(self.parameters.get("explore"))

    def build(self, *, system: LinearGaussianSystem | None = None, **fitting: Any) -> Any:
        """Make the policy for a problem.

        `fitting` has the problem's sizes, a seed and settings. Those that the policy does not take are ignored, and the
        contender's own parameters take precedence.
        """
        known = known_policy(self.policy)
        taken = {name: value for name, value in fitting.items() if name in known.parameters}
        if known.plain is not None:
            if isinstance(arms := taken.get("arms"), Sequence):  # plain ones get their number
                taken["arms"] = len(arms)
            taken |= {"system": system} if "system" in known.parameters else {}
            try:
                return as_policy(known.plain(**(taken | dict(self.parameters))))
            except TypeError as error:
                raise InvalidInputError(f"policies: {self.policy}: {error}") from error
        if not known.capabilities.needs_system:
            return make(self.policy, **(taken | dict(self.parameters)))
        if system is None:
            raise InvalidInputError(f"system: {self.policy} needs the true system; none was given")
        taken.pop("arms", None)  # follows from the system
        return make(self.policy, system, **(taken | dict(self.parameters)))

    def can_play(
        self, path: Trajectory, system: LinearGaussianSystem | None = None, known: Collection[str] = ()
    ) -> bool:
        """Whether a path provides what the policy needs: the true system, contexts, or a known quantity."""
        lacks_system = self.capabilities.needs_system and system is None
        lacks = lacks_system or (self.needs_contexts and path.context_dim == 0)
        return not lacks and (not self.needs or self.needs in known)

    def for_path(
        self, path: Trajectory, *, system: LinearGaussianSystem | None = None, seed: int = 0, **known: Any
    ) -> LivePolicy:
        """Make the policy for a path, with those known quantities of it that the policy takes."""
        sizes = {"context_dim": path.context_dim, "feature_dim": path.features.shape[-1]}
        policy: LivePolicy = self.build(system=system, arms=path.arm_count, **sizes, rng=seed, **known)
        return policy


class _Known(NamedTuple):
    """A policy by name: its parameters, its capabilities, and its class if it is in plain Python."""

    parameters: Collection[str]
    capabilities: Capabilities
    plain: type | None = None


def known_policy(name: Any) -> _Known:
    """Return a policy by its name in the registry, or a class in plain Python by its module and name."""
    if isinstance(name, str) and name in registry():
        entry = registry()[name]
        return _Known(entry.parameters, entry.capabilities)
    if not isinstance(name, str) or ":" not in name:
        near = checks.did_you_mean(name, registry())
        raise InvalidInputError(
            f"policies: no policy is called {name!r:.80}{near}; known are {', '.join(sorted(registry()))}, and your "
            f"own classes by module and name, my_policies:Mine"
        )
    module, _, last = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), last)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(
            f"policies: {name!r:.80}: {error}; give its file with --module {module.replace('.', '/')}.py"
        ) from error
    if not isinstance(found, type) or not all(callable(getattr(found, part, None)) for part in ("decide", "learn")):
        raise InvalidInputError(f"policies: {name!r:.80}: expected a class with decide and learn, got {found!r:.60}")
    parameters = inspect.signature(found).parameters
    likely = Capabilities(uses_contexts=hasattr(found, "observe"), deterministic="rng" not in parameters)
    return _Known(parameters, getattr(found, "capabilities", likely), found)


def load_policies(path: str | os.PathLike[str]) -> str:
    """Run a Python file with policies, unless this process has, and return a hash of its content.

    The file becomes a module under its own name, as if it had been imported.
    """
    file = Path(path).resolve()
    where = f"module: {os.fspath(path)}"
    if file.suffix != ".py" or not file.is_file():
        raise InvalidInputError(f"{where}: expected a Python file with policies")
    content = hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()
    name, before = file.stem, registry()
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin != str(file):
        raise InvalidInputError(f"{where}: another module is called {name!r}; rename the file")
    if name in sys.modules:
        return content
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, Exception):
            raise InvalidInputError(f"{where}: its code fails: {error!r:.200}{_line_of(error, file)}") from error
        raise
    plain = [one for one in vars(module).values() if isinstance(one, type) and hasattr(one, "decide")]
    if registry() == before and not plain:
        raise InvalidInputError(
            f"{where}: it has no policy; write a class with decide and learn, or decorate one of undertow's with  "
            f"undertow.live.register(name, citation=…)"
        )
    return content


def _line_of(error: BaseException, file: Path) -> str:
    """Return the last line of a file that an error went through."""
    lines, step = [], error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == str(file):
            lines.append(step.tb_lineno)
        step = step.tb_next
    return f", at line {lines[-1]}" if lines else ""
