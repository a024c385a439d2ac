import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.tsa.statespace.mlemodel import MLEModel

from helpers import Array, full_system, with_gaps
from twins import naive
from undertow import InvalidInputError, KalmanFilter, LinearGaussianSystem, NoSteadyStateError, kalman, random_system
from undertow.kalman import Belief

NAN = math.nan


def series(system: LinearGaussianSystem, rounds: int, seed: int, gaps: float = 0.4) -> tuple[Array, Array]:
    path = system.sample(rounds, rng=seed)
    return with_gaps(path.contexts, gaps, seed), with_gaps(path.rewards, gaps, seed + 1)


# Against independent computations


@pytest.mark.parametrize(("d", "m", "k"), [(3, 2, 2), (1, 1, 1), (4, 0, 3), (2, 3, 1)])
def test_filter_and_smoother_against_the_joint_gaussian(d: int, m: int, k: int) -> None:
    system = full_system(d, m, k, seed=d)
    contexts, rewards = series(system, 12, seed=4)
    filtered = kalman.filter(system, contexts, rewards)
    smoothed = kalman.smooth(system, filtered)
    means, covariances, log_density = naive.posterior(system, contexts, rewards)
    np.testing.assert_allclose(smoothed.means, means, atol=1e-10)
    np.testing.assert_allclose(smoothed.covariances, covariances, atol=1e-10)
    assert filtered.log_likelihood == pytest.approx(log_density, abs=1e-9)
    for t in range(12):
        until_now = naive.posterior(system, contexts[: t + 1], rewards[: t + 1])
        np.testing.assert_allclose(filtered.means[t], until_now[0][t], atol=1e-10)
        np.testing.assert_allclose(filtered.covariances[t], until_now[1][t], atol=1e-10)


def test_smoother_with_singular_state_noise_against_the_joint_gaussian() -> None:
    lag = LinearGaussianSystem(  # an AR(2) in companion form: the second entry is the first, one round ago
        dynamics=[[1.2, -0.4], [1.0, 0.0]],
        arms=[[1.0, 0.0], [0.0, 1.0]],
        state_noise=[[1.0, 0.0], [0.0, 0.0]],
        reward_noise=[0.5, 2.0],
        context_map=[[1e-3, 0.0]],
        context_noise=[[1e-6]],
    )
    contexts, rewards = series(lag, 15, seed=1)
    smoothed = kalman.smooth(lag, kalman.filter(lag, contexts, rewards))
    means, covariances, _ = naive.posterior(lag, contexts, rewards)
    np.testing.assert_allclose(smoothed.means, means, atol=1e-9)
    np.testing.assert_allclose(smoothed.covariances, covariances, atol=1e-9)


@pytest.mark.parametrize("radius", [0.95, 1.0])
def test_filter_and_smoother_against_statsmodels(radius: float) -> None:
    base = random_system(4, 2, 3, rng=6, spectral_radius=radius, drift=True)
    R = np.array([[2.0, 0.7], [0.7, 1.0]])
    fields = base.to_dict() | {"context_noise": R, "initial_covariance": np.eye(4), "reward_offset": [1.0, -2.0, 0.5]}
    system = LinearGaussianSystem.from_dict(fields)
    contexts, rewards = series(system, 400, seed=9)

    model = MLEModel(np.hstack([contexts, rewards]), k_states=4, k_posdef=4)
    model["design"] = np.vstack([system.context_map, system.arms])
    model["obs_intercept"] = np.concatenate([system.context_offset, system.reward_offset])
    model["obs_cov"] = np.block([[R, np.zeros((2, 3))], [np.zeros((3, 2)), np.diag(system.reward_noise)]])
    model["transition"] = system.dynamics
    model["state_intercept"] = system.drift
    model["selection"] = np.eye(4)
    model["state_cov"] = system.state_noise
    model.ssm.initialize_known(system.initial_mean, system.initial_covariance)
    theirs = model.ssm.smooth()

    ours = kalman.filter(system, contexts, rewards)
    np.testing.assert_allclose(ours.log_likelihood, theirs.llf, rtol=1e-8)
    np.testing.assert_allclose(ours.log_likelihoods, theirs.llf_obs, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ours.predicted_means, theirs.predicted_state.T[:-1], atol=1e-8)
    np.testing.assert_allclose(ours.means, theirs.filtered_state.T, atol=1e-8)
    np.testing.assert_allclose(ours.covariances, theirs.filtered_state_cov.transpose(2, 0, 1), atol=1e-8)
    smoothed = kalman.smooth(system, ours)
    np.testing.assert_allclose(smoothed.means, theirs.smoothed_state.T, atol=1e-8)
    np.testing.assert_allclose(smoothed.covariances, theirs.smoothed_state_cov.transpose(2, 0, 1), atol=1e-8)


