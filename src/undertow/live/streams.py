"""The random numbers of a policy: one stream for its own draws, and a separate one for exploring."""

from typing import Any

import numpy as np

from undertow import _checks

__all__ = ["Seed", "Streams"]

Seed = int | np.random.SeedSequence | np.random.Generator | None


class Streams:
    """Two streams of one seed; each run has its own pair, and run 0 is that of the live policy."""

    def __init__(self, seed: Seed) -> None:
        self.seeds = _checks.seed_sequence(seed)
        self.begin(0)

    def begin(self, run: int) -> None:
        """Begin the streams of a run."""
        self.own, self.explore = (_checks.child(self.seeds, _checks.POLICY_BRANCH, *key) for key in ((run,), (run, 0)))

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
            "own": self.own.bit_generator.state,
            "explore": self.explore.bit_generator.state,
        }

    @classmethod
    def seed_of(cls, header: dict[str, Any]) -> np.random.SeedSequence:
        """Return the seed of which `header` was written."""
        return np.random.SeedSequence(
            header["entropy"], spawn_key=tuple(header["spawn_key"]), pool_size=header["pool_size"]
        )

    def restore(self, header: dict[str, Any]) -> None:
        """Continue where `header` was written."""
        self.own.bit_generator.state, self.explore.bit_generator.state = header["own"], header["explore"]
