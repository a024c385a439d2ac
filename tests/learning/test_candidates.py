import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow
from helpers import Array, Constant, everything, fit_next, unnamed
from undertow import InvalidInputError, paper_system, simulate
from undertow.learning.candidate import WithCandidates
from undertow.live.files import restored, snapshot
from undertow.policies import Autopilot, CandidateForecast, register_candidate


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


@pytest.mark.parametrize("context_first", [False, True])
def test_a_late_reward_is_scored_by_what_the_candidate_said_of_its_round(context_first: bool) -> None:
    """In each round it expects the number of the round, plus or minus 2; rewards come in time, or three rounds late."""

    class Counter(Constant):
        def forecast(self, features: Array) -> CandidateForecast:
            self.mean += 1.0
            return super().forecast(features)

    path, scores = paper_system(1).sample(40, rng=0), []
    for late in (0, 3):
        candidate = Counter(mean=-1.0, deviation=2.0, name="counter")
        policy, decisions = autopilot(candidate, context_first=context_first), []
        fit_next(policy, np.inf)
        for t in range(40 + late):
            if context_first and t < 40:
                policy.observe(path.contexts[t])
            if t < 40:
                decisions.append(policy.decide())
            if t >= late:
                policy.learn(decisions[t - late], t - late + 1.0)  # off by half a deviation
            if not context_first and t < 40:
                policy.observe(path.contexts[t])
        assert [told[0] for told in candidate.told] == list(range(40))
        np.testing.assert_allclose(policy.health().innovations["counter"], 0.5)
        scores.append(policy.models[0].score)
        timeline = policy.parts.timeline
        assert isinstance(timeline, WithCandidates)
        assert timeline.expected == {}
    assert scores[1] == pytest.approx(scores[0], rel=0.1)  # weighted by when the rewards came


def test_a_reward_after_the_next_context_is_scored_too() -> None:
    path, candidate = paper_system(1).sample(41, rng=0), Constant()
    policy = autopilot(candidate, context_first=True)
    policy.observe(path.contexts[0])
    for t in range(40):
        decision = policy.decide()
        policy.observe(path.contexts[t + 1])
        policy.learn(decision, float(path.rewards[t, decision.arm]))
    assert len(policy.health().innovations["constant"]) == 40


def test_a_candidate_that_predicts_badly_does_not_lead_where_rewards_are_late() -> None:
    rng, policy, decisions = np.random.default_rng(0), Autopilot(arms=2, rng=0, candidates=[Constant(-1e6, 1.0)]), []
    for t in range(60):
        decisions.append(policy.decide())
        if t:
            policy.learn(decisions[t - 1], 1000.0 * decisions[t - 1].arm + 100.0 * rng.standard_normal())
    assert "constant" not in {decision.why.model for decision in decisions if decision.why}
    assert policy.models[-1].name == "constant"


def test_a_candidate_that_fails_leaves_the_policy_as_it_was() -> None:
    class Unreliable(Constant):
        fails = False

        def learn(self, round: int, arm: int, reward: float) -> None:
            if self.fails:
                raise RuntimeError("not now")

        def observe(self, context: Array) -> None:
            self.learn(0, 0, 0.0)

    candidate = Unreliable()
    policy = autopilot(candidate)
    for t in range(8):
        policy.learn(policy.decide(), float(t))
        policy.observe([t % 3])
    decision = policy.decide()
    before, Unreliable.fails = everything(policy), True
    with pytest.raises(RuntimeError, match="not now"):
        policy.learn(decision, 1.0)
    with pytest.raises(RuntimeError, match="not now"):
        policy.observe([1.0])
    Unreliable.fails = False
    assert everything(policy) == before
    policy.learn(decision, 1.0)
    policy.observe([1.0])
    assert policy.pending == 0