def test_scalar_steady_state_in_closed_form() -> None:
    for γ, h, q, r in [(0.9, 1.0, 1.0, 1.0), (1.0, 2.0, 0.3, 5.0), (1.5, 0.5, 0.1, 2.0), (-0.7, 1.0, 1e-6, 1e3)]:
        system = LinearGaussianSystem(
            dynamics=[[γ]],
            arms=[[1.0]],
            state_noise=[[q]],
            reward_noise=1.0,
            context_map=[[h]],
            context_noise=[[r]],
            initial_covariance=[[1.0]],
        )
        b = r * (1 - γ**2) - q * h**2  # h²P² + bP − qr = 0
        P = (-b + math.sqrt(b**2 + 4 * h**2 * q * r)) / (2 * h**2)
        steady = kalman.steady_state(system)
        assert steady.prediction_covariance[0, 0] == pytest.approx(P, rel=1e-9)
        assert steady.filter_covariance[0, 0] == pytest.approx(P * r / (h**2 * P + r), rel=1e-9)


def test_steady_state_with_rewards() -> None:
    system = full_system(d=4, m=2, k=3, seed=2)
    beliefs = kalman.filter(system, np.zeros((3000, 2)), np.tile([0.0, NAN, 0.0], (3000, 1)))
    steady = kalman.steady_state(system, arms=[0, 2])
    np.testing.assert_allclose(steady.prediction_covariance, beliefs.predicted_covariances[-1], rtol=1e-9)
    assert steady.filter_gain.shape == (4, 4)
    with pytest.raises(InvalidInputError, match="arms: expected numbers from 0 to 2, got 3"):
        kalman.steady_state(system, arms=[3])


def test_rewards_can_reveal_what_contexts_hide() -> None:
    system = LinearGaussianSystem(
        dynamics=np.diag([1.0, 0.5]),
        arms=[[1.0, 0.0]],
        state_noise=np.eye(2),
        reward_noise=1.0,
        context_map=[[0.0, 1.0]],
        context_noise=[[1.0]],
        initial_covariance=np.eye(2),
    )
    with pytest.raises(NoSteadyStateError, match="cannot be observed"):
        kalman.steady_state(system)
    assert np.isfinite(kalman.steady_state(system, arms=[0]).prediction_covariance).all()


def test_kalman_without_motion_is_ridge_regression() -> None:
    """With Γ = I and Q = 0 the filtered mean is the ridge estimate with λ = σ²/τ² under the prior N(0, τ²I)."""
    rng = np.random.default_rng(0)
    Θ, x = rng.standard_normal((50, 3)), rng.standard_normal(50)
    belief = Belief(np.zeros(3), 4.0 * np.eye(3))
    for row, value in zip(Θ, x, strict=True):
        system = LinearGaussianSystem(
            dynamics=np.eye(3),
            arms=[row],
            state_noise=np.zeros((3, 3)),
            reward_noise=2.0,
            initial_covariance=np.eye(3),
        )
        belief = kalman.predict(kalman.condition(belief, system, rewards={0: value}), system)
    V = Θ.T @ Θ + 0.5 * np.eye(3)
    np.testing.assert_allclose(belief.mean, np.linalg.solve(V, Θ.T @ x), atol=1e-12)
    np.testing.assert_allclose(belief.covariance, 2.0 * np.linalg.inv(V), atol=1e-12)


