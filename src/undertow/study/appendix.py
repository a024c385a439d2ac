"""Does it matter how the paper is read? Its ambiguous choices made differently, one at a time, and what then holds."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from undertow.errors import InvalidInputError
from undertow.reporting.pool import Progress, run_tasks
from undertow.simulation import simulate
from undertow.study.chunks import Tables, tables_of
from undertow.study.claims import check_claims
from undertow.study.plan import Plan, SystemSpec, build_for
from undertow.study.readings import READINGS, Reading, play_ares
from undertow.study.summary import final_regret, ratios
from undertow.theory import true_noise_bound

__all__ = ["RUNS", "Varied", "pieces_of_work", "vary_choices"]

RUNS = 20  # of every system, at most; the slow ARES of `readings` plays them all at once
_ARES, _PIES = "ARES", "PIES(10)"


class Varied(NamedTuple):
    """What became of the study with one choice made differently.

    Attributes
    ----------
    row, words
        The row of docs/paper.md, empty for what is built, and what is done instead.
    policy
        Whose regret is shown.
    relative
        By system: the median over runs of its regret relative to the baseline's.
    holds
        Verdicts on the paper's statements, in order.
    changed
        Numbers of the statements whose verdict differs from that of what is built, on the same runs.
    """

    row: str
    words: str
    policy: str
    relative: dict[str, float]
    holds: list[bool | None]
    changed: list[int]


def pieces_of_work(plan: Plan) -> int:
    """Return how many tasks an appendix takes; refuse a plan without the policies that it varies."""
    labels = {spec.label for spec in plan.policies}
    if missing := next((label for label in (_ARES, _PIES) if label not in labels), None):
        raise InvalidInputError(f"policies: the appendix varies {missing}, and the plan has none; leave out --appendix")
    return len(READINGS) * len(plan.systems)


def vary_choices(
    plan: Plan, tables: Tables, *, runs: int = RUNS, threads: int = 1, progress: Progress | None = None
) -> list[Varied]:
    """Return what holds as built, once for ARES and once for PIES, and under every other reading.

    All readings play the first `runs` runs of the study, and are compared with what is built on the same runs.
    """
    few = plan.select(runs=min(runs, plan.runs))
    first = pl.col("run") < few.runs
    base = Tables(tables.regret.filter(first), tables.detail.filter(first), 0.0)
    tasks = [partial(_play, few, spec, reading) for reading in READINGS for spec in few.systems]
    played = iter(run_tasks(tasks, threads=threads, progress=progress))
    built = _verdicts(few, base)
    found = [Varied("", "as built", policy, _relative(few, base, policy), built, []) for policy in (_ARES, _PIES)]
    for reading in READINGS:
        varied = _replaced(base, [next(played) for _ in few.systems])
        holds = _verdicts(few, varied)
        changed = [number for number, pair in enumerate(zip(built, holds, strict=True), start=1) if pair[0] != pair[1]]
        policy = _PIES if reading.frozen else _ARES
        found.append(Varied(reading.row, reading.words, policy, _relative(few, varied, policy), holds, changed))
    return found


def _play(plan: Plan, spec: SystemSpec, reading: Reading) -> Tables:
    """Play what a reading changes on one system: ARES, or every PIES."""
    runs = range(plan.runs)
    paths = spec.system.sample(plan.rounds, rng=plan.seed, burn_in=plan.burn_in, runs=runs, threads=1)
    if not reading.frozen:
        return tables_of(plan, spec.label, _ARES, play_ares(paths, true_noise_bound(spec.system), reading), runs)
    parts = []
    for contender in (contender for contender in plan.policies if contender.policy == "pies"):
        frozen = replace(contender, parameters={**contender.parameters, "frozen": True})
        policy = build_for(frozen, spec.system, plan.seed)
        run = simulate(policy, paths, record=["widths", "windows", "errors"], runs=runs, threads=1)
        parts.append(tables_of(plan, spec.label, contender.label, run, runs))
    return _joined(parts)


def _replaced(base: Tables, parts: Iterable[Tables]) -> Tables:
    """Return tables in which some policies are replaced by others of the same labels."""
    new = _joined(parts)
    old = ~pl.col("policy").is_in(new.regret["policy"].unique().to_list())
    return _joined([Tables(base.regret.filter(old), base.detail.filter(old), 0.0), new])


def _joined(parts: Iterable[Tables]) -> Tables:
    parts = list(parts)
    return Tables(pl.concat(part.regret for part in parts), pl.concat(part.detail for part in parts), 0.0)


def _verdicts(plan: Plan, tables: Tables) -> list[bool | None]:
    return [claim.holds for claim in check_claims(plan, tables)]


def _relative(plan: Plan, tables: Tables, policy: str) -> dict[str, float]:
    final = final_regret(plan, tables)
    return {spec.label: float(np.median(ratios(plan, final, spec.label, policy))) for spec in plan.systems}
