"""`undertow replay` and `diagnose`: policies on your own table."""

import atexit
import functools
import inspect
import json
import shlex
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertow.cli.common import CORES, AsJson, Module, Workers, app, load_module, watching, words
from undertow.errors import InvalidInputError

if TYPE_CHECKING:
    import polars as pl

    from undertow.replay import LogReplay, Replay, Table
    from undertow.replay.output import Written

_WIDTH = 100  # significant digits of the printed table
_QUICK = "linucb(window=5, reward_lags=5), discounted-ucb"  # policies that replay a log in seconds
_AS_COSTS = {"reward": "mean cost", "dr": "cost, doubly robust", "gain": "saved per round"}
_COLUMNS, _LOG, _CELLS, _PLAY = "Columns", "Columns of a log", "Cells", "Replay"


def _option(help_text: str, panel: str = _COLUMNS, default: str | bool = True, **more: Any) -> Any:
    return typer.Option(help=help_text, rich_help_panel=panel, show_default=default, **more)


def _columns(what: str, default: str) -> Any:
    separated = "Separated by commas (quote a name that contains one); * is a wildcard."
    return _option(f"{what}. {separated}", default=default)


def _out(place: str) -> Any:
    return typer.Option(help=f"Folder for results; they go to its subfolder {place}/<file name>/.")


_FIRST = "Contexts are known before the decision (default: after)."
_CLUSTER = "With --key: 'local' for processes of this machine, or the address of a dask scheduler (tcp://…)."
_BLOCK = "Block length of the bootstrap, in rounds."
ContextFirst = Annotated[bool, typer.Option("--context-first", help=_FIRST, rich_help_panel=_PLAY)]
Seed = Annotated[int, _option("Random seed.", _PLAY, min=0)]
Block = Annotated[int | None, _option(_BLOCK, _PLAY, "chosen from the data", min=1)]


def _read(
    file: Annotated[
        Path,
        typer.Argument(
            help="Table in time order, one row per round: CSV or TSV with a header (also .gz), Parquet, Excel, "
            "JSON lines."
        ),
    ],
    rewards: Annotated[str, _columns("Reward columns, one per arm", "reward_*")] = "",
    contexts: Annotated[str, _columns("Context columns, in which empty cells are missing values", "context_*")] = "",
    features: Annotated[str, _columns("Feature columns, known before the decision", "feature_*")] = "",
    time: Annotated[
        str | None,
        _option(
            "Column of increasing timestamps.", default="time, timestamp, datetime or date, or a first column of dates"
        ),
    ] = None,
    time_unit: Annotated[
        str | None,
        _option(
            "One step of the hidden state: second, minute, hour, day or week (or a number, if the time column has "
            "numbers). Rows within one step share the hidden state; steps without a row also count.",
            default="one step per row",
        ),
    ] = None,
    phases: Annotated[
        str, _option("Calendar features: hour, weekday, month, separated by commas.", default="none")
    ] = "",
    minimize: Annotated[
        bool, typer.Option("--minimize", help="Rewards are costs, to be minimized.", rich_help_panel=_COLUMNS)
    ] = False,
    encoding: Annotated[str | None, _option("Encoding of a text file, such as cp1252.", _CELLS, "recognised")] = None,
    separator: Annotated[str | None, _option("Column separator of a text file.", _CELLS, "recognised")] = None,
    decimal: Annotated[str | None, _option("Decimal mark: . or ,", _CELLS, "recognised")] = None,
    date_format: Annotated[
        str | None, _option("Format of times, such as dd.mm.yyyy hh:mm or %d.%m.%Y.", _CELLS, "recognised")
    ] = None,
    na: Annotated[
        str | None,
        _option("Words for a missing value, separated by commas.", _CELLS, "NA, NaN, -, ?, …"),
    ] = None,
    arm: Annotated[str | None, _option("Column of the played arm.", _LOG, "arm")] = None,
    reward: Annotated[str | None, _option("Column of its reward.", _LOG, "reward")] = None,
    propensity: Annotated[
        str | None,
        _option("Column of the probability of that choice; or uniform, or estimate.", _LOG, "propensity"),
    ] = None,
    key: Annotated[
        str | None,
        _option(
            "Column that names a shop, a user, a machine: compare a fleet with one policy per key and one for all.",
            default="none",
        ),
    ] = None,
    every_arm: bool = False,
    rows: int | None = None,
) -> "Table":
    """Read the table with these options."""
    from undertow.replay import read_table

    lists = {"rewards": rewards, "contexts": contexts, "features": features, "phases": phases}
    columns: dict[str, Any] = {name: words(text) for name, text in lists.items()}
    columns |= {
        "time": time,
        "time_unit": time_unit,
        "key": key,
        "arm": arm,
        "reward": reward,
        "propensity": propensity,
    }
    columns |= {"separator": {"tab": "\t", "\\t": "\t"}.get(separator or "", separator), "encoding": encoding}
    columns |= {"decimal": decimal, "date_format": date_format, "na": None if na is None else words(na)}
    return read_table(_spooled(file), **columns, minimize=minimize, every_arm=every_arm, rows=rows)


