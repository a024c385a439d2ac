import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tables import Terminal
from undertow import InvalidInputError, make, paper_system, simulate
from undertow.problems.datasets import dataset
from undertow.problems.families import FAMILIES, select_families
from undertow.study.overall import overall, show_overall
from undertow.study.trials import CONTENDERS, FLOOR, OTHERS, SIMPLE, run_trials, show, summarise, write
from undertow.support.numbers import share_won

OLD = ["KalmanGreedy", "Oracle", "PIES(10)", "LinUCB + own rewards", "Discounted UCB"]


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return run_trials(runs=2, rounds=150, policies=OLD, threads=2)


def test_one_row_per_problem_and_policy(table: pl.DataFrame) -> None:
    assert table["family"].unique(maintain_order=True).to_list() == list(FAMILIES)
    assert not table.select("family", "problem", "policy").is_duplicated().any()
    assert (table["rounds"] == 150).all()
    for name, family in FAMILIES.items():
        rows = table.filter(pl.col("family") == name)
        present = set(rows["policy"])
        assert ("KalmanGreedy" in present) == (family.problem(0).system is not None)
        assert ("PIES(10)" in present) == (family.problem(0).path(1).context_dim > 0)
        assert {"LinUCB + own rewards", "Discounted UCB"} <= present
        assert (rows["share"].is_null() == (family.data is None)).all()
    timed = table.filter(pl.col("microseconds").is_null())
    assert set(timed["policy"]) == {"best fixed arm (hindsight)", "average of all rewards (sees all)"}


def test_rows_are_what_simulate_says(table: pl.DataFrame) -> None:
    problem = FAMILIES["unit-root-drift"].problem(1)
    assert problem.system is not None
    path = problem.path(150)
    run = simulate(make("kalman-greedy", problem.system), path)
    assert run.regret is not None
    here = (pl.col("family") == "unit-root-drift") & (pl.col("problem") == "seed 1")
    row = table.row(by_predicate=here & (pl.col("policy") == "KalmanGreedy"), named=True)
    assert row["regret"] == run.regret[-1]
    assert path.means is not None
    played = np.random.default_rng(0).integers(path.arm_count, size=(2000, 150))
    losses = [path.regret(arms)[-1] for arms in played]
    assert abs(np.mean(losses) - row["random_regret"]) < 4 * np.std(losses) / np.sqrt(2000)


def test_the_share_won_is_that_of_the_data_set() -> None:
    whole = run_trials(["data-victoria"], runs=1, policies=["Discounted UCB"], threads=1)
    path = FAMILIES["data-victoria"].problem(0).path(len(dataset("victoria").trajectory.rewards))
    run = simulate(make("discounted-ucb", arms=5, discount=0.99), path)
    shares = dict(zip(whole["policy"], whole["share"], strict=True))
    assert shares["Discounted UCB"] == pytest.approx(share_won(path.rewards, run.arms))
    assert shares["average of all rewards (sees all)"] == pytest.approx(0.807, abs=5e-4)


def test_threads_change_nothing_but_times(table: pl.DataFrame) -> None:
    again = run_trials(["stable", "data"], runs=2, rounds=150, policies=OLD, threads=1)
    some = table.filter(pl.col("family").str.contains("^(stable|data-.*)$"))
    assert again.drop("microseconds").equals(some.drop("microseconds"))


def test_several_seeds_of_a_policy_on_one_problem() -> None:
    labels = ["KalmanGreedy", "LearnedKalman"]
    once = run_trials(["unit-root"], runs=2, rounds=60, policies=labels, threads=2)
    thrice = run_trials(["unit-root"], runs=2, seeds=3, rounds=60, policies=labels, threads=2)
    assert thrice["policy"].to_list() == 2 * ["KalmanGreedy", *3 * ["LearnedKalman"]]  # the first draws nothing
    assert thrice["seed"].to_list() == 2 * [0, 0, 1, 2]
    first = thrice.filter(pl.col("seed") == 0)
    assert first.drop("microseconds").equals(once.drop("microseconds"))
    regrets = thrice.filter(pl.col("policy") == "LearnedKalman")["regret"].to_numpy().reshape(2, 3)
    assert len(np.unique(regrets)) > 2
    known = once.filter(pl.col("policy") == "KalmanGreedy")["regret"].to_numpy()
    learned = summarise(thrice).row(1, named=True)
    assert learned["problems"] == 2
    assert learned["to_known_worst"] == pytest.approx((np.median(regrets, axis=1) / known).max())


