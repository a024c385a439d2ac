"""Missing contexts in ridge policies: what stands for them, and that nothing changes where none is missing."""

import math
from typing import Any

import numpy as np
import pytest

from helpers import Array, make_policy, with_gaps
from twins import naive_policies as naive
from undertow import Trajectory, random_system, simulate
from undertow.live.inputs import Inputs
from undertow.policies import LinUCB, LivePolicy

RIDGE = ["linucb", "lints", "pies", "ares", "discounted-linucb", "sliding-window-linucb"]


def inputs(policy: LivePolicy) -> Inputs:
    """What a policy remembers of the past."""
    own: Inputs = policy.parts.player.own.inputs
    return own


def filled(policy: LivePolicy, contexts: Array) -> Array:
    """Show contexts to a policy; return them as they entered, back in their own units."""
    rows = []
    for context in contexts:
        policy.learn(policy.decide(), 0.0)
        policy.observe(context)
        own = inputs(policy)
        rows.append(own.ring[int(own.head.newest)].copy())
    result = np.array(rows)
    if policy.parts.columns.units is not None:
        m = contexts.shape[1]
        result = result * policy.parts.columns.units.scale[:m] + policy.parts.columns.units.centre[:m]
    return result


@pytest.mark.parametrize(("m", "window"), [(1, 1), (1, 12), (2, 3), (3, 10), (4, 2), (12, 2)])
@pytest.mark.parametrize("begin", [0, 25])
def test_gaps_are_filled_by_a_regression_on_the_last_contexts(m: int, window: int, begin: int) -> None:
    base = 100 + 5 * random_system(4, m, 2, rng=1, spectral_radius=0.95).sample(120, rng=0).contexts
    contexts = with_gaps(base, 0.3, 0)
    contexts[:begin] = base[:begin]
    policy = LinUCB(arms=2, context_dim=m, window=window)
    np.testing.assert_allclose(filled(policy, contexts), naive.filled(contexts, window), rtol=1e-8)


