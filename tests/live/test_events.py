"""Events: whoever applies them has the same policy, and a call that is made again is answered."""

import copy
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import folded
import undertow
from digests import SYSTEM, digest
from folded import FORMS
from helpers import LIVE, learner_of, make_policy, unnamed
from tools.frames import measured
from undertow import InvalidInputError, UnknownDecisionError
from undertow.learning import fits as fits_module
from undertow.learning.policy import LearningPolicy
from undertow.live.events import Decided, Event, Installed, Observed, Recalled, Rewarded, Skipped, decode, encode
from undertow.live.fields import Number, arrays_of
from undertow.live.files import restored, snapshot
from undertow.live.rounds import Turns
from undertow.models.model import Fit
from undertow.policies import UCB, Autopilot, LearnedKalman, LivePolicy, StructuralKalman

ROUNDS = 90
PATH = SYSTEM.sample(ROUNDS, rng=5)
every_learner = pytest.mark.parametrize("learner", [LearnedKalman, StructuralKalman, Autopilot])


def test_another_process_folds_the_same_policy(tmp_path: Path) -> None:
    """Every policy, with everything that can happen to it; the events go through JSON."""
    runs, expected = {}, {}
    for name in LIVE:
        for form in FORMS:
            policy, checkpoint, events = folded.played(name, form)
            runs[f"{name} {form}"] = checkpoint, events
            expected[f"{name} {form}"] = folded.digest(policy)
    folded.write(tmp_path / "runs", runs)
    program = [sys.executable, folded.__file__, str(tmp_path / "runs")]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == expected


@pytest.mark.parametrize("event", [
    Decided(id="x", round=3, arm=1, propensity=0.25, features=np.array([[0.5, -0.0], [1e300, 2.0]]), available=(0, 1)),
    Observed(context=np.array([1.5, np.nan])),
    Observed(context=None),
    Recalled(id="x", round=3, arm=1, memory=np.array([np.inf, 1.0, -np.inf, np.nan])),
    Skipped(rounds=2, contexts=np.array([[1.0, 2.0], [np.nan, 4.0]])),
    Installed(model="ridge", requested=6, round=9, log_likelihood=-3.5, block=np.array([np.nan, np.inf]).tobytes()),
])  # fmt: skip
def test_events_come_back_from_json_to_the_bit(event: Event) -> None:
    again = decode(encode(event))
    assert encode(again) == encode(event)
    for name, value in msgspec.structs.asdict(event).items():
        other = getattr(again, name)
        assert other.tobytes() == value.tobytes() if isinstance(value, np.ndarray) else other == value


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"event": "moved"}', '{"event": "rewarded", "id": "x"}', '{"event": "rewarded", "id": 1}',
     '{"event": "observed", "context": ["1"]}', '{"event": "observed", "context": [[1], [1, 2]]}',
     '{"event": "rewarded", "id": "x", "reward": 1, "more": 2}', '{"event": "rewarded", "version": 2}', "[" * 100_000],
)  # fmt: skip
def test_what_is_no_event_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="event: expected JSON from encode"):
        decode(text)


def test_a_follower_plays_the_arms_of_the_events() -> None:
    """Whatever it would have chosen: here it explores another way."""
    leader, follower = (make_policy("linucb", SYSTEM, rng=0, exploration=how) for how in (0.1, 3.0))
    log: list[Event] = []
    leader.events(log.append)
    for t in range(80):
        decision = leader.decide(available=[0, 2] if t % 5 == 4 else None)
        leader.observe(PATH.contexts[t])
        leader.learn(decision, float(PATH.rewards[t, decision.arm]))
    told: list[Event] = []
    follower.events(told.append)
    for event in log:
        follower.follow(event)
    arms = [[event.arm for event in events if isinstance(event, Decided)] for events in (log, told)]
    assert arms[0] == arms[1]
    assert (follower.round, follower.pending) == (80, 0)
    alone = [event.available for event in told if isinstance(event, Decided) and len(event.available or (0, 1)) == 1]
    assert alone  # in these rounds it would have chosen another arm
    follower.parts.player.state[:] = 0.0
    follower._journal.torn = True  # noqa: SLF001 (as an interrupted call leaves it)
    assert follower.round == 80


