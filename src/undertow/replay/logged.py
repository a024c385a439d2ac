"""Replay of a log: estimates of policies' rewards, from rounds in which another policy chose the arm.

A policy goes through the log round by round. It decides in every round, observes every context, and learns a reward
only if it chose the logged arm a and the round is accepted, with probability c/p, p the arm's propensity and c the
smallest of all. Whatever it chooses, a round is then accepted with probability c: rewards go missing at random.
Rejected rounds are not skipped, as in Li et al. (2011): the hidden state keeps moving in them.

With w = 1[policy's arm = logged arm] / p, r the logged reward and r̂ a forecast from the rounds before:

    rejection            mean of r over accepted rounds
    IPS                  Σ w r / n
    self-normalised IPS  Σ w r / Σ w
    doubly robust        Σ (r̂ of the policy's arm + w (r − r̂ of the logged arm)) / n

All four estimate the same: the mean reward of the arms that the policy chose along the log. IPS and the doubly robust
estimate are unbiased whatever the state does, if no arm moves it and the propensities are true: given everything but
the logged arm of a round, E[w r] is the reward of the policy's arm. Dudík et al. 2012 treat policies that learn.

A round without a reward is played like any other, with nothing to learn; n counts the rounds with one.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from undertow.contenders import Contender
from undertow.errors import InvalidInputError
from undertow.replay.bootstrap import (
    RESAMPLES,
    Measured,
    block_length,
    check_block,
    compared,
    measured,
    resampled_means,
)
from undertow.replay.contenders import build, few_runs, play_all, remarks, usual_runs, who_plays
from undertow.replay.forecaster import forecast_log
from undertow.replay.full import LEAST_ROUNDS, in_units
from undertow.replay.keyed import keyed_contenders, play_keys, require_keys
from undertow.replay.leading import Learning, Pass, acceptance, lead_through, learnable
from undertow.replay.table import Log, Table, require_table
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.support.display import Framed, html_table
from undertow.support.numbers import count, interval_rows, listed, with_interval
from undertow.support.pool import Progress, run_tasks

if TYPE_CHECKING:
    from undertow.support.drawing import Sheet

__all__ = ["ESTIMATORS", "LOGGED", "Estimate", "LogReplay", "estimate", "replay_log"]

LOGGED = "as logged"
ESTIMATORS = ("rejection", "ips", "snips", "dr")
FEW = 100  # an estimate with fewer effective rounds has a warning
_HEAVY = 0.1  # of all weight on one round
_TERMS = 6  # of a policy, in each round
_MANY_ARMS = 20  # beyond, only the fixed arm with the largest estimate is shown

_SHOWN = {"dr": "doubly robust", "snips": "self-normalised IPS", "gain": "gain over the log"}


class Estimate(NamedTuple):
    """Estimates of a policy's mean reward with their intervals, by estimator, and the amount of data behind them.

    `empty` is how many resamples held no round in which the policy matched the log.
    """

    values: dict[str, Measured]
    gain: Measured
    matches: float
    effective: float
    heaviest: float
    empty: int = 0


@dataclass(frozen=True, eq=False, repr=False)
class LogReplay(Framed):
    """Estimates of policies' rewards on a log.

    Attributes
    ----------
    table, policies
        The log, and the policies that went through it.
    choices
        The arms that each policy chose, by label, (runs, n).
    summary
        One row per policy and fixed arm; `replay_log` describes the columns.
    block
        Length of the blocks of the bootstrap.
    notes, warnings
        Remarks for the reader, and warnings not to be overlooked.
    comparisons
        policy, other, difference of doubly robust estimates, low, high: every pair of policies, paired.
    """

    table: Table
    policies: Sequence[Contender]
    choices: Mapping[str, npt.NDArray[np.int64]]
    summary: pl.DataFrame
    block: int
    notes: Sequence[str]
    warnings: Sequence[str]
    comparisons: pl.DataFrame

    def plot(self) -> "Sheet":
        """Draw the estimates of every policy and fixed arm; needs matplotlib, and a notebook shows it."""
        from undertow.replay.figures import sheet_of_estimates

        return sheet_of_estimates(self)

    def _frame(self) -> dict[str, Any]:
        return self.summary.to_dict(as_series=False)

    def _repr_html_(self) -> str:
        title = f"Replay of the log {self.table.name}: {self.table.extent}"
        rows = interval_rows(self.summary.to_dicts(), _SHOWN)
        return html_table(title, rows, ["policy", *_SHOWN.values()], "; ".join([*self.warnings, *self.notes]))


def replay_log(
    table: Table,
    policies: Sequence[Contender] = (),
    *,
    runs: int | None = None,
    seed: int = 0,
    block: int | None = None,
    resamples: int = RESAMPLES,
    context_first: bool = False,
    learn_from: Learning = "accepted",
    threads: int | None = None,
    progress: Progress | None = None,
    cluster: str | None = None,
    module: str | os.PathLike[str] | None = None,
) -> LogReplay:
    """Estimate the rewards of policies on a log.

    Parameters
    ----------
    policies, seed, block, context_first, cluster, module
        As for `replay_table`.
    runs
        Passes of each policy through the log, if anything is random, acceptance included; their terms are averaged.
        By default as for `replay_table`.
    learn_from
        "accepted" rounds are a random part of all, whatever the policy chooses. "matched" rounds are all in which it
        chose the logged arm: more data, but confounded if propensities follow the rewards.

    Returns
    -------
    The columns of the summary, with 95 % intervals in `…_low` and `…_high`:

    rejection, ips, snips, dr
        Mean reward per round.
    gain
        Doubly robust estimate minus the mean of the logged rewards, paired.

    Further columns: `kind` (policy, fixed arm or log), `runs`, `matches` (rounds in which the logged arm was chosen),
    `effective` (the effective number of rounds behind IPS, (Σw)²/Σw²), `heaviest` (the largest share of a single round
    in all weight) and `warning`.
    """
    require_table(table)
    if table.log is None:
        raise InvalidInputError("table: this one knows every arm's reward; use replay_table")
    paid, whole = table.log.paid, table.log
    if (known := int(paid.sum())) < LEAST_ROUNDS:
        raise InvalidInputError(
            f"table: expected at least {LEAST_ROUNDS} rows with a reward, got {known}; record more rounds"
        )
    check_block(block, known)
    seed = checks.integer("seed", seed, least=0)
    learn_from = checks.choice("learn_from", learn_from, ("accepted", "matched"))
    require_keys(table, cluster)
    playing, notes = who_plays(table, policies) if table.keys is None else keyed_contenders(table, policies)
    keep = acceptance(whole)
    certain = bool((keep == 1).all())  # equal propensities: every match is accepted

    def kept(run: int) -> npt.NDArray[np.bool_]:
        return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2, run))).random(table.rounds) < keep

    def lead(contender: Contender, run: int, progress: Progress) -> Pass:
        policy = build(contender, table, seed=seed, context_first=context_first)
        return lead_through(policy, table, kept(run), learn_from, run, progress)

    shared: dict[str, Any] = {"threads": threads, "progress": progress}
    often = usual_runs(table.rounds) if runs is None else runs
    shared |= {"runs": often, "random": not certain}
    if table.keys is None:
        passes = play_all(playing, lead, rounds=table.rounds, **shared)
    else:
        shared |= {"seed": seed, "context_first": context_first, "cluster": cluster, "module": module}
        played = play_keys(playing, table, lambda run: learnable(table, kept(run), learn_from), **shared)
        passes = {
            label: [Pass(arms, (arms == whole.arms) & kept(run)) for run, (arms, _) in enumerate(each)]
            for label, each in played.items()
        }
    fixed, first = {}, kept(0)
    for arm, name in enumerate(table.arms):
        arms = np.broadcast_to(np.int64(arm), table.rounds)  # takes no memory
        fixed[f"always {name}"] = [Pass(arms, (whole.arms == arm) & first)]
    counted = slice(None) if paid.all() else paid
    log, model = whole.part(counted), forecast_log(table, context_first=context_first)[counted]
    everyone = {label: [way.part(counted) for way in ways] for label, ways in (passes | fixed).items()}
    if block is None:
        lengths = run_tasks([partial(_gain_length, log, ways, model) for ways in everyone.values()], threads=threads)
        block = max(block_length(log.rewards), *lengths)
    how = {"block": block, "resamples": resamples, "seed": seed}
    found = run_tasks([partial(estimate, log, ways, model, **how) for ways in everyone.values()], threads=threads)
    rows = [
        _row(label, "policy" if label in passes else "fixed arm", len(ways), each)
        for (label, ways), each in zip(everyone.items(), found, strict=True)
    ]
    if len(fixed) > _MANY_ARMS:
        rows[len(passes) :] = [max(rows[len(passes) :], key=lambda row: row["dr"])]
    rows.sort(key=lambda row: (row["kind"] == "fixed arm", -row["dr"]))  # policies first, the best on top
    rows.append(_logged_row(log, block, resamples, seed))
    summary = in_units(pl.DataFrame(rows, schema=_SCHEMA), ESTIMATORS, table)
    warnings = _warnings(rows)
    notes += [*table.notes, *remarks(playing, table)]
    if filled := [one.label for one in playing if one.parameters.get("default_reward") is not None]:
        notes.append(
            f"rounds in which there was nothing to learn, such as those with another arm than the log's, count as "
            f"default_reward for {listed(filled)}; do not trust these estimates"
        )
    if table.keys is not None:
        notes.append(
            "policies learn only in rounds in which they choose the logged arm; live, every key learns from all of its "
            "rounds, which helps one policy per key most"
        )
    if not certain:
        notes.append(
            f"propensities differ, the smallest is {whole.propensities.min():.3g}: the rejection estimate keeps a "
            f"matching round with probability {whole.propensities.min():.3g} / propensity"
            + (", and policies learn from these rounds alone" if learn_from == "accepted" else "")
        )
    if runs is None and (not certain or any(one.randomised for one in playing)):
        notes += few_runs(table.rounds, "randomised policies" if certain else "all policies")
    choices = {label: np.stack([way.arms for way in ways]) for label, ways in passes.items()}
    robust = np.column_stack([_terms(log, model, everyone[label])[:, 4] for label in passes])
    pairs = compared(list(passes), robust, resampled_means(robust, **how))
    return LogReplay(table, playing, choices, summary, block, notes, warnings, pairs)


def estimate(
    log: Log,
    passes: Sequence[Pass],
    model: FloatArray,
    *,
    block: int | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Estimate a policy's mean reward from its passes through a log and a forecast of every arm's reward, (n, k)."""
    if block is None:
        block = max(block_length(log.rewards), _gain_length(log, passes, model))
    terms = _terms(log, model, passes)
    means = resampled_means(terms, block=block, resamples=resamples, seed=seed)
    return _estimate(log, passes, terms, means)


