"""Policies behind a server: restarts, forks, ids, contexts with decisions, rewards that never come, what is written."""

import copy
import json
import math
import os
import pickle
import time
import timeit
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow
from helpers import everything, full_system, live_round, make_policy, models_of, paid, unnamed
from torture.interrupts import digest
from undertow import InvalidInputError, OutOfTurnError, UnknownDecisionError
from undertow.compiled.player import Player
from undertow.live.apply import Applies
from undertow.live.events import Event, Installed
from undertow.live.pending import Pending
from undertow.policies import (
    UCB,
    Autopilot,
    Decision,
    FitRecord,
    Health,
    KalmanGreedy,
    LearnedKalman,
    LinUCB,
    LivePolicy,
    Outlook,
    StructuralKalman,
)

SYSTEM = full_system(3, 2, 3, seed=1)
PATH = SYSTEM.sample(200, rng=1)


# Ids


def test_rewards_of_a_lost_life_are_refused(tmp_path: Path) -> None:
    """Save, serve, crash, load, serve again: what was decided in between is nobody's."""
    policy = UCB(arms=3, explore=0.5, rng=0)
    waiting = [policy.decide() for _ in range(5)]
    policy.save(tmp_path / "policy")
    lost = [policy.decide() for _ in range(60)]
    again = undertow.load(tmp_path / "policy")
    served = [again.decide() for _ in range(60)]
    assert [unnamed(decision) for decision in served] == [unnamed(decision) for decision in lost]
    before = everything(again)
    for decision in lost:
        for given in (decision, decision.id):
            with pytest.raises(UnknownDecisionError, match="this one after it was saved, copied or forked"):
                again.learn(given, 1.0)
    assert everything(again) == before
    for decision in (*waiting, *served):
        again.learn(decision, 1.0)
    assert again.pending == 0


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
def test_a_copy_makes_ids_of_its_own(how: Callable[[LivePolicy], LivePolicy]) -> None:
    policy = UCB(arms=3, explore=0.5)
    policy.decide()
    one, two = policy.decide(), how(policy).decide()
    assert one.id != two.id
    assert len({one.id.split("-")[0], two.id.split("-")[0]}) == 2


def test_a_new_arm_changes_no_ids() -> None:
    policy = UCB(arms=2)
    first = policy.decide()
    policy.add_arm("2")
    assert policy.decide().id.split("-")[0] == first.id.split("-")[0]
    policy.learn(first, 1.0)


