import json
import math
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow
from helpers import full_system, id_of, make_policy, with_gaps
from twins import naive_policies as naive
from undertow import (
    InvalidInputError,
    KalmanFilter,
    LinearGaussianSystem,
    OutOfTurnError,
    Trajectory,
    UnknownDecisionError,
    kalman,
    paper_system,
    random_system,
    simulate,
)
from undertow.live.registry import name_of
from undertow.policies import (
    ARES,
    IDEA,
    PIES,
    UCB,
    ContextOracle,
    Decision,
    DiscountedLinUCB,
    DiscountedUCB,
    FullInformationOracle,
    KalmanGreedy,
    KalmanUCB,
    LearnedKalman,
    LinTS,
    LinUCB,
    LivePolicy,
    Random,
    Rexp3,
    SlidingWindowLinUCB,
    SlidingWindowUCB,
    registry,
)
from undertow.policies.ares_as_printed import PrintedARES

RIDGE_AND_KALMAN = ["ares", "linucb", "kalman-greedy", "context-oracle"]


# Rounds


@pytest.mark.parametrize("name", RIDGE_AND_KALMAN)
def test_calls_out_of_turn_name_both_ways_out(name: str) -> None:
    policy = make_policy(name, paper_system(1))
    with pytest.raises(OutOfTurnError, match=r"observe: the decision of this round is due first; .*skip\(rounds"):
        policy.observe([1.0])
    policy.decide()
    with pytest.raises(OutOfTurnError, match=r"decide: the context of this round is due first; .*observe\(None\)"):
        policy.decide()
    with pytest.raises(OutOfTurnError, match="skip: this round has begun; observe first"):
        policy.skip()
    policy.observe(None)
    policy.skip(3)
    assert policy.decide().round == 4


@pytest.mark.parametrize("name", RIDGE_AND_KALMAN)
def test_the_everyday_order(name: str) -> None:
    policy = make_policy(name, paper_system(1), context_first=True)
    with pytest.raises(OutOfTurnError, match="decide: the context of this round is due first"):
        policy.decide()
    policy.observe([0.5])
    with pytest.raises(OutOfTurnError, match="observe: the decision of this round is due first"):
        policy.observe([0.5])
    with pytest.raises(OutOfTurnError, match="skip: this round has begun; decide first"):
        policy.skip()
    assert policy.decide().round == 0
    policy.skip(2, contexts=[[0.1], [math.nan]])
    policy.observe(None)
    assert policy.decide().round == 3


def test_without_contexts_every_decide_is_a_round() -> None:
    policy = UCB(arms=2)
    assert [policy.decide().round for _ in range(3)] == [0, 1, 2]
    policy.skip(5)
    assert policy.decide().round == 8
    with pytest.raises(OutOfTurnError, match="observe: this policy was built without contexts; give context_dim"):
        policy.observe([1.0])


@pytest.mark.parametrize("context_first", [False, True])
def test_a_skipped_round_is_a_round_for_the_filter(context_first: bool) -> None:
    system = full_system(3, 2, 2)
    path = system.sample(12, rng=0)
    policy = KalmanGreedy(system, context_first=context_first)
    contexts, rewards = path.contexts.copy(), np.full((12, 2), math.nan)
    t = 0
    while t < 12:
        if t in (4, 5):
            contexts[4:6] = [[math.nan] * 2, path.contexts[5]]
            policy.skip(2, contexts=contexts[4:6])
            t = 6
            continue
        if context_first:
            policy.observe(path.contexts[t])
        decision = policy.decide()
        beliefs = kalman.filter(
            system, contexts[: t + 1], np.where(np.arange(12)[:, None] < t, rewards, math.nan)[: t + 1]
        )
        state = beliefs.means[t] if context_first else beliefs.predicted_means[t]
        np.testing.assert_allclose(decision.forecast, system.arms @ state + system.reward_offset, atol=1e-10)
        rewards[t, decision.arm] = path.rewards[t, decision.arm]
        policy.learn(decision, rewards[t, decision.arm])
        if not context_first:
            policy.observe(path.contexts[t])
        t += 1


def test_a_missing_context_enters_a_ridge_policy_as_the_mean_so_far() -> None:
    first, second = (LinUCB(arms=2, context_dim=1, window=3) for _ in range(2))
    for policy, row in ((first, None), (second, [2.0])):
        for context in ([1.0], [3.0], row):
            policy.learn(policy.decide(), 0.5)
            policy.observe(context)
    np.testing.assert_array_equal(first.decide().forecast, second.decide().forecast)


# Decisions and rewards