# Properties


@settings(max_examples=60, deadline=None)
@given(
    d=st.integers(1, 6),
    m=st.integers(0, 3),
    k=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    data=st.data(),
)
def test_one_step_against_the_naive_twin(d: int, m: int, k: int, seed: int, data: st.DataObject) -> None:
    system = full_system(d, m, k, seed=seed)
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((d, d))
    belief = Belief(rng.standard_normal(d), factor @ factor.T)
    context = with_gaps(rng.standard_normal(m), data.draw(st.sampled_from([0.0, 0.5, 1.0])), seed)
    rewards = with_gaps(rng.standard_normal(k), data.draw(st.sampled_from([0.0, 0.5, 1.0])), seed + 1)
    after = kalman.condition(belief, system, context, rewards)
    mean, covariance, log_density = naive.condition(system, belief.mean, belief.covariance, context, rewards)
    scale = max(1.0, float(np.abs(belief.covariance).max()))
    np.testing.assert_allclose(after.mean, mean, atol=1e-9 * scale)
    np.testing.assert_allclose(after.covariance, covariance, atol=1e-9 * scale)
    assert KalmanFilter(system, belief).condition(context, rewards) == pytest.approx(log_density, abs=1e-7)

    assert (after.covariance == after.covariance.T).all()
    assert np.linalg.eigvalsh(after.covariance)[0] >= -1e-12 * scale
    assert np.linalg.eigvalsh(belief.covariance - after.covariance)[0] >= -1e-10 * scale  # seeing never hurts
    ahead = kalman.predict(after, system)
    assert (ahead.covariance == ahead.covariance.T).all()
    np.testing.assert_allclose(
        ahead.covariance,
        system.dynamics @ after.covariance @ system.dynamics.T + system.state_noise,
        atol=1e-12 * scale,
    )


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_basis_of_the_state_does_not_matter(seed: int) -> None:
    system = full_system(3, 2, 2, seed=seed)
    U, _, Vh = np.linalg.svd(np.random.default_rng(seed).standard_normal((3, 3)))
    T = U @ np.diag([0.3, 1.0, 3.0]) @ Vh  # any basis, but none so crooked that rounding shows
    inverse = np.linalg.inv(T)
    turned = LinearGaussianSystem(
        dynamics=T @ system.dynamics @ inverse,
        arms=system.arms @ inverse,
        state_noise=T @ system.state_noise @ T.T,
        reward_noise=system.reward_noise,
        context_map=system.context_map @ inverse,
        context_noise=system.context_noise,
        drift=T @ system.drift,
        initial_mean=T @ system.initial_mean,
        initial_covariance=T @ system.initial_covariance @ T.T,
        context_offset=system.context_offset,
        reward_offset=system.reward_offset,
    )
    contexts, rewards = series(system, 30, seed)
    ours, theirs = kalman.filter(system, contexts, rewards), kalman.filter(turned, contexts, rewards)
    np.testing.assert_allclose(ours.forecasts, theirs.forecasts, atol=1e-7)
    assert ours.log_likelihood == pytest.approx(theirs.log_likelihood, abs=1e-6)


@pytest.mark.parametrize("radius", [0.9, 1.0])
def test_covariance_stays_positive_over_a_million_rounds(radius: float) -> None:
    """A vague start (10^10), precise measurements (10^-8) and state noise of rank one: rounding's favourite food."""
    base = random_system(5, 1, 2, rng=2, spectral_radius=radius)
    u = np.arange(1.0, 6.0)[:, None]
    system = LinearGaussianSystem(
        dynamics=base.dynamics,
        arms=base.arms,
        state_noise=u @ u.T / 50,
        reward_noise=1e-8,
        context_map=base.context_map,
        context_noise=[[1e-8]],
        initial_covariance=1e10 * np.eye(5),
    )
    live = KalmanFilter(system)
    contexts = np.zeros((10**5, 1))
    rewards = np.tile([[0.0, NAN], [NAN, 0.0]], (5 * 10**4, 1))
    for _ in range(10):  # the end of one stretch is the beginning of the next
        fields = system.to_dict() | {"initial_covariance": live.belief.covariance, "initial_mean": live.belief.mean}
        beliefs = kalman.filter(LinearGaussianSystem.from_dict(fields), contexts, rewards)
        for P in (beliefs.covariances, beliefs.predicted_covariances):
            assert (P.transpose(0, 2, 1) == P).all()
            smallest, largest = np.linalg.eigvalsh(P[:: 100 if len(P) > 100 else 1])[:, [0, -1]].T
            assert (smallest >= -1e-14 * largest).all()
        live = KalmanFilter(system, Belief(beliefs.means[-1], beliefs.covariances[-1]))
        live.predict()