def _spooled(file: Path) -> Path:
    """Return a file that can be read more than once; of a pipe such as /dev/stdin, a copy."""
    if not file.exists() or file.is_file() or file.is_dir():
        return file
    folder = tempfile.TemporaryDirectory(prefix="undertow-")
    atexit.register(folder.cleanup)
    copy = Path(folder.name) / file.name
    with file.open("rb") as pipe, copy.open("wb") as target:
        shutil.copyfileobj(pipe, target)
    return copy


def _on_a_table(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `_read`, except some, and the file with a reader of its table as first arguments.

    The command calls the reader after it has checked its own options, so their mistakes come first.
    """
    options = {
        name: option
        for name, option in inspect.signature(_read).parameters.items()
        if name not in (*without, "every_arm", "rows")
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            columns = {name: given.pop(name) for name in options}
            command(columns["file"], functools.partial(_read, **columns), **given)

        own = list(inspect.signature(command).parameters.values())[2:]
        parameters = [*options.values(), *own]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


@app.command()
@_on_a_table()
def replay(
    file: Path,
    read: Callable[..., "Table"],
    policies: Annotated[
        str,
        _option(
            "Policies, separated by commas, such as 'autopilot, linucb(window=5)'; 'undertow policies' lists all.",
            _PLAY,
            "nine standard policies",
        ),
    ] = "",
    plan: Annotated[Path | None, _option("TOML file with the policies, as \\[\\[policies]].", _PLAY)] = None,
    runs: Annotated[
        int | None,
        _option(
            "Runs per randomised policy; passes of every policy through a log.",
            _PLAY,
            "3, fewer if there are many rows",
            min=1,
        ),
    ] = None,
    rows: Annotated[
        int | None, _option("Number of rows to play, from the end of the table.", _PLAY, "all, up to 250000", min=1)
    ] = None,
    context_first: ContextFirst = False,
    learn_from: Annotated[
        str | None,
        _option(
            "For logs: learn from accepted rounds (unconfounded) or from all matched ones (more data).",
            _PLAY,
            "accepted",
        ),
    ] = None,
    block: Block = None,
    seed: Seed = 0,
    module: Module = None,
    threads: Workers = CORES,
    cluster: Annotated[str | None, _option(_CLUSTER, _PLAY, "none")] = None,
    out: Annotated[Path, _out("replay")] = Path("out"),
    as_json: AsJson = False,
) -> None:
    """Replay policies on your own table, and report what each would have earned.

    The table has the reward of every arm (columns reward_*), or is a log with arm, reward and propensity.

    With --key, a fleet plays it, and the answer is whether that pays.
    """
    from undertow.replay import parse_policies, replay_log, replay_table
    from undertow.replay.contenders import MOST_ROUNDS, usual_runs
    from undertow.replay.output import write_replay
    from undertow.study.plan import contenders_of, read_toml
    from undertow.support.folders import require_writable

    if policies and plan:
        raise InvalidInputError("plan: give policies or a plan, not both")
    load_module(module)
    chosen = contenders_of(read_toml(plan)) if plan else parse_policies(policies)
    table = read(rows=rows or MOST_ROUNDS)
    if table.log is None and learn_from is not None:
        raise InvalidInputError("learn_from: for logs only, and this table has every arm's reward; omit --learn-from")
    require_writable(out)
    settings: dict[str, Any] = {"runs": runs or usual_runs(table.rounds), "seed": seed, "context_first": context_first}
    result: Replay | LogReplay
    with watching(as_json, "rounds") as (progress, say):
        for line in [table.extent, *table.columns.describe()]:
            say(f"{file}: {line}")
        more = settings | {"runs": runs, "block": block, "threads": threads, "progress": progress}
        more |= {"cluster": cluster, "module": module}
        if table.log is None:
            result = replay_table(table, chosen, **more)
        else:
            settings["learn_from"] = learn_from or "accepted"
            result = replay_log(table, chosen, **more, learn_from=settings["learn_from"])
        say("drawing figures")
        written = write_replay(result, out, command=_command(), settings=settings)
    _show(result, written, as_json)


@app.command()
@_on_a_table("time_unit", "key")
def diagnose(
    file: Path,
    read: Callable[..., "Table"],
    context_first: ContextFirst = False,
    block: Block = None,
    seed: Seed = 0,
    out: Annotated[Path, _out("diagnose")] = Path("out"),
    as_json: AsJson = False,
) -> None:
    """Find out whether a policy can beat the best fixed arm on your own table.

    On a log, it estimates the rewards of the fixed arms and of two quick policies.
    """
    from undertow.replay.diagnosis import diagnose as measure
    from undertow.replay.diagnosis_text import answer, arm_lines, closing, describe
    from undertow.replay.output import write_diagnosis
    from undertow.support.folders import plain, require_writable
    from undertow.support.tables import aligned

    table = read(every_arm=True)
    require_writable(out)
    if table.log is not None:
        _diagnose_log(file, table, out, as_json, {"seed": seed, "block": block, "context_first": context_first})
        return
    with watching(False, "rules") as (progress, say):
        for line in [] if as_json else [table.extent, *table.columns.describe()]:
            say(f"{file}: {line}")
        shown = None if as_json else progress  # the answer is a single JSON object
        found = measure(table, seed=seed, block=block, context_first=context_first, progress=shown)
        written = write_diagnosis(found, table, out, command=_command())
    if as_json:
        done = {"event": "done", "folder": str(written.folder), "report": str(written.report), "answer": answer(found)}
        print(json.dumps(plain(done | {"notes": table.notes} | found.to_dict())))
        return
    print(_paragraph(answer(found)))
    for title, words_ in describe(found):
        print(f"\n{title}\n{_paragraph(words_)}")
    head, *lines = arm_lines(found)
    print("\nAutocorrelation of each arm's relative reward")
    print(aligned(head, lines, _WIDTH))
    if closing(found):
        print(closing(found))
    for note in table.notes:
        print(textwrap.fill(f"note: {note}", _WIDTH))
    print(f"report: {written.report}")


def _diagnose_log(file: Path, table: "Table", out: Path, as_json: bool, settings: dict[str, Any]) -> None:
    """Replay a log with its fixed arms and quick policies."""
    from undertow.replay import parse_policies, replay_log
    from undertow.replay.output import write_replay

    with watching(as_json, "rounds") as (progress, say):
        for line in [table.extent, *table.columns.describe()]:
            say(f"{file}: {line}")
        result = replay_log(table, parse_policies(_QUICK), runs=1, progress=progress, **settings)
        written = write_replay(result, out, command=_command(), settings=settings, kind="diagnose")
    _show(result, written, as_json)


def _show(result: "Replay | LogReplay", written: "Written", as_json: bool) -> None:
    """Print the answer, the table, one warning, and the report's path."""
    from undertow.replay.full import Replay
    from undertow.replay.verdict import answer_on_log, answer_on_table
    from undertow.support.folders import plain

    warnings = list(getattr(result, "warnings", ()))
    _, answer = answer_on_table(result) if isinstance(result, Replay) else answer_on_log(result)
    if as_json:
        done = {"event": "done", "folder": str(written.folder), "report": str(written.report), "block": result.block}
        done |= {"answer": answer, "summary": result.summary.to_dicts(), "notes": result.notes, "warnings": warnings}
        print(json.dumps(plain(done)))
        return
    print(f"{_paragraph(answer)}\n\n{_grid(result.summary, minimize=result.table.minimize)}\n")
    for warning in warnings:
        print(textwrap.fill(f"warning: {warning}", _WIDTH))
    for note in result.notes:
        print(textwrap.fill(f"note: {note}", _WIDTH))
    print(f"intervals: 95 %, bootstrap of blocks of {result.block} rounds")
    print(f"tables and figures: {written.folder}")
    print(f"report: {written.report}")


def _command() -> str:
    return shlex.join(["undertow", *sys.argv[1:]])


def _paragraph(text: str) -> str:
    kept = text.replace(" %", "\u00a0%")  # never at the start of a line
    return textwrap.fill(kept, width=_WIDTH, initial_indent="  ", subsequent_indent="  ").replace("\u00a0", " ")


_MEASURES = {
    "reward": "mean reward",
    "share": "share won, %",
    "regret_fixed": "regret: fixed arm",
    "dr": "doubly robust",
    "gain": "gain over the log",
}


def _grid(summary: "pl.DataFrame", *, minimize: bool) -> str:
    """Return a summary as text, with as many digits as the intervals support; the report has more columns."""
    from undertow.support.numbers import cells, with_values
    from undertow.support.tables import aligned

    rows = summary.to_dicts()
    measures = with_values(rows, _MEASURES)
    if minimize:
        measures |= {name: title for name, title in _AS_COSTS.items() if name in measures}
    lines = []
    for row, spells in zip(rows, cells(rows, measures), strict=True):
        shown = [f"{value} ({spread})" if spread else value for value, spread in spells]
        if "effective" in row:
            shown.append(f"{row['effective']:,.0f}{' !' if row['warning'] else ''}")
        lines.append([row["policy"], *shown])
    more = ["effective rounds"] if "effective" in summary.columns else []
    return aligned(["policy", *measures.values(), *more], lines, _WIDTH)
