"""A study from start to finish: run, summarise, check the claims, draw, report."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from undertow.reporting.folders import naming
from undertow.reporting.pool import Progress
from undertow.study.chunks import Tables, open_folder, read_tables, run_plan
from undertow.study.claims import Claim, check_claims
from undertow.study.figures import draw_figures, draw_preview
from undertow.study.plan import Plan
from undertow.study.report import write_report
from undertow.study.summary import comparisons, headline
from undertow.study.tightness import draw_tightness

__all__ = ["Outcome", "run_study"]


class Outcome(NamedTuple):
    """What a study found, and where it is kept."""

    folder: Path
    report: Path
    headline: pl.DataFrame
    comparisons: pl.DataFrame
    claims: list[Claim]
    tables: Tables


def run_study(
    plan: Plan,
    out: str | os.PathLike[str],
    *,
    threads: int = 1,
    cluster: str | None = None,
    module: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Outcome:
    """Run the missing chunks of a plan, and write tables, figures and the report.

    `module` is a file that registers policies of the plan, which workers have to run, too. `progress(done, total)` is
    called after every chunk; `say` receives messages for a person at a terminal.
    """
    folder = open_folder(plan, out)
    say = say or (lambda message: None)
    previewed = False

    def watch(done: int, total: int) -> None:
        nonlocal previewed
        if progress:
            progress(done, total)
        if not previewed and len(plan.systems) <= done < total:
            previewed = True
            say(f"first figure: {draw_preview(plan, read_tables(folder), folder)}")

    with naming(folder):
        how: dict[str, Any] = {"threads": threads, "cluster": cluster, "module": module}
        tables = run_plan(plan, folder, **how, progress=watch, say=say)
        table, pairs = headline(plan, tables), comparisons(plan, tables)
        claims = check_claims(plan, tables) if plan.name == "paper" else []
        say("drawing figures")
        figures = draw_figures(plan, tables, folder)
        if tightness := draw_tightness(plan, tables, folder):
            figures.insert(min(3, len(figures)), tightness)  # the paper's figure 4
        report = write_report(plan, tables, table, claims, figures, folder)
    return Outcome(folder, report, table, pairs, claims, tables)
