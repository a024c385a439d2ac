"""Upper confidence bounds without contexts: UCB, sliding-window UCB, discounted UCB."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from undertow import _checks
from undertow._checks import FloatArray
from undertow._kernel import inlined
from undertow._view import view
from undertow.policies.base import LivePolicy
from undertow.policies.catalogue import register
from undertow.policies.decision import Claims
from undertow.policies.play import compile_kernels
from undertow.policies.state import ROUNDS, Shared, new_state, open_shared, private_start

__all__ = ["UCB", "DiscountedUCB", "SlidingWindowUCB"]

_SETTINGS = 7


_AXES = {"chosen": "k", "counts": "k", "sums": "k"}


class UcbState(NamedTuple):
    """Views of the state; a history of h rounds for the sliding kind, 0 for the others."""

    shared: Shared
    settings: FloatArray  # factor, γ, h, scale, and number, mean and sum of squares of all rewards; scale 0 for "auto"
    chosen: FloatArray  # (k,)
    counts: FloatArray  # weight of the rewards of each arm, (k,)
    sums: FloatArray  # weighted sum of the rewards of each arm, (k,)
    past_arm: FloatArray  # (h,)
    past_reward: FloatArray  # (h,); NaN where there is none


def _ucb_state(
    policy: "UCB | SlidingWindowUCB | DiscountedUCB", factor: float, discount: float, history: int
) -> FloatArray:
    factor = _checks.number("exploration", policy.exploration, least=0) * factor
    scale = _checks.auto_number("scale", policy.scale) or 0.0
    settings = np.array([factor, discount, history, scale, 0, 0, 0])
    past = np.full(2 * history, math.nan)
    return new_state(policy.arm_count, 0, 0, settings, np.zeros(3 * policy.arm_count), past)


@register("ucb", citation="Agrawal, Advances in Applied Probability 1995; Auer, Cesa-Bianchi and Fischer 2002 (UCB1)")
@dataclass(kw_only=True, eq=False, repr=False)
class UCB(LivePolicy):
    """Mean reward of the arm, plus `exploration` · scale · √(2 log t / N_a).

    Parameters
    ----------
    exploration
        Factor of the width, ≥ 0.
    scale
        Size of the rewards' noise; "auto" takes the standard deviation of all rewards so far.

    Examples
    --------
    >>> policy = UCB(arms=["a", "b"])
    >>> policy.learn(policy.decide(), reward=1.0)
    >>> policy.decide().name
    'b'
    """

    claims: ClassVar[Claims] = Claims()
    axes: ClassVar[Mapping[str, str]] = _AXES

    exploration: float = 1.0
    scale: float | Literal["auto"] = "auto"

    def _new_state(self) -> FloatArray:
        return _ucb_state(self, math.sqrt(2), 1.0, 0)


@register("sliding-window-ucb", citation="Garivier and Moulines, arXiv 0805.3415 (SW-UCB)")
@dataclass(kw_only=True, eq=False, repr=False)
class SlidingWindowUCB(LivePolicy):
    """UCB over the last `history` rounds: width `exploration` · scale · √(ξ log min(t, τ) / N_a) with ξ = 0.6.

    Parameters
    ----------
    history
        τ, how many rounds count.
    exploration
        Factor of the width, ≥ 0.
    scale
        Size of the rewards' noise; "auto" takes the standard deviation of all rewards so far.
    """

    claims: ClassVar[Claims] = Claims()
    axes: ClassVar[Mapping[str, str]] = _AXES

    history: int = 1000
    exploration: float = 1.0
    scale: float | Literal["auto"] = "auto"

    def _new_state(self) -> FloatArray:
        self.history = _checks.integer("history", self.history, least=1)
        return _ucb_state(self, math.sqrt(0.6), 1.0, self.history)


@register("discounted-ucb", citation="Kocsis and Szepesvári 2006; Garivier and Moulines, arXiv 0805.3415 (D-UCB)")
@dataclass(kw_only=True, eq=False, repr=False)
class DiscountedUCB(LivePolicy):
    """UCB whose rewards lose weight by γ a round: width `exploration` · 2 scale · √(ξ log Σ_a N_a / N_a), ξ = 0.6.

    Parameters
    ----------
    discount
        γ in (0, 1).
    exploration
        Factor of the width, ≥ 0.
    scale
        Size of the rewards' noise; "auto" takes the standard deviation of all rewards so far.
    """

    claims: ClassVar[Claims] = Claims()
    axes: ClassVar[Mapping[str, str]] = _AXES

    discount: float = 0.99
    exploration: float = 1.0
    scale: float | Literal["auto"] = "auto"

    def _new_state(self) -> FloatArray:
        self.discount = _checks.fraction("discount", self.discount)
        return _ucb_state(self, 2 * math.sqrt(0.6), self.discount, 0)


@inlined
def open_ucb(state: FloatArray) -> UcbState:
    """Split the packed state into its parts."""
    k = int(state[0])
    at = private_start(state)
    h = int(state[at + 2])
    chosen = at + _SETTINGS
    return UcbState(
        open_shared(state),
        view(state, at, (_SETTINGS,)),
        view(state, chosen, (k,)),
        view(state, chosen + k, (k,)),
        view(state, chosen + 2 * k, (k,)),
        view(state, chosen + 3 * k, (h,)),
        view(state, chosen + 3 * k + h, (h,)),
    )


@inlined
def ucb_decide(own: UcbState, features: FloatArray, draws: FloatArray) -> int:
    """Play the largest mean + width; an arm without a reward comes first, the least chosen before the others."""
    _, order, forecast, width, _, closed, _ = own.shared
    k = len(order)
    total = 0.0
    for a in range(k):
        total += own.counts[a]
    scale = own.settings[3]
    if scale == 0.0:
        scale = math.sqrt(own.settings[6] / own.settings[4]) if own.settings[4] > 0.0 else 1.0
    factor = own.settings[0] * scale * math.sqrt(max(math.log(max(total, 1.0)), 0.0))
    arm = -1
    for r in range(k):
        a = int(order[r])
        known = own.counts[a] > 1e-12
        forecast[a] = own.sums[a] / own.counts[a] if known else 0.0
        width[a] = factor / math.sqrt(own.counts[a]) if known else np.inf
        if closed[a] == 0.0 and (
            arm < 0
            or forecast[a] + width[a] > forecast[arm] + width[arm]
            or (not known and np.isinf(width[arm]) and own.chosen[a] < own.chosen[arm])
        ):
            arm = a
    return arm


@inlined
def ucb_played(own: UcbState, arm: int) -> None:
    """Take note of the arm of this round: rewards lose weight, or the oldest round makes room for this one."""
    if arm >= 0:
        own.chosen[arm] += 1.0
    γ, h = own.settings[1], len(own.past_arm)
    if γ < 1.0:
        for a in range(len(own.counts)):
            own.counts[a] *= γ
            own.sums[a] *= γ
    if h > 0:
        slot = int(own.shared.header[ROUNDS]) % h
        if not np.isnan(own.past_reward[slot]):
            a = int(own.past_arm[slot])
            own.counts[a] -= 1.0
            own.sums[a] = own.sums[a] - own.past_reward[slot] if own.counts[a] > 0.0 else 0.0
        own.past_arm[slot] = arm
        own.past_reward[slot] = np.nan
        if slot == 0:  # add up anew from time to time, so that rounding cannot pile up
            own.sums[:] = 0.0
            for r in range(h):
                if not np.isnan(own.past_reward[r]):
                    own.sums[int(own.past_arm[r])] += own.past_reward[r]
    own.shared.header[ROUNDS] += 1.0


@inlined
def ucb_learn(own: UcbState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Add a reward, with the weight that its age leaves it."""
    settings, h, reward = own.settings, len(own.past_arm), rewards[arm]
    settings[4] += 1.0
    step = reward - settings[5]
    settings[5] += step / settings[4]
    settings[6] += step * (reward - settings[5])
    if h > 0:
        if age >= h:
            return
        own.past_reward[(int(own.shared.header[ROUNDS]) - 1 - age) % h] = reward
    weight = settings[1] ** age
    own.counts[arm] += weight
    own.sums[arm] += weight * reward


@inlined
def ucb_observe(own: UcbState, context: FloatArray) -> None:
    """Ignore contexts."""


UCB.kernels = SlidingWindowUCB.kernels = DiscountedUCB.kernels = compile_kernels(
    __name__, open_ucb, ucb_decide, ucb_played, ucb_learn, ucb_observe
)
