"""The report of a study: one page of HTML that needs nothing beside it, to read, to print and to pass on."""

import base64
import html
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from undertow.policies import registry
from undertow.study.figures import Figure, colour
from undertow.study.plan import Plan
from undertow.study.runner import Tables

if TYPE_CHECKING:
    from undertow.study.claims import Claim

__all__ = ["write_report"]

_STYLE = """
:root { color-scheme: light dark; --text: #1c2024; --soft: #5b636b; --page: #f7f7f5; --card: #ffffff; --line: #dcdcd6;
  --accent: #0072b2; --good: #00785a; --bad: #b3400a; --mark: #e8f2f8; }
@media (prefers-color-scheme: dark) { :root { --text: #e8e8e4; --soft: #a5adb5; --page: #16181b; --card: #1f2226;
  --line: #3a3f45; --accent: #6bb8e6; --good: #4cc9a0; --bad: #f08a52; --mark: #1d3442; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.6 system-ui, "Segoe UI", "Helvetica Neue",
  Arial, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 0.75rem; letter-spacing: -0.01em; }
h2 { font-size: 1.3rem; margin: 3rem 0 0.75rem; padding-top: 0.9rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 0 0 0.75rem; }
p { margin: 0 0 0.9rem; max-width: 46rem; }
.lead { font-size: 1.1rem; }
.soft, small { color: var(--soft); }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.4rem 0.7rem; text-align: right; white-space: nowrap; border-top: 1px solid var(--line); }
thead tr:first-child th { border-top: 0; }
thead th { color: var(--soft); font-weight: 600; }
th.group { text-align: center; color: var(--text); }
th[scope=row] { text-align: left; font-weight: 400; position: sticky; left: 0; background: var(--card); }
td.first, th.group { border-left: 1px solid var(--line); }
td small { display: block; line-height: 1.2; }
td.best { background: var(--mark); }
.knows th[scope=row] { font-style: italic; }
.dot { display: inline-block; width: 0.7em; height: 0.7em; border-radius: 50%; margin-right: 0.5em;
  border: 1px solid #8888; }
.claims td, .claims th { text-align: left; white-space: normal; vertical-align: top; }
.claims td:nth-child(3) { white-space: nowrap; }
.claims td:nth-child(2) { min-width: 15rem; } .claims td:nth-child(4) { min-width: 18rem; color: var(--soft); }
.yes { color: var(--good); font-weight: 600; } .no { color: var(--bad); font-weight: 600; }
.open { color: var(--soft); }
figure { margin: 0 0 1.75rem; padding: 1.1rem; background: #ffffff; color: #1c2024; border: 1px solid var(--line);
  border-radius: 8px; }
figure img { display: block; width: 100%; height: auto; max-width: 52rem; margin: 0 auto; }
figcaption { margin-top: 0.9rem; font-size: 0.92rem; line-height: 1.5; color: #3d444b; max-width: 46rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.35rem 1rem; margin: 0; }
dt { font-weight: 600; } dd { margin: 0; max-width: 44rem; }
pre { margin: 0 0 0.9rem; padding: 0.8rem 1rem; overflow-x: auto; background: var(--card); font-size: 0.85rem;
  border: 1px solid var(--line); border-radius: 8px; }
@media (max-width: 40rem) { main { padding: 1.5rem 0.8rem 3rem; } h1 { font-size: 1.6rem; }
  figure { padding: 0.5rem; } }
@media print { :root { color-scheme: light; --text: #000000; --soft: #444444; --page: #ffffff; --card: #ffffff;
  --line: #bbbbbb; --accent: #00507c; --good: #00593f; --bad: #8a2f00; --mark: #e8f2f8; }
  @page { margin: 15mm; } body { font-size: 10pt; } main { max-width: none; padding: 0; }
  figure, tr, li { break-inside: avoid; } h2, h3 { break-after: avoid; } figure { border: 0; padding: 0; }
  figure img { max-height: 215mm; width: auto; max-width: 100%; } .scroll { overflow: visible; border: 0; }
  table { font-size: 7.5pt; } th, td { padding: 0.2rem 0.35rem; } th[scope=row] { position: static; } }
"""

