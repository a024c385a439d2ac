"""The last decision of every subject, under a keyed hash of its name.

The key is generated for the first subject, and is an event, so that every process of a store has the same one.
"""

import hashlib
import secrets
from collections import OrderedDict
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError
from undertow.live.clock import duration, is_duration
from undertow.live.decision import Decision
from undertow.live.fields import Field
from undertow.live.saved import LETTERS, Saved
from undertow.live.wire import Count
from undertow.support import checks

__all__ = ["Subjects", "given_again"]

_BYTES = 16  # of the key, and of a hash
_LONGEST = 1000  # characters of a subject


class _Given(NamedTuple):
    """The last decision of a subject, its time, if known, and its number."""

    decision: Decision
    at: int | None
    number: int


class Subjects:
    """The last decision of each subject among the last `most` decisions with a subject.

    Earlier ones are forgotten by their number, and dropped with the next checkpoint. Between two checkpoints, replaced
    entries are remembered.
    """

    remembers: ClassVar[tuple[Field, ...]] = (
        Field(
            "entries",
            {"subjects": Saved(("letters of subjects",), *LETTERS, whole=True, since=True)},
            lambda subjects: subjects.written(),
            lambda subjects, content: subjects.read(content),
        ),
    )

    def __init__(self, most: int) -> None:
        self.most, self.key, self.count = most, "", 0
        self.entries: OrderedDict[str, _Given] = OrderedDict()
        self.replaced: list[tuple[str, _Given]] = []

    def mark(self) -> Any:
        """Drop forgotten entries, and return the key and the number of decisions."""
        while self.entries and next(iter(self.entries.values())).number < self.count - self.most:
            self.entries.popitem(last=False)
        self.replaced = []
        return self.key, self.count

    def go_back(self, mark: Any) -> None:
        """Restore the state of a `mark`."""
        self.key, self.count = mark
        while self.entries and next(reversed(self.entries.values())).number >= self.count:
            self.entries.popitem()
        self.entries |= {code: given for code, given in self.replaced if given.number < self.count}
        self.replaced = []

    def find(self, subject: Any) -> _Given | None:
        """Return the last decision of a subject."""
        given = self.entries.get(self.code_of(subject, self.key)) if self.key else None
        return given if given is not None and given.number >= self.count - self.most else None

    def new_key(self) -> str:
        """Return a key, in hexadecimal digits."""
        return secrets.token_hex(_BYTES)

    def take_key(self, key: str) -> None:
        """Set the key, once."""
        if self.key or len(key) != 2 * _BYTES or not set(key) <= set("0123456789abcdef"):
            raise InvalidInputError(f"key: expected {2 * _BYTES} hexadecimal digits, once, got {key!r:.40}")
        self.key = key

    def code_of(self, subject: Any, key: str) -> str:
        """Return the keyed hash of a subject."""
        if not isinstance(subject, str) or not 0 < len(subject) <= _LONGEST:
            raise InvalidInputError(f"subject: expected a string of 1 to {_LONGEST} characters, got {subject!r:.60}")
        return hashlib.blake2b(subject.encode(), key=bytes.fromhex(key), digest_size=_BYTES).hexdigest()

    def keep(self, code: str, decision: Decision, at: int | None) -> None:
        """Remember the decision of a subject."""
        if (given := self.entries.pop(code, None)) is not None:
            self.replaced.append((code, given))
        self.entries[code] = _Given(decision, at, self.count)
        self.count += 1

    # Save files

    def written(self) -> tuple[npt.NDArray[Any]] | None:
        """Return what a save file keeps; nothing if no subject was named."""
        if not self.key:
            return None
        kept = sorted((given.number, code) for code, given in self.entries.items())
        listed = [
            [code, number, self.entries[code].at, self.entries[code].decision.to_json()]
            for number, code in kept
            if number >= self.count - self.most
        ]
        return (np.frombuffer(msgspec.json.encode([self.key, self.count, listed]), dtype=np.uint8),)

    def read(self, content: npt.NDArray[Any] | None) -> None:
        """Take back what `written` returned."""
        if content is None:
            return
        written = tuple[str, Count, list[tuple[str, int, int | None, str]]]
        key, self.count, listed = msgspec.json.decode(content.astype(np.uint8).tobytes(), type=written)
        self.take_key(key)
        last = -1
        for code, number, at, text in listed:
            if not last < number < self.count:
                raise InvalidInputError(f"subjects: expected rising numbers below {self.count}, got {number}")
            self.entries[code], last = _Given(Decision.from_json(text), at, number), number


def given_again(given: _Given | None, sticky: Any, *, now: int | None, rounds: int) -> Decision | None:
    """Return a subject's decision while it is sticky: for a time, some rounds, or always."""
    if sticky is None:
        lasts = True
    elif is_duration(sticky):
        length = duration("sticky", sticky)
        if now is None:
            raise InvalidInputError(f"sticky: {sticky!r} is a time, so decisions need one; pass at=…")
        lasts = given is not None and given.at is not None and now < given.at + length
    else:
        lasts = given is not None and rounds - given.decision.round <= checks.integer("sticky", sticky, least=1)
    return given.decision._replace(again=True) if given is not None and lasts else None
