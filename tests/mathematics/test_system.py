import copy
import json
import math
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import arguments, full_system
from twins import naive
from undertow import (
    InvalidInputError,
    LinearGaussianSystem,
    NoStationaryLawError,
    NoSteadyStateError,
    Trajectory,
    kalman,
    paper_system,
    random_system,
)
from undertow.equations import riccati
from undertow.support.checks import child, seed_sequence

NAN, INF = math.nan, math.inf


# Construction


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("dynamics", np.ones((2, 3)), "dynamics: expected a square matrix"),
        ("dynamics", np.ones(3), "dynamics: expected shape (d, d), got (3,)"),
        ("dynamics", np.empty((0, 0)), "dynamics: expected a square matrix with at least one row"),
        ("dynamics", np.full((3, 3), NAN), "dynamics: expected finite numbers, got nan at index (0, 0)"),
        ("dynamics", [[INF, 0, 0], [0, 0, 0], [0, 0, 0]], "dynamics: expected finite numbers, got inf"),
        ("dynamics", "fast", "dynamics: expected real numbers of shape (d, d), got 'fast'"),
        ("dynamics", [[1, 2], [3]], "dynamics: expected real numbers"),
        ("dynamics", np.eye(3) * 1j, "dynamics: expected real numbers"),
        ("arms", np.ones((2, 4)), "arms: expected shape (k, 3), got (2, 4)"),
        ("arms", np.empty((0, 3)), "arms: expected at least one row"),
        ("arms", [[1, 2, NAN]], "arms: expected finite numbers"),
        ("state_noise", np.eye(2), "state_noise: expected shape (3, 3), got (2, 2)"),
        ("state_noise", np.triu(np.ones((3, 3))), "state_noise: expected a symmetric matrix"),
        ("state_noise", -np.eye(3), "state_noise: expected a positive semi-definite matrix"),
        ("state_noise", np.full((3, 3), NAN), "state_noise: expected finite numbers"),
        ("reward_noise", 0.0, "reward_noise: expected variances above 0, got 0"),
        ("reward_noise", [1.0, -2.0], "reward_noise: expected variances above 0, got -2"),
        ("reward_noise", [1.0, 1.0, 1.0], "reward_noise: expected shape (2,), got (3,)"),
        ("reward_noise", NAN, "reward_noise: expected finite numbers"),
        ("context_map", np.ones((2, 2)), "context_map: expected shape (m, 3), got (2, 2)"),
        ("context_noise", None, "context_noise: expected a 2 × 2 covariance to go with context_map"),
        ("context_noise", np.eye(3), "context_noise: expected shape (2, 2), got (3, 3)"),
        ("context_noise", np.diag([1.0, 0.0]), "context_noise: expected a positive definite matrix"),
        ("context_noise", [[1, 2], [0, 1]], "context_noise: expected a symmetric matrix"),
        ("drift", [1, 2], "drift: expected shape (3,), got (2,)"),
        ("drift", [1, 2, INF], "drift: expected finite numbers"),
        ("initial_mean", [1.0], "initial_mean: expected shape (3,), got (1,)"),
        ("initial_covariance", -np.eye(3), "initial_covariance: expected a positive semi-definite matrix"),
        ("context_offset", [0.0], "context_offset: expected shape (2,), got (1,)"),
        ("reward_offset", [0.0, NAN], "reward_offset: expected finite numbers"),
    ],
)
def test_bad_argument_is_named(name: str, value: Any, message: str) -> None:
    given = arguments() | {name: value}
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        LinearGaussianSystem(**given)


def test_defaults() -> None:
    system = LinearGaussianSystem(dynamics=[[0.5]], arms=[[1.0], [2.0]], state_noise=[[3.0]], reward_noise=2)
    assert system.context_dim == 0
    assert system.context_map.shape == (0, 1)
    assert system.context_noise.shape == (0, 0)
    assert system.reward_noise.tolist() == [2.0, 2.0]
    assert system.initial_mean.tolist() == [0.0]
    np.testing.assert_allclose(system.initial_covariance, [[4.0]], rtol=1e-14)
    assert system.sample(5, rng=0).contexts.shape == (5, 0)


