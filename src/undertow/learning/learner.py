"""The timeline of a learner: what its rounds do to its models.

Every round goes into a log. A late reward is recorded there, and applied at its own round before one of the next
decisions (`learning.late`).
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from undertow.compiled import ahead
from undertow.compiled.player import Player
from undertow.learning.notices import Notices
from undertow.learning.refits import Refits
from undertow.live.decision import Why
from undertow.live.events import Installed
from undertow.live.rewind import too_late
from undertow.live.rounds import Waiting
from undertow.models.block import Block, score_again
from undertow.models.log import LARGEST, require_small
from undertow.models.looks import note_late_reward
from undertow.support.checks import FloatArray

__all__ = ["Learner"]


_tuple = tuple.__new__  # makes an explanation in half the time of its class, whose __new__ is Python's


class Reasons:
    """Views of the reasons of a decision: the leading model, its lead, the errors of its forecasts, and looks."""

    def __init__(self, player: Player, places: Sequence[int], names: Sequence[str], blocks: Sequence[Block]) -> None:
        learner = player.own.learner
        self.arms = len(player.rewards)
        self.leader, self.lead, self.look = (learner.cell(name).item for name in ("leader", "lead", "look"))
        self.models = {
            place: (name, own.state_error.copy, own.arm_error.copy, own.head.cell("fitted").item)
            for place, name, own in zip(places, names, blocks, strict=True)
        }

    def why(self, t: int, notices: Notices) -> Why:
        """Return the reasons of the decision of round t, as recorded by the kernel, and report a new leader."""
        leader = self.leader()
        if leader < 0:
            k = self.arms
            return Why(np.full(k, math.inf), np.full(k, math.inf), "start-up", math.inf, -1, 0.0)
        name, state_error, arm_error, fitted = self.models[leader]
        lead = self.lead()
        if name != notices.leader:
            notices.leads(name, lead, t)
        return _tuple(Why, (state_error(), arm_error(), name, lead, t - int(fitted()), self.look()))


class Learner(Refits):
    """The timeline of a policy that learns models."""

    def _bind(self) -> None:
        super()._bind()
        names, blocks = [model.name for model in self.models], [own.model for own in self.blocks]
        self.reasons = Reasons(self.player, self.places, names, blocks)

    def arrived(self) -> Sequence[Installed]:
        """Return finished background fits that are not events yet."""
        return self.fits.arrived(self.player.rounds) if self.fits.under_way else ()

    def install(self, event: Installed) -> None:
        """Accept a background fit."""
        self.fits.take(event)

    def prepare(self, oldest: int, *, choice: bool = True, still: bool = False) -> None:
        """Swap in the fits that have caught up, and go on with late rewards, if it is time for either."""
        late, t = self.late, int(self.player.begun())
        if late.by_time:
            late.reach_back(t - oldest)
        if t < late.wake and not still and not self.fits.taken:
            return
        if still:
            self.log.share(t)
        for number in self.fits.advance(t) if self.fits.taken else ():
            self.swap(number, self.fits.under_way[number], self.fits.taken[number].answer)
        if not t:  # the first decision
            ahead.begin(self.models[0].fitted_by)
        if arrived := late.attend(due=True):
            self.take_in(arrived)
        late.remember(self.views, self.latest)

    def take_in(self, arrived: Mapping[int, FloatArray]) -> None:
        """Put blocks that know of late rewards into their places; what fits have set since stays."""
        for number, block in arrived.items():
            running, error_floor, rare = self.lasting[number]
            kept = running.copy(), error_floor.copy(), rare.copy()
            self.views[number][:] = block
            changed = error_floor[...] != kept[1]
            running[:], error_floor[:], rare[:] = kept
            if changed:
                score_again(self.blocks[number].model)

    def decided(self, t: int, arm: int) -> Why | None:
        """Record the choice of the last round, and return its explanation."""
        if arm < 0:
            return None
        log = self.log
        log.put(t, log.arm, arm)
        if log.feature_dim:
            log.row(t)[log.context_dim : log.shared] = self.player.features_of(arm)
        return self.reasons.why(t, self.notices)

    def observe(self) -> None:
        """Observe a context, and record it."""
        self.player.observe()
        number = int(self.player.begun()) - (not self.turns.context_first)
        self.log.put(number, self.log.context, self.player.context)

    def check_reward(self, waiting: Waiting, reward: float, age: int) -> None:
        """Refuse a reward that comes too late, or with which models would overflow."""
        if not -LARGEST <= reward <= LARGEST:
            require_small(reward)
        if (age > self.late.max_delay and not self.late.by_time) or waiting.round < self.log.begin:
            raise too_late(age, self.late.max_delay)

    def learn(self, waiting: Waiting, reward: float, age: int) -> None:
        """Record a reward and learn it: immediately if it is of the last round, otherwise at its own round."""
        then = waiting.round
        at_once = age == 0 and not (self.turns.context_first and self.turns.due == "decide")
        if at_once:
            self.player.learn(waiting.memory, waiting.arm, reward, 0)
        self.log.pay(then, reward)
        if self.fits.under_way:
            self.fits.note_reward(then)
        self.latest = max(self.latest - 1, age)
        if not at_once:
            note_late_reward(self.player.own.looks, then, waiting.arm, reward)
            self.late.note(then)

    def recorded(self, data: FloatArray, arms: FloatArray, begun: int, step: int) -> None:
        """Record steps that were played together."""
        self.notices.write()
        log, player, first, last = self.log, self.player, begun // 3, step // 3
        m, k, base = log.context_dim, len(player.rewards), player.rounds - last
        if step % 3:  # the context of the next round has come
            log.row(base + last)[:m] = data[last, :m]
        if last > first:
            log.open(base + last - 1)
            rows = log.rows(base + first, base + last)
            played = arms[first:last].astype(np.int64)
            numbers = np.arange(last - first)
            features = data[first:last, m + k :].reshape(len(rows), player.rows, log.feature_dim)
            rows[:, :m] = data[first:last, :m]
            rows[:, m : log.shared] = features[numbers, played if player.rows > 1 else 0]
            rows[:, log.arm] = played
            rows[:, log.reward] = data[first + numbers, m + played]

    def scratch(self) -> FloatArray:
        """Return a copy of the state for a decision without fits."""
        state = self.player.state.copy()
        for number, block in self.late.attend(keep=False).items():
            self.block(number, state)[:] = block
        for own in self.open_blocks(state):
            own.model.running.next_fit, own.model.alarm.raised = math.inf, 0.0
        return state

    def report(self) -> None:
        """Start the fits that were requested, write to the program's log, and warn of fits that failed.

        Fits that a copy or an interrupted call has left are started before the next decision.
        """
        if self.fits.requested:
            self.fits.start_missing()
        if self.notices.lines or self.notices.warnings:
            self.notices.report()

    def forget_notices(self) -> None:
        """Drop reports on events that were applied again."""
        self.notices.forget()
