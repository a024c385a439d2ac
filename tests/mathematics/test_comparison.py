"""compare: intervals, paired differences, tables, and policies of every kind."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

import undertow
from undertow import InvalidInputError, Trajectory, compare, simulate
from undertow.adapters.coba import FromCoba
from undertow.adapters.river import FromRiver
from undertow.contenders import load_policies
from undertow.replay import parse_policies, read_table, replay_table
from undertow.study.plan import read_plan
from undertow.study.run import run_study

PATHS = undertow.paper_system(psi=1).sample(300, rng=0, runs=6)


class Counting:
    """Arm 0, then 1, and so on: as plain as can be."""

    def __init__(self, arms: int = 2) -> None:
        self.arms, self.made, self.learned = arms, 0, list[tuple[int, float]]()

    def decide(self) -> int:
        self.made += 1
        return (self.made - 1) % self.arms

    def learn(self, arm: int, reward: float) -> None:
        self.learned.append((arm, reward))


@pytest.fixture(scope="module")
def found() -> undertow.Comparison:
    policies = {"ARES": undertow.ARES(arms=2, context_dim=1), "random": undertow.Random(arms=2, rng=3)}
    return compare(policies | {"counting": Counting()}, PATHS)


def test_intervals_and_differences_are_those_of_students_t(found: undertow.Comparison) -> None:
    ares = simulate(undertow.ARES(arms=2, context_dim=1), PATHS).final_regret
    np.testing.assert_array_equal(found.values["ARES"], ares)
    mean, low, high = found.mean("ARES")
    expected = stats.t.interval(0.95, 5, loc=ares.mean(), scale=stats.sem(ares))
    assert (low, high) == pytest.approx(expected)
    assert mean == ares.mean()
    paired = stats.ttest_rel(found.values["counting"], ares).confidence_interval()
    assert tuple(found.difference("counting", "ARES"))[1:] == pytest.approx(tuple(paired))
    rows = found.differences()
    assert len(rows) == 6
    back = {(row["policy"], row["against"]): row["difference"] for row in rows}
    assert back["ARES", "random"] == -back["random", "ARES"]


def test_intervals_hold_their_share() -> None:
    """Of 2000 samples of 5 normal numbers, 95 ± 1.5 % of the intervals hold the mean: three standard errors."""
    from undertow.comparison import mean_with_interval

    draws = np.random.default_rng(0).standard_normal((2000, 5))
    inside = [low <= 0 <= high for _, low, high in map(mean_with_interval, draws)]
    assert abs(np.mean(inside) - 0.95) < 0.015


def test_tables(found: undertow.Comparison, tmp_path: Path) -> None:
    head, _, *rows = found.to_markdown(against=["ARES", "random"]).splitlines()
    assert head == "| policy | regret | − ARES | − random |"
    assert [row.split(" | ")[0] for row in rows] == ["| ARES", "| random", "| counting"]
    assert rows[0].split(" | ")[2] == "–"
    frame = found.to_frame(against="ARES")
    assert isinstance(frame, pl.DataFrame)
    row = frame.row(2, named=True)
    assert row["minus ARES"] == pytest.approx(found.difference("counting", "ARES").value)
    assert len({len(line) for line in str(found).splitlines()}) == 1
    tex = found.to_latex()
    assert tex.count(r"\\") == 4
    assert "±" not in tex
    for look in ({}, {"policies": ["ARES"], "width": 3.5, "height": 2.0, "font": 6, "line": 0.8, "band": False}):
        found.plot(**look).savefig(tmp_path / "a.pdf")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"policy: unknown 'aRES' \(did you mean 'ARES'\?\)"):
        found.to_markdown(against="aRES")


def test_one_run_has_no_interval_and_recorded_paths_compare_rewards() -> None:
    alone = Trajectory(PATHS.contexts[0], PATHS.rewards[0])
    found = compare({"counting": Counting(), "random": undertow.Random(arms=2, rng=0)}, alone)
    assert found.measure == "mean reward"
    value, low, high = found.mean("counting")
    assert value == pytest.approx(np.where(np.arange(300) % 2, *PATHS.rewards[0].T[::-1]).mean())
    assert math.isnan(low)
    assert math.isnan(high)
    assert "(" not in found.to_markdown()


def test_a_path_and_a_path_of_one_run_have_final_regrets_of_one_shape() -> None:
    system = undertow.paper_system(psi=1)
    one, same = (simulate(Counting(), system.sample(50, rng=1, runs=runs)) for runs in (None, 1))
    assert one.regret is not None
    assert one.regret.shape == (50,)
    np.testing.assert_array_equal(one.final_regret, same.final_regret)
    assert one.final_regret.shape == (1,)


def test_plain_objects_play_copies() -> None:
    mine = Counting()
    run = simulate(mine, PATHS)
    assert mine.made == 0
    assert (run.arms == np.arange(300) % 2).all()
    with pytest.raises(InvalidInputError, match="number of an arm, or an object with arm, got 'left'"):
        compare({"left": _returning("left")}, PATHS)
    with pytest.raises(InvalidInputError, match=r"policies: expected a dictionary .* got \[\]"):
        compare([], PATHS)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="policies: ares: policy: expected decide, learn and observe"):
        compare({"ares": "ares"}, PATHS)


def _returning(answer: Any) -> Any:
    class Odd(Counting):
        def decide(self) -> Any:
            return answer

    return Odd()


def test_policies_of_other_libraries() -> None:
    import coba
    from river import bandit

    policies = {
        "river": FromRiver(bandit.UCB(delta=1.0), arms=2),
        "river, contexts": FromRiver(bandit.LinUCBDisjoint(alpha=1.0), arms=2, context_dim=1),
        "coba": FromCoba(coba.RandomLearner(), arms=2),
        "coba, contexts": FromCoba(coba.LinUCBLearner(), arms=2, context_dim=1),
    }
    found = compare(policies, PATHS)
    again = compare(policies, PATHS)
    for label in policies:
        assert np.isfinite(found.values[label]).all()
        np.testing.assert_array_equal(found.values[label], again.values[label])  # every run plays a copy


MINE = """
class Mine:
    def __init__(self, arms, skip=0):
        self.arms, self.made = arms, skip

    def decide(self, features=None):
        self.made += 1
        return self.made % self.arms

    def learn(self, arm, reward):
        pass
