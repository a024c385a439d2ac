"""Simulated problems without contexts: common in practice, and beyond any single model.

A seed fixes a world and its path. Levels are AR(1) processes of stationary variance 1. In `SAFE_WORLDS`, arm 0 tempts a
policy to stay. In `UNTOUCHED`, an arm becomes the best while there is no reason to play it. In `ROUTERS`, an arm
succeeds or fails and has a price; in `CLICKS`, it rarely succeeds. Both provide the prices.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.trajectory import Trajectory

__all__ = ["CLICKS", "ROUTERS", "SAFE_WORLDS", "UNTOUCHED", "WORLDS", "World"]

_ROUNDS, _SAFE_ROUNDS, _SHORT_ROUNDS = 4000, 1500, 3000
_BRANCH = 2**31 + 4  # of a seed: plain children are runs of a system
_NOISE = 0.5  # standard deviation by default
_LEVEL, _SLOW = 0.99, 0.999  # persistence of levels, and of weights that drift
_SEGMENT = 500  # rounds between two switches
_STEP = 0.05  # of a random walk
_DEGREES = 2  # of Student's t
_GOOD, _GOOD_ROUNDS = 1.5, 200  # first reward of the fading arm, and for how long

_QUIET, _LOUD = 0.02, 0.35  # noise of stationary arms
_WHEN = (0.1, 1 / 3, 0.5)  # of the rounds, when the worst arm becomes the best
_LEAST_RISE, _LARGEST_RISE = 0.1, 0.5  # above the best
_PRICES = (0.0, 0.05, 0.1, 0.2)
_LEAST_CHANCE, _LARGEST_CHANCE = 0.5, 0.95  # of success
_WANDER, _RELEASE, _SWING, _DAY = 0.04, 600, 0.2, 300  # step of log odds; rounds between changes; size and length

Sample = Callable[[np.random.Generator, int], Trajectory]


class World(NamedTuple):
    """A problem: its title, its path for a seed and a number of rounds, and known parameters."""

    title: str
    path: Callable[[int, int], Trajectory]
    known: Mapping[str, Any] = MappingProxyType({})


def _levels(draw: np.random.Generator, rounds: int, columns: int, persistence: float = _LEVEL) -> FloatArray:
    """Return independent AR(1) processes that start in their stationary law N(0, 1), (rounds, columns)."""
    import scipy.signal  # as in `datasets`: it takes long to import

    kicks = draw.standard_normal((rounds, columns))
    kicks[1:] *= math.sqrt(1.0 - persistence**2)
    return np.asarray(scipy.signal.lfilter([1.0], [1.0, -persistence], kicks, axis=0))


def _noisy(
    draw: np.random.Generator, means: FloatArray, noise: float | FloatArray = _NOISE, features: FloatArray | None = None
) -> Trajectory:
    return Trajectory(None, means + noise * draw.standard_normal(means.shape), means=means, features=features)


def _switches(draw: np.random.Generator, rounds: int) -> Trajectory:
    segments = draw.standard_normal((math.ceil(rounds / _SEGMENT), 5))
    return _noisy(draw, np.repeat(segments, _SEGMENT, axis=0)[:rounds], 1.0)


def _unequal_noise(draw: np.random.Generator, rounds: int) -> Trajectory:
    noise = draw.permutation(np.geomspace(0.05, 5.0, 5))
    return _noisy(draw, _levels(draw, rounds, 5), noise)


def _standing(draw: np.random.Generator, rounds: int) -> Trajectory:
    means = np.tile(draw.random(10), (rounds, 1))
    return Trajectory(None, (draw.random(means.shape) < means).astype(np.float64), means=means)


def _stationary_linear(draw: np.random.Generator, rounds: int) -> Trajectory:
    weights, features = draw.standard_normal((8, 6)) / math.sqrt(8), draw.standard_normal((rounds, 8))
    return _noisy(draw, features @ weights, features=features)


def _drifting_weights(draw: np.random.Generator, rounds: int) -> Trajectory:
    k, q = 5, 3
    features, weights = draw.standard_normal((rounds, q)), _levels(draw, rounds, k * q, _SLOW).reshape(rounds, k, q)
    means = (np.einsum("tkq,tq->tk", weights, features) + _levels(draw, rounds, k)) / math.sqrt(2)
    return _noisy(draw, means, features=features)


def _random_walks(draw: np.random.Generator, rounds: int) -> Trajectory:
    steps = _STEP * draw.standard_normal((rounds, 5))
    return _noisy(draw, draw.standard_normal(5) + np.cumsum(steps, axis=0), 1.0)


def _heavy_tails(draw: np.random.Generator, rounds: int) -> Trajectory:
    means = _levels(draw, rounds, 5)
    return Trajectory(None, means + _NOISE * draw.standard_t(_DEGREES, means.shape), means=means)


def _periodic(draw: np.random.Generator, rounds: int) -> Trajectory:
    periods, phases = np.exp(draw.uniform(math.log(20), math.log(200), 5)), draw.random(5)
    return _noisy(draw, math.sqrt(2) * np.sin(2 * np.pi * (np.arange(rounds)[:, None] / periods + phases)))


def _shared_factor(draw: np.random.Generator, rounds: int) -> Trajectory:
    loadings = draw.standard_normal(5)
    return _noisy(draw, (_levels(draw, rounds, 1) * loadings + _levels(draw, rounds, 5)) / math.sqrt(2))


def _safe(draw: np.random.Generator, rounds: int, *, arms: int, noise: float, features: bool = False) -> Trajectory:
    """Arm 0 has reward 0, plus noise; the others have levels and, optionally, half their variance from features."""
    means, given = _levels(draw, rounds, arms), None
    if features:
        given = draw.standard_normal((rounds, 2))
        means = (means + given @ draw.standard_normal((2, arms)) / math.sqrt(2)) / math.sqrt(2)
    means[:, 0] = 0.0
    return _noisy(draw, means, np.append(noise, np.full(arms - 1, _NOISE)), given)


def _quiet(draw: np.random.Generator, rounds: int) -> Trajectory:
    """All arms have levels, but arm 0 has hardly any noise."""
    return _noisy(draw, _levels(draw, rounds, 5), np.append(0.01, np.full(4, _NOISE)))


def _fading(draw: np.random.Generator, rounds: int) -> Trajectory:
    """Arm 0 is good at first, and then always has reward 0."""
    means = _levels(draw, rounds, 5)
    means[:, 0] = np.where(np.arange(rounds) < _GOOD_ROUNDS, _GOOD, 0.0)
    return _noisy(draw, means, np.append(0.02, np.full(4, _NOISE)))


def _untouched(draw: np.random.Generator, rounds: int, *, arms: int) -> Trajectory:
    """Arms are stationary until, at some round, the worst becomes the best."""
    noise, when = math.exp(draw.uniform(math.log(_QUIET), math.log(_LOUD))), _WHEN[draw.integers(len(_WHEN))]
    means = np.tile(draw.random(arms), (rounds, 1))
    means[int(when * rounds) :, means[0].argmin()] = means[0].max() + draw.uniform(_LEAST_RISE, _LARGEST_RISE)
    return _noisy(draw, means, noise)


def _successes(draw: np.random.Generator, chances: FloatArray, prices: FloatArray) -> Trajectory:
    return Trajectory(None, (draw.random(chances.shape) < chances) - prices, means=chances - prices)


def _router(draw: np.random.Generator, rounds: int, *, kind: str) -> Trajectory:
    """Four arms that succeed or fail, at a price: a right answer of a model, a parcel that comes in time."""
    k, t = len(_PRICES), np.arange(rounds)[:, None]
    chances = np.tile(draw.uniform(_LEAST_CHANCE, _LARGEST_CHANCE, k), (rounds, 1))
    if kind == "drift":
        odds = np.log(chances / (1.0 - chances)) + np.cumsum(_WANDER * draw.standard_normal((rounds, k)), axis=0)
        chances = 1.0 / (1.0 + np.exp(-odds))
    elif kind == "releases":
        for start in np.cumsum(draw.geometric(1 / _RELEASE, rounds)):
            chances[start:, draw.integers(k)] = draw.uniform(_LEAST_CHANCE, _LARGEST_CHANCE)
    elif kind == "day":
        chances = np.clip(chances + _SWING * np.sin(2.0 * np.pi * (t / _DAY + draw.random(k))), 0.02, 0.98)
    return _successes(draw, chances, np.array(_PRICES))


def _clicks(draw: np.random.Generator, rounds: int, *, arms: int, least: float, most: float) -> Trajectory:
    """Stationary arms that rarely succeed, with probabilities at equal ratios, in any order."""
    chances = np.tile(draw.permutation(np.geomspace(least, most, arms)), (rounds, 1))
    return _successes(draw, chances, np.zeros(arms))


def _path(sample: Sample, most: int, seed: int, rounds: int) -> Trajectory:
    draw = checks.child(checks.seed_sequence(checks.integer("seed", seed, least=0)), _BRANCH)
    path = sample(draw, most)  # always complete, so that a shorter path is a prefix of a longer one
    parts = {name: getattr(path, name)[:rounds] for name in ("rewards", "means", "features")}
    return Trajectory(None, **parts)


def _world(title: str, sample: Sample) -> World:
    return World(title, partial(_path, sample, _ROUNDS))


def _safe_world(title: str, sample: Sample) -> World:
    return World(title, partial(_path, sample, _SAFE_ROUNDS))


#: Problems without contexts, by name.
WORLDS: dict[str, World] = {
    "switches": _world("all arms change every 500 rounds", _switches),
    "unequal-noise": _world("noise differs 100-fold between arms", _unequal_noise),
    "standing": _world("ten arms that stand still, 0 or 1", _standing),
    "stationary-linear": _world("fixed weights on eight features", _stationary_linear),
    "drifting-weights": _world("drifting weights on features, and levels", _drifting_weights),
    "random-walks": _world("random walks", _random_walks),
    "heavy-tails": _world("levels, noise with heavy tails", _heavy_tails),
    "periodic": _world("each arm with a period of its own", _periodic),
    "shared-factor": _world("a shared factor, and levels", _shared_factor),
}
#: Problems with an arm that tempts a policy to stay, by name.
SAFE_WORLDS: dict[str, World] = {
    f"{arms}-{noise:g}{'-features' if features else ''}": _safe_world(
        f"a safe arm of noise {noise:g} among {arms}{', features' if features else ''}",
        partial(_safe, arms=arms, noise=noise, features=features),
    )
    for arms in (3, 5, 10)
    for noise in (0.0, 0.02, 0.5)
    for features in (False, True)
} | {
    "quiet": _safe_world("one arm without noise among five", _quiet),
    "fading": _safe_world("one arm good at first, then dull", _fading),
}
#: Problems in which the worst of some stationary arms becomes the best, by name.
UNTOUCHED: dict[str, World] = {
    f"{arms}": World(
        f"the worst of {arms} arms becomes the best", partial(_path, partial(_untouched, arms=arms), _SHORT_ROUNDS)
    )
    for arms in (3, 4, 6)
}
#: Success or failure at a price, by how the probabilities change.
ROUTERS: dict[str, World] = {
    kind: World(
        f"success less a price: {title}",
        partial(_path, partial(_router, kind=kind), _SHORT_ROUNDS),
        MappingProxyType({"prices": _PRICES}),
    )
    for kind, title in {
        "still": "chances stand still",
        "drift": "chances drift",
        "releases": "one chance changes now and then",
        "day": "each chance has a daily cycle",
    }.items()
}
#: Rare successes, by the number of arms.
CLICKS: dict[str, World] = {
    f"{arms}": World(
        f"{arms} arms that are clicked {100 * least:g} to {100 * most:g} % of the time",
        partial(_path, partial(_clicks, arms=arms, least=least, most=most), _ROUNDS),
        MappingProxyType({"prices": (0.0,) * arms}),
    )
    for arms, least, most in ((4, 0.03, 0.25), (8, 0.004, 0.04), (15, 0.01, 0.08), (30, 0.02, 0.15))
}
