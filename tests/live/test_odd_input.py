"""What is no array of numbers is refused wherever an array is taken, by the name of the argument."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers import arguments
from undertow import InvalidInputError, LinearGaussianSystem, Trajectory, kalman, make, paper_system, simulate
from undertow.ridge import NestedRidge
from undertow.window import ContextRing, context_window, window_bias

SYSTEM = paper_system(1)
PATH = SYSTEM.sample(5, rng=0)
ODD = {
    "ragged": [[1, 2], [3]],
    "text": "abc",
    "texts": ["a", "b"],
    "complex": [1j, 2.0],
    "dates": np.array(["2020-01-01"], dtype="datetime64[D]"),
    "objects": np.array([object()], dtype=object),
    "one object": object(),
    "dictionary": {"a": 1},
    "too large": [10**400, 0.5],
}


def policy(**given: Any) -> Any:
    return make("linucb", arms=2, context_dim=1, **given)


def learned(reward: Any) -> None:
    late = policy()
    late.learn(late.decide(), reward)


def observed(context: Any) -> None:
    late = policy()
    late.decide()
    late.observe(context)


def system(**given: Any) -> LinearGaussianSystem:
    return LinearGaussianSystem(**arguments() | given)


def path(**given: Any) -> Trajectory:
    return Trajectory(**{"rewards": np.ones((2, 2))} | given)


def with_argument(call: Callable[..., object], name: str) -> Callable[[Any], object]:
    return lambda value: call(**{name: value})


CALLS: dict[str, Callable[[Any], object]] = {
    **{f"{name} of a system": with_argument(system, name) for name in arguments()},
    **{
        f"{name} of a trajectory": with_argument(path, name)
        for name in ("contexts", "rewards", "means", "features", "states")
    },
    "arms that were played": PATH.played,
    "arms of a regret": PATH.regret,
    "runs of a sample": lambda x: SYSTEM.sample(5, runs=x),
    "contexts of a filter": lambda x: kalman.filter(SYSTEM, x),
    "rewards of a filter": lambda x: kalman.filter(SYSTEM, None, x),
    "context of a condition": lambda x: kalman.condition(kalman.initial_belief(SYSTEM), SYSTEM, x),
    "rewards of a condition": lambda x: kalman.condition(kalman.initial_belief(SYSTEM), SYSTEM, None, x),
    "belief.mean of a prediction": lambda x: kalman.predict(kalman.Belief(x, np.eye(5)), SYSTEM),
    "belief.covariance of a prediction": lambda x: kalman.predict(kalman.Belief(np.zeros(5), x), SYSTEM),
    "arms of a steady state": lambda x: kalman.steady_state(SYSTEM, x),
    "predicted_mean of a window": lambda x: window_bias(SYSTEM, x, 2),
    "contexts of a window": lambda x: context_window(x, 1, 1),
    "context of a ring": lambda x: ContextRing(2, 1).push(x),
    "inputs of a ridge": lambda x: NestedRidge(1, 2).update(x, 1.0),
    "target of a ridge": lambda x: NestedRidge(1, 2).update([1, 2, 3], x),
    "reward of a policy": learned,
    "context of a policy": observed,
    "features of a policy": lambda x: policy(feature_dim=1).decide(x),
    "contexts of a skip": lambda x: policy().skip(1, x),
    "runs of a simulation": lambda x: simulate(policy(), PATH, runs=x),
    "record of a simulation": lambda x: simulate(policy(), PATH, record=x),
    "name of a policy": lambda x: make(x, arms=2),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("what", CALLS)
def test_what_is_no_array_is_named(what: str, odd: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^{what.split()[0]}: "):
        CALLS[what](ODD[odd])


def test_what_is_masked_is_missing() -> None:
    """Files of measurements give masked arrays, with anything behind the mask."""
    masked = np.ma.array([[1.0], [9.96921e36]], mask=[[False], [True]])
    np.testing.assert_array_equal(Trajectory(masked, [[0, 1], [1, 0]]).contexts, [[1.0], [math.nan]])
    np.testing.assert_array_equal(Trajectory(None, masked).rewards, [[1.0], [math.nan]])
    with pytest.raises(InvalidInputError, match="reward: expected finite numbers, got nan"):
        learned(np.ma.masked)