"""


def test_a_class_in_plain_python_is_part_of_a_plan(tmp_path: Path) -> None:
    (tmp_path / "my_plain_policies.py").write_text(MINE)
    load_policies(tmp_path / "my_plain_policies.py")
    (tmp_path / "plan.toml").write_text(
        'rounds = 60\nruns = 3\nbaseline = "ares"\n[[systems]]\nkind = "paper"\nlabel = "psi = 1"\npsi = 1\n'
        '[[policies]]\npolicy = "ares"\nlabel = "ares"\n'
        '[[policies]]\npolicy = "my_plain_policies:Mine"\nlabel = "mine {skip}"\ngrid.skip = [0, 1]\n'
    )
    outcome = run_study(read_plan(tmp_path / "plan.toml"), tmp_path / "out")
    assert outcome.headline["policy"].to_list() == ["ares", "mine 0", "mine 1"]
    summary = pl.read_csv(outcome.folder / "summary.csv")
    assert summary["difference"].is_null().to_list() == [True, False, False]
    assert (outcome.folder / "summary.md").read_text().startswith("| regret / ares | psi = 1 |")
    assert r"\toprule" in (outcome.folder / "summary.tex").read_text()
    rewards = np.random.default_rng(0).standard_normal((40, 3))
    table = read_table(pl.DataFrame(rewards, schema=["reward_a", "reward_b", "reward_c"]))
    result = replay_table(table, parse_policies("my_plain_policies:Mine(skip=1), random"), runs=1)
    assert (result.choices["my_plain_policies:Mine(skip=1)"][0] == (np.arange(40) + 2) % 3).all()
    with pytest.raises(InvalidInputError, match=r"policies: 'no_such_module:Mine': .* give its file with --module"):
        parse_policies("no_such_module:Mine")
    with pytest.raises(InvalidInputError, match="expected a class with decide and learn, got <function"):
        parse_policies("undertow.comparison:compare")
