"""The figures of a study, from its tables alone.

Each figure is drawn only if the plan has its systems and policies, so any comparison gets the general ones. The
settings of matplotlib are not changed, and no window is opened.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from undertow.equations.riccati import spectral_radius
from undertow.errors import UndertowError
from undertow.study.chunks import Tables
from undertow.study.plan import Plan, SystemSpec
from undertow.study.summary import Array, Final, final_regret, ratios, winners
from undertow.support.figure import (
    ARMS,
    LEGEND,
    SMALL,
    WIDTH,
    Figure,
    colour,
    line_styles,
    log_scale,
    panels,
    plain_axis,
    write_figure,
)
from undertow.support.numbers import number, signed
from undertow.system import LinearGaussianSystem
from undertow.theory import full_information_regret, true_noise_bound
from undertow.window import window_errors

__all__ = ["draw_figures"]

_DEEPEST = 100  # per cent; those who know the system, or learn it, have far less regret than ARES


def draw_figures(plan: Plan, tables: Tables, folder: Path) -> list[Figure]:
    """Draw the plan's figures to `folder / "figures"`, as PNG and SVG; return the figures in reading order."""
    figures = []
    for name, draw in (("regret", _regret), ("width_window", _widths), ("errors", _errors), ("best", _best)):
        if (drawn := draw(plan, tables)) is not None:
            figures.append(write_figure(drawn[0], name, *drawn[1:], folder))
    return figures


_Drawn = tuple[Sheet, str, str] | None


def _regret(plan: Plan, tables: Tables) -> _Drawn:
    """Draw final regret against that of ARES, run by run, and every policy's regret over rounds."""
    ares, systems, final = _ares(plan), plan.systems, final_regret(plan, tables)
    others = [spec.label for spec in plan.policies if spec.label != ares]
    right = f"the median over runs of regret divided by that of {plan.baseline} on the same path"
    best = _winners(plan, final)
    if ares is None or not others:
        return _only_paths(plan, tables), "Regret over rounds", f"Each line is {right}.{best}"
    styles = line_styles(spec.label for spec in plan.policies)
    shared: dict[str, Any] = {"sharex": "col", "sharey": "col", "width_ratios": (6, 5)}
    sheet, axes = panels(1.72 * len(systems) + 1.5, len(systems), 2, squeeze=False, **shared)
    for (left, path), spec in zip(axes, systems, strict=True):
        plain_axis(left, _heading(spec), f"decrease by {ares}, %")
        plain_axis(path, "", f"regret / {plan.baseline}")
        _boxes(left, {other: _decrease(final, spec, ares, other) for other in others}, styles)
        _paths(path, plan, tables, spec)
    axes[-1, 0].set_xticks(range(len(others)), others, rotation=90)
    axes[-1, 1].set_xlabel("round", fontsize=SMALL)
    below = {"loc": "upper left", "bbox_to_anchor": (-0.16, -0.34), "borderaxespad": 0, "columnspacing": 1}
    axes[-1, 1].legend(ncols=2, fontsize=SMALL, frameon=False, **below)
    ends = {spec.label: float(np.median(ratios(plan, final, spec.label, ares))) for spec in systems}
    caption = (
        f"Left: by how many per cent {ares} decreases the regret of the other policy after {plan.rounds:,} rounds on "
        "the same path, as in the paper. Boxes span the quartiles, whiskers 5 to 95 %. Below 0 "
        f"{ares} has more regret; the axis ends where it has twice as much. "
        f"Right: {right}; {ares} ends at {_words(ends)}.{best}"
    )
    return sheet, _titled(plan, f"Regret against {ares}, and over rounds", 3), caption


def _titled(plan: Plan, title: str, number: int) -> str:
    """Return the title of a figure, with the figure of the paper that it repeats."""
    return f"{title} (Figure {number} of the paper)" if plan.name == "paper" else title


def _only_paths(plan: Plan, tables: Tables) -> Sheet:
    """Draw regret over rounds, one panel per system."""
    systems, shown = _present(plan, tables.regret), _shown(plan)
    columns = min(2, len(systems))
    rows = math.ceil(len(systems) / columns)
    height = 2.2 * rows + 0.6 + 0.17 * math.ceil(len(shown) / 3)
    sheet, axes = panels(height, rows, columns, squeeze=False, sharey=True)
    for axis, spec in zip(axes.flat, systems, strict=False):
        plain_axis(axis, _heading(spec), f"regret / {plan.baseline}", "round")
        _paths(axis, plan, tables, spec)
    for axis in axes.flat[len(systems) :]:
        axis.set_axis_off()
    sheet.legend(handles=axes[0, 0].get_lines(), ncols=3, **LEGEND)
    return sheet


