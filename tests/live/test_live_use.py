"""Policies in use: costs in place of rewards, rewards out of order, threads, copies, a long life."""

import copy
import dataclasses
import pickle
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil
import pytest

from helpers import (
    LIVE,
    Array,
    everything,
    fit_next,
    full_system,
    id_of,
    live_round,
    make_policy,
    paid,
    regressions,
    unnamed,
)
from learning.test_learners_live import Gate, answered
from twins import naive_policies as naive
from undertow import KalmanFilter, LinearGaussianSystem, Trajectory, UnknownDecisionError, simulate
from undertow.policies import (
    UCB,
    Autopilot,
    Decision,
    KalmanGreedy,
    LearnedKalman,
    LinUCB,
    LivePolicy,
    StructuralKalman,
    registry,
)

SYSTEM = full_system(3, 2, 3, seed=1)
PATH = SYSTEM.sample(200, rng=1)
COSTS = Trajectory(PATH.contexts, -PATH.rewards, means=None if PATH.means is None else -PATH.means)


def of_costs(system: LinearGaussianSystem) -> LinearGaussianSystem:
    """The same system, with every reward turned into its negative."""
    return dataclasses.replace(system, arms=-system.arms, reward_offset=-system.reward_offset)


# Costs


@pytest.mark.parametrize("context_first", [False, True])
@pytest.mark.parametrize("name", LIVE)
def test_costs_are_negative_rewards(name: str, context_first: bool) -> None:
    """Bit for bit, by hand and simulated."""
    order = {"context_first": context_first} if "context_first" in registry()[name].parameters else {}
    one = make_policy(name, SYSTEM, rng=2, **order)
    two = make_policy(name, of_costs(SYSTEM), rng=2, minimize=True, **order)
    runs = [simulate(policy, path, record=["forecasts", "widths"]) for policy, path in ((one, PATH), (two, COSTS))]
    assert all(run.forecasts is not None and run.widths is not None for run in runs)
    for t in range(60):
        first, second = live_round(one, PATH, t), live_round(two, COSTS, t)
        assert first.arm == second.arm == runs[0].arms[t] == runs[1].arms[t]
        for forecast in (second.forecast, runs[1].forecasts[t]):  # type: ignore[index]
            np.testing.assert_array_equal(first.forecast, -forecast)
        for width in (second.width, runs[1].widths[t]):  # type: ignore[index]
            np.testing.assert_array_equal(first.width, width)
    np.testing.assert_array_equal(runs[0].arms, runs[1].arms)
    np.testing.assert_array_equal(runs[0].regret, runs[1].regret)


def test_regret_is_against_the_least_cost() -> None:
    run = simulate(UCB(arms=3, minimize=True), PATH)
    assert PATH.means is not None
    excess = PATH.means[np.arange(200), run.arms] - PATH.means.min(axis=1)
    assert run.regret is not None
    np.testing.assert_allclose(run.regret, np.cumsum(excess))


def test_the_least_cost_of_a_known_system_is_played() -> None:
    policy, live = KalmanGreedy(SYSTEM, minimize=True), KalmanFilter(SYSTEM)
    for t in range(60):
        forecast = live.forecast().mean
        decision = live_round(policy, PATH, t)
        np.testing.assert_allclose(decision.forecast, forecast, atol=1e-10)
        assert decision.arm == int(forecast.argmin())
        live.condition(PATH.contexts[t], {decision.arm: PATH.rewards[t, decision.arm]})
        live.predict()


def test_a_learned_system_is_that_of_the_costs() -> None:
    one, two = (LearnedKalman(arms=3, context_dim=2, minimize=minimize, rng=0) for minimize in (False, True))
    for t in range(80):
        live_round(one, PATH, t)
        live_round(two, COSTS, t)
    assert one.system is not None
    assert two.system is not None
    for name in ("arms", "reward_offset"):
        np.testing.assert_array_equal(getattr(one.system, name), -getattr(two.system, name))
    for name in ("dynamics", "context_map", "context_offset", "reward_noise"):
        np.testing.assert_array_equal(getattr(one.system, name), getattr(two.system, name))


