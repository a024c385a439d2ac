"""The first rounds of a learner whose kernels are still being compiled, by another process.

In start-up the arms take turns, by counts and draws, which needs no kernels. So these rounds are decided in Python,
from the draws that the kernel would have got, and all calls are kept. When the kernels are there, a learner that knows
nothing yet is led through the calls, and is what it would have been: the same state, bit for bit.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from undertow._checks import FloatArray
from undertow.compiled.kernel import plain
from undertow.compiled.loop import DECIDE, LEARN, Loop, count_round, explored
from undertow.learners.judge import start_up
from undertow.learners.learner import Learner
from undertow.live.decision import Why
from undertow.live.rounds import Parts, Timeline, Waiting

__all__ = ["Starting"]

_PROPOSE, _EXPLORE, _COUNT = plain(start_up), plain(explored), plain(count_round)


class _Seen(NamedTuple):
    """A context that came, and which call was due."""

    due: Any
    context: FloatArray

    def again(self, parts: Parts) -> None:
        parts.player.context[:] = self.context
        parts.timeline.observe()


class _Paid(NamedTuple):
    """A reward that came, how many rounds after its decision, and which call was due."""

    due: Any
    waiting: Waiting
    reward: float
    age: int

    def again(self, parts: Parts) -> None:
        one_step = parts.timeline.learns_in_one_step(self.waiting, self.age)
        parts.timeline.learn(self.waiting, self.reward, self.age, one_step=one_step)


class _Passed(NamedTuple):
    """A round that passed without a decision; `oldest` is what `Timeline.prepare` was told."""

    due: Any
    oldest: int

    def again(self, parts: Parts) -> None:
        t = parts.player.rounds
        parts.timeline.prepare(self.oldest, choice=False)
        parts.player.skip()
        parts.timeline.decided(t, -1)


class _Decided(NamedTuple):
    """A decision: what it was made from, whether it may be made in one step, and its arm."""

    due: Any
    oldest: int
    one_step: bool
    still: bool
    features: FloatArray
    draws: FloatArray
    closed: FloatArray
    arm: int

    def again(self, parts: Parts) -> None:
        player, timeline, t = parts.player, parts.timeline, parts.player.rounds
        one_step = self.one_step and timeline.decides_in_one_step(still=self.still)
        player.give(self.features)
        player.draws[:], player.common.closed[:] = self.draws, self.closed
        timeline.prepare(self.oldest, still=self.still, one_step=one_step)
        player.stay(still=self.still)
        while not player.decide():
            timeline.attend()
        if int(player.arm.item()) != self.arm:
            raise AssertionError(f"round {t}: start-up chose arm {self.arm}, and its kernel {player.arm.item():g}")
        timeline.decided(t, self.arm)


class _Since:
    """What `Player.taken` is meanwhile: true once a call was kept, by the one instruction that keeps it."""

    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls
        self.clear()

    def clear(self) -> None:
        self.begun = len(self.calls)

    def __len__(self) -> int:
        return len(self.calls) - self.begun


class Starting(Timeline):
    """The timeline of a learner until its kernels are compiled: it keeps all calls, and start-up decides."""

    plain: ClassVar[bool] = False

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner.player)
        self.learner, self.turns = learner, learner.turns
        self.fresh = self.player.state.copy()
        self.calls: list[_Seen | _Paid | _Passed | _Decided] = []
        self._asked, self._oldest = False, 0
        self.player.loop = Loop(self._play, self._skip, self.player.loop.layout)
        self.player.taken = _Since(self.calls)  # type: ignore[assignment]

    @property
    def over(self) -> bool:
        """Whether start-up is over, and a fit due."""
        return self.player.rounds >= int(self.player.own.learner.start)

    def lead(self, parts: Parts) -> None:
        """Lead the parts of an unused policy through all that has happened; fits that are due take effect later."""
        parts.player.state[:] = self.fresh
        learner = parts.timeline
        assert isinstance(learner, Learner)
        learner.fits.schedule = {}
        for call in self.calls:
            parts.turns.due = call.due
            call.again(parts)
        learner.fits.schedule, learner.telling.listener = self.learner.fits.schedule, self.learner.telling.listener
        parts.turns.due = self.turns.due
        parts.player.common.closed[:] = self.player.common.closed

    # What the loop would do

    def _play(self, state: FloatArray, *step: Any) -> int:
        """Take the step of start-up's kernel that decides; the others wait for it."""
        first = step[2]
        if first > DECIDE:
            return int(first + 1)
        player, own = self.player, self.player.loop.layout.open(state)
        arm = _PROPOSE(own, player.draws)
        own.learner.leader, own.learner.lead, own.common.head.proposed = -1.0, 0.0, arm
        own.common.forecast[:], own.common.width[:] = 0.0, np.inf
        player.record[:] = own.common.forecast, own.common.width, own.common.window
        player.arm[0] = arm = _EXPLORE(own.common, arm, player.draws)
        own.plays[arm] += 1.0
        if state is player.state:
            made = (player.given.copy(), player.draws.copy(), own.common.closed.copy(), arm)
            self.calls.append(_Decided(self.turns.due, self._oldest, self._asked, player.still, *made))
        _COUNT(own.common.head)
        return LEARN

    def _skip(self, state: FloatArray) -> None:
        self.calls.append(_Passed(self.turns.due, self._oldest))
        _COUNT(self.player.common.head)

    # What a timeline does

    def decides_in_one_step(self, *, still: bool = False) -> bool:
        """Say no, so that everything is kept that an interrupted call has to put back."""
        self._asked = True
        return False

    def learns_in_one_step(self, waiting: Waiting, age: int) -> bool:
        """Say no, as with decisions."""
        return False

    def keep(self, rounds: Sequence[int] = ()) -> Any:
        """Return how many calls there were."""
        return len(self.calls)

    def put_back(self, kept: Any) -> None:
        """Forget the calls since."""
        del self.calls[kept:]
        self._asked = False

    def prepare(self, oldest: int, *, choice: bool = True, still: bool = False, one_step: bool = False) -> None:
        """Remember what the kernels' timeline will be told."""
        self._oldest, self._asked = oldest, self._asked and choice

    def decided(self, t: int, arm: int) -> None:
        """Forget whether the decision was to be made in one step."""
        self._asked = False

    def learn(self, waiting: Waiting, reward: float, age: int, *, one_step: bool = True) -> None:
        """Keep a reward."""
        self.learner.require_takable(reward, age)
        self.calls.append(_Paid(self.turns.due, waiting, reward, age))

    def observe(self) -> None:
        """Keep a context."""
        self.calls.append(_Seen(self.turns.due, self.player.context.copy()))

    def why(self, t: int) -> Why:
        """Explain the decision that was just made, of round t."""
        return self.learner.why(t)

    @property
    def nbytes(self) -> int:
        """Bytes of what the learner remembers; calls are Python's objects."""
        return self.learner.nbytes