def _boxes(axis: Axes, times: dict[str, Array], styles: dict[str, dict[str, Any]]) -> None:
    """Draw box plots of the share of each policy's regret that ARES saves, in per cent."""
    axis.axhline(0, color="#777777", lw=0.8, zorder=0)
    for place, (label, values) in enumerate(times.items()):
        if len(values):
            shade = styles[label]["color"]
            line = {"color": shade, "linewidth": 1.0}
            box = {"facecolor": (*to_rgb(shade), 0.5), "edgecolor": shade}
            parts: dict[str, Any] = {"whiskerprops": line, "capprops": line, "boxprops": box, "widths": 0.62}
            parts |= {"medianprops": {"color": "black"}, "whis": (5, 95), "showfliers": False, "patch_artist": True}
            axis.boxplot([values], positions=[place], manage_ticks=False, **parts)
    axis.set(xlim=(-0.7, len(times) - 0.3), xticks=range(len(times)), ylim=(-_DEEPEST, 100))
    axis.tick_params(axis="x", length=0)


def _paths(axis: Axes, plan: Plan, tables: Tables, spec: SystemSpec) -> None:
    """Draw median regret over rounds, relative to the baseline's if that is positive."""
    regret = tables.regret.filter(pl.col("system") == spec.label)
    base = regret.filter((pl.col("policy") == plan.baseline) & (pl.col("regret") > 0))
    ratios = regret.join(base.select("run", "round", base="regret"), on=["run", "round"])
    medians = ratios.group_by("policy", "round").agg(ratio=(pl.col("regret") / pl.col("base")).median()).sort("round")
    styles = line_styles(spec.label for spec in plan.policies)
    for label in _shown(plan):
        line = medians.filter((pl.col("policy") == label) & (pl.col("ratio") > 0))
        axis.plot(line["round"].to_numpy(), line["ratio"].to_numpy(), **styles[label])
    log_scale(axis)
    axis.set(xlim=(0, plan.rounds), xticks=np.linspace(0, plan.rounds, 5))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _widths(plan: Plan, tables: Tables) -> _Drawn:
    """Draw width and window of ARES over rounds, for each arm."""
    ares = _ares(plan)
    detail = tables.detail.filter(pl.col("policy") == ares) if ares else tables.detail.clear()
    systems = _present(plan, detail)
    if not systems:
        return None
    means = detail.group_by("system", "arm", "round").agg(pl.col("width", "window").mean()).sort("arm", "round")
    arms = range(max(spec.system.arm_count for spec in systems))
    sheet, axes = panels(1.4 * len(systems) + 0.7, len(systems), 2, squeeze=False, sharex=True, sharey="col")
    for row, spec in zip(axes, systems, strict=True):
        part = means.filter(pl.col("system") == spec.label)
        for axis, name, sign in zip(row, ("width", "window"), "us", strict=True):
            plain_axis(axis, f"{spec.label}: mean {name}", f"{name} {sign}")
            for arm in arms:
                line = part.filter(pl.col("arm") == arm)
                look = {"color": ARMS[arm % len(ARMS)], "ls": ("-", "--", ":")[arm % 3], "label": f"arm {arm + 1}"}
                axis.plot(line["round"].to_numpy(), line[name].to_numpy(), lw=1.5, **look)
    log_scale(axes[0, 0])
    axes[0, 1].yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes[0, 1].set(ylim=(0, None), xlim=(0, plan.rounds), xticks=np.linspace(0, plan.rounds, 5))
    axes[0, 1].xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    for axis in axes[-1]:
        axis.set_xlabel("round", fontsize=SMALL)
    sheet.legend(handles=axes[0, 0].get_lines(), ncols=6, **LEGEND)
    late = means.filter(pl.col("round") > 0.9 * plan.rounds).group_by("system", "arm").agg(pl.col("window").mean())
    windows = {spec.label: late.filter(pl.col("system") == spec.label).sort("arm")["window"] for spec in systems}
    words = [f"{' and '.join(f'{s:.1f}' for s in values)} ({label})" for label, values in windows.items()]
    caption = (
        f"How unsure {ares} is of each arm (left, log scale) and how many past contexts it uses (right), means over "
        f"runs. In the last tenth of the rounds the mean windows are, arm by arm, {'; '.join(words)}."
    )
    return sheet, _titled(plan, f"Width and window of {ares}", 4), caption


