"""The pieces of `make results`: commands whose numbers are in documents, and the parts of their output shown there.

A piece turns the output of its command into named blocks. `tools/results.py` runs the pieces, keeps the blocks in
`results/` and fills them into the pages.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["PIECES", "ROOT", "Piece", "markdown", "tables_in"]

ROOT = Path(__file__).resolve().parents[1]
TABLES = Path("out/results")  # recorded data as files, for the commands that read one
PAPER = "Oracle,ARES,pies,UCB,Sliding-window UCB,Rexp3,Random"  # the paper's policies
WITH_GAPS = (
    "Oracle,ARES,PIES(10),LinUCB,LinUCB + own rewards,UBSS (no width),LARL,LearnedKalman,Autopilot,KalmanGreedy,Random"
)
STORE_PARTS = ("kills", "postgres-kills", "outages", "power-cuts", "disk-faults")
Blocks = dict[str, str]
Row = dict[str, Any]


class Piece(NamedTuple):
    """One command, after `python`, and the parts of its output that are kept.

    Attributes
    ----------
    seeds
        Its seeds, for the record.
    minutes
        Its rough duration on two cores; the duration of the last run is used if known.
    blocks
        Turns the output into blocks.
    figures
        Figures of the command, and their places in the documents.
    prepare
        Makes the input files of the command.
    runs_in_python
        Runs only when named, since it needs more than a clone has.
    """

    command: tuple[str, ...]
    seeds: str
    minutes: float
    blocks: Callable[[str], Blocks]
    figures: Mapping[str, str] = {}
    prepare: Callable[[], None] = lambda: None
    runs_in_python: bool = False


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tables_in(text: str) -> list[str]:
    """Return the Markdown tables of a text."""
    return [found.strip() for found in re.findall(r"(?:^\|.*\|\n?)+", text, re.M)]


def _done(printed: str) -> list[Row]:
    """Return the last events of a command that prints JSON lines."""
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return [event for event in events if event["event"] == "done"]


# Commands whose output is shown on a page


def _as_printed(printed: str) -> Blocks:
    return {"printed": printed.split("Figure:")[0].strip()}


def _first_table(printed: str) -> Blocks:
    return {"table": tables_in(printed)[0]}


def _theory(printed: str) -> Blocks:
    starts = {
        "share of": "coverage",
        "Σ(ε": "noise-sum",
        "regret of the": "lower-bounds",
        "lag-1": "lag-correlation",
        "Σε of": "played-noise",
        "first n": "informative",
        "regret of ARES": "exploration",
    }
    parts = re.split(r"\n(?=\S)", printed.strip())
    return {name: f"```text\n{part}\n```" for part in parts for start, name in starts.items() if part.startswith(start)}


def _live(printed: str) -> Blocks:
    names = ("gaps-1", "rewards-1", "gaps-4", "rewards-4")
    return dict(zip(names, tables_in(printed), strict=True))


def _bench(printed: str) -> Blocks:
    full, short = tables_in(printed)[-2:]
    return {"full": full, "short": short}


def _tuner(printed: str) -> Blocks:
    found = re.search(r"load of the machine: ([\d.]+) on", printed)
    return {"calls": tables_in(printed)[0].replace("|  |", "| µs per call |", 1)} | (
        {"load": found[1]} if found else {}
    )


# Commands that print JSON, shown in part on a page


def _replay(printed: str) -> Blocks:
    from undertow.support.numbers import cells

    rows = _done(printed)[-1]["summary"]
    measures = {
        "reward": "mean reward",
        "regret_fixed": "regret: fixed arm",
        "share": "share won, %",
        "gain_over_fixed": "beyond fixed, %",
    }
    lines = [
        [
            row["policy"] if row["kind"] == "policy" else f"*{row['policy']}*",
            *(f"{value} ({spread})" if spread else value for value, spread in spells),
        ]
        for row, spells in zip(rows, cells(rows, measures), strict=True)
    ]
    return {"table": markdown(["policy", *measures.values()], lines)}


def _diagnosis(printed: str) -> Blocks:
    return {"answer": _done(printed)[-1]["answer"]}


def _study(printed: str) -> Blocks:
    done, lines = _done(printed)[-1], []
    for claim in done["claims"]:
        if claim["verdict"]:
            cases = claim["judgements"]
            decisive = [case["words"] for case in cases if case["verdict"] == claim["verdict"]]
            lines.append(
                [claim["label"], claim["title"], claim["verdict"], f"{len(decisive)} of {len(cases)}", decisive[0]]
            )
    statements = markdown(["", "the paper, in short", "found", "cases", "the first of these"], lines)
    return {"headline": _relative_regret(done["headline"]), "statements": statements}


def _missing(printed: str) -> Blocks:
    return {"headline": _relative_regret(_done(printed)[-1]["headline"])}


def _relative_regret(rows: Sequence[Row]) -> str:
    """Return a row for each policy of a study, of PIES only the shortest window and the longest."""
    by = {(row["policy"], row["system"]): row for row in rows}
    systems = list(dict.fromkeys(row["system"] for row in rows))
    policies = dict.fromkeys(row["policy"] for row in rows if not re.fullmatch(r"PIES\([2-9]\)", row["policy"]))
    del policies["Oracle"]  # 1 everywhere; its regret stands in its place
    lines = [["the Oracle's regret", *(f"{by['Oracle', system]['median']:.0f}" for system in systems)]]
    lines += [[name, *(_ratio(by[name, system]["relative"]) for system in systems)] for name in policies]
    return markdown(["", *systems], lines)


def _appendix(printed: str) -> Blocks:
    rows, lines = _done(printed)[-1]["appendix"], []
    judged = [label for label in rows[0]["verdicts"] if any(row["verdicts"][label] for row in rows)]
    signs = {"holds": "✓", "undecided": "?", "fails": "✗", None: "–"}
    for row in rows:
        cells = [f"{value:.2f}" for value in row["relative"].values()]
        lines.append(
            [
                row["row"] or "–",
                row["words"],
                row["policy"],
                *cells,
                *(signs[row["verdicts"][label]] for label in judged),
            ]
        )
    return {"table": markdown(["row", "reading", "policy", *rows[0]["relative"], *judged], lines)}


def _victoria() -> None:
    """Write the table of docs/replay.md."""
    import datetime

    import polars as pl

    from undertow.problems.datasets import dataset

    victoria = dataset("victoria")
    rewards = victoria.trajectory.rewards
    first = datetime.datetime(2012, 1, 8, 2)
    hours = [first + datetime.timedelta(hours=t) for t in range(len(rewards))]
    columns = {f"reward_{name.replace(' ', '-')}": rewards[:, arm] for arm, name in enumerate(victoria.arms)}
    (ROOT / TABLES).mkdir(parents=True, exist_ok=True)
    pl.DataFrame({"time": hours} | columns).write_csv(ROOT / TABLES / "victoria.csv")


def _stocks() -> None:
    """Write the table of docs/diagnose.md."""
    import polars as pl

    from undertow.problems.datasets import dataset

    stocks = dataset("stocks")
    (ROOT / TABLES).mkdir(parents=True, exist_ok=True)
    pl.DataFrame(stocks.trajectory.rewards, schema=list(stocks.arms)).write_csv(ROOT / TABLES / "stocks.csv")


# The trials

LEARNERS = ("LearnedKalman", "Autopilot", "StructuralKalman", "LinUCB + own rewards", "Discounted UCB")
SYSTEMS = {
    **{f"paper-{psi}": f"the paper's system, psi = {psi}, {{}} runs" for psi in (1, 2, 3, 4)},
    "stable": "{} random systems, stable",
    "stable-drift": "… with drift",
    "unit-root": "… spectral radius 1",
    "unit-root-drift": "… spectral radius 1, with drift",
    **{f"missing-{psi}": f"the same with 30 % of contexts missing, psi = {psi}, {{}} runs" for psi in (1, 2, 3, 4)},
    **{f"no-contexts-{psi}": f"the same without contexts, psi = {psi}, {{}} runs" for psi in (1, 2, 3, 4)},
}
WRONG = {
    "switch": "the system is replaced halfway",
    "heavy-tails": "noises of Student's t, 3 degrees of freedom",
    "saturation": "contexts saturate",
    "outliers": "2 % gross outliers in contexts",
    "correlated-noise": "correlated context noise",
    "clipping": "the state is clipped",
    "slow-change": "the dynamics change slowly",
    "state-free": "rewards ignore the state",
    "relu": "rewards are max(0, ·) of a linear one",
}


def _ratio(value: float | None) -> str:
    """Return a ratio with three digits, without decimals from a hundred on."""
    return "–" if value is None else f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def _trials(printed: str) -> Blocks:
    """Return the tables of docs/measurements.md for some families, from the last line of `trials --json`."""
    rows: list[Row] = _done(printed)[-1]["summary"]
    by = {(row["family"], row["policy"]): row for row in rows}
    families = dict.fromkeys(row["family"] for row in rows)
    made = {
        "systems": _systems(by, [family for family in SYSTEMS if family in families]),
        "misspecified": _misspecified(by, [kind for kind in WRONG if f"misspecified-{kind}" in families]),
        "data": _beside_simple(by, [family for family in families if family.startswith("data-")], "share_mean"),
        "worlds": _beside_simple(by, [family for family in families if family.startswith("world-")], "to_simple"),
        "safe": _beside_simple(by, [family for family in families if family.startswith("safe-")], "reward"),
        "unseen": _beside_simple(
            by, [family for family in families if family.startswith(("untouched-", "router-", "clicks-"))], "to_simple"
        ),
        "overall": _overall(rows),
    }
    return {name: table for name, table in made.items() if table}


def _systems(by: Mapping[tuple[str, str], Row], families: Sequence[str]) -> str:
    lines = []
    for family in families:
        rows = [by[family, label] for label in LEARNERS]
        known = [_ratio(row["to_known"]) for row in rows]
        for place in (0, 1):
            known[place] += f" ({_ratio(rows[place]['to_known_worst'])})"
        title = SYSTEMS[family].format(rows[0]["problems"])
        lines.append([title, *known, _ratio(by[family, "Autopilot"]["to_best"])])
    return markdown(["", *LEARNERS, "Autopilot against the best"], lines) if lines else ""


def _misspecified(by: Mapping[tuple[str, str], Row], kinds: Sequence[str]) -> str:
    order = [label for label in LEARNERS if label != "Autopilot"] + ["Autopilot"]
    lines = [
        [WRONG[kind], *(_ratio(by[f"misspecified-{kind}", label]["to_best"]) for label in order)] for kind in kinds
    ]
    return markdown(["", *order], lines) if lines else ""


HINDSIGHT = "best fixed arm (hindsight)"


def _beside_simple(by: Mapping[tuple[str, str], Row], families: Sequence[str], measure: str) -> str:
    """Return the learners next to the best simple policy of every family, losses of Autopilot first."""
    from undertow.problems.families import FAMILIES

    order = ("Autopilot", "StructuralKalman", "LearnedKalman")
    ratios = measure == "to_simple"

    def won(family: str) -> float:
        row = by[family, "Autopilot"]
        return float(-row[measure] if ratios else row[measure] - by[family, row["simple"]][measure])

    lines = []
    for family in sorted(families, key=won):
        simple = str(by[family, "Autopilot"]["simple"])
        cells = [_with_error(by[family, label], measure) for label in (*order, *(() if ratios else (simple,)))]
        if measure == "share_mean":
            low, high = (100 * by[family, "Autopilot"][name] for name in ("share_low", "share_high"))
            cells[0] += f" ({low:.0f} to {high:.0f})"
            cells.append(f"{100 * by[family, HINDSIGHT][measure]:.1f}")
        if measure == "reward":
            cells.append(", ".join(str(by[family, label]["stuck"]) for label in order))
        title = FAMILIES[family].title.removeprefix("recorded: ")
        lines.append([f"{title} ({by[family, 'Autopilot']['problems']})", *cells, simple])
    also = {"share_mean": [HINDSIGHT], "reward": ["runs of these three that stay at it"]}
    more = [] if ratios else ["best simple policy", *also[measure]]
    return markdown(["", *order, *more, "which simple policy"], lines) if lines else ""


def _with_error(row: Row, measure: str) -> str:
    value, error = row[measure], row[measure.removesuffix("_mean") + "_error"]
    factor, digits = (100, 1) if measure == "share_mean" else (1, 2)
    spread = f" ± {factor * error:.{digits}f}" if error else ""
    return f"{factor * value:.{digits}f}{spread}"


def _overall(rows: Sequence[Row]) -> str:
    """Return the learners and the best simple policy over all families of a kind."""
    import polars as pl

    from undertow.study.overall import overall

    lines = []
    for kind in overall(pl.DataFrame(rows, infer_schema_length=None)).partition_by("kind", maintain_order=True):
        learners = ("Autopilot", "StructuralKalman", "LearnedKalman")
        simple = kind.filter(~pl.col("policy").is_in([*learners, *LEARNERS]))["policy"][:1].to_list()
        for row in kind.filter(pl.col("policy").is_in([*learners, *simple])).iter_rows(named=True):
            percent = row["kind"] == "recorded tables"
            factor, digits = (100, 1) if percent else (1, 2)
            mean, error, worst = (factor * row[name] for name in ("mean", "error", "worst"))
            shown = f"{mean:.{digits}f} ± {error:.{digits}f}", f"{worst:{'+' if percent else ''}.{digits}f}"
            family = row["family"].partition("-")[2]
            lines.append([row["kind"], row["policy"], *shown, family])
    return markdown(["", "policy", "mean", "worst", "where"], lines) if lines else ""


def _trials_of(*families: str, minutes: float, policies: Sequence[str] = (), runs: int | None = None) -> Piece:
    """Return a piece that runs the trials of some families, with all policies or some, and all runs or some."""
    chosen = [option for family in families for option in ("--family", family)]
    some = ["--policies", ",".join(policies)] if policies else []
    some += ["--runs", str(runs)] if runs else []
    return Piece(("-m", "undertow", "trials", *chosen, *some, "--json"), "one per problem, from 0", minutes, _trials)


def _example(name: str, minutes: float, *more: str, seeds: str = "0 to 9") -> Piece:
    figure = f"docs/examples/{name}.png"
    command = (f"examples/{name}.py", *(more or ("--out", figure)))
    return Piece(command, seeds, minutes, _as_printed)


PIECES: dict[str, Piece] = {
    "first-look": Piece(("examples/first_look.py", "--out", "docs/first_look.png"), "0", 0.5, _as_printed),
    "theory": Piece(("-m", "undertow", "theory", "coverage,lower-bounds,lag-correlation"), "0", 2, _theory),
    "theory-ares": Piece(
        ("-m", "undertow", "theory", "noise-sum,played-noise,informative,exploration"), "0, 100, 200", 1, _theory
    ),
    "diagnose-stocks": Piece(
        ("-m", "undertow", "diagnose", f"{TABLES}/stocks.csv", "--rewards", "DAX,SMI,CAC,FTSE", "--json"),
        "0",
        0.3,
        _diagnosis,
        {"out/diagnose/stocks/figures/diagnosis.png": "docs/diagnose_stocks.png"},
        _stocks,
    ),
    "diagnose-victoria": Piece(
        ("-m", "undertow", "diagnose", f"{TABLES}/victoria.csv", "--phases", "hour", "--json"),
        "0",
        0.5,
        _diagnosis,
        {"out/diagnose/victoria/figures/diagnosis.png": "docs/diagnose_victoria.png"},
        _victoria,
    ),
    "replay": Piece(
        ("-m", "undertow", "replay", f"{TABLES}/victoria.csv", "--phases", "hour", "--json"),
        "0",
        1,
        _replay,
        {"out/replay/victoria/figures/arms.png": "docs/replay_arms.png"},
        _victoria,
    ),
    "study": Piece(("-m", "undertow", "study", "--json"), "0", 10, _study),
    "study-missing": Piece(
        ("-m", "undertow", "study", "--missing", "0.3", "--runs", "20", "--policies", WITH_GAPS, "--json"),
        "0",
        2,
        _missing,
    ),
    "appendix": Piece(
        ("-m", "undertow", "study", "--runs", "20", "--policies", PAPER, "--appendix", "--json"), "0", 5, _appendix
    ),
    "live": Piece(("-m", "undertow", "live"), "0; runs 0 to 4", 5, _live),
    "channels": _example("channels", 1),
    "compression": _example("compression", 3, seeds="worlds 0 to 9"),
    "controllers": _example("controllers", 3, seeds="worlds 0 to 9"),
    "forecasters": _example("forecasters", 3),
    "learning_rate": _example("learning_rate", 2),
    "portfolio": _example("portfolio", 1),
    "pricing": _example("pricing", 2),
    "queries": _example("queries", 3, seeds="worlds 0 to 9"),
    "routing": Piece(("examples/routing.py",), "0 to 19", 30, _as_printed),
    "routing-cost": Piece(("-m", "benchmarks", "routing"), "0", 2, _first_table),
    "stations": _example("stations", 1),
    "stations-all": _example("stations", 15, "--rounds", "5698"),
    "learners": Piece(
        ("tools/learner_figures.py",),
        "0",
        10,
        lambda printed: {"captions": printed.strip()},
        {f"out/{name}": f"docs/{name}" for name in ("learners_forecast.png", "learners_leader.png")},
    ),
    "trials-data": _trials_of("data", minutes=30),
    "trials-worlds": _trials_of("world", minutes=10),
    "trials-safe": _trials_of("safe", minutes=10),
    "trials-unseen": _trials_of(
        "untouched",
        "router",
        "clicks",
        minutes=15,
        policies=[
            *("Autopilot", "StructuralKalman", "LearnedKalman"),
            *(f"Discounted UCB {discount} (1)" for discount in ("0.95", "0.99", "0.995", "0.999")),
            *(f"Beta Thompson {discount}" for discount in ("0.99", "0.999", "1")),
        ],
    ),
    "trials-systems": _trials_of(
        *("paper", "stable", "stable-drift", "unit-root", "unit-root-drift", "missing", "no-contexts"),
        minutes=10,
        policies=("KalmanGreedy", *LEARNERS),
        runs=10,
    ),
    "trials-misspecified": _trials_of("misspecified", minutes=5, policies=LEARNERS),
    "tuner": Piece(("-m", "benchmarks", "tuner"), "0; worlds 0 to 9", 15, _tuner),
    "torture": Piece(("tools/torture.py", "--seed", "24", "--seconds", "45"), "24", 30, _first_table),
    "torture-stores": Piece(
        ("tools/torture.py", *STORE_PARTS, "--seed", "24", "--seconds", "1"), "24", 10, _first_table
    ),
    "bench": Piece(
        ("-m", "benchmarks", "quality", "speed", "headline"),
        "0; random systems 0 to 3",
        20,
        _bench,
        {"out/bench/benchmark.png": "docs/benchmark.png"},
    ),
    "filters": Piece(("-m", "benchmarks", "--full", "filters"), "systems 100 to 107", 12, _first_table),
    "safe-arm": Piece(
        ("-m", "benchmarks.safe_arm", "../old"),
        "worlds 100 to 109; policies 0 to 9",
        2,
        _first_table,
        runs_in_python=True,
    ),
}