# Live use


def test_live_filter_agrees_with_the_series() -> None:
    system = full_system(3, 2, 3)
    contexts, rewards = series(system, 40, seed=7)
    beliefs = kalman.filter(system, contexts, rewards)
    live = KalmanFilter(system)
    total = 0.0
    for t in range(40):
        # not to the bit: the compiler may order the sums of the series in another way (docs/decisions/0001-kernels.md)
        np.testing.assert_allclose(live.belief.mean, beliefs.predicted_means[t], rtol=1e-12, atol=1e-12)
        forecast = live.forecast()
        np.testing.assert_allclose(forecast.mean, beliefs.forecasts[t], atol=1e-12)
        P = beliefs.predicted_covariances[t]
        np.testing.assert_allclose(forecast.covariance, system.arms @ P @ system.arms.T, atol=1e-12)
        total += live.condition(
            None if np.isnan(contexts[t]).all() else contexts[t],
            {a: x for a, x in enumerate(rewards[t]) if not math.isnan(x)},
        )
        live.predict()
    assert total == pytest.approx(beliefs.log_likelihood, abs=1e-10)
    before = live.belief
    live.predict(3)
    np.testing.assert_array_equal(live.belief.mean, kalman.predict(before, system, rounds=3).mean)


@pytest.mark.parametrize(
    ("context", "rewards", "message"),
    [
        ([1.0], None, "context: expected shape (2,), got (1,)"),
        ([1.0, math.inf], None, "context: expected finite numbers, or NaN if missing, got inf"),
        ("warm", None, "context: expected real numbers"),
        (None, [1.0], "rewards: expected shape (3,), got (1,)"),
        (None, {3: 1.0}, "rewards: expected numbers from 0 to 2, got 3"),
        (None, {"low": 1.0}, "rewards: expected integers"),
        (None, {0: NAN}, "rewards: expected finite numbers, got nan"),
        (None, [math.inf, 0.0, 0.0], "rewards: expected finite numbers, or NaN"),
    ],
)
def test_a_rejected_observation_changes_nothing(context: Any, rewards: Any, message: str) -> None:
    live = KalmanFilter(full_system(3, 2, 3))
    before = live.belief
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        live.condition(context, rewards)
    with pytest.raises(InvalidInputError, match="rounds: expected a number of at least 0, got -1"):
        live.predict(-1)
    np.testing.assert_array_equal(live.belief.mean, before.mean)
    np.testing.assert_array_equal(live.belief.covariance, before.covariance)


def test_bad_series_and_beliefs() -> None:
    system = full_system(3, 2, 3)
    with pytest.raises(InvalidInputError, match="contexts, rewards: expected at least one of them"):
        kalman.filter(system)
    with pytest.raises(InvalidInputError, match=re.escape("contexts: expected shape (4, 2), got (4, 3)")):
        kalman.filter(system, np.zeros((4, 3)))
    with pytest.raises(InvalidInputError, match=re.escape("rewards: expected shape (4, 3), got (5, 3)")):
        kalman.filter(system, np.zeros((4, 2)), np.zeros((5, 3)))
    with pytest.raises(InvalidInputError, match=re.escape("belief.mean: expected shape (3,), got (2,)")):
        KalmanFilter(system, Belief(np.zeros(2), np.eye(2)))
    with pytest.raises(InvalidInputError, match="filtered: expected beliefs about 2 states, as the system has, got 3"):
        kalman.smooth(full_system(2, 2, 3), kalman.filter(system, np.zeros((4, 2))))
    with pytest.raises(InvalidInputError, match=r"belief.covariance: expected a positive semi-definite"):
        kalman.predict(Belief(np.zeros(3), -np.eye(3)), system)


