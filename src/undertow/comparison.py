"""Policies on the same paths, with intervals over runs and paired differences, as a table for a paper."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.errors import InvalidInputError
from undertow.live.plain import as_policy
from undertow.simulation import simulate
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.support.display import Framed, Progress, html_table
from undertow.support.numbers import Measured, cells, with_interval
from undertow.support.tables import aligned, latex, markdown
from undertow.trajectory import Trajectory

if TYPE_CHECKING:
    from undertow.support.drawing import Sheet

__all__ = ["Comparison", "compare", "mean_with_interval"]

_POINTS = 400  # of a line over rounds
_LEVEL = 0.975  # so that the interval holds 95 %


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Framed):
    """Results of policies on the same paths.

    Attributes
    ----------
    measure
        "regret", after the last round, or "mean reward" of a round if the paths have no means.
    values
        The measure in every run, by policy, (runs,).
    rounds, curves
        Rounds, and regret or the mean reward up to them, by policy, (runs, points).
    """

    measure: str
    values: Mapping[str, FloatArray]
    rounds: FloatArray
    curves: Mapping[str, FloatArray]

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(next(iter(self.values.values())))

    def mean(self, policy: str) -> Measured:
        """Return a policy's mean over runs with its 95 % interval."""
        return mean_with_interval(self.values[self._known(policy)])

    def difference(self, policy: str, against: str) -> Measured:
        """Return the mean of a policy's values minus another's, run by run, with its 95 % interval."""
        return mean_with_interval(self.values[self._known(policy)] - self.values[self._known(against)])

    def differences(self, against: str | Sequence[str] = ()) -> list[dict[str, Any]]:
        """Return the difference of every policy from each of the given ones, by default from all."""
        chosen = list(map(self._known, self._chosen(against))) or list(self.values)
        pairs = [(one, other) for other, one in itertools.product(chosen, self.values) if one != other]
        return [
            {"policy": one, "against": other}
            | dict(zip(with_interval("difference"), self.difference(one, other), strict=True))
            for one, other in pairs
        ]

    def to_frame(self, against: str | Sequence[str] = ()) -> Any:
        """Return the table as a data frame, of polars or, if that is not installed, of pandas."""
        rows = self._rows(self._chosen(against))
        try:
            import polars

            return polars.DataFrame(rows)
        except ModuleNotFoundError:
            with checks.needing("to_frame", "pandas"):
                import pandas
            return pandas.DataFrame(rows)

    def to_markdown(self, against: str | Sequence[str] = ()) -> str:
        """Return the table in Markdown, with a column of paired differences for each policy in `against`."""
        return markdown(*self._table(self._chosen(against)))

    def to_latex(self, against: str | Sequence[str] = ()) -> str:
        """Return the table as a LaTeX tabular with the rules of booktabs."""
        return latex(*self._table(self._chosen(against)))

    def plot(
        self,
        policies: Sequence[str] = (),
        *,
        width: float = 7.4,
        height: float = 3.6,
        font: float = 8,
        line: float = 1.5,
        band: bool = True,
        log: bool = False,
    ) -> "Sheet":
        """Draw the mean over runs as a line over rounds for each policy, with its label at the end of the line.

        Parameters
        ----------
        policies
            Policies to draw, by default all.
        width, height, font, line
            Inches, inches, points and points. A column of two is 3.5 inches wide.
        band
            Whether to draw the 95 % interval of the mean.
        log
            Whether the vertical axis is logarithmic.
        """
        from undertow.support.curves import draw_curves

        chosen = [self._known(name) for name in policies] or list(self.values)
        curves = {name: [mean_with_interval(column) for column in self.curves[name].T] for name in chosen}
        title = "regret" if self.measure == "regret" else "mean reward so far"
        look: dict[str, Any] = {"width": width, "height": height, "font": font, "line": line, "band": band, "log": log}
        return draw_curves(self.rounds, curves, title, **look)

    def __str__(self) -> str:
        """Return the table, aligned for a terminal."""
        return aligned(*self._table(()))

    def _known(self, policy: str) -> str:
        if policy not in self.values:
            near = checks.did_you_mean(policy, self.values)
            raise InvalidInputError(f"policy: unknown {policy!r:.60}{near}; expected one of {', '.join(self.values)}")
        return policy

    def _chosen(self, against: str | Sequence[str]) -> list[str]:
        return [self._known(name) for name in ([against] if isinstance(against, str) else against)]

    def _rows(self, against: Sequence[str]) -> list[dict[str, Any]]:
        key = self.measure.replace(" ", "_")
        rows = []
        for name in self.values:
            row: dict[str, Any] = {"policy": name} | dict(zip(with_interval(key), self.mean(name), strict=True))
            for other in against:
                found = self.difference(name, other) if name != other else Measured(0.0, math.nan, math.nan)
                row |= dict(zip(with_interval(f"minus {other}"), found, strict=True))
            rows.append(row)
        return rows

    def _table(self, against: Sequence[str]) -> tuple[list[str], list[list[str]]]:
        rows = self._rows(against)
        measures = {self.measure.replace(" ", "_"): self.measure} | {f"minus {name}": f"− {name}" for name in against}
        lines = []
        for row, spells in zip(rows, cells(rows, measures), strict=True):
            shown = [value if self.runs < 2 else f"{value} ({spread})" for value, spread in spells]
            own = [name == row["policy"] for name in (None, *against)]
            lines.append([row["policy"], *("–" if mine else cell for mine, cell in zip(own, shown, strict=True))])
        return ["policy", *measures.values()], lines

    def _frame(self) -> Mapping[str, Any]:
        rows = self._rows(())
        return {name: [row[name] for row in rows] for name in rows[0]}

    def _repr_html_(self) -> str:
        head, rows = self._table(())
        return html_table(f"{self.runs} runs", rows, head, "Means over runs with 95 % intervals.")


