"""Stores keep the rules of `check_store`, and a bandit in one is what it was, whoever calls and whatever happens."""

import logging
import multiprocessing
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import services
import undertow
from stored import Broken
from undertow import InvalidInputError, LinUCB, StoreBusyError, StoreError, StoreUnavailableError, UnknownDecisionError
from undertow.contracts import BrokenContractError, check_store
from undertow.learning.threads import FitThreads
from undertow.live.events import Decided, Event, Installed, Rewarded, decode
from undertow.store import DurablePolicy, Overview, Store
from undertow.store.address import store_at
from undertow.store.base import Checkpoint, Row
from undertow.store.sql_locked import SqlLocked
from undertow.store.sqlite import SqliteStore

X = [1.0, 0.5]


def courier(**more: Any) -> LinUCB:
    given: dict[str, Any] = {"arms": ["bike", "van"], "feature_dim": 2, "rng": 0}
    return LinUCB(**(given | more))


def test_stores_keep_the_rules(url: str) -> None:
    tried = check_store(lambda: store_at(url))
    assert len(tried) == len(set(tried)) == 15


def test_an_overview_needs_no_policy(url: str, name: str) -> None:
    policy, store = undertow.open(url, name, courier()), store_at(url)
    assert store.overview(name) == [Overview(name, 0, None, None)]
    before = time.time()
    decision = policy.decide(X)
    ((_, n, decided, rewarded),) = store.overview(name)
    assert (n, rewarded) == (1, None)
    assert decided is not None
    assert before <= decided <= time.time()
    policy.learn(decision, 1.0)
    policy.learn(decision, 1.0)
    ((_, n, same, rewarded),) = store.overview(name)
    assert (n, same) == (2, decided)
    assert rewarded is not None
    assert decided <= rewarded <= time.time()
    policy.retire_arm("van")
    assert store.overview(name) == [Overview(name, 3, decided, rewarded)]


def test_kernels_are_compiled_by_the_process_that_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process would wait for the lock that this one holds meanwhile."""
    rehearsed: list[Any] = []
    compiled: list[Any] = []
    monkeypatch.setattr("undertow.store.opening.is_incomplete", lambda module: True)
    monkeypatch.setattr("undertow.store.opening.rehearse", rehearsed.append)
    monkeypatch.setattr(undertow.StructuralKalman, "_compile_here", lambda policy: compiled.append(policy))
    undertow.open(f"sqlite:///{tmp_path}/a.db", "a", undertow.StructuralKalman(arms=2))
    assert rehearsed == compiled != []


def test_several_calls_are_one_transaction(url: str, name: str) -> None:
    policy, other = undertow.open(url, name, courier()), undertow.open(url, name)
    with policy.transaction() as now:
        assert now.round == 0
        policy.decide([1.0, 2.0], id="a")
        policy.learn("a", 1.0)
        assert store_at(url).overview(name)[0].n == 0
    assert other.pending == 0

    def cut_short() -> None:
        with policy.transaction():
            policy.decide([1.0, 2.0], id="b")
            policy.learn("b", 1.0)
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        cut_short()
    assert policy.round == other.round == 1


class Forgetful(SqliteStore):
    """Does not commit every fourth time."""

    commits = 0

    def _commit(self, connection: Any) -> None:
        self.commits += 1
        connection.execute("COMMIT" if self.commits % 4 else "ROLLBACK")


def test_a_store_that_forgets_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(BrokenContractError, match="committed events are read in order: "):
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
    with pytest.raises(UnknownDecisionError, match="unknown id 'order 99'"):
        one.learn("order 99", 1.0)
    assert other.pending == 3


def test_a_reward_counts_once_within_a_transaction(url: str, name: str) -> None:
    """As if two threads bring it, whose calls share a commit."""
    policy, plain = undertow.open(url, name, courier()), courier()
    for each in (policy, plain):
        each.decide(X, id="before")
    with policy.transaction():
        policy.decide(X, id="within")
        for id in ("before", "within") * 2:
            policy.learn(id, 2.0)
            with pytest.raises(UnknownDecisionError, match=f"'{id}' has been learned already, and was 2"):
                policy.learn(id, 1.0)
        assert policy.recorded("within")[1] == 2.0
    plain.decide(X, id="within")
    plain.learn_many(["before", "within"], [2.0, 2.0])
    np.testing.assert_array_equal(policy.forecast(X).forecast, plain.forecast(X).forecast)
    assert [type(decode(row.body)) for row in store_at(url).events(name, 0, 9)] == [Decided] * 2 + [Rewarded] * 2


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

    def cut_short(self: Any, *given: Any, **how: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LinUCB, "learn", cut_short)
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
    assert "the code no longer names 'bike'" in caplog.text
    later.retire_arm("bike")
    assert undertow.open(url, name).retired == ("bike",)


def test_other_differences_are_named(url: str, name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"name: there is no bandit .* Pass a policy to create it"):
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
    assert "as by a backup" in caplog.text
    assert policy.decide(X).round == 1


def test_who_waits_too_long_is_told(url: str, name: str) -> None:
    policy = undertow.open(url, name, courier(), timeout=0.2)
    with store_at(url).lock(name, 5.0), pytest.raises(StoreBusyError, match="the call did not happen"):
        policy.decide(X)
    assert policy.decide(X).round == 0


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
    learn = LinUCB.learn
    for t in range(6):
        for each in (policy, plain):
            each.decide(X, id=f"order {t}")

        def cut_short(self: Any, *given: Any, after: bool = bool(t % 2), **how: Any) -> None:
            if after:
                learn(self, *given)
            raise KeyboardInterrupt

        monkeypatch.setattr(LinUCB, "learn", cut_short)
        with pytest.raises(KeyboardInterrupt):
            policy.learn(f"order {t}", 1.0)
        monkeypatch.undo()
        assert policy.pending == 1
        for each in (policy, plain):
            each.learn(f"order {t}", 1.0)
    np.testing.assert_array_equal(policy.forecast(X).forecast, plain.forecast(X).forecast)


@pytest.mark.parametrize("soon", [0.0, 60.0])
def test_a_server_that_was_away(
    postgres: services.Postgres, name: str, soon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a call reads before it locks, or locks at once."""
    monkeypatch.setattr("undertow.store.replica._WHILE", soon)
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
    monkeypatch.setattr("undertow.store.replica._LEAST", 2000)
    policy = undertow.open(url, name, courier())
    for _ in range(150):
        policy.learn(policy.decide(X), 1.0)
    with store_at(url).lock(name, 5.0) as locked:
        newest = locked.checkpoint()
    assert isinstance(newest, Checkpoint)
    assert newest.n > 100
    other = undertow.open(url, name)
    np.testing.assert_array_equal(policy.forecast(X).forecast, other.forecast(X).forecast)


