"""Other readings of the paper: one choice of docs/paper.md changed at a time.

Some are parameters of policies. The others change the listing of ARES, and are played by a slow and plain ARES in
NumPy, all runs of a study side by side. With no choice changed it plays like `ARES`.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.policies import ARES
from undertow.simulation import Run
from undertow.trajectory import Trajectory

__all__ = ["BUILT", "READINGS", "Reading", "play_ares"]


class Reading(NamedTuple):
    """The ambiguous choices that are made differently; none by default, as in `ARES`.

    Attributes
    ----------
    row
        The row of docs/paper.md.
    words
        The alternative in words.
    parameters
        Parameters of a policy that the paper leaves open or contradicts; nothing of the listing changes.
    policy
        The policy that has them, by its name in the registry.
    early
        Windows may be chosen before they are filled; contexts that have not come count as 0.
    fallback
        An arm whose window is not filled is judged by its mean reward + √(2 log(1/δ)/M_a).
    late
        A window learns from the round on in which it is filled.
    zero
        A window whose cost was never computed costs 0, not infinitely much.
    longest
        Of windows that cost the same the longest is chosen, not the shortest.
    before
        The cost of a window takes e and Θ'V⁻¹Θ from before the round, not after it.
    own_width
        An arm's width comes from its own window, not from the largest.
    largest_forecast
        An arm's forecast comes from the largest window, not from its own.
    squared
        ζ is a mean of squared errors.
    rootless
        The penalty is ν e Θ'V⁻¹Θ, without the root.
    """

    row: str
    words: str
    parameters: Mapping[str, Any] = {}
    policy: str = "ares"
    early: bool = False
    fallback: bool = False
    late: bool = False
    zero: bool = False
    longest: bool = False
    before: bool = False
    own_width: bool = False
    largest_forecast: bool = False
    squared: bool = False
    rootless: bool = False


BUILT = Reading("", "as built")
_AS_PRINTED: dict[str, Any] = {"early": True, "fallback": True, "late": True, "zero": True, "longest": True}
READINGS = (
    Reading("A6", "windows may be chosen before they are filled, with zeros for what is missing", early=True),
    Reading("A7", "windows that are not filled cost 0 and win; until then mean rewards decide", **_AS_PRINTED),
    Reading("A8", "windows start at a cost of 0, and learn once they are filled", late=True, zero=True),
    Reading("A8", "the cost of a window takes e and Θ'V⁻¹Θ from before the update", before=True),
    Reading("A9", "an arm's width comes from its own window", own_width=True),
    Reading("A9", "forecasts, too, come from the largest window", largest_forecast=True),
    Reading("A10", "PIES stops learning after its first rounds", {"frozen": True}, "pies"),
    Reading("A16", "a window learns from the round on in which it is filled", late=True),
    Reading("A6–A8, A16", "the start as printed, all together", **_AS_PRINTED, before=True),
    *(Reading("A20", f"a penalty of ν = {ν:g}", {"window_penalty": ν}) for ν in (0.05, 0.03, 0.02, 0.01, 0.0)),
    Reading("A21", "ζ is a mean of squared errors", squared=True),
    Reading("A21", "the penalty is ν e Θ'V⁻¹Θ, without the root", rootless=True),
    Reading("A21", "ζ without the factor 1 − α, which is ν = 0.001", {"window_penalty": 0.001}),
    Reading("A22", "UCB explores half as much", {"exploration": 0.5}, "ucb"),
    Reading("A22", "sliding-window UCB over 100 rounds", {"history": 100}, "sliding-window-ucb"),
    Reading("A22", "Rexp3 for a variation of a thousandth", {"variation_budget": 10.0}, "rexp3"),
)


def play_ares(paths: Trajectory, noise_bound: float, reading: Reading = BUILT) -> Run:
    """Play every run of a trajectory with the paper's parameters; record widths, windows and errors."""
    R, n, k = paths.rewards.shape
    m = paths.context_dim
    paper = ARES(arms=k, context_dim=m)
    λ, α, ν, S, logδ = paper.ridge, paper.smoothing, paper.window_penalty, paper.max_window, -math.log(paper.confidence)
    p, every, all_arms = m * S + 1, np.arange(R), np.arange(k)
    filled = np.arange(p) <= m * np.arange(S + 1)[:, None]  # the inputs of each window
    V_inverse = np.tile(filled[:, :, None] * np.eye(p) / λ, (R, k, 1, 1, 1))
    trace = np.tile(filled.sum(axis=1) / λ, (R, k, 1))
    G, log_det, ζ = np.zeros((R, k, S + 1, p)), np.zeros((R, k, S + 1)), np.zeros((R, k, S + 1))
    J = np.full((R, k, S + 1), 0.0 if reading.zero or not reading.late else np.inf)
    J[:, :, 0] = 0.0
    learned, totals = np.zeros((R, k)), np.zeros((R, k))
    Θ = np.zeros((R, p))
    Θ[:, 0] = 1.0
    arms = np.empty((R, n), dtype=np.int64)
    widths, windows, errors = np.empty((R, n, k)), np.empty((R, n, k)), np.empty((R, n))

    def e(log_det: npt.NDArray[np.float64], trace: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(noise_bound * np.sqrt(2 * logδ + log_det) + λ * paper.weight_bound * np.sqrt(trace))

    for t in range(n):
        inputs = filled * Θ[:, None, :]  # (R, S + 1, p)
        costs = J[:, :, : (S if reading.early else min(S, t)) + 1]
        s = costs.shape[2] - 1 - costs[:, :, ::-1].argmin(axis=2) if reading.longest else costs.argmin(axis=2)
        largest = np.repeat(s.max(axis=1, keepdims=True), k, axis=1)
        forecast_from, width_from = largest if reading.largest_forecast else s, s if reading.own_width else largest
        at = every[:, None], all_arms
        forecast = np.einsum("rki,rki->rk", G[*at, forecast_from], inputs[every[:, None], forecast_from])
        Θ_s = inputs[every[:, None], width_from]
        form = np.einsum("rki,rkij,rkj->rk", Θ_s, V_inverse[*at, width_from], Θ_s)
        width = e(log_det[*at, width_from], trace[*at, width_from]) * np.sqrt(form)
        if reading.fallback:
            plays = np.maximum(learned, 1)
            forecast = np.where(s > t, totals / plays, forecast)
            width = np.where(s > t, np.sqrt(2 * logδ / plays), width)
        width = np.where(learned > 0, width, np.inf)
        untried = learned == 0
        arm = np.where(untried.any(axis=1), untried.argmax(axis=1), (forecast + width).argmax(axis=1))
        X = paths.rewards[every, t, arm]
        arms[:, t], widths[:, t], windows[:, t], errors[:, t] = arm, width, s, X - forecast[every, arm]

        learned[every, arm] += 1
        totals[every, arm] += X
        live = slice(min(S, t) + 1 if reading.late else S + 1)  # windows that learn
        Θ_live, here = inputs[:, live], (every, arm, live)
        inverse = V_inverse[here]
        y = np.einsum("rsij,rsj->rsi", inverse, Θ_live)
        q = np.einsum("rsi,rsi->rs", Θ_live, y)
        error = X[:, None] - np.einsum("rsi,rsi->rs", G[here], Θ_live)
        ζ[here] = α * ζ[here] + (1 - α) * np.abs(error) ** (2 if reading.squared else 1)
        old = e(log_det[here], trace[here])
        V_inverse[here] = inverse - y[..., None] * (y / (1 + q)[..., None])[:, :, None, :]
        G[here] += y * (error / (1 + q))[..., None]
        trace[here] -= np.einsum("rsi,rsi->rs", y, y) / (1 + q)
        log_det[here] += np.log1p(q)
        form = q if reading.before else q / (1 + q)
        uncertainty = form if reading.rootless else np.sqrt(form)
        J[here] = ζ[here] + ν * (old if reading.before else e(log_det[here], trace[here])) * uncertainty
        Θ[:, m + 1 :] = Θ[:, 1 : p - m].copy()
        Θ[:, 1 : m + 1] = paths.contexts[:, t]
    rewards = np.take_along_axis(paths.rewards, arms[..., None], axis=2)[..., 0]
    return Run(arms, rewards, paths.regret(arms), widths=widths, windows=windows, errors=errors)