def _gain_length(log: Log, passes: Sequence[Pass], model: FloatArray) -> int:
    """Return the length of blocks that suits the gain over the log."""
    return block_length(_terms(log, model, passes)[:, 5])


def _estimate(log: Log, passes: Sequence[Pass], terms: FloatArray, means: FloatArray) -> Estimate:
    """Return the estimates from all terms, (n, 6), and their resampled means; one round has no interval."""
    averages, least = terms.mean(axis=0, keepdims=True), 0.5 / (len(terms) * len(passes))
    found = {name: measured(averages, means, statistic) for name, statistic in _statistics(least).items()}
    for name, column in (("rejection", 1), ("snips", 3)):
        if np.count_nonzero(terms[:, column]) == 1:
            found[name] = found[name]._replace(low=np.nan, high=np.nan)
    gain = found.pop("gain")
    matches, effective, heaviest = np.array([_weighed(_weights(log, way)) for way in passes]).T
    empty = int((means[:, 3] <= least).sum())
    return Estimate(found, gain, float(matches.mean()), float(effective.mean()), float(heaviest.max()), empty)


def _weighed(weights: FloatArray) -> tuple[int, float, float]:
    """Return the number of weights, the effective number, and the share of the heaviest."""
    total = float(weights.sum())
    if not total:
        return 0, 0.0, 1.0
    return int((weights > 0).sum()), total**2 / float((weights**2).sum()), float(weights.max()) / total


