"""How many files and functions of ours one live call goes through: a decision should be read in a few places.

python tests/live/test_trace.py POLICY      # prints them; with NUMBA_DISABLE_JIT=1 those in kernels, too
"""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

import undertow
from undertow import paper_system
from undertow.policies import registry

# The most files of src/undertow that a decision may go through: up to the compiled loop, and with the kernels, too
MOST_FILES = {"autopilot": (11, 27), "ucb": (6, 9)}
ROUNDS = 15  # played before, so that a learner has fitted its models; no fit is due then
SOURCES = str(Path(undertow.__file__).parent)


class Trace(NamedTuple):
    """Where a call went: files and functions of ours, in order, and how often it went from one file to another."""

    files: list[str]
    functions: list[str]
    jumps: int


def trace(call: Callable[[], object]) -> Trace:
    """Make a call and note which Python functions of undertow it enters."""
    visited: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCES):
            visited.append((code.co_filename.removeprefix(SOURCES).lstrip("/\\"), code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    files = [file for file, _ in visited]
    jumps = sum(one != other for one, other in itertools.pairwise(files))
    return Trace(list(dict.fromkeys(files)), [f"{file} {name}" for file, name in dict.fromkeys(visited)], jumps)


def traces(name: str) -> dict[str, Trace]:
    """Play a policy for a while, then trace one ordinary round of it: no fit falls into it."""
    path = paper_system(1).sample(ROUNDS + 1, rng=0)
    contexts = {"context_dim": 1} if "context_dim" in registry()[name].parameters else {}
    policy = undertow.make(name, arms=2, rng=0, **contexts)
    for t in range(ROUNDS):
        decision = policy.decide()
        policy.learn(decision, float(path.rewards[t, decision.arm]))
        if contexts:
            policy.observe(path.contexts[t])
    decide, reward = trace(policy.decide), float(path.rewards[ROUNDS, 0])
    (last,) = policy.parts.pending.waiting
    return {"decide": decide, "learn": trace(lambda: policy.learn(last, reward))}


def whole_traces(name: str) -> dict[str, Trace]:
    """Trace in a process in which nothing is compiled, so that the way through the kernels is seen."""
    command = [sys.executable, __file__, name, "--json"]
    places = os.pathsep.join([str(Path(SOURCES).parent), os.environ.get("PYTHONPATH", "")])
    settings = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": places}
    done = subprocess.run(command, env=settings, check=True, stdout=subprocess.PIPE, text=True)
    return {call: Trace(*found) for call, found in json.loads(done.stdout).items()}


def show(name: str, found: dict[str, Trace]) -> None:
    for call, one in found.items():
        print(f"{name}, {call}: {len(one.files)} files, {len(one.functions)} functions, {one.jumps} jumps")
        print("".join(f"    {function}\n" for function in one.functions))


@pytest.mark.parametrize("name", [pytest.param("autopilot", marks=pytest.mark.slow), "ucb"])
def test_a_decision_goes_through_few_files(name: str) -> None:
    for found, most in zip((traces(name), whole_traces(name)), MOST_FILES[name], strict=True):
        show(name, found)
        assert found["decide"].functions
        assert len(found["decide"].files) <= most, found["decide"].files


def test_a_trace_sees_our_functions_alone() -> None:
    assert trace(lambda: sorted([2, 1])) == Trace([], [], 0)
    found = trace(lambda: paper_system(1))
    assert found.files[0] == "example_systems.py"
    assert "system.py" in found.files
    assert found.functions[0] == "example_systems.py paper_system"
    assert found.jumps > 0


if __name__ == "__main__":
    if sys.argv[2:] == ["--json"]:
        print(json.dumps(traces(sys.argv[1])))
    else:
        show(sys.argv[1], traces(sys.argv[1]))
