"""The log of a fleet is what its calls were, as a loop over them writes it down."""

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import undertow
from tables import Terminal
from undertow import InvalidInputError, StoreError
from undertow.fleet import Fleet, bucket_of
from undertow.policies import LinTS, LinUCB, from_bytes
from undertow.replay import read_table
from undertow.store import DurableFleet
from undertow.store.address import store_at
from undertow.store.base import bucket_name
from undertow.store.fleet_past import logs_of
from undertow.store.operations import copy, trim, verify

ARMS = ["low", "mid", "high"]
_KINDS: dict[str, dict[str, Any]] = {
    "features": {"feature_dim": 2},
    "costs": {"feature_dim": 2, "minimize": True, "cost": {"low": 0.5}, "max_pending": 3},
    "before": {"context_dim": 2, "context_first": True},
    "after": {"context_dim": 2, "feature_dim": 1},
}


class NaiveLog:
    """A policy for each key, and a list of what has happened."""

    def __init__(self, how: dict[str, Any], fleet: DurableFleet, number: Any) -> None:
        self.how, self.fleet, self.number = how, fleet, number  # of the newest event of a key's bucket
        self.alone: dict[int, Any] = {}
        self.seen: dict[int, Any] = {}  # the context of a key, and its event
        self.rows: list[dict[str, Any]] = []  # all decisions

    def decide(self, keys: list[int], x: Any, contexts: Any = None, *, one: bool) -> None:
        q, first = self.how.get("feature_dim", 0), self.how.get("context_first")
        if self.how.get("context_dim"):
            keys = list(dict.fromkeys(keys))
            keys = [key for key in keys if (key in self.seen) == bool(first and contexts is None)]
        x, given = x[: len(keys)], {} if contexts is None else {"contexts": contexts[: len(keys)]}
        if not keys:
            return
        if one:
            keys, x, given = keys[:1], x[:1], {} if contexts is None else {"context": contexts[0]}
            made = [self.fleet.decide(keys[0], x[0, :q] if q else None, **given)]
        else:
            decisions = self.fleet.decide_many(keys, x[:, :q] if q else None, **given)
            made = [decisions.decision(row) for row in range(len(keys))]
        for row, (key, decision) in enumerate(zip(keys, made, strict=True)):
            own = self.alone.setdefault(key, LinUCB(arms=ARMS, rng=0, **self.how))
            if contexts is not None:
                self.seen[key] = contexts[row], self.number(key)
            there = {"context": self.seen.pop(key)[0]} if first and contexts is not None else {}
            context, since = (there["context"], self.number(key)) if there else self.seen.pop(key, (None, 0))
            alike = own.decide(x[row, :q] if q else None, **there)
            assert (alike.arm, alike.round) == (decision.arm, decision.round)
            made_now = {"key": key, "id": decision.id, "twin": alike.id, "arm": ARMS[alike.arm], "reward": None}
            made_now |= {"features": x[row, :q], "context": context, "event": self.number(key), "since": since}
            self.rows.append(made_now | {"propensity": decision.propensity, "pending": own})
            if not first and self.how.get("context_dim"):
                self.seen[key] = self.rows[-1]

    def observe(self, key: int, context: Any) -> None:
        if not self.how.get("context_dim") or (key in self.seen) == bool(self.how.get("context_first")):
            return
        self.fleet.observe(key, context)
        self.alone.setdefault(key, LinUCB(arms=ARMS, rng=0, **self.how)).observe(context)
        if self.how.get("context_first"):
            self.seen[key] = context, self.number(key)
        else:
            self.seen.pop(key)["context"] = context

    def learn(self, place: int, reward: float) -> None:
        waiting = [row for row in self.rows if row["reward"] is None and row["pending"] is self.alone.get(row["key"])]
        if waiting:
            row = waiting[place % len(waiting)]
            if self.fleet.learn_many([row["id"]], [reward], missing="skip")[0]:
                row["pending"].learn(row["twin"], reward)
                row["reward"] = reward

    def expire(self, key: int) -> None:
        self.fleet.expire([key])
        self.alone.pop(key, None)
        self.seen.pop(key, None)

    def place(self, key: int, to: int) -> None:
        """Take the policy of a key, decide a round with it, and put it back, or in place of another one."""
        if key not in self.alone or self.how.get("context_dim"):
            return
        policy, q = self.fleet[key], self.how["feature_dim"]
        policy.decide(np.ones(q))
        own = self.alone[key]
        if to != key:
            self.alone[to] = own = from_bytes(own.to_bytes())
        own.decide(np.ones(q))
        ids = {row["id"]: row for row in self.rows}
        self.fleet[to] = policy
        before, now = (list(each.parts.pending.waiting) for each in (policy, self.fleet[to]))
        for twin, old, new in zip(list(own.parts.pending.waiting), before, now, strict=True):
            if to != key:  # decisions that are in no log
                self.fleet.learn(new, 9.0)
                own.learn(twin, 9.0)
            elif old in ids:
                ids[old]["id"] = new

    def trim(self) -> None:
        for row in self.rows:
            if row["event"] < self.number(row["key"]):
                row["key"] = None
            elif row["since"] < self.number(row["key"]):
                row["context"] = None
        self.rows = [row for row in self.rows if row["key"] is not None]
        for key, row in list(self.seen.items()):
            if self.how.get("context_first") and row[1] < self.number(key):
                self.seen[key] = None, 0
        trim(self.fleet._store, "shops")  # noqa: SLF001

    def table(self) -> list[tuple[Any, ...]]:
        """Return the rows that have a reward."""
        columns, none = ("key", "arm", "reward", "propensity"), [None] * self.how.get("context_dim", 0)
        paid = [row for row in self.rows if row["reward"] is not None]
        return [
            (
                *(row[column] for column in columns),
                *row["features"],
                *(none if row["context"] is None else row["context"]),
            )
            for row in paid
        ]


