"""Code that changes, and stores that do not: warm starts from another bandit's log, and files of earlier versions."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

import undertow
from undertow import InvalidInputError, LinUCB, StoreError
from undertow.learning.threads import FitThreads
from undertow.live import LivePolicy
from undertow.live.events import Decided, Installed, WarmStarted, decode, encode
from undertow.models.model import Fit, Task
from undertow.models.shared_system.model import SharedSystem
from undertow.store import sql
from undertow.store.address import store_at
from undertow.store.operations import verify

PATH = undertow.random_system(state_dim=2, context_dim=2, arm_count=3, rng=4).sample(60, rng=1)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/shop.db"


def played(url: str, name: str, policy: LivePolicy, *, features: bool = False) -> list[tuple[int, Any, Any, float]]:
    """Play 60 rounds in a store; every fifth reward is missing, and every seventh round is skipped."""
    bandit, made = undertow.open(url, name, policy), []
    first = getattr(policy, "context_first", False)
    for t in range(60):
        context, known = PATH.contexts[t], [0.1 * t] if features else None
        if t % 7 == 6:
            bandit.skip(1, [context])
            continue
        decision = bandit.decide(known, **({"context": context} if first else {}))
        if not first:
            bandit.observe(context)
        if t % 5:
            bandit.learn(decision, float(PATH.rewards[t, decision.arm]))
            made.append((decision.arm, known, context, float(PATH.rewards[t, decision.arm])))
    return made


@pytest.mark.parametrize("first", [False, True])
def test_a_policy_learns_from_the_log_of_another_bandit(url: str, first: bool) -> None:
    """It knows what a ridge regression on the rewarded rounds of the log knows: here, of the same policy."""
    arms = ["a", "b", "c"]
    given: dict[str, Any] = {"arms": arms, "context_dim": 2, "feature_dim": 1, "context_first": first, "rng": 0}
    made = played(url, "old", LinUCB(**given), features=True)
    new = undertow.open(url, "new", LinUCB(**(given | {"exploration": 0.1})), warm_start="old")
    again = undertow.open(url, "old")
    assert new.round == again.round
    assert new.pending == 0
    np.testing.assert_allclose(
        new.forecast([0.5]).forecast[: len(arms)], again.forecast([0.5]).forecast, rtol=0, atol=1e-9
    )
    events = [decode(row.body) for row in store_at(url).events("new", 0, 1000)]
    assert sum(isinstance(event, Decided) for event in events) == len(made)
    assert verify(store_at(url), "new") == len(events)
    assert undertow.open(url, "new", LinUCB(**(given | {"exploration": 0.1})), warm_start="old").round == new.round


def test_a_learner_learns_from_the_log_of_another_bandit(url: str) -> None:
    played(url, "old", undertow.LinUCB(arms=["a", "b", "c"], context_dim=2, rng=0))
    learner = undertow.LearnedKalman(arms=["c", "a"], context_dim=2, refit="inline", rng=0)
    new = undertow.open(url, "new", learner, warm_start="old")
    assert new.round == 60
    (event,) = [decode(row.body) for row in store_at(url).events("new", 0, 10)]
    assert isinstance(event, WarmStarted)
    new.decide()
    assert [record.failure for record in new.health().fits] == [None]


def test_nobody_waits_for_the_first_fit_of_a_warm_start(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever creates the bandit makes it before, while nothing is locked; all others find it among the events."""
    undertow.precompile("learned-kalman")
    played(url, "old", undertow.LinUCB(arms=["a", "b", "c"], context_dim=2, rng=0))
    store, fitted, made = store_at(url), SharedSystem.fit, list[int]()

    def fit(model: SharedSystem, task: Task) -> Fit:
        made.append(task.round)
        with store.lock("old", 0.1):
            return fitted(model, task)

    monkeypatch.setattr(SharedSystem, "work", lambda *_: 1e9)
    monkeypatch.setattr(SharedSystem, "fit", fit)
    learner = undertow.LearnedKalman(arms=["c", "a"], context_dim=2, rng=0)
    new, other = undertow.open(url, "new", learner, warm_start="old"), undertow.open(url, "new")
    assert [type(decode(row.body)) for row in store.events("new", 0, 10)] == [WarmStarted, Installed]
    first = other.decide()
    assert first.why is not None
    assert (first.why.model, first.why.since_fit) == ("shared system", 0)
    np.testing.assert_array_equal(new.forecast().forecast, other.forecast().forecast)
    assert made == [60]
    assert verify(store, "new") == 3


