"""In which units a policy reckons: rewards turned into their negative where they are costs, columns standardised.

Whatever reaches a policy passes through its units, and every forecast passes back; the kernels know nothing of it.
"""

from typing import NamedTuple

import numpy as np

from undertow._checks import FloatArray

__all__ = ["Units"]


class Units(NamedTuple):
    """Centre and scale of every column, in the order contexts, features, reward; a value x is reckoned as (x − c) / s.

    Where rewards are costs, their scale is negative: the least cost has the largest reward.
    """

    centre: FloatArray  # (m + q + 1,)
    scale: FloatArray

    @classmethod
    def plain(cls, context_dim: int, feature_dim: int, *, minimise: bool) -> "Units":
        """Return units that change nothing but, where costs are to be minimised, the sign of the rewards."""
        scale = np.ones(context_dim + feature_dim + 1)
        if minimise:
            scale[-1] = -1.0
        return cls(np.zeros_like(scale), scale)

    def inward(self, values: FloatArray, first: int) -> FloatArray:
        """Return values of the columns from `first` on as the policy reckons them."""
        columns = slice(first, first + values.shape[-1])
        return np.asarray((values - self.centre[columns]) / self.scale[columns])

    def reward(self, value: float) -> float:
        """Return a reward as the policy reckons it."""
        return float((value - self.centre[-1]) / self.scale[-1])

    def rewards(self, values: FloatArray) -> FloatArray:
        """Return rewards, of whatever shape, as the policy reckons them."""
        return np.asarray((values - self.centre[-1]) / self.scale[-1])

    def outward(self, forecast: FloatArray, width: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return forecasts and widths in the units of the rewards."""
        return forecast * self.scale[-1] + self.centre[-1], width * abs(self.scale[-1])
