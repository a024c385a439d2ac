"""Every bound on a system's regret, next to measured regret."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from undertow import theory
from undertow.errors import InvalidInputError
from undertow.system import LinearGaussianSystem

__all__ = ["BoundRow", "bound_table"]


class BoundRow(NamedTuple):
    """One row: a name, a regret, its kind and a remark."""

    name: str
    value: float
    kind: str
    remark: str


def bound_table(
    system: LinearGaussianSystem, rounds: int, windows: Sequence[int], confidence: float, out: Path
) -> list[BoundRow]:
    """Return lower bounds, closed forms, measured regret if a study below `out` has it, and upper bounds."""
    lower = theory.lower_bound(system, rounds)
    first = theory.lower_bound(system, rounds, context_first=True)
    claimed = system.arm_count * math.sqrt(4 * rounds * math.log(1 / confidence)) * theory.true_noise_bound(system)
    numeric = f"numerical error {lower.error:.2g}" if lower.error else "closed form"
    rows = [
        BoundRow("lower bound", lower.value, "lower", f"for any policy, the paper's order of a round; {numeric}"),
        BoundRow("lower bound, context first", first.value, "lower", "when the context comes before the decision"),
        *_authors_lower_bounds(system, rounds),
        BoundRow("full-information oracle", lower.value, "exact", "sees every arm's reward"),
        BoundRow("context Oracle", rounds * theory.context_oracle_regret(system).value, "exact", "the paper's Oracle"),
        BoundRow("Random", rounds * theory.random_regret(system).value, "exact", ""),
        BoundRow("Σ(ε_a* − ε_a)", rounds * theory.noise_sum(system).value, "exact", f"{claimed:,.0f} claimed (T3)"),
        *_measured(system, rounds, out),
    ]
    for s in windows:
        for width in ("noise", "noise+bias"):
            printed, corrected = (
                bound(system, s, rounds, width=width, confidence=confidence)
                for bound in (theory.printed_regret_bound, theory.corrected_regret_bound)
            )
            name = f"{'Corollary 1' if width == 'noise' else 'Theorem 2'}, s = {s}"
            tells = [
                _tells(theory.informative_rounds(bound, system, s, width=width, confidence=confidence))
                for bound in (theory.printed_regret_bound, theory.corrected_regret_bound)
            ]
            rows.append(BoundRow(f"{name}, as printed", printed, "upper", f"its noise term fails (T3); {tells[0]}"))
            rows.append(BoundRow(f"{name}, corrected", corrected, "upper", f"Oracle's regret + learning; {tells[1]}"))
    return rows + _conditional(system, rounds, confidence)


def _tells(rounds: float) -> str:
    """Say from which round on a bound is below the regret of random choices."""
    return "never below Random's regret" if math.isinf(rounds) else f"below Random's regret from n = {rounds:.0e}"


def _conditional(system: LinearGaussianSystem, rounds: int, confidence: float) -> list[BoundRow]:
    """Return the bound (C.25) at the smallest window for which its condition (C.24) holds, given **B**_β = B_β(0)."""
    known = theory.bias_factor(system, 0)
    s = theory.sufficient_window(system, rounds, known, confidence=confidence)
    if s is None:
        return []
    value = theory.conditional_regret_bound(system, s, rounds, known, confidence=confidence)
    return [BoundRow(f"(C.25), s = {s}", value, "upper", "as printed; the smallest s with (C.24), up to 400")]


def _authors_lower_bounds(system: LinearGaussianSystem, rounds: int) -> list[BoundRow]:
    """Return the lower bounds in the authors' style, for arms with the same mean reward."""
    try:
        repaired = theory.repaired_lower_bound(system, rounds)
    except InvalidInputError:
        return []
    printed = theory.printed_lower_bound(system, rounds)
    return [
        BoundRow("lower bound, repaired", repaired, "lower", "in the authors' style"),
        BoundRow("lower bound, as printed", printed, "refuted", "see docs/theory.md"),
    ]


def _measured(system: LinearGaussianSystem, rounds: int, out: Path) -> list[BoundRow]:
    """Return the mean regret of every policy, from the newest study of this system with as many rounds."""
    for file in sorted(out.glob("*/plan.json"), key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            plan = json.loads(file.read_text(encoding="utf-8"))
            table = pl.read_parquet(file.with_name("regret.parquet"), glob=False)
            labels = [s["label"] for s in plan["systems"] if LinearGaussianSystem.from_dict(s["system"]) == system]
        except (OSError, ValueError, KeyError, InvalidInputError, pl.exceptions.PolarsError):
            continue
        final = table.filter(pl.col("system").is_in(labels) & (pl.col("round") == rounds))
        means = final.group_by("policy", maintain_order=True).agg(
            pl.col("regret").mean(), error=(pl.col("regret").std() / pl.len().sqrt()).fill_null(0.0)
        )
        if not means.is_empty():
            return [
                BoundRow(str(name), float(value), "measured", f"± {error:.0f}, {file.parent}")
                for name, value, error in means.iter_rows()
            ]
    return []
