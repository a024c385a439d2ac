"""What the paper prints in place of corrections A1 and A2 (docs/paper.md), for the reader who wants to see it fail."""

from undertow._checks import FloatArray
from undertow._kernel import kernel

__all__ = ["printed_forecasts", "printed_forms", "printed_weights"]


@kernel
def printed_forecasts(G: FloatArray, Θ: FloatArray, m: int, forecasts: FloatArray) -> None:
    """Forecast Ĝ(s)'Θ of every window from weights that are kept per window, (S, p)."""
    for s in range(len(G)):
        total = 0.0
        for i in range(m * s + 1):
            total += G[s, i] * Θ[i]
        forecasts[s] = total


@kernel
def printed_weights(G: FloatArray, W: FloatArray, y: FloatArray, X: float, m: int, total: FloatArray) -> None:
    """A2: Ĝ(s) ← Ĝ(s) + X V(s)⁻¹Θ for every window, with V⁻¹Θ = W'y from before the round (Step 3 (h)(ii))."""
    total[:] = 0.0
    i = 0
    for s in range(len(G)):
        while i <= m * s:
            for j in range(i + 1):
                total[j] += W[i, j] * y[i]
            i += 1
        for j in range(i):
            G[s, j] += X * total[j]


@kernel
def printed_forms(V: FloatArray, Θ: FloatArray, m: int, forms: FloatArray) -> None:
    """A1: V ← V + ΘΘ', and Θ'V(s)Θ in place of Θ'V(s)⁻¹Θ for every window (Step 3 (h)(iv))."""
    form = 0.0
    i = 0
    for s in range(len(forms)):
        while i <= m * s:
            row = 0.0
            for j in range(i + 1):
                V[i, j] += Θ[i] * Θ[j]
                row += V[i, j] * Θ[j] * (1.0 if i == j else 2.0)
            form += row * Θ[i]
            i += 1
        forms[s] = form
