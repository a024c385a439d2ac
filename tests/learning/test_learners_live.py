"""Learners in use: rewards that come late, save files, fits in the background, bounded memory, alarms."""

import gc
import json
import math
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow
from helpers import Array, fit_next, id_at, learner_of, models_of, never_fit, settle, unnamed
from learning.test_learners import both_orders, build, every_learner, play, step, three_arms, with_features
from twins.naive_levels import written_out
from twins.naive_shared import SharedTwin
from undertow import InvalidInputError, Trajectory, UnknownDecisionError, paper_system, random_system
from undertow.learning import refits
from undertow.learning.policy import LearningPolicy
from undertow.learning.threads import shared_threads
from undertow.live.fields import arrays_of, nbytes_of
from undertow.models.levels.model import Levels
from undertow.models.model import Fit, Span, Task
from undertow.models.ridge.model import Ridge
from undertow.models.shared_system.model import SharedSystem
from undertow.models.shared_system.vector import Prior, split_vector
from undertow.policies import Autopilot, Decision, LearnedKalman, StructuralKalman


def beliefs(policy: LearningPolicy, blocks: list[Array] | None = None) -> list[Array]:
    """What every model believes, without its scores, in the policy's own blocks or in others."""
    learner, result = learner_of(policy), []
    places = learner.views if blocks is None else blocks
    for model, block in zip(learner.models, places, strict=True):
        own = model.open(block)
        match model:
            case SharedSystem():
                system = split_vector(own.vector, model.context_dim, model.arms)
                result += [own.z, own.P, system.C, system.D, own.V]
            case Levels():
                result += [*written_out(own.belief), own.past]
            case Ridge():
                result += [own.Θ, own.u, own.W, own.reward.numbers, own.errors.numbers]
    assert len(result) >= 3
    return [part.copy() for part in result]


def believe_the_same(one: LearningPolicy, two: LearningPolicy) -> None:
    settle(one)
    settle(two)
    for first, second in zip(beliefs(one), beliefs(two), strict=True):
        np.testing.assert_allclose(first, second, atol=1e-9)


def take_turns(policy: LearningPolicy) -> None:
    """Have the arms take turns for ever, so that what is played does not depend on what was learned."""
    policy.parts.player.own.learner.start = math.inf


def trained(learner: Any, path: Trajectory, rounds: int, **parameters: Any) -> Any:
    """A learner after some rounds that keeps its models from then on, and in which arms take turns."""
    policy = build(learner, path, **parameters)
    take_turns(policy)
    for t in range(rounds):
        step(policy, path, t)
    never_fit(policy)
    return policy


def reward(path: Trajectory, decision: Decision) -> float:
    return float(path.rewards[decision.round, decision.arm])


# Rewards that come late


@every_learner
@pytest.mark.parametrize(("contexts", "context_first"), [(0, False), (0, True), (2, False), (2, True)])
def test_late_rewards_in_any_order_end_in_the_same_beliefs(learner: Any, contexts: int, context_first: bool) -> None:
    """Seed 0: each reward comes up to 40 rounds late."""
    base = three_arms().sample(160, rng=1)
    path = Trajectory(base.contexts[:, :contexts], base.rewards)
    prompt, late = (trained(learner, path, 60, context_first=context_first) for _ in range(2))
    rng = np.random.default_rng(0)
    due: dict[int, list[Decision]] = {}
    for t in range(60, 160):
        if contexts and context_first:
            for policy in (prompt, late):
                policy.observe(path.contexts[t])
        first, second = prompt.decide(), late.decide()
        assert first.arm == second.arm
        prompt.learn(first, reward(path, first))
        due.setdefault(min(t + int(rng.integers(0, 41)), 159), []).append(second)
        arrived = due.pop(t, [])
        for number in rng.permutation(len(arrived)):
            late.learn(arrived[number], reward(path, arrived[number]))
        if contexts and not context_first:
            for policy in (prompt, late):
                policy.observe(path.contexts[t])
    assert late.pending == 0
    np.testing.assert_array_equal(learner_of(late).log.rows(0, 160), learner_of(prompt).log.rows(0, 160))
    believe_the_same(prompt, late)
    if learner is not Autopilot:  # whose leader is looked at below
        np.testing.assert_allclose(prompt.forecast().forecast, late.forecast().forecast, atol=1e-9)


@pytest.mark.parametrize("delay", [1, 30, 400])
def test_late_rewards_cost_the_same_at_any_delay(delay: int) -> None:
    """No decision spends more than 3 ms by the formula, all together what they save; in the end all is known."""
    path = three_arms().sample(900, rng=1)
    prompt, late = (trained(Autopilot, path, 60) for _ in range(2))
    learner, waiting, spent, behind = learner_of(late), list[Decision](), 0, 0.0
    for t in range(60, 900):
        before = learner.late.savings + 60_000 * (t - learner.late.counted)
        step(prompt, path, t)
        waiting.append(step(late, path, t, learn=False))
        used = min(before, 3_000_000) - learner.late.savings if learner.late.counted == t else 0
        assert used <= 3_000_000
        spent += used
        if len(waiting) > delay:
            decision = waiting.pop(0)
            late.learn(decision, reward(path, decision))
        if t > 600 + delay:
            behind = max(behind, *(t - learner.late.missing(number) for number in learner.late.past))
    assert spent <= 3_000_000 + 60_000 * 840
    assert behind <= 1.5 * delay + 40
    assert all(len(past.marks) <= 20 for past in learner.late.past.values())
    late.learn_many(waiting, [reward(path, decision) for decision in waiting])
    believe_the_same(prompt, late)


