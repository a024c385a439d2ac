import copy
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from helpers import arguments, full_system, make_policy
from undertow import InvalidInputError, LinearGaussianSystem, OutOfTurnError, random_system, simulate
from undertow.gym import ID, LinearGaussianBandit
from undertow.policies import LivePolicy

UNSTABLE = {"state_dim": 3, "context_dim": 2, "arm_count": 4, "spectral_radius": 1.02}
SYSTEMS: dict[str, Any] = {
    "psi": 2.0,
    "full": full_system(),
    "no contexts": {"state_dim": 2, "context_dim": 0, "arm_count": 3},
    "one arm": {"state_dim": 1, "context_dim": 3, "arm_count": 1, "rng": 5, "drift": True},
    "unstable": UNSTABLE,
    "wide start": LinearGaussianSystem(
        **(arguments() | {"dynamics": np.eye(3) / 2, "initial_covariance": 1000 * np.eye(3)})
    ),
}


def make(**options: Any) -> LinearGaussianBandit:
    env = gymnasium.make(ID, **options).unwrapped
    assert isinstance(env, LinearGaussianBandit)
    return env


@pytest.mark.parametrize("context_first", [False, True])
@pytest.mark.parametrize("name", SYSTEMS)
def test_gymnasium_finds_nothing_to_say(name: str, context_first: bool) -> None:
    check_env(make(system=SYSTEMS[name], rounds=200, context_first=context_first))  # a warning is an error here


def test_gymnasium_can_import_us_by_itself() -> None:
    program = f"import gymnasium; print(gymnasium.make('undertow.gym:{ID}', rounds=7).unwrapped.rounds)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "7"


def runs_in_python(env: LinearGaussianBandit, policy: LivePolicy, context: Any, context_first: bool) -> dict[str, Any]:
    """Play an episode as a user would write it, and return what was seen of it."""
    arms, rewards, regrets, over = [], [], [], False
    while not over:
        if context_first:
            policy.observe(context)
        decision = policy.decide()
        context, reward, terminated, over, info = env.step(np.int64(decision.arm))
        policy.learn(decision, reward)
        if not context_first:
            policy.observe(context)
        assert not terminated
        arms.append(decision.arm)
        rewards.append(reward)
        regrets.append(info["regret"])
    return {"arms": arms, "rewards": rewards, "regret": regrets}


@pytest.mark.parametrize("context_first", [False, True])
@pytest.mark.parametrize("name", ["linucb", "ares", "kalman-greedy", "lints"])
def test_episodes_are_the_runs_of_a_sampled_trajectory(name: str, context_first: bool) -> None:
    system = full_system(k=3)
    policy = make_policy(name, system, context_first=context_first, rng=3)
    run = simulate(policy, system.sample(150, rng=11, runs=3))
    env = make(system=system, rounds=150, context_first=context_first)
    for episode in range(3):
        context, _ = env.reset(seed=11 if episode == 0 else None)
        seen = runs_in_python(env, policy.parts.for_run(episode), context, context_first)
        for part, values in seen.items():
            np.testing.assert_array_equal(values, getattr(run, part)[episode])


@pytest.mark.parametrize("context_first", [False, True])
def test_observations_are_the_contexts_in_their_order(context_first: bool) -> None:
    system, n = full_system(), 40
    path = system.sample(n + 1, rng=4)
    env = make(system=system, rounds=n, context_first=context_first)
    first, info = env.reset(seed=4)
    assert info == {}
    steps = [env.step(np.int64(0)) for _ in range(n)]
    seen = np.array([step[0] for step in steps])
    np.testing.assert_array_equal(seen, path.contexts[1:] if context_first else path.contexts[:-1])
    expected = system.context_map @ system.initial_mean + system.context_offset
    np.testing.assert_array_equal(first, path.contexts[0] if context_first else expected)
    assert path.means is not None
    assert [step[4]["best_arm"] for step in steps] == path.means[:-1].argmax(axis=1).tolist()
    assert [step[3] for step in steps] == [False] * (n - 1) + [True]


