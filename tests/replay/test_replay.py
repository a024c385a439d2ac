import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tables import Terminal, paper_table, table_of, write_csv
from undertow import InvalidInputError, Trajectory, make, simulate
from undertow.replay import parse_policies, read_table, replay_log, replay_table
from undertow.replay.contenders import DEFAULTS, build, usual_runs, who_plays
from undertow.replay.verdict import answer_on_table
from undertow.study.plan import contenders_of
from undertow.support.folders import plain
from undertow.support.numbers import decimals, spelled

CHEAP = "linucb(window=2), Discounted UCB, Random"


def test_measures_by_hand() -> None:
    """Two arms, the better of which alternates: 40 rounds pay 1 and 0, or 0 and 2."""
    X = np.tile([[1.0, 0.0], [0.0, 2.0]], (20, 1))
    result = replay_table(table_of(X), parse_policies("random"), runs=2, seed=3)
    rows = {row["policy"]: row for row in result.summary.iter_rows(named=True)}
    assert rows["any arm at random"]["reward"] == 0.75
    assert rows["best fixed arm: arm 1"]["reward"] == 1.0
    assert rows["clairvoyant"]["reward"] == 1.5
    assert rows["best fixed arm: arm 1"]["share"] == pytest.approx(1 / 3)
    assert rows["any arm at random"]["gain_over_fixed"] == pytest.approx(-0.5)
    assert rows["clairvoyant"]["regret_fixed"] == pytest.approx(-20)
    arms = result.choices["Random"]
    earned = X[np.arange(40), arms].mean()  # over both runs
    random = rows["Random"]
    assert random["runs"] == 2
    assert random["reward"] == pytest.approx(earned)
    assert random["regret_fixed"] == pytest.approx(40 * (1 - earned))
    assert random["regret_clairvoyant"] == pytest.approx(40 * (1.5 - earned))
    assert random["share"] == pytest.approx((earned - 0.75) / 0.75)
    assert random["gain_over_fixed"] == pytest.approx((earned - 1) / 0.5)
    shares = [(X[np.arange(40), run].mean() - 0.75) / 0.75 for run in arms]
    assert (random["share_least"], random["share_most"]) == (pytest.approx(min(shares)), pytest.approx(max(shares)))
    for name in ("reward", "share", "regret_fixed", "regret_clairvoyant", "gain_over_fixed"):
        assert random[f"{name}_low"] <= random[name] <= random[f"{name}_high"]


def test_a_share_of_next_to_nothing_is_left_out() -> None:
    """One arm is the best in all rounds but one: what is beyond it is a thousandth of what can be won."""
    X = np.tile([1.0, 0.0], (400, 1))
    X[200] = [0.0, 1.0]
    result = replay_table(table_of(X), parse_policies("random"), seed=3)
    assert result.summary["gain_over_fixed"].is_null().all()
    assert "beyond fixed" not in result._repr_html_()
    best, answer = answer_on_table(result)
    assert best == ""
    assert answer.startswith("Keep arm 0: no policy beats the best fixed arm beyond chance. Random comes closest: −0.")
    assert "nothing is estimated; the interval is that of 400 rounds" in answer


def test_policies_do_what_simulate_does() -> None:
    table = paper_table()
    result = replay_table(table, parse_policies("linucb(window=2, reward_lags=1), random"), runs=3, seed=7, threads=2)
    assert table.rewards is not None
    path = Trajectory(table.contexts, table.rewards)
    linear = make("linucb", arms=2, context_dim=1, window=2, reward_lags=1, standardize=True, rng=7)
    assert (result.choices["linucb(window=2, reward_lags=1)"][0] == simulate(linear, path).arms).all()
    paths = Trajectory(np.stack([table.contexts] * 3), np.stack([table.rewards] * 3))
    assert (result.choices["Random"] == simulate(make("random", arms=2, rng=7), paths).arms).all()
    first = replay_table(table, parse_policies("linucb(window=2)"), context_first=True)
    asked = make("linucb", arms=2, context_dim=1, window=2, standardize=True, context_first=True)
    assert (first.choices["linucb(window=2)"][0] == simulate(asked, path).arms).all()


