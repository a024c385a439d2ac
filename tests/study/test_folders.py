"""Results that cannot be written: nothing half done is left, and one line says where and why."""

import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tables import Terminal, paper_table, write_csv
from undertow.replay import diagnose, parse_policies, replay_table
from undertow.replay.output import write_diagnosis, write_replay
from undertow.study.trials import write
from undertow.support.folders import whole
from undertow.support.page import write_page


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no room for the last file, the report, as polars and Python say it: without the name of the file."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    for module in ("undertow.replay.report", "undertow.study.report"):
        monkeypatch.setattr(f"{module}.write_page", fail)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def write_played(out: Path, psi: int) -> None:
    write_replay(replay_table(paper_table(psi=psi), parse_policies("random"), runs=1), out)


def write_diagnosed(out: Path, psi: int) -> None:
    table = paper_table(psi=psi)
    write_diagnosis(diagnose(table), table, out)


def write_both(out: Path, psi: int) -> None:
    write_played(out, psi)
    write_diagnosed(out, psi)


def test_results_are_written_whole_or_not_at_all(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    write_both(tmp_path, psi=1)
    (tmp_path / "replay" / "made" / "mine.txt").write_text("a note", encoding="utf-8")
    before = contents(tmp_path)
    assert {"replay/made/report.html", "replay/made/figures/shares.png", "diagnose/made/report.html"} <= before.keys()
    request.getfixturevalue("full_disk")
    for write_one in (write_played, write_diagnosed):
        for out in (tmp_path, tmp_path / "new"):
            with pytest.raises(OSError, match=r"No space left on device: '.*/(replay|diagnose)/made'"):
                write_one(out, psi=2)
    assert contents(tmp_path) == before


def test_new_results_replace_old_ones_and_nothing_else(tmp_path: Path) -> None:
    write_both(tmp_path, psi=1)
    (tmp_path / "replay" / "made" / "mine.txt").write_text("a note", encoding="utf-8")
    before = contents(tmp_path)
    write_both(tmp_path, psi=2)
    after = contents(tmp_path)
    assert after.keys() == before.keys()
    assert after["replay/made/mine.txt"] == b"a note"
    assert after["replay/made/summary.csv"] != before["replay/made/summary.csv"]


def test_a_place_that_is_taken_is_named(tmp_path: Path) -> None:
    (tmp_path / "trials").write_text("in the way", encoding="utf-8")
    frame = pl.DataFrame({"a": [1]})
    with pytest.raises(OSError, match=r"trials'$"):
        write(tmp_path / "trials", frame, frame)
    assert os.listdir(tmp_path) == ["trials"]
    folder = write(tmp_path / "other", frame, frame)
    assert json.loads((folder / "summary.json").read_text()) == [{"a": 1}]


def test_an_interrupted_writer_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with whole(tmp_path / "results") as folder:
            write_page("half", [], folder / "report.html")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not os.listdir(tmp_path)


DATA = ("replay", "diagnose")
EVERY = [*DATA, "trials", "study", "compare"]


@pytest.mark.parametrize("verb", EVERY)
def test_a_folder_that_cannot_be_written_is_refused_first(verb: str, tmp_path: Path, command: Terminal) -> None:
    (tmp_path / "taken").write_text("in the way", encoding="utf-8")
    write_csv(tmp_path, paper_table())
    plan = '[[systems]]\nkind = "paper"\npsi = 1\n[[policies]]\npolicy = "random"\n'
    (tmp_path / "plan.toml").write_text(plan, encoding="utf-8")
    file = {"compare": "plan.toml"} | dict.fromkeys(DATA, "data.csv")
    words = [str(tmp_path / file[verb])] if verb in file else []
    done = command(verb, *words, "--out", str(tmp_path / "taken"))
    assert done.status == 2
    last = done.err.splitlines()[-1]
    assert last.startswith(f"undertow: {tmp_path / 'taken'}")
    assert "cannot write results there" in last


@pytest.mark.parametrize("verb", [*DATA, "study"])
@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_one_line(verb: str, tmp_path: Path, command: Terminal) -> None:
    write_csv(tmp_path, paper_table())
    words = {
        "replay": [str(tmp_path / "data.csv"), "--policies", "random", "--runs", "1"],
        "diagnose": [str(tmp_path / "data.csv")],
        "study": ["--psi", "1", "--runs", "2", "--rounds", "1500", "--policies", "Oracle,Random"],
    }
    done = command(verb, *words[verb], "--out", str(tmp_path / "out"))
    assert done.status == 1
    last = done.err.splitlines()[-1]
    assert last.startswith(f"undertow: {tmp_path / 'out'}")
    assert "No space left on device; fix this, then" in last
