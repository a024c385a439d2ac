"""The report of a tuner on its calls: a table and a figure."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.tuner.ledger import Ledger

__all__ = ["Report", "Variant", "report_of"]

_BINS = 60  # of calls, in the figure
_FEW = 100  # weighted calls below which no estimate is shown


class Variant(NamedTuple):
    """Statistics of a variant.

    Attributes
    ----------
    name
        Its name.
    calls, failures
        Number of successful calls, and of failures.
    mean_cost
        Mean over its calls; NaN without any. A variant is called when it should be cheap, so this differs from its cost
        if always called.
    always, error
        Mean cost if it were always called, by inverse propensities, and the standard error; NaN if the policy does not
        explore, or too rarely.
    """

    name: str
    calls: int
    failures: int
    mean_cost: float
    always: float
    error: float


class Report(NamedTuple):
    """The costs of a tuner's calls; `print` shows them as a table.

    Attributes
    ----------
    variants
        One entry for each.
    calls, reused
        Number of calls, and of those without a choice.
    mean_cost
        Mean over calls, without failures.
    chosen, chosen_error
        Mean cost of the calls with a choice, failures with their penalty, and its standard error.
    choice_seconds, own_seconds
        The overhead: in a call with a choice, on average over the last ones, and in all calls together.
    in_seconds
        Whether costs are seconds.
    rows
        The last choices and reuse periods, (n, 6): first call, calls, variant, cost, propensity (NaN for a reuse
        period), overhead in seconds.
    """

    variants: Sequence[Variant]
    calls: int
    reused: int
    mean_cost: float
    chosen: float
    chosen_error: float
    choice_seconds: float
    own_seconds: float
    in_seconds: bool
    rows: FloatArray

    def __str__(self) -> str:
        lines = [
            "| variant | calls | share, % | failures | mean cost | if always called |",
            "|---|---:|---:|---:|---:|---:|",
        ]
        for each in self.variants:
            share = 100 * each.calls / self.calls if self.calls else 0.0
            estimate = "–" if math.isnan(each.always) else f"{self._text(each.always)} ± {self._text(each.error)}"
            cells = (each.name, each.calls, f"{share:.1f}", each.failures, self._text(each.mean_cost), estimate)
            lines.append(f"| {' | '.join(map(str, cells))} |")
        return "\n".join([*lines, "", *self._sentences()])

    def _sentences(self) -> list[str]:
        own = self.own_seconds / self.calls if self.calls else math.nan
        said = [
            f"{self.calls} calls, {self._text(self.mean_cost)} each; the tuner itself took {_seconds(own)} per call, "
            f"{_seconds(self.choice_seconds)} if it chose."
        ]
        if self.reused:
            said.append(
                f"In {self.reused} calls it reused with the best variant, since a choice costs more than it saves."
            )
        known = [each for each in self.variants if not math.isnan(each.always)]
        if known:
            best = min(known, key=lambda each: each.always)
            said.append(
                f"With a choice, a call cost {self._text(self.chosen)} ± {self._text(self.chosen_error)}; always "
                f"{best.name}, the best by inverse propensities, {self._text(best.always)} ± {self._text(best.error)}."
            )
        else:
            said.append(
                "To estimate the cost of always calling one variant, use a policy that explores, such as explore=0.02."
            )
        return said

    def _text(self, cost: float) -> str:
        if math.isnan(cost):
            return "–"
        return _seconds(cost) if self.in_seconds else f"{cost:.4g}"

    def draw(self, path: str | os.PathLike[str]) -> None:
        """Draw the called variants and the costs over time; needs matplotlib."""
        with checks.needing("a figure", "study"):
            from undertow.support.figure import LEGEND, SMALL, panels, plain_axis, save_sheet

        sheet, (when, cost) = panels(4.6, 2, 1, sharex=True)
        centres, shares = self._shares()
        colours = _colours(len(self.variants))
        when.stackplot(centres, shares, labels=[each.name for each in self.variants], colors=colours)
        when.set_ylim(0, 100)
        plain_axis(when, "Which variant was called", "% of calls")
        ends, means = self._means()
        cost.plot(ends, means, color="#000000", lw=1.5)
        for each, shade in zip(self.variants, colours, strict=True):
            if not math.isnan(each.always):
                cost.axhline(each.always, color=shade, ls="--", lw=1)
        if len(means) and (means > 0).all() and means.max() > 20 * means.min():
            cost.set_yscale("log")
        unit = ", seconds" if self.in_seconds else ""
        title = "What calls cost: mean of each part; dashed: if always called, by inverse propensities"
        plain_axis(cost, title, f"cost{unit}", "call")
        sheet.legend(ncols=4, **LEGEND | {"fontsize": SMALL})
        save_sheet(sheet, Path(path), dpi=130)

    def _parts(self) -> tuple[FloatArray, npt.NDArray[np.int64]]:
        """Return the ends of up to 60 parts of the calls, and the part of each row."""
        first, calls = self.rows[:, 0], self.rows[:, 1]
        begin, end = (first[0], first[-1] + calls[-1]) if len(first) else (0.0, 1.0)
        edges = np.linspace(begin, end, min(_BINS, max(len(first) // 10, 1)) + 1)
        return edges[1:], np.clip(np.searchsorted(edges[1:], first + calls / 2), 0, len(edges) - 2)

    def _shares(self) -> tuple[FloatArray, FloatArray]:
        ends, part = self._parts()
        shares = np.zeros((len(self.variants), len(ends)))
        np.add.at(shares, (self.rows[:, 2].astype(np.int64), part), self.rows[:, 1])
        total = shares.sum(axis=0)
        return ends[total > 0], 100 * shares[:, total > 0] / total[total > 0]

    def _means(self) -> tuple[FloatArray, FloatArray]:
        ends, part = self._parts()
        calls = np.bincount(part, self.rows[:, 1], len(ends))
        cost = np.bincount(part, self.rows[:, 3], len(ends))
        return ends[calls > 0], cost[calls > 0] / calls[calls > 0]


def report_of(names: Sequence[str], ledger: Ledger, *, explores: bool, in_seconds: bool) -> Report:
    """Return the report of a ledger."""
    rows = ledger.rows()
    choices = rows[~np.isnan(rows[:, 4])]
    variants = []
    for arm, name in enumerate(names):
        always = inverse_propensity(choices, arm) if explores else (math.nan, math.nan)
        mean = ledger.totals[arm] / ledger.counts[arm] if ledger.counts[arm] else math.nan
        variants.append(Variant(name, ledger.counts[arm], ledger.failures[arm], mean, *always))
    ran = sum(ledger.counts)
    mean_cost = sum(ledger.totals) / ran if ran else math.nan
    costs = choices[:, 3]
    chosen = float(costs.mean()) if len(costs) else math.nan
    error = float(costs.std() / math.sqrt(len(costs))) if len(costs) else math.nan
    seconds = (ledger.seconds, ledger.own_seconds)
    return Report(variants, ledger.calls, ledger.reused, mean_cost, chosen, error, *seconds, in_seconds, rows)


def inverse_propensity(choices: FloatArray, arm: int) -> tuple[float, float]:
    """Return the mean cost if a variant were always called, and the standard error.

    Σ w c / Σ w, w = 1[chosen] / propensity: self-normalised, since costs are far from 0. NaN if its weight is less than
    a hundred calls, or if a single round has a tenth of it.
    """
    played = choices[:, 2] == arm
    weights = np.where(played, 1 / choices[:, 4], 0.0)
    total = weights.sum()
    if total < _FEW or weights.max() > total / 10:
        return math.nan, math.nan
    mean = float((weights * choices[:, 3]).sum() / total)
    return mean, float(np.sqrt((weights**2 * (choices[:, 3] - mean) ** 2).sum()) / total)


def _colours(count: int) -> list[str]:
    from undertow.support.figure import ARMS

    return [ARMS[place % len(ARMS)] for place in range(count)]


def _seconds(value: float) -> str:
    """Return a time, as in "12.3 µs"."""
    if math.isnan(value):
        return "–"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-6:.3g} µs"