def _statistics(least: float) -> dict[str, Callable[[FloatArray], FloatArray]]:
    """Return the estimates by the means of the columns of `_terms`.

    If the mean of the weights is below `least`, half a round, it is rounding error and counts as none.
    """
    return {
        "rejection": lambda m: np.where(m[:, 1] > least, m[:, 0] / m[:, 1], np.nan),
        "ips": lambda m: m[:, 2],
        "snips": lambda m: np.where(m[:, 3] > least, m[:, 2] / m[:, 3], np.nan),
        "dr": lambda m: m[:, 4],
        "gain": lambda m: m[:, 5],
    }


def _terms(log: Log, model: FloatArray, passes: Sequence[Pass]) -> FloatArray:
    """Return the terms of all estimators, one row per round, averaged over the passes, (n, 6)."""
    rows, total = np.arange(len(log.rewards)), np.zeros((len(log.rewards), _TERMS))
    for way in passes:
        w = _weights(log, way)
        robust = model[rows, way.arms] + w * (log.rewards - model[rows, log.arms])
        accepted = way.accepted.astype(np.float64)
        parts = (accepted * log.rewards, accepted, w * log.rewards, w, robust, robust - log.rewards)
        for column, part in zip(total.T, parts, strict=True):
            column += part
    total /= len(passes)
    return total


