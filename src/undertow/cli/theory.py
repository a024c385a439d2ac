"""`undertow bounds` and `theory`: bounds on regret, and tests of the paper's theory."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from undertow.cli.common import AsJson, app, console, numbers, words
from undertow.support import checks


@app.command()
def bounds(
    psi: Annotated[float, typer.Option(help="One of the paper's systems.")] = 1,
    system: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Your own system as JSON, instead of psi.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Number of rounds.")] = 10_000,
    windows: Annotated[str, typer.Option(help="Windows of the upper bounds, separated by commas.")] = "1,3,10",
    confidence: Annotated[float, typer.Option(help="δ of the upper bounds.")] = 0.1,
    out: Annotated[Path, typer.Option(help="Folder of studies to search for measured regret.")] = Path("out"),
    as_json: AsJson = False,
) -> None:
    """Print lower and upper bounds, the oracles' regret in closed form, and a study's measured regret."""
    from undertow.example_systems import paper_system
    from undertow.study.bounds import bound_table
    from undertow.system import LinearGaussianSystem

    chosen = paper_system(psi) if system is None else LinearGaussianSystem.load(system)
    sizes = [checks.integer("windows", window, least=0) for window in numbers("windows", windows)]
    rows = bound_table(chosen, rounds, sizes, confidence, out)
    if as_json:
        print(json.dumps([row._asdict() for row in rows]))
        return
    table = Table(title=f"Regret after {rounds} rounds: {chosen!r}")
    for name, justify in (("", "left"), ("regret", "right"), ("kind", "left"), ("remark", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(row.name, f"{row.value:,.0f}", row.kind, row.remark)
    console().print(table)


@app.command()
def theory(
    experiment: Annotated[
        str,
        typer.Argument(
            help="coverage, noise-sum, lower-bounds, lag-correlation, played-noise, informative, exploration, several "
            "of them separated by commas, or all."
        ),
    ] = "all",
) -> None:
    """Test the paper's theory by experiment; docs/theory.md explains the output."""
    from undertow.study.theory import EXPERIMENTS

    chosen = list(EXPERIMENTS) if experiment == "all" else words(experiment)
    for name in chosen:
        checks.choice("experiment", name, ("all", *EXPERIMENTS))
    for name in chosen:
        print("\n".join(EXPERIMENTS[name]()), flush=True)
