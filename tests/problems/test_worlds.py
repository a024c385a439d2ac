"""Simulated worlds and the recorded tables in their own units."""

import numpy as np
import pytest

from undertow.problems.datasets import dataset
from undertow.problems.families import FAMILIES
from undertow.problems.worlds import CLICKS, ROUTERS, SAFE_WORLDS, UNTOUCHED, WORLDS

EVERY = [world for worlds in (WORLDS, SAFE_WORLDS, UNTOUCHED, ROUTERS, CLICKS) for world in worlds.values()]


@pytest.mark.parametrize("world", EVERY, ids=lambda world: world.title)
def test_a_short_path_is_the_beginning_of_a_long_one(world: object) -> None:
    long, short, other = (world.path(*given) for given in ((3, 10**6), (3, 50), (4, 50)))  # type: ignore[attr-defined]
    for name in ("rewards", "means", "features"):
        np.testing.assert_array_equal(getattr(short, name), getattr(long, name)[:50])
    assert long.rounds in (1500, 3000, 4000)
    assert not np.array_equal(short.rewards, other.rewards)


@pytest.mark.parametrize(("noise", "arms"), [(0.0, 3), (0.02, 5), (0.5, 10)])
@pytest.mark.parametrize("features", ["", "-features"])
def test_the_safe_arm_pays_nothing_but_its_noise(noise: float, arms: int, features: str) -> None:
    """Seed 0: deviations within three standard errors of a sample of 1500; the others have half a unit of noise."""
    path = SAFE_WORLDS[f"{arms}-{noise:g}{features}"].path(0, 1500)
    assert path.means is not None
    assert path.arm_count == arms
    assert not path.means[:, 0].any()
    deviations = (path.rewards - path.means).std(axis=0)
    np.testing.assert_allclose(deviations, [noise, *[0.5] * (arms - 1)], rtol=3 / np.sqrt(2 * 1500))
    assert (path.means[:, 1:].std(axis=0) > 0.3).all()


def test_the_worst_arm_becomes_the_best() -> None:
    for seed in range(20):
        means = UNTOUCHED["4"].path(seed, 3000).means
        assert means is not None
        (when,) = np.flatnonzero(np.diff(means, axis=0).any(axis=1)) + 1
        assert when in (300, 1000, 1500)
        assert means[0].argmin() == means[-1].argmax()
        assert 0.1 < means[-1].max() - means[0].max() < 0.5


def test_successes_have_their_prices() -> None:
    """Chances are those of the rewards, within four standard errors; they move as the kind says."""
    for world in (*ROUTERS.values(), *CLICKS.values()):
        path, prices = world.path(1, 4000), np.array(world.known["prices"])
        assert path.means is not None
        assert set(np.unique((path.rewards + prices).round(12))) == {0.0, 1.0}
        chances = path.means + prices
        error = np.sqrt((chances * (1 - chances)).sum(axis=0)) / path.rounds
        assert (np.abs((path.rewards - path.means).mean(axis=0)) < 4 * error).all()
    changes = {}
    for kind, world in ROUTERS.items():
        means = world.path(1, 3000).means
        assert means is not None
        changes[kind] = np.mean(np.any(np.diff(means, axis=0) != 0.0, axis=1))
    assert changes["still"] == 0
    assert 0 < changes["releases"] < 0.01
    assert changes["drift"] > 0.99
    assert changes["day"] > 0.5


def test_what_the_worlds_are() -> None:
    switches = WORLDS["switches"].path(0, 1200).means
    standing, walks = WORLDS["standing"].path(0, 4000), WORLDS["random-walks"].path(0, 4000).means
    fading = SAFE_WORLDS["fading"].path(0, 400).means
    assert switches is not None
    assert walks is not None
    assert fading is not None
    assert np.flatnonzero(np.diff(switches, axis=0).any(axis=1)).tolist() == [499, 999]
    assert set(np.unique(standing.rewards)) == {0.0, 1.0}
    np.testing.assert_allclose(np.diff(walks, axis=0).std(axis=0), 0.05, rtol=3 / np.sqrt(2 * 4000))
    assert fading[[0, 199, 200], 0].tolist() == [1.5, 1.5, 0.0]


@pytest.mark.parametrize(
    ("name", "shape", "features", "mean"),
    [
        ("employment", (968, 13), 4, 0.1827),  # % per month
        ("flights", (365, 30), 2, -6.599),  # minutes
        ("pizzas", (3580, 32), 3, 0.3960),
        ("rain", (4971, 12), 2, -11.001),  # mm
        ("calls", (12_000, 7), 4, -20.804),
        ("image-segments", (2310, 7), 18, 1 / 7),
    ],
)
def test_tables_in_their_own_units(name: str, shape: tuple[int, int], features: int, mean: float) -> None:
    data = dataset(name)
    assert data.trajectory.rewards.shape == shape
    assert data.trajectory.features.shape == (shape[0], features)
    assert data.trajectory.rewards.mean() == pytest.approx(mean, rel=1e-3)
    assert len(data.arms) == len(set(data.arms)) == shape[1]


def test_every_seed_orders_the_arms_of_a_table_anew() -> None:
    """The same columns in an order that the seed fixes, also for seed 0."""
    table = dataset("employment").trajectory.rewards[:100]
    paths = [FAMILIES["data-employment"].problem(seed).path(100).rewards for seed in (0, 1, 1, 2)]
    np.testing.assert_array_equal(paths[1], paths[2])
    for one, other in ((paths[0], table), (paths[1], table), (paths[0], paths[1]), (paths[1], paths[3])):
        assert sorted(map(tuple, one.T)) == sorted(map(tuple, other.T))
        assert not np.array_equal(one, other)
