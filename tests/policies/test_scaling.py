"""Ridge policies that standardize what they see: regressions in the present units, whatever the units were."""

import copy
import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow
from helpers import (
    Array,
    dims,
    everything,
    id_at,
    live_round,
    make_policy,
    paid,
    regressions,
    unnamed,
    with_features,
    with_gaps,
)
from undertow import InvalidInputError, Trajectory, random_system, simulate
from undertow.live import RidgePolicy
from undertow.policies import ARES, Decision, LinUCB, LivePolicy, registry

RIDGE = [name for name, entry in registry().items() if issubclass(entry.policy, RidgePolicy)]
SYSTEM = random_system(3, 2, 3, rng=2, spectral_radius=0.97)
both_orders = pytest.mark.parametrize("context_first", [False, True], ids=["decide first", "context first"])

CASES: list[tuple[str, dict[str, Any]]] = [
    ("linucb", {"window": 3}),
    ("linucb", {"window": 20, "feature_dim": 2, "minimize": True}),
    ("linucb", {"window": 2, "feature_dim": 2, "reward_lags": 3, "ridge": 0.2}),
    ("lints", {"window": 3, "reward_lags": 2}),
    ("pies", {"window": 4}),
    ("ares", {"max_window": 4, "ridge": 2.0}),
    ("discounted-linucb", {"window": 2, "feature_dim": 1, "reward_lags": 2, "discount": 0.9}),
    ("sliding-window-linucb", {"window": 2, "feature_dim": 1, "reward_lags": 2, "history": 25}),
]
every_case = pytest.mark.parametrize(("name", "more"), CASES, ids=lambda value: value if isinstance(value, str) else "")


def odd_path(rounds: int, q: int) -> Trajectory:
    """Contexts, features and rewards of sizes that have nothing to do with one another."""
    base = with_features(SYSTEM.sample(rounds, rng=3), q)
    contexts = base.contexts * np.array([1e3, 1e-3]) + np.array([5e3, -0.1])
    return Trajectory(contexts, 50 * base.rewards - 400, features=40 * base.features + 900)


class RawRows:
    """The rows that a policy has learned, as they were given, and the regression on them in any units."""

    def __init__(self, policy: LivePolicy, path: Trajectory) -> None:
        self.path, (self.m, self.q, self.first) = path, dims(policy)
        self.k, self.given = policy.arm_count, policy.parts.parameters()
        self.window: int = self.given["max_window" if "max_window" in self.given else "window"]
        self.lags = self.given.get("reward_lags", 0)
        self.played: list[int] = []
        self.known: dict[int, float] = {}  # rewards by round, in the order in which they came
        self.lagged: list[list[tuple[int, float] | None]] = []  # what was known of the last rounds in each

    def decided(self, decision: Decision) -> None:
        rounds = [decision.round - lag for lag in range(1, self.lags + 1)]
        self.lagged.append([(self.played[t], self.known[t]) if t in self.known else None for t in rounds])
        self.played.append(decision.arm)

    def inputs(self, t: int, centre: Array, scale: Array) -> Array:
        """Θ_t; a context before the first one is as good as the first."""
        m, newest = self.m, t if self.first else t - 1
        contexts = [(self.path.contexts[max(newest - i, 0)] - centre[:m]) / scale[:m] for i in range(self.window)]
        features = (self.path.features[t, : self.q] - centre[m:-1]) / scale[m:-1]
        pairs = np.zeros((self.lags, self.k, 2))
        for lag, seen in enumerate(self.lagged[t]):
            if seen is not None:
                pairs[lag, seen[0]] = (seen[1] - centre[-1]) / scale[-1], 1.0
        return np.concatenate([[1.0], *contexts, features, pairs.ravel()])

    def regression(self, arm: int, now: int, centre: Array, scale: Array) -> tuple[Array, Array, Array]:
        """ΣwΘΘ', ΣwxΘ and Σw²ΘΘ' as they stand in round `now`."""
        rounds = [t for t in self.known if self.played[t] == arm and now - 1 - t < self.given.get("history", math.inf)]
        Θ = np.array([self.inputs(t, centre, scale) for t in rounds])
        x = np.array([(self.known[t] - centre[-1]) / scale[-1] for t in rounds])
        w = np.array([self.given.get("discount", 1.0) ** (now - 1 - t) for t in rounds])
        return Θ.T @ (w[:, None] * Θ), Θ.T @ (w * x), Θ.T @ (w[:, None] ** 2 * Θ)


