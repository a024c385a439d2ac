"""The error and regret bounds of the paper as functions, with corrections (docs/theory.md).

V is the regularised Gram matrix λI + ΣΘΘ' of an arm's regression, δ the confidence, s the window, p = m s + 1.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.system import LinearGaussianSystem
from undertow.theory.oracles import context_oracle_regret
from undertow.window import window_weights

_MOST_CONTEXTS = 20_000  # entries of a stacked window whose covariance still fits into memory


class StackedContexts(NamedTuple):
    """The law of a window of contexts, oldest first: [θ_{t−s}; …; θ_{t−1}] = C_s ẑ_{t−s} + F_s ε + mean.

    Attributes
    ----------
    observation
        C_s, with blocks CΓ^i, (m s, d).
    innovation
        F_s, with blocks CΓ^{i−j}K below the identity (the printed exponents are one too low, T4), (m s, m s).
    noise
        Σ_E = F_s (I ⊗ Σ_θ) F_s', (m s, m s), with Σ_θ = CPC' + R.
    estimate
        Ẑ = Z − P, the covariance of the filter's prediction, (d, d).
    mean
        Mean of the contexts, (m s,).
    """

    observation: FloatArray
    innovation: FloatArray
    noise: FloatArray
    estimate: FloatArray
    mean: FloatArray

    @property
    def covariance(self) -> FloatArray:
        """Covariance C_sẐC_s' + Σ_E of the stacked contexts, (m s, m s)."""
        return np.asarray(self.observation @ self.estimate @ self.observation.T + self.noise)

    @property
    def second_moment(self) -> float:
        """E‖Θ‖² = tr(C_sẐC_s' + Σ_E) + ‖mean‖² + 1."""
        return float(np.trace(self.covariance) + self.mean @ self.mean + 1)


class BoundTerms(NamedTuple):
    """The terms of Theorem 2 and Corollary 1 after n rounds (Eqs. b_theta_bound_def to s_bound_function).

    Attributes
    ----------
    L
        L_Θ = n E‖Θ‖² / δ, a bound on ‖Θ‖² by Markov's inequality.
    B_theta
        B̄_θ = √(2 E‖Θ‖² log(n/δ) / λ).
    B_u
        B̄_u = √(2p log(1 + nL/(λp))), from the elliptic potential lemma.
    B_b, B_b_known
        B̄_b with the system's own B_β(s), and the same with the bound **B**_β that the learner is given.
    B_e
        B̄_e, the same without the bias.
    B_s
        B_s = n √(g(δ/n) / λ), with g the bound on ‖Θ‖².
    state_size
        √g_Z(δ/n), which bounds the norm of the state (with a drift, and the norm of its mean).
    bias
        B_β(s) √g_Z(δ/n), which bounds |β|.
    noise_bound
        B_R.
    """

    L: float
    B_theta: float
    B_u: float
    B_b: float
    B_b_known: float
    B_e: float
    B_s: float
    state_size: float
    bias: float
    noise_bound: float


def norm_bound(covariance: npt.ArrayLike, confidence: float) -> float:
    """Return g_Σ(δ) with P(X'X ≤ g_Σ(δ)) ≥ 1 − δ for X ~ N(0, Σ) (replaces Eq. g_sigma_def, T2).

    Laurent and Massart: g = tr Σ + 2‖Σ‖_F √log(1/δ) + 2‖Σ‖ log(1/δ). The printed version needs an unknown constant.

    Examples
    --------
    >>> round(norm_bound([[1.0]], 0.05), 3)
    10.453
    """
    Σ = checks.array("covariance", covariance, ("d", "d"))
    Σ = checks.covariance("covariance", Σ, len(Σ))
    x = math.log(1 / checks.fraction("confidence", confidence))
    eigenvalues = np.linalg.eigvalsh(Σ)
    largest = eigenvalues.max(initial=0.0)
    return float(eigenvalues.sum() + 2 * math.sqrt(float((eigenvalues**2).sum()) * x) + 2 * largest * x)


def bias_factor(system: LinearGaussianSystem, window: int) -> float:
    """Return B_β(s) = B_c ‖(Γ − ΓKC)^s‖ with B_c = max ‖c_a‖ (Eq. B_beta_def)."""
    A = np.linalg.matrix_power(system.steady_state.closed_loop, checks.integer("window", window, least=0))
    return float(np.linalg.norm(system.arms, axis=1).max() * np.linalg.norm(A, 2))


