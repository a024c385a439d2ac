"""Stores keep the rules of `check_store`, and a bandit in one is what it was, whoever calls and whatever happens."""

import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import services
import undertow
from undertow import InvalidInputError, LinUCB, StoreBusyError, StoreError, StoreUnavailableError, UnknownDecisionError
from undertow.contracts import BrokenContractError, check_store
from undertow.live.events import Decided, Event, Rewarded
from undertow.store import DurablePolicy, Store
from undertow.store.address import store_at
from undertow.store.base import Checkpoint, Row
from undertow.store.sqlite import SqliteStore

X = [1.0, 0.5]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty SQLite file, or of a server that has other bandits, too."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    return str(request.getfixturevalue("postgres").url)


@pytest.fixture
def name(tmp_path: Path) -> str:
    return tmp_path.name + os.urandom(3).hex()


def courier(**more: Any) -> LinUCB:
    given: dict[str, Any] = {"arms": ["bike", "van"], "feature_dim": 2, "rng": 0}
    return LinUCB(**(given | more))


def test_stores_keep_the_rules(url: str) -> None:
    tried = check_store(lambda: store_at(url))
    assert len(tried) == len(set(tried)) == 9


class Forgetful(SqliteStore):
    """Does not commit every fourth time."""

    commits = 0

    def _commit(self, connection: Any) -> None:
        self.commits += 1
        connection.execute("COMMIT" if self.commits % 4 else "ROLLBACK")


def test_a_store_that_forgets_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(BrokenContractError, match="what is committed is read in order: "):
        check_store(lambda: Forgetful(tmp_path / "a.db"))


# One bandit, several holders


