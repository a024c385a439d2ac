"""Standardized inputs for ridge policies: units that change at geometric times, and the factor rebuilt in them.

At first a column is relative to its first value, so that large offsets cost no digits; that value also replaces missing
history (a context before the first one). Later its mean and standard deviation so far are used.

The inputs of a ridge policy are linear in the units: Θ' = TΘ, and the reward is x' = αx + β. The sums of a regression,
M = V − λI = ΣΘΘ' and b = ΣxΘ, therefore convert to the new units, too: TMT' and T(αb + βMe₀), since the first input is
the constant 1. Only the ridge λI is that of the new units.

It uses no BLAS, whose sums depend on the number of its threads, so a state changes in the same way in every process.
"""

import math
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.compiled import kernel
from undertow.errors import InvalidInputError
from undertow.live.fields import Field, Number, Written
from undertow.live.inputs import Inputs
from undertow.live.saved import COUNT, FINITE, MEASURED, Saved
from undertow.live.units import Columns, Units
from undertow.support.checks import FloatArray

__all__ = ["Change", "RunningMoments", "StandardizedColumns", "change_inputs", "change_regression", "log_det_and_trace"]

_FIRST_SCALING = 16  # rounds before the first units are set; then at every doubling
_CONSTANT = 1e-13  # a column that varies less than this, relative to its size, counts as constant
_FAINT = 1e-8  # an input that has added less than this to V, relative to λ, is lost in rounding


class RunningMoments:
    """Mean and variance of every column so far, added up value by value, so that blocks and single rows agree."""

    def __init__(self, columns: int) -> None:
        self.rows = np.zeros((4, columns))  # count, origin, sum and sum of squares about it

    @property
    def unseen(self) -> npt.NDArray[np.bool_]:
        """Whether no value of a column has been added yet."""
        return np.asarray(self.rows[0] == 0)

    def begin(self, first: int, values: FloatArray) -> None:
        """Use the first values of new columns as their origins."""
        part = self.rows[:, first : first + values.shape[-1]]
        seen = ~np.isnan(values)
        if seen.any():
            first_seen = values[seen.argmax(axis=0), range(part.shape[1])]
            part[1] = np.where((part[0] == 0) & seen.any(axis=0), first_seen, part[1])

    def add(self, first: int, values: FloatArray) -> None:
        """Add rows of the columns from `first` on; NaN is skipped."""
        part = self.rows[:, first : first + values.shape[-1]]
        seen = ~np.isnan(values)
        if not seen.any():
            return
        x = np.where(seen, values - part[1], 0.0)
        part[0] += seen.sum(axis=0)
        part[2] = np.cumsum(np.vstack([part[2], x]), axis=0)[-1]
        part[3] = np.cumsum(np.vstack([part[3], x * x]), axis=0)[-1]

    def units(self, *, minimize: bool) -> Units:
        """Return the units with mean 0 and standard deviation 1 of every column; a constant one keeps its scale."""
        count, origin, total, squares = self.rows
        mean = total / np.maximum(count, 1.0)
        deviation = np.sqrt(np.maximum(squares / np.maximum(count, 1.0) - mean**2, 0.0))
        scale = np.where(deviation > _CONSTANT * (np.abs(origin) + np.abs(mean)), deviation, 1.0)
        scale[-1] *= -1.0 if minimize else 1.0
        return Units(origin + mean, scale)


class Change(NamedTuple):
    """From old units to new ones: every column x becomes `slope` · x + `shift`, the inputs Θ become TΘ.

    A row of T has its entry on the diagonal, `factor`, and at most one more, `added`, in the column `other`.
    """

    slope: FloatArray  # (m + q + 1,)
    shift: FloatArray
    factor: FloatArray  # (p,)
    added: FloatArray
    other: npt.NDArray[np.int64]

    @classmethod
    def between(cls, old: Units, new: Units, *, m: int, q: int, window: int, arms: int, lags: int) -> "Change":
        """Return the change for inputs of the given sizes."""
        slope, shift = old.scale / new.scale, (old.centre - new.centre) / new.scale
        p = 1 + m * window + q + 2 * arms * lags
        factor, added, other = np.ones(p), np.zeros(p), np.zeros(p, dtype=np.int64)
        columns = [*np.tile(np.arange(m), window), *range(m, m + q)]
        first = 1 + len(columns)
        factor[1:first], added[1:first] = slope[columns], shift[columns]
        factor[first::2], added[first::2] = slope[-1], shift[-1]  # rewards, each followed by its indicator
        other[first::2] = np.arange(first + 1, p, 2)
        return cls(slope, shift, factor, added, other)

    def inputs(self, Θ: FloatArray) -> FloatArray:
        """Return TΘ for inputs along the last axis."""
        return self.factor * Θ + self.added * Θ[..., self.other]

    def products(self, M: FloatArray) -> FloatArray:
        """Return TMT' for symmetric M along the last two axes."""
        return self.inputs(self.inputs(M).swapaxes(-1, -2))


def _set_units(columns: "StandardizedColumns", units: FloatArray) -> None:
    """Take units from a file."""
    columns.units = Units(*units)
    if not columns.units.scale.all():
        raise InvalidInputError("units: expected scales other than 0")


