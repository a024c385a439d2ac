"""The speed of the learners: the likelihood, complete runs, rounds between fits, compilation, fits in the background.

Everything that is compared is timed in turn, several times over, and the best time counts. The likelihood is compared
with the same algorithm in C++ and with its readable twin, and a run with one of ARES. The tables are also written to
out/bench/learners.json.
"""

import ctypes
import functools
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import ares
from benchmarks.report import CPP, HERE, OUT, REORDER, Array, Report, Times, sampled
from helpers import fit_next, learner_of, models_of
from twins import naive_identify as naive
from undertow import Trajectory, paper_system, random_system, simulate
from undertow.identify import fit
from undertow.learning.policy import LearningPolicy
from undertow.models.shared_system.score import filter_table, information_size, score, store_size
from undertow.models.shared_system.vector import Prior
from undertow.policies import ARES, Autopilot, LearnedKalman, StructuralKalman

REPEATS = 5
ROUNDS = 10_000  # of a complete run
KERNEL_ROUNDS, TWIN_ROUNDS, KERNEL_REPEATS = 5_000, 300, 25
WARM_ROWS, ENOUGH = 5_000, 4_000  # past rounds before fits in the background, and decisions taken beside them
PRIOR = np.array([1.5, 0.7, 0.3, 1.9, 0.4, 0.6, 0.05, 0.4, 1.3])
START = Prior(PRIOR, 0).start_variance
YARDSTICK = 250  # ns a round of ARES in C++ where the targets were set
REORDERED = "C++ -O3, sums reordered"
FIRST_RUN = """
import os, sys, time
import numpy as np
stored = np.load(sys.argv[2])
start, used = time.perf_counter(), sum(os.times()[:4])  # of the process that compiles beside it, too
from undertow import Trajectory, simulate
from undertow.policies import Autopilot, LearnedKalman
make = {"LearnedKalman": LearnedKalman, "Autopilot": Autopilot}[sys.argv[1]]
policy = make(arms=2, context_dim=1, rng=0)
if sys.argv[3] == "simulate":
    simulate(policy, Trajectory(stored["contexts"], stored["rewards"]), threads=1)
else:
    arms = np.arange(len(stored["rewards"])) % 2
    policy.warm_start(arms, stored["rewards"][np.arange(len(arms)), arms], contexts=stored["contexts"])
    policy.decide()
    assert policy.model is not None
print([time.perf_counter() - start, sum(os.times()[:4]) - used])
"""


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    report = Report()
    report.table("Load of the machine before anything runs, over 1, 5 and 15 minutes")
    report.note(", ".join(f"{load:.1f}" for load in os.getloadavg()) + f" on {os.cpu_count()} cores")
    yardstick(report)
    likelihood(report)
    whole_runs(report)
    between_fits(report)
    live_between_fits(report)
    background(report)
    long_log(report)
    compilation(report)
    report.save(OUT / "learners.json")


# How fast this machine is


def yardstick(report: Report) -> None:
    """Time a reference independent of our code, to scale times to a machine of known speed."""
    path = sampled(paper_system(1), 200_000)
    play = ares.compiled_cpp("ares-reordered", REORDER)
    times = in_turn({"C++": functools.partial(play, path)}, path.rounds / 1e9)
    report.table("The yardstick: ARES in C++ on a stored trajectory, p = 11", "ns a round on one core", times)
    report.slowness = min(times["C++"]) / YARDSTICK
    report.note(f"{report.slowness:.2f} × the {YARDSTICK} ns of the machine that the targets below were set for")


# The likelihood