def test_without_stationary_law_the_start_has_to_be_given() -> None:
    given = arguments() | {"dynamics": np.eye(3), "initial_mean": None, "initial_covariance": None}
    with pytest.raises(InvalidInputError, match=r"initial_covariance: .* no stationary law to start from"):
        LinearGaussianSystem(**given)
    system = LinearGaussianSystem(**(given | {"initial_covariance": np.eye(3)}))
    assert system.initial_mean.tolist() == [0.0, 0.0, 0.0]


def test_immutable_and_apart_from_its_inputs() -> None:
    given = arguments()
    system = LinearGaussianSystem(**given)
    given["dynamics"][0, 0] = 99.0
    assert system.dynamics[0, 0] != 99.0
    with pytest.raises(ValueError, match="read-only"):
        system.dynamics[0, 0] = 1.0
    with pytest.raises(AttributeError):
        system.dynamics = np.eye(3)  # type: ignore[misc]


def test_equality_and_hash() -> None:
    assert full_system() == full_system()
    assert hash(full_system()) == hash(full_system())
    assert full_system(seed=0) != full_system(seed=1)
    assert full_system() != "a system"
    assert pickle.loads(pickle.dumps(full_system())) == full_system()


# Facts


@pytest.mark.parametrize(("radius", "word"), [(0.5, "stable"), (1.0, "marginally stable"), (1.01, "unstable")])
def test_stability(radius: float, word: str) -> None:
    system = random_system(4, 1, 2, rng=0, spectral_radius=radius)
    assert system.spectral_radius == pytest.approx(radius, abs=1e-12)
    assert system.stability == word


def test_observable_and_controllable() -> None:
    two: dict[str, Any] = {
        "dynamics": np.diag([0.9, 0.5]),
        "arms": np.eye(2),
        "reward_noise": 1.0,
        "context_noise": [[1.0]],
    }
    seen = LinearGaussianSystem(**two, context_map=[[1, 1]], state_noise=np.eye(2))
    assert seen.is_observable
    assert seen.is_controllable
    assert not LinearGaussianSystem(**two, context_map=[[1, 0]], state_noise=np.eye(2)).is_observable
    assert not LinearGaussianSystem(**two, context_map=[[1, 1]], state_noise=np.diag([1.0, 0.0])).is_controllable
    tiny = LinearGaussianSystem(**two, context_map=[[1e-9, 1e-9]], state_noise=1e-18 * np.eye(2))
    assert tiny.is_observable  # units do not matter
    assert tiny.is_controllable


