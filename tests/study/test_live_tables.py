"""The tables of missing contexts and of other rewards."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr
from typer.testing import CliRunner

from undertow import paper_system
from undertow.cli import app
from undertow.errors import InvalidInputError
from undertow.study.hardships import GAPS, gap_table, with_rewards

GUIDE = (Path(__file__).parents[2] / "docs" / "measurements.md").read_text()


def test_what_misses_nothing_is_the_measure() -> None:
    table = gap_table(1, runs=1, rounds=120)
    assert table.columns == tuple(GAPS)
    assert table.rows["KalmanGreedy (knows the system)"][0] == 1.0
    assert np.isnan(table.rows["ARES"][-1])  # cannot play without contexts
    assert np.isfinite(table.rows["ARES"][:-1]).all()
    assert np.isfinite(table.rows["Autopilot"]).all()
    assert len(set(table.rows["discounted UCB"])) == 1  # looks at no context
    assert table.markdown().splitlines()[0] == "| psi = 1: contexts missing | 0 % | 10 % | 30 % | 60 % | no contexts |"


@pytest.mark.parametrize("kind", ["binary", "count"])
def test_rewards_have_the_means_they_are_drawn_with(kind: str) -> None:
    path = paper_system(1).sample(20_000, rng=3)
    assert path.means is not None
    for twin in (False, True):
        drawn = with_rewards(path, kind, 0, twin=twin)  # type: ignore[arg-type]
        η = path.means / path.means.std()
        assert drawn.means is not None
        np.testing.assert_allclose(drawn.means, ndtr(η) if kind == "binary" else np.exp(η / 2))
        variance = drawn.means * (1 - drawn.means) if kind == "binary" else drawn.means
        errors = drawn.rewards - drawn.means
        # means of 40,000 errors with a known average variance, seed 0: within 4 standard errors
        assert abs(errors.mean()) < 4 * math.sqrt(variance.mean() / errors.size)
        squares = errors**2 - variance.mean()
        assert abs(squares.mean()) < 4 * squares.std() / math.sqrt(errors.size)
        whole = np.array_equal(drawn.rewards, np.round(drawn.rewards))
        assert whole is not twin


def test_other_rewards_do_not_exist() -> None:
    path = paper_system(1).sample(10, rng=3)
    with pytest.raises(InvalidInputError, match="kind: expected"):
        with_rewards(path, "ternary", 0)  # type: ignore[arg-type]


def test_the_command_prints_the_tables_of_the_guide() -> None:
    result = CliRunner().invoke(app, ["live", "--psi", "1", "--runs", "1", "--rounds", "40", "--threads", "1"])
    assert result.exit_code == 0, result.output
    form = re.compile(r"-?\d+\.\d\d|–")
    printed = [form.sub("x", line) for line in result.stdout.splitlines() if line.startswith("|")]
    told = [form.sub("x", line) for line in GUIDE.splitlines() if line.startswith("|") and "psi = 4" not in line]
    assert printed
    assert set(printed) <= set(told)
    machine = CliRunner().invoke(app, ["live", "--psi", "1.5", "--runs", "1", "--rounds", "40", "--json"])
    titles = [json.loads(line).get("title") for line in machine.stdout.splitlines()]
    assert [title for title in titles if title] == ["psi = 1.5: contexts missing", "psi = 1.5: rewards"]
