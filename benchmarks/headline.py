"""The comparison with other libraries: a full table, the README's short one and a figure, from quality.py and speed.py.

    python -m benchmarks.headline

Writes out/bench/headline.md and out/bench/benchmark.png.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.quality import CONTEXTS, KNOWS, ORACLE, OWN, REFERENCES, Row, median
from benchmarks.report import OUT, markdown
from benchmarks.speed import BASE
from benchmarks.tune import percent_won

BLUE, ORANGE, GREY = "#0072B2", "#E69F00", "#999999"
TITLES = {
    "random": "random systems",
    "chicago": "Chicago, %",
    "bike-sharing": "bikes, %",
    "victoria": "Victoria, %",
    "stocks": "stocks, %",
}
SHOWN = ("Autopilot", "LinUCB", "ARES")


class Line(NamedTuple):
    """A player: its name, and its rows by group and inputs."""

    name: str
    ours: bool
    rows: dict[tuple[str, str], list[Row]]

    def value(self, group: str, inputs: str) -> float | None:
        """Return the median of the measure: regret relative to KalmanGreedy, or the share won in %."""
        rows = self.rows.get((group, inputs), [])
        if any(row.error for row in rows):
            return None  # others have played more problems
        share = median(rows, "to_random")
        if any(row.to_known is not None for row in rows):
            return median(rows, "to_known")
        return None if share is None else percent_won(share)


def lines(rows: Iterable[Row]) -> list[Line]:
    """Return the players in the order of the table: those who know the system, ours, and the peers."""
    found: dict[str, Line] = {}
    for row in rows:
        ours = row.library == "undertow"
        if ours and row.policy not in (*SHOWN, *REFERENCES):
            continue
        name = (f"undertow {row.policy}" if row.policy in SHOWN else row.policy) if ours else row.library
        line = found.setdefault(name, Line(name, ours, {}))
        line.rows.setdefault((row.group, row.inputs), []).append(row)
    references = [name for name in (KNOWS, ORACLE) if name in found]
    order = [*references, *(f"undertow {name}" for name in SHOWN), *sorted(n for n in found if not found[n].ours)]
    return [found[name] for name in [*order, "Random"] if name in found]


def table(players: Sequence[Line], groups: Sequence[str], rounds: dict[str, float]) -> str:
    """Return the Markdown table; the best of those who do not know the system is bold."""
    best = {group: _best(players, group) for group in groups}
    content = {}
    for line in players:
        cells = [_cell(line, group, best[group]) for group in groups]
        time = rounds.get(line.name.lower())
        content[line.name] = [*cells, "" if time is None else f"{time / rounds[BASE]:.2g}"]
    return markdown([*(_title(group) for group in groups), "time of a round"], content)


def short_table(players: Sequence[Line], groups: Sequence[str], rounds: dict[str, float]) -> str:
    """Return the README's table: the better of both inputs, without oracles and without stocks."""
    shown = [group for group in groups if group != "stocks"]
    best = {group: _best(players, group) for group in shown}
    content = {}
    for line in players:
        if line.name not in (KNOWS, ORACLE):
            time = rounds.get(line.name.lower())
            cells = [_better(line, group, best[group]) for group in shown]
            content[line.name] = [*cells, "" if time is None else f"{time / rounds[BASE]:.2g}"]
    return markdown([*(_title(group) for group in shown), "time of a round"], content)


def _title(group: str) -> str:
    return TITLES.get(group, group.replace("psi-", "psi = "))


def _is_share(group: str) -> bool:
    return _title(group).endswith("%")


def _best(players: Sequence[Line], group: str, *, references: bool = False) -> float | None:
    values = [
        value
        for line in players
        if references or line.name not in REFERENCES
        for inputs in (CONTEXTS, OWN)
        if (value := line.value(group, inputs)) is not None
    ]
    return None if not values else max(values) if _is_share(group) else min(values)


def _better(line: Line, group: str, best: float | None) -> str:
    value = _best([line], group, references=True)
    return "–" if value is None else _bold(line, group, value, best)


def _bold(line: Line, group: str, value: float, best: float | None) -> str:
    text = f"{value:.1f}" if _is_share(group) else f"{value:.2f}" if value < 100 else f"{value:.0f}"
    return f"**{text}**" if value == best and line.name not in REFERENCES else text


def _cell(line: Line, group: str, best: float | None) -> str:
    parts = []
    for inputs in (CONTEXTS, OWN):
        rows = line.rows.get((group, inputs))
        value = line.value(group, inputs)
        if value is not None:
            parts.append(_bold(line, group, value, best))
        elif rows:
            part = median(rows, "to_known")
            parts.append("fails" if part is None else f"{part:.2f}*")
    return " / ".join(parts) if parts else "–"


