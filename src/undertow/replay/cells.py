"""Numbers as people write them: a column of text is read in one way throughout, and a note says which."""

import polars as pl

__all__ = ["MISSING", "is_number", "missing_cells", "read_numbers", "tidy"]

MISSING = ("", "nan", "na", "n/a", "null", "none")
_BLANKS = r"[ \u{a0}\u{202f}\u{2009}'’]"  # between groups of three digits, as a comma is


def tidy(cells: pl.Series) -> pl.Series:
    """Return text without blanks around it; "" where there is none."""
    return cells.cast(pl.String).fill_null("").str.strip_chars()


def missing_cells(text: pl.Series) -> pl.Series:
    """Tell which cells of tidy text stand for a missing value."""
    return text.str.to_lowercase().is_in(MISSING)


def read_numbers(text: pl.Series, *, commas_are_decimal: bool) -> tuple[pl.Series, str]:
    """Return tidy text as numbers, NaN where one is missing and null where there is none, and how they were read.

    Besides plain numbers, a column may hold True and False, percentages, or numbers with their thousands set apart. All
    its cells have to be of that kind; otherwise those that are no plain numbers are null. Where `commas_are_decimal`,
    as in files whose cells are separated by semicolons, 1,234 is taken for 1234 only if other cells rule out 1.234.

    Examples
    --------
    >>> values, note = read_numbers(pl.Series(["77.5 %", "", "3%"]), commas_are_decimal=False)
    >>> values.to_list(), note
    ([0.775, nan, 0.03], 'percentages are read as shares: 77.5 % is 0.775')
    """
    empty = missing_cells(text)
    text = text.set(empty, "nan")
    plain = text.cast(pl.Float64, strict=False)
    if not plain.null_count():
        return plain, ""
    for values, note in (
        (_truths(text), "True is read as 1, and False as 0"),
        (_percentages(text, empty), "percentages are read as shares: {0} is {1:.12g}"),
        (_grouped(text, ",", doubtful=commas_are_decimal), "commas are read as thousands separators: {0} is {1:.12g}"),
        (_grouped(text, _BLANKS, doubtful=False), "thousands are set apart: {0} is read as {1:.12g}"),
    ):
        if not values.null_count():
            first = int(plain.is_null().arg_max() or 0)
            return values, note.format(text[first], values[first])
    return plain, ""


def _truths(text: pl.Series) -> pl.Series:
    known = {"true": 1.0, "false": 0.0, "nan": float("nan")}
    return text.str.to_lowercase().replace_strict(known, default=None, return_dtype=pl.Float64)


def _percentages(text: pl.Series, empty: pl.Series) -> pl.Series:
    shares = text.str.strip_suffix("%").str.strip_chars().cast(pl.Float64, strict=False) / 100
    return shares.set(~(text.str.ends_with("%") | empty), None)


def _grouped(text: pl.Series, mark: str, *, doubtful: bool) -> pl.Series:
    grouped = text.str.contains(rf"^[+-]?[1-9]\d{{0,2}}({mark}\d{{3}})+(\.\d+)?$")
    if doubtful and not text.str.contains(r"\.|,.*,").any():
        grouped = grouped & False
    joined = text.str.replace_all(mark, "")
    return joined.set(~grouped, None).cast(pl.Float64, strict=False).fill_null(text.cast(pl.Float64, strict=False))


def is_number(word: str) -> bool:
    """Tell whether a word reads as a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True
