"""Wall clocks: the length of a time step, the present time, and due dates.

Times are microseconds since 1970, UTC. Steps are counted from the first Monday of 1970, so that those of an hour, a day
or a week begin with it.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError
from undertow.live.fields import Entry, Field
from undertow.support import checks

__all__ = ["Clock", "as_time", "duration", "is_duration", "spelled", "stamp"]

_SECOND = 1_000_000
_BEGIN, _STEP = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_MONDAY = 4 * 86400 * _SECOND
_UNITS = {"s": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "day": 86400, "week": 604800}
_SPELLED = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def is_duration(value: Any) -> bool:
    """Whether a wait is a time, not a number of rounds."""
    return isinstance(value, str | timedelta)


def duration(argument: str, value: Any) -> int:
    """Return the length of "1 h" or "3 days".

    Examples
    --------
    >>> duration("tick", "1.5 min") == duration("tick", timedelta(seconds=90)) == 90_000_000
    True
    """
    length = 0
    if isinstance(value, timedelta):
        length = value // _STEP
    elif isinstance(value, str) and (found := _SPELLED.fullmatch(value)):
        unit = found[2] if found[2] in _UNITS else found[2].removesuffix("s")
        length = round(float(found[1]) * _UNITS.get(unit, 0) * _SECOND)
    if not 0 < length < 2**53:
        raise InvalidInputError(f'{argument}: expected a time such as "30 s", "1 h" or "3 days", got {value!r:.60}')
    return length


def spelled(length: int) -> str:
    """Return a time in the format of save files, in seconds."""
    return f"{length / _SECOND:.6f}".rstrip("0").rstrip(".") + " s"


def stamp(argument: str, value: Any) -> int:
    """Check a time with its time zone, and return it."""
    if not isinstance(value, datetime):
        raise InvalidInputError(f"{argument}: expected a datetime with a time zone, got {value!r:.60}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidInputError(
            f"{argument}: expected a datetime with a time zone, got {value!r:.60} without one; "
            f"datetime.now(timezone.utc) has one"
        )
    return (value - _BEGIN) // _STEP


def as_time(at: int | None) -> datetime | None:
    """Return a time in the format of events."""
    return None if at is None else _BEGIN + at * _STEP


class Clock:
    """The newest time so far, and the time step that it is in."""

    remembers: ClassVar[tuple[Field, ...]] = (
        Entry("newest", "clock.newest", lambda clock, value: _whole("newest", value), since=True),
        Entry("step", "clock.step", lambda clock, value: _whole("step", value), since=True),
    )

    def __init__(self, tick: int | None) -> None:
        self.tick = tick
        self.newest: int | None = None
        self.step: int | None = None

    def reached(self, at: Any) -> int | None:
        """Return the time of a call: the newest one if it is not given, or earlier."""
        if at is None:
            return self.newest
        given = stamp("at", at)
        return given if self.newest is None else max(given, self.newest)

    def passed(self, now: int) -> int:
        """Return the number of time steps since the present one, up to the largest gap."""
        assert self.tick is not None
        step = (now - _MONDAY) // self.tick
        return 1 if self.step is None else min(step - self.step, checks.LONGEST_GAP)

    def between(self, times: Sequence[datetime]) -> npt.NDArray[np.int64] | None:
        """Return the number of steps that begin with each time, 1 for the first; None without a tick."""
        if self.tick is None:
            return None
        stamps = np.maximum.accumulate(np.array([stamp("times", time) for time in times], dtype=np.int64))
        passed = np.diff((stamps - _MONDAY) // self.tick)
        return np.concatenate([[1], np.minimum(passed, checks.LONGEST_GAP)])

    def advance(self, now: int, *, begins: bool) -> None:
        """Advance to a time; `begins` says whether a time step begins with it."""
        self.newest = now
        if begins and self.tick is not None:
            self.step = (now - _MONDAY) // self.tick

    def require_alone(self, elapsed: Any) -> None:
        """Refuse `elapsed` next to a time that determines it."""
        if elapsed != 1:
            raise InvalidInputError(f"elapsed: expected none, as it follows from at and tick, got {elapsed!r:.60}")


def _whole(name: str, value: Any) -> int | None:
    """Return a number of a file, None if there is none."""
    if (value is not None and not isinstance(value, int)) or abs(value or 0) >= 2**53:
        raise InvalidInputError(f"clock: {name}: expected an integer, got {value!r:.60}")
    return value
