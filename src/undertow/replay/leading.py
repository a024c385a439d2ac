"""Policies that go through a log: what they choose, and which rewards they can learn."""

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.policies import Policy
from undertow.replay.contenders import reads_clock
from undertow.replay.table import Log, Table
from undertow.simulation import simulate
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.support.pool import Progress
from undertow.trajectory import Trajectory

__all__ = ["Learning", "Pass", "acceptance", "lead_through", "learnable"]

Learning = Literal["accepted", "matched"]


class Pass(NamedTuple):
    """One pass of a policy through a log: its arms, and the rounds accepted for the rejection estimate, (n,)."""

    arms: npt.NDArray[np.int64]
    accepted: npt.NDArray[np.bool_]

    def part(self, rows: slice | npt.NDArray[np.bool_]) -> "Pass":
        """Return some of the rounds."""
        return Pass(self.arms[rows], self.accepted[rows])


def acceptance(log: Log) -> FloatArray:
    """Return the probabilities c/p with which a matching round is accepted, c the smallest propensity."""
    return np.asarray(log.propensities.min() / log.propensities)


def learnable(table: Table, kept: npt.NDArray[np.bool_], learn_from: Learning) -> FloatArray:
    """Return the rewards that a policy can learn from a log, (n, k), NaN if there is none."""
    log, rewards = table.log, np.full((table.rounds, len(table.arms)), np.nan)
    assert log is not None
    rewards[np.arange(table.rounds), log.arms] = np.where(kept | (learn_from == "matched"), log.rewards, np.nan)
    return rewards


def lead_through(
    policy: Policy,
    table: Table,
    kept: npt.NDArray[np.bool_],
    learn_from: Learning,
    run: int = 0,
    progress: bool | Progress = False,
) -> Pass:
    """Take a policy through a log; `kept` marks the rounds that are accepted if the policy's arm is the logged one.

    To the policy, a round in which it has nothing to learn is one whose reward does not come.
    """
    log, rewards = table.log, learnable(table, kept, learn_from)
    assert log is not None
    contexts, features = map(checks.readonly, (table.contexts, table.features))
    path = Trajectory.trusted(contexts, rewards, None, features, None, table.elapsed)
    times = table.stamps if reads_clock(policy) else None
    arms = simulate(policy, path, times=times, runs=[run], threads=1, progress=progress).arms
    return Pass(arms, (arms == log.arms) & kept)
