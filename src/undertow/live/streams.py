"""The random numbers of a policy: one stream for its own choices, and a separate one for exploring."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from undertow.errors import InvalidInputError
from undertow.live.fields import Field
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["Seed", "Streams"]

Seed = int | np.random.SeedSequence | np.random.Generator | None
_LONGEST = 1024  # numbers of a seed that is read from a file
_ROWS, _NUMBERS = 64, 4096  # maximum number of decisions sampled ahead, and of numbers if these are several


class _Ahead(NamedTuple):
    """Random numbers of the decisions from `first` on, one row each, and the streams' positions before and after."""

    first: int
    rows: list[FloatArray]
    before: Any
    after: Any


class Streams:
    """Two streams of one seed; each run has its own pair, and run 0 is that of the live policy.

    A decision's random numbers depend on its number: one that is interrupted and repeated has the same. They are
    sampled for many decisions together, which is several times as fast, and gives the same numbers as one by one.
    """

    remembers: ClassVar[tuple[Field, ...]] = tuple(map(Field, ("seeds", "own", "explore", "_ahead")))

    def __init__(self, seed: Seed) -> None:
        self.seeds, self.seeded = checks.seed_sequence(seed), seed is not None
        self.begin(0)

    def begin(self, run: int) -> None:
        """Begin the streams of a run."""
        self.own, self.explore = (checks.child(self.seeds, checks.POLICY_BRANCH, *key) for key in ((run,), (run, 0)))
        self.note(0)

    def note(self, decisions: int) -> None:
        """Record that numbers for `count` decisions are used, and none sampled ahead."""
        now = self._positions()
        self._ahead = _Ahead(decisions, [], now, now)

    def row(self, decision: int, draw: Callable[[int], FloatArray], width: int) -> FloatArray:
        """Return the random numbers of a decision, `width` of them; `draw` samples for several decisions."""
        first, rows, _, after = self._ahead
        if decision - first >= len(rows):
            self._go_to(after)  # in case the last call was interrupted
            rows, first = list(draw(max(min(_ROWS, _NUMBERS // width), 1))), decision
            self._ahead = _Ahead(first, rows, after, self._positions())
        return rows[decision - first]

    def rewind_to(self, decisions: int, draw: Callable[[int], FloatArray]) -> None:
        """Rewind to the position after some decisions, with none sampled ahead."""
        first, rows, before, _ = self._ahead
        self._go_to(before)  # also with none sampled ahead: sampling may have been interrupted
        if len(rows):
            draw(decisions - first)
        self.note(decisions)

    def _positions(self) -> Any:
        return self.own.bit_generator.state, self.explore.bit_generator.state

    def _go_to(self, positions: Any) -> None:
        self.own.bit_generator.state, self.explore.bit_generator.state = positions

    def reseed(self, entropy: int, decisions: int) -> None:
        """Begin new streams in a forked process, after some decisions."""
        self.seeds = np.random.SeedSequence(entropy)
        self.begin(0)
        self.note(decisions)

    def extra_stream(self) -> np.random.Generator:
        """Return one more stream, always the same, for use before the first decision."""
        return checks.child(self.seeds, checks.POLICY_BRANCH, 0, 1)

    def header(self) -> dict[str, Any]:
        """Return the header for a save file."""
        entropy, key = self.seeds.entropy, self.seeds.spawn_key
        return {
            "entropy": [int(part) for part in entropy] if isinstance(entropy, list | tuple | np.ndarray) else entropy,
            "spawn_key": [int(part) for part in key],
            "pool_size": self.seeds.pool_size,
            "seeded": self.seeded,
            "own": self.own.bit_generator.state,
            "explore": self.explore.bit_generator.state,
        }

    @classmethod
    def seed_of(cls, header: dict[str, Any]) -> np.random.SeedSequence:
        """Return the seed of a `header`."""
        for name in ("entropy", "spawn_key"):
            parts = header[name] if isinstance(header[name], list) else [header[name]]
            if len(parts) > _LONGEST:
                raise InvalidInputError(f"{name}: expected at most {_LONGEST} numbers, got {len(parts)}")
            for part in parts:
                checks.integer(name, part, least=0)
        if checks.integer("pool_size", header["pool_size"], least=1) > _LONGEST:
            raise InvalidInputError(f"pool_size: expected at most {_LONGEST}, got {header['pool_size']}")
        return np.random.SeedSequence(
            header["entropy"], spawn_key=tuple(header["spawn_key"]), pool_size=header["pool_size"]
        )

    def restore(self, header: dict[str, Any], decisions: int) -> None:
        """Continue where `header` was written, after so many decisions; `seed_of` made the streams."""
        self.seeded = checks.flag("seeded", header["seeded"])
        self.own.bit_generator.state, self.explore.bit_generator.state = header["own"], header["explore"]
        self.note(decisions)