def test_every_way_to_name_a_system() -> None:
    system = random_system(3, 2, 4, rng=0, spectral_radius=1.02)
    assert make(system=UNSTABLE, rounds=10).system == system
    assert make(system=system, rounds=10).system is not None
    assert make(system=UNSTABLE | {"rng": 1}, rounds=10).system == random_system(3, 2, 4, rng=1, spectral_radius=1.02)
    assert make().system == make(system=1).system != make(system=2).system


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_vector_of_environments(mode: Any) -> None:
    system = full_system()
    envs = gymnasium.make_vec(ID, 3, vectorization_mode=mode, system=system, rounds=5)
    contexts, _ = envs.reset(seed=20)
    assert contexts.shape == (3, 2)
    regret = np.zeros(3)
    for t in range(5):
        contexts, rewards, _, truncated, info = envs.step(np.array([0, 1, 0]))
        for number, arm in enumerate([0, 1, 0]):
            path = system.sample(5, rng=20 + number)
            np.testing.assert_array_equal(contexts[number], path.contexts[t])
            assert rewards[number] == path.rewards[t, arm]
            regret[number] = path.regret([arm] * 5)[t]
        np.testing.assert_array_equal(info["regret"], regret)
        assert truncated.all() == (t == 4)
    envs.close()


def test_without_a_seed_episodes_differ_and_a_copy_goes_on_alike() -> None:
    env = make(rounds=10)
    env.reset()
    first = [env.step(np.int64(0))[1] for _ in range(10)]
    env.reset()
    for _ in range(4):
        env.step(np.int64(1))
    twin = copy.deepcopy(env)
    rest, twins = ([e.step(np.int64(0))[1] for _ in range(6)] for e in (env, twin))
    assert rest == twins
    assert rest != first[4:]
    np.testing.assert_array_equal(env.reset()[0], twin.reset()[0])
    assert env.step(np.int64(0))[1] == twin.step(np.int64(0))[1]


@pytest.mark.parametrize(("name", "widest"), [("psi", 0), ("psi", 30), ("wide start", 0), ("unstable", 30)])
def test_the_box_is_twenty_standard_deviations_wide(name: str, widest: int) -> None:
    # 4000 contexts of the widest round, seed 0: the error of their standard deviation is 1.1 %, five of them are 5.6 %
    env = make(system=SYSTEMS[name], rounds=30)
    contexts = env.system.sample(1, burn_in=widest, rng=0, runs=4000).contexts[:, 0]
    box = env.observation_space
    assert isinstance(box, gymnasium.spaces.Box)
    for reach in (box.high - contexts.mean(axis=0), contexts.mean(axis=0) - box.low):
        np.testing.assert_allclose(reach, 20 * contexts.std(axis=0), rtol=0.056)
    assert np.isfinite(box.sample()).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "rounds: expected at least 1"),
        ({"system": "paper"}, "system: expected real numbers"),
        ({"system": {"states": 3}}, "system: expected the arguments of random_system"),
        ({"system": UNSTABLE, "rounds": 100_000}, "rounds: within 100000 rounds the state"),
        ({"context_first": 1}, "context_first: expected True or False"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        LinearGaussianBandit(**options)


def test_wrong_calls_change_nothing() -> None:
    env = make(rounds=2)
    with pytest.raises(OutOfTurnError, match="call reset"):
        env.step(np.int64(0))
    env.reset(seed=0)
    for action in (2, -1, 0.5):
        with pytest.raises(InvalidInputError, match="action"):
            env.step(action)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="options"):
        env.reset(options={"psi": 2})
    path = env.system.sample(2, rng=0)
    assert [env.step(np.int64(1))[1] for _ in range(2)] == path.rewards[:, 1].tolist()
    with pytest.raises(OutOfTurnError, match="call reset"):
        env.step(np.int64(0))
