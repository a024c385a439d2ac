"""All measurements in turn: `python -m benchmarks [--full] [PART …]`, as in `make bench`."""

import argparse
import time
from collections.abc import Callable
from importlib import import_module

from benchmarks import (
    ares,
    arms,
    filters,
    fleets,
    growth,
    headline,
    late,
    learners,
    quality,
    rounds,
    sampling,
    serving,
    speed,
    stores,
    study,
    tables,
    tuner,
)
from benchmarks.problems import FULL, SHORT


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument(
        "--full", action="store_true", help="every system, more paths, longer, the learners' own, and long tables"
    )
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help="quality, speed, rounds, headline, ares, sampling, growth, study, tuner, late, arms, filters, stores, "
        "fleets, serving, routing, tables, learners",
    )
    chosen = parser.parse_args()
    extent = FULL if chosen.full else SHORT
    parts: dict[str, Callable[[], object]] = {
        "quality": lambda: quality.main(extent),
        "speed": speed.main,
        "rounds": rounds.main,
        "headline": headline.main,
        "ares": ares.main,
        "sampling": sampling.main,
        "growth": growth.main,
        "study": study.main,
        "tuner": tuner.main,
        "late": late.main,
        "arms": arms.main,
        "filters": lambda: filters.main(full=chosen.full),
        "stores": stores.main,
        "fleets": fleets.main,
        "serving": serving.main,
        "routing": lambda: import_module("benchmarks.routing").main(),  # LiteLLM takes seconds to import
        "tables": tables.main,
        "learners": learners.main,
    }
    names = chosen.parts or [name for name in parts if name not in ("tables", "learners") or chosen.full]
    if not chosen.full:
        print(
            f"The short form: psi {' and '.join(map(str, extent.psi))}, {len(extent.systems)} random systems, "
            f"{extent.paths} paths, {extent.rounds} rounds. BENCH=full for everything."
        )
    begun = time.perf_counter()
    for name in names:
        print(f"\n=== {name}, after {(time.perf_counter() - begun) / 60:.1f} minutes", flush=True)
        parts[name]()
    print(f"\nAll done after {(time.perf_counter() - begun) / 60:.1f} minutes; everything is in out/bench/")


if __name__ == "__main__":
    main()