@pytest.mark.parametrize("context_first", [False, True])
@pytest.mark.parametrize("more", [{}, {"max_delay": 2}, {"default_reward": 0.5, "max_wait": 2}])
def test_a_look_changes_nothing(context_first: bool, more: dict[str, Any]) -> None:
    """A late reward may reach the state at a look, or later; arms are retired and contexts skipped in between."""
    alone, looked_at = (make_policy("idea", SYSTEM, rng=0, context_first=context_first, **more) for _ in range(2))
    log: list[Event] = []
    alone.events(log.append)
    for t in range(0, ROUNDS, 6):
        made = []
        for context in PATH.contexts[t : t + 3]:
            made.append(alone.decide(context=context) if context_first else alone.decide())
            if not context_first:
                alone.observe(context)
        alone.learn(made[1], 1.0)
        (alone.add_arm if t % 4 else alone.retire_arm)("1")
        alone.skip(2, PATH.contexts[t + 3 : t + 5])
        alone.learn(made[2], -1.0)
        alone.skip(1, PATH.contexts[t + 5 : t + 6])
    for event in log:
        looked_at.follow(event)
        digest(looked_at)
    assert digest(looked_at) == digest(alone)


@pytest.mark.parametrize(
    "event",
    [
        Decided(id="another", round=1, arm=7, propensity=1.0),
        Decided(id="another", round=1, arm=-1, propensity=1.0),
        Decided(id="an order", round=1, arm=0, propensity=1.0),
        Decided(id="", round=1, arm=0, propensity=1.0),
        Decided(id="another", round=1, arm=0, propensity=1.0, features=np.zeros(2)),
        Rewarded(id="nobody", reward=1.0),
        Rewarded(id="an order", reward=float("nan")),
        Observed(context=np.zeros(3)),
        Skipped(rounds=0),
        Installed(model="ridge", requested=3, round=4),
        undertow.live.events.ArmAdded(name="0"),
        undertow.live.events.ArmRetired(name="nobody"),
        undertow.live.events.WarmStarted(rows=np.zeros((2, 5))),
        undertow.live.events.Reseeded(entropy="x"),
        "decided",
    ],
)
def test_an_event_that_cannot_be_is_refused(event: Any) -> None:
    policy = make_policy("linucb", SYSTEM, rng=0)
    policy.decide(id="an order")
    before = folded.digest(policy)
    with pytest.raises(undertow.UndertowError):
        policy.follow(event)
    assert folded.digest(policy) == before


def test_a_listener_that_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    policy, heard = make_policy("ucb", SYSTEM), list[Event]()

    def listen(event: Event) -> None:
        heard.append(event)
        raise ValueError("full")

    policy.decide()
    policy.events(listen)
    with caplog.at_level(logging.ERROR, "undertow.events"):
        policy.learn(policy.decide(), 1.0)
    assert [type(event) for event in heard] == [Decided, Rewarded]
    assert "a listener of events failed with Decided" in caplog.text
    twin = copy.deepcopy(policy)
    twin.decide()
    policy.events(None)
    policy.decide()
    assert len(heard) == 2
    with pytest.raises(InvalidInputError, match="listener: expected a function"):
        policy.events(7)  # type: ignore[arg-type]


def test_a_forked_process_tells_of_its_random_numbers() -> None:
    policy, log = make_policy("lints", SYSTEM), list[Event]()
    checkpoint = policy.to_bytes()
    policy.events(log.append)
    policy.decide()
    policy.observe(None)
    policy.parts.pending.forked = True  # as the hook of a forked process notes it
    policy.decide()
    assert folded.digest(undertow.fold(checkpoint, log)) == folded.digest(policy)


# Calls that are made again


