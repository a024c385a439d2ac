"""How many digits of a number matter: those that its interval leaves."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["decimals", "spelled"]


def decimals(rows: Sequence[Mapping[str, Any]], measure: str, factor: float = 1) -> int:
    """Return how many decimals the middle interval of a column asks for: two digits of its width.

    Examples
    --------
    >>> decimals([{"x": 3.14159, "x_low": 3.0, "x_high": 3.2}], "x")
    2
    """
    pairs = [(row[f"{measure}_low"], row[f"{measure}_high"]) for row in rows]
    widths = sorted(factor * (high - low) for low, high in pairs if low is not None and high is not None and high > low)
    if not widths:
        return 2
    return min(max(math.ceil(-math.log10(widths[len(widths) // 2])) + 1, 0), 12)


def spelled(row: Mapping[str, Any], measure: str, digits: int, factor: float = 1) -> tuple[str, str]:
    """Return a number and its interval, "" where there is none, as text.

    Examples
    --------
    >>> spelled({"x": 3.14159, "x_low": -1.0, "x_high": 3.2}, "x", 1)
    ('3.1', '−1.0 to 3.2')
    """
    value, low, high = (_text(row[f"{measure}{end}"], digits, factor) for end in ("", "_low", "_high"))
    return value, "" if low == high else f"{low} to {high}"


def _text(value: float | None, digits: int, factor: float) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{factor * value:,.{digits}f}"
    return (text[1:] if float(text.replace(",", "")) == 0 and text[0] == "-" else text).replace("-", "−")
