import math
import re
from typing import Any

import numpy as np
import pytest

from twins.naive_ares import NaiveARES
from undertow import InvalidInputError, Trajectory, paper_system, random_system, simulate
from undertow.policies import ARES, PIES, ContextOracle
from undertow.policies.ares_as_printed import PrintedARES
from undertow.theory import true_noise_bound


@pytest.mark.parametrize(
    ("m", "k", "parameters", "naive"),
    [
        (1, 2, {}, {}),
        (2, 3, {"max_window": 4, "ridge": 0.3, "confidence": 0.02}, {"s_N": 4, "λ": 0.3, "δ": 0.02}),
        (1, 2, {"smoothing": 0.9, "window_penalty": 0.5, "weight_bound": 1.0}, {"α": 0.9, "ν": 0.5, "B_G": 1.0}),
        (1, 2, {"width": "noise+bias", "bias_bound": 0.2}, {"B_β": 0.2}),
        (1, 2, {"as_printed": {"A1"}}, {"as_printed": {"A1"}}),
        (2, 2, {"as_printed": {"A1"}, "max_window": 3}, {"as_printed": {"A1"}, "s_N": 3}),
        (2, 2, {"as_printed": {"A2"}, "max_window": 3}, {"as_printed": {"A2"}, "s_N": 3}),
        (1, 2, {"as_printed": {"A3"}}, {"as_printed": {"A3"}}),
        (1, 2, {"as_printed": {"A4"}}, {"as_printed": {"A4"}}),
        (1, 3, {"as_printed": {"A1", "A2", "A3", "A4"}}, {"as_printed": {"A1", "A2", "A3", "A4"}}),
    ],
)
def test_the_twin_decides_the_same(m: int, k: int, parameters: dict[str, Any], naive: dict[str, Any]) -> None:
    system = paper_system(1) if (m, k) == (1, 2) else random_system(4, m, k, rng=1, spectral_radius=0.95)
    path = system.sample(250, rng=3)
    kind = PrintedARES if "as_printed" in parameters else ARES
    policy = kind(arms=k, context_dim=m, noise_bound=2.0, **parameters)
    run = simulate(policy, path, record=["forecasts", "widths", "windows"])
    assert run.forecasts is not None
    assert run.widths is not None
    assert run.windows is not None
    twin = NaiveARES(k, m, noise_bound=2.0, **naive)
    for t in range(path.rounds):
        arm, forecast, width, window = twin.decide()
        assert arm == run.arms[t]
        np.testing.assert_array_equal(window, run.windows[t])
        np.testing.assert_allclose(forecast, run.forecasts[t], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(width, run.widths[t], rtol=1e-9)
        twin.learn(arm, path.rewards[t, arm])
        twin.observe(path.contexts[t])


REFERENCE = {  # psi: range of ARES and of PIES(10) relative to the context oracle, mean window of each arm at the end
    1: ((1.17, 1.30), (1.03, 1.12), (8.0, 7.0)),
    2: ((1.48, 1.66), (1.37, 1.50), (8.2, 9.5)),
    3: ((1.90, 2.15), (1.70, 1.87), (6.0, 2.2)),
    4: ((1.68, 1.90), (1.68, 1.85), (1.0, 0.4)),
}


@pytest.mark.parametrize("psi", REFERENCE)
def test_the_papers_evaluation(psi: int) -> None:
    """Seed 0, 100 runs of 10^4 rounds after as many of burn-in; medians over runs of ratios on the same path."""
    system = paper_system(psi)
    paths = system.sample(10_000, rng=0, runs=100, burn_in=10_000)
    oracle = simulate(ContextOracle(system), paths).regret
    ares = simulate(ARES(arms=2, context_dim=1, noise_bound=true_noise_bound(system)), paths, record=["windows"])
    auto = simulate(ARES(arms=2, context_dim=1), paths).regret
    pies = simulate(PIES(arms=2, context_dim=1, window=10), paths).regret
    assert oracle is not None
    assert auto is not None
    assert pies is not None
    assert ares.regret is not None
    assert ares.windows is not None
    (low, high), (pies_low, pies_high), windows = REFERENCE[psi]
    assert low <= np.median(ares.regret[:, -1] / oracle[:, -1]) <= high
    assert pies_low <= np.median(pies[:, -1] / oracle[:, -1]) <= pies_high
    np.testing.assert_allclose(ares.windows[:, -2000:].mean(axis=(0, 1)), windows, atol=0.7)
    assert np.median(auto[:, -1] / ares.regret[:, -1]) <= 1.05


def test_what_the_paper_prints_is_worse() -> None:
    """Seed 0, 10 runs at psi = 1: with V in place of V⁻¹ (A1) or the printed update (A2) regret is far above ARES's."""
    system = paper_system(1)
    paths = system.sample(3000, rng=0, runs=10)
    bound = true_noise_bound(system)

    def regret(*rows: str) -> float:
        run = simulate(
            PrintedARES(arms=2, context_dim=1, noise_bound=bound, as_printed=rows), paths, record=["windows"]
        )
        assert run.regret is not None
        return float(np.median(run.regret[:, -1]))

    corrected = regret()
    assert regret("A1") > 3 * corrected
    assert regret("A2") > 1.5 * corrected
    assert regret("A3") > corrected
    assert regret("A4") > 1.3 * corrected


def test_noise_bound_is_estimated_in_units_of_reward() -> None:
    system = paper_system(1)  # where ten contexts say nearly as much as all of them
    path = system.sample(5000, rng=0)
    bounds = []
    for scale in (1.0, 1000.0):
        policy = ARES(arms=2, context_dim=1, weight_bound=0.0)
        for context, rewards in zip(path.contexts, path.rewards, strict=True):
            decision = policy.decide()
            policy.learn(decision, scale * rewards[decision.arm])
            policy.observe(context)
        bounds.append(policy.noise_bound_in_use)
    assert bounds[1] == pytest.approx(1000 * bounds[0], rel=1e-9)
    assert bounds[0] == pytest.approx(true_noise_bound(system), rel=0.25)
    assert ARES(arms=2, context_dim=1, noise_bound=3.0).noise_bound_in_use == 3.0


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"context_dim": 0}, "context_dim: expected at least 1, since ARES forecasts from contexts"),
        ({"context_dim": -1}, "context_dim: expected at least 0, got -1"),
        ({"confidence": 1.0}, "confidence: expected a number between 0 and 1, both excluded, got 1"),
        ({"ridge": 0.0}, "ridge: expected a number above 0, got 0"),
        ({"smoothing": -0.1}, "smoothing: expected a number between 0 and 1"),
        ({"max_window": 0}, "max_window: expected at least 1, got 0"),
        ({"window_penalty": -1}, "window_penalty: expected a number of at least 0, got -1"),
        ({"weight_bound": math.nan}, "weight_bound: expected finite numbers"),
        ({"noise_bound": 0}, "noise_bound: expected a number above 0, got 0"),
        ({"noise_bound": "large"}, "noise_bound: expected a number above 0 or 'auto', got 'large'"),
        ({"width": "bias"}, "width: expected 'noise' or 'noise+bias', got 'bias'"),
        ({"width": "noise+bias"}, 'bias_bound: expected above 0 with width="noise+bias" and only there, got 0'),
        ({"bias_bound": 1.0}, "bias_bound: expected above 0 with width="),
        ({"arms": 0}, "arms: expected at least 1, got 0"),
        ({"arms": ["a", "a"]}, "arms: expected names that differ"),
        ({"arms": "ab"}, "arms: expected a number or a list of names, got the string 'ab'"),
        ({"arms": []}, "arms: expected at least one name"),
        ({"max_pending": 0}, "max_pending: expected at least 1, got 0"),
        ({"rng": "dice"}, "rng: expected an integer, got 'dice'"),
    ],
)
def test_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        ARES(**({"arms": 2, "context_dim": 1} | parameters))


def test_ares_where_only_the_noise_is_unknown_prefers_short_windows() -> None:
    """Contexts that say nothing of the rewards: the smallest window is as good as any and is chosen."""
    rng = np.random.default_rng(0)
    path = Trajectory(rng.standard_normal((3000, 1)), rng.standard_normal((3000, 2)) + np.array([0.0, 1.0]))
    run = simulate(ARES(arms=2, context_dim=1, noise_bound=1.0), path, record=["windows"])
    assert run.windows is not None
    assert run.windows[-500:].mean() < 1
    assert run.arms[-500:].mean() > 0.9
