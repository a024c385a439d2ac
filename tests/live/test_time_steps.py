"""Time as it is: several decisions in one time step, and time steps that pass without one, against NumPy twins.

A script says how many time steps pass before every round. Contexts are of time steps, rewards and features of rounds.
"""

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import undertow
from helpers import Array, dims, everything, fit_next, full_system, learner_of, never_fit, settle, unnamed, with_gaps
from models.test_identify import prior_of, random_model, random_table, scored
from twins import naive, naive_identify, naive_levels, naive_policies
from twins.naive_shared import SharedTwin
from undertow import InvalidInputError, LinearGaussianSystem, OutOfTurnError, Trajectory, identify
from undertow.learning.policy import LearningPolicy
from undertow.models.levels.equations import Hyper
from undertow.models.log import AFTER, RoundLog
from undertow.models.model import Span, Task
from undertow.policies import (
    ARES,
    Autopilot,
    Decision,
    DiscountedUCB,
    KalmanGreedy,
    LearnedKalman,
    LinUCB,
    LivePolicy,
    StructuralKalman,
)

Script = npt.NDArray[np.int64]

both_orders = pytest.mark.parametrize("context_first", [False, True], ids=["decide first", "context first"])


def script(rounds: int, seed: int = 0) -> Script:
    """How many time steps pass before each round: none, one, or a few."""
    elapsed = np.random.default_rng(seed).choice([0, 0, 1, 1, 1, 2, 4], rounds)
    elapsed[0] = 1
    return elapsed


def time_steps_of(elapsed: Script) -> Script:
    return np.asarray(np.cumsum(elapsed) - elapsed[0])


def data(elapsed: Script, m: int, k: int, q: int = 0, seed: int = 0) -> Trajectory:
    """Contexts by time step, some of them missing, and rewards and features by round; there are more than needed."""
    rng = np.random.default_rng(seed)
    rows = int(elapsed.sum()) + len(elapsed)
    contexts = with_gaps(np.cumsum(rng.standard_normal((rows, m)), axis=0) / 3, 0.1, seed)
    return Trajectory(contexts, rng.standard_normal((rows, k)) + np.arange(k), features=rng.standard_normal((rows, q)))


def play(
    policy: LivePolicy,
    elapsed: Script,
    path: Trajectory,
    rounds: range,
    *,
    learn: bool = True,
    apart: bool = False,
) -> Iterator[Decision]:
    """Play rounds of a script; `apart` lets time pass by a call of its own."""
    m, q, first = dims(policy)
    time_steps = time_steps_of(elapsed)
    for t in rounds:
        how: dict[str, Any] = {"elapsed": int(elapsed[t])}
        if m and first and elapsed[t]:
            how["context"] = path.contexts[time_steps[t]]
        if apart and elapsed[t] > 1:
            policy.skip(int(elapsed[t]) - 1)
            how["elapsed"] = 1
        decision = policy.decide(path.features[t] if q else None, **how)
        if learn:
            policy.learn(decision, float(path.rewards[t, decision.arm]))
        yield decision
        if m and not first and (t + 1 == len(elapsed) or elapsed[t + 1]):
            policy.observe(path.contexts[time_steps[t]])


MAKE: dict[str, Callable[[], LivePolicy]] = {
    "discounted-ucb": lambda: DiscountedUCB(arms=3, default_reward=0.5, max_wait=6, rng=0),
    "linucb": lambda: LinUCB(arms=3, context_dim=2, feature_dim=1, reward_lags=2, window=3, standardize=True, rng=0),
    "ares": lambda: ARES(arms=3, context_dim=2, max_window=3, context_first=True, rng=0),
    "kalman-greedy": lambda: KalmanGreedy(full_system(2, 2, 3), max_delay=20, rng=0),
    "kalman, context first": lambda: KalmanGreedy(full_system(2, 2, 3), context_first=True, rng=0),
    "learned-kalman": lambda: LearnedKalman(arms=3, context_dim=2, refit="inline", rng=0),
    "autopilot": lambda: Autopilot(arms=3, feature_dim=1, refit="inline", rng=0, default_reward=0.5, max_wait=6),
    "autopilot, context first": lambda: Autopilot(arms=3, context_dim=2, context_first=True, refit="inline", rng=0),
}


