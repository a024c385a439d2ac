"""The runner of the long tests: it counts, and says what failed."""

import pytest

from tools import hardships, torture


def test_a_part_is_run_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert torture.main(["decisions", "--seconds", "0.5", "--seed", "3"]) == 0
    printed = capsys.readouterr().out
    assert "| decisions | a mutated decision is read or refused |" in printed
    assert "refused" in printed
    assert printed.endswith("Every promise held.\n")


def test_every_hardship_is_a_part() -> None:
    assert {part.name for part in torture.PARTS} >= set(hardships.TRIALS)
    assert len({part.name for part in torture.PARTS}) == len(torture.PARTS)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("raise SystemExit(3)", "it ended with status 3"),
        ('print(\'{"trials": 4, "ended": {}, "failed": "trial 4"}\')', "trial 4"),
        ("import time; time.sleep(60)", "it did not end within"),
    ],
)
def test_a_part_that_fails_is_named(
    program: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torture, "PARTS", [torture.Part("odd", "nothing", ("-c", program))])
    monkeypatch.setattr(torture, "GRACE", 2)
    assert torture.main(["--seconds", "1"]) == 1
    printed = capsys.readouterr().out
    assert "**failed**" in printed
    assert f"odd: {words}" in printed


def test_a_trial_can_be_made_again() -> None:
    one, two = (hardships.run(hardships.decisions, seed=5, seconds=0.0) for _ in range(2))
    assert one == two
    assert one["failed"] is None
