import math

import numpy as np
import pytest

from helpers import Array
from undertow import InvalidInputError, LinearGaussianSystem, NoStationaryLawError, kalman, paper_system, random_system
from undertow.theory import (
    context_oracle_regret,
    expected_maximum,
    full_information_regret,
    greedy_regret,
    random_regret,
)

# psi: max c'Pc + σ², ρ(Ψ − ΨKC), and regret of Random, context Oracle and full-information oracle over 10^4 rounds
REFERENCE = {
    1: (5.333, 0.8396, 18714, 2860, 1236),
    2: (10.440, 0.9190, 23797, 5976, 1097),
    3: (19.971, 0.9589, 29802, 11707, 899),
    4: (32.495, 0.9776, 35620, 19082, 744),
}


@pytest.mark.parametrize("psi", REFERENCE)
def test_reference_values_of_the_papers_system(psi: int) -> None:
    system = paper_system(psi)
    steady = system.steady_state
    c = system.arms
    error = (np.diag(c @ steady.prediction_covariance @ c.T) + system.reward_noise).max()
    radius = np.abs(np.linalg.eigvals(steady.closed_loop)).max()
    regrets = [1e4 * f(system).value for f in (random_regret, context_oracle_regret, full_information_regret)]
    assert (round(error, 3), round(radius, 4), *map(round, regrets)) == REFERENCE[psi]


@pytest.mark.parametrize("psi", REFERENCE)
def test_reference_values_on_sampled_paths(psi: int) -> None:
    """Seed 0, 100 runs of 2000 rounds from the stationary law: each regret within 3 standard errors of its closed form.

    The first 200 rounds are left out: the filters start there from the stationary law, not from their steady state.
    """
    system = paper_system(psi)
    paths = system.sample(2000, rng=0, runs=100)
    regrets: dict[str, list[float]] = {"random": [], "contexts": [], "everything": []}
    rng = np.random.default_rng(1)
    for number in range(100):
        path = paths.run(number)
        choices: dict[str, Array] = {
            "random": rng.standard_normal((2000, 2)),
            "contexts": kalman.filter(system, path.contexts).forecasts,
            "everything": kalman.filter(system, path.contexts, path.rewards).forecasts,
        }
        for name, scores in choices.items():
            regret = path.regret(scores.argmax(axis=1))
            regrets[name].append(float(regret[-1] - regret[199]) / 1800)
    exact = {"random": random_regret, "contexts": context_oracle_regret, "everything": full_information_regret}
    for name, values in regrets.items():
        standard_error = np.std(values, ddof=1) / math.sqrt(len(values))
        assert abs(np.mean(values) - exact[name](system).value) < 3 * standard_error, name


def test_two_arms_in_closed_form() -> None:
    """For k = 2, centred, D = c₁ − c₂: κ(P) = (√(D'ZD) − √(D'(Z − P)D)) / √(2π)."""
    system = random_system(4, 2, 2, rng=3)
    D = system.arms[0] - system.arms[1]
    Z, P = system.stationary_covariance, system.steady_state.prediction_covariance
    closed = (math.sqrt(D @ Z @ D) - math.sqrt(D @ (Z - P) @ D)) / math.sqrt(2 * math.pi)
    assert context_oracle_regret(system).value == pytest.approx(closed, rel=1e-10)
    assert random_regret(system).value == pytest.approx(math.sqrt(D @ Z @ D / (2 * math.pi)), rel=1e-10)


@pytest.mark.parametrize("k", [3, 6])
def test_expected_maximum_of_many(k: int) -> None:
    """Independent: against ∫ x dΦ(x)^k. Dependent: against Monte Carlo, seed 0. Both within 4 standard errors."""
    x = np.linspace(-9, 9, 20001)
    Φ = np.array([math.erfc(-v / math.sqrt(2)) / 2 for v in x])
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    integral = float(np.trapezoid(x * k * Φ ** (k - 1) * density, x))
    value, error = expected_maximum(np.zeros(k), np.eye(k))
    assert 0 < error < 1e-4
    assert abs(value - integral) < 4 * error

    rng = np.random.default_rng(0)
    factor, mean = rng.standard_normal((k, k)), rng.standard_normal(k)
    draws = (mean + rng.standard_normal((200_000, k)) @ factor.T).max(axis=1)
    value, error = expected_maximum(mean, factor @ factor.T)
    assert abs(value - draws.mean()) < 4 * math.hypot(error, draws.std() / math.sqrt(len(draws)))


def test_expected_maximum_at_the_edges() -> None:
    assert expected_maximum([2.5], [[7.0]]) == (2.5, 0.0)
    assert expected_maximum([1.0, 3.0], np.ones((2, 2))).value == 3.0  # their difference is certain
    assert expected_maximum([3.0, 1.0], np.zeros((2, 2))).value == 3.0
    assert expected_maximum([40.0, 0.0], np.eye(2)).value == pytest.approx(40.0, rel=1e-14)
    with pytest.raises(InvalidInputError, match="covariance: expected shape"):
        expected_maximum([0.0, 0.0], np.eye(3))


def test_more_to_see_is_less_to_lose() -> None:
    for seed in range(5):
        system = random_system(4, 1, 4, rng=seed, drift=True)
        chain = [full_information_regret(system), context_oracle_regret(system), random_regret(system)]
        assert 0 <= chain[0].value <= chain[1].value + 3 * math.hypot(chain[0].error, chain[1].error)
        assert chain[1].value < chain[2].value
        nothing = greedy_regret(system, system.stationary_covariance)  # the best fixed arm
        assert chain[1].value <= nothing.value + 3 * math.hypot(chain[1].error, nothing.error)
    with pytest.raises(NoStationaryLawError):
        context_oracle_regret(random_system(3, 1, 2, rng=0, spectral_radius=1))


def test_contexts_that_say_nothing_of_the_arms_leave_the_whole_regret() -> None:
    """Two independent states behind the arms, a third one behind the context; then E max(Y₁, Y₂) is all regret."""
    system = LinearGaussianSystem(
        dynamics=np.diag([0.9, 0.8, 0.7]),
        arms=np.eye(3)[1:],
        state_noise=np.eye(3),
        reward_noise=1.0,
        context_map=[[1.0, 0.0, 0.0]],
        context_noise=[[1.0]],
        reward_offset=[1e12, 1e12],
    )
    variance = 1 / (1 - 0.8**2) + 1 / (1 - 0.7**2)
    assert context_oracle_regret(system).value == pytest.approx(math.sqrt(variance / (2 * math.pi)), rel=1e-9)
