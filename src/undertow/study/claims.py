"""The eight statements of the paper's evaluation, checked against the tables: whether each holds, and the evidence."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from undertow.reporting.numbers import plus_minus, standard_error
from undertow.study.chunks import Tables
from undertow.study.plan import Plan
from undertow.study.summary import Array, final_regret

__all__ = ["Claim", "check_claims"]

_PSI = (1, 2, 3, 4)
_OTHERS = ("UCB", "Sliding-window UCB", "Rexp3", "Random")
_PIES = tuple(f"PIES({s})" for s in range(1, 11))
_EQUAL = 0.02  # errors this close, relatively, count as equal
_LATE = 0.8  # "in the end": the last fifth of the rounds

Evidence = Iterator[tuple[bool, str]]  # whether a part of a statement holds, and what was measured of it


class Claim(NamedTuple):
    """One statement of the paper; `holds` is None if the plan lacks what the statement is about."""

    number: int
    statement: str
    holds: bool | None
    measured: str


def check_claims(plan: Plan, tables: Tables) -> list[Claim]:
    """Check every statement against the plan's tables."""
    study, claims = _Study(plan, tables), []
    for number, (statement, test) in enumerate(_STATEMENTS.items(), start=1):
        try:
            found = list(test(study))
            holds, measured = all(part for part, _ in found), "; ".join(words for _, words in found)
            claims.append(Claim(number, statement, holds, measured))
        except KeyError as error:
            claims.append(Claim(number, statement, None, f"not in this plan: {error.args[0]}"))
    return claims


class _Study:
    """What was measured, by ψ and policy; a KeyError says what is missing."""

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


def _beats_others(study: _Study) -> Evidence:
    leads = {
        (psi, ours, other): 1 - study.regret(psi, ours) / study.regret(psi, other)
        for psi in (1, 2, 3)
        for ours in ("ARES", *_PIES)
        for other in _OTHERS
    }
    (psi, ours, other), lead = min(leads.items(), key=lambda item: float(item[1].mean()))
    yield bool(lead.mean() > 0), f"smallest saving {_percent(lead)}: {ours} against {other} at psi = {psi}"


def _pies_order(study: _Study) -> Evidence:
    for psi in _PSI:
        medians = [float(np.median(study.regret(psi, name))) for name in _PIES]
        worst, best = int(np.argmax(medians)) + 1, int(np.argmin(medians)) + 1
        apart = 1 - study.regret(psi, f"PIES({best})") / study.regret(psi, f"PIES({worst})")
        yield (worst, best) == (1, 10), f"psi = {psi}: worst {worst}, best {best}, {_percent(apart)} apart"


def _pies_beats_ares(study: _Study) -> Evidence:
    for psi in (1, 2, 3):
        excess = {name: study.regret(psi, "ARES") / study.regret(psi, name) - 1 for name in _PIES}
        best = max(excess, key=lambda name: float(excess[name].mean()))
        yield bool(0 < excess[best].mean() <= 0.1), f"psi = {psi}: {_percent(excess[best])} above {best}"


def _ares_beats_pies(study: _Study) -> Evidence:
    leads = {name: 1 - study.regret(4, "ARES") / study.regret(4, name) for name in _PIES}
    least = min(leads, key=lambda name: float(leads[name].mean()))
    lead = leads[least]
    yield bool(lead.mean() > 2 * standard_error(lead)), f"smallest saving {_percent(lead)}, against {least}"


def _nearest_to_oracle(study: _Study) -> Evidence:
    for name, where in (("ARES", ""), ("PIES(10)", " at psi = 1, 2, 3, 4")):
        ratios = {psi: study.regret(psi, name) / study.regret(psi, "Oracle") for psi in _PSI}
        nearest = min(ratios, key=lambda psi: abs(float(ratios[psi].mean()) - 1))
        yield nearest == 1, f"{name}: {', '.join(plus_minus(ratio, 2) for ratio in ratios.values())}{where}"


def _windows(study: _Study) -> Evidence:
    windows = {psi: study.means(psi, "ARES", "window") for psi in _PSI}
    for psi, values in windows.items():
        mean = values.mean(axis=0)
        holds = psi == 4 or bool((mean > windows[4].mean(axis=0)).all())
        near = psi != 2 or bool(np.abs(mean - [8, 10]).max() < 1)
        yield holds and near, f"psi = {psi}: {plus_minus(values[:, 0])}, {plus_minus(values[:, 1])}"


def _widths(study: _Study) -> Evidence:
    for psi in _PSI:
        late, early = study.means(psi, "ARES", "width"), study.means(psi, "ARES", "width", early=True)
        ratio = late[:, 0] / late[:, 1]
        holds = bool(0.8 < ratio.mean() < 1.25 and (late.mean(axis=0) < early.mean(axis=0)).all())
        yield holds, f"psi = {psi}: ratio {plus_minus(ratio, 2)}, shrinks to {late.mean() / early.mean():.2f}"


def _smallest_window(study: _Study) -> Evidence:
    parts = []
    for psi in _PSI:
        errors = [study.means(psi, name, "error") for name in _PIES]
        for arm in (0, 1):
            means = [np.nanmean(by_run[:, arm]) for by_run in errors]
            if np.isnan(means).any():
                yield False, "too few rounds: no forecast was compared with its reward"
                return
            smallest = next(s for s, mean in enumerate(means, start=1) if mean <= (1 + _EQUAL) * min(means))
            window = study.means(psi, "ARES", "window")[:, arm]
            found = f"window {plus_minus(window)}, smallest within {_EQUAL:.0%} of the best {smallest}"
            parts.append((abs(float(window.mean()) - smallest) <= 1.5, f"psi = {psi} arm {arm + 1}: {found}"))
    yield from parts


def _percent(values: Array) -> str:
    return f"{plus_minus(100 * values)} %"


_STATEMENTS: dict[str, Callable[[_Study], Evidence]] = {
    "ARES and PIES beat UCB, sliding-window UCB, Rexp3 and Random at psi = 1, 2, 3.": _beats_others,
    "PIES is worst at window 1 and best at window 10.": _pies_order,
    "At psi = 1, 2, 3 some window of PIES beats ARES, and ARES's regret is at most 10 % above it.": _pies_beats_ares,
    "At psi = 4 ARES beats PIES at every window.": _ares_beats_pies,
    "The regret of ARES and PIES relative to the Oracle is nearest to 1 at psi = 1.": _nearest_to_oracle,
    "ARES's mean window is larger at psi = 1, 2, 3 than at psi = 4, and near 8 (arm 1) and 10 (arm 2) at psi = 2.": (
        _windows
    ),
    "ARES's mean width is about the same for both arms and shrinks over time.": _widths,
    "Where several windows predict equally well, ARES takes the smallest of them.": _smallest_window,
}
