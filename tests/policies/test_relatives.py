"""The paper's relatives, UBSS and LARL, against plain NumPy."""

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from twins import naive_policies as naive
from undertow import InvalidInputError, paper_system, random_system, simulate
from undertow.policies import LARL, UBSS, LinUCB


@pytest.mark.parametrize("given", [{}, {"reward_lags": 3, "exploration": 0.0}, {"ridge": 3.0, "noise_bound": 0.2}])
def test_ubss_against_plain_numpy(given: dict[str, Any]) -> None:
    path = random_system(3, 1, 2, rng=5).sample(250, rng=0)
    policy = UBSS(**({"arms": 2, "reward_lags": 2, "rng": 4} | given))
    run = simulate(policy, path, record=["forecasts", "widths"])
    assert run.forecasts is not None
    assert run.widths is not None
    s, factor, u = policy.reward_lags, policy.exploration, policy.parts.for_run(0).parts.streams.own.random(250)
    bounds = {"B_c": policy.arm_bound, "B_G": policy.weight_bound, "B_R": policy.noise_bound}
    history: list[tuple[int, float]] = []
    for t in range(250):
        if t < s:
            index, expected = np.zeros((2, 2)), int(u[t] * 2)
        else:
            index = np.array(
                [naive.ubss_index(history, a, s=s, δ=policy.confidence, λ=policy.ridge, **bounds) for a in range(2)]
            )
            index[:, 1] *= factor
            expected = int(index.sum(axis=1).argmax())
        np.testing.assert_allclose(run.forecasts[t], index[:, 0], atol=1e-9)
        np.testing.assert_allclose(run.widths[t], index[:, 1], rtol=1e-9)
        assert run.arms[t] == expected
        history.append((int(run.arms[t]), float(path.rewards[t, run.arms[t]])))


def test_ubss_is_certain_of_its_arm_once_it_knows_the_past() -> None:
    policy = UBSS(arms=3, reward_lags=2, rng=0)
    chances = []
    for _ in range(5):
        decision = policy.decide()
        chances.append(decision.propensity)
        policy.learn(decision, 1.0)
    assert chances == [1 / 3, 1 / 3, 1.0, 1.0, 1.0]
    policy.skip(1)  # a round without an arm belongs to no sequence
    assert policy.decide().propensity == 1 / 3


def test_ubss_takes_a_missing_reward_for_its_mean() -> None:
    """Of two policies alike, one hears that the last reward was 0, the other nothing: other arms' forecasts agree."""
    silent, told = (UBSS(arms=2, reward_lags=2, exploration=0.0, rng=1) for _ in range(2))
    for t in range(60):
        for policy in (silent, told):
            policy.learn(policy.decide(), math.sin(t))
    silent.decide()
    told.learn(told.decide(), 0.0)
    np.testing.assert_array_equal(silent.decide().forecast, told.decide().forecast)


def test_ubss_refuses_more_sequences_than_fit_into_memory() -> None:
    """A hundred arms and s = 4 would be 10^10 regressions; the error comes before any memory is taken."""
    tracemalloc.start()
    with pytest.raises(
        InvalidInputError, match=r"reward_lags: expected k\^\(s \+ 1\) regressions .* 100 arms and s = 4"
    ):
        UBSS(arms=100)
    with pytest.raises(InvalidInputError, match="and s = 1000000000000000000; lower reward_lags"):
        UBSS(arms=1, reward_lags=10**18)
    assert tracemalloc.get_traced_memory()[1] < 1e7
    tracemalloc.stop()
    assert UBSS(arms=100, reward_lags=1).arm_count == 100


@pytest.mark.parametrize(("horizon", "turns"), [(None, 60), (250, 50)])
def test_larl_against_plain_numpy(horizon: int | None, turns: int) -> None:
    """Seed 0: a slow latent process, so that more than one s is chosen."""
    k, most, λ = 3, 4, 2.0
    path = random_system(2, 0, k, rng=3, spectral_radius=0.98).sample(260, rng=0)
    policy = LARL(arms=k, horizon=horizon, max_lags=most, ridge=λ, exploration=0.5)
    run = simulate(policy, path, record=["forecasts", "widths"])
    assert run.forecasts is not None
    assert run.widths is not None
    rows: naive.Rows = []
    own: list[tuple[int, float]] = []
    s, due = 0, float(turns)
    for t in range(260):
        if t >= due:
            s, due = naive.larl_order(rows, k, most, λ), 2.0 * t if horizon is None else math.inf
        Φ = naive.lagged_inputs([], np.empty(0), own, k=k, m=0, s=0, lags=most)
        short = [(i, a, x[: 2 * k * s + 1], X) for i, a, x, X in rows]
        index = np.array([naive.weighted_index(short, a, Φ[: 2 * k * s + 1], np.ones(t), λ, 0.5) for a in range(k)])
        np.testing.assert_allclose(run.forecasts[t], index[:, 0], atol=1e-9)
        np.testing.assert_allclose(run.widths[t], index[:, 1], rtol=1e-9)
        arm = t % k if t < turns else int(index.sum(axis=1).argmax())
        assert run.arms[t] == arm
        rows.append((t, arm, Φ, path.rewards[t, arm]))
        own.append((arm, path.rewards[t, arm]))
    assert s > 1 or horizon  # within 50 rounds one lag is enough


def test_larl_is_linucb_with_reward_lags_once_s_is_chosen() -> None:
    """With one s to choose from, both forecast the same from the same rounds."""
    larl, linucb = LARL(arms=2, max_lags=3, horizon=1), LinUCB(arms=2, reward_lags=3)
    for t in range(100):
        ours, theirs = larl.decide(available=[t % 2]), linucb.decide(available=[t % 2])
        larl.learn(ours, math.sin(t))
        linucb.learn(theirs, math.sin(t))
    larl.parts.player.own.order.s = 3
    np.testing.assert_allclose(larl.forecast().forecast, linucb.forecast().forecast, rtol=1e-12)
    np.testing.assert_allclose(larl.forecast().width, linucb.forecast().width, rtol=1e-12)


def test_both_beat_random_without_contexts() -> None:
    """Seed 0, 4 runs of 3000 rounds: less than two thirds of the regret of a policy that draws its arm."""
    system = paper_system(psi=4)
    paths = system.sample(3000, rng=0, burn_in=1000, runs=4)
    random = 3000 * 3.5620
    for policy in (UBSS(arms=2, exploration=0.0, rng=0), LARL(arms=2)):
        regret = simulate(policy, paths).regret
        assert regret is not None
        assert regret[:, -1].mean() < random * 2 / 3
