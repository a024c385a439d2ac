"""A study from start to finish: run, summarise, check the claims, draw, report; first on a few runs, then on all."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from undertow.study.appendix import Varied, pieces_of_work, vary_choices
from undertow.study.chunks import Tables, open_folder, read_tables, run_plan
from undertow.study.claims import Claim, check_claims
from undertow.study.figures import draw_figures
from undertow.study.folder import is_whole
from undertow.study.plan import Plan
from undertow.study.report import REPORT, write_report
from undertow.study.summary import Array, comparisons, headline, keep_summary
from undertow.study.tightness import draw_tightness
from undertow.support.folders import naming
from undertow.support.pool import Clock, Progress

__all__ = ["Outcome", "run_study"]

_WORTH_WAITING = 20.0  # minimum seconds left for a report of the first runs, which takes time to draw


class Outcome(NamedTuple):
    """The results of a study, and their folder."""

    folder: Path
    report: Path
    headline: pl.DataFrame
    comparisons: pl.DataFrame
    claims: list[Claim]
    tables: Tables
    appendix: list[Varied]


def run_study(
    plan: Plan,
    out: str | os.PathLike[str],
    *,
    threads: int = 1,
    cluster: str | None = None,
    module: str | os.PathLike[str] | None = None,
    appendix: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Outcome:
    """Run the missing chunks of a plan, and write tables, figures and the report.

    A long study writes a first report as soon as every system has its first runs. `module` is a file that registers
    policies of the plan; workers run it too. With `appendix`, the paper's ambiguous
    choices are varied, on a few of the runs. `progress(done, total)` is called after every chunk; `say` receives
    messages for a person at a terminal.
    """
    later = pieces_of_work(plan) if appendix else 0
    folder = open_folder(plan, out)
    say = say or (lambda message: None)
    clock, reported = Clock(), (folder / REPORT).exists()

    def watch(done: int, total: int) -> None:
        nonlocal reported
        if progress:
            progress(done, total + later)
        first = range(len(plan.systems))  # the chunks of every system's first runs
        left = clock.seconds_left(done, total)
        if reported or left is None or left < _WORTH_WAITING or not all(is_whole(folder, index) for index in first):
            return
        reported = True
        early = _report(plan, read_tables(folder, first), folder)
        say(f"report of the first {len(plan.chunks[0][1])} of {plan.runs} runs: {early.report}")

    with naming(folder):
        how: dict[str, Any] = {"threads": threads, "cluster": cluster, "module": module}
        tables = run_plan(plan, folder, **how, progress=watch, say=say)
        varied: list[Varied] = []
        committed: dict[str, Array] | None = None
        if appendix:
            chunks = len(plan.chunks)
            more = None if progress is None else lambda done, total: progress(chunks + done, chunks + total)
            varied, committed = vary_choices(plan, tables, threads=threads, progress=more)
        say("drawing figures")
        return _report(plan, tables, folder, varied, committed)


def _report(
    plan: Plan,
    tables: Tables,
    folder: Path,
    varied: Sequence[Varied] = (),
    committed: Mapping[str, Array] | None = None,
) -> Outcome:
    """Summarise tables, of all runs or of the first, and write figures and the report."""
    table, pairs = headline(plan, tables), comparisons(plan, tables)
    claims = check_claims(plan, tables, committed) if plan.name == "paper" else []
    figures = draw_figures(plan, tables, folder)
    if tightness := draw_tightness(plan, tables, folder):
        figures.insert(min(3, len(figures)), tightness)  # the paper's figure 4
    keep_summary(plan, table, pairs, folder)
    report = write_report(plan, tables, table, claims, figures, folder, varied)
    return Outcome(folder, report, table, pairs, claims, tables, list(varied))