def test_decision_says_why() -> None:
    policy = ARES(arms=["low", "high"], context_dim=1)
    decision = policy.decide()
    assert (decision.id, decision.round, decision.arm, decision.name) == (id_of(policy, 0), 0, 0, "low")
    assert decision.forecast.tolist() == [0.0, 0.0]
    assert decision.width.tolist() == [math.inf, math.inf]
    assert decision.window is not None
    assert decision.window.tolist() == [0, 0]
    assert UCB(arms=2).decide().window is None


def test_decision_through_json() -> None:
    policy = ARES(arms=["low", "high"], context_dim=1)
    for _ in range(4):
        decision = policy.decide()
        again = Decision.from_json(decision.to_json())
        assert again[:4] == decision[:4]
        for one, other in zip(again[4:], decision[4:], strict=True):
            np.testing.assert_array_equal(one, other)
        policy.learn(again, 0.7)
        policy.observe([0.3])
    assert json.loads(UCB(arms=2).decide().to_json())["window"] is None
    for text in ("{", "[]", '{"id": 1}', "null"):
        with pytest.raises(InvalidInputError, match="decision: expected JSON from"):
            Decision.from_json(text)


def test_rewards_by_id_late_out_of_order_or_never() -> None:
    policy = UCB(arms=2)
    ids = [policy.decide().id for _ in range(6)]
    for number in (ids[3], ids[0], ids[5]):
        policy.learn(number, 1.0)
    assert policy.pending == 3
    with pytest.raises(UnknownDecisionError, match=f"the reward of '{ids[3]}' has been learned already"):
        policy.learn(ids[3], 2.0)
    policy.learn(ids[3], 1.0)
    with pytest.raises(UnknownDecisionError, match=r"decision: unknown id '.*-6'. Another policy made it"):
        policy.learn(id_of(policy, 6), 1.0)


def test_a_decision_of_another_policy_is_refused() -> None:
    mine, other = UCB(arms=["x", "y", "z"]), UCB(arms=2)
    mine.decide()
    with pytest.raises(UnknownDecisionError, match=r"decision: unknown id '.*-0'. Another policy made it"):
        mine.learn(other.decide(), 5.0)
    with pytest.raises(UnknownDecisionError, match=r"was arm 0 \(x\) in round 0, not arm 0 \(0\)"):
        mine.learn(other.decide()._replace(id=id_of(mine, 0), round=0, arm=0, name="0"), 5.0)
    assert mine.pending == 1


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ([0.02, 0.06], "arms: expected at least one name, each a string such as '0.02', got [0.02, 0.06]"),
        (np.array([0.1, 0.2]), "arms: expected a number or a list of names, got array([0.1, 0.2])"),
        ({"a": 1, "b": 2}, "arms: expected a"),
        (2.5, "arms: expected an integer, got 2.5"),
    ],
)
def test_arms_that_make_no_sense(arms: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        UCB(arms=arms)


def test_odd_arguments_are_named() -> None:
    policy = UCB(arms=["a", "b"])
    policy.retire_arm("a")
    with pytest.raises(InvalidInputError, match="name: expected a new name"):
        policy.add_arm(np.array([1, 2]))  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="available: expected names or indices of arms"):
        policy.decide(available=np.array(1))
    with pytest.raises(InvalidInputError, match="context_first: expected True or False, got 'no'"):
        ARES(arms=2, context_dim=1, context_first="no")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="refit: expected 'auto' or 'inline' or 'background'"):
        LearnedKalman(arms=2, refit=np.array([1, 2]))  # type: ignore[arg-type]


def test_parameters_may_be_numpy_numbers(tmp_path: Path) -> None:
    policy = ARES(
        arms=np.int64(2),  # type: ignore[arg-type]
        context_dim=np.int64(1),  # type: ignore[arg-type]
        context_first=np.bool_(False),  # type: ignore[arg-type]
        rng=np.random.SeedSequence(np.array([1, 2])),
    )
    policy.save(tmp_path / "policy")
    assert repr(undertow.load(tmp_path / "policy")) == "ARES(arms=2, context_dim=1)"


def test_a_folder_to_save_into_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"path: there is no folder '.*nowhere' to save into"):
        UCB(arms=2).save(tmp_path / "nowhere" / "policy")


def test_forgotten_decisions() -> None:
    policy = UCB(arms=2, max_pending=2)
    for _ in range(5):
        policy.decide()
    with pytest.raises(UnknownDecisionError, match=r"-1' is too old .* max_pending = 2"):
        policy.learn(id_of(policy, 1), 1.0)
    policy.learn(id_of(policy, 4), 1.0)


