"""The adapters against the packages that they are for: the numbers are those of a policy that is driven by hand."""

import copy
import importlib
import math
import pickle
import random
import re
import sys
from collections.abc import Iterator
from typing import Any

import coba
import gymnasium
import numpy as np
import numpy.typing as npt
import optuna
import pytest
from coba.primitives import Categorical, Environment, SimulatedInteraction
from river import bandit

from helpers import full_system
from undertow import InvalidInputError, Trajectory, UnknownDecisionError, paper_system, simulate
from undertow.adapters.coba import CobaLearner
from undertow.adapters.optuna import UndertowSampler
from undertow.adapters.river import ContextualRiverPolicy, ObservedReward, RewardsWithContexts, RiverPolicy
from undertow.gym import ID
from undertow.policies import ARES, UCB, Autopilot, KalmanGreedy, LinTS, LinUCB, LivePolicy, Random

optuna.logging.set_verbosity(optuna.logging.ERROR)

# river


def episode_seeds(seed: int, episodes: int) -> list[int]:
    """The seeds that river.bandit.evaluate gives to an environment, which draws one more for the action space."""
    rng = random.Random(seed)
    return [(rng.randint(0, 2**32), rng.randint(0, 2**32 - 1))[0] for _ in range(episodes)]


def test_evaluate_on_an_environment_of_river() -> None:
    policies: list[LivePolicy] = [
        UCB(arms=4),
        LinUCB(arms=4, reward_lags=2),
        LinTS(arms=4, reward_lags=1, rng=7),
        Autopilot(arms=4, rng=0),
    ]
    env = gymnasium.make("river_bandits/KArmedTestbed-v0", k=4, max_episode_steps=60)
    trace = list(bandit.evaluate([RiverPolicy(policy) for policy in policies], env, n_episodes=2, seed=5))
    assert len(trace) == 4 * 2 * 60
    for episode, seed in enumerate(episode_seeds(5, 2)):
        for number, policy in enumerate(policies):
            player, total = copy.deepcopy(policy), 0.0
            env.reset(seed=seed)
            for step in (s for s in trace if (s["episode"], s["policy_idx"]) == (episode, number)):
                decision = player.decide()
                reward = float(env.step(decision.arm)[1])
                player.learn(decision, reward)
                total += reward
                assert (step["arm"], step["reward"]) == (decision.arm, reward)
            assert step["reward_stat"] == pytest.approx(total)
    assert all(policy.parts.unused for policy in policies)


@pytest.mark.parametrize("context_first", [False, True])
def test_evaluate_with_contexts(context_first: bool) -> None:
    system = full_system(k=3)
    policies: list[LivePolicy] = [
        ARES(arms=3, context_dim=2, context_first=context_first),
        LinUCB(arms=3, context_dim=2, context_first=context_first, window=3, reward_lags=2),
        Autopilot(arms=3, context_dim=2, context_first=context_first, rng=0),
    ]
    env = RewardsWithContexts(gymnasium.make(ID, system=system, rounds=70, context_first=context_first))
    trace = list(bandit.evaluate([RiverPolicy(policy) for policy in policies], env, n_episodes=2, seed=1))
    for episode, seed in enumerate(episode_seeds(1, 2)):
        path = system.sample(70, rng=seed)
        if context_first:  # evaluate drops what reset returned: the first context is missing
            contexts = np.vstack([[math.nan, math.nan], path.contexts[1:]])
            path = Trajectory(contexts, path.rewards, means=path.means)
        for number, policy in enumerate(policies):
            run = simulate(policy, path)
            steps = [s for s in trace if (s["episode"], s["policy_idx"]) == (episode, number)]
            assert [s["arm"] for s in steps] == run.arms.tolist()
            assert [s["reward"] for s in steps] == run.rewards.tolist()


