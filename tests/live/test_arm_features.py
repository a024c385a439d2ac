"""Features that every arm has for itself: that they help, and that everything works with them."""

import copy
import math
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest

import undertow
from helpers import Array, learner_of, never_fit
from tables import log_of, table_of
from twins.naive_levels import written_out
from undertow import InvalidInputError, Trajectory, simulate
from undertow.contenders import Contender
from undertow.identify import fit_levels
from undertow.learning.policy import LearningPolicy
from undertow.live import Capabilities
from undertow.policies import UCB, Autopilot, Decision, DiscountedLinUCB, LinTS, LinUCB, StructuralKalman
from undertow.replay import read_table, replay_log, replay_table
from undertow.replay.diagnosis import diagnose

K = 3


def prices(rounds: int, seed: int, runs: int = 2) -> Trajectory:
    """Arms that differ in their price alone, N(0, 1) in every round: an arm pays its negative, and N(0, 0.25)."""
    rng = np.random.default_rng(seed)
    u = rng.standard_normal((runs, rounds, K, 1))
    means = -u[..., 0]
    return Trajectory(None, means + 0.5 * rng.standard_normal(means.shape), means=means, features=u)


@pytest.mark.parametrize(
    ("kind", "more", "share"),
    [
        (LinUCB, {}, 0.1),
        (LinUCB, {"standardize": True}, 0.1),
        (LinTS, {"rng": 0}, 0.2),
        (DiscountedLinUCB, {"discount": 0.99}, 0.2),
        (StructuralKalman, {"rng": 0}, 0.1),
        (Autopilot, {"rng": 0}, 0.1),
    ],
)
def test_a_row_for_each_arm_finds_the_best_arm(kind: Any, more: dict[str, Any], share: float) -> None:
    """Two paths of 400 rounds, seed 0: regret with the rows is a small share of that without."""
    paths = prices(400, seed=0)
    seeing, blind = (simulate(kind(arms=K, feature_dim=q, **more), paths).regret for q in (1, 0))
    assert seeing is not None
    assert blind is not None
    assert seeing[:, -1].mean() < share * blind[:, -1].mean()


KINDS = [
    pytest.param(LinUCB, {"standardize": True, "reward_lags": 1}, id="LinUCB"),
    pytest.param(DiscountedLinUCB, {"discount": 0.95}, id="DiscountedLinUCB"),
    pytest.param(StructuralKalman, {"refit": "inline"}, id="StructuralKalman"),
    pytest.param(Autopilot, {"refit": "inline"}, id="Autopilot"),
]
every_kind = pytest.mark.parametrize(("kind", "more"), KINDS)


def played(policy: Any, path: Trajectory, rounds: range, *, late: int = 0) -> list[Decision]:
    """Play rounds by hand, and learn every reward `late` rounds later."""
    decisions: list[Decision] = []
    for t in rounds:
        decisions.append(policy.decide(path.features[t]))
        if len(decisions) > late:
            due = decisions[-1 - late]
            policy.learn(Decision.from_json(due.to_json()), path.rewards[t - late, due.arm])
    return decisions


def unscaled(more: dict[str, Any]) -> dict[str, Any]:
    """Parameters without `standardize`, whose units follow all rows, and when rewards come."""
    return {name: value for name, value in more.items() if name != "standardize"}


@every_kind
def test_the_same_row_for_each_arm_is_a_row_for_all(kind: Any, more: dict[str, Any]) -> None:
    base = prices(80, seed=1).run(0)
    shared = Trajectory(None, base.rewards, features=base.features[:, 0])
    each = Trajectory(None, base.rewards, features=np.repeat(base.features[:, :1], K, axis=1))
    one, two = (
        simulate(kind(arms=K, feature_dim=1, rng=0, **unscaled(more)), path, record=["forecasts", "widths"])
        for path in (shared, each)
    )
    np.testing.assert_array_equal(one.arms, two.arms)
    for name in ("forecasts", "widths"):
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=1e-9, atol=1e-9)


@every_kind
def test_simulated_saved_and_copied_decide_as_by_hand(kind: Any, more: dict[str, Any], tmp_path: Path) -> None:
    path = prices(70, seed=2).run(0)
    run = simulate(kind(arms=K, feature_dim=1, rng=0, **more), path, record=["forecasts"])
    assert run.forecasts is not None
    policy = kind(arms=K, feature_dim=1, rng=0, **more)
    for start in range(0, 70, 10):
        for t, decision in enumerate(played(policy, path, range(start, start + 10)), start):
            assert decision.arm == run.arms[t]
            np.testing.assert_array_equal(decision.forecast, run.forecasts[t])
        policy.save(tmp_path / "policy")
        policy = copy.deepcopy(undertow.load(tmp_path / "policy"))


