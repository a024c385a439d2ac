"""The duration of the paper's study: ours against plain NumPy, and threads and processes against one thread.

Ours is a slice of the default plan with the paper's policies alone, every system, few runs. The plain NumPy study is a
slice of it too, policies written in the obvious way, a round at a time; both are extrapolated to the default plan, as
work is linear in rounds and runs. Times are taken in turn; the best counts. Written to out/bench/study.json.
"""

import math
import os
import tempfile
import time
from functools import partial

import numpy as np

from benchmarks.report import OUT, Array, Report, Times, in_turn, seconds
from twins import naive
from twins.naive_ares import NaiveARES
from undertow import LinearGaussianSystem, paper_system
from undertow.study.chunks import open_folder, run_chunk, run_plan
from undertow.study.plan import Plan, paper_plan

PAPER = ["Oracle", "ARES", *(f"PIES({s})" for s in range(1, 11)), "UCB", "Sliding-window UCB", "Rexp3", "Random"]
NAIVE_ROUNDS, RUNS, SCALED_RUNS, REPEATS = 300, 8, 24, 2


def naive_sampling(system: LinearGaussianSystem, rounds: int) -> tuple[Array, Array]:
    contexts, rewards, _, _ = naive.sample(system, rounds, np.random.default_rng(0))
    return contexts, rewards


def naive_ares(contexts: Array, rewards: Array) -> None:
    policy = NaiveARES(2, 1, noise_bound=2.0)
    for context, reward in zip(contexts, rewards, strict=True):
        arm, *_ = policy.decide()
        policy.learn(arm, reward[arm])
        policy.observe(context)


def naive_pies(contexts: Array, rewards: Array, s: int) -> None:
    V = [np.eye(s + 1) for _ in range(2)]
    b = [np.zeros(s + 1) for _ in range(2)]
    for t in range(s, len(contexts)):
        Θ = np.concatenate([[1.0], contexts[t - s : t, 0][::-1]])
        arm = int(np.argmax([np.linalg.solve(V[a], b[a]) @ Θ for a in range(2)]))
        V[arm] += np.outer(Θ, Θ)
        b[arm] += rewards[t, arm] * Θ


def naive_oracle(system: LinearGaussianSystem, contexts: Array) -> None:
    mean, covariance = system.initial_mean, system.initial_covariance
    for context in contexts:
        np.argmax(system.arms @ mean)
        mean, covariance, _ = naive.condition(system, mean, covariance, context, np.full(2, math.nan))
        mean = system.dynamics @ mean
        covariance = system.dynamics @ covariance @ system.dynamics.T + system.state_noise


def naive_ucb(rewards: Array) -> None:
    counts, sums = np.ones(2), np.zeros(2)
    for t, reward in enumerate(rewards, start=1):
        arm = int(np.argmax(sums / counts + np.sqrt(2 * math.log(t) / counts)))
        counts[arm] += 1
        sums[arm] += reward[arm]


def naive_seconds_a_round(system: LinearGaussianSystem) -> float:
    """Time one round of the study in plain NumPy: sampling with burn-in, ARES, PIES 1 to 10, and the rest."""
    start = time.process_time()
    contexts, rewards = naive_sampling(system, NAIVE_ROUNDS)
    sampling = time.process_time() - start
    naive_ares(contexts, rewards)
    for s in range(1, 11):
        naive_pies(contexts, rewards, s)
    naive_oracle(system, contexts)
    for _ in range(4):  # UCB, sliding-window UCB, Rexp3 and Random cost about the same
        naive_ucb(rewards)
    return (time.process_time() - start + sampling) / NAIVE_ROUNDS


def study(plan: Plan, threads: int, cluster: str | None = None) -> None:
    """Run a plan from beginning to end, in a folder that is then thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        run_plan(plan, open_folder(plan, folder), threads=threads, cluster=cluster)


def main() -> None:
    plan = paper_plan()
    part = plan.select(PAPER, runs=RUNS)
    run_chunk(part.select(runs=1, rounds=50), 0)  # compiles
    report = Report()
    whole_study(report, plan, part)
    scaling(report, part.select(runs=SCALED_RUNS))
    report.save(OUT / "study.json")


def whole_study(report: Report, plan: Plan, part: Plan) -> None:
    """Compare one core of ours with one core of plain NumPy."""
    runs = len(plan.systems) * plan.runs
    times: Times = {"undertow": [], "plain NumPy": []}
    for _ in range(REPEATS):
        times["undertow"].append(seconds(partial(study, part, 1)) * plan.runs / part.runs)
        times["plain NumPy"].append(naive_seconds_a_round(paper_system(1)) * plan.rounds * runs)
    report.table(f"The paper's study, {runs} runs of {plan.rounds} rounds, extrapolated", "s of one core", times)
    report.note(f"the paper's policies only; from {len(part.systems) * part.runs} runs, and from {NAIVE_ROUNDS} rounds")
    report.target("plain NumPy over undertow", min(times["plain NumPy"]) / min(times["undertow"]), least=100)


def scaling(report: Report, part: Plan) -> None:
    """Run the same slice on more threads, and on processes that dask starts."""
    cores = os.cpu_count() or 1
    counts = sorted({1, 2, cores})
    calls = {f"{n} thread{'s' * (n > 1)}": partial(study, part, n) for n in counts}
    calls |= {f"{n} dask worker{'s' * (n > 1)}": partial(study, part, n, "local") for n in counts}
    taken = in_turn(calls, {}, 1, REPEATS, time.perf_counter)
    times = {name: [t / 1e9 for t in values] for name, values in taken.items()}
    report.table(f"{len(part.systems) * part.runs} runs of it on a machine of {cores} cores", "s by the clock", times)
    report.note("the time of dask contains the start of its workers, a few seconds whatever the size of a study")
    if cores > 1:
        report.target("gain of two threads", min(times["1 thread"]) / min(times["2 threads"]), least=1.35)


if __name__ == "__main__":
    main()
