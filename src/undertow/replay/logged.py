"""Policies on a log: what each would have earned, estimated from rounds in which somebody else chose the arm.

A policy is led through the log round by round. It decides in every round, sees every context, and learns a reward only
where it chose the logged arm a and the round is accepted, with probability c/p, p the arm's propensity and c the
smallest of all. Whatever it chooses, a round is then accepted with probability c: rewards go missing at random. Time
is not compressed, as it is where rejected rounds are skipped (Li et al. 2011): the hidden state goes on moving in them.

With w = 1[policy's arm = logged arm] / p, r the logged reward and r̂ a forecast from the rounds before:

    rejection            mean of r over accepted rounds
    IPS                  Σ w r / n
    self-normalised IPS  Σ w r / Σ w
    doubly robust        Σ (r̂ of the policy's arm + w (r − r̂ of the logged arm)) / n

All four estimate the same: the mean reward of the arms that the policy chose along the log. IPS and the doubly robust
estimate are unbiased whatever the state does, if no arm moves it and the propensities are true: given everything but
the logged arm of a round, E[w r] is the reward of the policy's arm. Dudík et al. 2012 treat policies that learn.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from undertow import _checks
from undertow._checks import FloatArray
from undertow.errors import InvalidInputError
from undertow.policies import LivePolicy
from undertow.replay.bootstrap import RESAMPLES, block_length, check_block, interval, resampled_means
from undertow.replay.entrants import build, entrants, remarks
from undertow.replay.forecaster import forecast_log
from undertow.replay.full import LEAST_ROUNDS, draws
from undertow.replay.table import Log, Table
from undertow.study.plan import PolicySpec

__all__ = ["ESTIMATORS", "LOGGED", "Estimate", "LogReplay", "estimate", "replay_log"]

LOGGED = "as logged"
ESTIMATORS = ("rejection", "ips", "snips", "dr")
FEW = 100  # effective rounds below which an estimate comes with a warning
_HEAVY = 0.1  # of all weight on one round
_MANY_ARMS = 20  # beyond, only the fixed arm with the largest estimate is shown

Learning = Literal["accepted", "matched"]


class Pass(NamedTuple):
    """One way of a policy through a log: its arms, and which rounds were accepted for the rejection estimate, (n,)."""

    arms: npt.NDArray[np.int64]
    accepted: npt.NDArray[np.bool_]


class Estimate(NamedTuple):
    """Estimates of one policy's mean reward, by estimator with low and high, and how much data is behind them."""

    values: dict[str, tuple[float, float, float]]
    gain: tuple[float, float, float]
    matches: float
    effective: float
    heaviest: float


@dataclass(frozen=True, eq=False)
class LogReplay:
    """What policies would have earned on a log.

    Attributes
    ----------
    table, policies
        The log, and who was led through it.
    choices
        The arms that each policy chose, by label, (runs, n).
    summary
        One row per policy and fixed arm; `replay_log` tells the columns.
    block
        Length of the blocks of the bootstrap.
    notes, warnings
        What a reader should know, and what he should not overlook.
    """

    table: Table
    policies: Sequence[PolicySpec]
    choices: Mapping[str, npt.NDArray[np.int64]]
    summary: pl.DataFrame
    block: int
    notes: Sequence[str]
    warnings: Sequence[str]