def test_bad_rewards() -> None:
    policy = KalmanGreedy(paper_system(1))
    decision = policy.decide()
    for reward, message in (
        (math.nan, "reward: expected finite numbers, got nan"),
        (math.inf, "reward: expected finite numbers, got inf"),
        (None, "reward: expected a number, got None. If no reward has arrived, do not call learn"),
        (10**400, "reward: expected real numbers"),
        (1e160, "reward: expected numbers below 1e+152 in size, got 1e+160; check the measurement"),
        ("1.0", "reward: expected real numbers"),
        ([1.0], "reward: expected shape (), got (1,)"),
    ):
        with pytest.raises(InvalidInputError, match=re.escape(message)):
            policy.learn(decision, reward)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="decision: expected a decision or its id, a string, got 0"):
        policy.learn(0, 1.0)  # type: ignore[arg-type]
    with pytest.raises(UnknownDecisionError, match=r"was arm 0 \(0\) in round 0, not arm 7 \(0\) in round 0"):
        policy.learn(decision._replace(arm=7), 1.0)
    policy.learn(decision, np.float32(0.5))  # type: ignore[arg-type]


@pytest.mark.parametrize("context_first", [False, True])
@pytest.mark.parametrize("name", ["kalman-greedy", "kalman-ucb", "idea", "linucb"])
def test_late_rewards_end_where_rewards_in_time_do(name: str, context_first: bool) -> None:
    """Rewards come many rounds late, in any order; when all have come, forecasts agree to 1e-10.

    Rewards are given only in rounds in which both policies chose the same arm, so that both have the same to learn.
    """
    system = full_system(3, 2, 2, seed=4)
    path = system.sample(60, rng=1)
    prompt, tardy = (make_policy(name, system, context_first=context_first) for _ in range(2))
    waiting = []
    rng = np.random.default_rng(0)
    for t in range(60):
        decisions = []
        for policy in (prompt, tardy):
            if context_first:
                policy.observe(path.contexts[t])
            decisions.append(policy.decide())
            if not context_first:
                policy.observe(path.contexts[t])
        arm = decisions[1].arm
        if decisions[0].arm == arm:
            prompt.learn(decisions[0], path.rewards[t, arm])
            waiting.append((decisions[1], path.rewards[t, arm]))
        if len(waiting) > 20 or t == 59:
            rng.shuffle(waiting)
            while len(waiting) > (0 if t == 59 else 10):
                tardy.learn(*waiting.pop())
    for policy in (prompt, tardy):
        if context_first:
            policy.observe([0.1, 0.2])
    np.testing.assert_allclose(prompt.decide().forecast, tardy.decide().forecast, atol=1e-10)


def test_a_reward_too_late_for_the_filter_is_refused() -> None:
    policy = KalmanGreedy(paper_system(1), max_delay=3)
    decision = policy.decide()
    policy.observe([1.0])
    for _ in range(5):
        policy.decide()
        policy.observe([1.0])
    before = policy.parts.player.state.copy()
    with pytest.raises(UnknownDecisionError, match="its reward comes 5 rounds late, and only max_delay = 3"):
        policy.learn(decision, 1.0)
    np.testing.assert_array_equal(policy.parts.player.state, before)


def test_forecast_changes_nothing_and_says_what_decide_will() -> None:
    policy = LinTS(arms=2, context_dim=1, feature_dim=1, rng=0)
    for t in range(20):
        outlook = policy.forecast(features=[0.1 * t])
        decision = policy.decide(features=[0.1 * t])
        np.testing.assert_array_equal(outlook.forecast, decision.forecast)
        np.testing.assert_array_equal(outlook.width, decision.width)
        policy.learn(decision, 0.5)
        policy.observe([0.3])


# Features


def test_features_enter_and_are_checked() -> None:
    policy = LinUCB(arms=2, context_dim=1, feature_dim=2)
    with pytest.raises(InvalidInputError, match=re.escape("features: expected shape (2,), got None")):
        policy.decide()
    with pytest.raises(InvalidInputError, match=r"features: expected shape \(2,\), .* got \(1,\)"):
        policy.decide([1.0])
    with pytest.raises(InvalidInputError, match="features: expected finite numbers, got nan"):
        policy.decide([1.0, math.nan])
    assert policy.decide([1.0, 2.0]).round == 0
    with pytest.raises(InvalidInputError, match=r"features: expected None, .* give feature_dim at construction"):
        LinUCB(arms=2).decide([1.0])
    with pytest.raises(InvalidInputError, match=r"features: expected None, .* this policy takes no features"):
        UCB(arms=2).decide([1.0])
    with pytest.raises(TypeError, match="feature_dim"):
        ARES(arms=2, context_dim=1, feature_dim=1)  # type: ignore[call-arg]


def test_a_late_reward_is_learned_with_the_features_of_its_own_round() -> None:
    prompt, tardy = (LinUCB(arms=1, feature_dim=1) for _ in range(2))
    waiting = []
    for t in range(10):
        u = [math.sin(t)]
        prompt.learn(prompt.decide(u), math.cos(t))
        waiting.append((tardy.decide(u), math.cos(t)))
    for decision, reward in reversed(waiting):
        tardy.learn(decision, reward)
    np.testing.assert_allclose(prompt.decide([0.7]).forecast, tardy.decide([0.7]).forecast, atol=1e-12)


