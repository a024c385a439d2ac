"""Run the long trials.

PYTHONPATH=tests python -m torture                         # both, for a minute each
PYTHONPATH=tests python -m torture --only interrupts --seconds 600 --seed 3
"""

import argparse
import sys
from collections.abc import Sequence

from torture import hostile, interrupts

TRIALS = {"interrupts": interrupts, "hostile": hostile}


def main(given: Sequence[str] | None = None) -> int:
    """Run the trials, print what they counted, and return 1 where anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m torture", description="Signals within calls, and hostile files.")
    parser.add_argument("--only", choices=sorted(TRIALS), help="one kind of trials instead of both")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each kind runs")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(given)
    wrong = False
    for name, trials in TRIALS.items():
        if chosen.only in (None, name):
            counts = trials.run(chosen.seed, seconds=chosen.seconds)
            print(f"{name}: {counts}", flush=True)
            wrong |= bool(counts.wrong)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
