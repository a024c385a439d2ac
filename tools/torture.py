"""The long versions of the tests of reliability: every part in its own process, and one table of counts.

    python tools/torture.py                             # all parts, a minute each, some of them longer
    python tools/torture.py --seconds 600 --seed 7      # longer, and other trials
    python tools/torture.py chunks plans                # some parts

A part is a command that takes --seed and --seconds and prints, as its last line, a JSON object with the number of
`trials`, a table of how they `ended`, and what `failed`, or null. docs/reliability.md says what the parts are for.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

TOOLS = Path(__file__).resolve().parent
GRACE = 1800  # seconds that a part may take beyond its time, to compile and to make its minimum of trials


class Part(NamedTuple):
    """A part: its name, the promise that it tests, the command after `python`, and the factor of its time."""

    name: str
    promise: str
    command: tuple[str, ...]
    times: float = 1.0


def hardship(name: str, promise: str) -> Part:
    """Return a part of tools/hardships.py."""
    return Part(name, promise, (str(TOOLS / "hardships.py"), name))


def of_stores(name: str, promise: str, least: int, times: float = 1.0) -> Part:
    """Return a part of tests/torture/stores.py, with a minimum number of trials."""
    return Part(name, promise, ("-m", "torture.stores", name, "--least", str(least)), times)


def of_fleets(name: str, promise: str, least: int) -> Part:
    """Return a part of tests/torture/fleets.py, with at least so many trials."""
    return Part(f"fleet-{name}", promise, ("-m", "torture.fleets", name, "--least", str(least)))


PARTS = [
    Part("interrupts", "a call that is interrupted happened or did not", ("-m", "torture", "interrupts"), 12.0),
    Part("hostile", "a save file that was tampered with is refused or plays", ("-m", "torture", "hostile"), 12.0),
    Part("serving", "calls to workers that are killed happen once", ("-m", "torture", "serving"), 12.0),
    of_stores("kills", "eight processes that are killed lose nothing in a SQLite file", 125),
    of_stores("postgres-kills", "eight processes that are killed lose nothing in PostgreSQL", 125),
    of_stores("outages", "a server that is killed and comes back loses nothing", 10),
    of_stores("power-cuts", "a SQLite file survives that the power is cut", 200),
    of_stores("disk-faults", "a SQLite file survives a full or broken disk, at every write", 3),
    of_fleets("kills", "five workers of a fleet that are killed lose nothing in a SQLite file", 40),
    of_fleets("postgres-kills", "five workers of a fleet that are killed lose nothing in PostgreSQL", 40),
    hardship("chunks", "a damaged chunk of a study is noticed and computed again"),
    hardship("studies", "a study that is killed and damaged ends with the same tables"),
    hardship("workers", "workers that die cost no result"),
    hardship("saves", "a save that is killed leaves the file whole, and nothing for long"),
    hardship("kernels", "a damaged cache of kernels costs time only"),
    hardship("starts", "first starts at once share one cache"),
    hardship("plans", "a mutated plan is read or refused"),
    hardship("tables", "a mutated table is read or refused"),
    hardship("decisions", "a mutated decision is read or refused"),
]


def _environment() -> dict[str, str]:
    """Return the environment of a part, which finds the tests' modules."""
    paths = [str(TOOLS.parent / "tests"), str(TOOLS.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def run(part: Part, seed: int, seconds: float) -> dict[str, Any]:
    """Run a part; one that crashes, hangs or says nothing has failed."""
    command = [sys.executable, *part.command, "--seed", str(seed), "--seconds", str(seconds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + GRACE, env=_environment())
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"trials": 0, "ended": {}, "failed": f"it did not end within {seconds + GRACE:g} s"}
    except (IndexError, ValueError):
        return {"trials": 0, "ended": {}, "failed": f"it ended with status {done.returncode}: {done.stderr[-2000:]}"}
    return found


def line(part: Part, found: dict[str, Any], seconds: float) -> str:
    """Return a row of the table, in Markdown."""
    ended = ", ".join(f"{count} {how}" for how, count in sorted(found["ended"].items()))
    verdict = "**failed**" if found["failed"] else "held"
    return f"| {part.name} | {part.promise} | {found['trials']} | {ended or '–'} | {seconds:.0f} | {verdict} |"


def main(given: Sequence[str] | None = None) -> int:
    """Run parts, print the table, then the failures; return 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python tools/torture.py")
    parser.add_argument("parts", nargs="*", help="names of parts, by default all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        help="for each part; for interrupts, hostile and serving 12 times as long",
    )
    chosen = parser.parse_args(given)
    known = {part.name: part for part in PARTS}
    if unknown := next((name for name in chosen.parts if name not in known), None):
        parser.error(f"no part is called {unknown!r}; there are {', '.join(known)}")
    failures = []
    print(f"seed {chosen.seed}, {chosen.seconds:g} s for a part\n")
    print("| part | promise | trials | how they ended | seconds | |\n|---|---|---|---|---|---|", flush=True)
    for name in chosen.parts or known:
        start = time.monotonic()
        found = run(known[name], chosen.seed, chosen.seconds * known[name].times)
        print(line(known[name], found, time.monotonic() - start), flush=True)
        if found["failed"]:
            failures.append(f"{name}: {found['failed']}")
    print("\n" + ("\n".join(failures) or "Every promise held."))
    return int(bool(failures))


if __name__ == "__main__":
    raise SystemExit(main())
