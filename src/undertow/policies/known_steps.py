"""The kernels of the policies that know the system: a Kalman filter that steps lazily.

The step to the next round is taken when that round begins, so that the reward of the last one may come until then.
"""

import math
from typing import NamedTuple

from undertow._checks import FloatArray
from undertow._kernel import inlined
from undertow._view import view
from undertow.kalman_steps import condition_scalar, condition_step, predict_step
from undertow.policies.play import compile_kernels
from undertow.policies.state import ROUNDS, Shared, open_shared, private_start
from undertow.symbols import Symbols

__all__ = ["FULL_INFORMATION_KERNELS", "INFORMATION_BONUS", "KERNELS", "NO_BONUS", "STATE_BONUS"]

_SETTINGS = 6
NO_BONUS, STATE_BONUS, INFORMATION_BONUS = 0, 1, 2


class KnownState(NamedTuple):
    """Views of the state: the belief about z, and the system."""

    shared: Shared
    settings: FloatArray  # d, uses own rewards, factor and kind of the width, context first, whether the round is over
    z: FloatArray  # (d,)
    P: FloatArray  # (d, d)
    scratch: FloatArray  # (d,)
    symbols: Symbols


@inlined
def open_known(state: FloatArray) -> KnownState:
    """Split the packed state into its parts."""
    k, m = int(state[0]), int(state[1])
    at = private_start(state)
    d = int(state[at])
    z = at + _SETTINGS
    Γ = z + d + d * d + d
    Q = Γ + d * d + d
    C = Q + d * d
    R = C + m * d + m
    c = R + m * m
    symbols = Symbols(
        view(state, Γ, (d, d)),
        view(state, Γ + d * d, (d,)),
        view(state, Q, (d, d)),
        view(state, C, (m, d)),
        view(state, C + m * d, (m,)),
        view(state, R, (m, m)),
        view(state, c, (k, d)),
        view(state, c + k * d, (k,)),
        view(state, c + k * d + k, (k,)),
    )
    return KnownState(
        open_shared(state),
        view(state, at, (_SETTINGS,)),
        view(state, z, (d,)),
        view(state, z + d, (d, d)),
        view(state, z + d + d * d, (d,)),
        symbols,
    )


@inlined
def begin_round(own: KnownState) -> None:
    """Step to the present round, if the belief is still in the last one; rewards of that one could come until now."""
    if own.settings[5] > 0.0:
        predict_step(own.z, own.P, own.symbols)
        own.settings[5] = 0.0


@inlined
def known_played(own: KnownState, arm: int) -> None:
    """Count the round; it is over, but for its reward, unless its context is still to come."""
    begin_round(own)
    own.shared.header[ROUNDS] += 1.0
    if own.settings[4] > 0.0 or own.shared.header[1] == 0.0:
        own.settings[5] = 1.0


@inlined
def known_decide(own: KnownState, features: FloatArray, draws: FloatArray) -> int:
    """Play the largest forecast + width."""
    begin_round(own)
    _, order, forecast, width, _, closed, _ = own.shared
    Γ, c, x0, σ2 = own.symbols.Γ, own.symbols.c, own.symbols.x0, own.symbols.σ2
    z, P, Pc = own.z, own.P, own.scratch
    d, factor, kind = len(z), own.settings[2], int(own.settings[3])
    arm = -1
    for r in range(len(order)):
        a = int(order[r])
        mean = x0[a]
        for i in range(d):
            mean += c[a, i] * z[i]
        forecast[a] = mean
        width[a] = 0.0
        if kind != NO_BONUS:
            variance = 0.0
            for i in range(d):
                Pc[i] = 0.0
                for j in range(d):
                    Pc[i] += P[i, j] * c[a, j]
                variance += c[a, i] * Pc[i]
            if kind == INFORMATION_BONUS:
                norm = 0.0
                for i in range(d):
                    total = 0.0
                    for j in range(d):
                        total += Γ[i, j] * Pc[j]
                    norm += total * total
                variance = norm / (variance + σ2[a])
            width[a] = factor * math.sqrt(max(variance, 0.0))
        if closed[a] == 0.0 and (arm < 0 or mean + width[a] > forecast[arm] + width[arm]):
            arm = a
    return arm


@inlined
def condition_on_reward(own: KnownState, arm: int, reward: float) -> None:
    """Condition the belief on a reward of the present round."""
    c, x0, σ2 = own.symbols.c, own.symbols.x0, own.symbols.σ2
    condition_scalar(own.z, own.P, c[arm], reward - x0[arm], σ2[arm], own.scratch)


@inlined
def known_learn(own: KnownState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Take in the reward of the chosen arm, if the policy uses it."""
    if own.settings[1] > 0.0:
        condition_on_reward(own, arm, rewards[arm])


@inlined
def known_learn_all(own: KnownState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Take in the rewards of all arms, which only a simulation knows."""
    for a in range(len(rewards)):
        condition_on_reward(own, a, rewards[a])


@inlined
def known_observe(own: KnownState, context: FloatArray) -> None:
    """Condition the belief on a context, which begins the round or ends it."""
    context_first = own.settings[4] > 0.0
    if context_first:
        begin_round(own)
    condition_step(own.z, own.P, context, context[:0], own.symbols)
    if not context_first:
        own.settings[5] = 1.0


KERNELS = compile_kernels(__name__, open_known, known_decide, known_played, known_learn, known_observe)
FULL_INFORMATION_KERNELS = compile_kernels(
    __name__, open_known, known_decide, known_played, known_learn_all, known_observe
)
