"""Late rewards of Kalman filters: applied at their own round, after which later rounds are filtered again.

A late reward is stored when it comes. Before the next decision or inspection, the filter goes once through the rounds
since the oldest of the new rewards.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from undertow.compiled.loop import DECIDE, LEARN, OBSERVE
from undertow.compiled.player import Player
from undertow.errors import InvalidInputError, UnknownDecisionError
from undertow.live.fields import Field, Table
from undertow.live.rounds import Timeline, Turns, Waiting
from undertow.live.saved import MEASURED, Saved
from undertow.support.checks import FloatArray

__all__ = ["Rewinding", "too_late"]


def too_late(age: int, most: float) -> UnknownDecisionError:
    """Return the error for a reward that comes too late."""
    return UnknownDecisionError(
        f"decision: its reward comes {age} rounds late, and only max_delay = {most} are remembered; build "
        f"the policy with max_delay={age} or more (in rounds: {most} are {most / 100:g} s at 100 decisions a second)",
        "late",
    )


_tuple = tuple.__new__  # makes a round in half the time of its class, whose own __new__ is Python's


class _Round(NamedTuple):
    """A round that may have to be filtered again: the state before it, and its observations."""

    before: FloatArray
    context: FloatArray | None = None
    arm: int = -1
    reward: float = math.nan
    still: bool = False  # whether it is of the same time step as the round before


class Rewinding(Timeline):
    """Remember the rounds whose reward may still come, at most `max_delay`, and filter them again if necessary."""

    plain = False
    remembers: ClassVar[tuple[Field, ...]] = (
        *map(Field, ("oldest", "coming", "limit", "late")),
        Table(
            "rounds",
            {
                "round_numbers": Saved(("kept",), 0, "rounds", whole=True, rising=True),
                "round_states": Saved(("kept", "n"), missing=True),
                "round_observed": Saved(("kept",), 0, 1, whole=True),
                "round_contexts": Saved(("kept", "m"), *MEASURED, missing=True),
                "round_arms": Saved(("kept",), -1, "k-1", whole=True),
                "round_rewards": Saved(("kept",), *MEASURED, missing=True),
                "round_still": Saved(("kept",), 0, 1, whole=True),
            },
            lambda own: [(t, s, c is not None, c, a, x, still) for t, (s, c, a, x, still) in own.rounds.items()],
            lambda own, rows: own.read(rows),
        ),
    )

    def __init__(self, player: Player, turns: Turns, max_delay: float) -> None:
        super().__init__(player)
        self.turns, self.max_delay = turns, max_delay
        self.rounds: dict[int, _Round] = {}
        self.oldest = 0
        self.coming: tuple[int, _Round | None] = (0, None)  # stored by `decided`
        self.limit = 0  # the oldest round whose reward can come
        self.late = math.inf  # the oldest round whose reward is not applied yet

    def prepare(self, oldest: int, *, choice: bool = True, still: bool = False) -> None:
        """Catch up before a choice; store the state before the round, unless it has begun with its context."""
        if self.late < math.inf and (choice or self.late < self.player.rounds - self.max_delay):
            self.catch_up()  # without a choice, before it would be forgotten
        begins = still or not self.turns.context_first
        entry = _tuple(_Round, (self.player.state.copy(), None, -1, math.nan, still)) if begins else None
        self.coming = oldest, entry

    def decided(self, t: int, arm: int) -> None:
        """Remember the round."""
        self.oldest, begun = self.coming
        if begun is not None:
            self._open_round(t, begun)

    def _open_round(self, t: int, entry: _Round) -> None:
        self.limit = int(max(min(self.oldest, t), t - self.max_delay - 1))  # context first: t − 1 is still the last
        self._forget()
        self.rounds[t] = entry

    def _forget(self) -> None:
        """Forget the rounds whose reward cannot come, except those to be filtered again."""
        rounds, first = self.rounds, min(self.limit, self.late)
        while rounds and (number := next(iter(rounds))) < first:
            del rounds[number]

    def observe(self) -> None:
        """Observe a context, and remember it."""
        player, context = self.player, self.player.context.copy()
        if self.turns.context_first:
            before = player.state.copy()
            player.observe()
            self._open_round(player.rounds, _Round(before, context))
        else:
            player.observe()
            last = next(reversed(self.rounds))
            before, _, *more = self.rounds[last]
            self.rounds[last] = _tuple(_Round, (before, context, *more))

    def check_reward(self, waiting: Waiting, reward: float, age: int) -> None:
        """Refuse a reward of a round that is no longer remembered."""
        if age > self.max_delay or waiting.round not in self.rounds:
            raise too_late(age, self.max_delay)

    def learn(self, waiting: Waiting, reward: float, age: int) -> None:
        """Apply a reward of the last round, and store an older one.

        The filter catches up before the former, so that an inspection in between does not change the last digit.
        """
        then = waiting.round
        if then == next(reversed(self.rounds)):
            if self.late < math.inf:
                self.catch_up()
            self.player.learn(waiting.memory, waiting.arm, reward, 0)
        else:
            self.late = min(self.late, then)
        before, context, _, _, still = self.rounds[then]
        self.rounds[then] = _tuple(_Round, (before, context, waiting.arm, reward, still))

    @property
    def behind(self) -> bool:  # type: ignore[override]
        """Whether a reward has come that is not applied yet."""
        return self.late < math.inf

    def catch_up(self) -> None:
        """Restore the state before the oldest late reward, and filter the rounds since again."""
        if not self.behind:
            return
        then, self.late = int(self.late), math.inf
        player, begun = self.player, self.player.rounds
        today, context, no_memory = player.loop.layout.open(player.state.copy()), player.context.copy(), np.empty(0)
        player.state[:] = self.rounds[then].before
        player.obey(today.common)  # forecasts given since
        for number, seen in self.rounds.items():
            if number < then:
                continue
            if number > then:  # what this round begins with has changed
                self.rounds[number] = seen._replace(before=player.state.copy())
            for step in self.turns.order:
                if step == OBSERVE:
                    self._see_again(seen)
                elif step == DECIDE and number < begun:
                    player.stay(still=seen.still)
                    player.skip()
                elif step == LEARN and seen.arm >= 0:
                    player.learn(no_memory, seen.arm, seen.reward, 0)
        player.context[:] = context  # of a round that may have yet to take it in
        self._forget()

    def _see_again(self, seen: _Round) -> None:
        if seen.context is not None:
            self.player.context[:] = seen.context
            self.player.observe()

    def read(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Take back rounds from a save file."""
        for number, state, observed, context, arm, reward, still in rows:
            self.check(state)
            if self.player.loop.layout.open(state).common.head.rounds != number:
                raise InvalidInputError(f"round_states: expected the state before round {number}")
            self.rounds[number] = _Round(state.copy(), context.copy() if observed else None, arm, reward, bool(still))
        now, first = self.player.rounds, self.turns.context_first
        last = (self.turns.contexts_seen(now) if first else now) - 1
        if next(reversed(self.rounds), -1) != last:
            raise InvalidInputError(f"round_numbers: expected round {last} to be the last")
