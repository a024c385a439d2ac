"""The costs of calls: by variant, by choice, and the overhead of choosing."""

import math
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow.live.saved import COUNT, Saved
from undertow.support.checks import LARGEST, FloatArray

__all__ = ["Ledger"]

HISTORY = 20_000  # choices and reuse periods in a report; older ones are forgotten
SAMPLED = 0.25  # share of choices that are sampled, to keep the overhead small
_GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples do not resonate with periodic calls
MEMORY = 125  # sampled choices over which forecasts and overhead are averaged
PER_VARIANT = 10  # choices per variant before averaging begins; sampled ones before the averages are used
SHARE = 0.01  # largest share of the cost for choices that save less than their overhead

_COLUMNS = 6  # columns of the history: first call, calls, variant, cost, propensity, overhead in seconds


class Ledger:
    """Numbers about the calls of a tuner, in the unit of its cost.

    A choice asks the policy. A reuse period is the calls between two choices, in which the tuner keeps one variant.
    """

    def __init__(self, count: int) -> None:
        self.calls = 0
        self.choices = 0
        self.own_seconds = 0.0
        self.counts, self.totals, self.failures = [0] * count, [0.0] * count, [0] * count
        self.history: deque[tuple[float, ...]] = deque(maxlen=HISTORY)
        self._stretch = (0, 0, -1, 0.0)  # first call, calls, variant, cost
        self.forget_forecasts()

    def forget_forecasts(self) -> None:
        """Restart the averages over choices, for a new variant or in another program."""
        self._since = 0
        self._averaged = 0
        self._recent = (0.0, 0)  # overhead in seconds since the last sample, and number of choices
        self._forecasts = [0.0] * len(self.counts)
        self._least = 0.0
        self._seconds = 0.0

    def add_variant(self) -> None:
        """Make room for one more variant."""
        for numbers in (self.counts, self.totals, self.failures):
            numbers.append(0)
        self.forget_forecasts()

    def drop_variants(self, count: int) -> None:
        """Keep only the first variants: one more could not be added."""
        for numbers in (self.counts, self.totals, self.failures):
            del numbers[count:]
        self.forget_forecasts()

    def dearest(self) -> float | None:
        """Return the largest mean cost of a variant; None if no call has succeeded yet."""
        pairs = zip(self.counts, self.totals, strict=True)
        return max((total / count for count, total in pairs if count), default=None)

    def note_stretch(self, arm: int, cost: float) -> None:
        """Record a call without a choice."""
        first, calls, variant, total = self._stretch
        if calls and variant != arm:
            self._end_stretch()
            first, calls, total = 0, 0, 0.0
        self._stretch = (first if calls else self.calls, calls + 1, arm, total + cost)
        self._note_cost(arm, cost)

    def note_choice(self, arm: int, cost: float, propensity: float, own: float, *, ran: bool) -> bool:
        """Record a call with a choice: its cost and the overhead in seconds; return whether it is to be sampled."""
        if self._stretch[1]:
            self._end_stretch()
        self.history.append((self.calls, 1, arm, cost, propensity, own))
        self.choices += 1
        self._since += 1
        if ran:
            self._note_cost(arm, cost)
        else:
            self._note_failure(arm)
        self._recent = (self._recent[0] + own, self._recent[1] + 1)
        return self._since * _GOLDEN % 1.0 < SAMPLED

    def sample(self, forecasts: list[float]) -> None:
        """Average the forecast costs of all variants, and the overhead since the last sample."""
        own, choices = self._recent
        self._recent = (0.0, 0)
        if self._since > PER_VARIANT * len(self.counts):
            self._averaged += 1
            step = max(1 / self._averaged, 1 / MEMORY)
            self._forecasts = [old + step * (new - old) for old, new in zip(self._forecasts, forecasts, strict=True)]
            self._least += step * (min(forecasts) - self._least)
            self._seconds += step * (own / choices - self._seconds)

    def note_failure(self, arm: int) -> None:
        """Record a failed call without a choice."""
        self._end_stretch()
        self._note_failure(arm)

    def _note_failure(self, arm: int) -> None:
        self.calls += 1
        self.failures[arm] += 1

    def _note_cost(self, arm: int, cost: float) -> None:
        self.calls += 1
        self.counts[arm] += 1
        self.totals[arm] += cost

    def _end_stretch(self) -> None:
        first, calls, arm, cost = self._stretch
        if calls:
            self.history.append((first, calls, arm, cost, math.nan, 0.0))
            self._stretch = (0, 0, -1, 0.0)

    @property
    def reused(self) -> int:
        """Number of calls without a choice."""
        return self.calls - self.choices

    @property
    def usual(self) -> int:
        """The variant with the least average forecast cost."""
        return self._forecasts.index(min(self._forecasts))

    @property
    def saving(self) -> float:
        """The saving of a choice per call: the least average forecast minus the average least forecast."""
        return min(self._forecasts) - self._least if self._averaged else math.nan

    @property
    def seconds(self) -> float:
        """Average overhead in seconds of a call with a choice."""
        return self._seconds if self._averaged else math.nan

    def room(self, second_costs: float) -> float:
        """Return the cost to incur before the next choice: 0 if a choice saves more than its overhead, or if unknown.

        The saving is at most the cost of a call, so if a choice takes longer than any variant, this is never 0.
        """
        price = self.seconds * second_costs
        known = self._averaged >= PER_VARIANT * len(self.counts)
        return price / SHARE if known and self.saving < price else 0.0

    # Reports and files

    def rows(self) -> FloatArray:
        """Return choices and reuse periods, (n, 6): first call, calls, variant, cost, propensity, overhead in seconds.

        The propensity is NaN for a reuse period.
        """
        first, calls, arm, cost = self._stretch
        rest = [(first, calls, arm, cost, math.nan, 0.0)] if calls else []
        return np.array([*self.history, *rest], dtype=np.float64).reshape(-1, _COLUMNS)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of a save file; averages over choices restart in another program."""
        variants = np.array([self.counts, self.totals, self.failures], dtype=np.float64)
        numbers = np.array([self.calls, self.choices, self.own_seconds])
        return {"variants": variants, "numbers": numbers, "history": self.rows()}

    def saved(self) -> dict[str, Saved]:
        """Return the allowed values of these arrays."""
        dearest = LARGEST * COUNT  # the largest total cost of all calls
        return {
            "variants": Saved((3, len(self.counts)), 0.0, dearest),
            "numbers": Saved((3,), 0.0, COUNT),
            "history": Saved(("rows", _COLUMNS), 0.0, dearest, missing=True),
        }

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Continue from the output of `arrays`."""
        counts, totals, failures = arrays["variants"].tolist()
        self.counts, self.totals, self.failures = list(map(int, counts)), totals, list(map(int, failures))
        calls, choices, self.own_seconds = arrays["numbers"].tolist()
        self.calls, self.choices = int(calls), int(choices)
        rows = arrays["history"]
        known = rows[np.isfinite(rows[:, :4]).all(axis=1) & (rows[:, 2] < len(counts))]
        self.history.extend(map(tuple, known.tolist()))