def _errors(plan: Plan, tables: Tables) -> _Drawn:
    """Draw the mean absolute error of PIES against its window, for each system and arm."""
    given = {spec.label: spec.parameters.get("window") for spec in plan.policies if spec.policy == "pies"}
    windows = {label: s for label, s in given.items() if isinstance(s, int)}
    late = (pl.col("round") > plan.rounds / 2) & (pl.col("plays") > 0) & pl.col("policy").is_in(list(windows))
    detail = tables.detail.filter(late)
    systems = _present(plan, detail)
    if not systems or len(windows) < 2:
        return None
    w, e = pl.col("plays"), pl.col("error")
    runs = detail.group_by("system", "policy", "arm", "run").agg(error=(e * w).sum() / w.sum(), plays=w.sum())
    mean = (e * w).sum() / w.sum()
    spread = ((w * (e - mean)) ** 2).sum().sqrt() / w.sum() * (pl.len() / (pl.len() - 1).clip(1)).sqrt()
    means = runs.group_by("system", "policy", "arm").agg(mean=mean, spread=spread)
    means = means.with_columns(window=pl.col("policy").replace_strict(windows, return_dtype=pl.Int64)).sort("window")
    columns = max(spec.system.arm_count for spec in systems)
    size = {"height": 1.45 * len(systems) + 0.4, "width": max(WIDTH, 2.4 * columns)}
    sheet, axes = panels(rows=len(systems), columns=columns, **size, squeeze=False, sharex=True)
    changes, deepest = [], (0.0, "")
    for row, spec in zip(axes, systems, strict=True):
        limit = _or_none(lambda system: np.sqrt(2 / math.pi * window_errors(system, max(windows.values()))), spec)
        for arm, axis in enumerate(row[: spec.system.arm_count]):
            plain_axis(axis, f"{spec.label}, arm {arm + 1}", "" if arm else "mean |X − Ĝ'Θ|")
            part = means.filter((pl.col("system") == spec.label) & (pl.col("arm") == arm))
            s, error, half = (part[name].to_numpy() for name in ("window", "mean", "spread"))
            if limit is not None:
                axis.plot(s, limit[s, arm], color="#777777", lw=1.2, ls=(0, (3, 2)))
                below = (limit[s, arm] - error) / np.where(half > 0, half, np.inf)
                names = (f"s = {window}, {spec.label}, arm {arm + 1}" for window in s)
                deepest = max([deepest, *zip(below.tolist(), names, strict=True)])
            axis.errorbar(s, error, half, color=colour("PIES(6)"), marker="o", ms=4, lw=1.3, capsize=2.5)
            axis.xaxis.set_major_locator(MaxNLocator(10, integer=True))
            if len(s):
                changes.append(f"{signed(100 * (error[-1] / error[0] - 1))} % ({spec.label}, arm {arm + 1})")
        for axis in row[spec.system.arm_count :]:
            axis.set_axis_off()
    for axis in axes[-1]:
        axis.set_xlabel("window s of PIES", fontsize=SMALL)
    caption = (
        "Mean absolute error of PIES's forecasts against its window, over the second half of the rounds, weighted by "
        "plays, ± standard error over runs; the dashed line is what the best forecast from a window of that length "
        "expects in the long run. Points can lie below it by chance: the system's swings last long, and all windows "
        "are measured on the same paths, so that the points of a panel are high or low together. "
        f"{_below(*deepest)}From the shortest window to the longest it changes by {', '.join(changes)}."
    )
    return sheet, _titled(plan, "Forecast errors of PIES against its window", 5), caption


def _below(errors: float, where: str) -> str:
    return f"The one furthest below is {errors:.1f} standard errors away ({where}). " if errors > 0 else ""


def _best(plan: Plan, tables: Tables) -> _Drawn:
    """Draw the final regret of the learners that use contexts, of ARES's relatives, the oracles and the lower bound."""
    final, systems = final_regret(plan, tables), plan.systems
    rows = [spec for spec in plan.policies if spec.policy != "pies" and not spec.capabilities.needs_system]
    learners = [spec.label for spec in rows if spec.capabilities.uses_contexts or spec.policy in ("ubss", "larl")]
    if "ARES" in learners and "ARES (noise estimated)" in learners:  # as good as the same point
        learners.remove("ARES (noise estimated)")
    informed = [spec.label for spec in plan.policies if spec.policy in ("context-oracle", "kalman-greedy")]
    shown = list(dict.fromkeys([plan.baseline, *learners, *informed]))[1:]
    if not learners or not shown:
        return None
    sheet, axis = panels(4.6)
    plain_axis(axis, y=f"final regret / {plan.baseline}")
    styles = line_styles(spec.label for spec in plan.policies)
    axis.axhline(1, color=styles[plan.baseline]["color"], lw=1.2, label=plan.baseline)
    bounds: dict[str, float] = {}
    bars: list[_Bar] = []
    for place, spec in enumerate(systems):
        for i, label in enumerate(shown):
            values = ratios(plan, final, spec.label, label)
            x = place + 0.8 * ((i + 0.5) / len(shown) - 0.5)
            if values.min() > 0:
                low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
                known = label in axis.get_legend_handles_labels()[1]
                look: dict[str, Any] = {"fmt": "oDs^vPX"[i % 7], "ms": 5, "color": styles[label]["color"], "lw": 1.3}
                axis.errorbar(x, middle, [[middle - low], [high - middle]], label=None if known else label, **look)
                bars.append(_Bar(x, low, middle, high))
        bound, base = _or_none(full_information_regret, spec), final[spec.label, plan.baseline].mean()
        if bound is not None and bound.value > 0 and base > 0:
            bounds[spec.label] = bound.value * plan.rounds / base
            axis.hlines(bounds[spec.label], place - 0.42, place + 0.42, color="black", lw=1.3, ls=":")
    log_scale(axis)
    axis.set_xlim(-0.5, len(systems) - 0.5)
    axis.margins(y=0.1)
    _annotate(axis, bars)
    axis.set_xticks(range(len(systems)), [spec.label for spec in systems], fontsize=SMALL + 1)
    axis.tick_params(axis="x", length=0)
    caption = (
        f"Regret after {plan.rounds:,} rounds relative to {plan.baseline}: medians over runs, bars from quartile to "
        f"quartile.{_winners(plan, final)}"
    )
    if bounds:
        axis.plot([], color="black", lw=1.3, ls=":", label="lower bound for any policy")
        caption += f" The dotted line is what no policy can beat in the long run: {_words(bounds)}."
    sheet.legend(ncols=3, **LEGEND)
    return sheet, "The best learners, and what is left to gain", caption


