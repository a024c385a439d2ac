"""Delays of rewards, by the times of the events."""

from collections import OrderedDict, deque

import numpy as np

from undertow.live.events import Decided, Event, Rewarded

__all__ = ["Delays"]

_WAITING = 100_000  # maximum number of remembered decisions
_LAST = 1000  # number of delays in a quantile


class Delays:
    """The delays of the last rewards, in seconds."""

    def __init__(self) -> None:
        self._made: OrderedDict[str, float] = OrderedDict()
        self._last: deque[float] = deque(maxlen=_LAST)

    def note(self, at: float, event: Event) -> None:
        """Record the time of an event."""
        if isinstance(event, Decided):
            self._made[event.id] = at
            if len(self._made) > _WAITING:
                self._made.popitem(last=False)
        elif isinstance(event, Rewarded) and (begun := self._made.pop(event.id, None)) is not None:
            self._last.append(at - begun)

    def quantile(self, share: float) -> float | None:
        """Return a quantile of the delays; None if there was no reward yet."""
        return float(np.quantile(self._last, share)) if self._last else None