def autoregressive(φ: float, rounds: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    x = np.zeros((rounds, 1))
    for t in range(1, rounds):
        x[t] = φ * x[t - 1] + rng.standard_normal()
    return x


@pytest.mark.parametrize(("φ", "share"), [(0.95, 0.55), (0.8, 0.85), (-0.9, 0.65)])
def test_what_is_filled_in_is_nearer_than_the_mean(φ: float, share: float) -> None:
    """Seeds 0 to 4, 1000 rounds of an AR(1), a fifth missing: the error is less than a share of the mean's.

    The best forecast has √(1 − φ²) of the deviation one step ahead (0.31, 0.6, 0.44) and more after longer gaps; the
    bound holds in every one of the five.
    """
    for seed in range(5):
        whole = 7 + autoregressive(φ, 1000, seed)
        contexts = with_gaps(whole, 0.2, seed)
        missing = np.isnan(contexts[:, 0])
        entered = filled(LinUCB(arms=2, context_dim=1, window=5), contexts)
        error, spread = (entered - whole)[missing], (whole - np.nanmean(contexts))[missing]
        assert np.sqrt((error**2).mean()) < share * np.sqrt((spread**2).mean())


def test_an_entry_is_forecast_from_the_others_of_the_last_context() -> None:
    """Entry 0 is what entry 1 was a round before; half of it is missing, and the error is a fifth of the mean's."""
    source = np.random.default_rng(0).standard_normal(401)
    contexts = np.column_stack([source[:-1], source[1:]])
    contexts[::2, 0] = math.nan
    entered = filled(LinUCB(arms=2, context_dim=2, window=1), contexts)
    error = (entered[:, 0] - source[:-1])[100::2]
    assert np.sqrt((error**2).mean()) < 0.2 * source.std()


@pytest.mark.parametrize("name", RIDGE)
def test_the_scale_of_the_contexts_does_not_matter(name: str) -> None:
    contexts = with_gaps(random_system(3, 2, 2, rng=1).sample(60, rng=0).contexts, 0.3, 1)
    system = random_system(3, 2, 2, rng=1)
    one, two = (filled(make_policy(name, system, rng=0), scale * contexts) for scale in (1.0, 2.0**20))
    np.testing.assert_array_equal(2.0**20 * one, two)


@pytest.mark.parametrize("name", RIDGE)
def test_units_do_not_matter(name: str) -> None:
    system = random_system(3, 2, 2, rng=1)
    contexts = 30 + with_gaps(system.sample(60, rng=0).contexts, 0.3, 1)
    contexts[0] = 30.0  # else a gap at the very beginning is 0, or whatever comes first
    one = filled(make_policy(name, system, rng=0), contexts)
    policy = make_policy(name, system, rng=0, standardize=True)
    for t in range(60):
        entered = filled(policy, contexts[t : t + 1])
        np.testing.assert_allclose(entered[0], one[t], rtol=1e-9)


@pytest.mark.parametrize("name", RIDGE)
def test_nothing_changes_before_the_first_gap(name: str) -> None:
    """Bit for bit; the regression for gaps has not begun, and begins with the first."""
    system = random_system(3, 2, 3, rng=0)
    whole = system.sample(100, rng=0)
    contexts = whole.contexts.copy()
    contexts[60:] = with_gaps(contexts[60:], 0.4, 0)
    broken = Trajectory(contexts, whole.rewards)
    one, two = (
        simulate(make_policy(name, system, rng=0), path, record=["forecasts", "widths"]) for path in (whole, broken)
    )
    assert one.forecasts is not None
    assert two.forecasts is not None
    np.testing.assert_array_equal(one.forecasts[:61], two.forecasts[:61])
    if name != "ares":  # which looks at no context here
        assert (one.forecasts[61:] != two.forecasts[61:]).any()
    policy = make_policy(name, system, rng=0)
    filled(policy, whole.contexts)
    own = inputs(policy)
    assert not own.fill_u.any()
    np.testing.assert_array_equal(own.fill_W, np.tile(np.eye(own.fill_W.shape[1]), (2, 1, 1)))
    filled(policy, contexts[60:])
    assert own.fill_u.any()


def test_data_without_gaps_are_what_they_were() -> None:
    """Against a twin that knows nothing of gaps."""
    path = random_system(4, 2, 3, rng=0, spectral_radius=0.95).sample(100, rng=1)
    run = simulate(LinUCB(arms=3, context_dim=2, window=4), path)
    rows: naive.Rows = []
    for t in range(100):
        Θ = naive.lagged_inputs(list(path.contexts[:t]), np.empty(0), [], k=3, m=2, s=4, lags=0)
        index = [sum(naive.weighted_index(rows, a, Θ, np.ones(len(rows)), 1.0, 1.0)) for a in range(3)]
        assert run.arms[t] == int(np.argmax(index))
        rows.append((t, int(run.arms[t]), Θ, path.rewards[t, run.arms[t]]))


@pytest.mark.parametrize("context_first", [False, True])
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize(
    "missing",
    [
        lambda contexts: np.full_like(contexts, math.nan),
        lambda contexts: np.where(np.arange(len(contexts))[:, None] < 5, math.nan, contexts),
        lambda contexts: np.where(np.arange(len(contexts))[:, None] > 5, math.nan, contexts),
        lambda contexts: np.where([True, False], math.nan, contexts),
        lambda contexts: np.where(np.isnan(with_gaps(contexts, 0.5, 0)), math.nan, 3.0),
    ],
    ids=["all", "the first", "the later", "one column", "some of a constant"],
)
@pytest.mark.parametrize(("name", "more"), [*((name, {}) for name in RIDGE), ("linucb", {"window": 0})])
def test_forecasts_are_finite_whatever_is_missing(
    name: str, more: dict[str, Any], missing: Any, standardize: bool, context_first: bool
) -> None:
    system = random_system(3, 2, 2, rng=1)
    base = system.sample(50, rng=0)
    path = Trajectory(missing(base.contexts), base.rewards)
    policy = make_policy(name, system, rng=0, standardize=standardize, context_first=context_first, **more)
    run = simulate(policy, path, record=["forecasts"])
    assert np.isfinite(run.forecasts).all()  # type: ignore[arg-type]


def test_no_context_is_a_context_of_gaps() -> None:
    one, two = (LinUCB(arms=2, context_dim=2, window=2) for _ in range(2))
    for policy, nothing in ((one, None), (two, [math.nan, math.nan])):
        for context in ([1.0, 2.0], nothing, [0.5, math.nan], nothing):
            policy.learn(policy.decide(), 1.0)
            policy.observe(context)
    np.testing.assert_array_equal(one.parts.player.state, two.parts.player.state)
    without = LinUCB(arms=2)
    assert np.isfinite(without.decide().forecast).all()
    without.skip(3)
    assert np.isfinite(without.decide().forecast).all()
