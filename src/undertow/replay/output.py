"""The folder of a replay or a diagnosis: tables, figures and the report."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from undertow.replay.diagnosis import Diagnosis
from undertow.replay.diagnosis_text import answer, describe
from undertow.replay.figures import draw_diagnosis, draw_log, draw_replay
from undertow.replay.full import Replay
from undertow.replay.logged import LogReplay
from undertow.replay.report import report_diagnosis, report_log, report_replay
from undertow.replay.table import Table
from undertow.support.folders import versions, whole, write_csv, write_json

__all__ = ["Written", "write_diagnosis", "write_replay"]


class Written(NamedTuple):
    """The paths of the results."""

    folder: Path
    report: Path


def write_replay(
    result: Replay | LogReplay,
    out: str | os.PathLike[str],
    *,
    command: str = "",
    settings: dict[str, Any] | None = None,
    kind: str = "replay",
) -> Written:
    """Write tables, figures and the report of a replay to `out / kind / name`, all of them or none.

    summary.csv and comparisons.csv; choices.parquet with the arms that were played,
    one column per policy and run; replay.json with the columns, policies, settings and versions.
    """
    table, place = result.table, Path(out) / kind / result.table.name
    names = pl.Series(table.arms, dtype=pl.Categorical)
    columns = {
        f"{label}, run {run}": names.gather(arms)
        for label, runs in result.choices.items()
        for run, arms in enumerate(runs)
    }
    about = {
        "command": command,
        "rounds": table.rounds,
        "skipped": table.skipped,
        "arms": table.arms,
        "columns": vars(table.columns),
        "policies": [
            {"label": contender.label, "policy": contender.policy, "parameters": dict(contender.parameters)}
            for contender in result.policies
        ],
        "settings": (settings or {}) | {"block": result.block},
        "notes": result.notes,
        "versions": versions(),
    }
    with whole(place) as folder:
        write_csv(folder / "summary.csv", result.summary)
        pl.DataFrame(columns).write_parquet(folder / "choices.parquet")
        write_json(folder / "replay.json", about)
        write_csv(folder / "comparisons.csv", result.comparisons)
        if isinstance(result, Replay):
            report = report_replay(result, draw_replay(result, folder), command, folder)
        else:
            report = report_log(result, draw_log(result, folder), command, folder)
    return Written(place, place / report.name)


def write_diagnosis(found: Diagnosis, table: Table, out: str | os.PathLike[str], *, command: str = "") -> Written:
    """Write diagnosis.json, autocorrelation.csv, the figure and the report to `out / "diagnose" / name`."""
    place = Path(out) / "diagnose" / table.name
    words = {"answer": answer(found), "words": dict(describe(found))}
    lags = [(arm, lag, value) for arm, values in found.autocorrelation.items() for lag, value in enumerate(values, 1)]
    frame = pl.DataFrame(lags, schema=["arm", "lag", "autocorrelation"], orient="row")
    with whole(place) as folder:
        write_json(folder / "diagnosis.json", {"command": command} | words | found.to_dict())
        write_csv(folder / "autocorrelation.csv", frame)
        report = report_diagnosis(found, table, draw_diagnosis(found, folder), command, folder)
    return Written(place, place / report.name)
