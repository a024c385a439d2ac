"""ARES: ridge regression on a window of contexts, with a window for every arm (the paper's algorithm)."""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np

from undertow.compiled import Common, Layout, Record, best_arm, compile_loop, inlined
from undertow.errors import InvalidInputError
from undertow.live import Capabilities, RidgePolicy, register
from undertow.live.inputs import Inputs, begin_inputs, build_inputs, inputs_sizes, push_context
from undertow.live.standardize import Change, change_inputs, change_regression, log_det_and_trace
from undertow.ridge import estimated_noise_bound, noise_width, ridge_project, ridge_update
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["ARES"]


class Settings(Record):
    """The paper's parameters, under its symbols; `auto` says whether B_R is estimated."""

    logδ: float  # log 1/δ
    λ: float
    α: float
    ν: float
    B_G: float
    B_R: float
    B_β: float
    auto: float


class AresState(NamedTuple):
    """A regression on p = m s_N + 1 inputs and s_N + 1 windows for every arm; the memory of a decision is its Θ."""

    common: Common
    inputs: Inputs
    settings: Settings
    chosen: Annotated[FloatArray, "k"]  # how often each arm was chosen
    learned: Annotated[FloatArray, "k"]  # N_a: how often its reward was learned
    ζ: Annotated[FloatArray, "k s+1"]  # smoothed |X − Ĝ'Θ|
    J: Annotated[FloatArray, "k s+1"]  # cost of a window
    log_det: Annotated[FloatArray, "k s+1"]  # log det V − log det λI
    trace: Annotated[FloatArray, "k s+1"]  # tr V⁻¹
    u: Annotated[FloatArray, "k p"]
    W: Annotated[FloatArray, "k p p"]
    scratch: Annotated[FloatArray, "4 p"]


@inlined
def decide(own: AresState, features: FloatArray, draws: FloatArray) -> int:
    """Choose the window of every arm, then the arm (Steps 3 (a) to (d))."""
    common, J, u = own.common, own.J, own.u
    forecast, width, window, closed, Θ = common.forecast, common.width, common.window, common.closed, common.memory
    k, m, t = len(forecast), int(common.sizes.m), int(common.head.rounds)
    build_inputs(own.inputs, k, t, features, Θ)
    usable = min(int(own.inputs.sizes.s), int(own.inputs.head.seen))  # only full windows (A6)
    largest = 0
    untried = -1  # of the arms without a reward, the one chosen least
    for r in range(k):
        a = int(common.order[r])
        best = 0
        for s in range(1, usable + 1):
            if J[a, s] < J[a, best]:
                best = s
        window[a] = best
        largest = max(largest, best)
        fresh = own.learned[a] == 0.0 and closed[a] == 0.0
        if fresh and (untried < 0 or own.chosen[a] < own.chosen[untried]):
            untried = a
    y = own.scratch[0]
    p_s = m * largest + 1
    for r in range(k):
        a = int(common.order[r])
        ridge_project(own.W[a], Θ, y, p_s)
        mean = 0.0
        uncertainty = 0.0
        for i in range(m * int(window[a]) + 1):
            mean += u[a, i] * y[i]
        for i in range(p_s):
            uncertainty += y[i] * y[i]
        forecast[a] = mean
        if own.learned[a] == 0.0:
            width[a] = np.inf
        else:
            e = total_width(own.settings, own.learned[a], own.log_det[a, largest], own.trace[a, largest], p_s)
            width[a] = e * math.sqrt(uncertainty)
    arm = best_arm(common)
    return untried if untried >= 0 else arm


@inlined
def total_width(settings: Settings, learned: float, log_det: float, trace: float, p_s: int) -> float:
    """Return e (Eq. 24 e_def), or b if B_β > 0 (Eq. 21 b_def)."""
    e = noise_width(settings.logδ, settings.λ, settings.B_G, settings.B_R, log_det, trace)
    if settings.B_β > 0.0:
        e += settings.B_β * math.sqrt(learned * max(p_s - settings.λ * trace, 0.0))
    return e


@inlined
def played(own: AresState, arm: int) -> None:
    """Count the arm of this round."""
    if arm >= 0:
        own.chosen[arm] += 1.0


