import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from statsmodels.tsa.stattools import acf

from tables import Terminal, log_of, paper_table, table_of, write_csv
from undertow import InvalidInputError
from undertow.problems.datasets import dataset
from undertow.replay import Diagnosis, Table, diagnose
from undertow.replay.diagnosis_text import answer, describe, rule_words
from undertow.replay.simple_rules import ALL_PAST, AVERAGE, REWARDS, _transposed_times, mean_of_last, try_rules


def recorded(name: str) -> Table:
    data = dataset(name)
    made = table_of(data.trajectory.rewards, None, data.trajectory.features)
    return Table(name, made.columns, data.arms, made.contexts, made.features, (), made.rewards, None)


def words(found: Diagnosis) -> str:
    return " ".join([answer(found), *(text for _, text in describe(found))])


def noise(seed: int, n: int = 600, k: int = 3) -> Any:
    return np.random.default_rng(seed).standard_normal((n, k))


def test_daily_stock_returns_are_not_worth_a_policy() -> None:
    found = diagnose(recorded("stocks"))
    assert found.verdict == "nothing"
    assert answer(found).startswith("No: use no policy here; there is nothing to win, as far as 1,858 rounds can tell.")
    assert found.rule_share.low < 0
    assert max(abs(values[0]) for values in found.autocorrelation.values()) < 0.1
    assert found.fixed_share == pytest.approx(0.04, abs=0.001)
    assert "Do not use a policy here" in words(found)
    assert "Plain means of the last w rounds predict no better" in words(found)


def test_there_is_much_to_win_in_chicago() -> None:
    found = diagnose(recorded("chicago"))
    assert found.verdict == "motion"
    assert found.beyond.low > 0.5
    assert found.fixed_share == pytest.approx(0, abs=1e-9)  # every station is standardized
    assert found.average_window == 7  # a week
    assert found.stays_best > 4 * found.stays_by_chance


def test_there_is_much_to_win_in_victoria_and_a_fixed_arm_wins_most_of_it() -> None:
    found = diagnose(recorded("victoria"))
    assert found.verdict == "motion"
    assert found.rule_share.low > 0.8
    assert found.best_arm == "yesterday plus last change"
    assert found.fixed_share == pytest.approx(0.811, abs=5e-4)
    assert 0 < found.beyond.low < 0.05


def test_the_papers_system_is_of_this_kind(tmp_path: Path, command: Terminal) -> None:
    file = write_csv(tmp_path, paper_table(1500))
    done = command("diagnose", str(file), "--out", str(tmp_path))
    assert done.status == 0, done.err
    text = " ".join(done.out.split())
    assert text.startswith("Yes: try policies; arms change places in a way that can be followed.")
    assert "They do, and add to what past rewards carry: past contexts alone explain" in text
    assert "Negative values mean that arms swing" in text
    folder = tmp_path / "diagnose" / "data"
    kept = json.loads((folder / "diagnosis.json").read_text(encoding="utf-8"))
    assert kept["verdict"] == "motion"
    assert kept["contexts"]["low"] > 0.2
    assert kept["rule"]["knows"] == "everything known"
    lags = pl.read_csv(folder / "autocorrelation.csv")
    assert lags.filter(pl.col("lag") == 1)["autocorrelation"].to_list() == pytest.approx([-0.62, -0.62], abs=0.05)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("<figure") == 1
    assert "Is data a problem of this kind?" in page
    machine = json.loads(command("diagnose", str(file), "--out", str(tmp_path), "--json").out)
    assert machine["answer"].startswith("Yes")
    assert machine["rule_share"]["value"] == kept["rule_share"]["value"]


def test_noise_is_nothing() -> None:
    """Twelve tables of independent noise, seeds 0 to 11: at most two of them may look like something."""
    verdicts = [diagnose(table_of(noise(seed))).verdict for seed in range(12)]
    assert sum(verdict in ("motion", "fixed") for verdict in verdicts) <= 2
    assert "nothing" in verdicts


def test_a_common_motion_of_all_arms_is_nothing() -> None:
    common = np.cumsum(noise(1, k=1), axis=0)
    found = diagnose(table_of(10 * common + noise(2)))
    assert found.verdict == "nothing"
    assert max(abs(values[0]) for values in found.autocorrelation.values()) < 0.2


def test_a_better_arm_is_a_fixed_arm() -> None:
    found = diagnose(table_of(noise(0) + np.array([0.0, 0.3, 0.9])))
    assert found.verdict == "fixed"
    assert found.best_arm == "arm 2"
    assert "Find the best arm (arm 2 in this table)" in words(found)
    assert answer(found).startswith("Not quite")


