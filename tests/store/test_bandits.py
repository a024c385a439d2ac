"""`undertow bandits`: list, show, verify, export, copy and trim."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import undertow
from tables import Terminal
from undertow.live.events import Rewarded, encode
from undertow.store import Checkpoint, DurablePolicy
from undertow.store.address import store_at
from undertow.store.base import Row
from undertow.store.past import history


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with a bandit of 30 rounds, five of which have no reward."""
    path = undertow.paper_system(1).sample(30, rng=0)
    where = f"sqlite:///{tmp_path}/shop.db"
    policy = undertow.open(where, "courier", undertow.LinUCB(arms=["bike", "van"], context_dim=1, rng=0))
    for t in range(30):
        decision = policy.decide(id=f"order {t}")
        if t % 6:
            policy.learn(decision, float(path.rewards[t, decision.arm]))
        policy.observe(path.contexts[t] if t else None)
    return where


def test_bandits_are_listed_and_shown(command: Terminal, url: str) -> None:
    listed = command("bandits", url)
    assert listed.status == 0, listed.err
    assert "courier: linucb is ok in round 30: 5 waiting" in listed.out
    shown = command("bandits", url, "courier").out
    assert "arms: bike, van" in shown
    assert "events are kept from 1 on" in shown
    row = json.loads(command("bandits", url, "--json").out)
    assert (row["bandit"], row["events"], row["health"]["round"]) == ("courier", 85, 30)


def test_a_bandit_is_verified(command: Terminal, url: str) -> None:
    done = command("bandits", url, "--verify")
    assert (done.status, done.out) == (0, "courier: 85 events verified\n")
    content = undertow.open(url, "courier").to_bytes()
    with store_at(url).lock("courier", 5.0) as locked:
        locked.keep_checkpoint(Checkpoint(85, content))
    assert command("bandits", url, "--verify").status == 0
    with store_at(url)._connection() as connection:  # type: ignore[attr-defined]  # noqa: SLF001
        bodies = dict(connection.execute("SELECT n, body FROM events").fetchall())
        n = next(n for n, body in bodies.items() if b"rewarded" in body and b'"order 1"' in body)
        body = encode(Rewarded(id="order 1", reward=100.0))
        connection.execute("UPDATE events SET body = ? WHERE n = ?", (body, n))
    broken = command("bandits", url, "--verify")
    assert broken.status == 2
    assert "bandit 'courier' differs from the replay of its events" in broken.err
    with store_at(url)._connection() as connection:  # type: ignore[attr-defined]  # noqa: SLF001
        connection.execute("DELETE FROM events WHERE n = 40")
    assert "lacks events between 0 and 85" in command("bandits", url, "--verify").err


@pytest.mark.parametrize("file", ["log.parquet", "log.csv"])
def test_a_log_is_exported_as_replay_reads_it(command: Terminal, url: str, tmp_path: Path, file: str) -> None:
    done = command("bandits", url, "courier", "--export", tmp_path / file)
    assert done.status == 0, done.err
    table = pl.read_parquet(tmp_path / file) if file.endswith("parquet") else pl.read_csv(tmp_path / file)
    assert table.columns == ["time", "arm", "reward", "propensity", "context_0"]
    assert table.height == 25
    path = undertow.paper_system(1).sample(30, rng=0)
    rows = [t for t in range(30) if t % 6]
    arms = table["arm"].replace_strict({"bike": 0, "van": 1}).to_numpy()
    np.testing.assert_allclose(table["reward"].to_numpy(), path.rewards[rows, arms])
    np.testing.assert_allclose(table["context_0"].to_numpy(), path.contexts[rows, 0])
    replayed = command("replay", tmp_path / file, "--policies", "ucb", "--out", tmp_path)
    assert replayed.status == 0, replayed.err


def test_a_copy_goes_on(command: Terminal, url: str, tmp_path: Path) -> None:
    to = f"sqlite:///{tmp_path}/copy.db"
    assert command("bandits", url, "--copy-to", to).out == "courier: 85 events copied\n"
    assert "has a bandit 'courier' already" in command("bandits", url, "--copy-to", to).err
    one, other = undertow.open(url, "courier"), undertow.open(to, "courier")
    for policy in (one, other):
        policy.learn("order 6", 1.0)
        policy.learn("order 1", policy.decide(id="order 1").forecast[0] * 0 + _reward(one))
    assert one.to_bytes() == other.to_bytes()


def _reward(policy: DurablePolicy) -> float:
    """The reward that order 1 had."""
    events = history(policy._store, "courier")  # noqa: SLF001
    return next(event.reward for _, event in events if isinstance(event, Rewarded) and event.id == "order 1")


def test_a_trimmed_bandit_goes_on(command: Terminal, url: str, tmp_path: Path) -> None:
    policy = undertow.open(url, "courier")
    before = policy.to_bytes()
    assert command("bandits", url, "--trim").out == "courier: 84 events trimmed\n"
    assert "events are kept from 86 on" in command("bandits", url, "courier").out
    assert policy.to_bytes() == undertow.open(url, "courier").to_bytes() == before
    assert policy.decide(id="order 3").round == 3
    assert command("bandits", url, "--verify").status == 0
    to = f"sqlite:///{tmp_path}/copy.db"
    assert command("bandits", url, "--copy-to", to).status == 0
    assert undertow.open(to, "courier").to_bytes() == policy.to_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--trim", "--verify"], "expected one of --verify, --export, --copy-to and --trim"),
        (["courier", "--export", "log.txt"], "export: expected a .parquet or .csv file, got 'log.txt'"),
        (["nobody"], "name: there is no bandit 'nobody' in this store"),
    ],
)
def test_mistakes_end_with_status_2(command: Terminal, url: str, words: list[str], message: str) -> None:
    done = command("bandits", url, *words)
    assert done.status == 2
    assert message in done.err


def test_an_empty_store(command: Terminal, tmp_path: Path) -> None:
    assert command("bandits", f"sqlite:///{tmp_path}/new.db").out == "no bandits\n"


def test_rows_say_when(url: str) -> None:
    with store_at(url).lock("courier", 5.0) as locked:
        (row,) = locked.read(85)
    assert isinstance(row, Row)
    assert row.at > 1.7e9