def test_a_belief_beyond_all_numbers_is_refused() -> None:
    system = LinearGaussianSystem(
        dynamics=np.diag([0.9, 1.5]), arms=[[1, 0]], state_noise=np.eye(2), reward_noise=1.0, context_map=[[1, 0]],
        context_noise=[[1]], initial_covariance=np.eye(2),
    )  # fmt: skip
    message = "system: within 1000 rounds the belief about its state overflowed"
    live = KalmanFilter(system)
    before = live.belief
    for call in (
        lambda: kalman.filter(system, np.zeros((1000, 1))),
        lambda: kalman.predict(before, system, 1000),
        lambda: live.predict(1000),
    ):
        with pytest.raises(InvalidInputError, match=message):
            call()
    np.testing.assert_array_equal(live.belief.covariance, before.covariance)
    assert np.isfinite(kalman.filter(system, np.zeros((800, 1))).covariances).all()


# Real-valued time


def swinging(d: int, seed: int) -> LinearGaussianSystem:
    """A system in continuous time whose state swings and forgets."""
    rng = np.random.default_rng(seed)
    G, H = rng.standard_normal((2, d, d))
    base = full_system(d, 2, 2, seed=seed)
    parts = {name: getattr(base, name) for name in ("arms", "reward_noise", "context_map", "context_noise")}
    generator = (G - G.T) / d - 0.2 * np.eye(d)
    return LinearGaussianSystem.from_rates(
        generator=generator, diffusion=H @ H.T / d, drift=rng.standard_normal(d), **parts
    )


@pytest.mark.parametrize(("d", "seed"), [(1, 0), (2, 1), (4, 2)])
def test_steps_of_any_length_against_integration(d: int, seed: int) -> None:
    """Euler's scheme, extrapolated twice, knows nothing of exponentials."""
    system = swinging(d, seed)
    A, u, D = system.rates
    for time in (0.3, 2.7):
        found = []
        for count in (2000, 4000, 8000):
            h, Γ, μ, Q = time / count, np.eye(d), np.zeros(d), np.zeros((d, d))
            E = np.eye(d) + A * h
            for _ in range(count):
                Γ, μ, Q = E @ Γ, E @ μ + u * h, E @ Q @ E.T + D * h
            found.append((Γ, μ, Q))
        for part, one, two, four in zip(system.over(time), *found, strict=True):
            np.testing.assert_allclose(part, (8 * four - 6 * two + one) / 3, rtol=2e-6, atol=2e-6)


def test_parts_of_a_time_step_add_up() -> None:
    system = swinging(3, seed=4)
    context = [0.4, -1.2]
    whole, parts, long = KalmanFilter(system), KalmanFilter(system), KalmanFilter(system)
    for one in (whole, parts, long):
        one.condition(context=context)
    whole.predict(3)
    for part in (0.1, 0.55, 1.35, 1.0):
        parts.predict(part)
    np.testing.assert_allclose(parts.belief.mean, whole.belief.mean, atol=1e-10)
    np.testing.assert_allclose(parts.belief.covariance, whole.belief.covariance, atol=1e-10)
    np.testing.assert_allclose(long.forecast(3).mean, whole.forecast().mean, atol=1e-12)
    np.testing.assert_allclose(long.forecast_context(2.5).covariance, _context_ahead(parts, whole, system), atol=1e-9)
    long.predict(1e9)
    np.testing.assert_allclose(long.belief.covariance, system.stationary_covariance, rtol=1e-9)
    np.testing.assert_allclose(long.belief.mean, system.stationary_mean, rtol=1e-9)


