"""Linear bandits over lagged contexts, features and own rewards: LinUCB, LinTS, and the paper's predecessor PIES."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from undertow import _checks
from undertow._checks import FloatArray
from undertow._kernel import inlined
from undertow._view import view
from undertow.errors import InvalidInputError
from undertow.policies.catalogue import register
from undertow.policies.chances import chance_of_largest
from undertow.policies.contextual import LaggedPolicy, RidgePolicy
from undertow.policies.decision import Claims
from undertow.policies.inputs import (
    Inputs,
    build_inputs,
    inputs_length,
    new_inputs,
    note_reward,
    note_round,
    open_inputs,
    push_context,
)
from undertow.policies.play import compile_kernels
from undertow.policies.scaling import Change, change_inputs, change_regression
from undertow.policies.state import ROUNDS, Shared, new_state, open_shared, private_start
from undertow.ridge import ridge_project, ridge_update

__all__ = ["PIES", "LinTS", "LinUCB"]

_SETTINGS = 4


_AXES = {"chosen": "k", "learned": "k", "u": "kp", "W": "kpp"}


class LinearState(NamedTuple):
    """Views of the state; p inputs."""

    shared: Shared
    inputs: Inputs
    settings: FloatArray  # factor of the width, whether it is drawn, rounds of start-up per arm, frozen
    chosen: FloatArray  # (k,)
    learned: FloatArray  # rewards of each arm, (k,)
    u: FloatArray  # (k, p)
    W: FloatArray  # (k, p, p)
    scratch: FloatArray  # (3, p)


def _linear_state(
    k: int,
    m: int,
    past: FloatArray,
    p: int,
    *,
    ridge: float,
    factor: float,
    drawn: bool = False,
    start_up: int = 0,
    frozen: bool = False,
) -> FloatArray:
    settings = np.array([factor, drawn, start_up, frozen])
    W = np.tile(np.eye(p) / math.sqrt(ridge), (k, 1, 1))
    return new_state(k, m, p, past, settings, np.zeros(2 * k), np.zeros(k * p), W, np.zeros(3 * p))


def _change_linear(policy: "LinUCB | LinTS | PIES", change: Change) -> None:
    """Bring the state of a linear policy into new units."""
    own: LinearState = policy.kernels.open(policy._state)
    change_inputs(own.inputs, change)
    for W, u in zip(own.W, own.u, strict=True):
        change_regression(W, u, policy.ridge, change)


@register("linucb", citation="Li, Chu, Langford and Schapire, WWW 2010")
@dataclass(kw_only=True, eq=False, repr=False)
class LinUCB(LaggedPolicy):
    """Ridge regression for each arm, and a width of `exploration` · √(Θ'V⁻¹Θ).

    Examples
    --------
    >>> policy = LinUCB(arms=2, context_dim=1, feature_dim=2, reward_lags=5)
    >>> policy.learn(policy.decide(features=[0.1, 0.7]), reward=0.3)
    >>> policy.observe([1.2])
    """

    claims: ClassVar[Claims] = Claims(uses_contexts=True, handles_missing_contexts=True, takes_features=True)
    axes: ClassVar[Mapping[str, str]] = _AXES

    def _new_state(self) -> FloatArray:
        past, p = self._inputs()
        return _linear_state(self.arm_count, self._context_dim, past, p, ridge=self.ridge, factor=self.exploration)

    def _change_units(self, change: Change) -> None:
        _change_linear(self, change)


@register("lints", citation="Agrawal and Goyal, ICML 2013")
@dataclass(kw_only=True, eq=False, repr=False)
class LinTS(LaggedPolicy):
    """Linear Thompson sampling: for each arm all weights are drawn together from N(Ĝ, `exploration`² V⁻¹).

    The width is the standard deviation of the drawn forecast.

    Examples
    --------
    >>> policy = LinTS(arms=2, context_dim=1, rng=0)
    >>> policy.learn(policy.decide(), reward=0.3)
    """

    claims: ClassVar[Claims] = Claims(
        uses_contexts=True, handles_missing_contexts=True, takes_features=True, deterministic=False
    )
    axes: ClassVar[Mapping[str, str]] = _AXES

    def _new_state(self) -> FloatArray:
        past, p = self._inputs()
        self._size = p
        return _linear_state(
            self.arm_count, self._context_dim, past, p, ridge=self.ridge, factor=self.exploration, drawn=True
        )

    def _draw(self, rng: np.random.Generator, rounds: int) -> FloatArray:
        return rng.standard_normal((rounds, self.arm_count * self._size))

    def _change_units(self, change: Change) -> None:
        _change_linear(self, change)

    def _chance(self, arm: int) -> float:
        """Return the probability that an arm's drawn forecast is the largest of the open arms'."""
        if self.exploration == 0:  # nothing is drawn
            return LaggedPolicy._chance(self, arm)
        forecast, width, _ = self._stage.record
        open_arms = np.flatnonzero(self._closed == 0)
        if arm not in open_arms:
            return 0.0
        return chance_of_largest(forecast[open_arms], width[open_arms], int(np.searchsorted(open_arms, arm)))


@register("pies", citation="Gornet, Hosseinzadeh and Sinopoli, CDC 2022 (doi 10.1109/CDC51059.2022.9993316)")
@dataclass(kw_only=True, eq=False, repr=False)
class PIES(RidgePolicy):
    """Phased Initial Exploration of the System: each arm for s rounds in turn, then always the largest forecast.

    Parameters
    ----------
    window
        s ≥ 1, how many contexts the forecast uses and how long each arm is tried first.
    ridge
        λ > 0.
    frozen
        Whether learning stops after the first phase. The paper does not say; what it reports fits only a policy that
        goes on learning (A10), which is the default.

    Examples
    --------
    >>> policy = PIES(arms=2, context_dim=1, window=3)
    >>> policy.decide().arm
    0
    """

    claims: ClassVar[Claims] = Claims(uses_contexts=True, handles_missing_contexts=True)
    axes: ClassVar[Mapping[str, str]] = _AXES

    window: int = 10
    ridge: float = 1.0
    frozen: bool = False

    def _new_state(self) -> FloatArray:
        if self._context_dim == 0:
            raise InvalidInputError("context_dim: expected at least 1, since PIES forecasts from contexts, got 0")
        self.window = _checks.integer("window", self.window, least=1)
        self.ridge = _checks.number("ridge", self.ridge, above=0)
        k, m, s = self.arm_count, self._context_dim, self.window
        past = new_inputs(m, s, 0, 0)
        return _linear_state(
            k, m, past, m * s + 1, ridge=self.ridge, factor=0.0, start_up=s, frozen=_checks.flag("frozen", self.frozen)
        )

    def _change_units(self, change: Change) -> None:
        _change_linear(self, change)


@inlined
def open_linear(state: FloatArray) -> LinearState:
    """Split the packed state into its parts."""
    k, m, p = int(state[0]), int(state[1]), int(state[2])
    at = private_start(state)
    inputs = open_inputs(state, at, m)
    settings = at + inputs_length(inputs)
    chosen = settings + _SETTINGS
    u = chosen + 2 * k
    return LinearState(
        open_shared(state),
        inputs,
        view(state, settings, (_SETTINGS,)),
        view(state, chosen, (k,)),
        view(state, chosen + k, (k,)),
        view(state, u, (k, p)),
        view(state, u + k * p, (k, p, p)),
        view(state, u + k * p + k * p * p, (3, p)),
    )


@inlined
def linear_decide(own: LinearState, features: FloatArray, draws: FloatArray) -> int:
    """Play the largest forecast + width, or the largest drawn forecast."""
    header, order, forecast, width, _, closed, Θ = own.shared
    k, p, t = int(header[0]), len(Θ), int(header[ROUNDS])
    factor, drawn, start_up = own.settings[0], own.settings[1], own.settings[2]
    build_inputs(own.inputs, k, t, features, Θ)
    y = own.scratch[0]
    arm = -1
    untried = -1
    largest = 0.0
    for r in range(k):
        a = int(order[r])
        ridge_project(own.W[a], Θ, y, p)
        mean = 0.0
        uncertainty = 0.0
        deviation = 0.0
        for i in range(p):
            mean += own.u[a, i] * y[i]
            uncertainty += y[i] * y[i]
        if drawn > 0.0:  # Θ'(Ĝ + factor W'ξ) = mean + factor y'ξ
            for i in range(p):
                deviation += y[i] * draws[a * p + i]
        forecast[a] = mean
        width[a] = factor * math.sqrt(uncertainty)
        index = mean + (factor * deviation if drawn > 0.0 else width[a])
        if closed[a] == 0.0:
            if arm < 0 or index > largest:
                arm = a
                largest = index
            if untried < 0 and own.chosen[a] < start_up:
                untried = a
    return untried if untried >= 0 else arm


@inlined
def linear_played(own: LinearState, arm: int) -> None:
    """Take note of the arm of this round."""
    note_round(own.inputs, int(own.shared.header[ROUNDS]), arm)
    own.shared.header[ROUNDS] += 1.0
    if arm >= 0:
        own.chosen[arm] += 1.0


@inlined
def linear_learn(own: LinearState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Add a row to the played arm's regression."""
    reward = rewards[arm]
    note_reward(own.inputs, int(own.shared.header[ROUNDS]) - 1, age, reward)
    if own.settings[3] > 0.0 and own.learned[arm] >= own.settings[2]:
        return
    own.learned[arm] += 1.0
    y = own.scratch[0]
    ridge_project(own.W[arm], memory, y, len(y))
    ridge_update(own.W[arm], own.u[arm], y, reward, own.scratch[1], own.scratch[2])


@inlined
def linear_observe(own: LinearState, context: FloatArray) -> None:
    """Take in a context."""
    push_context(own.inputs, context)


LinUCB.kernels = LinTS.kernels = PIES.kernels = compile_kernels(
    __name__, open_linear, linear_decide, linear_played, linear_learn, linear_observe
)
