"""What the commands share: the application, options, progress, and how a mistake ends."""

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
from undertow.errors import InvalidInputError, UndertowError

try:
    import typer
    from rich.console import Console
except ModuleNotFoundError as error:  # the core installs without them
    raise SystemExit(f"undertow: the command line needs {error.name}; pip install 'undertow[study]'") from error

__all__ = [
    "CORES",
    "AsJson",
    "Cluster",
    "Out",
    "Threads",
    "Workers",
    "app",
    "console",
    "main",
    "numbers",
    "watching",
    "words",
]

app = typer.Typer(
    help="Choosing well while the rewards drift: studies of bandits on hidden linear Gaussian systems.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Out = Annotated[Path, typer.Option(help="Folder for results; each plan gets a folder of its own below it.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads that share the work.", show_default="all cores")]
Workers = Annotated[int, typer.Option(min=1, help="Threads, or workers of a local cluster.", show_default="all cores")]
Cluster = Annotated[
    str | None, typer.Option(help="Run on dask.distributed: 'local', or the address of a scheduler (tcp://…).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON lines for machines instead of text.")]
CORES = os.cpu_count() or 1


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"undertow {undertow.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Hold what is said before any command."""


def main() -> None:
    """Run the command line; a mistake of the user's ends with status 2 and one line of advice."""
    try:
        app()
    except UndertowError as error:
        print(f"undertow: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        resumes = len(sys.argv) > 1 and sys.argv[1] in ("study", "compare")
        remedy = "mend this, and the same command continues where it stopped" if resumes else "mend this, and try again"
        place = "" if error.filename is None else f"{error.filename}: "
        print(f"undertow: {place}{error.strerror or error}; {remedy}", file=sys.stderr)
        raise SystemExit(1) from None


@contextmanager
def watching(as_json: bool, what: str = "chunks") -> Iterator[tuple[Callable[[int, int], None], Callable[[str], None]]]:
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


def console() -> Console:
    """Return where tables are printed: as wide as the terminal, and wide enough where there is none."""
    return Console(width=None if sys.stdout.isatty() else 160)


def numbers(name: str, text: str) -> list[float]:
    """Return the numbers of an option, which are separated by commas."""
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
    """Return the words of an option, which are separated by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]
