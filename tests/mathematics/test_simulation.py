import math
import re
from typing import Any

import numpy as np
import pytest

import undertow
from helpers import make_policy
from undertow import InvalidInputError, Trajectory, paper_system, simulate
from undertow.policies import ARES, UCB, Decision, LinTS, LinUCB, Random, registry
from undertow.simulation import play_in_python
from undertow.support.checks import child, seed_sequence


@pytest.mark.parametrize("name", registry())
def test_runs_do_not_depend_on_threads(name: str) -> None:
    system = paper_system(2)
    paths = system.sample(1500, rng=0, runs=4)  # longer than a block
    policy = make_policy(name, system, rng=5)
    runs = [simulate(policy, paths, threads=threads, record=["forecasts"]) for threads in (1, 2)]
    np.testing.assert_array_equal(runs[0].arms, runs[1].arms)
    np.testing.assert_array_equal(runs[0].forecasts, runs[1].forecasts)
    alone = simulate(policy, paths.run(0))
    np.testing.assert_array_equal(alone.arms, runs[0].arms[0])


def test_each_run_has_its_own_stream() -> None:
    same = Trajectory(rewards=np.zeros((3, 200, 2)))
    run = simulate(Random(arms=2, rng=0), same)
    assert not np.array_equal(run.arms[0], run.arms[1])
    assert not np.array_equal(run.arms[0], simulate(Random(arms=2, rng=1), same).arms[0])


def test_what_a_run_holds() -> None:
    paths = paper_system(1).sample(50, rng=0, runs=3)
    run = simulate(ARES(arms=2, context_dim=1), paths, record=["forecasts", "widths", "windows", "errors"])
    assert run.arms.shape == run.rewards.shape == (3, 50)
    for table in (run.forecasts, run.widths, run.windows):
        assert table is not None
        assert table.shape == (3, 50, 2)
    assert run.errors is not None
    assert run.forecasts is not None
    chosen = run.forecasts[1, 20, run.arms[1, 20]]
    assert run.errors[1, 20] == run.rewards[1, 20] - chosen
    np.testing.assert_array_equal(run.regret, paths.regret(run.arms))
    bare = simulate(ARES(arms=2, context_dim=1), Trajectory(paths.contexts, paths.rewards))
    assert bare.regret is None
    assert bare.forecasts is None
    np.testing.assert_array_equal(bare.arms, run.arms)


def test_the_order_within_a_round_can_be_switched() -> None:
    system = paper_system(1)
    paths = system.sample(2000, rng=0, runs=5)
    for name in ("context-oracle", "ares", "linucb"):
        after = simulate(make_policy(name, system), paths)
        before = simulate(make_policy(name, system), paths, context_first=True)
        built = simulate(make_policy(name, system, context_first=True), paths)
        np.testing.assert_array_equal(before.arms, built.arms)
        assert after.regret is not None
        assert before.regret is not None
        assert before.regret[:, -1].mean() < after.regret[:, -1].mean()  # who sees more loses less


def test_features_are_used() -> None:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((3000, 1))
    means = np.hstack([features, -features])
    path = Trajectory(rewards=means + 0.1 * rng.standard_normal((3000, 2)), means=means, features=features)
    with_features = simulate(LinUCB(arms=2, feature_dim=1), path).regret
    without = simulate(LinUCB(arms=2), path).regret
    assert with_features is not None
    assert without is not None
    assert with_features[-1] < 0.05 * without[-1]


class LastReward:
    """A policy in plain Python: repeat an arm that paid, change one that did not."""

    context_dim = 0

    def __init__(self) -> None:
        self.arm, self.count = 0, 0

    def decide(self, features: Any = None) -> Decision:
        self.count += 1
        return Decision(str(self.count), self.count, self.arm, str(self.arm), np.full(2, 0.5), np.zeros(2), None)

    def learn(self, decision: Decision | str, reward: float) -> None:
        self.arm = self.arm if reward > 0 else 1 - self.arm

    def observe(self, context: Any) -> None:
        raise AssertionError("it has no contexts")


def test_a_policy_in_plain_python() -> None:
    paths = paper_system(1).sample(200, rng=0, runs=2)
    policy = LastReward()
    run = simulate(policy, paths, record=["forecasts", "windows"])
    assert policy.count == 0
    assert run.forecasts is not None
    assert (run.forecasts == 0.5).all()
    assert run.windows is not None
    assert np.isnan(run.windows).all()
    expected = 0
    for t in range(200):
        assert run.arms[0, t] == expected
        expected = expected if run.rewards[0, t] > 0 else 1 - expected


class Wrapped:
    """One of ours behind the plain interface, so that it is driven by hand."""

    context_dim = 1

    def __init__(self) -> None:
        self.inner = LinTS(arms=2, context_dim=1, rng=3)
        self.decide, self.learn, self.observe = self.inner.decide, self.inner.learn, self.inner.observe

    def __deepcopy__(self, memo: Any) -> "Wrapped":
        return Wrapped()


