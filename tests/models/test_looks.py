"""Looks again at arms that were left: the schedule against its derivation, the rule against its twin, live use."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import t as student

import undertow
from helpers import id_of, learner_of, models_of, unnamed
from twins.naive_looks import Looks, interval
from undertow import Trajectory, simulate
from undertow.learning.policy import LearningPolicy
from undertow.policies import Autopilot, Decision, LearnedKalman, StructuralKalman

LEARNERS = [LearnedKalman, StructuralKalman, Autopilot]
every_learner = pytest.mark.parametrize("learner", LEARNERS, ids=lambda policy: policy.__name__)


def path_with_a_change(rounds: int = 900, at: int = 400, noise: float = 0.1, seed: int = 0) -> Trajectory:
    """Three arms stand still, and the worst becomes the best."""
    means = np.tile([1.0, 0.5, 0.0], (rounds, 1))
    means[at:, 2] = 1.5
    return Trajectory(None, means + noise * np.random.default_rng(seed).standard_normal(means.shape), means=means)


def play(policy: LearningPolicy, path: Trajectory, first: int, last: int) -> list[Decision]:
    decisions = []
    for t in range(first, last):
        decisions.append(policy.decide())
        policy.learn(decisions[-1], float(path.rewards[t, decisions[-1].arm]))
    return decisions


def odds_of(decision: Decision) -> float:
    assert decision.why is not None
    return decision.why.look


def looking(policy: LearningPolicy, path: Trajectory, **given: Any) -> Decision:
    """Play until a decision is a look, and return it; its reward has not come."""
    for t in range(policy.round, len(path.rewards)):
        decision = policy.decide(**given)
        if odds_of(decision):
            return decision
        policy.learn(decision, float(path.rewards[t, decision.arm]))
    pytest.fail(f"no look in {len(path.rewards)} rounds")


# The derivation


@pytest.mark.parametrize("gap", [0.1, 1.0, 4.0])
def test_what_a_jump_can_win_is_the_mean_of_what_exceeds_the_gap(gap: float) -> None:
    """E(s T₂ − Δ)⁺ by quadrature."""
    scale = 0.7
    won, _ = quad(lambda x: (scale * x - gap) * student.pdf(x, 2), gap / scale, np.inf, limit=200)
    assert (math.sqrt(gap**2 + 2 * scale**2) - gap) / 2 == pytest.approx(won, rel=1e-6)


@pytest.mark.parametrize(("gap", "noise"), [(0.3, 0.04), (1.0, 1.0), (3.0, 0.5)])
def test_looks_are_as_far_apart_as_costs_least(gap: float, noise: float) -> None:
    """By search: a look costs n Δ, and what is missed h G L / 2 per round, h = 1 / (2 k (t + 300))."""
    scale, k, t = 1.2, 4, 1000
    L = np.geomspace(1.0, 1e5, 200_001)
    plays = 1 + 2 * math.log(4) * noise / (gap + scale) ** 2
    gain = (math.sqrt(gap**2 + 2 * scale**2) - gap) / 2
    cost = plays * gap / L + gain * L / (2 * k * (t + 300)) / 2
    assert interval(gap, noise, scale, k, t) == pytest.approx(L[cost.argmin()], rel=1e-3)


@pytest.mark.parametrize("noise", [0.05, 0.4])
def test_looks_are_those_of_their_twin(noise: float) -> None:
    """A twin that keeps every play chooses the same arms at the same odds, through a change and after."""
    path, policy, twin = path_with_a_change(noise=noise), StructuralKalman(arms=3, rng=0), Looks(3)
    looks = repeats = 0
    for t in range(900):
        own = models_of(policy)[0]
        squares, scored = own.squares.copy(), own.scored.copy()
        decision = policy.decide()
        assert decision.why is not None
        odds = 0.0
        if t >= 6:
            best = int((decision.forecast + decision.width).argmax())
            arm, odds = twin.choose(t, best, decision.forecast, squares, scored) if scored.any() else (best, 0.0)
            assert decision.arm == arm, t
            assert decision.why.look == pytest.approx(odds, rel=1e-6), t
            looks += odds > 0
            repeats += arm in twin.looks
        twin.played(t, decision.arm, odds, decision.forecast, start=t < 6)
        reward = float(path.rewards[t, decision.arm])
        policy.learn(decision, reward)
        twin.learned(decision.arm, reward)
    assert looks > 5
    assert repeats > 1


# What it is for, and what it costs


@every_learner
@pytest.mark.parametrize("contexts", [0, 1], ids=["no contexts", "a context of noise"])
def test_an_arm_that_becomes_the_best_while_nobody_plays_it_is_found(
    learner: type[LearningPolicy], contexts: int
) -> None:
    """Seeds 0 to 4, in all of them; without looks, in none."""
    for seed in range(5):
        path = path_with_a_change(2000, 500, seed=seed)
        if contexts:
            noise = np.random.default_rng(100 + seed).standard_normal((2000, contexts))
            path = Trajectory(noise, path.rewards, means=path.means)
        policy = learner(arms=3, context_dim=contexts, rng=seed)
        assert np.mean(simulate(policy, path).arms[-200:] == 2) > 0.9
        blind = learner(arms=3, context_dim=contexts, looks=False, rng=seed)
        assert np.mean(simulate(blind, path).arms[-200:] == 2) < 0.1


def test_looks_become_rare_where_nothing_moves() -> None:
    """Of order √t rounds: in the second half of 8000, less than a seventieth of them are looks."""
    means = np.tile([1.0, 0.6, 0.2], (8000, 1))
    path = Trajectory(None, means + 0.2 * np.random.default_rng(1).standard_normal(means.shape), means=means)
    arms = simulate(StructuralKalman(arms=3, rng=0), path).arms
    assert 5 < np.sum(arms[4000:] != 0) < 57


@every_learner
def test_looks_can_be_turned_off(learner: type[LearningPolicy]) -> None:
    policy = learner(arms=3, looks=False, rng=0)
    assert not any(odds_of(decision) for decision in play(policy, path_with_a_change(500), 0, 500))
    assert "looks=False" in repr(policy)


@every_learner
def test_live_play_looks_where_a_simulation_does(learner: type[LearningPolicy]) -> None:
    """The same arms, forecasts and widths to the last bit, through looks and the change that one of them finds."""
    path = path_with_a_change(700, 300)
    run = simulate(learner(arms=3, rng=0), path, record=["forecasts", "widths"])
    decisions = play(learner(arms=3, refit="inline", rng=0), path, 0, 700)
    assert run.forecasts is not None
    assert run.widths is not None
    assert [decision.arm for decision in decisions] == run.arms.tolist()
    np.testing.assert_array_equal([decision.forecast for decision in decisions], run.forecasts)
    np.testing.assert_array_equal([decision.width for decision in decisions], run.widths)
    assert sum(odds_of(decision) > 0 for decision in decisions) > 3


def test_what_is_no_boolean_is_refused() -> None:
    with pytest.raises(undertow.InvalidInputError, match="looks: expected True or False, got 3"):
        StructuralKalman(arms=2, looks=3)  # type: ignore[arg-type]


# In live use


def test_a_look_waits_for_its_reward() -> None:
    """Without one, the arm is not played again before another look at it is due."""
    path, policy = path_with_a_change(), StructuralKalman(arms=3, rng=0)
    play(policy, path, 0, 390)
    arms = np.array([policy.decide().arm for _ in range(300)])
    for arm in set(arms[1:]) - {arms[0]}:
        assert np.diff(np.flatnonzero(arms == arm)).min(initial=300) > 20


@pytest.mark.parametrize("delay", [1, 7])
@pytest.mark.parametrize("still", [False, True], ids=["rounds", "one time step"])
def test_a_late_reward_of_a_look_that_surprises_repeats_it(delay: int, still: bool) -> None:
    """The look goes on in the first decision after its reward, also where all of these share one time step."""
    path, policy = path_with_a_change(at=300), StructuralKalman(arms=3, rng=0)
    play(policy, path, 0, 300)
    look = looking(policy, path)
    elapsed = 0 if still else 1
    meanwhile = [policy.decide(elapsed=elapsed) for _ in range(delay)]
    assert look.arm not in [decision.arm for decision in meanwhile]
    policy.learn(look, 5.0)
    again = policy.decide(elapsed=elapsed)
    assert again.arm == look.arm
    assert odds_of(again) > 10 * odds_of(look)


def test_a_look_at_an_arm_that_closes_is_over_and_others_are_as_they_were() -> None:
    path, policy = path_with_a_change(at=300), StructuralKalman(arms=3, rng=0)
    look = looking(policy, path)
    others = [name for a, name in enumerate(policy.names) if a != look.arm]
    policy.learn(look, 5.0)
    assert policy.decide(available=others).name in others
    assert policy.decide().arm == look.arm
    policy.retire_arm(look.name)
    assert all(policy.decide().name in others for _ in range(50))


def test_an_arm_that_joins_leaves_looks_as_they_are() -> None:
    path, policy = path_with_a_change(at=300), Autopilot(arms=3, rng=0)
    look = looking(policy, path)
    policy.add_arm("3")
    policy.learn(look, 5.0)
    own = learner_of(policy).player.own.looks
    assert own.plays[look.arm] == 1
    assert own.excess[look.arm] > 3
    assert own.last[3] == 0


def test_exploration_takes_the_place_of_a_look() -> None:
    """An arm that is drawn in place of the one to look at is no look; all propensities are exact."""
    path, policy = path_with_a_change(), StructuralKalman(arms=3, explore=0.5, rng=0)
    looks = 0
    for t in range(600):
        decision = policy.decide()
        own = learner_of(policy).player
        assert decision.propensity == pytest.approx((0.5 if decision.arm == own.proposed else 0) + 0.5 / 3) or t < 6
        if odds_of(decision):
            looks += 1
            assert decision.arm == own.proposed
        policy.learn(decision, float(path.rewards[t, decision.arm]))
    assert looks < 40


@every_learner
def test_a_policy_saved_within_a_look_continues_it(learner: type[LearningPolicy], tmp_path: Path) -> None:
    path, policy = path_with_a_change(at=300), learner(arms=3, refit="inline", rng=0)
    look = looking(policy, path)
    policy.save(tmp_path / "policy")
    again = undertow.load(tmp_path / "policy")
    assert isinstance(again, learner)
    for twin in (policy, again):
        twin.learn(id_of(twin, look.round), 5.0)
    ours, theirs = (play(twin, path, look.round + 1, look.round + 60) for twin in (policy, again))
    for one, two in zip(ours, theirs, strict=True):
        assert unnamed(one) == unnamed(two)


def test_a_warm_start_knows_when_arms_were_played_last() -> None:
    policy = StructuralKalman(arms=3, rng=0)
    policy.warm_start([0, 1, 1, 2, 0, -1, 0, 1], np.arange(8.0))
    assert learner_of(policy).player.own.looks.last.tolist() == [7, 8, 4]


def test_a_decision_that_is_a_look_says_so_wherever_it_is_shown() -> None:
    look = looking(StructuralKalman(arms=3, rng=0), path_with_a_change())
    again = Decision.from_json(look.to_json())
    assert again.why is not None
    assert again.why.look == odds_of(look) > 0
    assert "A look" in look._repr_html_()
