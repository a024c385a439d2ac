"""Quality: regret of ours and of every peer on the same stored paths.

Peers play twice, tuned each time: with the last ten contexts and the features, and with their own last five rewards
beside them, exactly what our ridge policies are given. Ours play with their defaults. The rows go to
out/bench/quality.json.
"""

import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.environments import Done, PeerError, run_jobs
from benchmarks.peers.play import Job
from benchmarks.problems import SHORT, Extent, Problem, test_problems
from benchmarks.report import OUT, Report, spread
from benchmarks.tune import LAGS, percent_won, to_random, tuned
from undertow import simulate
from undertow.contenders import Contender

CONTEXTS, OWN = LAGS
KNOWS, ORACLE = "KalmanGreedy", "Oracle"
SLOWEST_FIRST = ("bayesianbandits", "pymab", "contextualbandits", "mabwiser", "coba", "river", "vowpalwabbit")
BASES = (Contender(KNOWS, "kalman-greedy"), Contender(ORACLE, "context-oracle"))
OURS = (
    (BASES[0], OWN),
    (BASES[1], CONTEXTS),
    (Contender("Autopilot", "autopilot"), OWN),
    (Contender("LearnedKalman", "learned-kalman"), OWN),
    (Contender("StructuralKalman", "structural-kalman"), OWN),
    (Contender("ARES", "ares", needs_contexts=True), CONTEXTS),
    (Contender("LinUCB", "linucb"), CONTEXTS),
    (Contender("LinUCB", "linucb", {"reward_lags": 5}), OWN),
    (Contender("Random", "random"), CONTEXTS),
)
REFERENCES = {
    KNOWS: f"{KNOWS}, knows the system",
    ORACLE: f"{ORACLE}, knows the system, ignores rewards",
    "Random": "Random",
}
SHOWN = {CONTEXTS: "contexts, features", OWN: "… and own rewards"}


class Row(NamedTuple):
    """The result of one player on one path; None without a reference, or if it failed."""

    group: str
    problem: str
    library: str
    policy: str
    inputs: str
    seed: int
    to_random: float | None = None
    to_oracle: float | None = None
    to_known: float | None = None
    microseconds: float | None = None
    error: str | None = None


