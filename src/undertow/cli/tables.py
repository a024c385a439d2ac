"""`undertow replay` and `undertow diagnose`: policies on a user's own table."""

import json
import shlex
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table as Grid

from undertow.cli.common import CORES, AsJson, Threads, app, console, watching, words
from undertow.errors import InvalidInputError

if TYPE_CHECKING:
    import polars as pl

    from undertow.replay.full import Replay
    from undertow.replay.logged import LogReplay
    from undertow.replay.table import Table

_COLUMNS, _LOG, _PLAY = "Which column is what", "Columns of a log", "How it is played"


def _columns(help_text: str, default: str) -> Any:
    return typer.Option(
        help=f"{help_text}, separated by commas; * matches.", show_default=default, rich_help_panel=_COLUMNS
    )


def _column(help_text: str, default: str, panel: str = _COLUMNS) -> Any:
    return typer.Option(help=help_text, show_default=default, rich_help_panel=panel)


def _out(place: str) -> Any:
    return typer.Option(help=f"Folder for results; they go to {place}/<the file's name>/ below it.")


File = Annotated[
    Path, typer.Argument(help="A table, CSV with a line of names or Parquet: one row a round, in time's order.")
]
Rewards = Annotated[str, _columns("Reward columns, one per arm", "reward_*")]
Contexts = Annotated[str, _columns("Measurements; empty cells are missing", "context_*")]
Features = Annotated[str, _columns("What is known before the decision", "feature_*")]
Time = Annotated[str | None, _column("Timestamps, which have to increase.", "time, timestamp, datetime or date")]
Phases = Annotated[
    str,
    typer.Option(
        help="Phases of the time as features: hour, weekday, month, separated by commas.",
        show_default="none",
        rich_help_panel=_COLUMNS,
    ),
]
Arm = Annotated[str | None, _column("The arm that was played.", "arm", _LOG)]
Reward = Annotated[str | None, _column("What it paid.", "reward", _LOG)]
Propensity = Annotated[
    str | None, _column("The probability it was chosen with, or the word uniform.", "propensity", _LOG)
]
Separator = Annotated[str, typer.Option(help="What stands between the cells of a CSV file.", rich_help_panel=_COLUMNS)]
Minimise = Annotated[
    bool, typer.Option("--minimise", help="Rewards are costs: less is better.", rich_help_panel=_COLUMNS)
]
ContextFirst = Annotated[
    bool,
    typer.Option(
        "--context-first", help="A row's contexts are known before its decision, not after.", rich_help_panel=_PLAY
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything that is random.", rich_help_panel=_PLAY)]
Block = Annotated[
    int | None,
    typer.Option(
        min=1, help="Rounds that the bootstrap draws together.", show_default="by the data", rich_help_panel=_PLAY
    ),
]


@app.command()
def replay(
    file: File,
    rewards: Rewards = "",
    contexts: Contexts = "",
    features: Features = "",
    time: Time = None,
    phases: Phases = "",
    minimise: Minimise = False,
    separator: Separator = ",",
    arm: Arm = None,
    reward: Reward = None,
    propensity: Propensity = None,
    policies: Annotated[
        str,
        typer.Option(
            help="Policies, separated by commas, as in 'autopilot, linucb(window=5)'; undertow policies lists them.",
            show_default="nine of them",
            rich_help_panel=_PLAY,
        ),
    ] = "",
    plan: Annotated[
        Path | None, typer.Option(help="A TOML file whose \\[\\[policies]] play.", rich_help_panel=_PLAY)
    ] = None,
    runs: Annotated[
        int, typer.Option(min=1, help="Runs of every policy that draws random numbers.", rich_help_panel=_PLAY)
    ] = 3,
    context_first: ContextFirst = False,
    learn_from: Annotated[
        str | None,
        typer.Option(
            help="Of a log: policies learn from accepted rounds (unconfounded) or from all matched ones (more).",
            show_default="accepted",
            rich_help_panel=_PLAY,
        ),
    ] = None,
    block: Block = None,
    seed: Seed = 0,
    threads: Threads = CORES,
    out: Annotated[Path, _out("replay")] = Path("out"),
    as_json: AsJson = False,
) -> None:
    """Let policies play your own table, and report what each would have earned.

    The table knows the reward of every arm (columns reward_*), or is a log with arm, reward and propensity.
    """
    from undertow.replay.conduct import plain, write_replay
    from undertow.replay.entrants import parse_policies
    from undertow.replay.full import replay_table
    from undertow.replay.logged import replay_log
    from undertow.study.folders import require_writable
    from undertow.study.plan import policy_specs, read_toml

    if policies and plan:
        raise InvalidInputError("plan: give policies or a plan, not both")
    chosen = policy_specs(read_toml(plan)) if plan else parse_policies(policies)
    table = _read(file, rewards, contexts, features, time, phases, minimise, separator, arm, reward, propensity)
    if table.log is None and learn_from is not None:
        raise InvalidInputError(
            "learn_from: this is for logs only, and the table knows every arm's reward; leave out --learn-from"
        )
    require_writable(out)
    settings: dict[str, Any] = {"runs": runs, "seed": seed, "context_first": context_first}
    result: Replay | LogReplay
    try:
        with watching(as_json, "runs") as (progress, say):
            for line in [f"{table.rounds} rounds", *table.columns.describe()]:
                say(f"{file}: {line}")
            more = settings | {"block": block, "threads": threads, "progress": progress}
            if table.log is None:
                result = replay_table(table, chosen, **more)
            else:
                settings["learn_from"] = learn_from or "accepted"
                result = replay_log(table, chosen, **more, learn_from=settings["learn_from"])
            say("drawing figures")
            written = write_replay(result, out, command=_command(), settings=settings)
    except KeyboardInterrupt:
        print("\nundertow: interrupted; nothing was written", file=sys.stderr)
        raise SystemExit(130) from None
    warnings = list(getattr(result, "warnings", ()))
    if as_json:
        done = {"event": "done", "folder": str(written.folder), "report": str(written.report), "block": result.block}
        print(
            json.dumps(
                plain(done | {"summary": result.summary.to_dicts(), "notes": result.notes, "warnings": warnings})
            )
        )
        return
    if table.log is None:
        console().print(_grid("What each policy won", result.summary, _WON))
    else:
        console().print(_grid("Estimated mean reward a round", result.summary, _ESTIMATED))
    for note in result.notes:
        print(f"note: {note}")
    for warning in warnings:
        print(f"warning: {warning}")
    print(f"intervals: 95 %, bootstrap of blocks of {result.block} rounds")
    print(f"tables and figures: {written.folder}")
    print(f"report: {written.report}")


@app.command()
def diagnose(
    file: File,
    rewards: Rewards = "",
    contexts: Contexts = "",
    features: Features = "",
    time: Time = None,
    phases: Phases = "",
    minimise: Minimise = False,
    separator: Separator = ",",
    context_first: ContextFirst = False,
    block: Block = None,
    seed: Seed = 0,
    out: Annotated[Path, _out("diagnose")] = Path("out"),
    as_json: AsJson = False,
) -> None:
    """Say in plain words whether there is anything to win on your own table, before you trust any policy on it."""
    from undertow.replay.conduct import plain, write_diagnosis
    from undertow.replay.diagnosis import diagnose as measure
    from undertow.replay.words import answer, arm_lines, closing, describe
    from undertow.study.folders import require_writable

    table = _read(file, rewards, contexts, features, time, phases, minimise, separator, None, None, None)
    if not as_json:
        for line in [f"{table.rounds} rounds", *table.columns.describe()]:
            print(f"{file}: {line}", file=sys.stderr)
    require_writable(out)
    found = measure(table, seed=seed, block=block, context_first=context_first)
    written = write_diagnosis(found, table, out, command=_command())
    if as_json:
        done = {"event": "done", "folder": str(written.folder), "report": str(written.report), "answer": answer(found)}
        print(json.dumps(plain(done | {"notes": table.notes} | found.to_dict())))
        return
    print(_paragraph(answer(found)))
    for title, words_ in describe(found):
        print(f"\n{title}\n{_paragraph(words_)}")
    head, *lines = arm_lines(found)
    grid = Grid(title="Autocorrelation of each arm's relative reward", title_justify="left")
    for name in head:
        grid.add_column(name, justify="left" if name == "arm" else "right")
    for cells in lines:
        grid.add_row(*map(escape, cells))
    print()
    console().print(grid)
    if closing(found):
        print(closing(found))
    for note in table.notes:
        print(f"note: {note}")
    print(f"report: {written.report}")


def _read(
    file: Path,
    rewards: str,
    contexts: str,
    features: str,
    time: str | None,
    phases: str,
    minimise: bool,
    separator: str,
    arm: str | None,
    reward: str | None,
    propensity: str | None,
) -> "Table":
    from undertow.replay.table import read_table

    return read_table(
        file,
        rewards=words(rewards),
        contexts=words(contexts),
        features=words(features),
        time=time,
        phases=words(phases),
        minimise=minimise,
        separator={"tab": "\t", "\\t": "\t"}.get(separator, separator),
        arm=arm,
        reward=reward,
        propensity=propensity,
    )


def _command() -> str:
    return shlex.join(["undertow", *sys.argv[1:]])


def _paragraph(text: str) -> str:
    return textwrap.fill(text, width=100, initial_indent="  ", subsequent_indent="  ")


_WON = {
    "reward": "mean reward",
    "regret_fixed": "regret: fixed arm",
    "regret_clairvoyant": "regret: clairvoyant",
    "share": "share won, %",
    "beyond_fixed": "beyond fixed, %",
}
_ESTIMATED = {
    "rejection": "rejection",
    "ips": "IPS",
    "snips": "SNIPS",
    "dr": "doubly robust",
    "gain": "gain over the log",
}


def _grid(title: str, summary: "pl.DataFrame", measures: dict[str, str]) -> Grid:
    """Return a summary as a table to print, policies first, with as many digits as the intervals leave."""
    from undertow.replay.digits import decimals, spelled

    rows = summary.to_dicts()
    factors = {measure: 100 if name.endswith("%") else 1 for measure, name in measures.items()}
    digits = {measure: decimals(rows, measure, factor) for measure, factor in factors.items()}
    grid = Grid(title=escape(title))
    grid.add_column("policy")
    for name in [*measures.values(), *(["effective rounds"] if "effective" in summary.columns else [])]:
        grid.add_column(name, justify="right")
    kind = "policy"
    for row in rows:
        if row["kind"] != kind:
            grid.add_section()
            kind = row["kind"]
        spells = [spelled(row, measure, digits[measure], factor) for measure, factor in factors.items()]
        cells = [f"{value} ({spread})" if spread else value for value, spread in spells]
        if "effective" in row:
            cells.append(f"{row['effective']:,.0f}{' !' if row['warning'] else ''}")
        grid.add_row(escape(row["policy"]), *cells)
    return grid
