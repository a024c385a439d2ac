"""What is written as JSON: of every version, of numbers that JSON lacks, and of nobody."""

import json
import math
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import undertow
from served import in_thread
from undertow import InvalidInputError, LinUCB
from undertow.live import wire
from undertow.policies import Decision, FitRecord, Health, LivePolicy, Outlook, Why
from undertow.serve import application
from undertow.store.address import store_at
from undertow.support.checks import LARGEST

ODD = np.array([0.1, -0.0, 5e-324, math.inf, -math.inf, math.nan, 1.7976931348623157e308])
DECISION = Decision(
    'order "7" £',
    2**52,
    1,
    "b",
    ODD,
    ODD,
    np.arange(7),
    Why(ODD, ODD, "ridge", -math.inf, -1, math.nan),
    0.3,
    7,
    ODD,
    ODD,
)
HEALTH = Health(
    "mine",
    9,
    1,
    4,
    {},
    0,
    {"ridge": ODD},
    {"x": math.inf, "y": math.nan},
    {"x": 1},
    (FitRecord("ridge", 8, 2, -math.inf, 4, None),),
    (),
)
EARLIER = """{"id": "caf\\u00e9", "round": 2, "arm": 1, "name": "b", "forecast": [0.30000000000000004, null],
"width": [null, 0], "window": [3, 1], "why": {"state_error": [null, 1.0], "arm_error": [0.5, 1e-07], "model": "ridge",
"lead": null, "since_fit": -1LOOK}, "propensity": 1.0000000001, """
LATER = EARLIER.replace("LOOK", ', "look": 0.0') + '"TIME": 7, "value": [null, "-inf"], "propensities": [0.0, 1.0]'
WRITTEN = {  # by the version of that name
    "0.2": EARLIER.replace("LOOK", "") + '"moment": 7}',
    "0.3 in its beginnings": LATER.replace("TIME", "moment") + "}",
    "0.3 as json wrote it": LATER.replace("TIME", "time_step") + ', "again": false}',
}


def bits(record: Any) -> Any:
    """All numbers of a record as their bits, where NaN is one number."""
    if isinstance(record, np.ndarray):
        return [bits(value) for value in record.tolist()]
    if isinstance(record, float):
        return "nan" if math.isnan(record) else record.hex()
    if isinstance(record, dict):
        return {name: bits(value) for name, value in record.items()}
    return tuple(map(bits, record)) if isinstance(record, tuple) else record


@pytest.mark.parametrize("version", WRITTEN)
def test_what_earlier_versions_wrote_is_read(version: str) -> None:
    decision = Decision.from_json(WRITTEN[version])
    late = version != "0.2"
    expected = Decision(
        "café",
        2,
        1,
        "b",
        np.array([0.1 + 0.2, math.nan]),
        np.array([math.inf, 0.0]),
        np.array([3, 1]),
        Why(np.array([math.inf, 1.0]), np.array([0.5, 1e-7]), "ridge", math.inf, -1),
        1.0000000001,
        7,
        np.array([math.inf, -math.inf]) if late else None,
        np.array([0.0, 1.0]) if late else None,
    )
    assert bits(decision) == bits(expected)
    assert decision.window is not None
    assert [decision.window.dtype.name, decision.width.dtype.name] == ["int64", "float64"]


def test_every_number_comes_back_to_the_bit() -> None:
    outlook = Outlook(ODD, ODD, None)
    for said in (DECISION, outlook, HEALTH):
        text = said.to_json()
        json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
        again = type(said).from_json(text)
        assert bits(again) == bits(said)
        assert again.to_json() == text
        for one, other in zip(again, said, strict=True):
            assert type(one) is type(other)


def test_null_is_what_a_field_is_expected_to_hold() -> None:
    """So that what finite forecasts and untried arms were written as stays the same."""
    entries = json.loads(DECISION.to_json())
    names = ("forecast", "width", "value", "propensities")
    assert [entries[name][3:6] for name in names] == [
        ["inf", "-inf", None],
        [None, "-inf", "nan"],
        [None, "-inf", "nan"],
        ["inf", "-inf", None],
    ]
    assert entries["why"]["state_error"] == entries["why"]["arm_error"] == entries["width"]
    assert json.loads(DECISION._replace(why=Why(ODD, ODD, "", math.inf, 0)).to_json())["why"]["lead"] is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"round": 2', '"round": 2, "r\\u006fund": 2'),
        ('"look": 0.0', '"look": 0.0, "look": 0.0'),
        ('"look": 0.0', '"look": "0.0"'),
        ('"look": 0.0', '"more": 0.0'),
        ('"time_step": 7', '"time_step": 7, "moment": 7'),
        ('"time_step": 7, ', ""),
        ('"time_step": 7', '"time_step": 7.0'),
        ('"round": 2', f'"round": {10**30}'),
        ('"since_fit": -1', f'"since_fit": {10**400}'),
        ("[3, 1]", f"[3, {2**53}]"),
        ("[3, 1]", "[3, true]"),
        ("[3, 1]", "[[3], [1]]"),
        ("[null, 0]", "[[null], [0]]"),
        ("[null, 0]", "[null, NaN]"),
        ("[null, 0]", "[null, Infinity]"),
        ("[null, 0]", "[null, 1e400]"),
        ("[null, 0]", f"[null, {10**400}]"),
        ("[null, 0]", '[null, "0"]'),
        ("[null, 0]", '[null, "Infinity"]'),
        ("[null, 0]", "[null, true]"),
        ("[null, 0]", "[" * 100_000),
        ('"propensity": 1.0000000001', '"propensity": "nan"'),
        ('"propensity": 1.0000000001', '"propensity": null'),
        ('"again": false', '"again": 0'),
        ("caf\\u00e9", "caf\\ud800"),
        ("}", "} 1"),
    ],
)
def test_what_no_version_wrote_is_refused(old: str, new: str) -> None:
    text = WRITTEN["0.3 as json wrote it"]
    assert text.count(old) in (1, 2)
    with pytest.raises(InvalidInputError, match=r"decision: expected JSON from Decision\.to_json, got "):
        Decision.from_json(text.replace(old, new, 1))


