"""Replay of a table with every arm's reward: policies against the best fixed arm and a clairvoyant."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from undertow.contenders import Contender
from undertow.errors import InvalidInputError
from undertow.replay.bootstrap import RESAMPLES, block_length, check_block, compared, measured, resampled_means
from undertow.replay.contenders import build, few_runs, play_all, reads_clock, remarks, usual_runs, who_plays
from undertow.replay.keyed import keyed_contenders, play_keys, require_keys
from undertow.replay.table import Table, require_table
from undertow.simulation import simulate
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.support.display import Framed, html_table
from undertow.support.numbers import interval_rows, share, share_won, with_interval, with_values
from undertow.support.pool import Progress, run_tasks
from undertow.trajectory import Trajectory

if TYPE_CHECKING:
    from undertow.support.drawing import Sheet

__all__ = ["AVERAGE", "CLAIRVOYANT", "FIXED", "LEAST_ROUNDS", "Replay", "in_units", "replay_table"]

LEAST_ROUNDS = 20
_LEAST_GAP = 0.1  # of the possible gain
AVERAGE, FIXED, CLAIRVOYANT = "any arm at random", "best fixed arm", "clairvoyant"


@dataclass(frozen=True, eq=False, repr=False)
class Replay(Framed):
    """The results of policies on a table.

    Attributes
    ----------
    table, policies
        The table, and the policies that played it.
    choices
        The arms that each policy played, by label, (runs, n).
    summary
        One row per policy and per reference; `replay_table` describes the columns.
    comparisons
        policy, other, difference of mean rewards, low, high: every pair, paired.
    block
        Length of the blocks of the bootstrap.
    notes
        Remarks for the reader.
    """

    table: Table
    policies: Sequence[Contender]
    choices: Mapping[str, npt.NDArray[np.int64]]
    summary: pl.DataFrame
    comparisons: pl.DataFrame
    block: int
    notes: Sequence[str]

    def plot(self) -> "Sheet":
        """Draw the share won by each policy, with its interval; needs matplotlib, and a notebook shows it."""
        from undertow.replay.figures import sheet_of_shares

        return sheet_of_shares(self)

    def _frame(self) -> dict[str, Any]:
        return self.summary.to_dict(as_series=False)

    def _repr_html_(self) -> str:
        title = f"Replay of {self.table.name}: {self.table.extent}"
        note = f"95 % intervals from a bootstrap of blocks of {self.block} rounds. {'; '.join(self.notes)}"
        shown = with_values(rows := self.summary.to_dicts(), _SHOWN)
        return html_table(title, interval_rows(rows, shown), ["policy", *shown.values()], note)

    def rewards(self, label: str) -> FloatArray:
        """Return a policy's reward in each round, averaged over its runs, (n,)."""
        return _earned(self.table.payoffs, self.choices[label])


