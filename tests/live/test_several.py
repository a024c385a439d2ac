"""Several arms of one round, and the probabilities of all of them."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import undertow
from undertow import InvalidInputError
from undertow.live.propensity import chances_of_largest
from undertow.policies import BetaThompson, Decision, LinTS, LinUCB, Random


def test_the_product_of_the_propensities_is_that_of_the_list() -> None:
    """Lists of two of three arms, drawn 3000 times with seeds from 0 on, within 4 standard errors."""
    drawn, chances = Counter[tuple[int, ...]](), dict[tuple[int, ...], float]()
    for seed in range(3000):
        policy = Random(arms=3, explore=0.2, rng=seed)
        made = policy.decide_several(2)
        order = tuple(decision.arm for decision in made)
        drawn[order] += 1
        chances[order] = float(np.prod([decision.propensity for decision in made]))
    assert sum(chances.values()) == pytest.approx(1)
    for order, chance in chances.items():
        assert abs(drawn[order] / 3000 - chance) < 4 * np.sqrt(chance * (1 - chance) / 3000)


def test_a_list_is_one_round_by_the_clock_and_by_name(tmp_path: Path) -> None:
    plain = LinUCB(arms=["a", "b", "c"], feature_names=["price"], tick="1 h")
    kept = undertow.open(f"sqlite:///{tmp_path}/shop.db", "list", LinUCB(arms=["a", "b", "c"], feature_names=["price"]))
    rows = {"a": {"price": 1.0}, "b": {"price": 2.0}, "c": {"price": 3.0}}
    for policy in (plain, kept):
        made = policy.decide_several(3, rows, id="page 7")
        assert [decision.id for decision in made] == ["page 7", "page 7/2", "page 7/3"]
        assert {decision.time_step for decision in made} == {0}
        assert [decision.arm for decision in policy.decide_several(3, rows, id="page 7")] == [one.arm for one in made]
        assert policy.pending == 3
        only = policy.decide_several(1, rows, available=["c"])
        assert [decision.name for decision in only] == ["c"]
        with pytest.raises(InvalidInputError, match="count: expected at most 2, as many as"):
            policy.decide_several(3, rows, available=["a", "b"])
        with pytest.raises(InvalidInputError, match="subject: expected none with several arms"):
            policy.decide_several(2, rows, subject="anna")


def test_all_chances_are_those_of_the_draws() -> None:
    """200 arms of very different widths, against 10^6 draws with seed 0, within 4 standard errors."""
    rng = np.random.default_rng(0)
    means, widths = rng.standard_normal(200), 10.0 ** rng.uniform(-3, 1, 200)
    chances, counts = chances_of_largest(means, widths), np.zeros(200)
    for _ in range(20):
        counts += np.bincount((means + widths * rng.standard_normal((50_000, 200))).argmax(axis=1), minlength=200)
    assert chances.sum() == pytest.approx(1, abs=1e-8)
    assert (np.abs(counts / 10**6 - chances) <= 4 * np.sqrt(chances * (1 - chances) / 10**6) + 1e-9).all()


@pytest.mark.parametrize("policy", [LinTS(arms=4, rng=0), BetaThompson(arms=4, rng=0)], ids=repr)
def test_a_decision_holds_the_chances_of_all_arms(policy: LinTS | BetaThompson) -> None:
    rng = np.random.default_rng(0)
    policy.set_costs({"0": 0.05})
    for t in range(60):
        decision = policy.decide(available=[0, 1, 3] if t % 2 else None)
        assert decision.propensities is not None
        assert decision.propensities.sum() == pytest.approx(1, abs=1e-8)
        assert decision.propensities[decision.arm] == decision.propensity
        assert decision.propensities[2] == 0 or t % 2 == 0
        again = Decision.from_json(decision.to_json())
        assert again.propensities is not None
        np.testing.assert_array_equal(again.propensities, decision.propensities)
        policy.learn(decision, float(rng.random() < 0.3 + 0.1 * decision.arm))
    assert LinUCB(arms=2).decide().propensities is None
