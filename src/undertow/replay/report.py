"""The reports of a replay and of a diagnosis: the same page as a study's."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from undertow.replay.diagnosis import Diagnosis
from undertow.replay.digits import decimals, spelled
from undertow.replay.full import Replay
from undertow.replay.logged import LogReplay
from undertow.replay.table import Table
from undertow.replay.words import answer, arm_lines, closing, describe
from undertow.study.drawing import Figure, colour
from undertow.study.page import count, figures_html, number, text, write_page

__all__ = ["report_diagnosis", "report_log", "report_replay"]

_MEASURES = {
    "share": "share won, %",
    "beyond_fixed": "beyond\nfixed, %",
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
    best = result.summary.filter(pl.col("kind") == "policy").sort("share", descending=True).row(0, named=True)
    fixed = result.summary.filter(pl.col("policy").str.starts_with("best fixed arm")).row(0, named=True)
    lead = (
        f"{count(len(result.policies), 'policy', 'policies')} played {count(result.table.rounds, 'round')} of "
        f"{count(len(result.table.arms), 'arm')}. {best['policy']} won most: {100 * best['share']:.1f} % "
        f"({100 * best['share_low']:.1f} to {100 * best['share_high']:.1f}) of the gap between any arm at random and a "
        f"clairvoyant. The best fixed arm in hindsight wins {100 * fixed['share']:.1f} %."
    )
    note = (
        "Share won of the gap between any arm at random (0) and the clairvoyant (100), who plays the best arm of every "
        "round; nobody can reach that, since he knows each round's noise. Beyond fixed: the same between the best "
        "fixed arm in hindsight (0) and the clairvoyant, negative for less than that. Mean reward a round. Regret: the "
        "sum over rounds of what the best fixed arm, or the clairvoyant, was paid more. Small: 95 % intervals from a "
        f"bootstrap of blocks of {result.block} rounds, the same blocks for all. Policies that draw random numbers are "
        "averaged over runs."
    )
    rows = _measures(result.summary, _MEASURES, best["policy"])
    parts = [
        f'<p class="lead">{text(lead)}</p>',
        "<h2>What each policy won</h2>",
        f"<p>{text(note)}</p>",
        _table(["policy", *_MEASURES.values()], rows),
        figures_html(figures),
        _notes(result.table, result.notes),
        _repeat(command),
    ]
    return write_page(f"Replay: {result.table.name}", parts, folder / "report.html")


def report_log(result: LogReplay, figures: Sequence[Figure], command: str, folder: Path) -> Path:
    """Write the report of a replay of a log to `folder / "report.html"`."""
    best, fixed = (
        result.summary.filter(pl.col("kind") == kind).sort("dr", descending=True).row(0, named=True)
        for kind in ("policy", "fixed arm")
    )
    lead = (
        f"{count(len(result.policies), 'policy', 'policies')} were led through a log of "
        f"{count(result.table.rounds, 'round')} of {count(len(result.table.arms), 'arm')}. By the doubly robust "
        f"estimate {best['policy']} earns most: {number(best['dr'])} a round, {number(best['gain'])} "
        f"({number(best['gain_low'])} to {number(best['gain_high'])}) more than was logged. The best fixed arm "
        f"({fixed['policy']}) is put at {number(fixed['dr'])} ({number(fixed['dr_low'])} to "
        f"{number(fixed['dr_high'])})."
    )
    note = (
        "Estimated mean reward a round. A policy decides in every round of the log and learns a reward only where it "
        "chose the logged arm, so it learns less than it would live; what is estimated is the reward of the arms that "
        "it chose under these conditions. Small: 95 % intervals from a bootstrap of blocks of "
        f"{result.block} rounds, given these choices. Effective rounds: (Σw)²/Σw² of the weights w = 1/propensity "
        "where the policy's arm is the logged one. docs/replay.md tells what has to hold for "
        "these numbers to mean anything."
    )
    rows = _measures(result.summary, _ESTIMATES, best["policy"])
    for cells, effective in zip(rows, result.summary["effective"], strict=True):
        cells.append(f"<td>{effective:,.0f}</td>")
    alarm = "".join(f'<li class="no">{text(warning)}</li>' for warning in result.warnings)
    parts = [
        f'<p class="lead">{text(lead)}</p>',
        f"<ul>{alarm}</ul>" if alarm else "",
        "<h2>What each policy would have earned</h2>",
        f"<p>{text(note)}</p>",
        _table(["policy", *_ESTIMATES.values(), "effective\nrounds"], rows),
        figures_html(figures),
        _notes(result.table, result.notes),
        _repeat(command),
    ]
    return write_page(f"Replay: {result.table.name}", parts, folder / "report.html")


def report_diagnosis(found: Diagnosis, table: Table, figures: Sequence[Figure], command: str, folder: Path) -> Path:
    """Write a diagnosis to `folder / "report.html"`."""
    head, *lines = arm_lines(found)
    rows = [[_first(row[0]), *(f"<td>{text(cell)}</td>" for cell in row[1:])] for row in lines]
    parts = [
        f'<p class="lead">{text(answer(found))}</p>',
        *(f"<h2>{text(title)}</h2>\n<p>{text(words)}</p>" for title, words in describe(found)),
        "<h2>Autocorrelation of each arm's relative reward</h2>",
        _table(list(head), rows),
        f'<p class="soft">{text(closing(found))}</p>' if closing(found) else "",
        figures_html(figures),
        _notes(table, table.notes),
        _repeat(command),
    ]
    return write_page(f"Is {table.name} a problem of this kind?", parts, folder / "report.html")


def _measures(summary: pl.DataFrame, measures: dict[str, str], best: str) -> list[list[str]]:
    """Return the cells of a summary, a row a policy, with as many digits as the intervals leave."""
    table = summary.to_dicts()
    factors = {measure: 100 if title.endswith("%") else 1 for measure, title in measures.items()}
    digits = {measure: decimals(table, measure, factor) for measure, factor in factors.items()}
    rows = []
    for row in table:
        policy = row["kind"] == "policy"
        dot = f'<span class="dot" style="background:{colour(row["policy"])}"></span>' if policy else ""
        label, _, arm = row["policy"].partition(": ") if not policy else (row["policy"], "", "")
        name = text(label) if policy else f"<em>{text(label)}</em>"
        name += f"<br><small>{text(arm)}</small>" if arm else ""
        cells = [f'<th scope="row">{dot}{name}</th>']
        for measure, factor in factors.items():
            value, spread = spelled(row, measure, digits[measure], factor)
            mark = ' class="best"' if row["policy"] == best and measure in ("share", "dr") else ""
            cells.append(f"<td{mark}>{value}{f'<small>{spread}</small>' if spread else ''}</td>")
        rows.append(cells)
    return rows


def _first(name: str) -> str:
    return f'<th scope="row">{text(name)}</th>'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first, *others = head
    names = f'<th scope="row">{text(first)}</th>' + "".join(f'<th scope="col">{_lines(name)}</th>' for name in others)
    body = "\n".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    return f'<div class="scroll"><table>\n<thead><tr>{names}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _lines(title: str) -> str:
    return "<br>".join(text(line) for line in title.split("\n"))


def _notes(table: Table, notes: Sequence[str]) -> str:
    items = "\n".join(f"<li>{text(note)}</li>" for note in [*table.columns.describe(), *notes])
    return f"<h2>What was taken as what, and what to know</h2>\n<ul>\n{items}\n</ul>"


def _repeat(command: str) -> str:
    words = "The tables beside this page hold all numbers; with the same versions, the same command gives them again:"
    return f"<h2>How to repeat it</h2>\n<p>{words}</p>\n<pre>{text(command)}</pre>"
