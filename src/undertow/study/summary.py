"""Summaries of a study's tables: the regret of each policy, and its difference from the baseline."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from undertow.comparison import Comparison
from undertow.errors import InvalidInputError
from undertow.study.chunks import Tables
from undertow.study.plan import Plan
from undertow.support.folders import write_csv
from undertow.support.numbers import cells, listed, number, standard_error
from undertow.support.tables import latex, markdown
from undertow.support.writing import replacing

__all__ = [
    "comparisons",
    "final_regret",
    "headline",
    "keep_summary",
    "leaders",
    "ratios",
    "read_comparisons",
    "resampled",
    "winners",
]

_RESAMPLES = 2000
Array = npt.NDArray[np.float64]
Final = dict[tuple[str, str], Array]


def final_regret(plan: Plan, tables: Tables) -> Final:
    """Return the regret after the last round, one number per run in order, by system and policy."""
    last = tables.regret.filter(pl.col("round") == plan.rounds).sort("run")
    groups = last.partition_by("system", "policy", as_dict=True)
    return {(str(key[0]), str(key[1])): group["regret"].to_numpy() for key, group in groups.items()}


def ratios(plan: Plan, final: Final, system: str, policy: str) -> Array:
    """Return final regret over the baseline's, run by run, if the baseline has regret; NaN if it never has."""
    regret, base = final[system, policy], final[system, plan.baseline]
    return regret[base > 0] / base[base > 0] if (base > 0).any() else np.full(1, np.nan)


def leaders(plan: Plan, final: Final, system: str) -> list[str]:
    """Return the policies with the least regret among those that do not know the system, up to chance.

    These are the one with the least mean ratio, and all whose mean ratio is within two standard errors of it, run by
    run. The paper's statements are judged by the same rule.
    """
    free = [spec.label for spec in plan.policies if not spec.capabilities.needs_system]
    if not free or not (final[system, plan.baseline] > 0).any():
        return []
    ratio = {label: ratios(plan, final, system, label) for label in free}
    best = min(free, key=lambda label: float(ratio[label].mean()))
    behind = {label: ratio[label] - ratio[best] for label in free}
    return [label for label, gap in behind.items() if gap.mean() <= 2 * standard_error(gap)]


def winners(plan: Plan, final: Final) -> str:
    """Name the leaders of every system, with their median ratios; "" if there are none."""
    found: dict[str, list[str]] = {}
    for spec in plan.systems:
        if best := leaders(plan, final, spec.label):
            medians = [number(float(np.median(ratios(plan, final, spec.label, label)))) for label in best]
            found.setdefault(listed(best), []).append(f"{listed(dict.fromkeys(medians))} ({spec.label})")
    return "; ".join(f"{best}, {', '.join(where)}" for best, where in found.items())


def headline(plan: Plan, tables: Tables) -> pl.DataFrame:
    """Return one row per policy and system: final regret, and its ratio to the baseline's on the same path.

    `relative` is the median of the ratio over runs in which the baseline has regret, with a 95 % bootstrap interval
    over runs from `low` to `high`; `mean` ± `error` is the mean regret with its standard error.
    """
    final = final_regret(plan, tables)
    rows = []
    for policy in plan.policies:
        for system in plan.systems:
            regret, ratio = final[system.label, policy.label], ratios(plan, final, system.label, policy.label)
            low, high = bootstrap(ratio, np.median)
            rows.append(
                {
                    "policy": policy.label,
                    "system": system.label,
                    "median": float(np.median(regret)),
                    "relative": float(np.median(ratio)),
                    "low": low,
                    "high": high,
                    "mean": float(regret.mean()),
                    "error": standard_error(regret),
                }
            )
    return pl.DataFrame(rows)


def comparisons(plan: Plan, tables: Tables) -> pl.DataFrame:
    """Return the mean difference in final regret between each policy and the baseline, with a 95 % bootstrap interval.

    All policies share their paths, so the interval is that of the paired difference, narrower than either regret's.
    """
    final = final_regret(plan, tables)
    rows = []
    for system in plan.systems:
        for policy in plan.policies:
            if policy.label != plan.baseline:
                difference = final[system.label, policy.label] - final[system.label, plan.baseline]
                labels = (system.label, policy.label, plan.baseline)
                rows.append((*labels, float(difference.mean()), *bootstrap(difference, np.mean)))
    names = dict.fromkeys(("system", "policy", "baseline"), pl.String)
    schema = names | dict.fromkeys(("difference", "low", "high"), pl.Float64)
    return pl.DataFrame(rows, schema=schema, orient="row")


def read_comparisons(folder: str | os.PathLike[str]) -> dict[str, Comparison]:
    """Return the regrets of a finished study by system, in the form of `undertow.compare`."""
    file = Path(folder) / "regret.parquet"
    if not file.exists():
        raise InvalidInputError(
            f"folder: expected the folder of a finished study, got {os.fspath(folder)}, without {file.name}"
        )
    systems = pl.read_parquet(file).partition_by("system", as_dict=True, maintain_order=True)
    return {str(system): _compared(regret) for (system,), regret in systems.items()}


def _compared(regret: pl.DataFrame) -> Comparison:
    """Return a comparison of all policies on one system."""
    rounds = regret["round"].unique().sort().to_numpy()
    policies = regret.sort("run", "round", maintain_order=True).partition_by("policy", as_dict=True)
    ordered = regret["policy"].unique(maintain_order=True)
    curves = {name: policies[name,]["regret"].to_numpy().reshape(-1, len(rounds)) for name in ordered}
    return Comparison("regret", {name: curve[:, -1] for name, curve in curves.items()}, rounds, curves)


def keep_summary(plan: Plan, table: pl.DataFrame, pairs: pl.DataFrame, folder: Path) -> None:
    """Write summary.csv, and the ratios with their intervals as summary.md and summary.tex.

    `table` and `pairs` come from `headline` and `comparisons`.
    """
    named = pairs.rename({"low": "difference_low", "high": "difference_high"}).drop("baseline")
    write_csv(folder / "summary.csv", table.join(named, on=["system", "policy"], how="left", maintain_order="left"))
    columns = []
    for system in plan.systems:
        rows = table.filter(pl.col("system") == system.label).rename({"low": "relative_low", "high": "relative_high"})
        spells = [spell for (spell,) in cells(rows.to_dicts(), {"relative": ""})]
        columns.append([f"{value} ({spread})" if spread else value for value, spread in spells])
    lines = [list(line) for line in zip([one.label for one in plan.policies], *columns, strict=True)]
    head = [f"regret / {plan.baseline}", *(system.label for system in plan.systems)]
    for name, form in (("summary.md", markdown), ("summary.tex", latex)):
        with replacing(folder / name) as part:
            part.write_text(form(head, lines) + "\n", encoding="utf-8")


def resampled(values: Array, statistic: Callable[..., Array]) -> Array:
    """Return a statistic over the first axis, that of runs, for bootstrap resamples of them with a fixed seed."""
    draws = np.random.default_rng(0).integers(len(values), size=(_RESAMPLES, len(values)))
    return statistic(values[draws], axis=1)


def bootstrap(values: Array, statistic: Callable[..., Array]) -> tuple[float, float]:
    """Return the 95 % percentile interval of a statistic over resampled runs."""
    low, high = np.quantile(resampled(values, statistic), [0.025, 0.975])
    return float(low), float(high)