def test_a_reward_may_come_after_the_context_of_its_round() -> None:
    path = three_arms().sample(62, rng=1)
    prompt, late = (trained(StructuralKalman, path, 60) for _ in range(2))
    first, second = prompt.decide(), late.decide()
    prompt.learn(first, 1.0)
    for policy in (prompt, late):
        policy.observe(path.contexts[60])
    late.learn(second, 1.0)
    believe_the_same(prompt, late)


@every_learner
def test_a_reward_may_come_after_the_next_context(learner: Any) -> None:
    path = three_arms().sample(62, rng=1)
    prompt, late = (trained(learner, path, 60, context_first=True) for _ in range(2))
    for policy in (prompt, late):
        policy.observe(path.contexts[60])
    first, second = prompt.decide(), late.decide()
    prompt.learn(first, 1.0)
    for policy in (prompt, late):
        policy.observe(path.contexts[61])
    late.learn(second, 1.0)
    believe_the_same(prompt, late)


@every_learner
@pytest.mark.parametrize("pause", [5, 300])
def test_a_reward_may_come_after_a_pause(learner: Any, pause: int) -> None:
    base = three_arms().sample(40, rng=1)
    path = Trajectory(None, base.rewards)
    prompt, late = (trained(learner, path, 40) for _ in range(2))
    first, second = prompt.decide(), late.decide()
    prompt.learn(first, 1.0)
    for policy in (prompt, late):
        policy.skip(pause)
    late.learn(second, 1.0)
    believe_the_same(prompt, late)


@every_learner
@both_orders
def test_a_reward_from_before_the_last_fit_changes_the_forecast(learner: Any, context_first: bool) -> None:
    path = three_arms().sample(60, rng=1)
    policy = build(learner, path, context_first=context_first)
    waiting = [step(policy, path, t, learn=t % 7 != 3) for t in range(60)]
    before = policy.forecast().forecast
    assert max(record.round for record in policy.health().fits) > waiting[45].round
    policy.learn(waiting[45], reward(path, waiting[45]) + 3)
    after = policy.forecast().forecast
    assert np.isfinite(after).all()
    assert (before != after).any()
    assert learner_of(policy).log.row(45)[-1] == reward(path, waiting[45]) + 3


def test_a_reward_from_before_the_last_fit_enters_the_belief_at_its_round() -> None:
    """Right after a fit, the belief is that of a filter which went through the whole log."""
    path = three_arms().sample(60, rng=1)
    policy = LearnedKalman(arms=3, context_dim=2, rng=0)
    decisions = [step(policy, path, t, learn=t != 50) for t in range(60)]
    fit_next(policy, 60)
    policy.decide()
    policy.learn(decisions[50], 2.0)
    settle(policy)
    own = learner_of(policy).blocks[0]
    twin = SharedTwin(own)
    twin.z, twin.P = np.zeros(len(twin.z)), Prior(own.prior, 0).start_variance * np.eye(len(twin.z))
    for t, decision in enumerate(decisions):
        if t:
            twin.begin()
        value = 2.0 if t == 50 else reward(path, decision)
        twin.condition(2 + decision.arm, (value - twin.mean[-1]) / twin.scale[-1], twin.r[-1])
        twin.observe(path.contexts[t])
    twin.begin()
    twin.agrees_with(own)


@pytest.mark.parametrize("learner", [StructuralKalman, Autopilot])
def test_a_reward_from_before_the_last_fit_leaves_the_contexts_alone(learner: Any) -> None:
    path = three_arms().sample(41, rng=1)
    policy = build(learner, path, context_first=True)
    waiting = [step(policy, path, t, learn=t != 3) for t in range(40)]
    learner = learner_of(policy)
    past = next(
        own for model, own in zip(learner.models, learner.blocks, strict=True) if isinstance(model, Levels)
    ).past
    newest = path.contexts[39 - np.arange(len(past))]
    assert len(past) > 1
    np.testing.assert_array_equal(past, newest)
    policy.learn(waiting[3], 1.0)
    np.testing.assert_array_equal(past, newest)


def test_late_rewards_leave_every_model_with_a_score_for_every_reward() -> None:
    path = three_arms().sample(122, rng=1)
    prompt, late = (trained(Autopilot, path, 60) for _ in range(2))
    waiting = [(step(prompt, path, t), step(late, path, t, learn=t != 120))[1] for t in range(60, 122)]
    late.learn(waiting[60], reward(path, waiting[60]))
    settle(late)
    for one, two in zip(models_of(prompt), models_of(late), strict=True):
        assert one.score.count == two.score.count == 116
        np.testing.assert_allclose(one.score.total, two.score.total)


def test_an_early_late_reward_leaves_the_seed_of_the_fits_alone() -> None:
    policy = LearnedKalman(arms=2, rng=0)
    decision = policy.decide()
    seed = policy.parts.player.own.learner.seed
    assert seed > 0
    policy.decide()
    policy.learn(decision, 1.0)
    assert policy.parts.player.own.learner.seed == seed


@every_learner
@pytest.mark.parametrize("contexts", [0, 2])
def test_a_reward_that_is_too_late_is_refused_and_changes_nothing(learner: Any, contexts: int) -> None:
    base = three_arms().sample(60, rng=1)
    path = Trajectory(base.contexts[:, :contexts], base.rewards)
    policy = build(learner, path, max_delay=10)
    waiting = [step(policy, path, t, learn=t not in (48, 49)) for t in range(60)]
    now, rows = policy.parts.player.state, learner_of(policy).log.rows(0, 60)
    state, log = now.copy(), rows.copy()
    with pytest.raises(UnknownDecisionError, match="its reward comes 11 rounds late, and only max_delay = 10"):
        policy.learn(waiting[48], 1.0)
    np.testing.assert_array_equal(now, state)
    np.testing.assert_array_equal(rows, log)
    policy.learn(waiting[49], 1.0)
    np.testing.assert_array_equal(now, state)  # until a decision is due
    settle(policy)
    assert (now != state).any()
    assert rows[49, -1] == 1.0


