"""`undertow policies`, `bounds` and `theory`: what there is, and what theory says of it."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from undertow import _checks
from undertow.cli.common import AsJson, app, console, numbers
from undertow.errors import InvalidInputError


@app.command()
def policies(as_json: AsJson = False) -> None:
    """List every policy that can be named, with its parameters, claims and citation."""
    from undertow.policies import registry

    entries = registry()
    if as_json:
        for name, entry in entries.items():
            parameters = {key: None if value is ... else _plain(value) for key, value in entry.parameters.items()}
            row = {"name": name, "parameters": parameters, "claims": entry.claims._asdict(), "citation": entry.citation}
            print(json.dumps(row))
        return
    screen = console()
    for name, entry in entries.items():
        summary = (entry.policy.__doc__ or "").strip().splitlines()[0]
        claims = [key.replace("_", " ") for key, value in entry.claims._asdict().items() if value]
        shown = [
            key if default is ... else f"{key}={_plain(default)!r}"
            for key, default in entry.parameters.items()
            if key not in ("arms", "max_pending", "rng", "context_dim", "context_first")
        ]
        screen.print(f"[bold]{name}[/]  {summary}", highlight=False)
        screen.print(f"    parameters: {', '.join(shown) or 'none of its own'}", highlight=False, markup=False)
        screen.print(f"    claims: {', '.join(claims) or 'nothing'}", highlight=False)
        screen.print(f"    {entry.citation}\n", highlight=False, style="dim")


@app.command()
def bounds(
    psi: Annotated[float, typer.Option(help="One of the paper's systems.")] = 1,
    system: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A system of your own, as JSON, in place of psi.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Number of rounds.")] = 10_000,
    windows: Annotated[str, typer.Option(help="Windows of the upper bounds, separated by commas.")] = "1,3,10",
    confidence: Annotated[float, typer.Option(help="δ of the upper bounds.")] = 0.1,
    out: Annotated[Path, typer.Option(help="Where to look for a study with measured regret.")] = Path("out"),
    as_json: AsJson = False,
) -> None:
    """Print lower and upper bounds, the oracles' regret in closed form, and measured regret if a study is at hand."""
    from undertow.study.bound_table import bound_table
    from undertow.system import LinearGaussianSystem, paper_system

    chosen = paper_system(psi) if system is None else LinearGaussianSystem.load(system)
    sizes = [_checks.integer("windows", window, least=0) for window in numbers("windows", windows)]
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
        str, typer.Argument(help="coverage, noise-sum, lower-bounds, lag-correlation, or all.")
    ] = "all",
) -> None:
    """Try by experiment what holds of the paper's theory; docs/theory.md shows and explains what is printed."""
    from undertow.study.experiments import EXPERIMENTS

    if experiment != "all" and experiment not in EXPERIMENTS:
        raise InvalidInputError(f"experiment: expected all or {', '.join(EXPERIMENTS)}, got {experiment!r}")
    for name, run in EXPERIMENTS.items():
        if experiment in ("all", name):
            print("\n".join(run()), flush=True)


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set | frozenset) else value
