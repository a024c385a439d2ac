from pathlib import Path

import pytest

from tools.learner_figures import draw_learners, main


@pytest.mark.slow
def test_both_figures_are_drawn_with_numbers_in_their_captions(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    drawings = draw_learners(
        tmp_path, rounds=400, runs=(2, 1), threads=2, progress=lambda done, total: seen.append((done, total))
    )
    assert [drawing.png.name for drawing in drawings] == ["learners_forecast.png", "learners_leader.png"]
    assert all(drawing.png.read_bytes().startswith(b"\x89PNG") for drawing in drawings)
    assert all(any(letter.isdigit() for letter in drawing.caption) for drawing in drawings)
    assert seen[-1][0] == seen[-1][1]


def test_the_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "which model Autopilot uses" in " ".join(capsys.readouterr().out.split())
