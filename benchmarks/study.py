"""How long the paper's study takes: ours against plain NumPy, and two threads against one.

Ours is a slice of the default plan with the paper's policies alone, every system, few runs. The plain NumPy study is a
slice of it too, policies written in the obvious way, a round at a time; both are extrapolated to the default plan, as
work is linear in rounds and runs. Times are taken in turn; the best counts.
"""

import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import naive
from naive_ares import NaiveARES
from undertow import LinearGaussianSystem, paper_system
from undertow.study.plan import paper_plan
from undertow.study.runner import open_folder, run_chunk, run_plan

Array = npt.NDArray[np.float64]
PAPER = ["Oracle", *(f"PIES({s})" for s in range(1, 11)), "UCB", "Sliding-window UCB", "Rexp3", "Random"]
NAIVE_ROUNDS, REPEATS = 300, 3


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
    """Time one round of the whole study in plain NumPy: sampling with burn-in, ARES, PIES 1 to 10, and the rest."""
    start = time.perf_counter()
    contexts, rewards = naive_sampling(system, NAIVE_ROUNDS)
    sampling = time.perf_counter() - start
    naive_ares(contexts, rewards)
    for s in range(1, 11):
        naive_pies(contexts, rewards, s)
    naive_oracle(system, contexts)
    for _ in range(4):  # UCB, sliding-window UCB, Rexp3 and Random cost about the same
        naive_ucb(rewards)
    return (time.perf_counter() - start + sampling) / NAIVE_ROUNDS


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    plan = paper_plan()
    whole = len(plan.systems) * plan.runs
    ours = plan.select(["ARES", *PAPER]).select(runs=4)
    keep = [spec for spec in ours.policies if spec.label != "ARES, noise estimated"]
    ours = ours.select([spec.label for spec in keep])
    run_chunk(ours.select(runs=1, rounds=50), 0)  # compiles
    single: list[float] = []
    double: list[float] = []
    twin: list[float] = []
    for _ in range(REPEATS):
        for threads, times in ((1, single), (2, double)):
            with tempfile.TemporaryDirectory() as folder:
                times.append(seconds(lambda f=folder, n=threads: run_plan(ours, open_folder(ours, f), threads=n)))  # type: ignore[misc]
        twin.append(naive_seconds_a_round(paper_system(1)))
    mine = min(single) / (len(ours.systems) * ours.runs) * whole
    naive_time = min(twin) * plan.rounds * whole
    print(
        f"The paper's study, {whole} runs of {plan.rounds} rounds, the paper's policies only, one core, extrapolated:"
    )
    print(f"  undertow     {mine:10,.0f} s   (from {len(ours.systems) * ours.runs} runs)")
    print(f"  plain NumPy  {naive_time:10,.0f} s   (from {NAIVE_ROUNDS} rounds)   {naive_time / mine:.0f} × undertow")
    print(f"  {'met   ' if naive_time / mine >= 100 else 'MISSED'} at least 100 ×")
    gain = min(single) / min(double)
    print(f"  two threads: {gain:.2f} × one   {'met' if gain >= 1.35 else 'MISSED'} at least 1.35 ×")


if __name__ == "__main__":
    main()
