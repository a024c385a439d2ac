"""The initial rounds of a learner whose kernels are still being compiled by another process.

In initial rounds the arms take turns, by counts and random numbers, which needs no kernels. So these rounds are decided
in Python, with the same random numbers, and no checkpoint is taken. When the kernels are ready, the learner is rebuilt
from its first checkpoint and all events since, with a bit-identical state.
"""

import logging
from typing import Any

import numpy as np

from undertow.compiled import ahead
from undertow.compiled.kernel import plain
from undertow.compiled.loop import DECIDE, LEARN, Loop, count_round, explored
from undertow.learning.fits import Claim, Refit
from undertow.learning.learner import Learner
from undertow.live import ContextPolicy
from undertow.live.decision import Why
from undertow.live.registry import name_of
from undertow.live.rehearsal import rehearse
from undertow.live.rounds import Timeline, Waiting
from undertow.models.judge import start_up
from undertow.support.checks import FloatArray

__all__ = ["Starting", "StartsEarly", "are_loaded"]

_MOST_KEPT = 10_000  # rounds that may pass without kernels
_LOG = logging.getLogger("undertow.kernels")
_PROPOSE, _EXPLORE, _COUNT = plain(start_up), plain(explored), plain(count_round)


class Starting(Timeline):
    """The timeline of a learner until its kernels are compiled: arms take turns, and nothing is learned yet."""

    plain = False
    has_effects = True
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


def are_loaded(loop: Loop) -> bool:
    """Return whether this process has the kernels of a loop, or needs none."""
    return bool(getattr(loop.play, "overloads", True))


class StartsEarly(ContextPolicy):
    """A learner that decides before its kernels are compiled."""

    refit: Refit
    _learner: Learner
    _awaits_kernels = True

    def _check_kernels(self, *, decides: bool) -> None:
        starting = self._timeline
        if not isinstance(starting, Starting):
            self._awaits_kernels = self._begin_without_kernels()
            return
        due = decides and starting.over and (self.refit != "background" or self.round >= _MOST_KEPT)
        if self._compilation.ended or due:
            self._settle()

    def _begin_without_kernels(self) -> bool:
        """Return whether another process compiles the kernels, while initial rounds run without."""
        kind: Any = type(self)
        ours = kind.__module__.startswith("undertow.policies.")  # kernels that another process can find
        if are_loaded(kind.loop) or not ours or not self._whole().unused or self._runs_in_python():
            return False

        def load() -> None:
            twin = kind(arms=["a", "b"], context_dim=1, refit="inline", rng=0)
            twin.parts.compile_here()
            rehearse(twin)

        compilation = ahead.compilation_of(name_of(kind) or "", kind.__module__, load)
        if compilation is None or compilation.ended:
            return False
        self._compilation, self._timeline = compilation, Starting(self._learner)
        self._awaits_kernels = True
        self._checkpoint()
        _LOG.info("another process compiles the kernels of %s; until then, arms take turns", kind.__name__)
        return True

    def _settle(self) -> None:
        """Discard numbers sampled ahead; wait for kernels after rounds without them, and rebuild the policy."""
        super()._settle()
        if not isinstance(self._timeline, Starting):
            return
        if not self._compilation.ended:
            _LOG.info("round %d waits for the kernels of %s", self.round, type(self).__name__)
            self._compilation.wait()
        self._journal.torn = True
        self._rebuild(self._have_kernels)
        self._checkpoint()
        _LOG.info("the kernels of %s are ready; %d rounds were replayed", type(self).__name__, self.round)
        self._timeline.report()

    def _have_kernels(self) -> None:
        """Continue with kernels; an unused policy needs them before its events are applied."""
        self._timeline, self._awaits_kernels = self._learner, False
        self._player.loop = type(self).loop
        del self._compilation  # which has a thread, and cannot be copied

    def _compile_here(self) -> None:
        """Compile missing kernels in this process, without notice, and not in another one."""
        super()._compile_here()
        self._learner.notices.quiet = True
