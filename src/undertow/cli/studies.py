"""`undertow study`, `compare`, `trials` and `learners`: what policies do on systems and data of ours."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from undertow.cli.common import CORES, AsJson, Cluster, Out, Threads, Workers, app, console, numbers, watching, words

if TYPE_CHECKING:
    from undertow.study.conduct import Outcome
    from undertow.study.plan import Plan


@app.command()
def study(
    psi: Annotated[str, typer.Option(help="Which of the paper's systems, separated by commas.")] = "1,2,3,4",
    runs: Annotated[int | None, typer.Option(help="Independent runs of each system.", show_default="100")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of each run.", show_default="10000")] = None,
    policies: Annotated[
        str,
        typer.Option(help="Some of the plan's policies, by label or name, separated by commas.", show_default="all"),
    ] = "",
    seed: Annotated[int | None, typer.Option(help="Seed of everything that is random.", show_default="0")] = None,
    threads: Workers = CORES,
    out: Out = Path("out"),
    cluster: Cluster = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Few and short runs: a minute, and a minute or two more to compile, once."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce the paper's evaluation, with the rows that the paper lacks, and report it.

    It takes minutes, and shows how far it is.
    Interrupted at any moment, the same command continues where it stopped and ends with the same numbers.
    """
    from undertow.study.plan import paper_plan

    plan = paper_plan(psi=numbers("psi", psi))
    if quick:
        plan = plan.select(runs=8, rounds=2000, burn_in=1000)
    plan = plan.select(words(policies), runs=runs, rounds=rounds, seed=seed)
    _conduct(plan, out, threads, cluster, as_json)


@app.command()
def compare(
    file: Annotated[Path, typer.Argument(help="A plan in TOML; docs/study.md describes it.")],
    threads: Workers = CORES,
    out: Out = Path("out"),
    cluster: Cluster = None,
    as_json: AsJson = False,
) -> None:
    """Run any comparison that a plan describes: systems, policies, grids of parameters."""
    from undertow.study.plan import read_plan

    _conduct(read_plan(file), out, threads, cluster, as_json)


@app.command()
def trials(
    family: Annotated[
        list[str] | None,
        typer.Option(help="paper, stable, unit-root, misspecified, missing, no-contexts, data …", show_default="all"),
    ] = None,
    runs: Annotated[int | None, typer.Option(help="Problems of each family.", show_default="its own number")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of a policy that draws, on each problem.")] = 1,
    rounds: Annotated[int, typer.Option(help="Rounds of each path.")] = 10_000,
    policies: Annotated[
        str, typer.Option(help="Some of the policies, by label, separated by commas.", show_default="all")
    ] = "",
    threads: Threads = CORES,
    out: Annotated[Path, typer.Option(help="Folder for results; they go to trials/ below it.")] = Path("out"),
    as_json: AsJson = False,
) -> None:
    """Measure what policies that know nothing lose: the paper's systems, random ones, wrong models, recorded data.

    All families take tens of minutes; it shows how far it is. --family, --runs and --rounds make it shorter.
    """
    from undertow.study.folders import require_writable
    from undertow.study.trials import run_trials, show, summarise, write

    chosen = words(policies)
    require_writable(out)
    try:
        with watching(as_json, "problems") as (progress, _):
            table = run_trials(
                family or (),
                runs=runs,
                seeds=seeds,
                rounds=rounds,
                policies=chosen,
                threads=threads,
                progress=progress,
            )
    except KeyboardInterrupt:
        print("\nundertow: interrupted; nothing was written", file=sys.stderr)
        raise SystemExit(130) from None
    summary = summarise(table)
    folder = write(out / "trials", table, summary)
    if as_json:
        print(json.dumps({"event": "done", "folder": str(folder), "summary": summary.to_dicts()}))
    else:
        console().print(show(summary))
        print(f"tables: {folder}")


@app.command()
def learners(
    rounds: Annotated[int, typer.Option(help="Rounds of each path.")] = 10_000,
    threads: Threads = CORES,
    out: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("out"),
    as_json: AsJson = False,
) -> None:
    """Draw what the learners learn of the paper's system, and which model Autopilot follows on which problem.

    It takes minutes, and shows how far it is.
    """
    from undertow.study.learner_figures import draw_learners

    try:
        with watching(as_json, "runs") as (progress, _):
            drawings = draw_learners(out, rounds=rounds, threads=threads, progress=progress)
    except KeyboardInterrupt:
        print("\nundertow: interrupted; nothing was written", file=sys.stderr)
        raise SystemExit(130) from None
    for drawing in drawings:
        if as_json:
            print(json.dumps({"event": "done", "png": str(drawing.png), "caption": drawing.caption}))
        else:
            print(f"{drawing.png}: {drawing.caption}")


def _conduct(plan: "Plan", out: Path, threads: int, cluster: str | None, as_json: bool) -> None:
    from undertow.study.conduct import conduct

    start = time.monotonic()
    try:
        with watching(as_json) as (progress, say):
            outcome = conduct(plan, out, threads=threads, cluster=cluster, progress=progress, say=say)
    except KeyboardInterrupt:
        print("\nundertow: interrupted; what is complete is kept, and the same command continues", file=sys.stderr)
        raise SystemExit(130) from None
    seconds = time.monotonic() - start
    if as_json:
        rows = {"headline": outcome.headline.to_dicts(), "comparisons": outcome.comparisons.to_dicts()}
        claims = [claim._asdict() for claim in outcome.claims]
        done = {"event": "done", "folder": str(outcome.folder), "report": str(outcome.report), "seconds": seconds}
        from undertow.replay.conduct import plain

        print(json.dumps(plain(done | rows | {"claims": claims})))
    else:
        _show(plan, outcome, seconds)


def _show(plan: "Plan", outcome: "Outcome", seconds: float) -> None:
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
    for claim in outcome.claims:
        verdict = {True: "holds", False: "does not hold", None: "not tested"}[claim.holds]
        screen.print(f"claim {claim.number}: {claim.statement}", highlight=False)
        screen.print(f"    {verdict}: {claim.measured}", highlight=False, style="bold" if claim.holds is False else "")
    print(f"tables, figures and plan: {outcome.folder}")
    print(f"report: {outcome.report}  ({seconds:.0f} s)")
