"""ARES: ridge regression on a window of contexts, with a window chosen for every arm (the paper's algorithm)."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from undertow import _checks
from undertow._checks import FloatArray
from undertow._kernel import inlined
from undertow._view import view
from undertow.errors import InvalidInputError
from undertow.policies.ares_printed import printed_forecasts, printed_forms, printed_weights
from undertow.policies.catalogue import register
from undertow.policies.contextual import RidgePolicy
from undertow.policies.decision import Claims
from undertow.policies.inputs import Inputs, build_inputs, inputs_length, new_inputs, open_inputs, push_context
from undertow.policies.play import compile_kernels
from undertow.policies.scaling import Change, change_inputs, change_regression, log_det_and_trace
from undertow.policies.state import ROUNDS, Shared, new_state, open_shared, private_start
from undertow.ridge import ridge_project, ridge_update

__all__ = ["ARES"]

_SETTINGS = 10
_HALF_NORMAL = math.sqrt(math.pi / 2)  # standard deviation of a centred normal variable over its mean modulus


class AresState(NamedTuple):
    """Views of ARES's state; S = s_N + 1 windows, p = m s_N + 1 inputs."""

    shared: Shared
    inputs: Inputs
    settings: FloatArray  # log 1/δ, λ, α, ν, B_G, B_R, B_β, whether B_R is estimated, A1, A2
    chosen: FloatArray  # how often each arm was chosen, (k,)
    learned: FloatArray  # N_a: how often its reward was learned, (k,)
    ζ: FloatArray  # smoothed |X − Ĝ'Θ|, (k, S)
    J: FloatArray  # cost of a window, (k, S)
    log_det: FloatArray  # log det V − log det λI, (k, S)
    trace: FloatArray  # tr V⁻¹, (k, S)
    u: FloatArray  # (k, p)
    W: FloatArray  # (k, p, p)
    scratch: FloatArray  # (5, p)
    G: FloatArray  # weights per window with A2 as printed, (k, S, p), else empty
    V: FloatArray  # with A1 as printed, (k, p, p), else empty