@every_kind
def test_a_late_reward_is_of_the_row_it_was_decided_with(kind: Any, more: dict[str, Any]) -> None:
    """Both play the same arms, and one of them learns four rounds late (40 rounds, seed 3); no fit comes in between."""
    path = prices(40, seed=3).run(0)
    prompt, tardy = (kind(arms=K, feature_dim=1, rng=0, **unscaled(more) | {"reward_lags": 0}) if kind is LinUCB
                     else kind(arms=K, feature_dim=1, rng=0, **more) for _ in range(2))  # fmt: skip
    for policy, late in ((prompt, 0), (tardy, 4)):
        waiting: list[Decision] = []
        for t in range(40):
            if t == 20 and isinstance(policy, LearningPolicy):
                never_fit(policy)
            waiting.append(policy.decide(path.features[t], available=[t % K]))
            while len(waiting) > (late if 20 <= t < 39 else 0):
                decision = waiting.pop(0)
                policy.learn(decision, path.rewards[decision.round, decision.arm])
    probe = np.array([[-1.0], [0.0], [2.0]])
    np.testing.assert_allclose(tardy.forecast(probe).forecast, prompt.forecast(probe).forecast, rtol=1e-6, atol=1e-6)


@every_kind
def test_an_arm_can_be_added(kind: Any, more: dict[str, Any]) -> None:
    path = prices(60, seed=4).run(0)
    policy = kind(arms=K, feature_dim=1, rng=0, **more)
    played(policy, path, range(60), late=2)
    before = policy.forecast([[0.5], [-0.5], [1.0]]).forecast
    policy.add_arm("new")
    after = policy.forecast([[0.5], [-0.5], [1.0], [0.0]]).forecast
    np.testing.assert_allclose(after[:K], before, atol=0.3)
    with pytest.raises(InvalidInputError, match=r"features: expected shape \(1,\), .* or \(4, 1\), .* got \(3, 1\)"):
        policy.decide([[0.5], [-0.5], [1.0]])
    policy.learn(policy.decide([[0.5], [-0.5], [1.0], [0.0]], available=["new"]), 0.0)
    policy.retire_arm("new")
    assert policy.decide([[0.5], [-0.5], [1.0], [0.0]]).name != "new"


def test_weights_that_all_arms_share_hold_for_a_new_arm() -> None:
    policy = StructuralKalman(arms=K, feature_dim=1, refit="inline", rng=0)
    played(policy, prices(150, seed=5).run(0), range(150))
    policy.add_arm("new")
    cheap, dear = (policy.forecast([[0.0], [0.0], [0.0], [price]]).forecast for price in (-2.0, 2.0))
    assert cheap[3] > 1.0
    assert dear[3] < -1.0
    np.testing.assert_array_equal(cheap[:3], dear[:3])


@pytest.mark.parametrize("kind", [StructuralKalman, Autopilot])
def test_the_log_keeps_the_row_of_the_arm_that_was_played(kind: Any) -> None:
    path = prices(30, seed=6).run(0)
    live, twin = (kind(arms=K, feature_dim=1, refit="inline", rng=0) for _ in range(2))
    decisions = played(live, path, range(30))
    arms = np.array([decision.arm for decision in decisions])
    log = learner_of(live).log
    np.testing.assert_array_equal(log.rows(0, 30)[:, 0], path.features[np.arange(30), arms, 0])
    twin.parts.play(path, np.empty(30, dtype=np.int64), np.empty((0, 3, K)))
    np.testing.assert_array_equal(learner_of(twin).log.rows(0, 30), log.rows(0, 30))
    shared = kind(arms=K, feature_dim=1, refit="inline", rng=0)
    played(shared, Trajectory(None, path.rewards, features=path.features[:, 0]), range(30))
    assert live.parts.nbytes == shared.parts.nbytes


