"""UBSS: the authors' predecessor of ARES without contexts, one regression for every sequence of arms."""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.compiled import Common, Layout, Record, best_arm, compile_loop, count_open, inlined, present_time_step
from undertow.errors import InvalidInputError
from undertow.live import Capabilities, LivePolicy, register
from undertow.live.inputs import Inputs, begin_inputs, inputs_sizes, note_reward, note_round
from undertow.ridge import noise_width, ridge_project, ridge_update
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["UBSS"]

_MOST = 2**24  # numbers in all regressions together, 128 MB


class Sizes(Record):
    """Number c of regressions: one for every sequence of s + 1 arms; the last arm is forecast."""

    c: float


class Settings(Record):
    """The paper's parameters, under its symbols; `factor` is that of the width."""

    logδ: float  # log 1/δ
    λ: float
    B_c: float
    B_G: float
    B_R: float
    factor: float


class UbssState(NamedTuple):
    """A regression on the last s rewards for each sequence; a memory has these rewards and their arms."""

    common: Common
    inputs: Inputs
    sizes: Sizes
    settings: Settings
    learned: Annotated[FloatArray, "c"]  # N: rewards of each regression
    log_det: Annotated[FloatArray, "c"]  # log det V − log det λI
    trace: Annotated[FloatArray, "c"]  # tr V⁻¹
    u: Annotated[FloatArray, "c lags"]
    W: Annotated[FloatArray, "c lags lags"]
    scratch: Annotated[FloatArray, "3 lags"]


@inlined
def sequence_of(memory: FloatArray, k: int) -> int:
    """Return the number of the sequence of arms in a memory, −1 if one of the last s rounds had no arm."""
    s = len(memory) // 2
    number = 0
    for i in range(s, 2 * s):
        if not 0.0 <= memory[i] < k:
            return -1
        number = number * k + int(memory[i])
    return number


@inlined
def total_width(own: UbssState, r: int) -> float:
    """Return e + β of a regression: the bounds on its noise, and on everything before its s rewards."""
    settings, N, trace, s = own.settings, own.learned[r], own.trace[r], own.u.shape[1]
    e = noise_width(settings.logδ, settings.λ, settings.B_G, settings.B_R, own.log_det[r], trace)
    if N > 0.0:
        bias = settings.B_c * settings.B_R**2 * (math.log(N) + settings.logδ)
        e += math.sqrt(N * bias * max(s - settings.λ * trace, 0.0))
    return e


@inlined
def decide(own: UbssState, features: FloatArray, draws: FloatArray) -> int:
    """Play the largest forecast + width of the regressions of the last s arms; before that, a random arm."""
    common, inputs, settings = own.common, own.inputs, own.settings
    forecast, width, closed, memory = common.forecast, common.width, common.closed, common.memory
    k, s, t = len(forecast), own.u.shape[1], present_time_step(common.head)
    for i in range(s):  # oldest first; an unknown reward counts as 0, its mean
        slot = (t - s + i) % (s + 1)
        reward = inputs.lag_reward[slot]
        memory[i] = 0.0 if np.isnan(reward) else reward
        memory[s + i] = inputs.lag_arm[slot]
    first = sequence_of(memory, k) * k
    left = int(draws[0] * count_open(closed))  # open arms before the sampled one
    y = own.scratch[0]
    drawn = -1
    for r in range(k):
        a = int(common.order[r])
        forecast[a], width[a] = 0.0, 0.0
        if first >= 0:
            ridge_project(own.W[first + a], memory[:s], y, s)
            uncertainty = 0.0
            for i in range(s):
                forecast[a] += own.u[first + a, i] * y[i]
                uncertainty += y[i] * y[i]
            width[a] = settings.factor * total_width(own, first + a) * math.sqrt(uncertainty)
        if closed[a] == 0.0:
            if left >= 0:
                drawn = a
            left -= 1
    arm = best_arm(common)
    return arm if first >= 0 else drawn


@inlined
def played(own: UbssState, arm: int) -> None:
    """Count the arm of this round."""
    head = own.common.head
    note_round(own.inputs, present_time_step(head), int(head.rounds), arm)


