import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools import pieces, results

KEYS = {"piece", "command", "seeds", "version", "code", "date", "seconds", "machine", "versions", "blocks"}


@pytest.mark.parametrize("page", results.pages(), ids=lambda page: str(page.relative_to(pieces.ROOT)))
def test_a_page_shows_what_results_hold(page: Path) -> None:
    text = page.read_text()
    assert text.count("<!-- results: ") == len(results.MARK.findall(text))
    assert results.filled(text) == text, "run python tools/results.py --fill"
    for line in text.splitlines():  # one that begins with a comment would end the paragraph, and show no formatting
        assert not (line.startswith("<!-- results:") and not line.endswith("-->")), line


@pytest.mark.parametrize("name", sorted(file.stem for file in results.RESULTS.iterdir()))
def test_a_record_is_whole(name: str) -> None:
    kept = results.result(name)
    assert kept is not None
    assert kept.keys() >= KEYS
    assert (kept["piece"], kept["seeds"]) == (name, pieces.PIECES[name].seeds)
    assert kept["blocks"]
    assert kept["code"] == "" or kept["versions"]["undertow"] == kept["version"]


def test_every_block_is_shown_somewhere() -> None:
    shown = {reference.partition(";")[0] for _, reference in results.references()}
    kept = {f"{name}.{block}" for name in pieces.PIECES for block in (results.result(name) or {"blocks": []})["blocks"]}
    assert kept - shown <= {"learners.captions"}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two small pieces, one page, and results in another folder."""

    def piece(code: str) -> pieces.Piece:
        return pieces.Piece(("-c", code), "7", 1.0, pieces.PIECES["channels"].blocks)

    table = "| a | b: c |\\n|---|---:|\\n| x | 1.256 |\\n| y | 2 (1–3) |"
    known = {"good": piece(f"print('{table}')"), "bad": piece("raise SystemExit(3)")}
    monkeypatch.setattr(results, "PIECES", known)
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(results, "CODE", ("code.py",))
    (tmp_path / "code.py").write_text("1")
    (tmp_path / "pyproject.toml").write_text('project.version = "7.1"')
    for folder in ("docs", "benchmarks"):
        (tmp_path / folder).mkdir()
    (tmp_path / "benchmarks" / "README.md").write_text("")
    page = tmp_path / "docs" / "page.md"
    page.write_text(
        "Before\n\n<!-- results: good.printed -->\n<!-- end -->\n\nIt is <!-- results: good.printed; x; b: c; .1f -->?"
        "<!-- end -->, and <!-- results: good.printed; y; b: c; .0f -->?<!-- end -->.\n"
    )
    return page


def test_a_run_keeps_what_was_printed_and_fills_the_pages(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert results.main([]) == 1
    assert "bad" in capsys.readouterr().err
    text = elsewhere.read_text()
    assert "<!-- results: good.printed -->\n| a | b: c |\n|---|---:|\n| x | 1.256 |" in text
    assert "-->1.3<!-- end -->, and <!-- results: good.printed; y; b: c; .0f -->2<!--" in text
    kept = json.loads((results.RESULTS / "good.json").read_text())
    assert (kept["seeds"], kept["version"]) == ("7", "7.1")
    assert kept["machine"]["cores"] > 0
    assert not (results.RESULTS / "bad.json").exists()
    assert results.filled(text) == text
    assert results.filled(text.replace("1.256", "1.257")) == text


def test_the_same_command_resumes_and_new_code_runs_all_again(elsewhere: Path) -> None:
    assert results.due([]) == ["good", "bad"]
    results.run("good")
    assert results.due([]) == ["bad"]
    assert results.due(["good"]) == ["good"]
    (elsewhere.parents[1] / "code.py").write_text("2")
    assert results.due([]) == ["good", "bad"]


def test_what_was_printed_before_is_taken(elsewhere: Path) -> None:
    log = elsewhere.with_name("log")
    log.write_text("| a | b: c |\n|---|---|\n| x | 5 |\n| y | 6 |\nFigure: there\n")
    assert results.main(["--printed", str(log), "good"]) == 0
    assert "-->5.0<!-- end -->" in elsewhere.read_text()
    with pytest.raises(SystemExit):
        results.main(["--printed", str(log), "good", "bad"])


def test_some_rows_and_a_text_of_a_table(elsewhere: Path) -> None:
    results.run("good")
    assert results.shown("good.printed; y | x", False) == "\n| a | b: c |\n|---|---:|\n| y | 2 (1–3) |\n| x | 1.256 |\n"
    assert results.shown("good.printed; y", False) == "\n| a | b: c |\n|---|---:|\n| y | 2 (1–3) |\n"
    assert results.shown("good.printed; y; b: c; s", True) == "2 (1–3)"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("good.printed; x | z", "the table has no row 'z'"),
        ("absent.printed", "no piece is called 'absent'; there are good, bad"),
        ("good.other", "no such block in results/good.json"),
        ("good.printed; z; b: c; .1f", "no table has a row 'z' and a column 'b: c'"),
    ],
)
def test_a_wrong_reference_is_named(elsewhere: Path, reference: str, message: str) -> None:
    results.run("good")
    with pytest.raises(LookupError, match=message):
        results.shown(reference, True)
    with pytest.raises(SystemExit, match="no piece is called 'absent'"):
        results.due(["absent"])


def summary_row(family: str, policy: str, **more: object) -> dict[str, object]:
    empty = dict.fromkeys(("to_known", "to_known_worst", "to_best", "simple", "to_simple", "to_simple_error", "reward"))
    empty |= dict.fromkeys(("reward_error", "share", "share_low", "share_high", "share_mean", "share_error"))
    return empty | {"family": family, "policy": policy, "problems": 3} | more


def test_tables_of_trials_by_hand() -> None:
    rows = [
        summary_row("stable", label, to_known=1.004 + 20 * place, to_known_worst=437.2, to_best=0.995)
        for place, label in enumerate(pieces.LEARNERS)
    ]
    rows += [summary_row("misspecified-relu", label, to_best=1.5) for label in pieces.LEARNERS]
    more = {"simple": "UCB (1)", "to_simple": 0.9, "to_simple_error": 0.02, "share_error": 0.01}
    for label in ("Autopilot", "StructuralKalman", "LearnedKalman", "UCB (1)"):
        rows.append(summary_row("router-day", label, **more))
        rows.append(summary_row("world-standing", label, **more))
        rows.append(summary_row("safe-quiet", label, **more | {"reward": 0.8, "reward_error": 0.1, "stuck": 2}))
        for family, share in (("data-rain", 0.4), ("data-calls", 0.4 if label == "UCB (1)" else 0.3)):
            spread = {"share_mean": share, "share_low": share - 0.1, "share_high": share + 0.1}
            rows.append(summary_row(family, label, **more, **spread))
    rows += [summary_row(family, pieces.HINDSIGHT, share_mean=0.25) for family in ("data-rain", "data-calls")]
    done = {"event": "done", "summary": rows}
    blocks = pieces.PIECES["trials-data"].blocks('{"event": "progress"}\n' + json.dumps(done))
    assert "| 3 random systems, stable | 1.00 (437) | 21.0 (437) | 41.0 | 61.0 | 81.0 | 0.99 |" in blocks["systems"]
    assert "| rewards are max(0, ·) of a linear one | 1.50 | 1.50 | 1.50 | 1.50 | 1.50 |" in blocks["misspecified"]
    assert "| 0.90 ± 0.02 | 0.90 ± 0.02 | 0.90 ± 0.02 | UCB (1) |" in blocks["worlds"]
    assert blocks["unseen"].endswith("| 0.90 ± 0.02 | 0.90 ± 0.02 | 0.90 ± 0.02 | UCB (1) |")
    assert "| 0.80 ± 0.10 | 2, 2, 2 | UCB (1) |" in blocks["safe"]
    _, _, loss, draw = blocks["data"].splitlines()  # losses first
    assert loss.startswith(
        "| calls (3) | 30.0 ± 1.0 (20 to 40) | 30.0 ± 1.0 | 30.0 ± 1.0 | 40.0 ± 1.0 | 25.0 | UCB (1) |"
    )
    assert draw.startswith("| rain (3) | 40.0 ± 1.0 (30 to 50) |")
    assert "| recorded tables | Autopilot | 35.0 ± 0.7 | -10.0 | calls |" in blocks["overall"]
    assert "| worlds | Autopilot | 0.90 ± 0.02 | 0.90 | standing |" in blocks["overall"]


def test_it_runs_as_a_script() -> None:
    command = [sys.executable, "tools/results.py", "--list"]
    printed = subprocess.run(command, cwd=pieces.ROOT, check=True, capture_output=True, text=True).stdout
    assert printed.count("\n") == len(pieces.PIECES)