# Against independent implementations


@pytest.mark.parametrize(
    ("kind", "more", "rows_of_features"),
    [("pies", {}, ())]
    + [
        (kind, more, rows)
        for kind in ("linucb", "discounted-linucb", "sliding-window-linucb")
        for more, rows in (
            ({}, ()),
            ({"reward_lags": 3, "window": 4}, ()),
            ({"feature_dim": 2, "exploration": 0.4, "ridge": 2.0}, ()),
            ({"feature_dim": 1, "reward_lags": 2, "window": 0}, ()),
            ({"feature_dim": 2, "reward_lags": 2, "window": 3}, (3,)),
        )
    ],
)
def test_linear_policies_against_plain_numpy(
    kind: str, more: dict[str, Any], rows_of_features: tuple[int, ...]
) -> None:
    system = random_system(4, 2, 3, rng=0, spectral_radius=0.95)
    base = system.sample(120, rng=1)
    q = more.get("feature_dim", 0)
    features = np.random.default_rng(2).standard_normal((120, *rows_of_features, q))
    path = Trajectory(base.contexts, base.rewards, means=base.means, features=features)
    special: Any = {"discounted-linucb": {"discount": 0.95}, "sliding-window-linucb": {"history": 30}}.get(kind, {})
    run = simulate(make_policy(kind, system, **special, **more), path, record=["forecasts", "widths"])
    assert run.forecasts is not None
    assert run.widths is not None
    s, lags, λ = more.get("window", 10), more.get("reward_lags", 0), more.get("ridge", 1.0)
    factor = 0.0 if kind == "pies" else more.get("exploration", 1.0)
    rows: naive.Rows = []
    own: list[tuple[int, float]] = []
    for t in range(120):
        Θ = [
            naive.lagged_inputs(list(path.contexts[:t]), u, own, k=3, m=2, s=s, lags=lags)
            for u in np.broadcast_to(features[t], (3, q))
        ]
        ages = np.array([t - 1 - row[0] for row in rows])
        weights: Any = {
            "discounted-linucb": 0.95**ages,
            "sliding-window-linucb": (ages < 30) * 1.0,
        }.get(kind, np.ones(len(rows)))
        index = np.array([naive.weighted_index(rows, a, Θ[a], weights, λ, factor) for a in range(3)])
        np.testing.assert_allclose(run.forecasts[t], index[:, 0], atol=1e-8)
        np.testing.assert_allclose(run.widths[t], index[:, 1], atol=1e-8)
        arm = t // 10 if kind == "pies" and t < 30 else int(index.sum(axis=1).argmax())
        assert run.arms[t] == arm
        rows.append((t, arm, Θ[arm], path.rewards[t, arm]))
        own.append((arm, path.rewards[t, arm]))


def test_frozen_pies_stops_learning() -> None:
    system = paper_system(1)
    path = system.sample(100, rng=0)
    policy = PIES(arms=2, context_dim=1, window=5, frozen=True)
    run = simulate(policy, path, record=["forecasts"])
    assert run.arms[:10].tolist() == [0] * 5 + [1] * 5
    rows: naive.Rows = []
    for t in range(10):
        Θ = naive.lagged_inputs(list(path.contexts[:t]), np.empty(0), [], k=2, m=1, s=5, lags=0)
        rows.append((t, int(run.arms[t]), Θ, path.rewards[t, run.arms[t]]))
    Θ = naive.lagged_inputs(list(path.contexts[:99]), np.empty(0), [], k=2, m=1, s=5, lags=0)
    expected = [naive.weighted_index(rows, a, Θ, np.ones(10), 1.0, 0.0)[0] for a in range(2)]
    assert run.forecasts is not None
    np.testing.assert_allclose(run.forecasts[99], expected, atol=1e-10)


def test_thompson_draws_have_the_posterior_law() -> None:
    """Seed 0, 4000 draws: each arm is drawn best as often as in 10^6 draws by NumPy, within 4 standard errors."""
    rng = np.random.default_rng(0)
    training = LinTS(arms=3, context_dim=1, window=2, exploration=1.5, rng=0)
    for _ in range(30):
        decision = training.decide()
        training.learn(decision, float(rng.standard_normal() + decision.arm))
        training.observe(rng.standard_normal(1))
    outlook = training.forecast()
    draws = outlook.forecast + outlook.width * rng.standard_normal((10**6, 3))
    share = np.bincount(draws.argmax(axis=1), minlength=3) / 10**6
    counts = np.zeros(3)
    state = training.parts.player.state.copy()
    for _ in range(4000):
        training.parts.player.state[:], training.parts.turns.due = state, "decide"
        counts[training.decide().arm] += 1
    error = np.sqrt(share * (1 - share) / 4000)
    assert (np.abs(counts / 4000 - share) < 4 * error).all()


