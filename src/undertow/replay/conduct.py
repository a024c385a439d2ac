"""A replay or a diagnosis from beginning to end: play, measure, draw, report; everything into one folder."""

import importlib.metadata
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from undertow.replay.diagnosis import Diagnosis
from undertow.replay.figures import draw_diagnosis, draw_log, draw_replay
from undertow.replay.full import Replay
from undertow.replay.logged import LogReplay
from undertow.replay.report import report_diagnosis, report_log, report_replay
from undertow.replay.table import Table
from undertow.replay.words import answer, describe
from undertow.study.folders import whole

__all__ = ["Written", "plain", "write_diagnosis", "write_replay"]

_VERSIONED = ("undertow", "numpy", "numba", "scipy", "polars")


class Written(NamedTuple):
    """Where the results are."""

    folder: Path
    report: Path


def write_replay(
    result: Replay | LogReplay,
    out: str | os.PathLike[str],
    *,
    command: str = "",
    settings: dict[str, Any] | None = None,
) -> Written:
    """Write tables, figures and the report of a replay to `out / "replay" / name`, all of them or none.

    summary.csv and, where every arm's reward is known, comparisons.csv; choices.parquet with the arms that were played,
    a column a policy and run; replay.json with the columns, policies, settings and versions.
    """
    place = Path(out) / "replay" / result.table.name
    with whole(place) as folder:
        report = _write_replay(result, folder, command, settings)
    return Written(place, place / report.name)


def _write_replay(result: Replay | LogReplay, folder: Path, command: str, settings: dict[str, Any] | None) -> Path:
    result.summary.write_csv(folder / "summary.csv")
    if isinstance(result, Replay):
        result.comparisons.write_csv(folder / "comparisons.csv")
    columns = {
        f"{label}, run {run}": [result.table.arms[arm] for arm in arms]
        for label, runs in result.choices.items()
        for run, arms in enumerate(runs)
    }
    pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Categorical)).write_parquet(folder / "choices.parquet")
    about = {
        "command": command,
        "rounds": result.table.rounds,
        "arms": result.table.arms,
        "columns": result.table.columns.__dict__,
        "policies": [
            {"label": spec.label, "policy": spec.policy, "parameters": dict(spec.parameters)}
            for spec in result.policies
        ],
        "settings": (settings or {}) | {"block": result.block},
        "notes": result.notes,
        "versions": {name: importlib.metadata.version(name) for name in _VERSIONED},
    }
    _write_json(folder / "replay.json", about)
    if isinstance(result, Replay):
        return report_replay(result, draw_replay(result, folder), command, folder)
    return report_log(result, draw_log(result, folder), command, folder)


def write_diagnosis(found: Diagnosis, table: Table, out: str | os.PathLike[str], *, command: str = "") -> Written:
    """Write diagnosis.json, autocorrelation.csv, the figure and the report to `out / "diagnose" / name`."""
    place = Path(out) / "diagnose" / table.name
    words = {"answer": answer(found), "words": dict(describe(found))}
    lags = [(arm, lag, value) for arm, values in found.autocorrelation.items() for lag, value in enumerate(values, 1)]
    frame = pl.DataFrame(lags, schema=["arm", "lag", "autocorrelation"], orient="row")
    with whole(place) as folder:
        _write_json(folder / "diagnosis.json", {"command": command} | words | found.to_dict())
        frame.write_csv(folder / "autocorrelation.csv")
        report = report_diagnosis(found, table, draw_diagnosis(found, folder), command, folder)
    return Written(place, place / report.name)


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: None for what is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(entry) for entry in value]
    return value


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(plain(content), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
