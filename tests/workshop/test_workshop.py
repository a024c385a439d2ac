"""The tools of the workshop: which tests a word stands for, and what `make check` says."""

from types import SimpleNamespace
from typing import Any

import pytest

import conftest
from tools import check, only

PASSES, FAILS = ("python", "-c", "print('fine')"), ("python", "-c", "print('line 3: odd'); raise SystemExit(1)")


@pytest.mark.parametrize(
    ("word", "files"),
    [
        ("tests/mathematics/test_ridge.py", {"tests/mathematics/test_ridge.py"}),
        ("docs/start.md", {"docs/start.md"}),
        ("src/undertow/ridge.py", {"src/undertow/ridge.py", "tests/mathematics/test_ridge.py"}),
        ("ridge", {"src/undertow/ridge.py", "tests/mathematics/test_ridge.py"}),
        ("replay", {"src/undertow/replay", "tests/replay/test_replay_log.py", "tests/replay/test_diagnose.py"}),
        (
            "linucb",
            {"src/undertow/policies/linear.py", "tests/policies/test_frozen.py", "tests/contracts/test_contracts.py"},
        ),
    ],
)
def test_a_word_stands_for_files(word: str, files: set[str]) -> None:
    found, options = only.chosen(word)
    assert set(found) >= files
    assert options == (["--policy", "linucb"] if word == "linucb" else [])
    if "/" in word:
        assert len(found) < 6


def test_a_word_that_stands_for_nothing() -> None:
    with pytest.raises(ValueError, match="ONLY: 'linucbb' is no policy, room or file; did you mean 'linucb'"):
        only.chosen("linucbb")


def test_what_is_run_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    started: list[Any] = []
    monkeypatch.setattr("os.execv", lambda program, words: started.append(words))
    only.main(["tests/mathematics/test_ridge.py -k update"])
    assert capsys.readouterr().out == "tests/mathematics/test_ridge.py: tests/mathematics/test_ridge.py -k update\n"
    assert started[0][-3:] == ["tests/mathematics/test_ridge.py", "-k", "update"]


@pytest.mark.parametrize(
    ("file", "test", "parameters", "concerned"),
    [
        ("tests/policies/test_policies.py", "test_any[linucb]", {"name": "linucb"}, True),
        ("tests/policies/test_frozen.py", "test_any[linucb: live]", {"name": "linucb: live"}, True),
        ("tests/policies/test_policies.py", "test_any[ucb]", {"name": "ucb"}, False),
        ("tests/policies/test_policies.py", "test_linucb_learns", {}, True),
        ("tests/policies/test_policies.py", "test_ucb_learns", {}, False),
        ("src/undertow/policies/linear.py", "undertow.policies.linear.LinUCB", {}, True),
    ],
)
def test_which_tests_concern_a_policy(file: str, test: str, parameters: dict[str, str], concerned: bool) -> None:
    item: Any = SimpleNamespace(path=only.ROOT / file, name=test, callspec=SimpleNamespace(params=parameters))
    assert conftest.concerns(item, "linucb") is concerned


def test_every_complaint_is_shown_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = [check.Check("types", FAILS, "by hand"), check.Check("lint", PASSES, "no"), check.Check("a", FAILS, "fix")]
    monkeypatch.setattr(check, "CHECKS", checks)
    assert check.main([]) == 1
    printed = capsys.readouterr().out
    assert printed.count("line 3: odd") == 2
    assert [line.split("→")[-1].strip() for line in printed.splitlines() if "FAILED" in line] == ["by hand", "fix"]
    assert "fine" not in printed
    monkeypatch.setattr(check, "CHECKS", checks[1:2])
    assert check.main([]) == 0
