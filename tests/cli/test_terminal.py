"""What commands do on terminals, pipes and streams that are not as usual."""

import io
import os
import subprocess
import sys
import threading
import warnings
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tables import Terminal, table_of, write_csv
from undertow import InvalidInputError, __main__
from undertow.cli import main
from undertow.cli.streams import dependable_streams
from undertow.replay import read_table
from undertow.support.drawing import panels
from undertow.support.figure import save_sheet

REWARDS = np.random.default_rng(0).normal(size=(120, 2))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8"])
def test_output_in_another_encoding_keeps_its_numbers(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Windows has it where output is redirected; minus signs stay, and letters that it lacks are spelled."""
    file = write_csv(tmp_path, table_of(REWARDS))
    file.write_text(file.read_text().replace("arm 1", "Дом"), encoding="utf-8")
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "argv", ["undertow", "replay", str(file), "--policies", "random"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    out.flush()
    text = out.buffer.getvalue().decode(encoding)
    assert ("Дом" if encoding == "utf-8" else "\\u0414\\u043e\\u043c") in text
    assert ("−" if encoding == "utf-8" else "-0.") in text
    assert "?" not in text


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_stream_that_was_closed_is_no_obstacle(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, name, None)
    with dependable_streams():
        print("−", file=getattr(sys, name))
    getattr(sys, name).close()


@pytest.mark.parametrize("kind", ["columns", "json", "arms"])
def test_control_codes_never_reach_a_terminal(kind: str, tmp_path: Path, command: Terminal) -> None:
    red = "\x1b[31m"
    content = {
        "columns": f"reward_a{red},reward_b\n" + "0.5,1.5\n" * 30,
        "json": '{"reward_a\\u001b[31m": 1, "reward_b": 2}\n' * 30,
        "arms": "arm,reward,propensity\n" + f"a{red},1,0.5\nb,2,0.5\n" * 30,
    }[kind]
    file = tmp_path / ("data.jsonl" if kind == "json" else "data.csv")
    file.write_text(content)
    with pytest.raises(InvalidInputError, match="without control codes"):
        read_table(file)
    status, out, err = command("replay", file)
    assert status == 2
    assert "\x1b" not in out + err


def test_a_column_name_may_have_a_line_feed_and_a_space_that_does_not_break(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text('"reward_a\nb",reward_c\xa0d\n' + "0.5,1.5\n" * 30, encoding="utf-8")
    assert read_table(tmp_path / "data.csv").arms == ("a\nb", "c\xa0d")


class Interrupts(MetaPathFinder):
    """Ctrl-C while the command line is loaded."""

    def find_spec(self, name: str, *more: Any) -> None:
        if name == "undertow.cli":
            raise KeyboardInterrupt


def test_ctrl_c_in_the_first_second_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "undertow.cli")
    monkeypatch.setattr(sys, "meta_path", [Interrupts(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "\nundertow: interrupted\n"
    light = "import undertow.__main__, sys; sys.exit('numpy' in sys.modules)"  # nothing takes long before that
    assert subprocess.run([sys.executable, "-c", light], check=False).returncode == 0


def test_letters_that_no_font_has_are_one_warning(tmp_path: Path) -> None:
    sheet, axis = panels(2.0)
    axis.set_title("ψ and −1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save_sheet(sheet, tmp_path / "greek.png")
    axis.set_yticks([0, 1], ["\U000e0100\U0010fffd", "\U0010fffc"])  # for private use: in no font
    axis.set_title("\U0010fffd")
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("default")
        save_sheet(sheet, tmp_path / "odd.png")
    assert [str(one.message).partition(" for ")[0] for one in given] == ["figures show boxes"]


def test_warnings_of_a_command_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with dependable_streams(), warnings.catch_warnings():
        warnings.simplefilter("always")
        print(warnings.formatwarning("boxes", UserWarning, "drawing.py", 7), end="")
    assert capsys.readouterr().out == "undertow: boxes\n"
    assert "drawing.py:7" in warnings.formatwarning("boxes", UserWarning, "drawing.py", 7)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name here")
def test_a_table_may_come_through_a_pipe(tmp_path: Path, command: Terminal) -> None:
    content = write_csv(tmp_path, table_of(REWARDS)).read_bytes()
    pipe = tmp_path / "stdin"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=[content])
    writer.start()
    status, out, err = command("diagnose", pipe)
    writer.join()
    assert (status, "out/diagnose/stdin" in out) == (0, True), err
    with pytest.raises(InvalidInputError, match="this is a pipe or a device, and a table is read twice"):
        read_table(pipe)
