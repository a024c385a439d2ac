"""Compiling what fits need in a process of its own: it is found on disk, and nothing depends on it."""

import ast
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from undertow.compiled import ahead
from undertow.policies import LearnedKalman

FIRST_DECISIONS = """
from undertow.models.shared_system.descent import fit_model
from undertow.policies import LearnedKalman
policy = LearnedKalman(arms=2, rng=0)
for t in range(8):
    policy.learn(policy.decide(), float(t % 3))
print(policy.model.name, sum(fit_model.stats.cache_hits.values()), sum(fit_model.stats.cache_misses.values()))
"""


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Nothing is on disk, there are two cores, and the commands that would be run are noted instead."""
    commands: list[list[str]] = []
    monkeypatch.setattr(ahead, "to_be_compiled", lambda module: True)
    monkeypatch.setattr(ahead, "_under_way", None)
    monkeypatch.setattr(ahead, "_run", commands.append)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    monkeypatch.setattr(sys, "executable", "/somewhere/python3.11")
    return commands


@pytest.mark.slow
def test_another_process_compiles_what_fits_need(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", FIRST_DECISIONS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    spare = not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) > 1
    assert done.stdout.split() == ["shared", "system", *(["1", "0"] if spare else ["0", "1"])]
    assert not done.stderr or done.stderr.startswith("undertow: compiling kernels of undertow.identify")


def test_the_first_decision_asks_for_it(cold: list[list[str]]) -> None:
    policy = LearnedKalman(arms=2, rng=0)
    assert cold == []
    policy.decide()
    ahead.finish()
    (command,) = cold
    assert command[:3] == ["/somewhere/python3.11", "-P", "-c"]
    assert "identify.fit(" in command[3]


def test_a_model_that_compiles_little_asks_for_nothing(cold: list[list[str]]) -> None:
    ahead.begin("")
    ahead.finish()
    assert cold == []


def test_it_is_asked_for_once_at_a_time(cold: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()

    def run(command: list[str]) -> None:
        cold.append(command)
        done.wait()

    monkeypatch.setattr(ahead, "_run", run)
    ahead.begin("fit")
    ahead.begin("fit_levels")
    done.set()
    ahead.finish()
    assert len(cold) == 1


def test_one_core_and_foreign_programs_compile_by_themselves(
    cold: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/usr/sbin/a-server")
    ahead.begin("fit")
    monkeypatch.setattr(sys, "executable", None)
    ahead.begin("fit")
    monkeypatch.setattr(sys, "executable", "/somewhere/python3.11")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)
    ahead.begin("fit")
    ahead.finish()
    assert cold == []


def test_a_frozen_program_is_not_started_again(cold: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    ahead.begin("fit")
    ahead.finish()
    assert cold == []


def test_no_thread_to_be_had_is_no_obstacle(cold: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    ahead.begin("fit")
    ahead.finish()
    assert cold == []


@pytest.mark.parametrize(("given", "passed"), [([], []), (["-I"], ["-I", "-E", "-s"]), (["-E", "-s"], ["-E", "-s"])])
def test_the_child_ignores_what_this_process_was_told_to_ignore(given: list[str], passed: list[str]) -> None:
    source = str(Path(ahead.__file__).parents[2])
    program = (
        f"import sys; sys.path.insert(0, {source!r})\n"
        "from undertow.compiled import ahead; print(ahead._command(ahead._PROGRAM, 'fit'))"
    )
    done = subprocess.run([sys.executable, *given, "-c", program], capture_output=True, text=True, check=True)
    command = ast.literal_eval(done.stdout)
    assert command[1:-2] == [*passed, "-P"]
    script = command[-1].split("; from undertow")[0] + "; import undertow; print(undertow.__file__)"
    found = subprocess.run([*command[:-1], script], capture_output=True, text=True, check=True)
    assert found.stdout.startswith(source)  # wherever the child would have looked by itself


@pytest.mark.parametrize("failure", ["no such program", "a program that fails"])
def test_a_process_that_cannot_be_started_is_no_obstacle(failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    monkeypatch.setattr(ahead, "to_be_compiled", lambda module: True)
    monkeypatch.setattr(ahead, "_PROGRAM", "raise SystemExit(3)")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    if failure == "no such program":
        monkeypatch.setattr(sys, "executable", "/there/is/no/such/python3")
    started: list[list[str]] = []
    run = subprocess.run

    def noted(command: list[str], **more: Any) -> Any:
        started.append(command)
        return run(command, **more)

    monkeypatch.setattr(subprocess, "run", noted)
    ahead.begin("fit")
    ahead.finish()
    assert len(started) == 1
    assert raised == []