def _context_ahead(parts: KalmanFilter, whole: KalmanFilter, system: LinearGaussianSystem) -> Array:
    """The same 2.5 steps after the measurement, from the joint law of the state at both times."""
    other = KalmanFilter(system)
    other.condition(context=[0.4, -1.2])
    Γ, _, Q = system.over(2.5)
    C = system.context_map
    return np.asarray(C @ (Γ @ other.belief.covariance @ Γ.T + Q) @ C.T)


def test_a_series_at_uneven_times_is_one_with_gaps() -> None:
    """In quarters of a time step every measurement is a row of a fine table whose other rows are missing."""
    coarse = swinging(2, seed=5)
    A, u, D = coarse.rates
    parts = {name: getattr(coarse, name) for name in ("arms", "reward_noise", "context_map", "context_noise")}
    parts |= {"initial_mean": coarse.initial_mean, "initial_covariance": coarse.initial_covariance}
    fine = LinearGaussianSystem.from_rates(generator=A / 4, diffusion=D / 4, drift=u / 4, **parts)
    rows = np.unique(np.random.default_rng(0).integers(0, 160, size=40))
    contexts, rewards = series(fine, 160, seed=6)
    gone = np.setdiff1d(np.arange(160), rows)
    contexts[gone], rewards[gone] = NAN, NAN
    expected = kalman.filter(fine, contexts, rewards)
    start = rows[0] / 4  # both begin with the first measurement
    fine_start = kalman.predict(kalman.initial_belief(fine), fine, int(rows[0]))
    begun = LinearGaussianSystem.from_dict(
        coarse.to_dict() | {"initial_mean": fine_start.mean, "initial_covariance": fine_start.covariance}
    )
    found = kalman.filter(begun, contexts[rows], rewards[rows], times=rows / 4 - start)
    np.testing.assert_allclose(found.means, expected.means[rows], atol=1e-9)
    np.testing.assert_allclose(found.covariances, expected.covariances[rows], atol=1e-9)
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, abs=1e-8)
    smoothed, whole = kalman.smooth(begun, found), kalman.smooth(fine, expected)
    np.testing.assert_allclose(smoothed.means, whole.means[rows], atol=1e-8)
    np.testing.assert_allclose(smoothed.covariances, whole.covariances[rows], atol=1e-8)


def test_rows_of_one_time_are_measurements_of_one_state() -> None:
    system = swinging(2, seed=7)
    contexts, _ = series(system, 6, seed=8, gaps=0.0)
    found = kalman.filter(system, contexts, times=[0, 0.5, 0.5, 0.5, 2.25, 2.25])
    live = KalmanFilter(system)
    for time, some in ((0.5, contexts[:1]), (1.75, contexts[1:4]), (0, contexts[4:])):
        for context in some:
            live.condition(context=context)
        live.predict(time)
    np.testing.assert_allclose(found.means[-1], live.belief.mean, atol=1e-12)


def test_what_has_no_rates_is_told() -> None:
    flipping = random_system(1, 1, 1, rng=0, spectral_radius=0.5)
    flipped = LinearGaussianSystem.from_dict(flipping.to_dict() | {"dynamics": [[-0.5]]})
    assert kalman.predict(kalman.initial_belief(flipped), flipped, 2).mean.shape == (1,)
    with pytest.raises(InvalidInputError, match=r"dynamics have no real logarithm.*use integer time steps, or build"):
        KalmanFilter(flipped).predict(0.5)
    with pytest.raises(InvalidInputError, match="swings slower than half a turn"):
        LinearGaussianSystem.from_rates(generator=[[0, 4], [-4, 0]], diffusion=np.eye(2), arms=[[1, 0]], reward_noise=1)
    with pytest.raises(InvalidInputError, match="times that do not fall, got an earlier one in row 2"):
        kalman.filter(flipping, np.zeros((3, 1)), times=[0, 1, 0.5])
    with pytest.raises(InvalidInputError, match="rounds: expected a number of at least 0"):
        KalmanFilter(flipping).predict(-0.5)
