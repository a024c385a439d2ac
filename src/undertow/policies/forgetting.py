"""Linear bandits that forget: discounted and sliding-window LinUCB.

Both weigh the rows of each arm's regression anew in every round, so they keep V − λI and b themselves and factorise
V when they decide, O(k p³) a round.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from undertow import _checks
from undertow._checks import FloatArray
from undertow._kernel import inlined, kernel
from undertow._view import view
from undertow.policies.catalogue import register
from undertow.policies.contextual import LaggedPolicy
from undertow.policies.decision import Claims
from undertow.policies.inputs import (
    Inputs,
    build_inputs,
    inputs_length,
    note_reward,
    note_round,
    open_inputs,
    push_context,
)
from undertow.policies.play import compile_kernels
from undertow.policies.scaling import Change, change_inputs
from undertow.policies.state import ROUNDS, Shared, new_state, open_shared, private_start

__all__ = ["DiscountedLinUCB", "SlidingWindowLinUCB"]

_SETTINGS = 4
_ROUNDING = 2.0**-46  # of a pivot, relative to its diagonal entry
_DROPPED = math.inf  # a pivot beside which everything is nothing


_AXES = {"b": "kp", "V": "kpp", "V2": "kpp", "past_inputs": "hp"}


class ForgettingState(NamedTuple):
    """Views of the state; p inputs, a history of h rounds (0 for the discounted kind)."""

    shared: Shared
    inputs: Inputs
    settings: FloatArray  # factor of the width, λ, γ, h
    b: FloatArray  # Σ w XΘ, (k, p)
    V: FloatArray  # Σ w ΘΘ', (k, p, p)
    V2: FloatArray  # Σ w² ΘΘ', (k, p, p)
    scratch: FloatArray  # (2, p)
    L: FloatArray  # Cholesky factor, (p, p)
    past_arm: FloatArray  # (h,); −1 where none
    past_reward: FloatArray  # (h,); NaN until it comes
    past_inputs: FloatArray  # (h, p)


def _forgetting_state(policy: LaggedPolicy, discount: float, history: int) -> FloatArray:
    past, p = policy._inputs()
    k, m = policy.arm_count, policy._context_dim
    settings = np.array([policy.exploration, policy.ridge, discount, history])
    numbers = np.zeros(k * p + 2 * k * p * p + 2 * p + p * p)
    unplayed = np.concatenate([np.full(history, -1.0), np.full(history, math.nan), np.zeros(history * p)])
    return new_state(k, m, p, past, settings, numbers, unplayed)


def _change_forgetting(policy: LaggedPolicy, change: Change) -> None:
    """Bring the state of a forgetting policy into new units."""
    own: ForgettingState = policy.kernels.open(policy._state)
    T, slope, shift = change.T, change.slope[-1], change.shift[-1]
    change_inputs(own.inputs, change)
    own.b[:] = (slope * own.b + shift * own.V[:, 0]) @ T.T
    own.V[:], own.V2[:] = T @ own.V @ T.T, T @ own.V2 @ T.T
    own.past_reward[:] = slope * own.past_reward + shift
    own.past_inputs[:] = own.past_inputs @ T.T


@register("discounted-linucb", citation="Russac, Vernade and Cappé, NeurIPS 2019")
@dataclass(kw_only=True, eq=False, repr=False)
class DiscountedLinUCB(LaggedPolicy):
    """LinUCB whose rows lose weight by a factor `discount` in every round (D-LinUCB).

    The row of round r weighs γ^{t−1−r} in round t; with Ṽ the same sum with squared weights, the width is
    `exploration` · √(Θ'V⁻¹ṼV⁻¹Θ).

    Parameters
    ----------
    discount
        γ in (0, 1).

    Examples
    --------
    >>> policy = DiscountedLinUCB(arms=2, context_dim=1, discount=0.99)
    >>> policy.learn(policy.decide(), reward=0.3)
    """

    claims: ClassVar[Claims] = Claims(uses_contexts=True, handles_missing_contexts=True, takes_features=True)
    axes: ClassVar[Mapping[str, str]] = _AXES

    discount: float = 0.999

    def _new_state(self) -> FloatArray:
        self.discount = _checks.fraction("discount", self.discount)
        return _forgetting_state(self, self.discount, 0)

    def _change_units(self, change: Change) -> None:
        _change_forgetting(self, change)


@register("sliding-window-linucb", citation="Cheung, Simchi-Levi and Zhu, AISTATS 2019")
@dataclass(kw_only=True, eq=False, repr=False)
class SlidingWindowLinUCB(LaggedPolicy):
    """LinUCB that learns from the last `history` rounds only (SW-LinUCB).

    Parameters
    ----------
    history
        How many rounds, at least 1.

    Examples
    --------
    >>> policy = SlidingWindowLinUCB(arms=2, context_dim=1, history=500)
    >>> policy.learn(policy.decide(), reward=0.3)
    """

    claims: ClassVar[Claims] = Claims(uses_contexts=True, handles_missing_contexts=True, takes_features=True)
    axes: ClassVar[Mapping[str, str]] = _AXES

    history: int = 2000

    def _new_state(self) -> FloatArray:
        self.history = _checks.integer("history", self.history, least=1)
        return _forgetting_state(self, 1.0, self.history)

    def _change_units(self, change: Change) -> None:
        _change_forgetting(self, change)


@inlined
def open_forgetting(state: FloatArray) -> ForgettingState:
    """Split the packed state into its parts."""
    k, m, p = int(state[0]), int(state[1]), int(state[2])
    at = private_start(state)
    inputs = open_inputs(state, at, m)
    settings = at + inputs_length(inputs)
    h = int(state[settings + 3])
    b = settings + _SETTINGS
    V = b + k * p
    scratch = V + 2 * k * p * p
    past = scratch + 2 * p + p * p
    return ForgettingState(
        open_shared(state),
        inputs,
        view(state, settings, (_SETTINGS,)),
        view(state, b, (k, p)),
        view(state, V, (k, p, p)),
        view(state, V + k * p * p, (k, p, p)),
        view(state, scratch, (2, p)),
        view(state, scratch + 2 * p, (p, p)),
        view(state, past, (h,)),
        view(state, past + h, (h,)),
        view(state, past + 2 * h, (h, p)),
    )


@kernel
def factorise(V: FloatArray, λ: float, L: FloatArray) -> None:
    """V + λI = LL'.

    Where rounding is all that is left of an input once those before it are known (contexts far from zero, a gross error
    that has gone), it gets no weight.
    """
    for i in range(len(L)):
        for j in range(i + 1):
            total = V[i, j] + (λ if i == j else 0.0)
            for h in range(j):
                total -= L[i, h] * L[j, h]
            if i > j:
                L[i, j] = total / L[j, j]
            elif total > _ROUNDING * (V[i, i] + λ):
                L[i, i] = math.sqrt(total)
            else:
                L[i, i] = _DROPPED


@kernel
def solve(L: FloatArray, b: FloatArray, x: FloatArray) -> None:
    """Solve LL'x = b."""
    p = len(b)
    for i in range(p):
        total = b[i]
        for j in range(i):
            total -= L[i, j] * x[j]
        x[i] = total / L[i, i]
    for i in range(p - 1, -1, -1):
        total = x[i]
        for j in range(i + 1, p):
            total -= L[j, i] * x[j]
        x[i] = total / L[i, i]


@kernel
def add_row(V: FloatArray, V2: FloatArray, b: FloatArray, Θ: FloatArray, reward: float, weight: float) -> None:
    """Give a row of a regression a weight; a negative one takes it away."""
    for i in range(len(Θ)):
        b[i] += weight * reward * Θ[i]
        for j in range(len(Θ)):
            V[i, j] += weight * Θ[i] * Θ[j]
            V2[i, j] += weight * abs(weight) * Θ[i] * Θ[j]


@kernel
def scale_all(b: FloatArray, V: FloatArray, V2: FloatArray, γ: float) -> None:
    """Let every row lose weight by γ."""
    for a in range(len(b)):
        for i in range(b.shape[1]):
            b[a, i] *= γ
            for j in range(b.shape[1]):
                V[a, i, j] *= γ
                V2[a, i, j] *= γ * γ


@kernel
def replace_round(
    past_arm: FloatArray,
    past_reward: FloatArray,
    past_inputs: FloatArray,
    b: FloatArray,
    V: FloatArray,
    V2: FloatArray,
    slot: int,
    arm: int,
    Θ: FloatArray,
) -> None:
    """Take the oldest round out of the sums and open its slot for the present one."""
    if not np.isnan(past_reward[slot]):
        a = int(past_arm[slot])
        add_row(V[a], V2[a], b[a], past_inputs[slot], past_reward[slot], -1.0)
    past_arm[slot] = arm
    past_reward[slot] = np.nan
    for i in range(len(Θ)):
        past_inputs[slot, i] = Θ[i]
    if slot == 0:  # add up anew from time to time, so that rounding cannot pile up
        scale_all(b, V, V2, 0.0)
        for i in range(len(past_arm)):
            if not np.isnan(past_reward[i]):
                a = int(past_arm[i])
                add_row(V[a], V2[a], b[a], past_inputs[i], past_reward[i], 1.0)


@inlined
def forgetting_played(own: ForgettingState, arm: int) -> None:
    """Take note of the arm of round t: rows age by a round, or the row of round t − h makes room for this one."""
    t, γ, h = int(own.shared.header[ROUNDS]), own.settings[2], len(own.past_arm)
    note_round(own.inputs, t, arm)
    if γ < 1.0:
        scale_all(own.b, own.V, own.V2, γ)
    if h > 0:
        slot = t % h
        replace_round(
            own.past_arm, own.past_reward, own.past_inputs, own.b, own.V, own.V2, slot, arm, own.shared.memory
        )
    own.shared.header[ROUNDS] += 1.0


@inlined
def forgetting_decide(own: ForgettingState, features: FloatArray, draws: FloatArray) -> int:
    """Play the largest forecast + width."""
    header, order, forecast, width, _, closed, Θ = own.shared
    k, p, t = int(header[0]), len(Θ), int(header[ROUNDS])
    factor, λ = own.settings[0], own.settings[1]
    build_inputs(own.inputs, k, t, features, Θ)
    G, x = own.scratch[0], own.scratch[1]
    arm = -1
    for r in range(k):
        a = int(order[r])
        factorise(own.V[a], λ, own.L)
        solve(own.L, own.b[a], G)
        solve(own.L, Θ, x)  # x = V⁻¹Θ
        mean = 0.0
        uncertainty = 0.0
        for i in range(p):
            mean += G[i] * Θ[i]
            total = λ * x[i]
            for j in range(p):
                total += own.V2[a, i, j] * x[j]
            uncertainty += x[i] * total
        forecast[a] = mean
        width[a] = factor * math.sqrt(max(uncertainty, 0.0))
        if closed[a] == 0.0 and (arm < 0 or mean + width[a] > forecast[arm] + width[arm]):
            arm = a
    return arm


@inlined
def forgetting_learn(own: ForgettingState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Add the row of a decision that is `age` rounds old, if it is not forgotten yet."""
    t, h, reward = int(own.shared.header[ROUNDS]) - 1, len(own.past_arm), rewards[arm]
    note_reward(own.inputs, t, age, reward)
    if h == 0:
        add_row(own.V[arm], own.V2[arm], own.b[arm], memory, reward, own.settings[2] ** age)
    elif age < h:
        own.past_reward[(t - age) % h] = reward
        add_row(own.V[arm], own.V2[arm], own.b[arm], memory, reward, 1.0)


@inlined
def forgetting_observe(own: ForgettingState, context: FloatArray) -> None:
    """Take in a context."""
    push_context(own.inputs, context)


DiscountedLinUCB.kernels = SlidingWindowLinUCB.kernels = compile_kernels(
    __name__, open_forgetting, forgetting_decide, forgetting_played, forgetting_learn, forgetting_observe
)
