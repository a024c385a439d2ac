"""Shared by the examples on costs: worlds, recordings of them, policies, one table, one figure.

A world has rounds; in each, one of a few variants runs, and its cost is observed. Policies learn the logarithm of the
cost. The total of a policy is the cost of its choices and, if costs are seconds, its own time to decide and to learn,
fits included. No policy is tuned to a problem. Each has the parameters below in every example.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from lineup import COLOURS, draw_ranges, shade, shown, write_figure
from undertow import InvalidInputError
from undertow.contenders import build
from undertow.policies import LivePolicy

FloatArray = npt.NDArray[np.float64]
FOLDER = Path(__file__).parent / "recorded"
CLAIRVOYANT, RANDOM = "clairvoyant", "random choice"
UNIT = 1e-6  # costs are kept as whole thousandths of ln(cost / UNIT): 0.1 % of each, from 1e-13 to 1e8
COLOURS |= {"UCB": "#8B5A2B", "PIES": "#8A4B00"}


class World(Protocol):
    """A world. Playing may change it, so every player gets its own."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the variants."""

    @property
    def features(self) -> FloatArray:
        """The features, (rounds, q)."""

    @property
    def context_dim(self) -> int:
        """Number of entries of a context."""

    def play(self, t: int, arm: int) -> float:
        """Let a variant run in round t; return its cost."""

    def context(self, t: int) -> FloatArray:
        """Return the measurements of round t."""


class Played(NamedTuple):
    """Arms, their costs and the seconds that the policy itself took, by round, (rounds,)."""

    arms: npt.NDArray[np.int64]
    costs: FloatArray
    own: FloatArray


@dataclass(frozen=True)
class Table:
    """A world that playing does not change: the cost of every variant in every round, (rounds, k)."""

    names: Sequence[str]
    costs: FloatArray
    features: FloatArray
    context_dim: int = 0

    def play(self, t: int, arm: int) -> float:
        """Let a variant run in round t; return its cost."""
        return float(self.costs[t, arm])

    def context(self, t: int) -> FloatArray:
        """Return no measurements."""
        return np.empty(0)


class Recording(NamedTuple):
    """Measured worlds, (worlds, rounds, …), with subject, date and machine."""

    names: Sequence[str]
    costs: FloatArray
    features: FloatArray
    about: dict[str, Any]

    def save(self, file: Path) -> None:
        """Write a small file: costs to 0.1 %, features to four digits."""
        costs = np.round(1000 * np.log(self.costs / UNIT)).astype(np.int16)
        features = self.features.astype(np.float16)
        header = json.dumps({"names": list(self.names), **self.about})
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(file, costs=costs, features=features, header=np.array(header))
        print(f"Recorded: {file}, {file.stat().st_size / 1000:.0f} kB; {self.machine}")

    @classmethod
    def load(cls, file: Path) -> "Recording":
        """Read a file of `save`."""
        with np.load(file) as arrays:
            about = json.loads(str(arrays["header"]))
            costs, features = UNIT * np.exp(arrays["costs"] / 1000), arrays["features"].astype(np.float64)
        return cls(about.pop("names"), costs, features, about)

    @property
    def machine(self) -> str:
        """Machine and date of the measurement, in words."""
        return ", ".join(str(value) for value in self.about.values())

    def worlds(self, rounds: int | None = None) -> list[Callable[[], World]]:
        """Return the worlds, up to a number of rounds."""
        pairs = zip(self.costs[:, :rounds], self.features[:, :rounds], strict=True)
        tables = [Table(self.names, costs, features) for costs, features in pairs]
        return [lambda table=table: table for table in tables]  # type: ignore[misc]


