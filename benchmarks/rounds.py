"""Where the time of a live round goes: its compiled calls, and the Python around them.

Two twins of every policy play the same rounds in one process, in turn with the other policies: one as it is, and one
whose compiled calls are timed where they stand. Shown are medians over rounds, so fits of autopilot are not in them,
and ratios within a turn; the table is also written to out/bench/rounds.json.
"""

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from benchmarks.report import OUT, Report, sampled, spread
from undertow import Trajectory, make, random_system

POLICIES = ("ucb", "linucb", "ares", "autopilot")
ARMS, TURNS, ROUNDS, BEGIN = 5, 9, 300, 600  # a policy has begun, and has made most of its fits, after that many rounds
MOST, MOST_OF_AUTOPILOT = 2.5, 2.0  # times the compiled calls; times a round of linucb
MOST_OF_NAMES = 3.0  # microseconds

_clock = time.perf_counter_ns


class Turn(NamedTuple):
    """Median microseconds of a turn: a whole round, and its compiled calls."""

    whole: float
    compiled: float

    @property
    def ratio(self) -> float:
        """Return the time of a round relative to its compiled calls."""
        return self.whole / self.compiled


class Timed:
    """A policy whose compiled calls are timed: nanoseconds of one round, without those of the clock."""

    def __init__(self, policy: Any) -> None:
        self.policy, self.spent = policy, 0
        player = policy.parts.player
        play, reading = player.loop.play, _reading()

        def timed(*step: Any) -> int:
            start = _clock()
            taken: int = play(*step)
            self.spent += _clock() - start - reading
            return taken

        player.loop = player.loop._replace(play=timed)


def _reading() -> int:
    """Return nanoseconds between two readings of the clock."""
    return int(np.median([-(_clock() - _clock()) for _ in range(1000)]))


def main() -> None:
    report = Report()
    turns = measured(sampled(random_system(10, 1, ARMS, rng=0), BEGIN + TURNS * ROUNDS))
    base = turns["linucb"]
    rows = {
        name: [
            spread([turn.whole for turn in found], ".1f"),
            spread([turn.compiled for turn in found], ".1f"),
            spread([turn.ratio for turn in found]),
            spread([turn.whole / other.whole for turn, other in zip(found, base, strict=True)]),
        ]
        for name, found in turns.items()
    }
    columns = ["µs a round", "µs in compiled calls", "ratio of the two", "round, relative to linucb"]
    report.grid(f"A live round and its compiled calls, k = {ARMS}: median (range) over {TURNS} turns", columns, rows)
    for name in ("ucb", "linucb", "ares"):
        ratio = float(np.median([turn.ratio for turn in turns[name]]))
        report.target(f"a round of {name}, in compiled calls", ratio, most=MOST)
    pairs = zip(turns["autopilot"], base, strict=True)
    relative = float(np.median([turn.whole / other.whole for turn, other in pairs]))
    report.target("a round of autopilot, in rounds of linucb", relative, most=MOST_OF_AUTOPILOT)
    named(report)
    report.save(OUT / "rounds.json")


def named(report: Report) -> None:
    """Compare decisions with five features that are given as an array and as a dictionary, in turn."""
    rows = np.random.default_rng(0).random((ROUNDS, 5))
    dicts = [dict(zip("abcde", row.tolist(), strict=True)) for row in rows]
    policy = make("linucb", arms=ARMS, feature_names=list("abcde"), max_pending=100)
    more = []
    for turn in range(TURNS + 1):
        medians = [np.median([_decision(policy, row) for row in given]) / 1e3 for given in (rows, dicts)]
        if turn:
            more.append(float(medians[1] - medians[0]))
    report.target(
        "a dictionary of 5 features in place of an array, in µs more", float(np.median(more)), most=MOST_OF_NAMES
    )


def _decision(policy: Any, features: Any) -> int:
    start = _clock()
    policy.decide(features)
    return _clock() - start - _READING


def measured(path: Trajectory, policies: Sequence[str] = POLICIES, begin: int = BEGIN) -> dict[str, list[Turn]]:
    """Play a path with all policies in turn; the first rounds count for nothing."""
    plain, timed = ({name: _built(name) for name in policies} for _ in range(2))
    compiled = {name: Timed(policy) for name, policy in timed.items()}
    found: dict[str, list[Turn]] = {name: [] for name in policies}
    cuts = [0, *range(begin, path.rounds + 1, ROUNDS)]
    for first, last in pairwise(cuts):
        for name in policies:
            whole, calls = np.empty(last - first), np.empty(last - first)
            for t in range(first, last):
                whole[t - first] = _round(plain[name], path, t)
                compiled[name].spent = 0
                _round(compiled[name].policy, path, t)
                calls[t - first] = compiled[name].spent
            if first:
                found[name].append(Turn(float(np.median(whole)) / 1e3, float(np.median(calls)) / 1e3))
    return found


def _built(name: str) -> Any:
    policy = make(name, arms=ARMS, rng=0, **({} if name == "ucb" else {"context_dim": 1}))
    policy.parts.compile_here()
    return policy


def _round(policy: Any, path: Trajectory, t: int) -> int:
    """Play a round and return its nanoseconds."""
    rewards, context, observes = path.rewards[t].tolist(), path.contexts[t], policy.parts.turns.context_dim
    start = _clock()
    decision = policy.decide()
    policy.learn(decision, rewards[decision.arm])
    if observes:
        policy.observe(context)
    return _clock() - start - _READING


_READING = _reading()

if __name__ == "__main__":
    main()
