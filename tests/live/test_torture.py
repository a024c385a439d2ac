"""Nothing tears: calls that are interrupted, and files that were tampered with. `python -m torture` runs for longer."""

import io
import json
import math
import signal
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow
from helpers import id_of, make_policy, unnamed
from torture import hostile, interrupts
from torture.interrupts import SYSTEM, digest
from undertow import InvalidInputError, make
from undertow.compiled.player import Player
from undertow.learning.late import LateRewards
from undertow.learning.learner import Learner
from undertow.live.apply import Applies
from undertow.policies import LivePolicy, registry

Spoil = Callable[[dict[str, Any], dict[str, Any]], None]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers here")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_call_happened_or_did_not() -> None:
    """Seed 0: exceptions at random moments of calls of every policy, most at any line, some at any instruction."""
    counts = interrupts.run(
        0, seconds=600, hits=2000, each=12, timers=0.1
    )  # seconds, since kernels may have to be compiled
    assert counts.wrong == ()
    assert counts.hits >= 2000


def test_a_tampered_file_is_refused_or_plays() -> None:
    """Seed 0: a few hundred files of every policy."""
    counts = hostile.run(0, seconds=300, files=250)
    assert counts.wrong == ()
    assert counts.files == 250
    assert 0 < counts.loaded < 200


# What was found, one by one


class Stop(Exception):
    """What a handler of somebody's may raise."""


def stopping(*_: object, **__: object) -> None:
    raise Stop


def pending(name: str, **more: Any) -> LivePolicy:
    """A policy after five rounds, three of whose decisions wait."""
    policy = make_policy(name, SYSTEM, rng=0, **more)
    for t in range(5):
        decision = policy.decide(id="an event" if t == 3 else None)
        if t < 2:
            policy.learn(decision, 1.0)
        if policy.parts.turns.context_dim:
            policy.observe([0.1 * t, 0.2])
    return policy