def test_stationary_law_is_a_fixed_point() -> None:
    system = full_system(d=6, seed=3)
    z, Z = system.stationary_mean, system.stationary_covariance
    np.testing.assert_allclose(system.dynamics @ z + system.drift, z, atol=1e-12)
    np.testing.assert_allclose(system.dynamics @ Z @ system.dynamics.T + system.state_noise, Z, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("radius", [1.0, 1.2])
def test_no_stationary_law(radius: float) -> None:
    system = random_system(3, 1, 2, rng=1, spectral_radius=radius)
    for fact in ("stationary_mean", "stationary_covariance"):
        with pytest.raises(NoStationaryLawError, match=r"no stationary law exists at spectral radius 1"):
            getattr(system, fact)


def test_steady_state_agrees_with_a_filter_run_for_long() -> None:
    system = full_system(d=4, m=2, k=3, seed=5)
    beliefs = kalman.filter(system, np.zeros((2000, 2)))
    np.testing.assert_allclose(system.steady_state.prediction_covariance, beliefs.predicted_covariances[-1], rtol=1e-9)
    np.testing.assert_allclose(system.steady_state.filter_covariance, beliefs.covariances[-1], rtol=1e-9)
    P, C, R = system.steady_state.prediction_covariance, system.context_map, system.context_noise
    K = P @ C.T @ np.linalg.inv(C @ P @ C.T + R)
    np.testing.assert_allclose(system.steady_state.filter_gain, K, atol=1e-12)
    np.testing.assert_allclose(system.steady_state.prediction_gain, system.dynamics @ K, atol=1e-12)


def test_steady_state_exists_at_a_seen_unit_root_but_not_at_a_hidden_or_unmoved_one() -> None:
    walk: dict[str, Any] = {"dynamics": [[1.0]], "arms": [[1.0]], "reward_noise": 1.0, "context_noise": [[1.0]]}
    walk |= {"initial_covariance": [[0.0]]}
    seen = LinearGaussianSystem(**walk, context_map=[[1.0]], state_noise=[[1.0]])
    golden = (1 + math.sqrt(5)) / 2  # P² − P − 1 = 0
    assert seen.steady_state.prediction_covariance[0, 0] == pytest.approx(golden, rel=1e-12)
    with pytest.raises(NoSteadyStateError, match=r"eigenvalue 1 does not decay and cannot be observed"):
        _ = LinearGaussianSystem(**walk, context_map=[[0.0]], state_noise=[[1.0]]).steady_state
    with pytest.raises(NoSteadyStateError, match="has no state_noise"):
        _ = LinearGaussianSystem(**walk, context_map=[[1.0]], state_noise=[[0.0]]).steady_state


def test_steady_state_without_contexts_is_the_stationary_law() -> None:
    system = LinearGaussianSystem(dynamics=[[0.5]], arms=[[1.0]], state_noise=[[3.0]], reward_noise=1)
    np.testing.assert_allclose(system.steady_state.prediction_covariance, [[4.0]], rtol=1e-12)
    assert system.steady_state.filter_gain.shape == (1, 0)


# Files


def test_round_trip_through_json(tmp_path: Path) -> None:
    for system in (full_system(), paper_system(2), random_system(2, 0, 3, rng=1), random_system(2, 1, 1, rng=2)):
        assert LinearGaussianSystem.from_dict(system.to_dict()) == system
        system.save(tmp_path / "system.json")
        assert LinearGaussianSystem.load(tmp_path / "system.json") == system


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a JSON file"),
        ("\x00\x01", "not a JSON file"),
        ("[1, 2]", "expected a dictionary of arrays, got list"),
        ('{"format": "another.thing"}', "expected format 'undertow.system' version 1, got 'another.thing'"),
        ('{"format": "undertow.system", "version": 99}', "version 99"),
        ('{"dynamics": [[1]]}', "entries arms, reward_noise, state_noise are missing"),
        ('{"dynamic": [[1]]}', "unknown entries dynamic; known are arms"),
        (
            '{"dynamics": [[0.5]], "arms": [["a"]], "state_noise": [[1]], "reward_noise": 1}',
            "arms: expected real numbers",
        ),
        ('{"dynamics": [[NaN]], "arms": [[1]], "state_noise": [[1]], "reward_noise": 1}', "dynamics: expected finite"),
    ],
)
def test_bad_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=re.escape(message)) as caught:
        LinearGaussianSystem.load(path)
    assert "broken.json" in str(caught.value)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(InvalidInputError, match="not a JSON file"):
        LinearGaussianSystem.load(path)


def test_plain_json_file_written_by_a_person(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"dynamics": [[0.5]], "arms": [[1], [2]], "state_noise": [[1]], "reward_noise": 1}))
    assert LinearGaussianSystem.load(path).arm_count == 2


# Sampling


def test_kernel_agrees_with_the_naive_loop() -> None:
    system = full_system(d=4, m=2, k=3)
    path = system.sample(3000, rng=11, states=True)  # longer than one block of normal numbers
    contexts, rewards, means, states = naive.sample(system, 3000, child(seed_sequence(11), 0))
    assert path.means is not None
    assert path.states is not None
    np.testing.assert_allclose(path.contexts, contexts, atol=1e-11)
    np.testing.assert_allclose(path.rewards, rewards, atol=1e-11)
    np.testing.assert_allclose(path.means, means, atol=1e-11)
    np.testing.assert_allclose(path.states, states, atol=1e-11)


