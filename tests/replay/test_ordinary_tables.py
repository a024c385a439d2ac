"""Tables as people have them: other formats, other ways to write a number, rows that lack something, own policies."""

import gzip
import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tables import Terminal, log_of, paper_table, table_of, write_csv
from undertow import InvalidInputError, make
from undertow.contenders import load_policies
from undertow.example_systems import paper_system
from undertow.live.registry import explain, registry
from undertow.replay import Log, Table, diagnose, parse_policies, read_table, replay_log
from undertow.replay.forecaster import forecast_log
from undertow.study.chunks import compute_chunks
from undertow.study.plan import Plan, SystemSpec, contenders_of

FRAME = pl.DataFrame(
    {
        "time": [f"2024-01-{day:02}" for day in range(1, 6)],
        "reward_a": [1.5, -2.0, 3.0, 0.25, 1e3],
        "reward_b": [1, 2, 3, 4, 5],
        "context_x": [0.5, None, 2.5, 3.5, None],
        "feature_sky": ["sun", "rain", "sun", "cloud, grey", "rain"],
        "note": ["", "b", None, "d", "e"],
    }
)


def csv(folder: Path, text: str, name: str = "data.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def same(one: Table, other: Table) -> None:
    assert (one.arms, one.feature_names) == (other.arms, other.feature_names)
    for part in ("rewards", "contexts", "features"):
        np.testing.assert_array_equal(getattr(one, part), getattr(other, part))


WRITERS: dict[str, Callable[[Path], Any]] = {
    "data.csv": FRAME.write_csv,
    "data.csv.gz": lambda path: path.write_bytes(gzip.compress(FRAME.write_csv().encode())),
    "data.tsv": lambda path: FRAME.write_csv(path, separator="\t"),
    "data.tsv.gz": lambda path: path.write_bytes(gzip.compress(FRAME.write_csv(separator="\t").encode())),
    "data.jsonl": FRAME.write_ndjson,
    "data.ndjson": lambda path: path.write_text(FRAME.write_ndjson().replace("\n", "\n\n")),
    "data.jsonl.gz": lambda path: path.write_bytes(gzip.compress(FRAME.write_ndjson().encode())),
    "data.parquet": FRAME.write_parquet,
    "data.xlsx": FRAME.write_excel,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_table(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    table = read_table(tmp_path / name)
    assert table.name == "data"
    same(table, read_table(FRAME))
    np.testing.assert_array_equal(table.features, [[0, 0, 1], [0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]])
    assert table.notes == ("column 'feature_sky': 3 categories, each a feature that is 1 or 0: cloud, grey, rain, sun",)


class Arrow:
    """Whatever gives Arrow data, as tables of pyarrow do."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return FRAME.__arrow_c_stream__(requested_schema)


def test_frames_of_other_packages() -> None:
    frame = pd.DataFrame(FRAME.to_dict(as_series=False))
    for data in (frame, FRAME.lazy(), Arrow(), frame.set_index("time"), frame.astype({"feature_sky": "category"})):
        table = read_table(data)
        assert table.name == "table"
        same(table, read_table(FRAME))
    when = pd.date_range("2024-01-01", periods=5, tz="Europe/Paris")
    zoned = read_table(frame.assign(time=when, reward_b=frame["reward_b"].astype("Int64")), phases=["hour"])
    assert zoned.features[1, -4] == pytest.approx(np.cos(2 * np.pi * 23 / 24))  # in UTC
    broken = frame.assign(reward_a=["1", "2", "x", "4", "5"])
    with pytest.raises(
        InvalidInputError, match=r"table: row 3, column 'reward_a': expected a number, got 'x'; correct"
    ):
        read_table(broken)
    with pytest.raises(InvalidInputError, match="data: expected the name of a file, a frame of pandas or polars"):
        read_table({"reward_a": [1]})
    with pytest.raises(InvalidInputError, match="two columns are called 'reward_a'; rename one"):
        read_table(FRAME.rename({"reward_b": " reward_a"}))


def test_the_index_that_pandas_writes_is_left_out(tmp_path: Path) -> None:
    frame = pd.DataFrame({"reward_a": [1, 2], "reward_b": [3, 4]})
    frame.to_csv(tmp_path / "data.csv")
    table = read_table(tmp_path / "data.csv")
    assert table.notes == ("the first column has no name, like an index that pandas wrote; it is ignored",)
    same(table, read_table(frame))
    assert table.columns.unused == ()


@pytest.mark.parametrize(
    ("cells", "values", "note"),
    [
        (["True", "false", "TRUE"], [1, 0, 1], "True is read as 1, and False as 0"),
        (["77.5%", "3 %", "-1e2%"], [0.775, 0.03, -1], "percentages are read as shares: 77.5% is 0.775"),
        (
            ["1,234", "12", "-1,234,567.5"],
            [1234, 12, -1234567.5],
            "commas are read as thousands separators: 1,234 is 1234",
        ),
        (["0.5", "12 345", "1 000 000"], [0.5, 12345, 1e6], "thousands are set apart: 12 345 is read as 12345"),
        (["1'234.5", "1", "2"], [1234.5, 1, 2], "thousands are set apart: 1'234.5 is read as 1234.5"),
        (["$0.50", "-$1,234", "$-2"], [0.5, -1234, -2], "signs of a currency are left out: $0.50 is 0.5"),
        (["0 EUR", "12.5EUR"], [0, 12.5], "signs of a currency are left out: 0 EUR is 0"),
    ],
)
@pytest.mark.parametrize("separator", [",", ";"])
def test_numbers_as_people_write_them(
    cells: list[str], values: list[float], note: str, separator: str, tmp_path: Path
) -> None:
    rows = "\n".join(f'"{cell}"{separator}1' for cell in cells)
    table = read_table(csv(tmp_path, f"reward_a{separator}reward_b\n{rows}\n"), separator=separator)
    assert table.rewards is not None
    assert table.rewards[:, 0].tolist() == pytest.approx(values, rel=1e-15)
    assert table.notes == (f"column 'reward_a': {note}",)


@pytest.mark.parametrize(
    ("cells", "bad"),
    [
        (["True", "1"], 0),
        (["5%", "5"], 0),
        (["1,5", "2.5"], 0),
        (["1,234.5", "1,23"], 0),
        (["1,5", "1.234,5", "1,234,567"], 1),
        (["$1", "2"], 0),
        (["$1", "$x"], 1),
        (["1", "x"], 1),
    ],
)
def test_a_column_is_read_in_one_way(cells: list[str], bad: int, tmp_path: Path) -> None:
    file = csv(tmp_path, "reward_a,feature_u\n" + "".join(f'1,"{cell}"\n' for cell in cells))
    with pytest.raises(
        InvalidInputError, match=rf"line {bad + 2}, column 'feature_u': .*, got '{re.escape(cells[bad])}'; "
    ):
        read_table(file, rewards=["reward_a", "feature_u"])
    with pytest.raises(
        InvalidInputError, match=rf"line {bad + 2}, column 'feature_u': .*, got '{re.escape(cells[bad])}'; "
    ):
        read_table(csv(tmp_path, file.read_text().replace("\n1,", "\n1,2,").replace("a,f", "a,reward_b,f")))


def test_two_currencies_are_refused_and_times_found_in_any_case(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"line 2, column 'reward_a': expected a number, got '\$1'"):
        read_table(csv(tmp_path, "reward_a,reward_b\n$1,1\n€2,2\n"))
    assert read_table(csv(tmp_path, "Date,reward_a,reward_b\n2024-01-01,1,2\n2024-01-02,2,1\n")).columns.time == "Date"


@pytest.mark.parametrize(
    ("cells", "taken"),
    [
        (["31.01.2024", "1.2.2024"], True),
        (["2024-02-01", "2024-01-31"], False),
        (["1", "2"], False),
        (["x", "y"], False),
    ],
)
def test_a_first_column_of_dates_is_the_time(cells: list[str], taken: bool, tmp_path: Path) -> None:
    table = read_table(csv(tmp_path, f"Tag,reward_a,reward_b\n{cells[0]},1,2\n{cells[1]},2,1\n"))
    assert table.columns.time == ("Tag" if taken else None)
    assert table.columns.unused == (() if taken else ("Tag",))
    assert ("column 'Tag' holds dates that increase, and is read as the time" in table.notes) == taken


@pytest.mark.parametrize(
    ("text", "given", "values"),
    [
        ("a;b\n1,234;1\n2,345;1\n", {}, [1.234, 2.345]),  # semicolons go with decimal commas
        ("a;b\n1,234;1\n2,345;0.5\n", {}, [1234, 2345]),  # a point elsewhere in the file
        ('a,b\n"1,234",1\n"2,345",1\n', {}, [1234, 2345]),
        ('a,b\n"1,234","7,5"\n"2,345",1\n', {}, [1.234, 2.345]),
        ("a;b\n1.234;7,5\n900;1\n", {}, [1234, 900]),  # points for thousands in a file of decimal commas
        ("a;b\n0.25;7,5\n0.125;1\n", {}, [0.25, 0.125]),  # ... which these cannot be
        ("a;b\n77,5 %;1\n3 %;1\n", {}, [0.775, 0.03]),
        ("a;b\n1.234,50 €;1\n3 €;1\n", {}, [1234.5, 3]),
        ("a;b\n1 234,5;1\n2 000;1\n", {}, [1234.5, 2000]),
        ("a;b\n1,234;1\n2,345;1\n", {"decimal": "."}, [1234, 2345]),
        ('a,b\n"1,234",1\n"2,345",1\n', {"decimal": ","}, [1.234, 2.345]),
    ],
)
def test_decimal_commas(text: str, given: dict[str, Any], values: list[float], tmp_path: Path) -> None:
    table = read_table(csv(tmp_path, text), rewards=["a", "b"], **given)
    assert table.rewards is not None
    assert table.rewards[:, 0].tolist() == pytest.approx(values, rel=1e-15)


def test_categories(tmp_path: Path) -> None:
    rows = [f"{t % 3},1,{'18-25' if t % 2 else '26-35'},{t % 2 == 0}" for t in range(60)]
    table = read_table(csv(tmp_path, "reward_a,reward_b,feature_age,feature_new\n" + "\n".join(rows)))
    assert table.feature_names == ("feature_age=18-25", "feature_age=26-35", "feature_new")
    assert (table.features.sum(axis=0) == [30, 30, 30]).all()
    assert (table.features[:, 1] == table.features[:, 2]).all()
    broken = {
        "x": r"line 2, column 'feature_u': .* at most 50 categories, got 60 different words, .* 'w0'; group them",
        "y": r"line 9, column 'feature_u': expected a category, got nothing; fill the cell",
        "z": r"line 9, column 'context_u': expected a number, got 'w'; correct the cell, or leave it empty",
    }
    for word, message in broken.items():
        cells = {"x": [f"w{t}" for t in range(60)], "y": ["w"] * 7 + [""] + ["w"] * 5, "z": ["1"] * 7 + ["w"]}[word]
        name = "context_u" if word == "z" else "feature_u"
        with pytest.raises(InvalidInputError, match=message):
            read_table(csv(tmp_path, f"{name},reward_a,reward_b\n" + "\n".join(f"{cell},1,2" for cell in cells)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv.gz", b"reward_a,reward_b\n1,2\n", "not a gzip file, or damaged"),
        (
            "a.csv.gz",
            gzip.compress(b"reward_a,reward_b\n" + b"1,2\n" * 999, mtime=0)[:-9],
            "not a gzip file, or damaged",
        ),
        (
            "a.csv.gz",
            gzip.compress(b"reward_a,reward_b\n1,2\n3,x\n", mtime=0),
            "line 3, column 'reward_b': .* got 'x'; correct",
        ),
        (
            "a.csv.gz",
            gzip.compress(b"reward_a,reward_b\n1,2\n3\n", mtime=0),
            "line 3: expected 2 cells, got 1; complete it",
        ),
        ("a.jsonl", b"", "the file is empty; expected one JSON object per line"),
        ("a.jsonl", b'{"reward_a": 1}\n\n{"reward_a":\n', "line 3: expected a JSON object, .* one object per line"),
        ("a.jsonl", b'{"reward_a": 1}\n[1, 2]\n', "line 2: expected a JSON object, .* one object per line"),
        ("a.jsonl", b'{"reward_a": 1}\n{"reward_a": NaN}\n', "line 2: NaN is not JSON; write null"),
        ("a.json", b'[\n{"reward_a": 1}\n]\n', "line 1: expected a JSON object, .* write one object per line"),
        ("a.jsonl", b'{"reward_a": 1, "reward_b": 2}\n\n{"reward_a": "x"}\n', "line 3, column 'reward_a': .* got 'x'"),
        (
            "a.jsonl",
            b'{"reward_a": 1, "reward_b": {"c": 2}}\n',
            "column 'reward_b': expected numbers, got Struct.*; co",
        ),
        ("a.xlsx", b"nonsense", "not an Excel file, or damaged; save the sheet as CSV"),
        ("a.csv", b"x,,reward_a\n1,2,3\n", "line 1: column 2 has no name; give it one"),
        ("a.csv", b",0,1\n0,1,2\n", "line 1: expected names of columns, got numbers; put a line of names"),
        ("a.csv", b"reward_a,reward_b\n1," + b"2" * 200_000 + b"\n3,x\n", "line 2: field larger than field limit"),
    ],
)
def test_refusals_say_where_and_what_to_do(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInputError, match=message):
        read_table(tmp_path / name)


def test_a_sheet_counts_rows_as_it_shows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pl.DataFrame({"reward_a": [1.0, 2.0, 3.0], "reward_b": ["1", "x", "2"]})
    frame.write_excel(tmp_path / "data.xlsx")
    with pytest.raises(InvalidInputError, match=r"row 3, column 'reward_b': .* got 'x'; correct the cell"):
        read_table(tmp_path / "data.xlsx")
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    with pytest.raises(InvalidInputError, match=r"sheets of Excel need fastexcel; pip install 'undertow\[excel\]', or"):
        read_table(tmp_path / "data.xlsx")


def test_rounds_of_a_log_may_share_a_time(tmp_path: Path) -> None:
    rows = [f"2024-01-0{1 + t // 3},{'ab'[t % 2]},{t},0.5" for t in range(9)]
    file = csv(tmp_path, "time,arm,reward,propensity\n" + "\n".join(rows))
    assert read_table(file).notes == (
        "6 rows have the same time as the row before; rounds follow the order of the rows",
    )
    with pytest.raises(InvalidInputError, match=r"line 3, column 'time': '2024-01-01' is the same time .*; drop one"):
        read_table(csv(tmp_path, file.read_text().replace("arm,reward,prop", "x,reward_a,reward_b")))


def test_a_round_without_a_reward_passes(tmp_path: Path) -> None:
    """Nothing is learned in it, and estimates are of the others."""
    whole = log_of(paper_table(200), (0.6, 0.4), 0)
    assert whole.log is not None
    gone = np.random.default_rng(1).random(200) < 0.3
    rewards = np.where(gone, np.nan, whole.log.rewards)
    table = table_of(np.zeros((200, 2)), whole.contexts, None, Log(whole.log.arms, rewards, whole.log.propensities))
    read = read_table(write_csv(tmp_path, table))
    assert read.log is not None
    np.testing.assert_array_equal(read.log.rewards, rewards)
    assert any(f"{gone.sum()} of 200 rounds have no reward" in note for note in read.notes)
    result = replay_log(read, parse_policies("linucb(window=2)"), runs=1, block=10)
    rows = {row["policy"]: row for row in result.summary.iter_rows(named=True)}
    played = ~gone & (whole.log.arms == 0)
    assert rows["always arm 0"]["snips"] == pytest.approx(rewards[played].mean())
    assert rows["as logged"]["dr"] == pytest.approx(rewards[~gone].mean())
    assert rows["as logged"]["matches"] == (~gone).sum()
    chosen = result.choices["linucb(window=2)"]
    assert chosen.shape == (1, 200)  # it decides in every round
    assert rows["linucb(window=2)"]["matches"] == (chosen[0] == whole.log.arms)[~gone].sum()
    forecast, full = forecast_log(table), forecast_log(whole)
    first = int(gone.argmax())
    assert np.isfinite(forecast).all()
    assert (forecast[: first + 1] == full[: first + 1]).all()
    few = Log(whole.log.arms, np.where(np.arange(200) < 19, rewards[~gone][0], np.nan), whole.log.propensities)
    with pytest.raises(InvalidInputError, match="expected at least 20 rows with a reward, got 19"):
        replay_log(table_of(np.zeros((200, 2)), log=few))


def test_names_that_hold_commas(tmp_path: Path, command: Terminal) -> None:
    file = csv(tmp_path, '"price, net",b,"x, y"\n1,2,3\n')
    told = command("replay", str(file), "--rewards", '"price, net", b', "--features", '"x, y"')
    assert "table: expected at least 20 rows, got 1" in told.err  # all columns were found
    told = command("replay", str(file), "--rewards", "price, net, b")
    assert "there is no column 'price' (put a name that holds a comma into quotation marks" in told.err


def test_a_log_is_diagnosed_by_its_estimates(tmp_path: Path, command: Terminal) -> None:
    rng, out = np.random.default_rng(0), str(tmp_path / "out")
    arms = rng.integers(0, 2, 400)
    rewards = arms * 0.5 + rng.standard_normal(400)
    rows = [f"{'ab'[arm]},{reward},0.5" for arm, reward in zip(arms, rewards, strict=True)]
    file = csv(tmp_path, "arm,reward,propensity\n" + "\n".join(rows))
    told = command("diagnose", str(file), "--out", out)
    assert told.status == 0
    assert told.out.lstrip().startswith("Always b would have earned 0.")
    assert "effective rounds stand behind it" in " ".join(told.out.split())
    costs = command("diagnose", str(file), "--out", out, "--minimize")
    assert costs.out.lstrip().startswith("Always a would have cost 0.33 (")
    assert "less per round than was logged" in " ".join(costs.out.split())
    logged = next(line for line in costs.out.splitlines() if line.startswith("as logged"))
    assert f" {rewards.mean():.2f} (" in logged  # a cost, with its sign
    with pytest.raises(InvalidInputError, match="replay_log estimates from a log"):
        diagnose(log_of(paper_table(150), (0.5, 0.5), 0))
    both = csv(tmp_path, "arm,reward,reward_a,reward_b\n" + "\n".join(f"a,1,{t % 5},{t % 3}" for t in range(120)))
    assert read_table(both, every_arm=True).arms == ("a", "b")  # there is no doubt which of the two is meant


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make("linUBC", arms=2), r"no policy is called 'linUBC' \(did you mean 'linucb'\?\); known are"),
        (lambda: make("linucb", arms=2, windw=3), r"has no such parameter \(did you mean 'window'\?\); it takes"),
        (lambda: parse_policies("discountd-ucb"), r"\(did you mean 'discounted-ucb'\?\)"),
        (lambda: contenders_of({"policies": [{"policy": "Aers"}]}), r"\(did you mean 'ares'\?\)"),
        (lambda: read_table(FRAME, contexts=["contxt_x"]), r"no column 'contxt_x' \(did you mean 'context_x'\?\)"),
        (lambda: read_table(FRAME, time="Tiem"), r"no column 'Tiem' \(did you mean 'time'\?\)"),
        (lambda: read_table(FRAME, phases=["hours"]), r"got 'hours' \(did you mean 'hour'\?\)"),
        (lambda: make("ares", arms=2, context_dim=1, width="nois"), r"got 'nois' \(did you mean 'noise'\?\)"),
    ],
)
def test_did_you_mean(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call()


MINE = '''"""Mine."""
from dataclasses import dataclass
from undertow.live import register
from undertow.policies import UCB

@register("my-ucb", citation="mine")
@dataclass(kw_only=True, eq=False, repr=False)
class MyUCB(UCB):
    """My own."""
'''


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that registers a policy; what it registers is gone after the test."""
    monkeypatch.setattr(sys.modules["undertow.live.registry"], "_ENTRIES", registry())  # a function hides the module
    monkeypatch.setitem(sys.modules, "my_policies", None)
    monkeypatch.delitem(sys.modules, "my_policies")
    return csv(tmp_path, MINE, "my_policies.py")


def test_policies_of_ones_own_on_the_command_line(
    mine: Path, tmp_path: Path, command: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = csv(tmp_path, "reward_a,reward_b\n" + "\n".join(f"{t % 5},{t % 3}" for t in range(40)))
    replay = ("replay", str(file), "--policies", "my-ucb", "--out", str(tmp_path / "out"))
    assert "no policy is called 'my-ucb'" in command(*replay).err
    done = command(*replay, "--module", str(mine))
    assert done.status == 0, done.err
    assert "my-ucb" in done.out
    assert "My own." in command("policies", "my-ucb", "--module", str(mine)).out
    plan = csv(
        tmp_path,
        'rounds = 20\nruns = 1\n[[systems]]\nkind = "paper"\npsi = 1\n[[policies]]\npolicy = "my-ucb"\n'
        '[[policies]]\npolicy = "random"\n',
        "plan.toml",
    )
    ran: list[Any] = []

    def stop(plan: Plan, out: Path, *, module: Path, **more: object) -> None:
        ran.append((plan, module))
        raise KeyboardInterrupt

    monkeypatch.setattr("undertow.study.run.run_study", stop)
    assert command("compare", str(plan), "--module", str(mine)).status == 130
    ((found, module),) = ran
    assert module == mine
    assert [each.policy for each in found.policies] == ["my-ucb", "random"]
    assert Plan.from_dict(found.to_dict()) == found
    mine.write_text(MINE + "# changed\n")
    assert load_policies(mine) != found.code  # other code, other results: another folder
    assert replace(found, code="other").digest != found.digest


def test_workers_run_the_module_too(mine: Path) -> None:
    load_policies(mine)
    plan = Plan(
        "p", [SystemSpec("s", paper_system(1))], contenders_of({"policies": [{"policy": "my-ucb"}]}), rounds=20, runs=1
    )
    ((place, found),) = compute_chunks(plan, [0], "local", 1, mine)
    assert place == 0
    assert found.regret["policy"].unique().to_list() == ["my-ucb"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("my_policies.txt", "", "expected a Python file with policies"),
        (
            "my_policies.py",
            "x = 1\n",
            "it has no policy; write a class with decide and learn",
        ),
        ("my_policies.py", "\n1 / 0\n", r"its code fails: ZeroDivisionError\('division by zero'\), at line 2"),
        ("json.py", MINE, "another module is called 'json'; rename the file"),
    ],
)
def test_a_module_that_does_not_serve(name: str, content: str, message: str, mine: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=message):
        load_policies(csv(tmp_path, content, name))


@pytest.mark.parametrize("name", registry())
def test_every_parameter_is_explained(name: str) -> None:
    texts = explain(name)
    assert list(texts) == list(registry()[name].parameters)
    assert all(texts.values()), [parameter for parameter, text in texts.items() if not text]


def test_the_command_explains_a_policy(command: Terminal) -> None:
    done = command("policies", "ucb")
    assert "  exploration = " in done.out
    assert "  arms (required)\n      The number of arms, or their names.\n" in done.out
    told = json.loads(command("policies", "ucb", "--json").out)
    assert told["explained"]["explore"].startswith("ε in [0, 1]")
    assert "did you mean 'ucb'?" in command("policies", "ucbb").err
