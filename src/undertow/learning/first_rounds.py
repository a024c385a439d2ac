"""The initial rounds of a learner whose kernels are still being compiled by another process.

In initial rounds the arms take turns, by counts and random numbers, which needs no kernels. So these rounds are decided
in Python, with the same random numbers, and no checkpoint is taken. When the kernels are ready, the learner is rebuilt
from its first checkpoint and all events since, with a bit-identical state.
"""

from typing import Any, ClassVar

import numpy as np

from undertow.compiled.kernel import plain
from undertow.compiled.loop import DECIDE, LEARN, Loop, count_round, explored
from undertow.learning.fits import Claim
from undertow.learning.learner import Learner
from undertow.live.decision import Why
from undertow.live.rounds import Timeline, Waiting
from undertow.models.judge import start_up
from undertow.support.checks import FloatArray

__all__ = ["Starting"]

_PROPOSE, _EXPLORE, _COUNT = plain(start_up), plain(explored), plain(count_round)


class Starting(Timeline):
    """The timeline of a learner until its kernels are compiled: arms take turns, and nothing is learned yet."""

    plain: ClassVar[bool] = False
    has_effects: ClassVar[bool] = True
    holds = True

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner.player)
        self.learner, self.turns = learner, learner.turns
        self.player.loop = Loop(self._play, self._skip, self.player.loop.layout)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The learner and its parts, which do not change before the kernels are ready."""
        return self.learner, *self.learner.parts

    @property
    def over(self) -> bool:
        """Whether the initial rounds are over, and a fit is due."""
        return self.player.rounds >= int(self.player.own.learner.start)

    # In place of the loop

    def _play(self, state: FloatArray, *step: Any) -> int:
        """Decide like the kernel of initial rounds; the other steps wait for the kernels."""
        first = step[2]
        if first > DECIDE:
            return int(first + 1)
        player, own = self.player, self.player.loop.layout.open(state)
        arm = _PROPOSE(own, player.draws)
        own.learner.leader, own.learner.lead, own.common.head.proposed = -1.0, 0.0, arm
        own.common.forecast[:], own.common.width[:], own.common.value[:] = 0.0, np.inf, np.inf
        player.record[:] = own.common.forecast, own.common.width, own.common.window
        player.arm[0] = arm = _EXPLORE(own.common, arm, player.draws)
        own.plays[arm] += 1.0
        _COUNT(own.common.head)
        return LEARN

    def _skip(self, state: FloatArray) -> None:
        _COUNT(self.player.common.head)

    # Methods of a timeline

    def check_reward(self, waiting: Waiting, reward: float, age: int) -> None:
        """Refuse a reward that comes too late, or with which models would overflow."""
        self.learner.check_reward(waiting, reward, age)

    def learn(self, waiting: Waiting, reward: float, age: int) -> None:
        """Do nothing yet: the event is kept."""

    def observe(self) -> None:
        """Do nothing yet: the event is kept."""

    def decided(self, t: int, arm: int) -> Why | None:
        """Explain the decision of round t; the event is kept."""
        return None if arm < 0 else self.learner.reasons.why(t, self.learner.notices)

    def share_fits(self, claim: Claim) -> None:
        """Ask `claim` before a thread makes a fit."""
        self.learner.share_fits(claim)