class _Bar(NamedTuple):
    """A median between its quartiles, and its place."""

    x: float
    low: float
    middle: float
    high: float


def _annotate(axis: Axes, bars: Sequence[_Bar]) -> None:
    """Write each median at its bar, in the nearest free place, if any."""
    bottom, top = np.log(axis.get_ylim())
    left, right = axis.get_xlim()
    line, half, mark = 0.045 * (top - bottom), 0.019 * (right - left), 0.006 * (right - left)
    taken = [(bar.x, math.log(bar.middle), mark) for bar in bars]
    look: dict[str, Any] = {"ha": "center", "va": "center", "size": SMALL - 1}
    look["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}  # lines stop at the numbers
    for bar in bars:
        room: dict[float, float] = {}
        for away in (line, 1.5 * line, 2 * line, 2.5 * line):
            for place in (math.log(bar.high) + away, math.log(bar.low) - away):
                beside = [abs(y - place) for x, y, width in taken if abs(x - bar.x) < half + width]
                room[place] = min([line, *beside])
        place = max(room, key=room.__getitem__)  # the first of those with a line of room
        taken.append((bar.x, place, half))
        axis.text(bar.x, math.exp(place), number(bar.middle), **look)


def _ares(plan: Plan) -> str | None:
    labels = [spec.label for spec in plan.policies if spec.policy == "ares"]
    return "ARES" if "ARES" in labels else next(iter(labels), None)


def _present(plan: Plan, table: pl.DataFrame) -> list[SystemSpec]:
    there = set(table["system"])
    return [spec for spec in plan.systems if spec.label in there]


def _shown(plan: Plan) -> list[str]:
    """Return the labels drawn over rounds: of PIES only the shortest and the longest window."""
    pies = [spec for spec in plan.policies if spec.policy == "pies"]
    pies.sort(key=lambda spec: int(spec.parameters.get("window", 0)))
    hidden = {spec.label for spec in pies[1:-1]}
    return [spec.label for spec in plan.policies if spec.label not in hidden]


def _decrease(final: Final, spec: SystemSpec, ares: str, other: str) -> Array:
    """Return the percentage by which ARES decreases another policy's regret, run by run, if that has any."""
    mine, theirs = final[spec.label, ares], final[spec.label, other]
    return 100 * (1 - mine[theirs > 0] / theirs[theirs > 0])


def _winners(plan: Plan, final: Final) -> str:
    """Return a sentence that names the policy with the smallest median ratio on each system, without oracles."""
    named = winners(plan, final)
    return f" Of the policies that do not know the system, the smallest ratios are those of {named}." if named else ""


def _words(values: dict[str, float]) -> str:
    return ", ".join(f"{number(value)} ({name})" for name, value in values.items() if not math.isnan(value))


def _or_none(function: Callable[[LinearGaussianSystem], Any], spec: SystemSpec) -> Any:
    """Return a function of a system, or None if it does not exist for the system."""
    try:
        return function(spec.system)
    except UndertowError:
        return None


def _heading(spec: SystemSpec) -> str:
    """Return the system's label, with the error of its filter's forecasts and how slowly the filter forgets."""
    steady = _or_none(lambda system: system.steady_state, spec)
    if steady is None:
        return spec.label
    noise, radius = true_noise_bound(spec.system) ** 2, spectral_radius(steady.closed_loop)
    return f"{spec.label}:  max c'Pc + σ² = {noise:.1f},  ρ(Γ − ΓKC) = {radius:.2f}"
