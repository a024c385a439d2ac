"""The cost of live use: missing contexts, and rewards that are not Gaussian.

Every policy plays the same paths of the paper's systems. docs/measurements.md shows the printed tables.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import ndtr

from undertow.contenders import Contender
from undertow.example_systems import paper_system
from undertow.problems.environments import contextless, with_missing, without_contexts
from undertow.simulation import simulate
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.support.pool import Progress, run_tasks
from undertow.system import LinearGaussianSystem
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
    """Medians over runs: one row per policy, one column per setting; NaN if a policy cannot play."""

    title: str
    columns: tuple[str, ...]
    rows: dict[str, FloatArray]

    def markdown(self) -> str:
        """Return the table in Markdown."""
        lines = [f"| {self.title} | {' | '.join(self.columns)} |", "|---" * (len(self.columns) + 1) + "|"]
        for label, values in self.rows.items():
            cells = ("–" if np.isnan(value) else f"{value:.2f}" for value in values)
            lines.append(f"| {label} | {' | '.join(cells)} |")
        return "\n".join(lines)


def gap_table(
    psi: float, *, runs: int = 5, rounds: int = 10_000, progress: Progress | None = None, threads: int = 1
) -> LiveTable:
    """Return regret with a share of the contexts missing, relative to KalmanGreedy without missing ones."""
    system = paper_system(psi)

    def columns(whole: Trajectory, run: int) -> dict[str, Trajectory]:
        return {
            label: without_contexts(whole) if share is None else with_missing(whole, share, run)
            for label, share in GAPS.items()
        }

    known = {label: contextless(system) if share is None else system for label, share in GAPS.items()}
    contenders = (_KNOWS, Contender("Oracle (knows the system, sees contexts only)", "context-oracle"), *_LEARNERS)
    regrets = _play_all(contenders, system, columns, known, (runs, rounds), threads, progress)
    base = regrets[_KNOWS.label][:, :1]
    medians = {label: np.median(values / base, axis=0) for label, values in regrets.items()}
    return LiveTable(f"psi = {psi:g}: contexts missing", tuple(GAPS), medians)


def reward_table(
    psi: float, *, runs: int = 5, rounds: int = 10_000, progress: Progress | None = None, threads: int = 1
) -> LiveTable:
    """Return regret with rewards of different kinds, relative to that of a uniform choice."""
    system = paper_system(psi)

    names: dict[str, tuple[Rewards, bool]] = {
        f"{kind}{', Gaussian twin' if twin else ''}": (kind, twin) for kind in REWARDS for twin in (True, False)
    }

    def columns(whole: Trajectory, run: int) -> dict[str, Trajectory]:
        return {name: with_rewards(whole, kind, run, twin=twin) for name, (kind, twin) in names.items()}

    unknown = dict.fromkeys(names)
    regrets = _play_all(_LEARNERS, system, columns, unknown, (runs, rounds), threads, progress)
    medians = {label: np.median(values / regrets["Random"], axis=0) for label, values in regrets.items()}
    return LiveTable(f"psi = {psi:g}: rewards", tuple(names), medians)


def with_rewards(path: Trajectory, kind: Rewards, seed: int, *, twin: bool = False) -> Trajectory:
    """Return a path with random rewards whose means follow those of the given one.

    With η the path's means over their standard deviation: "binary" rewards are 1 with probability Φ(η), "count"
    rewards are Poisson with mean exp(η / 2). A Gaussian `twin` has the same means, with normal noise of the same
    average variance.
    """
    kind = checks.choice("kind", kind, REWARDS)
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
    system: LinearGaussianSystem,
    columns: Callable[[Trajectory, int], dict[str, Trajectory]],
    known: Mapping[str, LinearGaussianSystem | None],
    extent: tuple[int, int],
    threads: int,
    progress: Progress | None,
) -> dict[str, FloatArray]:
    """Return the regret of every policy, (runs, columns).

    `columns` turns a path of the system into one path per column; `known` is the system given to policies that need it.
    """
    runs, rounds = extent
    regrets = {contender.label: np.full((runs, len(known)), np.nan) for contender in contenders}

    def play(run: int) -> None:
        whole = system.sample(rounds, rng=0, runs=[run], threads=1).run(0)
        for column, (label, path) in enumerate(columns(whole, run).items()):
            for contender in contenders:
                if contender.can_play(path, known[label]):
                    policy = contender.for_path(path, system=known[label], seed=run)
                    outcome = simulate(policy, path, threads=1).regret
                    assert outcome is not None
                    regrets[contender.label][run, column] = outcome[-1]

    run_tasks([partial(play, run) for run in range(runs)], threads=threads, progress=progress)
    return regrets
