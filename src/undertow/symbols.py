"""The dictionary between words and symbols: a system's arrays under the names that the equations use.

Interfaces speak in words (`system.dynamics`); a function that implements an equation unpacks `system.symbols` and reads
like the equation. docs/notation.md holds the whole table.
"""

from typing import NamedTuple

from undertow._checks import FloatArray

__all__ = ["Symbols"]


class Symbols(NamedTuple):
    """z' = Γz + μ + N(0, Q),  θ = Cz + θ₀ + N(0, R),  X_a = ⟨c_a, z⟩ + x₀_a + N(0, σ²_a)."""

    Γ: FloatArray
    μ: FloatArray
    Q: FloatArray
    C: FloatArray
    θ0: FloatArray
    R: FloatArray
    c: FloatArray
    x0: FloatArray
    σ2: FloatArray
