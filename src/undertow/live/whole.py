"""Calls that happen whole or not at all, whatever interrupts them.

An exception can come between any two lines: Ctrl-C, a timer whose handler raises, memory that runs out. So every call
is of one of two kinds. One that takes a single step of the player is not there before the step and cannot be undone
after it: interrupted, it is as if it had not been made, or what is left of it is filed. One that changes more (units, a
fit, a late reward, rounds that are skipped, one more arm) keeps a copy of everything first, and puts it back.

What is copied is the state; of the rest, parts return what they replace and never write into.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from undertow._checks import FloatArray
from undertow.live.rounds import Parts

__all__ = ["Kept", "insist"]

_TRIES = 100


class Kept(NamedTuple):
    """Everything that a call may change, as it was before."""

    parts: Parts
    state: FloatArray
    due: Any
    columns: Any
    pending: Any
    timeline: Any

    @classmethod
    def of(cls, parts: Parts, rounds: Sequence[int] = ()) -> "Kept":
        """Keep what the parts are now; of earlier rounds, only the rewards of these may change."""
        kept = (parts.columns.keep(), parts.pending.keep(), parts.timeline.keep(rounds))
        return cls(parts, parts.player.state.copy(), parts.turns.due, *kept)

    def put_back(self) -> None:
        """Have the parts be as they were."""
        parts = self.parts
        parts.player.state[:] = self.state
        parts.turns.due = self.due
        parts.columns.put_back(self.columns)
        parts.pending.put_back(self.pending)
        parts.timeline.put_back(self.timeline)


def insist(mend: Callable[[], object]) -> None:
    """Mend an interrupted call; where that is interrupted as well, do it anew, so it has to be repeatable."""
    for _ in range(_TRIES - 1):
        try:
            mend()
        except BaseException:
            continue
        return
    mend()
