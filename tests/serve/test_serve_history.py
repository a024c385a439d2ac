"""The past of a bandit as a page draws it: thinned with its extremes, and earned against baselines."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import polars as pl
import pytest

import undertow
from served import in_thread
from undertow.serve import application

ROUNDS = 600


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A bandit of 600 rounds, a tenth of which have no reward, and one that draws nothing."""
    store = f"sqlite:///{tmp_path_factory.mktemp('history')}/a.db"
    rng = np.random.default_rng(0)
    policy = undertow.open(store, "shop", undertow.UCB(arms=["a", "b", "=c"], explore=0.3, rng=0))
    plain = undertow.open(store, "plain", undertow.UCB(arms=["a", "b"], rng=0))
    with policy.transaction():
        for t in range(ROUNDS):
            decision = policy.decide(id=str(t))
            if t % 10:
                value = (0.0, 1.0, 2.0)[decision.arm] + float(rng.normal())
                policy.learn(decision, 50.0 if t == 333 else -50.0 if t == 334 else value)
    with plain.transaction():
        for _ in range(ROUNDS):
            plain.learn(plain.decide(), 1.0)
    policy.pin("b")
    policy.retire_arm("a")
    with in_thread(application(store)) as url, httpx.Client(base_url=url) as client:
        yield client


def test_all_of_a_short_past_is_there(http: httpx.Client) -> None:
    found = http.get("/v1/bandits/shop/history").json()
    assert found["round"] == list(range(ROUNDS))
    assert (found["decisions"], sum(found["plays"])) == (ROUNDS, ROUNDS)
    assert [i for i, value in enumerate(found["reward"]) if value is None] == list(range(0, ROUNDS, 10))
    one = http.get("/v1/bandits/shop/decisions/57").json()
    assert found["arms"][found["arm"][57]] == one["arm"]
    forecasts = {name: found["forecast"][arm][57] for arm, name in enumerate(found["arms"])}
    assert forecasts == pytest.approx(one["forecast"], rel=1e-4)
    assert [mark["text"] for mark in found["marks"]] == ["b pinned", "arm a retired"]
    mean = np.mean([r for r, arm in zip(found["reward"], found["arm"], strict=True) if r is not None and arm == 2])
    assert found["means"][2] == pytest.approx(mean, rel=1e-3)


def test_a_long_past_is_thinned_and_keeps_its_extremes(http: httpx.Client) -> None:
    found = http.get("/v1/bandits/shop/history?points=60").json()
    assert 40 <= len(found["round"]) <= 62
    assert found["round"] == sorted(set(found["round"]))
    assert {333, 334, 0, ROUNDS - 1} <= set(found["round"])
    assert found["decisions"] == ROUNDS
    assert all(len(column) == len(found["round"]) for column in (*found["forecast"], *found["band"], found["id"]))
    late = http.get("/v1/bandits/shop/history?events=100").json()
    assert 40 <= len(late["round"]) <= 60
    assert late["round"][-1] == ROUNDS - 1


def test_what_was_earned(http: httpx.Client) -> None:
    found = http.get("/v1/bandits/shop/history").json()
    earned = found["earned"]
    known = [i for i, value in enumerate(found["reward"]) if value is not None]
    rewards, chances = np.array(found["reward"], dtype=float)[known], np.array(found["propensity"])[known]
    arms = np.array(found["arm"])[known]
    assert earned["bandit"][-1] == pytest.approx(rewards.mean(), rel=1e-3)
    assert earned["uniform"][-1] == pytest.approx((rewards / chances).sum() / (1 / chances).sum(), rel=1e-3)
    assert earned["best"] == "=c"
    assert earned["fixed"][-1] == pytest.approx(rewards[arms == 2] @ (w := 1 / chances[arms == 2]) / w.sum(), rel=1e-3)
    assert abs(earned["fixed"][-1] - 2.0) < 4 * earned["error"]
    assert earned["missing"] is None
    plain = http.get("/v1/bandits/plain/history").json()["earned"]
    assert "explore=0.05" in plain["missing"]
    assert (plain["best"], plain["uniform"][-1], plain["bandit"][-1]) == (None, None, 1.0)


def test_figures_of_bandits(http: httpx.Client) -> None:
    quick = http.get("/v1/bandits").json()["bandits"]
    assert all(row["figures"] is None for row in quick)
    shop = next(row for row in http.get("/v1/bandits?figures=true").json()["bandits"] if row["name"] == "shop")
    figures = shop["figures"]
    assert (figures["ok"], figures["round"], figures["pending"], figures["pinned"]) == (True, ROUNDS, 60, "b")
    assert http.get("/v1/bandits/shop").json()["figures"]["round"] == ROUNDS


def test_the_log_is_downloaded(http: httpx.Client, tmp_path: Path) -> None:
    for kind, read in (("csv", pl.read_csv), ("parquet", pl.read_parquet)):
        answer = http.get(f"/v1/bandits/shop/log.{kind}")
        assert answer.headers["content-disposition"] == f"attachment; filename*=UTF-8''shop.{kind}"
        (tmp_path / f"log.{kind}").write_bytes(answer.content)
        table = read(tmp_path / f"log.{kind}")
        assert table.height == ROUNDS * 9 // 10
        assert set(table["arm"]) == {"a", "b", "'=c" if kind == "csv" else "=c"}
    assert http.get("/v1/bandits/shop/log.exe").status_code == 404
    assert http.get("/v1/bandits/nobody/log.csv").status_code == 404


def test_the_role_of_whoever_asks(http: httpx.Client) -> None:
    assert http.get("/v1/access").json() == {"role": "admin"}