@inlined
def learn(own: AresState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Update V, Ĝ, ζ, e and Ĵ of the played arm for every window (Step 3 (h), corrected: A1, A2, A4, A8)."""
    settings, m, reward = own.settings, int(own.common.sizes.m), rewards[arm]
    W, u, ζ, J, log_det, traces = own.W[arm], own.u[arm], own.ζ[arm], own.J[arm], own.log_det[arm], own.trace[arm]
    y, r, row_norms, q = own.scratch[0], own.scratch[1], own.scratch[2], own.scratch[3]
    α, ν = settings.α, settings.ν
    ridge_project(W, memory, y, len(y))
    own.learned[arm] += 1.0
    forecast = 0.0
    uncertainty = 0.0
    i = 0
    for s in range(len(ζ)):
        while i <= m * s:
            forecast += u[i] * y[i]
            uncertainty += y[i] * y[i]
            i += 1
        ζ[s] = α * ζ[s] + (1.0 - α) * abs(reward - forecast)
        q[s] = uncertainty
    ridge_update(W, u, y, reward, r, row_norms)
    if settings.auto > 0.0:
        settings.B_R = estimated_noise_bound(own.ζ, own.learned, α)
    trace = 0.0
    i = 0
    for s in range(len(ζ)):
        while i <= m * s:
            trace += row_norms[i]
            i += 1
        traces[s] = trace
        log_det[s] += math.log(1.0 + q[s])
        e = total_width(settings, own.learned[arm], log_det[s], trace, m * s + 1)
        J[s] = ζ[s] + ν * e * math.sqrt(q[s] / (1.0 + q[s]))  # Θ'V⁻¹Θ after the update is q / (1 + q)


@inlined
def observe(own: AresState, context: FloatArray) -> None:
    """Store a context."""
    push_context(own.inputs, context)


@register("ares", citation="Gornet, Hosseinzadeh and Sinopoli, arXiv 2406.10418")
@dataclass(kw_only=True, eq=False, repr=False)
class ARES(RidgePolicy):
    """Adaptive Recursive least-squares Exploration of System, with the paper's mistakes corrected (docs/paper.md).

    Each arm's reward is regressed on windows of the last s = 0…s_N contexts, all together. The arm's forecast comes
    from the window that minimizes Ĵ = ζ + ν e √(Θ'V⁻¹Θ). Its width e √(Θ'V⁻¹Θ) comes from the largest of the arms'
    windows, so that no arm looks certain just because its window is short. It is a heuristic, not optimism: the noise
    that e bounds is not a martingale (T1). The arm with the largest forecast + width is played; each arm is played once
    before that.

    Parameters
    ----------
    context_dim
        m, at least 1.
    confidence
        δ in (0, 1).
    ridge
        λ > 0.
    smoothing
        α in (0, 1); the larger, the more slowly ζ forgets.
    max_window
        s_N ≥ 1.
    window_penalty
        ν ≥ 0; the default is the paper's. From 0.01 to 0.03 regret is lower on all of the paper's systems, and two of
        its claims hold that fail at 0.1 (docs/paper.md, A20).
    weight_bound
        B_G ≥ 0, a bound on the norm of the weights.
    noise_bound
        B_R in units of reward, B_R² ≥ c'Pc + σ² (A3); "auto" estimates it as the largest over arms of √(π/2) times the
        smallest ζ (A17).
    width
        "noise" for e (Eq. 24 e_def), the paper's choice; "noise+bias" for b (Eq. 21 b_def), with `bias_bound`.
    bias_bound
        Bound on |β_a|, in units of reward, in place of √g(δ/N_a) B_β of Theorem 2 (A18).

    Examples
    --------
    >>> policy = ARES(arms=["low", "mid", "high"], context_dim=2)
    >>> decision = policy.decide()
    >>> policy.learn(decision, reward=1.7)
    >>> policy.observe([0.3, -1.2])
    >>> policy.decide().name
    'mid'
    """

    capabilities: ClassVar[Capabilities] = Capabilities(uses_contexts=True, handles_missing_contexts=True)
    loop = compile_loop(__name__, Layout(AresState), decide=decide, learn=learn, played=played, observe=observe)
    _has_windows = True

    confidence: float = 0.1
    ridge: float = 1.0
    smoothing: float = 0.99
    max_window: int = 10
    window_penalty: float = 0.1
    weight_bound: float = 100.0
    noise_bound: float | Literal["auto"] = "auto"
    width: Literal["noise", "noise+bias"] = "noise"
    bias_bound: float = 0.0

    def _sizes(self) -> dict[str, int]:
        if self._context_dim == 0:
            raise InvalidInputError("context_dim: expected at least 1, since ARES forecasts from contexts, got 0")
        self.max_window = checks.integer("max_window", self.max_window, least=1)
        return inputs_sizes(self.arm_count, self._context_dim, 0, self.max_window, 0)

    def _begin(self, own: AresState) -> None:
        settings = own.settings
        self.confidence = checks.fraction("confidence", self.confidence)
        settings.logδ = math.log(1 / self.confidence)
        settings.λ = self.ridge = checks.number("ridge", self.ridge, above=0)
        settings.α = self.smoothing = checks.fraction("smoothing", self.smoothing)
        settings.ν = self.window_penalty = checks.number("window_penalty", self.window_penalty, least=0)
        settings.B_G = self.weight_bound = checks.number("weight_bound", self.weight_bound, least=0)
        settings.B_β = self.bias_bound = checks.number("bias_bound", self.bias_bound, least=0)
        bound = checks.auto_number("noise_bound", self.noise_bound)
        settings.B_R, settings.auto = 1.0 if bound is None else bound, bound is None
        self.width = checks.choice("width", self.width, ("noise", "noise+bias"))
        if (self.width == "noise+bias") != (self.bias_bound > 0):
            raise InvalidInputError(
                f'bias_bound: expected above 0 with width="noise+bias" and only there, got {self.bias_bound}'
            )
        begin_inputs(own.inputs)
        own.W[:] = np.eye(own.W.shape[-1]) / math.sqrt(self.ridge)
        own.trace[:] = (self._context_dim * np.arange(self.max_window + 1) + 1) / self.ridge

    @property
    def noise_bound_in_use(self) -> float:
        """The current B_R, in units of reward: given, or estimated."""
        units, B_R = self._columns.units, float(self._player.own.settings.B_R)
        return B_R if units is None else B_R * abs(float(units.scale[-1]))

    def _window_sizes(self) -> dict[str, int]:
        return {"window": self.max_window, "lags": 0}

    def _change_units(self, own: AresState, change: Change) -> None:
        change_inputs(own.inputs, change)
        own.settings.B_R *= change.slope[-1]
        own.settings.B_β *= change.slope[-1]
        own.ζ[:] *= change.slope[-1]
        own.J[:] *= change.slope[-1]
        sizes = self._context_dim * np.arange(self.max_window + 1, dtype=np.int64) + 1
        for a in range(self.arm_count):
            change_regression(own.W[a], own.u[a], self.ridge, change)
            own.log_det[a], own.trace[a] = log_det_and_trace(own.W[a], self.ridge, sizes)