def in_a_fork(work: Callable[[], Any]) -> Any:
    """What a forked process makes of a function."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python 3.12, where there are threads
@pytest.mark.parametrize("seed", [None, 0])
def test_forked_workers_share_no_ids_and_no_draws(seed: int | None) -> None:
    """With a seed they share the draws: it fixes them."""
    policy = UCB(arms=50, explore=1.0, rng=seed)
    waiting = policy.decide()

    def work() -> tuple[list[str], list[int]]:
        policy.add_arm("one more")
        policy.learn(waiting, 1.0)  # which is known in every process
        policy.retire_arm("one more")
        return [list(each) for each in zip(*((d.id, d.arm) for d in (policy.decide() for _ in range(20))), strict=True)]  # type: ignore[return-value]

    (ids, arms), (other_ids, other_arms) = in_a_fork(work), in_a_fork(work)
    own_ids, own_arms = work()
    assert len({*ids, *other_ids, *own_ids}) == 60
    assert all(id.startswith(waiting.id.split("-")[0]) for id in own_ids)  # the parent goes on as before
    same = arms == other_arms == own_arms
    assert same if seed == 0 else len({tuple(arms), tuple(other_arms), tuple(own_arms)}) == 3
    if seed is None:
        with pytest.raises(UnknownDecisionError):
            policy.learn(ids[0], 1.0)


def test_whether_there_was_a_seed_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, same in ((None, False), (3, True)):
        policy = undertow.from_bytes(UCB(arms=50, explore=1.0, rng=seed).to_bytes())
        twin = copy.deepcopy(policy)
        with monkeypatch.context() as patch:
            patch.setattr(policy.parts.pending, "forked", True)
            arms = [policy.decide().arm for _ in range(20)]
        assert (arms == [twin.decide().arm for _ in range(20)]) == same


def test_ids_that_callers_give() -> None:
    policy = UCB(arms=2, max_pending=3)
    assert policy.decide(id="request é 1").id == "request é 1"
    policy.learn("request é 1", 1.0)
    with pytest.raises(UnknownDecisionError, match="the reward of 'request é 1' has been learned already"):
        policy.learn("request é 1", 2.0)
    for odd, message in (
        ("request é 1", "id: 'request é 1' was used before, for another call of decide; an id names one decision"),
        (policy.decide().id, "starts with this policy's own prefix|was used before"),
        ("", "id: expected a printable string of 1 to 64 characters, got ''"),
        ("x" * 65, "id: expected a printable string of 1 to 64 characters, got 'xxx"),
        ("a\nb", "id: expected a printable string"),
        ("\ud800", "id: expected a printable string"),
        (17, "id: expected a printable string of 1 to 64 characters, got 17"),
    ):
        before = everything(policy)
        with pytest.raises(InvalidInputError, match=message):
            policy.decide(id=odd, available=[1])  # type: ignore[arg-type]
        assert everything(policy) == before
    for number in range(3):
        policy.decide(id=f"{number}")
    assert len(policy.parts.pending.given) == 3  # bounded as the decisions that wait are
    policy.decide(id="request é 1")


# A context with its decision


def test_the_context_and_the_features_are_told_apart() -> None:
    policy = LinUCB(arms=2, context_dim=1, context_first=True)
    for given in (policy, undertow.ARES(arms=2, context_dim=1), LinUCB(arms=2, context_dim=1)):
        with pytest.raises(InvalidInputError, match=r"features: .* context goes to decide\(context=…\) or observe"):
            given.decide([0.1])
    with pytest.raises(OutOfTurnError, match=r"call observe\(context\), .* decide\(context=…\)"):
        policy.decide()
    policy.observe([0.1])
    with pytest.raises(OutOfTurnError, match="the context of this round was observed already"):
        policy.decide(context=[0.1])
    with pytest.raises(InvalidInputError, match="context: this policy was built without contexts; give context_dim"):
        UCB(arms=2).decide(context=[0.1])
    with pytest.raises(InvalidInputError, match=r"context: this policy decides before .*context_first=True"):
        LinUCB(arms=2, context_dim=1).decide(context=[0.1])


def test_features_and_context_in_one_call() -> None:
    one, two = (
        Autopilot(arms=3, context_dim=2, feature_dim=1, context_first=True, rng=0, explore=0.2) for _ in range(2)
    )
    for t in range(40):
        context, features = (None if t == 20 else PATH.contexts[t]), [float(t % 5)]
        available = [0, 1] if t % 4 == 0 else None
        first = one.decide(features, context=context, available=available, id=f"event {t}")
        two.observe(context)
        second = two.decide(features, available=available, id=f"event {t}")
        assert first.to_json() == second.to_json()
        for policy in (one, two):
            policy.learn(f"event {t}", paid(PATH, first))
    assert digest(one) == digest(two)


def test_requests_on_many_threads_keep_their_contexts() -> None:
    """Each context belongs to the decision that it came with: with a window of one it is the input of that round."""
    policy = LinUCB(arms=2, context_dim=1, window=1, context_first=True)
    seen: dict[str, float] = {}

    def serve(number: int) -> None:
        for t in range(50):
            context = float(100 * number + t)
            seen[policy.decide(context=[context]).id] = context

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(serve, range(4)))
    assert policy.pending == len(seen) == 200
    for id, waiting in policy.parts.pending.waiting.items():
        assert seen[id] in waiting.memory.tolist()


class Stop(Exception):
    """What a handler of somebody's may raise."""


def stopping(*_: object, **__: object) -> None:
    raise Stop


