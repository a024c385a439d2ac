"""The figure that only the paper's source mentions: its upper bound over measured regret."""

from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.ticker import StrMethodFormatter

from undertow.errors import NoStationaryLawError, NoSteadyStateError
from undertow.study.chunks import Tables
from undertow.study.plan import Plan
from undertow.support.figure import SMALL, Figure, panels, plain_axis, write_figure
from undertow.theory import printed_regret_bound

__all__ = ["draw_tightness"]

_WINDOWS = {1: ("#E69F00", ":"), 3: ("#0072B2", "--"), 10: ("#009E73", "-")}
_SYSTEMS = ("psi = 1", "psi = 4")


def draw_tightness(plan: Plan, tables: Tables, folder: Path) -> Figure | None:
    """Draw Corollary 1's bound over ARES's mean regret at psi = 1 and 4; None if the plan lacks them."""
    systems = [spec for spec in plan.systems if spec.label in _SYSTEMS]
    if not systems or "ARES" not in {spec.label for spec in plan.policies}:
        return None
    sheet, (axes,) = panels(2.9, columns=len(systems), squeeze=False, sharey=True)
    ends = []
    for axis, spec in zip(axes, systems, strict=True):
        ares = tables.regret.filter((pl.col("policy") == "ARES") & (pl.col("system") == spec.label))
        curve = ares.group_by("round").agg(pl.col("regret").mean()).filter(pl.col("regret") > 0).sort("round")
        if curve.is_empty():
            return None
        rounds, regret = curve["round"].to_numpy(), curve["regret"].to_numpy()
        for s, (hue, dash) in _WINDOWS.items():
            try:
                bound = np.array([printed_regret_bound(spec.system, s, int(n)) for n in rounds])
            except (NoStationaryLawError, NoSteadyStateError):
                return None
            axis.plot(rounds, bound / regret, color=hue, ls=dash, lw=1.6, label=f"s = {s}")
            if s == min(_WINDOWS):
                ends.append(f"{float(f'{bound[-1] / regret[-1]:.1g}'):,.0f} ({spec.label})")
        plain_axis(axis, spec.label, x="round")
        axis.set(xlim=(0, plan.rounds), xticks=np.linspace(0, plan.rounds, 5))
        axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes[0].set_yscale("log")
    axes[0].set_ylabel("bound / measured regret", fontsize=SMALL)
    axes[-1].legend(frameon=False, fontsize=SMALL)
    caption = (
        "Upper bound of Corollary 1 as printed, at δ = 0.1, over ARES's mean regret. The bound is of no practical use: "
        f"even at s = 1 it ends a factor of {' and '.join(ends)} above what is measured, and grows faster than regret."
    )
    return write_figure(
        sheet, "tightness", "How tight the paper's upper bound is (a figure of its source alone)", caption, folder
    )