def test_paths_depend_on_nothing_but_seed_and_run() -> None:
    system = paper_system(1)
    paths = system.sample(2500, rng=5, runs=6, threads=1)
    for threads in (2, 5):
        again = system.sample(2500, rng=5, runs=6, threads=threads)
        np.testing.assert_array_equal(again.rewards, paths.rewards)
        np.testing.assert_array_equal(again.contexts, paths.contexts)
    np.testing.assert_array_equal(system.sample(2500, rng=5, runs=range(4, 6)).rewards, paths.rewards[4:])
    np.testing.assert_array_equal(system.sample(2500, rng=5).rewards, paths.rewards[0])
    np.testing.assert_array_equal(system.sample(2500, rng=np.random.SeedSequence(5)).rewards, paths.rewards[0])
    np.testing.assert_array_equal(system.sample(700, rng=5, burn_in=1800).rewards, paths.rewards[0, 1800:])
    np.testing.assert_array_equal(paths.run(3).rewards, paths.rewards[3])
    assert not np.array_equal(paths.rewards[0], paths.rewards[1])
    assert not np.array_equal(system.sample(10).rewards, system.sample(10).rewards)


def test_a_generator_gives_new_paths_at_each_call() -> None:
    system, rng = paper_system(1), np.random.default_rng(0)
    first, second = system.sample(10, rng=rng), system.sample(10, rng=rng)
    assert not np.array_equal(first.rewards, second.rewards)
    np.testing.assert_array_equal(system.sample(10, rng=np.random.default_rng(0)).rewards, first.rewards)


def test_sampled_moments() -> None:
    """Seed 3, 4000 runs: mean and covariance of (θ, X) in the second round are within 4 standard errors."""
    system = full_system(d=3, m=2, k=2)
    paths = system.sample(2, rng=3, runs=4000)
    Γ, μ, Q, C, θ0, R, c, x0, σ2 = system.symbols
    z, P = Γ @ system.initial_mean + μ, Γ @ system.initial_covariance @ Γ.T + Q  # the law of the second round
    seen = np.hstack([paths.contexts[:, 1], paths.rewards[:, 1]])
    H = np.vstack([C, c])
    Σ = H @ P @ H.T
    Σ[:2, :2] += R
    Σ[2:, 2:] += np.diag(σ2)
    error = np.sqrt(np.diag(Σ) / len(seen))
    assert (np.abs(seen.mean(axis=0) - (H @ z + np.concatenate([θ0, x0]))) < 4 * error).all()
    spread = np.sqrt((np.outer(np.diag(Σ), np.diag(Σ)) + Σ**2) / len(seen))
    assert (np.abs(np.cov(seen.T) - Σ) < 4 * spread).all()


def test_singular_noise_moves_only_what_it_should() -> None:
    system = LinearGaussianSystem(
        dynamics=np.eye(2),
        arms=np.eye(2),
        state_noise=[[1, 1], [1, 1]],
        reward_noise=1.0,
        initial_covariance=np.zeros((2, 2)),
    )
    states = system.sample(100, rng=0, states=True).states
    assert states is not None
    assert np.ptp(states[:, 0]) > 1
    np.testing.assert_allclose(states[:, 0], states[:, 1], atol=1e-12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rounds": 0}, "rounds: expected at least 1, got 0"),
        ({"rounds": 2.5}, "rounds: expected an integer, got 2.5"),
        ({"rounds": True}, "rounds: expected an integer, got True"),
        ({"burn_in": -1}, "burn_in: expected at least 0, got -1"),
        ({"runs": 0}, "runs: expected at least 1, got 0"),
        ({"runs": []}, "runs: expected at least one run number, got none"),
        ({"runs": [-1]}, "runs: expected at least 0, got -1"),
        ({"threads": 0}, "threads: expected at least 1, got 0"),
        ({"rng": "seed"}, "rng: expected an integer, got 'seed'"),
        ({"rng": -1}, "rng: expected at least 0, got -1"),
        (
            {"rng": np.random.Generator(np.random.RandomState(0)._bit_generator)},  # noqa: SLF001
            "rng: expected a Generator that knows its seed",
        ),
        ({"states": "no"}, "states: expected True or False, got 'no'"),
    ],
)
def test_bad_sampling_arguments(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        paper_system(1).sample(**({"rounds": 10} | given))


def test_more_than_memory_holds_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"rounds: these paths need \d+ GiB, and the machine has \d+"):
        paper_system(1).sample(10**12, rng=0)