def replay_table(
    table: Table,
    policies: Sequence[Contender] = (),
    *,
    runs: int | None = None,
    seed: int = 0,
    block: int | None = None,
    resamples: int = RESAMPLES,
    context_first: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    cluster: str | None = None,
    module: str | os.PathLike[str] | None = None,
) -> Replay:
    """Play a table of every arm's rewards with policies.

    Parameters
    ----------
    policies
        By default a set of nine, except those that cannot play this table.
    runs
        Runs per randomised policy; their rewards are averaged. Other policies play once. By default three, or as many
        as add up to 250,000 rounds if that is less, and at least one.
    seed
        Seed of the policies and of the bootstrap.
    block
        Block length of the bootstrap; by default the largest that any policy's rewards, or their differences from the
        best fixed arm's, need.
    context_first
        Whether a row's contexts are known before its decision; by default they come after it.
    cluster, module
        For tables with keys: "local" for processes of this machine, or the address of a dask scheduler, and a file that
        its workers run first. The numbers are the same.

    Returns
    -------
    The columns of the summary, all with a 95 % interval in `…_low` and `…_high`:

    reward
        Mean reward per round, or mean cost if the table has costs.
    regret_fixed, regret_clairvoyant
        Regret against the best fixed arm in hindsight, and against the best arm of every round.
    share
        Share won of the gap between any arm at random and the clairvoyant: 0 and 1.
    gain_over_fixed
        Share won of the gap between the best fixed arm and the clairvoyant: 0 and 1; negative below the fixed arm. None
        if that gap is below a tenth of the one between any arm at random and the clairvoyant.

    Further columns: `kind` (policy or reference), `runs`, `share_least` and `share_most` over runs, and `microseconds`
    per round.
    """
    require_table(table)
    if table.rewards is None:
        raise InvalidInputError("table: this is a log, with one reward per round; use replay_log")
    if table.rounds < LEAST_ROUNDS:
        raise InvalidInputError(f"table: expected at least {LEAST_ROUNDS} rows, got {table.rounds}; record more rounds")
    check_block(block, table.rounds)
    seed = checks.integer("seed", seed, least=0)
    require_keys(table, cluster)
    playing, notes = who_plays(table, policies) if table.keys is None else keyed_contenders(table, policies)
    parts = {"features": table.features[None], "elapsed": table.elapsed}
    rewards, every = table.payoffs, table.rewards
    path = Trajectory(table.contexts[None], table.rewards[None], **parts)

    def play(contender: Contender, run: int, progress: Progress) -> tuple[npt.NDArray[np.int64], float]:
        policy = build(contender, table, seed=seed, context_first=context_first)
        more: dict[str, Any] = {"available": table.available, "times": table.stamps if reads_clock(policy) else None}
        start = time.perf_counter()
        arms = simulate(policy, path, runs=[run], threads=1, progress=progress, **more).arms[0]
        return arms, 1e6 * (time.perf_counter() - start) / table.rounds

    shared: dict[str, Any] = {"threads": threads, "progress": progress}
    often = usual_runs(table.rounds) if runs is None else runs
    if table.keys is None:
        played = play_all(playing, play, rounds=table.rounds, runs=often, **shared)
    else:
        shared |= {"seed": seed, "context_first": context_first, "cluster": cluster, "module": module}
        played = play_keys(playing, table, lambda run: every, runs=often, random=False, **shared)
    took = {label: [time for _, time in each] for label, each in played.items()}
    choices = {label: np.stack([arms for arms, _ in played.pop(label)]) for label in took}  # no run is held twice
    best = int(rewards.mean(axis=0).argmax())
    series = np.empty((table.rounds, 3 + len(choices)))  # average, best fixed arm, clairvoyant; then the policies
    series[:, 0], series[:, 1], series[:, 2] = rewards.mean(axis=1), rewards[:, best], rewards.max(1)
    for column, arms in zip(series.T[3:], choices.values(), strict=True):
        column[:] = _earned(rewards, arms)
    if block is None:
        lengths = [partial(block_length, column) for column in series.T]
        lengths += [partial(_gain_length, column, series[:, 1]) for column in series.T[3:]]
        block = max(run_tasks(lengths, threads=threads))
    means = resampled_means(series, block=block, resamples=resamples, seed=seed)
    labels = [AVERAGE, f"{FIXED}: {table.arms[best]}", CLAIRVOYANT, *choices]
    averages = series.mean(axis=0, keepdims=True)
    rows = [_row(label, place, table.rounds, averages, means) for place, label in enumerate(labels)]
    for row, (label, each) in zip(rows[3:], choices.items(), strict=True):
        shares = [share_won(rewards, arms) for arms in each]
        row |= {"kind": "policy", "runs": len(each), "share_least": min(shares), "share_most": max(shares)}
        row |= {"microseconds": min(took[label])}  # the first run may compile
    ranked = sorted(rows[3:], key=lambda row: float(str(row["share"])), reverse=True)
    summary = in_units(pl.DataFrame([*ranked, *rows[:3]], schema=_SCHEMA), ["reward"], table)
    notes += [*table.notes, *remarks(playing, table)]
    if runs is None and any(contender.randomised for contender in playing):
        notes += few_runs(table.rounds, "randomised policies")
    return Replay(table, playing, choices, summary, compared(labels[3:], series[:, 3:], means[:, 3:]), block, notes)


# Of column i of the mean rewards m over n rounds; columns 0, 1 and 2 are average, best fixed arm and clairvoyant
_MEASURES: dict[str, Callable[[int, int, FloatArray], FloatArray]] = {
    "reward": lambda n, i, m: m[:, i],
    "regret_fixed": lambda n, i, m: n * (m[:, 1] - m[:, i]),
    "regret_clairvoyant": lambda n, i, m: n * (m[:, 2] - m[:, i]),
    "share": lambda n, i, m: share(m[:, i], m[:, 0], m[:, 2]),
    "gain_over_fixed": lambda n, i, m: share(m[:, i], m[:, 1], m[:, 2]),
}
_SHOWN = {"share": "share won, %", "gain_over_fixed": "beyond fixed, %", "reward": "mean per round"}
_SCHEMA = (
    {"policy": pl.String, "kind": pl.String, "runs": pl.Int64}
    | {name: pl.Float64 for measure in _MEASURES for name in with_interval(measure)}
    | {"share_least": pl.Float64, "share_most": pl.Float64, "microseconds": pl.Float64}
)


def in_units(summary: pl.DataFrame, measures: Sequence[str], table: Table) -> pl.DataFrame:
    """Return a summary in the units of the table: costs, if its rewards are costs with their sign changed."""
    if not table.minimize:
        return summary
    flipped: dict[str, pl.Expr] = {}
    for value, low, high in map(with_interval, measures):
        flipped |= {value: -pl.col(value), low: -pl.col(high), high: -pl.col(low)}
    return summary.with_columns(**flipped)


def _earned(rewards: FloatArray, choices: npt.NDArray[np.int64]) -> FloatArray:
    return np.asarray(np.take_along_axis(rewards, choices.T, axis=1).mean(axis=1))


def _gain_length(earned: FloatArray, fixed: FloatArray) -> int:
    """Return the length of blocks that suits the gain over the best fixed arm."""
    return block_length(earned - fixed)


def _row(label: str, place: int, rounds: int, averages: FloatArray, means: FloatArray) -> dict[str, object]:
    row: dict[str, object] = {"policy": label, "kind": "reference"}
    average, fixed, clairvoyant = averages[0, :3]
    for measure, statistic in _MEASURES.items():
        if measure == "gain_over_fixed" and clairvoyant - fixed < _LEAST_GAP * (clairvoyant - average):
            continue  # a share of next to nothing
        found = measured(averages, means, partial(statistic, rounds, place))
        row |= zip(with_interval(measure), found, strict=True)
    return row