def logged_rounds(seed: int, rounds: int) -> Iterator[tuple[list[Any], Any, str, float]]:
    """A log of somebody who drew among the arms that there were."""
    rng = np.random.default_rng(seed)
    for t in range(rounds):
        arms: list[Any] = ["C", "A", "B"] if t % 3 else ["B", "C"]
        context = {"load": float(rng.normal()), "weekend": bool(t % 7 > 4), "note": "ignored"}
        if t % 5 == 4:
            del context["load"]
        yield arms, context, str(rng.choice(arms)), float(rng.normal())


@pytest.mark.parametrize("policy", [LinUCB, Autopilot])
def test_evaluate_offline_with_contexts_features_and_arms_that_come_and_go(policy: type[LinUCB]) -> None:
    built = policy(arms=["A", "B", "C"], context_dim=1, context_first=True, feature_dim=1, rng=0)
    adapter = ContextualRiverPolicy(built, contexts=["load"], features=["weekend"])
    total, used = bandit.evaluate_offline(adapter, logged_rounds(3, 150))
    player, rewards = copy.deepcopy(built), []
    for arms, context, arm, reward in logged_rounds(3, 150):
        player.observe([context.get("load", math.nan)])
        decision = player.decide([context["weekend"]], available=arms)
        if decision.name == arm:
            player.learn(decision, reward)
            rewards.append(reward)
    assert used == len(rewards) > 30
    assert total.get() == pytest.approx(sum(rewards))
    assert built.parts.unused


def test_evaluate_offline_without_contexts_counts_every_pull_as_a_round() -> None:
    built = LinUCB(arms=3, context_dim=1, reward_lags=1)
    history: list[tuple[list[Any], Any, str, float]] = [
        (arms[::-1], None, arm, ObservedReward(reward, [0.5])) for arms, _, arm, reward in logged_rounds(4, 90)
    ]
    total, used = bandit.evaluate_offline(RiverPolicy(built, arms=["A", "B", "C"]), iter(history))
    player, rewards = copy.deepcopy(built), []
    for arms, _, arm, reward in history:
        decision = player.decide(available=["ABC".index(name) for name in arms])
        played = "ABC"[decision.arm] == arm
        if played:
            player.learn(decision, reward)
            rewards.append(reward)
        player.observe([0.5] if played else None)
    assert used == len(rewards) > 20
    assert total.get() == pytest.approx(sum(rewards))


def test_clones_begin_again_and_copies_go_on() -> None:
    adapter = RiverPolicy(Random(arms=["a", "b", "c"], rng=1))
    pulls = [adapter.pull(["a", "b", "c"]) for _ in range(20)]
    twin = pickle.loads(pickle.dumps(copy.deepcopy(adapter)))
    clone = adapter.clone()
    assert [clone.pull(["a", "b", "c"]) for _ in range(20)] == pulls
    assert [twin.pull(["a", "b", "c"]) for _ in range(20)] == [adapter.pull(["a", "b", "c"]) for _ in range(20)]
    contextual = ContextualRiverPolicy(LinUCB(arms=2, feature_dim=2), features=["x", "y"], arms=[10, 20])
    assert contextual.clone().pull([20, 10], {"y": 1.0, "x": 2.0}) in (10, 20)


def test_a_reward_goes_to_the_last_pull_of_its_arm() -> None:
    adapter, player = RiverPolicy(UCB(arms=["a", "b"])), UCB(arms=["a", "b"])
    first, second = adapter.pull(["a", "b"]), adapter.pull(["a", "b"])
    decisions = player.decide(), player.decide()
    assert (first, second) == tuple(decision.name for decision in decisions)
    adapter.update(second, 2.0)
    adapter.update(first, -1.0)
    player.learn(decisions[1], 2.0)
    player.learn(decisions[0], -1.0)
    assert [adapter.pull(["a", "b"]) for _ in range(3)] == [player.decide().name for _ in range(3)]
    assert adapter.ranking == [second, first]


