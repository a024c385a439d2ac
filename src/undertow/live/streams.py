"""The random numbers of a policy: one stream for its own draws, and a separate one for exploring."""

from collections.abc import Callable
from typing import Any

import numpy as np

from undertow import _checks
from undertow.errors import InvalidInputError

__all__ = ["Seed", "Streams"]

Seed = int | np.random.SeedSequence | np.random.Generator | None
_LONGEST = 1024  # numbers of a seed that is read from a file
_OFTEN = 64  # decisions after which it is noted again where the streams stand


class Streams:
    """Two streams of one seed; each run has its own pair, and run 0 is that of the live policy.

    A decision that is interrupted takes its draws back. To note before each where the streams stand would cost more
    than the draws, so it is noted now and then, and what decisions have drawn since is drawn again.
    """

    def __init__(self, seed: Seed) -> None:
        self.seeds, self.seeded = _checks.seed_sequence(seed), seed is not None
        self.begin(0)

    def begin(self, run: int) -> None:
        """Begin the streams of a run."""
        self.own, self.explore = (_checks.child(self.seeds, _checks.POLICY_BRANCH, *key) for key in ((run,), (run, 0)))
        self.note(0)

    def note(self, decisions: int) -> None:
        """Note where the streams stand after so many decisions, from where `go_back` draws again."""
        self.noted = (decisions, self.own.bit_generator.state, self.explore.bit_generator.state)

    def follow(self, decisions: int) -> None:
        """Do as `note` where it was long ago."""
        if decisions - self.noted[0] >= _OFTEN:
            self.note(decisions)

    def go_back(self, decisions: int, draw: Callable[[int], object]) -> None:
        """Stand again where the streams stood after so many decisions; `draw` draws for a number of them."""
        noted, own, explore = self.noted
        self.own.bit_generator.state, self.explore.bit_generator.state = own, explore
        if decisions > noted:
            draw(decisions - noted)

    def part(self, decisions: int) -> None:
        """Part from the streams of the process that this one was forked from, unless a seed fixes them."""
        if not self.seeded:
            self.seeds = _checks.seed_sequence(None)
            self.begin(0)
            self.note(decisions)

    def aside(self) -> np.random.Generator:
        """Return one more stream, always the same, for what comes before the first draw."""
        return _checks.child(self.seeds, _checks.POLICY_BRANCH, 0, 1)

    def header(self) -> dict[str, Any]:
        """Return what a save file keeps."""
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
        """Return the seed of which `header` was written."""
        for name in ("entropy", "spawn_key"):
            if isinstance(header[name], list) and len(header[name]) > _LONGEST:
                raise InvalidInputError(f"{name}: expected at most {_LONGEST} numbers, got {len(header[name])}")
        if _checks.integer("pool_size", header["pool_size"], least=1) > _LONGEST:
            raise InvalidInputError(f"pool_size: expected at most {_LONGEST}, got {header['pool_size']}")
        return np.random.SeedSequence(
            header["entropy"], spawn_key=tuple(header["spawn_key"]), pool_size=header["pool_size"]
        )

    def restore(self, header: dict[str, Any], decisions: int) -> None:
        """Continue where `header` was written, after so many decisions."""
        self.seeded = _checks.flag("seeded", header["seeded"])
        self.own.bit_generator.state, self.explore.bit_generator.state = header["own"], header["explore"]
        self.note(decisions)
