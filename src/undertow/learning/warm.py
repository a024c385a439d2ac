"""A warm start: a learner begins after the rounds of a table."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError, OutOfTurnError
from undertow.learning.fits import Refit
from undertow.learning.learner import Learner
from undertow.live import ContextPolicy
from undertow.live.arms import indices_of_names
from undertow.live.events import WarmStarted
from undertow.models.log import AFTER, BEFORE, arms_played
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.support.timesteps import rows_in_time, with_one_context

if TYPE_CHECKING:
    from undertow.live.names import Rows

__all__ = ["StartsWarm"]


class StartsWarm(ContextPolicy):
    """A learner that can begin with past rounds."""

    refit: Refit
    _learner: Learner

    def warm_start(
        self,
        arms: "npt.ArrayLike | Iterable[str | None]",
        rewards: "npt.ArrayLike",
        *,
        contexts: "Rows | None" = None,
        features: "Rows | None" = None,
        elapsed: "npt.ArrayLike | None" = None,
    ) -> None:
        """Learn from past rounds, one row each, and fit the models to them.

        `arms` (n,) are names, None if none was played, or indices, −1 if none was; `rewards` (n,) are NaN if none came;
        `contexts` (n, m) are NaN if missing. `features` are needed if the policy takes them: (n, q), those of the
        played arm, or (n, k, q), those of every arm. Both may be given by name: as a list of mappings, or a frame of
        pandas or polars. `elapsed` (n,) is the number of time steps since the row before, 1 by default; rows of the
        same time step, with 0, have the same context, or NaN. With refit="inline", the first decision makes the fits.
        """
        with self._lock:
            if not self._whole().unused:
                raise OutOfTurnError("warm_start: this policy has begun; call it before the first decision")
            self._get_ready()
            self._settle()
            m, q = self._context_dim, self._feature_dim
            n = len(played := arms_played(indices_of_names(arms, self.names), self.arm_count))
            x = checks.measured("rewards", rewards, (n,), missing=True)
            contexts = self._columns.past_contexts(contexts, n)
            features = self._columns.past_features(features, self.names, self._player.common.closed, played)
            given = np.full((n, m), math.nan) if contexts is None else contexts
            θ = checks.measured("contexts", given, (n, m), missing=True)
            if features is None and q:
                raise InvalidInputError(f"features: expected shape ({n}, {q}), got None")
            u = self._past_features(np.empty((n, 0)) if features is None else features, played)
            if not n:
                return
            x = x if self._columns.units is None else self._columns.units.rewards(x)
            places, same = rows_in_time(elapsed, n)
            θ = with_one_context(θ, same, last=not self._turns.context_first)
            shared = BEFORE * same + AFTER * np.append(same[1:], False)
            rows = self._learner.log.blank(int(places[-1]) + 1)
            rows[places] = np.column_stack([θ, u, shared, played, np.where(played < 0, math.nan, x)])
            started = WarmStarted(rows=rows)
            self._journal.torn = True
            self._apply(started)
            events = [started, *self._learner.fits.made(len(rows))]
            for fit in events[1:]:
                self._apply(fit)
            self._commit(events[-1], events[:-1])

    def _start_warm(self, rows: FloatArray) -> None:
        if not self._whole().unused:
            raise OutOfTurnError("warm_start: this policy has begun; call it before the first decision")
        learner, log = self._learner, self._learner.log
        width = log.blank(0).shape[1]
        if rows.ndim != 2 or rows.shape[1] != width:
            raise InvalidInputError(f"rows: expected {width} columns, got shape {rows.shape}")
        log.check(rows, self.arm_count)
        seed = math.floor(self._streams.extra_stream().random() * 2.0**53)  # the first fit comes first
        learner.warm_start(rows, seed)
        if self._columns.fills:
            for row in rows[rows[:, log.arm] >= 0]:
                self._columns.note_row(row[self._context_dim : log.shared])
        if self.refit != "inline":
            learner.attend(inline=False)
        learner.costly = True

    def _past_features(self, features: "npt.ArrayLike", played: npt.NDArray[np.int64]) -> FloatArray:
        """Return the features of the played arms, (n, q)."""
        n, k, q = len(played), self.arm_count, self._feature_dim
        given = checks.numbers("features", features)
        if given.ndim != 3 or not self.capabilities.takes_arm_features:
            return checks.measured("features", given, (n, q))
        return checks.measured("features", given, (n, k, q))[np.arange(n), played]
