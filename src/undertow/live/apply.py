"""Apply an event: the only place that changes a policy, in place, from the event and the state alone.

So the same events give the same policy, wherever they are applied: in a call, after an interrupt, or in another
process (`undertow.fold`).
"""

import abc
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

import numpy as np

from undertow.compiled.loop import DECIDE, OBSERVE
from undertow.live.clock import as_time, stamp
from undertow.live.commits import Commits
from undertow.live.decision import Capabilities, Decision
from undertow.live.events import (
    ArmAdded,
    ArmRetired,
    CostsSet,
    Decided,
    Defaulted,
    Event,
    Installed,
    Keyed,
    Observed,
    Pinned,
    Recalled,
    Reseeded,
    Rewarded,
    Skipped,
    Unpinned,
    WarmStarted,
)
from undertow.live.pending import Waiting
from undertow.support.checks import FloatArray

__all__ = ["Applies"]

_WHOLE = np.dtype(np.int64)  # dispatch by type takes longer than converting a few numbers
_tuple = tuple.__new__  # makes a decision in half the time of its class, whose own __new__ is Python's


class Applies(Commits):
    """A policy's parts, and how events change them."""

    capabilities: ClassVar[Capabilities]
    _has_windows: bool

    names: tuple[str, ...]
    explore: float
    default_reward: float | None
    _context_dim: int
    _feature_dim: int
    _draw_count: int

    # What policies override

    @abc.abstractmethod
    def _draw(self, rng: np.random.Generator, rounds: int) -> FloatArray:
        """Return the random numbers that `decide` needs, one row per round."""

    @abc.abstractmethod
    def _probabilities(self, own: Any, played: int) -> FloatArray:
        """Return the policy's own probability of each arm, in a round in which one of them was played."""

    @abc.abstractmethod
    def _rescale(self) -> None:
        """Change the units."""

    @abc.abstractmethod
    def _widen(self, name: str) -> None:
        """Add an arm to the policy."""

    @abc.abstractmethod
    def _settle(self) -> None:
        """Finish or undo all work done ahead or deferred, so that the parts can be inspected."""

    @abc.abstractmethod
    def _start_warm(self, rows: FloatArray) -> None:
        """Begin after the rounds of a table, as rows of a learner's history."""

    # Events, one kind after the other

    def _decide(
        self,
        id: str,
        features: FloatArray | None,
        closed: FloatArray | None,
        still: bool,
        request: str | None,
        at: int | None,
        subject: str | None,
    ) -> tuple[Decision, Decided]:
        """Decide a round, and return the decision and its event.

        `closed` marks the arms that cannot be played in it, by default the retired ones.
        """
        player, columns, pending, timeline = self._player, self._columns, self._pending, self._timeline
        plain, begun = timeline.plain, player.begun
        t = int(begun())
        # What is due before the round
        if pending.wait is not None:
            self._learn_defaults(t)
        if at is not None:
            self._turns.clock.advance(at, begins=not still)
            pending.expire(at)
        if t >= columns.pause:
            self._rescale()
        # What the kernel reads
        if features is not None:
            if columns.follows:
                columns.note(features=features)
            if columns.fills:
                columns.note_row(features)
            columns.put_features(features, player)
        if not plain:
            timeline.prepare(pending.oldest(t), still=still)
        if self._draw_count:
            player.draws[...] = self._streams.row(pending.made, self._draws, self._draw_count)
        if closed is not None:
            retired = player.common.closed.copy()
            player.common.closed[:] = closed
        if still:
            player.stay(still=True)
        while (outcome := player.decide()) is None:
            timeline.attend()
        # What follows from the choice
        arm, pinned, time_step, memory, forecast, width, value = outcome
        if self._context_dim:
            self._turns.due = "observe"
        pending.add(id, t, arm, memory, not (pinned and player.silences(arm)), at)
        why = None if plain else timeline.decided(t, arm)
        chances = self._propensities(arm) if self._draw_count and not pinned else None
        propensity = 1.0 if chances is None else float(chances[arm])
        opened = None
        if closed is not None:
            player.common.closed[:] = retired
            opened = tuple(np.flatnonzero(closed == 0).tolist())
        if columns.units is not None:
            forecast, width = columns.units.outward(forecast, width)
            value = columns.units.rewards_outward(value)
        window = player.window.astype(_WHOLE) if self._has_windows else None
        made = (id, t, arm, self.names[arm], forecast, width, window, why, propensity, time_step, value, chances, False)
        decision = _tuple(Decision, made)
        if request is not None:
            pending.keep_answer(id, request, decision)
        if subject is not None:
            pending.subjects.keep(subject, decision, at)
        return decision, Decided(
            id=id,
            round=t,
            arm=arm,
            propensity=propensity,
            features=features,
            available=opened,
            still=still,
            request=request,
            at=None if at is None else as_time(at),
            subject=subject,
        )

    def _learn_defaults(self, t: int) -> None:
        """Learn the default reward of decisions that are due before round t."""
        for id in self._pending.overdue(t):
            self._learn_default(id)

    def _learn_default(self, id: str) -> None:
        """Learn the default reward of a decision."""
        assert self.default_reward is not None
        self._learn(id, self._pending.entries[id], self.default_reward, math.nan)

    def _learn(self, id: str, waiting: Waiting, reward: float, given: float) -> None:
        """Learn the reward of an earlier decision; the one that was given for it is remembered, NaN for none."""
        player, columns, pending, timeline = self._player, self._columns, self._pending, self._timeline
        then, arm, memory, _, learns, _ = waiting
        if learns:
            begun = player.begun
            age = int(begun()) - 1 - then
            inward = reward if columns.units is None else columns.reward(reward)
            if timeline.plain:
                player.learn(memory, arm, inward, age)
            else:
                timeline.learn(waiting, inward, age)
        pending.over[id] = None
        pending.count -= 1
        pending.learned[id] = pending.rewarded, given
        pending.rewarded += 1

    def _observe(self, context: FloatArray | None) -> None:
        """Observe the context of a round."""
        player, columns = self._player, self._columns
        if context is None or columns.units is not None:
            columns.put_context(context, player.context)
        else:
            player.context[...] = context
        if self._timeline.plain:
            player.observe()
        else:
            self._timeline.observe()
        self._turns.due = "decide"

    def _reach(self, at: datetime | None, *, begins: bool = False) -> None:
        """Advance the clock to a time, if given."""
        if at is not None:
            self._turns.clock.advance(stamp("at", at), begins=begins)

    def _skip(self, rounds: int, contexts: FloatArray | None) -> None:
        """Advance by rounds without a decision."""
        player, columns, pending, timeline = self._player, self._columns, self._pending, self._timeline
        for number in range(rounds):
            columns.put_context(None if contexts is None else contexts[number], player.context)
            for step in self._turns.order:
                if step == OBSERVE:
                    timeline.observe()
                elif step == DECIDE:
                    t = player.rounds
                    if pending.wait is not None:
                        self._learn_defaults(t)
                    timeline.prepare(pending.oldest(t), choice=False)
                    player.skip()
                    timeline.decided(t, -1)

    def _add_arm(self, name: str) -> None:
        """Add an arm, or reactivate a retired one."""
        if name in self.names:
            self._close(name, 0.0)
        else:
            self._widen(name)

    def _close(self, name: str, closed: float) -> None:
        """Retire an arm (1), or reactivate it (0)."""
        self._timeline.catch_up()  # first: it records the presently open arms in past rounds
        self._player.common.closed[self.names.index(name)] = closed

    def _set_costs(self, costs: Mapping[str, float]) -> None:
        """Set the costs of playing some arms."""
        for name, cost in costs.items():
            self._player.common.cost[self.names.index(name)] = cost

    def _pin(self, arm: int, *, learn: bool = True) -> None:
        """Pin an arm for every decision, or unpin with −1."""
        head = self._player.common.head
        head.pinned, head.unlearned = arm, not learn

    def _apply(self, event: Event) -> Decision | None:
        """Apply a checked event, and return the decision if it is one."""
        match event:
            case Decided():
                closed = None if event.available is None else self._closed(event.available)
                at = None if event.at is None else stamp("at", event.at)
                decision, _ = self._decide(
                    event.id, event.features, closed, event.still, event.request, at, event.subject
                )
                return decision
            case Rewarded():
                self._reach(event.at)
                self._learn(event.id, self._pending.entries[event.id], event.reward, event.reward)
            case Defaulted():
                self._learn_default(event.id)
            case Recalled():
                self._pending.recall(event.id, event.round, event.arm, event.memory, learns=event.learns)
            case Observed():
                self._reach(event.at, begins=self._turns.context_first)
                self._observe(event.context)
            case Skipped():
                self._skip(event.rounds, event.contexts)
            case ArmAdded():
                self._add_arm(event.name)
            case ArmRetired():
                self._close(event.name, 1.0)
            case CostsSet():
                self._set_costs(event.costs)
            case Pinned():
                self._pin(self.names.index(event.name), learn=event.learn)
            case Unpinned():
                self._pin(-1)
            case Keyed():
                self._pending.subjects.take_key(event.key)
            case Installed():
                self._timeline.install(event)
            case WarmStarted():
                self._start_warm(event.rows)
            case Reseeded():
                self._streams.reseed(int(event.entropy), self._pending.made)
        return None

    def _closed(self, available: tuple[int, ...]) -> FloatArray:
        closed = np.ones(len(self.names))
        closed[list(available)] = 0.0
        return closed

    def _draws(self, rounds: int) -> FloatArray:
        """Return the policy's random numbers and, if it explores, two more per round."""
        own = self._draw(self._streams.own, rounds)
        return np.hstack([own, self._streams.explore.random((rounds, 2))]) if self.explore else own

    def _propensities(self, arm: int) -> FloatArray | None:
        """Return the probability of every arm in the last decision, which played this; None if deterministic."""
        chances, opened = self._probabilities(self._player.own, arm), self._player.common.closed == 0
        if not self.explore:
            return chances
        return np.asarray((1 - self.explore) * chances + self.explore * opened / int(opened.sum()))
