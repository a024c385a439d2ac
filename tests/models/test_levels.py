"""The structural model: its filter, likelihood and score against slow twins, and its fit on sound and on odd data."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from twins import naive_levels as naive
from undertow.errors import InvalidInputError
from undertow.models.levels.equations import GROUPS, Hyper
from undertow.models.levels.filter import (
    LIMIT,
    condition,
    filter_levels,
    forecast_arms,
    limit_rewards,
    new_belief,
    predict,
)
from undertow.models.levels.fit import fit_levels, levels_optimise, optimise_levels
from undertow.models.levels.model import in_groups
from undertow.models.levels.prior import levels_prior, typical_levels
from undertow.models.levels.score import levels_likelihood, levels_workspace

Array = naive.Array

STILL = np.array([0.9, 0.98, -0.6, 1.0, 1.0, 1.0, 0.3, 0.4, 0.5, 0.7, 0.2, 0.6, 0.3])
DRIFT = np.array([-0.5, 0.99, 0.7, 0.999, 0.97, 0.95, 0.1, 0.8, 0.2, 0.4, 0.5, 0.3, 0.05])
BRIEF = np.array([0.9, 0.98, 0.005, 1.0, 0.97, 0.95, 0.3, 0.4, 0.5, 0.7, 0.2, 0.6, 0.3])  # the score divides by no φ
WHITE = np.array([0.9, 0.98, 0.7, 0.999, 0.95, 0.0, 0.3, 0.4, 0.5, 0.7, 0.2, 0.6, 0.3])  # that is as small as these
HYPERS = [STILL, DRIFT, BRIEF, WHITE]
SIZES = [(1, 0), (1, 2), (3, 0), (3, 2), (2, 5)]


def make_table(n: int, k: int, q: int, seed: int) -> Array:
    """Some rounds without an arm, some without a reward."""
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((n, 2 + q))
    table[:, 0] = rng.integers(-1, k, n)
    table[rng.random(n) < 0.1, 1] = np.nan
    return table


def likelihood(table: Array, hyper: Array, k: int, q: int | None = None) -> tuple[float, Array]:
    q, score = table.shape[1] - 2 if q is None else q, np.empty(13)
    work = np.full(levels_workspace(len(table), k, q), np.nan)  # nothing may be read before it is written
    return levels_likelihood(table, hyper, k, q, score, work), score


@pytest.mark.parametrize("hyper", [STILL, DRIFT])
@pytest.mark.parametrize(("k", "q"), SIZES)
def test_filter_agrees_with_full_matrices(k: int, q: int, hyper: Array) -> None:
    """With full matrices that forget as it does; and with exact ones where nothing can be forgotten."""
    table = make_table(80, k, q, seed=k + 10 * q)
    fixed = hyper.copy()
    Hyper(fixed, 0).shared_persistence = Hyper(fixed, 0).shared_weight_persistence = 1.0
    for own, forgetful in ((hyper, True), (fixed, False)) if k > 1 else ((hyper, False),):
        belief, innovations = new_belief(k, q), np.empty(80)
        found = filter_levels(table, own, belief, innovations, LIMIT)
        expected, standardized, mean, covariance = naive.run(table, own, k, forgetful=forgetful)
        assert found == pytest.approx(expected, rel=1e-10)
        np.testing.assert_allclose(innovations, standardized, rtol=1e-8, atol=1e-10)
        z, P = naive.written_out(belief)
        np.testing.assert_allclose(z, mean, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(P, covariance, rtol=1e-8, atol=1e-10)
        np.testing.assert_array_equal(belief.P_own, belief.P_own.transpose(0, 2, 1))


def test_what_is_forgotten_between_arms_is_little() -> None:
    """Twelve arms, 2000 rounds of the model, seed 1: forecasts within a fifth of their deviation of exact ones."""
    k, features = 12, np.zeros((2000, 0))
    arms, rewards = simulate(2000, k, typical_levels(), features, seed=1)
    table = np.column_stack([arms, rewards])
    belief, innovations = new_belief(k, 0), np.empty(2000)
    found = filter_levels(table, typical_levels(), belief, innovations, LIMIT)
    exact, standardized, z, P = naive.run(table, typical_levels(), k)
    assert abs(found - exact) < 2000 * 0.002
    assert np.sqrt(np.mean((innovations - standardized) ** 2)) < 0.1
    mine, theirs = np.empty((6, k)), naive.forecast(z, P, typical_levels(), k, np.zeros(0))
    forecast_arms(belief, typical_levels(), np.zeros(0), mine, 0, k)
    assert np.all(np.abs(mine[0] - theirs[0]) < 0.2 * np.sqrt(theirs[1]))
    np.testing.assert_allclose(mine[1:], theirs[1:], rtol=0.1)


@pytest.mark.parametrize("hyper", [STILL, DRIFT])
def test_time_that_passes_is_many_steps(hyper: Array) -> None:
    belief, other = new_belief(3, 2), new_belief(3, 2)
    for each in (belief, other):
        filter_levels(make_table(30, 3, 2, seed=3), hyper, each, np.empty(0), LIMIT)
    predict(belief, hyper, 5.0)
    for _ in range(5):
        predict(other, hyper, 1.0)
    for one, two in zip(naive.written_out(belief), naive.written_out(other), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-10, atol=1e-12)


def test_groups_of_arms_have_every_row_once() -> None:
    """And each with the time since the last one of its group, also where rows tell nothing or share a time step."""
    rng = np.random.default_rng(0)
    table = np.column_stack([make_table(300, 20, 1, seed=2), rng.choice([0, 1, 1, 3], 300)])
    times = np.cumsum(table[:, -1])
    found, starts = in_groups(table, 6, 20)
    told = np.flatnonzero(naive.seen(table))
    assert len(starts) == 4
    assert sorted(found[:, 1]) == sorted(table[told, 1])
    assert found[:, 0].max() == 4
    for part in np.split(found, starts[1:]):
        rows = [int(np.flatnonzero(table[:, 1] == x)[0]) for x in part[:, 1]]
        assert rows == sorted(rows)
        np.testing.assert_array_equal(np.diff(times[rows]), part[1:, -1])
        numbers = {(old, new) for old, new in zip(table[rows, 0], part[:, 0], strict=True)}
        assert len(numbers) == len({old for old, _ in numbers}) == len({new for _, new in numbers})
    whole, all_at_once = in_groups(table, 20, 20)
    assert all_at_once == [0]
    np.testing.assert_array_equal(whole[:, :3], table[told, :3])


@pytest.mark.parametrize("played", [[], [9], [3, 19], [0, 5, 17, 18, 19]])
def test_arms_of_a_group_are_numbered_from_0(played: list[int]) -> None:
    """Also where so few of the arms were played lately that they fit into one group."""
    table = make_table(40, 20, 0, seed=2)
    table[:, 0] = np.resize(np.array(played or [-1], dtype=np.float64), 40)
    found, starts = in_groups(np.column_stack([table, np.ones(40)]), 6, 20)
    assert starts == [0]
    assert set(found[:, 0]) == set(range(len(played)))


def test_a_fit_of_groups_is_about_that_of_the_whole() -> None:
    """Twelve arms in groups of four, 3000 rounds of the model, seed 1: logs of variances and of 1 − φ within 0.7."""
    features, hyper = np.zeros((3000, 0)), np.array([0.97, 0.99, 0.5, 1, 1, 1, 1, 1, 0.5, 1, 0.1, 0.1, 0.3])
    arms, rewards = simulate(3000, 12, hyper, features, seed=1)
    table = np.column_stack([arms, rewards, np.ones(3000)])
    groups, starts = in_groups(table, 4, 12)
    whole, _, _, _ = optimise_levels(table, 12, 0, typical_levels(), 60)
    found, _, _, _ = optimise_levels(groups, 4, 0, typical_levels(), 60, starts)
    for name in ("slow_variance", "fast_variance", "intercept_variance", "reward_noise"):
        one, two = (getattr(Hyper(each, 0), name) for each in (whole, found))
        assert abs(math.log(one / two)) < 0.7, name
    for name in ("shared_persistence", "slow_persistence"):
        one, two = (1 - getattr(Hyper(each, 0), name) for each in (whole, found))
        assert abs(math.log(one / two)) < 0.7, name


@pytest.mark.parametrize("hyper", [STILL, DRIFT])
def test_gross_rewards_count_as_the_limit(hyper: Array) -> None:
    """The filter takes them so, and a table that was limited has no others."""
    table = make_table(80, 3, 2, seed=5)
    table[[10, 40, 41], :2] = [[0, 1e6], [1, -300.0], [1, -300.0]]
    _, innovations, mean, _ = naive.run(table, hyper, 3, forgetful=True)
    assert (np.abs(innovations[[10, 40]]) > LIMIT).all()
    belief = new_belief(3, 2)
    filter_levels(table, hyper, belief, np.empty(0), LIMIT)
    np.testing.assert_allclose(naive.written_out(belief)[0], mean, rtol=1e-7, atol=1e-9)
    limited = table.copy()
    limit_rewards(limited, hyper, new_belief(3, 2))
    _, tame, same, _ = naive.run(limited, hyper, 3, forgetful=True)
    np.testing.assert_allclose(tame, np.clip(innovations, -LIMIT, LIMIT), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(same, mean, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("k", "q"), SIZES)
def test_single_steps_and_forecast(k: int, q: int) -> None:
    table = make_table(30, k, q, seed=3)
    u = np.random.default_rng(4).standard_normal(q)
    belief = new_belief(k, q)
    filter_levels(table, DRIFT, belief, np.empty(0), LIMIT)
    Φ, Q, _ = naive.matrices(DRIFT, k, q)
    z, P = naive.written_out(belief)
    mean, covariance = Φ @ z, naive.forget(Φ @ P @ Φ + Q, k, q)
    predict(belief, DRIFT, 1.0)
    z, P = naive.written_out(belief)
    np.testing.assert_allclose(z, mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(P, covariance, rtol=1e-10, atol=1e-12)
    forecast = np.empty((6, k))
    forecast_arms(belief, DRIFT, u, forecast, 0, k)
    np.testing.assert_allclose(forecast, naive.forecast(z, P, DRIFT, k, u), rtol=1e-9, atol=1e-11)
    log_density, innovation, deviation = condition(belief, DRIFT, u, k - 1, 1.5, LIMIT)
    s = forecast[5, k - 1]
    assert deviation == pytest.approx(math.sqrt(s), rel=1e-12)
    assert innovation == pytest.approx((1.5 - forecast[0, k - 1]) / math.sqrt(s), rel=1e-9)
    assert log_density == pytest.approx(-0.5 * (math.log(2 * math.pi * s) + innovation**2), rel=1e-9)


@pytest.mark.parametrize("hyper", HYPERS)
@pytest.mark.parametrize(("k", "q"), SIZES)
def test_likelihood_agrees_with_filter_and_with_one_gaussian_law(k: int, q: int, hyper: Array) -> None:
    table = make_table(70, k, q, seed=20 + k + q)
    found, _ = likelihood(table, hyper, k)
    assert found == pytest.approx(naive.run(table, hyper, k, math.inf)[0], rel=1e-10)
    assert found == pytest.approx(naive.dense_log_likelihood(table, hyper, k), rel=1e-8)


@pytest.mark.parametrize("hyper", HYPERS)
@pytest.mark.parametrize(("k", "q"), SIZES)
def test_score_agrees_with_fishers_identity(k: int, q: int, hyper: Array) -> None:
    table = make_table(25, k, q, seed=k * q)
    np.testing.assert_allclose(likelihood(table, hyper, k)[1], naive.score(table, hyper, k), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("hyper", HYPERS)
def test_score_agrees_with_differences(hyper: Array) -> None:
    k, q = 3, 2
    table = make_table(150, k, q, seed=8)
    score = likelihood(table, hyper, k)[1]
    for i in np.flatnonzero(hyper != 1):
        ends = []
        for by in (-1e-5, 1e-5):
            moved = hyper.copy()
            moved[i] = math.tanh(math.atanh(hyper[i]) + by) if i < GROUPS else hyper[i] * math.exp(by)
            ends.append(likelihood(table, moved, k)[0])
        assert score[i] == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("hyper", HYPERS)
def test_score_does_not_depend_on_how_many_beliefs_are_kept(hyper: Array) -> None:
    """900 rounds of 20 arms go through in several segments, the other tests in one."""
    k, q = 20, 1
    table = make_table(900, k, q, seed=5)
    whole, score = likelihood(table, hyper, k)
    expected = naive.run(table, hyper, k, math.inf)[0]
    assert whole == pytest.approx(expected, rel=1e-10)
    up, down = hyper.copy(), hyper.copy()
    Hyper(up, 0).reward_noise *= math.exp(1e-5)
    Hyper(down, 0).reward_noise *= math.exp(-1e-5)
    slope = (likelihood(table, up, k)[0] - likelihood(table, down, k)[0]) / 2e-5
    assert Hyper(score, 0).reward_noise == pytest.approx(slope, rel=1e-5)


def test_belief_stays_symmetric_and_positive_for_long() -> None:
    k, q = 2, 1
    hyper = np.array([0.95, 0.9999, 0.01, 1.0, 1.0, 1.0, 0.2, 2.0, 0.2, 5.0, 5.0, 5.0, 1e-6])
    table = make_table(200_000, k, q, seed=6)
    table[1000:150_000, 0] = np.where(table[1000:150_000, 0] == 1, 0, table[1000:150_000, 0])  # arm 1 rests
    belief = new_belief(k, q)
    assert math.isfinite(filter_levels(table, hyper, belief, np.empty(0), LIMIT))
    np.testing.assert_array_equal(belief.P_own, belief.P_own.transpose(0, 2, 1))
    assert np.linalg.eigvalsh(naive.written_out(belief)[1])[0] > -1e-12


def simulate(n: int, k: int, hyper: Array, features: Array, seed: int) -> tuple[npt.NDArray[np.int64], Array]:
    rng = np.random.default_rng(seed)
    q = features.shape[1]
    Φ, Q, V = naive.matrices(hyper, k, q)
    z = np.sqrt(np.diag(V)) * rng.standard_normal(len(V))
    arms, rewards = rng.integers(0, k, n), np.empty(n)
    deviation = math.sqrt(Hyper(hyper, 0).reward_noise)
    for t in range(n):
        rewards[t] = naive.row(int(arms[t]), features[t], k) @ z + deviation * rng.standard_normal()
        z = np.diag(Φ) * z + np.sqrt(np.diag(Q)) * rng.standard_normal(len(z))
    return arms, rewards


def test_fit_finds_what_made_the_data() -> None:
    """One path, seed 1: logs of variances within 1, persistences within 0.1 of the truth; innovations white."""
    hyper = np.array([0.97, 0.998, -0.8, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.3])
    features = np.random.default_rng(0).standard_normal((2000, 2))
    arms, rewards = simulate(2000, 4, hyper, features, seed=1)
    fit = fit_levels(arms, rewards, features=features)
    assert fit.fast_persistence == pytest.approx(-0.8, abs=0.1)
    assert fit.shared_persistence == pytest.approx(0.97, abs=0.1)
    assert math.log(fit.fast_variance) == pytest.approx(0.0, abs=1.0)
    assert math.log(fit.reward_noise / 0.3) == pytest.approx(0.0, abs=1.0)
    assert np.std(fit.innovations) == pytest.approx(1.0, abs=4 / math.sqrt(2 * 2000))
    mean, error = fit.forecast(np.zeros(2))
    assert mean.shape == error.shape == (4,)
    assert np.all(error > 0)


def test_optimiser_reaches_a_stationary_point_and_never_gets_worse() -> None:
    k, q = 3, 1
    features = np.random.default_rng(2).standard_normal((400, q))
    arms, rewards = simulate(400, k, STILL, features, seed=3)
    table = np.column_stack([arms, rewards, features])
    prior, before = levels_prior(), -math.inf
    for evaluations in (1, 2, 4, 8, 16, 200):
        hyper, objective, log_likelihood, used = optimise_levels(table, k, q, typical_levels(), evaluations)
        assert 1 <= used <= evaluations
        assert objective >= before
        before = objective
    assert used < 200
    found, score = likelihood(table, hyper, k)
    assert found == pytest.approx(log_likelihood, rel=1e-12)
    free = prior[1] > 0
    with np.errstate(divide="ignore"):
        c = np.concatenate([np.arctanh(hyper[:GROUPS]), np.log(hyper[GROUPS:])])
    penalty = (c[free] - prior[0, free]) / prior[1, free]
    assert objective == pytest.approx(found - 0.5 * penalty @ penalty, rel=1e-12)
    np.testing.assert_allclose(score[free] - penalty / prior[1, free], 0, atol=0.5)
    np.testing.assert_array_equal(hyper[~free], 1.0)


def test_a_start_that_cannot_be_improved_is_left_alone() -> None:
    hyper, work = typical_levels(), np.empty(levels_workspace(3, 1, 0))
    table = np.array([[0.0, math.inf], [0.0, 1.0], [0.0, 2.0]])
    levels_optimise(table, np.array([0.0, 3.0]), hyper, 1, 0, levels_prior(), 10, work)
    np.testing.assert_allclose(hyper, typical_levels(), rtol=1e-14)


def test_units_do_not_matter() -> None:
    """Powers of two change no rounding: the standardized fit is the same to the last bit."""
    features = np.random.default_rng(2).standard_normal((200, 2))
    arms, rewards = simulate(200, 3, STILL, features, seed=4)
    one = fit_levels(arms, rewards, features=features)
    two = fit_levels(arms, rewards * 2**10, features=features / 4)
    np.testing.assert_array_equal(one.innovations, two.innovations)
    assert two.reward_noise == one.reward_noise * 2**20
    assert two.fast_persistence == one.fast_persistence
    assert two.log_likelihood == pytest.approx(one.log_likelihood - 200 * math.log(2**10), rel=1e-12)
    for mine, theirs in zip(one.forecast([1.0, 2.0]), two.forecast([0.25, 0.5]), strict=True):
        np.testing.assert_array_equal(mine * 2**10, theirs)
    shifted = fit_levels(arms, rewards * 1e6 - 3e7, features=features + 100)
    assert shifted.reward_noise == pytest.approx(one.reward_noise * 1e12, rel=1e-3)


@pytest.mark.parametrize(
    ("arms", "rewards", "features"),
    [
        ([0], [3.0], None),
        ([0] * 60, [0.1] * 60, None),
        ([0, 1] * 40, [1e6] * 80, np.ones((80, 1))),
        ([-1] * 5, [math.nan] * 5, None),
        ([0, -1, 1] * 20, [1.0, 5.0, math.nan] * 20, np.full((60, 2), 0.1)),
        ([0] * 100, [(-1.0) ** t for t in range(100)], None),
        ([0, 1] * 60, [float(t) for t in range(120)], np.arange(120.0)[:, None]),
        ([5], [1e-300], np.zeros((1, 1))),
        ([], [], None),
    ],
)
def test_odd_data_give_finite_numbers(arms: list[int], rewards: list[float], features: Array | None) -> None:
    fit = fit_levels(np.array(arms, dtype=int), rewards, features=features)
    q = 0 if features is None else features.shape[1]
    mean, error = fit.forecast(np.zeros(q))
    assert np.isfinite(mean).all()
    assert np.isfinite(error).all()
    assert fit.arm_count == max([0, *arms]) + 1
    names = ("shared", "slow", "fast")
    assert all(-1 < getattr(fit, f"{name}_persistence") < 1 for name in names)
    assert all(
        math.isfinite(getattr(fit, f"{name}_variance")) for name in (*names, "intercept", "weight", "shared_weight")
    )
    assert math.isfinite(fit.reward_noise)
    assert math.isfinite(fit.log_likelihood)
    seen = (np.array(arms) >= 0) & ~np.isnan(rewards)
    np.testing.assert_array_equal(np.isfinite(fit.innovations), seen)


def test_arms_never_played_are_forecast_from_what_all_share() -> None:
    fit = fit_levels([0, 1, 0, 1], [1.0, 2.0, 1.1, 2.1], arm_count=4)
    mean, error = fit.forecast()
    assert mean[2] == mean[3]
    assert error[2] > error[0]


def test_bad_input_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"arms: expected integers, -1 if"):
        fit_levels([0.5, 1.0], [1.0, 2.0])
    with pytest.raises(InvalidInputError, match=r"arms: expected numbers from 0 on"):
        fit_levels([0, -2], [1.0, 2.0])
    with pytest.raises(InvalidInputError, match=r"rewards: expected shape \(2,\)"):
        fit_levels([0, 1], [1.0])
    with pytest.raises(InvalidInputError, match=r"rewards: expected finite numbers, or NaN"):
        fit_levels([0, 1], [1.0, math.inf])
    with pytest.raises(InvalidInputError, match=r"features: expected shape \(2, q\)"):
        fit_levels([0, 1], [1.0, 2.0], features=[[1.0]])
    with pytest.raises(InvalidInputError, match=r"features: expected finite numbers"):
        fit_levels([0, 1], [1.0, 2.0], features=[[1.0], [math.nan]])
    with pytest.raises(InvalidInputError, match=r"arm_count: expected at least 2, as arm 1 was played"):
        fit_levels([0, 1], [1.0, 2.0], arm_count=1)
    with pytest.raises(InvalidInputError, match=r"features: expected shape \(1,\)"):
        fit_levels([0, 1], [1.0, 2.0], features=[[1.0], [2.0]]).forecast()
    with pytest.raises(InvalidInputError, match=r"arms: 200001 of them with 0 features need .* GB; number the arms"):
        fit_levels([0, 1, 200_000], [1.0, 2.0, 3.0])
    with pytest.raises(InvalidInputError, match=r"rewards: expected numbers below 1e\+152 in size"):
        fit_levels([0, 1], [1.0, 1e160])
    with pytest.raises(InvalidInputError, match=r"arms: expected one integer per round"):
        fit_levels([[0], [1, 2]], [1.0, 2.0])


@pytest.mark.parametrize("value", [0.0, 1e-6, 3.0, 1e9])
def test_the_objective_is_that_of_the_hyper_parameters_it_returns(value: float) -> None:
    """Constant rewards, whose variances run into their bounds."""
    fit = fit_levels(np.arange(300) % 2, np.full(300, value))
    prior, h = levels_prior(), fit._hyper  # noqa: SLF001 (standardized, which nobody else needs)
    free = prior[1] > 0
    c = np.concatenate([np.arctanh(np.clip(h[:GROUPS], -1 + 1e-15, 1 - 1e-15)), np.log(h[GROUPS:])])
    penalty = 0.5 * np.sum(((c - prior[0])[free] / prior[1, free]) ** 2)
    assert fit.objective == pytest.approx(fit.log_likelihood - penalty, rel=1e-9)
    mean, error = fit.forecast()
    np.testing.assert_allclose(mean, value, rtol=1e-3, atol=1e-12)
    assert (error <= max(abs(value), 1.0)).all()


# Time that passes, and rounds that share a time step


@pytest.mark.parametrize("hyper", HYPERS)
def test_the_score_knows_of_time_steps(hyper: Array) -> None:
    """A last column says how many time steps after the row before each is."""
    k, q, n = 2, 2, 40
    table, elapsed = make_table(n, k, q, seed=3), np.random.default_rng(4).choice([0.0, 0.0, 1.0, 1.0, 3.0], n)
    found, score = likelihood(np.column_stack([table, elapsed]), hyper, k, q)
    time_steps = np.cumsum(elapsed)
    assert found == pytest.approx(naive.dense_log_likelihood(table, hyper, k, time_steps), rel=1e-10)
    for i in np.flatnonzero(np.abs(hyper) != 1.0):
        ends = []
        for step in (-1e-5, 1e-5):
            moved = hyper.copy()
            moved[i] = math.tanh(math.atanh(hyper[i]) + step) if i < GROUPS else hyper[i] * math.exp(step)
            ends.append(naive.dense_log_likelihood(table, moved, k, time_steps))
        assert score[i] == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-5, abs=1e-5)
    apart, slopes = likelihood(np.column_stack([table, np.ones(n)]), hyper, k, q)
    expected = likelihood(table, hyper, k)
    assert apart == expected[0]
    np.testing.assert_array_equal(slopes, expected[1])
