"""Numbers drawn from the tables of a study: what each policy lost, and by how much it differs from the baseline."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import polars as pl

from undertow.study.plan import Plan
from undertow.study.runner import Tables

__all__ = ["comparisons", "final_regret", "headline"]

_RESAMPLES = 2000
Array = npt.NDArray[np.float64]


def final_regret(plan: Plan, tables: Tables) -> dict[tuple[str, str], Array]:
    """Return the regret after the last round, one number a run in order, by system and policy."""
    last = tables.regret.filter(pl.col("round") == plan.rounds).sort("run")
    groups = last.partition_by("system", "policy", as_dict=True)
    return {(str(key[0]), str(key[1])): group["regret"].to_numpy() for key, group in groups.items()}


def headline(plan: Plan, tables: Tables) -> pl.DataFrame:
    """Return one row per policy and system: final regret, and its ratio to the baseline's on the same path.

    `relative` is the median of the ratio over runs in which the baseline has regret, with a 95 % bootstrap interval
    over runs from `low` to `high`; `mean` ± `error` is the mean regret with its standard error.
    """
    final = final_regret(plan, tables)
    rows = []
    for policy in plan.policies:
        for system in plan.systems:
            regret = final[system.label, policy.label]
            base = final[system.label, plan.baseline]
            ratio = regret[base > 0] / base[base > 0]  # where the baseline has none, there is no ratio
            low, high = bootstrap(ratio, np.median) if len(ratio) else (np.nan, np.nan)
            rows.append(
                {
                    "policy": policy.label,
                    "system": system.label,
                    "median": float(np.median(regret)),
                    "relative": float(np.median(ratio)) if len(ratio) else np.nan,
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
                low, high = bootstrap(difference, np.mean)
                names = {"system": system.label, "policy": policy.label, "baseline": plan.baseline}
                rows.append(names | {"difference": float(difference.mean()), "low": low, "high": high})
    schema = {"system": pl.String, "policy": pl.String, "baseline": pl.String}
    return pl.DataFrame(rows, schema=schema | dict.fromkeys(("difference", "low", "high"), pl.Float64))


def standard_error(values: Array) -> float:
    """Return the standard error of the mean; 0 for a single run."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def bootstrap(values: Array, statistic: Callable[..., Array]) -> tuple[float, float]:
    """Return the 95 % percentile interval of a statistic over resampled runs, with a fixed seed."""
    rng = np.random.default_rng(0)
    draws = rng.integers(len(values), size=(_RESAMPLES, len(values)))
    resampled = statistic(values[draws], axis=1)
    low, high = np.quantile(resampled, [0.025, 0.975])
    return float(low), float(high)
