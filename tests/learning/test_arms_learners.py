"""Learners that take in a new arm: what they knew stays, and the arm is found out."""

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow
from helpers import (
    Array,
    Constant,
    dims,
    everything,
    fit_next,
    learner_of,
    live_round,
    models_of,
    never_fit,
    unnamed,
    with_features,
)
from learning.test_learners import build
from learning.test_learners_live import Gate, answered, beliefs
from undertow import InvalidInputError, Trajectory, random_system
from undertow.learning.policy import LearningPolicy
from undertow.models.block import Block
from undertow.policies import UCB, Autopilot, Decision, LearnedKalman, LinUCB, LivePolicy, StructuralKalman


def two_arms(k: int, m: int, q: int) -> Trajectory:
    """The first k of three arms; the third is the best by far."""
    base = random_system(3, 2, 3, rng=2, spectral_radius=0.9).sample(150, rng=1)
    rewards = (base.rewards + np.array([0.0, 0.0, 4.0]))[:, :k]
    return with_features(Trajectory(base.contexts[:, :m], rewards), q)


every_case = pytest.mark.parametrize(
    ("learner", "m", "q", "first", "half"),
    [
        (learner, m, q, first, half)
        for learner in (LearnedKalman, StructuralKalman, Autopilot)
        for m, first, half in (
            (0, False, False),
            *((2, first, half) for first in (False, True) for half in (False, True)),
        )
        for q in ((0,) if learner is LearnedKalman else (0, 2))
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)


def begun(
    learner: Any, path: Trajectory, first: bool, rounds: int, *, half: bool, learn: bool = True
) -> LearningPolicy:
    """A learner after some rounds and, with `half`, in the middle of the next one; the last reward may still wait."""
    policy: LearningPolicy = build(learner, path, context_first=first)
    for t in range(rounds):
        live_round(policy, path, t, learn=learn or t < rounds - 1)
    if half and first:
        policy.observe(path.contexts[rounds])
    elif half:
        policy.learn(policy.decide(path.features[rounds] if dims(policy)[1] else None), 0.5)
    return policy


def finish(policy: LivePolicy, path: Trajectory, t: int, *, half: bool, **more: Any) -> None:
    """Play the other half of round t."""
    _, q, first = dims(policy)
    if half and first:
        policy.learn(policy.decide(path.features[t] if q else None, **more), 0.5)
    elif half:
        policy.observe(path.contexts[t])


def scored(model: Block) -> Array:
    """What was made of the rewards so far."""
    return np.concatenate([model.score.numbers, model.innovations])


@every_case
def test_a_learner_keeps_its_forecasts_and_finds_that_a_new_arm_is_better(
    learner: Any, m: int, q: int, first: bool, half: bool, tmp_path: Path
) -> None:
    """Old arms' forecasts stay within a share of the rewards' deviation: a tenth for a shared system, half otherwise.

    Not to rounding: the log is filtered once more with the arms as they are known now, and the structural model of
    more arms looks at fewer past contexts.
    """
    path, wide = two_arms(2, m, q), two_arms(3, m, q)
    policy = begun(learner, path, first, 40, half=half)
    features = path.features[40] if q else None
    before, scores = policy.forecast(features), [scored(model) for model in models_of(policy)]
    policy.add_arm("better")
    after = policy.forecast(features)
    share = 0.1 if learner is LearnedKalman else 0.5
    np.testing.assert_allclose(after.forecast[:2], before.forecast, atol=share * float(path.rewards.std()))
    for model, score in zip(models_of(policy), scores, strict=True):
        np.testing.assert_array_equal(scored(model), score)
    policy.save(tmp_path / "policy")
    again = undertow.load(tmp_path / "policy")
    for each in (policy, again):
        finish(each, path, 40, half=half)
    decisions = []
    for t in range(40 + half, 90):
        decisions.append(live_round(policy, wide, t))
        assert unnamed(live_round(again, wide, t)) == unnamed(decisions[-1])
    assert [decision.arm for decision in decisions[-20:]].count(2) >= 15
    assert all(np.isfinite(decision.forecast).all() for decision in decisions)


@every_case
def test_an_arm_that_comes_in_the_start_up_takes_its_turn(
    learner: Any, m: int, q: int, first: bool, half: bool
) -> None:
    path, wide = two_arms(2, m, q), two_arms(3, m, q)
    for rounds in (0, 3):
        policy = begun(learner, path, first, rounds, half=half)
        policy.add_arm("late")
        finish(policy, path, rounds, half=half)
        assert 2 in [live_round(policy, wide, t).arm for t in range(rounds + half, 6)]


@pytest.mark.parametrize("learn", [True, False], ids=["in time", "late"])
@pytest.mark.parametrize(
    ("m", "q", "first", "half"),
    [(0, 2, False, False), (1, 0, False, False), (1, 0, False, True), (1, 2, True, False), (1, 2, True, True)],
)
def test_levels_know_the_same_after_a_new_arm(m: int, q: int, first: bool, half: bool, learn: bool) -> None:
    """With one arm and a second, the structural model looks at as many contexts, and forecasts agree to 1e-9."""
    path = two_arms(1, m, q)
    one, two = (begun(StructuralKalman, path, first, 40, half=half, learn=learn) for _ in range(2))
    two.add_arm("new")
    for policy in (one, two):
        never_fit(policy)
        assert policy.pending == (not learn)
        for waiting in list(policy.parts.pending.waiting):
            policy.learn(waiting, 1.0)
        finish(policy, path, 40, half=half, available=[0])
    for t in range(40 + half, 45):
        decisions = live_round(one, path, t), live_round(two, path, t, available=[0])
        np.testing.assert_allclose(decisions[1].forecast[0], decisions[0].forecast[0], atol=1e-9)


def test_a_learner_that_dropped_its_past_does_not_take_it_up_for_a_new_arm() -> None:
    path = two_arms(1, 0, 0)
    policy = begun(StructuralKalman, path, False, 60, half=False)
    learner = learner_of(policy)
    models_of(policy)[0].head.begin = 30
    learner.models[0].believe(learner.views[0], learner.log.rows(30, 60), 60)
    before = policy.forecast().forecast
    policy.add_arm("new")
    np.testing.assert_allclose(policy.forecast().forecast[0], before[0], atol=1e-9)


def test_an_arm_may_come_after_a_pause() -> None:
    path = two_arms(1, 0, 0)
    policy = begun(StructuralKalman, path, False, 40, half=False)
    policy.skip(20)
    before = policy.forecast().forecast
    policy.add_arm("new")
    np.testing.assert_allclose(policy.forecast().forecast[0], before[0], atol=1e-9)


def test_a_fit_that_lacks_the_new_arm_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    path, gate = two_arms(2, 0, 0), Gate(monkeypatch)
    policy = build(LearnedKalman, path, refit="background")
    for t in range(8):
        live_round(policy, path, t)
    assert gate.begun() == [6]
    policy.add_arm("new")
    assert policy.health().under_way == ()
    live_round(policy, two_arms(3, 0, 0), 8)
    gate.open.set()
    answered(policy)
    fit_next(policy, math.inf)
    assert policy.decide().why.since_fit == 1
    assert [(record.round, record.failure) for record in policy.health().fits] == [(8, None)]


def test_an_autopilot_with_candidates_refuses_a_new_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    policy = Autopilot(arms=2, rng=0, candidates=[Constant()], refit="background")
    for t in range(8):
        live_round(policy, two_arms(2, 0, 0), t)
    gate.begun()
    before, twin = everything(policy), copy.deepcopy(beliefs(policy))
    with pytest.raises(InvalidInputError, match="candidates: an Autopilot with candidates cannot add an arm"):
        policy.add_arm("new")
    gate.open.set()
    assert everything(policy) == before
    for one, two in zip(beliefs(policy), twin, strict=True):
        np.testing.assert_array_equal(one, two)
    assert policy.arm_count == 2
    assert isinstance(policy.decide(), Decision)


def test_a_policy_may_take_in_many_arms() -> None:
    policies: list[LivePolicy] = [UCB(arms=1), LinUCB(arms=1, reward_lags=2), LearnedKalman(arms=1, rng=0)]
    for policy in policies:
        for number in range(1, 12):
            policy.learn(policy.decide(), 1.0)
            policy.add_arm(str(number))
        assert policy.names == tuple(map(str, range(12)))
        assert policy.decide(available=[11]).forecast.shape == (12,)
