"""Inspection of a policy, without changes."""

import copy
from typing import TYPE_CHECKING

import numpy as np

from undertow.live.decision import Outlook
from undertow.live.events import Decided, Rewarded
from undertow.live.follow import Follows
from undertow.live.health import Health
from undertow.live.metrics import Measure, exposition, measures_of
from undertow.live.names import Inputs
from undertow.live.registry import name_of
from undertow.support.checks import FloatArray

if TYPE_CHECKING:
    from undertow.support.drawing import Sheet

__all__ = ["Shows"]


class Shows(Follows):
    """A policy that can be inspected."""

    @property
    def arm_count(self) -> int:
        """Number of arms k."""
        return len(self.names)

    @property
    def round(self) -> int:
        """Number of rounds begun so far."""
        return self._whole().player.rounds

    @property
    def pending(self) -> int:
        """Number of pending decisions."""
        return self._whole().pending.count

    def forecast(self, features: "Inputs | None" = None) -> Outlook:
        """Return the policy's present forecast, before randomisation, without side effects."""
        with self._lock:
            self._get_ready()
            self._catch_up()
            given = self._checked_features(features)
            begins = self._columns.follows and self._pending.made == 0
            if begins or self._player.rounds >= self._columns.pause:
                return Shows._forecast_in_new_units(copy.deepcopy(self), given)
            return self._forecast(given)

    def _forecast_in_new_units(self, features: FloatArray | None) -> Outlook:
        """Return a forecast after a change of units that is due before a decision; for a copy."""
        if self._player.rounds >= self._columns.pause:
            self._rescale()
        self._columns.begin(**({} if features is None else {"features": features}))
        return self._forecast(features)

    def _forecast(self, features: FloatArray | None) -> Outlook:
        self._columns.put_features(features, self._player)
        self._player.draws[:] = 0.0
        player, units = self._player, self._columns.units
        forecast, width = player.forecast_of(self._timeline.scratch())
        if units is not None:
            forecast, width = units.outward(forecast, width)
        return Outlook(forecast, width, player.window.astype(np.int64) if self._has_windows else None)

    def plot(self, features: "Inputs | None" = None) -> "Sheet":
        """Draw the policy's present forecast, given features if it takes them, without side effects.

        A notebook shows the figure; elsewhere call its `savefig`. Needs matplotlib: `pip install 'undertow[plot]'`.
        """
        from undertow.support.drawing import draw_arms

        outlook = self.forecast(features)
        return draw_arms(self.names, outlook.forecast, outlook.width, title=f"round {self.round}")

    def health(self) -> Health:
        """Return a status summary: rounds, pending decisions and, for learners, models and fits."""
        with self._lock:
            self._get_ready()
            now, pending = self._player.rounds, self._pending
            oldest = now - 1 - pending.oldest(now - 1)
            name = name_of(type(self)) or type(self).__name__
            refused = dict(pending.refused), sum(pending.lately)
            return Health(name, now, pending.count, oldest, *refused, {}, {}, {}, (), ())

    def _measures(self, **labels: str) -> list[Measure]:
        """Return the numbers of `metrics`, with more labels, to combine with those of other policies."""
        with self._lock:
            found = measures_of(self.health(), **labels)
            times, all_labels = self._journal.times, found[0].labels
        named = (("last_decision_timestamp_seconds", Decided), ("last_reward_timestamp_seconds", Rewarded))
        return found + [Measure(name, times[kind], all_labels) for name, kind in named if kind in times]

    def metrics(self) -> str:
        """Return rounds, pending decisions, refused rewards, models and fits as text for Prometheus."""
        return exposition(self._measures())
