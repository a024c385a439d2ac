"""A first look: the rewards of three arms wander and cross, and a policy follows them.

Simulated. A hidden state turns slowly and irregularly; three arms observe it from three sides, so each is best for a
while. A policy sees the reward of the arm that it plays and, after each round, two noisy measurements of the state: the
context. The program prints the policies' results and draws the README's picture.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from scipy.linalg import solve_discrete_lyapunov

from undertow import LinearGaussianSystem, Trajectory, simulate
from undertow.policies import UCB, Autopilot, DiscountedUCB, KalmanGreedy, LinUCB, LivePolicy

PERIOD, PERSISTENCE, SMOOTH = 240, 0.99, 0.9  # rounds of a turn, how regular it is, and how long a push lasts
REWARD_NOISE, CONTEXT_NOISE = 0.25, 1.0  # variances; that of an expected reward is 1
ROUNDS, RUNS, SEED = 2000, 20, 0
SHOWN = slice(1000, 1500)  # rounds of the picture, of the first world
ARMS = {"arm 1": "#0072B2", "arm 2": "#E69F00", "arm 3": "#009E73"}  # colours that everyone can tell apart
RED, GREY = "#CC3311", "#767676"
OURS = "Autopilot"


def turning() -> LinearGaussianSystem:
    """Return a system whose state is pushed around while it turns, observed by three arms from three sides."""
    angle, sides = 2 * np.pi / PERIOD, 2 * np.pi * np.arange(3) / 3
    turn = PERSISTENCE * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    dynamics = np.block([[turn, np.eye(2)], [np.zeros((2, 2)), SMOOTH * np.eye(2)]])  # the place, and the push
    push = np.diag([0.0, 0.0, 1.0, 1.0])
    place = np.eye(2, 4)
    return LinearGaussianSystem(
        dynamics=dynamics,
        arms=np.stack([np.cos(sides), np.sin(sides)], axis=1) @ place,
        state_noise=push / solve_discrete_lyapunov(dynamics, push)[0, 0],  # expected rewards have variance 1
        reward_noise=REWARD_NOISE,
        context_map=place,
        context_noise=CONTEXT_NOISE * np.eye(2),
    )


def policies(system: LinearGaussianSystem) -> dict[str, LivePolicy]:
    """Return the policies, with a description of each."""
    return {
        "UCB: averages all of it": UCB(arms=3),
        "Discounted UCB: forgets": DiscountedUCB(arms=3),
        "LinUCB: regression on the last rounds": LinUCB(arms=3, context_dim=2, window=5, reward_lags=5),
        f"{OURS}: learns the motion": Autopilot(arms=3, context_dim=2, rng=SEED),
        "KalmanGreedy: was told the motion": KalmanGreedy(system),
    }


def draw(
    paths: Trajectory, arms: npt.NDArray[np.int64], shares: dict[str, npt.NDArray[np.float64]], file: Path
) -> None:
    """Draw the expected rewards of the first world, the best and the played arms, and the shares won."""
    with mpl.rc_context({"font.size": 12.5}):  # readable on a phone
        sheet = _sheet(paths, arms, shares)
    file.parent.mkdir(parents=True, exist_ok=True)
    sheet.savefig(file, dpi=150)


def _sheet(paths: Trajectory, arms: npt.NDArray[np.int64], shares: dict[str, npt.NDArray[np.float64]]) -> Figure:
    sheet = Figure(figsize=(6.4, 7), layout="constrained")
    over, strip, won = sheet.subplots(3, 1, height_ratios=[10, 1.6, 6.5])
    assert paths.means is not None
    means, rounds = paths.means[0, SHOWN], np.arange(SHOWN.start, SHOWN.stop)
    for arm, (name, colour) in enumerate(ARMS.items()):
        over.plot(rounds, means[:, arm], color=colour, lw=2)
        over.annotate(
            *(name, (rounds[-1], means[-1, arm]), (6, 0)),
            textcoords="offset points",
            va="center",
            color=colour,
            weight="bold",
        )
    over.set_title(f"Rewards wander, and {OURS} follows them", loc="left", weight="bold")
    over.set(ylabel="expected reward", xlim=(rounds[0], rounds[-1]), xticks=[])
    extent = (rounds[0], rounds[-1] + 1, 0.0, 2.0)
    rows = np.stack([means.argmax(axis=1), arms[SHOWN]])
    strip.imshow(rows, aspect="auto", cmap=ListedColormap(list(ARMS.values())), extent=extent, interpolation="none")
    strip.axhline(1, color="white", lw=3)
    strip.set_yticks([1.5, 0.5], ["best", "played"])
    strip.tick_params(left=False)
    strip.set_xlabel("round")
    heights = np.arange(len(shares))[::-1]
    for height, (label, values) in zip(heights, shares.items(), strict=True):
        ours = label.startswith(OURS)
        won.barh(height, values.mean(), color=RED if ours else GREY, height=0.66)
        won.annotate(f"{values.mean():.0f} %", (values.mean(), height), (5, 0), textcoords="offset points", va="center")
        won.annotate(label, (1.5, height), color="white", va="center", weight="bold" if ours else None)
    won.set(xlim=(0, 108), xticks=[0, 100], yticks=[])
    for tick, side in zip(
        won.set_xticklabels(["random choice", "best arm of every round"]), ("left", "right"), strict=True
    ):
        tick.set_ha(side)
    won.set_title("Share of the achievable gain", loc="left", weight="bold")
    for axis in (over, strip, won):
        axis.spines[["top", "right"]].set_visible(False)
    strip.spines[["left", "bottom"]].set_visible(False)
    over.spines["bottom"].set_visible(False)
    won.spines["left"].set_visible(False)
    return sheet


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=RUNS, help="number of worlds (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/first_look.png"), help="the figure (%(default)s)")
    chosen = parser.parse_args(arguments)
    system = turning()
    paths = system.sample(ROUNDS, rng=SEED, runs=chosen.runs)
    assert paths.means is not None
    chance, best = paths.means.mean(axis=(1, 2)), paths.means.max(axis=2).mean(axis=1)
    print(f"Three arms that turn: {ROUNDS} rounds, {chosen.runs} worlds from seed {SEED}\n")
    print(f"| {'':38} | share won, %: mean | standard error |\n|{'-' * 40}|-------------------:|---------------:|")
    shares, arms = {}, {}
    for label, policy in policies(system).items():
        run = simulate(policy, paths)
        earned = np.take_along_axis(paths.means, run.arms[..., None], axis=2)[..., 0].mean(axis=1)
        shares[label], arms[label] = 100 * (earned - chance) / (best - chance), run.arms
        error = shares[label].std(ddof=1) / chosen.runs**0.5
        print(f"| {label:38} | {shares[label].mean():18.1f} | {error:14.1f} |", flush=True)
    ours = next(label for label in arms if label.startswith(OURS))
    draw(paths, arms[ours][0], shares, chosen.out)
    print(f"\nFigure: {chosen.out}")


if __name__ == "__main__":
    main()