@pytest.mark.parametrize(
    ("policy", "factor", "weight"),
    [
        (UCB(arms=3), math.sqrt(2), lambda ages: np.ones(len(ages))),
        (SlidingWindowUCB(arms=3, history=40, exploration=0.5), 0.5 * math.sqrt(0.6), lambda ages: (ages < 40) * 1.0),
        (DiscountedUCB(arms=3, discount=0.9), 2 * math.sqrt(0.6), lambda ages: 0.9**ages),
    ],
    ids=lambda value: type(value).__name__,
)
def test_ucb_policies_against_plain_numpy(policy: Any, factor: float, weight: Any) -> None:
    path = random_system(3, 1, 3, rng=5).sample(200, rng=0)
    run = simulate(policy, path, record=["forecasts", "widths"])
    assert run.forecasts is not None
    assert run.widths is not None
    history: list[tuple[int, float]] = []
    chosen = np.zeros(3)
    for t in range(200):
        mean, width = naive.ucb_index(history, 3, weight(np.arange(len(history))[::-1]), factor)
        np.testing.assert_allclose(run.forecasts[t], mean, atol=1e-9)
        np.testing.assert_allclose(run.widths[t], width, rtol=1e-9)
        untried = np.isinf(width)
        arm = int(np.where(untried, chosen, np.inf).argmin()) if untried.any() else int((mean + width).argmax())
        assert run.arms[t] == arm
        chosen[arm] += 1
        history.append((arm, path.rewards[t, arm]))


def test_rexp3_against_plain_numpy() -> None:
    path = random_system(3, 1, 3, rng=5).sample(400, rng=0)
    policy = Rexp3(arms=3, horizon=400, variation_budget=4.0, bounds=(-5.0, 5.0), rng=3)
    run = simulate(policy, path)
    size = 3 * math.log(3)
    Δ = math.ceil(size ** (1 / 3) * 100 ** (2 / 3))
    γ = min(1.0, math.sqrt(size / ((math.e - 1) * Δ)))
    u = policy.parts.for_run(0).parts.streams.own.random(400)
    weights = np.ones(3)
    for t in range(400):
        if t % Δ == 0:
            weights = np.ones(3)
        p = (1 - γ) * weights / weights.sum() + γ / 3
        arm = min(int(np.searchsorted(np.cumsum(p), u[t], side="right")), 2)
        assert run.arms[t] == arm
        x = np.clip((path.rewards[t, arm] + 5) / 10, 0, 1)
        weights[arm] *= math.exp(γ * x / p[arm] / 3)


