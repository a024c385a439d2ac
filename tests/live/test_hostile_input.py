"""Input that was made to break things, or looks like it: one line each, and nothing half done."""

import datetime
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import undertow
from undertow import Decision, InvalidInputError
from undertow.replay import parse_policies, read_table, replay_log, replay_table
from undertow.replay.output import write_replay
from undertow.study.plan import read_plan
from undertow.support.folders import write_csv


def decision(**changes: Any) -> str:
    content = json.loads(undertow.UCB(arms=2).decide().to_json())
    return json.dumps(content | changes)


@pytest.mark.parametrize(
    "text",
    [
        decision(id=float("inf")),
        decision(id=0.9),
        decision(round=1.0),
        decision(arm="1"),
        decision(propensity=float("inf")),
        decision(propensity=float("nan")),
        decision(propensity=0.0),
        decision(window=[1e400, 1]),
        "[" * 100_000,
        '{"id":' * 100_000,
        "[]",
        "7",
        "null",
        "",
    ],
    ids=lambda text: text[-40:],
)
def test_decisions_that_no_policy_wrote(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"decision: expected JSON from Decision.to_json"):
        Decision.from_json(text)


PLAN = """
name = "odd"
rounds = 10
runs = 1
[[systems]]
kind = "random"
state_dim = 2
context_dim = 1
arm_count = 2
label = "s"
[[policies]]
policy = "random"
label = "p"
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("runs = 1", "runs = 1e9", "runs: expected an integer"),
        (
            "runs = 1",
            "runs = 1_000_000_000",
            "runs: expected fewer than 1000000000, got 100000000 chunks",
        ),
        ("rounds = 10", "rounds = 10_000_000_000", "rounds: expected at most 90909090, got 10000000000"),
        ('name = "odd"', 'name = "o\\u0000d"', "name: expected a word that can be the name of a folder"),
        ('name = "odd"', 'name = "o\u0000d"', "not a plan in TOML"),
        ('name = "odd"', f'name = "{"x" * 300}"', "name: expected a word that can be the name of a folder"),
        ('name = "odd"', f"name = {'[' * 50_000}", "not a plan in TOML"),
        ("state_dim = 2", "state_dim = 1_000_000_000", "state_dim: expected at most 1000, got 1000000000"),
        ("arm_count = 2", "arm_count = 100_000", "arm_count: expected at most 1000, got 100000"),
        ('label = "s"', 'label = "{state_dim:>2000000000}"', "names something that is not there .expected the name of"),
        (
            'kind = "random"\nstate_dim = 2\ncontext_dim = 1\narm_count = 2\nlabel = "s"',
            'kind = "paper"\npsi = 1\nlabel = "{psi:>2000000000}"',
            "names something that is not there .expected the name of",
        ),
        ('label = "s"', 'label = "{state_dim.real}"', "names something that is not there"),
        ('label = "p"', f'label = "{"p" * 300}"', "expected at most 200 letters, got 300"),
        ('label = "p"', f"grid.explore = {[i / 2e4 for i in range(10_001)]}", "a grid of at most 10000 combinations"),
        ('policy = "random"', 'policy = "linucb"\nwindow = 1_000_000_000_000', "policy 'p' on system 's': "),
    ],
)
def test_plans_of_absurd_size_are_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN.replace(old, new), encoding="utf-8")
    with pytest.raises(InvalidInputError, match=message):
        read_plan(tmp_path / "plan.toml")


def test_labels_may_say_how_a_number_is_written(tmp_path: Path) -> None:
    text = PLAN.replace('label = "s"', 'label = "d = {state_dim:.1f} {{x}}"')
    (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
    assert read_plan(tmp_path / "plan.toml").systems[0].label == "d = 2.0 {x}"


@pytest.mark.parametrize("size", [1, 8, 16])  # KiB: there is no room for the plan, for a chunk, for a figure
def test_a_full_disk_in_compare_is_one_line(size: int, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN.replace("rounds = 10", "rounds = 400"), encoding="utf-8")
    program = (
        "import resource, sys; import undertow.cli, matplotlib.pyplot\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size} * 1024, {size} * 1024))\n"
        f"sys.argv = ['undertow', 'compare', {str(tmp_path / 'plan.toml')!r}, '--out', {str(tmp_path / 'out')!r}]\n"
        "undertow.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode in (1, 2), done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"undertow: {tmp_path / 'out'}")
    assert "File too large" in last


def csv_of(folder: Path, content: str, name: str = "data.csv") -> Path:
    (folder / name).write_text(content, encoding="utf-8")
    return folder / name


ROWS = "reward_a,reward_b\n" + "1,2\n2,1\n" * 15


@pytest.mark.parametrize("name", ["...csv", "..csv", "....csv"])
def test_a_table_whose_name_is_dots_stays_in_its_folder(name: str, tmp_path: Path) -> None:
    table = read_table(csv_of(tmp_path, ROWS, name))
    assert table.name == name
    written = write_replay(replay_table(table, parse_policies("random"), runs=1), tmp_path / "out")
    assert written.folder == tmp_path / "out" / "replay" / name
    assert os.listdir(tmp_path / "out") == ["replay"]


def test_what_a_killed_replay_left_goes_with_the_next_one(tmp_path: Path) -> None:
    """kill -9 while the report is written: its temporary folder, and that of an earlier one, are gone afterwards."""
    program = (
        "import os, signal, sys; from undertow.replay import output, parse_policies, read_table, replay_table\n"
        "output.report_replay = lambda *given: os.kill(os.getpid(), signal.SIGKILL)\n"
        "result = replay_table(read_table(sys.argv[1]), parse_policies('random'), runs=1)\n"
        "output.write_replay(result, sys.argv[2])"
    )
    file, out = csv_of(tmp_path, ROWS), tmp_path / "out"
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", program, str(file), str(out)]).returncode == -signal.SIGKILL
        (left,) = os.listdir(out / "replay")
        assert left.startswith(".part-")
        assert (out / "replay" / left / "summary.csv").exists()
    write_replay(replay_table(read_table(file), parse_policies("random"), runs=1), out)
    assert os.listdir(out / "replay") == ["data"]


@pytest.mark.parametrize(
    "times",
    [
        [datetime.timedelta(hours=hour) for hour in range(20)],
        [datetime.time(hour) for hour in range(20)],
    ],
    ids=["Duration", "Time"],
)
def test_phases_need_a_date(times: list[Any], tmp_path: Path) -> None:
    frame = pl.DataFrame({"time": times, "reward_a": np.arange(20.0), "reward_b": np.arange(20.0)[::-1]})
    frame.write_parquet(tmp_path / "data.parquet")
    assert read_table(tmp_path / "data.parquet").rounds == 20
    with pytest.raises(InvalidInputError, match=r"column 'time': phases need timestamps with a date, and these are"):
        read_table(tmp_path / "data.parquet", phases=["hour"])


@pytest.mark.parametrize("cell", ['5" pipe', '"5 pipe', '5"'])
def test_an_inch_sign_names_its_line(cell: str, tmp_path: Path) -> None:
    file = csv_of(tmp_path, f"reward_a,reward_b,note\n1,2,plain\n3,4,{cell}\n5,6,x\n")
    with pytest.raises(InvalidInputError, match=r"data.csv: line 3: a quotation mark is left open"):
        read_table(file)


def test_cells_that_a_spreadsheet_would_run_are_text(tmp_path: Path) -> None:
    words = ['=HYPERLINK("http://x","y")', "+1+1", "-2+3", "@SUM(A1)", "\t=1", "-1.5", "plain", "a=b", None]
    write_csv(tmp_path / "out.csv", pl.DataFrame({"arm": words, "value": np.arange(9.0) - 4}))
    back = pl.read_csv(tmp_path / "out.csv")
    marked = [f"'{word}" for word in words[:5]]
    assert back["arm"].to_list() == [*marked, *words[5:]]
    assert back["value"].to_list() == list(np.arange(9.0) - 4)


def test_arms_that_a_spreadsheet_would_run(tmp_path: Path) -> None:
    rows = "\n".join(f'{t},"=HYPERLINK(1)"' if t % 2 else f"{t},b" for t in range(40))
    log = read_table(csv_of(tmp_path, f"reward,arm\n{rows}\n"), propensity="uniform")
    written = write_replay(replay_log(log, parse_policies("random"), runs=1), tmp_path / "out")
    text = (written.folder / "summary.csv").read_text(encoding="utf-8")
    assert "\n=" not in text


def test_propensities_that_cannot_be(tmp_path: Path) -> None:
    for value, message in (("1e-300", "below 1e-12 do not happen"), ("0", "above 0 and at most 1, got 0; write")):
        rows = "".join(f"{t},{'ab'[t % 2]},{value if t == 7 else 0.5}\n" for t in range(40))
        file = csv_of(tmp_path, f"reward,arm,propensity\n{rows}")
        with pytest.raises(InvalidInputError, match=rf"line 9, column 'propensity': .*{message}"):
            read_table(file)


def test_rewards_that_are_lost_in_rounding_come_with_a_warning(tmp_path: Path) -> None:
    for offset, told in ((1e15, True), (-1e14, True), (1e12, False), (1e6, False), (0.0, False)):
        rows = "".join(f"{offset + t % 3 / 8},{offset + t % 5 / 8}\n" for t in range(40))
        log = "".join(f"{'ab'[t % 2]},{offset + t % 3 / 8},0.5\n" for t in range(40))
        for content in (f"reward_a,reward_b\n{rows}", f"arm,reward,propensity\n{log}"):
            notes = read_table(csv_of(tmp_path, content)).notes
            assert any("subtract a constant from all rewards first" in note for note in notes) == told


def test_one_row_with_a_time_is_read(tmp_path: Path) -> None:
    assert read_table(csv_of(tmp_path, "time,reward_a,reward_b\n2024-01-01,1,2\n")).notes == ()


def test_messages_stay_short_however_long_a_cell_is(tmp_path: Path) -> None:
    wide = ",".join(f"column_{i}" for i in range(5000))
    for content in (f"reward_a,reward_b\n1,{'[' * 5000}\n", f"{wide}\n{wide}\n"):
        with pytest.raises(InvalidInputError) as error:
            read_table(csv_of(tmp_path, content))
        assert len(str(error.value)) < 1000
