"""The eight statements of the paper's evaluation, each tried on the tables: whether it holds, and what was measured."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from undertow.study.plan import Plan
from undertow.study.runner import Tables
from undertow.study.summary import Array, final_regret, standard_error

__all__ = ["Claim", "check_claims"]

_RIVALS = ("UCB", "Sliding-window UCB", "Rexp3", "Random")
_PIES = tuple(f"PIES({s})" for s in range(1, 11))
_EQUAL = 0.02  # errors this close, relatively, count as equal
_LATE = 0.8  # "in the end": the last fifth of the rounds


class Claim(NamedTuple):
    """One statement of the paper; `holds` is None where the plan does not contain what it speaks of."""

    number: int
    statement: str
    holds: bool | None
    measured: str


_STATEMENTS = (
    "ARES and PIES beat UCB, sliding-window UCB, Rexp3 and Random at psi = 1, 2, 3.",
    "PIES is worst at window 1 and best at window 10.",
    "At psi = 1, 2, 3 some window of PIES beats ARES, and ARES's regret is at most 10 % above it.",
    "At psi = 4 ARES beats PIES at every window.",
    "The regret of ARES and PIES relative to the Oracle is nearest to 1 at psi = 1.",
    "ARES's mean window is larger at psi = 1, 2, 3 than at psi = 4, and near 8 (arm 1) and 10 (arm 2) at psi = 2.",
    "ARES's mean width is about the same for both arms and shrinks over time.",
    "Where several windows predict equally well, ARES takes the smallest of them.",
)


def check_claims(plan: Plan, tables: Tables) -> list[Claim]:
    """Try every statement that the plan's tables can speak of."""
    evidence = _Evidence(plan, tables)
    tests: tuple[Callable[[], tuple[bool, str]], ...] = (
        evidence.beats_rivals,
        evidence.pies_order,
        evidence.pies_beats_ares,
        evidence.ares_beats_pies,
        evidence.nearest_to_oracle,
        evidence.windows,
        evidence.widths,
        evidence.smallest_window,
    )
    claims = []
    for number, (statement, test) in enumerate(zip(_STATEMENTS, tests, strict=True), start=1):
        try:
            holds, measured = test()
            claims.append(Claim(number, statement, holds, measured))
        except KeyError as error:
            claims.append(Claim(number, statement, None, f"not in this plan: {error.args[0]}"))
    return claims