def test_rexp3_learns_the_better_arm_whatever_the_scale() -> None:
    rng = np.random.default_rng(0)
    rewards = rng.standard_normal((4000, 2)) + np.array([0.0, 1.5])
    for scale, shift in ((1.0, 0.0), (1e3, -5e4)):
        path = Trajectory(rewards=rewards * scale + shift)
        run = simulate(Rexp3(arms=2, horizon=4000, variation_budget=1.0, rng=0), path)
        assert run.arms[2000:].mean() > 0.6
    for bad, message in (
        ({"bounds": (1.0, 0.0)}, "bounds: expected the lowest before the highest"),
        ({"bounds": "none"}, "bounds: expected 'auto', got 'none'"),
        ({"horizon": 0}, "horizon: expected at least 1"),
        ({"variation_budget": 0.0}, "variation_budget: expected a number above 0"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            Rexp3(arms=2, **bad)


def test_random_is_uniform() -> None:
    """Seed 0, 30000 rounds of three arms: each within 4 standard errors of a third."""
    run = simulate(Random(arms=3, rng=0), Trajectory(rewards=np.zeros((30_000, 3))))
    error = math.sqrt(2 / 9 / 30_000)
    assert (np.abs(np.bincount(run.arms) / 30_000 - 1 / 3) < 4 * error).all()


@pytest.mark.parametrize("context_first", [False, True])
def test_oracles_agree_with_the_filter(context_first: bool) -> None:
    system = full_system(4, 2, 3, seed=2)
    base = system.sample(150, rng=0)
    path = Trajectory(with_gaps(base.contexts, 0.3, 0), base.rewards, means=base.means)
    for policy, rewards in (
        (ContextOracle(system), np.full((150, 3), math.nan)),
        (FullInformationOracle(system), base.rewards),
    ):
        run = simulate(policy, path, record=["forecasts"], context_first=context_first)
        before = np.vstack([rewards[:-1], np.full((1, 3), math.nan)])  # what is seen of each round when it is forecast
        if context_first:
            forecasts = np.empty((150, 3))
            live = KalmanFilter(system)
            for t in range(150):
                live.condition(path.contexts[t])
                forecasts[t] = live.forecast().mean
                live.condition(rewards=rewards[t])
                live.predict()
        else:
            forecasts = kalman.filter(system, path.contexts, before).forecasts
        assert run.forecasts is not None
        np.testing.assert_allclose(run.forecasts, forecasts, atol=1e-9)
        np.testing.assert_array_equal(run.arms, forecasts.argmax(axis=1))


def test_kalman_policies_agree_with_the_filter() -> None:
    system = full_system(4, 2, 3, seed=3)
    path = system.sample(150, rng=0)
    Γ, _, _, _, _, _, c, _, σ2 = system.symbols
    for policy in (KalmanGreedy(system), KalmanUCB(system, exploration=0.7), IDEA(system, exploration=2.0)):
        run = simulate(policy, path, record=["forecasts", "widths"])
        assert run.forecasts is not None
        assert run.widths is not None
        live = KalmanFilter(system)
        for t in range(150):
            P = live.belief.covariance
            variance = np.einsum("ai,ij,aj->a", c, P, c)
            information = np.array([np.trace(np.outer(Γ @ P @ h, h @ P @ Γ.T)) for h in c]) / (variance + σ2)
            width = {
                "KalmanGreedy": np.zeros(3),
                "KalmanUCB": 0.7 * np.sqrt(variance),
                "IDEA": 2.0 * np.sqrt(information),
            }[type(policy).__name__]
            np.testing.assert_allclose(run.forecasts[t], live.forecast().mean, atol=1e-9)
            np.testing.assert_allclose(run.widths[t], width, atol=1e-9)
            arm = int((live.forecast().mean + width).argmax())
            assert arm == run.arms[t]
            live.condition(path.contexts[t], {arm: path.rewards[t, arm]})
            live.predict()


def test_full_information_only_simulates() -> None:
    with pytest.raises(OutOfTurnError, match="only simulate can run it"):
        FullInformationOracle(paper_system(1)).decide()


def test_policies_that_know_a_system_are_told_one() -> None:
    with pytest.raises(InvalidInputError, match="system: expected a LinearGaussianSystem, got 3"):
        KalmanGreedy(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="arms: expected 2, as the system has, got 3"):
        KalmanGreedy(paper_system(1), arms=["a", "b", "c"])
    assert KalmanGreedy(paper_system(1), arms=["a", "b"]).decide().name == "a"


def growing_unseen(seed: int) -> tuple[LinearGaussianSystem, LinearGaussianSystem]:
    """Return a system, and the same in other coordinates with one mode more, which grows and which nobody sees."""
    system = random_system(3, 1, 3, rng=seed, spectral_radius=0.9)
    S = np.random.default_rng(seed).standard_normal((4, 4)) + 2 * np.eye(4)
    Γ = np.zeros((4, 4))
    Γ[:3, :3], Γ[3] = system.dynamics, [0.3, -0.4, 0.5, 1.5]
    Q = np.eye(4)
    Q[:3, :3] = system.state_noise
    first = np.eye(4)
    first[:3, :3] = system.initial_covariance
    C, c = (
        np.hstack([part, np.zeros((len(part), 1))]) @ np.linalg.inv(S) for part in (system.context_map, system.arms)
    )
    more = LinearGaussianSystem(
        dynamics=S @ Γ @ np.linalg.inv(S),
        arms=c,
        state_noise=S @ Q @ S.T,
        reward_noise=system.reward_noise,
        context_map=C,
        context_noise=system.context_noise,
        initial_covariance=S @ first @ S.T,
    )
    return system, more


@pytest.mark.parametrize("name", ["context-oracle", "kalman-greedy", "kalman-ucb", "full-information-oracle"])
def test_a_mode_that_grows_unseen_changes_nothing(name: str) -> None:
    """After 880 rounds the variance of such a mode is beyond all numbers."""
    system, more = growing_unseen(0)
    path = system.sample(1500, rng=1)
    one, two = (simulate(make_policy(name, each), path, record=["forecasts", "widths"]) for each in (system, more))
    np.testing.assert_array_equal(one.arms, two.arms)
    np.testing.assert_allclose(two.forecasts, one.forecasts, atol=1e-10)  # type: ignore[arg-type]
    np.testing.assert_allclose(two.widths, one.widths, atol=1e-10)  # type: ignore[arg-type]


def test_a_system_of_which_nothing_is_seen() -> None:
    system = LinearGaussianSystem(
        dynamics=[[1.5]], arms=[[0.0], [0.0]], state_noise=[[1.0]], reward_noise=1.0, initial_covariance=[[1.0]],
        reward_offset=[0.0, 1.0],
    )  # fmt: skip
    policy = KalmanUCB(system)
    for _ in range(1500):
        decision = policy.decide()
        policy.learn(decision, 0.0)
    assert (decision.arm, *decision.forecast, *decision.width) == (1, 0.0, 1.0, 0.0, 0.0)


# Registry and files


def test_registry_lists_everything() -> None:
    entries = registry()
    listed = [getattr(undertow.policies, name) for name in undertow.policies.__all__]
    kinds = {kind for kind in listed if isinstance(kind, type) and issubclass(kind, LivePolicy)} - {LivePolicy}
    assert kinds == {entry.policy for entry in entries.values()}
    assert {kind.__name__ for kind in kinds} <= set(undertow.__all__)
    for name, entry in entries.items():
        assert name_of(entry.policy) == name
        assert entry.citation
        assert entry.policy.__doc__
        assert "rng" in entry.parameters
    assert entries["ares"].parameters["max_window"] == 10
    assert entries["ares"].parameters["arms"] is ...


@pytest.mark.parametrize("name", registry())
def test_help_describes_every_parameter(name: str) -> None:
    entry = registry()[name]
    lines = (entry.policy.__doc__ or "").split("\n")
    described = {part for line in lines if re.fullmatch(r"\w[\w, ]*", line) for part in line.split(", ")}
    assert entry.parameters.keys() <= described
    assert lines.count("Parameters") == 1
    if "Examples" in lines:
        assert lines[lines.index("Examples") - 1] == ""


def test_make_names_what_is_wrong() -> None:
    with pytest.raises(
        InvalidInputError, match=r"no policy is called 'aries' \(.* 'ares'\?\); known are ares, ares-as-"
    ):
        undertow.make("aries", arms=2)
    with pytest.raises(
        InvalidInputError, match=r"windows: ares has no .* \(.* 'max_window'\?\); it takes arms, explore"
    ):
        undertow.make("ares", arms=2, windows=3)
    with pytest.raises(InvalidInputError, match="arms: ares needs this parameter, and got none"):
        undertow.make("ares", context_dim=1)
    with pytest.raises(InvalidInputError, match="system: kalman-greedy needs this parameter"):
        undertow.make("kalman-greedy")


def test_saved_policy_keeps_everything(tmp_path: Path) -> None:
    policy = PrintedARES(arms=["x", "y"], context_dim=1, as_printed={"A4"}, noise_bound=2.0, rng=7)
    decision = policy.decide()
    policy.save(tmp_path / "policy")
    again = undertow.load(tmp_path / "policy")
    assert again.parts.parameters() | {"rng": 7} == policy.parts.parameters()
    again.learn(Decision.from_json(decision.to_json()), 1.5)  # a reward from another process, after a restart
    policy.learn(decision, 1.5)
    np.testing.assert_array_equal(again.parts.player.state, policy.parts.player.state)
    assert [file.name for file in tmp_path.iterdir()] == ["policy"]


def test_late_rewards_after_a_restart(tmp_path: Path) -> None:
    system = full_system(3, 2, 2)
    path = system.sample(30, rng=0)
    policy = KalmanGreedy(system)
    waiting = []
    for t in range(10):
        waiting.append(policy.decide())
        policy.observe(None if t == 4 else path.contexts[t])
    policy.save(tmp_path / "policy")
    again = undertow.load(tmp_path / "policy")
    for decision in reversed(waiting):
        for one in (policy, again):
            one.learn(decision, path.rewards[decision.round, decision.arm])
    np.testing.assert_array_equal(again.parts.player.state, policy.parts.player.state)
    np.testing.assert_array_equal(again.decide().forecast, policy.decide().forecast)


def test_damaged_and_foreign_files(tmp_path: Path) -> None:
    good = tmp_path / "good"
    UCB(arms=2).save(good)
    content = good.read_bytes()
    bad = tmp_path / "bad"
    renamed = content.replace(b"undertow.policy", b"overflow.policy")
    for spoilt in (b"", b"hello", content[: len(content) // 2], content[:-10], renamed):
        bad.write_bytes(spoilt)
        with pytest.raises(InvalidInputError, match="bad: not a policy file, or damaged"):
            undertow.load(bad)
    np.savez(tmp_path / "foreign.npz", x=np.arange(3))
    with pytest.raises(InvalidInputError, match="not a policy file"):
        undertow.load(tmp_path / "foreign.npz")
    np.save(tmp_path / "one.npy", np.arange(3))
    with pytest.raises(InvalidInputError, match="not a policy file"):
        undertow.load(tmp_path / "one.npy")
    with pytest.raises(FileNotFoundError):
        undertow.load(tmp_path / "absent")


def rewrite(path: Path, change: Any, **arrays: Any) -> None:
    """Change the header, or whole arrays, of a save file."""
    with np.load(path) as archive:
        entries = {name: archive[name] for name in archive.files}
    header = json.loads(entries["header"].tobytes())
    change(header)
    entries["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with path.open("wb") as file:
        np.savez(file, **(entries | arrays))


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "policy"
    for change, arrays, message in (
        (lambda h: h.update(version=99), {}, "expected undertow.policy version 10, got 'undertow.policy' version 99"),
        (lambda h: h.update(policy="mine"), {}, "holds a policy called 'mine', which is not registered here"),
        (lambda h: h["parameters"].update(arms=3), {}, r"damaged \(state: expected"),
        (lambda h: h["parameters"].update(odd=3), {}, r"damaged \(odd: ucb has no such parameter"),
        (lambda h: h.pop("random"), {}, r"damaged \(KeyError: 'random'"),
        (lambda h: None, {"state": np.zeros(3)}, r"damaged \(state: expected"),
    ):
        UCB(arms=2).save(path)
        rewrite(path, change, **arrays)
        with pytest.raises(InvalidInputError, match=message):
            undertow.load(path)


def test_a_pickle_inside_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "policy"
    UCB(arms=2).save(path)
    rewrite(path, lambda h: None, extra_trap=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InvalidInputError, match="not a policy file"):
        undertow.load(path)
    assert zipfile.is_zipfile(path)


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "policy"
    UCB(arms=2).save(path)
    before = path.read_bytes()

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(OSError, match="No space left"):
        UCB(arms=3).save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["policy"]


def test_an_outlier_leaves_the_window_without_a_trace() -> None:
    policy = SlidingWindowUCB(arms=1, history=50, scale=1.0)
    for t in range(200):
        policy.learn(policy.decide(), 1e17 if t == 10 else 1.0)
    np.testing.assert_array_equal(policy.forecast().forecast, [1.0])


@pytest.mark.parametrize("kind", [DiscountedLinUCB, SlidingWindowLinUCB])
@pytest.mark.parametrize("offset", [1e4, 1e8, 1e10])
def test_forgetting_survives_contexts_far_from_zero(kind: Any, offset: float) -> None:
    """Seed 0: the second arm pays one more."""
    rng, policy, best = np.random.default_rng(0), kind(arms=2, context_dim=2, window=10), 0
    for t in range(300):
        decision = policy.decide()
        assert np.isfinite(decision.forecast).all()
        assert not np.isnan(decision.width).any()
        best += decision.arm * (t >= 200)
        policy.learn(decision, decision.arm + 0.1 * rng.standard_normal())
        policy.observe(offset + rng.standard_normal(2))
    assert best > 90


def test_rexp3_with_one_more_arm_plays_as_if_it_had_had_it() -> None:
    grown = Rexp3(arms=["a", "b"], rng=0, bounds=(0.0, 1.0))
    grown.add_arm("c")
    path = Trajectory(rewards=np.random.default_rng(0).random((500, 3)))
    run = simulate(grown, path)
    for t in range(500):
        decision = grown.decide()
        assert decision.arm == run.arms[t]
        grown.learn(decision, float(path.rewards[t, decision.arm]))


def test_a_context_that_cannot_be_true_leaves_skipped_rounds_undone() -> None:
    policy = LinUCB(arms=2, context_dim=1)
    with pytest.raises(InvalidInputError, match=r"contexts: expected numbers below"):
        policy.skip(3, [[0.0], [1e200], [0.0]])
    assert policy.round == 0


def test_sliding_sums_do_not_drift() -> None:
    """After many rounds of adding and taking away, the sums are those of the last rounds."""
    path = random_system(3, 1, 2, rng=1).sample(5000, rng=0)
    policy = SlidingWindowLinUCB(arms=2, context_dim=1, window=2, history=150)
    fresh = SlidingWindowLinUCB(arms=2, context_dim=1, window=2, history=150)
    run = simulate(policy, path, record=["forecasts"])
    assert run.forecasts is not None
    late = simulate(fresh, Trajectory(path.contexts[4000:], path.rewards[4000:]), record=["forecasts"])
    assert late.forecasts is not None
    agree = run.arms[4300:] == late.arms[300:]
    assert agree.mean() > 0.9


def test_discounted_linucb_forgets() -> None:
    rng = np.random.default_rng(0)
    means = np.where(np.arange(6000)[:, None] // 500 % 2 == 0, [1.0, 0.0], [0.0, 1.0])
    path = Trajectory(rewards=means + 0.3 * rng.standard_normal((6000, 2)), means=means)
    forgetful = simulate(DiscountedLinUCB(arms=2, discount=0.97), path).regret
    stubborn = simulate(LinUCB(arms=2), path).regret
    assert forgetful is not None
    assert stubborn is not None
    assert forgetful[-1] < 0.5 * stubborn[-1]
