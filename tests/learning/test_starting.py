"""The first rounds of a learner without its kernels: decided at once, and the same policy when kernels are there."""

import copy
import json
import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import undertow
from digests import SYSTEM, digest
from helpers import everything, unnamed
from undertow import InvalidInputError, OutOfTurnError, UnknownDecisionError
from undertow.cli import app
from undertow.compiled import ahead, cache
from undertow.learning import first_rounds
from undertow.learning.first_rounds import Starting
from undertow.learning.fits import BackgroundFits
from undertow.policies import Autopilot, LearnedKalman, LivePolicy, StructuralKalman
from undertow.precompiling import precompile_alone

PATH = SYSTEM.sample(60, rng=5)
every_learner = pytest.mark.parametrize("learner", [LearnedKalman, StructuralKalman, Autopilot])


class Kernels:
    """A compilation that ends when it is told to, or waited for."""

    def __init__(self) -> None:
        self.ended = False
        self.waited = 0
        self.lock = threading.Lock()  # as in a thread: no policy that is copied may hold it

    def wait(self) -> None:
        self.waited += 1
        self.ended = True


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> Kernels:
    kernels = Kernels()
    monkeypatch.setattr(ahead, "compilation_of", lambda *given: kernels)
    monkeypatch.setattr(first_rounds, "are_loaded", lambda loop: False)
    return kernels


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A way to make a policy that has its kernels, in a test in which they are missing."""

    def make(learner: Any, **more: Any) -> LivePolicy:
        policy: LivePolicy = build(learner, **more)
        policy.parts.compile_here()
        return policy

    return make


def build(learner: Any, **more: Any) -> Any:
    sizes = {"arms": ["a", "b", "c"], "context_dim": 2}
    return learner(**sizes | {"rng": 3, "refit": "inline", "explore": 0.3, "max_wait": 4, "default_reward": 0.5} | more)


def play(policy: Any, begin: int, end: int, *, first: bool) -> list[str]:
    """Rounds with rewards at once, late and never, contexts that are missing, arms that are not there, and gaps."""
    made, waiting = [], []
    for t in range(begin, end):
        if first and t % 2:
            policy.observe(PATH.contexts[t])
        how: dict[str, Any] = {"context": PATH.contexts[t]} if first and not t % 2 else {}
        if t % 4 == 1:
            how["available"] = ["a", "c"]
        decision = policy.decide(**how)
        made.append(unnamed(decision))
        if t % 3 == 1:
            waiting.append((decision, 1.0 + t))
        elif t % 5:
            policy.learn(decision, float(PATH.rewards[t, decision.arm]))
        if not first:
            policy.observe(None if t % 4 == 2 else PATH.contexts[t])
        if t % 3 == 2 and waiting:
            policy.learn_many([late for late, _ in waiting], [reward for _, reward in waiting])
            waiting.clear()
        if t == 1:
            policy.skip(1)
        if t == 2:
            policy.retire_arm("b")
        if t == 3:
            policy.add_arm("b")  # which was retired
    return made


def in_start_up(policy: Any) -> bool:
    return isinstance(policy.parts.timeline, Starting)


@pytest.mark.parametrize("first", [False, True], ids=["decide first", "context first"])
@every_learner
def test_what_was_decided_without_kernels_is_what_they_would_have_decided(
    learner: Any, first: bool, missing: Kernels, twin: Any
) -> None:
    one, two = build(learner, context_first=first), twin(learner, context_first=first)
    assert play(one, 0, 4, first=first) == play(two, 0, 4, first=first)
    assert in_start_up(one)
    assert everything(one)[1:] == everything(two)[1:]
    missing.ended = True
    assert play(one, 4, 20, first=first) == play(two, 4, 20, first=first)
    assert not in_start_up(one)
    assert missing.waited == 0
    assert one.model is not None
    assert digest(one) == digest(two)


@pytest.mark.parametrize("refit", ["inline", "auto"])
def test_the_first_fit_waits_for_kernels(
    refit: str, missing: Kernels, twin: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = build(LearnedKalman, refit=refit), twin(LearnedKalman, refit=refit)
    with caplog.at_level(logging.INFO, "undertow.kernels"):
        assert play(one, 0, 6, first=False) == play(two, 0, 6, first=False)
    assert missing.waited == 1  # in round 6: one was skipped
    assert digest(one) == digest(two)
    said = [record.getMessage() for record in caplog.records if record.name == "undertow.kernels"]
    assert [line.split(" ")[0] for line in said] == ["another", "round", "the"]


@every_learner
def test_in_the_background_start_up_goes_on_until_they_are_there(
    learner: Any, missing: Kernels, twin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with kernels and fits that take no effect yet."""
    one, two = (make(learner, refit="background") for make in (build, twin))
    monkeypatch.setattr(BackgroundFits, "arrived", lambda self, now: [])
    assert play(one, 0, 40, first=False) == play(two, 0, 40, first=False)
    assert in_start_up(one)
    assert missing.waited == 0
    missing.ended = True
    one.to_bytes()
    assert not in_start_up(one)
    assert digest(one) == digest(two)


