from typing import Any

import numpy as np
import pytest

from helpers import Array
from undertow import InvalidInputError, paper_system, simulate
from undertow.policies import Autopilot, CandidateForecast
from undertow.policies.member import NEXT


class Constant:
    """Expects the same of every arm for ever, and remembers what it was told."""

    def __init__(self, mean: float = 0.0, deviation: float = 3.0, name: str = "constant") -> None:
        self.mean, self.deviation, self.name = mean, deviation, name
        self.told: list[tuple[int, int, float]] = []
        self.seen: list[Array] = []

    def forecast(self, features: Array) -> CandidateForecast:
        return CandidateForecast(np.full(2, self.mean), np.zeros(2), np.full(2, self.deviation))

    def learn(self, round: int, arm: int, reward: float) -> None:
        self.told.append((round, arm, reward))

    def observe(self, context: Array) -> None:
        self.seen.append(context)


def autopilot(*candidates: Any, **more: Any) -> Autopilot:
    return Autopilot(arms=2, context_dim=1, rng=0, candidates=candidates, **more)


def test_a_candidate_is_told_of_every_reward_and_context() -> None:
    path, candidate = paper_system(1).sample(20, rng=0), Constant()
    policy, rewards = autopilot(candidate), []
    for t in range(20):
        decision = policy.decide()
        policy.learn(decision, float(path.rewards[t, decision.arm]))
        policy.observe(path.contexts[t])
        rewards.append((t, decision.arm, path.rewards[t, decision.arm]))
    assert candidate.told == rewards
    np.testing.assert_array_equal(candidate.seen, path.contexts)


def test_a_late_reward_reaches_the_candidate_with_its_round_and_leaves_its_score() -> None:
    path, candidate = paper_system(1).sample(30, rng=0), Constant()
    policy = autopilot(candidate)
    for number in range(4):
        policy._block(number)[NEXT] = np.inf
    first = policy.decide()
    policy.observe(path.contexts[0])
    for t in range(1, 10):
        decision = policy.decide()
        policy.learn(decision, float(path.rewards[t, decision.arm]))
        policy.observe(path.contexts[t])
    before = policy.models[0].score
    policy.learn(first, 1.0)
    assert candidate.told[-1] == (0, first.arm, 1.0)
    assert policy.models[0].score == before


def test_the_best_predictor_decides_even_if_it_is_a_candidate() -> None:
    """Rewards are 7 and 5 plus noise that only the candidate knows."""
    rng = np.random.default_rng(3)
    noise = rng.standard_normal(300)

    class Clairvoyant(Constant):
        def forecast(self, features: Array) -> CandidateForecast:
            coming = np.array([7.0, 5.0]) + noise[len(self.told)]
            return CandidateForecast(coming, np.zeros(2), np.full(2, 0.01))

    policy = Autopilot(arms=2, rng=0, candidates=[Clairvoyant(name="clairvoyant")])
    for t in range(300):
        decision = policy.decide()
        policy.learn(decision, float([7.0, 5.0][decision.arm] + noise[t]))
    assert policy.model is not None
    assert policy.model.name == decision.why.model == "clairvoyant"  # type: ignore[union-attr]
    assert decision.arm == 0
    assert decision.why is not None
    assert decision.why.lead > 100


def test_simulate_plays_copies_of_the_candidates() -> None:
    paths, candidate = paper_system(1).sample(60, rng=0, runs=2), Constant()
    policy = autopilot(candidate)
    run = simulate(policy, paths)
    assert candidate.told == []
    by_hand = autopilot(Constant())
    for t in range(60):
        decision = by_hand.decide()
        assert decision.arm == run.arms[0, t]
        by_hand.learn(decision, float(paths.rewards[0, t, decision.arm]))
        by_hand.observe(paths.contexts[0, t])


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        (Constant(deviation=0.0), "constant: deviation: expected numbers above 0"),
        (Constant(mean=float("nan")), "constant: mean: expected finite numbers"),
    ],
)
def test_a_forecast_that_makes_no_sense_names_the_candidate(candidate: Constant, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        autopilot(candidate).decide()


def test_names_of_candidates_have_to_differ() -> None:
    with pytest.raises(InvalidInputError, match="candidates: expected names that differ"):
        autopilot(Constant(), Constant())
    with pytest.raises(InvalidInputError, match="candidates: expected names that differ"):
        autopilot(Constant(name="ridge"))


def test_an_autopilot_with_candidates_cannot_be_saved(tmp_path: Any) -> None:
    with pytest.raises(InvalidInputError, match="candidates: an Autopilot with candidates of your own cannot be saved"):
        autopilot(Constant()).save(tmp_path / "policy")
    assert list(tmp_path.iterdir()) == []
