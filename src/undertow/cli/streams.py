"""Dependable output: the streams exist, take every character, and show a warning as one line."""

import codecs
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["dependable_streams"]

_PLAIN = {"−": "-", "–": "-", "…": "...", "→": "->", "×": "x", "≤": "<=", "≥": ">=", "’": "'", "“": '"', "”": '"'}


@contextmanager
def dependable_streams() -> Iterator[None]:
    """Open missing streams, escape characters they cannot encode, and print warnings without their source line."""
    codecs.register_error("undertow", _spell)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (as long as the process runs)
        elif not stream.encoding.lower().startswith("utf") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="undertow")
    usual = warnings.formatwarning
    warnings.formatwarning = lambda message, *place, **more: f"undertow: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _spell(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that an encoding lacks: a minus sign by a hyphen, others by their number."""
    assert isinstance(error, UnicodeEncodeError)
    letters = error.object[error.start : error.end]
    return "".join(_PLAIN.get(one) or one.encode("ascii", "backslashreplace").decode() for one in letters), error.end