def test_a_late_reward_brings_no_context_for_another_round() -> None:
    built = KalmanGreedy(paper_system(psi=1), arms=["a", "b"])
    adapter, player = RiverPolicy(built), copy.deepcopy(built)
    first, second = adapter.pull(["a"]), adapter.pull(["b"])
    adapter.update(first, ObservedReward(1.0, [9.0]))
    adapter.update(second, ObservedReward(-1.0, [0.5]))
    late = player.decide(available=["a"])
    player.observe(None)
    decision = player.decide(available=["b"])
    player.learn(late, 1.0)
    player.learn(decision, -1.0)
    player.observe([0.5])
    np.testing.assert_array_equal(adapter._player.forecast().forecast, player.forecast().forecast)  # noqa: SLF001


# coba


class Recorded(Environment):  # type: ignore[misc]
    """A trajectory as an environment of coba."""

    def __init__(self, path: Trajectory, actions: list[Any], *, as_dict: bool = False) -> None:
        self.path, self.actions, self.as_dict = path, actions, as_dict

    def read(self) -> Iterator[SimulatedInteraction]:
        for t in range(self.path.rounds):
            row = np.concatenate([self.path.contexts[t], self.path.features[t]]).tolist()
            context = {f"x{i}": value for i, value in enumerate(row) if value} if self.as_dict else tuple(row)
            yield SimulatedInteraction(context if row else None, self.actions, self.path.rewards[t].tolist())


def results(environments: Any, learners: list[CobaLearner], **options: Any) -> list[list[dict[str, Any]]]:
    """What an experiment recorded, one list for each environment and learner; coba rounds rewards to five digits."""
    table = coba.Experiment(environments, learners).run(quiet=True, **options).interactions
    rows = [dict(zip(table.columns, row, strict=True)) for row in table]
    pairs = sorted({(row["environment_id"], row["learner_id"]) for row in rows})
    return [[row for row in rows if (row["environment_id"], row["learner_id"]) == pair] for pair in pairs]


