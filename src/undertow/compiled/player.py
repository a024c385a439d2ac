"""A policy's state with its kernels, and one row of their inputs and outputs, for live calls."""

from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from undertow.compiled.common import Common
from undertow.compiled.loop import DECIDE, LEARN, OBSERVE, Loop
from undertow.support.checks import FloatArray

__all__ = ["Player"]

_NO_MEMORY = np.empty(0)

# The chosen arm, whether it is pinned, its time step, the memory of the decision; forecast, width, value of every arm
Outcome = tuple[int, bool, int, FloatArray, FloatArray, FloatArray, FloatArray]


class Player:
    """A policy's state, and one row of the inputs and outputs of `play`, for single steps.

    `rows` is the number of rows of `features`, (k, q), in a round: one for all arms, or one for each.
    """

    def __init__(self, owner: type, state: FloatArray, draws: int) -> None:
        self.owner, self.state, self._draw_count = owner, state, draws
        self._bind()

    def _bind(self) -> None:
        loop: Loop = self.owner.loop  # type: ignore[attr-defined]
        self.own = loop.layout.open(self.state)
        self.common: Common = self.own.common
        cells = (self.common.head.cell(name) for name in ("rounds", "time_steps", "still", "proposed", "pinned"))
        self._rounds, self._time_steps, self._still, self._proposed, self._pinned = cells
        k, m, q, _ = map(int, self.common.sizes)
        self._row = np.zeros(self._draw_count + m + k + k * q)
        parts = np.split(self._row, np.cumsum([self._draw_count, m, k]))
        self.draws, self.context, self.rewards, features = parts
        self.features, self.rows = features.reshape(k, q), 1
        self._shared = self.features[0]
        self._out = np.zeros((1, 1 + 3 * k))
        self.arm, self.record = self._out[0, :1], self._out[0, 1:].reshape(3, k)
        self.forecast, self.width, self.window = self.record
        self.pinned: Callable[[], float] = self._pinned.item
        # Faster than `rounds`, if it is bound to a name first: a method call would look for it in the class
        self.begun: Callable[[], float] = self._rounds.item
        memory, value = self.common.memory, self.common.value
        copy_memory = memory.copy if len(memory) else repeat(_NO_MEMORY).__next__
        read = self.arm.item, self._pinned.item, self._time_steps.item
        self._readers = *read, copy_memory, self.forecast.copy, self.width.copy, value.copy
        self.loop = loop

    @property
    def loop(self) -> Loop:
        """The compiled functions of the policy."""
        return self._loop

    @loop.setter
    def loop(self, loop: Loop) -> None:
        self._loop = loop
        k, q = self.features.shape
        play, state, row, fixed, out = loop.play, self.state, self._row, len(self._row) - k * q, self._out
        self._deciding = {
            rows: partial(play, state, row, fixed + rows * q, DECIDE, DECIDE + 1, 0, _NO_MEMORY, 0, out, 0, rows * q)
            for rows in (1, k)
        }
        self._observing = partial(play, state, row, fixed, OBSERVE, OBSERVE + 1, 0, _NO_MEMORY, 0, out, 0, 0)
        self._learning = partial(play, state, row, fixed, LEARN, LEARN + 1, 0)

    def __getstate__(self) -> dict[str, Any]:
        return {"owner": self.owner, "state": self.state.copy(), "_draw_count": self._draw_count}

    def __setstate__(self, entries: dict[str, Any]) -> None:
        self.__dict__.update(entries)
        self._bind()

    @property
    def rounds(self) -> int:
        """Number of rounds begun so far."""
        return int(self._rounds.item())

    @property
    def time_steps(self) -> int:
        """Number of time steps begun so far."""
        return int(self._time_steps.item())

    @property
    def still(self) -> bool:
        """Whether the next round is of the same time step as the last one."""
        return bool(self._still.item())

    def stay(self, *, still: bool) -> None:
        """Set whether the next round is in the same time step as the last one."""
        self._still[0] = still

    @property
    def proposed(self) -> int:
        """The policy's own last choice."""
        return int(self._proposed.item())

    def silences(self, arm: int) -> bool:
        """Whether rewards of an arm are not learned, since it is pinned without `learn`."""
        head = self.common.head
        return bool(head.unlearned) and arm == head.pinned

    def obey(self, other: Common) -> None:
        """Copy the settings of another state: closed arms, costs, the pinned arm."""
        common, head = self.common, self.common.head
        common.closed[:], common.cost[:] = other.closed, other.cost
        head.pinned, head.unlearned = other.head.pinned, other.head.unlearned

    @property
    def given(self) -> FloatArray:
        """The given features: (q,) for all arms, or (k, q)."""
        return self.features if self.rows > 1 else self._shared

    def features_of(self, arm: int) -> FloatArray:
        """Return the features of an arm, its own or the shared ones."""
        row: FloatArray = self.features[arm] if self.rows > 1 else self._shared
        return row

    def give(self, features: FloatArray) -> None:
        """Write the features of a round, (q,) for all arms or (k, q)."""
        if features.ndim == 1:
            self.rows, self._shared[:] = 1, features
        else:
            self.rows, self.features[:] = len(features), features

    def decide(self) -> Outcome | None:
        """Decide with the features and random numbers in the row; None if the policy has requested work first."""
        if self._deciding[self.rows]() == DECIDE:
            return None
        arm, pinned, time_steps, memory, forecast, width, value = self._readers
        chosen = int(arm())
        return chosen, chosen == pinned(), int(time_steps()) - 1, memory(), forecast(), width(), value()

    def forecast_of(self, state: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return forecast and width of every arm by a decision in another state, which it changes."""
        self.loop.play(state, *self._deciding[self.rows].args[1:])
        return self.forecast.copy(), self.width.copy()

    def learn(self, memory: FloatArray, arm: int, reward: float, age: int) -> None:
        """Learn a reward of a decision that is `age` rounds old."""
        self.arm[0] = arm
        self.rewards[arm] = reward
        learning = self._learning
        learning(memory, age, self._out, 0, 0)

    def observe(self) -> None:
        """Observe the context in the row."""
        observing = self._observing
        observing()

    def skip(self) -> None:
        """Skip a round, without an arm."""
        self.loop.skip(self.state)

    def play(self, data: FloatArray, width: int, first: int, last: int, shift: int, out: FloatArray, kept: int) -> int:
        """Take many steps on data of many rounds; see `_play`."""
        given = self.rows * self.features.shape[1]
        return self.loop.play(self.state, data, width, first, last, shift, self.common.memory, 0, out, kept, given)
