"""Trials: policies that do not know the system, on many kinds of problems.

A family is a set of problems of one kind; every policy plays every problem of it, on the same paths and from the same
seeds. The result is one row per family, problem, policy and seed.
"""

import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.table import Table

from undertow.contenders import Contender
from undertow.errors import InvalidInputError
from undertow.problems.datasets import dataset, follow_average
from undertow.problems.families import FAMILIES, Family, Problem, select_families
from undertow.simulation import simulate
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.support.folders import whole, write_csv, write_json
from undertow.support.numbers import share_won
from undertow.support.pool import Progress, run_tasks
from undertow.trajectory import Trajectory

__all__ = ["CONTENDERS", "OTHERS", "SIMPLE", "run_trials", "show", "summarise", "write"]

FLOOR = 0.01  # of Random's regret; below it, less regret is luck
STUCK = 0.9  # share of the last third of the rounds at the safe arm
_APART = 1_000_000  # distance between two seeds of a policy on one problem, to differ from those of other problems
_WARM_UP = 300  # rounds, enough to compile every kernel before the measurement


KNOWS, ORACLE = "KalmanGreedy", "Oracle"
CONTENDERS: tuple[Contender, ...] = (
    Contender(KNOWS, "kalman-greedy"),
    Contender(ORACLE, "context-oracle"),
    Contender("PIES(10)", "pies", {"window": 10}, needs_contexts=True),
    Contender("LinUCB + own rewards", "linucb", {"window": 5, "reward_lags": 5}),
    Contender("LinUCB + own rewards (0.1)", "linucb", {"window": 5, "reward_lags": 5, "exploration": 0.1}),
    Contender("Discounted UCB", "discounted-ucb", {"discount": 0.99}),
    Contender("LearnedKalman", "learned-kalman"),
    Contender("StructuralKalman", "structural-kalman"),
    Contender("Autopilot", "autopilot"),
)
OTHERS = ("LinUCB + own rewards", "Discounted UCB", "LearnedKalman", "StructuralKalman")


def _simple() -> Iterable[Contender]:
    """Yield simple policies with every usual value of their parameters, as a careful user might tune them."""
    linear = {"window": 5, "standardize": True}
    for bonus in (0.1, 0.3, 1.0):
        yield Contender(f"LinUCB ({bonus:g})", "linucb", linear | {"exploration": bonus})
        yield Contender(f"LinUCB + lags ({bonus:g})", "linucb", linear | {"exploration": bonus, "reward_lags": 5})
    yield Contender("LinTS (0.3)", "lints", linear | {"exploration": 0.3})
    for discount in (0.99, 0.999, 1.0):
        yield Contender(f"Beta Thompson {discount:g}", "beta-thompson", {"discount": discount}, needs="prices")
    for bonus in (0.3, 1.0):
        yield Contender(f"UCB ({bonus:g})", "ucb", {"exploration": bonus})
        for discount in (0.95, 0.99, 0.995, 0.999):
            parameters = {"discount": discount, "exploration": bonus}
            yield Contender(f"Discounted UCB {discount:g} ({bonus:g})", "discounted-ucb", parameters)
            if discount > 0.95:
                yield Contender(f"Discounted LinUCB {discount:g} ({bonus:g})", "discounted-linucb", linear | parameters)
        for history in (50, 200, 1000):
            parameters = {"history": history, "exploration": bonus}
            yield Contender(f"Sliding-window UCB {history} ({bonus:g})", "sliding-window-ucb", parameters)
        parameters = linear | {"history": 500, "exploration": bonus}
        yield Contender(f"Sliding-window LinUCB 500 ({bonus:g})", "sliding-window-linucb", parameters)


SIMPLE: tuple[Contender, ...] = tuple(_simple())