def test_an_experiment_of_coba_on_trajectories() -> None:
    system = full_system(k=3)
    paths = system.sample(120, rng=2, runs=2)
    policies: list[LivePolicy] = [
        LinUCB(arms=3, context_dim=2, context_first=True, window=2, reward_lags=1),
        ARES(arms=["l", "m", "r"], context_dim=2, context_first=True),
        Autopilot(arms=3, context_dim=2, context_first=True, rng=0),
    ]
    environments = [Recorded(paths.run(number), ["l", "m", "r"]) for number in range(2)]
    recorded = results(environments, [CobaLearner(policy) for policy in policies])
    assert len(recorded) == 6
    for place, rows in enumerate(recorded):
        run = simulate(policies[place % 3], paths.run(place // 3))
        assert [row["action"] for row in rows] == ["lmr"[arm] for arm in run.arms]
        np.testing.assert_allclose([row["reward"] for row in rows], run.rewards, atol=5.1e-6)
        if place % 3 < 2:  # Autopilot draws the order of its first arms
            assert {row["probability"] for row in rows} == {1}


@pytest.mark.parametrize("as_dict", [False, True])
@pytest.mark.parametrize("kind", ["numbers", "categories", "vectors"])
def test_contexts_and_actions_of_every_kind(kind: str, as_dict: bool) -> None:
    actions: dict[str, list[Any]] = {
        "numbers": [0, 1, 2],
        "categories": [Categorical(name, ["x", "y", "z"]) for name in "xyz"],
        "vectors": [[1.0, 2.0], [0.0, 1.0], [3.0, 3.0]],
    }
    rng = np.random.default_rng(0)
    path = Trajectory(rng.normal(size=(80, 2)), rng.normal(size=(80, 3)), features=rng.integers(0, 2, size=(80, 1)))
    policy = LinUCB(arms=3, context_dim=2, context_first=True, feature_dim=1, window=2)
    entries: dict[str, Any] = {"contexts": [0, 1], "features": [2]}
    if as_dict:
        entries = {"contexts": ["x0", "x1"], "features": ["x2"]}
    (rows,) = results(Recorded(path, actions[kind], as_dict=as_dict), [CobaLearner(policy, **entries)])
    np.testing.assert_allclose([row["reward"] for row in rows], simulate(policy, path).rewards, atol=5.1e-6)


def test_no_context_and_a_number_for_a_context() -> None:
    rng = np.random.default_rng(1)
    path = Trajectory(None, rng.normal(size=(60, 2)))
    (rows,) = results(Recorded(path, ["a", "b"]), [CobaLearner(UCB(arms=2))])
    np.testing.assert_allclose([row["reward"] for row in rows], simulate(UCB(arms=2), path).rewards, atol=5.1e-6)
    lonely = CobaLearner(LinUCB(arms=2, feature_dim=1))
    assert lonely.predict(0.5, ["a", "b"])[0] in ("a", "b")


def test_probabilities_are_those_of_the_decisions() -> None:
    path = Trajectory(None, np.random.default_rng(2).normal(size=(300, 4)))
    policies: list[LivePolicy] = [UCB(arms=4, explore=0.2, rng=3), Random(arms=4, rng=3)]
    recorded = results(Recorded(path, list("abcd")), [CobaLearner(policy) for policy in policies])
    player = copy.deepcopy(policies[0])
    for row in recorded[0]:
        decision = player.decide()
        player.learn(decision, path.rewards[row["index"] - 1, decision.arm])
        assert row["probability"] == pytest.approx(decision.propensity)
    assert {round(row["probability"], 6) for row in recorded[0]} == {0.05, 0.85}
    assert {row["probability"] for row in recorded[1]} == {0.25}


def test_batches_and_actions_that_come_and_go() -> None:
    rng = np.random.default_rng(3)
    sets = [["a", "b", "c"] if t % 3 else ["c", "a"] for t in range(60)]
    rewards = [dict(zip(arms, rng.normal(size=len(arms)).tolist(), strict=True)) for arms in sets]
    environment = coba.Environments.from_lambda(60, lambda t: None, lambda t, c: sets[t], lambda t, c, a: rewards[t][a])
    policy = LinUCB(arms=3, reward_lags=2)
    (rows,) = results(environment.batch(4), [CobaLearner(policy, actions=["a", "b", "c"])])
    player, expected = copy.deepcopy(policy), []
    for start in range(0, 60, 4):
        block = range(start, start + 4)
        decisions = [player.decide(available=["abc".index(arm) for arm in sets[t]]) for t in block]
        for t, decision in zip(block, decisions, strict=True):
            expected.append("abc"[decision.arm])
            player.learn(decision, rewards[t][expected[-1]])
    assert [row["action"] for row in rows] == expected


def test_a_learner_can_be_sent_to_another_process() -> None:
    learner = CobaLearner(Autopilot(arms=["a", "b"], feature_dim=1, rng=0))
    rng = np.random.default_rng(0)

    def play(player: CobaLearner, values: Any) -> list[str]:
        played = []
        for x in values:
            action, probability, decision = player.predict((x,), ["b", "a"])
            player.learn((x,), action, x if action == "a" else 0.1, probability, **decision)
            played.append(action)
        return played

    play(learner, rng.normal(size=30))
    twin, rest = pickle.loads(pickle.dumps(learner)), rng.normal(size=30)
    assert play(twin, rest) == play(learner, rest)
    assert learner.params["family"] == "Autopilot"
    assert learner.params["feature_dim"] == 1


# What is refused


@pytest.mark.parametrize(
    ("module", "extra"),
    [("gym", "gym"), ("adapters.river", "river"), ("adapters.coba", "coba"), ("adapters.optuna", "optuna")],
)
def test_what_is_not_installed_is_named(module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.split(".")[0] in ("gymnasium", "river", "coba", "optuna")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"undertow.{module}")
    with pytest.raises(ModuleNotFoundError, match=re.escape(f"pip install 'undertow[{extra}]'")):
        importlib.import_module(f"undertow.{module}")


def pulled(policy: Any) -> Any:
    policy.pull(["a", "b"])
    return policy


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: RiverPolicy("ucb"), "policy: expected a policy of undertow"),  # type: ignore[arg-type]
        (lambda: RiverPolicy(UCB(arms=2), arms=["a"]), "arms: expected 2"),
        (lambda: RiverPolicy(UCB(arms=2)).pull([1, 2, 3]), "but not 3"),
        (lambda: RiverPolicy(UCB(arms=["x", "y"])).pull(["x", "z"]), "but not 'z'"),
        (lambda: RiverPolicy(UCB(arms=["x", "y"])).update("x", 1.0), "no pull of 'x' is pending"),
        (lambda: pulled(RiverPolicy(ARES(arms=2, context_dim=1))).update("a", 1.0), "RewardsWithContexts"),
        (lambda: ContextualRiverPolicy(LinUCB(arms=2, feature_dim=2), features=["x"]), "features: expected 2 entries"),
        (lambda: ContextualRiverPolicy(ARES(arms=2, context_dim=1), contexts=["x"]), "context_first=True"),
        (
            lambda: ContextualRiverPolicy(LinUCB(arms=2, feature_dim=1), features=["x"]).pull([0, 1], {"y": 1}),
            "features: the context has no 'x'; it has 'y'",
        ),
        (lambda: CobaLearner(LinUCB(arms=2, feature_dim=2)).predict({"x": 1}, [0, 1]), "features: expected the keys"),
        (lambda: CobaLearner(LinUCB(arms=2, feature_dim=2)).predict((1,), [0, 1]), r"features: expected shape \(2,\)"),
        (lambda: CobaLearner(LinUCB(arms=2, feature_dim=1), features=[3]).predict((1,), [0, 1]), "at least 4 entries"),
        (
            lambda: CobaLearner(LinUCB(arms=2, feature_dim=1, context_dim=1, context_first=True)),
            "contexts, features: this policy takes both",
        ),
        (lambda: CobaLearner(UCB(arms=2)).learn(None, "a", 1.0, 0.5), "learns from its own decisions"),
    ],
)
def test_what_cannot_be_is_refused_by_name(attempt: Any, message: str) -> None:
    with pytest.raises((InvalidInputError, UnknownDecisionError), match=message):
        attempt()