@pytest.mark.parametrize("name", MAKE)
def test_time_that_passes_is_time_skipped(name: str) -> None:
    """Bit for bit, also with rewards that come late or never, a copy and one from bytes within a time step."""
    one, two = MAKE[name](), MAKE[name]()
    m, q, _ = dims(one)
    elapsed = script(50, 1)
    path, time_steps, late = data(elapsed, m, 3, q), time_steps_of(elapsed), list[tuple[Decision, Decision]]()
    plays = (
        play(policy, elapsed, path, range(50), learn=False, apart=apart)
        for policy, apart in ((one, False), (two, True))
    )
    for t, (here, there) in enumerate(zip(*plays, strict=True)):
        assert unnamed(here) == unnamed(there)
        assert here.time_step == time_steps[t] == one.parts.time_step - 1
        late.append((here, there))
        for _ in range(t % 3):
            first, second = late.pop(t % len(late))
            if first.id in one.parts.pending.waiting:
                one.learn(first, float(path.rewards[t, 0]))
                two.learn(second, float(path.rewards[t, 0]))
            if not late:
                break
        assert everything(one) == everything(two)


# The Kalman filter that knows the system


class Filter:
    """The belief of a system, and what moves it."""

    def __init__(self, system: LinearGaussianSystem) -> None:
        self.system, self.z, self.P = system, system.initial_mean, system.initial_covariance

    def step(self) -> None:
        Γ, μ, Q = self.system.symbols[:3]
        self.z, self.P = Γ @ self.z + μ, Γ @ self.P @ Γ.T + Q

    def see(self, context: Array | None = None, arm: int = -1, reward: float = math.nan) -> None:
        rewards = np.full(self.system.arm_count, math.nan)
        if arm >= 0:
            rewards[arm] = reward
        nothing = np.full(self.system.context_dim, math.nan)
        self.z, self.P, _ = naive.condition(
            self.system, self.z, self.P, nothing if context is None else context, rewards
        )

    @property
    def forecast(self) -> Array:
        return np.asarray(self.system.symbols.c @ self.z + self.system.symbols.x0)


@pytest.mark.parametrize(("m", "context_first"), [(0, False), (2, False), (2, True)])
def test_measurements_of_one_time_step_are_of_one_state(m: int, context_first: bool) -> None:
    system, elapsed = full_system(3, m, 2), script(60, 2)
    path, time_steps = data(elapsed, m, 2), time_steps_of(elapsed)
    policy, twin = KalmanGreedy(system, context_first=context_first), Filter(system)
    for t, decision in enumerate(play(policy, elapsed, path, range(60))):
        if t and elapsed[t]:
            if not context_first:
                twin.see(path.contexts[time_steps[t - 1]])
            for _ in range(elapsed[t]):
                twin.step()
        if context_first and elapsed[t]:
            twin.see(path.contexts[time_steps[t]])
        np.testing.assert_allclose(decision.forecast, twin.forecast, rtol=1e-9, atol=1e-9)
        twin.see(None, decision.arm, float(path.rewards[t, decision.arm]))


@pytest.mark.parametrize(("m", "context_first"), [(0, False), (2, False), (2, True)])
def test_late_rewards_go_back_to_their_time_step(m: int, context_first: bool) -> None:
    """Rewards come in any order; a policy that is loaded in the middle of a time step goes on like the other."""
    system, elapsed, rng = full_system(3, m, 2), script(60, 3), np.random.default_rng(0)
    path, tardy = data(elapsed, m, 2), KalmanGreedy(system, context_first=context_first, max_delay=200)
    prompt, waiting, time_steps = copy.deepcopy(tardy), list[tuple[str, int, int]](), time_steps_of(elapsed)
    for t in range(60):
        (decision,) = play(tardy, elapsed, path, range(t, t + 1), learn=False)
        waiting.append((decision.id, t, decision.arm))
        if t == 30:
            tardy = undertow.from_bytes(tardy.to_bytes())  # type: ignore[assignment]
        rng.shuffle(waiting)
        while len(waiting) > (8 if t < 59 else 0):
            id, round, arm = waiting.pop()
            tardy.learn(id, float(path.rewards[round, arm]))
        how: dict[str, Any] = {"context": path.contexts[time_steps[t]]} if m and context_first and elapsed[t] else {}
        again = prompt.decide(available=[decision.arm], elapsed=int(elapsed[t]), **how)
        prompt.learn(again, float(path.rewards[t, again.arm]))
        if m and not context_first and (t == 59 or elapsed[t + 1]):
            prompt.observe(path.contexts[time_steps[t]])
    np.testing.assert_allclose(tardy.forecast().forecast, prompt.forecast().forecast, rtol=1e-9, atol=1e-9)


