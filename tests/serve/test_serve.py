"""The service over HTTP: every call, every refusal, from a real server."""

import contextlib
import json
import logging
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import undertow
from served import as_command, in_thread
from undertow.errors import InvalidInputError
from undertow.serve import application
from undertow.serve.protocol import Deadline
from undertow.serve.run import Plan, listen
from undertow.serve.tokens import Tokens

COURIER = {"policy": "linucb", "arms": ["bike", "van"], "parameters": {"feature_dim": 1}}
SECRETS = {role: f"{role}-" + "5f" * 12 for role in ("read", "play", "admin")}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('serve')}/shop.db"


@pytest.fixture(scope="module")
def http(store: str) -> Iterator[httpx.Client]:
    """A client of a service that anybody may use."""
    with in_thread(application(store)) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


@pytest.fixture
def bandit(http: httpx.Client, request: pytest.FixtureRequest) -> str:
    """The path of a new bandit."""
    path = f"/v1/bandits/{request.node.name[:90].replace('/', ' ')}"
    assert http.put(path, json=COURIER).status_code == 201
    return path


def problem(response: httpx.Response, status: int, kind: str, field: str | None = None) -> str:
    """Require a problem of a kind, and return what it says."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found = response.json()
    assert (found["type"], found["status"], found.get("field")) == (f"urn:undertow:{kind}", status, field), found
    assert "Traceback" not in response.text
    return str(found["detail"])


# Playing


def test_a_decision_and_its_reward(http: httpx.Client, bandit: str, store: str) -> None:
    body = {"id": "order/1207", "features": [3.2]}
    first = http.post(f"{bandit}/decisions", json=body)
    again = http.post(f"{bandit}/decisions", json=body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    decision = first.json()
    assert decision["arm"] in decision["forecast"].keys() == {"bike", "van"}
    assert (decision["round"], decision["propensity"], decision["why"]) == (0, 1.0, None)
    problem(http.post(f"{bandit}/decisions", json=body | {"features": [3]}), 422, "invalid", "id")
    reward = f"{bandit}/decisions/order%2F1207/reward"
    for _ in range(2):
        answer = http.put(reward, json={"reward": 0.7})
        assert (answer.status_code, answer.json()) == (200, {"id": "order/1207", "reward": 0.7, "pending": 0})
    problem(http.put(reward, json={"reward": 0.8}), 409, "repeated", "decision")
    problem(http.put(f"{bandit}/decisions/other/reward", json={"reward": 1}), 404, "unknown", "decision")
    assert http.get(f"{bandit}/decisions/order%2F1207").json() == decision | {"reward": 0.7}
    policy = undertow.open(store, bandit.rpartition("/")[2])
    assert (policy.round, policy.pending) == (1, 0)


def test_a_decision_without_an_id(http: httpx.Client, bandit: str) -> None:
    made = [http.post(f"{bandit}/decisions", json={"features": [t], "available": ["van"]}).json() for t in range(3)]
    assert [decision["arm"] for decision in made] == ["van"] * 3
    assert len({decision["id"] for decision in made}) == 3
    looked_up = http.get(f"{bandit}/decisions/{made[1]['id']}").json()
    assert looked_up == made[1] | {"reward": None}


def test_a_late_reward(http: httpx.Client, bandit: str) -> None:
    path = bandit + " late"
    parameters = {"default_reward": 0.0, "max_wait": 2}
    http.put(path, json={"policy": "ucb", "arms": ["a", "b"], "parameters": parameters})
    for t in range(5):
        http.post(f"{path}/decisions", json={"id": f"{t}"})
    problem(http.put(f"{path}/decisions/0/reward", json={"reward": 1}), 410, "defaulted", "decision")


@pytest.mark.parametrize("first", [False, True])
def test_contexts_of_rounds(http: httpx.Client, bandit: str, first: bool) -> None:
    path, parameters = f"{bandit} c", {"context_dim": 2, "context_first": first}
    assert http.put(path, json={"policy": "linucb", "arms": ["a", "b"], "parameters": parameters}).status_code == 201

    def give(t: int, context: Any) -> httpx.Response:
        return http.put(f"{path}/rounds/{t}/context", json={"context": context})

    for t in range(3):
        if not first:
            problem(give(t, None), 409, "out-of-turn")
            assert http.post(f"{path}/decisions", json={"id": str(t)}).json()["round"] == t
        problem(give(t + 1, None), 409, "out-of-turn")
        assert give(t, [1.0, None]).json() == {"round": t + (not first), "contexts_seen": t + 1}
        assert give(t, [2.0, 2.0]).json() == {"round": t + (not first), "contexts_seen": t + 1}  # came before
        assert give(0, None).status_code == 200
        if first:
            assert http.post(f"{path}/decisions", json={"id": str(t)}).json()["round"] == t
    problem(
        give(3, [1.0]), 409 if not first else 422, "out-of-turn" if not first else "invalid", "context" * first or None
    )
    events = http.get(f"{path}/events").json()["events"]
    assert [row["event"]["context"] for row in events if row["event"]["event"] == "observed"] == [[1.0, None]] * 3


def test_a_context_with_the_decision_or_the_reward(http: httpx.Client, bandit: str) -> None:
    early, late = f"{bandit} early", f"{bandit} late"
    for path, first in ((early, True), (late, False)):
        parameters = {"context_dim": 1, "context_first": first}
        http.put(path, json={"policy": "linucb", "arms": ["a", "b"], "parameters": parameters})
    assert http.post(f"{early}/decisions", json={"id": "1", "context": [0.5]}).status_code == 201
    assert http.post(f"{early}/decisions", json={"id": "2", "context": None}).status_code == 201
    problem(http.post(f"{early}/decisions", json={"id": "3"}), 409, "out-of-turn")
    assert http.post(f"{late}/decisions", json={"id": "1"}).status_code == 201
    problem(http.post(f"{late}/decisions", json={"id": "2"}), 409, "out-of-turn")
    for _ in range(2):
        assert http.put(f"{late}/decisions/1/reward", json={"reward": 1, "context": [0.5]}).status_code == 200
    assert http.post(f"{late}/decisions", json={"id": "2"}).status_code == 201
    problem(http.put(f"{late}/decisions/3/reward", json={"reward": 1, "context": [0.5]}), 404, "unknown", "decision")


def test_rounds_are_skipped_once(http: httpx.Client, bandit: str) -> None:
    for _ in range(2):
        assert http.post(f"{bandit}/skips", json={"round": 0, "rounds": 3}).json()["round"] == 3
    problem(http.post(f"{bandit}/skips", json={"round": 4}), 409, "out-of-turn")
    problem(http.post(f"{bandit}/skips", json={"round": 1, "rounds": 5}), 409, "out-of-turn")
    assert http.post(f"{bandit}/decisions", json={"features": [1], "elapsed": 4}).json()["round"] == 6


def test_the_service_decides_as_the_policy_does(http: httpx.Client, bandit: str) -> None:
    """Over HTTP, numbers come and go to the bit."""
    rng = np.random.default_rng(1)
    twin = undertow.make("linucb", arms=["bike", "van"], feature_dim=1)
    for t in range(50):
        x, reward = float(rng.normal()), float(rng.normal())
        ours = twin.decide([x], id=str(t))
        theirs = http.post(f"{bandit}/decisions", json={"id": str(t), "features": [x]}).json()
        assert theirs["arm"] == ours.name
        assert list(theirs["forecast"].values()) == ours.forecast.tolist()
        twin.learn(ours, reward)
        http.put(f"{bandit}/decisions/{t}/reward", json={"reward": reward})
    assert list(http.get(bandit).json()["arms"]) == [{"name": name, "retired": False} for name in twin.names]


# Creating and changing


def test_a_bandit_is_created_once(http: httpx.Client, bandit: str) -> None:
    assert http.put(bandit, json=COURIER).status_code == 200
    problem(http.put(bandit, json=COURIER | {"arms": ["bike"]}), 409, "conflict", "arms")
    problem(http.put(bandit, json=COURIER | {"policy": "ucb", "parameters": {}}), 409, "conflict", "policy")
    problem(http.put(bandit, json=COURIER | {"parameters": {"feature_dim": 2}}), 409, "conflict", "feature_dim")
    http.put(f"{bandit}/arms/tram")
    assert http.put(bandit, json=COURIER).status_code == 200
    assert http.put(bandit, json=COURIER | {"arms": ["bike", "van", "tram"]}).status_code == 200


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"policy": "linucbb"}, "name"),
        ({"policy": "kalman-greedy"}, "policy"),
        ({"policy": "context-oracle"}, "policy"),
        ({"parameters": {"feature_dims": 1}}, "feature_dims"),
        ({"parameters": {"feature_dim": 10**6}}, "feature_dim"),
        ({"parameters": {"feature_dim": "1"}}, "feature_dim"),
        ({"parameters": {"arms": ["a"]}}, "parameters"),
        ({"arms": []}, "arms"),
        ({"arms": ["a", "a"]}, "arms"),
        ({"arms": ["a\n", "b"]}, "arms"),
        ({"arms": [f"arm {n}" for n in range(1001)]}, "arms"),
        ({"arms": ["a", 1]}, "arms[1]"),
        ({"colour": "blue"}, "colour"),
    ],
)
def test_odd_bandits_are_refused(http: httpx.Client, change: dict[str, Any], field: str) -> None:
    problem(http.put("/v1/bandits/odd", json=COURIER | change), 422, "invalid", field)
    problem(http.get("/v1/bandits/odd"), 404, "not-found", "name")


def test_arms_come_and_go(http: httpx.Client, bandit: str) -> None:
    assert [http.put(f"{bandit}/arms/cargo%2Fbike").status_code for _ in range(2)] == [201, 200]
    assert [http.delete(f"{bandit}/arms/bike").status_code for _ in range(2)] == [200, 200]
    assert http.delete(f"{bandit}/arms/van").json()["arms"] == [
        {"name": "bike", "retired": True},
        {"name": "van", "retired": True},
        {"name": "cargo/bike", "retired": False},
    ]
    problem(http.delete(f"{bandit}/arms/cargo%2Fbike"), 409, "conflict", "name")
    problem(http.delete(f"{bandit}/arms/tram"), 404, "not-found", "arm")
    problem(http.put(f"{bandit}/arms/a%00b"), 422, "invalid", "arms")
    assert http.put(f"{bandit}/arms/bike").status_code == 201
    assert http.post(f"{bandit}/decisions", json={"features": [1]}).json()["arm"] in ("bike", "cargo/bike")


def test_an_arm_is_pinned(http: httpx.Client, bandit: str) -> None:
    for _ in range(2):
        assert http.put(f"{bandit}/pin/van").json() == {"pinned": "van"}
    assert {http.post(f"{bandit}/decisions", json={"features": [t]}).json()["arm"] for t in range(5)} == {"van"}
    assert http.get(bandit).json()["pinned"] == "van"
    problem(http.delete(f"{bandit}/pin/bike"), 409, "conflict", "arm")
    problem(http.delete(f"{bandit}/arms/van"), 409, "conflict", "name")
    problem(http.put(f"{bandit}/pin/tram"), 404, "not-found", "arm")
    problem(http.put(f"{bandit}/pin/van", content="learn=1"), 415, "media-type")
    assert http.put(f"{bandit}/pin/van", json={"learn": False}).status_code == 200
    events = http.get(f"{bandit}/events").json()["events"]
    assert [row["event"]["learn"] for row in events if row["event"]["event"] == "pinned"] == [True, False]
    for _ in range(2):
        assert http.delete(f"{bandit}/pin/van").json() == {"pinned": None}
    http.delete(f"{bandit}/arms/van")
    problem(http.put(f"{bandit}/pin/van"), 409, "conflict", "arm")


def test_costs_are_set(http: httpx.Client, bandit: str) -> None:
    for _ in range(2):
        assert http.put(f"{bandit}/costs", json={"costs": {"bike": 100}}).json() == {"costs": {"bike": 100, "van": 0}}
    decision = http.post(f"{bandit}/decisions", json={"features": [1]}).json()
    assert (decision["arm"], decision["value"]["bike"] < -90) == ("van", True)
    assert http.get(bandit).json()["costs"]["bike"] == 100
    assert http.get(bandit).json()["events"] == 2
    problem(http.put(f"{bandit}/costs", json={"costs": {"tram": 1}}), 422, "invalid", "costs")
    problem(http.put(f"{bandit}/costs", json={"costs": {"bike": "1"}}), 422, "invalid", "costs[...]")


def test_names_of_features_and_contexts(http: httpx.Client, bandit: str) -> None:
    path = f"{bandit} named"
    parameters = {
        "feature_names": {"weight": "number", "country": ["DE", "FR"]},
        "context_names": ["rain"],
        "context_first": True,
    }
    assert http.put(path, json={"policy": "linucb", "arms": ["a", "b"], "parameters": parameters}).status_code == 201
    assert http.put(path, json={"policy": "linucb", "arms": ["a", "b"], "parameters": parameters}).status_code == 200
    body = {"id": "1", "features": {"weight": 3, "country": "DE"}, "context": {"rain": None}}
    assert [http.post(f"{path}/decisions", json=body).status_code for _ in range(2)] == [201, 200]
    assert http.put(f"{path}/rounds/1/context", json={"context": {"rain": 0.3}}).status_code == 200
    each = {"a": {"weight": 1, "country": "FR"}, "b": {"weight": 2, "country": "DE"}}
    assert http.post(f"{path}/decisions", json={"features": each}).status_code == 201
    odd = http.post(f"{path}/decisions", json={"features": {"weight": 3}, "context": None})
    assert "country" in problem(odd, 422, "invalid", "features")


def test_clocks_and_subjects(http: httpx.Client, bandit: str) -> None:
    path = f"{bandit} clock"
    assert http.put(path, json={"policy": "ucb", "arms": ["a", "b"], "parameters": {"tick": "1 h"}}).is_success
    for hour, step in ((1, 0), (1, 0), (4, 3)):
        answer = http.post(f"{path}/decisions", json={"at": f"2026-11-19T0{hour}:30:00+01:00"})
        assert (answer.status_code, answer.json()["time_step"]) == (201, step)
    problem(http.post(f"{path}/decisions", json={"at": "2026-11-19T05:30:00"}), 422, "invalid", "at")
    late = {"reward": 1, "at": "2026-11-19T05:30:00+01:00"}
    assert http.put(f"{path}/decisions/{answer.json()['id']}/reward", json=late).is_success
    body = {"subject": "user 7", "sticky": "7 days", "at": "2026-11-19T06:30:00+01:00"}
    one, again = (http.post(f"{path}/decisions", json=body) for _ in range(2))
    assert (one.status_code, again.status_code) == (201, 200)
    assert one.json() == again.json()
    assert "user 7" not in http.get(f"{path}/events").text


# Looking


def test_the_state_of_a_bandit(http: httpx.Client, bandit: str) -> None:
    http.post(f"{bandit}/decisions", json={"features": [1]})
    found = http.get(bandit).json()
    assert (found["policy"], found["parameters"]["feature_dim"]) == ("linucb", 1)
    assert (found["round"], found["pending"], found["events"], found["forecast"]) == (1, 1, 1, None)
    assert found["health"]["ok"] is True
    path = f"{bandit} learner"
    http.put(path, json={"policy": "structural-kalman", "arms": ["a", "b"], "parameters": {"refit": "inline"}})
    for t in range(30):
        id = http.post(f"{path}/decisions", json={}).json()["id"]
        http.put(f"{path}/decisions/{id}/reward", json={"reward": t % 3})
    found = http.get(path).json()
    assert [model["name"] for model in found["models"]] == ["structural levels"]
    assert found["forecast"].keys() == {"a", "b"}
    why = http.get(f"{path}/decisions/{id}").json()["why"]
    assert (why["model"], why["lead"], why["arm_error"].keys()) == ("structural levels", None, {"a", "b"})


def test_pages_of_bandits_and_of_events(http: httpx.Client, bandit: str) -> None:
    names = [f"{bandit.rpartition('/')[2]} {n}" for n in range(5)]
    for name in names:
        http.put(f"/v1/bandits/{name}", json=COURIER)
    found: list[Any] = []
    after: Any = bandit.rpartition("/")[2]
    while after is not None:
        page = http.get("/v1/bandits", params={"after": after, "most": 2}).json()
        found += [each["name"] for each in page["bandits"]]
        after = page["next"]
    assert found[:5] == names
    for t in range(5):
        http.post(f"{bandit}/decisions", json={"id": str(t), "features": [t]})
    found, after = [], 0
    while (page := http.get(f"{bandit}/events", params={"after": after, "most": 2}).json())["events"]:
        found += [(row["n"], row["event"]["id"]) for row in page["events"]]
        after = page["next"]
    assert found == [(t + 1, str(t)) for t in range(5)]
    problem(http.get("/v1/bandits/nobody/events"), 404, "not-found", "name")


@pytest.mark.parametrize("query", ["most=0", "most=1001", "most=x", "after=-1", "before=3", "after=1.5"])
def test_odd_pages_are_refused(http: httpx.Client, bandit: str, query: str) -> None:
    problem(http.get(f"{bandit}/events?{query}"), 422, "invalid", query.partition("=")[0])


def test_the_openapi_document_is_made_of_the_calls(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    assert document["paths"].keys() >= {"/v1/bandits/{name}/decisions", "/v1/bandits/{name}/decisions/{id}/reward"}
    reward = document["components"]["schemas"]["Reward"]
    assert reward["required"] == ["reward"]
    assert reward["additionalProperties"] is False
    assert "reward" in reward["properties"]["reward"]["description"].lower()
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert references <= document["components"]["schemas"].keys()


def test_figures_for_prometheus(http: httpx.Client, bandit: str) -> None:
    name = bandit.rpartition("/")[2] + ' "quoted" \\'
    http.put(f"/v1/bandits/{name}", json=COURIER)
    http.post(f"/v1/bandits/{name}/decisions", json={"features": [1]})
    text = http.get("/metrics").text
    label = name.replace("\\", r"\\").replace('"', r"\"")
    assert f'undertow_events_total{{policy="linucb",bandit="{label}"}} 1\n' in text
    assert f'undertow_pending_decisions{{policy="linucb",bandit="{label}"}} 1\n' in text
    assert f'undertow_problems{{policy="linucb",bandit="{label}",worker="{os.getpid()}"}} 0\n' in text
    one = http.get("/metrics", params={"bandit": name}).text
    assert set(re.findall(r'bandit="(.*?)"[,}]', one)) == {label}
    problem(http.get("/metrics?bandit=nobody"), 404, "not-found", "name")
    assert re.search(
        r'undertow_http_requests_total{worker="\d+",method="POST",path="/v1/bandits/{name}/decisions"', text
    )
    buckets = re.findall(r'request_seconds_bucket{.*method="POST".*path="(.*)",le="(.*)"} (\d+)', text)
    counts = [int(count) for path, _, count in buckets if path.endswith("decisions")]
    assert counts == sorted(counts)
    assert counts[-1] >= 1


# What is refused


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"reward": NaN}', "malformed"),
        ('{"reward": 1e999}', "out of range"),
        ('{"reward": Infinity}', "malformed"),
        ('{"reward": "1"}', "expected `float`, got `str`"),
        ('{"reward": null}', "expected `float`, got `null`"),
        ('{"reward": true}', "expected `float`, got `bool`"),
        ('{"reward": 1, "colour": 2}', "unknown field `colour`"),
        ("{}", "missing required field `reward`"),
        ("[1]", "expected `object`, got `array`"),
        ("", "truncated"),
        ('{"reward": 1}}', "malformed"),
        ('{"reward": "\ud800"}', ""),
        ("[" * 60_000, ""),
        ('{"reward": 1e200}', "below 1e+152"),
    ],
)
def test_json_is_strict(http: httpx.Client, bandit: str, content: str, said: str) -> None:
    http.post(f"{bandit}/decisions", json={"id": "1", "features": [1]})
    raw = content.encode("utf-8", "surrogatepass")
    answer = http.put(f"{bandit}/decisions/1/reward", content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert said in answer.json()["detail"], answer.text
    assert http.get(bandit).json()["pending"] == 1


@pytest.mark.parametrize("id", ["a\u0000", "a\nb", "x" * 65, ""])
def test_odd_ids_are_refused(http: httpx.Client, bandit: str, id: str) -> None:
    problem(http.post(f"{bandit}/decisions", json={"id": id, "features": [1]}), 422, "invalid", "id")
    if id:
        answer = http.get(f"{bandit}/decisions/{httpx.QueryParams({'q': id})}".replace("q=", ""))
        assert answer.status_code == 404


def test_bodies_are_counted_while_they_come(http: httpx.Client, bandit: str) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 1000

    headers = {"content-type": "application/json"}
    with httpx.Client(base_url=http.base_url) as other:
        answer = other.post(f"{bandit}/decisions", content=chunks(), headers=headers)
    problem(answer, 413, "too-large", "body")
    assert http.post(f"{bandit}/decisions", content=b" " * 60_000 + b'{"features": [1]}', headers=headers).is_success


def test_fleets_are_not_served(http: httpx.Client, bandit: str, store: str) -> None:
    fleet = undertow.open(store, "shops", undertow.fleet.Fleet(undertow.UCB(arms=2)))
    fleet.decide_many(["a", "b"])
    assert "is a fleet" in problem(http.get("/v1/bandits/shops"), 404, "not-found", "name")
    assert "is a fleet" in problem(http.post("/v1/bandits/shops/decisions", json={}), 404, "not-found", "name")
    names = [row["name"] for row in http.get("/v1/bandits?figures=true").json()["bandits"]]
    assert "shops" not in names
    assert bandit.rpartition("/")[2] in names
    assert http.get("/metrics").status_code == 200


def test_a_web_page_of_another_site_can_do_nothing(http: httpx.Client, bandit: str) -> None:
    decisions, body = f"{bandit}/decisions", '{"features": [1]}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        headers = {"content-type": kind} if kind else {}
        problem(http.post(decisions, content=body, headers=headers), 415, "media-type")
    for host in ("shop.example", "127.0.0.1.shop.example", "localhost:80:80", "", "[::1"):
        problem(http.get(bandit, headers={"host": host}), 421, "misdirected", "host")
    assert http.get(bandit, headers={"host": "LOCALHOST:8000"}).is_success
    answer = http.options(decisions, headers={"origin": "http://shop.example", "access-control-request-method": "POST"})
    problem(answer, 405, "method", "method")
    assert not [name for name in answer.headers if name.startswith("access-control")]
    shown = http.get(bandit).headers
    assert shown["x-content-type-options"] == "nosniff"
    assert "default-src 'self'" in shown["content-security-policy"]
    assert http.get(bandit).json()["round"] == 0


def test_what_is_not_there(http: httpx.Client, bandit: str) -> None:
    for path in (
        "/v1",
        "/v1/bandits/",
        f"{bandit}/",
        f"{bandit}/nothing",
        "/../etc/passwd",
        f"{bandit}/rounds/x/context",
    ):
        assert problem(http.put(path, json={"context": None}), 404, "not-found", "path")
    answer = http.delete(f"{bandit}/decisions")
    problem(answer, 405, "method", "method")
    assert answer.headers["allow"] == "POST"
    problem(http.get(f"/v1/bandits/{'x' * 101}"), 404, "not-found", "path")
    problem(http.get("/v1/bandits/a%00b"), 404, "not-found", "name")


def test_what_nobody_expected_is_not_told(
    http: httpx.Client, bandit: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*given: Any) -> None:
        raise RuntimeError("the secret of the house")

    monkeypatch.setattr("undertow.store.sql.SqlStore.page", fail)
    answer = http.get("/v1/bandits")
    problem(answer, 500, "failed")
    assert "secret" not in answer.text
    assert "the secret of the house" in caplog.text


def test_trouble_with_the_store(http: httpx.Client, bandit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from undertow import StoreBusyError, StoreUnavailableError

    for error, kind, happened in (
        (StoreBusyError("store: busy"), "busy", False),
        (StoreUnavailableError("store: away", happened=None), "unavailable", None),
    ):

        def fail(*given: Any, error: Exception = error) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr("undertow.store.sql.SqlStore.lock", fail)
            answer = http.post(f"{bandit}/decisions", json={"features": [1]})
        problem(answer, 503, kind)
        assert answer.json()["happened"] is happened
        assert answer.headers["retry-after"] == "1"


# Who may do what


def test_roles(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "tokens"
    file.write_text("# of the shop\n" + "".join(f"{role} {token}\n" for role, token in SECRETS.items()))
    file.chmod(0o644)
    path, body = "/v1/bandits/courier", {"features": [1]}
    with in_thread(application(f"sqlite:///{tmp_path}/a.db", tokens=file)) as url, httpx.Client(base_url=url) as http:
        assert "anybody on this machine can read" in caplog.text

        def statuses(token: str | None) -> list[int]:
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            return [
                http.put(path, json=COURIER, headers=headers).status_code,
                http.post(f"{path}/decisions", json=body, headers=headers).status_code,
                http.get(path, headers=headers).status_code,
                http.get("/metrics", headers=headers).status_code,
                http.get(f"{path}/stream", headers=headers | {"range": "x"}, params={"after": "x"}).status_code,
            ]

        assert statuses(SECRETS["admin"]) == [201, 201, 200, 200, 422]
        assert statuses(SECRETS["play"]) == [403, 201, 200, 200, 422]
        assert statuses(SECRETS["read"]) == [403, 403, 200, 200, 422]
        assert statuses(None) == statuses("x" * 30) == statuses("Bearer") == [401] * 5
        for scheme, status in (("Basic ", 401), ("bearer  ", 200), ("", 401)):
            headers = {"authorization": f"{scheme}{SECRETS['admin']}"}
            assert http.get(path, headers=headers).status_code == status
        asked = http.get(path)
        problem(asked, 401, "unauthorised", "token")
        assert asked.headers["www-authenticate"].startswith("Bearer")
        assert [http.get(path).status_code for path in ("/healthz", "/readyz", "/openapi.json")] == [200] * 3

        file.write_text("nonsense")
        assert statuses(SECRETS["read"])[2] == 200
        assert "tokens unchanged" in caplog.text
        file.write_text(f"play {SECRETS['read']}\n")
        assert statuses(SECRETS["read"])[1] == 201
        assert statuses(SECRETS["admin"]) == [401] * 5
    assert not [token for token in SECRETS.values() if token in caplog.text]


@pytest.mark.parametrize("text", ["play", "write " + "x" * 20, "play short", "play " + "x" * 20 + " y", "#"])
def test_odd_tokens_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    with pytest.raises(InvalidInputError, match="tokens: ") as refused:
        Tokens(file)
    assert "x" * 20 not in str(refused.value)
    with pytest.raises(InvalidInputError, match=r"tokens: .*No such file"):
        Tokens(tmp_path / "nothing")


def test_tokens_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERTOW_TOKENS", ",".join(f"{role} {token}" for role, token in SECRETS.items()))
    with in_thread(application(f"sqlite:///{tmp_path}/a.db")) as url:
        assert httpx.get(f"{url}/v1/bandits").status_code == 401
        assert httpx.get(f"{url}/v1/bandits", headers={"authorization": f"Bearer {SECRETS['read']}"}).is_success


def test_beyond_loopback_only_with_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(f"sqlite:///{tmp_path}/a.db", "0.0.0.0", 0)
    with pytest.raises(InvalidInputError, match=r"host: 0\.0\.0\.0 can be reached .* needs tokens"):
        listen(plan)
    monkeypatch.setenv("UNDERTOW_TOKENS", f"read {SECRETS['read']}")
    with listen(plan) as bound:
        assert bound.proto == socket.IPPROTO_TCP  # else asyncio leaves TCP_NODELAY off, and an answer waits for 40 ms
    assert plan.hosts is None
    assert plan._replace(allowed=("shop.example",)).hosts == ("localhost", "127.0.0.1", "[::1]", "shop.example")
    assert Plan("", "::1").hosts == ("localhost", "127.0.0.1", "[::1]")
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(InvalidInputError, match=r"port: cannot listen at 127\.0\.0\.1:\d+ \(Address already in use\)"),
    ):
        listen(Plan(f"sqlite:///{tmp_path}/a.db", port=taken.getsockname()[1]))


# Streams


class Listener:
    """Reads a stream in a thread."""

    def __init__(self, url: str, after: int = 0) -> None:
        self.numbers: list[int] = []
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(url, after))
        self._thread.start()

    def _read(self, url: str, after: int) -> None:
        with httpx.stream("GET", f"{url}/stream", headers={"last-event-id": str(after)}, timeout=30) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    self.numbers.append(json.loads(line.removeprefix("data: "))["n"])
        self.ended.set()

    def wait(self, count: int) -> list[int]:
        until = time.monotonic() + 10
        while len(self.numbers) < count and time.monotonic() < until:
            time.sleep(0.02)
        return list(self.numbers)


def test_a_stream_brings_what_any_worker_commits(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    policy = undertow.open(url, "courier", undertow.UCB(arms=["a", "b"]))
    policy.decide()
    with in_thread(application(url)) as here:
        one, late = Listener(f"{here}/v1/bandits/courier"), Listener(f"{here}/v1/bandits/courier", after=3)
        assert one.wait(1) == [1]
        for _ in range(4):
            policy.decide()  # as another worker
        httpx.post(f"{here}/v1/bandits/courier/decisions", json={})
        assert one.wait(6) == [1, 2, 3, 4, 5, 6]
        assert late.wait(3) == [4, 5, 6]
        assert httpx.get(f"{here}/v1/bandits/nobody/stream").status_code == 404
    assert one.ended.wait(5)  # a server that stops does not wait for streams
    assert late.ended.wait(5)


def test_streams_one_after_another_leave_the_others_alone(tmp_path: Path) -> None:
    """A stream that begins after the last one has ended does not keep the worker busy."""
    url = f"sqlite:///{tmp_path}/a.db"
    undertow.open(url, "courier", undertow.UCB(arms=["a", "b"]))
    with in_thread(application(url)) as here, httpx.Client(base_url=here, timeout=5) as http:
        for _ in range(3):
            with httpx.stream("GET", f"{here}/v1/bandits/courier/stream", timeout=5) as stream:
                assert next(stream.iter_lines()).startswith("retry")
                time.sleep(0.6)  # the worker looks for new events now
                assert http.get("/healthz").is_success
            time.sleep(0.6)  # and has noticed that nobody listens any more


# Slow clients


def test_connections_with_half_a_request_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deadline, "seconds", 1.5)
    with in_thread(application(f"sqlite:///{tmp_path}/a.db")) as url:
        place = ("127.0.0.1", int(url.rpartition(":")[2]))
        halves = (
            b"GET /healthz HT",
            b"",
            b"POST /v1/bandits/a/decisions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: 9\r\n\r\n{",
        )
        slow = [socket.create_connection(place) for _ in range(1000)]
        for number, connection in enumerate(slow):
            connection.sendall(halves[number % 3])
        with httpx.Client(base_url=url) as http:
            began = time.monotonic()
            while time.monotonic() < began + 1.0:
                assert http.get("/healthz").is_success
                with contextlib.suppress(OSError):  # it may be closed by now
                    slow[0].sendall(b"x")  # drop by drop is no excuse
        for connection in slow:
            connection.settimeout(10)
            with connection:
                try:
                    left = connection.recv(4096)
                    assert left == b"" or b" 400 " in left
                except ConnectionResetError:
                    pass
        assert httpx.get(f"{url}/healthz").is_success


# The command


def test_the_command_serves_until_it_is_stopped(tmp_path: Path) -> None:
    with as_command(tmp_path, f"sqlite:///{tmp_path}/shop.db") as command:
        printed = command.process.stdout.readline() + command.process.stdout.readline()  # type: ignore[union-attr]
        assert f"curl -X PUT {command.url}/v1/bandits/courier" in printed
        with httpx.Client(base_url=command.url, transport=httpx.HTTPTransport(retries=3), timeout=60) as http:
            until = time.monotonic() + 60
            while http.get("/readyz").status_code != 200:
                assert time.monotonic() < until
            http.put("/v1/bandits/courier", json=COURIER)
            listener = Listener(f"{command.url}/v1/bandits/courier")
            assert http.post("/v1/bandits/courier/decisions", json={"features": [1]}).status_code == 201
            assert listener.wait(1) == [1]
        command.process.terminate()
        assert command.process.wait(20) == -signal.SIGTERM
        assert listener.ended.wait(5)
    log = command.log.read_text()
    assert re.search(r"INFO undertow.access: POST /v1/bandits/courier/decisions 201 \d", log)
    assert "Traceback" not in log


def test_a_request_that_is_under_way_is_finished(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    undertow.open(url, "courier", undertow.UCB(arms=["a", "b"]))
    with as_command(tmp_path, url) as command:
        found: list[int] = []

        def ask() -> None:
            found.append(httpx.post(f"{command.url}/v1/bandits/courier/decisions", json={}, timeout=30).status_code)

        assert httpx.post(f"{command.url}/v1/bandits/courier/decisions", json={}, timeout=30).status_code == 201
        from undertow.store.address import store_at

        with store_at(url).lock("courier", 5.0):
            asking = threading.Thread(target=ask)
            asking.start()
            time.sleep(0.5)
            command.process.terminate()
            time.sleep(0.5)
        asking.join(20)
        assert found == [201]
        assert command.process.wait(20) == -signal.SIGTERM


logging.getLogger("httpx").setLevel(logging.WARNING)