def run_trials(
    families: Iterable[str] = (),
    *,
    runs: int | None = None,
    seeds: int = 1,
    rounds: int = 10_000,
    policies: Collection[str] = (),
    threads: int | None = None,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Play every problem of some families with every policy.

    Parameters
    ----------
    families
        Names of `FAMILIES`, or prefixes of several ("paper", "missing", "world", "safe", "untouched", "router",
        "clicks", "data"); all by default.
    runs
        Number of problems per family: paths of the paper's system, random systems, or seeds of the policies on
        recorded data. By default each family's own number.
    seeds
        Seeds per randomised policy on each problem. One seed says little if a single early choice can decide a run.
    rounds
        Rounds of each path; recorded data may be shorter.
    policies
        Labels of `CONTENDERS` and `SIMPLE`, by default all. The second play problems without a system only.
    threads
        Number of threads, by default one per core. They affect no column but `microseconds`.
    progress
        Called with the number of completed problems and their total.

    Returns
    -------
    family, problem, policy, seed (number of the policy's seed on this problem, the problem's own being 0), arms,
    rounds, regret, random_regret (the expected regret of a uniform choice on that path), reward (the mean expected
    reward per round), stayed (the share of the last third of the rounds in which arm 0, the safe one of the family
    "safe", was played), share (won, of recorded data only) and microseconds per round.
    """
    rounds, seeds = checks.integer("rounds", rounds, least=1), checks.integer("seeds", seeds, least=1)
    threads = checks.thread_count(threads)
    chosen = {name: FAMILIES[name] for name in select_families(families)}
    contenders = _contenders(policies)
    problems = [
        (name, family.problem(number))
        for name, family in chosen.items()
        for number in range(family.size if runs is None else checks.integer("runs", runs, least=1))
    ]
    _warm_up(problems, contenders, rounds)
    tasks = [partial(_play, name, problem, contenders, rounds, seeds) for name, problem in problems]
    rows = [row for found in run_tasks(tasks, threads=threads, progress=progress) for row in found]
    if not rows:
        raise InvalidInputError(
            f"policies: {', '.join(one.label for one in contenders)} cannot play any problem of {', '.join(chosen)}; "
            "some need contexts or the system, and simple ones play problems without a system; choose other families"
        )
    rows += [row for name, family in chosen.items() if family.data for row in _references(name, family, rounds)]
    return pl.DataFrame(rows, schema=_SCHEMA)


_SCHEMA = (
    dict.fromkeys(("family", "problem", "policy"), pl.String)
    | dict.fromkeys(("seed", "arms", "rounds"), pl.Int64)
    | dict.fromkeys(("regret", "random_regret", "reward", "stayed", "share", "microseconds"), pl.Float64)
)


def _play(
    family: str, problem: Problem, contenders: Sequence[Contender], rounds: int, seeds: int
) -> list[dict[str, Any]]:
    """Return one row per policy that can play the problem, and per seed of a randomised one."""
    path = problem.path(rounds)
    rows = []
    for contender in (contender for contender in contenders if contender.can_play(path, problem.system, problem.known)):
        if contender in SIMPLE and problem.system is not None:  # a policy that knows the system is the reference there
            continue
        for seed in range(seeds if contender.randomised else 1):
            about = {"system": problem.system, "seed": problem.seed + _APART * seed, **problem.known}
            policy = contender.for_path(path, **about)
            start = time.perf_counter()
            run = simulate(policy, path, threads=1)
            microseconds = 1e6 * (time.perf_counter() - start) / path.rounds
            row = _row(family, problem.label, contender.label, path, run.arms)
            rows.append(row | {"seed": seed, "microseconds": microseconds})
    return rows


def _row(family: str, problem: str, policy: str, path: Trajectory, arms: Any) -> dict[str, Any]:
    assert path.means is not None
    return {
        "family": family,
        "problem": problem,
        "policy": policy,
        "seed": 0,
        "arms": path.arm_count,
        "rounds": path.rounds,
        "regret": float(path.regret(arms)[-1]),
        "random_regret": float((path.means.max(axis=1) - path.means.mean(axis=1)).sum()),
        "reward": float(path.means[np.arange(path.rounds), arms].mean()),
        "stayed": float(np.mean(arms[2 * path.rounds // 3 :] == 0)),
        "share": share_won(path.means, arms) if FAMILIES[family].data else None,
        "microseconds": None,
    }


def _references(name: str, family: Family, rounds: int) -> list[dict[str, Any]]:
    """Return rows for hindsight and full information on a recorded table: references, not policies."""
    data = dataset(str(family.data))  # its arms in the order of the table, which these do not depend on
    rewards = data.trajectory.rewards[:rounds]
    path = Trajectory(None, rewards, means=rewards)
    best = np.full(path.rounds, path.rewards.mean(axis=0).argmax())
    follow = follow_average(data)[: path.rounds]
    shown = {"best fixed arm (hindsight)": best, "average of all rewards (sees all)": follow}
    return [_row(name, "seed 0", label, path, arms) for label, arms in shown.items()]


def _warm_up(problems: Sequence[tuple[str, Problem]], contenders: Sequence[Contender], rounds: int) -> None:
    """Compile all kernels, so that measured times do not include it."""
    cold = list(contenders)
    for first in dict(reversed(problems)).values():
        if not cold:
            break
        path = first.path(min(rounds, _WARM_UP))
        for contender in [contender for contender in cold if contender.can_play(path, first.system, first.known)]:
            simulate(contender.for_path(path, system=first.system, **first.known), path, threads=1)
            cold.remove(contender)


def _contenders(labels: Collection[str]) -> list[Contender]:
    known = {contender.label: contender for contender in (*CONTENDERS, *SIMPLE)}
    if unknown := [label for label in labels if label not in known]:
        near = checks.did_you_mean(unknown[0], known)
        raise InvalidInputError(f"policies: there is no {unknown[0]!r}{near}; there are {', '.join(known)}")
    return [contender for label, contender in known.items() if not labels or label in labels]


def summarise(table: pl.DataFrame) -> pl.DataFrame:
    """Return one row per family and policy of a table from `run_trials`.

    If a policy played a problem with several seeds, its regret there is the median over them.

    Returns
    -------
    family, policy, problems
        Names, and the number of problems.
    regret, of_random
        Median regret, and its median ratio to a uniform choice's.
    to_known, to_known_worst; to_oracle, to_oracle_worst
        Median and largest ratio to KalmanGreedy, which knows the true system, and to the paper's Oracle, on the
        problems on which these have regret.
    known_problems, to_known_all
        Number of problems on which KalmanGreedy has regret, and the median ratio over all problems, with infinity for
        any regret against none; null if that median is infinite.
    simple, to_simple, to_simple_error
        The best of `SIMPLE` by the geometric mean of regret over the family, the geometric mean of the ratio to it, and
        its standard error. Every regret is at least 1 % of a uniform choice's.
    reward, reward_error, stayed, stuck
        Mean reward per round and its standard error over the problems; the largest share of a last third at arm 0, and
        the number of problems on which that share is above 90 %.
    best, to_best
        The best of `OTHERS`, the one with the smallest geometric mean of regret over the family, and the geometric mean
        of the ratio to it. Here every regret is at least 1 % of a uniform choice's.
    share, share_low, share_high, share_mean, share_error
        Median and range of the share won, its mean, and the standard error of that.
    microseconds
        Median time per round.
    """
    rows = []
    measured = pl.col("regret", "random_regret", "reward", "stayed", "share", "microseconds").median()
    table = table.group_by("family", "problem", "policy", maintain_order=True).agg(measured)
    for family in table.partition_by("family", maintain_order=True):
        groups = {str(group["policy"][0]): group for group in family.partition_by("policy", maintain_order=True)}
        regrets = {label: group["regret"].to_numpy() for label, group in groups.items()}
        logs = {
            label: np.log(np.maximum(regrets[label], FLOOR * group["random_regret"].to_numpy()))
            for label, group in groups.items()
        }
        best, simple = (_best(logs, labels) for labels in (OTHERS, [contender.label for contender in SIMPLE]))
        for label, group in groups.items():
            to_known = _ratio(regrets[label], regrets.get(KNOWS))
            to_oracle = _ratio(regrets[label], regrets.get(ORACLE))
            to_simple, to_simple_error = _mean_ratio(logs[label], logs.get(str(simple)))
            rows.append(
                {
                    "family": family["family"][0],
                    "policy": label,
                    "problems": group.height,
                    "regret": group["regret"].median(),
                    "of_random": (group["regret"] / group["random_regret"]).median(),
                    "to_known": _or_none(np.median, to_known),
                    "to_known_worst": _or_none(np.max, to_known),
                    "known_problems": to_known.size,
                    "to_known_all": _median_of_all(regrets[label], regrets.get(KNOWS)),
                    "to_oracle": _or_none(np.median, to_oracle),
                    "to_oracle_worst": _or_none(np.max, to_oracle),
                    "best": best,
                    "to_best": None if best is None else _mean_ratio(logs[label], logs[best])[0],
                    "simple": simple,
                    "to_simple": to_simple,
                    "to_simple_error": to_simple_error,
                    "reward": group["reward"].mean(),
                    "reward_error": _error(group["reward"]),
                    "stayed": group["stayed"].max(),
                    "stuck": int((group["stayed"] > STUCK).sum()),
                    "share": group["share"].median(),
                    "share_low": group["share"].min(),
                    "share_high": group["share"].max(),
                    "share_mean": group["share"].mean(),
                    "share_error": _error(group["share"]),
                    "microseconds": group["microseconds"].median(),
                }
            )
    words, counts = ("family", "policy", "best", "simple"), ("problems", "known_problems", "stuck")
    kinds = dict.fromkeys(words, pl.String) | dict.fromkeys(counts, pl.Int64)
    return pl.DataFrame(rows, schema={name: kinds.get(name, pl.Float64) for name in rows[0]})


def _best(logs: dict[str, FloatArray], labels: Iterable[str]) -> str | None:
    """Return the label with the smallest mean log regret, of those that played."""
    return min((label for label in labels if label in logs), key=lambda label: float(logs[label].mean()), default=None)


def _mean_ratio(logs: FloatArray, base: FloatArray | None) -> tuple[float | None, float | None]:
    """Return the geometric mean of the ratios over the problems, and its standard error if there are several."""
    if base is None:
        return None, None
    mean = float(np.exp(logs.mean() - base.mean()))
    if len(logs) != len(base) or len(logs) < 2:
        return mean, None
    return mean, mean * float(np.std(logs - base, ddof=1)) / math.sqrt(len(logs))


def _error(values: pl.Series) -> float | None:
    """Return the standard error of a mean; None for fewer than two values."""
    count = len(values) - values.null_count()
    return float(values.std()) / math.sqrt(count) if count > 1 else None  # type: ignore[arg-type]


def _ratio(regret: FloatArray, base: FloatArray | None) -> FloatArray:
    """Return the ratios on the problems on which the base has any regret."""
    if base is None or len(base) != len(regret):
        return np.empty(0)
    return np.asarray(regret[base > 0] / base[base > 0])


def _median_of_all(regret: FloatArray, base: FloatArray | None) -> float | None:
    """Return the median ratio, with infinity for a regret against none; None if the median is infinite."""
    if base is None or len(base) != len(regret):
        return None
    none = np.where(regret > 0, np.inf, 1.0)
    median = float(np.median(np.divide(regret, base, out=none, where=base > 0)))
    return median if np.isfinite(median) else None


def _or_none(statistic: Callable[[FloatArray], Any], values: FloatArray) -> float | None:
    return float(statistic(values)) if values.size else None


def write(folder: str | os.PathLike[str], table: pl.DataFrame, summary: pl.DataFrame) -> Path:
    """Write trials.csv and summary.json to a folder, and return the folder."""
    place = Path(folder)
    with whole(place) as part:
        write_csv(part / "trials.csv", table)
        write_json(part / "summary.json", summary.to_dicts())
    return place


def show(summary: pl.DataFrame) -> Table:
    """Return the summary as a table to print."""
    table = Table(
        title="Regret relative to others: median (worst); geometric means; reward and share won: mean ± error"
    )
    names = (
        "to KalmanGreedy",
        "to the Oracle",
        "to the best other",
        "to the best simple",
        "reward",
        "share won, %",
        "µs",
    )
    lines = [_line(row) for row in summary.iter_rows(named=True)]
    shown = [number for number in range(len(names)) if any(line[number] for line in lines)]
    table.add_column("family")
    table.add_column("policy")
    for number in shown:
        table.add_column(names[number], justify="right")
    rows = iter(lines)
    for family in summary.partition_by("family", maintain_order=True):
        for number, row in enumerate(family.iter_rows(named=True)):
            line = next(rows)
            title = f"{FAMILIES[row['family']].title} ({row['problems']})" if number == 0 else ""
            table.add_row(title, row["policy"], *(line[column] for column in shown))
        table.add_section()
    return table


def _line(row: dict[str, Any]) -> list[str]:
    """Return the cells of one row; columns in which all are empty are not shown."""
    keys = ("share_mean", "share_error", "share_low", "share_high")
    share = [None if row[key] is None else 100 * row[key] for key in keys]
    return [
        _cell("{:.3f} ({:.2f})", row["to_known"], row["to_known_worst"]) + _ties(row),
        _cell("{:.3f} ({:.2f})", row["to_oracle"], row["to_oracle_worst"]),
        _cell("{:.3f}", row["to_best"]) + (" *" if row["policy"] == row["best"] else ""),
        _cell("{:.2f} ± {:.2f}", row["to_simple"], row["to_simple_error"])
        + (" *" if row["policy"] == row["simple"] else ""),
        _cell("{:.3f} ± {:.3f}", row["reward"], row["reward_error"]) if row["family"].startswith("safe") else "",
        _cell("{:.1f} ± {:.1f} ({:.1f}–{:.1f})", *share) or _cell("{:.1f}", *share[:1]),
        _cell("{:.1f}", row["microseconds"]),
    ]


def _ties(row: dict[str, Any]) -> str:
    """Return the number of problems on which KalmanGreedy has regret, if not all, and the median over all."""
    if row["to_known"] is None or row["known_problems"] == row["problems"]:
        return ""
    return f" on {row['known_problems']}; " + (_cell("{:.3f} on all", row["to_known_all"]) or "∞ on all")


def _cell(form: str, *values: float | None) -> str:
    return "" if any(value is None for value in values) else form.format(*values)
