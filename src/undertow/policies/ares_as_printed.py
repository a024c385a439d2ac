"""ARES as printed in the paper, to show how rows A1 to A4 of docs/paper.md fail."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from undertow.compiled import Layout, Record, best_arm, compile_loop, inlined, kernel
from undertow.errors import InvalidInputError
from undertow.live import register
from undertow.policies.ares import ARES, AresState, decide, learn, observe, played, total_width
from undertow.ridge import estimated_noise_bound, ridge_project
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["PrintedARES"]


class Rows(Record):
    """Which of A1 and A2 are as printed."""

    A1: float
    A2: float


# The state of ARES, with V itself (A1) and separate weights for every window (A2)
PrintedState: Any = NamedTuple(
    "PrintedState",
    [
        *AresState.__annotations__.items(),  # type: ignore[misc]
        ("rows", Rows),
        ("printed", Annotated[FloatArray, "s+1"]),  # scratch
        ("G", Annotated[FloatArray, "k s+1 p"]),
        ("V", Annotated[FloatArray, "k p p"]),
    ],
)


@kernel
def printed_forecasts(G: FloatArray, Θ: FloatArray, m: int, forecasts: FloatArray) -> None:
    """Forecast Ĝ(s)'Θ of every window from its own weights, (S, p)."""
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


@inlined
def printed_decide(own: Any, features: FloatArray, draws: FloatArray) -> int:
    """Decide like ARES, with forecasts from the printed weights (A2)."""
    arm = decide(own, features, draws)
    if own.rows.A2 == 0.0:
        return arm
    common = own.common
    for a in range(len(common.forecast)):
        printed_forecasts(own.G[a], common.memory, int(common.sizes.m), own.printed)
        common.forecast[a] = own.printed[int(common.window[a])]
    best = best_arm(common)
    return arm if own.learned[arm] == 0.0 else best


@inlined
def printed_learn(own: Any, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Learn like ARES, with residuals of the printed weights (A2) and the printed form in the cost (A1)."""
    settings, m, reward, α = own.settings, int(own.common.sizes.m), rewards[arm], own.settings.α
    ζ, printed, y = own.ζ[arm], own.printed, own.scratch[0]
    if own.rows.A2 > 0.0:
        ridge_project(own.W[arm], memory, y, len(y))
        printed_forecasts(own.G[arm], memory, m, printed)
        printed_weights(own.G[arm], own.W[arm], y, reward, m, own.scratch[1])
        for s in range(len(ζ)):
            printed[s] = α * ζ[s] + (1.0 - α) * abs(reward - printed[s])
    learn(own, memory, arm, rewards, age)
    for s in range(len(ζ)):
        if own.rows.A2 > 0.0:
            ζ[s] = printed[s]
        q = own.scratch[3, s]
        printed[s] = q / (1.0 + q)  # Θ'V⁻¹Θ after the update
    if settings.auto > 0.0:
        settings.B_R = estimated_noise_bound(own.ζ, own.learned, α)
    if own.rows.A1 > 0.0:
        printed_forms(own.V[arm], memory, m, printed)
    for s in range(len(ζ)):
        e = total_width(settings, own.learned[arm], own.log_det[arm, s], own.trace[arm, s], m * s + 1)
        own.J[arm, s] = ζ[s] + settings.ν * e * math.sqrt(printed[s])


@register("ares-as-printed", citation="Gornet, Hosseinzadeh and Sinopoli, arXiv 2406.10418, as printed")
@dataclass(kw_only=True, eq=False, repr=False)
class PrintedARES(ARES):
    """ARES with some of the paper's mistakes left in (docs/paper.md); for anything else, use `ARES`.

    Parameters
    ----------
    as_printed
        Which of the rows "A1", "A2", "A3" and "A4" are as printed. A3 needs a numeric `noise_bound`.

    Examples
    --------
    >>> policy = PrintedARES(arms=2, context_dim=1, as_printed={"A1"})
    >>> policy.learn(policy.decide(), reward=1.7)
    """

    loop = compile_loop(
        *(__name__, Layout(PrintedState)), decide=printed_decide, learn=printed_learn, played=played, observe=observe
    )

    as_printed: Collection[str] = frozenset()

    def _begin(self, own: Any) -> None:
        super()._begin(own)
        rows = checks.entries("as_printed", self.as_printed)
        self.as_printed = frozenset(checks.choice("as_printed", row, ("A1", "A2", "A3", "A4")) for row in rows)
        if self.standardize and self.as_printed & {"A1", "A2"}:
            raise InvalidInputError('standardize: expected False with as_printed "A1" or "A2", which keep no factor')
        if "A3" in self.as_printed:
            if isinstance(self.noise_bound, str):
                raise InvalidInputError('noise_bound: expected a number with as_printed={"A3"}, which squares it')
            own.settings.B_R **= 2
        if "A4" in self.as_printed:
            own.settings.ν = 1.0
        own.rows.A1, own.rows.A2 = "A1" in self.as_printed, "A2" in self.as_printed
        own.V[:] = self.ridge * np.eye(own.V.shape[-1])