def test_threads_change_nothing_and_seeds_do() -> None:
    table, specs = paper_table(), parse_policies(CHEAP)
    measures = pl.exclude("microseconds")
    one, two = (replay_table(table, specs, threads=threads).summary.select(measures) for threads in (1, 2))
    assert one.equals(two)
    assert not one.equals(replay_table(table, specs, seed=1).summary.select(measures))


@pytest.mark.parametrize(("rounds", "runs"), [(20, 3), (83_333, 3), (83_334, 2), (125_001, 1), (10**7, 1)])
def test_runs_add_up_to_a_quarter_of_a_million_rounds(rounds: int, runs: int) -> None:
    assert usual_runs(rounds) == runs


def test_a_long_table_is_played_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    table, policies = paper_table(200), parse_policies("random, discounted-ucb")
    assert [len(arms) for arms in replay_table(table, policies).choices.values()] == [3, 1]
    monkeypatch.setattr("undertow.replay.contenders.MOST_ROUNDS", 399)
    usual, given = replay_table(table, policies), replay_table(table, policies, runs=3)
    assert (usual.choices["Random"] == given.choices["Random"][:1]).all()
    said = "200 rounds are many, so randomised policies played them once, not 3 times; --runs sets how often"
    assert said in usual.notes
    assert said not in given.notes
    assert said not in replay_table(table, policies, runs=1).notes
    assert said not in replay_table(table, policies[1:]).notes


def test_comparisons_are_paired() -> None:
    """Policies that earn alike differ by little, however much both swing with the table."""
    swing = np.cumsum(np.random.default_rng(0).standard_normal(400))[:, None]
    table = table_of(np.hstack([swing, swing + 0.1]))
    result = replay_table(table, parse_policies("random, ucb"), block=20)
    row = result.comparisons.row(by_predicate=(pl.col("policy") == "ucb"), named=True)
    random, ucb = (result.summary.row(by_predicate=pl.col("policy") == name, named=True) for name in ("Random", "ucb"))
    assert row["difference"] == pytest.approx(ucb["reward"] - random["reward"])
    assert row["low"] <= row["difference"] <= row["high"]
    assert row["high"] - row["low"] < 0.05 < ucb["reward_high"] - ucb["reward_low"]
    back = result.comparisons.row(by_predicate=(pl.col("policy") == "Random"), named=True)
    assert (back["low"], back["high"]) == (pytest.approx(-row["high"]), pytest.approx(-row["low"]))


def test_who_plays() -> None:
    bare = table_of(np.random.default_rng(0).standard_normal((30, 3)))
    playing, notes = who_plays(bare)
    assert [spec.label for spec in playing] == [spec.label for spec in DEFAULTS if spec.label != "ARES"]
    assert notes == ["ARES is left out: context_dim: expected at least 1, since ARES forecasts from contexts, got 0"]
    assert [spec.label for spec in who_plays(paper_table(30))[0]] == [spec.label for spec in DEFAULTS]
    many = table_of(np.random.default_rng(0).standard_normal((30, 50)), np.ones((30, 1)))
    assert any("LinUCB + own rewards is left out: with 50 arms" in note for note in who_plays(many)[1])
    ours = build(parse_policies("autopilot")[0], paper_table(30), seed=0)
    assert ours.parts.parameters()["context_dim"] == 1
    assert (
        build(parse_policies("linucb(standardize=false)")[0], bare, seed=0).parts.parameters()["standardize"] is False
    )


