"""Keys that learn from one another, and the policy that each of them is."""

import math
import time
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import t as student

from twins import naive_levels
from undertow import InvalidInputError, UnknownDecisionError
from undertow.compiled.kernel import plain
from undertow.fleet import Fleet, FleetKalman
from undertow.fleet.pooling import Units, pool, units_of
from undertow.models.levels.equations import GROUPS
from undertow.models.levels.prior import typical_levels
from undertow.models.worth import beta
from undertow.policies import UCB, LevelsKalman
from undertow.policies.levels import heavier
from undertow.problems.fleets import FLEETS, play_keyed


def levels(**changes: float) -> Any:
    numbers = typical_levels()
    for place, value in changes.items():
        numbers[int(place[1:])] = value
    return numbers


def state_of(policy: Any) -> bytes:
    state: bytes = policy.parts.player.state.tobytes()
    return state


def test_forecasts_are_those_of_one_gaussian_law() -> None:
    """Rewards come late, and three in a time step; without a level that all arms share, the filter is exact."""
    numbers = levels(_6=1e-12)
    policy = LevelsKalman(arms=2, levels=numbers, arm_means=[1.0, -0.5], reward_mean=2.0, reward_scale=3.0)
    rng, rows, waiting = np.random.default_rng(0), [], []
    for t in range(12):
        decision = policy.decide(elapsed=1 if t % 3 == 0 else 0) if t else policy.decide()
        reward = float(rng.normal(2, 3))
        rows.append([decision.arm, (reward - [1.0, -0.5][decision.arm]) / 3.0, float(t % 3 == 0)])
        waiting.append((decision, reward))
        while len(waiting) > 4:
            policy.learn(*waiting.pop(int(rng.integers(len(waiting)))))
    for each in waiting:
        policy.learn(*each)
    table, Φ, Q, V = np.array(rows), *naive_levels.matrices(numbers, 2, 0)
    z, P = np.zeros(len(Φ)), V.copy()
    for t, (arm, x, elapsed) in enumerate(table):
        if t and elapsed:
            z, P = Φ @ z, Φ @ P @ Φ + Q
        h = naive_levels.row(int(arm), np.zeros(0), 2)
        gain = P @ h / (h @ P @ h + numbers[-1])
        z, P = z + gain * (x - h @ z), P - np.outer(gain, h @ P)
    z = Φ @ z
    expected = [m + 3.0 * (naive_levels.row(a, np.zeros(0), 2) @ z) for a, m in enumerate([1.0, -0.5])]
    np.testing.assert_allclose(policy.forecast().forecast, expected, rtol=1e-9)


def test_only_the_last_rounds_are_remembered() -> None:
    short, long = (LevelsKalman(arms=3, max_delay=most) for most in (2, 50))
    rng = np.random.default_rng(1)
    for _ in range(20):
        reward = float(rng.standard_normal())
        for policy in (short, long):
            policy.learn(policy.decide(), reward)
    np.testing.assert_allclose(short.forecast().forecast, long.forecast().forecast, rtol=1e-9)
    late = [policy.decide() for policy in (short, long)]
    for _ in range(3):
        for policy in (short, long):
            policy.decide()
    with pytest.raises(UnknownDecisionError, match="max_delay = 2"):
        short.learn(late[0], 1.0)
    long.learn(late[1], 1.0)
    fleet = Fleet(LevelsKalman(arms=3, max_delay=2))
    first = fleet.decide("a")
    for _ in range(3):
        fleet.decide("a")
    with pytest.raises(UnknownDecisionError, match="only the last 2 rounds") as caught:
        fleet.learn(first, 1.0)
    assert caught.value.reason == "late"


