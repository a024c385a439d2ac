"""The plan of a study, as data: systems, policies with parameters, rounds, runs, a seed.

A plan is written in TOML. Every system and policy may have a `grid`, a table of lists; it then expands to one entry per
combination, and its `label` may name the parameters: `label = "PIES({window})"`.
"""

import hashlib
import importlib.resources
import inspect
import itertools
import json
import math
import os
import re
import string
import textwrap
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from undertow.contenders import Contender, known_policy
from undertow.errors import InvalidInputError
from undertow.example_systems import paper_system, random_system
from undertow.support import checks
from undertow.support.folders import versions
from undertow.system import LinearGaussianSystem
from undertow.theory import true_noise_bound
from undertow.trajectory import Trajectory

__all__ = ["Plan", "SystemSpec", "build_for", "contenders_of", "paper_plan", "read_plan", "read_toml"]

_CHUNK_NUMBERS = 2_000_000  # maximum number of samples in a chunk of runs
_MOST_NUMBERS = 1_000_000_000  # ... and a single run, with eight bytes each
_MOST_CHUNKS, _MOST_ENTRIES, _MOST_ARMS, _MOST_LETTERS = 1_000_000, 10_000, 1_000, 200
_GAPS = 2**31 + 2  # the stream of random numbers for missing context entries
_LONGEST = 800  # letters of a message; a number may have thousands of digits
_FORMAT = re.compile(r"[^0-9]{0,3}[0-9]{0,2}[,_]?(\.[0-9]{1,2})?[a-zA-Z%]?")  # of a parameter in a label
_SINGLE = ("name", "rounds", "burn_in", "runs", "seed", "checkpoints", "missing", "baseline")  # entries of a plan


@dataclass(frozen=True)
class SystemSpec:
    """A system with its label in tables and figures."""

    label: str
    system: LinearGaussianSystem


