"""Many bandits in one object: each does what it would do by itself."""

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import undertow
from helpers import make_policy
from rehearsed import POLICIES
from undertow import InvalidInputError, OutOfTurnError, UnknownDecisionError, paper_system
from undertow.fleet import Fleet, bucket_of
from undertow.fleet.keys import KeyTable, decoded, encoded
from undertow.live.files import archived, unarchived
from undertow.policies import LinUCB, LivePolicy, registry

REFUSED = {  # and what the error advises
    "autopilot": "FleetKalman",
    "learned-kalman": "FleetKalman",
    "structural-kalman": "FleetKalman",
    "kalman-greedy": "one KalmanGreedy object per key",
    "kalman-ucb": "one KalmanUCB object per key",
    "idea": "one IDEA object per key",
    "full-information-oracle": "simulate",
}


def linucb(**more: Any) -> LinUCB:
    return LinUCB(arms=["low", "mid", "high"], feature_dim=2, **more)


def state_of(policy: Any) -> bytes:
    state: bytes = policy.parts.player.state.tobytes()
    return state


@pytest.mark.parametrize("name", registry())
def test_which_policies_a_fleet_takes(name: str) -> None:
    policy = make_policy(name, paper_system(1), rng=0)
    if name in REFUSED:
        with pytest.raises(InvalidInputError, match=REFUSED[name]):
            Fleet(policy)
    else:
        assert Fleet(policy).decide("a").round == 0


def test_units_that_follow_the_data_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="scale features and rewards"):
        Fleet(linucb(standardize=True))


calls = st.lists(
    st.tuples(st.sampled_from(["decide", "learn", "again", "copy", "expire"]), st.integers(0, 5), st.floats(-2, 2)),
    max_size=40,
)