@both_orders
@every_case
def test_what_was_learned_is_known_in_the_present_units(name: str, more: dict[str, Any], context_first: bool) -> None:
    """Against plain NumPy on the raw rows after three changes of units; a third of the rewards is 20 rounds late."""
    path = odd_path(71, more.get("feature_dim", 0))
    policy = make_policy(name, SYSTEM, standardize=True, context_first=context_first, rng=0, **more)
    rows, units = RawRows(policy, path), []
    for t in range(70):
        decision = live_round(policy, path, t, learn=False)
        rows.decided(decision)
        for number in [t - 20] * (t >= 20 and (t - 20) % 3 == 0) + [t] * (t % 3 > 0):
            rows.known[number] = float(path.rewards[number, rows.played[number]])
            policy.learn(id_at(policy, number), rows.known[number])
        units.append(policy.parts.columns.units)
    assert len({id(each) for each in units[1:]}) == 4
    centre, scale = policy.parts.columns.units  # type: ignore[misc]
    assert np.abs(scale).max() > 1e3 * np.abs(scale).min()
    (V, b), decision = regressions(policy), live_round(policy, path, 70, learn=False)
    rows.decided(decision)
    Θ = rows.inputs(70, centre, scale)
    λ, factor = policy.parts.parameters()["ridge"], policy.parts.parameters().get("exploration", 0.0)
    for arm in range(3):
        M, c, M2 = rows.regression(arm, 70, centre, scale)
        np.testing.assert_allclose(V[arm], M, atol=1e-8 * np.abs(M).max())
        np.testing.assert_allclose(b[arm], c, atol=1e-8 * np.abs(c).max())
        if name.startswith("ares"):
            check_ares(policy, arm, M, λ)
            continue
        inverse = np.linalg.inv(M + λ * np.eye(len(Θ)))
        assert decision.forecast[arm] == pytest.approx(centre[-1] + scale[-1] * (Θ @ inverse @ c), abs=1e-6)
        width = factor * math.sqrt(Θ @ inverse @ (M2 + λ * np.eye(len(Θ))) @ inverse @ Θ)
        assert decision.width[arm] == pytest.approx(abs(scale[-1]) * width, rel=1e-7)


def check_ares(policy: LivePolicy, arm: int, M: Array, λ: float) -> None:
    own = policy.parts.player.own
    for s in range(5):
        p = 2 * s + 1
        V = M[:p, :p] + λ * np.eye(p)
        assert own.log_det[arm, s] == pytest.approx(np.linalg.slogdet(V)[1] - p * math.log(λ), abs=1e-8)
        assert own.trace[arm, s] == pytest.approx(np.trace(np.linalg.inv(V)), rel=1e-8)


@both_orders
@every_case
def test_units_are_simulated_as_they_are_lived(name: str, more: dict[str, Any], context_first: bool) -> None:
    """Bit for bit, with a quarter of the contexts missing; the second column begins late."""
    path = odd_path(80, more.get("feature_dim", 0))
    contexts = with_gaps(path.contexts, 0.25, 0)
    contexts[:20, 1] = math.nan
    path = Trajectory(contexts, path.rewards, features=path.features)
    one, two = (
        make_policy(name, SYSTEM, standardize=True, context_first=context_first, rng=0, explore=0.1, **more)
        for _ in range(2)
    )
    run = simulate(one, path, record=["forecasts", "widths"])
    assert run.forecasts is not None
    assert run.widths is not None
    for t in range(80):
        decision = live_round(two, path, t)
        assert decision.arm == run.arms[t]
        np.testing.assert_array_equal(decision.forecast, run.forecasts[t])
        np.testing.assert_array_equal(decision.width, run.widths[t])