def test_refused_calls_change_nothing(missing: Kernels) -> None:
    policy = build(Autopilot, feature_dim=1, max_delay=5)
    decision = policy.decide([0.0])
    refused: list[tuple[Callable[[], object], type[Exception]]] = [
        (lambda: policy.decide([0.0]), OutOfTurnError),
        (lambda: policy.learn(decision, "x"), InvalidInputError),
        (lambda: policy.learn("no id", 1.0), UnknownDecisionError),
        (lambda: policy.observe([1.0]), InvalidInputError),
        (lambda: policy.skip(), OutOfTurnError),
    ]
    for wrong, error in refused:
        before = everything(policy)
        with pytest.raises(error):
            wrong()
        assert before == everything(policy)
    before = everything(policy)
    outlook = policy.forecast([1.0])
    assert outlook.forecast.tolist() == [0.0] * 3
    assert everything(policy) == before
    assert policy.models == ()
    assert policy.health().ok
    assert in_start_up(policy)


def test_an_interrupted_decision_is_made_whole_or_not_at_all(missing: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = build(LearnedKalman), build(LearnedKalman)
    decided = Starting.decided

    def interrupt(self: Starting, t: int, arm: int) -> Any:
        raise KeyboardInterrupt

    for policy in (one, two):
        policy.decide()
        policy.observe(PATH.contexts[0])
    monkeypatch.setattr(Starting, "decided", interrupt)
    with pytest.raises(KeyboardInterrupt):
        one.decide()
    monkeypatch.setattr(Starting, "decided", decided)
    assert everything(one)[0] == everything(two)[0]
    missing.ended = True
    for policy in (one, two):
        play(policy, 1, 12, first=False)
    assert digest(one) == digest(two)


@pytest.mark.parametrize("look", [lambda p: p.to_bytes(), copy.deepcopy, pickle.dumps, lambda p: p.add_arm("d")])
def test_what_looks_inside_waits(look: Any, missing: Kernels) -> None:
    policy = build(LearnedKalman)
    play(policy, 0, 3, first=False)
    look(policy)
    assert missing.waited == 1
    assert not in_start_up(policy)


def test_a_policy_that_has_begun_before_waits(missing: Kernels, twin: Any) -> None:
    policy = twin(LearnedKalman)
    play(policy, 0, 3, first=False)
    again = undertow.from_bytes(policy.to_bytes())
    again.decide()
    assert not in_start_up(again)


# The child process


def test_a_child_compiles_once_and_the_kernels_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    commands, loaded = [], []
    monkeypatch.undo()
    monkeypatch.setattr(ahead, "is_incomplete", lambda module: True)
    monkeypatch.setattr(ahead, "_run", lambda command, patience: commands.append(command))
    monkeypatch.setattr(ahead, "_compilations", {})
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    first = REAL("autopilot", "undertow.policies.autopilot", lambda: loaded.append(1))
    assert first is not None
    assert first is REAL("autopilot", "undertow.policies.autopilot", lambda: loaded.append(2))
    first.wait()
    assert first.ended
    assert loaded == [1]
    assert "precompile_alone('autopilot')" in commands[0][-1]
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)
    assert REAL("ucb", "undertow.policies.ucb", lambda: None) is None


REAL = ahead.compilation_of


@pytest.mark.slow
def test_warm_up_compiles_what_is_named_and_marks_it(tmp_path: Path) -> None:
    program = (
        "import undertow; from undertow.compiled.cache import is_incomplete\n"
        "before = is_incomplete('undertow.policies.randomised'); folder = undertow.precompile('random')\n"
        "print(before, is_incomplete('undertow.policies.randomised'), folder)"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(undertow.__file__).parents[1])}
    for expected in ("True False", "False False"):
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        before, after, folder = done.stdout.split(" ", 2)
        assert f"{before} {after}" == expected
        assert Path(folder.strip()).parent == tmp_path
        assert list(Path(folder.strip()).glob("undertow.policies.randomised-*/**/*.nbc"))


def test_warm_up_alone_does_nothing_where_all_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr("undertow.precompiling.precompile", compiled.append)
    monkeypatch.setattr("undertow.precompiling.is_incomplete", lambda module: False)
    precompile_alone("ucb")
    monkeypatch.setattr("undertow.precompiling.is_incomplete", lambda module: True)
    precompile_alone("ucb")
    assert compiled == ["ucb"]


def test_the_command_warms_up() -> None:
    done = CliRunner().invoke(app, ["precompile", "random", "ucb", "--json"])
    *progress, last = done.stdout.splitlines()
    assert sum(json.loads(line)["event"] == "progress" for line in progress) == 3
    assert str(cache.cache_folder("undertow.policies.ucb").parent) in last  # type: ignore[union-attr]
    assert not cache.is_incomplete("undertow.policies.ucb")
    with pytest.raises(InvalidInputError, match="no policy is called 'ucbb'"):
        undertow.precompile("ucbb")


def test_nowhere_to_keep_kernels_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undertow.precompiling.cache_folder", lambda module: None)
    done = CliRunner().invoke(app, ["precompile", "random"])
    assert "set NUMBA_CACHE_DIR to one (tried: " in str(done.exception)


def test_a_tuner_goes_on_choosing_and_can_be_saved(missing: Kernels, tmp_path: Path) -> None:
    """Start-up's forecasts are all alike, and would have it stick with the first variant."""
    variants: dict[str, Callable[[], int]] = {"a": lambda: 3, "b": lambda: 2, "c": lambda: 1}
    tuner = undertow.Tuner(variants, cost=lambda result, seconds: float(result))
    called = [tuner() for _ in range(400)]
    assert [called.count(result) for result in (1, 2, 3)] == pytest.approx([133, 133, 133], abs=1)
    tuner.save(tmp_path / "tuner")
    assert missing.waited == 1
    assert undertow.Tuner.load(tmp_path / "tuner", variants).names == ("a", "b", "c")
