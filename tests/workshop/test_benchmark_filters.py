"""The benchmark of fits to tables: its problems, how it judges, and what it makes of errors."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import filters
from benchmarks.filter_peers.fit import PEERS, do
from helpers import Array


def test_problems_with_gaps_are_the_others_with_gaps() -> None:
    whole, gaps = filters.problems(gaps=False), filters.problems(gaps=True)
    for one, other in zip(whole, gaps, strict=True):
        assert one.system == other.system
        seen = ~np.isnan(other.train)
        assert 0.75 < seen.mean() < 0.85
        np.testing.assert_array_equal(one.train[seen], other.train[seen])
        np.testing.assert_array_equal(one.whole[: filters.ROWS], one.train)


def test_the_filter_that_knows_has_no_excess_and_the_mean_fails() -> None:
    problem = filters.problems(gaps=False)[1]
    known = filters.judged(problem, filters.forecasts(problem.system, problem.whole), 1.5)
    assert known == filters.Fitted(0.0, 1.5)
    wild = filters.judged(problem, 10 * problem.whole + 5, 1.0)
    assert wild.excess is None
    assert filters.cells([known, known, wild]) == ["0.0", "1 of 3", "1.5"]
    assert filters.cells([wild]) == ["fails", "1 of 1", "–"]


def test_an_error_of_a_library_is_told(tmp_path: Path) -> None:
    table = np.zeros((5, 1))
    job = {"path": str(tmp_path / "in.npz"), "out": str(tmp_path / "out.npz"), "order": 1}
    np.savez(job["path"], train=table, whole=table)  # type: ignore[arg-type]

    def broken(train: Array, order: int) -> None:
        raise ArithmeticError("no such thing\nsecond line")

    assert do(broken, job) == "ArithmeticError: no such thing"  # type: ignore[arg-type]
    assert do(lambda train, order: lambda whole: whole + order, job) is None
    with np.load(str(job["out"])) as found:
        assert (found["forecasts"] == 1).all()


@pytest.mark.parametrize("peer", PEERS)
def test_every_library_is_pinned_and_has_a_title(peer: str) -> None:
    assert all("==" in pin for pin in filters.PINS[peer])
    assert peer in filters.TITLES
