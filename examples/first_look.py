"""A first look: the paper's system, what its filter forecasts, and what playing by the forecasts costs.

It prints a table and writes a figure to out/; the README shows that figure.
"""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt

import undertow
from undertow import KalmanFilter, LinearGaussianSystem, Trajectory, kalman, simulate, theory
from undertow.policies import Autopilot

ROUNDS, RUNS, SEED = 5000, 20, 1
OUT = Path("out")
ORACLE, OWN, EVERYTHING = "filter of contexts", "… and of its own rewards", "… and of every arm's reward"
LEARNER = "Autopilot, learning"  # the filters know the system
BLUE, ORANGE, GREEN, GREY, BLACK = "#0072B2", "#E69F00", "#009E73", "#999999", "#000000"  # told apart by everyone
RED = "#CC3311"


def own_rewards_greedy(system: LinearGaussianSystem, path: Trajectory) -> npt.NDArray[np.int64]:
    """Play the largest forecast of a filter that sees the contexts and the rewards of its own choices."""
    belief = KalmanFilter(system)
    arms = np.empty(path.rounds, dtype=np.int64)
    for t in range(path.rounds):
        arms[t] = belief.forecast().mean.argmax()
        belief.condition(path.contexts[t], rewards={int(arms[t]): path.rewards[t, arms[t]]})
        belief.predict()
    return arms


def regrets(system: LinearGaussianSystem, path: Trajectory) -> dict[str, float]:
    """Regret of each way to choose, at the end of one path."""
    random = np.random.default_rng(SEED).integers(path.arm_count, size=path.rounds)
    contexts = kalman.filter(system, path.contexts).forecasts.argmax(axis=1)
    everything = kalman.filter(system, path.contexts, path.rewards).forecasts.argmax(axis=1)
    choices = {
        "random": random,
        ORACLE: contexts,
        OWN: own_rewards_greedy(system, path),
        EVERYTHING: everything,
    }
    return {name: float(path.regret(arms)[-1]) for name, arms in choices.items()}


def draw(system: LinearGaussianSystem, path: Trajectory, totals: dict[int, dict[str, float]]) -> Path:
    """Draw the forecasts of both arms against the truth, and regret over psi; return the file."""
    mpl.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplot_mosaic(
        [["first", "costs"], ["second", "costs"]], figsize=(9, 4), layout="constrained", width_ratios=[3, 2]
    )
    beliefs = kalman.filter(system, path.contexts)
    assert path.means is not None
    shown = slice(200, 240)
    rounds = np.arange(shown.start, shown.stop)
    for arm, (panel, colour) in enumerate((("first", BLUE), ("second", ORANGE))):
        c, axis = system.arms[arm], axes[panel]
        deviation = np.sqrt(np.einsum("i,tij,j->t", c, beliefs.predicted_covariances, c))
        forecast = beliefs.forecasts[:, arm]
        band = (forecast - deviation)[shown], (forecast + deviation)[shown]
        axis.fill_between(rounds, *band, color=colour, alpha=0.25, lw=0, label=f"forecast of arm {arm + 1} ± sd")
        axis.plot(rounds, path.means[shown, arm], color=BLACK, lw=1, marker="o", ms=2.5, label="expected reward")
        axis.set_ylabel(f"arm {arm + 1}")
    axes["first"].set_title("The rewards drift, and a filter sees them coming (psi = 1)")
    axes["first"].tick_params(labelbottom=False)
    axes["second"].set_xlabel("round")
    bands = [axes[panel].collections[0] for panel in ("first", "second")]
    key: dict[str, Any] = {
        "frameon": False,
        "fontsize": 8,
        "loc": "upper center",
        "columnspacing": 1.2,
        "handlelength": 1.6,
    }
    axes["second"].legend(handles=[*bands, axes["second"].lines[0]], ncols=3, bbox_to_anchor=(0.5, -0.3), **key)
    styles = {
        "random": (GREY, "s-"),
        ORACLE: (BLUE, "o-"),
        OWN: (GREEN, "D-"),
        EVERYTHING: (BLACK, "v-"),
        LEARNER: (RED, "^--"),
    }
    for name, (colour, look) in styles.items():
        ratios = [totals[psi][name] / totals[psi][ORACLE] for psi in totals]
        axes["costs"].plot(list(totals), ratios, look, color=colour, ms=4, lw=1.4, label=name)
    ticks = [0.05, 0.1, 0.2, 0.5, 1, 2, 5]
    axes["costs"].set(xlabel="psi", xticks=list(totals), yscale="log", title="What that is worth")
    axes["costs"].set_ylabel("regret, relative to the filter of contexts")
    axes["costs"].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes["costs"].minorticks_off()
    axes["costs"].legend(bbox_to_anchor=(0.5, -0.14), ncols=2, **key)
    OUT.mkdir(exist_ok=True)
    file = OUT / "first_look.png"
    figure.savefig(file, dpi=160)
    plt.close(figure)
    return file


def main() -> None:
    print(f"Mean regret after {ROUNDS} rounds, {RUNS} runs (± standard error); exact: the closed form\n")
    print(f"{'psi':>3}  {'':28}{'measured':>14}{'exact':>8}")
    totals: dict[int, dict[str, float]] = {}
    for psi in (1, 2, 3, 4):
        system = undertow.paper_system(psi)
        paths = system.sample(ROUNDS, rng=SEED, runs=RUNS)
        runs = [regrets(system, paths.run(number)) for number in range(RUNS)]
        learned = simulate(Autopilot(arms=2, context_dim=1, rng=SEED), paths).regret
        assert learned is not None
        runs = [run | {LEARNER: float(regret)} for run, regret in zip(runs, learned[:, -1], strict=True)]
        exact = {
            "random": theory.random_regret(system),
            ORACLE: theory.context_oracle_regret(system),
            EVERYTHING: theory.full_information_regret(system),
        }
        totals[psi] = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
        for name, mean in totals[psi].items():
            error = np.std([run[name] for run in runs], ddof=1) / RUNS**0.5
            known = f"{exact[name].value * ROUNDS:8.0f}" if name in exact else ""
            print(f"{psi:3}  {name:28}{mean:8.0f} ± {error:3.0f}{known}", flush=True)
    system = undertow.paper_system(1)
    print(f"\nFigure: {draw(system, system.sample(ROUNDS, rng=SEED), totals)}")


if __name__ == "__main__":
    main()
