"""Threads and forks: a forked process waits for no lock that nobody holds, and fits go on whatever ends a thread."""

import importlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest

import undertow
from helpers import learner_of
from undertow.learning import fits
from undertow.learning import threads as crews
from undertow.models.shared_system.model import SharedSystem
from undertow.policies import LearnedKalman

kernels: Any = importlib.import_module("undertow.compiled.kernel")  # the package has a function of that name

# A thread begins to load or to compile and takes half a second; meanwhile the process forks, and the child compiles too
WHILE_BUSY = """
import os, signal, sys, threading, time
from numba.core import event
from undertow.compiled.keeping import KernelCache
from undertow.compiled.kernel import kernel
from undertow.policies import UCB

busy, load = threading.Event(), KernelCache.load_overload

class Slow(event.Listener):
    def on_start(self, event):
        self.wait()
    def on_end(self, event):
        pass
    def wait(self, *given):
        if not busy.is_set():
            busy.set()
            time.sleep(0.5)

slow = Slow()
if sys.argv[1] == "compiling":
    event.register("numba:compile", slow)
else:
    KernelCache.load_overload = lambda *given: (slow.wait(), load(*given))[1]

@kernel
def double(x):
    return 2.0 * x

def work():
    if sys.argv[1] == "compiling":
        assert double(1.0) == 2.0
    else:
        UCB(arms=2).decide()

thread = threading.Thread(target=work)
thread.start()
busy.wait()
child = os.fork()
if not child:
    signal.alarm(int(sys.argv[2]))
    work()
    os._exit(0)
thread.join()
sys.exit(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("what", ["compiling", "loading"])
def test_a_fork_while_a_thread_loads_or_compiles_leaves_no_lock_behind(what: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", WHILE_BUSY, what, "60"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_that_waits_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(kernels, "_PATIENCE", 0.01)
    lock, held, over = kernels.global_compiler_lock, threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    threading.Timer(0.2, over.set).start()
    kernels._hold_compiler()  # noqa: SLF001 (what `os.fork` calls)
    lock.release()
    thread.join()
    assert capsys.readouterr().err.startswith("undertow: a fork waits until a thread has compiled its kernels")


SLOW_TO_COMPILE = """
import sys, time
import importlib
kernels = importlib.import_module("undertow.compiled.kernel")
kernels._PATIENCE = float(sys.argv[1])

def square(x):
    return x * x

square.__module__ = "undertow.policies.autopilot"
square = kernels.kernel(square)

class Event:
    data = {"dispatcher": square}

compiling = kernels._Compiling()
for _ in range(3):
    compiling.on_start(Event)
    time.sleep(0.2)
    compiling.on_end(Event)
"""


def test_a_compilation_that_takes_long_says_what_is_compiled() -> None:
    """One line for all kernels together, and none for those that are quick."""
    for patience, lines in ((60.0, 0), (0.3, 1)):
        command = [sys.executable, "-c", SLOW_TO_COMPILE, str(patience)]
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stderr
        assert said.count("\n") == lines
    assert said.startswith("undertow: compiling kernels of undertow.policies.autopilot for this machine (once, later")
    assert "two and a half minutes for a learner" in said
    assert "`undertow precompile`" in said


def learner() -> Any:
    return LearnedKalman(arms=2, refit="background", rng=0)


def play(policy: Any, until: Any) -> None:
    """Decide until something holds, for five minutes at most: kernels may have to be compiled."""
    end = time.monotonic() + 300
    while not until():
        assert time.monotonic() < end, policy.health()
        policy.learn(policy.decide(), float(np.sin(policy.round)))
        time.sleep(0.002)


def test_whatever_ends_a_fit_is_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, fit = learner(), SharedSystem.fit

    def ends_the_thread(*given: Any) -> Any:
        monkeypatch.setattr(SharedSystem, "fit", fit)
        raise SystemExit("out of luck")

    monkeypatch.setattr(SharedSystem, "fit", ends_the_thread)
    with pytest.warns(RuntimeWarning, match="out of luck"):
        play(policy, lambda: policy.health().fits)
    assert not policy.health().ok
    assert "SystemExit('out of luck')" in policy.health().problems[0]
    play(policy, lambda: policy.model is not None)
    assert policy.health().ok


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_died_is_replaced() -> None:
    """Fits that it was to make, and those of other policies, are made by the next one."""

    def die() -> None:
        raise SystemExit

    policy = learner()
    play(policy, lambda: learner_of(policy).fits.under_way)
    crew = crews.shared_threads(policy)
    crew.do(die)
    while crew.here:
        time.sleep(0.001)
    play(policy, lambda: policy.model is not None)
    other = learner()
    play(other, lambda: other.model is not None)


def test_a_fit_that_begins_again_in_every_call_is_noted_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a service that loads its policy for every request."""
    monkeypatch.setattr(crews.FitThreads, "do", lambda crew, task: None)  # no fit ever ends
    monkeypatch.setattr(fits, "_restarts", Counter())  # other tests begin the same fit
    policy = learner()
    play(policy, lambda: learner_of(policy).fits.under_way)
    content = policy.to_bytes()
    with caplog.at_level(logging.WARNING, "undertow.fits"):
        for number in range(4):
            again = undertow.from_bytes(content)
            again.learn(again.decide(), 1.0)
            content = again.to_bytes()
            assert len(caplog.messages) == (number >= 1)
    assert "begins for the third time" in caplog.text
    assert "refit='inline'" in caplog.text
