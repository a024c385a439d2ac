"""The figures of a replay and of a diagnosis."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from undertow.replay.diagnosis import Diagnosis
from undertow.replay.full import Replay
from undertow.replay.logged import ESTIMATORS, LOGGED, LogReplay
from undertow.replay.table import Table
from undertow.replay.verdict import answer_on_log, answer_on_table
from undertow.support.checks import FloatArray
from undertow.support.drawing import Sheet
from undertow.support.figure import ARMS, LEGEND, SMALL, Figure, line_styles, panels, plain_axis, write_figure
from undertow.support.numbers import with_interval

__all__ = [
    "draw_diagnosis",
    "draw_log",
    "draw_replay",
    "sheet_of_diagnosis",
    "sheet_of_estimates",
    "sheet_of_shares",
]

_GREY = "#777777"
_POINTS, _CELLS = 500, 240  # of a line over rounds, and of a strip
_SMOOTH = 60  # windows of a smoothed line
_NAMES = {"rejection": "rejection", "ips": "IPS", "snips": "self-normalised IPS", "dr": "doubly robust"}


def _reach(value: float, low: float, high: float) -> list[list[float]]:
    """Return the lengths of an interval on both sides; rounding may move a value out of a narrow one."""
    return [[max(value - low, 0.0)], [max(high - value, 0.0)]]


def _by_policy(names: Sequence[str], height: float, x: str, mark: str, at: Sequence[float]) -> tuple[Sheet, Axes]:
    """Return a figure with one row per policy, and a mark with its interval across all of them."""
    sheet, axis = panels(height * len(names) + 1.1)
    plain_axis(axis, x=x)
    value, low, high = at
    axis.axvspan(low, high, color="#DDDDDD", lw=0)
    axis.axvline(value, color="black", lw=1.2, ls="--", label=mark)
    axis.set_yticks(range(len(names)), names, fontsize=SMALL)
    axis.set_ylim(len(names) - 0.5, -0.5)  # the first on top
    return sheet, axis


def _ranked(result: Replay) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Return the rows of the policies, the best first, and that of the best fixed arm."""
    fixed = result.summary.filter(pl.col("policy").str.starts_with("best fixed arm")).row(0, named=True)
    return result.summary.filter(pl.col("kind") == "policy"), fixed


def sheet_of_shares(result: Replay) -> Sheet:
    """Draw the total share won by every policy."""
    table, fixed = _ranked(result)
    x = "share won, %: 0 is any arm at random, 100 the best arm of every round"
    won = [100 * fixed[name] for name in with_interval("share")]
    sheet, axis = _by_policy(table["policy"].to_list(), 0.27, x, fixed["policy"], won)
    axis.axvline(0, color=_GREY, lw=0.8)
    styles = line_styles(contender.label for contender in result.policies)
    for place, row in enumerate(table.iter_rows(named=True)):
        value, low, high = (100 * row[name] for name in with_interval("share"))
        shade = styles[row["policy"]]["color"]
        axis.errorbar(value, place, xerr=_reach(value, low, high), fmt="o", ms=5, color=shade)
    sheet.legend(**LEGEND)
    return sheet


def draw_replay(result: Replay, folder: Path) -> list[Figure]:
    """Draw the share won by every policy, in total and over rounds."""
    _, verdict = answer_on_table(result)
    caption = (
        f"What each policy won of the gap between any arm at random and a clairvoyant, with 95 % intervals from a "
        f"bootstrap of blocks of {result.block} rounds; the dashed line is the best fixed arm in hindsight. "
        f"{verdict}"
    )
    return [
        write_figure(*_arms_over_time(result), folder),
        write_figure(sheet_of_shares(result), "shares", "What each policy won", caption, folder),
        write_figure(*_over_rounds(result), folder),
    ]


