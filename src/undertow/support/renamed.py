"""Names of earlier versions: each raises an error that gives its new name, and files that hold them are still read."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

__all__ = [
    "OF_DECISIONS",
    "OF_POLICIES",
    "Renamed",
    "refuse_hooks",
    "refuse_parameters",
    "renamed",
    "renamed_attribute",
    "with_new_names",
]

SINCE = "since undertow 0.3.0"
PARAMETERS = {"minimise": "minimize", "standardise": "standardize"}
OF_DECISIONS = {"moment": "time_step"}
OF_POLICIES = {"claims": "capabilities", "moment": "parts.time_step", "nbytes": "parts.nbytes"}
HOOKS = {"claims": "capabilities", "_welcome": "_init_arm", "_places": "_index_map", "_chance": "_probability"}


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module's `__getattr__`. It raises an ImportError, whose message `from … import` shows."""

    def __getattr__(name: str) -> Any:
        if name in names:
            raise ImportError(f"{module}.{name} is called {names[name]} {SINCE}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return __getattr__


def renamed_attribute(owner: object, name: str, names: Mapping[str, str]) -> AttributeError:
    """Return the error for an attribute that an object lacks, by its new name if it has one."""
    now = f", it is called {names[name]} {SINCE}" if name in names else ""
    return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}{now}")


class Renamed:
    """An attribute of earlier versions. Unlike `__getattr__`, it does not slow the others down."""

    def __init__(self, name: str, names: Mapping[str, str]) -> None:
        self.name, self.names = name, names

    def __get__(self, owner: object, kind: type | None = None) -> NoReturn:
        raise renamed_attribute(kind if owner is None else owner, self.name, self.names)


def refuse_parameters(given: Iterable[str]) -> None:
    """Refuse keywords of earlier versions."""
    for name in given:
        if name in PARAMETERS:
            raise TypeError(f"{name}: it is called {PARAMETERS[name]} {SINCE}")


def refuse_hooks(policy: type) -> None:
    """Refuse a policy that declares itself by the names of earlier versions, which nothing would read."""
    for name in HOOKS:
        if name in vars(policy):
            raise TypeError(f"{policy.__name__}.{name}: it is called {HOOKS[name]} {SINCE}")


def with_new_names(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a file or a store under the names that they have now."""
    return {PARAMETERS.get(name, name): value for name, value in parameters.items()}
