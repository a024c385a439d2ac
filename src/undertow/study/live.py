"""What live use costs: contexts that are missing, and rewards that are not Gaussian.

Every policy plays the same paths of the paper's systems; the tables go into the guide as they are printed.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import ndtr

from undertow import _checks
from undertow._checks import FloatArray
from undertow.simulation import simulate
from undertow.study.environments import contextless, with_missing, without_contexts
from undertow.study.families import Problem
from undertow.study.trials import Contender, build
from undertow.system import LinearGaussianSystem, paper_system
from undertow.trajectory import Trajectory

__all__ = ["GAPS", "REWARDS", "LiveTable", "gap_table", "reward_table", "with_rewards"]

GAPS: dict[str, float | None] = {"0 %": 0.0, "10 %": 0.1, "30 %": 0.3, "60 %": 0.6, "no contexts": None}
Rewards = Literal["binary", "count"]
REWARDS: tuple[Rewards, ...] = ("binary", "count")

_KNOWS = Contender("KalmanGreedy (knows the system)", "kalman-greedy")
_LEARNERS = (
    Contender("Autopilot", "autopilot"),
    Contender("LearnedKalman", "learned-kalman"),
    Contender("StructuralKalman", "structural-kalman"),
    Contender("LinUCB, 10 contexts, 5 rewards", "linucb", {"reward_lags": 5}),
    Contender("LinUCB, 10 contexts", "linucb", needs_contexts=True),
    Contender("discounted LinUCB, 10 contexts", "discounted-linucb", needs_contexts=True),
    Contender("sliding-window LinUCB, 10 contexts", "sliding-window-linucb", needs_contexts=True),
    Contender("LinTS, 10 contexts", "lints", needs_contexts=True),
    Contender("ARES", "ares", needs_contexts=True),
    Contender("PIES(10)", "pies", needs_contexts=True),
    Contender("discounted UCB", "discounted-ucb"),
    Contender("Random", "random"),
)


class LiveTable(NamedTuple):
    """Medians over runs: one row for each policy, one column for each circumstance; NaN where it cannot play."""

    title: str
    columns: tuple[str, ...]
    rows: dict[str, FloatArray]

    def markdown(self) -> str:
        """Return the table as it stands in the guide."""
        lines = [f"| {self.title} | {' | '.join(self.columns)} |", "|---" * (len(self.columns) + 1) + "|"]
        for label, values in self.rows.items():
            cells = ("–" if np.isnan(value) else f"{value:.2f}" for value in values)
            lines.append(f"| {label} | {' | '.join(cells)} |")
        return "\n".join(lines)


def gap_table(
    psi: float,
    *,
    runs: int = 5,
    rounds: int = 10_000,
    progress: Callable[[int, int], None] | None = None,
    threads: int = 1,
) -> LiveTable:
    """Return regret with a share of the contexts missing, relative to KalmanGreedy that misses none."""
    system = paper_system(psi)

    def paths(run: int) -> dict[str, Trajectory]:
        whole = system.sample(rounds, rng=0, runs=[run], threads=1).run(0)
        return {
            label: without_contexts(whole) if share is None else with_missing(whole, share, run)
            for label, share in GAPS.items()
        }

    def behind(label: str) -> LinearGaussianSystem:
        return contextless(system) if GAPS[label] is None else system

    contenders = (_KNOWS, Contender("Oracle (knows the system, sees contexts only)", "context-oracle"), *_LEARNERS)
    regrets = _play_all(contenders, paths, behind, tuple(GAPS), runs, threads, progress)
    base = regrets[_KNOWS.label][:, :1]
    medians = {label: np.median(values / base, axis=0) for label, values in regrets.items()}
    return LiveTable(f"psi = {psi:g}: contexts missing", tuple(GAPS), medians)


def reward_table(
    psi: float,
    *,
    runs: int = 5,
    rounds: int = 10_000,
    progress: Callable[[int, int], None] | None = None,
    threads: int = 1,
) -> LiveTable:
    """Return regret with rewards of different kinds, relative to that of a uniform choice."""
    system = paper_system(psi)

    def paths(run: int) -> dict[str, Trajectory]:
        whole = system.sample(rounds, rng=0, runs=[run], threads=1).run(0)
        columns = {}
        for kind in REWARDS:
            columns[f"{kind}, Gaussian twin"] = with_rewards(whole, kind, run, twin=True)
            columns[kind] = with_rewards(whole, kind, run)
        return columns

    columns = tuple(f"{kind}{twin}" for kind in REWARDS for twin in (", Gaussian twin", ""))
    regrets = _play_all(_LEARNERS, paths, lambda _: None, columns, runs, threads, progress)
    medians = {label: np.median(values / regrets["Random"], axis=0) for label, values in regrets.items()}
    return LiveTable(f"psi = {psi:g}: rewards", columns, medians)


def with_rewards(path: Trajectory, kind: Rewards, seed: int, *, twin: bool = False) -> Trajectory:
    """Return a path whose rewards are draws with means that follow its own.

    With η the path's means over their standard deviation: "binary" rewards are 1 with probability Φ(η), "count"
    rewards are Poisson with mean exp(η / 2). A Gaussian `twin` has the same means, with normal noise of the same
    average variance.
    """
    kind = _checks.choice("kind", kind, REWARDS)
    assert path.means is not None
    η = path.means / path.means.std()
    means = ndtr(η) if kind == "binary" else np.exp(η / 2)
    draw = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2**31 + 4,)))
    variance = (means * (1 - means) if kind == "binary" else means).mean()
    if twin:
        rewards = means + np.sqrt(variance) * draw.standard_normal(means.shape)
    elif kind == "binary":
        rewards = (draw.random(means.shape) < means).astype(np.float64)
    else:
        rewards = draw.poisson(means).astype(np.float64)
    return Trajectory(path.contexts, rewards, means=means)


def _play_all(
    contenders: Sequence[Contender],
    paths: Callable[[int], dict[str, Trajectory]],
    behind: Callable[[str], LinearGaussianSystem | None],
    columns: tuple[str, ...],
    runs: int,
    threads: int,
    progress: Callable[[int, int], None] | None,
) -> dict[str, FloatArray]:
    """Return the regret of every policy, (runs, columns)."""
    progress = progress or (lambda done, total: None)
    regrets = {contender.label: np.full((runs, len(columns)), np.nan) for contender in contenders}

    def play(run: int) -> None:
        for column, (label, path) in enumerate(paths(run).items()):
            for contender in contenders:
                policy = build(contender, path, Problem(label, lambda rounds, path=path: path, behind(label), run))  # type: ignore[misc]
                if policy is not None:
                    outcome = simulate(policy, path, threads=1).regret
                    assert outcome is not None
                    regrets[contender.label][run, column] = outcome[-1]

    progress(0, runs)
    play(0)  # compiles what has to be compiled, once
    progress(1, runs)
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(play, run) for run in range(1, runs)]
        for done, future in enumerate(as_completed(futures), start=2):
            future.result()
            progress(done, runs)
    return regrets
