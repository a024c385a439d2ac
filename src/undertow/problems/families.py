"""Families of problems for policies.

A family is a set of problems of one kind. Problem i of a family is the same in every program.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from undertow.errors import InvalidInputError
from undertow.example_systems import paper_system
from undertow.problems.datasets import DATASETS, dataset
from undertow.problems.environments import (
    KINDS,
    Kind,
    base_system,
    contextless,
    misspecified,
    random_problem,
    with_missing,
    without_contexts,
)
from undertow.problems.worlds import CLICKS, ROUTERS, SAFE_WORLDS, UNTOUCHED, WORLDS, World
from undertow.support import checks
from undertow.system import LinearGaussianSystem
from undertow.trajectory import Trajectory

__all__ = ["FAMILIES", "Family", "Problem", "select_families"]

PSI = (1, 2, 3, 4)
MISSING = 0.3
_ORDER = 2**31 + 5  # branch of a seed that orders the arms of a recorded table


class Problem(NamedTuple):
    """A problem: its path, given the largest number of rounds; the true system, if any; the policy's seed.

    `known` has parameters for known quantities, such as prices.
    """

    label: str
    path: Callable[[int], Trajectory]
    system: LinearGaussianSystem | None
    seed: int
    known: Mapping[str, Any] = MappingProxyType({})


class Family(NamedTuple):
    """Problems of one kind: `problem(i)` is number i, and there are `size` of them by default.

    `data` names the data set behind a family of recorded rewards; for these, the share won is reported.
    """

    title: str
    size: int
    problem: Callable[[int], Problem]
    data: str | None = None


def _sampled(system: LinearGaussianSystem, seed: int, run: int, rounds: int) -> Trajectory:
    return system.sample(rounds, rng=seed, runs=[run], threads=1).run(0)


def _paper(psi: int, run: int) -> Problem:
    system = paper_system(psi)
    return Problem(f"run {run}", partial(_sampled, system, 0, run), system, run)


def _paper_missing(psi: int, run: int) -> Problem:
    whole = _paper(psi, run)
    return whole._replace(path=lambda rounds: with_missing(whole.path(rounds), MISSING, run))


def _paper_without(psi: int, run: int) -> Problem:
    whole = _paper(psi, run)
    system = contextless(paper_system(psi))
    return Problem(whole.label, lambda rounds: without_contexts(whole.path(rounds)), system, run)


def _random(radius: float | None, drift: bool, seed: int) -> Problem:
    system = random_problem(seed, radius=radius, drift=drift)
    return Problem(f"seed {seed}", partial(_sampled, system, seed, 0), system, seed)


def _misspecified(kind: Kind, seed: int) -> Problem:
    # Correlated noise is the only kind that a linear Gaussian system describes.
    system = base_system(kind, seed) if kind == "correlated-noise" else None
    return Problem(f"seed {seed}", partial(misspecified, kind, seed), system, seed)


def _world(world: World, seed: int) -> Problem:
    return Problem(f"seed {seed}", partial(world.path, seed), None, seed, world.known)


def _recorded(name: str, seed: int) -> Problem:
    """Return a recorded table with its arms in another order for every seed.

    A deterministic policy breaks ties by the number of an arm. On a short table, these first choices matter, so that
    one order says as little about it as one seed about a randomised policy.
    """

    def path(rounds: int) -> Trajectory:
        whole = dataset(name).trajectory
        order = checks.child(checks.seed_sequence(seed), _ORDER).permutation(whole.arm_count)
        rewards, features = whole.rewards[:rounds, order], whole.features[:rounds]
        return Trajectory(None, rewards, means=rewards, features=features)

    return Problem(f"seed {seed}", path, None, seed)


FAMILIES: dict[str, Family] = {
    **{f"paper-{psi}": Family(f"the paper's system, psi = {psi}", 100, partial(_paper, psi)) for psi in PSI},
    "stable": Family("random systems, stable", 20, partial(_random, None, False)),
    "stable-drift": Family("random systems, stable, with drift", 20, partial(_random, None, True)),
    "unit-root": Family("random systems, spectral radius 1", 20, partial(_random, 1.0, False)),
    "unit-root-drift": Family("random systems, spectral radius 1, with drift", 20, partial(_random, 1.0, True)),
    **{
        f"misspecified-{kind}": Family(f"misspecified: {kind.replace('-', ' ')}", 8, partial(_misspecified, kind))
        for kind in KINDS
    },
    **{
        f"missing-{psi}": Family(f"30 % missing contexts, psi = {psi}", 20, partial(_paper_missing, psi)) for psi in PSI
    },
    **{f"no-contexts-{psi}": Family(f"no contexts, psi = {psi}", 20, partial(_paper_without, psi)) for psi in PSI},
    **{f"world-{name}": Family(world.title, 10, partial(_world, world)) for name, world in WORLDS.items()},
    **{f"safe-{name}": Family(world.title, 10, partial(_world, world)) for name, world in SAFE_WORLDS.items()},
    **{f"untouched-{name}": Family(world.title, 10, partial(_world, world)) for name, world in UNTOUCHED.items()},
    **{f"router-{name}": Family(world.title, 10, partial(_world, world)) for name, world in ROUTERS.items()},
    **{f"clicks-{name}": Family(world.title, 10, partial(_world, world)) for name, world in CLICKS.items()},
    **{f"data-{name}": Family(f"recorded: {name}", 10, partial(_recorded, name), name) for name in DATASETS},
}


def select_families(names: Iterable[str]) -> list[str]:
    """Return the families with one of these names or prefixes; all if none is given."""
    chosen = set()
    for name in names:
        begin = [name] if name in FAMILIES else [family for family in FAMILIES if family.startswith(f"{name}-")]
        if not begin:
            near = checks.did_you_mean(name, [*FAMILIES, *(family.partition("-")[0] for family in FAMILIES)])
            raise InvalidInputError(f"family: there is no {name!r}{near}; expected one of {', '.join(FAMILIES)}")
        chosen.update(begin)
    return [family for family in FAMILIES if not chosen or family in chosen]