class StandardizedColumns(Columns):
    """Columns scaled to mean 0 and standard deviation 1, by the data so far."""

    remembers: ClassVar[tuple[Field, ...]] = (
        *Columns.remembers,
        Written("sums", "moments", Saved((4, "m+q+1"), *FINITE)),
        Field("units", {"units": Saved((2, "m+q+1"), *MEASURED)}, lambda own: (np.array(own.units),), _set_units),
        Number("pause", file="pause", least=1, most=2 * COUNT),
    )
    follows = True

    def __init__(self, context_dim: int, feature_dim: int, *, minimize: bool) -> None:
        super().__init__(context_dim, feature_dim, minimize=minimize)
        self.units: Units = Units.as_given(context_dim, feature_dim, minimize=minimize)
        self.pause = _FIRST_SCALING
        self.moments = RunningMoments(context_dim + feature_dim + 1)
        self.first = {"context": 0, "features": context_dim, "reward": context_dim + feature_dim}

    @property
    def sums(self) -> FloatArray:
        """The data of the running moments."""
        return self.moments.rows

    @property
    def awaits_reward(self) -> bool:
        """Whether no reward has come yet: rewards are relative to the first one."""
        return bool(self.moments.unseen[-1])

    def begin(self, **columns: FloatArray | float) -> None:
        """Begin new columns with these values."""
        if self.moments.unseen.any():
            for name, values in columns.items():
                self.moments.begin(self.first[name], np.atleast_2d(values))
            centre = np.where(self.moments.unseen, self.moments.rows[1], self.units.centre)
            self.units = self.units._replace(centre=centre)

    def note(self, **columns: FloatArray | float) -> None:
        """Record values in their own units."""
        self.begin(**columns)
        for name, values in columns.items():
            self.moments.add(self.first[name], np.atleast_2d(values))

    def change(self, rounds: int, *, window: int, arms: int, lags: int) -> Change:
        """Change the units, and return the conversion from the old ones."""
        old, self.units, self.pause = self.units, self.moments.units(minimize=self.minimize), 2 * rounds
        m, q = self.context_dim, self.feature_dim
        return Change.between(old, self.units, m=m, q=q, window=window, arms=arms, lags=lags)


def change_regression(W: FloatArray, u: FloatArray, ridge: float, change: Change) -> None:
    """Rebuild the factor of one regression, W = L⁻¹ and u = Wb, in the new units.

    If a gross error, such as 1e36 for an empty cell, has left only rounding in it, it starts from scratch.
    """
    M, b = np.empty_like(W), np.empty_like(u)
    new, v = np.zeros_like(W), np.empty_like(u)
    with np.errstate(all="ignore"):
        _unfold(W, u, ridge, M, b)
        faint = np.diag(M) < _FAINT * ridge
        M[faint], M[:, faint], b[faint] = 0.0, 0.0, 0.0
        b = change.inputs(change.slope[-1] * b + change.shift[-1] * M[0])
        found = _fold(np.ascontiguousarray(change.products(M)), b, ridge, new, v)
    W[:], u[:] = (new, v) if found else (np.eye(len(u)) / math.sqrt(ridge), 0.0)


@kernel
def _unfold(W: FloatArray, u: FloatArray, ridge: float, M: FloatArray, b: FloatArray) -> None:
    """Write M = LL' − λI and b = Lu, with L = W⁻¹."""
    p = len(u)
    L = np.zeros((p, p))
    for j in range(p):
        for i in range(j, p):
            total = 1.0 if i == j else 0.0
            for r in range(j, i):
                total -= W[i, r] * L[r, j]
            L[i, j] = total / W[i, i]
    for i in range(p):
        total = 0.0
        for r in range(i + 1):
            total += L[i, r] * u[r]
        b[i] = total
        for j in range(i + 1):
            total = -ridge if i == j else 0.0
            for r in range(j + 1):
                total += L[i, r] * L[j, r]
            M[i, j] = total
            M[j, i] = total


@kernel
def _fold(M: FloatArray, b: FloatArray, ridge: float, W: FloatArray, u: FloatArray) -> bool:
    """Write W = L⁻¹, with λI + M = LL', and u = Wb; return whether there is such a factor. W begins as zeros."""
    p = len(b)
    L = np.zeros((p, p))
    for i in range(p):
        for j in range(i + 1):
            total = M[i, j] + (ridge if i == j else 0.0)
            for r in range(j):
                total -= L[i, r] * L[j, r]
            if i > j:
                L[i, j] = total / L[j, j]
            elif 0.0 < total < np.inf:
                L[i, i] = math.sqrt(total)
            else:
                return False
    for i in range(p):
        for j in range(i + 1):
            total = 1.0 if i == j else 0.0
            for r in range(j, i):
                total -= L[i, r] * W[r, j]
            W[i, j] = total / L[i, i]
        total = 0.0
        for j in range(i + 1):
            total += W[i, j] * b[j]
        u[i] = total
        if not np.isfinite(total):
            return False
    return True


def change_inputs(inputs: Inputs, change: Change) -> None:
    """Convert the history of the inputs to the new units; forecasts of missing entries do not depend on them."""
    m = len(inputs.means)
    slope, shift = change.slope[:m], change.shift[:m]
    inputs.means[:] = slope * inputs.means + shift
    inputs.squares[:] *= slope**2
    inputs.ring[:] = slope * inputs.ring + shift
    inputs.lag_reward[:] = change.slope[-1] * inputs.lag_reward + change.shift[-1]


def log_det_and_trace(W: FloatArray, ridge: float, sizes: npt.NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
    """Return log det V − log det λI and tr V⁻¹ of the leading blocks of the given sizes."""
    last = sizes - 1
    log_det = np.cumsum(-2.0 * np.log(np.diag(W)) - math.log(ridge))
    return log_det[last], np.cumsum((W**2).sum(axis=1))[last]
