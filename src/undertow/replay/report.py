"""The reports of a replay and of a diagnosis: the same page as a study's."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from undertow.replay.diagnosis import Diagnosis
from undertow.replay.diagnosis_text import answer, arm_lines, closing, describe
from undertow.replay.full import Replay
from undertow.replay.logged import LogReplay
from undertow.replay.table import Table
from undertow.replay.verdict import answer_on_log, answer_on_table
from undertow.support.figure import Figure, line_styles
from undertow.support.numbers import cells, count, with_values
from undertow.support.page import figures_html, text, write_page

__all__ = ["report_diagnosis", "report_log", "report_replay"]

_MEASURES = {
    "share": "share won, %",
    "gain_over_fixed": "gain over\nfixed, %",
    "reward": "mean reward",
    "regret_fixed": "regret:\nfixed arm",
    "regret_clairvoyant": "regret:\nclairvoyant",
}
_ESTIMATES = {
    "rejection": "rejection",
    "ips": "IPS",
    "snips": "self-normal-\nised IPS",
    "dr": "doubly\nrobust",
    "gain": "gain over\nthe log",
}


def report_replay(result: Replay, figures: Sequence[Figure], command: str, folder: Path) -> Path:
    """Write the report of a replay to `folder / "report.html"`."""
    best, verdict = answer_on_table(result)
    lead = (
        f"{verdict} {count(len(result.policies), 'policy', 'policies')} played {result.table.extent}, with "
        f"{count(len(result.table.arms), 'arm')}."
    )
    note = (
        "Share won of the gap between any arm at random (0) and the clairvoyant (100), who plays the best arm of every "
        "round; no policy can reach that, since the noise is unknown. Beyond fixed: the same between "
        "the best fixed arm in hindsight (0) and the clairvoyant, negative for less than that. Mean reward per round. "
        "Regret: what the best fixed arm, or the clairvoyant, earned more, summed over rounds. Small: 95 % intervals "
        f"from a bootstrap of blocks of {result.block} rounds, the same blocks for all. Randomised policies are "
        "averaged over runs."
    )
    measures = with_values(result.summary.to_dicts(), _MEASURES)
    rows = _measures(result.summary, measures, best)
    parts = [
        "<h2>What each policy won</h2>",
        f"<p>{text(note)}</p>",
        _table(["policy", *measures.values()], rows),
        figures_html(figures),
    ]
    return _write(f"Replay: {result.table.name}", lead, parts, result.table, result.notes, command, folder)


def report_log(result: LogReplay, figures: Sequence[Figure], command: str, folder: Path) -> Path:
    """Write the report of a replay of a log to `folder / "report.html"`."""
    best, verdict = answer_on_log(result)
    lead = (
        f"{verdict} {count(len(result.policies), 'policy', 'policies')} went through a log: "
        f"{result.table.extent}, with {count(len(result.table.arms), 'arm')}."
    )
    note = (
        "Estimated mean reward per round. A policy decides in every round of the log and learns a reward only where it "
        "chose the logged arm, so it learns less than it would live; what is estimated is the reward of the arms that "
        "it chose under these conditions. Small: 95 % intervals from a bootstrap of blocks of "
        f"{result.block} rounds, given these choices. Effective rounds: (Σw)²/Σw² of the weights w = 1/propensity "
        "where the policy's arm is the logged one. docs/replay.md lists what has to hold for "
        "these numbers to be valid."
    )
    rows = _measures(result.summary, _ESTIMATES, best)
    for row, effective in zip(rows, result.summary["effective"], strict=True):
        row.append(f"<td>{effective:,.0f}</td>")
    alarm = "".join(f'<li class="no">{text(warning)}</li>' for warning in result.warnings)
    parts = [
        f"<ul>{alarm}</ul>" if alarm else "",
        "<h2>What each policy would have earned</h2>",
        f"<p>{text(note)}</p>",
        _table(["policy", *_ESTIMATES.values(), "effective\nrounds"], rows),
        figures_html(figures),
    ]
    return _write(f"Replay: {result.table.name}", lead, parts, result.table, result.notes, command, folder)


def report_diagnosis(found: Diagnosis, table: Table, figures: Sequence[Figure], command: str, folder: Path) -> Path:
    """Write a diagnosis to `folder / "report.html"`."""
    head, *lines = arm_lines(found)
    rows = [[f'<th scope="row">{text(row[0])}</th>', *(f"<td>{text(cell)}</td>" for cell in row[1:])] for row in lines]
    parts = [
        *(f"<h2>{text(title)}</h2>\n<p>{text(words)}</p>" for title, words in describe(found)),
        "<h2>Autocorrelation of each arm's relative reward</h2>",
        _table(list(head), rows),
        f'<p class="soft">{text(closing(found))}</p>' if closing(found) else "",
        figures_html(figures),
    ]
    title = f"Is {table.name} a problem of this kind?"
    return _write(title, answer(found), parts, table, table.notes, command, folder)


def _measures(summary: pl.DataFrame, measures: dict[str, str], best: str) -> list[list[str]]:
    """Return the cells of a summary, one row per policy, with as many digits as the intervals support."""
    table = summary.to_dicts()
    rows, styles = [], line_styles(row["policy"] for row in table if row["kind"] == "policy")
    for row, spells in zip(table, cells(table, measures), strict=True):
        if row["kind"] == "policy":
            shade = styles[row["policy"]]["color"]
            name = f'<span class="dot" style="background:{shade}"></span>{text(row["policy"])}'
        else:
            label, _, arm = row["policy"].partition(": ")
            name = f"<em>{text(label)}</em>" + (f"<br><small>{text(arm)}</small>" if arm else "")
        shown = [f'<th scope="row">{name}</th>']
        for measure, (value, spread) in zip(measures, spells, strict=True):
            mark = ' class="best"' if row["policy"] == best and measure in ("share", "dr") else ""
            shown.append(f"<td{mark}>{value}{f'<small>{spread}</small>' if spread else ''}</td>")
        rows.append(shown)
    return rows


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first, *others = (text(title).replace("\n", "<br>") for title in head)
    names = f'<th scope="row">{first}</th>' + "".join(f'<th scope="col">{name}</th>' for name in others)
    body = "\n".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    return f'<div class="scroll"><table>\n<thead><tr>{names}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _write(
    title: str, lead: str, parts: Sequence[str], table: Table, notes: Sequence[str], command: str, folder: Path
) -> Path:
    items = "\n".join(f"<li>{text(note)}</li>" for note in [*table.columns.describe(), *notes])
    words = "The tables next to this page hold all numbers; with the same versions, this command reproduces them:"
    page = [
        f'<p class="lead">{text(lead)}</p>',
        *parts,
        f"<h2>Columns and remarks</h2>\n<ul>\n{items}\n</ul>",
        f"<h2>How to reproduce it</h2>\n<p>{words}</p>\n<pre>{text(command)}</pre>",
    ]
    return write_page(title, page, folder / "report.html")