def true_noise_bound(system: LinearGaussianSystem) -> float:
    """Return the smallest B_R with B_R² ≥ c_a'Pc_a + σ² for every arm (Assumption 5), as the paper gives it to ARES.

    Examples
    --------
    >>> from undertow import paper_system
    >>> round(true_noise_bound(paper_system(psi=1)) ** 2, 3)
    5.333
    """
    P, c = system.steady_state.prediction_covariance, system.arms
    return math.sqrt(float((np.diag(c @ P @ c.T) + system.reward_noise).max()))


def noise_width(
    V: npt.ArrayLike, *, noise_bound: float, confidence: float = 0.1, ridge: float = 1.0, weight_bound: float = 100.0
) -> float:
    """Return e = √(2B_R² log(det V^½ / (δ det(λI)^½))) + λB_G √tr V⁻¹ (Eq. e_def), a heuristic (T1)."""
    V, λ = _gram(V), checks.number("ridge", ridge, above=0)
    B_R = checks.number("noise_bound", noise_bound, least=0)
    B_G = checks.number("weight_bound", weight_bound, least=0)
    if (least := float(np.linalg.eigvalsh(V)[0])) < λ * (1 - 1e-6):
        raise InvalidInputError(f"V: expected λI + ΣΘΘ', so no eigenvalue below ridge = {λ:g}, got {least:.6g}")
    x = math.log(1 / checks.fraction("confidence", confidence)) + np.linalg.slogdet(V)[1] / 2
    noise = math.sqrt(2 * B_R**2 * (x - len(V) * math.log(λ) / 2))
    return float(noise + λ * B_G * math.sqrt(np.trace(np.linalg.inv(V))))


def model_error_bound(
    V: npt.ArrayLike,
    plays: int,
    *,
    bias: float,
    noise_bound: float,
    confidence: float = 0.1,
    ridge: float = 1.0,
    weight_bound: float = 100.0,
) -> float:
    """Return b = e + √(N_a g) B_β √tr(I − λV⁻¹), the bound on ‖Ĝ − G‖_V (Eq. probabilistic_bound, and b_def).

    `bias` stands for √g(δ/N_a) B_β(s), a bound on |β|: with the system's own B_β(s) it is the b of Theorem 1, with a
    bound that the learner is given the **b** of Theorem 2.
    """
    e = noise_width(V, noise_bound=noise_bound, confidence=confidence, ridge=ridge, weight_bound=weight_bound)
    V, n, β = _gram(V), checks.integer("plays", plays, least=0), checks.number("bias", bias, least=0)
    spread = max(len(V) - ridge * float(np.trace(np.linalg.inv(V))), 0.0)
    return e + math.sqrt(n) * β * math.sqrt(spread)


def prediction_error_bound(model_error: float, V: npt.ArrayLike, inputs: npt.ArrayLike) -> float:
    """Return b √(Θ'V⁻¹Θ), the bound on |Ĝ'Θ − G'Θ| given one on ‖Ĝ − G‖_V (Lemma optimal_value)."""
    b, V = checks.number("model_error", model_error, least=0), _gram(V)
    Θ = checks.array("inputs", inputs, (len(V),))
    return float(b * math.sqrt(Θ @ np.linalg.solve(V, Θ)))


def stacked_contexts(system: LinearGaussianSystem, window: int) -> StackedContexts:
    """Return the stationary law of s contexts by their innovations (Eq. sigma_e_def, exponents corrected, T4)."""
    s = checks.integer("window", window, least=0)
    Γ, C, R = system.dynamics, system.context_map, system.context_noise
    d, m = len(Γ), len(C)
    if m * s > _MOST_CONTEXTS:
        raise InvalidInputError(f"window: expected at most {_MOST_CONTEXTS} context entries in all, got {m} · {s}")
    K, P = system.steady_state.filter_gain, system.steady_state.prediction_covariance
    powers = [np.eye(d)]
    for _ in range(s):
        powers.append(Γ @ powers[-1])
    F = np.eye(m * s)
    blocks = F.reshape(s, m, s, m)
    for lag in range(1, s):
        blocks[np.arange(lag, s), :, np.arange(s - lag), :] = C @ powers[lag] @ K
    observation = np.vstack([C @ powers[i] for i in range(s)]) if s else np.zeros((0, d))
    noise = F @ np.kron(np.eye(s), C @ P @ C.T + R) @ F.T
    mean = np.tile(C @ system.stationary_mean + system.context_offset, s)
    return StackedContexts(observation, F, noise, system.stationary_covariance - P, mean)


