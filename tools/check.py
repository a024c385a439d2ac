"""Run all checks side by side, show all complaints, and name the command that repairs each.

python tools/check.py          # what `make check` runs
python tools/check.py --fix    # what `make fix` runs: format, repair what a tool can, then check
"""

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


class Check(NamedTuple):
    """A command, and the remedy for its complaints."""

    name: str
    command: tuple[str, ...]
    remedy: str


class Outcome(NamedTuple):
    """The output of a check, whether it passed, and its seconds."""

    check: Check
    passed: bool
    printed: str
    seconds: float


CHECKS = [  # the longest first
    Check("types", ("mypy", "--num-workers", "2"), "by hand; `# type: ignore[code]` only with a reason"),
    Check(
        "imports",
        ("lint-imports",),
        "import a name from the module it is written in, below yours: the layers are in pyproject.toml",
    ),
    Check("lint", ("ruff", "check", "."), "make fix; what is left, by hand"),
    Check("format", ("ruff", "format", "--check", "."), "make fix"),
    Check("words", ("python", "tools/check_words.py"), "by hand: write what it says"),
    Check("inside", ("python", "tools/check_inside.py", "--long", "400"), "by hand: name the place, split the file"),
]
FIXES = [
    ("ruff", "check", "--fix", "--quiet", "."),
    ("ruff", "format", "--quiet", "."),
    ("python", "tools/results.py", "--fill"),
]


def run(check: Check) -> Outcome:
    """Run one check."""
    begun = time.perf_counter()
    command = [str(BIN / check.command[0]), *check.command[1:]]
    done = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return Outcome(check, done.returncode == 0, done.stdout.strip(), time.perf_counter() - begun)


def report(outcomes: list[Outcome]) -> str:
    """Return all complaints, then a line for each check and its remedy."""
    failed = [outcome for outcome in outcomes if not outcome.passed]
    lines = [f"── {outcome.check.name}\n{outcome.printed}\n" for outcome in failed]
    for outcome in outcomes:
        verdict = "ok" if outcome.passed else f"FAILED   → {outcome.check.remedy}"
        lines.append(f"{outcome.check.name:8s} {outcome.seconds:5.1f} s  {verdict}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run all checks, or repair and run them; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true", help="first format, and repair what tools can")
    if parser.parse_args(arguments).fix:
        for command in FIXES:
            subprocess.run([str(BIN / command[0]), *command[1:]], cwd=ROOT, check=False)
    with ThreadPoolExecutor(len(CHECKS)) as pool:
        outcomes = list(pool.map(run, CHECKS))
    print(report(outcomes))
    return int(not all(outcome.passed for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
