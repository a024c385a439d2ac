"""The problems: the paper's system, random systems and recorded data, stored so that all see the same numbers.

Test and tuning problems never share a seed. A group is what parameters are tuned for.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from undertow import LinearGaussianSystem, Trajectory, paper_system
from undertow.problems.datasets import dataset
from undertow.problems.environments import random_problem

PSI = (1, 2, 3, 4)
RANDOM_SEEDS = range(20)  # of `random_problem`: d 2–10, m 1–3, k 2–20, spectral radius 0.9–1
RECORDED = ("chicago", "bike-sharing", "victoria", "stocks")
TEST_SEED, TUNING_SEED = 0, 1  # of the paper's paths
TUNING_SYSTEMS = (101, 103, 105)
TUNING_ROUNDS, TUNING_ROWS = (
    2000,
    3000,
)  # of sampled paths; of recorded data. Shorter ones favour too little exploration


class Problem(NamedTuple):
    """A path to play, and its true system, if any."""

    group: str
    label: str
    path: Trajectory
    system: LinearGaussianSystem | None

    def store(self, folder: Path) -> Path:
        """Write the path without its means, and return the file."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.group}-{self.label}.npz"
        np.savez(file, contexts=self.path.contexts, rewards=self.path.rewards, features=self.path.features)
        return file


class Extent(NamedTuple):
    """The extent of a comparison.

    Attributes
    ----------
    psi, paths
        The paper's systems, and the number of paths of each.
    systems
        Seeds of random systems, one path of each.
    rounds
        Of each sampled path.
    recorded
        Names of recorded data, played to their end.
    seeds
        Number of seeds of random policies on recorded data: ours, and peers.
    """

    psi: tuple[int, ...]
    paths: int
    systems: tuple[int, ...]
    rounds: int
    recorded: tuple[str, ...]
    seeds: tuple[int, int]


SHORT = Extent((1, 4), 5, (0, 1, 2, 3), 5000, RECORDED, (5, 1))
FULL = Extent(PSI, 10, tuple(RANDOM_SEEDS), 10_000, RECORDED, (10, 3))


def test_problems(extent: Extent) -> Iterator[Problem]:
    """Yield the problems that the tables are about."""
    for psi in extent.psi:
        yield from _paper(psi, TEST_SEED, extent.paths, extent.rounds)
    for seed in extent.systems:
        yield _random(seed, extent.rounds)
    for name in extent.recorded:
        yield _recorded(name, None)


def tuning_problems() -> Iterator[Problem]:
    """Yield the problems that parameters are chosen on.

    Recorded data have no other seeds: there it is the first rounds of what will be played, to the advantage of whoever
    is tuned.
    """
    for psi in PSI:
        yield from _paper(psi, TUNING_SEED, 2, TUNING_ROUNDS)
    for seed in TUNING_SYSTEMS:
        yield _random(seed, TUNING_ROUNDS)
    for name in RECORDED:
        yield _recorded(name, TUNING_ROWS)


def _paper(psi: int, seed: int, paths: int, rounds: int) -> Iterator[Problem]:
    system = paper_system(psi)
    sampled = system.sample(rounds, rng=seed, runs=paths)
    for number in range(paths):
        yield Problem(f"psi-{psi}", f"run-{number}", sampled.run(number), system)


def _random(seed: int, rounds: int) -> Problem:
    system = random_problem(seed)
    return Problem("random", f"seed-{seed}", system.sample(rounds, rng=seed), system)


def _recorded(name: str, rows: int | None) -> Problem:
    whole = dataset(name).trajectory
    rewards, features = whole.rewards[:rows], whole.features[:rows]
    path = Trajectory(None, rewards, means=rewards, features=features)
    return Problem(name, "whole" if rows is None else "beginning", path, None)