class _Evidence:
    """One method a statement; each returns whether it holds and what was measured, or names what is missing."""

    def __init__(self, plan: Plan, tables: Tables) -> None:
        self.plan, self.detail = plan, tables.detail
        self.final = final_regret(plan, tables)

    def regret(self, psi: int, policy: str) -> Array:
        if (f"psi = {psi}", policy) not in self.final:
            raise KeyError(f"{policy} at psi = {psi}")
        return self.final[f"psi = {psi}", policy]

    def means(self, psi: int, policy: str, column: str, *, early: bool = False) -> Array:
        """Mean of a column of the detail table in the last fifth (or first) of the rounds, by run and arm."""
        late = pl.col("round") > _LATE * self.plan.rounds
        part = pl.col("round") <= (1 - _LATE) * self.plan.rounds if early else late
        rows = self.detail.filter((pl.col("system") == f"psi = {psi}") & (pl.col("policy") == policy) & part)
        if rows.is_empty():
            raise KeyError(f"{policy} at psi = {psi} in detail")
        value = pl.col(column).fill_nan(None).mean()
        table = rows.group_by("run", "arm").agg(value).pivot("arm", index="run", values=column).sort("run")
        return table.select("0", "1").to_numpy()

    def beats_rivals(self) -> tuple[bool, str]:
        leads = {
            (psi, ours, rival): 1 - self.regret(psi, ours) / self.regret(psi, rival)
            for psi in (1, 2, 3)
            for ours in ("ARES", *_PIES)
            for rival in _RIVALS
        }
        (psi, ours, rival), lead = min(leads.items(), key=lambda item: float(item[1].mean()))
        return bool(lead.mean() > 0), f"smallest saving {_percent(lead)}: {ours} against {rival} at psi = {psi}"

    def pies_order(self) -> tuple[bool, str]:
        parts, holds = [], True
        for psi in (1, 2, 3, 4):
            medians = [float(np.median(self.regret(psi, name))) for name in _PIES]
            worst, best = int(np.argmax(medians)) + 1, int(np.argmin(medians)) + 1
            holds &= (worst, best) == (1, 10)
            apart = 1 - self.regret(psi, f"PIES({best})") / self.regret(psi, f"PIES({worst})")
            parts.append(f"psi = {psi}: worst {worst}, best {best}, {_percent(apart)} apart")
        return holds, "; ".join(parts)

    def pies_beats_ares(self) -> tuple[bool, str]:
        parts, holds = [], True
        for psi in (1, 2, 3):
            excess = {name: self.regret(psi, "ARES") / self.regret(psi, name) - 1 for name in _PIES}
            best = max(excess, key=lambda name: float(excess[name].mean()))
            holds &= bool(0 < excess[best].mean() <= 0.1)
            parts.append(f"psi = {psi}: {_percent(excess[best])} above {best}")
        return holds, "; ".join(parts)

    def ares_beats_pies(self) -> tuple[bool, str]:
        leads = {name: 1 - self.regret(4, "ARES") / self.regret(4, name) for name in _PIES}
        least = min(leads, key=lambda name: float(leads[name].mean()))
        lead = leads[least]
        return bool(lead.mean() > 2 * standard_error(lead)), f"smallest saving {_percent(lead)}, against {least}"

    def nearest_to_oracle(self) -> tuple[bool, str]:
        parts, holds = [], True
        for name in ("ARES", "PIES(10)"):
            ratios = {psi: self.regret(psi, name) / self.regret(psi, "Oracle") for psi in (1, 2, 3, 4)}
            nearest = min(ratios, key=lambda psi: abs(float(ratios[psi].mean()) - 1))
            holds &= nearest == 1
            shown = ", ".join(_pm(ratio, 2) for ratio in ratios.values())
            parts.append(f"{name}: {shown}")
        return holds, "; ".join(parts) + " at psi = 1, 2, 3, 4"

    def windows(self) -> tuple[bool, str]:
        windows = {psi: self.means(psi, "ARES", "window") for psi in (1, 2, 3, 4)}
        mean = {psi: values.mean(axis=0) for psi, values in windows.items()}
        larger = all((mean[psi] > mean[4]).all() for psi in (1, 2, 3))
        near = bool(np.abs(mean[2] - [8, 10]).max() < 1)
        shown = "; ".join(
            f"psi = {psi}: "
            + ", ".join(f"{values[:, a].mean():.1f} ± {standard_error(values[:, a]):.1f}" for a in (0, 1))
            for psi, values in windows.items()
        )
        return larger and near, shown

    def widths(self) -> tuple[bool, str]:
        parts, holds = [], True
        for psi in (1, 2, 3, 4):
            late, early = self.means(psi, "ARES", "width"), self.means(psi, "ARES", "width", early=True)
            ratio = late[:, 0] / late[:, 1]
            holds &= bool(0.8 < ratio.mean() < 1.25 and (late.mean(axis=0) < early.mean(axis=0)).all())
            shrunk = late.mean() / early.mean()
            parts.append(
                f"psi = {psi}: ratio {ratio.mean():.2f} ± {standard_error(ratio):.2f}, shrinks to {shrunk:.2f}"
            )
        return holds, "; ".join(parts)

    def smallest_window(self) -> tuple[bool, str]:
        parts, holds = [], True
        for psi, arm, errors in self.errors_by_window():
            means = np.array([np.nanmean(e) for e in errors])
            if np.isnan(means).any():
                return False, "too few rounds: no forecast was compared with its reward"
            equal = [s for s, mean in enumerate(means, start=1) if mean <= (1 + _EQUAL) * means.min()]
            window = self.means(psi, "ARES", "window")[:, arm]
            holds &= abs(float(window.mean()) - equal[0]) <= 1.5
            parts.append(
                f"psi = {psi} arm {arm + 1}: window {_pm(window)}, smallest within {_EQUAL:.0%} of the best {equal[0]}"
            )
        return holds, "; ".join(parts)

    def errors_by_window(self) -> Iterator[tuple[int, int, list[Array]]]:
        for psi in (1, 2, 3, 4):
            by_window = [self.means(psi, name, "error") for name in _PIES]
            for arm in (0, 1):
                yield psi, arm, [values[:, arm] for values in by_window]


def _pm(values: Array, digits: int = 1) -> str:
    return f"{values.mean():.{digits}f} ± {standard_error(values):.{digits}f}"


def _percent(values: Array) -> str:
    return f"{100 * values.mean():.1f} ± {100 * standard_error(values):.1f} %"