def replay_log(
    table: Table,
    policies: Sequence[PolicySpec] = (),
    *,
    runs: int = 3,
    seed: int = 0,
    block: int | None = None,
    resamples: int = RESAMPLES,
    context_first: bool = False,
    learn_from: Learning = "accepted",
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LogReplay:
    """Estimate what policies would have earned on a log.

    Parameters
    ----------
    policies, runs, seed, block, context_first
        As for `replay_table`; every policy is led through `runs` times where anything is drawn, acceptance included.
    learn_from
        "accepted" rounds are a random part of all, whatever the policy chooses. "matched" rounds are all in which it
        chose the logged arm: more to learn from, but confounded where propensities follow the rewards.

    Returns
    -------
    The columns of the summary, with 95 % intervals in `…_low` and `…_high`:

    rejection, ips, snips, dr
        Mean reward a round.
    gain
        Doubly robust estimate minus the mean of the logged rewards, paired.

    And beside them `kind` (policy, fixed arm or log), `runs`, `matches` (rounds in which the logged arm was chosen),
    `effective` (the effective number of rounds behind IPS, (Σw)²/Σw²), `heaviest` (the largest share of a single round
    in all weight) and `warning`.
    """
    if table.log is None:
        raise InvalidInputError("table: this one knows every arm's reward; use replay_table")
    if table.rounds < LEAST_ROUNDS:
        raise InvalidInputError(f"table: expected at least {LEAST_ROUNDS} rows, got {table.rounds}")
    check_block(block, table.rounds)
    runs = _checks.integer("runs", runs, least=1)
    seed = _checks.integer("seed", seed, least=0)
    threads = _checks.integer("threads", os.cpu_count() if threads is None else threads, least=1)
    learn_from = _checks.choice("learn_from", learn_from, ("accepted", "matched"))
    playing, notes = entrants(table, policies)
    log, keep = table.log, acceptance(table.log)
    certain = bool((keep == 1).all())  # equal propensities: every match is accepted

    def lead(spec: PolicySpec, run: int) -> Pass:
        policy = build(spec, table, seed=seed, context_first=context_first).for_run(run)
        drawn = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2, run))).random(table.rounds)
        return lead_through(policy, table, drawn < keep, learn_from, context_first)

    tasks = [(spec, run) for spec in playing for run in range(runs if draws(spec) or not certain else 1)]
    progress = progress or (lambda done, total: None)
    progress(0, len(tasks))
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(lead, spec, run) for spec, run in tasks]
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                future.result()
                progress(done, len(tasks))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    passes: dict[str, list[Pass]] = {}
    for (spec, _), future in zip(tasks, futures, strict=True):
        passes.setdefault(spec.label, []).append(future.result())
    model = forecast_log(table, context_first=context_first)
    fixed = _fixed_passes(table, keep, seed)
    everyone = {**passes, **fixed}
    terms = {label: _terms(log, model, ways) for label, ways in everyone.items()}
    block = block or max([block_length(log.rewards), *(block_length(term[:, 5]) for term in terms.values())])
    rows = []
    for label, ways in everyone.items():
        found = _estimate(terms[label], _weights(log, ways), block, resamples, seed)
        kind = "policy" if label in passes else "fixed arm"
        rows.append(_row(label, kind, len(ways), found))
    rows = _with_best_fixed(rows)
    rows.append(_logged_row(log, block, resamples, seed))
    summary = pl.DataFrame(rows, schema=_SCHEMA)
    warnings = [f"{row['policy']}: {row['warning']}" for row in rows if row["warning"]]
    notes += [*table.notes, *remarks(playing, table)]
    if not certain:
        notes.append(
            f"propensities differ, the smallest is {log.propensities.min():.3g}: the rejection estimate keeps a "
            f"matching round with probability {log.propensities.min():.3g} / propensity"
            + (", and policies learn from these rounds alone" if learn_from == "accepted" else "")
        )
    choices = {label: np.stack([way.arms for way in ways]) for label, ways in passes.items()}
    return LogReplay(table, playing, choices, summary, block, notes, warnings)


def acceptance(log: Log) -> FloatArray:
    """Return the probabilities c/p with which a matching round is accepted, c the smallest propensity."""
    return np.asarray(log.propensities.min() / log.propensities)


def lead_through(
    policy: LivePolicy,
    table: Table,
    kept: npt.NDArray[np.bool_],
    learn_from: Learning,
    context_first: bool,
) -> Pass:
    """Lead a policy through a log; `kept` are the rounds that are accepted if the policy's arm is the logged one."""
    log = table.log
    assert log is not None
    sees = policy.parameters.get("context_dim", 0) > 0
    takes = policy.parameters.get("feature_dim", 0) > 0
    arms = np.empty(table.rounds, dtype=np.int64)
    for t in range(table.rounds):
        if sees and context_first:
            policy.observe(table.contexts[t])
        decision = policy.decide(table.features[t] if takes else None)
        arms[t] = decision.arm
        if decision.arm == log.arms[t] and (kept[t] or learn_from == "matched"):
            policy.learn(decision, float(log.rewards[t]))
        if sees and not context_first:
            policy.observe(table.contexts[t])
    return Pass(arms, (arms == log.arms) & kept)