@register("ares", citation="Gornet, Hosseinzadeh and Sinopoli, arXiv 2406.10418")
@dataclass(kw_only=True, eq=False, repr=False)
class ARES(RidgePolicy):
    """Adaptive Recursive least-squares Exploration of System, with the paper's slips put right (docs/paper.md).

    Each arm's reward is regressed on windows of the last s = 0…s_N contexts, all at once. The arm's forecast comes from
    the window that minimises Ĵ = ζ + ν e √(Θ'V⁻¹Θ); its width e √(Θ'V⁻¹Θ) from the largest of the arms' windows, which
    keeps one arm from looking certain only because its window is short. It is a heuristic, not optimism: the noise
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
        α in (0, 1), how slowly ζ forgets.
    max_window
        s_N ≥ 1.
    window_penalty
        ν ≥ 0.
    weight_bound
        B_G ≥ 0, a bound on the norm of the weights.
    noise_bound
        B_R in units of reward, B_R² ≥ c'Pc + σ² (A3); "auto" estimates it as the largest over arms of √(π/2) times the
        smallest ζ (A17).
    width
        "noise" for e (Eq. e_def), the paper's choice; "noise+bias" for b (Eq. b_def), with `bias_bound`.
    bias_bound
        Bound on |β_a|, in units of reward; it stands for √g(δ/N_a) B_β of Theorem 2 (A18).
    as_printed
        Any of "A1", "A2", "A3", "A4": what the paper prints instead, to see it fail. A1 and A2 are slower.

    Examples
    --------
    >>> policy = ARES(arms=["low", "mid", "high"], context_dim=2)
    >>> decision = policy.decide()
    >>> policy.learn(decision, reward=1.7)
    >>> policy.observe([0.3, -1.2])
    >>> policy.decide().name
    'mid'
    """

    claims: ClassVar[Claims] = Claims(uses_contexts=True, handles_missing_contexts=True)
    axes: ClassVar[Mapping[str, str]] = (
        dict.fromkeys(("chosen", "learned"), "k")
        | dict.fromkeys(("ζ", "J", "log_det", "trace"), "ks")
        | {"u": "kp", "W": "kpp", "G": "ksp", "V": "kpp"}
    )

    confidence: float = 0.1
    ridge: float = 1.0
    smoothing: float = 0.99
    max_window: int = 10
    window_penalty: float = 0.1
    weight_bound: float = 100.0
    noise_bound: float | Literal["auto"] = "auto"
    width: Literal["noise", "noise+bias"] = "noise"
    bias_bound: float = 0.0
    as_printed: Collection[str] = frozenset()

    def _new_state(self) -> FloatArray:
        if self._context_dim == 0:
            raise InvalidInputError("context_dim: expected at least 1, since ARES forecasts from contexts, got 0")
        self.confidence = _checks.fraction("confidence", self.confidence)
        self.ridge = _checks.number("ridge", self.ridge, above=0)
        self.smoothing = _checks.fraction("smoothing", self.smoothing)
        self.max_window = _checks.integer("max_window", self.max_window, least=1)
        self.window_penalty = _checks.number("window_penalty", self.window_penalty, least=0)
        self.weight_bound = _checks.number("weight_bound", self.weight_bound, least=0)
        self.bias_bound = _checks.number("bias_bound", self.bias_bound, least=0)
        auto = _checks.auto_number("noise_bound", self.noise_bound)
        self.width = _checks.choice("width", self.width, ("noise", "noise+bias"))
        self.as_printed = frozenset(
            _checks.choice("as_printed", row, ("A1", "A2", "A3", "A4")) for row in self.as_printed
        )
        if (self.width == "noise+bias") != (self.bias_bound > 0):
            raise InvalidInputError(
                f'bias_bound: expected above 0 with width="noise+bias" and only there, got {self.bias_bound}'
            )
        if self.standardise and self.as_printed & {"A1", "A2"}:
            raise InvalidInputError('standardise: expected False with as_printed "A1" or "A2", which keep no factor')
        B_R = 1.0 if auto is None else auto
        if "A3" in self.as_printed:
            if auto is None:
                raise InvalidInputError('noise_bound: expected a number with as_printed={"A3"}, which squares it')
            B_R = B_R**2
        ν = 1.0 if "A4" in self.as_printed else self.window_penalty
        A1, A2 = "A1" in self.as_printed, "A2" in self.as_printed
        k, m, S = self.arm_count, self._context_dim, self.max_window + 1
        p = m * self.max_window + 1
        logδ, λ = math.log(1 / self.confidence), self.ridge
        return new_state(
            k,
            m,
            p,
            new_inputs(m, self.max_window, 0, 0),
            np.array([logδ, λ, self.smoothing, ν, self.weight_bound, B_R, self.bias_bound, auto is None, A1, A2]),
            np.zeros(2 * k + 3 * k * S),
            np.tile((m * np.arange(S) + 1) / λ, k),
            np.zeros(k * p),
            np.tile(np.eye(p) / math.sqrt(λ), (k, 1, 1)),
            np.zeros(5 * p + A2 * k * S * p),
            np.tile(λ * np.eye(p), (A1 * k, 1, 1)),
        )

    @property
    def noise_bound_in_use(self) -> float:
        """B_R as it is now, in units of reward: given, or estimated."""
        own: AresState = self.kernels.open(self._state)
        return float(own.settings[5]) * (1.0 if self._units is None else abs(float(self._units.scale[-1])))

    def _window_sizes(self) -> dict[str, int]:
        return {"window": self.max_window, "lags": 0}

    def _change_units(self, change: Change) -> None:
        own: AresState = self.kernels.open(self._state)
        change_inputs(own.inputs, change)
        own.settings[[5, 6]] *= change.slope[-1]  # B_R and B_β
        own.ζ[:] *= change.slope[-1]
        own.J[:] *= change.slope[-1]
        sizes = self._context_dim * np.arange(self.max_window + 1, dtype=np.int64) + 1
        for a in range(self.arm_count):
            change_regression(own.W[a], own.u[a], self.ridge, change)
            own.log_det[a], own.trace[a] = log_det_and_trace(own.W[a], self.ridge, sizes)

    def _has_windows(self) -> bool:
        return True


@inlined
def open_ares(state: FloatArray) -> AresState:
    """Split the packed state into its parts."""
    k, m = int(state[0]), int(state[1])
    at = private_start(state)
    inputs = open_inputs(state, at, m)
    s_N = int(inputs.head[0])
    S, p = s_N + 1, m * s_N + 1
    settings = at + inputs_length(inputs)
    chosen = settings + _SETTINGS
    ζ = chosen + 2 * k
    u = ζ + 4 * k * S
    W = u + k * p
    scratch = W + k * p * p
    A1, A2 = int(state[settings + 8]), int(state[settings + 9])
    return AresState(
        open_shared(state),
        inputs,
        view(state, settings, (_SETTINGS,)),
        view(state, chosen, (k,)),
        view(state, chosen + k, (k,)),
        view(state, ζ, (k, S)),
        view(state, ζ + k * S, (k, S)),
        view(state, ζ + 2 * k * S, (k, S)),
        view(state, ζ + 3 * k * S, (k, S)),
        view(state, u, (k, p)),
        view(state, W, (k, p, p)),
        view(state, scratch, (5, p)),
        view(state, scratch + 5 * p, (A2 * k, S, p)),
        view(state, scratch + 5 * p + A2 * k * S * p, (A1 * k, p, p)),
    )


@inlined
def noise_width(settings: FloatArray, played: float, log_det: float, trace: float, p_s: int) -> float:
    """Return e = √(2B_R² (log 1/δ + ½ log det V/λ)) + λ B_G √tr V⁻¹ (Eq. e_def), and b with B_β > 0 (Eq. b_def)."""
    logδ, λ, B_G, B_R, B_β = settings[0], settings[1], settings[4], settings[5], settings[6]
    e: float = B_R * math.sqrt(2.0 * logδ + log_det) + λ * B_G * math.sqrt(trace)
    if B_β > 0.0:
        e += B_β * math.sqrt(played * max(p_s - λ * trace, 0.0))
    return e


