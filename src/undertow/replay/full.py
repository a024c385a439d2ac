"""Policies on a table that knows every arm's reward: what each earns beside the best fixed arm and a clairvoyant."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from undertow import _checks
from undertow._checks import FloatArray
from undertow.errors import InvalidInputError
from undertow.policies import registry
from undertow.replay.bootstrap import RESAMPLES, block_length, check_block, interval, resampled_means
from undertow.replay.entrants import build, entrants, remarks
from undertow.replay.table import Table
from undertow.simulation import simulate
from undertow.study.plan import PolicySpec
from undertow.trajectory import Trajectory

__all__ = ["AVERAGE", "CLAIRVOYANT", "FIXED", "LEAST_ROUNDS", "Replay", "replay_table"]

LEAST_ROUNDS = 20
AVERAGE, FIXED, CLAIRVOYANT = "any arm at random", "best fixed arm", "clairvoyant"


@dataclass(frozen=True, eq=False)
class Replay:
    """What policies did on a table.

    Attributes
    ----------
    table, policies
        What was played, and by whom.
    choices
        The arms that each policy played, by label, (runs, n).
    summary
        One row per policy and per reference; `replay_table` tells the columns.
    comparisons
        policy, other, difference of mean rewards, low, high: every pair, paired.
    block
        Length of the blocks of the bootstrap.
    notes
        What a reader should know.
    """

    table: Table
    policies: Sequence[PolicySpec]
    choices: Mapping[str, npt.NDArray[np.int64]]
    summary: pl.DataFrame
    comparisons: pl.DataFrame
    block: int
    notes: Sequence[str]

    def rewards(self, label: str) -> FloatArray:
        """Return what a policy earned in each round, its runs averaged, (n,)."""
        assert self.table.rewards is not None
        return _earned(self.table.rewards, self.choices[label])


def replay_table(
    table: Table,
    policies: Sequence[PolicySpec] = (),
    *,
    runs: int = 3,
    seed: int = 0,
    block: int | None = None,
    resamples: int = RESAMPLES,
    context_first: bool = False,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Replay:
    """Let policies play a table of every arm's rewards.

    Parameters
    ----------
    policies
        By default a set of nine, without those that cannot play this table.
    runs
        How often policies that draw random numbers play it; what they earn is averaged. Others play it once.
    seed
        Of the policies and of the bootstrap.
    block
        Rounds that the bootstrap draws together; by default as many as the slowest needs of all rewards and of their
        differences from the best fixed arm's.
    context_first
        Whether a row's contexts are known before its decision; by default they come after it.

    Returns
    -------
    The columns of the summary, all with a 95 % interval in `…_low` and `…_high`:

    reward
        Mean reward a round.
    regret_fixed, regret_clairvoyant
        Sum over rounds of what the best fixed arm (in hindsight), or the best arm of every round, paid more.
    share
        Share won of the gap between any arm at random and the clairvoyant: 0 and 1.
    beyond_fixed
        Share won of the gap between the best fixed arm and the clairvoyant: 0 and 1; negative below the fixed arm.

    And beside them `kind` (policy or reference), `runs`, `share_least` and `share_most` over runs, and `microseconds` a
    round.
    """
    if table.rewards is None:
        raise InvalidInputError("table: this is a log, which knows one reward a round; use replay_log")
    if table.rounds < LEAST_ROUNDS:
        raise InvalidInputError(f"table: expected at least {LEAST_ROUNDS} rows, got {table.rounds}")
    check_block(block, table.rounds)
    runs = _checks.integer("runs", runs, least=1)
    seed = _checks.integer("seed", seed, least=0)
    threads = _checks.integer("threads", os.cpu_count() if threads is None else threads, least=1)
    playing, notes = entrants(table, policies)
    choices, times = _play(table, playing, runs, seed, context_first, threads, progress or (lambda done, total: None))
    earned = np.stack([_earned(table.rewards, choices[spec.label]) for spec in playing], axis=1)
    best = int(table.rewards.mean(axis=0).argmax())
    marks = np.stack([table.rewards.mean(axis=1), table.rewards[:, best], table.rewards.max(axis=1)], axis=1)
    if block is None:
        columns = np.hstack([marks, earned, earned - marks[:, 1:2]])
        block = max(block_length(column) for column in columns.T)
    means = resampled_means(np.hstack([marks, earned]), block=block, resamples=resamples, seed=seed)
    labels = [AVERAGE, f"{FIXED}: {table.arms[best]}", CLAIRVOYANT, *(spec.label for spec in playing)]
    rows = [_row(label, place, np.hstack([marks, earned]), means) for place, label in enumerate(labels)]
    for row, spec in zip(rows[3:], playing, strict=True):
        shares = [_share(table.rewards, arms) for arms in choices[spec.label]]
        row |= {"kind": "policy", "runs": len(shares), "share_least": min(shares), "share_most": max(shares)}
        row |= {"microseconds": times[spec.label]}
    notes += [*table.notes, *remarks(playing, table)]
    return Replay(
        table,
        playing,
        choices,
        pl.DataFrame([*rows[3:], *rows[:3]], schema=SCHEMA),
        _comparisons(labels[3:], means[:, 3:], earned),
        block,
        notes,
    )


_MEASURES = ("reward", "regret_fixed", "regret_clairvoyant", "share", "beyond_fixed")
SCHEMA = (
    {"policy": pl.String, "kind": pl.String, "runs": pl.Int64}
    | {f"{name}{end}": pl.Float64 for name in _MEASURES for end in ("", "_low", "_high")}
    | {"share_least": pl.Float64, "share_most": pl.Float64, "microseconds": pl.Float64}
)


def _play(
    table: Table,
    specs: Sequence[PolicySpec],
    runs: int,
    seed: int,
    context_first: bool,
    threads: int,
    progress: Callable[[int, int], None],
) -> tuple[dict[str, npt.NDArray[np.int64]], dict[str, float]]:
    """Return the choices of every policy, (runs, n), and its time a round in microseconds."""
    assert table.rewards is not None
    path = Trajectory(table.contexts[None], table.rewards[None], features=table.features[None])

    def play(spec: PolicySpec, run: int) -> tuple[npt.NDArray[np.int64], float]:
        policy = build(spec, table, seed=seed, context_first=context_first)
        start = time.perf_counter()
        arms = simulate(policy, path, runs=[run], threads=1).arms[0]
        return arms, 1e6 * (time.perf_counter() - start) / table.rounds

    tasks = [(spec, run) for spec in specs for run in range(runs if draws(spec) else 1)]
    progress(0, len(tasks))
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(play, spec, run) for spec, run in tasks]
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                future.result()
                progress(done, len(tasks))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    choices: dict[str, list[npt.NDArray[np.int64]]] = {}
    times: dict[str, list[float]] = {}
    for (spec, _), future in zip(tasks, futures, strict=True):
        arms, microseconds = future.result()
        choices.setdefault(spec.label, []).append(arms)
        times.setdefault(spec.label, []).append(microseconds)
    # the quickest run, since the first may have had to compile
    return {label: np.stack(arms) for label, arms in choices.items()}, {name: min(all) for name, all in times.items()}


def draws(spec: PolicySpec) -> bool:
    """Tell whether a policy draws random numbers, so that another run of it may be another."""
    return not registry()[spec.policy].claims.deterministic or bool(spec.parameters.get("explore"))


def _earned(rewards: FloatArray, choices: npt.NDArray[np.int64]) -> FloatArray:
    return np.asarray(np.take_along_axis(rewards, choices.T, axis=1).mean(axis=1))


def _share(rewards: FloatArray, arms: npt.NDArray[np.int64]) -> float:
    gap = rewards.max(axis=1).mean() - rewards.mean()
    won = rewards[np.arange(len(rewards)), arms].mean() - rewards.mean()
    return float(won / gap) if gap > 0 else np.nan


def _row(label: str, place: int, series: FloatArray, resampled: FloatArray) -> dict[str, object]:
    """Return one row of the summary; columns 0, 1 and 2 of the series are average, best fixed arm and clairvoyant."""
    n = len(series)
    statistics: dict[str, Callable[[FloatArray], FloatArray]] = {
        "reward": lambda m: m[:, place],
        "regret_fixed": lambda m: n * (m[:, 1] - m[:, place]),
        "regret_clairvoyant": lambda m: n * (m[:, 2] - m[:, place]),
        "share": lambda m: (m[:, place] - m[:, 0]) / (m[:, 2] - m[:, 0]),
        "beyond_fixed": lambda m: (m[:, place] - m[:, 1]) / (m[:, 2] - m[:, 1]),
    }
    row: dict[str, object] = {"policy": label, "kind": "reference", "runs": None}
    row |= dict.fromkeys(("share_least", "share_most", "microseconds"))
    whole = series.mean(axis=0, keepdims=True)
    for name, statistic in statistics.items():
        with np.errstate(divide="ignore", invalid="ignore"):
            row[name] = float(statistic(whole)[0])
        row[f"{name}_low"], row[f"{name}_high"] = interval(resampled, statistic)
    return row


def _comparisons(labels: Sequence[str], resampled: FloatArray, earned: FloatArray) -> pl.DataFrame:
    rows = []
    for one, label in enumerate(labels):
        for two, other in enumerate(labels):
            if one != two:
                difference = float(earned[:, one].mean() - earned[:, two].mean())
                low, high = np.quantile(resampled[:, one] - resampled[:, two], [0.025, 0.975])
                rows.append((label, other, difference, float(low), float(high)))
    names = {"policy": pl.String, "other": pl.String}
    schema = names | dict.fromkeys(("difference", "low", "high"), pl.Float64)
    return pl.DataFrame(rows, schema=schema, orient="row")