@pytest.mark.parametrize("text", [None, 7, b"{}", WRITTEN["0.2"].encode(), {"id": "x"}])
def test_what_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"decision: expected JSON from Decision\.to_json, got "):
        Decision.from_json(text)


def test_only_numbers_are_written() -> None:
    with pytest.raises(TypeError, match="must be real number, not complex"):
        wire.write({"forecast": 1j})


def test_names_are_whole_characters() -> None:
    """Half a character can neither be printed nor written as UTF-8."""
    assert Decision.from_json(LinUCB(arms=["a £😀", "b"]).decide().to_json()).name == "a £😀"
    with pytest.raises(InvalidInputError, match="arms: expected at least one name"):
        LinUCB(arms=["a\ud83d", "b"])
    with pytest.raises(InvalidInputError, match="name: expected a new name"):
        LinUCB(arms=["a", "b"]).add_arm("a\ud83d")


# After forecasts have overflowed


def overflowed(policy: Any) -> list[Decision]:
    """Play a policy far outside; return the answers to a caller's ids and, at last, to a subject."""
    for _ in range(20):
        policy.learn(policy.decide([1e-3, 1e-3]), 1e-3)
    answers = []
    for t in range(6):
        answers.append(policy.decide([0.9 * LARGEST, -0.9 * LARGEST], id=f"order {t}"))
        policy.learn(f"order {t}", (-1) ** t * 0.9 * LARGEST)
    answers.append(policy.decide([0.9 * LARGEST, -0.9 * LARGEST], subject="Ada"))
    numbers = np.concatenate([np.concatenate([each.forecast, each.width]) for each in answers])
    assert np.isnan(numbers).any()
    assert np.isinf(numbers).any()
    return answers


def far_out() -> LivePolicy:
    return LinUCB(arms=2, feature_dim=2, ridge=1e-12, rng=0)


def require_same_answers(policy: Any, answers: list[Decision]) -> None:
    *orders, ada = answers
    for answer in orders:
        assert bits(policy.decide([0.9 * LARGEST, -0.9 * LARGEST], id=answer.id)) == bits(answer)
    again = policy.decide([0.9 * LARGEST, -0.9 * LARGEST], subject="Ada")
    assert bits(again._replace(again=False)) == bits(ada)


def test_a_policy_whose_forecasts_have_overflowed_can_be_saved(tmp_path: Path) -> None:
    policy = far_out()
    answers = overflowed(policy)
    for answer in answers:
        assert bits(Decision.from_json(answer.to_json())) == bits(answer)
    policy.save(tmp_path / "policy")
    again = undertow.load(tmp_path / "policy")
    require_same_answers(again, answers)
    assert bits(Outlook.from_json(again.forecast([1.0, 2.0]).to_json())) == bits(policy.forecast([1.0, 2.0]))
    assert Health.from_json(again.health().to_json()).round == policy.round


def test_a_store_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its events, its answers, and its checkpoints."""
    monkeypatch.setattr("undertow.store.replica._LEAST", 2000)
    url = f"sqlite:///{tmp_path}/shop.db"
    made, policy = far_out(), undertow.open(url, "played there", far_out())
    answers = overflowed(policy)
    assert bits(policy.recorded("order 5")) == bits((answers[5], (-1) ** 5 * 0.9 * LARGEST))
    with store_at(url).lock("played there", 1.0) as locked:
        assert max(locked.checkpoints()) > 40  # it was saved after its forecasts had overflowed
    require_same_answers(undertow.open(url, "played there"), answers)
    *_, ada = overflowed(made)
    undertow.open(url, "brought along", made)
    require_same_answers(undertow.open(url, "brought along"), [ada])


def test_the_service_answers_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ever: numbers, and null for all that JSON lacks."""
    monkeypatch.setattr(LinUCB, "health", lambda policy: HEALTH)
    url = f"sqlite:///{tmp_path}/shop.db"
    *_, answer, _ = overflowed(undertow.open(url, "far", far_out()))
    with in_thread(application(url)) as address, httpx.Client(base_url=address) as http:
        body = {"id": answer.id, "features": [0.9 * LARGEST, -0.9 * LARGEST]}
        same, state = http.post("/v1/bandits/far/decisions", json=body), http.get("/v1/bandits/far")
    assert (same.status_code, state.status_code) == (200, 200), state.text
    for name in ("forecast", "width", "value"):
        expected = {arm: x if math.isfinite(x) else None for arm, x in zip("01", getattr(answer, name), strict=True)}
        assert same.json()[name] == expected
    health = state.json()["health"]
    assert health["innovations"] == {"ridge": [0.1, -0.0, 5e-324, None, None, None, 1.7976931348623157e308]}
    assert health["level"] == {"x": None, "y": None}
    assert health["fits"] == [HEALTH.fits[0]._asdict() | {"log_likelihood": None}]
    assert (health["ok"], health["problems"]) == (HEALTH.ok, list(HEALTH.problems)) == (False, [*HEALTH.problems])