def test_a_state_that_overflows_is_an_error() -> None:
    system = random_system(2, 1, 2, rng=0, spectral_radius=2.0)
    with pytest.raises(InvalidInputError, match="unstable system overflowed; ask for fewer"):
        system.sample(5000, rng=0)
    assert system.sample(50, rng=0).rounds == 50


# The systems that ship


def test_paper_system() -> None:
    system = paper_system(2)
    T = system.dynamics / system.dynamics[0, 0]
    assert system.spectral_radius == pytest.approx(0.99, rel=1e-12)
    np.testing.assert_allclose(T[:2, :3], [[1, -0.25, -0.0625], [0.25, 1, -0.25]], rtol=1e-12)
    for bad in (NAN, INF, -1e9, "one"):
        with pytest.raises(InvalidInputError, match="psi: expected"):
            paper_system(bad)  # type: ignore[arg-type]


def test_random_system() -> None:
    assert random_system(4, 2, 3, rng=8) == random_system(4, 2, 3, rng=8)
    assert random_system(4, 2, 3, rng=8) != random_system(4, 2, 3, rng=9)
    assert 0.9 < random_system(4, 2, 3, rng=8).spectral_radius < 0.999
    assert not random_system(4, 2, 3, rng=8).drift.any()
    assert random_system(4, 2, 3, rng=8, drift=True).drift.all()
    assert not random_system(4, 2, 3, rng=8, spectral_radius=1).initial_covariance.any()
    spoilt: tuple[tuple[dict[str, Any], str], ...] = (
        ({"state_dim": 0}, "state_dim: expected at least 1"),
        ({"context_dim": -1}, "context_dim: expected at least 0"),
        ({"arm_count": 0}, "arm_count: expected at least 1"),
        ({"spectral_radius": 0}, "spectral_radius: expected a number above 0"),
        ({"spectral_radius": NAN}, "spectral_radius: expected finite numbers"),
    )
    for bad, message in spoilt:
        with pytest.raises(InvalidInputError, match=message):
            random_system(**({"state_dim": 2, "context_dim": 1, "arm_count": 2} | bad))


def test_odd_entries_and_flags_are_named() -> None:
    with pytest.raises(InvalidInputError, match="system: unknown entries 1, dynamic; known are arms"):
        LinearGaussianSystem.from_dict({1: [[0.5]], "dynamic": [[0.5]]})  # type: ignore[dict-item]
    with pytest.raises(InvalidInputError, match=r"drift: expected True or False, got 0\.5"):
        random_system(2, 1, 2, rng=0, drift=0.5)  # type: ignore[arg-type]


# Trajectories


