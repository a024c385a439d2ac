"""Policies by name, with their parameters, capabilities and citations."""

import dataclasses
import inspect
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from undertow.errors import InvalidInputError
from undertow.live.decision import Capabilities
from undertow.support import checks
from undertow.support.display import html_table

if TYPE_CHECKING:
    from undertow.live.policy import LivePolicy

__all__ = [
    "Entry",
    "NotRegisteredError",
    "Registry",
    "explain",
    "make",
    "name_of",
    "read_candidate",
    "register",
    "register_candidate",
    "registry",
    "written_candidate",
]

P = TypeVar("P", bound="type[LivePolicy]")
C = TypeVar("C", bound=type)
_ENTRIES: "dict[str, Entry]" = {}
_CANDIDATES: dict[str, Any] = {}
_HEADING = "Parameters\n----------\n"
_PARAMETER = re.compile(r"^(\w[\w, ]*)\n((?:    .*(?:\n|$))+)", re.M)


class Entry(NamedTuple):
    """One policy of the registry: its class, its parameters with their defaults (... where one is needed), and more."""

    name: str
    policy: "type[LivePolicy]"
    parameters: dict[str, Any]
    capabilities: Capabilities
    citation: str


class Registry(dict[str, Entry]):
    """Policies by name; a notebook shows a table of them."""

    def _repr_html_(self) -> str:
        takers = Counter(name for entry in self.values() for name in entry.parameters)
        usual = [name for name, number in takers.items() if number > 2 / 3 * len(self)]
        rows = [
            (
                entry.name,
                entry.policy.__name__,
                ", ".join(name for name in entry.parameters if name not in usual) or "–",
                entry.citation,
            )
            for entry in self.values()
        ]
        note = f"Most also take {', '.join(usual)}."
        return html_table("Policies", rows, ["name", "class", "parameters", "citation"], note)


def register(name: str, *, citation: str) -> Callable[[P], P]:
    """Register a policy class under a name, for `make`, `load`, plans and reports."""

    def enter(policy: P) -> P:
        policy.__doc__ = _documented(policy)
        parameters = {
            field.name: ... if field.default is dataclasses.MISSING else field.default
            for field in dataclasses.fields(policy)
        }
        _ENTRIES[name] = Entry(name, policy, parameters, policy.capabilities, citation)
        return policy

    return enter


def register_candidate(name: str) -> Callable[[C], C]:
    """Enter the class of a candidate under a name, so that an Autopilot with such candidates can be saved and loaded.

    `state()` of a candidate returns all that it knows as what JSON takes: numbers, strings, lists and objects with
    strings as keys. `from_state(state)`, of its class, returns a candidate that goes on from there.
    """

    def enter(kind: C) -> C:
        if not callable(getattr(kind, "state", None)) or not callable(getattr(kind, "from_state", None)):
            raise InvalidInputError(f"candidate: expected {kind.__name__} to have state() and from_state(state)")
        if _CANDIDATES.setdefault(name, kind).__qualname__ != kind.__qualname__:
            raise InvalidInputError(f"name: another class of candidates is registered as {name!r:.60}")
        _CANDIDATES[name] = kind
        return kind

    return enter


class NotRegisteredError(InvalidInputError):
    """A save file holds what this program has not registered."""


def written_candidate(candidate: Any) -> dict[str, Any]:
    """Return a candidate as a save file keeps it."""
    name = next((name for name, kind in _CANDIDATES.items() if kind is type(candidate)), None)
    if name is None:
        raise InvalidInputError(
            f"candidates: {candidate.name!r:.60} cannot be saved; give its class state() and from_state(state), and "
            f"register it with undertow.policies.register_candidate"
        )
    return {"kind": name, "state": candidate.state()}


def read_candidate(entry: Mapping[str, Any]) -> Any:
    """Return the candidate that `written_candidate` wrote."""
    kind = entry["kind"]
    if not isinstance(kind, str) or kind not in _CANDIDATES:
        raise NotRegisteredError(
            f"holds a candidate called {kind!r:.60}, which is not registered here; "
            f"import the module that registers it first"
        )
    return _CANDIDATES[kind].from_state(entry["state"])


def name_of(kind: type) -> str | None:
    """Return the name that a class of policies, or the first of its bases, is registered under; None if there is none.

    Examples
    --------
    >>> name_of(type(make("ucb", arms=3)))
    'ucb'
    """
    names = {entry.policy: name for name, entry in _ENTRIES.items()}
    return next((names[each] for each in kind.__mro__ if each in names), None)


def registry() -> Registry:
    """Return every policy by name."""
    return Registry(_ENTRIES)


def make(name: str, *args: Any, **parameters: Any) -> "LivePolicy":
    """Make a policy by its name.

    Examples
    --------
    >>> make("ares", arms=2, context_dim=1, max_window=5)
    ARES(arms=2, context_dim=1, max_window=5)
    """
    if not isinstance(name, str) or name not in _ENTRIES:
        near = checks.did_you_mean(name, _ENTRIES)
        raise InvalidInputError(
            f"name: no policy is called {name!r:.60}{near}; known are {', '.join(sorted(_ENTRIES))}"
        )
    entry = _ENTRIES[name]
    if unknown := sorted(parameters.keys() - entry.parameters.keys()):
        near, takes = checks.did_you_mean(unknown[0], entry.parameters), ", ".join(entry.parameters)
        raise InvalidInputError(f"{unknown[0]}: {name} has no such parameter{near}; it takes {takes}")
    needed = [parameter for parameter, default in entry.parameters.items() if default is ...][len(args) :]
    if absent := [parameter for parameter in needed if parameter not in parameters]:
        raise InvalidInputError(f"{absent[0]}: {name} needs this parameter, and got none")
    return entry.policy(*args, **parameters)


def explain(name: str) -> dict[str, str]:
    """Return the description of each parameter of a policy, in one paragraph.

    Examples
    --------
    >>> explain("ucb")["explore"]
    'ε in [0, 1]: with this probability the arm is chosen at random from all open arms.'
    """
    entry = _ENTRIES[name]
    described = {
        parameter: " ".join(text.split())
        for names, text in _PARAMETER.findall(_section(inspect.cleandoc(entry.policy.__doc__ or "")))
        for parameter in names.split(", ")
    }
    return {parameter: described.get(parameter, "") for parameter in entry.parameters}


def _documented(policy: type) -> str:
    """Return a policy's docstring with the parameters that only its bases describe: `help` shows no others."""
    own, *_ = docs = [inspect.cleandoc(cls.__dict__.get("__doc__") or "") for cls in policy.__mro__]
    described: dict[str, str] = {}
    for doc in docs:
        for names, text in _PARAMETER.findall(_section(doc)):
            described |= {name: f"{name}\n{text.rstrip()}" for name in names.split(", ") if name not in described}
    written = _section(own).rstrip()
    names = {name for entry, _ in _PARAMETER.findall(written) for name in entry.split(", ")}
    fields = [field.name for field in dataclasses.fields(policy)]
    inherited = [described[name] for name in fields if name in described and name not in names]
    if written:
        return own.replace(written, "\n".join([written, *inherited]))
    head, gap, examples = own.partition("\n\nExamples\n")
    return "".join([head, "\n\n", _HEADING, "\n".join(inherited), gap, examples])


def _section(doc: str) -> str:
    """Return the parameters' part of a docstring, without its heading."""
    _, _, after = doc.partition(_HEADING)
    return re.split(r"(?<=\n\n)(?=\w+\n-+\n)", after)[0]
