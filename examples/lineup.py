"""Shared by the examples: one line-up of policies, the same references, one table, one figure.

No policy is tuned to a problem. Each has the parameters below in every example.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.signal
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

from undertow import Trajectory, simulate
from undertow.contenders import build
from undertow.policies import LivePolicy
from undertow.problems.datasets import Dataset
from undertow.support.numbers import share

FloatArray = npt.NDArray[np.float64]
Earned = dict[str, FloatArray]  # by label: reward in every round, (seeds, rounds)

BEST_FIXED, FULL_AVERAGE = "best fixed arm (hindsight)", "full-information average"
CLAIRVOYANT, RANDOM = "clairvoyant", "random choice"
REFERENCES = (BEST_FIXED, FULL_AVERAGE, CLAIRVOYANT, RANDOM)
Part = TypeVar("Part")
DECAY = 0.9  # of the full-information average
COLOURS = {
    "Autopilot": "#CC3311",
    "LearnedKalman": "#B5179E",
    "StructuralKalman": "#8C8C00",
    "ARES": "#0072B2",
    "LinUCB": "#66B366",
    "LinUCB + own rewards": "#00785A",
    "Discounted UCB": "#E69F00",
    "Sliding-window UCB": "#CC79A7",
    FULL_AVERAGE: "#000000",
}


def line_up(*, arms: int, context_dim: int = 0, feature_dim: int = 0, seed: int = 0) -> dict[str, LivePolicy]:
    """Return the policies, unused.

    LearnedKalman and the two UCB take no features. ARES forecasts from contexts; if there are none, it uses the
    features as contexts before the decision.
    """
    sizes: dict[str, Any] = {"arms": arms, "context_dim": context_dim, "feature_dim": feature_dim, "rng": seed}
    for_ares = sizes if context_dim else sizes | {"context_dim": feature_dim, "context_first": True}
    return {
        "Autopilot": build("autopilot", **sizes),
        "LearnedKalman": build("learned-kalman", **sizes),
        "StructuralKalman": build("structural-kalman", **sizes),
        "ARES": build("ares", **for_ares),
        "LinUCB": build("linucb", **sizes, window=5),
        "LinUCB + own rewards": build("linucb", **sizes, window=5, reward_lags=5),
        "Discounted UCB": build("discounted-ucb", **sizes, discount=0.99),
        "Sliding-window UCB": build("sliding-window-ucb", **sizes, history=1000),
    }


def repeat(data: Dataset, *, seeds: int, rounds: int | None) -> Trajectory:
    """Return a recorded table once per seed, up to a number of rounds."""
    rewards, features = (part[:rounds] for part in (data.trajectory.rewards, data.trajectory.features))
    return Trajectory(rewards=np.tile(rewards, (seeds, 1, 1)), features=np.tile(features, (seeds, 1, 1)))


def play_table(paths: Trajectory) -> Earned:
    """Let the line-up and the references play tables of rewards, one run per seed.

    If every run is the same table, as with recorded data, a deterministic policy plays it only once.
    """
    contexts, features = paths.context_dim, paths.features.shape[-1]
    for_ares = paths if contexts else Trajectory(paths.features, paths.rewards)
    same = bool((paths.rewards == paths.rewards[:1]).all())
    earned: Earned = {}
    policies = line_up(arms=paths.arm_count, context_dim=contexts, feature_dim=features)
    for label, policy in shown(policies.items(), len(policies)):
        seen = for_ares if label == "ARES" else paths
        once = same and policy.capabilities.deterministic
        run = simulate(policy, seen.run(0) if once else seen)
        earned[label] = np.atleast_2d(run.rewards)
    return earned | references(paths.rewards[:1] if same else paths.rewards)


def play_seeds(play: Callable[[int], dict[str, FloatArray]], seeds: int) -> dict[str, FloatArray]:
    """Call `play` with every seed, on all cores, and stack the results: one row per seed."""
    if seeds == 1:
        runs = [play(0)]
    else:
        with ProcessPoolExecutor() as pool:  # Python loops hold the GIL: processes, not threads
            runs = list(shown(pool.map(play, range(seeds)), seeds))
    return {label: np.stack([run[label] for run in runs]) for label in runs[0]}


def shown(parts: Iterable[Part], total: int) -> Iterable[Part]:
    """Show progress on a terminal."""
    return track(parts, "Playing", total=total, console=Console(stderr=True), transient=True)


def references(rewards: FloatArray) -> Earned:
    """Return the rewards of hindsight, full information, a clairvoyant and chance on tables, (seeds, rounds, arms)."""
    best = rewards.mean(axis=1).argmax(axis=1)
    averages = scipy.signal.lfilter([1 - DECAY], [1, -DECAY], rewards, axis=1)
    largest = np.roll(averages, 1, axis=1).argmax(axis=2)
    largest[:, 0] = 0  # no rewards so far
    return {
        BEST_FIXED: np.stack([table[:, arm] for table, arm in zip(rewards, best, strict=True)]),
        FULL_AVERAGE: np.take_along_axis(rewards, largest[..., None], axis=2)[..., 0],
        CLAIRVOYANT: rewards.max(axis=2),
        RANDOM: rewards.mean(axis=2),
    }


def share_won(earned: Earned, label: str, *, start: int = -1) -> FloatArray:
    """Return the share won so far, in %, for each seed: 0 for chance, 100 for the clairvoyant.

    One column for each round from `start` on; by default only the last.
    """
    total = {name: np.cumsum(earned[name], axis=1)[:, start:] for name in (label, RANDOM, CLAIRVOYANT)}
    return 100 * share(total[label], total[RANDOM], total[CLAIRVOYANT])


def print_table(title: str, earned: Earned) -> None:
    """Print the shares won after the last round, with a conclusion."""
    shares = {label: share_won(earned, label)[:, 0] for label in earned if label not in REFERENCES}
    print(f"{title}\n\n{table(earned)}\n\n{verdict(shares, unit=' %')}\n")


def table(earned: Earned) -> str:
    """Return the shares won after the last round as a Markdown table."""
    lines = [
        f"| {'policy':26} | share won, %: median | lowest | highest | mean reward |",
        f"|{'-' * 28}|---------------------:|-------:|--------:|------------:|",
    ]
    for label, rewards in earned.items():
        shares = share_won(earned, label)[:, 0]
        numbers = f"{np.median(shares):20.1f} | {shares.min():6.1f} | {shares.max():7.1f}"
        lines.append(f"| {label:26} | {numbers} | {round(rewards.mean(), 3) + 0.0:11.3f} |")
    return "\n".join(lines)


def verdict(scores: dict[str, FloatArray], *, unit: str = "", digits: int = 1, least: bool = False) -> str:
    """Compare Autopilot with the best other policy, seed by seed; the `least` score is best if scores are losses."""
    sign = -1 if least else 1
    others = [label for label in scores if label != "Autopilot"]
    best = max(others, key=lambda label: float(sign * np.median(scores[label])))
    ours, theirs = np.broadcast_arrays(scores["Autopilot"], scores[best])
    ahead = int((sign * ours > sign * theirs).sum())
    our_score, their_score = (f"{np.median(each):.{digits}f}{unit}" for each in (ours, theirs))
    return (
        f"Autopilot: {our_score}. Best other policy: {best}, {their_score}. "
        f"Autopilot is ahead of it in {ahead} of {ours.size} seeds."
    )


def draw(problems: dict[str, Earned], file: Path) -> None:
    """Draw a row for each problem: shares won over rounds, and at the end with their range over seeds."""
    sheet = Figure(figsize=(9, 3.6 * len(problems)), layout="constrained")
    panels = sheet.subplots(len(problems), 2, width_ratios=[3, 2], squeeze=False)
    for (over, end), (title, earned) in zip(panels, problems.items(), strict=True):
        labels = [label for label in earned if label not in (CLAIRVOYANT, RANDOM)]
        rounds = np.arange(earned[RANDOM].shape[1]) + 1
        start = len(rounds) // 20  # the first shares are ratios of tiny numbers
        for label in reversed(labels):
            shares = np.median(share_won(earned, label, start=start), axis=0)
            dashes, width = "--" if label in REFERENCES else "-", 2.4 if label == "Autopilot" else 1.1
            over.plot(rounds[start:], shares, dashes, lw=width, color=shade(label))
        over.axhline(0, color="#999999", lw=0.6)
        over.set(title=title, xlabel="round", ylabel="share won so far, %: median", xlim=(0, len(rounds)))
        over.spines[["top", "right"]].set_visible(False)
        draw_ranges(end, {label: share_won(earned, label)[:, 0] for label in labels})
        end.axvline(0, color="#999999", lw=0.6)
        end.set(title="At the end, with range", xlabel="share won, %")
    write_figure(sheet, file)


def draw_ranges(axis: Axes, scores: dict[str, FloatArray]) -> None:
    """Draw the median and range over seeds of every score, one line each; the names have the colours."""
    for place, (label, values) in enumerate(scores.items()):
        axis.plot([values.min(), values.max()], [place, place], lw=2, color=shade(label))
        axis.plot(np.median(values), place, "o", ms=5, color=shade(label))
    axis.set_yticks(range(len(scores)), scores)
    for tick, label in zip(axis.get_yticklabels(), scores, strict=True):
        tick.set_color(shade(label))
    axis.invert_yaxis()
    axis.grid(axis="x", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)


def shade(label: str) -> str:
    """Return the colour of a policy, the same in every figure; black for a clairvoyant and grey for the rest."""
    return COLOURS.get(label, "#000000" if label.startswith(CLAIRVOYANT) else "#777777")


def write_figure(sheet: Figure, file: Path) -> None:
    """Write a figure and print its path."""
    file.parent.mkdir(parents=True, exist_ok=True)
    sheet.savefig(file, dpi=130)
    print(f"Figure: {file}")


def options(about: str | None, *, rounds: int | None, out: str, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line of an example: --seeds, --rounds, --out."""
    parser = argparse.ArgumentParser(description=(about or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds (%(default)s)")
    parser.add_argument("--rounds", type=int, default=rounds, help="maximum number of rounds (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out") / out, help="the figure (%(default)s)")
    return parser.parse_args(arguments)
