"""Shared by all commands: the application, options, progress, and error messages."""

import csv
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import undertow
from undertow.cli.streams import dependable_streams
from undertow.errors import InvalidInputError, UndertowError
from undertow.support.numbers import duration, number
from undertow.support.pool import Clock

try:
    import typer
    from rich.console import Console
except ModuleNotFoundError as error:  # the core installs without them
    raise SystemExit(f"undertow: the command line needs {error.name}; pip install 'undertow[study]'") from error

__all__ = [
    "CORES",
    "AsJson",
    "Cluster",
    "Module",
    "Out",
    "Threads",
    "Workers",
    "app",
    "console",
    "load_module",
    "main",
    "numbers",
    "watching",
    "words",
]

app = typer.Typer(
    help="Bandits for rewards that drift: check your data, compare policies, reproduce the ARES paper.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Out = Annotated[Path, typer.Option(help="Folder for results; each plan gets its own subfolder.")]
Threads = Annotated[int, typer.Option(min=1, help="Number of threads.", show_default="all cores")]
Workers = Annotated[
    int, typer.Option(min=1, help="Number of threads, or of workers of a local cluster.", show_default="all cores")
]
Cluster = Annotated[
    str | None,
    typer.Option(help="'local' for processes of this machine, or the address of a dask scheduler (tls://…, tcp://…)."),
]
Module = Annotated[Path | None, typer.Option(help="Python file that registers your policies (it is executed).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON lines instead of text.")]
CORES = os.cpu_count() or 1
_SILENT = 10.0  # longest time between two lines of progress, in seconds


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"undertow {undertow.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that come before any command."""


def main() -> None:
    """Run the command line; invalid input ends with status 2 and one line of advice."""
    with dependable_streams():
        _run()


def _run() -> None:
    try:
        app()
    except UndertowError as error:
        print(f"undertow: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        resumes = len(sys.argv) > 1 and sys.argv[1] in ("study", "compare")
        remedy = "fix this, then run the same command again" + (" to resume" if resumes else "")
        place = "" if error.filename is None else f"{error.filename}: "
        print(f"undertow: {place}{error.strerror or error}; {remedy}", file=sys.stderr)
        raise SystemExit(1) from None


Watch = tuple[Callable[[int, int], None], Callable[[str], None]]


@contextmanager
def watching(as_json: bool, what: str, interrupted: str = "nothing was written") -> Iterator[Watch]:
    """Yield functions that report progress and notes; Ctrl-C ends the command with status 130 and a note."""
    with _shown(as_json, what) as watch:
        try:
            yield watch
        except KeyboardInterrupt:
            print(f"\nundertow: interrupted; {interrupted}", file=sys.stderr)
            raise SystemExit(130) from None


@contextmanager
def _shown(as_json: bool, what: str) -> Iterator[Watch]:
    """Show progress as a live bar on a terminal, plain lines elsewhere, JSON lines for machines."""
    clock = Clock()
    if as_json:

        def event(done: int, total: int) -> None:
            left = clock.seconds_left(done, total)
            print(json.dumps({"event": "progress", "done": done, "total": total, "seconds_left": left}), flush=True)

        yield event, lambda message: print(json.dumps({"event": "note", "message": message}), flush=True)
    elif sys.stderr.isatty():
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        left = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        right = TextColumn("{task.fields[rate]}"), TimeRemainingColumn()
        with Progress(*left, *right, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None, rate="")
            yield (
                lambda done, total: bar.update(task, completed=done, total=total, rate=_rate(clock, done)),
                lambda message: bar.console.print(message, highlight=False),
            )
    else:
        last, shown = time.monotonic(), 0

        def line(done: int, total: int) -> None:
            nonlocal last, shown
            rate, left, now = _rate(clock, done), clock.seconds_left(done, total), time.monotonic()
            tenth = done in (0, total) or done * 10 // total > shown * 10 // total
            if tenth or now - last > _SILENT:
                last, shown = now, done
                more = f" ({rate}, about {duration(left)} left)" if left else ""
                print(f"{done} of {total} {what}{more}", file=sys.stderr, flush=True)

        yield line, lambda message: print(message, file=sys.stderr, flush=True)


def _rate(clock: Clock, done: int) -> str:
    rate = clock.rate(done)
    return f"{number(rate)} per second" if rate else ""


def load_module(module: Path | None) -> str:
    """Run a user's module, if there is one, and return a hash of it."""
    from undertow.contenders import load_policies

    return load_policies(module) if module else ""


def console() -> Console:
    """Return a console as wide as the terminal, or 160 columns without one."""
    return Console(width=None if sys.stdout.isatty() else 160)


def numbers(name: str, text: str) -> list[float]:
    """Return the comma-separated numbers of an option."""
    try:
        values = [float(word) for word in words(text)]
    except ValueError as error:
        raise InvalidInputError(f"{name}: expected numbers separated by commas, got {text!r}") from error
    if not values:
        raise InvalidInputError(f"{name}: expected at least one number, got {text!r}")
    if odd := next((value for value in values if not math.isfinite(value)), None):
        raise InvalidInputError(f"{name}: expected finite numbers, got {odd}")
    return [int(value) if value.is_integer() else value for value in values]


def words(text: str) -> list[str]:
    """Return the comma-separated words of an option; words in quotation marks may contain commas."""
    parted = next(csv.reader([text], skipinitialspace=True), [])
    return [word.strip() for word in parted if word.strip()]
