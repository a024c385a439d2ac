"""The command line: `undertow study`, `compare`, `trials`, `learners`, `policies`, `bounds`, `theory`."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from undertow.errors import UndertowError

if TYPE_CHECKING:
    from undertow.study.conduct import Outcome
    from undertow.study.plan import Plan

try:
    import typer
    from rich.console import Console
    from rich.table import Table
except ModuleNotFoundError as error:  # the core installs without them
    raise SystemExit(f"undertow: the command line needs {error.name}; pip install 'undertow[study]'") from error

__all__ = ["app", "main"]

app = typer.Typer(
    help="Choosing well while the rewards drift: studies of bandits on hidden linear Gaussian systems.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Out = Annotated[Path, typer.Option(help="Folder for results; each plan gets a folder of its own below it.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads, or workers of a local cluster.", show_default="all cores")]
Cluster = Annotated[
    str | None, typer.Option(help="Run on dask.distributed: 'local', or the address of a scheduler (tcp://…).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON lines for machines instead of text.")]
_CORES = os.cpu_count() or 1


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
    threads: Threads = _CORES,
    out: Out = Path("out"),
    cluster: Cluster = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few and short runs: ends in seconds.")] = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce the paper's evaluation, with the rows that the paper lacks, and report it.

    Interrupted at any moment, the same command continues where it stopped and ends with the same numbers.
    """
    from undertow.study.plan import paper_plan

    plan = paper_plan(psi=_numbers("psi", psi))
    if quick:
        plan = plan.select(runs=8, rounds=2000, burn_in=1000)
    plan = plan.select(_words(policies), runs=runs, rounds=rounds, seed=seed)
    _conduct(plan, out, threads, cluster, as_json)


@app.command()
def compare(
    file: Annotated[Path, typer.Argument(help="A plan in TOML; docs/study.md describes it.")],
    threads: Threads = _CORES,
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
    rounds: Annotated[int, typer.Option(help="Rounds of each path.")] = 10_000,
    policies: Annotated[
        str, typer.Option(help="Some of the policies, by label, separated by commas.", show_default="all")
    ] = "",
    threads: Threads = _CORES,
    out: Annotated[Path, typer.Option(help="Folder for results; they go to trials/ below it.")] = Path("out"),
    as_json: AsJson = False,
) -> None:
    """Measure what policies that know nothing lose: the paper's systems, random ones, wrong models, recorded data."""
    from undertow.study.trials import run_trials, show, summarise, write

    chosen = _words(policies)
    try:
        with _watching(as_json, "problems") as (progress, _):
            table = run_trials(
                family or (), runs=runs, rounds=rounds, policies=chosen, threads=threads, progress=progress
            )
    except KeyboardInterrupt:
        print("\nundertow: interrupted; nothing was written", file=sys.stderr)
        raise SystemExit(130) from None
    summary = summarise(table)
    folder = write(out / "trials", table, summary)
    if as_json:
        print(json.dumps({"event": "done", "folder": str(folder), "summary": summary.to_dicts()}))
    else:
        _console().print(show(summary))
        print(f"tables: {folder}")