def test_without_delay_only_the_present_round_is_rewarded() -> None:
    policy = LearnedKalman(arms=2, max_delay=0, rng=0)
    first, second = policy.decide(), policy.decide()
    policy.learn(second, 1.0)
    with pytest.raises(UnknownDecisionError, match="its reward comes 1 rounds late"):
        policy.learn(first, 1.0)


# Save files


@every_learner
@both_orders
def test_a_saved_learner_continues_bit_for_bit(learner: Any, context_first: bool, tmp_path: Path) -> None:
    """Over 200 rounds with fits, each reward up to 8 rounds late, some of them pending when the file is written."""
    path = with_features(three_arms().sample(240, rng=1))
    policy = build(learner, path, context_first=context_first)
    waiting: list[Decision] = []
    others: list[LearningPolicy] = [policy]
    for t in range(240):
        if t == 40:
            policy.save(tmp_path / "policy")
            again = undertow.load(tmp_path / "policy")
            assert isinstance(again, LearningPolicy)
            assert again.pending > 0
            others.append(again)
        decisions = [step(one, path, t, learn=False) for one in others]
        assert len({unnamed(decision) for decision in decisions}) == 1
        waiting.append(decisions[0])
        for decision in [decision for decision in waiting if decision.round + decision.round % 9 <= t]:
            waiting.remove(decision)
            for one in others:
                one.learn(id_at(one, decision.round), reward(path, decision))
    again = others[1]
    np.testing.assert_array_equal(policy.parts.player.state, again.parts.player.state)
    assert repr(policy.health().fits) == repr(again.health().fits)
    assert len([record for record in policy.health().fits if record.round > 40]) > 3
    ours, theirs = (arrays_of((learner_of(one).late,), one.parts.sizes) for one in (policy, again))
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name], err_msg=name)


def test_a_learner_that_is_saved_often_keeps_the_same_marks() -> None:
    """For late rewards, once these come at once again: marks to go back to are then kept more often."""
    path = three_arms().sample(300, rng=1)
    policy, again = build(LearnedKalman, path), build(LearnedKalman, path)
    waiting: list[Decision] = []
    for t in range(300):
        if t % 7 == 3:
            loaded = undertow.from_bytes(again.to_bytes())
            assert isinstance(loaded, LearnedKalman)
            again = loaded
        decision, _ = (step(one, path, t, learn=False) for one in (policy, again))
        waiting.append(decision)
        while waiting and (t >= 150 or waiting[0].round <= t - 60):
            decision = waiting.pop(0)
            for one in (policy, again):
                one.learn(id_at(one, decision.round), reward(path, decision))
    ours, theirs = (arrays_of((learner_of(one).late,), one.parts.sizes) for one in (policy, again))
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name], err_msg=name)


def test_a_saved_learner_drops_the_same_rounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a new arm begins with depends on how far back the log goes."""
    monkeypatch.setattr(refits, "LONGEST", 40)
    path = three_arms().sample(200, rng=1)
    policy = build(LearnedKalman, path, max_delay=10)
    play(policy, path, 0, 70)
    policy.save(tmp_path / "policy")
    again = undertow.load(tmp_path / "policy")
    assert isinstance(again, LearnedKalman)
    for t in range(70, 200):
        for one in (policy, again):
            step(one, path, t)
        assert learner_of(again).log.begin == learner_of(policy).log.begin
    for one in (policy, again):
        one.add_arm("another")
    np.testing.assert_array_equal(again.decide().width, policy.decide().width)


def spoil(file: Path, **arrays: Any) -> None:
    """Replace arrays of a save file; None takes one out."""
    with np.load(file) as archive:
        entries = {name: archive[name] for name in archive.files} | arrays
    with file.open("wb") as target:
        np.savez(target, **{name: value for name, value in entries.items() if value is not None})


def saved(tmp_path: Path) -> tuple[LearnedKalman, Path]:
    path = three_arms().sample(40, rng=1)
    policy = LearnedKalman(arms=3, context_dim=2, refit="inline", rng=0)
    for t in range(40):
        step(policy, path, t)
    policy.save(tmp_path / "policy")
    return policy, tmp_path / "policy"


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"log_rows": np.zeros((40, 3))}, "damaged"),
        ({"log_rows": None}, "damaged .*log_rows"),
        ({"log_begin": np.empty(0)}, "damaged"),
        ({"log_room": np.array([1.0])}, "damaged .*log_room"),
        ({"log_room": np.array([1e9])}, "damaged .*log_room"),
        ({"past_0_rounds": np.zeros(7)}, "damaged"),
        ({"past_0_blocks": None}, "damaged .*past_0_blocks"),
        ({"past_0": np.array([0.0, 3.0, -1.0])}, "damaged .*past_0: expected 0 rounds"),
        ({"past_0": np.array([0.0, -1.0, 99.0])}, "damaged .*past_0: expected late rewards of rounds in the log"),
        ({"savings": np.array([0.0, 99.0, 0.0])}, "damaged .*savings: expected those of 40 rounds, got 99"),
        ({"fit_records": np.zeros(3)}, "damaged"),
        ({"fit_records": None}, "damaged .*fit_records"),
        ({"state": np.zeros(9)}, "damaged .*state: expected"),
        (
            {"task_0": np.zeros(5), "task_0_rows": np.zeros((9, 4)), "task_0_block": np.zeros(9)},
            "task_0: expected shape",
        ),
    ],
)
def test_a_damaged_file_is_refused(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    _, file = saved(tmp_path)
    spoil(file, **arrays)
    with pytest.raises(InvalidInputError, match=message):
        undertow.load(file)


@pytest.mark.parametrize(
    "part", ["log too short", "log elsewhere", "past too short", "number of arms", "size of a block"]
)
def test_a_file_whose_parts_do_not_fit_is_refused(part: str, tmp_path: Path) -> None:
    policy, file = saved(tmp_path)
    state, learner = policy.parts.player.state.copy(), learner_of(policy)
    match part:
        case "log too short":
            spoil(file, log_rows=np.zeros((10, 4)))
        case "log elsewhere":
            spoil(file, log_begin=np.array([5.0]))
        case "past too short":
            spoil(file, past_0_blocks=np.zeros((1, 3)))
        case "number of arms":
            policy.loop.layout.open(state).common.sizes.k = 100
            spoil(file, state=state)
        case "size of a block":
            learner.open_blocks(state)[0].model.head.length = 0
            spoil(file, state=state)
    with pytest.raises(InvalidInputError, match="damaged"):
        undertow.load(file)


# Fits in the background


class Gate:
    """Stands in for a fit: waits until it is opened, and counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failure: Exception | None = None) -> None:
        self.open, self.tasks, self.fit, self.failure = threading.Event(), list[Task](), SharedSystem.fit, failure
        gate = self

        def wait(model: SharedSystem, task: Task) -> Fit:
            gate.tasks.append(task)
            assert gate.open.wait(60)
            if gate.failure is not None:
                raise gate.failure
            return gate.fit(model, task)

        monkeypatch.setattr(SharedSystem, "fit", wait)

    def begun(self) -> list[int]:
        """Wait until the thread has taken up a fit; return the rounds of those it has."""
        end = time.monotonic() + 60
        while not self.tasks:
            assert time.monotonic() < end
            time.sleep(0.001)
        return [task.round for task in self.tasks]


