"""The check of how the inside is written finds what it should, and nothing else."""

from pathlib import Path

import pytest

from tools import check_inside as inside


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    (tmp_path / "policies").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "line",
    [
        "x = state[3]",
        "own.settings[5] *= 2.0",
        "x = own.shared.header[ROUNDS]",
        "x = head[BLOCK + n]",
        "x = sizes[-1]",
        "block[:LEVEL] = 0.0",
        "x = prior[n, 2]",
        "own.settings[[5, 6]] *= 2.0",
        "x = hyper[member.SCORE]",
        "x = block[n : n + 4]",
        "x = state[at + n]",
        "x = state[at + 2]",
        "x = own.state[own.at + n]",
        "x = state[start : at + n]",
        "x = state[n * (at + m)]",
        "x = [settings[1] for settings in rows]",
        "x: float = state[3]",
    ],
)
def test_a_numbered_place_is_found(sources: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    (sources / "some.py").write_text(f"import math\n{line}\n", encoding="utf-8")
    assert inside.main([str(sources)]) == 1
    assert f"{sources / 'some.py'}:2: " in capsys.readouterr().out


@pytest.mark.parametrize(
    "line",
    [
        "x = rewards[3]",
        "x = state.rounds",
        "x = state[arm]",
        "x = state[start:stop]",
        "x = state[at:]",
        "x = settings[:]",
        "x = settings[name]",
        "x = block[:p]",
        "x = block[S]",
        "x = block['text']",
        "x = open_state(state)[0]",
        "state: tuple[int, 3] = y",
        "def f(a: state[3], *b: head[ROUNDS], c: sizes[0] = 1) -> block[4]: ...",
    ],
)
def test_other_places_are_not(sources: Path, line: str) -> None:
    (sources / "some.py").write_text(line + "\n", encoding="utf-8")
    assert inside.main([str(sources)]) == 0


@pytest.mark.parametrize("line", ["import numba", "import math, numba.core", "from numba import njit"])
def test_policies_do_without_numba(sources: Path, line: str) -> None:
    (sources / "kernel.py").write_text(f"{line}\n", encoding="utf-8")
    (sources / "policies" / "some.py").write_text("from undertow._kernel import kernel\n", encoding="utf-8")
    assert inside.main([str(sources)]) == 0
    (sources / "policies" / "some.py").write_text(f"def f() -> None:\n    {line}\n", encoding="utf-8")
    assert inside.main([str(sources)]) == 1


def test_long_files_are_found(sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sources / "some.py").write_text("x = 1\n" * 11, encoding="utf-8")
    assert inside.main([str(sources)]) == 0
    assert inside.main([str(sources), "--long", "11"]) == 0
    assert inside.main([str(sources), "--long", "10"]) == 1
    assert "11 lines, 10 at most" in capsys.readouterr().out