# Learners between two fits


@pytest.mark.parametrize(("m", "context_first"), [(0, False), (2, False), (2, True)])
def test_a_shared_system_stands_still_or_steps_on(m: int, context_first: bool) -> None:
    elapsed = script(110, 4)
    elapsed[60] = 1  # the twin begins with a time step that is over
    path, time_steps = data(elapsed, m, 3), time_steps_of(elapsed)
    policy = LearnedKalman(arms=3, context_dim=m, context_first=context_first, refit="inline", rng=0)
    list(play(policy, elapsed, path, range(60)))
    never_fit(policy)
    own = learner_of(policy).blocks[0]
    twin = SharedTwin(own)
    for t, decision in enumerate(play(policy, elapsed, path, range(60, 110)), 60):
        if elapsed[t]:
            if t > 60 and m and not context_first:
                twin.observe(path.contexts[time_steps[t - 1]])
            for _ in range(elapsed[t]):
                twin.begin()
            if m and context_first:
                twin.observe(path.contexts[time_steps[t]])
        np.testing.assert_allclose(decision.forecast, twin.forecast(t)[0], atol=1e-9)
        twin.learn(decision.arm, float(path.rewards[t, decision.arm]))
    if m and not context_first:
        twin.observe(path.contexts[time_steps[109]])
    twin.agrees_with(own)


@both_orders
def test_levels_stand_still_or_step_on(context_first: bool) -> None:
    """The features of a round are its own, and the contexts of the last time steps."""
    elapsed = script(110, 5)
    elapsed[60] = 1
    path, time_steps = data(elapsed, 1, 2, q=2), time_steps_of(elapsed)
    policy = StructuralKalman(arms=2, context_dim=1, feature_dim=2, context_first=context_first, refit="inline", rng=0)
    list(play(policy, elapsed, path, range(60)))
    never_fit(policy)
    own = learner_of(policy).blocks[0]
    lags, hyper = len(own.past), own.hyper.copy()
    Φ, Q, _ = naive_levels.matrices(hyper, 2, 2 + lags)
    (z, P), (mean, scale) = naive_levels.written_out(own.belief), own.reward
    seen = np.full(int(time_steps[-1]) + 1, math.nan)  # contexts of time steps without a decision are missing
    seen[time_steps] = path.contexts[time_steps, 0]
    for t, decision in enumerate(play(policy, elapsed, path, range(60, 110)), 60):
        for _ in range(elapsed[t]):
            z, P = Φ @ z, Φ @ P @ Φ + Q
        P = naive_levels.forget(P, 2, 2 + lags) if elapsed[t] else P
        newest = time_steps[t] if context_first else time_steps[t] - 1
        u = np.concatenate([path.features[t], seen[newest - np.arange(lags)]])
        u = np.nan_to_num((u - own.centre) / own.scale, nan=0.0)
        np.testing.assert_allclose(
            decision.forecast, mean + scale * naive_levels.forecast(z, P, hyper, 2, u)[0], atol=1e-9
        )
        h = naive_levels.row(decision.arm, u, 2)
        gain = P @ h / (h @ P @ h + Hyper(hyper, 0).reward_noise)
        z = z + gain * ((path.rewards[t, decision.arm] - mean) / scale - h @ z)
        P = P - np.outer(gain, h @ P)
    np.testing.assert_allclose(naive_levels.written_out(own.belief)[1], P, atol=1e-9)