@pytest.mark.parametrize("name", LIVE)
def test_the_same_call_is_answered_with_the_same_decision(name: str) -> None:
    policy = make_policy(name, SYSTEM, rng=0)
    m = policy.parts.turns.context_dim
    first = policy.decide(id="order 1", available=["0", "1"])
    if m:
        policy.observe([0.1, 0.2])
    later = policy.decide(id="order 2")
    policy.learn("order 1", 2.0)
    loaded = undertow.from_bytes(policy.to_bytes())
    for each in (policy, loaded):
        before = folded.digest(each)
        assert unnamed(each.decide(id="order 1", available=["0", "1"])) == unnamed(first)
        assert unnamed(each.decide(id="order 2")) == unnamed(later)
        each.learn("order 1", 2.0)
        each.learn_many(["order 1"], [2.0])
        assert folded.digest(each) == before
        with pytest.raises(UnknownDecisionError, match="learned already, and was 2; a reward cannot be changed"):
            each.learn("order 1", 3.0)
        with pytest.raises(InvalidInputError, match="id: 'order 1' was used before"):
            each.decide(id="order 1")
        assert folded.digest(each) == before
    policy.learn("order 2", 1.0)
    policy.learn_many(["order 1", "order 2"], [2.0, 1.0])


def test_answers_are_remembered_for_the_last_ids_that_may_wait() -> None:
    policy = make_policy("ucb", SYSTEM, max_pending=3)
    made = [policy.decide(id=f"order {t}") for t in range(200)]
    for t in (197, 198, 199):
        assert policy.decide(id=f"order {t}") is made[t]
        policy.learn(f"order {t}", 1.0)
        policy.learn(f"order {t}", 1.0)
    again = policy.decide(id="order 3")  # an id that was forgotten is a new one
    assert again.round == 200
    assert policy.pending == 1
    assert policy.decide(id="order 3") is again


# Fits in the background


@pytest.fixture
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
            fits = learner_of(policy).fits
            while len(fits.arrived(t)) < len(fits.under_way.keys() - fits.taken):
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


@every_learner
def test_a_run_is_repeated_from_its_events(learner: Any, gate: threading.Event) -> None:
    """From the start, and from checkpoints at random moments, models that catch up among them."""
    policy, waiting, log = build(learner), dict[int, str](), list[Event]()
    kept = [(policy.to_bytes(), 0)]
    policy.events(log.append)
    moments = np.sort(np.random.default_rng(1).choice(np.arange(8, ROUNDS), 8, replace=False)).tolist()
    begin, catching_up = 0, 0
    for moment in [*moments, ROUNDS]:
        play(policy, begin, moment, waiting, gate)
        kept.append((policy.to_bytes(), len(log)))
        catching_up += len(learner_of(policy).fits.taken)
        begin = moment
    installed = [event for event in log if isinstance(event, Installed)]
    assert {event.model for event in installed} == {model.name for model in policy.models}
    assert all(event.requested <= event.round < ROUNDS for event in installed)
    assert catching_up
    gate.set()
    for content, number in kept:
        assert digest(undertow.fold(content, map(decode, map(encode, log[number:])))) == digest(policy)


def test_a_fit_that_failed_is_an_event(monkeypatch: pytest.MonkeyPatch, gate: threading.Event) -> None:
    def fail(*_: object) -> Fit:
        raise ValueError("no such luck")

    monkeypatch.setattr("undertow.models.shared_system.model.SharedSystem.fit", fail)
    policy, log = build(LearnedKalman), list[Event]()
    content = policy.to_bytes()
    policy.events(log.append)
    with pytest.warns(RuntimeWarning, match="no such luck"):
        play(policy, 0, 20, {}, gate)
    assert [event.failure for event in log if isinstance(event, Installed)][:1] == ["ValueError('no such luck')"]
    assert digest(undertow.fold(content, log)) == digest(policy)


def test_a_snapshot_keeps_a_fit_as_it_was_begun(gate: threading.Event) -> None:
    """Rewards that came since are not in it: the fit would be another one."""
    gate.clear()
    policy, waiting = build(LearnedKalman), dict[int, str]()
    play(policy, 0, 8, waiting)
    begun = arrays_of((policy.parts.timeline.fits,), policy.parts.sizes)
    for then in list(waiting):
        policy.learn(waiting.pop(then), 9.0)
    again = snapshot(undertow.from_bytes(policy.to_bytes()))[1]
    gate.set()
    assert begun["task_0_rows"].shape == (6, 5)
    np.testing.assert_array_equal(again["task_0_rows"], begun["task_0_rows"])
    assert again["task_0"].tolist()[:7] == begun["task_0"].tolist()[:7]
    assert again["task_0"][7] == 0.0  # the oldest round whose reward has come since