def test_policies_are_parsed() -> None:
    specs = parse_policies("Autopilot, linucb(window=5, reward_lags=2),sliding-window-ucb , LinUCB + own rewards")
    assert [(spec.label, spec.policy) for spec in specs] == [
        ("Autopilot", "autopilot"),
        ("linucb(window=5, reward_lags=2)", "linucb"),
        ("Sliding-window UCB", "sliding-window-ucb"),
        ("LinUCB + own rewards", "linucb"),
    ]
    assert specs[1].parameters == {"window": 5, "reward_lags": 2}
    assert parse_policies("") == []
    planned = contenders_of({"policies": [{"policy": "linucb", "label": "L{window}", "grid": {"window": [1, 2]}}]})
    assert [spec.label for spec in planned] == ["L1", "L2"]


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        (
            "luck",
            "policies: no policy is called 'luck'; there are Autopilot, .* and by name ares, ares-as-printed",
        ),
        ("linucb(window 5)", "policies: expected parameters as in linucb"),
        (
            "linucb(window=5",
            r"policies: 'linucb\(window=5' does not end with a bracket; expected as in linucb\(window=5\)",
        ),
        ("linucb(window=5, random", r"policies: 'linucb\(window=5' does not end with a bracket"),
        ("linucb(windows=5)", r"policies: linucb\(windows=5\): windows: linucb has no such parameter"),
        (
            "kalman-greedy",
            "policies: kalman-greedy: kalman-greedy needs the true system, and a table does not contain it",
        ),
        ("random, random", "policies: 'Random' is the label of more than one policy"),
    ],
)
def test_mistakes_about_policies(policies: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        replay_table(paper_table(30), parse_policies(policies))


def test_other_mistakes() -> None:
    with pytest.raises(InvalidInputError, match="table: expected at least 20 rows, got 10"):
        replay_table(table_of(np.zeros((10, 2))))
    with pytest.raises(InvalidInputError, match="table: this one knows every arm's reward; use replay_table"):
        replay_log(paper_table(30))
    with pytest.raises(InvalidInputError, match="runs: expected at least 1, got 0"):
        replay_table(paper_table(30), runs=0)


def test_arms_that_all_pay_the_same_leave_nothing_to_divide() -> None:
    result = replay_table(table_of(np.ones((30, 2))), parse_policies("random"))
    row = result.summary.row(0, named=True)
    assert (row["reward"], row["regret_clairvoyant"]) == (1, 0)
    assert np.isnan(row["share"])


def test_missing_contexts_are_told() -> None:
    table = paper_table(60)
    contexts = table.contexts.copy()
    contexts[5:15] = np.nan
    assert table.rewards is not None
    holes = table_of(table.rewards, contexts)
    result = replay_table(holes, parse_policies("linucb(window=2), learned-kalman, random"), runs=1)
    assert "10 of 60 context entries are missing" in result.notes
    assert "policies that do not use contexts: Random" in result.notes


def test_costs_are_rewards_with_their_sign_changed(tmp_path: Path) -> None:
    file = write_csv(tmp_path, table_of(np.random.default_rng(0).random((40, 2))))
    gain, cost = read_table(file), read_table(file, minimize=True)
    assert gain.rewards is not None
    assert cost.rewards is not None
    assert (cost.rewards == -gain.rewards).all()
    paid, spent = (replay_table(table, parse_policies("ucb")).summary for table in (gain, cost))
    best, clairvoyant = spent.row(2, named=True), spent.row(3, named=True)
    assert best["reward"] == pytest.approx(gain.rewards.mean(axis=0).min())  # a cost, with its sign
    assert clairvoyant["reward"] < best["reward"] < best["reward_high"]
    assert paid.row(1, named=True)["reward"] == pytest.approx(spent.row(1, named=True)["reward"])


def test_the_command_writes_everything(tmp_path: Path, command: Terminal) -> None:
    file = write_csv(tmp_path, paper_table())
    done = command("replay", str(file), "--policies", CHEAP, "--runs", "2", "--out", str(tmp_path / "out"))
    assert done.status == 0, done.err
    assert "best fixed arm: " in done.out
    assert f"{file}: contexts: context_0" in done.err
    assert "1200 of 1200 rounds" in done.err
    folder = tmp_path / "out" / "replay" / "data"
    summary = pl.read_csv(folder / "summary.csv")
    assert set(summary["policy"][:3]) == {"linucb(window=2)", "Discounted UCB", "Random"}
    assert summary["share"][:3].is_sorted(descending=True)
    assert max(map(len, done.out.split("\nnote")[0].splitlines())) <= 100
    assert pl.read_csv(folder / "comparisons.csv").height == 6
    choices = pl.read_parquet(folder / "choices.parquet")
    assert choices.columns == ["linucb(window=2), run 0", "Discounted UCB, run 0", "Random, run 0", "Random, run 1"]
    assert set(choices["Random, run 0"].cast(pl.String)) == {"arm 0", "arm 1"}
    about = json.loads((folder / "replay.json").read_text(encoding="utf-8"))
    assert about["policies"][0] == {"label": "linucb(window=2)", "policy": "linucb", "parameters": {"window": 2}}
    assert about["settings"]["runs"] == 2
    assert about["columns"]["rewards"] == ["reward_arm 0", "reward_arm 1"]
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("<figure") == 3
    assert "undertow replay" in page
    assert 'src="data:image/svg+xml;base64,' in page
    assert {part.name for part in (folder / "figures").iterdir()} == {
        f"{name}.{form}" for name in ("arms", "shares", "rounds") for form in ("png", "svg", "pdf")
    }


def test_of_a_long_table_the_last_rows_are_played(
    tmp_path: Path, command: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Policies do on the last rows what they do on a file that holds nothing else; --rows has more played."""
    whole, alone = write_csv(tmp_path, paper_table(150), "whole.csv"), tmp_path / "alone.csv"
    lines = whole.read_text().splitlines(keepends=True)
    alone.write_text("".join([lines[0], *lines[51:]]))
    shared = ["--policies", CHEAP, "--runs", "1", "--out", str(tmp_path)]
    choices = {}
    monkeypatch.setattr("undertow.replay.contenders.MOST_ROUNDS", 100)
    said = "of 150 rows, the last 100 are used, and the others are not read; --rows 150 uses all"
    for name, words, rounds, notes in (
        ("alone", [], 100, 0),
        ("whole", [], 100, 1),
        ("whole", ["--rows", "150"], 150, 0),
        ("whole", ["--rows", "100"], 100, 1),
    ):
        done = command("replay", str(tmp_path / f"{name}.csv"), *words, *shared)
        assert (done.status, done.out.count(said)) == (0, notes)
        folder = tmp_path / "replay" / name
        about = json.loads((folder / "replay.json").read_text())
        assert (about["rounds"], about["skipped"]) == (rounds, 50 * notes)
        assert ("the last 100 of 150 rounds" in (folder / "report.html").read_text()) == bool(notes)
        choices[name, *words] = pl.read_parquet(folder / "choices.parquet")
    assert choices["whole",].equals(choices["alone",])
    assert choices["whole", "--rows", "100"].equals(choices["alone",])
    assert choices["whole", "--rows", "150"].height == 150


def test_json_for_machines_and_plans(tmp_path: Path, command: Terminal) -> None:
    file = write_csv(tmp_path, paper_table(60))
    plan = tmp_path / "plan.toml"
    plan.write_text('[[policies]]\npolicy = "linucb"\nlabel = "L{window}"\ngrid.window = [1, 2]\n', encoding="utf-8")
    words = ("replay", str(file), "--plan", str(plan), "--json", "--out", str(tmp_path))
    events = [json.loads(line) for line in command(*words).out.splitlines()]
    assert {event["event"] for event in events} == {"note", "progress", "done"}
    assert {row["policy"] for row in events[-1]["summary"][:2]} == {"L1", "L2"}
    assert events[-1]["answer"]
    assert Path(events[-1]["report"]).exists()


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("reward_a,reward_b\n1,2\n1,x\n", [], "line 3, column 'reward_b': expected a number, got 'x'"),
        ("reward_a,reward_b\n1,2\n", [], "table: expected at least 20 rows, got 1"),
        ("a,b\n1,2\n", ["--rewards", "a,c"], "rewards: there is no column 'c'; there are a, b"),
        ("reward_a,reward_b\n1,2\n", ["--learn-from", "foo"], "learn_from: for logs only"),
        ("reward_a,reward_b\n1,2\n", ["--learn-from", "accepted"], "learn_from: for logs only"),
        ("a,b\n1,2\n", ["--policies", "x", "--plan", "y.toml"], "plan: give policies or a plan, not both"),
    ],
)
def test_mistakes_end_with_status_2(
    tmp_path: Path, command: Terminal, text: str, words: list[str], message: str
) -> None:
    (tmp_path / "data.csv").write_text(text, encoding="utf-8")
    done = command("replay", str(tmp_path / "data.csv"), *words, "--out", str(tmp_path))
    assert done.status == 2, done.err
    assert message in done.err
    assert "Traceback" not in done.err


def test_without_the_extra_it_says_what_to_install() -> None:
    """Run anew, in a program for which polars is not there."""
    program = "import sys; sys.modules['polars'] = None; import undertow.replay"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last == "ModuleNotFoundError: undertow.replay needs polars; pip install 'undertow[study]'"


def test_reading_a_table_does_without_what_takes_long_to_import() -> None:
    program = "import sys, undertow.replay.output; print([name for name in sys.modules if name == 'scipy.signal'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_digits() -> None:
    rows = [{"x": 1.23456, "x_low": 1.1, "x_high": 1.4}, {"x": 2.0, "x_low": 2.0, "x_high": 2.0}]
    assert decimals(rows, "x") == 2
    assert spelled(rows[0], "x", 2) == ("1.23", "1.10 to 1.40")
    assert spelled(rows[1], "x", 2) == ("2.00", "")
    assert decimals([{"x": 1e-5, "x_low": 0.0, "x_high": 3e-5}], "x") == 6
    assert decimals([{"x": 1e5, "x_low": 0.0, "x_high": 3e5}], "x") == 0
    assert spelled({"x": None, "x_low": None, "x_high": None}, "x", 2) == ("–", "")
    assert spelled({"x": -0.001, "x_low": -2.0, "x_high": 1.0}, "x", 1) == ("0.0", "−2.0 to 1.0")
    assert plain({"a": [np.nan, 1.0], 2: "x"}) == {"a": [None, 1.0], "2": "x"}


def test_every_option_about_columns_arrives(tmp_path: Path, command: Terminal) -> None:
    rng = np.random.default_rng(0)
    rows = [
        f"2024-01-{1 + t // 24:02} {t % 24:02}:00;{a:.3f};{b:.3f};{c:.3f};{u}"
        for t, (a, b, c, u) in enumerate(rng.random((48, 4)))
    ]
    (tmp_path / "odd.csv").write_text("\n".join(["when;cost_a;cost_b;gauge;plan", *rows]), encoding="utf-8")
    words = ["--rewards", "cost_*", "--contexts", "gauge", "--features", "plan", "--time", "when", "--separator", ";"]
    words += ["--phases", "hour,weekday", "--minimize", "--context-first", "--block", "4", "--seed", "2", "--json"]
    done = command("replay", str(tmp_path / "odd.csv"), *words, "--policies", "linucb", "--out", str(tmp_path))
    assert done.status == 0, done.err
    about = json.loads((tmp_path / "replay" / "odd" / "replay.json").read_text(encoding="utf-8"))
    assert about["columns"]["rewards"] == ["cost_a", "cost_b"]
    assert about["columns"]["contexts"] == ["gauge"]
    assert about["columns"]["features"] == ["plan"]
    assert about["columns"]["phases"] == ["hour", "weekday"]
    assert about["settings"] == {"runs": 3, "seed": 2, "context_first": True, "block": 4}
    summary = json.loads(done.out.splitlines()[-1])["summary"]
    assert all(row["reward"] > 0 for row in summary)  # costs


@pytest.mark.parametrize("verb", ["replay", "diagnose"])
def test_names_of_arms_are_shown_as_they_are(verb: str, command: Terminal, tmp_path: Path) -> None:
    """Square brackets are markup to the terminal, dollars are mathematics to the figures."""
    names = ["$x^{$", "north [kwh]", "a[/b]"]
    rows = np.random.default_rng(0).standard_normal((150, 3)) + np.array([1.0, 0.0, 0.0])
    lines = [",".join(f"reward_{name}" for name in names), *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "odd.csv").write_text("\n".join(lines))
    words = ["--policies", "random", "--runs", "1"] if verb == "replay" else []
    done = command(verb, str(tmp_path / "odd.csv"), *words, "--out", str(tmp_path / "out"))
    assert done.status == 0
    assert all(name in done.out for name in (names[:1] if verb == "replay" else names))


def test_a_label_of_the_report_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="policies: 'always 0' is the name of a row of the report"):
        who_plays(paper_table(), contenders_of({"policies": [{"policy": "random", "label": "always 0"}]}))