@pytest.mark.parametrize(("m", "context_first"), [(0, False), (1, False), (1, True)])
@pytest.mark.parametrize("learner", [LinUCB, Autopilot])
def test_lags_are_of_time_steps(learner: Any, m: int, context_first: bool) -> None:
    """Of several rounds in a time step the last one enters, once its reward has come."""
    elapsed = np.minimum(script(60, 6), 1) if m else script(60, 6)  # what fills a missing context is tested elsewhere
    path, time_steps = data(elapsed, m, 2, q=1), time_steps_of(elapsed)
    path = Trajectory(np.nan_to_num(path.contexts), path.rewards, features=path.features)
    sizes: dict[str, Any] = {"arms": 2, "context_dim": m, "feature_dim": 1, "context_first": context_first}
    policy = LinUCB(**sizes, window=5, reward_lags=5) if learner is LinUCB else Autopilot(**sizes, rng=0)
    if isinstance(policy, Autopilot):
        fit_next(policy, math.inf)  # the units of its regression are those of the data
    past: dict[int, tuple[int, float]] = {}
    waiting: list[tuple[int, Decision]] = []
    for t, decision in enumerate(play(policy, elapsed, path, range(60), learn=False)):
        Θ = policy.parts.player.common.memory if learner is LinUCB else learner_of(policy).blocks[2].Θ
        seen = list(path.contexts[: time_steps[t] + context_first])
        known = [past.get(time_step, (-1, 0.0)) for time_step in range(time_steps[t])]
        expected = naive_policies.lagged_inputs(seen, path.features[t], known, k=2, m=m, s=5, lags=5)
        np.testing.assert_allclose(Θ, expected, atol=1e-12)
        past.pop(int(time_steps[t]), None)
        waiting.append((t, decision))
        if t % 3 == 0 or learner is Autopilot:  # which goes back where rewards are late
            for then, each in waiting:
                policy.learn(each, reward := float(path.rewards[then, each.arm]))
                if then == t or elapsed[then + 1]:
                    past[int(time_steps[then])] = (each.arm, reward)
            waiting.clear()


# Fits


def shared_rows(rows: int, seed: int) -> npt.NDArray[np.bool_]:
    same = np.random.default_rng(seed).random(rows) < 0.4
    same[0] = False
    return same


