"""The report of a study, as one page of HTML."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from undertow.study.appendix import RUNS, Varied
from undertow.study.chunks import Tables
from undertow.study.claims import FAILS, HOLDS, UNDECIDED, Claim, caveat, too_short
from undertow.study.plan import Plan
from undertow.study.statements import EXACT
from undertow.study.summary import final_regret, leaders, winners
from undertow.support.figure import Figure, line_styles
from undertow.support.numbers import count, duration, listed, number
from undertow.support.page import figures_html, text, write_page

__all__ = ["REPORT", "write_report"]

REPORT = "report.html"  # in the folder of a study

_TALLIES = {HOLDS: "hold", UNDECIDED: "are undecided", FAILS: "fail"}
_MARKS = {
    HOLDS: ("yes", "✓ holds"),
    UNDECIDED: ("open", "? undecided"),
    FAILS: ("no", "✗ fails"),
    None: ("open", "not tested in this study"),
}

_DEPARTURES = {
    "A1": "The cost of a window uses the inverse of V, as in the theorem. As printed the cost grows with the data, the "
    "window sticks at 0 and ARES learns nothing.",
    "A2": "The weights are updated to the least-squares solution. The printed update adds without ever correcting.",
    "A3": "B_R is a standard deviation, the root of max c'Pc + σ². The paper's table gives the variance.",
    "A4": "The penalty ν = 0.1 of the paper's table stands in the cost of a window, where the algorithm leaves it out; "
    "without it long windows are penalised away.",
    "A8": "Every arm is played once before windows are compared. A cost of 0 that was never computed would win every "
    "minimum.",
    "A10": "PIES keeps learning after its first rounds; the paper does not say, but its figures fit nothing else.",
    "A11": "Regret is counted in expected rewards: the same mean as with the rewards' noise, but less scatter.",
    "A16": "Every window learns from every round, with zeros if there was no context yet; only filled windows may "
    "be chosen.",
    "A17": "“ARES (noise estimated)” finds B_R from its own errors, since it is unknown outside a simulation.",
    "A19": "An arm's forecast comes from its own window, as in the listing of the algorithm. The text takes the "
    "largest of the arms' windows, as for the width.",
    "T1": "The width e is a heuristic. Its proof takes the filter's errors for uncorrelated in time, and they are not.",
    "T5": "The lower bound is the exact regret of a filter that sees every reward. The printed bound exceeds the "
    "regret of the oracle that it is meant to bound.",
}


def write_report(
    plan: Plan,
    tables: Tables,
    headline: pl.DataFrame,
    claims: Sequence[Claim],
    figures: Sequence[Figure],
    folder: Path,
    varied: Sequence[Varied] = (),
) -> Path:
    """Write the report of a study to `folder / REPORT`, with its figures embedded, and return the file.

    `headline` is the output of `undertow.study.summary.headline`; `claims` and `varied`, the appendix, may be empty. A
    report on the first runs states their number.
    """
    paper = plan.name == "paper"
    title = "The paper's evaluation, repeated" if paper else f"Study: {plan.name}"
    parts = [
        _summary(plan, tables, claims),
        "<h2>Regret after the last round</h2>",
        _headline(plan, tables, headline),
        figures_html(figures),
        _claims(plan, claims),
        _departures() if paper else "",
        _appendix(plan, varied),
        _repeat(plan, tables),
    ]
    return write_page(title, parts, folder / REPORT)


def _summary(plan: Plan, tables: Tables, claims: Sequence[Claim]) -> str:
    """Return a paragraph on the study and its main result."""
    runs = tables.regret["run"].n_unique()
    played = count(plan.runs, "run") if runs == plan.runs else f"the first {runs:,} of {count(plan.runs, 'run')}"
    words = [
        f"{count(len(plan.policies), 'policy', 'policies')} played {count(plan.rounds, 'round')} on each of "
        f"{count(len(plan.systems), 'system')} ({listed(spec.label for spec in plan.systems)}), in "
        f"{played} from seed {plan.seed}, all on the same paths."
    ]
    if runs < plan.runs:
        words.append("A report of all runs replaces this one when the study is complete.")
    if plan.name == "paper":
        words.append(
            "psi says how loosely the entries of the state hang together: the larger it is, the less the contexts say "
            "about the rewards."
        )
    if plan.burn_in:
        words.append(f"Every path had run for {plan.burn_in:,} rounds before the first choice.")
    if plan.missing:
        words.append(f"Of the context entries, {100 * plan.missing:g} % are missing.")
    if best := winners(plan, final_regret(plan, tables)):
        words.append(f"Least regret among those that do not know the system, relative to {plan.baseline}: {best}.")
    found = Counter(claim.verdict for claim in claims if claim.verdict is not None)
    if found and not too_short(plan):
        tallies = listed(f"{found[verdict]} {words_of}" for verdict, words_of in _TALLIES.items() if found[verdict])
        words.append(f"Of {count(found.total(), 'reading')} of the paper's statements that could be tested, {tallies}.")
    if found:
        words.append(caveat(plan, runs))
    names = listed(spec.label for spec in plan.policies)
    policies = f"The policies: {names}. “undertow policies” describes them."
    return f'<p class="lead">{text(" ".join(filter(None, words)))}</p>\n<p class="soft">{text(policies)}</p>'


def _headline(plan: Plan, tables: Tables, headline: pl.DataFrame) -> str:
    """Write one row per policy and two columns per system: regret over the baseline's, and regret."""
    cells = {(row["policy"], row["system"]): row for row in headline.iter_rows(named=True)}
    final = final_regret(plan, tables)
    best = {system.label: leaders(plan, final, system.label) for system in plan.systems}
    styles = line_styles(spec.label for spec in plan.policies)
    groups = "".join(f'<th class="group" colspan="2" scope="colgroup">{text(s.label)}</th>' for s in plan.systems)
    names = '<th scope="col">relative</th><th scope="col">regret</th>' * len(plan.systems)
    rows = []
    for spec in plan.policies:
        knows = spec.capabilities.needs_system
        dot = f'<span class="dot" style="background:{styles[spec.label]["color"]}"></span>'
        row = f'<th scope="row">{dot}{text(spec.label)}</th>'
        for system in plan.systems:
            cell = cells[spec.label, system.label]
            row += _cell(cell, best=spec.label in best[system.label])
        rows.append(f'<tr class="{"knows" if knows else "learns"}">{row}</tr>')
    note = (
        f"Relative: the median over runs of regret divided by that of {plan.baseline} on the same path, with a 95 % "
        "interval; regret: the median over runs. Policies in italics know the system. Bold is the best of the others, "
        "with all whose mean is within two standard errors of it."
    )
    head = f'<tr><th rowspan="2" scope="row">policy</th>{groups}</tr>\n<tr>{names}</tr>'
    table = f"<table>\n<thead>\n{head}\n</thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table>"
    return f'<p>{text(note)}</p>\n<div class="scroll">{table}</div>'


