"""The filter as a finite window: a forecast from the last s contexts alone (Eqs. 9 G_a and 11 Matrix_Form_2).

Everywhere in undertow a window is written newest first, Θ_t = [1, θ_{t−1}, θ_{t−2}, …, θ_{t−s}], so that a shorter
window is the beginning of a longer one. The paper writes the same numbers oldest first, with the 1 at the end.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.compiled.kernel import inlined_kernel
from undertow.errors import InvalidInputError
from undertow.kalman import Belief, condition, predict
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.system import LinearGaussianSystem

__all__ = [
    "BestWindow",
    "ContextRing",
    "best_window",
    "bias_deviations",
    "context_window",
    "window_bias",
    "window_errors",
    "window_weights",
]


class BestWindow(NamedTuple):
    """The best linear forecast from a window, and its error.

    Attributes
    ----------
    weights
        One row per arm, (k, m s + 1), in the order of Θ.
    error_variance
        Variance of reward minus forecast, (k,), reward noise included.
    """

    weights: FloatArray
    error_variance: FloatArray


def window_weights(system: LinearGaussianSystem, window: int) -> FloatArray:
    """Return G_a(s) for every arm: the steady-state filter's own weights on the last s contexts, (k, m s + 1).

    With A = Γ − ΓKC the weight of θ_{t−i} is c_a'A^{i−1}ΓK and the constant is Σ_{τ=0}^{s−1} c_a'A^τ(μ − ΓKθ₀) + x₀_a.
    The paper's sum runs from τ = 1 to s, which breaks X̂ = G'Θ + β whenever μ ≠ 0 (docs/paper.md, A5).

    Examples
    --------
    >>> from undertow import paper_system
    >>> window_weights(paper_system(psi=1), 3).shape
    (2, 4)
    """
    window = checks.integer("window", window, least=0)
    _, μ, _, _, θ0, _, c, x0, _ = system.symbols
    ΓK, A = system.steady_state.prediction_gain, system.steady_state.closed_loop
    G = [x0[:, None]]
    cA = c
    for _ in range(window):
        G[0] = G[0] + (cA @ (μ - ΓK @ θ0))[:, None]
        G.append(cA @ ΓK)
        cA = cA @ A
    return np.hstack(G)


def window_bias(system: LinearGaussianSystem, predicted_mean: npt.ArrayLike, window: int) -> FloatArray:
    """Return β_a = c_a'A^s ẑ_{t−s}, what the window leaves out of a forecast (Eq. 12 residual_error_beta).

    `predicted_mean` is the steady-state filter's ẑ_{t−s}, (d,) or (n, d); the result is (k,) or (n, k).
    """
    window = checks.integer("window", window, least=0)
    d = system.state_dim
    rows: tuple[int | str, ...] = (d,) if checks.numbers("predicted_mean", predicted_mean).ndim == 1 else ("n", d)
    z = checks.array("predicted_mean", predicted_mean, rows)
    return np.asarray(z @ (system.arms @ np.linalg.matrix_power(system.steady_state.closed_loop, window)).T)


def bias_deviations(system: LinearGaussianSystem, max_window: int) -> FloatArray:
    """Return the stationary standard deviation of β_a for s = 0…max_window, (max_window + 1, k).

    √(c_a'A^s Ẑ A^s'c_a) with A = Γ − ΓKC and Ẑ = Z − P, the covariance of the filter's prediction. Remark 3 of the
    paper has it fall with s; A is stable but not normal, so it may rise first.

    Examples
    --------
    >>> from undertow import paper_system
    >>> bias_deviations(paper_system(psi=4), 10)[[0, 3, 10], 0].round(2)
    array([3.43, 3.71, 3.47])
    """
    A, steps = system.steady_state.closed_loop, checks.integer("max_window", max_window, least=0)
    Ẑ = system.stationary_covariance - system.steady_state.prediction_covariance
    deviations = np.empty((steps + 1, system.arm_count))
    powers = system.arms
    for s in range(steps + 1):
        deviations[s] = np.sqrt(np.maximum(np.einsum("ki,ij,kj->k", powers, Ẑ, powers), 0.0))
        powers = powers @ A
    return deviations


def context_window(contexts: npt.ArrayLike, t: int, window: int) -> FloatArray:
    """Return Θ_t = [1, θ_{t−1}, …, θ_{t−s}] from the rows of `contexts`, (m s + 1,).

    Rounds count from 0, so the window of round t needs t ≥ s earlier rows.

    Examples
    --------
    >>> context_window([[0.1], [0.2], [0.3]], t=3, window=2)
    array([1. , 0.3, 0.2])
    """
    θ = checks.array("contexts", contexts, ("n", "m"), missing=True)
    window = checks.integer("window", window, least=0)
    t = checks.integer("t", t, least=0)
    if not window <= t <= len(θ):
        raise InvalidInputError(
            f"t: expected a round from {window} (the window) to {len(θ)} (the number of contexts), got {t}"
        )
    return np.concatenate([[1.0], θ[t - window : t][::-1].ravel()])


def best_window(system: LinearGaussianSystem, window: int) -> BestWindow:
    """Return the best linear forecast of every arm from the last s contexts, the limit of infinite data.

    It is the regression of X_t on Θ_t under the stationary law: Cov(z_t, θ_{t−i}) = Γ^i Z C' and, for i ≤ j,
    Cov(θ_{t−i}, θ_{t−j}) = C Γ^{j−i} Z C' + R·[i = j]. Unlike `window_weights`, it has no bias.

    Examples
    --------
    >>> from undertow import paper_system
    >>> best_window(paper_system(psi=1), 10).error_variance.round(2)
    array([5.54, 4.02])
    """
    s = checks.integer("window", window, least=0)
    Γ, _, _, C, θ0, R, c, x0, σ2 = system.symbols
    z, Z = system.stationary_mean, system.stationary_covariance
    m = len(C)
    ΓZC = [Z @ C.T]  # Γ^i Z C'
    for _ in range(s):
        ΓZC.append(Γ @ ΓZC[-1])
    contexts = np.zeros((m * s, m * s))
    for i in range(s):
        for j in range(i, s):
            block = C @ ΓZC[j - i] + (R if i == j else 0.0)
            contexts[m * i : m * i + m, m * j : m * j + m] = block
            contexts[m * j : m * j + m, m * i : m * i + m] = block.T
    cross = np.hstack([c @ ΓZC[i] for i in range(1, s + 1)]) if s else np.zeros((len(c), 0))
    W = np.linalg.solve(contexts, cross.T).T
    constant = c @ z + x0 - W @ np.tile(C @ z + θ0, s)
    variance = np.einsum("ai,ij,aj->a", c, Z, c) - np.einsum("ai,ai->a", W, cross) + σ2
    return BestWindow(np.hstack([constant[:, None], W]), variance)


def window_errors(system: LinearGaussianSystem, max_window: int) -> FloatArray:
    """Return the error variance of the best forecast for every window 0…s_N and arm, (s_N + 1, k).

    A Kalman filter that starts in the stationary law and has seen s contexts is the best forecast from those s, so one
    pass of the filter gives every window. The last row tends to c'Pc + σ².

    Examples
    --------
    >>> from undertow import paper_system
    >>> window_errors(paper_system(psi=1), 10)[[0, 1, 10]].round(2)
    array([[26.25, 14.04],
           [22.08,  6.03],
           [ 5.54,  4.02]])
    """
    max_window = checks.integer("max_window", max_window, least=0)
    belief = Belief(system.stationary_mean, system.stationary_covariance)
    anything = np.zeros(system.context_dim)  # the covariance does not depend on the observations
    errors = np.empty((max_window + 1, system.arm_count))
    for s in range(max_window + 1):
        errors[s] = np.einsum("ai,ij,aj->a", system.arms, belief.covariance, system.arms) + system.reward_noise
        belief = predict(condition(belief, system, anything), system)
    return errors


class ContextRing:
    """The last contexts, newest first, in one contiguous piece; O(m) per round.

    Every row is written twice, `max_window` rows apart, so that the newest rows can always be read without a seam.
    Rows before the first are zero; missing entries are NaN.

    Examples
    --------
    >>> ring = ContextRing(max_window=3, context_dim=1)
    >>> for value in [1.0, 2.0, None, 4.0]:
    ...     ring.push(None if value is None else [value])
    >>> ring.newest(3).ravel()
    array([ 4., nan,  2.])
    >>> ring.seen
    4
    """

    def __init__(self, max_window: int, context_dim: int) -> None:
        self.max_window = checks.integer("max_window", max_window, least=1)
        self.context_dim = checks.integer("context_dim", context_dim, least=0)
        self.seen = 0
        self._head = 0
        self._rows = np.zeros((2 * self.max_window, self.context_dim))

    def push(self, context: npt.ArrayLike | None) -> None:
        """Add one row; None if the whole row is missing, NaN if an entry is."""
        row = np.full(self.context_dim, np.nan) if context is None else context
        checked = checks.array("context", row, (self.context_dim,), missing=True)
        self._head = ring_push(self._rows, self._head, checked)
        self.seen += 1

    def newest(self, window: int) -> FloatArray:
        """Return a read-only view of the newest rows, (s, m), newest first."""
        if not 0 <= checks.integer("window", window, least=0) <= self.max_window:
            raise InvalidInputError(f"window: expected at most max_window = {self.max_window}, got {window}")
        view = self._rows[self._head : self._head + window]
        view.setflags(write=False)
        return view


@inlined_kernel
def ring_push(rows: FloatArray, head: int, context: FloatArray) -> int:
    """Write a row in front of the newest, at `head`, and its mirror image; return its place."""
    s_N = len(rows) // 2
    head = head - 1 if head > 0 else s_N - 1
    for j in range(len(context)):
        rows[head, j] = context[j]
        rows[head + s_N, j] = context[j]
    return head
