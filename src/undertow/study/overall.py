"""Trials over all families of a kind: recorded tables, worlds, and worlds with a safe arm."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from rich.table import Table

from undertow.study.trials import SIMPLE

__all__ = ["overall", "show_overall"]

NULL = "data-stocks"  # no policy can win there
BESIDE_SAFE = ("Discounted UCB 0.99 (1)", "LinUCB (1)", "StructuralKalman")
_SIMPLE = {contender.label for contender in SIMPLE}
Rows = Mapping[str, Mapping[str, Any]]  # by family


class Overall(NamedTuple):
    """One policy over all families of a kind, with a standard error and its worst family."""

    kind: str
    policy: str
    mean: float
    error: float | None
    worst: float
    family: str


def overall(summary: pl.DataFrame) -> pl.DataFrame:
    """Return one row per kind of families and policy that played all of them, the best first.

    Parameters
    ----------
    summary
        The output of `summarise`.

    Returns
    -------
    kind, policy
        Kind of the families, and policy.
    mean, error
        Of recorded tables (without stocks, on which no policy can win): the mean over tables of the mean share won. Of
        worlds: the geometric mean over worlds of the regret relative to each world's best simple policy. Of worlds with
        a safe arm: the mean over worlds of the reward relative to the best of discounted UCB, LinUCB and
        StructuralKalman. The standard error comes from those of the families.
    worst, family
        The same in the family in which the policy does worst; of recorded tables, the share won minus that of the best
        simple policy on that table.
    """
    by: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in summary.iter_rows(named=True):
        by.setdefault(row["policy"], {})[row["family"]] = row
    families = [*dict.fromkeys(summary["family"])]
    rows = [
        *_tables(by, [name for name in families if name.startswith("data-") and name != NULL]),
        *_worlds(by, [name for name in families if name.startswith("world-")]),
        *_safe(by, [name for name in families if name.startswith("safe-")]),
    ]
    kinds = {name: pl.Float64 if name in ("mean", "error", "worst") else pl.String for name in Overall._fields}
    return pl.DataFrame(rows, schema=kinds, orient="row")


def _whole(by: Mapping[str, Rows], families: list[str], measure: str) -> dict[str, Rows]:
    """Return the policies that have this measure in every one of these families."""
    return {
        policy: rows
        for policy, rows in by.items()
        if families and all(name in rows and rows[name][measure] is not None for name in families)
    }


def _tables(by: Mapping[str, Rows], families: list[str]) -> Iterable[Overall]:
    whole = _whole(by, families, "share_mean")
    whole = {policy: rows for policy, rows in whole.items() if rows[families[0]]["share_error"] is not None}
    best = {
        name: max((rows[name]["share_mean"] for policy, rows in whole.items() if policy in _SIMPLE), default=math.nan)
        for name in families
    }
    found = []
    for policy, rows in whole.items():
        behind = {name: rows[name]["share_mean"] - best[name] for name in families}
        worst = min(families, key=behind.__getitem__)
        mean = float(np.mean([rows[name]["share_mean"] for name in families]))
        error = _together(rows[name]["share_error"] for name in families)
        found.append(Overall("recorded tables", policy, mean, error, behind[worst], worst))
    return sorted(found, key=lambda row: -row.mean)


def _worlds(by: Mapping[str, Rows], families: list[str]) -> Iterable[Overall]:
    found = []
    for policy, rows in _whole(by, families, "to_simple_error").items():
        ratios = [rows[name]["to_simple"] for name in families]
        mean = float(np.exp(np.mean(np.log(ratios))))
        error = mean * _together(rows[name]["to_simple_error"] / rows[name]["to_simple"] for name in families)
        worst = int(np.argmax(ratios))
        found.append(Overall("worlds", policy, mean, error, ratios[worst], families[worst]))
    return sorted(found, key=lambda row: row.mean)


def _safe(by: Mapping[str, Rows], families: list[str]) -> Iterable[Overall]:
    whole = _whole(by, families, "reward_error")
    if not all(policy in whole for policy in BESIDE_SAFE):
        return []
    best = [max(whole[policy][name]["reward"] for policy in BESIDE_SAFE) for name in families]
    found = []
    for policy, rows in whole.items():
        ratios = [rows[name]["reward"] / most for name, most in zip(families, best, strict=True)]
        error = _together(rows[name]["reward_error"] / most for name, most in zip(families, best, strict=True))
        worst = int(np.argmin(ratios))
        found.append(Overall("safe arm", policy, float(np.mean(ratios)), error, ratios[worst], families[worst]))
    return sorted(found, key=lambda row: -row.mean)


def _together(errors: Iterable[float]) -> float:
    """Return the standard error of a mean from those of its parts, which are independent."""
    each = np.fromiter(errors, dtype=np.float64)
    return float(np.sqrt(np.sum(each**2)) / len(each))


def show_overall(rows: pl.DataFrame, *, most: int = 6) -> Table:
    """Return the best policies of each kind as a table to print."""
    table = Table(title="Over all families of a kind: mean ± standard error, and the worst family")
    for name in ("kind", "policy", "mean", "worst", "family"):
        table.add_column(name, justify="right" if name in ("mean", "worst") else "left")
    for kind in rows.partition_by("kind", maintain_order=True):
        for row in kind.head(most).iter_rows(named=True):
            percent = row["kind"] == "recorded tables"
            factor, digits = (100, 1) if percent else (1, 3)
            mean, error, worst = (factor * row[name] for name in ("mean", "error", "worst"))
            shown = f"{mean:.{digits}f} ± {error:.{digits}f}", f"{worst:{'+' if percent else ''}.{digits}f}"
            table.add_row(row["kind"], row["policy"], *shown, row["family"])
        table.add_section()
    return table
