"""Simulated fleets: the rewards of many keys, with much in common or nothing.

A seed fixes a fleet. The expected reward of arm a of key i in round t is m_a + b_ia + s_iat + g_it: a mean of the arm
over all keys, the key's own constant, and two AR(1) levels of the key, its arm's and one that its arms share. In
`alike` one law gives b, s, g and the noise of all keys. In `strangers` each key has its own law, whose standard
deviations differ up to ten times, and there are no m.
"""

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["FLEETS", "Keyed", "play_keyed"]

_ARMS = 5
_BRANCH = 2**31 + 7  # of a seed


class Keyed(NamedTuple):
    """Expected and realised rewards of every key, round and arm, each (keys, rounds, k)."""

    means: FloatArray
    rewards: FloatArray


def _levels(draw: np.random.Generator, rounds: int, persistence: FloatArray, deviation: FloatArray) -> FloatArray:
    """Return AR(1) processes that start in their stationary law; the first axis is time."""
    shape = np.broadcast_shapes(persistence.shape, deviation.shape)
    kicks = deviation * draw.standard_normal((rounds, *shape))
    kicks[1:] *= np.sqrt(1.0 - persistence**2)
    for t in range(1, rounds):
        kicks[t] += persistence * kicks[t - 1]
    return kicks


def _sampled(
    draw: np.random.Generator,
    keys: int,
    rounds: int,
    arm_means: FloatArray,
    constant: FloatArray,
    own: tuple[FloatArray, FloatArray],
    shared: tuple[FloatArray, FloatArray],
    noise: FloatArray,
) -> Keyed:
    """Return a fleet; laws are (keys, 1), or (1, 1) for all keys."""
    k = _ARMS
    means = arm_means + constant * draw.standard_normal((keys, k))
    levels = _levels(draw, rounds, *(np.broadcast_to(each, (keys, k)) for each in own))
    common = _levels(draw, rounds, *(np.broadcast_to(each, (keys, 1)) for each in shared))
    expected = np.moveaxis(means + levels + common, 0, 1)
    return Keyed(expected, expected + noise[..., None] * draw.standard_normal(expected.shape))


def _alike(draw: np.random.Generator, keys: int, rounds: int) -> Keyed:
    one = np.ones((1, 1))
    arm_means = 0.5 * draw.standard_normal(_ARMS)
    laws = (0.97 * one, 0.7 * one), (0.9 * one, 0.7 * one)
    return _sampled(draw, keys, rounds, arm_means, 0.4 * one, *laws, 0.7 * one)


def _strangers(draw: np.random.Generator, keys: int, rounds: int) -> Keyed:
    def between(low: float, high: float) -> FloatArray:
        return np.exp(draw.uniform(math.log(low), math.log(high), (keys, 1)))

    constant, own, shared, noise = (between(0.1, 1.0) for _ in range(4))
    laws = (1.0 - between(0.002, 0.5), own), (1.0 - between(0.002, 0.5), shared)
    return _sampled(draw, keys, rounds, np.zeros(_ARMS), constant, *laws, noise)


_SAMPLES = {"alike": _alike, "strangers": _strangers}
Sample = Callable[[int, int, int], Keyed]


def _fleet(name: str) -> Sample:
    def sample(seed: int, keys: int = 200, rounds: int = 60) -> Keyed:
        draw = checks.child(checks.seed_sequence(seed), _BRANCH, sorted(_SAMPLES).index(name))
        return _SAMPLES[name](draw, keys, rounds)

    return sample


FLEETS = MappingProxyType({name: _fleet(name) for name in _SAMPLES})


def play_keyed(fleet: object, problem: Keyed, first: int, last: int, prefix: str = "key") -> FloatArray:
    """Play keys `first` to `last` − 1 through all rounds, one after the other; return the regret, (rounds, keys).

    `fleet` has `decide_many` and `learn_many`.
    """
    names, rows = [f"{prefix} {i}" for i in range(first, last)], np.arange(last - first)
    regret = np.empty((problem.means.shape[1], last - first))
    for t in range(len(regret)):
        decisions = fleet.decide_many(names)  # type: ignore[attr-defined]
        arms = decisions.arms
        means = problem.means[first:last, t]
        regret[t] = means.max(axis=1) - means[rows, arms]
        fleet.learn_many(decisions, problem.rewards[first:last, t][rows, arms])  # type: ignore[attr-defined]
    return regret
