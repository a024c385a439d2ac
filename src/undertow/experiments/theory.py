"""The paper's theory put to the test: four tables with fixed seeds, shown in docs/theory.md."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from undertow import kalman
from undertow.example_systems import paper_system
from undertow.policies import FullInformationOracle
from undertow.reporting.numbers import plus_minus
from undertow.ridge import NestedRidge
from undertow.simulation import simulate
from undertow.system import LinearGaussianSystem
from undertow.theory import lower_bound, printed_lower_bound, repaired_lower_bound, true_noise_bound
from undertow.trajectory import Trajectory
from undertow.window import context_window

__all__ = ["EXPERIMENTS", "coverage", "lag_correlation", "lower_bounds", "noise_sum"]

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
    """Compare Σ(ε_{a*} − ε_a) for the Oracle's choices with its bound √(4nB_R² log(1/δ)) in the proof. Seed 0."""
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
        claimed = math.sqrt(4 * rounds * true_noise_bound(system) ** 2 * math.log(1 / _DELTA))
        lines.append(f"  psi = {psi}: {plus_minus(totals, 0)}, claimed at most {claimed:.0f}")
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


EXPERIMENTS: dict[str, Callable[[], list[str]]] = {
    "coverage": coverage,
    "noise-sum": noise_sum,
    "lower-bounds": lower_bounds,
    "lag-correlation": lag_correlation,
}


def _paths(system: LinearGaussianSystem, rounds: int, runs: int) -> list[Trajectory]:
    paths = system.sample(rounds, rng=0, runs=runs)
    return [paths.run(number) for number in range(runs)]
