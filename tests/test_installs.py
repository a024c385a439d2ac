"""Fits in the background: a log of when they took effect is all that it takes to repeat a run, bit for bit."""

import copy
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow
from digests import SYSTEM, digest
from helpers import learner_of, unnamed
from undertow import InvalidInputError
from undertow.learners import fits as fits_module
from undertow.learners.fits import Install
from undertow.learners.model import Fit
from undertow.learners.policy import LearningPolicy
from undertow.policies import Autopilot, LearnedKalman, StructuralKalman

ROUNDS = 90
PATH = SYSTEM.sample(ROUNDS, rng=5)
every_learner = pytest.mark.parametrize("learner", [LearnedKalman, StructuralKalman, Autopilot])


@pytest.fixture(autouse=True)
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """What fits wait for; models catch up with two rounds at a time, so that they are often seen on their way."""
    gate, attempt = threading.Event(), fits_module.attempt

    def attempt_later(make: Callable[[], Fit], failures: tuple[type[BaseException], ...]) -> Fit | BaseException:
        gate.wait()
        return attempt(make, failures)

    monkeypatch.setattr(fits_module, "attempt", attempt_later)
    monkeypatch.setattr(fits_module, "_SLICE", 2)
    gate.set()
    return gate


def play(
    policy: LearningPolicy, begin: int, end: int, waiting: dict[int, str], gate: threading.Event | None = None
) -> list[str]:
    """Some rounds, in which every third reward is up to 15 rounds late, and the decisions.

    With a gate, fits are made in every sixth round.
    """
    made = []
    for t in range(begin, end):
        if gate is not None and t % 6 == 0:
            gate.set()
            while not all(answer for _, answer in learner_of(policy).fits.under_way.values()):
                time.sleep(0.001)
            gate.clear()
        decision = policy.decide(context=PATH.contexts[t])
        made.append(unnamed(decision))
        waiting[t] = decision.id
        for then in [t] if t % 3 else [r for r in waiting if r <= t - 15]:
            policy.learn(waiting.pop(then), float(PATH.rewards[then].sum()))
    return made


def build(learner: Any, **more: Any) -> Any:
    return learner(arms=3, context_dim=2, context_first=True, rng=0, **{"refit": "background"} | more)


def resumed(content: bytes, waiting: dict[int, int]) -> tuple[Any, dict[int, str]]:
    """A policy of a save file, and the ids of the decisions that wait in it."""
    policy = undertow.from_bytes(content)
    names = {entry.number: name for name, entry in policy.parts.pending.waiting.items()}
    return policy, {t: names[number] for t, number in waiting.items()}


@every_learner
def test_a_run_is_repeated_from_its_log_of_installs(learner: Any, gate: threading.Event) -> None:
    """From the start, and from snapshots at random moments, fits under way and models that catch up among them."""
    policy, waiting, log = build(learner), dict[int, str](), list[Install]()
    policy.on_install(log.append)
    moments = np.sort(np.random.default_rng(1).choice(np.arange(8, ROUNDS), 8, replace=False)).tolist()
    kept, made, begin = [], list[str](), 0
    for moment in [*moments, ROUNDS]:
        made += play(policy, begin, moment, waiting, gate)
        numbers = {t: policy.parts.pending.waiting[name].number for t, name in waiting.items()}
        kept.append((moment, policy.to_bytes(), numbers, policy.health().under_way))
        begin = moment
    assert any(busy for *_, busy in kept)
    assert {install.model for install in log} == {model.name for model in policy.models}
    assert all(install.asked <= install.taken <= install.round < ROUNDS for install in log)
    assert any(install.taken < install.round for install in log)
    gate.set()
    again = build(learner)
    again.replay_installs([Install(*entry) for entry in json.loads(json.dumps(log))])  # as a journal would keep it
    assert play(again, 0, ROUNDS, {}) == made
    assert digest(again, "led_") == digest(policy, "led_")  # models on their way are in no log yet
    for moment, content, numbers, _ in kept[:-1]:
        other, names = resumed(content, numbers)
        other.replay_installs(log)
        assert play(other, moment, ROUNDS, names) == made[moment:]
        assert digest(other, "led_") == digest(policy, "led_")


def test_a_snapshot_keeps_a_fit_as_it_was_begun() -> None:
    """Rewards that came since are not in it: the fit would be another one."""
    policy = build(LearnedKalman)
    policy.replay_installs([])  # nothing takes effect
    waiting: dict[int, str] = {}
    play(policy, 0, 8, waiting)
    timeline = policy.parts.timeline
    begun = timeline.fits.arrays()
    for then in list(waiting):
        policy.learn(waiting.pop(then), 9.0)
    again = undertow.from_bytes(policy.to_bytes()).parts.timeline.arrays()
    assert begun["task_0_rows"].shape == (6, 5)
    np.testing.assert_array_equal(again["task_0_rows"], begun["task_0_rows"])
    assert again["task_0"].tolist()[:7] == begun["task_0"].tolist()[:7]
    assert again["task_0"][7] == 0.0  # the oldest round whose reward has come since


def test_a_policy_can_be_saved_after_any_round() -> None:
    """Also after the one in which its log has just grown."""
    policy = build(StructuralKalman)
    policy.replay_installs([])
    waiting: dict[int, str] = {}
    play(policy, 0, 60, waiting)
    for t in range(60, ROUNDS):
        play(policy, t, t + 1, waiting)
        assert undertow.from_bytes(policy.to_bytes()).round == t + 1


def test_fits_that_the_log_does_not_name_take_no_effect(gate: threading.Event) -> None:
    policy = build(LearnedKalman)
    policy.replay_installs([])
    play(policy, 0, 30, {})
    assert policy.model is None
    policy.replay_installs(None)
    play(policy, 30, 70, {}, gate)
    assert policy.model is not None


def test_a_fit_that_a_log_names_is_made_aside_though_it_is_short() -> None:
    """A policy that would have waited for it (auto) then repeats a run in which another one did not."""
    policy = build(LearnedKalman, refit="auto")
    policy.replay_installs([Install("shared system", 6, 20, 25)])
    play(policy, 0, 20, {})
    assert policy.model is None


def test_copies_and_new_arms(gate: threading.Event) -> None:
    """Whoever copies a policy does not listen to the copy; a policy with one more arm is listened to as before."""
    policy, log = build(LearnedKalman), list[Install]()
    policy.on_install(log.append)
    twin = copy.deepcopy(policy)
    play(twin, 0, 20, {}, gate)
    assert twin.model is not None
    assert log == []
    policy.add_arm("one more")
    play(policy, 0, 20, {}, gate)
    assert log


@pytest.mark.parametrize(
    "wrong", [["shared system"], [("shared system", 3, 2, 4)], [("shared system", 1, 2)], [(7, 1, 2, 3)], [None]]
)
def test_a_log_that_is_none_is_refused(wrong: Any) -> None:
    policy = build(LearnedKalman)
    with pytest.raises(InvalidInputError, match="installs: expected"):
        policy.replay_installs(wrong)
    with pytest.raises(InvalidInputError, match="listener: expected"):
        policy.on_install(7)