@pytest.mark.parametrize("H", [1.0, 10.0, 100.0, 1000.0])
@pytest.mark.parametrize("ν", [2.0, 3.0, 6.0, 20.0])
def test_width_under_a_t_distribution(H: float, ν: float) -> None:
    def excess(x: float) -> float:
        ψ = (ν + x * x) / (ν - 1) * student.pdf(x, ν) - x * student.sf(x, ν)
        return float(H * ψ - x)

    β = plain(beta)(H)
    assert plain(heavier)(β, ν) * β == pytest.approx(brentq(excess, 0.0, 1e4), rel=0.17 if ν < 3 else 0.06)


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="levels: expected shape"):
        LevelsKalman(arms=2, levels=[1.0])
    with pytest.raises(InvalidInputError, match="positive variances"):
        LevelsKalman(arms=2, levels=levels(_12=-1.0))
    with pytest.raises(InvalidInputError, match="arm_means: expected one for each of 2"):
        LevelsKalman(arms=2, arm_means=[1.0, 2.0, 3.0])
    with pytest.raises(InvalidInputError, match="expected a LevelsKalman"):
        FleetKalman(UCB(arms=2))


def keyed_log(seed: int, keys: int, rounds: int, k: int = 3) -> tuple[Any, Any, Any]:
    """Rewards of keys that play arms at random: arm, reward, time steps; where each key begins; means of the arms."""
    rng, means = np.random.default_rng(seed), np.array([1.0, -0.4, 0.2])
    rows = []
    for _ in range(keys):
        own, level = means + 0.5 * rng.standard_normal(k), 0.6 * rng.standard_normal(k)
        for _ in range(rounds):
            level = 0.9 * level + 0.6 * math.sqrt(1 - 0.81) * rng.standard_normal(k)
            arm = int(rng.integers(k))
            rows.append([arm, own[arm] + level[arm] + 0.5 * rng.standard_normal(), 1.0])
    return np.array(rows), np.arange(0, keys * rounds, rounds, dtype=np.float64), means


def test_means_are_those_of_generalised_least_squares() -> None:
    """Against the covariance of all rewards of a key, written out; the numbers are those that the pool has found."""
    rows, starts, _ = keyed_log(0, keys=12, rounds=15)
    units = Units(0.0, 1.0, np.zeros(0), np.zeros(0))
    first = pool(rows, starts, units, 3)
    numbers = first.hyper.copy()
    numbers[GROUPS] = 1e-12  # no level that all arms share, so that the filter is exact
    found = pool(rows, starts, units, 3, first._replace(hyper=numbers, limit=math.inf))
    information, sums = np.eye(3), np.zeros(3)
    for start in starts.astype(int):
        key = rows[start : start + 15]
        Φ, _, V = naive_levels.matrices(found.hyper, 3, 0)
        h = np.array([naive_levels.row(int(arm), np.zeros(0), 3) for arm in key[:, 0]])
        lags = np.abs(np.subtract.outer(np.arange(15), np.arange(15)))
        cov = found.hyper[-1] * np.eye(15)
        for j in range(len(Φ)):
            cov += np.outer(h[:, j], h[:, j]) * V[j, j] * Φ[j, j] ** lags
        design = np.eye(3)[key[:, 0].astype(int)]
        information += design.T @ np.linalg.solve(cov, design)
        sums += design.T @ np.linalg.solve(cov, key[:, 1])
    # scales of the keys are all but 1 here, and the shared level is all but none
    np.testing.assert_allclose(found.means, np.linalg.solve(information, sums), atol=0.05)


def test_the_pool_finds_means_and_how_keys_differ() -> None:
    """60 keys × 40 rounds, seed 3: means within 3.5 standard errors, variances within a factor of 1.6."""
    rows, starts, means = keyed_log(3, keys=60, rounds=40)
    units = units_of(rows)
    found = pool(rows, starts, units, 3)
    errors = units.scale * np.sqrt(found.variances)
    assert (np.abs(units.mean + units.scale * found.means - means) < 3.5 * errors).all()
    own = found.hyper[[GROUPS + 1, GROUPS + 2, GROUPS + 3]].sum() * units.scale**2  # slow, fast, intercept
    assert 1 / 1.6 < own / (0.25 + 0.36) < 1.6
    assert 1 / 1.6 < found.hyper[-1] * units.scale**2 / 0.25 < 1.6
    assert found.degrees > 20