def test_two_holders_are_one_policy(url: str, name: str) -> None:
    """Calls that go to either of two holders by turns make the decisions of one plain policy."""
    plain, both = courier(), [undertow.open(url, name, courier()), undertow.open(url, name)]
    rng = np.random.default_rng(3)
    for t in range(60):
        x = rng.standard_normal(2)
        one, other = (plain.decide(x, id=f"order {t}"), both[t % 2].decide(x, id=f"order {t}"))
        assert one.to_json() == other.to_json()
        if t % 5:
            for policy in (plain, both[(t // 2) % 2]):
                policy.learn(f"order {t - t % 3}", 0.25 * (t - t % 3))
    for policy in both:
        assert (policy.round, policy.pending) == (plain.round, plain.pending)
        np.testing.assert_array_equal(policy.forecast(X).forecast, plain.forecast(X).forecast)
        assert policy.names == ("bike", "van")


def test_the_same_call_has_the_same_answer(url: str, name: str) -> None:
    one, other = undertow.open(url, name, courier(max_pending=3)), undertow.open(url, name)
    first = one.decide(X, id="order")
    for t in range(10):
        one.decide(X, id=f"more {t}")
    assert other.decide(X, id="order").to_json() == one.decide(X, id="order").to_json() == first.to_json()
    with pytest.raises(InvalidInputError, match="'order' was used before, for another call of decide"):
        other.decide([0.0, 0.0], id="order")
    assert other.round == 11


def test_a_reward_counts_once_however_late(url: str, name: str) -> None:
    """Also for a decision that 20 others have pushed out of the policy's own memory."""
    one, other = undertow.open(url, name, courier(max_pending=3)), undertow.open(url, name)
    plain = courier()
    for t in range(20):
        plain.decide(X, id=f"order {t}")
        one.decide(X, id=f"order {t}")
    assert other.pending == 3
    for policy in (plain, other):
        policy.learn("order 0", 2.0)
    one.learn("order 0", 2.0)
    other.learn(one.decide(X, id="order 0"), 2.0)
    np.testing.assert_array_equal(one.forecast(X).forecast, plain.forecast(X).forecast)
    with pytest.raises(UnknownDecisionError, match="'order 0' has been learned already, and was 2"):
        one.learn("order 0", 1.0)
    with pytest.raises(UnknownDecisionError, match="no decision 'order 99'"):
        one.learn("order 99", 1.0)
    assert other.pending == 3


def test_late_rewards_meet_the_default_reward(url: str, name: str) -> None:
    one, other = (undertow.open(url, name, courier(default_reward=0.0, max_wait=5)), undertow.open(url, name))
    for t in range(8):
        one.decide(X, id=f"order {t}")
    with pytest.raises(UnknownDecisionError, match="default_reward"):
        other.learn("order 0", 2.0)


def test_listeners_hear_of_every_event_in_order(url: str, name: str) -> None:
    one, other = undertow.open(url, name, courier()), undertow.open(url, name)
    heard: tuple[list[Event], list[Event]] = ([], [])
    one.events(heard[0].append)
    other.events(heard[1].append)
    for t in range(4):
        (one, other)[t % 2].learn((other, one)[t % 2].decide(X, id=f"order {t}"), 1.0)
    assert (one.round, other.round) == (4, 4)
    assert [type(event) for event in heard[0]] == [Decided, Rewarded] * 4
    assert [event.id for event in heard[0]] == [event.id for event in heard[1]]  # type: ignore[attr-defined]


def test_threads_share_transactions(url: str, name: str) -> None:
    policy = undertow.open(url, name, courier(), timeout=60)
    begun: list[int] = []
    begin = policy._begin  # noqa: SLF001 (how many there are is what is tested)

    def counted() -> None:
        begun.append(1)
        begin()

    policy._door._begin = counted  # noqa: SLF001
    ids: list[str] = []

    def work() -> None:
        for _ in range(20):
            decision = policy.decide(X)
            policy.learn(decision, 1.0)
            ids.append(decision.id)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 160
    assert (policy.round, policy.pending) == (160, 0)
    assert len(begun) < 320


def test_a_listener_hears_of_an_event_once(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if an interrupt has torn the policy, which is then read from the store again."""
    policy = undertow.open(url, name, courier())
    policy.decide(X, id="before")
    heard: list[Event] = []
    policy.events(heard.append)
    policy.decide(X, id="one")

    def cut_short(self: Any, *given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LinUCB, "learn_many", cut_short)
        with pytest.raises(KeyboardInterrupt):
            policy.learn("one", 1.0)
    policy.decide(X, id="two")
    assert [event.id for event in heard] == ["one", "two"]  # type: ignore[attr-defined]


# Code and store differ


def test_new_arms_of_the_code_are_added(url: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    undertow.open(url, name, courier())
    with caplog.at_level(logging.INFO, "undertow.store"):
        later = undertow.open(url, name, courier(arms=["van", "drone"]))
    assert later.names == ("bike", "van", "drone")
    assert not later.retired
    assert "arm 'drone' is new" in caplog.text
    assert "names 'bike' no more" in caplog.text
    later.retire_arm("bike")
    assert undertow.open(url, name).retired == ("bike",)


def test_other_differences_are_named(url: str, name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"name: there is no bandit .* Give a policy to create it"):
        undertow.open(url, name)
    undertow.open(url, name, courier())
    with pytest.raises(InvalidInputError, match=r"feature_dim: bandit .* was created with 2, not 3; open it under"):
        undertow.open(url, name, courier(feature_dim=3))
    with pytest.raises(InvalidInputError, match=r"policy: bandit .* is linucb, not ucb"):
        undertow.open(url, name, undertow.UCB(arms=2))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "mysql://root:secret@host/db",
            "url: expected sqlite:///file.db or postgresql://user@host/database, got mysql",
        ),
        ("shop.db", "got 'shop.db'"),
        (3, "got 3"),
        ("sqlite:////nowhere/shop.db", "there is no folder '/nowhere'"),
    ],
)
def test_odd_addresses(url: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        undertow.open(url, "courier", courier())
    assert "secret" not in str(caught.value)


def test_a_newer_store_or_event_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    policy = undertow.open(url, "courier", courier())
    policy.decide(X)
    store = store_at(url)
    with store.lock("courier", 5.0) as locked:
        locked.append([Row(2, b"newevent", 0.0, b'{"event":"teleported","version":9}')])
    with pytest.raises(StoreError, match="event 2 of 'courier' is of a kind that this undertow does not know"):
        policy.decide(X)
    with store._connection() as connection:  # type: ignore[attr-defined]  # noqa: SLF001
        connection.execute("UPDATE undertow SET version = 2")
    with pytest.raises(StoreError, match="of version 2, and this undertow knows 1; nothing was changed"):
        undertow.open(url, "courier")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_text("not a database, but long enough to be taken for one" * 100)
    with pytest.raises(InvalidInputError, match="is no SQLite database"):
        undertow.open(f"sqlite:///{tmp_path}/a.db", "courier", courier())


# Trouble


def test_a_backup_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.db"
    policy = undertow.open(f"sqlite:///{path}", "courier", courier())
    for _ in range(3):
        policy.decide(X)
    with store_at(f"sqlite:///{path}")._connection() as connection:  # type: ignore[attr-defined]  # noqa: SLF001
        connection.execute("DELETE FROM events WHERE n > 1")
        connection.execute("DELETE FROM ids WHERE n > 1")
    assert policy.round == 1
    assert "as after a backup" in caplog.text
    assert policy.decide(X).round == 1


def test_who_waits_too_long_is_told(url: str, name: str) -> None:
    policy = undertow.open(url, name, courier(), timeout=0.2)
    with store_at(url).lock(name, 5.0), pytest.raises(StoreBusyError, match="the call did not happen"):
        policy.decide(X)
    assert policy.decide(X).round == 0


class Broken(SqliteStore):
    """Fails at the `at`-th write; with `after`, once it has happened."""

    at, after = -1, False

    def _commit(self, connection: Any) -> None:
        self.at -= 1
        if self.at == 0 and not self.after:
            connection.execute("ROLLBACK")
            raise OSError(5, "Input/output error")
        super()._commit(connection)
        if self.at == 0:
            raise OSError(5, "Input/output error")


@pytest.mark.parametrize("after", [False, True])
def test_a_commit_of_unknown_outcome_is_looked_up(tmp_path: Path, after: bool) -> None:
    store = Broken(tmp_path / "a.db")
    policy = undertow.open(store, "courier", courier())
    policy.decide(X, id="first")
    store.at, store.after = 1, after
    if after:
        assert policy.decide(X, id="second").round == 1
    else:
        with pytest.raises(StoreUnavailableError, match="the call did not happen; repeat the call with the same id"):
            policy.decide(X, id="second")
    assert policy.decide(X, id="second").round == 1
    assert policy.round == undertow.open(store, "courier").round == 2


def test_a_call_that_is_cut_short_did_not_happen(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is interrupted before the policy has changed, or after."""
    policy, plain = undertow.open(url, name, courier()), courier()
    learn = LinUCB.learn_many
    for t in range(6):
        for each in (policy, plain):
            each.decide(X, id=f"order {t}")

        def cut_short(self: Any, *given: Any, after: bool = bool(t % 2)) -> None:
            if after:
                learn(self, *given)
            raise KeyboardInterrupt

        monkeypatch.setattr(LinUCB, "learn_many", cut_short)
        with pytest.raises(KeyboardInterrupt):
            policy.learn(f"order {t}", 1.0)
        monkeypatch.undo()
        assert policy.pending == 1
        for each in (policy, plain):
            each.learn(f"order {t}", 1.0)
    np.testing.assert_array_equal(policy.forecast(X).forecast, plain.forecast(X).forecast)


def test_a_server_that_was_away(postgres: services.Postgres, name: str) -> None:
    policy = undertow.open(postgres.url, name, courier())
    policy.decide(X, id="first")
    postgres.stop(kill=True)
    try:
        with pytest.raises(StoreUnavailableError, match="the call did not happen") as caught:
            policy.decide(X, id="second")
    finally:
        postgres.start()
    assert caught.value.happened is False
    assert postgres.url.split("@")[0] not in str(caught.value)
    assert policy.decide(X, id="second").round == 1
    postgres.stop()
    postgres.start()  # the connection is lost, and one reconnect is enough
    policy.learn("second", 1.0)
    assert policy.pending == 1


def _in_child(url: str, name: str, policy: DurablePolicy, results: Any) -> None:
    results.put(policy.decide(X).id)


def test_a_forked_process_goes_on(url: str, name: str) -> None:
    policy = undertow.open(url, name, courier())
    ids = [policy.decide(X).id]
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    children = [fork.Process(target=_in_child, args=(url, name, policy, results)) for _ in range(2)]
    for child in children:
        child.start()
    ids += [results.get(timeout=60) for _ in children] + [policy.decide(X).id]
    for child in children:
        child.join()
    assert len(set(ids)) == 4
    assert policy.round == 4


def test_a_checkpoint_saves_going_through_the_events(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undertow.store.durable._LEAST", 2000)
    policy = undertow.open(url, name, courier())
    for _ in range(150):
        policy.learn(policy.decide(X), 1.0)
    with store_at(url).lock(name, 5.0) as locked:
        newest = locked.checkpoint()
    assert isinstance(newest, Checkpoint)
    assert newest.n > 100
    other = undertow.open(url, name)
    np.testing.assert_array_equal(policy.forecast(X).forecast, other.forecast(X).forecast)


# Processes that are killed


WORKER = """
import sys, undertow
url, name, number = sys.argv[1:]
policy = undertow.open(url, name, timeout=60)
print("ready", flush=True)
t = 0
while True:
    policy.decide([1.0, 0.1 * t], id=f"{number} {t}")
    print("decided", number, t, flush=True)
    policy.learn(f"{number} {t}", 0.5 * t)
    print("learned", number, t, flush=True)
    t += 1
"""


def workers(url: str, name: str, numbers: range) -> list[subprocess.Popen[str]]:
    start: Callable[..., subprocess.Popen[str]] = subprocess.Popen
    return [
        start([sys.executable, "-c", WORKER, url, name, str(n)], stdout=subprocess.PIPE, text=True) for n in numbers
    ]


def killed(url: str, name: str, kills: int, seed: int, at_once: int = 4) -> Iterator[tuple[str, str, str]]:
    """Kill workers at random moments; yield what they had been told."""
    draw = random.Random(seed)
    for batch in range(0, kills, at_once):
        running = workers(url, name, range(batch, batch + at_once))
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in running:
            time.sleep(draw.uniform(0, 0.3))
            process.send_signal(signal.SIGKILL)
        for process in running:
            said = process.communicate()[0]
            for line in said[: said.rfind("\n") + 1].splitlines():
                verb, number, t = line.split()
                yield verb, number, t


def check_after_kills(url: str, name: str, kills: int, seed: int) -> int:
    """Nothing that a worker was told is lost, nothing happened twice, and the state is that of its events."""
    undertow.open(url, name, courier())
    told = set(killed(url, name, kills, seed))
    with store_at(url).lock(name, 60.0) as locked:
        rows, checkpoint = locked.read(1), locked.checkpoint()
    from undertow.live.events import decode

    events = [decode(row.body) for row in rows]
    decided = [event.id for event in events if isinstance(event, Decided)]
    rewarded = [event.id for event in events if isinstance(event, Rewarded)]
    assert len(set(decided)) == len(decided)
    assert len(set(rewarded)) == len(rewarded)
    assert {f"{number} {t}" for verb, number, t in told if verb == "decided"} <= set(decided)
    assert {f"{number} {t}" for verb, number, t in told if verb == "learned"} <= set(rewarded)
    policy = undertow.open(url, name, timeout=60)
    folded = undertow.fold(undertow.from_bytes(checkpoint.content).to_bytes(), events[checkpoint.n :])
    np.testing.assert_array_equal(policy.forecast(X).forecast, folded.forecast(X).forecast)
    assert policy.round == folded.round == len(decided)
    return len(told)


def test_killed_workers_lose_nothing(url: str, name: str) -> None:
    assert check_after_kills(url, name, kills=8, seed=1) > 8


@pytest.mark.slow
def test_many_killed_workers_lose_nothing(url: str, name: str) -> None:
    assert check_after_kills(url, name, kills=400, seed=2) > 400


def test_a_learner_fits_beside_its_calls(url: str, name: str) -> None:
    """Fits of a thread are events; whoever follows has the same models."""
    path = undertow.paper_system(1).sample(120, rng=0)
    learner = undertow.LearnedKalman(arms=2, context_dim=1, refit="background", rng=0)
    one, other = undertow.open(url, name, learner, timeout=60), undertow.open(url, name, timeout=60)
    for t in range(120):
        policy = (one, other)[t % 2]
        decision = policy.decide()
        policy.learn(decision, float(path.rewards[t, decision.arm]))
        policy.observe(path.contexts[t])
    deadline = time.monotonic() + 300  # kernels may have to be compiled
    while not one.health().fits and time.monotonic() < deadline:
        time.sleep(0.1)
        one.decide()
        one.observe(None)
    assert one.health().fits
    np.testing.assert_array_equal(one.forecast().forecast, other.forecast().forecast)


def test_a_store_is_a_store(tmp_path: Path) -> None:
    store: Store = SqliteStore(tmp_path / "a.db")
    assert repr(store) == f"SqliteStore('{tmp_path}/a.db')"
    policy = undertow.open(store, "courier", courier())
    assert repr(policy) == f"<bandit 'courier' in {store!r}>"
