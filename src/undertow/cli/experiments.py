"""`undertow trials` and `live`: experiments of fixed design."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from undertow.cli.common import CORES, AsJson, Threads, app, console, numbers, watching, words


@app.command()
def trials(
    family: Annotated[
        list[str] | None,
        typer.Option(
            help="Problem family (paper, stable, unit-root, misspecified, world, data …); repeat for several.",
            show_default="all",
        ),
    ] = None,
    runs: Annotated[int | None, typer.Option(help="Problems per family.", show_default="each family's default")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of each randomised policy, per problem.")] = 1,
    rounds: Annotated[int, typer.Option(help="Rounds of each path.")] = 10_000,
    policies: Annotated[
        str, typer.Option(help="Policies to run, by label, separated by commas.", show_default="all")
    ] = "",
    threads: Threads = CORES,
    out: Annotated[Path, typer.Option(help="Folder for results; they go to its subfolder trials/.")] = Path("out"),
    as_json: AsJson = False,
) -> None:
    """Measure learners on the paper's systems, random systems, misspecified models, simulated worlds and recorded data.

    All families take tens of minutes. Use --family, --runs and --rounds for less.
    """
    from undertow.study.overall import overall, show_overall
    from undertow.study.trials import run_trials, show, summarise, write
    from undertow.support.folders import require_writable

    require_writable(out)
    size: dict[str, Any] = {"runs": runs, "seeds": seeds, "rounds": rounds}
    with watching(as_json, "problems") as (progress, _):
        table = run_trials(family or (), **size, policies=words(policies), threads=threads, progress=progress)
    summary = summarise(table)
    together = overall(summary)
    folder = write(out / "trials", table, summary)
    if as_json:
        done = {"event": "done", "folder": str(folder), "summary": summary.to_dicts(), "overall": together.to_dicts()}
        print(json.dumps(done))
    else:
        console().print(show(summary))
        if together.height:
            console().print(show_overall(together))
        print(f"tables: {folder}")


@app.command()
def live(
    psi: Annotated[str, typer.Option(help="The paper's systems to run, separated by commas.")] = "1,4",
    runs: Annotated[int, typer.Option(min=1, help="Paths per system.")] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each path.")] = 10_000,
    threads: Threads = CORES,
    as_json: AsJson = False,
) -> None:
    """Measure the cost of missing contexts, and of binary and count rewards; print tables in Markdown.

    It takes minutes.
    """
    from undertow.study.hardships import gap_table, reward_table

    for number in numbers("psi", psi):
        for make in (gap_table, reward_table):
            with watching(as_json, "runs") as (progress, _):
                table = make(number, runs=runs, rounds=rounds, threads=threads, progress=progress)
            if as_json:
                rows = {label: values.tolist() for label, values in table.rows.items()}
                print(json.dumps({"event": "done", "title": table.title, "columns": table.columns, "rows": rows}))
            else:
                print(f"\n{table.markdown()}")
