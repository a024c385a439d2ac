import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from undertow import InvalidInputError
from undertow.policies import Random
from undertow.replay import diagnose, parse_policies, read_table, replay_log, replay_table
from undertow.replay.columns import find_columns
from undertow.replay.phases import phase_features

GOOD = "time,reward_a,reward_b,context_x,feature_u,note\n2024-01-01,1,2,,4,x\n2024-01-02,3,4,5,6,y\n"


def file(folder: Path, text: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_table_is_read_by_its_names(tmp_path: Path) -> None:
    table = read_table(file(tmp_path, GOOD))
    assert (table.name, table.rounds, table.arms) == ("data", 2, ("a", "b"))
    assert table.rewards is not None
    assert table.rewards.tolist() == [[1, 2], [3, 4]]
    assert np.isnan(table.contexts[0, 0])
    assert (table.contexts[1, 0], table.missing) == (5, 1)
    assert table.features.tolist() == [[4], [6]]
    assert table.columns.describe() == [
        "rewards of 2 arms: reward_a, reward_b",
        "contexts: context_x",
        "features: feature_u",
        "time: time",
        "not used: note",
    ]
    assert table.log is None


@pytest.mark.parametrize("missing", ["", "NaN", "nan", "NA", "null", "None", " "])
def test_contexts_and_rewards_may_be_missing(tmp_path: Path, missing: str) -> None:
    text = "reward_a,reward_b,context_x,feature_u,z\n1,2,{},4,0\n1,2,3,4,0\n"
    assert read_table(file(tmp_path, text.format(missing))).missing == 1
    broken = f"reward_a,reward_b,context_x,feature_u,z\n1,2,3,4,0\n1,2,3,{missing},0\n"
    with pytest.raises(InvalidInputError, match="line 3, column 'feature_u': expected a number"):
        read_table(file(tmp_path, broken))
    gap = read_table(file(tmp_path, f"reward_a,reward_b\n1,2\n\n3,{missing}\n{missing},4\n"))
    assert gap.available is not None
    assert gap.available.tolist() == [[True, True], [True, False], [False, True]]
    assert gap.payoffs.tolist() == [[1, 2], [3, 3], [4, 4]]
    assert "left out: 1 row without any reward" in gap.notes


def test_parquet_and_csv_give_the_same(tmp_path: Path) -> None:
    from_csv = read_table(file(tmp_path, GOOD), phases=["weekday"])
    frame = pl.read_csv(tmp_path / "data.csv", try_parse_dates=True)
    frame.write_parquet(tmp_path / "data.parquet")
    from_parquet = read_table(tmp_path / "data.parquet", phases=["weekday"])
    assert (from_csv.features == from_parquet.features).all()
    assert from_csv.rewards is not None
    assert (from_csv.rewards == from_parquet.rewards).all()
    assert np.array_equal(from_csv.contexts, from_parquet.contexts, equal_nan=True)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "data.csv: the file is empty"),
        ("\n\n", {}, "data.csv: the file is empty"),
        ("reward_a,reward_b\n", {}, "column names but no rows"),
        ("1,2\n3,4\n", {}, "line 1: expected names of columns, got numbers"),
        ("reward_a,reward_a\n1,2\n", {}, "line 1: two columns are called 'reward_a'"),
        ("reward_a,,reward_b\n1,2,3\n", {}, "line 1: column 2 has no name"),
        ("a,b\n1,2\n", {}, r"line 1: rewards: expected at least two columns, .* found none; .* there are a, b"),
        ("a,b\n1,2\n", {"rewards": ["a", "c"]}, "line 1: rewards: there is no column 'c'; there are a, b"),
        ("a;b\n1;2\n", {"separator": ","}, r"there are a;b \(try --separator ';'\)"),
        ("a\tb\n1\t2\n", {"separator": ","}, r"\(try --separator tab\)"),
        ("a,b\n1,2\n", {"separator": ";"}, r"there are a,b \(try --separator ','\)"),
        ("a;b;c\n1,5;2;3\n", {"separator": ","}, "line 2: expected 1 cell, got 2; try --separator ';'"),
        (
            "reward_a;reward_b\n1,5;2,5\n",
            {"decimal": "."},
            "line 2, column 'reward_a': expected a number, got '1,5'",
        ),
        ("reward_a,reward_b\n1,2\n", {"decimal": "x"}, "decimal: expected '.' or ','"),
        ("reward_a,reward_b\n1,2\n", {"encoding": "klingon"}, "encoding: expected a name such as utf-8"),
        ("reward_a,reward_b\n1,2\n1,-\n", {"na": ["?"]}, "line 3, column 'reward_b': expected a number, got '-'"),
        ("reward_a,reward_b\n1,2\n1,two\n", {}, "line 3, column 'reward_b': expected a number, got 'two'"),
        ("reward_a,reward_b\n1,2\n1,inf\n", {}, "line 3, column 'reward_b': expected a finite number, got 'inf'"),
        ("reward_a,reward_b,context_c\n1,2,3\n1,2\n", {}, "line 3: expected 3 cells, got 2"),
        ("reward_a,reward_b\n1,2\n1,2,3\n", {}, "line 3: expected 2 cells, got 3"),
        ('note,reward_a,reward_b\n"two\nlines",1,2\nx,1,y\n', {}, "line 4, column 'reward_b': .* got 'y'"),
        (b"reward_a,reward_b\n1,2\n1,\x81\n", {}, "line 3 is not text in utf-8 or cp1252; name its encoding, --enc"),
        (b"reward_a,reward_b\n1,\xff\n", {"encoding": "utf-8"}, "line 2 is not text in utf-8"),
        (
            "date,reward_a,reward_b\n3/4/2024,1,2\n4/4/2024,1,2\n",
            {},
            "line 2, column 'date': day and month could be exchanged, got '3/4/2024'; say which is first",
        ),
        (
            "date,reward_a,reward_b\n2024-01-01,1,2\n2024-01-01,1,2\n",
            {},
            "line 3, column 'date': '2024-01-01' is the same",
        ),
        (
            "date,reward_a,reward_b\n2024-01-02,1,2\n2024-01-01,1,2\n",
            {},
            "line 3, column 'date': .* earlier than the row",
        ),
        (
            "date,reward_a,reward_b\n2024-01-02,1,2\n3.4.2024,1,2\n",
            {},
            "line 3, column 'date': expected a time as 2024-03-31",
        ),
        (
            "date,reward_a,reward_b\n1,1,2\n2,1,2\n",
            {"phases": ["hour"]},
            "line 2, column 'date': expected a time as 2024",
        ),
        ("reward_a,reward_b\n1,2\n", {"phases": ["hour"]}, "phases: there is no column of timestamps"),
        ("reward_a,reward_b\n1,2\n", {"phases": ["decade"]}, "phases: expected some of hour, weekday, month"),
        (
            "reward_a,reward_b\n1,2\n",
            {"contexts": ["reward_a"], "rewards": ["reward_*"]},
            "'reward_a' is given more than",
        ),
        ("arm,reward\nx,1\ny,2\n", {}, "line 1: propensity: a log needs the probability"),
        ("arm,reward,propensity\nx,1,0.5\ny,2,0\n", {}, "line 3, column 'propensity': expected a probability above 0"),
        ("arm,reward,propensity\nx,1,0.5\ny,2,1.5\n", {}, "line 3, column 'propensity': .* at most 1, got 1.5"),
        (
            "arm,reward,propensity\nx,1,0.5\n,2,0.5\n",
            {},
            "line 3, column 'arm': expected the name of an arm, got nothing",
        ),
        ("arm,reward,propensity\nx,1,0.5\nx,2,0.5\n", {}, "column 'arm': expected at least two arms, got"),
        ("arm,reward,propensity\nx,,0.5\ny,,0.5\n", {}, "column 'reward': there is no reward at all"),
        ("reward_a,reward_b\n1,2\n", {"separator": "ab"}, "separator: expected one character"),
        ("a,b,arm\n1,2,x\n", {"rewards": ["a", "b"], "arm": "arm"}, "rewards: one column per arm, or arm"),
    ],
)
def test_mistakes_are_told_with_line_and_column(
    tmp_path: Path, text: str | bytes, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_table(file(tmp_path, text), **options)


def test_mistakes_in_parquet_are_told_with_row_and_column(tmp_path: Path) -> None:
    when = [datetime.datetime(2024, 1, 1, hour) for hour in (5, 6, 6)]
    rewards = {"reward_a": [1, 2, 3], "reward_b": [1.0, 2.0, None]}
    pl.DataFrame({"time": when, "step": [1, 2, 3]} | rewards).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match="row 3, column 'time': 2024-01-01 06:00:00 is the same time"):
        read_table(tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet", time="step").payoffs.tolist() == [[1, 1], [2, 2], [3, 3]]
    pl.DataFrame({"reward_a": [[1]], "reward_b": [1.0]}).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(InvalidInputError, match="column 'reward_a': expected numbers, got List"):
        read_table(tmp_path / "b.parquet")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_table(file(tmp_path, "nonsense", "c.parquet"))
    with pytest.raises(InvalidInputError, match=r"d\.csv: there is no such file"):
        read_table(tmp_path / "d.csv")
    with pytest.raises(InvalidInputError, match="this is a folder; pass a file in it, such as a CSV or Parquet file"):
        read_table(tmp_path)


def test_what_people_write_is_read(tmp_path: Path) -> None:
    bom = file(tmp_path, "\ufeffreward_a; reward_b\r\n 1;2e3 \r\n-1;+4\r\n\r\n")
    table = read_table(bom, separator=";")
    assert table.rewards is not None
    assert table.rewards.tolist() == [[1, 2000], [-1, 4]]
    starred = file(tmp_path, "station_1,station_2,hum\n1,2,3\n")
    assert read_table(starred, rewards=["station_*"], contexts=["hum"]).arms == ("station_1", "station_2")


def test_gaps_in_time_are_noted(tmp_path: Path) -> None:
    days = "".join(f"2024-01-{day:02},1,2\n" for day in (1, 2, 3, 5, 6))
    (note,) = read_table(file(tmp_path, f"time,reward_a,reward_b\n{days}")).notes
    assert note.startswith("1 of 4 steps in time differ from the usual 1 day")
    rounds = "".join(f"{step},1,2\n" for step in range(5))
    assert read_table(file(tmp_path, f"time,reward_a,reward_b\n{rounds}")).notes == ()


def test_a_log_is_read(tmp_path: Path) -> None:
    rows = "10,1.5,0.2\n2,0.5,0.5\n10,1,0.2\n"
    table = read_table(file(tmp_path, f"arm,reward,propensity\n{rows}"))
    assert table.log is not None
    assert table.rewards is None
    assert table.arms == ("2", "10")  # numbers in the order of numbers
    assert table.log.arms.tolist() == [1, 0, 1]
    assert table.log.propensities.tolist() == [0.2, 0.5, 0.2]
    uniform = read_table(file(tmp_path, f"arm,reward,p\n{rows}"), propensity="uniform")
    assert uniform.log is not None
    assert uniform.log.propensities.tolist() == [0.5, 0.5, 0.5]


def test_propensities_that_cannot_be_are_doubted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    played = (rng.random(2000) < 0.3).astype(int)

    def read(chances: Any) -> tuple[str, ...]:
        rows = "".join(f"{arm},1,{chance}\n" for arm, chance in zip(played, chances, strict=True))
        return read_table(file(tmp_path, f"arm,reward,propensity\n{rows}")).notes

    assert read(np.where(played, 0.3, 0.7)) == ()
    notes, share = read(np.full(2000, 0.5)), np.mean(played)
    assert len(notes) == 2
    for arm, note in enumerate(notes):
        assert note.startswith(f"the propensities of arm {arm} do not fit how often it was played")
        mean = f"{2 * (share if arm else 1 - share):.2f}"
        assert f"the sum of 1/p over its rounds, divided by the number of all rounds, is {mean} ±" in note


def test_phases_are_positions_on_a_circle() -> None:
    start = datetime.datetime(2024, 1, 1)  # a Monday, and the first day of a year
    times = pl.Series([start + datetime.timedelta(hours=6 * step) for step in range(4 * 31)])
    values, names = phase_features(times, ["hour", "weekday", "month"])
    assert values.shape == (124, 4 + 6 + 4)
    assert names[:5] == ["hour cos 1", "hour sin 1", "hour cos 2", "hour sin 2", "weekday cos 1"]
    step = np.arange(124)
    assert values[:, 0] == pytest.approx(np.cos(2 * np.pi * (step % 4) / 4))
    assert values[:, 5] == pytest.approx(np.sin(2 * np.pi * (step // 4 % 7) / 7))
    day = (step // 4) / 31
    assert values[:, 11] == pytest.approx(np.sin(2 * np.pi * day / 12))
    # three pairs tell the seven weekdays apart, and are orthogonal over a week
    week = values[::4][:7, 4:10]
    assert week.T @ week == pytest.approx(3.5 * np.eye(6))


def test_phases_of_hours_that_a_clock_skips_on_another_day() -> None:
    """In Berlin there is no half past two on the last day of March 2024."""
    times = pl.Series([datetime.datetime(2024, 3, 11, 2, 30)])
    local, _ = phase_features(times.dt.replace_time_zone("Europe/Berlin"), ["month"])
    assert local == pytest.approx(phase_features(times, ["month"])[0])


def test_columns_that_are_said_win_over_names() -> None:
    names = ["reward_a", "reward_b", "arm", "reward", "propensity", "context_c"]
    with pytest.raises(
        InvalidInputError, match=r"columns reward_…, one per arm, and columns of a log, .* rewards 'reward_\*'"
    ):
        find_columns(names)
    full = find_columns(names, rewards=["reward_*"])
    assert (full.logged, full.rewards) == (False, ("reward_a", "reward_b"))
    one = find_columns([name for name in names if name != "reward_b"])  # one column is no table of arms
    assert (one.logged, one.unused) == (True, ("reward_a",))
    said = find_columns(names, arm="arm", contexts=["reward_a"])
    assert said.logged
    assert said.contexts == ("reward_a",)
    assert said.unused == ("reward_b", "context_c")


def test_a_name_is_no_pattern(tmp_path: Path) -> None:
    for name, rows in (("data[1].csv", 25), ("data1.csv", 30)):
        (tmp_path / name).write_text("reward_a,reward_b\n" + "\n".join(f"{t % 3},{t % 2}" for t in range(rows)))
    assert read_table(tmp_path / "data[1].csv").rounds == 25


def test_numbers_that_cannot_be_true_are_named(tmp_path: Path) -> None:
    rows = [f"{t % 3},{t % 2}" for t in range(30)]
    rows[4] = "1e160,1"
    (tmp_path / "data.csv").write_text("reward_a,reward_b\n" + "\n".join(rows))
    with pytest.raises(InvalidInputError, match=r"line 6, column 'reward_a': expected a number below 1e\+152 in size"):
        read_table(tmp_path / "data.csv")


def test_the_last_rows_are_read_as_if_there_were_no_others(tmp_path: Path) -> None:
    """The rows before hold a cell that is no number, times that fall, a third arm and another category."""
    head = "time,feature_sky,context_1,arm,reward,propensity\n"
    before = "9,fog,oops,c,1,0.5\n8,fog,1,c,1,0.5\n"
    last = "1,sun,1,a,1,0.5\n2,rain,,b,2,0.5\n4,sun,3,a,,0.5\n"
    alone = read_table(file(tmp_path, head + last, "alone.csv"))
    table = read_table(file(tmp_path, head + before + last), rows=3)
    assert table.arms == alone.arms == ("a", "b")
    assert table.feature_names == alone.feature_names
    assert table.log is not None
    assert alone.log is not None
    for ours, theirs in (
        (table.contexts, alone.contexts),
        (table.features, alone.features),
        (table.log.arms, alone.log.arms),
        (table.log.rewards, alone.log.rewards),
    ):
        assert np.array_equal(ours, theirs, equal_nan=True)
    said = "of 5 rows, the last 3 are used, and the others are not read; --rows 5 uses all"
    assert table.notes == (said, *alone.notes)
    assert (table.skipped, table.extent) == (2, "the last 3 of 5 rounds")
    assert (alone.skipped, alone.extent) == (0, "3 rounds")


def test_of_the_last_rows_mistakes_are_told_with_the_line_of_the_file(tmp_path: Path) -> None:
    path = file(tmp_path, "reward_a,reward_b\n1,2\n3,4\n5,oops\n")
    with pytest.raises(InvalidInputError, match=r"line 4, column 'reward_b': expected a number, got 'oops'"):
        read_table(path, rows=2)
    with pytest.raises(InvalidInputError, match=r"data.csv: line 1: "):
        read_table(path, rows=2, rewards=["reward_c", "reward_a"])


@pytest.mark.parametrize("rows", [3, 4, 10**9])
def test_as_many_rows_as_there_are_is_all_of_them(rows: int) -> None:
    table = read_table(pl.DataFrame({"reward_a": [1, 2, 3], "reward_b": [3, 2, 1]}), rows=rows)
    assert (table.rounds, table.skipped, table.notes) == (3, 0, ())


def test_no_rows_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="rows: expected"):
        read_table(pl.DataFrame({"reward_a": [1, 2, 3], "reward_b": [3, 2, 1]}), rows=0)


PANDAS = pd.DataFrame({"reward_a": [1.0, 2.0], "reward_b": [2.0, 1.0], "feature_u": [1.0, 2.0]})


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (PANDAS.set_axis(["reward_a", "reward_a", "u"], axis=1), "two columns are called 'reward_a'; rename one"),
        (PANDAS.set_index("feature_u", drop=False), "two columns are called 'feature_u'; rename one"),
        (PANDAS.set_axis(range(3), axis=1), "expected names of columns, got numbers; rename the columns"),
        (pl.DataFrame(), "there are no columns; add some"),
        (PANDAS["reward_a"], "data: expected the name of a file, a frame of pandas or polars, or an Arrow table"),
    ],
)
def test_frames_that_are_no_tables(frame: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_table(frame)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rewards": "reward_*"}, "rewards: expected a list, got 'reward_\\*'"),
        ({"rewards": [0, 1]}, "rewards: expected names of columns, got 0"),
        ({"phases": "hour"}, "phases: expected a list, got 'hour'"),
        ({"reward": ["reward_a"]}, "reward: expected the name of a column, got \\['reward_a'\\]"),
        ({"time": 5}, "time: expected the name of a column, got 5"),
    ],
)
def test_columns_are_given_as_names(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_table(PANDAS, **given)


def test_lines_that_end_as_on_old_macs(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"data.csv: the file has one line"):
        read_table(file(tmp_path, GOOD.replace("\n", "\r")))
    assert read_table(file(tmp_path, GOOD.replace("\n", "\r\n"))).rounds == 2
    with pytest.raises(InvalidInputError, match="there are column names but no rows"):
        read_table(file(tmp_path, "reward_a,reward_b\r\n"))


def test_names_with_commas_are_listed_as_an_option_takes_them() -> None:
    with pytest.raises(InvalidInputError, match='there are "price, net", b, c'):
        find_columns(["price, net", "b", "c"], rewards=["x", "b"])


@pytest.mark.parametrize("command", [diagnose, replay_table, replay_log])
def test_a_table_is_read_first(command: Callable[..., object]) -> None:
    for given, kind in ((PANDAS, "DataFrame"), ("data.csv", "str")):
        with pytest.raises(InvalidInputError, match=rf"table: expected a table, got {kind}; .* read_table\("):
            command(given)


@pytest.mark.parametrize("given", ["random", ["random"], [Random(arms=2)]])
def test_policies_of_a_replay_are_parsed_first(given: Any) -> None:
    table = read_table(pl.DataFrame({"reward_a": range(30), "reward_b": range(30)}))
    with pytest.raises(InvalidInputError, match=r"policies: expected the output of parse_policies, got .*andom"):
        replay_table(table, given)
    with pytest.raises(InvalidInputError, match="policies: expected text such as"):
        parse_policies(["random"])  # type: ignore[arg-type]
