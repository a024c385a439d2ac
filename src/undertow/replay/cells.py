"""Numbers as people write them: a column of text is read in a single way, reported by a note."""

from collections.abc import Sequence

import polars as pl

__all__ = ["decimal_mark", "missing_cells", "read_numbers", "tidy"]

_BLANKS = r"[ \u{a0}\u{202f}\u{2009}'’]"  # between groups of three digits, as a comma is
_CURRENCY = r"(?:[$€£¥]|EUR|USD|GBP|CHF)"
_ENOUGH = 10_000  # rows that determine the decimal mark of a file
_POINTS = r"^[+-]?(\d*\.(\d{1,2}|\d{4,})|(0|\d{4,})\.\d+|\d{1,3}(,\d{3})+\.\d+)\s*%?$"  # no groups of three digits


def tidy(cells: pl.Series) -> pl.Series:
    """Return text without blanks around it; "" if there is none."""
    return cells.cast(pl.String).fill_null("").str.strip_chars()


def missing_cells(text: pl.Series, words: Sequence[str]) -> pl.Series:
    """Return which cells of tidy text mean a missing value; the words are in small letters."""
    return text.str.to_lowercase().is_in(list(words))


def decimal_mark(columns: Sequence[pl.Series], usual: str) -> str:
    """Return the decimal mark of some columns of text; `usual` if they are ambiguous or contradict each other.

    Numbers that may be groups of three digits are ambiguous: 1,234 is, and 1,5 is not.

    Examples
    --------
    >>> decimal_mark([pl.Series(["1.234,5", "7"])], ".")
    ','
    """
    text = pl.concat([tidy(cells[:_ENOUGH]) for cells in columns]) if columns else pl.Series([""])
    text = _bare(text)
    points, commas = text.str.contains(_POINTS).any(), _exchanged(text).str.contains(_POINTS).any()
    return usual if points == commas else "." if points else ","


def read_numbers(text: pl.Series, *, decimal: str = ".", missing: Sequence[str] = ("",)) -> tuple[pl.Series, str]:
    """Return tidy text as numbers, NaN if missing and null if not a number, and a note on their format.

    Besides plain numbers, a column may hold True and False, percentages, amounts of one currency, or numbers with their
    thousands set apart. All its cells must be of that kind; otherwise those that are no plain numbers are null.

    Examples
    --------
    >>> values, note = read_numbers(pl.Series(["77.5 %", "", "3%"]))
    >>> values.to_list(), note
    ([0.775, nan, 0.03], 'percentages are read as shares: 77.5 % is 0.775')
    >>> read_numbers(pl.Series(["1.234,5", "7"]), decimal=",")[0].to_list()
    [1234.5, 7.0]
    """
    empty = missing_cells(text, missing)
    given, text = text, (text if decimal == "." else _exchanged(text)).set(empty, "nan")
    plain = text.cast(pl.Float64, strict=False)
    if not plain.null_count():
        return plain, ""
    if _in_one_currency(given, empty):
        values, _ = read_numbers(_bare(given), decimal=decimal, missing=missing)
        first = int((~empty).arg_max() or 0)
        lost = values.null_count()  # whose cells are no amounts
        return values, "" if lost else f"signs of a currency are left out: {given[first]} is {values[first]:.12g}"
    mark = "commas" if decimal == "." else "points"
    for values, note in (
        (_truths(text), "True is read as 1, and False as 0"),
        (_percentages(text, empty), "percentages are read as shares: {0} is {1:.12g}"),
        (_grouped(text, ","), mark + " are read as thousands separators: {0} is {1:.12g}"),
        (_grouped(text, _BLANKS), "thousands are set apart: {0} is read as {1:.12g}"),
    ):
        if not values.null_count():
            first = int(plain.is_null().arg_max() or 0)
            return values, note.format(given[first], values[first])
    return plain, ""


def _in_one_currency(text: pl.Series, empty: pl.Series) -> bool:
    """Whether every cell that is not empty begins or ends with the sign of the same currency."""
    signs = text.filter(~empty).str.extract(rf"(?:^[+-]?\s*({_CURRENCY}))", 1)
    signs = signs.fill_null(text.filter(~empty).str.extract(rf"({_CURRENCY})$", 1))
    return signs.n_unique() == 1 and not signs.null_count()


def _bare(text: pl.Series) -> pl.Series:
    """Return text without the sign of a currency before or after a number."""
    text = text.str.replace(rf"^([+-]?)\s*{_CURRENCY}\s*([+-]?\d)", "${1}${2}")
    return text.str.replace(rf"(\d)\s*{_CURRENCY}$", "${1}")


def _exchanged(text: pl.Series) -> pl.Series:
    """Return text with points for commas and commas for points."""
    return text.str.replace_many([",", "."], [".", ","])


def _truths(text: pl.Series) -> pl.Series:
    known = {"true": 1.0, "false": 0.0, "nan": float("nan")}
    return text.str.to_lowercase().replace_strict(known, default=None, return_dtype=pl.Float64)


def _percentages(text: pl.Series, empty: pl.Series) -> pl.Series:
    shares = text.str.strip_suffix("%").str.strip_chars().cast(pl.Float64, strict=False) / 100
    return shares.set(~(text.str.ends_with("%") | empty), None)


def _grouped(text: pl.Series, mark: str) -> pl.Series:
    grouped = text.str.contains(rf"^[+-]?[1-9]\d{{0,2}}({mark}\d{{3}})+(\.\d+)?$")
    joined = text.str.replace_all(mark, "")
    return joined.set(~grouped, None).cast(pl.Float64, strict=False).fill_null(text.cast(pl.Float64, strict=False))