@pytest.mark.parametrize("learner", [LearnedKalman, StructuralKalman, Autopilot])
def test_a_warm_start_takes_costs(learner: Any) -> None:
    arms = np.arange(60) % 3
    one, two = (learner(arms=3, context_dim=2, minimize=minimize, rng=0) for minimize in (False, True))
    for policy, path in ((one, PATH), (two, COSTS)):
        policy.warm_start(arms, path.rewards[np.arange(60), arms], contexts=path.contexts[:60])
    for t in range(60, 70):
        first, second = live_round(one, PATH, t), live_round(two, COSTS, t)
        assert first.arm == second.arm
        np.testing.assert_array_equal(first.forecast, -second.forecast)


# Rewards late and out of order


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("linucb", {"window": 3}),
        ("linucb", {"window": 3, "minimize": True, "ridge": 0.3}),
        ("lints", {"window": 3}),
        ("pies", {"window": 3}),
        ("ares", {"max_window": 3}),
        ("discounted-linucb", {"window": 3, "discount": 0.9}),
        ("sliding-window-linucb", {"window": 3, "history": 70}),
    ],
)
def test_a_regression_does_not_depend_on_the_order_of_the_rewards(name: str, more: dict[str, Any]) -> None:
    """Seed 0: rewards come after 60 rounds and more, in any order."""
    prompt, late = (make_policy(name, SYSTEM, rng=0, **more) for _ in range(2))
    waiting: list[Decision] = []
    for t in range(100):
        live_round(prompt, PATH, t, available=[t % 3])
        waiting.append(live_round(late, PATH, t, learn=False, available=[t % 3]))
        if t == 60:
            for number in np.random.default_rng(0).permutation(40):
                late.learn(waiting[number], paid(PATH, waiting[number]))
    for decision in reversed(waiting[40:]):
        late.learn(decision, paid(PATH, decision))
    assert late.pending == 0
    for first, second in zip(regressions(prompt), regressions(late), strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-10, atol=1e-10 * np.abs(first).max())


@pytest.mark.parametrize("name", [name for name in LIVE if "max_delay" in registry()[name].parameters])
def test_rewards_older_than_the_delay_are_refused(name: str) -> None:
    policy = make_policy(name, SYSTEM, max_delay=4)
    decisions = [live_round(policy, PATH, t, learn=False) for t in range(12)]
    if name == "context-oracle":  # which looks at no rewards
        policy.learn(decisions[0], 1.0)
        return
    before = everything(policy)
    with pytest.raises(UnknownDecisionError, match="its reward comes 5 rounds late, and only max_delay = 4 are remem"):
        policy.learn(decisions[6], 1.0)
    assert everything(policy) == before
    policy.learn(decisions[7], 1.0)
    assert everything(policy) != before


# Threads


@pytest.fixture
def busy() -> Iterator[None]:
    """Have threads take turns every few instructions."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def in_threads(work: Callable[[int], None], count: int) -> None:
    """Run `work` on several threads at once, and raise what one of them raised."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("standardize", [False, True])
def test_eight_threads_decide_and_learn(standardize: bool) -> None:
    policy = LinUCB(arms=3, feature_dim=2, standardize=standardize)
    seen: list[list[tuple[Decision, Array, float]]] = [[] for _ in range(8)]

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        for _ in range(60):
            features, reward = rng.standard_normal(2), float(rng.standard_normal())
            decision = policy.decide(features)
            policy.learn(decision, reward)
            seen[number].append((decision, features, reward))

    in_threads(work, 8)
    rows = [row for part in seen for row in part]
    assert len({decision.id for decision, _, _ in rows}) == 480
    assert sorted(decision.round for decision, _, _ in rows) == list(range(480))
    assert (policy.round, policy.pending) == (480, 0)
    V, b = np.zeros((3, 3, 3)), np.zeros((3, 3))
    centre, scale = (np.zeros(3), np.ones(3)) if policy.parts.columns.units is None else policy.parts.columns.units
    for decision, features, reward in rows:
        Θ = np.append(1.0, (features - centre[:2]) / scale[:2])
        V[decision.arm] += np.outer(Θ, Θ)
        b[decision.arm] += (reward - centre[2]) / scale[2] * Θ
    for expected, found in zip((V, b), regressions(policy), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-10 * np.abs(expected).max())


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("name", ["linucb", "kalman-greedy"])
def test_threads_learn_while_one_decides(name: str) -> None:
    more = {"window": 2} if name == "linucb" else {}
    policy, twin = (make_policy(name, SYSTEM, **more) for _ in range(2))
    rewards: queue.SimpleQueue[Decision | None] = queue.SimpleQueue()
    decisions: list[Decision] = []

    def work(number: int) -> None:
        if number == 0:
            for t in range(120):
                decisions.append(live_round(policy, PATH, t, learn=False, available=[t % 3]))
                rewards.put(decisions[-1])
            for _ in range(4):
                rewards.put(None)
        else:
            while (decision := rewards.get()) is not None:
                policy.learn(decision, paid(PATH, decision))

    in_threads(work, 5)
    for t in range(120):
        live_round(twin, PATH, t, available=[t % 3])
    assert [decision.id for decision in decisions] == [id_of(policy, number) for number in range(120)]
    assert policy.pending == 0
    np.testing.assert_allclose(policy.decide().forecast, twin.decide().forecast, atol=1e-10)
    if name == "linucb":
        rows: naive.Rows = []
        for t in range(120):
            Θ = naive.lagged_inputs(list(PATH.contexts[:t]), np.empty(0), [], k=3, m=2, s=2, lags=0)
            rows.append((t, t % 3, Θ, PATH.rewards[t, t % 3]))
        V, b = regressions(policy)
        for arm in range(3):
            inputs = np.array([Θ for _, a, Θ, _ in rows if a == arm])
            np.testing.assert_allclose(V[arm], inputs.T @ inputs, atol=1e-9)
            np.testing.assert_allclose(b[arm], inputs.T @ [x for _, a, _, x in rows if a == arm], atol=1e-9)


