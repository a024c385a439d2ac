"""Other readings of the paper: its ambiguous choices changed one at a time, with the resulting verdicts."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from undertow.contenders import Contender
from undertow.errors import InvalidInputError
from undertow.simulation import Run, simulate
from undertow.study.chunks import Tables, tables_of
from undertow.study.claims import FAILS, HOLDS, UNDECIDED, check_claims
from undertow.study.plan import Plan, SystemSpec, build_for
from undertow.study.readings import READINGS, Reading, play_ares
from undertow.study.statements import EXACT
from undertow.study.summary import Array, final_regret, ratios
from undertow.support.pool import Progress, run_tasks
from undertow.theory import true_noise_bound

__all__ = ["RUNS", "Varied", "pieces_of_work", "vary_choices"]

RUNS = 20  # of every system, at most; the slow ARES of `readings` plays them all side by side
_ARES, _PIES = "ARES", "PIES(10)"


class Varied(NamedTuple):
    """The study with one choice made differently.

    Attributes
    ----------
    row, words
        The row of docs/paper.md, empty for undertow's own reading, and a description of the change.
    policy
        The policy whose regret is shown.
    relative
        By system: the median over runs of its regret relative to the baseline's.
    verdicts
        On the paper's statements, by label.
    changed
        Labels of the statements whose verdict differs from that of undertow's own reading, on the same runs.
    """

    row: str
    words: str
    policy: str
    relative: dict[str, float]
    verdicts: dict[str, str | None]
    changed: list[str]

    @property
    def marks(self) -> list[str]:
        """The verdicts as signs: ✓ holds, ? undecided, ✗ fails, – not tested."""
        signs = {HOLDS: "✓", UNDECIDED: "?", FAILS: "✗", None: "–"}
        return [signs[verdict] for verdict in self.verdicts.values()]


class Played(NamedTuple):
    """The changes of a reading on one system, and how often each run played the arm of the largest window.

    The latter, a share of the rounds in which windows differ, is for Remark 8: it is there without lines 19 and 20.
    """

    tables: Tables
    committed: Array | None = None


def pieces_of_work(plan: Plan) -> int:
    """Return how many tasks an appendix takes; refuse a plan without the policies that it varies."""
    labels = {spec.label for spec in plan.policies}
    if missing := next((label for label in (_ARES, _PIES) if label not in labels), None):
        raise InvalidInputError(f"policies: the appendix varies {missing}, and the plan has none; omit --appendix")
    if plan.missing:
        raise InvalidInputError("appendix: its plain ARES needs every context; omit --missing or --appendix")
    return len(_readings(plan)) * len(plan.systems)


def _readings(plan: Plan) -> list[Reading]:
    """Return the readings of policies that the plan has."""
    there = {spec.policy for spec in plan.policies}
    return [reading for reading in READINGS if reading.policy in there]


def vary_choices(
    plan: Plan, tables: Tables, *, runs: int = RUNS, threads: int = 1, progress: Progress | None = None
) -> tuple[list[Varied], dict[str, Array]]:
    """Return the verdicts as built, once for ARES and once for PIES, and under every other reading.

    All readings play the first `runs` runs of the study, and are compared with undertow's own reading on the same runs.
    Also returns, by system, how often ARES without lines 19 and 20 plays the arm of the largest window (Remark 8).
    """
    few = plan.select(runs=min(runs, plan.runs))
    first = pl.col("run") < few.runs
    base = Tables(tables.regret.filter(first), tables.detail.filter(first), 0.0)
    tasks = [partial(_play, few, spec, reading) for reading in _readings(plan) for spec in few.systems]
    played = iter(run_tasks(tasks, threads=threads, progress=progress))
    built = _verdicts(few, base)
    found = [Varied("", "as built", policy, _relative(few, base, policy), built, []) for policy in (_ARES, _PIES)]
    committed: dict[str, Array] = {}
    for reading in _readings(plan):
        parts = [next(played) for _ in few.systems]
        shares = {
            s.label: part.committed for s, part in zip(few.systems, parts, strict=True) if part.committed is not None
        }
        committed |= shares
        varied = _replaced(base, [part.tables for part in parts])
        verdicts = _verdicts(few, varied)
        changed = [label for label, verdict in verdicts.items() if verdict != built[label]]
        policy = _shown(plan, reading)
        found.append(Varied(reading.row, reading.words, policy, _relative(few, varied, policy), verdicts, changed))
    return found, committed


def _shown(plan: Plan, reading: Reading) -> str:
    """Return the policy whose regret a reading changes."""
    if reading.policy in ("ares", "pies"):
        return _PIES if reading.policy == "pies" else _ARES
    return next(spec.label for spec in plan.policies if spec.policy == reading.policy)


def _play(plan: Plan, spec: SystemSpec, reading: Reading) -> Played:
    """Play the policies that a reading changes on one system: ARES, or every row of another policy."""
    runs = range(plan.runs)
    paths = plan.sample(spec.system, runs)
    if not reading.parameters:
        run = play_ares(paths, true_noise_bound(spec.system), reading)
        shares = _committed(run) if reading.own_width else None
        return Played(tables_of(plan, spec.label, _ARES, run, runs), shares)
    parts = []
    for contender in _varied_rows(plan, reading):
        changed = replace(contender, parameters={**contender.parameters, **reading.parameters})
        record = ["widths", "windows", "errors"] if contender.detail else []
        run = simulate(build_for(changed, spec.system, plan.seed), paths, record=record, runs=runs, threads=1)
        parts.append(tables_of(plan, spec.label, contender.label, run, runs))
    return Played(_joined(parts))


def _varied_rows(plan: Plan, reading: Reading) -> list[Contender]:
    """Return the rows of the policy whose parameters a reading changes; of ARES only the one with that label."""
    rows = [spec for spec in plan.policies if spec.policy == reading.policy]
    return [spec for spec in rows if spec.policy != "ares" or spec.label == _ARES]


def _committed(run: Run) -> Array:
    """Return, by run, the share of rounds with the arm of the largest window, if the windows differ."""
    assert run.windows is not None
    differ = run.windows.min(axis=2) < run.windows.max(axis=2)
    longest = run.arms == run.windows.argmax(axis=2)
    return np.asarray((differ & longest).sum(axis=1) / np.maximum(differ.sum(axis=1), 1))


def _replaced(base: Tables, parts: Iterable[Tables]) -> Tables:
    """Return tables in which some policies are replaced by others with the same labels."""
    new = _joined(parts)
    old = ~pl.col("policy").is_in(new.regret["policy"].unique().to_list())
    return _joined([Tables(base.regret.filter(old), base.detail.filter(old), 0.0), new])


def _joined(parts: Iterable[Tables]) -> Tables:
    parts = list(parts)
    return Tables(pl.concat(part.regret for part in parts), pl.concat(part.detail for part in parts), 0.0)


def _verdicts(plan: Plan, tables: Tables) -> dict[str, str | None]:
    """Return the verdicts on the statements that depend on the policies."""
    return {claim.label: claim.verdict for claim in check_claims(plan, tables) if claim.label not in EXACT}


def _relative(plan: Plan, tables: Tables, policy: str) -> dict[str, float]:
    final = final_regret(plan, tables)
    return {spec.label: float(np.median(ratios(plan, final, spec.label, policy))) for spec in plan.systems}
