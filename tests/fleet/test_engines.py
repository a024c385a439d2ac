"""Whole buckets on engines: the same states and decisions, to the bit, as in one process."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow
from clusters import ARMS, BUCKETS, table, template
from undertow import InvalidInputError, UnknownDecisionError
from undertow.fleet import Fleet, bucket_of, play


def contents(states: Any) -> dict[int, bytes]:
    numbers = np.asarray(states["bucket"]).tolist()
    return dict(zip(numbers, map(bytes, states["state"]), strict=True))


def test_a_table_is_played_as_by_single_policies() -> None:
    events, single = table(0), dict[str, Any]()
    _, decisions = play(template(), None, events, buckets=BUCKETS)
    for row, key in enumerate(events["key"].tolist()):
        policy = single.setdefault(key, template())
        decision = policy.decide([events[f"feature_{i}"][row] for i in range(2)])
        assert (decision.arm, decision.round) == (decisions["arm"][row], decisions["round"][row])
        policy.learn(decision, events[f"reward_{decision.name}"][row])


def test_parts_make_the_whole_and_nothing_given_changes() -> None:
    events = table(1)
    whole, decisions = play(template(), None, events, buckets=BUCKETS)
    states: Any = None
    parts = list[Any]()
    for rows in np.array_split(np.arange(len(events["key"])), 4):
        before = {} if states is None else contents(states)
        after, part = play(template(), states, {name: column[rows] for name, column in events.items()}, buckets=BUCKETS)
        assert states is None or contents(states) == before
        states = after
        parts.append(part)
    assert states is not None
    assert contents(states) == contents(whole)
    np.testing.assert_array_equal(np.concatenate([part["arm"] for part in parts]), decisions["arm"])
    one = Fleet.from_bytes(states["state"][0])  # a bucket is a fleet, to look into
    key = next(iter(one))
    assert one.rounds([key])[0] == 6
    assert bucket_of([key], BUCKETS)[0] == states["bucket"][0]


def test_rewards_come_later_in_rows_of_their_own() -> None:
    policy = undertow.UCB(arms=ARMS)
    states, _ = play(policy, None, {"key": ["a", "b", "a"]})
    rewards = {"key": ["b", "a", "a"], "round": [0, 1, None], "reward": [1.0, 0.5, None]}
    states, second = play(policy, states, rewards)  # the last row is a decision
    assert second["round"].tolist() == [2]
    with pytest.raises(UnknownDecisionError, match="row 1: round 0 of key 'b' is not pending"):
        play(policy, states, {"key": ["a", "b"], "round": [0, 0], "reward": [0.1, 0.1]})
    skipped, _ = play(policy, states, {"key": ["b"], "round": [0], "reward": [0.1]}, missing="skip")
    assert contents(skipped) == contents(states)


def test_contexts_come_first_or_after() -> None:
    rng = np.random.default_rng(2)
    contexts = rng.standard_normal((30, 2))
    contexts[4, 0] = np.nan
    keys = np.arange(30) % 3
    rewards = rng.standard_normal((30, 2))
    columns: dict[str, Any] = {"key": keys, "context_a": contexts[:, 0], "context_b": contexts[:, 1]}
    columns |= {"reward_0": rewards[:, 0], "reward_1": rewards[:, 1]}
    for first in (True, False):
        policy = undertow.LinUCB(arms=2, context_dim=2, context_first=first, window=2)
        _, decisions = play(policy, None, columns)
        single = [policy.parts.for_run(0) for _ in range(3)]
        for t in range(30):
            one = single[keys[t]]
            decision = one.decide(context=contexts[t]) if first else one.decide()
            one.learn(decision, rewards[t, decision.arm])
            if not first:
                one.observe(contexts[t])
            assert decision.arm == decisions["arm"][t]


def test_bad_tables_are_refused() -> None:
    policy, one = template(), {"feature_0": [0.1], "feature_1": [0.1]}
    with pytest.raises(InvalidInputError, match="expected a column 'key'"):
        play(policy, None, one)
    with pytest.raises(InvalidInputError, match="expected 2 columns feature_…, got feature_0"):
        play(policy, None, {"key": ["a"], "feature_0": [0.1]})
    with pytest.raises(InvalidInputError, match="a feature is missing"):
        play(policy, None, {"key": ["a"], "feature_0": [0.1], "feature_1": [None]})
    with pytest.raises(InvalidInputError, match="needs its 'round'"):
        play(policy, None, one | {"key": ["a"], "reward": [0.1]})
    with pytest.raises(InvalidInputError, match="needs a seed"):
        play(undertow.LinTS(arms=2), None, {"key": ["a"]})
    states, _ = play(policy, None, one | {"key": ["a"]})
    with pytest.raises(InvalidInputError, match="expected a UCB, got LinUCB"):
        play(undertow.UCB(arms=3), states, {"key": ["a"]})
    with pytest.raises(InvalidInputError, match="each bucket once"):
        play(policy, states, one | {"key": ["a"]}, buckets=1)
    with pytest.raises(InvalidInputError, match="named columns"):
        play(policy, None, [1, 2])


def test_random_choices_depend_on_the_bucket_alone() -> None:
    policy, events = undertow.LinTS(arms=2, rng=3), {"key": np.arange(40)}
    whole, decisions = play(policy, None, events, buckets=4)
    numbers = bucket_of(events["key"], 4)
    for number in range(4):
        rows = numbers == number
        alone, part = play(policy, None, {"key": events["key"][rows]}, buckets=4)
        assert part["arm"].tolist() == decisions["arm"][rows].tolist()
        assert contents(alone)[number] == contents(whole)[number]


def test_duckdb_reads_and_writes(tmp_path: Path) -> None:
    duckdb: Any = pytest.importorskip("duckdb")
    pa: Any = pytest.importorskip("pyarrow")
    events = table(5)
    whole, decisions = play(template(), None, events, buckets=BUCKETS)
    con = duckdb.connect()
    con.register("given", pa.table(events))
    con.sql(f"COPY (SELECT * FROM given) TO '{tmp_path}/events.parquet'")
    for form in ("to_arrow_table", "df", "fetchnumpy"):
        read = getattr(con.sql(f"SELECT * FROM '{tmp_path}/events.parquet'"), form)()
        states, played = play(template(), None, read, buckets=BUCKETS)
        assert contents(states) == contents(whole)
        np.testing.assert_array_equal(played["arm"], decisions["arm"])
    con.register("states", pa.table({"bucket": whole["bucket"], "state": list(whole["state"])}))
    con.sql(f"COPY (SELECT * FROM states) TO '{tmp_path}/states.parquet'")
    stored = con.sql(f"SELECT * FROM '{tmp_path}/states.parquet' ORDER BY bucket").to_arrow_table()
    assert contents({"bucket": stored["bucket"], "state": stored["state"].to_pylist()}) == contents(whole)
    more = con.sql("SELECT key, 0.1::DECIMAL(4, 2) AS feature_0, feature_1 FROM given LIMIT 20").fetchnumpy()
    again, _ = play(template(), con.sql(f"SELECT * FROM '{tmp_path}/states.parquet'").df(), more, buckets=BUCKETS)
    assert len(again["bucket"]) == BUCKETS


def test_dask_plays_partitions_of_whole_buckets(tmp_path: Path) -> None:
    """A worker is killed in the middle: nothing is lost, and no number changes."""
    mark = tmp_path / "killed"
    command = [sys.executable, str(Path(__file__).parents[1] / "clusters.py"), "dask", str(mark)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["same"], done.stderr
    assert mark.exists()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ray", "spark"])
def test_other_engines(engine: str) -> None:
    """With `pip install ray pyspark`, and Java 17 for the latter; both listen on 127.0.0.1 alone."""
    pytest.importorskip({"spark": "pyspark"}.get(engine, engine))
    command = [sys.executable, str(Path(__file__).parents[1] / "clusters.py"), engine]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split()[-1:] == ["same"], done.stderr