def test_trajectory_of_ones_own_arrays() -> None:
    path = Trajectory([[1.0], [NAN], [3.0]], [[1, 2], [3, 1], [0, 0]], means=[[1, 2], [3, 1], [0, 1]])
    assert (path.rounds, path.runs, path.arm_count, path.context_dim) == (3, None, 2, 1)
    np.testing.assert_array_equal(path.regret([0, 0, 0]), [1, 1, 2])
    np.testing.assert_array_equal(path.played([1, 0, 1]), [[NAN, 2], [3, NAN], [NAN, 0]])
    assert Trajectory(rewards=[[1.0]]).contexts.shape == (1, 0)
    late = Trajectory(rewards=[[1.0, NAN]])
    assert [late.reward(0, arm) for arm in (0, 1)] == [1.0, None]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rewards": [[1.0, INF]]}, "rewards: expected finite numbers, or NaN if missing, got inf"),
        ({"rewards": [1.0]}, "rewards: expected shape (n, k), got (1,)"),
        ({"rewards": np.empty((0, 2))}, "rewards: expected at least one round and one arm"),
        ({"rewards": [[1.0]], "contexts": [[1.0], [2.0]]}, "contexts: expected shape (1, m), got (2, 1)"),
        ({"rewards": [[1.0]], "contexts": [[INF]]}, "contexts: expected finite numbers, or NaN"),
        ({"rewards": [[1.0]], "contexts": [[1e160]]}, "contexts: expected numbers below 1e+152 in size, got 1e+160"),
        ({"rewards": [[-1e160]]}, "rewards: expected numbers below 1e+152 in size, got 1e+160"),
        ({"rewards": [[1.0]], "means": [[1.0, 2.0]]}, "means: expected shape (1, 1), got (1, 2)"),
        ({"rewards": [[1.0]], "states": [1.0]}, "states: expected shape (1, d), got (1,)"),
    ],
)
def test_bad_trajectory(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        Trajectory(**given)


def test_bad_requests_of_a_trajectory() -> None:
    path = Trajectory(rewards=[[1.0, 2.0]])
    with pytest.raises(InvalidInputError, match="means: regret needs the rewards without noise"):
        path.regret([0])
    with pytest.raises(InvalidInputError, match="arms: expected numbers from 0 to 1, got 2"):
        path.played([2])
    with pytest.raises(InvalidInputError, match="arms: expected integers"):
        path.played([0.5])
    with pytest.raises(InvalidInputError, match="arms: expected shape"):
        path.played([0, 1])
    with pytest.raises(InvalidInputError, match="minimize: expected True or False, got 'costs'"):
        paper_system(1).sample(1, rng=0).regret([0], minimize="costs")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="run: this trajectory is a single path"):
        path.run(0)
    with pytest.raises(InvalidInputError, match="run: expected a number from 0 to 1, got 2"):
        paper_system(1).sample(3, rng=0, runs=2).run(2)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_are_read_only_too(way: Any) -> None:
    system = paper_system(1)
    assert system.spectral_radius > 0  # computed once, and not copied
    path = system.sample(5, rng=0)
    for values in (way(system).dynamics, way(path).rewards):
        with pytest.raises(ValueError, match="read-only"):
            values[0, 0] = 5.0
    assert way(system) == system
    np.testing.assert_array_equal(way(path).rewards, path.rewards)


def test_systems_close_to_the_circle_have_a_stationary_law() -> None:
    """Ten dimensions and a radius of 1 − 3e-9, where the solver of the Lyapunov equation finds no covariance."""
    system = random_system(10, 1, 2, rng=11, spectral_radius=1 - 3e-9)
    Γ, Z = system.dynamics, system.stationary_covariance
    np.testing.assert_allclose(Γ @ Z @ Γ.T + system.state_noise, Z, atol=1e-6 * np.abs(Z).max())
    assert np.linalg.eigvalsh(Z)[0] > 0


def test_the_units_of_a_measurement_do_not_matter_to_the_steady_state() -> None:
    system = paper_system(1)
    H, R = np.vstack([system.context_map, system.arms]), np.diag([1.0, 1.0, 1.0])
    units = np.array([1e8, 1e-8, 3.0])
    one = riccati.steady_state(system.dynamics, H, system.state_noise, R)
    two = riccati.steady_state(system.dynamics, units[:, None] * H, system.state_noise, R * units**2)
    np.testing.assert_allclose(two.prediction_covariance, one.prediction_covariance, rtol=1e-9)
    np.testing.assert_allclose(two.filter_gain * units, one.filter_gain, rtol=1e-9, atol=1e-12)
