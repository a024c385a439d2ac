"""The speed of this checkout beside another one: rounds in a simulation, live rounds, imports, first use, compilation.

    git worktree add --detach ../old COMMIT        # the code to compare with
    python -m benchmarks.versus ../old             # a few minutes, the first time some more, to compile
    python -m benchmarks.versus ../old --compile   # and the time to compile from nothing

Each checkout has a process of its own, with its `src` alone on the path and one core; both are asked in turn, many
short turns over, and wait meanwhile. A ratio is taken within a turn, so that whatever else the machine does meets both
sides; shown are medians over turns, and the middle half of the ratios. Where a process happens to lie in memory is
worth some per cent, so several pairs of processes are started, one after another. Only the public interface is used, so
that checkouts whose inside differs can be compared. Compiled kernels are kept in .bench/versus; nothing is written to
either checkout.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".bench" / "versus"
SIMULATED = {  # rounds of one simulation; those of the learners have their fits in them
    "ucb": 100_000,
    "linucb": 20_000,
    "ares": 20_000,
    "kalman-greedy": 50_000,
    "learned-kalman": 2_000,
    "structural-kalman": 2_000,
    "autopilot": 2_000,
}
BEGUN, LIVE = 500, 100  # live rounds before the first measured one, and in every turn
CALLS = ("decide", "learn", "observe")
WITH_CONTEXTS = [name for name in SIMULATED if name != "ucb"]
IMPORTS = {  # the timed code, and its set-up
    "import undertow": ("pass", "import undertow"),
    "import its policies and simulate": ("pass", "from undertow import make, simulate"),
    "the same after numba and scipy.linalg": (
        "import numba, numpy, scipy.linalg",
        "from undertow import make, simulate",
    ),
    "first decision of ucb": ("pass", "from undertow import make; make('ucb', arms=2, rng=0).decide()"),
    "first decision of ares": ("pass", "from undertow import make; make('ares', arms=2, context_dim=1).decide()"),
    "first decision of autopilot": (
        "pass",
        "from undertow import make; make('autopilot', arms=2, context_dim=1, rng=0).decide()",
    ),
}
FRESH = """
import time
{before}
start = time.process_time()
{timed}
print(time.process_time() - start)
"""
FIRST_FIT = """
import os
used = sum(os.times()[:4])  # of the processes that compile beside it, too
from undertow import make, paper_system
path = paper_system(1).sample({rounds}, rng=0)
policy = make({policy!r}, arms=2, context_dim=1, rng=0)
for t in range({rounds}):
    decision = policy.decide()
    policy.learn(decision, float(path.rewards[t, decision.arm]))
    policy.observe(path.contexts[t])