@pytest.mark.parametrize("name", ["linucb", "kalman-greedy", "learned-kalman", "autopilot"])
@pytest.mark.parametrize("standardize", [False, True])
def test_a_call_that_is_interrupted_between_context_and_decision(
    name: str, standardize: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with defaults that were due: nothing has happened, or everything."""
    if standardize and name != "linucb":
        return
    more: dict[str, Any] = {"standardize": True} if standardize else {}
    form = {"context_first": True, "explore": 0.2, "default_reward": 0.5, "max_wait": 2, **more}
    policy, twin = (make_policy(name, SYSTEM, rng=0, **form) for _ in range(2))
    for each in (policy, twin):
        for t in range(4):
            each.decide(context=PATH.contexts[t])
        each.parts.pending.wait = 1  # so that two defaults are due at once
        each._checkpoint()  # noqa: SLF001 (what a policy was built with is in no event)
    before = digest(policy)
    for place, step in (
        (Player, "decide"),
        (type(policy.parts.streams), "row"),
        (Applies, "_learn"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, step, stopping)
            with pytest.raises(Stop):
                policy.decide(context=PATH.contexts[4])
        assert digest(policy) == before
        assert policy.parts.turns.due == "observe"
        assert policy.pending == 3
    with monkeypatch.context() as patch:
        patch.setattr(type(policy), "_checkpoint_in_time", stopping)
        patch.setattr("undertow.live.commits._OFTEN", 1)
        with pytest.raises(Stop):
            policy.decide(context=PATH.contexts[4])
    twin.decide(context=PATH.contexts[4])
    assert digest(policy) == digest(twin)
    assert policy.pending == 2


# Rewards that never come


def test_a_default_reward_is_asked_for_whole() -> None:
    for given, message in (
        ({"default_reward": 0.0}, "default_reward: expected default_reward and max_wait together"),
        ({"max_wait": 5}, "max_wait: expected default_reward and max_wait together"),
        ({"default_reward": math.nan, "max_wait": 5}, "reward: expected finite numbers, got nan"),
        ({"default_reward": 0.0, "max_wait": 0}, "max_wait: expected at least 1, got 0"),
        ({"default_reward": 0.0, "max_wait": 5, "max_pending": 5}, "max_wait: expected at most 4, got 5; raise max_p"),
        ({"default_reward": 0.0, "max_wait": 5, "max_delay": 4}, "max_wait: expected at most 4, got 5; raise max_del"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            KalmanGreedy(SYSTEM, **given)


def test_a_default_reward_comes_after_the_wait() -> None:
    policy = UCB(arms=1, minimize=True, default_reward=3.0, max_wait=2)
    first = policy.decide()
    for _ in range(2):
        policy.learn(policy.decide(), 1.0)
    assert policy.pending == 1
    np.testing.assert_array_equal(policy.forecast().forecast, [1.0])
    policy.decide()
    np.testing.assert_allclose(policy.forecast().forecast, [5 / 3])
    with pytest.raises(UnknownDecisionError, match="or replaced by default_reward after max_wait = 2 rounds"):
        policy.learn(first, 1.0)
    policy.skip(5)
    assert policy.pending == 0
    np.testing.assert_allclose(policy.forecast().forecast, [2.0])
    assert undertow.from_bytes(policy.to_bytes()).parts.parameters()["max_wait"] == 2


def test_skipped_rounds_with_defaults_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = LearnedKalman(arms=3, context_dim=2, default_reward=0.5, max_wait=2, rng=0)
    for t in range(4):
        live_round(policy, PATH, t, learn=False)
    before, steps = digest(policy), iter([1, 1, 1])

    def third(self: Player) -> None:
        if next(steps, None) is None:
            raise Stop
        self.loop.skip(self.state)

    with monkeypatch.context() as patch:
        patch.setattr(Player, "skip", third)
        with pytest.raises(Stop):
            policy.skip(5)
    assert digest(policy) == before
    policy.skip(5)
    assert policy.pending == 0


def test_defaults_that_fall_due_together_take_one_copy_of_the_state() -> None:
    """One for each, and what it remembers of other rounds, would be thousands here."""
    system = full_system(10, 1, 10, seed=1)
    for policy, copies in (
        (LinUCB(arms=10, context_dim=1, window=6, default_reward=0.5, max_wait=50), 20),
        (KalmanGreedy(system, default_reward=0.5, max_wait=50), 200),
    ):
        for _ in range(100):
            policy.decide()
            policy.observe(None)
        tracemalloc.start()
        policy.skip(60)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert policy.pending == 0
        assert most < copies * policy.parts.player.state.nbytes


def test_the_oldest_decision_is_found_at_once_however_many_before_it_are_gone() -> None:
    """A dictionary looks for its first entry among those that were deleted: a thousand times as long for these."""

    def seconds(pending: Pending) -> float:
        return min(timeit.repeat(lambda: pending.oldest(0), number=20, repeat=5))

    few, many = Pending(10**6), Pending(10**6)
    for pending, count in ((few, 10), (many, 300_000)):
        for number in range(count):
            pending.add(str(number), number, 0, np.empty(0))
        for number in range(count - 5):
            pending.over[str(number)] = None
            pending.count -= 1
        pending.mark()
        assert pending.oldest(0) == count - 5
    assert seconds(many) < 50 * seconds(few)


def test_a_listener_that_raises_does_not_swallow_the_decision(caplog: pytest.LogCaptureFixture) -> None:
    def fails(event: Event) -> None:
        if isinstance(event, Installed):
            raise RuntimeError("no such table")

    policy = LearnedKalman(arms=2, refit="background", rng=0)
    policy.events(fails)
    end = time.monotonic() + 300
    while "no such table" not in caplog.text:
        assert time.monotonic() < end
        decision = policy.decide()
        policy.learn(decision.id, float(np.sin(policy.round)))
        time.sleep(0.002)
    assert "a listener of events failed with Installed" in caplog.text
    assert policy.pending == 0


# What is written down


def test_bytes_are_a_save_file(tmp_path: Path) -> None:
    policy = Autopilot(arms=3, context_dim=2, rng=0)
    for t in range(8):
        live_round(policy, PATH, t, learn=t % 2 > 0)
    policy.save(tmp_path / "policy")
    assert (tmp_path / "policy").read_bytes() == policy.to_bytes()
    for content in (policy.to_bytes(), bytearray(policy.to_bytes()), memoryview(policy.to_bytes())):
        again = undertow.from_bytes(content)  # type: ignore[arg-type]
        assert unnamed(live_round(again, PATH, 8)) == unnamed(live_round(copy.deepcopy(policy), PATH, 8))
    for odd in (b"", b"hello", policy.to_bytes()[:-30]):
        with pytest.raises(InvalidInputError, match="content: not a policy file, or damaged"):
            undertow.from_bytes(odd)
    with pytest.raises(InvalidInputError, match=r"content: expected bytes from to_bytes\(\), got 'policy'"):
        undertow.from_bytes("policy")  # type: ignore[arg-type]


def health() -> Health:
    fits = (FitRecord("ridge", 8, 2, -3.5, 4, None), FitRecord("ridge", 9, 2, math.nan, 0, "ValueError('\n no')"))
    refused = {"unknown": 2}, 2
    return Health(
        "mine", 9, 1, 4, *refused, {"ridge": np.array([0.1, math.nan])}, {"levels": 2.5}, {"levels": 1}, fits, ("x",)
    )


def test_refused_rewards_are_counted_by_reason() -> None:
    policy = KalmanGreedy(SYSTEM, max_pending=20, max_delay=5, context_first=True, rng=0)
    made = [policy.decide(context=[0.0, 0.0]) for _ in range(40)]
    late, last = made[25], made[-1]
    policy.learn(last, 1.0)
    assert (policy.health().refused, policy.health().refused_lately) == ({}, 0)
    refusals: list[tuple[str, Any, Any]] = [
        ("repeated", last, 2.0),
        ("forgotten", made[0], 1.0),
        ("unknown", "nobody's", 1.0),
        ("different", made[-2]._replace(arm=(made[-2].arm + 1) % 3), 1.0),
        ("invalid", made[-2], math.nan),
        ("late", late, 1.0),
    ]
    for _, decision, reward in refusals:
        with pytest.raises(undertow.UndertowError):
            policy.learn(decision, reward)
    with pytest.raises(UnknownDecisionError):
        policy.learn_many([made[-2], "nobody's"], [1.0, 1.0])
    health = policy.health()
    assert health.refused == {reason: 1 + (reason == "unknown") for reason, *_ in refusals}
    assert health.refused_lately == 6  # what comes twice is no sign of trouble
    assert health.ok
    for _ in range(5):
        with pytest.raises(UnknownDecisionError):
            policy.learn("nobody's", 1.0)
    sick = policy.health()
    assert sick.problems == (
        "11 of the last rewards were refused (so far 1 forgotten, 7 unknown, 1 different, 1 invalid, 1 late)",
    )
    assert Health.from_json(sick.to_json()).problems == sick.problems
    for _ in range(100):
        policy.learn(policy.decide(context=[0.0, 0.0]), 1.0)
    assert policy.health().ok


def test_a_reward_after_its_default_counts_as_refused() -> None:
    policy = UCB(arms=1, default_reward=0.0, max_wait=1)
    first = policy.decide()
    policy.skip(3)
    with pytest.raises(UnknownDecisionError):
        policy.learn(first, 1.0)
    assert (policy.health().refused, policy.health().refused_lately) == ({"defaulted": 1}, 1)


def test_health_says_what_is_wrong_in_one_line() -> None:
    sick = health()
    assert not sick.ok
    assert str(sick) == (
        "mine is not ok (levels: mean squared innovation 2.5, about 1 if the model holds; ridge: the last fit failed "
        "in round 9 (ValueError(' no'))) in round 9: 1 waiting, the oldest for 4 rounds, levels 2.50, 2 fits "
        "remembered, fitting the x"
    )
    well = sick._replace(level={"levels": 1.0}, fits=sick.fits[:1])
    assert well.ok
    assert str(well._replace(pending=0, fits=(), under_way=())) == "mine is ok in round 9: 0 waiting, levels 1.00"
    assert json.loads(sick.to_json())["ok"] is False
    assert json.loads(sick.to_json())["fits"][1]["log_likelihood"] is None


@pytest.mark.parametrize("learner", [LearnedKalman, StructuralKalman, Autopilot])
def test_the_health_of_a_learner(learner: Any) -> None:
    policy = learner(arms=3, context_dim=2, rng=0)
    for t in range(20):
        live_round(policy, PATH, t, learn=t != 5)
    said = policy.health()
    assert (said.ok, said.round, said.pending, said.waited) == (True, 20, 1, 14)
    again = Health.from_json(said.to_json())
    assert repr(again.fits) == repr(said.fits)
    for name, values in said.innovations.items():
        np.testing.assert_array_equal(again.innovations[name], values)
    assert (again.level, again.alarms, again.under_way) == (said.level, said.alarms, said.under_way)
    models_of(policy)[0].alarm.level = 2.5
    assert policy.health().ok == (learner is Autopilot and not policy.health().level)


def written() -> dict[type, str]:
    policy = Autopilot(arms=2, rng=0)
    policy.learn(policy.decide(), 1.0)
    return {Decision: policy.decide().to_json(), Outlook: policy.forecast().to_json(), Health: health().to_json()}


WRITTEN = written()
CHANGES: dict[type, list[dict[str, Any]]] = {
    Decision: [
        {"id": 5},
        {"arm": True},
        {"arm": 2},
        {"arm": -1},
        {"round": "1"},
        {"name": None},
        {"forecast": [0.0]},
        {"forecast": [0.0, "1"]},
        {"forecast": {}},
        {"width": [0.0, 1.0, 2.0]},
        {"window": [1.5, 1]},
        {"window": [1]},
        {"propensity": 1.1},
        {"propensity": True},
        {"why": {}},
        {"why": 3},
        {"more": 1},
    ],
    Outlook: [{"forecast": []}, {"width": None}, {"window": 3}, {"arm": 1}],
    Health: [
        {"ok": True},
        {"problems": []},
        {"policy": 3},
        {"round": -1},
        {"pending": 0.5},
        {"level": {"levels": "2"}},
        {"level": [2.0]},
        {"alarms": {"levels": True}},
        {"fits": {}},
        {"fits": [{}]},
        {"under_way": "x"},
        {"innovations": {"ridge": 3}},
    ],
}


@pytest.mark.parametrize(
    ("kind", "change"), [(kind, change) for kind, changes in CHANGES.items() for change in changes]
)
def test_json_that_nobody_wrote_is_refused(kind: Any, change: dict[str, Any]) -> None:
    entries = json.loads(WRITTEN[kind])
    with pytest.raises(
        InvalidInputError, match=rf"{kind.__name__.lower()}: expected JSON from {kind.__name__}.to_json"
    ):
        kind.from_json(json.dumps(entries | change))


@pytest.mark.parametrize("kind", WRITTEN)
def test_json_is_strict(kind: Any) -> None:
    text = WRITTEN[kind]
    assert kind.from_json(text).to_json() == text
    json.loads(text, parse_constant=stopping)
    key, value = next(iter(json.loads(text).items()))
    twice = text[:-1] + f', "{key}": {json.dumps(value)}}}'
    absent = json.dumps({name: entry for name, entry in json.loads(text).items() if name != key})
    for odd in (twice, absent, "[]", "null", "", "[" * 100_000, text.replace("null", "NaN", 1), b"{}", None):
        if odd != text:
            with pytest.raises(InvalidInputError, match=f"expected JSON from {kind.__name__}.to_json"):
                kind.from_json(odd)


# A warm start by name


def test_a_warm_start_takes_names() -> None:
    arms = np.arange(20) % 4 - 1
    names = ["left", "mid", "right"]
    listed = [None if arm < 0 else names[arm] for arm in arms]
    mixed: list[Any] = [-1 if name is None else name for name in listed]
    gaps: list[Any] = [math.nan if name is None else name for name in listed]
    contents = set()
    for given in (arms, listed, mixed, gaps, np.array(listed, dtype=object), tuple(listed)):
        policy = LearnedKalman(arms=names, context_dim=2, refit="inline", rng=0)  # a fit has seconds, which differ
        policy.warm_start(given, PATH.rewards[:20, 0], contexts=PATH.contexts[:20])
        contents.add(policy.to_bytes())
    assert len(contents) == 1
    fresh = StructuralKalman(arms=names, rng=0)
    for odd, message in (
        (
            ["left", "up"],
            "arms: expected names among left, mid, right, or None if none was played, got 'up' in row 1",
        ),
        (["left", 1], "got 1 in row 1"),
        (["left", True], "got True in row 1"),
        ([["left"], ["mid"]], "arms: expected"),
        ("left", "arms: expected"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            fresh.warm_start(odd, [1.0, 2.0])  # type: ignore[arg-type]
    assert fresh.parts.unused
    fresh.warm_start(np.array(["mid", "left"]), [1.0, 2.0])
    assert fresh.round == 2


def test_an_apprentice_plays_what_the_rule_plays_and_is_then_free() -> None:
    """The rule knows which of two arms pays; the third pays nothing, and the apprentice finds out by itself."""
    policy, rng = LinUCB(arms=["a", "b", "c"], feature_dim=1), np.random.default_rng(0)
    for t in range(120):
        x = float(rng.normal())
        rule = "a" if x > 0 else "b"
        decision = policy.decide([x], available=[rule] if t < 60 else None)
        if t < 60:
            assert (decision.name, decision.propensity) == (rule, 1.0)
        policy.learn(decision, {"a": x, "b": -x, "c": 0.0}[decision.name])
    names = [policy.decide([x]).name for x in (2.0, -2.0)]
    assert names == ["a", "b"]
