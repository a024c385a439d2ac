"""A bandit that begins with a used policy knows its ids: the same id has the same answer, and a reward counts once."""

import copy as copies
import multiprocessing
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import undertow
from helpers import make_policy
from undertow import InvalidInputError, LinUCB, UndertowError, UnknownDecisionError, paper_system
from undertow.policies import registry
from undertow.store.address import store_at
from undertow.store.operations import copy, trim, verify
from undertow.store.sqlite import SqliteStore

X = [1.0, 0.5]


def courier(**more: Any) -> LinUCB:
    given: dict[str, Any] = {"arms": ["bike", "van"], "feature_dim": 2, "rng": 0, "explore": 0.2}
    return LinUCB(**(given | more))


def used() -> tuple[LinUCB, dict[str, undertow.Decision]]:
    """Return a policy with ids of its own and of its caller; of both, the reward of one has come."""
    policy = courier()
    made = {"paid": policy.decide(X, id="paid"), "open": policy.decide(X, id="open", available=["van"])}
    made |= {"own paid": policy.decide(X), "own open": policy.decide([0.1, 0.2])}
    policy.learn_many([made["paid"], made["own paid"]], [0.5, 0.25])
    return policy, made


def test_ids_of_a_used_policy_are_known(url: str, name: str, tmp_path: Path) -> None:
    """From any process, after a trim, and in a copy."""
    policy, made = used()
    undertow.open(url, name, policy)
    trim(store_at(url), name)
    elsewhere = store_at(f"sqlite:///{tmp_path}/copy.db")
    copy(store_at(url), name, elsewhere)
    for where in (url, elsewhere):
        bandit = undertow.open(where, name)
        assert bandit.decide(X, id="paid").to_json() == made["paid"].to_json()
        assert bandit.decide(X, id="open", available=["van"]).to_json() == made["open"].to_json()
        assert (bandit.round, bandit.pending) == (4, 2)
        with pytest.raises(InvalidInputError, match="'paid' was used before, for another call"):
            bandit.decide([2.0, 2.0], id="paid")
        with pytest.raises(InvalidInputError, match="was used before, for another call"):
            bandit.decide(X, id=made["own paid"].id)
        bandit.learn_many(["paid", made["own paid"], "open", made["own open"].id], [0.5, 0.25, 1.0, 2.0])
        assert bandit.pending == 0
        for decision, reward in zip(made.values(), [0.5, 1.0, 0.25, 2.0], strict=True):
            bandit.learn(decision, reward)
            with pytest.raises(UnknownDecisionError, match=f"learned already, and was {reward:g}; a reward cannot"):
                bandit.learn(decision.id, 3.0)
        recorded = bandit.recorded("open")
        assert (recorded[0].to_json(), recorded[1]) == (made["open"].to_json(), 1.0)
        with pytest.raises(UnknownDecisionError, match="made before this bandit was created, and only its reward"):
            bandit.recorded(made["own open"].id)
        policy.learn_many(["open", made["own open"]], [1.0, 2.0])
        np.testing.assert_array_equal(bandit.forecast(X).forecast, policy.forecast(X).forecast)
        assert verify(bandit._store, name) == 2  # noqa: SLF001


@pytest.mark.parametrize("kind", registry())
def test_every_policy_brings_its_answers(kind: str, tmp_path: Path) -> None:
    policy, path = make_policy(kind, paper_system(1), rng=3), paper_system(1).sample(9, rng=0)
    if policy.capabilities.simulates_only:
        return
    sees, first = (bool(getattr(policy, part, 0)) for part in ("context_dim", "context_first"))
    answers, store = list[Any](), store_at(f"sqlite:///{tmp_path}/a.db")
    for t in range(9):
        answers.append(policy.decide(id=f"order {t}", **({"context": path.contexts[t]} if sees and first else {})))
        policy.learn(answers[-1], path.rewards[t, answers[-1].arm])
        if sees and not first:
            policy.observe(path.contexts[t])
    bandit = undertow.open(store, "courier", policy)
    for t, answer in enumerate(answers):
        again = bandit.decide(id=f"order {t}", **({"context": path.contexts[t]} if sees and first else {}))
        assert again.to_json() == answer.to_json()
        bandit.learn(again, path.rewards[t, again.arm])
    assert bandit.round == 9


def test_a_decision_that_was_dropped_is_pending_again(url: str, name: str) -> None:
    """If it was dropped in the store; before, what its reward needs was dropped, too."""
    policy, plain = courier(max_pending=2), courier(max_pending=50)
    for each in (policy, plain):
        for t in range(3):
            each.decide([t, 1.0], id=f"order {t}" if t < 2 else None)
    bandit: Any = undertow.open(url, name, policy)
    for each in (bandit, plain):
        for t in range(3, 6):
            each.decide([t, 1.0])
    assert bandit.decide([0.0, 1.0], id="order 0").round == 0
    with pytest.raises(UnknownDecisionError, match="'order 0' was made before this bandit was created, and is too old"):
        bandit.learn("order 0", 1.0)
    assert bandit.health().refused == {"forgotten": 1}
    for each in (bandit, plain):
        each.learn("order 1", 1.0)
    np.testing.assert_array_equal(bandit.forecast(X).forecast, plain.forecast(X).forecast)


