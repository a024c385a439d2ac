"""Metrics are text that Prometheus reads, with the numbers of `health`."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import undertow
from undertow.live.metrics import Measure, exposition
from undertow.store import DurablePolicy

Labels = dict[str, str]


def read(text: str) -> dict[str, list[tuple[Labels, float]]]:
    """Return the samples of a text by name; every family is there once."""
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families) == text.count("# TYPE")
    assert all(family.documentation for family in families)
    samples = [sample for family in families for sample in family.samples]
    return {name: [(s.labels, s.value) for s in samples if s.name == name] for name in {s.name for s in samples}}


def test_the_metrics_of_a_plain_policy() -> None:
    policy = undertow.make("linucb", arms=2, feature_dim=1)
    before = time.time()
    first = policy.decide([1.0])
    policy.decide([2.0])
    with pytest.raises(undertow.UnknownDecisionError):
        policy.learn("nobody", 1.0)
    found = read(policy.metrics())
    mine = {"policy": "linucb"}
    assert found["undertow_rounds_total"] == [(mine, 2)]
    assert found["undertow_pending_decisions"] == [(mine, 2)]
    assert found["undertow_oldest_pending_rounds"] == [(mine, 1)]
    assert found["undertow_refused_rewards_total"] == [(mine | {"reason": "unknown"}, 1)]
    assert found["undertow_problems"] == [(mine, 0)]
    assert before <= found["undertow_last_decision_timestamp_seconds"][0][1] <= time.time()
    assert "undertow_last_reward_timestamp_seconds" not in found
    policy.learn(first, 1.0)
    assert before <= read(policy.metrics())["undertow_last_reward_timestamp_seconds"][0][1] <= time.time()


def test_the_metrics_of_a_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    path = undertow.paper_system(1).sample(40, rng=0)
    policy = undertow.LearnedKalman(arms=2, context_dim=1, refit="inline", rng=0)
    for t in range(40):
        policy.learn(decision := policy.decide(), float(path.rewards[t, decision.arm]))
        policy.observe(path.contexts[t])
    found, health = read(policy.metrics()), policy.health()
    (model,) = policy.models
    mine = {"policy": "learned-kalman", "model": model.name}
    assert found["undertow_model_order"] == [(mine, model.order)]
    assert found["undertow_model_fitted_round"] == [(mine, model.fitted)]
    assert found["undertow_model_deciding"] == [(mine, 1)]
    assert found["undertow_model_squared_innovation"] == [(mine, health.level[model.name])]
    assert found["undertow_model_alarms_total"] == [(mine, health.alarms[model.name])]
    assert found["undertow_fits_under_way"] == [(mine, 0)]
    assert [(labels["outcome"], value) for labels, value in found["undertow_recent_fits"]] == [
        ("found", len(health.fits)),
        ("failed", 0),
    ]


def of_bandits(policies: Sequence[DurablePolicy]) -> dict[str, list[tuple[Labels, float]]]:
    return read(exposition(measure for policy in policies for measure in policy.measures(shop="Köln")))


def test_the_metrics_of_bandits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    names = ["courier", 'odd "one"\\']
    one, other = (undertow.open(url, name, undertow.UCB(arms=2)) for name in names)
    for t in range(20):
        monkeypatch.setattr(time, "time", lambda t=t: 1e9 + t)
        one.decide(id=f"order {t}")
    undertow.open(url, "courier").learn_many([f"order {t}" for t in range(20)], [1.0] * 20)
    for reward, id in ((2.0, "order 1"), (1.0, "order 99")):
        with pytest.raises(undertow.UnknownDecisionError):
            one.learn(id, reward)
    assert {labels["bandit"] for labels, _ in read(one.metrics())["undertow_rounds_total"]} == {"courier"}
    found = of_bandits([one, other])
    mine = [{"policy": "ucb", "bandit": name, "shop": "Köln"} for name in names]
    assert found["undertow_rounds_total"] == [(mine[0], 20), (mine[1], 0)]
    assert found["undertow_events_total"] == [(mine[0], 40), (mine[1], 0)]
    assert found["undertow_pending_decisions"] == [(mine[0], 0), (mine[1], 0)]
    assert found["undertow_last_decision_timestamp_seconds"] == [(mine[0], 1e9 + 19)]
    assert found["undertow_last_reward_timestamp_seconds"] == [(mine[0], 1e9 + 19)]
    ((labels, delay),) = found["undertow_reward_delay_seconds"]
    assert labels == mine[0] | {"quantile": "0.95"}
    assert delay == pytest.approx(0.95 * 19)
    refused = {labels["reason"]: value for labels, value in found["undertow_refused_rewards_total"]}
    assert refused == {"repeated": 1, "unknown": 1}
    assert one.health().refused == refused


def test_refusals_outlive_a_policy_that_is_read_again(tmp_path: Path) -> None:
    policy = undertow.open(f"sqlite:///{tmp_path}/shop.db", "courier", undertow.UCB(arms=2))
    with pytest.raises(undertow.UnknownDecisionError):
        policy.learn("nobody", 1.0)
    policy._replica.drop()  # noqa: SLF001 (as after a call that was cut short)
    assert policy.health().refused == {"unknown": 1}


def test_odd_numbers_are_written_as_prometheus_has_them() -> None:
    values = [float("nan"), float("inf"), -float("inf"), 0.1, 1e300, True]
    text = exposition(Measure("problems", value, {"n": str(n)}) for n, value in enumerate(values))
    written = [line.split()[-1] for line in text.splitlines()[2:]]
    assert written == ["NaN", "+Inf", "-Inf", "0.1", "1e+300", "1"]
