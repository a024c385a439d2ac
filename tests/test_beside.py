"""Compiling what fits need in a process of its own: it is found on disk, and nothing depends on it."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from undertow.policies import LearnedKalman, beside

FIRST_DECISIONS = """
from undertow.identify.descent import fit_model
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
    monkeypatch.setattr(beside, "to_be_compiled", lambda module: True)
    monkeypatch.setattr(beside, "_under_way", None)
    monkeypatch.setattr(beside, "_run", commands.append)
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
    assert done.stderr == ""


def test_the_first_decision_asks_for_it(cold: list[list[str]]) -> None:
    policy = LearnedKalman(arms=2, rng=0)
    assert cold == []
    policy.decide()
    beside.finish()
    (command,) = cold
    assert command[:3] == ["/somewhere/python3.11", "-P", "-c"]
    assert "identify.fit(" in command[3]


def test_a_model_that_compiles_little_asks_for_nothing(cold: list[list[str]]) -> None:
    beside.begin("")
    beside.finish()
    assert cold == []


def test_it_is_asked_for_once_at_a_time(cold: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()

    def run(command: list[str]) -> None:
        cold.append(command)
        done.wait()

    monkeypatch.setattr(beside, "_run", run)
    beside.begin("fit")
    beside.begin("fit_levels")
    done.set()
    beside.finish()
    assert len(cold) == 1


def test_one_core_and_foreign_programs_compile_by_themselves(
    cold: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/usr/sbin/a-server")
    beside.begin("fit")
    monkeypatch.setattr(sys, "executable", None)
    beside.begin("fit")
    monkeypatch.setattr(sys, "executable", "/somewhere/python3.11")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)
    beside.begin("fit")
    beside.finish()
    assert cold == []


def test_a_process_that_cannot_be_started_is_no_obstacle() -> None:
    beside._run(["/there/is/no/such/python3"])
    beside._run([sys.executable, "-c", "raise SystemExit(3)"])
