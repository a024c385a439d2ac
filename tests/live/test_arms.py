"""Arms that are not always available, that are retired and come back, and that come new."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow
from helpers import LIVE, everything, full_system, id_at, live_round, make_policy, paid, settle, unnamed, with_features
from undertow import InvalidInputError, paper_system, simulate
from undertow.learning.learner import Learner
from undertow.policies import UCB, Decision, KalmanGreedy, Rexp3, registry

every_live = pytest.mark.parametrize("name", LIVE)
SYSTEM = full_system(3, 2, 3, seed=1)
PATH = SYSTEM.sample(120, rng=1)


def test_absurdly_many_arms_are_refused_before_they_get_names() -> None:
    tracemalloc.start()
    with pytest.raises(InvalidInputError, match="arms: expected at most 1000000, got 1000000000; choose among groups"):
        UCB(arms=10**9)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1e5


# Available arms


@every_live
def test_only_arms_that_are_available_are_played(name: str) -> None:
    """Seed 0: 60 rounds with random subsets, arms by name or index."""
    rng, policy = np.random.default_rng(0), make_policy(name, SYSTEM, rng=0)
    for t in range(60):
        open_arms = rng.permutation(3)[: rng.integers(1, 4)]
        given = [str(arm) if rng.random() < 0.5 else int(arm) for arm in open_arms]
        assert live_round(policy, PATH, t, available=given).arm in open_arms


@every_live
def test_all_arms_available_is_the_default(name: str) -> None:
    one, two = (make_policy(name, SYSTEM, rng=0, explore=0.1) for _ in range(2))
    for t in range(30):
        decisions = live_round(one, PATH, t), live_round(two, PATH, t, available=["2", 0, np.int64(1)])
        assert unnamed(decisions[0]) == unnamed(decisions[1])
    assert everything(one) == everything(two)


@every_live
@pytest.mark.parametrize("context_first", [False, True])
def test_arms_that_cannot_be_available_are_refused(name: str, context_first: bool) -> None:
    order = {"context_first": True} if context_first and "context_first" in registry()[name].parameters else {}
    policy = make_policy(name, SYSTEM, rng=0, **order)
    for t in range(8):
        live_round(policy, PATH, t, learn=t % 2 > 0)
    if order:
        policy.observe(PATH.contexts[8])
    policy.retire_arm("1")
    before = everything(policy)
    for given, message in (
        (["no such arm"], "available: expected one of 0, 1, 2, got 'no such arm'"),
        ([0, 3], "available: expected an index below 3 or a name, got 3"),
        ([-1], "available: expected at least 0, got -1"),
        ([True], "available: expected an integer, got True"),
        ([0, "1"], r"available: '1' was retired; add_arm\('1'\) brings it back"),
        ([], r"available: expected at least one arm; call skip\(\)"),
        ("012", "available: expected names or indices of arms, got '012'"),
        (2, "available: expected names or indices of arms, got 2"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            policy.decide(available=given)  # type: ignore[arg-type]
        assert everything(policy) == before
    assert policy.decide().arm != 1


# Arms that go and come back


@every_live
def test_a_retired_arm_is_as_good_as_not_available(name: str, tmp_path: Path) -> None:
    """Its rewards can still be learned, however late; a saved policy remembers; it comes back with what was learned."""
    one, two = (make_policy(name, SYSTEM, rng=0) for _ in range(2))
    first = [live_round(one, PATH, t, learn=t % 5 > 0) for t in range(40)]
    for t in range(40):
        live_round(two, PATH, t, learn=t % 5 > 0)
    favourite = max(one.names, key=[decision.name for decision in first[20:]].count)
    others = [arm for arm in one.names if arm != favourite]
    late = [decision for decision in first if decision.round % 5 == 0]
    one.retire_arm(favourite)
    for t in range(40, 70):
        if t == 50:
            one.save(tmp_path / "policy")
            one = undertow.load(tmp_path / "policy")
        assert one.retired == (favourite,)
        decision = live_round(one, PATH, t)
        assert decision.name != favourite
        live_round(two, PATH, t, available=others)
        if t % 3 == 0 and late:
            for policy in (one, two):
                policy.learn(id_at(policy, late[0].round), paid(PATH, late[0]))
            late = late[1:]
    one.add_arm(favourite)
    assert one.retired == ()
    for t in range(70, 80):
        assert unnamed(live_round(one, PATH, t)) == unnamed(live_round(two, PATH, t))
    assert everything(one) == everything(two)


@every_live
def test_a_late_reward_of_a_retired_arm_is_learned(name: str) -> None:
    policy = make_policy(name, SYSTEM, rng=0)
    decisions = [live_round(policy, PATH, t, learn=t < 29) for t in range(30)]
    policy.retire_arm(decisions[-1].name)
    live_round(policy, PATH, 30)
    before = policy.parts.player.state.copy()
    policy.learn(decisions[-1], paid(PATH, decisions[-1]))
    if isinstance(policy.parts.timeline, Learner):
        settle(policy)
    if name != "context-oracle":  # which looks at no rewards
        assert not np.array_equal(policy.parts.player.state, before, equal_nan=True)
    assert policy.retired == (decisions[-1].name,)
    assert policy.pending == 0


def test_what_cannot_be_retired() -> None:
    policy = UCB(arms=["a", "b"])
    policy.retire_arm("a")
    before = everything(policy)
    for name, message in (
        ("a", "name: 'a' was retired already"),
        ("b", "name: 'b' is the last arm; add another one before it is retired"),
        ("c", "name: expected one of a, b, got 'c'"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            policy.retire_arm(name)
        assert everything(policy) == before
    policy.add_arm("c")
    policy.retire_arm("b")
    assert policy.decide().name == "c"


def test_a_simulation_plays_no_arm_that_was_retired_before() -> None:
    policy = UCB(arms=3)
    policy.retire_arm("1")
    assert set(simulate(policy, PATH).arms) == {0, 2}


# New arms


def test_names_of_new_arms() -> None:
    for policy in (UCB(arms=["a", "b"]), KalmanGreedy(paper_system(1), arms=["a", "b"])):
        before = everything(policy)
        for name in ("a", "b"):
            with pytest.raises(InvalidInputError, match=f"name: expected a new name, got '{name}'"):
                policy.add_arm(name)
        assert everything(policy) == before
    with pytest.raises(InvalidInputError, match="name: expected a new name, got 3"):
        UCB(arms=3).add_arm(3)  # type: ignore[arg-type]
    with pytest.raises(
        InvalidInputError, match="name: the system has no arm 'c'; build a policy with a system that has"
    ):
        KalmanGreedy(paper_system(1), arms=["a", "b"]).add_arm("c")


NEWCOMERS: list[tuple[str, dict[str, Any]]] = [
    ("ucb", {}),
    ("ucb", {"minimize": True}),
    ("sliding-window-ucb", {"history": 20}),
    ("discounted-ucb", {}),
    ("linucb", {}),
    ("linucb", {"reward_lags": 3, "minimize": True}),
    ("linucb", {"reward_lags": 2, "feature_dim": 2, "context_first": True}),
    ("linucb", {"reward_lags": 2, "feature_dim": 2, "standardize": True}),
    ("lints", {"reward_lags": 2}),
    ("pies", {"window": 4}),
    ("ares", {"max_window": 4}),
    ("ares", {"max_window": 4, "standardize": True}),
    ("ares-as-printed", {"max_window": 4, "as_printed": ("A1", "A2")}),
    ("discounted-linucb", {"reward_lags": 2, "feature_dim": 1}),
    ("sliding-window-linucb", {"reward_lags": 2, "history": 30}),
]


@pytest.mark.parametrize(("name", "more"), NEWCOMERS)
def test_a_new_arm_is_one_that_was_not_available_before(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    """At round 50, with rewards that still wait; a saved policy goes on bit for bit."""
    path = with_features(PATH, more.get("feature_dim", 0))
    contexts = {} if name.endswith("ucb") and "lin" not in name else {"context_dim": 2}
    two, three = (undertow.make(name, arms=k, rng=0, **contexts, **more) for k in (2, 3))
    waiting: list[Decision] = []
    for t in range(100):
        if t == 50:
            two.add_arm("2")
            two.save(tmp_path / "policy")
            again = undertow.load(tmp_path / "policy")
            assert (two.names, two.arm_count, two.pending) == (("0", "1", "2"), 3, 10)
        k = 2 if t < 50 else 3
        given = [t % k] if name == "lints" else list(range(k))  # its draws depend on the number of arms
        learn = t % 5 > 0
        decisions = [live_round(policy, path, t, learn=learn, available=given) for policy in (two, three)]
        assert decisions[0].arm == decisions[1].arm
        np.testing.assert_allclose(decisions[0].forecast, decisions[1].forecast[:k], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(decisions[0].width, decisions[1].width[:k], rtol=1e-10, atol=1e-10)
        if decisions[0].window is not None and decisions[1].window is not None:
            np.testing.assert_array_equal(decisions[0].window, decisions[1].window[:k])
        waiting += [] if learn else [decisions[0]]
        if t >= 50:
            assert unnamed(live_round(again, path, t, learn=learn, available=given)) == unnamed(decisions[0])
        if t >= 60 and waiting:
            for policy in (two, three, again):
                policy.learn(id_at(policy, waiting[0].round), paid(path, waiting[0]))
            waiting = waiting[1:]
    assert 2 in [live_round(two, path, t, available=[2]).arm for t in range(100, 103)]


def test_rexp3_gives_a_new_arm_the_mean_log_weight() -> None:
    policy = Rexp3(arms=2, bounds=(-5.0, 5.0), rng=0)
    for t in range(6):
        live_round(policy, PATH, t)
    before = policy.parts.player.own.log_weights.copy()
    policy.add_arm("2")
    weights = policy.parts.player.own.log_weights
    np.testing.assert_array_equal(weights, [*before, before.mean()])
    assert len({policy.decide().arm for _ in range(60)}) == 3
