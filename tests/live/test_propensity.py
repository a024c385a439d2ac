"""Exploration with a known probability, and the probability with which every arm was chosen."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from helpers import LIVE, Array, full_system, live_round, make_policy
from undertow import InvalidInputError, Trajectory, simulate
from undertow.live.propensity import chances_of_largest
from undertow.policies import (
    ARES,
    UCB,
    Autopilot,
    Decision,
    KalmanUCB,
    LearnedKalman,
    LinTS,
    LinUCB,
    LivePolicy,
    Random,
    Rexp3,
    StructuralKalman,
    registry,
)
from undertow.support.checks import LARGEST

SYSTEM = full_system(3, 2, 3, seed=1)
PATH = SYSTEM.sample(3000, rng=1)
DETERMINISTIC = [name for name in LIVE if registry()[name].capabilities.deterministic]


def test_exploring_always_is_uniform_over_the_arms_that_are_available() -> None:
    """Seed 0, 6000 rounds, arms 0, 2 and 3 of four: each a third of the time, within 4 standard errors."""
    policy = UCB(arms=4, explore=1.0, rng=0)
    counts = np.zeros(4)
    for _ in range(6000):
        decision = policy.decide(available=[0, 2, 3])
        assert decision.propensity == pytest.approx(1 / 3, abs=1e-15)
        policy.learn(decision, float(decision.arm))
        counts[decision.arm] += 1
    assert counts[1] == 0
    assert (np.abs(counts[[0, 2, 3]] / 6000 - 1 / 3) < 4 * math.sqrt(2 / 9 / 6000)).all()


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_what_is_not_drawn_was_certain(name: str) -> None:
    policy = make_policy(name, SYSTEM)
    assert {live_round(policy, PATH, t).propensity for t in range(20)} == {1.0}


@pytest.mark.parametrize(
    "policy",
    [LinUCB(arms=3, context_dim=2, explore=0.3, rng=0), KalmanUCB(SYSTEM, explore=0.3, rng=0)]
    + [ARES(arms=3, context_dim=2, explore=0.3, minimize=minimize, rng=0) for minimize in (False, True)],
    ids=lambda policy: type(policy).__name__,
)
def test_a_deterministic_policy_explores_with_the_rest(policy: LivePolicy) -> None:
    """The best arm that is open has 1 − ε + ε/k, every other ε/k, and ε (1 − 1/k) of the rounds go to those.

    Seed 0: 600 rounds, in half of them two arms are open; within 4 standard errors.
    """
    drawn = []
    for t in range(600):
        open_arms = [0, 1, 2] if t % 2 else [t % 3, (t + 1) % 3]
        decision = live_round(policy, PATH, t, available=open_arms)
        if np.isinf(decision.width[open_arms]).any():
            continue
        sign = -1.0 if policy.minimize else 1.0
        best = max(open_arms, key=lambda arm: sign * decision.forecast[arm] + decision.width[arm])
        share = 0.3 / len(open_arms)
        assert decision.propensity == pytest.approx(share + 0.7 * (decision.arm == best), abs=1e-12)
        drawn.append((decision.arm != best) - (0.3 - share))
    assert abs(np.mean(drawn)) < 4 * np.std(drawn) / math.sqrt(len(drawn))


@pytest.mark.parametrize("rounds", [4, 30])
@pytest.mark.parametrize("name", LIVE)
def test_the_probabilities_of_all_arms_add_up_to_one(name: str, rounds: int) -> None:
    """Copies that draw with seeds 0 to 79 choose every open arm, each with one probability."""
    policy = make_policy(name, SYSTEM, explore=0.4, rng=0)
    for t in range(rounds):
        live_round(policy, PATH, t)
    for open_arms in ([0, 1, 2], [0, 2]):
        found: dict[int, float] = {}
        for seed in range(80):
            twin = copy.deepcopy(policy)
            streams = twin.parts.streams
            streams.own, streams.explore = (np.random.default_rng([seed, stream]) for stream in range(2))
            streams.note(twin.parts.pending.made)
            decision = twin.decide(available=open_arms)
            assert found.setdefault(decision.arm, decision.propensity) == decision.propensity
        assert sorted(found) == open_arms
        assert sum(found.values()) == pytest.approx(1, abs=1e-7)


def weights(make: Callable[[int], LivePolicy], policies: int, rounds: int) -> Array:
    """1{arm = a} / propensity of every round of several policies, (policies · rounds, 3)."""
    result = np.zeros((policies, rounds, 3))
    for number in range(policies):
        policy = make(number)
        for t in range(rounds):
            decision = live_round(policy, PATH, t)
            result[number, t, decision.arm] = 1 / decision.propensity
    return result.reshape(-1, 3)


@pytest.mark.parametrize(
    ("make", "policies", "rounds"),
    [
        (lambda seed: Random(arms=3, rng=seed), 1, 2000),
        (lambda seed: Rexp3(arms=3, bounds=(-10.0, 10.0), explore=0.05, rng=seed), 1, 2000),
        (lambda seed: LinTS(arms=3, context_dim=2, window=2, exploration=3.0, explore=0.05, rng=seed), 1, 2000),
        (lambda seed: LinUCB(arms=3, context_dim=2, window=2, explore=0.3, rng=seed), 1, 2000),
        (lambda seed: LearnedKalman(arms=3, explore=0.3, rng=seed), 300, 5),
        (lambda seed: StructuralKalman(arms=3, context_dim=2, explore=0.3, rng=seed), 300, 5),
        (lambda seed: Autopilot(arms=3, explore=0.3, rng=seed), 100, 5),
    ],
    ids=["Random", "Rexp3", "LinTS", "LinUCB", "LearnedKalman", "StructuralKalman", "Autopilot"],
)
def test_arms_weighted_by_their_propensity_are_unbiased(make: Any, policies: int, rounds: int) -> None:
    """E[1{arm = a} / propensity] = 1 for every arm; seeds from 0 on, within 4 standard errors."""
    found = weights(make, policies, rounds)
    error = found.std(axis=0) / math.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - 1) < 4 * error).all()
    assert (error < 0.2).all()


# Thompson sampling


@pytest.mark.parametrize("ratio", [1.0, 0.3, 0.1, 0.01, 1e-4])
def test_the_chance_of_two_normal_numbers_is_the_closed_form(ratio: float) -> None:
    for gap in np.linspace(-3, 3, 25):
        for widths in ((1.0, ratio), (ratio, 1.0)):
            expected = ndtr(gap / math.hypot(*widths))
            found = chances_of_largest(np.array([gap, 0.0]), np.array(widths))
            np.testing.assert_allclose(found, [expected, 1 - expected], atol=1e-8)


def test_the_chance_of_many_normal_numbers() -> None:
    """Against 10^6 draws with seed 0, within 4 standard errors, where widths differ by a factor of a hundred."""
    rng = np.random.default_rng(0)
    means, widths = np.array([0.0, 0.1, 0.12, -1.0]), np.array([0.02, 0.5, 0.05, 2.0])
    draws = means + widths * rng.standard_normal((10**6, 4))
    share = np.bincount(draws.argmax(axis=1), minlength=4) / 10**6
    found = chances_of_largest(means, widths)
    assert (np.abs(found - share) < 4 * np.sqrt(share * (1 - share) / 10**6)).all()


def test_lints_says_with_which_probability_it_drew() -> None:
    policy = LinTS(arms=2, feature_dim=1, explore=0.1, minimize=True, rng=0)
    for t in range(200):
        features = [0.1 if t % 9 else 30.0]
        decision = policy.decide(features, available=[0, 1] if t % 3 else [1])
        policy.learn(decision, float(PATH.rewards[t, decision.arm]))
        (f, g), width = decision.forecast, float(np.hypot(*decision.width))
        if t % 3:
            chance = ndtr((g - f) / width * (1 if decision.arm == 0 else -1))  # the least cost is drawn
            assert decision.propensity == pytest.approx(0.9 * chance + 0.05, abs=1e-7)
        else:
            assert decision.propensity == pytest.approx(1.0, abs=1e-9)


def test_lints_without_exploration_is_certain() -> None:
    policy = LinTS(arms=3, context_dim=2, exploration=0.0, rng=0)
    assert {live_round(policy, PATH, t).propensity for t in range(20)} == {1.0}


def test_lints_plays_on_where_its_forecasts_have_overflowed() -> None:
    """Seed 0: measurements just below the limit, after a regression that hardly knows a ridge."""
    policy, rng = LinTS(arms=3, context_dim=2, reward_lags=2, ridge=1e-12, explore=0.3, rng=0), np.random.default_rng(0)
    chances = []
    for t in range(60):
        size = 1e-3 if t < 15 else 0.9 * LARGEST
        decision = policy.decide()
        assert decision.propensities is not None
        assert decision.propensities.sum() == pytest.approx(1.0)
        if not np.isfinite(decision.forecast).all():
            chances.append(decision.propensities.tolist())
        policy.learn(decision, size * rng.uniform(-1, 1))
        policy.observe(size * rng.uniform(-1, 1, 2))
    assert len(chances) > 9
    assert all(sorted(each) == pytest.approx([0.1, 0.1, 0.8]) for each in chances)  # one arm, or an explored one


# Exploring elsewhere


@pytest.mark.parametrize("name", ["linucb", "lints", "rexp3", "learned-kalman"])
@pytest.mark.parametrize("context_first", [False, True])
def test_exploration_is_simulated_as_it_is_lived(name: str, context_first: bool) -> None:
    order = {"context_first": context_first} if "context_first" in registry()[name].parameters else {}
    path = Trajectory(PATH.contexts[:80], PATH.rewards[:80])
    run = simulate(make_policy(name, SYSTEM, explore=0.3, rng=4, **order), path, record=["forecasts", "widths"])
    policy = make_policy(name, SYSTEM, explore=0.3, rng=4, **order)
    assert run.forecasts is not None
    assert run.widths is not None
    for t in range(80):
        decision = live_round(policy, path, t)
        assert decision.arm == run.arms[t]
        np.testing.assert_array_equal(decision.forecast, run.forecasts[t])
        np.testing.assert_array_equal(decision.width, run.widths[t])


@pytest.mark.parametrize("name", ["random", "lints", "learned-kalman"])
def test_exploring_has_a_stream_of_its_own(name: str) -> None:
    one, two = (make_policy(name, SYSTEM, explore=share, rng=3) for share in (0.0, 1e-12))
    for t in range(40):
        assert live_round(one, PATH, t).arm == live_round(two, PATH, t).arm


def test_a_propensity_goes_through_json() -> None:
    policy = LinTS(arms=3, context_dim=2, explore=0.2, rng=0)
    for t in range(5):
        decision = live_round(policy, PATH, t)
        assert 0 < decision.propensity < 1
        assert Decision.from_json(decision.to_json()).propensity == decision.propensity


@pytest.mark.parametrize("share", [-0.1, 1.5, math.nan, "some", None, [0.5]])
def test_shares_that_are_no_probability_are_refused(share: Any) -> None:
    with pytest.raises(InvalidInputError, match="explore: expected"):
        UCB(arms=2, explore=share)