_DEPARTURES = {
    "A1": "The cost of a window uses the inverse of V, as in the theorem. As printed the cost grows with the data, the "
    "window sticks at 0 and ARES learns nothing.",
    "A2": "The weights are updated to the least-squares solution. The printed update adds without ever correcting.",
    "A3": "B_R is a standard deviation, the root of max c'Pc + σ². The paper's table gives the variance.",
    "A4": "The penalty ν = 0.1 of the paper's table stands in the cost of a window, where the algorithm leaves it out; "
    "without it long windows are penalised away.",
    "A8": "Every arm is played once before windows are compared. A cost of 0 that was never computed would win every "
    "minimum.",
    "A10": "PIES goes on learning after its first rounds; the paper does not say, but its figures fit nothing else.",
    "A11": "Regret is counted in expected rewards: the same mean as with the rewards' noise, but less scatter.",
    "A16": "Every window learns from every round, with zeros where there was no context yet; only filled windows may "
    "be chosen.",
    "A17": "“ARES, noise estimated” finds B_R from its own errors, since outside a simulation nobody knows it.",
    "T1": "The width e is a heuristic. Its proof takes the filter's errors for uncorrelated in time, and they are not.",
    "T5": "The lower bound is the exact regret of a filter that sees every reward. The printed bound exceeds the "
    "regret of the oracle that it is meant to bound.",
}


def write_report(
    plan: Plan,
    tables: Tables,
    headline: pl.DataFrame,
    claims: "Sequence[Claim]",
    figures: Sequence[Figure],
    folder: Path,
) -> Path:
    """Write the report of a study to `folder / "report.html"`, and return the file.

    Parameters
    ----------
    plan, tables
        What was run, and what came out.
    headline
        policy, system, median, relative, low, high, mean, error: one row per policy and system.
    claims
        The paper's statements with what was measured; may be empty.
    figures
        Figures already written; they are put into the page.
    """
    paper = plan.name == "paper"
    title = "The paper's evaluation, repeated" if paper else f"Study: {plan.name}"
    parts = [
        f"<h1>{_text(title)}</h1>",
        _summary(plan, headline, claims),
        "<h2>Regret after the last round</h2>",
        _headline(plan, headline),
        "<h2>Figures</h2>" if figures else "",
        *(_figure(number, figure) for number, figure in enumerate(figures, start=1)),
        _claims(claims),
        _departures() if paper else "",
        _repeat(plan, tables),
    ]
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main>\n</body>\n</html>\n"
    )
    file = folder / "report.html"
    file.write_text(page, encoding="utf-8")
    return file


def _summary(plan: Plan, headline: pl.DataFrame, claims: "Sequence[Claim]") -> str:
    """Say in a paragraph what was run and what came out first."""
    words = [
        f"{_count(len(plan.policies), 'policy', 'policies')} played {_count(plan.rounds, 'round')} on each of "
        f"{_count(len(plan.systems), 'system')} ({_listed(spec.label for spec in plan.systems)}), in "
        f"{_count(plan.runs, 'run')} from seed {plan.seed}, all on the same paths."
    ]
    if plan.burn_in:
        words.append(f"Every path had run for {plan.burn_in:,} rounds before the first choice.")
    best = [(system, row) for system in plan.systems if (row := _best(plan, headline, system.label)) is not None]
    if best:
        found = _listed(f"{row['policy']} ({system.label}: {_number(row['relative'])})" for system, row in best)
        if len({row["policy"] for _, row in best}) == 1:
            ratios = _listed(f"{_number(row['relative'])} ({system.label})" for system, row in best)
            found = f"{best[0][1]['policy']}, with {ratios}"
        words.append(f"Least regret among those that do not know the system, relative to {plan.baseline}: {found}.")
    tested = [claim for claim in claims if claim.holds is not None]
    if tested:
        held = sum(bool(claim.holds) for claim in tested)
        words.append(f"Of the paper's {_count(len(tested), 'statement')} that could be tested, {held} held.")
    names = _listed(spec.label for spec in plan.policies)
    return f'<p class="lead">{_text(" ".join(words))}</p>\n<p class="soft">The policies: {_text(names)}.</p>'


def _headline(plan: Plan, headline: pl.DataFrame) -> str:
    """Write one row per policy and two columns per system: regret over the baseline's, and regret."""
    cells = {(row["policy"], row["system"]): row for row in headline.iter_rows(named=True)}
    best = {system.label: _best(plan, headline, system.label) for system in plan.systems}
    groups = "".join(f'<th class="group" colspan="2" scope="colgroup">{_text(s.label)}</th>' for s in plan.systems)
    names = '<th scope="col">relative</th><th scope="col">regret</th>' * len(plan.systems)
    rows = []
    for spec in plan.policies:
        knows = registry()[spec.policy].claims.needs_system
        row = (
            f'<th scope="row"><span class="dot" style="background:{colour(spec.label)}"></span>{_text(spec.label)}</th>'
        )
        for system in plan.systems:
            cell = cells.get((spec.label, system.label))
            winner = best[system.label]
            row += _cell(cell, best=winner is not None and winner["policy"] == spec.label)
        rows.append(f'<tr class="{"knows" if knows else "learns"}">{row}</tr>')
    note = (
        f"Relative: the median over runs of regret divided by that of {plan.baseline} on the same path, with a 95 % "
        "interval; regret: the median over runs. Policies in italics know the system; the best of the others is bold."
    )
    head = f'<tr><th rowspan="2" scope="row">policy</th>{groups}</tr>\n<tr>{names}</tr>'
    table = f"<table>\n<thead>\n{head}\n</thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table>"
    return f'<p>{_text(note)}</p>\n<div class="scroll">{table}</div>'