print(sum(os.times()[:4]) - used)
"""
COMPILED = {"ares": 5, "learned-kalman": 150, "autopilot": 150}  # live rounds, for learners until after a first fit


Both = tuple[list[float], list[float]]  # seconds of the old and of the new code, one entry a turn each


class Checkout:
    """A checkout and the process that measures it."""

    def __init__(self, folder: Path) -> None:
        self.source = folder.resolve() / "src"
        if not (self.source / "undertow").is_dir():
            raise SystemExit(f"{folder}: expected a checkout with src/undertow")
        self.kept = KEPT / hashlib.blake2b(str(self.source).encode(), digest_size=6).hexdigest()
        self.process: subprocess.Popen[str] | None = None

    def environment(self, kernels: Path | None = None) -> dict[str, str]:
        """Return the variables of a process in which `import undertow` finds this checkout."""
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        places = {"NUMBA_CACHE_DIR": kernels or self.kept / "kernels", "PYTHONPYCACHEPREFIX": self.kept / "bytecode"}
        kept = {name: str(place) for name, place in places.items()}
        given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return given | threads | kept | {"PYTHONPATH": str(self.source), "PYTHONHASHSEED": "0"}

    def run(self, program: str, kernels: Path | None = None) -> float:
        """Run a program in a fresh process and return the number that it prints."""
        command = [sys.executable, "-P", "-c", program]
        done = subprocess.run(command, env=self.environment(kernels), check=True, stdout=subprocess.PIPE, text=True)
        return float(done.stdout)

    def run_from_nothing(self, program: str) -> float:
        """Run a program in a fresh process that finds no kernels."""
        with tempfile.TemporaryDirectory() as folder:
            return self.run(program, Path(folder))

    def ask(self, **command: Any) -> Any:
        """Send the worker a command and return its answer."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-P", __file__, "--worker"],
                env=self.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            if (found := Path(self.ask(measure="where")).resolve()).parents[1] != self.source:
                raise SystemExit(f"{self.source}: undertow was imported from {found}")
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.source}: the worker ended at {command}")
        return json.loads(answer)

    def end(self) -> None:
        """End the worker."""
        if self.process is not None:
            self.process.communicate()
            self.process = None


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versus")
    parser.add_argument("old", type=Path, help="folder of the checkout to compare with")
    parser.add_argument("--turns", type=int, default=9, help="how often a pair of processes is measured (9)")
    parser.add_argument("--pairs", type=int, default=4, help="how many pairs of processes are started (4)")
    parser.add_argument("--compile", action="store_true", help="also compile from nothing, twice on each side")
    parser.add_argument("--policies", nargs="+", choices=list(SIMULATED), default=list(SIMULATED))
    chosen = parser.parse_args(given)
    old, new = Checkout(chosen.old), Checkout(ROOT)
    print(f"old {old.source}\nnew {new.source}\nload {', '.join(f'{x:.1f}' for x in os.getloadavg())}", flush=True)
    in_simulations: dict[str, Both] = {}
    in_live_play: dict[str, Both] = {}
    in_one_call: dict[str, Both] = {}
    for _ in range(chosen.pairs):
        try:
            for name in chosen.policies:
                simulated(in_simulations, old, new, name, chosen.turns)
                live(in_live_play, old, new, name, 3 * chosen.turns)
                if name in WITH_CONTEXTS:
                    live(in_one_call, old, new, name, 3 * chosen.turns, context_first=True)
        finally:
            old.end()
            new.end()
    show("A round of a simulation, time of the processor", in_simulations)
    show("A live round, the median one", in_live_play)
    if in_one_call:
        show("The same with decide(context=…)", in_one_call)
    show("A fresh process, kernels on disk, time of the processor", fresh(old, new, chosen.turns))
    if chosen.compile:
        show("First use with no kernels on disk, time of the processor", compiled(old, new, turns=2))


def show(title: str, rows: Mapping[str, Both]) -> None:
    """Print a table."""
    print(f"\n{title}\n{'':44s}{'old':>10s}{'new':>10s}{'new / old':>12s}{'middle half':>18s}")
    for what, (old, new) in rows.items():
        ratios = sorted(b / a for a, b in zip(old, new, strict=True))
        quarter = len(ratios) // 4
        span = f"{ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f}"
        print(
            f"{what:44s}{unit(median(old)):>10s}{unit(median(new)):>10s}{median(ratios):12.3f}{span:>18s}", flush=True
        )


