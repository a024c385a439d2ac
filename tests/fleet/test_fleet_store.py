"""A fleet in a store is what it would be in memory, whoever calls and whatever happens."""

import logging
import multiprocessing
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import services
import undertow
from helpers import make_policy
from stored import Broken
from tables import Terminal
from undertow import (
    InvalidInputError,
    StoreBusyError,
    StoreError,
    StoreUnavailableError,
    UnknownDecisionError,
    paper_system,
)
from undertow.fleet import Fleet, FleetKalman, bucket_of
from undertow.live.events import KeysNamed, ManyDecided, decode, encode
from undertow.live.files import unarchived
from undertow.policies import LinUCB, registry
from undertow.store import Checkpoint, DurableFleet
from undertow.store.address import store_at
from undertow.store.base import Row, bucket_name
from undertow.store.checkpoints import policy_of
from undertow.store.operations import verify

SHOPS = ["Aachen", "Basel", "Cádiz", "Delft"]
X = np.array([[0.3, 1.0], [0.1, 0.0], [0.9, 1.0], [-0.2, 0.4]])


def shops(buckets: int = 3, **more: Any) -> Fleet:
    given: dict[str, Any] = {"arms": ["low", "mid", "high"], "feature_dim": 2, "rng": 0}
    return Fleet(LinUCB(**(given | more)), buckets=buckets)


def found(url: Any, name: str, **more: Any) -> DurableFleet:
    """Open a fleet that is there."""
    fleet: Any = undertow.open(url, name, **more)
    assert isinstance(fleet, DurableFleet)
    return fleet


def same(one: Any, other: Any) -> bool:
    """Whether two fleets are the same to the bit, but for the prefixes of ids."""
    (head, arrays), (other_head, others) = (unarchived(fleet.to_bytes()) for fleet in (one, other))
    assert (head["random"], head["decided"]) == (other_head["random"], other_head["decided"])
    return all(
        arrays[name].tobytes() == others[name].tobytes() for name in arrays if name not in ("lives", "policy.header")
    )


calls = st.lists(
    st.tuples(
        st.sampled_from(["decide", "learn", "again", "expire", "place", "forget"]),
        st.integers(0, 5),
        st.floats(-2, 2),
        st.integers(0, 2),
    ),
    max_size=25,
)


