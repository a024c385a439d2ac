"""Run the long trials, for `tools/torture.py`: PYTHONPATH=tests python -m torture interrupts --seconds 600 --seed 3.

The last line is a JSON object with the number of trials, how they ended, and what failed.
"""

import argparse
import json
import sys
from collections.abc import Sequence

import undertow
from torture import hostile, interrupts, serving

TRIALS = {"interrupts": interrupts, "hostile": hostile, "serving": serving}


def main(given: Sequence[str] | None = None) -> int:
    """Run trials of one kind and print what they counted; 1 where anything went wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m torture", description="Signals within calls, hostile files, and workers that are killed."
    )
    parser.add_argument("kind", choices=sorted(TRIALS))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(given)
    undertow.precompile()  # a learner whose kernels another process still compiles has no models to look at
    counts = TRIALS[chosen.kind].run(chosen.seed, seconds=chosen.seconds)
    trials, *ended = counts[:-1]
    names = counts._fields[1:-1]
    failed = "; ".join(counts.wrong) or None
    print(json.dumps({"trials": trials, "ended": dict(zip(names, ended, strict=True)), "failed": failed}))
    return int(bool(counts.wrong))


if __name__ == "__main__":
    sys.exit(main())