def test_a_default_reward_stays(url: str, name: str) -> None:
    policy = courier(default_reward=0.0, max_wait=2)
    for t in range(4):
        policy.decide(X, id=f"order {t}")
    bandit = undertow.open(url, name, policy)
    with pytest.raises(UnknownDecisionError, match="default_reward = 0 has replaced the reward of 'order 0'"):
        bandit.learn("order 0", 1.0)
    bandit.learn("order 3", 1.0)
    bandit.learn("order 3", 1.0)
    assert bandit.pending == 2


def _open_and_ask(url: str, name: str, number: int, begin: Any, results: Any) -> None:
    policy = courier(rng=0)
    for t in range(number):
        policy.decide([t, -1.0])
    policy.learn(policy.decide(X, id="order"), float(number))
    begin.wait()
    bandit = undertow.open(url, name, policy, timeout=60)
    said: list[Any] = [bandit.decide(X, id="order").to_json()]
    for reward in range(4):
        try:
            bandit.learn("order", reward)
            said.append(reward)
        except UnknownDecisionError:
            pass
    results.put(said)


def test_processes_that_create_at_once_have_the_answers_of_one(url: str, name: str) -> None:
    fork = multiprocessing.get_context("fork")
    results, begin = fork.Queue(), fork.Barrier(4)
    children = [fork.Process(target=_open_and_ask, args=(url, name, n, begin, results)) for n in range(4)]
    for child in children:
        child.start()
    said = [results.get(timeout=120) for _ in children]
    for child in children:
        child.join()
    assert all(each == said[0] for each in said)
    assert len(said[0]) == 2  # the answer, and one reward that is not refused
    assert undertow.Decision.from_json(said[0][0]).round == said[0][1]


def test_a_file_that_another_process_is_creating_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite fails at once if two processes change the journal of a new file."""
    left = [2]

    class Changing(sqlite3.Connection):
        def execute(self, statement: str, *given: Any) -> sqlite3.Cursor:
            if "journal_mode" in statement and left[0]:
                left[0] -= 1
                error = sqlite3.OperationalError("database is locked")
                error.sqlite_errorcode = sqlite3.SQLITE_BUSY
                raise error
            return super().execute(statement, *given)

    plain = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **named: plain(*given, factory=Changing, **named))
    assert SqliteStore(tmp_path / "a.db").names() == []
    assert left == [0]


class Broken(SqliteStore):
    """Fails when the ids of a new bandit are written."""

    def _commit(self, connection: Any) -> None:
        if connection.execute("SELECT 1 FROM ids").fetchone():
            raise OSError(5, "Input/output error")
        super()._commit(connection)


def test_a_bandit_is_created_with_its_ids_or_not_at_all(tmp_path: Path) -> None:
    policy, made = used()
    with pytest.raises(OSError, match="Input/output"):
        undertow.open(Broken(tmp_path / "a.db"), "courier", policy)
    store = SqliteStore(tmp_path / "a.db")
    assert (store.names(), store.answers("courier", ["paid"])) == ([], [])
    assert undertow.open(store, "courier", policy).decide(X, id="paid").to_json() == made["paid"].to_json()


def test_an_unused_policy_brings_no_ids(tmp_path: Path) -> None:
    store = store_at(f"sqlite:///{tmp_path}/a.db")
    undertow.open(store, "courier", courier())
    with store.lock("courier", 5.0) as locked:
        assert list(locked.answers("", 9)) == []


def outcome(call: Any, *given: Any, **named: Any) -> Any:
    try:
        found = call(*given, **named)
    except UndertowError as error:
        return type(error).__name__, getattr(error, "reason", "")
    return found.to_json() if isinstance(found, undertow.Decision) else found


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    calls=st.lists(
        st.tuples(st.sampled_from(["decide", "decide", "learn"]), st.integers(0, 5), st.sampled_from([0.0, 1.0])),
        max_size=30,
    ),
    begin=st.integers(0, 20),
)
def test_a_policy_goes_on_in_a_store(calls: Any, begin: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whenever it is opened there, calls have the outcomes that they have in memory."""
    plain, store = courier(), store_at(f"sqlite:///{tmp_path_factory.mktemp('used')}/a.db")
    bandit: Any = None
    for number, (call, id, value) in enumerate(calls):
        if number == begin:
            bandit = undertow.open(store, "courier", copies.deepcopy(plain))
        if call == "decide":
            given: Any = ([value, 1.0],)
            named = {"id": f"order {id}"}
        else:
            given, named = (f"order {id}", value), {}
        wanted = outcome(getattr(plain, call), *given, **named)
        if bandit is not None:
            assert outcome(getattr(bandit, call), *given, **named) == wanted
    if bandit is not None:
        verify(store, "courier")
