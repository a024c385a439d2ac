"""`undertow live`: what missing contexts and rewards that are not Gaussian cost."""

from typing import Annotated

import typer

from undertow.cli.common import CORES, AsJson, Threads, app, numbers, watching

__all__ = ["live"]


@app.command()
def live(
    psi: Annotated[str, typer.Option(help="Which of the paper's systems, separated by commas.")] = "1,4",
    runs: Annotated[int, typer.Option(min=1, help="Paths of each system.")] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each path.")] = 10_000,
    threads: Threads = CORES,
    as_json: AsJson = False,
) -> None:
    """Measure what missing contexts cost, and binary and count rewards; print the tables of the guide as Markdown.

    It takes minutes, and shows how far it is.
    """
    import json

    from undertow.study.live import gap_table, reward_table

    for number in numbers("psi", psi):
        for make in (gap_table, reward_table):
            with watching(as_json, "runs") as (progress, _):
                table = make(number, runs=runs, rounds=rounds, threads=threads, progress=progress)
            if as_json:
                rows = {label: values.tolist() for label, values in table.rows.items()}
                print(json.dumps({"event": "done", "title": table.title, "columns": table.columns, "rows": rows}))
            else:
                print(f"\n{table.markdown()}")