@inlined
def ares_decide(own: AresState, features: FloatArray, draws: FloatArray) -> int:
    """Choose the window of every arm, then the arm (Steps 3 (a) to (d))."""
    header, order, forecast, width, window, closed, Θ = own.shared
    k, m, t = int(header[0]), int(header[1]), int(header[ROUNDS])
    J, u, inputs = own.J, own.u, own.inputs
    build_inputs(inputs, k, t, features, Θ)
    usable = min(int(inputs.head[0]), int(inputs.head[3]))  # windows that have been filled (A6)
    largest = 0
    untried = -1  # of the arms without a reward, the one that was chosen least
    for r in range(k):
        a = int(order[r])
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
    arm = -1
    for r in range(k):
        a = int(order[r])
        ridge_project(own.W[a], Θ, y, p_s)
        mean = 0.0
        uncertainty = 0.0
        if len(own.G) > 0:
            printed_forecasts(own.G[a], Θ, m, own.scratch[4])
            mean = own.scratch[4, int(window[a])]
        else:
            for i in range(m * int(window[a]) + 1):
                mean += u[a, i] * y[i]
        for i in range(p_s):
            uncertainty += y[i] * y[i]
        forecast[a] = mean
        if own.learned[a] == 0.0:
            width[a] = np.inf
        else:
            e = noise_width(own.settings, own.learned[a], own.log_det[a, largest], own.trace[a, largest], p_s)
            width[a] = e * math.sqrt(uncertainty)
        if closed[a] == 0.0 and (arm < 0 or mean + width[a] > forecast[arm] + width[arm]):
            arm = a
    return untried if untried >= 0 else arm


@inlined
def ares_played(own: AresState, arm: int) -> None:
    """Take note of the arm of this round."""
    own.shared.header[ROUNDS] += 1.0
    if arm >= 0:
        own.chosen[arm] += 1.0


@inlined
def ares_learn(own: AresState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Update V, Ĝ, ζ, e and Ĵ of the played arm for every window (Step 3 (h), corrected: A1, A2, A4, A8)."""
    m, reward = int(own.shared.header[1]), rewards[arm]
    settings, W, u, ζ, J = own.settings, own.W[arm], own.u[arm], own.ζ[arm], own.J[arm]
    log_det, traces = own.log_det[arm], own.trace[arm]
    y, r, row_norms, q, printed = own.scratch[0], own.scratch[1], own.scratch[2], own.scratch[3], own.scratch[4]
    α, ν = settings[2], settings[3]
    ridge_project(W, memory, y, len(y))
    own.learned[arm] += 1.0
    if len(own.G) > 0:
        printed_forecasts(own.G[arm], memory, m, printed)
        printed_weights(own.G[arm], W, y, reward, m, r)
    forecast = 0.0
    uncertainty = 0.0
    i = 0
    for s in range(len(ζ)):
        while i <= m * s:
            forecast += u[i] * y[i]
            uncertainty += y[i] * y[i]
            i += 1
        ζ[s] = α * ζ[s] + (1.0 - α) * abs(reward - (printed[s] if len(own.G) > 0 else forecast))
        q[s] = uncertainty
    ridge_update(W, u, y, reward, r, row_norms)
    if settings[7] > 0.0:
        settings[5] = estimated_noise_bound(own.ζ, own.learned, α)
    if len(own.V) > 0:
        printed_forms(own.V[arm], memory, m, printed[: len(ζ)])
    trace = 0.0
    i = 0
    for s in range(len(ζ)):
        while i <= m * s:
            trace += row_norms[i]
            i += 1
        traces[s] = trace
        log_det[s] += math.log(1.0 + q[s])
        e = noise_width(settings, own.learned[arm], log_det[s], trace, m * s + 1)
        form = printed[s] if len(own.V) > 0 else q[s] / (1.0 + q[s])  # Θ'V⁻¹Θ after the update is q / (1 + q)
        J[s] = ζ[s] + ν * e * math.sqrt(form)


@inlined
def estimated_noise_bound(ζ: FloatArray, played: FloatArray, α: float) -> float:
    """B_R from ARES's own residuals: the largest over arms of √(π/2) min_s ζ, freed of its start at 0 (A17)."""
    bound = 0.0
    for a in range(len(played)):
        if played[a] > 0.0:
            smallest = ζ[a, 0]
            for s in range(1, ζ.shape[1]):
                smallest = min(smallest, ζ[a, s])
            bound = max(bound, _HALF_NORMAL * smallest / (1.0 - α ** played[a]))
    return bound


@inlined
def ares_observe(own: AresState, context: FloatArray) -> None:
    """Take in a context."""
    push_context(own.inputs, context)


ARES.kernels = compile_kernels(__name__, open_ares, ares_decide, ares_played, ares_learn, ares_observe)
