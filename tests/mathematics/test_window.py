import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import Array, full_system
from undertow import InvalidInputError, LinearGaussianSystem, NoStationaryLawError, paper_system, random_system
from undertow.window import (
    ContextRing,
    best_window,
    bias_deviations,
    context_window,
    window_bias,
    window_errors,
    window_weights,
)


def steady_predictions(system: LinearGaussianSystem, contexts: Array) -> Array:
    """The steady-state filter's ẑ_t for t = 0…n (Eq. ss_Kalman_Filter), from an arbitrary first value."""
    Γ, μ, _, C, θ0, *_ = system.symbols
    ΓK = system.steady_state.prediction_gain
    predictions = [np.ones(system.state_dim)]
    for θ in contexts:
        predictions.append(Γ @ predictions[-1] + μ + ΓK @ (θ - θ0 - C @ predictions[-1]))
    return np.array(predictions)


@settings(max_examples=40, deadline=None)
@given(d=st.integers(1, 6), m=st.integers(1, 3), k=st.integers(1, 4), s=st.integers(0, 12), seed=st.integers(0, 10**6))
def test_forecast_is_window_plus_bias(d: int, m: int, k: int, s: int, seed: int) -> None:
    """X̂_t = G_a(s)'Θ_t + β_a^t, to 1e-12 of the sizes involved, with drift and offsets."""
    system = full_system(d, m, k, seed=seed)
    contexts = system.sample(40, rng=seed).contexts
    predictions = steady_predictions(system, contexts)
    G = window_weights(system, s)
    for t in (s, 20, 40):
        forecast = system.arms @ predictions[t] + system.reward_offset
        Θ = context_window(contexts, t, s)
        β = window_bias(system, predictions[t - s], s)
        size = 1 + np.abs(forecast) + np.abs(G) @ np.abs(Θ) + np.abs(β)
        assert (np.abs(G @ Θ + β - forecast) <= 1e-12 * size).all()


def test_the_printed_sum_breaks_the_identity() -> None:
    """With τ = 1…s in place of 0…s−1 (docs/paper.md, A5) the constant is off by c'(I − A^s)μ."""
    system = random_system(3, 1, 2, rng=0, spectral_radius=0.9, drift=True)
    A = system.steady_state.closed_loop
    printed = sum(system.arms @ np.linalg.matrix_power(A, τ) @ system.drift for τ in range(1, 6))
    gap = window_weights(system, 5)[:, 0] - printed
    np.testing.assert_allclose(gap, system.arms @ (np.eye(3) - np.linalg.matrix_power(A, 5)) @ system.drift, atol=1e-12)
    assert np.abs(gap).max() > 0.1


def test_bias_takes_many_rows_at_once() -> None:
    system = paper_system(1)
    rows = np.random.default_rng(0).standard_normal((4, 5))
    together = window_bias(system, rows, 3)
    assert together.shape == (4, 2)
    np.testing.assert_allclose(together[2], window_bias(system, rows[2], 3), atol=1e-14)


def test_deviations_of_the_bias_are_those_of_its_law() -> None:
    """Var β = c'A^s Ẑ A^s'c; without a window it is the variance of the forecast, and in the end it is 0."""
    system = random_system(4, 2, 3, rng=2, spectral_radius=0.9)
    A, deviations = system.steady_state.closed_loop, bias_deviations(system, 200)
    Ẑ = system.stationary_covariance - system.steady_state.prediction_covariance
    for s in (0, 1, 7):
        β = window_bias(system, np.linalg.cholesky(Ẑ + 1e-12 * np.eye(4)).T, s)  # one row for each root of Ẑ
        np.testing.assert_allclose(np.sqrt((β**2).sum(axis=0)), deviations[s], rtol=1e-5)
    assert deviations[-1].max() < 1e-3
    assert np.abs(np.linalg.eigvals(A)).max() < 1


def test_shorter_windows_begin_longer_ones() -> None:
    contexts = np.arange(12.0).reshape(6, 2)
    assert context_window(contexts, 6, 2).tolist() == [1, 10, 11, 8, 9]
    np.testing.assert_array_equal(context_window(contexts, 6, 4)[:5], context_window(contexts, 6, 2))
    G = window_weights(random_system(3, 2, 2, rng=0), 6)
    np.testing.assert_array_equal(window_weights(random_system(3, 2, 2, rng=0), 4)[:, 1:], G[:, 1:9])