@pytest.mark.parametrize(
    "make",
    [
        lambda: linucb(max_pending=3),
        lambda: linucb(default_reward=0.5, max_wait=2, minimize=True),
        lambda: undertow.UCB(arms=3),
    ],
    ids=["forgets", "defaults", "ucb"],
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(calls=calls)
def test_any_order_of_calls_is_as_with_single_objects(make: Callable[[], LivePolicy], calls: Any) -> None:
    fleet, single = Fleet(make(), buckets=2), dict[int, Any]()
    waiting: list[tuple[Any, Any, int]] = []
    taken = bool(fleet.policy.parts.parameters().get("feature_dim"))
    for call, key, number in calls:
        if call == "decide":
            keys = [key, (key + 1) % 6, key]  # one of them twice
            features = np.outer([1.0, 2.0, 3.0], [number, 1.0]) if taken else None
            decisions = fleet.decide_many(keys, features)
            for row, each in enumerate(keys):
                alone = single.setdefault(each, make()).decide(None if features is None else features[row])
                assert alone.arm == decisions.arms[row]
                np.testing.assert_array_equal(alone.forecast, decisions.forecasts[row])
                np.testing.assert_array_equal(alone.width, decisions.widths[row])
                waiting.append((decisions.take([row]), alone, each))
        elif call in ("learn", "again") and waiting:
            some, alone, each = waiting[key % len(waiting)]
            if call == "learn":
                del waiting[key % len(waiting)]
            learned = fleet.learn_many(some, [number], missing="skip")
            try:
                single[each].learn(alone, number)
                assert learned.all() or call == "learn" or (some, alone, each) in waiting
            except UnknownDecisionError:
                assert not learned.any()
            if call == "again":
                waiting = [entry for entry in waiting if entry[1].id != alone.id]
        elif call == "copy":
            fleet = Fleet.from_bytes(fleet.to_bytes())
        elif call == "expire":
            assert fleet.expire([key]) == (single.pop(key, None) is not None)
            waiting = [entry for entry in waiting if entry[2] != key]
    assert sorted(fleet) == sorted(single)
    for key, alone in single.items():
        exported = fleet[key]
        assert state_of(exported) == state_of(alone)
        assert exported.pending == alone.pending
        assert exported.round == alone.round


def test_a_key_leaves_as_a_policy_and_comes_back() -> None:
    fleet, alone = Fleet(linucb()), linucb()
    for t in range(20):
        x = [t % 3, 1.0]
        fleet.learn(fleet.decide("shop 17", x), t % 4)
        alone.learn(alone.decide(x), t % 4)
    open_ = fleet.decide("shop 17", [1.0, 2.0])
    waits = alone.decide([1.0, 2.0])
    policy = fleet["shop 17"]
    policy.learn(open_.id, 2.0)
    alone.learn(waits, 2.0)
    late = policy.decide([3.0, 1.0])
    alone.decide([3.0, 1.0])
    fleet["shop 17"] = policy
    assert fleet.pending == 1
    with pytest.raises(UnknownDecisionError):
        fleet.learn(open_, 2.0)  # which the policy has learned
    fleet.learn_many((["shop 17"], [late.round]), [1.0])
    alone.learn(f"{waits.id.rpartition('-')[0]}-{late.round}", 1.0)
    assert state_of(fleet["shop 17"]) == state_of(alone)


def test_what_was_rehearsed_compiles_nothing_more() -> None:
    """In a process of its own, in which nothing else has met other kinds of arguments."""
    command = [sys.executable, str(Path(__file__).parents[1] / "rehearsed.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout.splitlines() == ["True set()"] * len(POLICIES), done.stdout + done.stderr


def test_a_policy_of_another_kind_is_not_taken_back() -> None:
    fleet = Fleet(linucb())
    with pytest.raises(InvalidInputError, match="expected a LinUCB"):
        fleet["a"] = undertow.UCB(arms=3)
    with pytest.raises(InvalidInputError, match=r"ridge: expected 1\.0"):
        fleet["a"] = linucb(ridge=2.0)
    assert "a" not in fleet
    with pytest.raises(InvalidInputError, match="has no key 'a'"):
        fleet["a"]


def test_known_costs_come_with_the_policy_and_pins_do_not() -> None:
    policy = undertow.UCB(arms=["bike", "van"])
    policy.set_costs({"bike": 2.0})
    fleet = Fleet(policy)
    for _ in range(4):
        fleet.learn(fleet.decide("a"), 1.0)
    assert fleet.decide("a").name == "van"
    assert fleet["a"].costs == {"bike": 2.0, "van": 0.0}
    policy.pin("bike")
    with pytest.raises(InvalidInputError, match="'bike' is pinned"):
        Fleet(policy)
    with pytest.raises(InvalidInputError, match="'bike' is pinned"):
        fleet["a"] = policy


def test_what_is_wrong_with_one_row_changes_nothing() -> None:
    fleet = Fleet(linucb())
    first = fleet.decide_many(["a", "b"], np.ones((2, 2)))
    before = fleet.to_bytes()
    with pytest.raises(InvalidInputError, match=r"features: expected shape \(2, 2\)"):
        fleet.decide_many(["a", "c"], np.ones((2, 3)))
    with pytest.raises(InvalidInputError, match="at least one arm for each key, got none in row 1"):
        fleet.decide_many(["a", "c"], np.ones((2, 2)), available=[[True] * 3, [False] * 3])
    with pytest.raises(UnknownDecisionError, match="round 5 of key 'b' is not pending"):
        fleet.learn_many((["a", "b"], [0, 5]), [1.0, 1.0])
    with pytest.raises(UnknownDecisionError, match="round 0 of key 'a'"):
        fleet.learn_many((["a", "a"], [0, 0]), [1.0, 1.0])  # twice
    with pytest.raises(InvalidInputError, match="rewards: expected finite numbers"):
        fleet.learn_many(first, [1.0, np.nan])
    with pytest.raises(InvalidInputError, match="keys of this fleet are strings, got integers"):
        fleet.decide_many([1, 2], np.ones((2, 2)))
    with pytest.raises(InvalidInputError, match="none missing, got NoneType, str"):
        fleet.decide_many(["a", None], np.ones((2, 2)))
    with pytest.raises(OutOfTurnError, match="built without contexts"):
        fleet.observe_many(["a"], [[1.0]])
    with pytest.raises(UnknownDecisionError, match="is not pending"):
        Fleet(linucb()).learn_many(first, [1.0, 1.0])  # another fleet
    assert fleet.to_bytes() == before


def test_contexts_come_in_turn_for_each_key() -> None:
    fleet = Fleet(LinUCB(arms=2, context_dim=1, context_first=True))
    fleet.observe_many(["a"], [[0.1]])
    with pytest.raises(OutOfTurnError, match="key 'b' has its context due first; call observe_many"):
        fleet.decide_many(["a", "b"])
    assert list(fleet) == ["a"]  # b was refused
    fleet.decide_many(["a"])
    fleet.decide_many(["a", "a", "b"], contexts=[[0.2], [np.nan], [0.4]])
    assert fleet.rounds(["a", "b", "c"]).tolist() == [3, 1, -1]
    with pytest.raises(OutOfTurnError, match="call decide_many"):
        fleet.observe_many(["b", "b"], [[0.1], [0.1]])
    assert fleet.decide("b", context=None).round == 1


def test_columns_as_other_libraries_hand_them_over() -> None:
    import polars as pl

    fleet, rows = Fleet(linucb()), np.ones((2, 2))
    rows.setflags(write=False)
    for keys in (
        np.array(["a", "b"], dtype=object),
        pl.Series(["a", "b"]),
        ("a", "b"),
        np.array(["a", "b"]),
    ):
        fleet.decide_many(keys, rows)
    fleet.decide_many(np.array(["x", "a", "x", "b"])[1::2], rows[::-1])
    fleet.decide_many(["a", "b"], rows.astype(object))
    assert fleet.rounds(["a", "b"]).tolist() == [6, 6]
    numbers = Fleet(undertow.UCB(arms=2))
    for integers in (np.array([7, -3], dtype=np.int32), np.array([7, -3], dtype=object), [7, -3]):
        numbers.decide_many(integers)
    assert sorted(numbers) == [-3, 7]
    assert numbers.decide(7).id.endswith("/3/7")
    numbers.learn(numbers.decide_many([7]).ids[0], 1.0)


def test_a_large_batch_is_the_same_on_threads() -> None:
    one, two = Fleet(linucb(rng=0)), Fleet(linucb(rng=0), threads=2)
    rng = np.random.default_rng(1)
    for _ in range(3):
        keys, x, rewards = rng.integers(0, 900, 3000), rng.standard_normal((3000, 2)), rng.standard_normal(3000)
        decisions = [fleet.decide_many(keys, x) for fleet in (one, two)]
        np.testing.assert_array_equal(decisions[0].forecasts, decisions[1].forecasts)
        for fleet, each in zip((one, two), decisions, strict=True):
            fleet.learn_many(each, rewards)
    (_, first), (_, second) = (unarchived(fleet.to_bytes()) for fleet in (one, two))
    assert first["states"].tobytes() == second["states"].tobytes()


def test_random_choices_are_drawn_by_bucket_and_continue_in_a_copy() -> None:
    fleet = Fleet(undertow.LinTS(arms=3, rng=4, explore=0.1), buckets=2)
    fleet.decide_many(np.arange(7))
    copies = [Fleet.from_bytes(fleet.to_bytes()), copy.deepcopy(fleet), pickle.loads(pickle.dumps(fleet)), fleet]
    answers = [each.decide_many(np.arange(9)).arms.tolist() for each in copies]
    assert answers == [answers[0]] * 4
    again = Fleet(undertow.LinTS(arms=3, rng=4, explore=0.1), buckets=2)
    again.decide_many(np.arange(7))
    assert again.decide_many(np.arange(9)).arms.tolist() == answers[0]
    assert np.isnan(again.decide_many([1]).propensities).all()
    assert 0.0 < again.decide(1).propensity < 1.0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_names_its_own_decisions() -> None:
    fleet = Fleet(linucb())
    before = fleet.decide("a", [1.0, 2.0])
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, fleet.decide("a", [1.0, 2.0]).id.encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 100).decode()
    ours = fleet.decide("a", [1.0, 2.0]).id
    assert theirs != ours
    assert ours.partition("/")[0] == before.id.partition("/")[0]
    with pytest.raises(UnknownDecisionError):
        fleet.learn(theirs, 1.0)


def test_a_file_that_was_tampered_with_is_refused(tmp_path: Path) -> None:
    fleet = Fleet(linucb(), buckets=2)
    fleet.decide_many(["a", "bé", "c"], np.ones((3, 2)))
    fleet.save(tmp_path / "fleet")
    assert sorted(Fleet.load(tmp_path / "fleet")) == ["a", "bé", "c"]
    header, arrays = unarchived(fleet.to_bytes())
    order = fleet._template.layout.place("common.order", **fleet._template.sizes).start  # noqa: SLF001
    spoilt: dict[str, Any] = {name: values.copy() for name, values in arrays.items()}
    spoilt["states"][1, order] = spoilt["states"][1, order + 1]
    bad = [
        ("state: common.order", header, spoilt),
        ("states: expected shape", header, arrays | {"states": arrays["states"][:, 1:]}),
        ("slots", header, arrays | {"slots": arrays["slots"] + 1}),
        ("arms", header, arrays | {"arms": arrays["arms"] + 3}),
        ("rounds", header, arrays | {"rounds": arrays["rounds"] + 1}),
        ("memories", header, arrays | {"memories": arrays["memories"][:, 1:]}),
        ("letters", header, arrays | {"letters": arrays["letters"][1:]}),
        ("buckets", header | {"buckets": 0}, arrays),
        ("lives", header, arrays | {"lives": arrays["lives"] - 2**60}),
        ("damaged", header | {"random": []}, arrays),
        ("version 3", header | {"version": 3}, arrays),
        ("unknown array", header, arrays | {"more": arrays["due"]}),
    ]
    for match, told, content in bad:
        with pytest.raises(InvalidInputError, match=match):
            Fleet.from_bytes(archived(told, content))
    with pytest.raises(InvalidInputError):
        Fleet.from_bytes(undertow.UCB(arms=2).to_bytes())
    pair = Fleet(linucb(), buckets=1)
    pair.decide_many(["a", "b"], np.ones((2, 2)))
    header, arrays = unarchived(pair.to_bytes())
    with pytest.raises(InvalidInputError, match="every key once"):
        Fleet.from_bytes(archived(header, arrays | {"letters": np.frombuffer(b"aa", np.uint8)}))


def test_what_a_file_may_ask_for_is_bounded_by_what_it_holds() -> None:
    header, arrays = unarchived(Fleet(linucb()).to_bytes())
    header["policy"]["parameters"]["feature_dim"] = 100_000
    with pytest.raises(InvalidInputError):
        Fleet.from_bytes(archived(header, arrays))


def naive_hash(key: str | int) -> int:
    content = key.to_bytes(8, "little", signed=True) if isinstance(key, int) else key.encode()
    x, mask = 0xCBF29CE484222325, 2**64 - 1
    for byte in content:
        x = (x ^ byte) * 0x100000001B3 & mask
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
    x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
    return x ^ x >> 31


@settings(max_examples=50, deadline=None)
@given(keys=st.lists(st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=9), max_size=30))
def test_keys_are_found_by_their_bytes(keys: list[str]) -> None:
    given_keys, table, rows = encoded(keys), KeyTable(), np.arange(len(keys))
    assert decoded(given_keys).tolist() == keys
    assert given_keys.hashes.tolist() == [naive_hash(key) for key in keys]
    slots = table.find(given_keys, rows)
    table.add(given_keys, rows, slots)
    assert table.count == len(set(keys))
    places = dict(zip(keys, slots.tolist(), strict=True))
    assert [places[key] for key in keys] == slots.tolist()
    assert table.find(given_keys, rows).tolist() == slots.tolist()


def test_the_bucket_of_a_key_never_changes() -> None:
    assert bucket_of([0, -1, 2**62], 1000).tolist() == [naive_hash(key) % 1000 for key in (0, -1, 2**62)]
    assert bucket_of(["shop 1", "Größe", "😀"], 1000).tolist() == [
        naive_hash(key) % 1000 for key in ("shop 1", "Größe", "😀")
    ]
    assert bucket_of(["shop 1", "shop 2", "shop 3"], 1000).tolist() == BUCKETS


BUCKETS = [268, 245, 92]  # as they were in the first version


def test_bytes_per_key() -> None:
    """States are packed: keys and bookkeeping take less than a tenth as much, without waiting decisions."""
    fleet = Fleet(LinUCB(arms=5, feature_dim=3))
    n = 20_000
    fleet.learn_many(fleet.decide_many(np.arange(n), np.ones((n, 3))), np.ones(n))
    bucket_bytes = fleet.nbytes - sum(each.waiting.nbytes + each.memories.nbytes for each in fleet._stack.buckets)  # noqa: SLF001
    assert bucket_bytes / n < 1.1 * len(fleet._template.fresh) * 8  # noqa: SLF001