class Problem(NamedTuple):
    """A model with nothing zero, a table without gaps, and room for the answers."""

    π: Array
    d: int
    m: int
    k: int
    table: Array
    store: Array
    gradient: Array
    information: Array
    disturbed: Array

    @classmethod
    def of(cls, d: int, m: int, k: int, rounds: int) -> "Problem":
        """Sample a problem of the given sizes."""
        rng = np.random.default_rng(d)
        A = rng.standard_normal((d, d))
        A *= 0.9 / np.abs(np.linalg.eigvals(A)).max()
        b, C, D = 0.3 * rng.standard_normal(d), rng.standard_normal((m + k, d)), rng.standard_normal(m + k)
        π = naive.pack(naive.Matrices(A, b, C, D, np.ones(m + k)), m)
        contexts, arms, rewards = rng.standard_normal((rounds, m)), rng.integers(0, k, rounds), rng.normal(size=rounds)
        table = np.column_stack([contexts, arms, rewards])
        room = np.zeros(store_size(rounds, m)), np.zeros(len(π)), np.zeros(information_size(m, k)), np.zeros((17, 8))
        return cls(π, d, m, k, table, *room)

    def filtered(self) -> float:
        """Return the log likelihood."""
        return filter_table(self.π, self.d, self.m, self.k, self.table, START, self.store)

    def scored(self) -> float:
        """Return the penalised objective and fill its gradient."""
        objective: float = score(*self[:5], PRIOR, *self[5:])[0]
        return objective

    def filtered_by_twin(self) -> float:
        """Return the log likelihood of the first rounds from the readable twin."""
        return naive.run_filter(self.π, self.d, self.m, self.k, self.table[:TWIN_ROUNDS], START)[0]

    def filtered_by(self, library: Any) -> float:
        """Return the log likelihood from C++."""
        where = [self.π.ctypes.data, self.d, self.m, self.k, self.table.ctypes.data, len(self.table)]
        return float(library.filter_table(*where, START, self.store.ctypes.data))

    def scored_by(self, library: Any) -> float:
        """Return the objective from C++."""
        where = [self.π.ctypes.data, self.d, self.m, self.k, self.table.ctypes.data, len(self.table)]
        return float(library.score(*where, PRIOR.ctypes.data, *(array.ctypes.data for array in self[5:])))


def likelihood(report: Report) -> None:
    """Likelihood and score: ours, the same in C++, and the readable twin; equal before they are timed."""
    cpp = {REORDERED: compiled_cpp()}
    for d in (2, 5, 8):
        problem = Problem.of(d, 1, 2, KERNEL_ROUNDS)
        short = problem._replace(table=np.ascontiguousarray(problem.table[:TWIN_ROUNDS]))
        objective, gradient = problem.scored(), problem.gradient.copy()
        assert math.isclose(short.filtered(), problem.filtered_by_twin(), rel_tol=1e-9)
        for library in cpp.values():
            assert math.isclose(problem.filtered(), problem.filtered_by(library), rel_tol=1e-9)
            assert math.isclose(objective, problem.scored_by(library), rel_tol=1e-9)
            assert np.linalg.norm(problem.gradient - gradient) <= 1e-9 * np.linalg.norm(gradient)
        ours: dict[str, Callable[[], object]] = {"filter_table": problem.filtered}
        ours |= {name: functools.partial(problem.filtered_by, library) for name, library in cpp.items()}
        both: dict[str, Callable[[], object]] = {"score": problem.scored}
        both |= {name: functools.partial(problem.scored_by, library) for name, library in cpp.items()}
        for title, calls in (("The likelihood", ours), ("The likelihood and its gradient", both)):
            times = in_turn(calls, KERNEL_ROUNDS / 1e9, KERNEL_REPEATS)
            if title == "The likelihood":
                twin: dict[str, Callable[[], object]] = {"plain NumPy": problem.filtered_by_twin}
                times |= in_turn(twin, TWIN_ROUNDS / 1e9)
            report.table(f"{title}, d = {d}, m = 1, k = 2, n = {KERNEL_ROUNDS}", "ns a round on one core", times)
            name = next(iter(calls))
            ratios = {rival: min(times[name]) / min(times[rival]) for rival in cpp}
            if title == "The likelihood":
                report.target(f"{name} over {REORDERED}", ratios[REORDERED], most=1.5)
            else:
                report.note(f"{name} over {REORDERED}: {ratios[REORDERED]:.2f}")