def test_who_was_away_for_long_follows_before_it_locks(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = undertow.open(url, name, courier()), undertow.open(url, name)
    with one.transaction():
        for t in range(150):
            one.decide(X, id=f"order {t}")
    locked, read = list[int](), SqlLocked.read

    def reads(self: SqlLocked, first: int) -> Any:
        rows = read(self, first)
        locked.append(len(rows))
        return rows

    monkeypatch.setattr("undertow.store.replica._WHILE", 0.0)
    monkeypatch.setattr("undertow.store.replica._PAGE", 40)
    monkeypatch.setattr(SqlLocked, "read", reads)
    assert other.decide(X, id="more").round == 150
    assert locked == [1]


# Fits


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


def test_a_fit_is_claimed_until_that_expires(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process makes it; another one does if nothing has come, and then the first result counts."""
    undertow.precompile("learned-kalman")
    begun: list[Callable[[], None]] = []
    monkeypatch.setattr(FitThreads, "do", lambda self, task: begun.append(task))
    learner = undertow.LearnedKalman(arms=2, refit="background", rng=0)
    one, other = undertow.open(url, name, learner), undertow.open(url, name)
    while not begun:
        one.learn(one.decide(), 1.0)
    for policy in (other, one):
        for _ in range(3):
            policy.learn(policy.decide(), 1.0)
    assert len(begun) == 1
    assert one.health().under_way
    later = time.time() + 300
    monkeypatch.setattr(time, "time", lambda: later)
    other.decide()
    one.decide()
    assert len(begun) == 2
    for make in reversed(begun):
        make()
    for policy in (other, one, other):
        policy.decide()
    events = [decode(row.body) for row in store_at(url).events(name, 0, 10_000)]
    assert [type(event) for event in events].count(Installed) == 1
    assert len(one.health().fits) == len(other.health().fits) == 1
    np.testing.assert_array_equal(one.forecast().forecast, other.forecast().forecast)


def test_a_store_is_a_store(tmp_path: Path) -> None:
    store: Store = SqliteStore(tmp_path / "a.db")
    assert repr(store) == f"SqliteStore('{tmp_path}/a.db')"
    policy = undertow.open(store, "courier", courier())
    assert repr(policy) == f"<bandit 'courier' in {store!r}>"