def _cell(cell: dict[str, Any], *, best: bool) -> str:
    relative, low, high, regret = (number(cell[name]) for name in ("relative", "low", "high", "median"))
    shown, mark = (f"<b>{relative}</b>", "best") if best else (relative, "")
    spread = "" if cell["low"] == cell["high"] else f"<small>{low} – {high}</small>"
    return f'<td class="{f"first {mark}".strip()}">{shown}{spread}</td><td class="{mark}">{regret}</td>'


def _claims(plan: Plan, claims: Sequence[Claim]) -> str:
    if not claims:
        return ""
    note = (
        "A statement that can be read in two ways is judged in both. A difference counts if it exceeds two standard "
        "errors over runs; what does so in neither direction is undecided."
    )
    parts = [f"<h2>What the paper says, and what was found</h2>\n<p>{text(note)}</p>"]
    for claim in claims:
        style, verdict = _MARKS[claim.verdict]
        judged = not too_short(plan) or claim.label in EXACT
        if claim.verdict and not judged:
            style, verdict = "open", "too short to judge"
        rows = {"criterion": text(claim.criterion), "measured": text(claim.measured).replace("; ", "<br>")}
        if claim.discussion and judged:
            rows["why"] = text(claim.discussion)
        entries = "\n".join(f"<dt>{name}</dt><dd>{entry}</dd>" for name, entry in rows.items())
        heading = f'<h3>{claim.label}. {text(claim.title)}: <span class="{style}">{verdict}</span></h3>'
        quote = f"<blockquote>“{text(claim.quote)}”</blockquote>"
        parts.append(f'<section class="claim">\n{heading}\n{quote}\n<dl>\n{entries}\n</dl>\n</section>')
    return "\n".join(parts)


def _departures() -> str:
    items = "\n".join(f"<dt>{name}</dt><dd>{text(why)}</dd>" for name, why in _DEPARTURES.items())
    intro = (
        "The paper is arXiv 2406.10418. Where it contradicts itself, or would not run as printed, undertow does what "
        "its theory asks for. These are the departures that bear on the numbers above; docs/paper.md has them all."
    )
    return f"<h2>What differs from the paper, and why</h2>\n<p>{text(intro)}</p>\n<dl>\n{items}\n</dl>"


def _appendix(plan: Plan, varied: Sequence[Varied]) -> str:
    """Write one row per reading: regret over the baseline's on every system, and the verdicts that change."""
    if not varied:
        return ""
    names = ("policy", *varied[0].relative, *varied[0].verdicts)
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in names)
    rows = []
    for entry in varied:
        cells = [entry.policy, *map(number, entry.relative.values()), *entry.marks]
        title = text(f"{entry.row} {entry.words}".strip())
        rows.append(f'<tr><th scope="row">{title}</th>{"".join(f"<td>{text(cell)}</td>" for cell in cells)}</tr>')
    note = (
        "Where the paper can be read in several ways, or leaves a parameter open, each other reading was tried by "
        f"itself. Regret after the last round relative to {plan.baseline}, median of the first "
        f"{min(RUNS, plan.runs)} runs, and the verdicts on the statements above on these runs: ✓ holds, ? undecided, "
        "✗ fails, – not tested."
    )
    table = f'<table class="words">\n<thead>\n<tr><th scope="row">reading</th>{head}</tr>\n</thead>\n<tbody>\n'
    table += "\n".join(rows) + "\n</tbody>\n</table>"
    return f'<h2>Appendix: other readings of the paper</h2>\n<p>{text(note)}</p>\n<div class="scroll">{table}</div>'


def _repeat(plan: Plan, tables: Tables) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in plan.to_dict()["versions"].items())
    facts = (
        f"Computing took {duration(tables.seconds)}, summed over all threads and machines. It ran with {versions}. "
        "The file plan.json next to this page holds every system, every parameter and the seed; with the same versions "
        "it reproduces the same numbers:"
    )
    code = (
        "import json\nfrom pathlib import Path\nfrom undertow.study.plan import Plan\n"
        "from undertow.study.chunks import open_folder, run_plan\n\n"
        'plan = Plan.from_dict(json.loads(Path("plan.json").read_text(encoding="utf-8")))\n'
        'tables = run_plan(plan, open_folder(plan, "again"))'
    )
    return f"<h2>How long it took, and how to repeat it</h2>\n<p>{text(facts)}</p>\n<pre>{text(code)}</pre>"