def estimate(
    log: Log,
    passes: Sequence[Pass],
    model: FloatArray,
    *,
    block: int | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Estimate the mean reward of a policy from its ways through a log and a forecast of every arm's reward, (n, k)."""
    terms = _terms(log, model, passes)
    block = block or max(block_length(log.rewards), block_length(terms[:, 5]))
    return _estimate(terms, _weights(log, passes), block, resamples, seed)


_STATISTICS: dict[str, Callable[[FloatArray], FloatArray]] = {  # of the columns of `_terms`
    "rejection": lambda m: m[:, 0] / m[:, 1],
    "ips": lambda m: m[:, 2],
    "snips": lambda m: m[:, 2] / m[:, 3],
    "dr": lambda m: m[:, 4],
    "gain": lambda m: m[:, 5],
}


def _terms(log: Log, model: FloatArray, passes: Sequence[Pass]) -> FloatArray:
    """Return what every estimator is made of, a row a round, averaged over the ways through the log, (n, 6)."""
    rows = np.arange(len(log.rewards))
    total = np.zeros((len(rows), 6))
    for way in passes:
        w = np.where(way.arms == log.arms, 1 / log.propensities, 0.0)
        robust = model[rows, way.arms] + w * (log.rewards - model[rows, log.arms])
        accepted = way.accepted.astype(np.float64)
        parts = (accepted * log.rewards, accepted, w * log.rewards, w, robust, robust - log.rewards)
        total += np.stack(parts, axis=1)
    return total / len(passes)


def _weights(log: Log, passes: Sequence[Pass]) -> FloatArray:
    return np.stack([np.where(way.arms == log.arms, 1 / log.propensities, 0.0) for way in passes])


def _estimate(terms: FloatArray, weights: FloatArray, block: int, resamples: int, seed: int) -> Estimate:
    means = resampled_means(terms, block=block, resamples=resamples, seed=seed)
    whole = terms.mean(axis=0, keepdims=True)
    found: dict[str, tuple[float, float, float]] = {}
    for name, statistic in _STATISTICS.items():
        with np.errstate(divide="ignore", invalid="ignore"):
            found[name] = (float(statistic(whole)[0]), *interval(means, statistic))
    sums, squares = weights.sum(axis=1), (weights**2).sum(axis=1)
    effective = np.divide(sums**2, squares, out=np.zeros_like(sums), where=squares > 0)
    heaviest = np.divide(weights.max(axis=1), sums, out=np.ones_like(sums), where=sums > 0)
    gain = found.pop("gain")
    return Estimate(
        found, gain, float((weights > 0).sum(axis=1).mean()), float(effective.mean()), float(heaviest.max())
    )


def _fixed_passes(table: Table, keep: FloatArray, seed: int) -> dict[str, list[Pass]]:
    """Return the ways of those who always play the same arm."""
    log = table.log
    assert log is not None
    kept = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2, 0))).random(table.rounds) < keep
    return {
        f"always {name}": [Pass(np.full(table.rounds, arm), (log.arms == arm) & kept)]
        for arm, name in enumerate(table.arms)
    }


_SCHEMA = (
    {"policy": pl.String, "kind": pl.String, "runs": pl.Int64}
    | {f"{name}{end}": pl.Float64 for name in (*ESTIMATORS, "gain") for end in ("", "_low", "_high")}
    | {"matches": pl.Float64, "effective": pl.Float64, "heaviest": pl.Float64, "warning": pl.String}
)


def _row(label: str, kind: str, runs: int, found: Estimate) -> dict[str, object]:
    row: dict[str, object] = {"policy": label, "kind": kind, "runs": runs}
    for name, (value, low, high) in (found.values | {"gain": found.gain}).items():
        row |= {name: value, f"{name}_low": low, f"{name}_high": high}
    row |= {"matches": found.matches, "effective": found.effective, "heaviest": found.heaviest, "warning": None}
    if found.effective < FEW:
        row["warning"] = (
            f"the effective sample size is {found.effective:.0f} rounds, fewer than {FEW}; these estimates say little"
        )
    elif found.heaviest > _HEAVY:
        row["warning"] = f"a single round carries {100 * found.heaviest:.0f} % of all weight; distrust these estimates"
    return row


def _with_best_fixed(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Leave out most of the fixed arms where there are many."""
    fixed = [row for row in rows if row["kind"] == "fixed arm"]
    if len(fixed) <= _MANY_ARMS:
        return rows
    best = max(fixed, key=lambda row: float(str(row["dr"])))
    return [row for row in rows if row["kind"] != "fixed arm" or row is best]


def _logged_row(log: Log, block: int, resamples: int, seed: int) -> dict[str, object]:
    means = resampled_means(log.rewards[:, None], block=block, resamples=resamples, seed=seed)
    low, high = interval(means, lambda m: m[:, 0])
    row: dict[str, object] = dict.fromkeys(_SCHEMA)
    for name in ESTIMATORS:
        row |= {name: float(log.rewards.mean()), f"{name}_low": low, f"{name}_high": high}
    n = float(len(log.rewards))
    zero = {"gain": 0.0, "gain_low": 0.0, "gain_high": 0.0}
    return row | zero | {"policy": LOGGED, "kind": "log", "matches": n, "effective": n, "heaviest": 1 / n}