@inlined
def learn(own: UbssState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Add a row to the regression of the last s arms and this one."""
    note_reward(own.inputs, int(own.common.head.rounds) - 1 - age, rewards[arm])
    k, s = len(own.common.forecast), own.u.shape[1]
    sequence = sequence_of(memory, k)
    if sequence < 0:
        return
    r = sequence * k + arm
    y, row_norms = own.scratch[0], own.scratch[2]
    ridge_project(own.W[r], memory[:s], y, s)
    grown = 1.0
    for i in range(s):
        grown += y[i] * y[i]
    ridge_update(own.W[r], own.u[r], y, rewards[arm], own.scratch[1], row_norms)
    own.learned[r] += 1.0
    own.log_det[r] += math.log(grown)
    own.trace[r] = 0.0
    for i in range(s):
        own.trace[r] += row_norms[i]


@register("ubss", citation="Gornet and Sinopoli, L4DC 2024, arXiv 2405.09584")
@dataclass(kw_only=True, eq=False, repr=False)
class UBSS(LivePolicy):
    """Uncertainty-Based System Search: forecasts from the last s own rewards and their arms.

    In a hidden linear system every reward has information about every arm, and the combination of the last s rewards
    that forecasts arm a depends only on the arms played. So each sequence of s arms has its own regression of each
    arm's reward, k^(s + 1) in all, without a constant: rewards are taken to have mean 0. The width is (e + β)
    √(x'V⁻¹x), with the noise's e and a β for everything before the s rounds. The arms of the first s rounds are random.
    Three slips of the published code are corrected: the arm of a regression, the newest reward missing from the
    forecast, and a count that starts at 10,000.

    Parameters
    ----------
    reward_lags
        s ≥ 1; the paper leaves it open. Memory grows as k^(s + 1).
    confidence
        δ in (0, 1).
    ridge
        λ > 0.
    arm_bound
        B_c ≥ 0, a bound on the norms of the arms.
    weight_bound
        B_G ≥ 0, a bound on the norm of the weights.
    noise_bound
        B_R ≥ 0, in units of reward; the published code has B_R² = 10.
    exploration
        Factor of the width, ≥ 0; with 0, forecasts are those of the authors' HyperController.

    Examples
    --------
    >>> policy = UBSS(arms=2, reward_lags=2, rng=0)
    >>> policy.learn(policy.decide(), reward=0.3)
    """

    capabilities: ClassVar[Capabilities] = Capabilities(deterministic=False)
    loop = compile_loop(__name__, Layout(UbssState), decide=decide, learn=learn, played=played)

    reward_lags: int = 4
    confidence: float = 0.1
    ridge: float = 1.0
    arm_bound: float = 1.0
    weight_bound: float = 10.0
    noise_bound: float = math.sqrt(10)
    exploration: float = 1.0

    def _sizes(self) -> dict[str, int]:
        k = self.arm_count
        self.reward_lags = s = checks.integer("reward_lags", self.reward_lags, least=1)
        if (s + 1) * math.log(k) + 2 * math.log(s + 1) > math.log(_MOST):
            raise InvalidInputError(
                f"reward_lags: expected k^(s + 1) regressions on s rewards to take at most {_MOST} numbers, got {k} "
                f"arms and s = {s}; lower reward_lags, or use LinUCB with reward_lags"
            )
        return inputs_sizes(k, 0, 0, 0, s) | {"c": k ** (s + 1), "p": 2 * s}

    def _begin(self, own: UbssState) -> None:
        settings = own.settings
        settings.logδ = -math.log(checks.fraction("confidence", self.confidence))
        settings.λ = self.ridge = checks.number("ridge", self.ridge, above=0)
        settings.B_c = self.arm_bound = checks.number("arm_bound", self.arm_bound, least=0)
        settings.B_G = self.weight_bound = checks.number("weight_bound", self.weight_bound, least=0)
        settings.B_R = self.noise_bound = checks.number("noise_bound", self.noise_bound, least=0)
        settings.factor = self.exploration = checks.number("exploration", self.exploration, least=0)
        begin_inputs(own.inputs)
        own.W[:] = np.eye(self.reward_lags) / math.sqrt(self.ridge)
        own.trace[:] = self.reward_lags / self.ridge

    def _draw(self, rng: np.random.Generator, rounds: int) -> FloatArray:
        return rng.random((rounds, 1))

    def _probability(self, own: UbssState, arm: int) -> float:
        """Return 1 or 0 once the last s arms are known; before that, arms are random."""
        if (own.common.memory[self.reward_lags :] >= 0).all():
            return float(arm == own.common.head.proposed)
        return 1 / float((own.common.closed == 0).sum())

    def _index_map(self, old_arms: int) -> dict[str, npt.NDArray[np.int64] | None]:
        """Return the places of the old sequences among those of one more arm."""
        length = self.reward_lags + 1
        arms = np.unravel_index(np.arange(old_arms**length), (old_arms,) * length)
        return {"c": np.ravel_multi_index(arms, (self.arm_count,) * length)}