@pytest.mark.parametrize(("d", "m", "k"), [(2, 0, 3), (3, 2, 2)])
def test_the_score_of_a_shared_system_knows_of_time_steps(d: int, m: int, k: int) -> None:
    table = np.column_stack([random_table(30, m, k, seed=7), shared_rows(30, 8)])
    π, prior = random_model(d, m, k, seed=3), prior_of(m, 1.5)
    at, active = scored(π, d, m, k, table, prior), naive_identify.active(d, m, k)
    expected, _ = naive_identify.run_filter(π, d, m, k, table, 1.5)
    assert at.log_likelihood == pytest.approx(expected, rel=1e-10)
    slopes = naive_identify.numerical_gradient(lambda x: naive_identify.objective(x, d, m, k, table, prior), π, active)
    np.testing.assert_allclose(at.gradient, slopes, atol=1e-6 * np.abs(slopes).max(), rtol=0)
    assert not np.delete(at.gradient, active).any()
    alone = np.column_stack([table[:, : m + 2], np.zeros(30)])
    for one, two in zip(
        scored(π, d, m, k, alone, prior), scored(π, d, m, k, table[:, : m + 2].copy(), prior), strict=True
    ):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(("m", "context_first"), [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("last", [0, 1], ids=["within a time step", "after it"])
def test_a_fit_ends_where_the_filter_would(m: int, context_first: bool, last: int) -> None:
    """The belief of a fit is that of its model led through the log."""
    elapsed = np.append(script(60, 7), last)
    path = data(elapsed, m, 3, q=1)
    policy = Autopilot(arms=3, context_dim=m, feature_dim=1, context_first=context_first, refit="inline", rng=0)
    list(play(policy, elapsed, path, range(61)))
    learner = learner_of(policy)
    n = policy.round - 1
    rows = learner.log.rows(0, n).copy()
    assert (rows[-1, learner.log.shared] >= AFTER) == (last == 0)
    for model in learner.models:
        block = model.fit(Task(n, 0, rows, model.block(), (0,))).block
        led = model.rewound(block)
        model.catch_up(led, 0, rows, Span(0, n, 0, n))
        one, two = model.open(block), model.open(led)
        for name in ("z", "P", "past", "u", "W"):
            if hasattr(one, name) and not (name == "u" and hasattr(one, "past")):
                np.testing.assert_allclose(getattr(two, name), getattr(one, name), rtol=1e-4, atol=1e-9, err_msg=name)
        if hasattr(one, "belief"):
            for mine, theirs in zip(one.belief[:5], two.belief[:5], strict=True):
                np.testing.assert_allclose(theirs, mine, rtol=1e-5, atol=1e-9)


def test_a_table_with_gaps_is_a_table_with_empty_rows() -> None:
    rng, n = np.random.default_rng(0), 80
    elapsed = rng.choice([1, 1, 2, 3], n)
    places = np.cumsum(elapsed) - elapsed[0]
    arms, x, θ, u = rng.integers(-1, 2, n), rng.standard_normal(n), rng.standard_normal((n, 1)), rng.random((n, 1))
    rows = int(places[-1]) + 1
    wide_arms, wide_x = np.full(rows, -1), np.full(rows, math.nan)
    wide_θ, wide_u = np.full((rows, 1), math.nan), np.zeros((rows, 1))
    wide_arms[places], wide_x[places], wide_θ[places], wide_u[places] = arms, x, θ, u
    one = identify.fit(arms, x, contexts=θ, elapsed=elapsed, order=1)
    two = identify.fit(wide_arms, wide_x, contexts=wide_θ, order=1)
    assert one.log_likelihood == two.log_likelihood
    np.testing.assert_array_equal(one.innovations, two.innovations[places])
    levels = identify.fit_levels(arms, x, elapsed=elapsed), identify.fit_levels(wide_arms, wide_x)
    assert levels[0].log_likelihood == pytest.approx(levels[1].log_likelihood, abs=1e-2)  # where the climbs end
    np.testing.assert_allclose(levels[0].innovations, levels[1].innovations[places], atol=0.02)
    np.testing.assert_allclose(levels[0].forecast(), levels[1].forecast(), atol=0.02)


def test_fits_of_rounds_in_one_time_step() -> None:
    """Two arms a time step of one walk tell its noise from its steps, which one arm a time step confuses."""
    rng, n = np.random.default_rng(1), 400
    level = np.cumsum(rng.standard_normal(n // 2))
    x = np.repeat(level, 2) + 0.1 * rng.standard_normal(n)
    arms, elapsed = np.tile([0, 1], n // 2), np.tile([1, 0], n // 2)
    found = identify.fit(arms, x, elapsed=elapsed, order=1)
    assert np.sqrt(found.system.reward_noise[0]) == pytest.approx(0.1, abs=0.03)
    assert found.log_likelihood > identify.fit(arms, x, order=1).log_likelihood + 50
    with pytest.raises(
        InvalidInputError, match="contexts: expected one context in a time step, got several in that of"
    ):
        identify.fit(arms, x, contexts=rng.standard_normal((n, 1)), elapsed=elapsed)
    for odd, message in (
        ([1] * (n - 1) + [-1], "elapsed: expected numbers from 0 to 10000, got -1"),
        ([1] * (n - 1) + [10_001], "elapsed: expected numbers from 0 to 10000, got 10001"),
        ([1.5] * n, "elapsed: expected integers, got"),
        ([1], "elapsed: expected shape"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            identify.fit_levels(arms, x, elapsed=odd)


@both_orders
def test_a_warm_start_is_the_log_of_what_was_played(context_first: bool) -> None:
    elapsed = script(40, 8)
    path, time_steps = data(elapsed, 2, 3), time_steps_of(elapsed)
    played = Autopilot(arms=3, context_dim=2, context_first=context_first, refit="inline", rng=0)
    arms = [decision.arm for decision in play(played, elapsed, path, range(40))]
    fresh = Autopilot(arms=3, context_dim=2, context_first=context_first, refit="inline", rng=0)
    rewards = path.rewards[np.arange(40), arms]
    fresh.warm_start(arms, rewards, contexts=path.contexts[time_steps], elapsed=elapsed)
    assert (fresh.round, fresh.parts.time_step) == (played.round, played.parts.time_step)
    np.testing.assert_array_equal(
        learner_of(fresh).log.rows(0, fresh.round), learner_of(played).log.rows(0, played.round)
    )


# Late rewards of learners


@pytest.mark.parametrize(("m", "context_first"), [(0, False), (1, False), (1, True)])
def test_learners_take_late_rewards_in_at_their_time_step(m: int, context_first: bool) -> None:
    """Where no fit comes in between, beliefs are those of rewards in time."""
    elapsed = script(150, 9)
    path, time_steps = data(elapsed, m, 2), time_steps_of(elapsed)
    policies = [Autopilot(arms=2, context_dim=m, context_first=context_first, refit="inline", rng=0) for _ in range(2)]
    for policy in policies:
        list(play(policy, elapsed, path, range(60)))
        never_fit(policy)
    prompt, tardy = policies
    waiting = []
    for t in range(60, 150):
        (decision,) = play(prompt, elapsed, path, range(t, t + 1))
        how: dict[str, Any] = {"context": path.contexts[time_steps[t]]} if m and context_first and elapsed[t] else {}
        again = tardy.decide(available=[decision.arm], elapsed=int(elapsed[t]), **how)
        waiting.append((again, float(path.rewards[t, again.arm])))
        if m and not context_first and (t == 149 or elapsed[t + 1]):
            tardy.observe(path.contexts[time_steps[t]])
        while len(waiting) > (t % 7 if t < 149 else 0):
            tardy.learn(*waiting.pop(0))
    settle(tardy)
    np.testing.assert_array_equal(learner_of(tardy).log.rows(0, 200), learner_of(prompt).log.rows(0, 200))
    for one, two in zip(learner_of(prompt).blocks, learner_of(tardy).blocks, strict=True):
        for name in ("z", "P", "W", "past", "hyper"):
            if hasattr(one, name):
                np.testing.assert_allclose(getattr(two, name), getattr(one, name), atol=1e-8, err_msg=name)


def test_fits_in_the_background_catch_up_with_time_steps() -> None:
    """What a fit that took long has led through the log is what the policy that waits for it has."""
    elapsed = script(120, 10)
    path = data(elapsed, 1, 2)
    policy = Autopilot(arms=2, context_dim=1, refit="background", rng=0)
    for decision in play(policy, elapsed, path, range(120)):
        assert np.isfinite(decision.forecast).all()
    log = learner_of(policy).log
    assert log.rows(0, policy.round)[:, log.shared].sum() == 3 * (elapsed == 0).sum()


@pytest.mark.parametrize("name", [name for name in MAKE if not name.startswith("kalman")])
def test_an_arm_may_come_in_the_middle_of_a_time_step(name: str) -> None:
    """Forecasts of the others stay, but for policies that fit, whose units and spread of the arms may change."""
    policy, elapsed = MAKE[name](), script(60, 11)
    m, q, _ = dims(policy)
    path, inside = data(elapsed, m, 4, q), next(t for t in range(30, 60) if elapsed[t] == 0)
    list(play(policy, elapsed, path, range(inside)))
    features = np.zeros(q) if q else None
    before = policy.forecast(features).forecast
    policy.add_arm("more")
    if not isinstance(policy, LearningPolicy):
        np.testing.assert_allclose(policy.forecast(features).forecast[:3], before, atol=1e-6)
    decisions = list(play(policy, elapsed, path, range(inside, 60)))
    assert decisions[0].time_step == time_steps_of(elapsed)[inside]
    assert all(np.isfinite(decision.forecast).all() for decision in decisions)


def test_a_file_holds_no_time_step_that_is_being_shared() -> None:
    policy = LinUCB(arms=2, rng=0)
    policy.decide()
    for still, time_steps in ((1.0, 1.0), (0.0, 2.0)):
        spoilt = copy.deepcopy(policy)
        spoilt.parts.player.common.head.still, spoilt.parts.player.common.head.time_steps = still, time_steps
        with pytest.raises(InvalidInputError, match="state: time_steps: expected at most as many as rounds"):
            undertow.from_bytes(spoilt.to_bytes())


# What is refused


def test_what_cannot_have_elapsed() -> None:
    policy = LinUCB(arms=2)
    policy.decide()
    before = everything(policy)
    for odd, message in (
        (-1, "elapsed: expected at least 0, got -1"),
        (0.5, "elapsed: expected an integer, got 0.5"),
        (1.0, "elapsed: expected an integer, got 1.0"),
        (True, "elapsed: expected an integer, got True"),
        (False, "elapsed: expected an integer, got False"),
        (None, "elapsed: expected an integer, got None"),
        ("1", "elapsed: expected an integer, got '1'"),
        (np.array([1, 2]), "elapsed: expected an integer, got array"),
        (10_001, "elapsed: expected at most 10000 time steps, got 10001; use a larger time unit"),
        (10**30, "elapsed: expected at most 10000 time steps, got 1000"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            policy.decide(elapsed=odd)  # type: ignore[arg-type]
        assert everything(policy) == before
    assert policy.decide(elapsed=np.int64(2)).time_step == 2  # type: ignore[arg-type]
    assert policy.decide(elapsed=10_000).time_step == 10_002
    with pytest.raises(
        OutOfTurnError, match="elapsed=0 is another decision in the time step of the last round, and there"
    ):
        LinUCB(arms=2).decide(elapsed=0)


def test_contexts_belong_to_time_steps() -> None:
    after = LinUCB(arms=2, context_dim=1)
    after.decide()
    after.decide(elapsed=0)
    with pytest.raises(OutOfTurnError, match="the context of this round is due first"):
        after.decide(elapsed=2)
    with pytest.raises(OutOfTurnError, match="the context of this round is due first"):
        after.decide()
    after.observe([1.0])
    with pytest.raises(OutOfTurnError, match="its context was observed, so it is over; call decide"):
        after.decide(elapsed=0)
    assert (after.decide(elapsed=2).time_step, after.round, after.parts.time_step) == (2, 4, 3)

    first = LinUCB(arms=2, context_dim=1, context_first=True)
    with pytest.raises(OutOfTurnError, match="there was none yet"):
        first.decide(elapsed=0)
    first.decide(context=[1.0])
    with pytest.raises(InvalidInputError, match="context: elapsed=0 continues the current time step"):
        first.decide(context=[1.0], elapsed=0)
    first.decide(elapsed=0)
    with pytest.raises(OutOfTurnError, match=r"pass both, decide\(context=…, elapsed=3\), or call skip\(2\) before"):
        first.decide(elapsed=3)
    assert first.decide(context=None, elapsed=3).time_step == 3
    first.observe([1.0])
    with pytest.raises(OutOfTurnError, match="a context was observed since, which began the next one"):
        first.decide(elapsed=0)
    with pytest.raises(OutOfTurnError, match="pass both"):
        first.decide(elapsed=3)
    assert first.decide().time_step == 4
    first.skip(2, [[1.0], [2.0]])
    assert first.decide(elapsed=0).time_step == 6  # in the last time step that passed


class Stop(Exception):
    pass


@pytest.mark.parametrize("elapsed", [0, 3])
@pytest.mark.parametrize("name", MAKE)
def test_an_interrupted_decision_changes_nothing(name: str, elapsed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = MAKE[name]()
    m, q, first = dims(policy)
    times = script(20, 12)
    path = data(times, m, 3, q)
    list(play(policy, times, path, range(19), learn=False))
    list(play(policy, np.append(times[:19], [1, 1 if elapsed else 0]), path, range(19, 20), learn=False))
    how: dict[str, Any] = {"elapsed": elapsed, "features": path.features[0] if q else None}
    if m and first and elapsed:
        how["context"] = path.contexts[0]
    before, log = everything(policy), _log(policy)
    for place in ("decide", "skip") if elapsed else ("decide",):
        with monkeypatch.context() as patch:
            patch.setattr(type(policy.parts.player), place, _stops)
            with pytest.raises(Stop):
                policy.decide(**how)
        assert everything(policy) == before
        np.testing.assert_array_equal(_log(policy), log)
    twin = copy.deepcopy(policy)
    assert unnamed(policy.decide(**how)) == unnamed(twin.decide(**how))


def _stops(*args: Any, **more: Any) -> None:
    raise Stop


def _log(policy: LivePolicy) -> Array:
    timeline = policy.parts.timeline
    log = getattr(timeline, "log", None)
    return log.rows(log.begin, log.end).copy() if isinstance(log, RoundLog) else np.empty(0)


def test_a_decision_tells_its_time_step() -> None:
    policy = LinUCB(arms=2)
    one, two = policy.decide(), policy.decide(elapsed=0)
    assert (one.round, two.round, one.time_step, two.time_step) == (0, 1, 0, 0)
    assert Decision.from_json(two.to_json()).time_step == 0
    assert Decision("id", 0, 0, "a", np.zeros(1), np.zeros(1), None).time_step is None