@both_orders
def test_units_may_change_where_blocks_of_a_simulation_meet(context_first: bool) -> None:
    """As they do at round 1024."""
    path = odd_path(1100, 0)
    one, two = (
        LinUCB(arms=3, context_dim=2, window=1, standardize=True, context_first=context_first) for _ in range(2)
    )
    run = simulate(one, path, record=["forecasts"])
    assert run.forecasts is not None
    forecasts = [live_round(two, path, t).forecast for t in range(1100)]
    np.testing.assert_array_equal(run.forecasts, forecasts)
    assert two.parts.columns.pause == 2048


@every_case
def test_saved_units_go_on(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    path = odd_path(80, more.get("feature_dim", 0))
    policy = make_policy(name, SYSTEM, standardize=True, rng=0, **more)
    twin, waiting = copy.deepcopy(policy), []
    for t in range(80):
        if t in (0, 5, 40):
            policy.save(tmp_path / "policy")
            policy = undertow.load(tmp_path / "policy")
        decisions = [live_round(each, path, t, learn=t % 3 > 0) for each in (policy, twin)]
        assert unnamed(decisions[0]) == unnamed(decisions[1])
        waiting += [] if t % 3 else [decisions[0]]
        if len(waiting) > 10:  # from before a change of units, or two
            for each in (policy, twin):
                each.learn(id_at(each, waiting[0].round), paid(path, waiting[0]))
            waiting = waiting[1:]
    assert everything(policy) == everything(twin)


# What units are for


PATHS = SYSTEM.sample(500, rng=0, runs=20)


@functools.cache
def regrets(name: str, scale: float, shift: float, *, standardize: bool) -> tuple[Array, Any]:
    """Final regret of 20 runs, seed 0, at scale 1, and the arms."""
    assert PATHS.means is not None
    contexts, rewards, means = (scale * (part + shift) for part in (PATHS.contexts, PATHS.rewards, PATHS.means))
    window = {"max_window": 4} if name.startswith("ares") else {"window": 4}
    run = simulate(
        make_policy(name, SYSTEM, rng=0, standardize=standardize, **window), Trajectory(contexts, rewards, means=means)
    )
    assert run.regret is not None
    return run.regret[:, -1] / scale, run.arms


@pytest.mark.parametrize("name", RIDGE)
def test_other_units_other_regret_only_without_standardizing(name: str) -> None:
    """Seed 0, 20 runs of 500 rounds: a thousand times as large and far from 0, within 3 standard errors or not."""
    for standardize in (True, False):
        here = regrets(name, 1.0, 0.0, standardize=standardize)[0]
        excess = regrets(name, 1000.0, 1000.0, standardize=standardize)[0] - here
        error = float(excess.std(ddof=1)) / math.sqrt(20)
        assert (abs(excess.mean()) < 3 * error) == standardize
        assert error < 0.2 * here.mean() or not standardize


@pytest.mark.parametrize("name", RIDGE)
@pytest.mark.parametrize(("scale", "shift"), [(1e-9, 0.0), (1e9, 0.0), (1e-9, 1e5), (1.0, 1e9)])
def test_units_may_be_extreme(name: str, scale: float, shift: float) -> None:
    """Seed 0: on average no more is lost than 32 rounds of random arms, the first of which had no units yet."""
    assert PATHS.means is not None
    here, there = (regrets(name, *units, standardize=True)[0] for units in ((1.0, 0.0), (scale, shift)))
    assert (there - here).mean() < 32 * (PATHS.means.max(axis=-1) - PATHS.means.mean(axis=-1)).mean()


@pytest.mark.parametrize("name", RIDGE)
def test_a_shift_changes_no_choice(name: str) -> None:
    arms = [regrets(name, 1.0, shift, standardize=True)[1] for shift in (0.0, 1e4)]
    assert (arms[0] == arms[1]).mean() > 0.999


def test_it_is_off_by_default() -> None:
    assert len(RIDGE) == 7
    for name in RIDGE:
        assert registry()[name].parameters["standardize"] is False
        assert make_policy(name, SYSTEM).parts.columns.units is None
    with pytest.raises(InvalidInputError, match="standardize: expected True or False, got 1"):
        LinUCB(arms=2, standardize=1)  # type: ignore[arg-type]


# What goes on around a change of units


@both_orders
def test_forecast_says_what_decide_will_and_changes_nothing(context_first: bool) -> None:
    path = odd_path(40, 1)
    policy = LinUCB(arms=3, context_dim=2, feature_dim=1, reward_lags=2, standardize=True, context_first=context_first)
    for t in range(40):
        if context_first:
            policy.observe(path.contexts[t])
        before = everything(policy)
        outlook = policy.forecast(path.features[t])
        assert (everything(policy)) == before
        with pytest.raises(InvalidInputError, match="features: expected shape"):
            policy.decide([1.0, 2.0])
        assert (everything(policy)) == before
        decision = policy.decide(path.features[t])
        np.testing.assert_array_equal(outlook.forecast, decision.forecast)
        np.testing.assert_array_equal(outlook.width, decision.width)
        policy.learn(decision, paid(path, decision))
        if not context_first:
            policy.observe(path.contexts[t])


def test_bounds_stay_in_units_of_reward() -> None:
    path = odd_path(40, 0)
    bounds: dict[str, Any] = {"noise_bound": 3.0, "width": "noise+bias", "bias_bound": 7.0}
    policy = ARES(arms=3, context_dim=2, standardize=True, minimize=True, **bounds)
    for t in range(40):
        live_round(policy, path, t)
        assert policy.parts.columns.units is not None
        unit = abs(policy.parts.columns.units.scale[-1])
        assert policy.noise_bound_in_use == pytest.approx(3.0)
        assert policy.parts.player.own.settings.B_β * unit == pytest.approx(7.0)
    assert unit > 10


def test_standardized_costs_are_standardized_negative_rewards() -> None:
    path = odd_path(80, 0)
    costs = Trajectory(path.contexts, -path.rewards)
    one, two = (
        LinUCB(arms=3, context_dim=2, reward_lags=2, standardize=True, minimize=minimize) for minimize in (False, True)
    )
    for t in range(80):
        first, second = live_round(one, path, t), live_round(two, costs, t)
        assert first.arm == second.arm
        np.testing.assert_array_equal(first.forecast, -second.forecast)


@pytest.mark.parametrize("name", RIDGE)
def test_columns_that_never_vary_or_never_come(name: str) -> None:
    policy = make_policy(name, SYSTEM, standardize=True, rng=0)
    for _ in range(70):
        decision = policy.decide()
        assert np.isfinite(decision.forecast).all()
        policy.learn(decision, -1e6)
        policy.observe([1e9, math.nan])
    np.testing.assert_allclose(decision.forecast, -1e6)


@pytest.mark.parametrize("size", [9.96921e36, 1e78, -9e151])  # the first stands for an empty cell in netCDF files
@pytest.mark.parametrize("what", ["context", "reward"])
@pytest.mark.parametrize("name", RIDGE)
def test_one_gross_error_leaves_a_policy_that_learns(name: str, what: str, size: float) -> None:
    """Seed 0: arm 1 pays one more, noise 0.1; the error comes in round 20, and units change in rounds 32, 64, 128."""
    rng = np.random.default_rng(0)
    policy = make_policy(name, random_system(2, 1, 2, rng=0), standardize=True, rng=0)
    best = 0
    for t in range(300):
        decision = policy.decide()
        assert np.isfinite(decision.forecast).all()
        best += decision.arm if t >= 200 else 0
        gross = t == 20
        policy.learn(decision, size if gross and what == "reward" else decision.arm + 0.1 * rng.standard_normal())
        policy.observe([size if gross and what == "context" else rng.standard_normal()])
    assert best > 90 or what == "reward"  # beside such a reward, all others are the same


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("name", ["discounted-linucb", "sliding-window-linucb"])
def test_forgetting_policies_stay_finite_at_any_size(name: str, standardize: bool) -> None:
    """Seed 0: contexts around 1e140, hardly apart."""
    rng = np.random.default_rng(0)
    policy = make_policy(name, random_system(2, 1, 2, rng=0), standardize=standardize)
    for t in range(40):
        decision = policy.decide()
        assert np.isfinite([decision.forecast, decision.width]).all()
        policy.learn(decision, rng.standard_normal())
        policy.observe([1e140 if t > 3 else 1.0])