def test_scales_of_keys_are_told_apart() -> None:
    rows, starts, _ = keyed_log(4, keys=60, rounds=40)
    rows[:, 1] *= np.repeat(np.random.default_rng(0).choice([0.2, 2.0], 60), 40)
    assert pool(rows, starts, units_of(rows), 3).degrees < 8


def fleet(**more: Any) -> FleetKalman:
    return FleetKalman(LevelsKalman(arms=5, rng=0), **more)


def test_a_new_key_begins_with_what_the_fleet_knows() -> None:
    problem, one = FLEETS["alike"](0, 60, 20), fleet()
    assert [one.levels, one.arm_means] == [None, None]
    play_keyed(one, problem, 0, 60)
    assert one.fits >= 5
    expected = one.arm_means
    assert expected is not None
    np.testing.assert_allclose(one.decide("new").forecast, list(expected.values()), rtol=1e-9)
    truth = problem.means.mean(axis=(0, 1))
    assert np.corrcoef(truth, list(expected.values()))[0, 1] > 0.8


def test_fits_are_reproducible_and_continue_in_a_copy() -> None:
    problem = FLEETS["alike"](1, 30, 14)
    first, second = fleet(sample=20), fleet(sample=20)
    regrets = [play_keyed(each, problem, 0, 30) for each in (first, second)]
    np.testing.assert_array_equal(regrets[0], regrets[1])
    copy = FleetKalman.from_bytes(first.to_bytes())
    assert (copy.levels, copy.arm_means, copy.fits) == (first.levels, first.arm_means, first.fits)
    later = [play_keyed(each, problem, 0, 30, "later") for each in (first, copy)]
    np.testing.assert_array_equal(later[0], later[1])
    for key in first:
        assert state_of(copy[key]) == state_of(first[key])
    with pytest.raises(InvalidInputError, match="holds a 'FleetKalman'"):
        Fleet.from_bytes(first.to_bytes())


def test_background_fits_take_effect_later() -> None:
    problem, one = FLEETS["alike"](2, 30, 6), fleet(refit="background")
    play_keyed(one, problem, 0, 30)
    until = time.monotonic() + 60
    while one.fits == 0 and time.monotonic() < until:
        one.decide_many(["a"])
        time.sleep(0.01)
    assert one.fits > 0


def test_a_late_reward_counts_as_one_in_time_also_across_a_fit() -> None:
    """A reward comes after a fit has changed all numbers; then the key is where it would have been."""
    problem = FLEETS["alike"](3, 20, 8)
    late, prompt = fleet(), fleet()
    for each in (late, prompt):
        play_keyed(each, problem, 0, 20)
    open_ = [each.decide("one") for each in (late, prompt)]
    prompt.learn(open_[1], 0.7)
    for each in (late, prompt):
        again = each.decide_many(["one"], available=np.arange(5) == 2)
        each.learn_many(again, [0.1])
    late.learn(open_[0], 0.7)
    forecasts = [each["one"].forecast().forecast for each in (late, prompt)]
    np.testing.assert_allclose(forecasts[0], forecasts[1], rtol=1e-9)


@pytest.mark.slow
def test_new_keys_regret_less_than_by_themselves() -> None:
    """Ten fleets of 100 keys that have played and 100 new ones: UCB's regret of the new keys is 1.2 times as large."""
    ratios = []
    for seed in range(50, 60):
        problem, one, ucb = FLEETS["alike"](seed, 200, 60), fleet(), Fleet(UCB(arms=5))
        play_keyed(one, problem, 0, 100)
        ratios.append(play_keyed(one, problem, 100, 200).mean() / play_keyed(ucb, problem, 100, 200).mean())
    error = np.std(ratios, ddof=1) / math.sqrt(10)
    assert np.mean(ratios) + 2 * error < 1 / 1.2