@pytest.mark.parametrize("kind", [StructuralKalman, Autopilot])
def test_a_warm_start_takes_the_rows_of_all_arms_or_of_the_played_ones(kind: Any) -> None:
    path, arms = prices(60, seed=7).run(0), np.random.default_rng(7).integers(-1, K, 60)
    rewards = path.rewards[np.arange(60), arms]
    one, two = (kind(arms=K, feature_dim=1, refit="inline", rng=0) for _ in range(2))
    one.warm_start(arms, rewards, features=path.features)
    two.warm_start(arms, rewards, features=path.features[np.arange(60), arms])
    assert one.to_bytes() == two.to_bytes()
    assert one.decide([[2.0], [0.0], [-2.0]]).forecast.argmax() == 2
    with pytest.raises(InvalidInputError, match=r"features: expected shape \(60, 3, 1\), got \(60, 2, 1\)"):
        kind(arms=K, feature_dim=1).warm_start(arms, rewards, features=path.features[:, :2])


def test_fits_in_the_background_catch_up_with_the_rows() -> None:
    """The fit is swapped in some rounds later, and has gone through their rows: its belief is that of the log."""
    path = prices(90, seed=8).run(0)
    policy = StructuralKalman(arms=K, feature_dim=1, refit="background", rng=0)
    learner = learner_of(policy)
    played(policy, path, range(80))
    while learner.fits.under_way:
        time.sleep(0.01)
        policy.skip()
    played(policy, path, range(80, 90))
    own, block = learner.blocks[0], learner.views[0].copy()
    learner.models[0].believe(block, learner.log.rows(0, policy.round), policy.round)
    expected = learner.models[0].open(block)
    for found, wanted in zip(written_out(own.belief), written_out(expected.belief), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-9)


class Prices:
    """A candidate that knows what a price does, and what it was shown."""

    name = "prices"

    def __init__(self) -> None:
        self.shown: list[Array] = []

    def forecast(self, features: Array) -> tuple[Array, Array, Array]:
        self.shown.append(features)
        return np.broadcast_to(-features[..., 0], K).copy(), np.zeros(K), np.full(K, 0.5)

    def learn(self, round: int, arm: int, reward: float) -> None: ...

    def observe(self, context: Array) -> None: ...


def test_a_candidate_is_shown_the_rows() -> None:
    path, candidate = prices(30, seed=9).run(0), Prices()
    policy = Autopilot(arms=K, feature_dim=1, candidates=[candidate], refit="inline", rng=0)  # type: ignore[list-item]
    played(policy, path, range(30))
    assert {shown.shape for shown in candidate.shown} == {(K, 1)}
    policy.decide([0.3])
    assert candidate.shown[-1].tolist() == [0.3]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.zeros((2, 2)), r"features: expected shape \(2,\), the same for all arms, or \(3, 2\), a row for each arm, "
                           r"got \(2, 2\)"),
        (np.zeros((3, 1)), r"got \(3, 1\)"),
        (np.zeros(3), r"got \(3,\)"),
        (np.zeros((1, 3, 2)), r"got \(1, 3, 2\)"),
        ([[1.0, 2.0], [3.0], [4.0, 5.0]], "features: expected real numbers, got"),
        ([["a", "b"]] * 3, "features: expected real numbers"),
        ([[1.0, 2.0], [3.0, math.nan], [4.0, 5.0]], r"features: expected finite numbers, got nan at index \(1, 1\)"),
        ([[1.0, 2.0], [3.0, 1e200], [4.0, 5.0]], "features: expected numbers below 1e\\+152 in size, got 1e\\+200"),
        (None, r"features: expected shape \(2,\), got None"),
    ],
)  # fmt: skip
def test_what_is_no_row_for_each_arm_is_refused(features: Any, message: str) -> None:
    for kind in (LinUCB, StructuralKalman):
        policy = kind(arms=K, feature_dim=2, rng=0)
        before = policy.to_bytes()
        for call in (policy.decide, policy.forecast):
            with pytest.raises(InvalidInputError, match=message):
                call(features)
        assert policy.to_bytes() == before


def test_a_number_for_each_arm_is_a_column() -> None:
    with pytest.raises(InvalidInputError, match=r"got \(3,\); a number for each arm is a column, \[\[…\], \[…\]\]"):
        LinUCB(arms=K, feature_dim=1).decide([0.1, 0.2, 0.3])


class OneRow(LinUCB):
    """LinUCB that says of itself that it takes one row only."""

    capabilities: ClassVar[Capabilities] = LinUCB.capabilities._replace(takes_arm_features=False)