def test_summary() -> None:
    """By hand: two problems, two others, a floor that bites."""
    rows = [
        ("stable", "seed 0", "KalmanGreedy", 10.0, 1000.0),
        ("stable", "seed 1", "KalmanGreedy", 40.0, 1000.0),
        ("stable", "seed 0", "LinUCB + own rewards", 20.0, 1000.0),
        ("stable", "seed 1", "LinUCB + own rewards", 60.0, 1000.0),
        ("stable", "seed 0", "Discounted UCB", 1.0, 1000.0),
        ("stable", "seed 1", "Discounted UCB", 40.0, 1000.0),
    ]
    columns = ["family", "problem", "policy", "regret", "random_regret"]
    empty = (pl.lit(None, dtype=pl.Float64).alias(name) for name in ("reward", "stayed", "share", "microseconds"))
    summary = summarise(pl.DataFrame(rows, schema=columns, orient="row").with_columns(*empty))
    known, linear, discounted = summary.iter_rows(named=True)
    assert (linear["to_known"], linear["to_known_worst"]) == (1.75, 2.0)
    assert (discounted["to_known"], discounted["to_known_worst"]) == (pytest.approx(0.55), 1.0)
    assert linear["to_oracle"] is None
    assert linear["best"] == "Discounted UCB"
    assert FLOOR == 0.01
    assert discounted["to_best"] == 1.0
    assert linear["to_best"] == pytest.approx(np.sqrt(20 * 60 / (10 * 40)))  # 1 counts as 10, 1 % of Random's
    assert known["to_best"] == pytest.approx(1.0)
    assert known["of_random"] == pytest.approx(0.025)


@pytest.mark.parametrize(("family", "policy"), [("stable", "Discounted UCB 0.99 (0.3)"), ("safe-3-0", "KalmanGreedy")])
def test_policies_that_can_play_nothing_are_refused(family: str, policy: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"policies: {re.escape(policy)} cannot play any problem of {family}"):
        run_trials([family], runs=1, rounds=20, policies=[policy], threads=1)


def test_simple_policies_play_where_there_is_no_system() -> None:
    """Ratios to the best of them, with standard errors; by hand from the rows."""
    label = "Discounted UCB 0.99 (0.3)"
    assert label in [contender.label for contender in SIMPLE]
    rows = run_trials(["safe-3-0", "stable"], runs=3, rounds=300, policies=["Discounted UCB", label], threads=1)
    assert set(rows.filter(pl.col("family") == "stable")["policy"]) == {"Discounted UCB"}
    _, wide, simple = summarise(rows).sort("family", descending=True).iter_rows(named=True)
    assert (simple["policy"], simple["simple"], simple["to_simple"]) == (label, label, 1.0)
    safe = rows.filter(pl.col("family") == "safe-3-0")
    first, second = (safe.filter(pl.col("policy") == name)["regret"].to_numpy() for name in ("Discounted UCB", label))
    logs = np.log(first / second)
    assert wide["to_simple"] == pytest.approx(np.exp(logs.mean()))
    assert wide["to_simple_error"] == pytest.approx(np.exp(logs.mean()) * logs.std(ddof=1) / np.sqrt(3))
    problem = FAMILIES["safe-3-0"].problem(0)
    path = problem.path(300)
    assert path.means is not None
    run = simulate(make("discounted-ucb", arms=3, discount=0.99), path)
    row = safe.row(
        by_predicate=(pl.col("problem") == problem.label) & (pl.col("policy") == "Discounted UCB"), named=True
    )
    assert row["stayed"] == np.mean(run.arms[200:] == 0)
    assert row["reward"] == pytest.approx(path.means[np.arange(300), run.arms].mean())


