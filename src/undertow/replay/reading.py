"""The formats of cells: given by the caller or recognised, with one line that reports these."""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field

from undertow.errors import InvalidInputError
from undertow.support import checks

__all__ = ["MISSING", "Reading"]

MISSING = (
    *("", "nan", "na", "n/a", "n.a.", "null", "none", "nil", "missing", "k.a.", "k. a."),
    *("-", "--", "–", "—", "?", ".", "\\n", "#n/a", "#na", "#nv", "#n/v", "#div/0!", "#value!", "#wert!"),
)
_OPTIONS = {"encoding": "encoding", "separator": "separator", "decimal": "decimal mark", "date_format": "dates as"}


@dataclass(frozen=True)
class Reading:
    """The formats of a table; None to recognise them.

    Attributes
    ----------
    encoding, separator
        Of a text file.
    decimal
        "." or ",".
    date_format
        As `strptime` takes it, "%d.%m.%Y %H:%M", or in letters, "dd.mm.yyyy hh:mm".
    na
        Cells that mean a missing value, beside empty ones; by default those of `MISSING`, in any case.
    found
        The recognised formats by name.
    """

    encoding: str | None = None
    separator: str | None = None
    decimal: str | None = None
    date_format: str | None = None
    na: Sequence[str] | None = None
    found: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except (LookupError, TypeError, ValueError) as error:
                raise InvalidInputError(
                    f"encoding: expected a name such as utf-8, cp1252 or utf-16, got {self.encoding!r:.80}"
                ) from error
        if self.separator is not None and (not isinstance(self.separator, str) or len(self.separator.encode()) != 1):
            raise InvalidInputError(f"separator: expected one character, got {self.separator!r}")
        if self.decimal is not None:
            checks.choice("decimal", self.decimal, (".", ","))
        if self.date_format is not None and (not isinstance(self.date_format, str) or not self.date_format.strip()):
            raise InvalidInputError(
                f"date_format: expected one such as dd.mm.yyyy or %d.%m.%Y, got {self.date_format!r}"
            )
        words = [] if self.na is None else checks.entries("na", self.na)
        if odd := [word for word in words if not isinstance(word, str)]:
            raise InvalidInputError(f"na: expected words, got {odd[0]!r:.80}")

    @property
    def missing(self) -> tuple[str, ...]:
        """Words for a missing value, in small letters."""
        return MISSING if self.na is None else ("", *(word.strip().lower() for word in self.na))

    def recognised(self, option: str, value: str) -> None:
        """Store a recognised format; of missing values, every word."""
        known = self.found.get(option)
        if option == "na" and known and value not in known.split(" "):
            value = f"{known} {value}"
        self.found[option] = value

    def remark(self) -> list[str]:
        """Return the recognised formats and how to overrule them, in one line."""
        if not self.found:
            return []
        shown = [f"{words} {self.found[option]}" for option, words in _OPTIONS.items() if option in self.found]
        shown += [f"missing if {self.found['na'].replace(' ', ' or ')}"] if "na" in self.found else []
        options = [f"--{option.replace('_', '-')}" for option in (*_OPTIONS, "na") if option in self.found]
        overrule = " and ".join([", ".join(options[:-1]), options[-1]]) if len(options) > 1 else options[0]
        return [f"recognised: {', '.join(shown)}; {overrule} overrule{'s' * (len(options) == 1)} this"]
