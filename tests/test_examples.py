import runpy
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_first_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    example: dict[str, Any] = runpy.run_path(str(EXAMPLES / "first_look.py"))
    main = example["main"]
    main.__globals__.update(ROUNDS=300, RUNS=3)
    main()
    assert "filter of contexts" in capsys.readouterr().out
    assert (tmp_path / "out" / "first_look.png").stat().st_size > 10_000
