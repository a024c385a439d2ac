"""Known prices of arms, and arms that are pinned."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow
from undertow import InvalidInputError
from undertow.live.events import CostsSet, Event, Pinned, Unpinned, decode, encode
from undertow.policies import BetaThompson, Decision, LinTS, LinUCB, LivePolicy, Rexp3

QUALITY = {"small": 0.5, "large": 0.8}


def played(policy: LivePolicy, rounds: int, rng: np.random.Generator, noise: float = 0.05) -> list[Decision]:
    """Play rounds in a still world, where rewards are quality alone."""
    decisions = []
    for _ in range(rounds):
        decisions.append(decision := policy.decide())
        policy.learn(decision, QUALITY[decision.name] + noise * rng.standard_normal())
    return decisions


@pytest.mark.parametrize("name", ["ucb", "linucb", "discounted-linucb", "sliding-window-ucb"])
def test_a_new_price_costs_no_relearning(name: str) -> None:
    """After 300 rounds (seed 0) the large arm is worth its price of 0.1, and from the next round on not that of 0.6."""
    policy = undertow.make(name, arms=list(QUALITY), cost={"large": 0.1})
    rng = np.random.default_rng(0)
    played(policy, 300, rng)
    assert policy.decide().name == "large"
    before = policy.forecast().forecast
    policy.set_costs({"large": 0.6})
    np.testing.assert_array_equal(policy.forecast().forecast, before)
    decision = policy.decide()
    assert decision.name == "small"
    assert decision.value is not None
    np.testing.assert_allclose(decision.value, decision.forecast + decision.width - [0.0, 0.6])
    assert "large" not in {each.name for each in played(policy, 30, rng)}
    policy.set_costs({"large": 0.0})
    assert policy.decide().name == "large"


def test_what_is_compared_is_in_units_of_reward() -> None:
    """With `standardize` a policy computes in other units, and with `minimize` the smallest is played."""
    rng = np.random.default_rng(1)
    for minimize in (False, True):
        policy = LinUCB(arms=3, standardize=True, minimize=minimize, cost={"1": 7.0, "2": -3.0})
        for _ in range(80):
            decision = policy.decide()
            sign = -1 if minimize else 1
            expected = decision.forecast + sign * (decision.width - np.array([0.0, 7.0, -3.0]))
            assert decision.value is not None
            np.testing.assert_allclose(decision.value, expected, rtol=1e-9)
            policy.learn(decision, 1000.0 + 50.0 * rng.standard_normal() + 20.0 * decision.arm)
        assert decision.value is not None
        assert decision.arm == int(np.argmax(sign * decision.value))


@pytest.mark.parametrize(
    "policy", [LinTS(arms=list(QUALITY), rng=0), BetaThompson(arms=list(QUALITY), rng=0)], ids=repr
)
def test_propensities_know_of_costs(policy: LivePolicy) -> None:
    """400 further decisions (seed 0): the arms are played as often as their propensities say, to 4 standard errors."""
    rng = np.random.default_rng(0)
    played(policy, 20, rng, noise=0.3)
    policy.set_costs({"large": 0.25})
    decisions = [policy.decide() for _ in range(400)]  # no rewards, so the chances stay
    chance = {each.name: each.propensity for each in decisions}
    assert abs(sum(chance.values()) - 1) < 1e-6
    share = np.mean([each.name == "large" for each in decisions])
    assert abs(share - chance["large"]) < 4 * np.sqrt(chance["large"] * chance["small"] / 400)
    assert 0.02 < chance["large"] < 0.98


def test_rexp3_takes_a_cost_for_a_reward_that_is_known() -> None:
    """Weights are those of a policy whose every reward, learned at once, had the cost taken off."""
    policy = Rexp3(arms=2, bounds=(0.0, 1.0), horizon=100, variation_budget=1.0, cost={"1": 0.3}, rng=0)
    own, rng, gains = policy.parts.player.own, np.random.default_rng(0), np.zeros(2)
    rate, batch = own.settings.rate, int(own.settings.batch_length)
    assert batch > 12
    for t in range(12):
        decision = policy.decide()
        weights = np.exp(rate * (gains - [0.0, 0.3 * t]) / 2)
        chances = (1 - rate) * weights / weights.sum() + rate / 2
        assert decision.propensity == pytest.approx(chances[decision.arm])
        policy.learn(decision, reward := float(rng.random()))
        gains[decision.arm] += reward / decision.propensity


def test_costs_and_pins_are_events() -> None:
    policy, log = LinUCB(arms=["a", "b"]), list[Event]()
    before = policy.to_bytes()
    policy.events(log.append)
    policy.set_costs({"b": 0.5})
    policy.set_costs({"b": 0.5})  # no change, no event
    policy.pin("b", learn=False)
    policy.pin(1, learn=False)
    pinned = policy.decide()
    policy.pin("b")
    policy.unpin()
    policy.unpin()
    policy.learn(pinned, 3.0)
    kinds = [type(event) for event in log]
    assert [kind for kind in kinds if kind in (CostsSet, Pinned, Unpinned)] == [CostsSet, Pinned, Pinned, Unpinned]
    again = undertow.fold(before, map(decode, map(encode, log)))
    assert again.to_bytes() == policy.to_bytes()
    assert (again.costs, again.pinned) == ({"a": 0.0, "b": 0.5}, None)
    assert policy.forecast().forecast.tolist() == [0.0, 0.0]  # the reward came after unpin, and was not learned


def test_a_pin_is_simulated() -> None:
    path = undertow.paper_system(psi=1).sample(50, rng=0)
    policy = LinUCB(arms=2, context_dim=1)
    policy.pin(1, learn=False)
    run = undertow.simulate(policy, path, record=["forecasts"])
    assert (run.arms == 1).all()
    assert run.forecasts is not None
    assert (run.forecasts == 0).all()
    policy = LinUCB(arms=2, context_dim=1, cost={"0": 100.0})
    assert (undertow.simulate(policy, path).arms == 1).mean() > 0.9


def test_arms_keep_their_costs_when_others_come() -> None:
    policy = undertow.UCB(arms=["a", "b"], cost={"b": 0.5})
    policy.pin("b")
    policy.add_arm("c")
    assert policy.costs == {"a": 0.0, "b": 0.5, "c": 0.0}
    assert policy.pinned == "b"
    with pytest.raises(InvalidInputError, match=r"name: 'b' is pinned; call unpin\(\)"):
        policy.retire_arm("b")
    policy.retire_arm("a")
    with pytest.raises(InvalidInputError, match=r"arm: 'a' was retired; add_arm\('a'\) reactivates it"):
        policy.pin("a")


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ([0.1, 0.2], r"cost: expected a cost by arm, such as \{'a': 0.5\}, got \[0.1, 0.2\]"),
        ({"c": 0.1}, "cost: expected one of a, b, got 'c'"),
        ({"a": float("nan")}, "cost: 'a'"),
        ({"a": "dear"}, "cost: 'a'"),
    ],
)
def test_odd_costs_are_refused(cost: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        undertow.UCB(arms=["a", "b"], cost=cost)


def test_a_store_keeps_costs_and_pins(tmp_path: Path) -> None:
    """They may change while processes run with other code; rewards of pinned decisions are not learned weeks later."""
    url = f"sqlite:///{tmp_path}/shop.db"
    one = undertow.open(url, "courier", undertow.UCB(arms=["a", "b"], cost={"b": 0.5}, max_pending=1))
    two = undertow.open(url, "courier", undertow.UCB(arms=["a", "b", "c"], cost={"b": 0.7, "c": 0.1}, max_pending=1))
    assert one.costs == {"a": 0.0, "b": 0.5, "c": 0.1}
    two.set_costs({"b": 0.9})
    assert one.costs["b"] == 0.9
    one.pin("a", learn=False)
    decision = two.decide()
    assert (decision.name, two.pinned) == ("a", "a")
    one.unpin()
    one.decide()  # which makes the policy drop the other one
    one.learn(decision.id, 9.0)
    one.learn(decision.id, 9.0)
    assert one.forecast().forecast.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("minimize", [False, True])
def test_what_is_compared_goes_through_json(minimize: bool) -> None:
    """Also where an arm has to be tried first, whose value is infinite."""
    policy = undertow.UCB(arms=3, minimize=minimize, cost={"1": 0.5})
    for _ in range(4):
        decision = policy.decide()
        again = Decision.from_json(decision.to_json())
        assert decision.value is not None
        assert again.value is not None
        np.testing.assert_array_equal(again.value, decision.value)
        policy.learn(decision, 1.0)