def test_a_forecast_asks_the_candidates_and_a_skipped_round_does_not() -> None:
    class Echo(Constant):
        asked = 0

        def forecast(self, features: Array) -> CandidateForecast:
            self.asked += 1
            return CandidateForecast(np.repeat(features, 2), np.zeros(2), np.full(2, 1e-3))

    candidate = Echo()
    policy = Autopilot(arms=2, feature_dim=1, rng=0, candidates=[candidate])
    for t in range(20):
        policy.learn(policy.decide([float(t)]), float(t))
    assert policy.models[0].name == "constant"
    np.testing.assert_array_equal(policy.forecast([7.0]).forecast, [7.0, 7.0])
    asked = candidate.asked
    policy.skip(5)
    assert candidate.asked == asked
    np.testing.assert_array_equal(policy.decide([-3.0]).forecast, [-3.0, -3.0])


@pytest.mark.parametrize("context_first", [False, True])
def test_a_warm_start_leads_the_candidates_through_past_rounds(context_first: bool) -> None:
    path, candidate = paper_system(1).sample(50, rng=0), Constant()
    policy = autopilot(candidate, context_first=context_first)
    arms = np.arange(50) % 3 - 1
    policy.warm_start(arms, path.rewards[np.arange(50), arms], contexts=path.contexts)
    played = [t for t in range(50) if arms[t] >= 0]
    assert candidate.told == [(t, arms[t], path.rewards[t, arms[t]]) for t in played]
    np.testing.assert_array_equal(candidate.seen, path.contexts)
    if context_first:
        policy.observe([0.0])
    policy.decide()
    assert "constant" not in {record.model for record in policy.health().fits}  # it fits itself


@pytest.mark.parametrize("candidates", [None, [1], 3])
def test_what_is_no_candidate_is_refused(candidates: Any) -> None:
    with pytest.raises(InvalidInputError, match="candidates: expected a list of models with name, forecast, learn"):
        Autopilot(arms=2, candidates=candidates)


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
    assert decision.why.lead > 50


def test_simulate_plays_copies_of_the_candidates() -> None:
    paths, candidate = paper_system(1).sample(60, rng=0, runs=2), Constant()
    policy = autopilot(candidate)
    run = simulate(policy, paths)
    assert candidate.told == []
    runs_in_python = autopilot(Constant())
    for t in range(60):
        decision = runs_in_python.decide()
        assert decision.arm == run.arms[0, t]
        runs_in_python.learn(decision, float(paths.rewards[0, t, decision.arm]))
        runs_in_python.observe(paths.contexts[0, t])


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
    with pytest.raises(InvalidInputError, match="candidates: expected different names"):
        autopilot(Constant(), Constant())
    with pytest.raises(InvalidInputError, match="candidates: expected different names"):
        autopilot(Constant(name="ridge"))


# Saved candidates


@register_candidate("follower")
class Follower:
    """Expects the last reward of every arm, a bit of noise beside it."""

    def __init__(self, name: str = "follower") -> None:
        self.name, self.last, self.rng = name, np.zeros(2), np.random.default_rng(7)
        self.seen = math.nan

    def forecast(self, features: Array) -> CandidateForecast:
        return CandidateForecast(self.last + 0.1 * self.rng.standard_normal(2), np.zeros(2), np.ones(2))

    def learn(self, round: int, arm: int, reward: float) -> None:
        self.last[arm] = reward

    def observe(self, context: Array) -> None:
        self.seen = float(context[0])

    def state(self) -> dict[str, Any]:
        drawn = self.rng.bit_generator.state
        return {"name": self.name, "last": self.last.tolist(), "seen": self.seen, "rng": drawn}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Follower":
        follower = cls(state["name"])
        follower.last, follower.seen = np.array(state["last"]), state["seen"]
        follower.rng.bit_generator.state = state["rng"]
        return follower


def play(policy: Any, begin: int, end: int, waiting: dict[int, str]) -> list[str]:
    """Some rounds with contexts that are missing, and rewards that are late or never come."""
    path, decided = paper_system(1).sample(80, rng=0), []
    for t in range(begin, end):
        decision = policy.decide(id=f"round {t}")
        decided.append(unnamed(decision))
        waiting[t] = decision.id
        for then in (t, t - 5):
            if then in waiting and (then % 3 == 0 or then < t) and then % 7:
                policy.learn(waiting.pop(then), float(path.rewards[then].sum()))
        policy.observe(None if t % 11 == 0 else path.contexts[t])
    return decided