@app.command()
def learners(
    rounds: Annotated[int, typer.Option(help="Rounds of each path.")] = 10_000,
    threads: Annotated[
        int, typer.Option(min=1, help="Threads that share the runs.", show_default="all cores")
    ] = _CORES,
    out: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("out"),
    as_json: AsJson = False,
) -> None:
    """Draw what the learners learn of the paper's system, and which model Autopilot follows on which problem."""
    from undertow.study.learner_figures import draw_learners

    try:
        with _watching(as_json, "runs") as (progress, _):
            drawings = draw_learners(out, rounds=rounds, threads=threads, progress=progress)
    except KeyboardInterrupt:
        print("\nundertow: interrupted; nothing was written", file=sys.stderr)
        raise SystemExit(130) from None
    for drawing in drawings:
        if as_json:
            print(json.dumps({"event": "done", "png": str(drawing.png), "caption": drawing.caption}))
        else:
            print(f"{drawing.png}: {drawing.caption}")


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
    console = _console()
    for name, entry in entries.items():
        summary = (entry.policy.__doc__ or "").strip().splitlines()[0]
        claims = [key.replace("_", " ") for key, value in entry.claims._asdict().items() if value]
        shown = [
            key if default is ... else f"{key}={_plain(default)!r}"
            for key, default in entry.parameters.items()
            if key not in ("arms", "max_pending", "rng", "context_dim", "context_first")
        ]
        console.print(f"[bold]{name}[/]  {summary}", highlight=False)
        console.print(f"    parameters: {', '.join(shown) or 'none of its own'}", highlight=False, markup=False)
        console.print(f"    claims: {', '.join(claims) or 'nothing'}", highlight=False)
        console.print(f"    {entry.citation}\n", highlight=False, style="dim")


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
    rows = bound_table(chosen, rounds, [int(w) for w in _numbers("windows", windows)], confidence, out)
    if as_json:
        print(json.dumps([row._asdict() for row in rows]))
        return
    table = Table(title=f"Regret after {rounds} rounds: {chosen!r}")
    for name, justify in (("", "left"), ("regret", "right"), ("kind", "left"), ("remark", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(row.name, f"{row.value:,.0f}", row.kind, row.remark)
    _console().print(table)


@app.command()
def theory(
    experiment: Annotated[
        str, typer.Argument(help="coverage, noise-sum, lower-bounds, lag-correlation, or all.")
    ] = "all",
) -> None:
    """Try by experiment what holds of the paper's theory; docs/theory.md shows and explains what is printed."""
    from undertow.errors import InvalidInputError
    from undertow.study.experiments import EXPERIMENTS

    if experiment != "all" and experiment not in EXPERIMENTS:
        raise InvalidInputError(f"experiment: expected all or {', '.join(EXPERIMENTS)}, got {experiment!r}")
    for name, run in EXPERIMENTS.items():
        if experiment in ("all", name):
            print("\n".join(run()), flush=True)


def main() -> None:
    """Run the command line; a mistake of the user's ends with status 2 and one line of advice."""
    try:
        app()
    except UndertowError as error:
        print(f"undertow: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        print(f"undertow: {error}; mend this, and the same command continues where it stopped", file=sys.stderr)
        raise SystemExit(1) from None


def _conduct(plan: "Plan", out: Path, threads: int, cluster: str | None, as_json: bool) -> None:
    from undertow.study.conduct import conduct

    start = time.monotonic()
    try:
        with _watching(as_json) as (progress, say):
            outcome = conduct(plan, out, threads=threads, cluster=cluster, progress=progress, say=say)
    except KeyboardInterrupt:
        print("\nundertow: interrupted; what is complete is kept, and the same command continues", file=sys.stderr)
        raise SystemExit(130) from None
    seconds = time.monotonic() - start
    if as_json:
        rows = {"headline": outcome.headline.to_dicts(), "comparisons": outcome.comparisons.to_dicts()}
        claims = [claim._asdict() for claim in outcome.claims]
        done = {"event": "done", "folder": str(outcome.folder), "report": str(outcome.report), "seconds": seconds}
        print(json.dumps(done | rows | {"claims": claims}))
    else:
        _show(plan, outcome, seconds)


@contextmanager
def _watching(
    as_json: bool, what: str = "chunks"
) -> Iterator[tuple[Callable[[int, int], None], Callable[[str], None]]]:
    """Yield how to tell of progress: a live bar on a terminal, plain lines elsewhere, JSON lines for machines."""
    if as_json:
        yield (
            lambda done, total: print(json.dumps({"event": "progress", "done": done, "total": total}), flush=True),
            lambda message: print(json.dumps({"event": "note", "message": message}), flush=True),
        )
    elif sys.stderr.isatty():
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
        )
        with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None, rate="")
            clock = _Clock()

            def progress(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total, rate=clock.rate(done))

            yield progress, lambda message: bar.console.print(message, highlight=False)
    else:
        clock = _Clock()

        def line(done: int, total: int) -> None:
            if done in (0, total) or done * 10 // total > (done - 1) * 10 // total:
                print(f"{done} of {total} {what} {clock.rate(done)}", file=sys.stderr, flush=True)

        yield line, lambda message: print(message, file=sys.stderr, flush=True)


class _Clock:
    """The rate at which chunks or problems are finished, not counting those that were there before."""

    def __init__(self) -> None:
        self.start, self.before = time.monotonic(), None

    before: int | None

    def rate(self, done: int) -> str:
        if self.before is None:
            self.before = done
        fresh = done - self.before
        return f"({fresh / (time.monotonic() - self.start):.1f} a second)" if fresh else ""


def _show(plan: "Plan", outcome: "Outcome", seconds: float) -> None:
    console = _console()
    table = Table(
        title=f"Regret after {plan.rounds} rounds relative to {plan.baseline}: median of {plan.runs} runs (95 %)"
    )
    table.add_column("policy")
    for system in plan.systems:
        table.add_column(system.label, justify="right")
    by_policy = outcome.headline.partition_by("policy", maintain_order=True)
    for rows in by_policy:
        cells = [f"{r['relative']:.3f} ({r['low']:.3f}–{r['high']:.3f})" for r in rows.iter_rows(named=True)]
        table.add_row(rows["policy"][0], *cells)
    console.print(table)
    for claim in outcome.claims:
        verdict = {True: "holds", False: "does not hold", None: "not tested"}[claim.holds]
        console.print(f"claim {claim.number}: {claim.statement}", highlight=False)
        console.print(f"    {verdict}: {claim.measured}", highlight=False, style="bold" if claim.holds is False else "")
    print(f"tables, figures and plan: {outcome.folder}")
    print(f"report: {outcome.report}  ({seconds:.0f} s)")


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 160)


def _numbers(name: str, text: str) -> list[float]:
    from undertow.errors import InvalidInputError

    try:
        values = [float(word) for word in _words(text)]
    except ValueError as error:
        raise InvalidInputError(f"{name}: expected numbers separated by commas, got {text!r}") from error
    if not values:
        raise InvalidInputError(f"{name}: expected at least one number, got {text!r}")
    return [int(value) if value.is_integer() else value for value in values]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set | frozenset) else value


if __name__ == "__main__":
    main()