def test_by_hand_equals_compiled() -> None:
    path = paper_system(1).sample(1300, rng=0)
    slow = simulate(Wrapped(), path, record=["forecasts", "widths"])
    fast = simulate(LinTS(arms=2, context_dim=1, rng=3), path, record=["forecasts", "widths"])
    np.testing.assert_array_equal(slow.arms, fast.arms)
    np.testing.assert_array_equal(slow.forecasts, fast.forecasts)
    np.testing.assert_array_equal(slow.widths, fast.widths)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("name", [name for name, entry in registry().items() if not entry.capabilities.simulates_only])
def test_rewards_that_never_come(name: str, first: bool) -> None:
    """Bit for bit what happens by hand where `learn` is not called; the first reward comes after units have changed."""
    whole = paper_system(2).sample(130, rng=1)
    drawn = np.random.default_rng(2)
    missing = (drawn.random(whole.rewards.shape) < 0.5) | (np.arange(130) < 40)[:, None]
    contexts = np.where(drawn.random(whole.contexts.shape) < 0.1, math.nan, whole.contexts)
    path = Trajectory(contexts, np.where(missing, math.nan, whole.rewards + 50.0))
    takes, given = registry()[name].parameters, {"standardize": True, "explore": 0.2, "minimize": True, "rng": 3}
    policy = make_policy(name, paper_system(2), **{key: value for key, value in given.items() if key in takes})
    run = simulate(policy, path, record=["forecasts", "widths"], context_first=first)
    player = policy.parts.for_run(0, context_first=first)
    contexts = path.contexts[:, : getattr(player, "context_dim", 0)]
    decisions = list(play_in_python(player, contexts, path.features, path.reward, context_first=first))
    np.testing.assert_array_equal(run.arms, [decision.arm for decision in decisions])
    np.testing.assert_array_equal(run.forecasts, [decision.forecast for decision in decisions])
    np.testing.assert_array_equal(run.widths, [decision.width for decision in decisions])
    learned = ~missing[np.arange(130), run.arms]
    assert 0 < player.round - player.pending == learned.sum() < 90
    np.testing.assert_array_equal(np.isnan(run.rewards), ~learned)


def test_who_learns_every_reward_misses_none() -> None:
    policy = make_policy("full-information-oracle", paper_system(1))
    with pytest.raises(InvalidInputError, match=r"this policy learns every arm's reward .* some are missing"):
        simulate(policy, Trajectory([[0.0]], [[1.0, math.nan]]))


def test_refusals() -> None:
    path = paper_system(1).sample(50, rng=0)
    used = ARES(arms=2, context_dim=1)
    used.decide()
    for policy, more, message in (
        (used, {}, "policy: expected an unused policy"),
        (ARES(arms=3, context_dim=1), {}, "policy: it was built with arm_count = 3, and the trajectory has 2"),
        (ARES(arms=2, context_dim=2), {}, "policy: it was built with context_dim = 2, and the trajectory has 1"),
        (LinUCB(arms=2, feature_dim=2), {}, "policy: it was built with feature_dim = 2, and the trajectory has 0"),
        (UCB(arms=2), {"record": ["regrets"]}, "record: expected 'forecasts' or 'widths' or 'windows' or 'errors'"),
        (UCB(arms=2), {"threads": 0}, "threads: expected at least 1, got 0"),
        ("ucb", {}, "policy: expected decide, learn and observe, got 'ucb'"),
    ):
        with pytest.raises(InvalidInputError, match=re.escape(message)):
            simulate(policy, path, **more)


def test_one_path_and_one_run_are_told_apart() -> None:
    system = paper_system(1)
    path, run = system.sample(20, rng=0), system.sample(20, rng=0, runs=1)
    alone, several = simulate(Random(arms=2, rng=0), path), simulate(Random(arms=2, rng=0), run)
    assert alone.final_regret.shape == several.final_regret.shape == (1,)
    with pytest.raises(InvalidInputError, match=r"shape \(20,\), got \(1, 20\); this trajectory is one path"):
        path.regret(several.arms)
    with pytest.raises(InvalidInputError, match=r"\(1, 20\), got \(20,\); this trajectory has an axis of runs, here 1"):
        run.regret(alone.arms)


def test_public_names() -> None:
    assert undertow.simulate is simulate
    assert all(hasattr(undertow, name) for name in undertow.__all__)


def test_a_seed_shared_with_the_paths_makes_no_choice_depend_on_them() -> None:
    """Seed 0 for both: Random's arms and the signs of the first context noise agree as often as by chance, 4 errors."""
    system = paper_system(1)
    paths = system.sample(1, rng=0, runs=2000)
    arms = simulate(Random(arms=2, rng=0), paths).arms[:, 0]
    agree = (arms == (paths.contexts[:, 0, 0] > 0)).mean()
    assert abs(agree - 0.5) < 4 * 0.5 / np.sqrt(2000)
    streams = [Random(arms=2, rng=0).parts.for_run(i).parts.streams.own.random(4).tolist() for i in range(3)]
    assert not any(child(seed_sequence(0), i).random(4).tolist() in streams for i in range(3))


def test_what_is_no_policy_or_no_trajectory_is_named() -> None:
    path = paper_system(1).sample(5, rng=0)
    with pytest.raises(InvalidInputError, match="policy: expected decide, learn and observe, got <class"):
        simulate(UCB, path)
    with pytest.raises(InvalidInputError, match="trajectory: expected a Trajectory, got array"):
        simulate(UCB(arms=2), path.rewards)  # type: ignore[arg-type]