def test_over_all_families_of_a_kind() -> None:
    """By hand: two tables and the null case, two worlds, one world with a safe arm."""
    label, second, third = "LinUCB (1)", "Discounted UCB 0.99 (1)", "StructuralKalman"
    none = dict.fromkeys(("share_mean", "share_error", "to_simple", "to_simple_error", "reward", "reward_error"))
    rows = [
        {"family": f"data-{name}", "policy": policy, **none, "share_mean": share, "share_error": error}
        for name, shares in (("calls", (0.3, 0.4)), ("rain", (0.5, 0.2)), ("stocks", (9.0, 9.0)))
        for policy, share, error in zip((label, "Autopilot"), shares, (0.03, 0.04), strict=True)
    ]
    rows += [{"family": "data-calls", "policy": "best fixed arm (hindsight)", **none, "share_mean": 0.9}]
    rows += [
        {"family": f"world-{name}", "policy": "Autopilot", **none, "to_simple": ratio, "to_simple_error": 0.1}
        for name, ratio in (("periodic", 2.0), ("switches", 0.5))
    ]
    rows += [
        {"family": "safe-quiet", "policy": policy, **none, "reward": reward, "reward_error": 0.02}
        for policy, reward in ((label, 0.5), (second, 1.0), (third, 0.8), ("Autopilot", 0.9))
    ]
    found = {(row["kind"], row["policy"]): row for row in overall(pl.DataFrame(rows)).iter_rows(named=True)}
    tables, worlds, safe = (found[kind, "Autopilot"] for kind in ("recorded tables", "worlds", "safe arm"))
    assert [policy for kind, policy in found if kind == "recorded tables"] == [label, "Autopilot"]  # the best first
    assert (tables["mean"], tables["worst"], tables["family"]) == (pytest.approx(0.3), pytest.approx(-0.3), "data-rain")
    assert tables["error"] == pytest.approx(0.04 / np.sqrt(2))
    assert (worlds["mean"], worlds["worst"], worlds["family"]) == (pytest.approx(1.0), 2.0, "world-periodic")
    assert worlds["error"] == pytest.approx(np.hypot(0.05, 0.2) / 2)
    assert (safe["mean"], safe["worst"]) == (pytest.approx(0.9), pytest.approx(0.9))
    assert safe["error"] == pytest.approx(0.02)
    assert {policy for kind, policy in found if kind == "safe arm"} == {label, second, third, "Autopilot"}
    shown = show_overall(overall(pl.DataFrame(rows)))
    assert [*shown.columns[2].cells][:2] == ["40.0 ± 2.1", "30.0 ± 2.8"]
    assert [*shown.columns[3].cells][1] == "-30.0"


def test_problems_on_which_knowledge_has_no_regret() -> None:
    """Four problems: two ratios, 2 and 3, one regret against none, and none against none."""
    regrets = {"KalmanGreedy": (10.0, 10.0, 0.0, 0.0), "LinUCB + own rewards": (20.0, 30.0, 5.0, 0.0)}
    rows = [
        ("stable", f"seed {seed}", policy, regret, 1000.0, 0.0, 0.0, None, 1.0)
        for policy, values in regrets.items()
        for seed, regret in enumerate(values)
    ]
    columns = ["family", "problem", "policy", "regret", "random_regret", "reward", "stayed", "share", "microseconds"]
    table = pl.DataFrame(rows, schema=columns, orient="row").with_columns(pl.col("share").cast(pl.Float64))
    summary = summarise(table)
    linear = summary.row(1, named=True)
    assert (linear["to_known"], linear["to_known_worst"], linear["known_problems"]) == (2.5, 3.0, 2)
    assert linear["to_known_all"] == 2.5  # of 1, 2, 3 and ∞
    shown = [*show(summary).columns[2].cells]
    assert shown == ["1.000 (1.00) on 2; 1.000 on all", "2.500 (3.00) on 2; 2.500 on all"]
    hopeless = table.with_columns(pl.when(pl.col("regret") == 10).then(0.0).otherwise(pl.col("regret")).alias("regret"))
    assert summarise(hopeless).row(1, named=True)["to_known_all"] is None


