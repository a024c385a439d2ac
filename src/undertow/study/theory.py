"""Tests of the paper's theory: seven tables with fixed seeds, shown in docs/measurements.md."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from undertow import kalman
from undertow.example_systems import paper_system
from undertow.policies import ARES, PIES, ContextOracle, FullInformationOracle, KalmanGreedy, LivePolicy
from undertow.ridge import NestedRidge
from undertow.simulation import simulate
from undertow.support.numbers import plus_minus
from undertow.system import LinearGaussianSystem
from undertow.theory import (
    corrected_regret_bound,
    informative_rounds,
    lower_bound,
    printed_lower_bound,
    printed_regret_bound,
    repaired_lower_bound,
    true_noise_bound,
)
from undertow.theory import noise_sum as exact_noise_sum
from undertow.trajectory import Trajectory
from undertow.window import context_window

__all__ = [
    "EXPERIMENTS",
    "coverage",
    "exploration",
    "informative",
    "lag_correlation",
    "lower_bounds",
    "noise_sum",
    "played_noise",
]

PSI = (1, 2, 3, 4)
_DELTA = 0.1


def coverage(runs: int = 100, rounds: int = 1000, windows: Sequence[int] = (1, 3, 10)) -> list[str]:
    """Count the runs in which the noise bound behind e fails in some round, at δ = 0.1; the theorem allows 10 %.

    An arm is played in every round; ε is its reward minus the filter's forecast, and the bound is on ‖ΣΘε‖ in the norm
    of V⁻¹ (Eq. B.17 boundproof1). Seed 0.
    """
    lines = [f"share of {runs} runs in which the noise bound fails within {rounds} rounds (δ = {_DELTA}: at most 10 %)"]
    for psi in PSI:
        system = paper_system(psi)
        bound = true_noise_bound(system)
        largest = max(windows)
        failed = np.zeros((runs, largest + 1), dtype=bool)
        for run, path in enumerate(_paths(system, rounds, runs)):
            ε = path.rewards[:, 0] - kalman.filter(system, path.contexts).forecasts[:, 0]
            model = NestedRidge(block=1, max_window=largest)
            for t in range(largest, rounds):
                model.update(context_window(path.contexts[t - largest : t], largest, largest), float(ε[t]))
                limit = 2 * bound**2 * (math.log(1 / _DELTA) + model.log_det / 2)
                failed[run] |= model.explained > limit
        shares = failed.mean(axis=0)
        shown = ", ".join(f"{100 * shares[s]:.0f} % (s = {s})" for s in windows)
        lines.append(f"  psi = {psi}: {shown}")
    return lines


def noise_sum(runs: int = 40, rounds: int = 10_000) -> list[str]:
    """Compare Σ(ε_{a*} − ε_a) for the Oracle's choices with its bound k√(4nB_R² log(1/δ)) in the proof. Seed 0."""
    lines = [f"Σ(ε_a* − ε_a) over {rounds} rounds of the Oracle, {runs} runs, against its claimed bound (δ = {_DELTA})"]
    for psi in PSI:
        system = paper_system(psi)
        totals = []
        for path in _paths(system, rounds, runs):
            forecasts = kalman.filter(system, path.contexts).forecasts
            assert path.means is not None
            ε = path.means - forecasts  # each arm's own noise has mean 0 and is left out
            best, chosen = path.means.argmax(axis=1), forecasts.argmax(axis=1)
            totals.append(float((ε[np.arange(rounds), best] - ε[np.arange(rounds), chosen]).sum()))
        claimed = system.arm_count * math.sqrt(4 * rounds * true_noise_bound(system) ** 2 * math.log(1 / _DELTA))
        exact = rounds * exact_noise_sum(system).value
        lines.append(f"  psi = {psi}: {plus_minus(totals, 0)}, exact {exact:.0f}, claimed at most {claimed:.0f}")
    return lines


def lower_bounds(runs: int = 100, rounds: int = 10_000) -> list[str]:
    """Compare the lower bounds with the simulated regret of the oracle that they bound. Seed 0."""
    lines = [f"regret of the full-information oracle over {rounds} rounds, {runs} runs, and the lower bounds on it"]
    for psi in PSI:
        system = paper_system(psi)
        run = simulate(FullInformationOracle(system), system.sample(rounds, rng=0, runs=runs))
        assert run.regret is not None
        exact, repaired = lower_bound(system, rounds).value, repaired_lower_bound(system, rounds)
        printed = f"{printed_lower_bound(system, rounds):.0f} (refuted)"
        simulated = plus_minus(run.regret[:, -1], 0)
        lines.append(
            f"  psi = {psi}: simulated {simulated}; exact {exact:.0f}, repaired {repaired:.0f}, printed {printed}"
        )
    return lines


