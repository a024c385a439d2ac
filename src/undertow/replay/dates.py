"""Times as people write them: the year first, or day and month in an order recognised from the column."""

import re

import polars as pl

__all__ = ["read_times"]

_DATE = r"^(?P<one>\d{1,4})(?P<mark>[./-])(?P<two>\d{1,2})[./-](?P<three>\d{2,4})(?:,? +|T|$)"
_CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}))?(?:[.,](?P<part>\d{1,6}))?"
    r"\s*(?P<half>[aApP]\.?[mM]\.?)?$"
)
_LETTERS = {"yyyy": "%Y", "yy": "%y", "dd": "%d", "d": "%d", "hh": "%H", "ss": "%S"}
_CENTURY = 69  # from which a year of two digits is in the last century, as in POSIX


def read_times(text: pl.Series, form: str | None) -> tuple[pl.Series, str]:
    """Return tidy text as timestamps, null for anything else, and its format.

    The format is "" for ISO 8601, and "?" if day and month are ambiguous.

    Examples
    --------
    >>> values, form = read_times(pl.Series(["31.3.2024 14:00", "1.4.2024 0:30"]), None)
    >>> values.dt.strftime("%Y-%m-%d %H:%M").to_list(), form
    (['2024-03-31 14:00', '2024-04-01 00:30'], 'dd.mm.yyyy')
    """
    if form is not None:
        return _strptime(text, form), ""
    iso = _iso(text)
    if iso.null_count() < len(iso) or not len(text):
        return iso, ""
    parts = text.str.extract_groups(_DATE + f"(?:{_CLOCK})?").struct.unnest()
    if not (marks := parts["mark"].drop_nulls()).len():
        return iso, ""
    mark = marks[0]
    if parts["one"].str.len_chars().max() == 4:
        return _timestamps(parts, "ymd"), f"yyyy{mark}mm{mark}dd"
    day_first, month_first = (_timestamps(parts, order) for order in ("dmy", "mdy"))
    order = _order(mark, day_first, month_first)
    if order is None:
        return pl.Series([None] * len(text), dtype=pl.Datetime("us")), "?"
    years = "yyyy" if parts["three"].str.len_chars().max() == 4 else "yy"
    if order == "dmy":
        return day_first, f"dd{mark}mm{mark}{years}"
    return month_first, f"mm{mark}dd{mark}{years}"


def _order(mark: str, day_first: pl.Series, month_first: pl.Series) -> str | None:
    """Return the order of day and month that makes all times valid or, if both do, increasing."""
    if mark == "." or month_first.null_count() > day_first.null_count():
        return "dmy"
    if day_first.null_count() > month_first.null_count():
        return "mdy"
    rising = [values.is_sorted() for values in (day_first, month_first)]
    return None if rising[0] == rising[1] else "dmy" if rising[0] else "mdy"


def _timestamps(parts: pl.DataFrame, order: str) -> pl.Series:
    names = dict(zip(order, ("one", "two", "three"), strict=True))
    number = {name: pl.col(column).cast(pl.Int32, strict=False) for name, column in names.items()}
    year, two_digits = number["y"], pl.col(names["y"]).str.len_chars() == 2
    year = pl.when(two_digits).then(year + pl.when(year < _CENTURY).then(2000).otherwise(1900)).otherwise(year)
    hour, minute, second = (pl.col(name).cast(pl.Int32).fill_null(0) for name in ("hour", "minute", "second"))
    half = pl.col("half").str.to_lowercase().str.slice(0, 1)
    hour = pl.when(half.is_null()).then(hour).otherwise(hour % 12 + pl.when(half == "p").then(12).otherwise(0))
    micro = pl.col("part").str.pad_end(6, "0").cast(pl.Int32).fill_null(0)
    fits = number["m"].is_between(1, 12) & number["d"].is_between(1, 31) & (hour < 24) & (minute < 60) & (second < 60)
    text = pl.format(
        "{}-{}-{} {}:{}:{}.{}",
        *(part.cast(pl.String).str.zfill(width) for part, width in ((year, 4), (number["m"], 2), (number["d"], 2))),
        *(part.cast(pl.String).str.zfill(width) for part, width in ((hour, 2), (minute, 2), (second, 2), (micro, 6))),
    )
    when = text.str.to_datetime("%Y-%m-%d %H:%M:%S%.6f", strict=False, time_unit="us")
    return parts.select(pl.when(fits).then(when)).to_series()


def _iso(text: pl.Series) -> pl.Series:
    """Read ISO 8601, year first."""
    iso = text.set(~text.str.contains(r"^\d{4}-\d{2}-\d{2}"), None)
    try:
        return iso.str.to_datetime(strict=False)
    except pl.exceptions.PolarsError:  # not one of them has a known format
        return pl.Series([None] * len(text), dtype=pl.Datetime("us"))


def _strptime(text: pl.Series, form: str) -> pl.Series:
    """Read times in a given form; letters become those of strptime, mm after hh being minutes."""
    if "%" not in form:
        form = re.sub(r"(?<=hh.)mm", "%M", form.lower())
        form = re.sub("yyyy|yy|dd|hh|ss|d(?!d)", lambda found: _LETTERS[found[0]], form).replace("mm", "%m")
    dated = text if re.search("%[HIMTRSc]", form) else text + " 00:00"
    form = form if dated is text else f"{form} %H:%M"
    try:
        return dated.str.to_datetime(form, strict=False, time_unit="us")
    except pl.exceptions.PolarsError:
        return pl.Series([None] * len(text), dtype=pl.Datetime("us"))