@pytest.mark.parametrize(("d", "m", "k"), [(3, 2, 2), (5, 1, 4), (1, 1, 1), (2, 0, 2)])
def test_best_window_is_the_filter_started_in_the_stationary_law(d: int, m: int, k: int) -> None:
    system = full_system(d, m, k, seed=1)
    errors = window_errors(system, 8)
    for s in range(9):
        best = best_window(system, s)
        assert best.weights.shape == (k, m * s + 1)
        np.testing.assert_allclose(best.error_variance, errors[s], rtol=1e-9)
    assert (np.diff(errors, axis=0) <= 1e-12).all()  # a longer window is never worse


def test_best_window_on_sampled_data() -> None:
    """Seed 0, 200 runs of 500 rounds: mean error 0 and mean square error as claimed, within 4 standard errors."""
    base = full_system(3, 2, 2, seed=1)
    system = LinearGaussianSystem.from_dict(
        base.to_dict() | {"initial_mean": base.stationary_mean, "initial_covariance": base.stationary_covariance}
    )
    paths = system.sample(500, rng=0, runs=200)
    best = best_window(system, 3)
    Θ = np.array([[context_window(run, t, 3) for t in range(3, 500)] for run in paths.contexts])
    errors = paths.rewards[:, 3:] - Θ @ best.weights.T
    by_run = np.stack([errors.mean(axis=1), (errors**2).mean(axis=1) - best.error_variance])
    standard_error = by_run.std(axis=1, ddof=1) / np.sqrt(200)
    assert (np.abs(by_run.mean(axis=1)) < 4 * standard_error).all()


@pytest.mark.parametrize("psi", [1, 2, 3, 4])
def test_long_windows_reach_the_filter(psi: int) -> None:
    system = paper_system(psi)
    P = system.steady_state.prediction_covariance
    np.testing.assert_allclose(window_errors(system, 400)[-1], np.diag(P)[3:] + 1, rtol=1e-6)
    recent = np.s_[:, :50]  # the oldest weights also carry what the window cannot see
    np.testing.assert_allclose(best_window(system, 200).weights[recent], window_weights(system, 200)[recent], atol=1e-4)


def test_bad_arguments() -> None:
    system = paper_system(1)
    for call in (window_weights, best_window, window_errors):
        with pytest.raises(InvalidInputError, match="window: expected at least 0, got -1"):
            call(system, -1)
    with pytest.raises(InvalidInputError, match=re.escape("predicted_mean: expected shape (5,), got (4,)")):
        window_bias(system, np.zeros(4), 2)
    with pytest.raises(InvalidInputError, match=re.escape("t: expected a round from 3 (the window) to 4")):
        context_window(np.zeros((4, 1)), t=2, window=3)
    with pytest.raises(InvalidInputError, match=r"t: expected a round .* to 4 .*, got 5"):
        context_window(np.zeros((4, 1)), t=5, window=3)
    with pytest.raises(InvalidInputError, match=re.escape("contexts: expected shape (n, m), got (4,)")):
        context_window(np.zeros(4), t=3, window=3)
    with pytest.raises(NoStationaryLawError):
        best_window(random_system(2, 1, 2, rng=0, spectral_radius=1), 3)


@settings(max_examples=50, deadline=None)
@given(s_N=st.integers(1, 5), m=st.integers(0, 3), rows=st.lists(st.integers(-9, 9) | st.none(), max_size=25))
def test_ring_against_a_list(s_N: int, m: int, rows: list[int | None]) -> None:
    ring = ContextRing(s_N, m)
    kept = np.zeros((s_N, m))
    for seen, value in enumerate(rows, start=1):
        ring.push(None if value is None else np.full(m, value))
        kept = np.vstack([np.full((1, m), np.nan if value is None else value), kept])[:s_N]
        assert ring.seen == seen
        for s in range(s_N + 1):
            np.testing.assert_array_equal(ring.newest(s), kept[:s])


def test_ring_refuses_and_stays_as_it_was() -> None:
    ring = ContextRing(2, 2)
    ring.push([1, np.nan])
    for bad, message in (
        ([1.0], "context: expected shape (2,), got (1,)"),
        ([1.0, np.inf], "context: expected finite numbers, or NaN"),
    ):
        with pytest.raises(InvalidInputError, match=re.escape(message)):
            ring.push(bad)
    assert ring.seen == 1
    np.testing.assert_array_equal(ring.newest(2), [[1, np.nan], [0, 0]])
    with pytest.raises(InvalidInputError, match="window: expected at most max_window = 2, got 3"):
        ring.newest(3)
    with pytest.raises(ValueError, match="read-only"):
        ring.newest(1)[0, 0] = 5.0
    with pytest.raises(InvalidInputError, match="max_window: expected at least 1, got 0"):
        ContextRing(0, 1)