def lag_correlation(runs: int = 40, rounds: int = 10_000) -> list[str]:
    """Measure the correlation of ε_a with itself one round later; a martingale difference would have none. Seed 0."""
    lines = [f"lag-1 correlation of ε_a = X − X̂, {runs} runs of {rounds} rounds; 0 for a martingale difference"]
    for psi in PSI:
        system = paper_system(psi)
        values = []
        for path in _paths(system, rounds, runs):
            ε = path.rewards - kalman.filter(system, path.contexts).forecasts
            values.append([np.corrcoef(ε[:-1, a], ε[1:, a])[0, 1] for a in range(path.arm_count)])
        shown = ", ".join(f"{plus_minus(arm, 2)} (arm {a})" for a, arm in enumerate(np.transpose(values), start=1))
        lines.append(f"  psi = {psi}: {shown}")
    return lines


def played_noise(runs: int = 8, rounds: int = 10_000) -> list[str]:
    """Add up ε of the played arm, its expected reward minus the context filter's forecast. Seed 100.

    It is 0 on average for policies that use past contexts alone; rewards that predict ε allow a gain over the paper's
    Oracle. The faster ζ forgets, the more of ARES's own recent rewards reaches its choice of windows.
    """
    lines = [f"Σε of the played arm over {rounds} rounds (in brackets regret in thousands), {runs} runs"]
    for psi in PSI:
        system = paper_system(psi)
        bound: dict[str, Any] = {"arms": 2, "context_dim": 1, "noise_bound": true_noise_bound(system)}
        players: dict[str, LivePolicy] = {"ARES": ARES(**bound), "with ν = 0.01": ARES(**bound, window_penalty=0.01)}
        if psi == max(PSI):
            players |= {f"and α = {α}": ARES(**bound, window_penalty=0.01, smoothing=α) for α in (0.999, 0.9, 0.7)}
        players |= {"PIES(10)": PIES(arms=2, context_dim=1, window=10), "KalmanGreedy": KalmanGreedy(system)}
        paths = system.sample(rounds, rng=100, burn_in=1000, runs=runs)
        each = [paths.run(number) for number in range(runs)]
        assert paths.means is not None
        ε = paths.means - np.array([kalman.filter(system, path.contexts).forecasts for path in each])
        shown = []
        for name, policy in players.items():
            run = simulate(policy, paths)
            assert run.regret is not None
            totals = np.take_along_axis(ε, run.arms[..., None], axis=2).sum(axis=(1, 2))
            shown.append(f"{name} {plus_minus(totals, 0)} ({run.regret[:, -1].mean() / 1000:.1f})")
        lines.append(f"  psi = {psi}: {', '.join(shown)}")
    return lines


def exploration(runs: int = 5, rounds: int = 10_000) -> list[str]:
    """Vary how much ARES explores, and so N_a, together with the penalty that chooses s (Remark 5). Seed 200.

    Widths are multiplied by a factor, the penalty in Ĵ is not.
    """
    factors, penalties = (0.01, 0.1, 1.0, 3.0), (0.1, 0.03, 0.01)
    lines = [f"regret of ARES relative to the Oracle's, {runs} runs, at widths times {factors}"]
    for psi in (min(PSI), max(PSI)):
        system = paper_system(psi)
        paths = system.sample(rounds, rng=200, burn_in=1000, runs=runs)
        oracle = simulate(ContextOracle(system), paths).regret
        assert oracle is not None
        for ν in penalties:
            shown = []
            for factor in factors:
                bounds: dict[str, Any] = {
                    "noise_bound": factor * true_noise_bound(system),
                    "weight_bound": factor * 100.0,
                }
                run = simulate(ARES(arms=2, context_dim=1, **bounds, window_penalty=ν / factor), paths)
                assert run.regret is not None
                shown.append(plus_minus(run.regret[:, -1] / oracle[:, -1], 2))
            lines.append(f"  psi = {psi}, ν = {ν:<4g}: {', '.join(shown)}")
    return lines


def informative() -> list[str]:
    """Find the first power of ten at which an upper bound, for its best window, is below Random's regret."""
    windows = (10, 130, 300)
    lines = [f"first n = 10^i, up to 10^20, at which a bound is below the regret of Random, at s = {windows}"]
    for psi in PSI:
        parts = []
        for bound, name in ((printed_regret_bound, "printed"), (corrected_regret_bound, "corrected")):
            for width in ("noise+bias", "noise"):
                rounds = [informative_rounds(bound, paper_system(psi), s, width=width) for s in windows]
                first, s = min(zip(rounds, windows, strict=True))
                where = "never" if math.isinf(first) else f"10^{round(math.log10(first))} (s = {s})"
                parts.append(f"{'Corollary 1' if width == 'noise' else 'Theorem 2'} {name} {where}")
        lines.append(f"  psi = {psi}: {', '.join(parts)}")
    return lines


EXPERIMENTS: dict[str, Callable[[], list[str]]] = {
    "coverage": coverage,
    "noise-sum": noise_sum,
    "lower-bounds": lower_bounds,
    "lag-correlation": lag_correlation,
    "played-noise": played_noise,
    "informative": informative,
    "exploration": exploration,
}


def _paths(system: LinearGaussianSystem, rounds: int, runs: int) -> list[Trajectory]:
    paths = system.sample(rounds, rng=0, runs=runs)
    return [paths.run(number) for number in range(runs)]