def test_a_warm_start_within_a_store_is_fitted_beside_the_calls(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    undertow.precompile("learned-kalman")
    tasks: list[Callable[[], None]] = []
    monkeypatch.setattr(FitThreads, "do", lambda self, task: tasks.append(task))
    one, other = undertow.open(url, "new", undertow.LearnedKalman(arms=2, rng=0)), undertow.open(url, "new")
    one.warm_start(np.arange(60) % 2, PATH.rewards[:, 0])
    assert [policy.decide().why.model for policy in (other, one)] == ["start-up"] * 2  # type: ignore[union-attr]
    (make,) = tasks
    make()
    one.decide()
    assert [type(decode(row.body)) for row in store_at(url).events("new", 0, 10)] == [
        WarmStarted,
        Decided,
        Decided,
        Installed,
        Decided,
    ]
    assert other.decide().why.model == "shared system"  # type: ignore[union-attr]


def test_logs_that_do_not_fit_are_refused(url: str) -> None:
    played(url, "old", undertow.LinUCB(arms=3, context_dim=2, rng=0))
    with pytest.raises(InvalidInputError, match=r"feature_dim: .*; open it under another name, with warm_start='old'"):
        undertow.open(url, "old", LinUCB(arms=3, context_dim=2, feature_dim=1))
    with pytest.raises(InvalidInputError, match="context_dim of bandit 'old' is 2, and that of this policy 1"):
        undertow.open(url, "new", LinUCB(arms=3, context_dim=1), warm_start="old")
    with pytest.raises(InvalidInputError, match="another order"):
        undertow.open(url, "new", LinUCB(arms=3, context_dim=2, context_first=True), warm_start="old")
    with pytest.raises(InvalidInputError, match="there is no bandit 'nobody'"):
        undertow.open(url, "new", LinUCB(arms=3), warm_start="nobody")
    assert store_at(url).names() == ["old"]


# Earlier versions


def test_a_checkpoint_that_cannot_be_read_is_folded_again(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of all checkpoints, since the policy is made again from what is stored of it for all versions."""
    monkeypatch.setattr("undertow.store.replica._LEAST", 2000)
    policy = undertow.LearnedKalman(arms=3, context_dim=2, refit="inline", rng=0)
    played(url, "old", policy)
    before, store = undertow.open(url, "old").forecast(), store_at(url)
    with store.lock("old", 5.0) as locked:
        numbers = locked.checkpoints()
        assert len(numbers) > 1
    with store._connection() as connection:  # type: ignore[attr-defined]  # noqa: SLF001
        connection.execute("UPDATE checkpoints SET content = ?", (b"of another version",))
    again = undertow.open(url, "old")
    np.testing.assert_array_equal(again.forecast().forecast, before.forecast)
    assert f"old: the checkpoint at event {numbers[-1]} cannot be read" in caplog.text
    with store._connection() as connection:  # type: ignore[attr-defined]  # noqa: SLF001
        connection.execute("DELETE FROM checkpoints WHERE n = 0")
    with pytest.raises(StoreError, match=r"no checkpoint that this undertow can read .* its first events were trimmed"):
        undertow.open(url, "old")


def test_a_fit_that_cannot_be_read_is_made_again(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    undertow.precompile("learned-kalman")
    tasks: list[Callable[[], None]] = []
    monkeypatch.setattr(FitThreads, "do", lambda self, task: tasks.append(task))
    policy = undertow.open(url, "old", undertow.LearnedKalman(arms=2, refit="background", rng=0))
    while not tasks:
        policy.learn(policy.decide(), 1.0)
    tasks.pop()()
    policy.decide()
    assert len(policy.health().fits) == 1
    store = store_at(url)
    events = [decode(row.body) for row in store.events("old", 0, 1000)]
    n, fit = next((n, event) for n, event in enumerate(events, 1) if isinstance(event, Installed))
    body = encode(Installed(model=fit.model, requested=fit.requested, round=fit.round, order=1, block=bytes(8)))
    with store._connection() as connection:  # type: ignore[attr-defined]  # noqa: SLF001
        connection.execute("UPDATE events SET body = ? WHERE n = ?", (body, n))
    tasks.clear()
    monkeypatch.setattr("time.time", lambda: 4e9)  # the claim of the old process has expired
    again = undertow.open(url, "old")
    assert again.round == policy.round
    assert again.health().under_way == (fit.model,)
    assert f"old: the fit of the {fit.model} in event {n} cannot be used" in caplog.text
    again.decide()
    tasks.pop()()
    again.decide()
    assert [record.round for record in again.health().fits] == [fit.requested]
    np.testing.assert_array_equal(undertow.open(url, "old").forecast().forecast, again.forecast().forecast)


def test_a_policy_that_is_not_registered_is_named(url: str) -> None:
    undertow.open(url, "old", undertow.UCB(arms=2))
    with store_at(url)._connection() as connection:  # type: ignore[attr-defined]  # noqa: SLF001
        connection.execute("UPDATE bandits SET spec = ?", (b'{"policy": "theirs", "parameters": {}}',))
    with pytest.raises(InvalidInputError, match="bandit 'old' is a policy called 'theirs', which is not registered"):
        undertow.open(url, "old")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_tables_are_migrated_in_one_transaction(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that fails takes back those before it; the version after the last step is there once it succeeds."""
    url = f"sqlite:///{tmp_path}/shop.db"
    if kind == "postgres":
        with psycopg.connect(request.getfixturevalue("postgres").url, autocommit=True) as connection:
            connection.execute("CREATE SCHEMA migrated")
        url = request.getfixturevalue("postgres").url + "?options=-csearch_path%3Dmigrated"
    undertow.open(url, "old", undertow.UCB(arms=2)).decide()
    steps = {1: ["ALTER TABLE bandits ADD COLUMN note TEXT"], 2: ["CREATE TABLE notes (n INTEGER)", "CREATE NONSENSE"]}
    monkeypatch.setattr(sql, "SCHEMA", 3)
    monkeypatch.setattr(sql, "_MIGRATIONS", steps)
    for _ in range(2):
        with pytest.raises(StoreError):
            store_at(url)
    steps[2].pop()
    store = store_at(url)
    with store._connection() as connection:  # type: ignore[attr-defined]  # noqa: SLF001
        assert connection.execute("SELECT version FROM undertow").fetchall() == [(3,)]
        assert connection.execute("SELECT name, note FROM bandits").fetchall() == [("old", None)]
    assert undertow.open(url, "old").round == 1
    monkeypatch.undo()
    with pytest.raises(StoreError, match="of version 3, and this undertow knows 1; nothing was changed"):
        store_at(url)


def test_an_event_that_does_not_follow_is_an_error(url: str) -> None:
    played(url, "old", LinUCB(arms=3, context_dim=2, rng=0))
    with store_at(url)._connection() as connection:  # type: ignore[attr-defined]  # noqa: SLF001
        connection.execute(
            "UPDATE events SET body = ? WHERE n = 5", (b'{"event":"arm retired","version":1,"name":"9"}',)
        )
    with pytest.raises(StoreError, match="event 5 of 'old' does not follow from those before it"):
        undertow.open(url, "old").decide()


SAVED = sorted((Path(__file__).parents[1] / "saved").glob("store-*.db"))


@pytest.mark.parametrize("file", SAVED, ids=lambda file: file.stem)
def test_stores_of_released_versions_open(file: Path, tmp_path: Path) -> None:
    """Each holds what tests/saved_store.py wrote: its decisions are known, and both policies go on."""
    shutil.copy(file, tmp_path / "shop.db")
    url = f"sqlite:///{tmp_path}/shop.db"
    for name, rounds, features in (("learner", 30, None), ("ridge", 40, [0.5])):
        policy = undertow.open(url, name)
        assert (policy.round, policy.pending) == (rounds, 1)
        decision = policy.decide(features, id="waits")
        assert (decision.round, len(decision.forecast)) == (rounds - 1, 2)
        policy.learn("waits", 1.0)
        with pytest.raises(undertow.UnknownDecisionError, match="has been learned already, and was 1"):
            policy.learn("waits", 2.0)
        if features is None:
            policy.observe([0.1])
        assert policy.decide(features).round == rounds
        assert np.isfinite(policy.forecast(features).forecast).all()
    assert any(isinstance(decode(row.body), Installed) for row in store_at(url).events("learner", 0, 1000))