def test_a_policy_can_be_saved_after_any_round(gate: threading.Event) -> None:
    """Also after the one in which its log has just grown."""
    gate.clear()
    policy, waiting = build(StructuralKalman), dict[int, str]()
    play(policy, 0, 60, waiting)
    for t in range(60, ROUNDS):
        play(policy, t, t + 1, waiting)
        assert undertow.from_bytes(policy.to_bytes()).round == t + 1
    gate.set()


def test_a_policy_with_one_more_arm_is_listened_to_as_before(gate: threading.Event) -> None:
    policy, log = build(LearnedKalman), list[Event]()
    policy.events(log.append)
    policy.add_arm("one more")
    play(policy, 0, 20, {}, gate)
    assert any(isinstance(event, Installed) for event in log)


def test_warm_starts_and_candidates_are_applied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm start is an event; a candidate of plain Python goes back to a copy of what it was."""

    class Mean:
        name = "mean"

        def __init__(self) -> None:
            self.sums, self.counts, self.asked = np.zeros(3), np.ones(3), 0

        def forecast(self, features: Any) -> Any:
            self.asked += 1
            return self.sums / self.counts, np.zeros(3), np.ones(3)

        def learn(self, round: int, arm: int, reward: float) -> None:
            self.sums[arm] += reward
            self.counts[arm] += 1

        def observe(self, context: Any) -> None:
            pass

    def make() -> Any:
        return Autopilot(arms=3, context_dim=2, context_first=True, rng=0, refit="inline", candidates=[Mean()])

    one, two = make(), make()
    for policy in (one, two):
        policy.warm_start(np.arange(12) % 3, PATH.rewards[:12, 0], contexts=PATH.contexts[:12])

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    for t in range(12, 30):
        if t % 4 == 2:
            with monkeypatch.context() as patch:
                patch.setattr(type(one), "_commit", stop)
                with pytest.raises(KeyboardInterrupt):
                    one.decide(context=PATH.contexts[t])
        first, second = (policy.decide(context=PATH.contexts[t]) for policy in (one, two))
        assert unnamed(first) == unnamed(second)
        for policy, decision in ((one, first), (two, second)):
            policy.learn(decision, float(PATH.rewards[t, decision.arm]))
    mine, theirs = (policy.parts.timeline.candidates[0] for policy in (one, two))
    assert mine.asked == theirs.asked
    assert mine.sums.tolist() == theirs.sums.tolist()


def test_one_more_remembered_number_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part names it; it goes back, is saved, loaded, checked and refused with everything else."""
    sung = Number("sung", file="sung", most="k-1")
    monkeypatch.setattr(Turns, "remembers", (*Turns.remembers, sung))
    monkeypatch.setattr(Turns, "sung", 0, raising=False)
    policy = make_policy("ucb", SYSTEM, rng=0)
    turns: Any = policy.parts.turns
    turns.sung = 1
    policy._checkpoint()  # noqa: SLF001
    turns.sung = 0
    policy._journal.torn = True  # noqa: SLF001 (as an interrupted call leaves it)
    assert policy.round == 0
    assert turns.sung == 1
    again: Any = undertow.from_bytes(policy.to_bytes()).parts.turns
    assert again.sung == 1
    header, arrays = snapshot(policy)
    with pytest.raises(InvalidInputError, match="sung: expected integers from 0 to 2"):
        restored("file", header, arrays | {"sung": np.array([3.0])})
    with pytest.raises(InvalidInputError, match="sung: expected an array, got none"):
        restored("file", header, {name: values for name, values in arrays.items() if name != "sung"})


def test_waiting_decisions_cost_a_checkpoint_nothing() -> None:
    """Between two checkpoints, entries are only added; what a checkpoint keeps of them is their number."""
    policy: LivePolicy = make_policy("ucb", SYSTEM)
    for _ in range(300):
        policy.decide()
    pending = policy.parts.pending
    for entries, length in pending.mark()[1]:
        assert len(entries) == length
    assert pending.mark()[1][0][0] is pending.entries