def compare(
    policies: Mapping[str, Any],
    paths: Trajectory,
    *,
    context_first: bool | None = None,
    threads: int | None = None,
    progress: bool | Progress = False,
) -> Comparison:
    """Play the same paths with several policies.

    Parameters
    ----------
    policies
        Unused policies by label: undertow's, or any object with `decide`, which returns a decision or an arm,
        and `learn`. `undertow.adapters` has wrappers for policies of other libraries.
    paths
        Several runs, as `system.sample(2000, rng=0, runs=20)` makes them: intervals are over runs, and differences are
        paired by run. One run has no intervals.
    context_first, threads, progress
        As for `simulate`.

    Examples
    --------
    >>> import undertow
    >>> paths = undertow.paper_system(psi=1).sample(500, rng=0, runs=5)
    >>> class Always:
    ...     def decide(self):
    ...         return 1
    ...
    ...     def learn(self, arm, reward):
    ...         pass
    >>> found = compare({"ARES": undertow.ARES(arms=2, context_dim=1), "always 1": Always()}, paths)
    >>> found.mean("ARES").value < found.mean("always 1").low
    True
    >>> print(found.to_markdown(against="ARES").splitlines()[0])
    | policy | regret | − ARES |
    """
    if not isinstance(policies, Mapping) or not policies:
        raise InvalidInputError(
            f"policies: expected a dictionary of labels and policies, such as {{'mine': mine}}, got {policies!r:.60}"
        )
    if odd := next((label for label in policies if not isinstance(label, str) or not label), None):
        raise InvalidInputError(f"policies: expected strings as labels, got {odd!r:.60}")
    values, curves = {}, {}
    points = np.empty(0, dtype=np.int64)
    measure = "regret" if isinstance(paths, Trajectory) and paths.means is not None else "mean reward"
    for label, policy in policies.items():
        try:
            run = simulate(as_policy(policy), paths, context_first=context_first, threads=threads, progress=progress)
        except InvalidInputError as error:
            raise InvalidInputError(f"policies: {label}: {error}") from error
        n = run.arms.shape[-1]
        points = np.unique(np.linspace(1, n, _POINTS).astype(np.int64))
        rewards = np.nancumsum(run.rewards, axis=-1) / np.maximum(np.cumsum(~np.isnan(run.rewards), axis=-1), 1)
        so_far = np.atleast_2d(rewards if run.regret is None else run.regret)
        values[label], curves[label] = so_far[:, -1].copy(), so_far[:, points - 1]
    return Comparison(measure, values, points.astype(np.float64), curves)


def mean_with_interval(values: FloatArray) -> Measured:
    """Return the mean of independent values with its 95 % interval, from Student's t; NaN for a single value.

    Examples
    --------
    >>> [round(number, 3) for number in mean_with_interval(np.array([1.0, 2.0, 3.0]))]
    [2.0, -0.484, 4.484]
    """
    from scipy.special import stdtrit  # scipy.stats takes longer to import than most comparisons

    n, mean = len(values), float(values.mean())
    if n < 2:
        return Measured(mean, math.nan, math.nan)
    half = float(stdtrit(n - 1, _LEVEL) * values.std(ddof=1) / math.sqrt(n))
    return Measured(mean, mean - half, mean + half)
