"""Verdicts on the paper's statements, with their evidence as data."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from undertow.study.chunks import Tables
from undertow.study.evidence import FAILS, HOLDS, UNDECIDED, Judgement, worst
from undertow.study.plan import Plan, SystemSpec
from undertow.study.statements import STATEMENTS
from undertow.study.summary import Array, final_regret

__all__ = ["FAILS", "HOLDS", "UNDECIDED", "Claim", "Judgement", "caveat", "check_claims", "too_short"]

_ROUNDS, _RUNS = 10_000, 100  # of the paper


class Claim(NamedTuple):
    """One statement of the paper, or one of two readings of its sentence.

    Attributes
    ----------
    label
        The number of the statement, from 1, with a letter for its reading.
    title
        The statement in a few words.
    quote
        The paper's words.
    criterion
        The test, with every tolerance.
    verdict
        "holds", "undecided" or "fails", by the least favourable judgement; None if the plan lacks what it needs.
    measured
        The numbers, in words.
    discussion
        The reason if the statement does not hold.
    judgements
        The numbers, as data.
    """

    label: str
    title: str
    quote: str
    criterion: str
    verdict: str | None
    measured: str
    discussion: str = ""
    judgements: Sequence[Judgement] = ()


def check_claims(plan: Plan, tables: Tables, committed: Mapping[str, Array] | None = None) -> list[Claim]:
    """Check every statement against the plan's tables.

    `committed` is the measurement of `undertow.study.appendix` for Remark 8, by system; without it, the remark is not
    tested.
    """
    study, claims = _Study(plan, tables, committed or {}), []
    for statement in STATEMENTS:
        words = (statement.label, statement.title, statement.quote, statement.criterion)
        try:
            found = list(statement.test(study))
        except KeyError as error:
            claims.append(Claim(*words, None, f"not in this plan: {error.args[0]}"))
            continue
        verdict = worst(judgement.verdict for judgement in found)
        measured = "; ".join(judgement.words for judgement in found)
        claims.append(Claim(*words, verdict, measured, "" if verdict == HOLDS else statement.discussion, found))
    return claims


def too_short(plan: Plan) -> bool:
    """Whether a study has too few rounds to judge the paper's statements."""
    return plan.rounds < _ROUNDS


def caveat(plan: Plan, runs: int) -> str:
    """Return a caution about the verdicts of a study smaller than the paper's; "" for others."""
    if too_short(plan):
        return (
            f"Too short to judge the paper's statements: they are about {_ROUNDS:,} rounds, and after {plan.rounds:,} "
            "ARES is still finding its windows."
        )
    if runs < _RUNS:
        return f"The paper has {_RUNS} runs: with {runs}, more verdicts are undecided, and some can differ."
    return ""


class _Study:
    """Measurements by ψ and policy; raise KeyError if one is missing."""

    def __init__(self, plan: Plan, tables: Tables, committed: Mapping[str, Array]) -> None:
        self.plan, self.detail = plan, tables.detail
        self.final, self.shares = final_regret(plan, tables), committed

    def system(self, psi: int) -> SystemSpec:
        spec = next((spec for spec in self.plan.systems if spec.label == f"psi = {psi}"), None)
        if spec is None:
            raise KeyError(f"psi = {psi}")
        return spec

    def regret(self, psi: int, policy: str) -> Array:
        if (f"psi = {psi}", policy) not in self.final:
            raise KeyError(f"{policy} at psi = {psi}")
        return self.final[f"psi = {psi}", policy]

    def committed(self, psi: int) -> Array:
        if f"psi = {psi}" not in self.shares:
            raise KeyError("ARES without lines 19 and 20, which --appendix plays")
        return self.shares[f"psi = {psi}"]

    def mean(self, psi: int, column: str, first: float, last: float = 1.0) -> Array:
        """Return the mean of a column of ARES's detail between two shares of the rounds, by run and arm."""
        here = (pl.col("system") == f"psi = {psi}") & (pl.col("policy") == "ARES")
        there = (pl.col("round") > first * self.plan.rounds) & (pl.col("round") <= last * self.plan.rounds)
        rows = self.detail.filter(here & there)
        if rows.is_empty():
            raise KeyError(f"ARES at psi = {psi} in detail")
        value = pl.col(column).fill_nan(None).mean()
        table = rows.group_by("run", "arm").agg(value).pivot("arm", index="run", values=column).sort("run")
        return table.select("0", "1").to_numpy()