def exported(store: Any, name: str = "shops") -> list[tuple[Any, ...]]:
    """Return the exported rows, those of a key in their order, without times."""
    found = []
    for log in logs_of(store, name):
        times, *columns = log.values()
        assert (np.diff(times) >= 0).all()
        found += [
            tuple(None if value != value else value for value in row)
            for row in zip(*(column.tolist() for column in columns), strict=True)
        ]
    return sorted(found, key=lambda row: row[0])


@pytest.mark.parametrize("kind", _KINDS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from(
                ["decide", "one", "decide", "learn", "learn", "observe", "observe", "expire", "place", "trim"]
            ),
            st.integers(0, 4),
            st.integers(0, 9),
        ),
        max_size=40,
    ),
    pages=st.integers(1, 4),
)
def test_a_log_is_what_was_called(kind: str, calls: Any, pages: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    store = store_at(f"sqlite:///{tmp_path_factory.mktemp('log')}/a.db")
    fleet = undertow.open(store, "shops", Fleet(LinUCB(arms=ARMS, rng=0, **_KINDS[kind]), buckets=2))

    def number(key: int) -> int:
        return store.overview(bucket_name("shops", int(bucket_of([key], 2)[0])))[0].n

    naive, rng = NaiveLog(_KINDS[kind], fleet, number), np.random.default_rng(0)
    for call, key, value in calls:
        x, rewards = rng.standard_normal((3, 2)), rng.standard_normal()
        if call in ("decide", "one"):
            contexts = rng.standard_normal((3, 2)) if _KINDS[kind].get("context_first") and value % 2 else None
            naive.decide([key, (key + 1) % 5, key], x, contexts, one=call == "one")
        elif call == "learn":
            naive.learn(value, rewards)
        elif call == "observe":
            naive.observe(key, x[0])
        elif call == "place":
            naive.place(key, key if value % 3 else (key + 1) % 5)
        elif call == "expire":
            naive.expire(key)
        else:
            naive.trim()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("undertow.store.fleet_past._PAGE", pages)
        found = exported(store)
    assert found == sorted(naive.table(), key=lambda row: row[0])


def filled(url: Any, fleet: Fleet, keys: Any, name: str = "shops") -> DurableFleet:
    """Open a fleet with nine rounds of each key, eight of which have rewards."""
    stored, rng = undertow.open(url, name, fleet), np.random.default_rng(0)
    q = int(getattr(fleet.policy, "feature_dim", 0))
    for t in range(9):
        decisions = stored.decide_many(keys, rng.standard_normal((len(keys), q)) if q else None, id=f"call {t}")
        if t % 9:
            stored.learn_many(decisions, rng.standard_normal(len(keys)))
    return stored


def test_a_placed_policy_brings_its_own_decisions_only(tmp_path: Path) -> None:
    """Rounds of one batch, or of two stays, are told apart by the ids of what is pending."""
    store = store_at(f"sqlite:///{tmp_path}/a.db")
    fleet = undertow.open(store, "shops", Fleet(undertow.UCB(arms=2), buckets=1))
    fleet.decide_many([1, 2])
    fleet[2] = fleet[1]
    fleet.learn_many(([2], [0]), [9.0])  # of key 1, which is in the log as such
    fleet[1] = fleet[1]
    fleet[1] = fleet[1]
    fleet.learn_many(([1], [0]), [1.0])
    assert exported(store) == [(1, "0", 1.0, 1.0)]
    earlier = fleet[1]
    earlier.decide()
    fleet.expire([1])
    fleet.decide_many([1, 1])
    fleet[1] = earlier
    fleet.learn_many(([1], [1]), [9.0])  # of no fleet
    assert exported(store) == [(1, "0", 1.0, 1.0)]
    for key, times in ((3, 0), (4, 1)):
        fleet.decide(key)
        earlier = fleet[key]
        fleet.expire([key])
        fleet.decide(key)
        for _ in range(times):
            fleet[key] = fleet[key]
        fleet[key] = earlier
        fleet.learn_many(([key], [0]), [9.0])  # of the stay that has expired
    assert exported(store) == [(1, "0", 1.0, 1.0)]


@pytest.mark.parametrize("file", ["log.parquet", "log.csv"])
@pytest.mark.parametrize("keys", [["Aachen", "Basel", "Cádiz", "Delft"], [7, 12, 1207, 9]])
def test_an_exported_fleet_is_replayed_by_key(
    command: Terminal, tmp_path: Path, file: str, keys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows come in the order of time, however few are sorted at once."""
    monkeypatch.setattr("undertow.cli.bandits._ROWS", 5)
    where = f"sqlite:///{tmp_path}/a.db"
    filled(where, Fleet(LinUCB(arms=ARMS, feature_dim=2, explore=0.3, rng=0), buckets=3), keys)
    done = command("bandits", where, "shops", "--export", tmp_path / file)
    assert (done.status, "32 decisions with a reward written" in done.out) == (0, True), done.err
    table = pl.read_parquet(tmp_path / file) if file.endswith("parquet") else pl.read_csv(tmp_path / file)
    assert table.columns == ["time", "key", "arm", "reward", "propensity", "feature_0", "feature_1"]
    assert table["time"].is_sorted()
    rows = [row[1:] for row in sorted(table.rows(), key=lambda row: str(row[1]))]
    assert rows == sorted(exported(store_at(where)), key=lambda row: str(row[0]))
    read = read_table(tmp_path / file, key="key")
    assert read.log is not None
    assert [read.arms[arm] for arm in read.log.arms] == table["arm"].to_list()
    np.testing.assert_array_equal(read.log.rewards, table["reward"])
    np.testing.assert_array_equal(read.log.propensities, table["propensity"])
    assert read.keys is not None
    assert read.keys.tolist() == list(map(str, table["key"]))
    replayed = command("replay", tmp_path / file, "--key", "key", "--policies", "linucb", "--out", tmp_path)
    assert replayed.status == 0, replayed.err
    assert "4 keys, with 8 rows in the median" in replayed.out
    assert sorted(path.name for path in tmp_path.iterdir() if "part" in path.name) == []


def test_a_log_without_rewards_or_probabilities(command: Terminal, tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path}/a.db"
    fleet = undertow.open(where, "shops", Fleet(LinTS(arms=ARMS, feature_names=["size", "rain"], rng=0)))
    assert command("bandits", where, "shops", "--export", tmp_path / "a.csv").status == 0
    assert (tmp_path / "a.csv").read_text() == "time,key,arm,reward,propensity,size,rain\n"
    fleet.learn_many(fleet.decide_many(["Basel", "Delft"], np.ones((2, 2))), [1.0, 2.0])
    assert command("bandits", where, "shops", "--export", tmp_path / "a.parquet").status == 0
    table = pl.read_parquet(tmp_path / "a.parquet")
    assert sorted(table.drop("time", "arm").rows()) == [("Basel", 1.0, None, 1.0, 1.0), ("Delft", 2.0, None, 1.0, 1.0)]


def test_a_damaged_log_is_refused(tmp_path: Path) -> None:
    store = store_at(f"sqlite:///{tmp_path}/a.db")
    filled(store, Fleet(undertow.UCB(arms=2), buckets=1), [1, 2])
    with store._connection() as connection:  # type: ignore[attr-defined]  # noqa: SLF001
        ((body,),) = connection.execute("SELECT body FROM events WHERE n = 3").fetchall()
        longer = body.replace(b'"rewards":"', b'"rewards":"AAAA')
        connection.execute("UPDATE events SET body = ? WHERE n = 3", (longer,))
    with pytest.raises(StoreError, match="from 1 to 17 cannot be read"):
        list(logs_of(store, "shops"))
    with store._connection() as connection:  # type: ignore[attr-defined]  # noqa: SLF001
        connection.execute("DELETE FROM events WHERE n = 3")
    with pytest.raises(StoreError, match="lacks events after 0"):
        list(logs_of(store, "shops"))


# Copies


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/copy.db"
    return str(request.getfixturevalue("postgres").url)


def _copy_and_die(source: str, name: str, to: str, commit: int, after: bool) -> None:
    """Copy a fleet; be killed before or after some commit."""
    kind, left = cast("Any", type(store_at(to))), [commit]
    plain = kind._commit  # noqa: SLF001

    def deadly(self: Any, connection: Any) -> None:
        left[0] -= 1
        if not left[0] and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        plain(self, connection)
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    kind._commit = deadly  # noqa: SLF001
    copy(store_at(source), name, store_at(to))


@pytest.mark.parametrize("after", [False, True])
def test_a_copy_that_is_killed_is_completed_by_the_next(target: str, tmp_path: Path, after: bool) -> None:
    """Wherever the kill comes; rewards, decisions and a trim of the source come in between."""
    killed = 0
    for commit in range(1, 11):
        name, where = f"{tmp_path.name} {after} {commit}", f"sqlite:///{tmp_path}/{commit}.db"
        fleet = filled(where, Fleet(LinUCB(arms=ARMS, feature_dim=2, rng=0), buckets=3), list(range(9)), name)
        if commit % 2:
            trim(store_at(where), name)
        child = multiprocessing.get_context("fork").Process(
            target=_copy_and_die, args=(where, name, target, commit, after)
        )
        child.start()
        child.join()
        store = store_at(target)
        if child.exitcode == 0:
            continue
        assert child.exitcode == -signal.SIGKILL
        killed += 1
        more = fleet.decide_many([0, 1, 2], np.ones((3, 2)), id="more")
        fleet.learn_many(more, [1.0, 2.0, 3.0])
        if store.spec(name) is None:
            copy(store_at(where), name, store)
            copied: Any = undertow.open(target, name)
            assert copied.to_bytes() == fleet.to_bytes()
            assert copied.decide_many([0, 1, 2], np.ones((3, 2)), id="more").ids == more.ids
            assert not copied.learn_many(more, [1.0, 2.0, 3.0]).any()
            assert exported(store, name) == exported(store_at(where), name)
            assert verify(store, name) == verify(store_at(where), name)
    assert killed >= 4


def test_a_part_of_another_copy_is_refused(tmp_path: Path) -> None:
    one, other, to = (store_at(f"sqlite:///{tmp_path}/{part}.db") for part in ("one", "other", "to"))
    for store in (one, other):
        filled(store, Fleet(undertow.UCB(arms=2), buckets=2), [1, 2, 3, 4])
    bucket = bucket_name("shops", 0)
    with one.lock(bucket, 5.0) as locked:
        to.create(bucket, b"", locked.checkpoint(0).content, lambda begun: begun.append(locked.read(1)))
    with pytest.raises(InvalidInputError, match=r"has a part of 'shops' that is not from .*; copy to an empty store"):
        copy(other, "shops", to)
    assert to.spec("shops") is None
    copy(one, "shops", to)
    assert undertow.open(to, "shops").to_bytes() == undertow.open(one, "shops").to_bytes()