def draw(players: Sequence[Line], groups: Sequence[str], file: Path) -> None:
    """Draw a panel for each group, sampled ones above recorded ones, without players that play none of a row."""
    mpl.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    halves = [group for group in groups if not _is_share(group)], [group for group in groups if _is_share(group)]
    shown = [
        [line for line in reversed(players) if line.name not in (KNOWS, "Random") and _plays(line, half)]
        for half in halves
    ]
    columns = max(map(len, halves))
    figure, axes = plt.subplots(
        2,
        columns,
        figsize=(1.9 * columns + 1.8, 7),
        sharey="row",
        squeeze=False,
        layout="constrained",
        height_ratios=[max(1, len(names)) for names in shown],
    )
    for half, names, row in zip(halves, shown, axes, strict=True):
        for group, axis in zip(half, row, strict=False):
            _panel(axis, names, group)
        for axis in row[len(half) :]:
            axis.set_axis_off()
        row[0].set_yticks(np.arange(len(names)), [line.name for line in names])
        row[0].set_ylim(-0.6, len(names) - 0.4)
    figure.legend(handles=_key(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(file, dpi=160)
    plt.close(figure)


def _plays(line: Line, groups: Iterable[str]) -> bool:
    return any((group, inputs) in line.rows for group in groups for inputs in (CONTEXTS, OWN))


def _key() -> list[Any]:
    """Return the legend of colours, dots and lines."""
    line = mpl.lines.Line2D
    colours = (
        (BLUE, "undertow"),
        (ORANGE, "other libraries, tuned"),
        (GREY, f"{ORACLE}: knows the system, ignores rewards"),
    )
    dots = (("white", "given contexts and features"), ("black", "… and own past rewards"))
    return [
        *(line([], [], color=colour, marker="s", ls="", label=label) for colour, label in colours),
        *(line([], [], color="black", marker="o", ls="", mfc=fill, label=label) for fill, label in dots),
        line([], [], color="black", lw=1, alpha=0.5, label="range over paths, systems or seeds"),
        line([], [], color="black", lw=0.8, ls=":", label=f"1: {KNOWS}, knows the system"),
    ]


def _panel(axis: Any, shown: Sequence[Line], group: str) -> None:
    """Draw the median and the range of every player: hollow with contexts and features, filled with own rewards too."""
    for height, line in enumerate(shown):
        colour = BLUE if line.name.startswith("undertow") else GREY if line.name in REFERENCES else ORANGE
        for inputs, filled in ((CONTEXTS, False), (OWN, True)):
            rows, value = line.rows.get((group, inputs), []), line.value(group, inputs)
            if value is not None:
                low, high = _range(rows, group)
                axis.plot([low, high], [height, height], color=colour, lw=1, alpha=0.5)
                axis.plot(value, height, "o", ms=5, color=colour, mfc=colour if filled else "white")
            elif rows:
                at = (1, height + 0.2 + 0.35 * (not filled))  # above the line of the other inputs
                axis.annotate(_failure(rows, inputs), at, xycoords=axis.get_yaxis_transform(), ha="right", fontsize=6.5)
    axis.set_title(_title(group).replace(", %", ""), fontsize=10)
    axis.grid(axis="x", color="#dddddd", lw=0.5)
    axis.set_axisbelow(True)
    if _is_share(group):
        axis.set_xlabel("share won, % →")
    else:
        axis.set(xscale="log", xlabel=f"← regret / {KNOWS}")
        axis.axvline(1, color="black", lw=0.8, ls=":")
        ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200) if tick <= axis.get_xlim()[1]]
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()


def _failure(rows: Sequence[Row], inputs: str) -> str:
    """Return the text in a panel instead of a dot."""
    failed = sum(row.error is not None for row in rows)
    return f"{inputs}: fails" + (f" on {failed} of {len(rows)}" if failed < len(rows) else "")


def _range(rows: Sequence[Row], group: str) -> tuple[float, float]:
    field = "to_random" if _is_share(group) else "to_known"
    values = [getattr(row, field) for row in rows]
    values = [percent_won(value) for value in values] if _is_share(group) else values
    return min(values), max(values)


def main() -> None:
    quality: dict[str, Any] = json.loads((OUT / "quality.json").read_text())
    speed = OUT / "speed.json"
    rounds = {}
    if speed.exists():
        measured = json.loads(speed.read_text())["microseconds"]
        rounds = {name: sizes["p=11, k=2"] for name, sizes in measured.items() if "p=11, k=2" in sizes}
    rows = [Row(**row) for row in quality["rows"]]
    groups = list(dict.fromkeys(row.group for row in rows))
    players = lines(rows)
    text = table(players, groups, rounds)
    machine = quality["machine"]
    where = f"{quality['date'][:10]}, {machine['cores']} cores of {machine['processor']}"
    short = short_table(players, groups, rounds)
    (OUT / "headline.md").write_text(f"{text}\n\nIn short:\n\n{short}\n\nMeasured {where}.\n")
    draw(players, groups, OUT / "benchmark.png")
    print(f"\nAll results ({where})\n\n{text}\n\nThe README's table\n\n{short}")
    print("\nwritten to out/bench/headline.md and out/bench/benchmark.png")


if __name__ == "__main__":
    main()