def bound_terms(
    system: LinearGaussianSystem,
    window: int,
    rounds: int,
    *,
    confidence: float = 0.1,
    ridge: float = 1.0,
    weight_bound: float = 100.0,
    noise_bound: float | None = None,
    bias_factor_known: float | None = None,
) -> BoundTerms:
    """Return every term of the regret bounds.

    `noise_bound` is B_R, by default the true √max(c'Pc + σ²); `bias_factor_known` is **B**_β, by default B_β(s) itself.
    """
    n = checks.integer("rounds", rounds, least=1)
    δ, λ = checks.fraction("confidence", confidence), checks.number("ridge", ridge, above=0)
    contexts = stacked_contexts(system, window)
    p = len(contexts.mean) + 1
    B_R = true_noise_bound(system) if noise_bound is None else checks.number("noise_bound", noise_bound, least=0)
    B_G = checks.number("weight_bound", weight_bound, least=0)
    moment = contexts.second_moment
    L = n * moment / δ
    growth = math.log(1 + n * L / (λ * p))
    size = math.sqrt(norm_bound(system.stationary_covariance, δ / n)) + float(np.linalg.norm(system.stationary_mean))
    own = bias_factor(system, window)
    told = own if bias_factor_known is None else checks.number("bias_factor_known", bias_factor_known, least=0)
    B_e = B_G * math.sqrt(λ * p) + math.sqrt(2 * B_R**2 * (math.log(n / δ) + p / 2 * growth))
    spread = math.sqrt(norm_bound(contexts.covariance, δ / n))
    inputs = (spread + float(np.linalg.norm(contexts.mean))) ** 2 + 1
    return BoundTerms(
        L=L,
        B_theta=math.sqrt(2 * moment * math.log(n / δ) / λ),
        B_u=math.sqrt(2 * p * growth),
        B_b=B_e + math.sqrt(n * p) * size * own,
        B_b_known=B_e + math.sqrt(n * p) * size * told,
        B_e=B_e,
        B_s=n * math.sqrt(inputs / λ),
        state_size=size,
        bias=own * size,
        noise_bound=B_R,
    )


def printed_regret_bound(
    system: LinearGaussianSystem,
    window: int,
    rounds: int,
    *,
    width: str = "noise",
    confidence: float = 0.1,
    **more: float,
) -> float:
    """Return the regret bound as printed, with g as corrected (T2); it is not one, since its noise term fails (T3).

    `width="noise+bias"` is Theorem 2 (Eq. regret_bound_OFU): k√n B̄_θB̄_u(B̄_b + **B̄**_b) + 2kn B_β√(2 log(n/δ)) + noise;
    `width="noise"` is Corollary 1 (Eq. regret_bound_OFU_e): with B̄_e for **B̄**_b, with √(np g_Z(δ/n)) B_s(n) more, in
    which the print has lost the factor B_β(s) of its proof (and gained an N_a, left out here), and with √log(n/δ) for
    √(2 log(n/δ)). The noise term is k√(4nB_R² log(1/δ)).
    """
    terms = bound_terms(system, window, rounds, confidence=confidence, **more)
    n, k, δ = rounds, system.arm_count, confidence
    p = system.context_dim * window + 1
    total = model_error_term(terms, n, k, width)
    logs = 2 * math.log(n / δ)
    if width == "noise":
        total += math.sqrt(n * p) * terms.state_size * terms.B_s
        logs /= 2
    total += 2 * k * n * bias_factor(system, window) * math.sqrt(logs)
    return total + k * math.sqrt(4 * n * terms.noise_bound**2 * math.log(1 / δ))


def corrected_regret_bound(
    system: LinearGaussianSystem,
    window: int,
    rounds: int,
    *,
    width: str = "noise",
    confidence: float = 0.1,
    **more: float,
) -> float:
    """Return n κ(P) + learning: the context Oracle's own regret, and a learner's regret against it (T3).

    Σ(ε_{a*} − ε_a) does not stay small, because the best arm depends on the state: it grows linearly, by the Oracle's
    own regret n κ and more. Expected regret is exactly n κ(P), plus what is lost against the Oracle's forecasts, minus
    E Σε of the arms that are played. The second is at most the model's error and twice the bias, and the third is 0 if
    choices depend on past contexts alone. For such a policy this is a bound, provided that the confidence sets of
    Theorem 1 hold, which the paper's proof does not secure (T1). ARES also chooses by its own rewards, through ζ and
    Ĝ, which predict ε. There Σε is small and mostly above 0 (`undertow theory played-noise`), but nothing bounds it
    from below, so for ARES this is no theorem.
    """
    terms = bound_terms(system, window, rounds, confidence=confidence, **more)
    n, k = rounds, system.arm_count
    p = system.context_dim * window + 1
    learning = model_error_term(terms, n, k, width) + 2 * k * n * terms.bias
    if width == "noise":
        learning += math.sqrt(n * p) * terms.bias * terms.B_s
    return n * context_oracle_regret(system).value + learning