def test_a_policy_without_the_capability_says_so() -> None:
    policy, path = OneRow(arms=K, feature_dim=1), prices(30, seed=10).run(0)
    with pytest.raises(
        InvalidInputError, match=r"expected shape \(1,\), got \(3, 1\); this policy takes one row for all"
    ):
        policy.decide(path.features[0])
    with pytest.raises(
        InvalidInputError, match="one row of features for all arms, and the trajectory has one for each"
    ):
        simulate(policy, path)
    with pytest.raises(InvalidInputError, match=r"features: expected None, got .* this policy takes no features"):
        UCB(arms=K).decide([[0.1], [0.2], [0.3]])
    assert simulate(UCB(arms=K), path).arms.shape == (30,)  # as with features that all arms share


def test_trajectories_with_a_row_for_each_arm() -> None:
    paths = prices(5, seed=11)
    assert paths.arm_features
    assert paths.run(1).arm_features
    frame = paths.run(0).to_polars()
    assert frame["feature_0@2"].to_list() == paths.features[0, :, 2, 0].tolist()
    assert ", 1 feature of each arm" in paths._repr_html_()
    with pytest.raises(InvalidInputError, match=r"features: expected shape \(5, 3, q\), got \(5, 2, 1\)"):
        Trajectory(None, paths.rewards[0], features=np.zeros((5, 2, 1)))


def test_fitted_levels_forecast_with_a_row_for_each_arm() -> None:
    path, arms = prices(80, seed=12).run(0), np.arange(80) % K
    rows = np.arange(80)
    fit = fit_levels(arms, path.rewards[rows, arms], features=path.features[rows, arms])
    each = fit.forecast([[1.0], [0.0], [-1.0]])
    for arm, price in enumerate((1.0, 0.0, -1.0)):
        for whole, one in zip(fit.forecast([price]), each, strict=True):
            assert whole[arm] == pytest.approx(one[arm], rel=1e-12)


# Tables


def table(rounds: int, seed: int) -> pl.DataFrame:
    """Prices of three arms, and a weekday that means nothing."""
    path = prices(rounds, seed).run(0)
    arms = ("bus", "tram", "van")
    columns = {f"reward_{arm}": path.rewards[:, a] for a, arm in enumerate(arms)}
    columns |= {f"feature_price@{arm}": path.features[:, a, 0] for a, arm in enumerate(arms)}
    return pl.DataFrame(columns | {"feature_day": np.arange(rounds) % 7})


def test_a_column_of_each_arm_is_a_row_for_each_arm() -> None:
    frame = table(300, seed=13)
    read = read_table(frame)
    assert read.feature_names == ("feature_day", "feature_price@*")
    assert read.features.shape == (300, K, 2)
    np.testing.assert_array_equal(read.features[:, 1, 1], frame["feature_price@tram"])
    np.testing.assert_array_equal(read.features[:, 2, 0], frame["feature_day"])
    back = read.to_polars()
    assert back.select(frame.columns).equals(frame.with_columns(pl.col("feature_day").cast(pl.Float64)))
    linucb = Contender("LinUCB", "linucb")
    found = replay_table(read, [linucb, Contender("UCB", "ucb")], resamples=50)
    rewards = dict(zip(found.summary["policy"], found.summary["reward"], strict=True))
    assert rewards["LinUCB"] > rewards["UCB"] + 0.5
    assert "policies that do not use features: UCB" in found.notes
    signal = diagnose(read).features
    assert signal is not None
    assert signal.low > 0.3


def test_logs_have_columns_of_each_arm_too() -> None:
    path = prices(400, seed=14).run(0)
    made = log_of(table_of(path.rewards, None, path.features), np.full(K, 1 / K), seed=0)
    found = replay_log(made, [Contender("LinUCB", "linucb")], resamples=50)
    value = {row["policy"]: row["dr"] for row in found.summary.to_dicts()}
    assert value["LinUCB"] > value["as logged"] + 0.3


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"feature_price@trm": 1}, r"expected the name of an arm after @, got 'trm' \(did you mean 'tram'\?\)"),
        ({"feature_age@bus": 1}, "expected feature_age@… for every arm, and there is no 'feature_age@tram'; add"),
        ({f"feature_age@{arm}": ["old", "new"] * 10 for arm in ("bus", "tram", "van")}, "expected a number, got 'old'"),
    ],
)
def test_columns_that_are_no_row_for_each_arm(columns: dict[str, Any], message: str) -> None:
    frame = table(20, seed=15)
    with pytest.raises(InvalidInputError, match=message):
        read_table(frame.with_columns(pl.Series(name, np.resize(values, 20)) for name, values in columns.items()))