def _weights(log: Log, way: Pass) -> FloatArray:
    return np.where(way.arms == log.arms, 1 / log.propensities, 0.0)


def _warnings(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one warning for all estimates that have one, the worst first."""
    doubted = sorted((row for row in rows if row["warning"]), key=lambda row: float(row["effective"]))
    if not doubted:
        return []
    worst, *others = doubted
    rest = f"; the same holds, less so, of {listed([row['policy'] for row in others])}" if others else ""
    return [f"{worst['policy']}: {worst['warning']}{rest}"]


_SCHEMA = (
    {"policy": pl.String, "kind": pl.String, "runs": pl.Int64}
    | {name: pl.Float64 for measure in (*ESTIMATORS, "gain") for name in with_interval(measure)}
    | {"matches": pl.Float64, "effective": pl.Float64, "heaviest": pl.Float64, "warning": pl.String}
)


def _row(label: str, kind: str, runs: int | None, found: Estimate) -> dict[str, Any]:
    row: dict[str, Any] = {"policy": label, "kind": kind, "runs": runs, "warning": None}
    for measure, values in (found.values | {"gain": found.gain}).items():
        row |= zip(with_interval(measure), values, strict=True)
    row |= {"matches": found.matches, "effective": found.effective, "heaviest": found.heaviest}
    if found.effective < FEW:
        size = count(round(found.effective), "round")
        row["warning"] = f"the effective sample size is {size}, fewer than {FEW}; these estimates say little"
        if found.empty:
            row["warning"] += f" ({found.empty:,} resamples held no matching round, and no rejection or SNIPS estimate)"
    elif found.heaviest > _HEAVY:
        row["warning"] = (
            f"a single round carries {100 * found.heaviest:.0f} % of all weight; do not trust these estimates"
        )
    return row


def _logged_row(log: Log, block: int, resamples: int, seed: int) -> dict[str, Any]:
    rewards, n = log.rewards[:, None], len(log.rewards)
    means = resampled_means(rewards, block=block, resamples=resamples, seed=seed)
    mean = measured(rewards, means, lambda m: m[:, 0])
    found = Estimate(dict.fromkeys(ESTIMATORS, mean), Measured(0.0, 0.0, 0.0), n, n, 1 / n)
    return _row(LOGGED, "log", None, found) | {"warning": None}  # however few its rounds
