"""The check of words finds retired ones in prose, and nothing in code."""

from pathlib import Path

import pytest

from tools import check_words as words


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "src" / "room").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("source", "line", "found"),
    [
        ('"""Return an arm where there is one."""\n', 1, "where there"),
        ('x = 1\n\n\ndef f():\n    """Do.\n\n    It is done\n    at once.\n    """\n', 8, "at once"),
        ("x = 1\nx = 2  # Seldom true\n", 2, "Seldom"),
        ("# It stands\n# still.\n", 1, "stands still"),
        ('def f():\n    # one\n    # of its\n    # own.\n    raise ValueError(f"{f} fails")\n', 3, "of its own"),
        ('x = "computed anew"\n', 1, "anew"),
        ('x = f"{x} is computed anew"\n', 1, "anew"),
    ],
)
def test_a_retired_word_is_found(
    root: Path, source: str, line: int, found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "src" / "room" / "some.py").write_text(source, encoding="utf-8")
    assert words.main([str(root)]) == 1
    assert capsys.readouterr().out.startswith(f"src/room/some.py:{line}: {found!r}; write ")


@pytest.mark.parametrize(
    "source",
    [
        "anew = seldom(at.once)\n",
        '"""Call `anew` and `stands still`."""\n',
        "x = 1  # this stands\ny = 2  # still\n",
        '"""A place where arms stand, and a renewal."""\n',
    ],
)
def test_code_may_have_any_names(root: Path, source: str) -> None:
    (root / "src" / "room" / "some.py").write_text(source, encoding="utf-8")
    assert words.main([str(root)]) == 0


def test_pages_are_checked_but_not_what_a_command_printed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = root / "docs" / "page.md"
    page.write_text(
        "Fine.\n\n```\nat once\n```\n\n<!-- results: a.b -->\n| at once |\n<!-- end -->\n", encoding="utf-8"
    )
    assert words.main([str(root)]) == 0
    page.write_text("Fine.\n\nIt runs at once.\n", encoding="utf-8")
    assert words.main([str(root)]) == 1
    assert "docs/page.md:3: 'at once'; write immediately" in capsys.readouterr().out


def test_what_is_allowed_is_still_there() -> None:
    root = Path(__file__).parents[2]
    for name, allowed in words.ALLOWED:
        assert allowed in " ".join((root / name).read_text(encoding="utf-8").lower().split())