def unit(seconds: float) -> str:
    """Return a time in a unit that suits it."""
    scale, name = next(((s, n) for s, n in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")) if seconds >= s), (1e-9, "ns"))
    return f"{seconds / scale:.3g} {name}"


def in_turn(
    old: Checkout, new: Checkout, turns: int, take: Callable[..., Any], /, **what: Any
) -> tuple[list[Any], list[Any]]:
    """Measure both sides, now one first and now the other."""
    found: dict[Checkout, list[Any]] = {old: [], new: []}
    for turn in range(turns):
        for side in (old, new) if turn % 2 else (new, old):
            found[side].append(take(side, **what))
    return found[old], found[new]


def add(rows: dict[str, Both], what: str, found: Both) -> None:
    """Add turns to a line of a table."""
    for kept, more in zip(rows.setdefault(what, ([], [])), found, strict=True):
        kept.extend(more)


def simulated(rows: dict[str, Both], old: Checkout, new: Checkout, name: str, turns: int) -> None:
    command = {"measure": "simulate", "policy": name, "rounds": SIMULATED[name]}
    in_turn(old, new, 1, Checkout.ask, **command)  # compiles or loads
    add(rows, name, in_turn(old, new, turns, Checkout.ask, **command))


def live(
    rows: dict[str, Both], old: Checkout, new: Checkout, name: str, turns: int, *, context_first: bool = False
) -> None:
    command = {"measure": "live", "policy": name, "context_first": context_first}
    in_turn(old, new, 1, Checkout.ask, rounds=BEGUN, **command)
    before, after = in_turn(old, new, turns, Checkout.ask, rounds=LIVE, **command)
    for call in before[0]:
        add(rows, f"{name}, {call}", ([one[call] for one in before], [one[call] for one in after]))


def fresh(old: Checkout, new: Checkout, turns: int) -> dict[str, Both]:
    rows: dict[str, Both] = {}
    for what, (before, timed) in IMPORTS.items():
        program = FRESH.format(before=before, timed=timed)
        in_turn(old, new, 1, Checkout.run, program=program)  # leaves kernels and bytecode
        rows[what] = in_turn(old, new, turns, Checkout.run, program=program)
    return rows


def compiled(old: Checkout, new: Checkout, turns: int) -> dict[str, Both]:
    return {
        name: in_turn(old, new, turns, Checkout.run_from_nothing, program=FIRST_FIT.format(policy=name, rounds=rounds))
        for name, rounds in COMPILED.items()
    }


# The worker of a checkout reads one command per line and answers with seconds


class Live(NamedTuple):
    """A policy in live play and the path it is on."""

    policy: Any
    path: Any


def work() -> None:
    """Answer commands until there are no more."""
    import undertow

    begun: dict[tuple[str, bool], Live] = {}
    for line in sys.stdin:
        command = json.loads(line)
        match command:
            case {"measure": "where"}:
                answer: Any = undertow.__file__
            case {"measure": "simulate", "policy": str(name), "rounds": int(rounds)}:
                answer = _simulate(name, rounds)
            case {"measure": "live", "policy": str(name), "rounds": int(rounds), "context_first": bool(first)}:
                answer = _play(begun, name, rounds, context_first=first)
        print(json.dumps(answer), flush=True)


def _policy(name: str, *, context_first: bool = False) -> tuple[Any, Any]:
    import undertow
    from undertow.policies import registry

    system, takes = undertow.paper_system(1), registry()[name].parameters
    order = {"context_first": True} if context_first else {}
    if "system" in takes:
        return system, undertow.make(name, system, rng=0, **order)
    contexts = {"context_dim": 1} if "context_dim" in takes else {}
    return system, undertow.make(name, arms=2, rng=0, **contexts, **order)


def _simulate(name: str, rounds: int) -> float:
    import undertow

    system, policy = _policy(name)
    path = system.sample(rounds, rng=0)
    start = time.process_time()
    undertow.simulate(policy, path, threads=1)
    return (time.process_time() - start) / rounds


def _play(begun: dict[tuple[str, bool], Live], name: str, rounds: int, *, context_first: bool) -> dict[str, float]:
    """Continue playing live; return the median time of each call and of a round, for learners without fits."""
    key = name, context_first
    if key not in begun:
        system, policy = _policy(name, context_first=context_first)
        begun[key] = Live(policy, system.sample(50_000, rng=0))
    policy, path = begun[key]
    at = policy.round
    contexts, rewards = path.contexts[at : at + rounds], path.rewards[at : at + rounds].tolist()
    sees = not context_first and getattr(policy, "context_dim", 1) > 0 and hasattr(policy, "context_first")
    clock = time.perf_counter_ns
    times = []
    for context, paid in zip(contexts, rewards, strict=True):
        start = clock()
        decision = policy.decide(context=context) if context_first else policy.decide()
        decided = clock()
        policy.learn(decision, paid[decision.arm])
        learned = clock()
        if sees:
            policy.observe(context)
        times.append((decided - start, learned - decided, clock() - learned))
    columns = {"round": tuple(map(sum, times))} | dict(zip(CALLS, zip(*times, strict=True), strict=True))
    if not sees:
        del columns["observe"]
    return {call: 1e-9 * median(column) for call, column in columns.items()}


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        work()
    else:
        main()
