"""Files that cannot be read, writers that are interrupted, values that are no numbers: each is called what it is."""

import contextlib
import gc
import json
import math
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import undertow
from undertow import InvalidInputError, LinearGaussianSystem, paper_system
from undertow.policies import UCB, LearnedKalman, LivePolicy

_TRIALS = 60
# An archive that is interrupted while it is made complains when it is thrown away
half_made = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def in_its_midst(call: Callable[[], object], error: BaseException | None, place: int) -> int:
    """Make a call, raise an error before the line of that number which it runs, and return how many it ran."""
    count = 0

    def trace(frame: FrameType, event: str, given: object) -> Any:
        nonlocal count
        inside = frame.f_code.co_filename == contextlib.__file__  # between the end of a block and what we do then
        if inside or frame.f_code.co_name == "__del__":  # what is raised there is lost
            return None
        if event == "line":
            count += 1
            if count == place and error is not None:
                sys.settrace(None)
                raise error
        return trace

    before = sys.gettrace()
    gc.disable()  # an error within a finaliser is lost
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def open_handles() -> int:
    """How many files this process has open, where that can be counted."""
    return len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0


def policy_that_waits() -> LivePolicy:
    policy = UCB(arms=3, rng=0)
    for _ in range(4):
        policy.decide(id=f"request {policy.round}")
    return policy


@half_made
@pytest.mark.parametrize("kind", [TimeoutError, MemoryError, OSError, RuntimeError, KeyboardInterrupt])
def test_what_happens_while_a_file_is_read_is_not_called_damage(kind: type[BaseException], tmp_path: Path) -> None:
    """A server that starts afresh when its file is damaged would throw its policy away because of a slow disk."""
    content = policy_that_waits().to_bytes()
    undertow.from_bytes(content)  # what is looked up once is looked up here
    lines = in_its_midst(lambda: undertow.from_bytes(content), None, 0)
    raised = 0
    for place in range(1, lines, max(lines // _TRIALS, 1)):
        try:
            in_its_midst(lambda: undertow.from_bytes(content), kind("in its midst"), place)
        except kind as error:
            raised += str(error) == "in its midst"
    gc.collect()
    assert raised > 0.9 * min(_TRIALS, lines)


@half_made
def test_an_interrupt_of_a_save_comes_out_as_it_is_and_leaves_nothing(tmp_path: Path) -> None:
    policy = policy_that_waits()
    for call in (policy.to_bytes, lambda: policy.save(tmp_path / "policy")):
        call()
        lines = in_its_midst(call, None, 0)
        handles = open_handles()
        for place in range(1, lines, max(lines // _TRIALS, 1)):
            with contextlib.suppress(KeyboardInterrupt):
                in_its_midst(call, KeyboardInterrupt("in its midst"), place)
            assert set(os.listdir(tmp_path)) <= {"policy"}, place
        gc.collect()
        assert open_handles() == handles


def system_text(**changes: Any) -> str:
    return json.dumps(paper_system(1).to_dict() | changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "not a JSON file \\(nested too deeply\\)"),
        (system_text()[:-1] + ', "drift": [0, 0, 0, 0, 0]}', "not a JSON file \\(expected every key once\\)"),
        (system_text(dynamics=np.full((5, 5), 1e300).tolist()), "dynamics: expected numbers below 1e\\+152 in size"),
        (system_text(state_noise=np.full((5, 5), 1e308).tolist()), "state_noise: expected numbers below 1e\\+304"),
        (system_text(reward_noise=[math.nan, 1.0]), "reward_noise: expected finite numbers"),
    ],
    ids=["too deep", "a key twice", "dynamics beyond measure", "noise beyond measure", "no number"],
)
def test_files_of_systems_that_nobody_wrote(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "system").write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        LinearGaussianSystem.load(tmp_path / "system")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name here")
@pytest.mark.parametrize("load", [undertow.load, LinearGaussianSystem.load])
def test_a_device_and_a_pipe_are_no_files(load: Callable[[Any], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", tmp_path / "pipe"):
        with pytest.raises(InvalidInputError, match="expected the name of a file, and this is a device or a pipe"):
            load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere")


class Odd:
    """An object that has no number to give, and says so in its own way."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __float__(self) -> float:
        raise self.error


@pytest.mark.parametrize(
    "error", [RuntimeError("no"), ZeroDivisionError(), KeyError("no"), AttributeError(), ValueError()]
)
def test_objects_that_fail_to_be_numbers_are_named(error: Exception) -> None:
    policy = UCB(arms=2)
    with pytest.raises(InvalidInputError, match="reward: expected real numbers"):
        policy.learn(policy.decide(), Odd(error))  # type: ignore[arg-type]
    with pytest.raises(TimeoutError):  # of a signal, say
        policy.learn(policy.decide(), Odd(TimeoutError()))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [np.array("1.0", dtype=object), np.array(b"1.0", dtype=object)])
def test_a_text_is_no_number_in_whatever_it_comes(text: Any) -> None:
    policy = UCB(arms=2)
    with pytest.raises(InvalidInputError, match="reward: expected real numbers"):
        policy.learn(policy.decide(), text)


def test_a_reward_with_which_models_would_overflow_is_refused() -> None:
    """The largest that is taken makes no forecast that is no number."""
    policy = LearnedKalman(arms=2, rng=0)
    policy.parts.compile_here()
    for t in range(25):
        decision = policy.decide()
        if t == 20:
            with pytest.raises(
                InvalidInputError, match=r"reward: expected at most 1e\+100 in size, got 1e\+140; check"
            ):
                policy.learn(decision, 1e140)
        policy.learn(decision, 1e100 if t == 20 else math.sin(t))
        assert np.isfinite(decision.forecast).all()


def test_a_fingerprint_says_whether_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert undertow.fingerprint()["jit"] == "on"
    monkeypatch.setattr("numba.config.DISABLE_JIT", True)
    with warnings.catch_warnings():
        assert undertow.fingerprint()["jit"] == "off"
