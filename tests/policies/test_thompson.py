"""Thompson sampling for rewards of 0 or 1: its draws, its posterior, its propensities."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from undertow import InvalidInputError, Trajectory, simulate
from undertow.compiled.kernel import plain
from undertow.policies import BetaThompson
from undertow.policies.thompson import gamma


@pytest.mark.parametrize("shape", [1.0, 1.7, 40.0])
def test_gamma_numbers_are_gamma_numbers(shape: float) -> None:
    """Kolmogorov–Smirnov, 4000 numbers, seed 0."""
    rng = np.random.default_rng(0)
    draws = np.hstack([rng.standard_normal((4000, 4)), 1.0 - rng.random((4000, 4))])
    numbers = [plain(gamma)(shape, row, 0) for row in draws]
    assert stats.kstest(numbers, stats.gamma(shape).cdf).pvalue > 0.01


def test_successes_and_failures_are_counted_with_their_weight() -> None:
    policy, expected = BetaThompson(arms=2, discount=0.9, prices=[0.1, 0.3], rng=0), np.ones((2, 2))
    prices, rng = np.array([0.1, 0.3]), np.random.default_rng(1)
    for _ in range(60):
        decision = policy.decide()
        mean = expected[:, 0] / expected.sum(axis=1)
        np.testing.assert_allclose(decision.forecast, mean - prices)
        np.testing.assert_allclose(decision.width, [stats.beta(*counts).std() for counts in expected])
        success = float(rng.random() < 0.6)
        policy.learn(decision, success - prices[decision.arm])
        expected = 1 + 0.9 * (expected - 1)
        expected[decision.arm] += success, 1 - success


def test_a_cost_is_a_negative_reward() -> None:
    """A success of arm 1 costs its price less 1."""
    policy = BetaThompson(arms=2, prices=[0.0, 0.1], minimize=True, rng=0)
    for _ in range(200):
        decision = policy.decide()
        policy.learn(decision, 0.1 - 1.0 if decision.arm == 1 else 0.0)
    assert policy.decide().forecast[1] < -0.85
    assert policy.decide().name == policy.names[1]


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_the_propensity_is_how_often_an_arm_is_drawn(discount: float) -> None:
    """Against 20,000 draws of the three posteriors in each of some rounds, within four standard errors."""
    policy, rng = BetaThompson(arms=3, discount=discount, prices=[0.0, 0.1, 0.3], rng=0), np.random.default_rng(2)
    for t in range(40):
        own = policy.parts.player.own
        α, β = 1 + own.successes.copy(), 1 + own.failures.copy()
        decision = policy.decide()
        values = rng.beta(α, β, (20_000, 3)) - own.price
        share = np.mean(values.argmax(axis=1) == decision.arm)
        if t % 8 == 0:
            assert decision.propensity == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 20_000) + 1e-4)
        policy.learn(decision, float(rng.random() < (0.9, 0.5, 0.7)[decision.arm]) - own.price[decision.arm])


def test_rare_clicks_are_found() -> None:
    """Ten seeds, four arms: regret below a third of a uniform choice's in every one."""
    for seed in range(10):
        chances = np.tile([0.03, 0.05, 0.08, 0.2], (4000, 1))
        rewards = (np.random.default_rng(seed).random(chances.shape) < chances).astype(float)
        path = Trajectory(None, rewards, means=chances)
        regret = path.regret(simulate(BetaThompson(arms=4, rng=seed), path).arms)[-1]
        assert regret < 4000 * (0.2 - 0.09) / 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"discount": 0.0}, "discount: expected a number above 0"),
        ({"discount": 1.5}, "discount: expected at most 1, got 1.5"),
        ({"prices": [0.1, 0.2, 0.3]}, "prices: expected one per arm, 2, got 3"),
        ({"prices": [math.nan, 0.2]}, "prices"),
    ],
)
def test_bad_parameters_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        BetaThompson(arms=2, **given)


def test_an_arm_that_joins_costs_nothing() -> None:
    policy = BetaThompson(arms=2, prices=[0.1, 0.2], rng=0)
    policy.add_arm("2")
    assert policy.parts.player.own.price.tolist() == [0.1, 0.2, 0.0]
