"""LARL: rewards that follow a latent autoregressive process, forecast from past rewards and arms."""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.compiled import Common, Index, Layout, Record, best_arm, compile_loop, inlined, present_time_step
from undertow.live import Capabilities, LivePolicy, register
from undertow.live.inputs import Inputs, begin_inputs, build_inputs, input_places, inputs_sizes, note_reward, note_round
from undertow.ridge import ridge_project, ridge_update
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["LARL"]

_TURNS = 20  # plays of each arm before the first choice of s without a horizon: those of the paper's study


class Settings(Record):
    """Factor α of the width, λ, rounds in which arms take turns, and whether s is chosen only once."""

    α: float
    λ: float
    turns: float
    once: float


class Order(Record):
    """The number s of past rounds used, and the round of its next choice."""

    s: Annotated[float, Index("lags+1")]
    next: float


class LarlState(NamedTuple):
    """One regression per arm on the past of the largest s; that of a smaller s is its beginning."""

    common: Common
    inputs: Inputs
    settings: Settings
    order: Order
    chosen: Annotated[FloatArray, "k"]
    learned: Annotated[FloatArray, "k"]  # rewards of each arm
    squares: Annotated[FloatArray, "k"]  # ΣX²
    u: Annotated[FloatArray, "k p"]
    W: Annotated[FloatArray, "k p p"]
    scratch: Annotated[FloatArray, "3 p"]


@inlined
def choose_order(own: LarlState) -> int:
    """Return the s with the least BIC: n log(mean squared residual) + (2sk + 1) log n over all arms' regressions.

    With V = λI + ΣΦΦ' the squared residuals are ΣX² − ‖u‖² − λ‖Ĝ‖², Ĝ = W'u, of the first 2sk + 1 entries.
    """
    k, n, lags, residuals, G = len(own.squares), 0.0, int(own.inputs.sizes.lags), own.scratch[0], own.scratch[1]
    residuals[:] = 0.0  # by s
    for a in range(k):
        n += own.learned[a]
        left = own.squares[a]
        G[:] = 0.0
        i = 0
        for s in range(lags + 1):
            while i <= 2 * k * s:
                left -= own.u[a, i] ** 2
                for j in range(i + 1):
                    G[j] += own.W[a, i, j] * own.u[a, i]
                i += 1
            residuals[s] += left
            for j in range(i):
                residuals[s] -= own.settings.λ * G[j] ** 2
    best, least = 1, np.inf
    for s in range(1, lags + 1):
        score = n * math.log(max(residuals[s] / n, 1e-300)) + (2 * s * k + 1) * math.log(n) if n > 0.0 else np.inf
        if score < least:
            best, least = s, score
    return best


@inlined
def decide(own: LarlState, features: FloatArray, draws: FloatArray) -> int:
    """Let the arms take turns; afterwards play the largest forecast + width."""
    common, settings, order = own.common, own.settings, own.order
    forecast, width, closed, Φ = common.forecast, common.width, common.closed, common.memory
    k, t = len(forecast), int(common.head.rounds)
    build_inputs(own.inputs, k, present_time_step(common.head), features, Φ)
    if t >= order.next:
        order.s = choose_order(own)
        order.next = np.inf if settings.once > 0.0 else 2.0 * t
    p = 2 * k * int(order.s) + 1
    y = own.scratch[0]
    turn = -1
    for r in range(k):
        a = int(common.order[r])
        ridge_project(own.W[a], Φ, y, p)
        forecast[a] = 0.0
        uncertainty = 0.0
        for i in range(p):
            forecast[a] += own.u[a, i] * y[i]
            uncertainty += y[i] * y[i]
        width[a] = settings.α * math.sqrt(uncertainty)
        if closed[a] == 0.0 and (turn < 0 or own.chosen[a] < own.chosen[turn]):
            turn = a
    arm = best_arm(common)
    return turn if t < settings.turns else arm


@inlined
def played(own: LarlState, arm: int) -> None:
    """Count the arm of this round."""
    head = own.common.head
    note_round(own.inputs, present_time_step(head), int(head.rounds), arm)
    if arm >= 0:
        own.chosen[arm] += 1.0


@inlined
def learn(own: LarlState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Add a row to the played arm's regression."""
    note_reward(own.inputs, int(own.common.head.rounds) - 1 - age, rewards[arm])
    own.learned[arm] += 1.0
    own.squares[arm] += rewards[arm] ** 2
    y = own.scratch[0]
    ridge_project(own.W[arm], memory, y, len(y))
    ridge_update(own.W[arm], own.u[arm], y, rewards[arm], own.scratch[1], own.scratch[2])


@register("larl", citation="Trella, Dempsey, Gazi, Xu, Doshi-Velez and Murphy, RLC 2025, arXiv 2402.03110")
@dataclass(kw_only=True, eq=False, repr=False)
class LARL(LivePolicy):
    """Latent AutoRegressive Linear bandit: LinUCB on past rewards and arms, over a number of rounds s chosen by BIC.

    A Kalman filter of a latent autoregressive state, cut off after s rounds, is linear in the rewards and the arms of
    these rounds. Each arm has a regression on them, with inputs as for `LinUCB` with `reward_lags=s` and no contexts,
    and a width of α √(Φ'V⁻¹Φ). Unlike LinUCB, arms first take turns, for a fifth of the horizon, and s is then chosen
    among 1, …, `max_lags`. Without a horizon (an extension of the paper), arms take turns until each was played 20
    times; s is chosen then, and again whenever the number of rounds has doubled.

    Parameters
    ----------
    horizon
        T, the number of rounds to be played; None if unknown.
    max_lags
        The largest s, ≥ 1.
    ridge
        λ > 0.
    exploration
        α ≥ 0.

    Examples
    --------
    >>> policy = LARL(arms=2)
    >>> policy.learn(policy.decide(), reward=0.3)
    """

    capabilities: ClassVar[Capabilities] = Capabilities()
    loop = compile_loop(__name__, Layout(LarlState), decide=decide, learn=learn, played=played)

    horizon: int | None = None
    max_lags: int = 15
    ridge: float = 1.0
    exploration: float = 1.0

    def _sizes(self) -> dict[str, int]:
        self.max_lags = checks.integer("max_lags", self.max_lags, least=1)
        return inputs_sizes(self.arm_count, 0, 0, 0, self.max_lags)

    def _begin(self, own: LarlState) -> None:
        settings = own.settings
        settings.α = self.exploration = checks.number("exploration", self.exploration, least=0)
        settings.λ = self.ridge = checks.number("ridge", self.ridge, above=0)
        settings.once = self.horizon is not None
        turns = _TURNS * self.arm_count
        if self.horizon is not None:
            self.horizon = checks.integer("horizon", self.horizon, least=1)
            turns = max(self.horizon // 5, 1)
        settings.turns = own.order.next = turns
        begin_inputs(own.inputs)
        own.W[:] = np.eye(own.W.shape[-1]) / math.sqrt(self.ridge)

    def _index_map(self, old_arms: int) -> dict[str, npt.NDArray[np.int64] | None]:
        return {"p": input_places(old_arms, 0, 0, 0, self.max_lags)}