def _cell(cell: dict[str, Any] | None, *, best: bool) -> str:
    if cell is None:
        return '<td class="first">–</td><td>–</td>'
    relative = _number(cell["relative"])
    interval = f"{_number(cell['low'])} – {_number(cell['high'])}"
    shown = f"<b>{relative}</b>" if best else relative
    spread = "" if cell["low"] == cell["high"] else f"<small>{interval}</small>"
    mark = " best" if best else ""
    return f'<td class="first{mark}">{shown}{spread}</td><td class="{mark.strip()}">{_number(cell["median"])}</td>'


def _best(plan: Plan, headline: pl.DataFrame, system: str) -> dict[str, Any] | None:
    """Return the row of the least relative regret on a system, among policies that do not know it."""
    free = [spec.label for spec in plan.policies if not registry()[spec.policy].claims.needs_system]
    rows = headline.filter((pl.col("system") == system) & pl.col("policy").is_in(free))
    finite = rows.filter(pl.col("relative").is_finite()).sort("relative", maintain_order=True)
    return next(finite.iter_rows(named=True), None)


def _figure(number: int, figure: Figure) -> str:
    data = base64.b64encode(figure.svg.read_bytes()).decode("ascii")
    image = f'<img src="data:image/svg+xml;base64,{data}" alt="{_text(figure.title)}">'
    caption = f"<figcaption>{_text(figure.caption)}</figcaption>"
    return (
        f'<figure id="{_text(figure.name)}">\n<h3>{number}. {_text(figure.title)}</h3>\n{image}\n{caption}\n</figure>'
    )


def _claims(claims: "Sequence[Claim]") -> str:
    if not claims:
        return ""
    words = {True: ("yes", "✓ holds"), False: ("no", "✗ does not hold"), None: ("open", "not tested in this plan")}
    rows = []
    for claim in claims:
        style, verdict = words[claim.holds]
        cells = f'<td>{_text(claim.statement)}</td><td class="{style}">{verdict}</td><td>{_text(claim.measured)}</td>'
        rows.append(f"<tr><td>{claim.number}</td>{cells}</tr>")
    head = "".join(f'<th scope="col">{name}</th>' for name in ("", "the paper says", "here", "measured"))
    table = (
        f'<table class="claims">\n<thead><tr>{head}</tr></thead>\n<tbody>\n' + "\n".join(rows) + "\n</tbody></table>"
    )
    return f'<h2>What the paper says, and what was found</h2>\n<div class="scroll">{table}</div>'


def _departures() -> str:
    items = "\n".join(f"<dt>{name}</dt><dd>{_text(text)}</dd>" for name, text in _DEPARTURES.items())
    intro = (
        "The paper is arXiv 2406.10418. Where it contradicts itself, or would not run as printed, undertow does what "
        "its theory asks for. These are the departures that bear on the numbers above; docs/paper.md has them all."
    )
    return f"<h2>What differs from the paper, and why</h2>\n<p>{_text(intro)}</p>\n<dl>\n{items}\n</dl>"


def _repeat(plan: Plan, tables: Tables) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in plan.to_dict()["versions"].items())
    facts = (
        f"Computing took {_duration(tables.seconds)}, summed over all threads and machines. It ran with {versions}. "
        "The file plan.json beside this page holds every system, every parameter and the seed; with the same versions "
        "it gives the same numbers again:"
    )
    code = (
        "import json\nfrom pathlib import Path\nfrom undertow.study.plan import Plan\n"
        "from undertow.study.runner import open_folder, run_plan\n\n"
        'plan = Plan.from_dict(json.loads(Path("plan.json").read_text(encoding="utf-8")))\n'
        'tables = run_plan(plan, open_folder(plan, "again"))'
    )
    return f"<h2>How long it took, and how to repeat it</h2>\n<p>{_text(facts)}</p>\n<pre>{_text(code)}</pre>"


def _text(value: object) -> str:
    return html.escape(str(value))


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _listed(words: Iterable[str]) -> str:
    *most, last = list(words) or [""]
    return f"{', '.join(most)} and {last}" if most else last


def _number(value: float | None) -> str:
    """Write a number with about three digits that matter."""
    if value is None or not math.isfinite(value):
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.3f}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