def regret_rate(
    rounds: int,
    window: int,
    context_dim: int,
    arm_count: int,
    *,
    decay: float,
    width: str = "noise",
    printed: bool = False,
) -> dict[str, float]:
    """Return the growth of each term of a regret bound, up to constants; `decay` is c in ‖A^s‖ ~ c^s.

    Theorem 2 with `width="noise+bias"` (Eq. regret_rate_increase), Corollary 1 with "noise" (Eq.
    regret_rate_increase_no_bias).
    B̄_θ, B̄_u and B̄_b each grow with √(ms + 1), so the model's error does with (ms + 1)^{3/2}, not √(ms + 1) as printed
    (a factor of √(ms + 1) less if the size of Θ counts as constant); and Σ(ε_{a*} − ε_a) grows with n, not √n (T3).
    """
    checks.choice("width", width, ("noise", "noise+bias"))
    n, s = checks.integer("rounds", rounds, least=1), checks.integer("window", window, least=0)
    m, k = checks.integer("context_dim", context_dim, least=0), checks.integer("arm_count", arm_count, least=1)
    decay, printed = checks.number("decay", decay, least=0), checks.flag("printed", printed)
    p, log = m * s + 1, math.log(n)
    size = p**0.5 if printed else p**1.5
    rates = {
        "noise in the model": k * size * math.sqrt(n * log**3),
        "bias in the model": k * n * decay**s * size * math.sqrt(log**3),
        "bias": k * n * decay**s * math.sqrt(log),
        "noise": k * math.sqrt(n) if printed else float(n),
    }
    if width == "noise":
        rates["bias of the best arm"] = n**1.5 * decay**s * log * (p**0.5 if printed else p)
    return rates


def cost_inequality(
    system: LinearGaussianSystem,
    window: int,
    inputs: npt.ArrayLike,
    rewards: npt.ArrayLike,
    biases: npt.ArrayLike,
    *,
    arm: int,
    noise_bound: float,
    window_penalty: float = 0.1,
    confidence: float = 0.1,
    ridge: float = 1.0,
    weight_bound: float = 100.0,
) -> tuple[float, float]:
    """Return both sides of the inequality of Theorem s_cost on the last of the given rows, the others being learned.

    The left, J + |ε|, should not be below the right with probability 1 − δ (Eq. upper_bound_2). Rows of `inputs` are Θ,
    newest first; `biases` are the β of each row (`window_bias` of the filter's prediction).
    """
    λ, ν = checks.number("ridge", ridge, above=0), checks.number("window_penalty", window_penalty, least=0)
    G = window_weights(system, window)[int(checks.indices("arm", arm, (), below=system.arm_count))]
    Θ = checks.array("inputs", inputs, ("n", len(G)))
    if not len(Θ):
        raise InvalidInputError("inputs: expected at least one row, the last of which is forecast, got none")
    X = checks.array("rewards", rewards, (len(Θ),))
    β = checks.array("biases", biases, (len(Θ),))
    ε = X - Θ @ G - β
    past, new = Θ[:-1], Θ[-1]
    V = λ * np.eye(len(G)) + past.T @ past
    x = np.linalg.solve(V, new)
    e = noise_width(V, noise_bound=noise_bound, confidence=confidence, ridge=λ, weight_bound=weight_bound)
    J = abs(X[-1] - (past.T @ X[:-1]) @ x) + ν * e * math.sqrt(new @ x)
    right = abs((1 - ν) * (λ * G - past.T @ ε[:-1]) @ x - (past.T @ β[:-1]) @ x + β[-1])
    return float(J + abs(ε[-1])), float(right)


def model_error_term(terms: BoundTerms, n: int, k: int, width: str) -> float:
    """k√n B̄_θB̄_u(B̄_b + **B̄**_b), or with B̄_e for the last if the width has no bias."""
    checks.choice("width", width, ("noise", "noise+bias"))
    second = terms.B_b_known if width == "noise+bias" else terms.B_e
    return k * math.sqrt(n) * terms.B_theta * terms.B_u * (terms.B_b + second)


def _gram(V: npt.ArrayLike) -> FloatArray:
    V = checks.array("V", V, ("p", "p"))
    return checks.covariance("V", V, len(V), definite=True)