def two_followers() -> Autopilot:
    return autopilot(Follower(), Follower("second"), refit="inline")


def test_an_autopilot_whose_candidates_are_registered_is_saved_and_loaded(tmp_path: Path) -> None:
    policy, waiting = two_followers(), dict[int, str]()
    assert play(policy, 0, 25, waiting)
    policy.save(tmp_path / "policy")
    again = undertow.load(tmp_path / "policy")
    assert everything(again) == everything(policy)
    assert play(again, 25, 60, dict(waiting)) == play(policy, 25, 60, waiting)
    assert [model.score for model in again.models] == [model.score for model in policy.models]  # type: ignore[attr-defined]


def test_events_of_an_autopilot_with_candidates_fold_to_the_same() -> None:
    policy, waiting, log = two_followers(), dict[int, str](), list[Any]()
    play(policy, 0, 20, waiting)
    content = policy.to_bytes()
    policy.events(log.append)
    play(policy, 20, 60, waiting)
    again = undertow.fold(content, log)
    assert again.to_bytes() == policy.to_bytes()
    assert play(again, 60, 80, dict(waiting)) == play(policy, 60, 80, waiting)


def test_a_store_keeps_an_autopilot_with_candidates(tmp_path: Path) -> None:
    address, waiting = f"sqlite:///{tmp_path}/bandits.db", dict[int, str]()
    plain, others = two_followers(), dict[int, str]()
    for begin in (0, 20, 40):
        bandit = undertow.open(address, "one", two_followers())
        assert play(bandit, begin, begin + 20, waiting) == play(plain, begin, begin + 20, others)
    with pytest.raises(InvalidInputError, match="candidates: bandit 'one' was created with"):
        undertow.open(address, "one", autopilot(refit="inline"))


def test_candidates_that_cannot_be_saved_say_so(tmp_path: Path) -> None:
    class Odd(Follower):
        pass

    with pytest.raises(InvalidInputError, match="candidates: 'constant' cannot be saved; give its class state"):
        autopilot(Constant()).save(tmp_path / "policy")
    with pytest.raises(InvalidInputError, match="candidates: 'follower' cannot be saved"):  # a class is named itself
        autopilot(Odd()).save(tmp_path / "policy")
    with pytest.raises(InvalidInputError, match="candidate: expected Constant to have state"):
        register_candidate("constant")(Constant)
    with pytest.raises(InvalidInputError, match="name: another class of candidates is registered as 'follower'"):
        register_candidate("follower")(Odd)
    candidate: Any = Follower()
    candidate.state = lambda: {"last": candidate.last}
    with pytest.raises(InvalidInputError, match="candidates: expected states as JSON has them"):
        autopilot(candidate).save(tmp_path / "policy")
    candidate.state = lambda: {"last": "x" * 2**22}
    with pytest.raises(InvalidInputError, match="candidates: expected states of at most"):
        autopilot(candidate).save(tmp_path / "policy")
    assert list(tmp_path.iterdir()) == []


def test_files_whose_candidates_are_others_are_refused() -> None:
    policy, waiting = two_followers(), dict[int, str]()
    play(policy, 0, 12, waiting)
    header, arrays = snapshot(policy)
    entries = header["parameters"]["candidates"]
    for wrong, message in [
        ([entries[0] | {"kind": "unheard of"}], "holds a candidate called 'unheard of', which is not registered here"),
        ([entries[0] | {"kind": 3}], "holds a candidate called 3"),
        ([entries[0] | {"state": {}}], "damaged"),
        (entries[:1], "damaged"),
        (3, "damaged"),
    ]:
        changed = header | {"parameters": header["parameters"] | {"candidates": wrong}}
        with pytest.raises(InvalidInputError, match=f"file: {message}"):
            restored("file", changed, arrays)
    pairs = arrays["expected_rewards"]
    for name, values in [("expected_rewards", -pairs), ("expected_rewards", pairs[:, :1]), ("expected_rounds", pairs)]:
        with pytest.raises(InvalidInputError, match="file: damaged"):
            restored("file", header, arrays | {name: values})
