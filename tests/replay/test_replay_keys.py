"""Tables with keys: a fleet, one policy per key and one for all are what they say, and the answer is which to take."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from distributed import LocalCluster

import undertow
from helpers import Array
from tables import Terminal, command
from undertow import InvalidInputError
from undertow.fleet import FleetKalman
from undertow.problems.fleets import FLEETS
from undertow.replay import Table, parse_policies, read_table, replay_log, replay_table
from undertow.replay.forecaster import forecast_log
from undertow.replay.keyed import PER_KEY
from undertow.replay.leading import Pass
from undertow.replay.logged import estimate
from undertow.replay.verdict import answer_on_log, answer_on_table

__all__ = ["command"]

ARMS = ["a", "b", "c"]
LINUCB = "LinUCB, one per key"


def frame(keys: int = 6, rounds: int = 12, **more: Any) -> pl.DataFrame:
    """Rows of all keys by turns, in an order that changes; every key likes another arm."""
    rng, rows = np.random.default_rng(1), []
    for t in range(rounds):
        for key in rng.permutation(keys):
            rewards = rng.normal(size=3) + 3.0 * (np.arange(3) == key % 3)
            row = {"week": t, "shop": f"shop {key}", "feature_x": rng.normal()}
            row |= {f"reward_{arm}": value for arm, value in zip(ARMS, rewards.tolist(), strict=True)}
            rows.append(row | {name: rng.normal() for name in more})
    return pl.DataFrame(rows)


def logged(rows: pl.DataFrame) -> pl.DataFrame:
    """A log of arms drawn with other probabilities than equal ones."""
    chances = np.array([0.5, 0.3, 0.2])
    arms = np.random.default_rng(2).choice(3, size=len(rows), p=chances)
    rewards = rows.select("reward_a", "reward_b", "reward_c").to_numpy()[np.arange(len(rows)), arms]
    columns: dict[str, Any] = {"arm": [ARMS[arm] for arm in arms], "reward": rewards, "propensity": chances[arms]}
    return rows.select("week", "shop", "feature_x").with_columns(**{n: pl.Series(c) for n, c in columns.items()})


def read(rows: pl.DataFrame, **more: Any) -> Table:
    return read_table(rows, **({"key": "shop", "time": "week"} | more))


def wide(rewards: Array) -> Table:
    """A table of (keys, rounds, arms), week by week."""
    rows = [
        {"week": t, "shop": f"shop {i:03}"} | {f"reward_{a}": rewards[i, t, a] for a in range(rewards.shape[2])}
        for t in range(rewards.shape[1])
        for i in range(len(rewards))
    ]
    return read(pl.DataFrame(rows))


def runs_in_python(table: Table, rewards: Array, make: Any) -> list[int]:
    """The arms of one policy object per key; it learns the rewards that are there."""
    policies: dict[str, Any] = {}
    features, arms = (table.features - table.features.mean(axis=0)) / table.features.std(axis=0), []
    assert table.keys is not None
    for key, x, paid in zip(table.keys.tolist(), features, rewards, strict=True):
        policy = policies[key] if key in policies else policies.setdefault(key, make())
        decision = policy.decide(x)
        arms.append(decision.arm)
        if not np.isnan(paid[decision.arm]):
            policy.learn(decision, paid[decision.arm])
    return arms


def row_of(result: Any, label: str) -> dict[str, Any]:
    return dict(result.summary.row(by_predicate=pl.col("policy") == label, named=True))


# What is played


def test_one_policy_per_key_is_an_object_for_each() -> None:
    table = read(frame())
    assert table.rewards is not None
    result = replay_table(table, parse_policies("linucb"))
    units = (table.rewards - table.rewards.mean()) / table.rewards.std()
    expected = runs_in_python(table, units, lambda: undertow.LinUCB(arms=ARMS, feature_dim=1, window=5))
    assert result.choices[LINUCB].tolist() == [expected]
    one = undertow.LinUCB(arms=ARMS, feature_dim=1, window=5)
    assert result.choices["LinUCB, one for all keys"].tolist() == [runs_in_python(table, units, lambda: one)]
    earned = table.rewards[np.arange(table.rounds), expected].mean()
    assert row_of(result, LINUCB)["reward"] == pytest.approx(earned)


def test_a_fleet_is_led_batch_by_batch() -> None:
    """As somebody would who asks for the decisions of all shops of a week at once."""
    rewards = FLEETS["alike"](3, 20, 10).rewards
    result = replay_table(wide(rewards))
    units = (rewards - rewards.mean()) / rewards.std()
    seed = int(np.random.SeedSequence(0, spawn_key=(3, 0)).generate_state(1)[0])
    fleet, arms = FleetKalman(undertow.LevelsKalman(arms=[str(a) for a in range(5)], rng=seed)), list[int]()
    for t in range(10):
        decisions = fleet.decide_many([f"shop {i:03}" for i in range(20)])
        arms += decisions.arms.tolist()
        fleet.learn_many(decisions, units[np.arange(20), t, decisions.arms])
    assert result.choices["FleetKalman"][0].tolist() == arms


def test_a_log_is_learned_where_it_is_matched_and_estimated_by_the_rounds() -> None:
    table = read(logged(frame(rounds=40)))
    log = table.log
    assert log is not None
    result = replay_log(table, parse_policies("linucb"), learn_from="matched", runs=1)
    rewards = np.full((table.rounds, 3), np.nan)
    rewards[np.arange(table.rounds), log.arms] = (log.rewards - log.rewards.mean()) / log.rewards.std()
    expected = runs_in_python(table, rewards, lambda: undertow.LinUCB(arms=ARMS, feature_dim=1, window=5))
    assert result.choices[LINUCB].tolist() == [expected]
    way = Pass(np.array(expected), np.array(expected) == log.arms)
    found = estimate(log, [way], forecast_log(table, context_first=False), block=result.block)
    row = row_of(result, LINUCB)
    for name in ("ips", "snips", "dr"):
        assert [row[name], row[f"{name}_low"], row[f"{name}_high"]] == pytest.approx(list(found.values[name]))
    pair = result.comparisons.row(by_predicate=(pl.col("policy") == LINUCB) & (pl.col("other") == "FleetKalman"))
    assert pair[2] == pytest.approx(row["dr"] - row_of(result, "FleetKalman")["dr"])
    assert pair[3] < pair[2] < pair[4]


def test_arms_that_were_not_there_are_not_played() -> None:
    rows = frame().with_columns(reward_b=pl.when(pl.col("week") % 2 == 0).then(pl.col("reward_b")))
    gone = (rows["week"] % 2 == 1).to_numpy()
    for arms in replay_table(read(rows)).choices.values():
        assert not (arms[:, gone] == 1).any()
        assert (arms == 1).any()


@pytest.mark.parametrize("context_first", [False, True])
def test_contexts_and_features_of_arms_are_played(context_first: bool) -> None:
    rows = frame(context_y=1, **{f"feature_price@{arm}": 1 for arm in ARMS})
    result = replay_table(read(rows), parse_policies("linucb"), context_first=context_first)
    assert len({tuple(arms[0].tolist()) for arms in result.choices.values()}) == 3
    assert "FleetKalman does not use contexts" in result.notes


# The answer


def test_a_fleet_pays_where_keys_have_much_in_common_and_are_new() -> None:
    best, said = answer_on_table(replay_table(wide(FLEETS["alike"](0, 100, 15).rewards)))
    assert best == "FleetKalman"
    assert said.startswith("A fleet pays here: FleetKalman would have earned ")
    assert said.count(" more ") == 3
    assert "Take FleetKalman." in said


def test_one_policy_is_for_keys_that_do_not_differ_and_one_per_key_for_those_that_do() -> None:
    rng = np.random.default_rng(0)
    alike = rng.normal(size=(20, 30, 3)) + np.array([0.0, 0.3, 0.6])
    said = answer_on_table(replay_table(wide(alike)))[1]
    assert "A fleet does not pay here" in said
    assert "Take one policy for all keys, the simplest: " in said
    apart = 0.5 * rng.normal(size=(9, 150, 3)) + 3.0 * (np.arange(3) == (np.arange(9) % 3)[:, None])[:, None]
    best, said = answer_on_table(replay_table(wide(apart), parse_policies("ucb")))
    assert best == "ucb, one per key"
    assert "Take one policy per key: ucb, one per key (" in said
    assert "more than always the best fixed arm." in said


def test_costs_and_logs_are_said_as_such() -> None:
    rows = frame(rounds=60)
    assert "would have cost " in answer_on_table(replay_table(read(rows, minimize=True)))[1]
    result = replay_log(read(logged(rows)), runs=1)
    best, said = answer_on_log(result)
    assert best
    assert " than was logged, doubly robust." in said
    assert "effective rounds stand behind it" in said
    assert any("every key learns from all of its rounds" in note for note in result.notes)


# What is refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--key", "shp"], "key: there is no column 'shp' (did you mean 'shop'?); there are week, shop"),
        (["--key", "shop", "--time-unit", "2"], "time_unit: each key counts its own rows; leave out time_unit, or key"),
        (["--cluster", "local", "--time-unit", "1"], "cluster: for tables with keys only; name the column of keys"),
        (
            ["--key", "shop", "--policies", "autopilot"],
            "policies: Autopilot: Autopilot fits a model to the log of each key; use FleetKalman",
        ),
        (["--key", "shop", "--policies", "linucb(standardize=true)"], "a fleet changes no units"),
        (["--key", "shop", "--policies", "kalman-ucb"], "kalman-ucb needs the true system"),
        (["--key", "feature_x", "--features", "feature_x"], "more than one role"),
        (["--key", "shop", "--cluster", "nowhere"], "cluster: no scheduler answers at 'nowhere'"),
    ],
)
def test_what_is_wrong_is_named(command: Terminal, tmp_path: Path, words: list[str], message: str) -> None:
    frame().write_csv(tmp_path / "t.csv")
    done = command("replay", tmp_path / "t.csv", "--time", "week", "--out", tmp_path / "out", *words)
    assert done.status == 2
    assert message in done.err
    assert not (tmp_path / "out" / "replay").exists()


def test_keys_that_are_none_are_refused() -> None:
    rows = frame().with_columns(shop=pl.when(pl.col("week") > 0).then(pl.col("shop")))
    with pytest.raises(InvalidInputError, match=r"row 1, column 'shop': expected the name of a key, got nothing"):
        read(rows)
    with pytest.raises(InvalidInputError, match="key: column 'shop' names one key alone; leave it out"):
        replay_table(read(frame(keys=1, rounds=30)))


# On a cluster, and from the shell


def test_a_cluster_gives_the_same_numbers() -> None:
    table = read(logged(frame(rounds=20)))
    chosen = parse_policies("ucb, linucb(explore=0.1)")
    alone, told = replay_log(table, chosen, runs=2), list[tuple[int, int]]()
    with LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        there = replay_log(table, chosen, runs=2, cluster=address, progress=lambda *done: told.append(done))
    here = replay_log(table, chosen, runs=2, cluster="local", threads=1)
    for other in (there, here):
        assert alone.summary.equals(other.summary)
        assert alone.comparisons.equals(other.comparisons)
        assert alone.notes == other.notes
    assert told[0] == (0, 10 * table.rounds)
    assert told[-1] == (10 * table.rounds, 10 * table.rounds)


def test_the_command_answers_first(command: Terminal, tmp_path: Path) -> None:
    frame().write_csv(tmp_path / "t.csv")
    given = ("replay", tmp_path / "t.csv", "--time", "week", "--key", "shop", "--out", tmp_path / "out")
    done = command(*given)
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("  A fleet ")
    assert any(line.startswith(f"LinUCB, {PER_KEY}") for line in lines)
    assert "key: shop" in done.err
    folder = tmp_path / "out" / "replay" / "t"
    assert json.loads((folder / "replay.json").read_text())["columns"]["key"] == "shop"
    assert pl.read_csv(folder / "comparisons.csv").height == 20
    assert "A fleet " in (folder / "report.html").read_text()
    assert json.loads(command(*given, "--json").out.splitlines()[-1])["answer"].startswith("A fleet ")
