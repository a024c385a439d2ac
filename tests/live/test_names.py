"""Features and contexts by name."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pytest

import undertow
from helpers import Array
from undertow import InvalidInputError
from undertow.live.events import Decided, Event, decode, encode
from undertow.live.names import Named
from undertow.policies import Autopilot, LearnedKalman, LinUCB, StructuralKalman

KINDS: dict[str, Any] = {"weight": "number", "country": ["DE", "FR"], "tag": "hash:4"}
ROW: dict[str, Any] = {"weight": 3, "country": "FR", "tag": "red"}


def runs_in_python(row: dict[str, Any]) -> Array:
    """What the page says a row becomes."""
    import hashlib

    tag = int.from_bytes(hashlib.blake2b(row["tag"].encode()).digest()[:8], "little") % 4
    levels = [row["country"] == "DE", row["country"] == "FR", row["country"] not in ("DE", "FR")]
    return np.array([row["weight"], *levels, *(place == tag for place in range(4))], dtype=np.float64)


@pytest.mark.parametrize("tag", ["red", "green", "", "grün"])
@pytest.mark.parametrize("country", ["DE", "FR", "UK", "", 7])
def test_a_row_becomes_what_the_page_says(country: Any, tag: str) -> None:
    row = {"tag": tag, "weight": -1.5, "country": country}
    named = Named("feature", KINDS, lenient=False)
    np.testing.assert_array_equal(named.encode(row), runs_in_python(row))
    assert named.columns[:4] == ["weight", "country=DE", "country=FR", "country other"]
    assert named.width == len(runs_in_python(row)) == len(named.columns)


def test_rows_of_all_kinds_are_one_array() -> None:
    class Order(NamedTuple):
        weight: float
        country: str
        tag: str

    policy = LinUCB(arms=2, feature_names=KINDS)
    assert policy.feature_dim == 8
    expected = policy.decide(runs_in_python(ROW)).forecast
    frame = pd.DataFrame([ROW])
    rows = (ROW, frame.iloc[0], pl.DataFrame([ROW]), pl.DataFrame([ROW]).row(0, named=True), Order(**ROW))
    log: list[Event] = []
    policy.events(log.append)
    for row in rows:
        np.testing.assert_array_equal(policy.decide(row).forecast, expected)
    for event in log:
        assert isinstance(event, Decided)
        np.testing.assert_array_equal(event.features, runs_in_python(ROW))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"weight": 1}, r"features: expected weight, country, tag, got no 'country', 'tag'; with missing=\"mean\""),
        (ROW | {"wieght": 1}, "features: expected weight, country, tag, got the unknown 'wieght'"),
        ({"weight": 1, "country": "DE", "tags": "a"}, "got no 'tag' and the unknown 'tags'"),
        (ROW | {"weight": "3"}, "features: 'weight': expected a number, got '3'"),
        (ROW | {"weight": None}, "features: 'weight': expected a value, got none"),
        (ROW | {"weight": float("nan")}, "features: 'weight': expected a value, got none"),
        (ROW | {"weight": float("inf")}, "features: expected"),
        (ROW | {"weight": 10**400}, "features: expected numbers below"),
        (ROW | {"country": ["DE"]}, r"features: 'country': expected a level, got \['DE'\]"),
        (ROW | {"tag": 2.5}, "features: 'tag': expected a word, got 2.5"),
        ({}, "features: expected weight, country, tag, got no 'weight', 'country', 'tag'"),
    ],
)
def test_odd_rows_are_refused(row: dict[str, Any], message: str) -> None:
    policies = LinUCB(arms=2, feature_names=KINDS), undertow.UCB(arms=2, feature_names=KINDS)
    for policy in policies:
        if policy.parts.feature_columns or "inf" not in str(row):  # what is ignored is checked for its names
            with pytest.raises(InvalidInputError, match=message):
                policy.decide(row)
        assert policy.round == 0


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("weight", "feature_names: expected different names"),
        (["a", "a"], "feature_names: expected different names"),
        ([], "feature_names: expected different names"),
        ({"a": "numbr"}, 'feature_names: \'a\': expected "number", a list of levels, or "hash:16"'),
        ({"a": "hash:0"}, "feature_names: 'a': expected 1 to 100000 columns, got 0"),
        ({"a": ["x", "x"]}, "feature_names: 'a': expected different levels"),
        ({"a": []}, "feature_names: 'a': expected"),
        ({3: "number"}, "feature_names: expected different names"),
    ],
)
def test_odd_declarations_are_refused(names: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        LinUCB(arms=2, feature_names=names)


def test_sizes_follow_from_names() -> None:
    with pytest.raises(InvalidInputError, match="feature_dim: expected 8, as feature_names says, got 3"):
        LinUCB(arms=2, feature_dim=3, feature_names=KINDS)
    with pytest.raises(InvalidInputError, match="pass feature_names at construction"):
        LinUCB(arms=2, feature_dim=3).decide(ROW)
    with pytest.raises(InvalidInputError, match="pass context_names at construction"):
        LinUCB(arms=2, context_dim=1, context_first=True).decide(context={"rain": 1.0})


def test_what_is_missing_is_the_mean_so_far() -> None:
    """And one more column says so; the means are saved, and follow from the events."""
    policy, log = LinUCB(arms=2, feature_names=KINDS, missing="mean"), list[Event]()
    before = policy.to_bytes()
    policy.events(log.append)
    assert policy.parts.feature_columns == (
        "weight", "weight missing", "country=DE", "country=FR", "country other", "country missing",
        "tag#0", "tag#1", "tag#2", "tag#3", "tag missing",
    )  # fmt: skip
    policy.decide({"weight": 1.0, "country": "DE", "tag": "red"})
    policy.decide({"weight": 5.0, "country": "FR", "tag": None})
    policy.decide({"country": "FR", "tag": "red"})
    loaded = undertow.from_bytes(policy.to_bytes())
    loaded.events(log.append)
    loaded.decide({"tag": "red", "weight": float("nan")})
    last = log[-1]
    assert isinstance(last, Decided)
    assert last.features is not None
    np.testing.assert_allclose(last.features[:6], [3.0, 1.0, 1 / 3, 2 / 3, 0.0, 1.0])
    again = undertow.fold(before, map(decode, map(encode, log)))
    np.testing.assert_array_equal(again.parts.columns.seen, loaded.parts.columns.seen)


def test_a_context_may_have_gaps() -> None:
    one = LinUCB(arms=2, context_names=["rain", "wind"], context_first=True)
    two = LinUCB(arms=2, context_dim=2, context_first=True)
    for wind in (1.0, None, 2.0, float("nan")):
        first, second = one.decide(context={"wind": wind, "rain": 3.0}), two.decide(context=[3.0, wind or np.nan])
        np.testing.assert_array_equal(first.forecast, second.forecast)
        one.learn(first, 1.0)
        two.learn(second, 1.0)
    with pytest.raises(InvalidInputError, match="context: expected rain, wind, got no 'wind'"):
        one.decide(context={"rain": 1.0})


def test_arms_have_rows_under_their_names() -> None:
    one, two = (StructuralKalman(arms=["bus", "tram"], feature_names=["price"], rng=0) for _ in range(2))
    for price in range(10):
        first = one.decide({"tram": {"price": price}, "bus": {"price": 2.0}})
        second = two.decide(np.array([[2.0], [price]]))
        assert first.arm == second.arm
        for policy, decision in ((one, first), (two, second)):
            policy.learn(decision, float(price))
    with pytest.raises(InvalidInputError, match="features: expected a row for every arm, got none for bus"):
        one.decide({"tram": {"price": 1.0}})
    one.decide({"tram": {"price": 1.0}}, available=["tram"])
    with pytest.raises(InvalidInputError, match="features: expected rows for bus, tram, got one for 'car'"):
        one.decide({"tram": {"price": 1.0}, "car": {"price": 1.0}})


def test_the_same_call_is_known_by_its_names() -> None:
    policy = LinUCB(arms=2, feature_names=KINDS)
    first = policy.decide(ROW, id="order 1")
    assert policy.decide(dict(reversed(ROW.items())), id="order 1") is first
    with pytest.raises(InvalidInputError, match="id: 'order 1' was used before"):
        policy.decide(ROW | {"weight": 4}, id="order 1")


def test_policies_that_take_none_ignore_names() -> None:
    policy = undertow.UCB(arms=2, context_names=["rain"])
    policy.decide(ROW, context={"rain": 1.0})
    policy.observe({"rain": 1.0})
    policy.observe(None)
    assert policy.round == 1
    with pytest.raises(InvalidInputError, match="context: expected rain, got no 'rain'"):
        policy.observe({"snow": 1.0})
    with pytest.raises(InvalidInputError, match="features: expected None"):
        policy.decide([1.0])  # an array is mostly a mistake


PAST: list[dict[str, Any]] = [
    {"weight": float(t % 7), "country": ["DE", "FR", "UK"][t % 3], "tag": ["red", "green"][t % 2]} for t in range(30)
]
RAIN: list[dict[str, Any]] = [{"rain": 0.5 * (t % 4), "wind": float(t % 5)} for t in range(30)]


@pytest.mark.parametrize("form", [list, pd.DataFrame, pl.DataFrame, tuple])
@pytest.mark.parametrize("kind", [StructuralKalman, Autopilot])
def test_a_warm_start_takes_rows_with_names(kind: Any, form: Any) -> None:
    names: dict[str, Any] = {"feature_names": KINDS, "context_names": ["rain", "wind"], "refit": "inline", "rng": 0}
    one, two = (kind(arms=2, **names) for _ in range(2))
    arms, rewards = np.arange(30) % 3 - 1, np.sin(np.arange(30.0))
    one.warm_start(arms, rewards, features=form(PAST), contexts=form(RAIN))
    contexts = [list(row.values()) for row in RAIN]
    two.warm_start(arms, rewards, features=[runs_in_python(row) for row in PAST], contexts=contexts)
    assert one.to_bytes() == two.to_bytes()
    np.testing.assert_array_equal(one.decide(ROW).forecast, two.decide(runs_in_python(ROW)).forecast)


def test_gaps_of_a_warm_start_are_filled_with_the_means_so_far() -> None:
    names: dict[str, Any] = {"feature_names": ["a"], "context_names": ["c"], "missing": "mean", "rng": 0}
    one, two = (StructuralKalman(arms=2, refit="inline", **names) for _ in range(2))
    rows: list[dict[str, Any]] = [{"a": 2.0}, {"a": 9.0}, {"a": None}, {}, {"a": 5.0}]
    arms, rewards = [0, -1, 1, 0, 1], [1.0, np.nan, 2.0, 0.0, 1.0]
    log: list[Event] = []
    before = one.to_bytes()
    one.events(log.append)
    one.warm_start(arms, rewards, features=rows, contexts=[{"c": 1.0}, None, {}, {"c": None}, {"c": 2.0}])
    array = [[2.0, 0.0], [9.0, 0.0], [2.0, 1.0], [2.0, 1.0], [5.0, 0.0]]  # of the second row, no arm was played
    two.warm_start(arms, rewards, features=array, contexts=[[1.0], [np.nan], [np.nan], [np.nan], [2.0]])
    assert one.to_bytes() == two.to_bytes()
    assert undertow.fold(before, map(decode, map(encode, log))).to_bytes() == one.to_bytes()
    one.decide({})
    (made,) = (event for event in log if isinstance(event, Decided))
    assert made.features is not None
    assert made.features.tolist() == [3.5, 1.0]


def test_a_warm_start_ignores_what_the_policy_does_not_take_and_refuses_the_rest() -> None:
    blind = LearnedKalman(arms=2, rng=0, feature_names=["a"], context_names=["c"])
    before = blind.to_bytes()
    for more, message in (
        ({"contexts": [{"c": 1.0}, {"d": 1.0}]}, r"context: expected c, got .* unknown 'd'.*\(in row 1\)"),
        ({"contexts": [{"c": 1.0}]}, "contexts: expected 2 rows"),
        ({"features": [{"a": 1.0}, {}]}, r"features: expected a, got no 'a'.*\(in row 1\)"),
        ({"features": [{"a": 1.0}, None]}, r"features: expected a row with names, got none \(in row 1\)"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            blind.warm_start([0, 1], [1.0, 2.0], **more)
        assert blind.to_bytes() == before
    blind.warm_start([0, 1], [1.0, 2.0], features=[{"a": 1.0}, {"a": 2.0}], contexts=[{"c": 1.0}, {"c": 1.0}])
    assert blind.round == 2
    with pytest.raises(InvalidInputError, match="got names; pass context_names at construction"):
        LearnedKalman(arms=2, context_dim=1, rng=0).warm_start([0], [1.0], contexts=[{"c": 1.0}])