def answered(policy: LearningPolicy) -> None:
    """Wait for the fits that are under way."""
    end = time.monotonic() + 60
    fits = learner_of(policy).fits
    while len(fits.arrived(policy.round)) < len(fits.under_way.keys() - fits.taken):
        assert time.monotonic() < end
        time.sleep(0.001)


def take_in(policy: LearningPolicy) -> None:
    """Take in the fits that are ready, as every decision does first."""
    timeline = policy.parts.timeline
    for event in timeline.arrived():
        timeline.install(event)
    timeline.prepare(policy.round)


@both_orders
def test_a_decision_never_waits_for_a_fit(context_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path = three_arms().sample(60, rng=1)
    gate = Gate(monkeypatch)
    policy = build(LearnedKalman, path, refit="background", context_first=context_first)
    decisions = [step(policy, path, t) for t in range(30)]
    assert gate.begun() == [6]
    assert policy.health().under_way == ("shared system",)
    assert policy.model is None
    assert decisions[-1].why is not None
    assert decisions[-1].why.model == "start-up"
    gate.open.set()
    answered(policy)
    fit_next(policy, math.inf)
    if context_first:
        policy.observe(path.contexts[30])
    decision = policy.decide()
    assert decision.why.model == "shared system"
    assert decision.why.since_fit == 24
    assert policy.health().under_way == ()

    model, own = learner_of(policy).models[0], learner_of(policy).blocks[0]
    assert isinstance(model, SharedSystem)
    twin = SharedTwin(model.open(gate.fit(model, gate.tasks[0]).block))
    for t in range(6, 30):  # what came in between
        twin.begin()
        if context_first:
            twin.observe(path.contexts[t])
        twin.learn(decisions[t].arm, reward(path, decisions[t]))
        if not context_first:
            twin.observe(path.contexts[t])
    twin.begin()
    if context_first:
        twin.observe(path.contexts[30])
    twin.agrees_with(own)
    np.testing.assert_allclose(decision.forecast, twin.forecast(30)[0], atol=1e-9)


def test_background_fits_that_keep_up_are_the_same_as_inline_ones() -> None:
    """Where every fit is over before the next round, the model is one round older and otherwise the same."""
    path = three_arms().sample(40, rng=1)
    policy, inline = (build(LearnedKalman, path, refit=refit) for refit in ("background", "inline"))
    for one in (policy, inline):
        take_turns(one)
    for t in range(40):
        step(policy, path, t)
        answered(policy)
        step(inline, path, t)
    take_in(policy)
    ours, theirs = policy.health().fits, inline.health().fits
    assert [(r.model, r.round, r.order) for r in ours] == [(r.model, r.round, r.order) for r in theirs]
    np.testing.assert_allclose([r.log_likelihood for r in ours], [r.log_likelihood for r in theirs], rtol=1e-9)
    believe_the_same(policy, inline)


def test_a_background_fit_that_fails_is_reported_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    path = three_arms().sample(60, rng=1)
    policy, twin = (build(LearnedKalman, path, refit=refit) for refit in ("background", "inline"))
    learner_of(policy).refit = "inline"
    for t in range(40):
        step(policy, path, t)
        step(twin, path, t)
    fit_next(twin, math.inf)
    learner_of(policy).refit = "background"
    fit_next(policy, 40)
    gate = Gate(monkeypatch, ValueError("no such luck"))
    for t in range(40, 50):
        assert step(policy, path, t).arm == step(twin, path, t).arm
    gate.open.set()
    answered(policy)
    fit_next(policy, math.inf)
    with pytest.warns(RuntimeWarning) as warned:
        step(policy, path, 50)
    assert len(warned) == 1
    assert "the fit of the shared system at round 40 failed (ValueError('no such luck'))" in str(warned[0].message)
    step(twin, path, 50)
    for t in range(51, 60):  # no further warning: that would be an error
        one, two = step(policy, path, t), step(twin, path, t)
        np.testing.assert_array_equal(one.forecast, two.forecast)
    record = policy.health().fits[-1]
    assert (record.model, record.round, record.failure) == ("shared system", 40, "ValueError('no such luck')")
    assert policy.health().under_way == ()


@every_learner
@pytest.mark.parametrize("context_first", [False, True])
def test_a_fit_under_way_hears_of_a_reward_from_before_it(learner: Any, context_first: bool) -> None:
    """The fit begins at round 40; the reward of round 38 comes when it is made and not yet in use."""
    path = three_arms().sample(60, rng=1)
    policy = build(learner, path, context_first=context_first)
    late = [step(policy, path, t, learn=t != 38) for t in range(40)][38]
    learner_of(policy).refit = "background"
    fit_next(policy, 40)
    step(policy, path, 40)
    answered(policy)
    learner, fits = learner_of(policy), learner_of(policy).fits
    made = {fits.numbers[event.model]: np.frombuffer(event.block).copy() for event in fits.arrived(policy.round)}
    assert len(made) == len(learner.models)
    policy.learn(late, 50.0)
    for t in (41, 42):
        step(policy, path, t)
    assert not fits.under_way
    settle(policy)
    expected = []
    for number, model in enumerate(learner.models):
        model.believe(made[number], learner.log.rows(int(model.open(made[number]).model.head.begin), 40), 40)
        expected.append(model.led(made[number], learner.log.rows(40, 43), Span(40, 43, 40, 43)))
    for one, two in zip(beliefs(policy), beliefs(policy, expected), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-9)


def test_a_fit_that_fails_upon_an_alarm_is_not_made_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    path = three_arms().sample(120, rng=1)
    louder = Trajectory(path.contexts, np.vstack([path.rewards[:60], 30 * path.rewards[60:]]))
    policy = build(LearnedKalman, louder)
    play(policy, louder, 0, 60)
    fit_next(policy, math.inf)
    Gate(monkeypatch, ValueError("no such luck")).open.set()
    with pytest.warns(RuntimeWarning, match="failed"):
        play(policy, louder, 60, 120)
    failed = [record.round for record in policy.health().fits if record.failure]
    assert len(failed) >= 1
    assert (np.diff(failed) >= 32).all()


def test_whatever_fails_on_the_thread_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError("no room")

    path = three_arms().sample(30, rng=1)
    policy = build(LearnedKalman, path, refit="background")
    with monkeypatch.context() as patch:
        patch.setattr(SharedSystem, "catch_up", fail)
        play(policy, path, 0, 7)
        answered(policy)
        with pytest.warns(RuntimeWarning, match="no room"):
            step(policy, path, 7)
    play(policy, path, 8, 12)
    answered(policy)
    take_in(policy)
    assert policy.model is not None


def test_a_forked_process_makes_its_own_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork takes the policy along and not its thread; here the process merely changes its number."""
    path = three_arms().sample(20, rng=1)
    policy = build(LearnedKalman, path, refit="background")
    gate = Gate(monkeypatch)
    play(policy, path, 0, 7)
    gate.begun()
    monkeypatch.setattr("os.getpid", lambda: -1)
    play(policy, path, 7, 9)
    gate.open.set()
    answered(policy)
    take_in(policy)
    assert len(gate.tasks) == 2
    assert policy.model is not None


def fitting_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "undertow-fits"}


@pytest.fixture
def no_threads() -> None:
    """Have no policy left that other tests made."""
    gc.collect()
    for thread in fitting_threads():
        thread.join(60)


@pytest.mark.usefixtures("no_threads")
def test_policies_share_a_few_threads_which_end_with_the_last_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    gate = Gate(monkeypatch)
    path = three_arms().sample(8, rng=1)
    policies = [build(LearnedKalman, path, refit="background") for _ in range(6)]
    for policy in policies:
        play(policy, path, 0, 8)
    assert len(fitting_threads()) == 2
    policies[0].add_arm("another")  # its fit is made again, with the arm
    gate.begun()
    del policies[2:], policy
    gc.collect()
    gate.open.set()
    policies[0].decide()
    for policy in policies:
        answered(policy)
        take_in(policy)
        assert policy.model is not None
    assert len(gate.tasks) <= 4  # what waited for a thread when its policy was gone was not made
    threads = fitting_threads()
    assert len(threads) == 2
    policies.clear()
    del policy
    gc.collect()
    for thread in threads:
        thread.join(60)
    assert not fitting_threads()


@pytest.mark.usefixtures("no_threads")
def test_a_thread_that_collects_garbage_before_it_runs_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Owner:
        pass

    start, done = threading.Thread.start, threading.Event()
    owner, garbage = Owner(), [Owner()]
    crew = shared_threads(owner)
    shared_threads(garbage[0])

    def start_late(thread: threading.Thread) -> None:
        collector = threading.Thread(target=garbage.clear)
        start(collector)
        collector.join(10)
        assert not collector.is_alive()
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_late)
        crew.do(done.set)
    assert done.wait(60)
    threads = fitting_threads()
    assert threads
    del owner
    for thread in threads:
        thread.join(60)
    assert crew.disbanded
    assert not fitting_threads()


@pytest.mark.usefixtures("no_threads")
def test_without_a_thread_to_be_had_fits_are_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    path = three_arms().sample(8, rng=1)
    policy = build(LearnedKalman, path, refit="background")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        play(policy, path, 0, 8)
    assert policy.model is not None
    assert not fitting_threads()


def test_short_fits_are_made_inline_and_long_ones_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, path = Gate(monkeypatch), three_arms().sample(30, rng=1)
    gate.open.set()
    work = 19_000.0
    monkeypatch.setattr(SharedSystem, "work", lambda *_: work)
    policy = build(LearnedKalman, path, refit="auto")
    play(policy, path, 0, 7)
    assert [record.round for record in policy.health().fits] == [6]
    gate.open.clear()
    work = 21_000.0
    play(policy, path, 7, 12)
    assert policy.health().under_way == ("shared system",)
    gate.open.set()
    answered(policy)
    take_in(policy)
    assert [record.round for record in policy.health().fits] == [6, 9]


def test_fits_of_one_decision_are_short_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shared system takes 15 ms of 20, so that the levels are fitted elsewhere."""
    path = three_arms().sample(12, rng=1)
    monkeypatch.setattr(SharedSystem, "work", lambda *_: 15_000.0)
    monkeypatch.setattr(Levels, "work", lambda *_: 6_000.0)
    policy = build(Autopilot, path, refit="auto")
    play(policy, path, 0, 9)
    assert len(policy.models) == 4  # nothing can be decided without a first fit, so that is inline
    policy.decide()
    assert [record.model for record in policy.health().fits if record.round == 9] == ["shared system"]
    assert "structural levels" in policy.health().under_way


def test_the_first_rounds_are_repeatable_by_default() -> None:
    path = three_arms().sample(60, rng=1)
    one, two = (build(Autopilot, path, refit="auto") for _ in range(2))
    simulated = undertow.simulate(build(Autopilot, path), path)
    for t in range(60):
        first, second = step(one, path, t), step(two, path, t)
        assert unnamed(first) == unnamed(second)
        assert first.arm == simulated.arms[t]


@every_learner
def test_the_work_of_a_fit_grows_with_rounds_and_arms(learner: Any) -> None:
    def work(rounds: int, arms: int) -> float:
        policy = learner(arms=arms, rng=0)
        (model, *_), log = learner_of(policy).models, learner_of(policy).log
        log.open(rounds - 1)
        return float(model.work(Task(rounds, 0, log.rows(0, rounds), model.block(), (0,))))

    assert 0 < work(10, 3) < work(1000, 3)
    assert work(1000, 3) < work(1000, 40)
    assert work(10, 3) < 20_000


def test_a_late_reward_leaves_the_count_of_alarms() -> None:
    path = three_arms().sample(30, rng=1)
    policy = build(LearnedKalman, path)
    decisions = [step(policy, path, t, learn=t != 20) for t in range(30)]
    models_of(policy)[0].running.alarms = 3
    policy.learn(decisions[20], 1.0)
    assert policy.health().alarms == {"shared system": 3}


def test_one_very_late_reward_is_forgotten_in_time() -> None:
    """How far back a model fitted in the background waits for rewards follows how late they have been lately."""
    path = three_arms().sample(30, rng=1)
    policy = build(LearnedKalman, path)
    first = step(policy, path, 0, learn=False)
    for t in range(1, 11):
        step(policy, path, t)
    policy.learn(first, 1.0)
    assert learner_of(policy).latest == 10
    for t in range(11, 30):
        step(policy, path, t)
    assert learner_of(policy).latest == 0


def test_an_inline_fit_that_fails_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    path = three_arms().sample(60, rng=1)
    policy = build(LearnedKalman, path)
    gate = Gate(monkeypatch, ValueError("no such luck"))
    gate.open.set()
    with pytest.warns(RuntimeWarning, match="at round 6 failed"):
        play(policy, path, 0, 7)
    gate.failure = None
    play(policy, path, 7, 12)
    assert [(record.round, record.failure is None) for record in policy.health().fits] == [(6, False), (9, True)]


def test_a_fit_under_way_survives_a_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = three_arms().sample(60, rng=1)
    gate = Gate(monkeypatch)
    policy = build(LearnedKalman, path, refit="background")
    for t in range(10):
        step(policy, path, t)
    policy.save(tmp_path / "policy")
    again = undertow.load(tmp_path / "policy")
    assert isinstance(again, LearningPolicy)
    assert again.health().under_way == ("shared system",)
    for one in (policy, again):
        step(one, path, 10)
    gate.open.set()
    for one in (policy, again):
        answered(one)
        fit_next(one, math.inf)
    assert len(gate.tasks) == 2
    assert gate.tasks[0].seed == gate.tasks[1].seed
    for t in range(11, 30):
        one, two = step(policy, path, t), step(again, path, t)
        assert unnamed(one) == unnamed(two)
    assert [record.round for record in again.health().fits] == [6]
    assert again.health().under_way == ()


def test_a_late_reward_does_not_start_a_second_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    path = three_arms().sample(60, rng=1)
    gate = Gate(monkeypatch)
    policy = build(LearnedKalman, path, refit="background")
    decisions = [step(policy, path, t, learn=t != 4) for t in range(8)]
    policy.learn(decisions[4], 1.0)
    running = models_of(policy)[0].running
    busy, fits = running.busy, running.fits
    step(policy, path, 8)
    gate.open.set()
    answered(policy)
    assert (busy, fits) == (1, 1)
    assert [task.round for task in gate.tasks] == [6]


def test_a_late_reward_after_a_failure_does_not_stop_the_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    path = three_arms().sample(90, rng=1)
    gate = Gate(monkeypatch, ValueError("no such luck"))
    policy = build(LearnedKalman, path, refit="background")
    decisions = [step(policy, path, t, learn=t != 75) for t in range(80)]
    gate.open.set()
    answered(policy)
    fit_next(policy, 85)
    with pytest.warns(RuntimeWarning, match="no such luck"):
        step(policy, path, 80)
    assert models_of(policy)[0].running.busy == 0
    policy.learn(decisions[75], 1.0)
    assert policy.health().under_way == ()
    assert models_of(policy)[0].running.busy == 0


def test_a_model_that_catches_up_is_not_scored_again(monkeypatch: pytest.MonkeyPatch) -> None:
    path = three_arms().sample(60, rng=1)
    policy = build(LearnedKalman, path)
    for t in range(30):
        step(policy, path, t)
    gate = Gate(monkeypatch)
    learner_of(policy).refit = "background"
    fit_next(policy, 30)
    for t in range(30, 40):
        step(policy, path, t)
    gate.open.set()
    answered(policy)
    fit_next(policy, math.inf)
    score = models_of(policy)[0].score
    before = list(score)
    assert score.count == 34
    assert policy.decide().why.since_fit == 10
    assert list(score) == before


def test_autopilot_makes_its_fits_in_the_background() -> None:
    path = with_features(three_arms().sample(60, rng=1))
    policy = build(Autopilot, path, refit="background")
    for t in range(60):
        decision = step(policy, path, t)
        assert np.isfinite(decision.forecast).all()
        answered(policy)
    assert {record.model for record in policy.health().fits} == {model.name for model in learner_of(policy).models}
    assert all(record.failure is None for record in policy.health().fits)
    assert policy.model is not None


def test_a_model_that_was_fitted_during_a_pause_catches_up_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Trajectory(None, three_arms().sample(60, rng=1).rewards)
    gate = Gate(monkeypatch)
    policy = build(LearnedKalman, path, refit="background")
    play(policy, path, 0, 10)
    policy.skip(20)
    gate.open.set()
    answered(policy)
    fit_next(policy, math.inf)
    policy.decide()
    assert models_of(policy)[0].score.count == 4  # rounds 6 to 9 had rewards; the pause had none


@pytest.mark.parametrize("late", [False, True])
def test_a_fitted_model_catches_up_a_slice_at_a_time(late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One policy takes 32 rounds at a time, the other all at once; the first may miss a late reward on the way."""
    path = three_arms().sample(130, rng=1)
    gate = Gate(monkeypatch)
    policies = [build(LearnedKalman, path, refit="background") for _ in range(2)]
    missing = []
    for policy in policies:
        take_turns(policy)
        for t in range(106):
            decision = policy.decide()
            if t == 20:
                missing.append(decision)
            else:
                policy.learn(decision, reward(path, decision))
            policy.observe(path.contexts[t])
    gate.open.set()
    for policy in policies:
        answered(policy)
        fit_next(policy, math.inf)
    gate.open.clear()  # for the fit that follows upon an alarm
    for policy, decision, slice_ in zip(policies, missing, (32, 1000), strict=True):
        monkeypatch.setattr("undertow.learning.fits._SLICE", slice_)
        if late and slice_ == 1000:  # it has the reward before it begins
            policy.learn(decision, reward(path, decision))
        for t in range(106, 116):
            last = 106 if slice_ == 1000 else 109  # fitted at round 6: 100 rounds are four slices
            assert bool(policy.models) == (t > last)
            step(policy, path, t)
            if late and slice_ == 32 and t == 107:
                policy.learn(decision, reward(path, decision))
    believe_the_same(*policies)
    gate.open.set()


def test_runs_of_a_simulation_make_their_fits_inline() -> None:
    path = three_arms().sample(60, rng=1)
    one, two = (
        undertow.simulate(build(LearnedKalman, path, refit=refit), path, record=["forecasts"])
        for refit in ("background", "inline")
    )
    np.testing.assert_array_equal(one.forecasts, two.forecasts)


# Bounded memory


@every_learner
def test_memory_is_bounded(learner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refits, "LONGEST", 300)
    base = three_arms().sample(400, rng=1)
    path = Trajectory(base.contexts, base.rewards)
    policy = build(learner, path, max_delay=200, max_pending=50)
    learner, state, keep = learner_of(policy), policy.parts.player.state, 500
    log = learner.log
    for t in range(400):
        step(policy, path, t, learn=t % 5 > 0)
        if t % 100 == 99:
            policy.skip(400 if t < 300 else 3000)
        assert policy.parts.player.state is state
        assert log.room <= 2 * keep
        assert log.end - log.begin >= min(policy.round, keep)
        assert all(len(past.marks) <= 8 for past in learner.late.past.values())
        assert policy.pending <= 50
    assert policy.round == 400 + 3 * 400 + 3000
    assert len(policy.health().fits) <= 50


def test_autopilot_takes_little_memory() -> None:
    """After 25,000 rounds with three arms and a context entry at most 1.5 MB; late rewards cost a little more."""
    path = three_arms().sample(60, rng=1)
    policy = trained(Autopilot, Trajectory(path.contexts[:, :1], path.rewards), 60)
    first = policy.parts.nbytes
    policy.skip(24_940, np.zeros((24_940, 1)))
    assert first < policy.parts.nbytes <= 1.5e6
    assert policy.parts.nbytes > nbytes_of([learner_of(policy).log]) + policy.parts.player.state.nbytes


def test_a_long_log_is_cut_in_a_warm_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refits, "LONGEST", 100)
    path = three_arms().sample(500, rng=1)
    arms = np.arange(500) % 3
    policy = LearnedKalman(arms=3, context_dim=2, max_delay=20, rng=0)
    policy.warm_start(arms, path.rewards[np.arange(500), arms], contexts=path.contexts)
    log = learner_of(policy).log
    assert log.end - log.begin == 120
    np.testing.assert_array_equal(log.rows(400, 500)[:, :2], path.contexts[400:])
    assert policy.decide().round == 500


# Alarms


def test_an_abrupt_change_raises_the_alarm_and_the_past_is_dropped() -> None:
    before = random_system(2, 2, 2, rng=0, spectral_radius=0.9).sample(400, rng=0)
    after = random_system(2, 2, 2, rng=1, spectral_radius=0.9).sample(300, rng=1)
    contexts, rewards = (
        np.vstack([one, 4 * two]) for one, two in ((before.contexts, after.contexts), (before.rewards, after.rewards))
    )
    path = Trajectory(contexts, rewards)
    policy = LearnedKalman(arms=2, context_dim=2, rng=0)
    for t in range(400):
        step(policy, path, t)
    assert policy.health().alarms == {"shared system": 0}
    for t in range(400, 700):
        step(policy, path, t)
    assert policy.health().alarms["shared system"] >= 1
    assert 300 < models_of(policy)[0].head.begin < 480
    assert any(400 < record.round < 480 for record in policy.health().fits)
    assert models_of(policy)[0].alarm.raised == 0
    assert 0.3 < policy.health().level["shared system"] < 2


@pytest.mark.parametrize("seed", range(10))
def test_a_stationary_system_is_never_dropped(seed: int) -> None:
    path = paper_system(2).sample(1500, rng=seed)
    policy = LearnedKalman(arms=2, context_dim=1, rng=seed)
    for t in range(1500):
        step(policy, path, t)
    assert models_of(policy)[0].head.begin == 0


@pytest.mark.parametrize("seed", range(8))
def test_single_outliers_do_not_make_it_forget(seed: int) -> None:
    base = three_arms().sample(300, rng=seed)
    rewards = base.rewards.copy()
    rewards[50::50] += 30.0
    path = Trajectory(base.contexts, rewards)
    policy = LearnedKalman(arms=3, context_dim=2, rng=0)
    for t in range(300):
        step(policy, path, t)
    assert models_of(policy)[0].head.begin == 0


def test_an_alarm_long_after_the_last_reward_does_not_stop_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refits, "LONGEST", 100)
    path = three_arms().sample(60, rng=1)
    policy = LearnedKalman(arms=3, context_dim=2, rng=0)
    for t in range(60):
        step(policy, path, t)
    policy.skip(200, np.full((200, 2), 50.0))
    assert models_of(policy)[0].alarm.level > 2
    learner = learner_of(policy)
    attend, calls = learner.attend, []

    def counted() -> None:
        calls.append(1)
        if len(calls) > 100:
            raise RuntimeError("asked a hundred times")
        attend()

    monkeypatch.setattr(learner, "attend", counted)
    assert np.isfinite(policy.decide().forecast).all()
    assert calls


def test_the_log_tells_of_fits_alarms_and_who_decides(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = three_arms().sample(120, rng=1)
    louder = Trajectory(path.contexts, np.vstack([path.rewards[:60], 30 * path.rewards[60:]]))
    policy = build(LearnedKalman, louder)
    with caplog.at_level("INFO", logger="undertow"):
        play(policy, louder, 0, 60)
        fit_next(policy, math.inf)
        Gate(monkeypatch, ValueError("no such luck")).open.set()
        with pytest.warns(RuntimeWarning, match="failed"):
            play(policy, louder, 60, 120)
    told = [(record.name, record.levelname, record.getMessage()) for record in caplog.records]
    fits = [text for name, level, text in told if (name, level) == ("undertow.fits", "INFO")]
    assert len(fits) == len([record for record in policy.health().fits if record.failure is None])
    assert fits[0].startswith("fitted the shared system at round 6: order ")
    assert fits[0].endswith(" ms for 6 rounds")
    failed = [text for name, level, text in told if (name, level) == ("undertow.fits", "WARNING")]
    assert failed
    assert all("no such luck" in text for text in failed)
    alarms = [text for name, level, text in told if name == "undertow.alarms"]
    assert alarms[0].startswith("from round 6 on, decisions by shared system (lead ")
    assert (
        len([text for text in alarms if text.startswith("alarm at round ")]) == policy.health().alarms["shared system"]
    )


def test_health_can_be_written_down() -> None:
    path = three_arms().sample(30, rng=1)
    policy = Autopilot(arms=3, context_dim=2, rng=0)
    for t in range(30):
        step(policy, path, t)
    health = policy.health()
    text = json.dumps(
        [health.level, health.alarms, health.fits, {a: b.tolist() for a, b in health.innovations.items()}]
    )
    assert json.loads(text)[1] == {"shared system": 0, "structural levels": 0, "ridge": 0, "constant arms": 0}


def test_late_rewards_decide_the_same_in_any_unit() -> None:
    """A model that has heard of more rewards than another, whose own are still on their way, gains nothing by it."""

    def played(unit: float) -> tuple[list[int], list[str]]:
        policy, draw, due = Autopilot(arms=3, refit="inline", rng=5), np.random.default_rng(5), list[Any]()
        chances = np.clip(0.5 + 0.02 * np.cumsum(draw.standard_normal((500, 3)), axis=0), 0.05, 0.95)
        answers, arms, models = (draw.random((500, 3)) < chances).astype(float), list[int](), list[str]()
        for t in range(500):
            decision = policy.decide()
            due.append((decision, unit * answers[t, decision.arm]))
            arms.append(decision.arm)
            models.append(decision.why.model if decision.why else "")
            if t >= 40:
                policy.learn(*due.pop(0))
        return arms, models

    usual = played(1.0)
    assert len(set(usual[1])) > 2
    assert played(1024.0) == usual
    assert played(1 / 1024) == usual