@pytest.mark.usefixtures("busy")
def test_a_copy_is_of_one_moment() -> None:
    """Copies made while another thread plays hold a whole number of rounds."""
    policy, stop = UCB(arms=3), threading.Event()
    copies: list[UCB] = []

    def work(number: int) -> None:
        if number:
            copies.extend(copy.deepcopy(policy) for _ in range(60))
            stop.set()
        while not (number or stop.is_set()):
            policy.learn(policy.decide(), 1.0)

    in_threads(work, 2)
    for each in copies:
        own = each.parts.player.own
        assert own.chosen.sum() == each.round == each.parts.pending.made
        assert own.counts.sum() == each.round - each.pending
        assert each.pending <= 1


# Copies


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
@pytest.mark.parametrize("name", LIVE)
def test_copies_go_on_by_themselves(name: str, how: str) -> None:
    policy = make_policy(name, SYSTEM, explore=0.1, rng=0)
    waiting = [live_round(policy, PATH, t, learn=t % 3 > 0) for t in range(20)]
    policy.retire_arm("1")
    twin: LivePolicy = copy.deepcopy(policy) if how == "deepcopy" else pickle.loads(pickle.dumps(policy))
    before = everything(policy)
    first = [unnamed(live_round(twin, PATH, t)) for t in range(20, 40)]
    twin.learn(waiting[18], 0.7)
    twin.add_arm("1")
    assert everything(policy) == before
    second = [unnamed(live_round(policy, PATH, t)) for t in range(20, 40)]
    policy.learn(waiting[18], 0.7)
    policy.add_arm("1")
    assert first == second
    assert everything(policy) == everything(twin)


def test_a_copy_makes_its_own_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    policy = LearnedKalman(arms=3, context_dim=2, refit="background", rng=0)
    for t in range(10):
        live_round(policy, PATH, t)
    assert gate.begun() == [6]
    twins = [copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))]
    gate.open.set()
    for each in (policy, *twins):
        assert each.health().under_way == ("shared system",)
        answered(each)
        fit_next(each, np.inf)
    assert len(gate.tasks) == 3
    for t in range(10, 20):
        assert len({unnamed(live_round(each, PATH, t)) for each in (policy, *twins)}) == 1
    assert policy.model is not None


# A long life


@pytest.mark.slow
def test_many_decisions_of_which_a_fifth_is_never_rewarded() -> None:
    """In 200,000 rounds the state keeps its size, and after the first half the process grows by less than 4 MB."""
    policy, process = UCB(arms=3, max_pending=1000), psutil.Process()
    size, start = policy.parts.player.state.size, 0
    for t in range(2 * 10**5):
        decision = policy.decide()
        if t % 5:
            policy.learn(decision.id, 0.1 * (t % 7) * decision.arm)
        if t == 10**5:
            start = process.memory_info().rss
    assert 999 <= policy.pending <= 1000
    assert policy.round == 2 * 10**5
    assert policy.parts.player.state.size == size
    assert process.memory_info().rss - start < 4e6
    assert np.isfinite(policy.decide().forecast).all()