def compiled_cpp() -> Any:
    """Compile likelihood.cpp, whose `filter_table` and `score` take pointers."""
    library = OUT / "likelihood.so"
    subprocess.run([*CPP, *REORDER, str(HERE / "likelihood.cpp"), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    pointer, integer, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    sizes: list[Any] = [pointer, integer, integer, integer, pointer, integer]
    loaded.filter_table.argtypes, loaded.filter_table.restype = [*sizes, real, pointer], real
    loaded.score.argtypes, loaded.score.restype = sizes + 5 * [pointer], real
    return loaded


# Complete runs, fits included


def own_levels(rounds: int, rng: int = 0) -> Trajectory:
    """Return five arms with their own AR(1) levels and weights on two periods, four features; no contexts."""
    draw = np.random.default_rng(rng)
    k, φ = 5, 0.98
    t = np.arange(rounds)[:, None]
    phases = 2 * np.pi * t / np.array([24.0, 168.0])
    features = np.hstack([np.cos(phases), np.sin(phases)])
    levels = np.empty((rounds, k))
    levels[0] = draw.standard_normal(k)
    for now in range(1, rounds):
        levels[now] = φ * levels[now - 1] + math.sqrt(1 - φ**2) * draw.standard_normal(k)
    means = levels + features @ (0.5 * draw.standard_normal((4, k)))
    return Trajectory(None, means + 0.5 * draw.standard_normal((rounds, k)), features=features)


def whole_runs(report: Report) -> None:
    """Microseconds per round of a complete run, beside ARES on the same machine."""
    easy, hard, own = sampled(paper_system(1), ROUNDS), sampled(paper_system(4), ROUNDS), own_levels(ROUNDS)
    paper: dict[str, Any] = {"arms": 2, "context_dim": 1}
    runs: dict[str, tuple[Any, Trajectory]] = {
        "ARES, ψ = 1": (ARES(**paper), easy),
        "LearnedKalman, ψ = 1": (LearnedKalman(**paper, rng=0), easy),
        "LearnedKalman, ψ = 4": (LearnedKalman(**paper, rng=0), hard),
        "StructuralKalman, ψ = 1": (StructuralKalman(**paper, rng=0), easy),
        "Autopilot, ψ = 1": (Autopilot(**paper, rng=0), easy),
        "LearnedKalman, own levels": (LearnedKalman(arms=5, rng=0), own),
        "StructuralKalman, own ...": (StructuralKalman(arms=5, feature_dim=4, rng=0), own),
        "Autopilot, own levels": (Autopilot(arms=5, feature_dim=4, rng=0), own),
    }
    calls = {name: functools.partial(simulate, policy, path, threads=1) for name, (policy, path) in runs.items()}
    for policy, path in runs.values():  # compiles
        simulate(policy, Trajectory(path.contexts[:300], path.rewards[:300], features=path.features[:300]))
    times = in_turn(calls, ROUNDS / 1e6, 3)
    report.table(f"Whole runs of {ROUNDS} rounds, fits included", "µs a round on one core", times)
    report.note("own levels: k = 5, an AR(1) level of each arm and weights on four features, no contexts")
    best = {name: min(values) for name, values in times.items()}
    report.target("µs of LearnedKalman, ψ = 1", best["LearnedKalman, ψ = 1"], most=25, timed=True)
    report.target("µs of LearnedKalman, ψ = 4", best["LearnedKalman, ψ = 4"], most=25, timed=True)
    report.target("µs of StructuralKalman, k = 5, q = 4", best["StructuralKalman, own ..."], most=60, timed=True)
    for name, learned, structural in (
        ("ψ = 1", "LearnedKalman, ψ = 1", "StructuralKalman, ψ = 1"),
        ("own levels", "LearnedKalman, own levels", "StructuralKalman, own ..."),
    ):
        most = round(best[learned] + best[structural] + 5, 1)
        report.target(f"µs of Autopilot, {name}: sum of its parts + 5", best[f"Autopilot, {name}"], most=most)
    report.note("with the targets of the parts, the sum would be 25 + 60 + 5 = 90")


# Rounds between two fits


def hold(policy: LearningPolicy) -> None:
    """Let no fit come due, nor an alarm bring one forward: as if each model were being fitted elsewhere."""
    for model in models_of(policy):
        model.running.busy = 1.0


def between_fits(report: Report) -> None:
    """Take compiled rounds, as a simulation does, when no fit is due."""
    path = sampled(paper_system(1), WARM_ROWS + ROUNDS)
    policy = LearnedKalman(arms=2, context_dim=1, rng=0)
    live(policy, path, 1_000)
    hold(policy)
    rows = np.hstack([np.zeros((path.rounds, 2)), path.contexts, path.rewards])[1_000 : 1_000 + ROUNDS]
    player, flat, out = policy.parts.player, rows.ravel(), np.empty((ROUNDS, 7))
    before = player.state.copy()

    def play() -> None:
        player.state[:] = before
        assert player.play(flat, rows.shape[1], 0, 3 * ROUNDS, 0, out, 0) == 3 * ROUNDS

    rival = ARES(arms=2, context_dim=1)
    beginning = Trajectory(path.contexts[:ROUNDS], path.rewards[:ROUNDS])
    calls: dict[str, Callable[[], object]] = {"LearnedKalman": play}
    calls["ARES"] = functools.partial(simulate, rival, beginning, threads=1)
    times = in_turn(calls, ROUNDS / 1e6)
    assert policy.model is not None
    report.table("A simulated round between two fits, ψ = 1", "µs on one core", times)
    report.note(f"order of the model in use: {policy.model.order}")
    report.target("µs of LearnedKalman", min(times["LearnedKalman"]), most=3, timed=True)


def live(policy: Any, path: Trajectory, rounds: int, first: int = 0) -> None:
    """Play rounds of a path live."""
    takes = path.features.shape[1] > 0
    for t in range(first, first + rounds):
        decision = policy.decide(path.features[t]) if takes else policy.decide()
        policy.learn(decision, float(path.rewards[t, decision.arm]))
        if path.context_dim:
            policy.observe(path.contexts[t])


def live_between_fits(report: Report) -> None:
    """Decide, learn and observe from Python, when no fit is due."""
    rounds, warm = 2_000, 1_000
    shared = sampled(random_system(5, 1, 5, rng=0), warm + rounds)
    own = own_levels(warm + rounds)
    cases: dict[str, tuple[Any, Trajectory]] = {
        "Autopilot, m = 1, q = 0": (Autopilot(arms=5, context_dim=1, rng=0), shared),
        "Autopilot, m = 0, q = 4": (Autopilot(arms=5, feature_dim=4, rng=0), own),
        "LearnedKalman, m = 1": (LearnedKalman(arms=5, context_dim=1, rng=0), shared),
        "ARES, m = 1": (ARES(arms=5, context_dim=1), shared),
    }
    times: Times = {name: [] for name in cases}
    before = {}
    for name, (policy, path) in cases.items():
        live(policy, path, warm)
        if isinstance(policy, LearningPolicy):
            hold(policy)
        before[name] = policy.parts.player.state.copy()
    for _ in range(REPEATS):
        for name, (policy, path) in cases.items():
            if isinstance(policy, LearningPolicy):
                learner = learner_of(policy)
                policy.parts.player.state[:] = before[name]
                learner.log.end = learner.log.begin + warm
                for number in range(len(learner.models)):
                    learner.late.begin(number, (warm, learner.views[number].copy()))
            start = time.perf_counter()
            live(policy, path, rounds, warm)
            times[name].append((time.perf_counter() - start) / rounds * 1e6)
    report.table("A live round from Python between two fits, k = 5", "µs", times)
    for name in list(cases)[:2]:
        report.target(f"µs of {name}", min(times[name]), most=40, timed=True)


# Fits in the background


class Latencies:
    """Durations of decisions, by the concurrent fits, in milliseconds."""

    def __init__(self) -> None:
        self.alone: list[float] = []  # no fit under way, none begun
        self.begin: list[float] = []  # began one, with none under way before
        self.beside: list[float] = []  # one under way before and after
        self.swap: list[float] = []  # one under way before, and its model swapped in


def decisions(policy: LearningPolicy, path: Trajectory) -> Iterator[tuple[float, set[int], set[int]]]:
    """Play a path live, over and over; yield each decision's milliseconds and the fits under way before and after."""
    takes = path.features.shape[1] > 0
    while True:
        for t in range(path.rounds):
            features = path.features[t] if takes else None
            before = tasks(policy)
            start = time.perf_counter()
            decision = policy.decide(features)
            milliseconds, after = (time.perf_counter() - start) * 1e3, tasks(policy)
            policy.learn(decision, float(path.rewards[t, decision.arm]))
            if path.context_dim:
                policy.observe(path.contexts[t])
            yield milliseconds, before, after


def tasks(policy: LearningPolicy) -> set[int]:
    """Return which fits are under way."""
    return {id(task) for task in learner_of(policy).fits.under_way.values()}


def background(report: Report) -> None:
    """Time decisions while a thread makes a fit."""
    shared, own = sampled(paper_system(1), 2 * WARM_ROWS), own_levels(2 * WARM_ROWS)
    cases: list[tuple[str, LearningPolicy, Trajectory]] = [
        ("LearnedKalman, ψ = 1", LearnedKalman(arms=2, context_dim=1, refit="background", rng=0), shared),
        ("Autopilot, k = 5, q = 4", Autopilot(arms=5, feature_dim=4, refit="background", rng=0), own),
    ]
    for name, policy, path in cases:
        history = Trajectory(path.contexts[:WARM_ROWS], path.rewards[:WARM_ROWS], features=path.features[:WARM_ROWS])
        future = Trajectory(path.contexts[WARM_ROWS:], path.rewards[WARM_ROWS:], features=path.features[WARM_ROWS:])
        arms = np.random.default_rng(0).integers(0, path.arm_count, WARM_ROWS)
        rewards = history.rewards[np.arange(WARM_ROWS), arms]
        policy.warm_start(arms, rewards, contexts=history.contexts, features=history.features)
        found = Latencies()
        quiet = 0
        for milliseconds, before, after in decisions(policy, future):
            if before:
                (found.beside if before <= after else found.swap).append(milliseconds)
            else:
                (found.begin if after else found.alone).append(milliseconds)
            quiet = 0 if after else quiet + 1
            if len(found.beside) + len(found.swap) >= ENOUGH and not after:
                break
            if quiet > 50:  # a fit is due again
                fit_next(policy, policy.round)
        fits = [record for record in policy.health().fits if record.failure is None]
        hold(policy)
        busy = beside_computation(policy, future)
        report.table(f"Decisions while a fit is under way, {name}, after {WARM_ROWS} rounds")
        for label, values in (
            ("with no fit anywhere", found.alone),
            ("beside a thread that only computes", busy),
            ("that begin a fit", found.begin),
            ("beside a fit", found.beside),
            ("that take its model in", found.swap),
        ):
            report.note(f"{label:36} {summary(values)}")
        under_way = found.beside + found.swap
        report.note(f"{'while a fit is under way, all':36} {summary(under_way)}; {len(fits)} fits on record")
        report.target("decisions while a fit is under way", len(under_way), least=2_000)
        report.target("99th percentile, ms", float(np.percentile(under_way, 99)), most=1, timed=True)
        report.target("maximum, ms", max(under_way), most=5, timed=True)


def beside_computation(policy: LearningPolicy, path: Trajectory) -> list[float]:
    """Return milliseconds of decisions beside a thread that computes without the GIL: the machine's share."""
    problem, done = Problem.of(5, 1, 2, 50_000), threading.Event()

    def compute() -> None:
        while not done.is_set():
            problem.filtered()

    thread = threading.Thread(target=compute, daemon=True)
    thread.start()
    taken = []
    for milliseconds, _, _ in decisions(policy, path):
        taken.append(milliseconds)
        hold(policy)
        if len(taken) == ENOUGH // 2:
            break
    done.set()
    thread.join()
    return taken


def summary(values: list[float]) -> str:
    if not values:
        return "none"
    median, high, highest = np.percentile(values, [50, 99, 100])
    return f"{len(values):6}: median {median:.3f} ms, 99 % {high:.3f} ms, maximum {highest:.3f} ms"


# A long log, and a fresh process


def long_log(report: Report) -> None:
    """Identify a system from a log alone."""
    rounds = 100_000
    path = sampled(paper_system(1), rounds)
    arms = np.random.default_rng(0).integers(0, 2, rounds)
    rewards = path.rewards[np.arange(rounds), arms]
    times: Times = {"identify.fit": []}
    for _ in range(2):
        start = time.perf_counter()
        found = fit(arms, rewards, contexts=path.contexts)
        times["identify.fit"].append(time.perf_counter() - start)
    report.table(f"A log of {rounds} rounds, ψ = 1", "seconds on one core", times)
    report.note(f"order {found.order}, {len(found.tried)} models tried")
    report.target("seconds of identify.fit", min(times["identify.fit"]), most=10, timed=True)


def compilation(report: Report) -> None:
    """Fresh processes: with nothing compiled, to the end of 300 rounds; then with everything, to a fitted decision."""
    path = sampled(paper_system(1), 300)
    names = {"LearnedKalman": 20, "Autopilot": 35}
    cold: Times = {}
    warm: Times = {}
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / "path.npz"
        np.savez(stored, contexts=path.contexts, rewards=path.rewards)

        def seconds(name: str, what: str) -> tuple[float, float]:
            places = {"NUMBA_CACHE_DIR": str(Path(folder) / name), "PYTHONPYCACHEPREFIX": str(Path(folder) / "bytes")}
            environment = os.environ | places
            environment.pop("PYTHONDONTWRITEBYTECODE", None)  # byte code is compiled, too
            command = [sys.executable, "-c", FIRST_RUN, name, str(stored), what]
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            passed, used = json.loads(done.stdout)
            return passed, used

        for tables, repeats, what in ((cold, 1, "simulate"), (warm, 3, "decide")):
            for _ in range(repeats):
                for name in names:
                    for key, value in zip((name, f"{name}, processor"), seconds(name, what), strict=True):
                        tables.setdefault(key, []).append(value)
    report.table("A fresh process with nothing compiled, from import to the end of 300 rounds", "seconds", cold)
    for name, most in names.items():
        report.target(f"seconds of {name}", min(cold[name]), most=most, timed=True)
    report.table("A fresh process with everything compiled, from import to a decision after a fit", "seconds", warm)
    for name in names:
        report.target(f"seconds of {name}", min(warm[name]), most=1, timed=True)


def in_turn(calls: Mapping[str, Callable[[], object]], unit: float, repeats: int = REPEATS) -> Times:
    """Return seconds of every call over a unit, timed in turn."""
    times: Times = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - start) / unit)
    return times


if __name__ == "__main__":
    main()
