"""How results are shown: small HTML tables in notebooks, data frames, a progress line."""

import dataclasses
import html
import math
import reprlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from undertow.support import checks

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

__all__ = ["Framed", "Progress", "columns", "html_table", "progress_line", "shortly"]

Progress = Callable[[int, int], None]  # called with the work done and the total
_MOST_ROWS, _MOST_LETTERS = 20, 80
_BETWEEN = 0.1  # seconds between two updates of a progress line


def html_table(title: str, rows: Iterable[Sequence[object]], head: Sequence[str] = (), note: str = "") -> str:
    """Return a small HTML table; values are shortened and escaped, and only the first rows are shown.

    Examples
    --------
    >>> html_table("Arms", [("a<b", 1.23456)], head=["arm", "forecast"])  # doctest: +ELLIPSIS
    '<table><caption>Arms</caption>...<tr><th>a&lt;b</th><td>1.235</td></tr>...'
    """
    entries = list(rows)
    if more := len(entries) - _MOST_ROWS:
        note = f"… and {more:,} more. {note}".strip() if more > 0 else note
    titles = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    lines = [f"<thead><tr>{titles}</tr></thead>" if head else ""]
    for first, *others in entries[:_MOST_ROWS]:
        cells = "".join(f"<td>{html.escape(shortly(value))}</td>" for value in others)
        lines.append(f"<tr><th>{html.escape(shortly(first))}</th>{cells}</tr>")
    below = f"<p>{html.escape(note)}</p>" if note else ""
    return f"<table><caption>{html.escape(title)}</caption>{''.join(lines)}</table>{below}"


def shortly(value: object) -> str:
    """Return a value as a short string: four digits of a number, the shape of an array.

    Examples
    --------
    >>> shortly(3.14159), shortly(12345), shortly(float("inf")), shortly(np.zeros((3, 2)))
    ('3.142', '12,345', '∞', 'array (3, 2)')
    """
    if isinstance(value, np.ndarray):
        return f"array {value.shape}"
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float) and math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return f"{value:,}"
    text = str(value)
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1] + "…"


class Framed:
    """A result that converts to a data frame; its repr shows only the shapes of arrays and frames."""

    def __repr__(self) -> str:
        """Return all fields that are not None, arrays by their shapes."""
        parts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        shown = [f"{name}={_in_brief(part)}" for name, part in parts.items() if part is not None]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _frame(self) -> Mapping[str, Any]:
        """Return the columns by name, all of one length."""
        raise NotImplementedError

    def to_polars(self) -> "pl.DataFrame":
        """Return a polars data frame."""
        with checks.needing("to_polars", "study"):
            import polars as pl
        return pl.DataFrame(dict(self._frame()))

    def to_pandas(self) -> "pd.DataFrame":
        """Return a pandas data frame."""
        with checks.needing("to_pandas", "pandas"):
            import pandas as pd
        return pd.DataFrame(dict(self._frame()))


def _in_brief(value: object) -> str:
    if isinstance(value, Framed) or (shape := getattr(value, "shape", None)) is None:
        return reprlib.repr(value)
    return f"<{type(value).__name__} {shape}>"


def columns(lead: tuple[int, ...], parts: Mapping[str, npt.NDArray[Any] | None]) -> dict[str, npt.NDArray[Any]]:
    """Return arrays over rounds, (n, …) or (runs, n, …), as columns, with the numbers of runs and rounds in front.

    `lead` is (n,) or (runs, n). An array with one more axis has a column for each of its entries, with a number.

    Examples
    --------
    >>> columns((2,), {"arm": np.array([0, 1]), "forecast": np.eye(2)})["forecast_1"]
    array([0., 1.])
    """
    counted = np.indices(lead).reshape(len(lead), -1)
    found: dict[str, npt.NDArray[Any]] = dict(zip(("run", "round")[-len(lead) :], counted, strict=True))
    for name, part in parts.items():
        if part is None:
            continue
        if part.ndim == len(lead):
            found[name] = part.reshape(-1)
        else:
            found |= {f"{name}_{place}": part[..., place].reshape(-1) for place in range(part.shape[-1])}
    return found


def progress_line(what: str) -> Progress:
    """Return a function that shows progress in one line on stderr, with the estimated time left."""
    start = shown = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if done < total and now - shown < _BETWEEN:
            return
        shown = now
        left = f", {(now - start) * (total - done) / done:.0f} s left" if 0 < done < total else ""
        print(f"\r{what}: {100 * done // max(total, 1)} %{left:16}", end="" if done < total else "\n", file=sys.stderr)
        sys.stderr.flush()

    return show