def _arms_over_time(result: Replay) -> tuple[Sheet, str, str, str]:
    """Draw the arms' rewards over time, the best arm, and the arms that the best policy played."""
    table, rewards = result.table, result.table.payoffs
    label = _ranked(result)[0]["policy"][0]
    width = max(1, len(rewards) // _SMOOTH)
    kernel = np.ones(width) / width
    smooth = np.stack([np.convolve(_extended(column, width), kernel, "valid") for column in rewards.T], axis=1)
    shown = np.sort(np.argsort(-smooth.mean(axis=0), kind="stable")[: len(ARMS)])
    colours = np.full(len(table.arms), len(ARMS))
    colours[shown] = np.arange(len(shown))
    sheet, (top, strip) = panels(4.2, 2, sharex=True, height_ratios=(5, 1.2))
    when, sign = _times(result), -1 if table.minimize else 1
    at = np.unique(np.linspace(0, len(rewards) - 1, _POINTS).astype(int))
    every = "" if width == 1 else f", mean of {width:,} rounds"
    plain_axis(top, y=f"{'cost' if table.minimize else 'reward'}{every}")
    for place, arm in enumerate(shown):
        values = np.where(np.isnan(_gaps(table)[at, arm]), np.nan, sign * smooth[at, arm])
        top.plot(when[at], values, color=ARMS[place], lw=1.4, label=table.arms[arm])
    best, played = smooth.argmax(axis=1), result.choices[label][0]
    cells = np.unique(np.linspace(0, len(rewards), min(len(rewards), _CELLS) + 1).astype(int))
    middle = (cells[:-1] + cells[1:] - 1) // 2
    shades = [*map(to_rgb, ARMS), to_rgb("#999999")]
    edges = np.append(when[cells[:-1]], when[-1])
    for row, arms in enumerate((best[middle], _most_played(played, cells))):
        colour = np.array([shades[colours[arm]] for arm in arms])[None]
        strip.pcolormesh(edges, [1.08 - row, 1.92 - row], colour, rasterized=True)
    plain_axis(strip, x=_time_name(result))
    strip.set_yticks([1.5, 0.5], ["best", "played"])
    strip.tick_params(left=False)
    strip.spines["left"].set_visible(False)
    _time_axis(strip, when)
    sheet.legend(*top.get_legend_handles_labels(), ncols=3, **LEGEND)
    others = len(table.arms) - len(shown)
    caption = (
        f"Above: what each arm {'cost' if table.minimize else 'paid'}{every}"
        + (f"; the {others} arms with the lowest means are left out, and grey below" if others else "")
        + f". Below: the arm that was best by these lines, and the one that {label} played most."
    )
    return sheet, "arms", f"The arms, and what {label} played", caption


def _gaps(table: Table) -> FloatArray:
    """Return rewards with NaN in gaps."""
    assert table.rewards is not None
    return table.rewards


def _extended(column: FloatArray, width: int) -> FloatArray:
    """Return a series with its first and last values repeated, so that its moving mean has the same length."""
    return np.pad(column, ((width - 1) // 2, width - 1 - (width - 1) // 2), mode="edge")


def _most_played(arms: npt.NDArray[np.int64], cells: npt.NDArray[np.int64]) -> list[int]:
    return [int(np.bincount(arms[start:stop]).argmax()) for start, stop in itertools.pairwise(cells)]


def _times(result: Replay) -> npt.NDArray[Any]:
    """Return each round's position on the time axis: its time in the data, or its number."""
    times = result.table.times
    return np.arange(1, result.table.rounds + 1) if times is None else times.to_numpy()


def _time_name(result: Replay) -> str:
    return result.table.columns.time or "round"


def _time_axis(axis: Axes, when: npt.NDArray[Any]) -> None:
    axis.set_xlim(when[0], when[-1])
    if when.dtype.kind == "M":
        locator = AutoDateLocator(maxticks=8)  # type: ignore[no-untyped-call]
        axis.xaxis.set_major_locator(locator)
        axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        axis.xaxis.get_offset_text().set_fontsize(SMALL)
    else:
        axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))


def _over_rounds(result: Replay) -> tuple[Sheet, str, str, str]:
    rewards = result.table.payoffs
    best = int(rewards.mean(axis=0).argmax())
    at = np.unique(np.linspace(0, len(rewards) - 1, _POINTS).astype(int))
    when = _times(result)
    sheet, axis = panels(3.4)
    plain_axis(axis, y="earned beyond the best fixed arm", x=_time_name(result))
    axis.axhline(0, color="black", lw=1.2, ls="--", label=f"best fixed arm: {result.table.arms[best]}")
    low, high = 0.0, 0.0
    styles = line_styles(contender.label for contender in result.policies)
    order = _ranked(result)[0]["policy"].to_list()  # as in the table
    for contender in sorted(result.policies, key=lambda one: order.index(one.label)):
        ahead = np.cumsum(result.rewards(contender.label) - rewards[:, best])
        axis.plot(when[at], ahead[at], **(styles[contender.label] | {"lw": 1.5}))
        if contender.policy != "random":  # whose curve would squeeze all others
            low, high = min(low, float(ahead.min())), max(high, float(ahead.max()))
    if high > low:
        axis.set_ylim(low - 0.1 * (high - low), high + 0.05 * (high - low))
    _time_axis(axis, when)
    sheet.legend(ncols=3, **LEGEND)
    caption = (
        "Rewards summed up over rounds, less those of the best fixed arm in hindsight. A line that rises wins; one "
        "that falls at first and rises later pays for learning. Random may leave the scale."
    )
    return sheet, "rounds", "Where it was won and lost", caption


def sheet_of_estimates(result: LogReplay) -> Sheet:
    """Draw the estimates of every policy and fixed arm, and the mean of the logged rewards."""
    table = result.summary.filter(pl.col("kind") != "log")
    logged = result.summary.filter(pl.col("policy") == LOGGED).row(0, named=True)
    names = [f"{row['policy']}{' !' if row['warning'] else ''}" for row in table.iter_rows(named=True)]
    earned = [logged[name] for name in with_interval("dr")]
    sheet, axis = _by_policy(
        names, 0.42, f"mean {'cost' if result.table.minimize else 'reward'} per round", LOGGED, earned
    )
    for row, name in enumerate(ESTIMATORS):
        value, low, high = (table[column].to_numpy() for column in with_interval(name))
        place = np.arange(table.height) + 0.17 * (row - 1.5)
        spread = np.nan_to_num(np.stack([value - low, high - value]))
        look: dict[str, Any] = {"fmt": "osD^"[row], "ms": 3.5, "lw": 1.1, "color": ARMS[row]}
        axis.errorbar(value, place, xerr=np.maximum(spread, 0), label=_NAMES[name], **look)
    sheet.legend(ncols=5, **LEGEND)
    return sheet


def draw_log(result: LogReplay, folder: Path) -> list[Figure]:
    """Draw the estimates, with a caption."""
    _, verdict = answer_on_log(result)
    caption = (
        f"Estimates of what each policy, and each fixed arm, would have earned, with 95 % intervals from a bootstrap "
        f"of blocks of {result.block} rounds; the dashed line is the mean of the log. {verdict}"
    )
    if result.warnings:
        caption += " An exclamation mark flags estimates with too few rounds behind them."
    return [
        write_figure(sheet_of_estimates(result), "estimates", "What each policy would have earned", caption, folder)
    ]


def sheet_of_diagnosis(found: Diagnosis) -> Sheet:
    """Draw autocorrelations, the variation explained by windows, and possible gains, in one figure."""
    sheet, (left, middle, right) = panels(3.1, columns=3)
    _autocorrelations(left, found)
    _windows(middle, found)
    if left.get_legend_handles_labels()[0]:
        sheet.legend(*left.get_legend_handles_labels(), ncols=3, **LEGEND)
    names = ["fixed arm,\nhindsight", "best arm\nso far", "best rule\nso far"]
    plain_axis(right, "what can be won", "share won, %")
    right.bar(0, 100 * found.fixed_share, color="#BBBBBB", width=0.6)
    for place, part in enumerate((found.fixed_ahead, found.rule_share), start=1):
        value, low, high = (100 * number for number in part)
        right.bar(place, value, color=(ARMS[1], ARMS[0])[place - 1], width=0.6)
        right.errorbar(place, value, _reach(value, low, high), fmt="none", ecolor="black", lw=1.2, capsize=3)
    right.axhline(0, color=_GREY, lw=0.8)
    right.set_xticks(range(3), names, fontsize=SMALL - 1)
    right.set_ylim(min(0, *right.get_ylim()), 100)
    return sheet


def draw_diagnosis(found: Diagnosis, folder: Path) -> list[Figure]:
    """Draw the diagnosis, with a caption."""
    caption = (
        f"Left: autocorrelation of each arm's relative reward, in grey what chance would give. Middle: how much of the "
        "relative rewards' variation about the mean of all rounds before is explained by the mean of the last w "
        "rounds, and by a regression on them (what is below −10 % is drawn there). "
        f"Right: the share of a clairvoyant's gain that is won by {found.best_arm} in hindsight over all rounds, and "
        "on the second half by the arm that was best so far and the rule that had earned most so far, with "
        "95 % intervals."
    )
    return [write_figure(sheet_of_diagnosis(found), "diagnosis", "What the table shows", caption, folder)]


def _autocorrelations(axis: Axes, found: Diagnosis) -> None:
    plain_axis(axis, "autocorrelation", x="lag, rounds")
    few = len(found.arms) <= len(ARMS)
    lags: Sequence[int] = range(1, len(next(iter(found.autocorrelation.values()))) + 1)
    axis.axhspan(-found.chance, found.chance, color="#DDDDDD", lw=0)
    axis.axhline(0, color=_GREY, lw=0.8)
    for place, (name, values) in enumerate(found.autocorrelation.items()):
        look: dict[str, Any] = {"color": ARMS[0], "lw": 0.7, "alpha": 0.5}
        if few:
            look = {"color": ARMS[place], "lw": 1.2, "label": name}
        axis.plot(lags, values, ls="--" if place % 2 and few else "-", **look)


def _windows(axis: Axes, found: Diagnosis) -> None:
    plain_axis(axis, "explained, %", x="window w, rounds")
    bottom = -10.0
    for values, label, shade in ((found.averages, "mean", ARMS[1]), (found.regressions, "regression", ARMS[0])):
        heights = [max(100 * value, bottom) for value in values.values()]
        axis.plot(list(values), heights, marker="o", ms=3, lw=1.2, color=shade, label=label)
    axis.axhline(0, color=_GREY, lw=0.8)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axis.set_ylim(bottom, 100)
    axis.yaxis.set_major_locator(MaxNLocator(6))
    axis.legend(fontsize=SMALL - 1, frameon=False)
