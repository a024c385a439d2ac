"""The dictionary between words and symbols: a system's arrays under the names that the equations use.

Interfaces use words (`system.dynamics`); a function that implements an equation unpacks `system.symbols` and reads
like the equation. docs/notation.md has the full table.
"""

from typing import Annotated, NamedTuple

from undertow.support.checks import FloatArray

__all__ = ["Symbols"]


class Symbols(NamedTuple):
    """z' = Γz + μ + N(0, Q),  θ = Cz + θ₀ + N(0, R),  X_a = ⟨c_a, z⟩ + x₀_a + N(0, σ²_a)."""

    Γ: Annotated[FloatArray, "d d"]
    μ: Annotated[FloatArray, "d"]
    Q: Annotated[FloatArray, "d d"]
    C: Annotated[FloatArray, "m d"]
    θ0: Annotated[FloatArray, "m"]
    R: Annotated[FloatArray, "m m"]
    c: Annotated[FloatArray, "k d"]
    x0: Annotated[FloatArray, "k"]
    σ2: Annotated[FloatArray, "k"]
