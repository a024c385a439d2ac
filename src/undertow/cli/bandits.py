"""`undertow bandits`: list, verify, export, copy and trim the bandits of a store."""

import datetime
import json
import math
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertow.cli.common import AsJson, Module, app, load_module
from undertow.errors import InvalidInputError

if TYPE_CHECKING:
    from polars import DataFrame, LazyFrame

    from undertow.store import Store

_FORMATS = {".parquet": "sink_parquet", ".csv": "sink_csv"}
_ROWS = 500_000  # of a fleet's log that are sorted at a time


@app.command()
def bandits(
    url: Annotated[str, typer.Argument(help="sqlite:///file.db or postgresql://user@host/database.")],
    name: Annotated[str | None, typer.Argument(help="One bandit.", show_default="all")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Replay all events and compare.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(help="Write the rewarded decisions of a bandit or a fleet to a .parquet or .csv file."),
    ] = None,
    copy_to: Annotated[str | None, typer.Option(help="Copy to another store, as a backup or to move.")] = None,
    trim: Annotated[bool, typer.Option("--trim", help="Save a checkpoint and drop the events before it.")] = False,
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """List the bandits of a store; show, verify, export, copy or trim them."""
    from undertow.store import operations
    from undertow.store.address import store_at

    load_module(module)
    if sum((verify, export is not None, copy_to is not None, trim)) > 1:
        raise InvalidInputError("bandits: expected one of --verify, --export, --copy-to and --trim")
    store = store_at(url)
    names = store.names() if name is None else [name]
    target = None if copy_to is None else store_at(copy_to)
    if export is not None:
        _export(store, names, name, export, as_json=as_json)
        return
    if not names and not as_json:
        print("no bandits")
    for each in names:
        if verify:
            done: dict[str, Any] = {"verified": operations.verify(store, each)}
        elif target is not None:
            done = {"copied": operations.copy(store, each, target)}
        elif trim:
            done = {"trimmed": operations.trim(store, each)}
        else:
            _show(store, each, whole=name is not None, as_json=as_json)
            continue
        ((verb, count),) = done.items()
        print(json.dumps({"bandit": each} | done) if as_json else f"{each}: {count} events {verb}")


def _export(store: "Store", names: list[str], name: str | None, file: Path, *, as_json: bool) -> None:
    """Write the log of one bandit."""
    import polars as pl

    from undertow.store.fleet_past import logs_of
    from undertow.store.fleets import is_fleet
    from undertow.store.past import log_of
    from undertow.support.writing import part_folder, replacing

    if name is None and len(names) != 1:
        raise InvalidInputError(f"name: expected one bandit to export, there are {len(names)}: {', '.join(names)}")
    if file.suffix not in _FORMATS:
        raise InvalidInputError(f"export: expected a .parquet or .csv file, got {str(file)!r}")
    with replacing(file) as part, part_folder(part.parent) as folder:
        if is_fleet(store, names[0]):
            tables = (pl.DataFrame(log, nan_to_null=True) for log in logs_of(store, names[0]))
            rows, table = _merged(tables, folder)
        else:
            frame = pl.DataFrame(log_of(store, names[0]))
            rows, table = frame.height, frame.lazy()
        getattr(table, _FORMATS[file.suffix])(part)
    done = {"bandit": names[0], "exported": rows, "file": str(file)}
    print(json.dumps(done) if as_json else f"{names[0]}: {rows} decisions with a reward written to {file}")


def _merged(tables: "Iterable[DataFrame]", folder: Path) -> "tuple[int, LazyFrame]":
    """Return the rows of tables in the order of time, and their number; memory holds one table, or a slice of time."""
    import polars as pl

    for number, table in enumerate(tables):
        table.write_parquet(folder / f"table-{number:05}.parquet")
    rows = pl.scan_parquet(folder / "table-*.parquet")
    times = rows.select("time").collect()["time"].sort()
    cuts = [-math.inf, *times.gather_every(_ROWS)[1:].unique().sort(), math.inf]
    for number, (first, after) in enumerate(pairwise(cuts)):
        some = rows.filter(pl.col("time").is_between(first, after, closed="left")).collect()
        some.sort("time", maintain_order=True).write_parquet(folder / f"slice-{number:05}.parquet")
    return len(times), pl.scan_parquet(folder / "slice-*.parquet")


def _show(store: "Store", name: str, *, whole: bool, as_json: bool) -> None:
    """Print one line about a bandit, or all its details."""
    from undertow.live.registry import name_of
    from undertow.store.operations import FleetSummary, summary

    found = summary(store, name)
    last = found.last
    when = None if last is None else datetime.datetime.fromtimestamp(last, datetime.UTC).isoformat(timespec="seconds")
    if isinstance(found, FleetSummary):
        template, buckets, keys, pending, events, _ = found
        if as_json:
            row: dict[str, Any] = {"bandit": name, "fleet": name_of(type(template)), "buckets": buckets, "keys": keys}
            print(json.dumps(row | {"pending": pending, "events": events, "last": when, "arms": template.names}))
            return
        print(f"{name}: a fleet of {keys} keys in {buckets} buckets: {pending} waiting; {events} events", end="")
        print((f", the last at {when}" if when else "") + (f"\n  {template!r}" if whole else ""))
        return
    policy, events, since, _ = found
    if as_json:
        row = {"bandit": name, "events": events, "since": since, "last": when, "arms": policy.names}
        print(json.dumps(row | {"retired": policy.retired, "health": json.loads(policy.health().to_json())}))
        return
    print(f"{name}: {policy.health()}; {events} events" + (f", the last at {when}" if when else ""))
    if whole:
        print(f"  {policy!r}")
        print(f"  arms: {', '.join(policy.names)}" + (f"; retired: {', '.join(policy.retired)}" * bool(policy.retired)))
        print(f"  events are kept from {since + 1} on")