def test_after_a_refusal_everything_is_as_it_was() -> None:
    built = LinUCB(arms=["a", "b"], context_dim=1, context_first=True, feature_dim=1)
    adapters = [ContextualRiverPolicy(built, contexts=["c"], features=["f"]) for _ in range(2)]
    shown = {"c": 1.0, "f": 2.0}
    refused: list[tuple[list[Any], Any]]
    refused = [(["a", "z"], shown), (["a", "b"], {"c": 1.0}), (["a", "b"], {"c": "x", "f": 1.0})]
    for arms, context in refused:
        with pytest.raises(InvalidInputError):
            adapters[0].pull(arms, context)
    for adapter in adapters:
        arm = adapter.pull(["a", "b"], shown)
        with pytest.raises(InvalidInputError, match="reward"):
            adapter.update(arm, shown, math.nan)
        adapter.update(arm, shown, 1.0)
    assert adapters[0].pull(["a", "b"], shown) == adapters[1].pull(["a", "b"], shown)


def test_contexts_without_a_row_are_missing() -> None:
    system = paper_system(psi=1)
    path = system.sample(50, rng=0)
    holes = np.where(np.arange(50)[:, None] % 4 == 0, math.nan, path.contexts)
    policy = LinUCB(arms=2, context_dim=1, context_first=True, window=2)
    learner, played = CobaLearner(policy), []
    for t in range(50):
        context = None if math.isnan(holes[t, 0]) else holes[t].tolist()
        action, probability, decision = learner.predict(context, [0, 1])
        learner.learn(context, action, path.rewards[t, action], probability, **decision)
        played.append(action)
    assert played == simulate(policy, Trajectory(holes, path.rewards)).arms.tolist()