@pytest.mark.parametrize(
    "make",
    [
        lambda: shops(max_pending=3, explore=0.3),
        lambda: Fleet(undertow.LinTS(arms=3, feature_dim=2, rng=4), buckets=2),
        lambda: shops(default_reward=0.5, max_wait=2, minimize=True),
    ],
    ids=["forgets", "draws", "defaults"],
)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(calls=calls)
def test_any_order_of_calls_is_as_in_memory(
    make: Callable[[], Fleet], calls: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Three holders of one fleet, each with a copy of its own, make any calls by turns."""
    where, plain = f"sqlite:///{tmp_path_factory.mktemp('fleet')}/a.db", make()
    held = [undertow.open(where, "shops", make()) for _ in range(3)]
    waiting: list[tuple[Any, Any, float]] = []
    for call, key, number, who in calls:
        fleet = held[who]
        if call == "decide":
            keys, x = [key, (key + 1) % 6, key], np.outer([1.0, 2.0, 3.0], [number, 1.0])
            one, other = fleet.decide_many(keys, x), plain.decide_many(keys, x)
            for column, wanted in zip(one.outcome, other.outcome, strict=True):
                np.testing.assert_array_equal(column, wanted)
            waiting += [(one.take([row]), other.take([row]), number) for row in range(3)]
        elif call in ("learn", "again") and waiting:
            one, other, reward = waiting[key % len(waiting)]
            learned = plain.learn_many(other, [reward], missing="skip")
            assert fleet.learn_many(one, [reward], missing="skip").tolist() == learned.tolist()
            if call == "again" and learned.all():
                assert not held[who - 1].learn_many(one.ids, [reward]).any()
        elif call == "expire":
            assert fleet.expire([key]) == plain.expire([key])
            waiting = [entry for entry in waiting if entry[0].keys[0] != key]
        elif call == "place" and key in fleet:
            policy = fleet[key]
            policy.decide([1.0, number])
            fleet[key] = policy
            plain[key] = policy
            waiting = [entry for entry in waiting if entry[0].keys[0] != key]
        elif call == "forget":
            held[who] = found(where, "shops")
    for fleet in held:
        assert same(fleet, plain)
        assert (len(fleet), fleet.pending) == (len(plain), plain.pending)
    verify(store_at(where), "shops")


@pytest.mark.parametrize("name", registry())
def test_every_policy_of_a_fleet_plays_as_in_memory(name: str, tmp_path: Path) -> None:
    """Twelve batches, with contexts where a policy sees them; two holders take turns."""
    system = paper_system(1)
    policy = make_policy(name, system, rng=3)
    try:
        plain = Fleet(policy, buckets=2)
    except InvalidInputError:
        return  # a policy that no fleet takes
    path, rng = system.sample(20, rng=0), np.random.default_rng(0)
    first, sees = bool(getattr(policy, "context_first", False)), bool(getattr(policy, "context_dim", 0))
    held = [undertow.open(f"sqlite:///{tmp_path}/a.db", "fleet", Fleet(policy, buckets=2)) for _ in "ab"]
    for t in range(12):
        keys = rng.choice(6, rng.integers(1, 7), replace=False)
        answers = list[Any]()
        both: list[Any] = [plain, held[t % 2]]
        for fleet in both:
            if sees and first:
                fleet.observe_many(keys, path.contexts[t : t + len(keys)])
            answers.append(fleet.decide_many(keys))
            if sees and not first:
                fleet.observe_many(keys, path.contexts[t : t + len(keys)])
        for one, other in zip(answers[0].outcome, answers[1].outcome, strict=True):
            np.testing.assert_array_equal(one, other)
        some, rewards = rng.permutation(len(keys))[: rng.integers(1, 7)], rng.random(len(keys))
        for fleet, decisions in zip((plain, held[t % 2 - 1]), answers, strict=True):
            fleet.learn_many(decisions.take(some), rewards[some])
    assert all(same(fleet, plain) for fleet in held)


# Processes


def _work(url: str, name: str, number: int, results: Any) -> None:
    """Decide and learn for random keys, in random batches; answer with what was decided."""
    fleet, rng, said = found(url, name, timeout=60), np.random.default_rng(number), list[Any]()
    for _ in range(12):
        keys = rng.integers(0, 9, rng.integers(1, 6))
        decisions = fleet.decide_many(keys, np.outer(keys, [0.1, 1.0]))
        said += zip(keys.tolist(), decisions.rounds.tolist(), decisions.arms.tolist(), strict=True)
        fleet.learn_many(decisions, keys * 0.5 - decisions.arms)
    results.put(said)


def test_processes_make_one_fleet(url: str, name: str) -> None:
    """What they were answered is what a fleet in memory answers to the same calls in the order of the events."""
    undertow.open(url, name, shops())
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    children = [fork.Process(target=_work, args=(url, name, number, results)) for number in range(3)]
    for child in children:
        child.start()
    said = [decision for _ in children for decision in results.get(timeout=120)]
    for child in children:
        child.join()
    plain, store, answered = shops(), store_at(url), list[Any]()
    for number in range(3):
        for row in store.events(bucket_name(name, number), 0, 10_000):
            event = decode(row.body)
            if isinstance(event, ManyDecided):
                keys = np.frombuffer(event.letters, "<i8")
                decisions = plain.decide_many(keys, np.outer(keys, [0.1, 1.0]))
                answered += zip(keys.tolist(), decisions.rounds.tolist(), decisions.arms.tolist(), strict=True)
            else:
                plain.follow(event)
    assert sorted(said) == sorted(answered)
    assert same(found(url, name), plain)


def _in_child(fleet: DurableFleet, results: Any) -> None:
    results.put(fleet.decide_many(SHOPS, X).ids)


def test_a_forked_process_goes_on(url: str, name: str) -> None:
    fleet, plain = undertow.open(url, name, shops(explore=0.5)), shops(explore=0.5)
    ids = fleet.decide_many(SHOPS, X).ids
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    child = fork.Process(target=_in_child, args=(fleet, results))
    child.start()
    ids += results.get(timeout=60)
    child.join()
    fleet.learn_many(ids, np.arange(8.0))
    for _ in range(2):
        plain.decide_many(SHOPS, X)
    plain.learn_many((SHOPS * 2, [0] * 4 + [1] * 4), np.arange(8.0))
    assert same(fleet, plain)


def test_threads_meet_in_buckets_only(url: str, name: str) -> None:
    fleet = undertow.open(url, name, shops(buckets=4), timeout=60)
    ids: list[str] = []

    def work(number: int) -> None:
        for t in range(6):
            decisions = fleet.decide_many([number, t], X[:2])
            fleet.learn_many(decisions, [1.0, 0.5])
            ids.extend(decisions.ids)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 72
    assert (fleet.pending, int(fleet.rounds(range(6)).sum())) == (0, 72)
    assert same(fleet, found(url, name))


# Ids and rewards


def test_the_same_call_has_the_same_answer(url: str, name: str) -> None:
    one, other = undertow.open(url, name, shops()), found(url, name)
    first, single = one.decide_many(SHOPS, X, id="monday"), one.decide("Basel", X[0], id="order 7")
    again = other.decide_many(SHOPS, X, id="monday")
    assert again.ids == first.ids
    for column, wanted in zip(again.outcome, first.outcome, strict=True):
        np.testing.assert_array_equal(column, wanted)
    assert other.decide("Basel", X[0], id="order 7").to_json() == single.to_json()
    with pytest.raises(InvalidInputError, match="'monday' was used before, for another call of decide"):
        other.decide_many(SHOPS, X + 1.0, id="monday")
    with pytest.raises(InvalidInputError, match="'monday' was used before"):
        other.decide_many(SHOPS[::-1], X, id="monday")
    with pytest.raises(InvalidInputError, match="id: expected a printable text"):
        other.decide_many(SHOPS, X, id="")
    assert other.rounds(SHOPS).tolist() == [1, 2, 1, 1]


def test_the_propensity_of_a_random_choice_is_computed_once(url: str, name: str) -> None:
    fleet = undertow.open(url, name, Fleet(undertow.LinTS(arms=3, feature_dim=2, rng=0)))
    first = fleet.decide("Basel", X[0], id="order 7")
    assert 0.0 < first.propensity < 1.0
    fleet.learn(first, 1.0)
    assert fleet.decide("Basel", X[0], id="order 7").to_json() == first.to_json()
    assert np.isnan(fleet.decide_many(SHOPS, X).propensities).all()


def test_a_reward_counts_once(url: str, name: str) -> None:
    one, other, plain = undertow.open(url, name, shops()), found(url, name), shops()
    decisions, alike = one.decide_many(SHOPS, X), plain.decide_many(SHOPS, X)
    assert other.learn_many(decisions.take([1, 2]), [0.5, 0.25]).all()
    plain.learn_many(alike.take([1, 2]), [0.5, 0.25])
    with pytest.raises(UnknownDecisionError, match=r"round 0 of key 'Basel' has been learned already, and was 0\.5"):
        one.learn_many(decisions, [1.0, 2.0, 0.25, 1.0])
    assert one.pending == 2
    assert one.learn_many(decisions.ids, [1.0, 0.5, 0.25, 2.0]).tolist() == [True, False, False, True]
    plain.learn_many(alike.take([0, 3]), [1.0, 2.0])
    one.learn(decisions.ids[0], 1.0)
    assert not other.learn_many(decisions, [9.0] * 4, missing="skip").any()
    with pytest.raises(UnknownDecisionError, match="round 0 of key 'Aachen' is not pending"):
        other.learn_many(shops().decide_many(SHOPS, X), np.zeros(4))  # of another fleet
    with pytest.raises(UnknownDecisionError, match="round 3 of key 'Zug'"):
        other.learn_many((["Zug"], [3]), [1.0])
    assert same(one, plain)


def test_many_single_rewards_of_one_batch_are_known(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than are read at a time, among answers whose ids a database may sort in between."""
    monkeypatch.setattr("undertow.store.fleet_answers._PAGE", 5)
    fleet = undertow.open(url, name, Fleet(undertow.UCB(arms=2), buckets=1))
    decisions = fleet.decide_many(np.arange(24))
    ids = decisions.ids
    for row in range(0, 24, 2):
        fleet.decide(row, id=f"{ids[0].partition('/')[0]}/{row}")
        fleet.learn_many(decisions.take([row, row + 1]), [row, -row])
    assert not fleet.learn_many(ids, np.ravel([[row, -row] for row in range(0, 24, 2)])).any()
    with pytest.raises(UnknownDecisionError, match="learned already, and was -22"):
        fleet.learn(ids[23], 1.0)


# Opening


def test_another_template_is_named(url: str, name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"name: there is no bandit .* Pass a policy to create it"):
        undertow.open(url, name)
    fleet = undertow.open(url, name, shops())
    assert isinstance(found(url, name), DurableFleet)
    assert repr(fleet).startswith(f"<fleet '{name}' in ")
    assert fleet.names == ("low", "mid", "high")
    with pytest.raises(InvalidInputError, match=r"buckets: bandit .* was created with 3, not 8; open it under"):
        undertow.open(url, name, shops(buckets=8))
    with pytest.raises(InvalidInputError, match=r"arms: bandit .* was created with"):
        undertow.open(url, name, shops(arms=["low", "high"]))
    with pytest.raises(InvalidInputError, match=r"template: bandit .* was created with 'linucb', not 'ucb'"):
        undertow.open(url, name, Fleet(undertow.UCB(arms=["low", "mid", "high"]), buckets=3))
    with pytest.raises(InvalidInputError, match=r"policy: bandit .* is fleet, not linucb"):
        undertow.open(url, name, LinUCB(arms=3, feature_dim=2))
    undertow.open(url, f"{name} alone", LinUCB(arms=3, feature_dim=2))
    with pytest.raises(InvalidInputError, match=r"policy: bandit .* is linucb, not fleet"):
        undertow.open(url, f"{name} alone", shops())


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    where: Any = f"sqlite:///{tmp_path}/a.db"
    with pytest.raises(InvalidInputError, match="the fits of a FleetKalman are of all its keys"):
        undertow.open(where, "a", FleetKalman(undertow.LevelsKalman(arms=2)))
    undertow.open(where, "b", undertow.UCB(arms=2))
    given: Any = {"warm_start": "b"}
    with pytest.raises(InvalidInputError, match="warm_start: a fleet learns from no other log"):
        undertow.open(where, "a", shops(), **given)
    with pytest.raises(InvalidInputError, match="or a Fleet, got 3"):
        undertow.open(where, "a", 3)  # type: ignore[call-overload]


def test_a_fleet_in_memory_goes_on_in_a_store(url: str, name: str) -> None:
    """Waiting decisions keep their ids; no bucket waits to be asked for its keys."""
    plain = shops()
    decisions = plain.decide_many(SHOPS, X)
    fleet = undertow.open(url, name, Fleet.from_bytes(plain.to_bytes()))
    assert sorted(fleet) == SHOPS
    assert found(url, name).pending == 4
    with pytest.raises(InvalidInputError, match="the keys of this fleet are strings, got integers"):
        found(url, name).decide(7, X[0])
    for each in (fleet, plain):
        each.learn_many(decisions, np.arange(4.0))
    assert same(fleet, plain)
    fleet.decide_many(SHOPS, X)
    assert same(Fleet.from_bytes(fleet.to_bytes()), fleet)


def test_keys_are_of_one_type_for_ever(url: str, name: str) -> None:
    one, other = undertow.open(url, name, shops()), found(url, name)
    assert (len(one), one.keys().tolist(), "Basel" in one) == (0, [], False)
    first = one.decide_many([7, 1207], X[:2])
    with pytest.raises(InvalidInputError, match="the keys of this fleet are integers, got strings; keep to one type"):
        other.decide("Basel", X[0])
    other.learn_many(first.ids, [1.0, 2.0])
    assert one.expire([7]) == 1
    assert sorted(other) == [1207]
    assert len(one.decide_many([], np.empty((0, 2)))) == 0


# Trouble


def test_a_bad_row_changes_nothing(url: str, name: str) -> None:
    fleet = undertow.open(url, name, shops())
    fleet.learn_many(fleet.decide_many(SHOPS, X), np.ones(4))
    before, n = fleet.to_bytes(), sum(row.n for row in _overview(url, name))
    with pytest.raises(InvalidInputError, match="features: expected shape"):
        fleet.decide_many(SHOPS, X[:, :1])
    with pytest.raises(UnknownDecisionError):
        fleet.learn_many((SHOPS, [0, 0, 0, 5]), np.ones(4))
    with pytest.raises(InvalidInputError, match="has no key 'Zug'"):
        fleet["Zug"]
    assert fleet.to_bytes() == before
    assert sum(row.n for row in _overview(url, name)) == n


def _overview(url: str, name: str) -> list[Any]:
    store = store_at(url)
    return [row for n in range(3) for row in store.overview(bucket_name(name, n))]


def test_buckets_wait_for_nobody_elses_lock(name: str, postgres: services.Postgres) -> None:
    """In PostgreSQL; SQLite has one lock for its file."""
    fleet = undertow.open(postgres.url, name, shops(), timeout=0.2)
    numbers = bucket_of(SHOPS, 3)
    fleet.decide_many(SHOPS, X)
    with store_at(postgres.url).lock(bucket_name(name, int(numbers[0])), 5.0):
        with pytest.raises(StoreBusyError, match="the call did not happen"):
            fleet.decide_many(SHOPS, X)
        free = [shop for shop, number in zip(SHOPS, numbers, strict=True) if number != numbers[0]]
        fleet.decide(free[0], X[0])
    assert fleet.rounds([SHOPS[0], free[0]]).tolist() == [1, 2]


def test_who_waits_too_long_is_told(url: str, name: str) -> None:
    fleet = undertow.open(url, name, shops(), timeout=0.2)
    fleet.decide_many(SHOPS, X)
    held = [bucket_name(name, int(bucket_of(["Basel"], 3)[0]))]
    with store_at(url).lock(held[0], 5.0), pytest.raises(StoreBusyError, match="the call did not happen"):
        fleet.decide("Basel", X[0])
    assert fleet.decide("Basel", X[0]).round == 1


def test_a_server_that_was_away(postgres: services.Postgres, name: str) -> None:
    fleet = undertow.open(postgres.url, name, shops())
    fleet.decide_many(SHOPS, X, id="first")
    postgres.stop(kill=True)
    try:
        with pytest.raises(StoreUnavailableError, match="the call did not happen"):
            fleet.decide_many(SHOPS, X, id="second")
    finally:
        postgres.start()
    assert fleet.decide_many(SHOPS, X, id="second").rounds.tolist() == [1] * 4


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("keys", [SHOPS, ["Zug"]])
def test_a_commit_of_unknown_outcome_is_looked_up(tmp_path: Path, after: bool, keys: list[str]) -> None:
    store, plain = Broken(tmp_path / "a.db"), shops()
    fleet = undertow.open(store, "shops", shops())
    for each in (fleet, plain):
        each.decide_many([*SHOPS, "Zug"], np.ones((5, 2)))
    store.at, store.after = 1, after
    x = X[: len(keys)]
    if not after:
        with pytest.raises(StoreUnavailableError, match="the call did not happen; repeat the call with the same id"):
            fleet.decide_many(keys, x, id="second")
    assert set(fleet.decide_many(keys, x, id="second").rounds.tolist()) == {1}
    plain.decide_many(keys, x)
    assert same(fleet, plain)


def test_a_call_that_is_cut_short_did_not_happen(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is interrupted in its first bucket or in its last one."""
    fleet, plain = undertow.open(url, name, shops()), shops()
    for each in (fleet, plain):
        each.decide_many(SHOPS, X)
    learn = undertow.fleet.bucket.Bucket.learn
    for last in range(len(set(bucket_of(SHOPS, 3).tolist()))):
        left = [last]

        def cut_short(self: Any, *given: Any, left: list[int] = left) -> None:
            learn(self, *given)
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("undertow.fleet.bucket.Bucket.learn", cut_short)
            with pytest.raises(KeyboardInterrupt):
                fleet.learn_many((SHOPS, [0] * 4), np.ones(4))
        assert same(fleet, plain)
    fleet.learn_many((SHOPS, [0] * 4), np.ones(4))


def test_a_backup_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    where = f"sqlite:///{tmp_path}/a.db"
    fleet = undertow.open(where, "shops", shops())
    for _ in range(3):
        fleet.decide_many(SHOPS, X)
    with store_at(where)._connection() as connection:  # type: ignore[attr-defined]  # noqa: SLF001
        connection.execute("DELETE FROM events WHERE n > 1")
    with caplog.at_level(logging.WARNING, "undertow.store"):
        assert fleet.rounds(SHOPS).tolist() == [1] * 4
    assert "as by a backup" in caplog.text


def test_events_of_a_newer_version_and_of_damage_are_refused(tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path}/a.db"
    fleet, store = undertow.open(where, "shops", shops(buckets=1)), store_at(where)
    fleet.decide_many(SHOPS, X)
    bucket = bucket_name("shops", 0)
    (row,) = store.events(bucket, 0, 9)
    for body, message in (
        (row.body.replace(b'"version":1', b'"version":2'), "of a kind that this undertow does not know"),
        (row.body.replace(b'"arms":"AA', b'"arms":"//'), "does not follow from those before it"),
        (encode(KeysNamed(whole=True))[:-1] + b',"more":1}', "of a kind that this undertow does not know"),
    ):
        with store.lock(bucket, 5.0) as locked:
            locked.append([Row(2, b"newevent", 0.0, body)])
        with pytest.raises(StoreError, match=message):
            fleet.decide_many(SHOPS, X)
        with store._connection() as connection:  # type: ignore[attr-defined]  # noqa: SLF001
            connection.execute("DELETE FROM events WHERE n = 2")
    assert set(fleet.decide_many(SHOPS, X).rounds.tolist()) == {1}


def test_whoever_follows_plays_the_arms_of_the_events() -> None:
    """As after a processor that rounds otherwise: the states are those of keys that played these arms."""
    plain, other, log = shops(explore=0.4), shops(explore=0.4), list[Any]()
    plain.events(log.append)
    rng = np.random.default_rng(0)
    arms: dict[int, list[int]] = {}
    for _ in range(10):
        x = rng.standard_normal((6, 2))
        decisions = plain.decide_many(range(6), x)
        plain.learn_many(decisions, rng.standard_normal(6))
    for event in log:
        if isinstance(event, ManyDecided):
            turned = (np.frombuffer(event.arms, "<i4") + 1) % 3
            for key, arm in zip(np.frombuffer(event.letters, "<i8").tolist(), turned.tolist(), strict=True):
                arms.setdefault(key, []).append(arm)
            other.follow(msgspec.structs.replace(event, arms=turned.astype("<i4").tobytes()))
        else:
            other.follow(event)
    assert all(len(played) == 10 for played in arms.values())
    alone = LinUCB(arms=["low", "mid", "high"], feature_dim=2, rng=0)
    rng = np.random.default_rng(0)
    for t in range(10):
        x, rewards = rng.standard_normal((6, 2)), rng.standard_normal(6)
        alone.learn(alone.decide(x[4], available=[arms[4][t]]), rewards[4])
    np.testing.assert_array_equal(other[4].forecast(X[0]).forecast, alone.forecast(X[0]).forecast)


# Checkpoints, and what is done from outside


def test_a_checkpoint_saves_going_through_the_events(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undertow.store.replica._LEAST", 2000)
    fleet, store = undertow.open(url, name, shops()), store_at(url)
    for _ in range(40):
        fleet.learn_many(fleet.decide_many(SHOPS, X), np.ones(4))
    with store.lock(bucket_name(name, int(bucket_of(["Basel"], 3)[0])), 5.0) as locked:
        newest = locked.checkpoint()
    assert isinstance(newest, Checkpoint)
    assert newest.n > 40
    assert policy_of(newest).rounds(["Basel"])[0] > 20
    assert same(fleet, found(url, name))
    assert verify(store, name) > 150


def test_bandits_lists_a_fleet_in_one_line(command: Terminal, tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path}/a.db"
    assert undertow.open(where, "courier", undertow.UCB(arms=2)).round == 0
    fleet = undertow.open(where, "shops", shops())
    assert "shops: a fleet of 0 keys in 3 buckets: 0 waiting; 0 events\n" in command("bandits", where).out
    assert store_at(where).names() == ["courier", "shops"]
    decisions = fleet.decide_many(SHOPS, X)
    fleet.learn_many(decisions.take([0, 1]), [1.0, 2.0])
    listed = command("bandits", where)
    assert listed.status == 0, listed.err
    assert "shops: a fleet of 4 keys in 3 buckets: 2 waiting;" in listed.out
    assert len(listed.out.splitlines()) == 2
    assert "LinUCB(arms=['low', 'mid', 'high'], feature_dim=2)" in command("bandits", where, "shops").out
    assert '"fleet": "linucb", "buckets": 3, "keys": 4, "pending": 2' in command("bandits", where, "--json").out
    assert command("bandits", where, "shops", "--verify").status == 0
    to = f"sqlite:///{tmp_path}/copy.db"
    assert command("bandits", where, "shops", "--copy-to", to).status == 0
    assert "has a bandit 'shops' already" in command("bandits", where, "shops", "--copy-to", to).err
    copied = found(to, "shops")
    assert copied.to_bytes() == fleet.to_bytes()
    assert not copied.learn_many(decisions.ids[:2], [1.0, 2.0]).any()
    assert command("bandits", where, "shops", "--trim").status == 0
    assert found(where, "shops").to_bytes() == fleet.to_bytes()
    assert not fleet.learn_many(decisions.ids[:2], [1.0, 2.0]).any()
    fleet.learn_many(decisions.take([2, 3]), [1.0, 2.0])
    assert command("bandits", where, "--verify").status == 0