@dataclass(frozen=True)
class Plan:
    """A complete study, enough to reproduce it exactly."""

    name: str
    systems: Sequence[SystemSpec]
    policies: Sequence[Contender]
    rounds: int = 10_000
    burn_in: int = 0
    runs: int = 100
    seed: int = 0
    checkpoints: int = 100
    missing: float = 0.0  # the share of context entries that are missing
    baseline: str = ""
    code: str = ""  # a hash of the module that registers additional policies

    def __post_init__(self) -> None:
        for name, least in (("rounds", 1), ("burn_in", 0), ("runs", 1), ("seed", 0), ("checkpoints", 1)):
            checks.integer(name, getattr(self, name), least=least)
        object.__setattr__(self, "missing", checks.number("missing", self.missing, least=0))
        if self.missing > 1:
            raise InvalidInputError(f"missing: expected a share from 0 to 1, got {self.missing:g}")
        word = isinstance(self.name, str) and 0 < len(self.name) <= _MOST_LETTERS and self.name.isprintable()
        if not word or Path(self.name).name != self.name:
            raise InvalidInputError(f"name: expected a word that can be the name of a folder, got {self.name!r:.60}")
        for what, entries in (("systems", self.systems), ("policies", self.policies)):
            labels = [entry.label for entry in entries]
            if not labels:
                raise InvalidInputError(f"{what}: expected at least one, got none")
            if twice := sorted({label for label in labels if labels.count(label) > 1}):
                raise InvalidInputError(f"{what}: {twice[0]!r} stands for more than one; give them different labels")
        if not self.baseline:
            object.__setattr__(self, "baseline", self.policies[0].label)
        if self.baseline not in (policy.label for policy in self.policies):
            near = checks.did_you_mean(self.baseline, [policy.label for policy in self.policies])
            raise InvalidInputError(f"baseline: no policy of the plan has the label {self.baseline!r:.80}{near}")
        self._check_size()
        for system, policy in itertools.product(self.systems, self.policies):  # every mistake before any work
            where = f"policy {policy.label!r} on system {system.label!r}"
            try:
                build_for(policy, system.system, self.seed)
            except (InvalidInputError, TypeError) as error:
                raise InvalidInputError(f"{where}: {error}") from error
            except (MemoryError, OverflowError, ValueError) as error:
                raise InvalidInputError(f"{where}: it is too large for this machine ({error})") from error

    def _check_size(self) -> None:
        """Refuse a study that is too large for any machine, before it fills this one's memory."""
        if self.rounds * self._widest > _MOST_NUMBERS:
            raise InvalidInputError(f"rounds: expected at most {_MOST_NUMBERS // self._widest}, got {self.rounds}")
        pieces = len(self.systems) * -(-self.runs // self._chunk_size)
        if pieces > _MOST_CHUNKS:
            raise InvalidInputError(
                f"runs: expected fewer than {self.runs}, got {pieces} chunks of at most {_MOST_CHUNKS}"
            )

    @property
    def checkpoint_rounds(self) -> list[int]:
        """The rounds after which regret is recorded, evenly spaced, the last one included."""
        count = min(self.checkpoints, self.rounds)
        return [round(self.rounds * (i + 1) / count) for i in range(count)]

    @property
    def chunks(self) -> list[tuple[int, range]]:
        """Pieces of work, system and runs: the first runs of every system come before any later ones."""
        size = self._chunk_size
        starts = range(0, self.runs, size)
        return [(i, range(s, min(s + size, self.runs))) for s in starts for i in range(len(self.systems))]

    @property
    def _widest(self) -> int:
        """Numbers per round on the largest system."""
        return max(spec.system.context_dim + 5 * spec.system.arm_count for spec in self.systems)

    @property
    def _chunk_size(self) -> int:
        return max(1, min(10, self.runs, _CHUNK_NUMBERS // (self.rounds * self._widest)))

    def sample(self, system: LinearGaussianSystem, runs: range) -> Trajectory:
        """Return the paths of some runs; the missing context entries depend on seed and run alone."""
        paths = system.sample(self.rounds, rng=self.seed, burn_in=self.burn_in, runs=runs, threads=1)
        if not self.missing:
            return paths
        seen = [np.random.default_rng([self.seed, run, _GAPS]).random(paths.contexts.shape[1:]) for run in runs]
        contexts = np.where(np.array(seen) < self.missing, np.nan, paths.contexts)
        return Trajectory(contexts, paths.rewards, means=paths.means)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan with every system and parameter written out, and the versions that will run it."""
        return {
            "format": "undertow.plan",
            **{name: getattr(self, name) for name in _SINGLE},
            "systems": [{"label": spec.label, "system": spec.system.to_dict()} for spec in self.systems],
            "policies": [
                {"label": s.label, "policy": s.policy, "parameters": dict(s.parameters), "detail": s.detail}
                for s in self.policies
            ],
            "versions": versions(),
        } | ({"code": self.code} if self.code else {})

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Plan":
        """Build a plan from the output of `to_dict`."""
        load = LinearGaussianSystem.from_dict
        return cls(
            systems=[SystemSpec(entry["label"], load(entry["system"])) for entry in content["systems"]],
            policies=[Contender(**entry) for entry in content["policies"]],
            **{name: content[name] for name in _SINGLE},
            code=content.get("code", ""),
        )

    def to_json(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(self.to_dict(), indent=1) + "\n"

    @property
    def digest(self) -> str:
        """A short hash that changes with anything that could change a result."""
        return hashlib.blake2b(self.to_json().encode(), digest_size=4).hexdigest()

    def select(self, policies: Sequence[str] = (), systems: Sequence[str] = (), **changes: Any) -> "Plan":
        """Return the plan with some of its policies and other numbers.

        A policy is given by its label, or by its name for all of a kind. A word that is both is a label if written like
        it: "ARES" is one policy of the paper's plan, and "ares" is three.
        """
        kept = self.policies
        if policies:
            wanted = [label for word in policies for label in self._labels(word)]
            kept = [spec for spec in self.policies if spec.label in wanted]
        chosen = [spec for spec in self.systems if not systems or spec.label in systems]
        baseline = self.baseline if self.baseline in (spec.label for spec in kept) else ""
        given = {name: value for name, value in changes.items() if value is not None}
        return replace(self, policies=kept, systems=chosen, baseline=baseline, **given)

    def _labels(self, word: str) -> list[str]:
        """Return the labels of the policies that a word selects."""
        exact = [spec.label for spec in self.policies if spec.label == word]
        found = exact or [s.label for s in self.policies if word.lower() in (s.label.lower(), s.policy)]
        if not found:
            labels = ", ".join(repr(spec.label) for spec in self.policies)
            near = checks.did_you_mean(word, [spec.label for spec in self.policies])
            raise InvalidInputError(f"policies: the plan has no {word!r}{near}; it has {labels}")
        return found


def build_for(contender: Contender, system: LinearGaussianSystem, seed: int) -> Any:
    """Make a policy for a system; a noise bound of "system" is the system's own."""
    if contender.parameters.get("noise_bound") == "system":
        contender = replace(contender, parameters={**contender.parameters, "noise_bound": true_noise_bound(system)})
    return contender.build(system=system, arms=system.arm_count, context_dim=system.context_dim, rng=seed)


def paper_plan(psi: Sequence[float] = (1, 2, 3, 4)) -> Plan:
    """Return the paper's evaluation, with additional rows, from `paper.toml`."""
    text = importlib.resources.files("undertow.study").joinpath("paper.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    content["systems"][0]["grid"]["psi"] = list(psi)
    return _plan(content, Path())


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML file, without checking that it is a plan."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InvalidInputError(f"{os.fspath(path)}: there is no such file") from error
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{os.fspath(path)}: not a plan in TOML ({error})") from error


def contenders_of(content: Mapping[str, Any]) -> list[Contender]:
    """Return the policies of a plan's content, grids written out."""
    return [_policy(entry) for entry in _entries(content, "policies")]


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan from a TOML file."""
    content = {"name": Path(path).stem} | read_toml(path)
    try:
        return _plan(content, Path(path).parent)
    except InvalidInputError as error:
        raise InvalidInputError(f"{os.fspath(path)}: {textwrap.shorten(str(error), _LONGEST)}") from error


def _plan(content: dict[str, Any], folder: Path) -> Plan:
    known = {*_SINGLE, "systems", "policies"}
    if unknown := sorted(content.keys() - known):
        near = checks.did_you_mean(unknown[0], known)
        raise InvalidInputError(f"{unknown[0]:.80}: a plan has no such entry{near}; it has {', '.join(sorted(known))}")
    systems = [_system(entry, folder) for entry in _entries(content, "systems")]
    return Plan(**content | {"systems": systems, "policies": contenders_of(content)})


def _entries(content: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the systems or the policies of a plan's content, grids written out."""
    entries = content.get(name)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidInputError(f"{name}: expected tables, each begun by [[{name}]], got {entries!r:.60}")
    return [entry for raw in entries for entry in _grid(raw, name)]


def _grid(raw: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """Expand an entry's grid to one entry per combination, each with its label."""
    plain = {name: value for name, value in raw.items() if name not in ("grid", "label")}
    grid = raw.get("grid", {})
    if not isinstance(grid, dict) or not all(isinstance(values, list) and values for values in grid.values()):
        raise InvalidInputError(f"{where}: expected grid to be a table of lists that are not empty, got {grid!r:.60}")
    default = plain.get("policy") or plain.get("kind") or where
    label = raw.get("label", " ".join([str(default), *(f"{name}={{{name}}}" for name in grid)]))
    if (size := math.prod(map(len, grid.values()))) > _MOST_ENTRIES:
        raise InvalidInputError(f"{where}: expected a grid of at most {_MOST_ENTRIES} combinations, got {size}")
    entries = []
    for values in itertools.product(*grid.values()):
        entry = plain | dict(zip(grid, values, strict=True))
        try:
            entries.append(entry | {"label": _label(str(label), entry)})
        except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
            raise InvalidInputError(
                f"{where}: label {label!r:.80} names something that is not there ({error!s:.200})"
            ) from error
    return entries


def _label(text: str, entry: Mapping[str, Any]) -> str:
    """Fill in the parameters that a label names; refuse absurdly long labels."""
    for _, field, form, _ in string.Formatter().parse(text):
        if field is not None and not (field.isidentifier() and _FORMAT.fullmatch(form or "")):
            raise ValueError(f"expected the name of a parameter in brackets, got {field + ':' * bool(form)}{form:.20}")
    label = text.format(**entry)
    if len(label) > _MOST_LETTERS:
        raise ValueError(f"expected at most {_MOST_LETTERS} letters, got {len(label)}")
    return label


def _policy(entry: dict[str, Any]) -> Contender:
    label, name, detail = entry.pop("label"), entry.pop("policy", None), entry.pop("detail", False)
    known_policy(name)  # or an error
    if given := next((given for given in ("arms", "rng") if given in entry), None):
        raise InvalidInputError(f"policies: {label!r}: {given}: this follows from system and seed; omit it")
    return Contender(label, name, entry, checks.flag("detail", detail))


def _system(entry: dict[str, Any], folder: Path) -> SystemSpec:
    label, kind = entry.pop("label"), entry.pop("kind", None)
    makers: dict[Any, Callable[..., LinearGaussianSystem]] = {
        "paper": paper_system,
        "random": random_system,
        "file": lambda path: LinearGaussianSystem.load(folder / path),
    }
    if not isinstance(kind, str) or kind not in makers:
        near = checks.did_you_mean(kind, makers)
        raise InvalidInputError(f"systems: expected kind {', '.join(map(repr, makers))}, got {kind!r:.80}{near}")
    if kind == "random":
        entry["rng"] = entry.pop("seed", 0)
    fields = inspect.signature(makers[kind]).parameters
    names = ", ".join("seed" if name == "rng" else name for name in fields)
    where = f"a system of kind {kind!r} has {names}"
    if unknown := next((name for name in entry if name not in fields), None):
        raise InvalidInputError(f"systems: {label!r}: {unknown:.80}: there is no such field; {where}")
    if missing := next((n for n, field in fields.items() if field.default is field.empty and n not in entry), None):
        raise InvalidInputError(f"systems: {label!r}: {missing}: this field is missing; {where}")
    for name in ("state_dim", "context_dim", "arm_count"):
        if isinstance(size := entry.get(name), int) and size > _MOST_ARMS:
            raise InvalidInputError(f"systems: {label!r}: {name}: expected at most {_MOST_ARMS}, got {size}")
    try:
        return SystemSpec(label, makers[kind](**entry))
    except (TypeError, OSError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"systems: {label!r}: {error}") from error