# optuna


def drifting(values: npt.NDArray[np.float64]) -> Any:
    """An objective that drifts from trial to trial."""
    return lambda trial: values[trial.number, "abc".index(trial.suggest_categorical("way", ["a", "b", "c"]))]


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_a_study_of_optuna_makes_the_choices_of_the_policy_by_hand(direction: Any) -> None:
    values = np.cumsum(np.random.default_rng(0).normal(size=(60, 3)), axis=0)
    study = optuna.create_study(sampler=UndertowSampler("autopilot", seed=3, explore=0.1), direction=direction)
    study.optimize(drifting(values), n_trials=60)
    player = Autopilot(arms=3, minimize=direction == "minimize", explore=0.1, rng=3)
    for trial in study.trials:
        decision = player.decide()
        player.learn(decision, values[trial.number, decision.arm])
        assert trial.params["way"] == "abc"[decision.arm]
        assert trial.value == values[trial.number, decision.arm]


def test_a_sampler_follows_a_drift_that_a_search_does_not() -> None:
    values = np.where(np.arange(400)[:, None] < 200, [1.0, 2.0, 3.0], [3.0, 2.0, 1.0])
    sampler = UndertowSampler("discounted-ucb", seed=0, discount=0.95)
    study = optuna.create_study(sampler=sampler)
    study.optimize(drifting(values), n_trials=400)
    assert np.mean([trial.value for trial in study.trials[300:]]) < 1.3


def test_other_parameters_failures_and_pruned_trials() -> None:
    def objective(trial: optuna.Trial) -> float:
        way, other = trial.suggest_categorical("way", [None, 2.5]), trial.suggest_categorical("other", [True, False])
        x = trial.suggest_float("x", 0.0, 1.0)
        if trial.number % 5 == 1:
            raise optuna.TrialPruned
        if trial.number % 5 == 2:
            raise RuntimeError("no value")
        return math.inf if trial.number % 5 == 3 else x + (way is None) + other

    sampler = UndertowSampler("ucb", seed=0)
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=60, catch=RuntimeError)
    assert len({trial.params["x"] for trial in study.trials}) == 60
    policies = [sampler.policy(study, name) for name in ("way", "other")]
    assert [policy.round for policy in policies if policy] == [60, 60]
    assert [policy.pending for policy in policies if policy] == [36, 36]
    assert [trial.params["way"] for trial in study.trials[-20:]].count(2.5) > 10
    assert sampler.policy(study, "x") is None


def test_a_sampler_in_threads_and_in_a_pickle() -> None:
    sampler = UndertowSampler("ucb", seed=0)
    study = optuna.create_study(sampler=sampler)
    values = np.tile([3.0, 1.0, 2.0], (200, 1))
    study.optimize(drifting(values), n_trials=100, n_jobs=4)
    policy = sampler.policy(study, "way")
    assert policy is not None
    assert (policy.round, policy.pending) == (100, 0)
    study.sampler = pickle.loads(pickle.dumps(sampler))
    study.optimize(drifting(values), n_trials=20)
    assert [trial.params["way"] for trial in study.trials[100:]].count("b") > 10
    assert policy.round == 100


def test_what_a_sampler_refuses() -> None:
    with pytest.raises(InvalidInputError, match="no policy is called 'nobody'"):
        UndertowSampler("nobody")
    with pytest.raises(InvalidInputError, match="arms: this follows from the study"):
        UndertowSampler(arms=3)
    with pytest.raises(InvalidInputError, match="others: expected a sampler of Optuna"):
        UndertowSampler("ucb", others=3)  # type: ignore[arg-type]
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=UndertowSampler("ucb"))
    with pytest.raises(InvalidInputError, match="study: expected one objective, got 2"):
        study.optimize(lambda trial: (trial.suggest_categorical("way", [1, 2]), 0), n_trials=1)
