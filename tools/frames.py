"""Print which functions of undertow a live call goes through, after warm-up.

python tools/frames.py          # their number, and that of their files
python tools/frames.py --all    # one line for each
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from undertow.policies import Autopilot, LinUCB, LivePolicy

SOURCES = str(Path(__file__).resolve().parents[1] / "src" / "undertow")
CONTEXTS = np.random.default_rng(0).normal(size=(400, 2))


def frames(call: Callable[[], Any]) -> list[tuple[str, str]]:
    """Return file and name of every function of undertow that a call goes through, in order."""
    seen: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCES):
            seen.append((code.co_filename.removeprefix(SOURCES + "/"), code.co_name))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def rounds(policy: LivePolicy, count: int) -> None:
    """Play some rounds, with a reward each."""
    for _ in range(count):
        decision = policy.decide(context=CONTEXTS[policy.round])
        policy.learn(decision, float(CONTEXTS[policy.round, decision.arm % 2]))


def measured() -> dict[str, list[tuple[str, str]]]:
    """Return the frames of the calls that docs/inside.md shows."""
    linear = LinUCB(arms=3, context_dim=2, context_first=True)
    rounds(linear, 70)
    found = {"LinUCB, decide(context=…)": frames(lambda: linear.decide(context=CONTEXTS[70]))}
    last = next(reversed(linear.parts.pending.entries))
    found["LinUCB, learn"] = frames(lambda: linear.learn(last, 0.3))
    found["LinUCB, observe"] = frames(lambda: linear.observe(CONTEXTS[71]))
    pilot = Autopilot(arms=3, context_dim=2, context_first=True, refit="inline", rng=0)
    rounds(pilot, 109)
    found["Autopilot, decide(context=…)"] = frames(lambda: pilot.decide(context=CONTEXTS[109]))
    waits = pilot.decide(context=CONTEXTS[110])
    rounds(pilot, 3)
    found["Autopilot, learn, 3 rounds late"] = frames(lambda: pilot.learn(waits, 0.5))
    found["Autopilot, decide(context=…) after that"] = frames(lambda: pilot.decide(context=CONTEXTS[114]))
    return found


def main() -> None:
    """Print the frames."""
    parser = argparse.ArgumentParser(prog="python tools/frames.py")
    parser.add_argument("--all", action="store_true", help="one line for each function")
    given = parser.parse_args()
    print("| call | functions | files |\n|---|---|---|")
    for name, seen in measured().items():
        print(f"| {name} | {len(seen)} | {len({file for file, _ in seen})} |")
        if given.all:
            for file, function in seen:
                print(f"    {file}: {function}")


if __name__ == "__main__":
    main()