def then_stopping(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have a function do what it does, and raise before anybody hears of it."""

    def wrapped(*args: Any, **more: Any) -> None:
        function(*args, **more)
        raise Stop

    return wrapped


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ["ucb", "linucb", "kalman-greedy", "learned-kalman", "rexp3"])
def test_a_call_has_happened_once_it_is_committed(name: str, after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception before the commit: the call can be made again. One after it: the same call is answered."""
    policy, twin = (make_policy(name, SYSTEM, rng=0) for _ in range(2))
    calls: dict[str, Callable[[LivePolicy], object]] = {
        "decide": lambda p: p.decide(id="an order"),
        "learn": lambda p: p.learn("an order", 1.0),
        "observe": lambda p: p.observe([0.3, 0.4]),
    }
    for step, call in calls.items():
        if step == "observe" and not policy.parts.turns.context_dim:
            continue
        before = digest(twin)
        call(twin)
        with monkeypatch.context() as patch:
            patch.setattr(Applies, "_commit", then_stopping(Applies._commit) if after else stopping)  # noqa: SLF001
            with pytest.raises(Stop):
                call(policy)
        assert digest(policy) == (digest(twin) if after else before)
        if not after or step != "observe":
            call(policy)
        assert digest(policy) == digest(twin)


@pytest.mark.parametrize("name", ["kalman-greedy", "learned-kalman", "autopilot"])
def test_a_late_reward_that_is_interrupted_was_not_learned(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = pending(name)
    before = digest(policy)
    timeline = policy.parts.timeline
    kind, step = (LateRewards, "note") if isinstance(timeline, Learner) else (type(timeline), "learn")
    with monkeypatch.context() as patch:
        patch.setattr(kind, step, stopping)
        with pytest.raises(Stop):
            policy.learn(id_of(policy, 3), 1.0)
    assert digest(policy) == before
    policy.learn(id_of(policy, 3), 1.0)


def test_a_filter_that_is_interrupted_on_its_way_through_late_rewards_goes_again() -> None:
    """Before a decision, and before somebody looks."""
    policy, twin = pending("kalman-greedy"), pending("kalman-greedy")
    for one in (policy, twin):
        one.learn(id_of(one, 3), 1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(policy.parts.timeline), "_see_again", stopping)
        policy.learn(id_of(policy, 2), 2.0)
        for call in (policy.forecast, policy.decide, policy.to_bytes):
            with pytest.raises(Stop):
                call()
    twin.learn(id_of(twin, 2), 2.0)
    assert digest(policy) == digest(twin)
    assert unnamed(policy.decide()) == unnamed(twin.decide())


@pytest.mark.parametrize("name", ["learned-kalman", "autopilot"])
def test_a_decision_that_is_interrupted_on_its_way_through_late_rewards_was_not_made(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = pending(name)
    policy.learn(id_of(policy, 3), 1.0)
    before = digest(policy)
    with monkeypatch.context() as patch:
        patch.setattr(LateRewards, "_go_on", stopping)
        with pytest.raises(Stop):
            policy.decide()
    assert digest(policy) == before
    policy.decide()


def test_rounds_that_are_skipped_in_vain_are_forgotten_as_late_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be forgotten is noted when a round begins, and put back with it."""
    policy, twin = (make_policy("kalman-greedy", SYSTEM, rng=0, context_first=True) for _ in range(2))
    for one in (policy, twin):
        one.observe([0.1, 0.2])
        one.decide()
        one.observe([0.3, 0.4])
        one.decide()
        for number in range(2):
            one.learn(id_of(one, number), 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(Player, "skip", stopping)
        with pytest.raises(Stop):
            policy.skip()
    for one in (policy, twin):
        one.observe([0.5, 0.6])
    assert digest(policy) == digest(twin)


@pytest.mark.parametrize("name", ["lints", "learned-kalman"])
def test_draws_of_a_decision_that_was_not_made_are_taken_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = pending(name, explore=0.5)
    before, twin = digest(policy), pending(name, explore=0.5)
    with monkeypatch.context() as patch:
        patch.setattr(type(policy.parts.player), "decide", stopping)
        with pytest.raises(Stop):
            policy.decide(available=[0, 1])
    assert digest(policy) == before
    assert unnamed(policy.decide()) == unnamed(twin.decide())


def test_rounds_are_forgotten_as_late_as_before_a_decision_that_was_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the context first, rounds are forgotten when the next context comes, by what the last decision noted."""
    policy, twin = (make_policy("kalman-greedy", SYSTEM, rng=0, context_first=True) for _ in range(2))
    for one in (policy, twin):
        for context in ([0.1, 0.2], [0.3, 0.4], [0.5, 0.6]):
            one.observe(context)
            one.decide()
        for number in range(3):
            one.learn(id_of(one, number), 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(Player, "decide", stopping)
        with pytest.raises(Stop):
            policy.decide(elapsed=0)
    for one in (policy, twin):
        one.observe([0.7, 0.8])
    assert digest(policy) == digest(twin)


def test_a_fit_that_is_interrupted_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy("learned-kalman", SYSTEM, rng=0)
    for t in range(6):
        policy.learn(policy.decide(), float(t))
        policy.observe([0.0, 1.0])
    before = digest(policy)
    with monkeypatch.context() as patch:
        patch.setattr("undertow.models.shared_system.model.SharedSystem.fit", stopping)
        with pytest.raises(Stop):
            policy.decide()
    assert digest(policy) == before


def test_a_file_that_could_not_be_written_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np.lib.format, "write_array", stopping)
    with pytest.raises(Stop):
        make("ucb", arms=2).save(tmp_path / "policy")
    assert not list(tmp_path.iterdir())


def number(name: str, place: int, value: float) -> Spoil:
    return lambda header, arrays: arrays[name].reshape(-1).__setitem__(place, value)


def parameter(name: str, value: Any) -> Spoil:
    return lambda header, arrays: header["parameters"].update({name: value})


def text(name: str, content: bytes) -> Spoil:
    return lambda header, arrays: arrays.update({name: np.frombuffer(content, dtype=np.uint8)})


def common(name: str, part: str, place: int | slice, value: float) -> Spoil:
    """Put a number into an array of the part that every policy's state begins with."""

    def spoil(header: Any, arrays: Any) -> None:
        getattr(registry()[name].policy.loop.layout.open(arrays["state"]).common, part)[place] = value

    return spoil


HOSTILE: dict[str, tuple[str, Spoil]] = {
    "a seed of lists": ("ucb", lambda header, arrays: header["random"].update(entropy=[[1, 2]])),
    "an order far outside": ("ucb", common("ucb", "order", 0, 1e12)),
    "an order before the beginning": ("linucb", common("linucb", "order", 0, -141.0)),
    "an order in which an arm is missing": ("ucb", common("ucb", "order", 2, 0.0)),
    "no arm that is open": ("ucb", common("ucb", "closed", slice(None), 1.0)),
    "rounds beyond counting": ("sliding-window-ucb", number("state", 4, 1e300)),
    "a time step that is being shared": ("ucb", number("state", 6, 1.0)),
    "exploring without draws": ("ucb", number("state", 7, 0.5)),
    "memories without width": ("linucb", lambda header, arrays: arrays.update(pending_memories=np.zeros((3, 0)))),
    "memories of another kind": (
        "rexp3",
        lambda header, arrays: arrays.update(pending_memories=arrays["pending_memories"].view(np.int64)),
    ),
    "an arm that is none": ("linucb", number("pending_arms", 0, -1)),
    "a round to come": ("kalman-greedy", number("pending_rounds", 2, 99)),
    "more ids than decisions": ("ucb", text("pending_ids", b"one\ntwo\nthree\nfour")),
    "fewer ids than decisions": ("ucb", text("pending_ids", b"one\ntwo")),
    "no ids": ("linucb", text("pending_ids", b"")),
    "an id of two": ("ucb", text("pending_ids", b"one\none\ntwo")),
    "an id without letters": ("ucb", text("pending_ids", b"\n\none")),
    "an id that is too long": ("ucb", text("pending_ids", b"one\ntwo\n" + b"x" * 65)),
    "an id that is no text": ("kalman-greedy", text("pending_ids", b"one\ntwo\n\xff\xfe")),
    "an id that cannot be printed": ("ucb", text("pending_ids", b"one\ntwo\n\x00")),
    "ids without end": ("ucb", text("given_ids", b"\n" * 10**6)),
    "an id that was given twice": ("ucb", text("given_ids", b"one\none")),
    "letters beyond letters": ("ucb", lambda header, arrays: arrays.update(given_ids=np.array([300.0]))),
    "a decision to come": ("ucb", number("pending_numbers", 2, 99)),
    "decisions in disorder": ("ucb", number("pending_numbers", 2, 0)),
    "a seed that is no flag": ("ucb", lambda header, arrays: header["random"].update(seeded=1)),
    "a default without a wait": ("ucb", parameter("default_reward", 1.0)),
    "a wait without a default": ("learned-kalman", parameter("max_wait", 3)),
    "a turn that never comes": ("linucb", lambda header, arrays: header.update(due="never")),
    "an array more": ("ucb", lambda header, arrays: arrays.update(more=np.zeros(3))),
    "a hundred million arms": ("random", parameter("arms", 10**8)),
    "a window without end": ("linucb", parameter("window", 10**12)),
    "a long history": ("sliding-window-ucb", parameter("history", 10**9)),
    "a pool without end": ("ucb", lambda header, arrays: header["random"].update(pool_size=10**8)),
    "a number beyond numbers": ("rexp3", parameter("horizon", 10**400)),
    "an arm in the log": ("learned-kalman", number("log_rows", 2, 1e12)),
    "a log without end": ("learned-kalman", number("log_room", 0, 1e12)),
    "an order of the model": ("learned-kalman", lambda header, arrays: arrays["state"].__setitem__(slice(30, 60), 1e6)),
    "records that are none": ("learned-kalman", lambda header, arrays: arrays.update(fit_records=np.array([300.0]))),
    "a clock elsewhere": ("kalman-greedy", number("round_states", 4, 77.0)),
}


def spoiled(name: str, spoil: Spoil, file: Path) -> Path:
    """Save a policy, and tamper with the file."""
    pending(name).save(file)
    with np.load(file) as archive:
        arrays = {key: archive[key] for key in archive.files}
    header = json.loads(arrays.pop("header").tobytes().decode())
    spoil(header, arrays)
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with file.open("wb") as target:
        np.savez(target, header=text, **arrays)
    return file


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused_before_it_takes_memory(what: str, tmp_path: Path) -> None:
    file = spoiled(*HOSTILE[what], tmp_path / "policy")
    tracemalloc.start()
    with pytest.raises(InvalidInputError):
        undertow.load(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6


PLAYED: dict[str, tuple[str, Spoil]] = {
    "a memory that is not there": ("lints", number("pending_memories", 0, math.nan)),
    "a memory far outside": ("lints", number("pending_memories", 0, -1e300)),
    "a regression far outside": (
        "lints",
        lambda header, arrays: registry()["lints"].policy.loop.layout.open(arrays["state"]).W.fill(1e300),
    ),
}


@pytest.mark.parametrize("what", PLAYED)
def test_a_hostile_file_that_is_loaded_plays(what: str, tmp_path: Path) -> None:
    """Policies may hold such numbers after measurements just below the limit, so files of them are read."""
    name, spoil = PLAYED[what]
    policy = undertow.load(spoiled(name, spoil, tmp_path / "policy"))
    hostile.play(policy, tmp_path / "policy")
    assert policy.round > 5


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_an_archive_that_unpacks_to_more_than_it_is(method: int, tmp_path: Path) -> None:
    file = tmp_path / "policy"
    content = io.BytesIO()
    np.save(content, np.zeros(3))
    claim = content.getvalue().replace(b"'shape': (3,)", b"'shape': (900000000,)")
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("state.npy", claim + (bytes(2**24) if method else b""))
    tracemalloc.start()
    with pytest.raises(InvalidInputError, match="not a policy file"):
        undertow.load(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4e6