def test_arms_that_take_turns_are_motion() -> None:
    turn = (np.arange(600)[:, None] // 50 + np.arange(3)) % 3 == 0
    found = diagnose(table_of(noise(0) + 2 * turn))
    assert found.verdict == "motion"
    assert 3 <= found.average_window <= 30
    assert found.stays_best > found.stays_by_chance + 0.1


def test_too_few_rounds_say_nothing() -> None:
    found = diagnose(table_of(noise(3, n=100)))
    assert found.verdict == "unclear"
    assert answer(found).startswith("Record more: 100 rounds are too few to tell")
    assert "Record more rounds" in words(found)


def test_contexts_that_tell_and_contexts_that_do_not() -> None:
    """Relative rewards follow the last context, or nothing; the other context is noise."""
    context, X = noise(0, k=1), noise(1, k=2)
    X[1:, 0] += context[:-1, 0]
    told = diagnose(table_of(X, context))
    assert told.contexts is not None
    # x₀ − x₁ is context + two noises: one third of its variance
    assert told.contexts.low < 1 / 3 < told.contexts.high
    assert told.contexts_beyond is not None
    assert told.contexts_beyond.low > 0
    assert told.verdict == "motion"
    beside = table_of(X, np.roll(context, 1, axis=0))  # in the row of the rewards that it tells
    late, early = diagnose(beside), diagnose(beside, context_first=True)
    assert late.contexts is not None
    assert late.contexts.low < 0
    assert early.contexts is not None
    assert early.contexts.low > 0.2
    silent = diagnose(table_of(noise(2, k=2), context))
    assert silent.contexts is not None
    assert silent.contexts.low < 0
    assert "They do not, as far as a regression can tell" in words(silent)


def test_features_that_tell() -> None:
    hour = 2 * np.pi * np.arange(600) / 24
    X = noise(0, k=2) + np.stack([np.cos(hour), -np.cos(hour)], axis=1)
    found = diagnose(table_of(X, None, np.stack([np.cos(hour), np.sin(hour)], axis=1)))
    assert found.features is not None
    assert found.features.low > 0.3
    assert "Features carry signal" in words(found)


def test_autocorrelation_is_that_of_statsmodels() -> None:
    X = np.cumsum(noise(0, k=3), axis=0)
    found = diagnose(table_of(X))
    relative = X - X.mean(axis=1, keepdims=True)
    for arm in range(3):
        assert found.autocorrelation[f"arm {arm}"] == pytest.approx(acf(relative[:, arm], nlags=60, fft=False)[1:])


def test_staying_best_and_the_fixed_arm_by_hand() -> None:
    X = np.tile([[1.0, 0.0], [1.0, 0.0], [0.0, 4.0]], (60, 1))
    found = diagnose(table_of(X))
    assert found.stays_best == pytest.approx((60 * 3 - 1 - 60 - 59) / 179)  # 1 of 3 steps keeps its best
    assert found.stays_by_chance == pytest.approx(5 / 9)
    average, best = 1.0, 2.0
    assert found.fixed_share == pytest.approx((4 / 3 - average) / (best - average))


def test_nothing_explains_more_than_everything() -> None:
    """Random walks leave their mean so far behind; by hand for the last round's reward, from the middle on."""
    X = np.cumsum(noise(0), axis=0)
    found = diagnose(table_of(X, np.cumsum(noise(1, k=1), axis=0)))
    relative = X - X.mean(axis=1, keepdims=True)
    past = np.cumsum(relative, axis=0)[299:-1] / np.arange(300, 600)[:, None]
    left, whole = ((relative[300:] - forecast) ** 2 for forecast in (relative[299:-1], past))
    assert found.averages[1] == pytest.approx(1 - left.sum() / whole.sum())
    assert found.averages[1] > 0.9
    assert found.contexts is not None
    assert found.contexts_beyond is not None
    parts = (found.past_rewards, found.contexts, found.contexts_beyond)
    assert all(part.low <= part.value <= part.high <= 1 for part in parts)
    assert max(*found.averages.values(), *found.regressions.values()) <= 1


def test_what_contexts_add_is_measured_from_the_mean_where_past_rewards_are_worse() -> None:
    """An arm's reward is the last context, which is noise: a regression on past rewards is worse than their mean."""
    context = noise(0, n=1000, k=1)
    X = np.zeros((1000, 2))
    X[1:, 0] = context[:-1, 0]
    found = diagnose(table_of(X, context))
    assert found.past_rewards.value < 0
    assert found.contexts_beyond is not None
    assert 0.99 < found.contexts_beyond.value <= found.contexts_beyond.high <= 1


def test_a_difference_of_shares_is_told_in_points() -> None:
    turn = np.arange(400) % 2 == 0
    X = np.stack([turn, ~turn, np.full(400, 0.45)], axis=1) + 1e-3 * noise(0, n=400)
    found = diagnose(table_of(X))
    assert f"{100 * found.beyond.value:.0f} points (" in answer(found)
    assert f"a difference of {100 * found.beyond.value:.0f} points (" in words(found)


def test_arms_that_never_move_leave_nothing_to_explain() -> None:
    """Means of 0.1, 0.7 and 0.33 are rounded: what they are off by is no motion."""
    for row in ([1.0, 2.0], [0.1, 0.7, 0.33]):
        found = diagnose(table_of(np.tile(row, (200, 1))))
        assert found.verdict == "fixed"
        assert {*found.averages.values(), *found.regressions.values()} == {0.0}
        assert set(found.past_rewards) == {0.0}
        assert {value for values in found.autocorrelation.values() for value in values} == {0.0}


def test_windows_mean_what_they_say() -> None:
    x = noise(0, n=30, k=2)
    assert mean_of_last(x, 4)[10] == pytest.approx(x[6:10].mean(axis=0))
    assert mean_of_last(x, 100)[5] == pytest.approx(x[:5].mean(axis=0))
    assert (mean_of_last(x, 3)[0] == 0).all()


def test_rules_look_at_the_past_only() -> None:
    X = np.cumsum(noise(0, n=300, k=2), axis=0)
    changed = X.copy()
    changed[200:, 0] += 50
    before, after = try_rules(table_of(X)), try_rules(table_of(changed))
    assert before.first == 60
    assert before.scored == 90
    for rule in ((ALL_PAST, 0), (AVERAGE, 5), (REWARDS, 2)):
        cut = 200 - before.first + 1
        assert (before.forecast(rule)[:cut] == after.forecast(rule)[:cut]).all()
        assert (before.forecast(rule)[cut:] != after.forecast(rule)[cut:]).any()
    assert (before.chosen[:141] == after.chosen[:141]).all()


def test_a_regression_is_ridge_regression() -> None:
    """Against the normal equations written out, for one block and the penalty that had won before it."""
    X = np.cumsum(noise(5, n=400, k=2), axis=0)
    relative = X - X.mean(axis=1, keepdims=True)
    rules = try_rules(table_of(X))
    start, stop = 320, 360
    Z = np.hstack([np.vstack([np.zeros((lag, 2)), relative[:-lag]]) for lag in (1, 2)])
    centre, spread = Z[:start].mean(axis=0), Z[:start].std(axis=0)
    A, level = (Z - centre) / spread, relative[:start].mean(axis=0)
    found = rules.forecast((REWARDS, 2))[start - rules.first : stop - rules.first]
    runs_in_python = [
        level
        + A[start:stop]
        @ np.linalg.lstsq(
            np.vstack([A[:start], np.sqrt(penalty) * np.eye(4)]),
            np.vstack([relative[:start] - level, np.zeros((4, 2))]),
            rcond=None,
        )[0]
        for penalty in (1.0, 10.0, 100.0, 1000.0)
    ]
    assert any(np.allclose(found, forecast) for forecast in runs_in_python)


def test_a_seed_fixes_the_intervals() -> None:
    table = paper_table(200)
    assert diagnose(table, seed=1) == diagnose(table, seed=1)
    assert diagnose(table, seed=1).rule_share != diagnose(table, seed=2).rule_share


def test_names_of_rules() -> None:
    assert rule_words((AVERAGE, 7)) == "the arm with the largest mean over the last 7 rounds"
    assert rule_words((AVERAGE, 1)) == "the last round's best"
    assert rule_words((ALL_PAST, 0)) == "the arm that was best so far"
    assert rule_words((REWARDS, 3)) == "the largest forecast of a regression on past rewards of the last 3 rounds"


def test_mistakes(tmp_path: Path, command: Terminal) -> None:
    with pytest.raises(InvalidInputError, match="table: expected at least 100 rows, got 50"):
        diagnose(paper_table(50))
    with pytest.raises(InvalidInputError, match="rewards: all arms pay the same in every row"):
        diagnose(table_of(np.ones((200, 2))))
    with pytest.raises(InvalidInputError, match="table: a log has one reward per round"):
        diagnose(log_of(paper_table(200), (0.5, 0.5), 0))


def test_the_products_of_pieces_are_not_held_together() -> None:
    """Eight arms and four contexts, 14 rounds back, are 168 inputs; 10,000 rounds took 320 MB."""
    a = noise(0, n=10_000, k=168)
    tracemalloc.start()
    _transposed_times(a, a)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20e6


@pytest.mark.parametrize("rows", [3, 1000])
def test_products_in_pieces_are_the_products(rows: int) -> None:
    a, b = noise(0, n=rows, k=168), noise(1, n=rows, k=9)
    np.testing.assert_allclose(_transposed_times(a, a), a.T @ a, atol=1e-10)
    np.testing.assert_allclose(_transposed_times(a, b), a.T @ b, atol=1e-10)
