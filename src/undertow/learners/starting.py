"""The first rounds of a learner whose kernels are still being compiled, by another process.

In start-up the arms take turns, by counts and draws, which needs no kernels. So these rounds are decided in Python,
from the draws that the kernel would have got, and no checkpoint is taken. When the kernels are there, the learner is
rebuilt: its first checkpoint and all events since lead to the state that it would have had, bit for bit.
"""

from typing import Any, ClassVar

import numpy as np

from undertow._checks import FloatArray
from undertow.compiled.kernel import plain
from undertow.compiled.loop import DECIDE, LEARN, Loop, count_round, explored
from undertow.learners.fits import Claim
from undertow.learners.judge import start_up
from undertow.learners.learner import Learner
from undertow.live.decision import Why
from undertow.live.rounds import Timeline, Waiting

__all__ = ["Starting"]

_PROPOSE, _EXPLORE, _COUNT = plain(start_up), plain(explored), plain(count_round)


class Starting(Timeline):
    """The timeline of a learner until its kernels are compiled: start-up decides, and nothing is learned yet."""

    plain: ClassVar[bool] = False
    has_effects: ClassVar[bool] = True
    holds = True

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner.player)
        self.learner, self.turns = learner, learner.turns
        self.player.loop = Loop(self._play, self._skip, self.player.loop.layout)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The learner and its parts, of which nothing changes before the kernels are there."""
        return self.learner, *self.learner.parts

    @property
    def over(self) -> bool:
        """Whether start-up is over, and a fit due."""
        return self.player.rounds >= int(self.player.own.learner.start)

    # What the loop would do

    def _play(self, state: FloatArray, *step: Any) -> int:
        """Take the step of start-up's kernel that decides; the others wait for it."""
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

    # What a timeline does

    def check_reward(self, waiting: Waiting, reward: float, age: int) -> None:
        """Refuse a reward that comes too late, or with which models would overflow."""
        self.learner.check_reward(waiting, reward, age)

    def learn(self, waiting: Waiting, reward: float, age: int) -> None:
        """Learn nothing yet: the event is kept."""

    def observe(self) -> None:
        """Take in nothing yet: the event is kept."""

    def decided(self, t: int, arm: int) -> Why | None:
        """Explain the decision of round t; the event is kept."""
        return None if arm < 0 else self.learner.reasons.why(t, self.learner.notices)

    def share_fits(self, claim: Claim) -> None:
        """Ask `claim` before a thread makes a fit."""
        self.learner.share_fits(claim)
