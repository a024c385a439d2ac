"""Ridge regression for all windows together: the inverse Cholesky factor of V, and the exploration bonus.

With the inputs written newest first, Θ = [1, θ_{t−1}, θ_{t−2}, …], a shorter window is the beginning of a longer one,
so V(s) = λI + ΣΘΘ' is the leading block of V(s_N) and one factor serves every window. Kept are W = L⁻¹, where V = LL',
and u = Wb, where b = ΣXΘ. With y = WΘ, sums over the first m s + 1 entries give for window s

    forecast Ĝ'Θ = Σ u_i y_i,   Θ'V⁻¹Θ = Σ y_i²,   tr V⁻¹ = Σ ‖W_i‖²,   log det V grows by log(1 + Σ y_i²) per round.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.compiled.kernel import inlined, inlined_kernel
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["NestedForecast", "NestedRidge"]

_HALF_NORMAL = math.sqrt(math.pi / 2)  # standard deviation of a centred normal variable over its mean modulus


class NestedForecast(NamedTuple):
    """Forecast Ĝ'Θ and uncertainty Θ'V⁻¹Θ of every window, each (s_N + 1,)."""

    mean: FloatArray
    uncertainty: FloatArray


class NestedRidge:
    """Ridge regressions on the first 1, 1 + m, 1 + 2m, … inputs, learned together in O((m s_N + 1)²) per row.

    Parameters
    ----------
    block
        m, the number of inputs that each window adds.
    max_window
        s_N, the number of blocks after the leading constant.
    ridge
        λ > 0.

    Examples
    --------
    >>> model = NestedRidge(block=1, max_window=2, ridge=1.0)
    >>> for past, value in [([1.0, 0.5, 0.2], 1.0), ([1.0, -0.3, 0.5], 0.0), ([1.0, 0.9, -0.3], 1.5)]:
    ...     model.update(past, value)
    >>> model.forecast([1.0, 0.4, 0.9]).mean.round(3)
    array([0.625, 0.704, 0.55 ])
    """

    def __init__(self, block: int, max_window: int, ridge: float = 1.0) -> None:
        self.block = checks.integer("block", block, least=1)
        self.max_window = checks.integer("max_window", max_window, least=0)
        self.ridge = checks.number("ridge", ridge, above=0)
        size = self.block * self.max_window + 1
        self.rows = 0
        self._W = np.eye(size) / math.sqrt(self.ridge)
        self._u = np.zeros(size)
        sizes = self.block * np.arange(self.max_window + 1.0) + 1
        self._log_det = np.asarray(sizes * math.log(self.ridge), dtype=np.float64)
        self._trace = self._boundaries(np.full(size, 1 / self.ridge))

    def update(self, inputs: npt.ArrayLike, target: float) -> None:
        """Learn one row: V ← V + ΘΘ', b ← b + XΘ."""
        Θ = checks.measured("inputs", inputs, self._u.shape)
        X = checks.number("target", target)
        y, row_norms = np.empty_like(Θ), np.empty_like(Θ)
        ridge_project(self._W, Θ, y, len(y))
        ridge_update(self._W, self._u, y, X, np.empty_like(Θ), row_norms)
        self._log_det += np.log1p(self._boundaries(y**2))
        self._trace = self._boundaries(row_norms)
        self.rows += 1

    def forecast(self, inputs: npt.ArrayLike) -> NestedForecast:
        """Return every window's forecast for one row of inputs, and its uncertainty."""
        Θ = checks.measured("inputs", inputs, self._u.shape)
        y = np.empty_like(Θ)
        ridge_project(self._W, Θ, y, len(y))
        return NestedForecast(self._boundaries(self._u * y), self._boundaries(y**2))

    @property
    def log_det(self) -> FloatArray:
        """Log det V(s) for every window, (s_N + 1,)."""
        return self._log_det.copy()

    @property
    def trace_inverse(self) -> FloatArray:
        """Tr V(s)⁻¹ for every window, (s_N + 1,)."""
        return self._trace.copy()

    @property
    def explained(self) -> FloatArray:
        """b'V(s)⁻¹b = ‖ΣXΘ‖² in the norm of V(s)⁻¹, for every window, (s_N + 1,)."""
        return self._boundaries(self._u**2)

    def weights(self, window: int) -> FloatArray:
        """Return Ĝ(s) = V(s)⁻¹b(s), (m s + 1,), Eq. (15) identify_2."""
        size = self.block * min(checks.integer("window", window, least=0), self.max_window) + 1
        return np.asarray(self._W[:size, :size].T @ self._u[:size], dtype=np.float64)

    def _boundaries(self, terms: FloatArray) -> FloatArray:
        return np.asarray(np.cumsum(terms)[:: self.block])


@inlined_kernel
def ridge_project(W: FloatArray, Θ: FloatArray, y: FloatArray, rows: int) -> None:
    """Y = WΘ for the first rows of the lower triangular W; a window needs no more rows than it has inputs."""
    for i in range(rows):
        total = 0.0
        for j in range(i + 1):
            total += W[i, j] * Θ[j]
        y[i] = total


@inlined_kernel
def ridge_update(W: FloatArray, u: FloatArray, y: FloatArray, X: float, r: FloatArray, row_norms: FloatArray) -> None:
    """V ← V + ΘΘ' and b ← b + XΘ, given y = WΘ; `r` is scratch, `row_norms` receives ‖W_i‖².

    With c_i = 1 + Σ_{j≤i} y_j², r_i = Σ_{j<i} y_j W_j and P_i the forecast from the first i entries:
    W_i ← (c_{i−1}W_i − y_i r_i) / √(c_i c_{i−1}) and u_i ← (c_{i−1}u_i + y_i(X − P_{i−1})) / √(c_i c_{i−1}).
    """
    c = 1.0
    P = 0.0
    for i in range(len(y)):
        y_i = y[i]
        before = c
        c += y_i * y_i
        scale = 1.0 / math.sqrt(c * before)
        keep = before * scale
        move = y_i * scale
        forecast = P
        P += u[i] * y_i
        u[i] = keep * u[i] + move * (X - forecast)
        r[i] = 0.0
        norm = 0.0
        for j in range(i + 1):
            w = W[i, j]
            new = keep * w - move * r[j]
            W[i, j] = new
            r[j] += y_i * w
            norm += new * new
        row_norms[i] = norm


@inlined
def noise_width(logδ: float, λ: float, B_G: float, B_R: float, log_det: float, trace: float) -> float:
    """Return e = √(2B_R² (log 1/δ + ½ log det V/λ)) + λ B_G √tr V⁻¹ (Eq. 24 e_def)."""
    return B_R * math.sqrt(2.0 * logδ + log_det) + λ * B_G * math.sqrt(trace)


@inlined
def estimated_noise_bound(ζ: FloatArray, learned: FloatArray, α: float) -> float:
    """B_R from residuals: the largest over arms of √(π/2) min_s ζ, freed of its start at 0 (docs/paper.md, A17)."""
    bound = 0.0
    for a in range(len(learned)):
        if learned[a] > 0.0:
            smallest = ζ[a, 0]
            for s in range(1, ζ.shape[1]):
                smallest = min(smallest, ζ[a, s])
            bound = max(bound, _HALF_NORMAL * smallest / (1.0 - α ** learned[a]))
    return bound