def here(**more: str) -> dict[str, str]:
    """Return a description of this machine."""
    return {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": processor(), **more, "python": f"Python {python()}"}


def python() -> str:
    """Return the version of Python."""
    return ".".join(map(str, sys.version_info[:3]))


def processor() -> str:
    """Return the name of the processor."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.is_file() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def line_up(world: World, seed: int = 0) -> dict[str, LivePolicy]:
    """Return the policies for a world, unused."""
    sizes: dict[str, Any] = {"arms": list(world.names), "context_dim": world.context_dim, "minimize": True, "rng": seed}
    sizes["feature_dim"] = world.features.shape[1]
    paper = ("ares", "pies") if world.context_dim else ()  # forecast from contexts alone
    return {
        "Autopilot": build("autopilot", **sizes),
        "LinUCB": build("linucb", **sizes, window=5, standardize=True),
        "LinUCB + own rewards": build("linucb", **sizes, window=5, reward_lags=5, standardize=True),
        "Discounted UCB": build("discounted-ucb", **sizes, discount=0.99),
        "UCB": build("ucb", **sizes),
        **{name.upper(): build(name, **sizes, standardize=True) for name in paper},
    }


def play(world: World, policy: LivePolicy, rounds: int | None = None) -> Played:
    """Let a policy play a world, and measure its own processor time, as other processes may be running."""
    rounds = min(len(world.features), rounds or len(world.features))
    arms, costs, own = np.empty(rounds, np.int64), np.empty(rounds), np.empty(rounds)
    takes_features = getattr(policy, "feature_dim", 0) > 0
    sees_contexts = getattr(policy, "context_dim", 0) > 0
    for t in range(rounds):
        begun = time.thread_time()
        decision = policy.decide(world.features[t]) if takes_features else policy.decide()
        decided = time.thread_time()
        arms[t], costs[t] = decision.arm, world.play(t, decision.arm)
        context = world.context(t)
        done = time.thread_time()
        policy.learn(decision, float(np.log(costs[t])))
        if sees_contexts:
            policy.observe(context)
        own[t] = time.thread_time() - done + decided - begun
    return Played(arms, costs, own)


def play_fixed(world: World, choose: Callable[[int], int]) -> Played:
    """Let a player without its own time play: one variant, or a rule."""
    arms = np.array([choose(t) for t in range(len(world.features))])
    return Played(arms, np.array([world.play(t, int(arm)) for t, arm in enumerate(arms)]), np.zeros(len(arms)))


def play_all(
    worlds: Sequence[Callable[[], World]], rules: Mapping[str, Callable[[Any, int], int]] | None = None
) -> dict[str, list[Played]]:
    """Let all players play every world: policies, every fixed choice, a random one, and rules that know more."""
    names = worlds[0]().names
    for policy in line_up(worlds[0]()).values():  # compilation is not counted
        play(worlds[0](), policy, rounds=60)
    played: dict[str, list[Played]] = {}
    for number, world in enumerate(shown(worlds, len(worlds))):
        rng = np.random.default_rng(number)
        runs = {label: play(world(), policy) for label, policy in line_up(world(), seed=number).items()}
        for arm, name in enumerate(names):
            runs[f"always {name}"] = play_fixed(world(), lambda t, arm=arm: arm)  # type: ignore[misc]
        runs[RANDOM] = play_fixed(world(), lambda t: int(rng.integers(len(names))))  # noqa: B023
        for label, rule in (rules or {}).items():
            own = world()
            runs[label] = play_fixed(own, lambda t: rule(own, t))  # noqa: B023
        if isinstance(table := world(), Table):
            runs[CLAIRVOYANT] = play_fixed(table, table.costs.argmin(axis=1).item)
        for label, run in runs.items():
            played.setdefault(label, []).append(run)
    return played


def best_fixed(played: dict[str, list[Played]]) -> list[Played]:
    """Return the cost of the best fixed choice of each world."""
    fixed = [runs for label, runs in played.items() if label.startswith("always ")]
    return [min(runs, key=lambda run: float(run.costs.sum())) for runs in zip(*fixed, strict=True)]


def relative(played: dict[str, list[Played]], label: str, *, own: bool, start: int = -1) -> FloatArray:
    """Return the total cost so far relative to the best fixed choice of each world, (worlds, rounds from `start` on).

    With `own`, the policy's own seconds are costs too.
    """
    pairs = zip(played[label], best_fixed(played), strict=True)
    return np.stack(
        [np.cumsum(run.costs + own * run.own)[start:] / np.cumsum(best.costs)[start:] for run, best in pairs]
    )


def print_table(title: str, played: dict[str, list[Played]], *, own: bool) -> None:
    """Print the total costs, and whether Autopilot is ahead."""
    print(f"{title}\n\n{table(played, own=own)}\n\n{verdict(played, own=own)}\n")


def table(played: dict[str, list[Played]], *, own: bool) -> str:
    """Return the total costs relative to the best fixed choice as a Markdown table."""
    lines = [
        f"| {'':28} | total cost: median | lowest | highest | own time, µs per round |",
        f"|{'-' * 30}|-------------------:|-------:|--------:|-----------------------:|",
    ]
    for label, runs in played.items():
        totals = relative(played, label, own=own)[:, 0]
        mean = np.mean([1e6 * run.own.mean() for run in runs])
        numbers = f"{np.median(totals):18.3f} | {totals.min():6.3f} | {totals.max():7.3f} | {mean:22.1f}"
        lines.append(f"| {label:28} | {numbers} |")
    return "\n".join(lines)


def verdict(played: dict[str, list[Played]], *, own: bool) -> str:
    """Name the policies ahead of Autopilot in the median, and its worst ratio to the best fixed choice."""
    totals = {label: relative(played, label, own=own)[:, 0] for label in played}
    ours = totals["Autopilot"]
    ahead = [label for label in line_up_labels(played) if np.median(totals[label]) <= np.median(ours)]
    fixed = "is ahead of" if np.median(ours) < 1 else "is behind"
    return (
        f"Autopilot, its own time {'included' if own else 'aside'}, {fixed} the best fixed choice in the median and in "
        f"{int((ours < 1).sum())} of {len(ours)} worlds; at most it costs {ours.max():.3f} times as much. "
        f"Policies ahead of it in the median: {', '.join(ahead) or 'none'}."
    )


def line_up_labels(played: dict[str, list[Played]]) -> list[str]:
    """Return the labels of the policies other than Autopilot."""
    others = ("Autopilot", RANDOM, CLAIRVOYANT)
    return [label for label in played if label in COLOURS and label not in others]


def draw(title: str, played: dict[str, list[Played]], file: Path, *, own: bool) -> None:
    """Draw total costs relative to the best fixed choice: over rounds, and at the end with their range."""
    sheet = Figure(figsize=(9, 4.2), layout="constrained")
    over, end = sheet.subplots(1, 2, width_ratios=[3, 2])
    policies = ["Autopilot", *line_up_labels(played)]
    rounds = len(played["Autopilot"][0].costs)
    start = rounds // 20
    known = [label for label in played if label not in policies and not label.startswith("always ")]
    drawn = [label for label in known if label != RANDOM]
    for label in [*drawn, *reversed(policies)]:
        totals = np.median(relative(played, label, own=own, start=start), axis=0)
        dashes, width = "-" if label in policies else "--", 2.4 if label == "Autopilot" else 1.1
        over.plot(np.arange(start, rounds) + 1, totals, dashes, lw=width, color=shade(label))
    over.axhline(1, color="#999999", lw=0.6)
    over.set(title=title, xlabel="round", ylabel="total cost so far / best fixed choice", xlim=(0, rounds))
    over.spines[["top", "right"]].set_visible(False)
    fixed = [label for label in played if label.startswith("always ")]
    ends = {label: relative(played, label, own=own)[:, 0] for label in [*policies, *fixed, *drawn]}
    draw_ranges(end, ends)
    end.axvline(1, color="#999999", lw=0.6)
    end.set(title="At the end, with range", xlabel="total cost / best fixed choice")
    if max(values.max() for values in ends.values()) > 4:
        end.set_xscale("log")
        end.xaxis.set_major_formatter("{x:g}")
    write_figure(sheet, file)


def options(
    about: str | None, *, out: str, arguments: Sequence[str] | None, record: bool = True, live: bool = False
) -> argparse.Namespace:
    """Read the command line of an example: --worlds, --rounds, --out and, if worlds are measured, --record."""
    parser = argparse.ArgumentParser(description=(about or "").split("\n")[0])
    parser.add_argument("--worlds", type=int, default=10, help="number of worlds (%(default)s)")
    parser.add_argument("--rounds", type=int, default=1500, help="maximum number of rounds (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out") / out, help="the figure (%(default)s)")
    if record:
        parser.add_argument(
            "--record", type=Path, metavar="FILE", help="measure again, write the costs to this file, and exit"
        )
        parser.add_argument("--first-seed", type=int, default=0, help="seed of the first measured world")
        parser.add_argument("--recording", type=Path, help="recording to play instead of the page's")
    if live:
        parser.add_argument(
            "--live", action="store_true", help="let a tuner play on this machine, and print its report"
        )
    chosen = parser.parse_args(arguments)
    for name in ("worlds", "rounds"):
        if getattr(chosen, name) < 1:
            raise InvalidInputError(f"--{name}: expected at least 1, got {getattr(chosen, name)}")
    return chosen
