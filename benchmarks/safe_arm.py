"""Beside a safe arm: the leading models of Autopilot and the rewards, before and now.

    git worktree add --detach ../old COMMIT          # the code to compare with
    python -m benchmarks.safe_arm ../old             # draws docs/learners_safe.png and prints its numbers

Both checkouts play the same paths of the world "3-0" (seeds 100 to 109) by hand, each in a process with its `src` alone
on the path. Only the public interface is used.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.report import markdown
from undertow import make, simulate
from undertow.problems.worlds import SAFE_WORLDS
from undertow.support.figure import LEGEND, SMALL, panels, plain_axis, save_sheet

ROOT = Path(__file__).resolve().parents[1]
SEEDS, ROUNDS, SPANS = range(100, 110), 1500, 30
MODELS = {"shared system": "#B5179E", "structural levels": "#D9C24A", "ridge": "#34568B", "constant arms": "#56B4E9"}
PLAY = """
import json, sys
import numpy as np
import undertow
rewards = np.load(sys.argv[1])
arms, models = [], []
for seed, path in enumerate(rewards):
    policy = undertow.make("autopilot", arms=path.shape[1], refit="inline", rng=seed)
    for t in range(len(path)):
        decision = policy.decide()
        policy.learn(decision, float(path[t, decision.arm]))
        arms.append(decision.arm)
        models.append(decision.why.model)
print(json.dumps([arms, models]))
"""


def played(checkout: Path, rewards: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.str_]]:
    """Return the arms that the Autopilot of a checkout played, and the models that led, each (runs, rounds)."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rewards.npy")
        np.save(file, rewards)
        environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
        command = [sys.executable, "-c", PLAY, str(file)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    arms, models = json.loads(done.stdout)
    return np.array(arms).reshape(rewards.shape[:2]), np.array(models).reshape(rewards.shape[:2])


def main() -> None:
    """Play, draw and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.safe_arm")
    parser.add_argument("old", type=Path, help="a checkout of the code to compare with")
    old = parser.parse_args().old.resolve()
    paths = [SAFE_WORLDS["3-0"].path(seed, ROUNDS) for seed in SEEDS]
    rewards, means = (np.array([getattr(path, name) for path in paths]) for name in ("rewards", "means"))
    sheet, axes = panels(3.6, 2, 2, sharex=True)
    others = {
        "discounted UCB": np.array(
            [simulate(make("discounted-ucb", arms=3, discount=0.99), path).arms for path in paths]
        ),
        "best arm of every round": means.argmax(axis=2),
    }
    lines = {}
    for column, (label, checkout) in enumerate({"before": old, "now": ROOT}.items()):
        arms, models = played(checkout, rewards)
        lead(axes[0, column], models, f"Autopilot {label}")
        won = {"Autopilot": arms, **others}
        earned = {name: won_so_far(means, given) for name, given in won.items()}
        for name, values in earned.items():
            axes[1, column].plot(np.arange(1, ROUNDS + 1), values, label=name, lw=1.6)
        plain_axis(axes[1, column], "", "mean reward so far" if column == 0 else "", "round")
        axes[1, column].set_ylim(-0.4, 1.0)
        stayed = np.mean(arms[:, 2 * ROUNDS // 3 :] == 0, axis=1)
        lines[label] = [*(f"{values[-1]:.3f}" for values in earned.values()), str((stayed == 1).sum())]
    print(markdown(["Autopilot", *others, f"runs of {len(paths)} that ended at the safe arm"], lines))
    handles = [*axes[0, 0].get_legend_handles_labels()[0], *axes[1, 0].get_lines()]
    sheet.legend(handles, [handle.get_label() for handle in handles], ncols=4, **LEGEND)
    save_sheet(sheet, ROOT / "docs" / "learners_safe.png", dpi=128)


def won_so_far(means: npt.NDArray[np.float64], arms: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the mean expected reward per round up to every round, over the runs."""
    earned = np.take_along_axis(means, arms[:, :, None], axis=2)[:, :, 0].mean(axis=0)
    return np.asarray(np.cumsum(earned) / np.arange(1, len(earned) + 1))


def lead(axis: Any, models: npt.NDArray[np.str_], title: str) -> None:
    """Draw the share of runs that each model led, in spans of rounds."""
    spans = models.reshape(len(models), SPANS, -1)
    shares = [100 * (spans == name).mean(axis=(0, 2)) for name in MODELS]
    middle = (np.arange(SPANS) + 0.5) * ROUNDS / SPANS
    axis.stackplot(middle, *shares, labels=list(MODELS), colors=list(MODELS.values()), alpha=0.85, lw=0)
    plain_axis(axis, title, "rounds led, %" if title.endswith("before") else "")
    axis.set(ylim=(0, 100), xlim=(0, ROUNDS))
    axis.title.set_fontsize(SMALL + 1)


if __name__ == "__main__":
    main()