def test_what_is_written_and_shown(table: pl.DataFrame, tmp_path: Path) -> None:
    summary = summarise(table)
    assert set(summary["best"]) <= set(OTHERS)
    folder = write(tmp_path / "deep" / "trials", table, summary)
    assert pl.read_csv(folder / "trials.csv").height == table.height
    kept = json.loads((folder / "summary.json").read_text())
    assert len(kept) == summary.height
    assert kept[0]["policy"] == "KalmanGreedy"
    assert kept[0]["to_known"] == 1.0
    assert show(summary).row_count == summary.height


def test_families_by_name() -> None:
    assert select_families([]) == list(FAMILIES)
    assert select_families(["paper"]) == [f"paper-{psi}" for psi in (1, 2, 3, 4)]
    assert select_families(["data-stocks", "stable"]) == ["stable", "data-stocks"]
    assert len(select_families(["misspecified"])) == 9
    assert {FAMILIES[name].size for name in select_families(["paper"])} == {100}
    assert {contender.label for contender in CONTENDERS} >= {*OTHERS, *OLD}


def test_families_of_the_papers_system_share_their_paths() -> None:
    whole, lossy, bare = (FAMILIES[f"{name}-2"].problem(3) for name in ("paper", "missing", "no-contexts"))
    path = whole.path(100)
    assert (lossy.path(100).rewards == path.rewards).all()
    assert (bare.path(100).rewards == path.rewards).all()
    assert np.isnan(lossy.path(100).contexts).any()
    assert lossy.system == whole.system
    assert bare.system is not None
    assert bare.system.context_dim == bare.path(100).context_dim == 0
    assert (bare.system.dynamics == paper_system(2).dynamics).all()


def test_the_command(command: Terminal, tmp_path: Path) -> None:
    words = ["--family", "paper-1", "--family", "data-stocks", "--runs", "2", "--rounds", "100"]
    done = command("trials", *words, "--policies", "Oracle,LinUCB + own rewards", "--out", str(tmp_path))
    assert done.status == 0, done.err
    assert "the paper's system, psi = 1 (2)" in done.out
    assert "4 of 4 problems" in done.err
    assert pl.read_csv(tmp_path / "trials" / "trials.csv").height == 4 + 2 + 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"families": ["martian"]}, "family: there is no 'martian'; expected one of paper-1"),
        ({"policies": ["Luck"]}, "policies: there is no 'Luck'; there are KalmanGreedy"),
        ({"families": ["wrold"]}, r"family: there is no 'wrold' \(did you mean 'world'\?\); expected one of paper-1"),
        ({"policies": ["Autopilt"]}, r"policies: there is no 'Autopilt' \(did you mean 'Autopilot'\?\); there are"),
        ({"runs": 0}, "runs: expected at least 1, got 0"),
        ({"rounds": 0}, "rounds: expected at least 1, got 0"),
        ({"seeds": 0}, "seeds: expected at least 1, got 0"),
        ({"threads": 0}, "threads: expected at least 1, got 0"),
    ],
)
def test_mistakes(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        run_trials(**arguments)


def test_json_for_machines(command: Terminal, tmp_path: Path) -> None:
    words = ("--family", "data-stocks", "--runs", "1", "--rounds", "50", "--policies", "LinUCB + own rewards")
    events = [json.loads(line) for line in command("trials", *words, "--json", "--out", str(tmp_path)).out.splitlines()]
    assert events[-1]["event"] == "done"
    assert events[-1]["summary"][0]["family"] == "data-stocks"


def test_mistakes_end_with_status_2(command: Terminal) -> None:
    done = command("trials", "--family", "martian")
    assert done.status == 2, done.err
    assert "undertow: family: there is no 'martian'" in done.err
    assert "Traceback" not in done.err