def test_a_call_is_as_short_as_the_page_says() -> None:
    """The table of docs/inside.md is what tools/frames.py prints."""
    page = (Path(__file__).parents[2] / "docs" / "inside.md").read_text(encoding="utf-8")
    for name, seen in measured().items():
        assert f"| {name} | {len(seen)} | {len({file for file, _ in seen})} |" in page


# Save files of the versions before

SAVED = {
    "version6-ucb": [0.2, 2.057142857142857],
    "version6-linucb": [1.5671910266873543, 1.8028166136083155],
    "version6-kalman-greedy": [-1.9119271100260562, -0.0601032920379621],
}


def test_older_save_files_of_learners_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"version 10, got 'undertow\.policy' version 7; load it"):
        undertow.load((Path(__file__).parents[1] / "saved") / "version7-structural-kalman.undertow")


NO_COSTS = {
    "version9-kalman-ucb": [0.67101088347169, 1.793809663014195],
    "version9-structural-kalman": [-0.6826948673109162, -0.9425973504426676],
    "version9-rexp3": [-0.07427993750297605, -1.2172228893099843],
}


@pytest.mark.parametrize("name", NO_COSTS)
def test_save_files_that_know_of_no_costs_load(name: str) -> None:
    """After 21 rounds; of every fourth the reward is missing."""
    policy = undertow.load((Path(__file__).parents[1] / "saved") / f"{name}.undertow")
    assert (policy.round, policy.pending, policy.pinned) == (21, 6, None)
    assert policy.costs == {"low": 0.0, "high": 0.0}
    np.testing.assert_allclose(policy.forecast().forecast, NO_COSTS[name], rtol=1e-6)
    policy.learn("order 16", 1.0)  # goes back to its round, and on from there
    again = undertow.from_bytes(policy.to_bytes())
    assert folded.digest(again) == folded.digest(policy)
    assert again.decide(id="order 19").round == 19  # as it was answered then


@pytest.mark.parametrize("name", SAVED)
def test_older_save_files_load(name: str) -> None:
    """After 21 rounds, in each of which an id was given; of every fourth the reward is missing."""
    policy = undertow.load((Path(__file__).parents[1] / "saved") / f"{name}.undertow")
    assert (policy.round, policy.pending) == (21, 6)
    np.testing.assert_allclose(policy.forecast().forecast, SAVED[name], rtol=1e-9)
    policy.learn("order 20", 1.0)
    with pytest.raises(UnknownDecisionError, match="the reward of 'order 3' has been learned already"):
        policy.learn("order 3", 1.0)  # which one it was, these files do not say
    with pytest.raises(InvalidInputError, match="id: 'order 3' was used before"):
        policy.decide(id="order 3")
    again = undertow.from_bytes(policy.to_bytes())
    assert folded.digest(again) == folded.digest(policy)


def test_a_decision_that_was_dropped_can_wait_again() -> None:
    policy = undertow.UCB(arms=2, max_pending=1)
    decisions = [policy.decide() for _ in range(3)]
    content = policy.to_bytes()
    memory = np.zeros(len(policy.parts.player.common.memory))
    recalled = Recalled(id=decisions[0].id, round=0, arm=decisions[0].arm, memory=memory)
    for follower in (policy, undertow.from_bytes(content)):
        follower.follow(decode(encode(recalled)))
        follower.learn(decisions[0].id, 2.0)
        assert follower.forecast().forecast[decisions[0].arm] == 2.0
        assert follower.pending == 1
    for wrong in ({"id": decisions[2].id}, {"round": 3}, {"arm": 2}, {"memory": np.zeros(99)}):
        with pytest.raises(InvalidInputError):
            policy.follow(msgspec.structs.replace(recalled, **wrong))


def test_a_loaded_policy_is_rebuilt_from_what_was_loaded() -> None:
    policy = UCB(arms=2)
    for _ in range(10):
        policy.learn(policy.decide(), 1.0)
    again = undertow.from_bytes(policy.to_bytes())
    again._journal.torn = True  # noqa: SLF001 (as an interrupted call leaves it)
    assert again.round == 10