def main(extent: Extent = SHORT) -> list[Row]:
    report = Report()
    problems = list(test_problems(extent))
    files = [problem.store(OUT / "paths") for problem in problems]
    bases = [{base.label: _regret(problem, base) for base in BASES} for problem in problems]
    columns = (TextColumn("{task.description:18}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress, ThreadPoolExecutor(os.cpu_count()) as pool:

        def begin(play: Callable[..., list[Row]], name: str, *arguments: Any) -> Any:
            bar = progress.add_task(name, total=None)
            return pool.submit(play, *arguments, lambda done, total: progress.update(bar, completed=done, total=total))

        waiting = [begin(_play_ours, "undertow", problems, bases, extent)]
        waiting += [begin(_play_peer, peer, peer, problems, files, bases, extent) for peer in SLOWEST_FIRST]
        rows = [row for future in waiting for row in future.result()]
    rows = sorted(rows, key=lambda row: (row.library != "undertow", row.library))
    show(report, rows, extent)
    report.save(OUT / "quality.json", extent=extent._asdict(), rows=[row._asdict() for row in rows])
    return rows


def show(report: Report, rows: Sequence[Row], extent: Extent) -> None:
    """Print the tables."""
    sampled = list(dict.fromkeys(row.group for row in rows if row.group not in extent.recorded))
    what = f"{extent.rounds} rounds; psi: {extent.paths} paths; random: one path of {len(extent.systems)} systems"
    for title, field in ((f"the {ORACLE}", "to_oracle"), (KNOWS, "to_known")):
        report.grid(f"Regret relative to {title}: median (range)", sampled, cells(rows, sampled, field))
        report.note(what)
    report.grid(
        "Share won on recorded data, %: 0 for a random choice, 100 for the best arm of every round",
        extent.recorded,
        cells([_share(row) for row in rows], extent.recorded, "to_random", ".1f"),
    )
    report.note(f"seeds of policies that draw numbers: {extent.seeds[0]} for ours, {extent.seeds[1]} for peers")
    for problem in failures(rows):
        report.note(problem)


def cells(rows: Iterable[Row], groups: Sequence[str], field: str, form: str = ".2f") -> dict[str, list[str]]:
    """Return the table's cells: a line for each player, a column for each group."""
    table: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        table.setdefault(label(row), {}).setdefault(row.group, []).append(row)
    return {name: [_cell(found.get(group, []), field, form) for group in groups] for name, found in table.items()}


def label(row: Row) -> str:
    """Return the label of a line of the table."""
    if row.library == "undertow":
        return REFERENCES.get(row.policy) or f"undertow {row.policy}, {SHOWN[row.inputs]}"
    return f"{row.library}, {SHOWN[row.inputs]}"


def failures(rows: Sequence[Row]) -> list[str]:
    """Return a line for every kind of failure."""
    told: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.error:
            told.setdefault((label(row), row.error), []).append(f"{row.group} {row.problem}")
    return [f"{name}: {error} ({', '.join(where)})" for (name, error), where in told.items()]


def median(rows: Iterable[Row], field: str) -> float | None:
    """Return the median of the results, None if there are none."""
    values = [getattr(row, field) for row in rows if getattr(row, field) is not None]
    return statistics.median(values) if values else None


def _cell(rows: Sequence[Row], field: str, form: str) -> str:
    values = [getattr(row, field) for row in rows if getattr(row, field) is not None]
    if not values:
        return "fails" if any(row.error for row in rows) else "–"
    failed = sum(row.error is not None for row in rows)
    return spread(values, form) + (f", {len(values)} of {len(rows)}" if failed else "")


def _share(row: Row) -> Row:
    return row if row.to_random is None else row._replace(to_random=percent_won(row.to_random))


def _regret(problem: Problem, contender: Contender, seed: int = 0) -> float | None:
    """Return the regret of one of ours; None if it cannot play."""
    arms = _arms(problem, contender, seed)
    return None if arms is None else float(problem.path.regret(arms)[-1])


def _arms(problem: Problem, contender: Contender, seed: int) -> Any:
    if not contender.can_play(problem.path, problem.system):
        return None
    return simulate(contender.for_path(problem.path, system=problem.system, seed=seed), problem.path, threads=1).arms


def _scored(row: Row, problem: Problem, bases: dict[str, float | None], arms: Any, **more: Any) -> Row:
    regret = float(problem.path.regret(arms)[-1])
    oracle, known = bases[ORACLE], bases[KNOWS]
    return row._replace(
        to_random=to_random(problem, arms),
        to_oracle=None if oracle is None else regret / oracle,
        to_known=None if known is None else regret / known,
        **more,
    )


def _play_ours(
    problems: Sequence[Problem],
    bases: Sequence[dict[str, float | None]],
    extent: Extent,
    progress: Callable[[int, int], None],
) -> list[Row]:
    rows = []
    for done, (problem, base) in enumerate(zip(problems, bases, strict=True)):
        progress(done, len(problems))
        for contender, inputs in OURS:
            for seed in range(extent.seeds[0] if problem.group in extent.recorded else 1):
                arms = _arms(problem, contender, seed)
                if arms is not None:
                    row = Row(problem.group, problem.label, "undertow", contender.label, inputs, seed)
                    rows.append(_scored(row, problem, base, arms))
    progress(len(problems), len(problems))
    return rows


def _play_peer(
    peer: str,
    problems: Sequence[Problem],
    files: Sequence[Path],
    bases: Sequence[dict[str, float | None]],
    extent: Extent,
    progress: Callable[[int, int], None],
) -> list[Row]:
    """Let a peer play everything in its own environment, which is made first."""
    jobs: list[Job] = []
    plans = []
    for problem, file, base in zip(problems, files, bases, strict=True):
        for inputs, lags in LAGS.items():
            parameters = tuned(peer, inputs, problem.group)
            for seed in range(extent.seeds[1] if problem.group in extent.recorded else 1):
                out = OUT / "played" / f"{peer}-{len(jobs)}.npz"
                jobs.append(Job(str(file), str(out), parameters, seed, lags=lags))
                row = Row(problem.group, problem.label, peer, parameters["algorithm"], inputs, seed)
                plans.append((row, problem, base))
    (OUT / "played").mkdir(parents=True, exist_ok=True)
    finished = 0

    def advance() -> None:
        nonlocal finished
        finished += 1
        progress(finished, len(jobs))

    try:
        answers = run_jobs(peer, jobs, advance)
    except PeerError as error:
        answers = [Done(f"does not install: {error}")] * len(jobs)
    rows = []
    for (row, problem, base), job, answer in zip(plans, jobs, answers, strict=True):
        if answer.error:
            rows.append(row._replace(error=answer.error))
        else:
            with np.load(job.out) as played:
                microseconds = float(np.median(played["nanoseconds"])) / 1e3
                rows.append(_scored(row, problem, base, played["arms"], microseconds=microseconds))
    return rows


if __name__ == "__main__":
    main()
