"""`undertow study` and `compare`: plans of systems and policies, run and reported."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from undertow.cli.common import (
    CORES,
    AsJson,
    Cluster,
    Module,
    Out,
    Workers,
    app,
    console,
    load_module,
    numbers,
    watching,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from undertow.study.appendix import Varied
    from undertow.study.plan import Plan
    from undertow.study.run import Outcome


@app.command()
def study(
    psi: Annotated[str, typer.Option(help="The paper's systems to run, separated by commas.")] = "1,2,3,4",
    runs: Annotated[int | None, typer.Option(help="Independent runs of each system.", show_default="100")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of each run.", show_default="10000")] = None,
    policies: Annotated[
        str,
        typer.Option(help="Policies of the plan to run, by label or name, separated by commas.", show_default="all"),
    ] = "",
    seed: Annotated[int | None, typer.Option(help="Random seed.", show_default="0")] = None,
    missing: Annotated[
        float, typer.Option(help="Share of contexts that are missing (future work in the paper).")
    ] = 0.0,
    threads: Workers = CORES,
    out: Out = Path("out"),
    cluster: Cluster = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Few, short runs: about a minute, plus one or two to compile at first."),
    ] = False,
    appendix: Annotated[
        bool,
        typer.Option(
            "--appendix",
            help="Also vary the paper's ambiguous choices, on up to 20 runs: some minutes more.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce the paper's evaluation, with additional policies, and write a report.

    It takes minutes; a first report, from a few runs, comes early. If interrupted, run the same command to resume; the
    numbers are the same.
    """
    from undertow.study.plan import paper_plan

    plan = paper_plan(psi=numbers("psi", psi))
    if quick:
        plan = plan.select(runs=8, rounds=2000, burn_in=1000)
    plan = plan.select(words(policies), runs=runs, rounds=rounds, seed=seed, missing=missing)
    _run(plan, out, threads, cluster, as_json, appendix=appendix)


@app.command()
def compare(
    file: Annotated[Path, typer.Argument(help="Plan in TOML; docs/study.md describes the format.")],
    threads: Workers = CORES,
    out: Out = Path("out"),
    cluster: Cluster = None,
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """Run the comparison that a plan describes: systems, policies, grids of parameters."""
    from undertow.study.plan import read_plan

    code = load_module(module)
    _run(replace(read_plan(file), code=code), out, threads, cluster, as_json, module)


def _run(
    plan: "Plan",
    out: Path,
    threads: int,
    cluster: str | None,
    as_json: bool,
    module: Path | None = None,
    appendix: bool = False,
) -> None:
    from undertow.study.run import run_study
    from undertow.support.folders import plain

    start = time.monotonic()
    interrupted = "completed chunks are kept; run the same command again to resume"
    with watching(as_json, "pieces" if appendix else "chunks", interrupted) as (progress, say):
        outcome = run_study(
            *(plan, out),
            threads=threads,
            cluster=cluster,
            module=module,
            appendix=appendix,
            progress=progress,
            say=say,
        )
    seconds = time.monotonic() - start
    if as_json:
        rows = {"headline": outcome.headline.to_dicts(), "comparisons": outcome.comparisons.to_dicts()}
        claims = [claim._asdict() | {"judgements": [j._asdict() for j in claim.judgements]} for claim in outcome.claims]
        done = {"event": "done", "folder": str(outcome.folder), "report": str(outcome.report), "seconds": seconds}
        varied = [entry._asdict() for entry in outcome.appendix]
        print(json.dumps(plain(done | rows | {"claims": claims, "appendix": varied})))
    else:
        _show(plan, outcome, seconds)


def _show(plan: "Plan", outcome: "Outcome", seconds: float) -> None:
    from undertow.study.claims import caveat, too_short

    screen = console()
    table = Table(
        title=f"Regret after {plan.rounds} rounds relative to {escape(plan.baseline)}: "
        f"median of {plan.runs} runs (95 %)"
    )
    table.add_column("policy")
    for system in plan.systems:
        table.add_column(escape(system.label), justify="right")
    by_policy = outcome.headline.partition_by("policy", maintain_order=True)
    for rows in by_policy:
        cells = [f"{r['relative']:.3f} ({r['low']:.3f}–{r['high']:.3f})" for r in rows.iter_rows(named=True)]
        table.add_row(escape(rows["policy"][0]), *cells)
    screen.print(table)
    judged = {claim.label: claim.verdict for claim in outcome.claims if claim.verdict is not None}
    if judged and not too_short(plan):
        found = "  ".join(f"{label} {verdict}" for label, verdict in judged.items())
        screen.print(f"the paper's statements: {found}", highlight=False, markup=False)
    if judged and (words := caveat(plan, plan.runs)):
        screen.print(words, highlight=False, markup=False)
    if outcome.appendix:
        screen.print(_readings(outcome.appendix))
    print(f"tables, figures and plan: {outcome.folder}")
    print(f"report: {outcome.report}  ({seconds:.0f} s)")


def _readings(appendix: "Sequence[Varied]") -> Table:
    """Return the table of readings: which of the paper's statements hold under each."""
    table = Table(title="Other readings of the paper: ✓ holds, ? undecided, ✗ fails, – not tested")
    table.add_column("row")
    table.add_column("reading")
    for label in appendix[0].verdicts:
        table.add_column(label, justify="center")
    for entry in appendix:
        if entry.row or entry is appendix[0]:
            table.add_row(entry.row, escape(entry.words), *entry.marks)
    return table
