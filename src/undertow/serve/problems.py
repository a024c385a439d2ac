"""Errors over HTTP: a status, and a problem that names the field and the remedy (RFC 9457)."""

import re
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from undertow.errors import (
    OutOfTurnError,
    StoreBusyError,
    StoreError,
    StoreUnavailableError,
    UndertowError,
    UnknownDecisionError,
)
from undertow.serve.answers import Problem

__all__ = ["ConflictError", "HttpError", "NotFoundError", "headers_of", "problem_of", "uncapitalised"]

_REASONS = {"unknown": 404, "repeated": 409, "different": 409, "defaulted": 410, "forgotten": 410, "late": 410}
_FIELD = re.compile(r"(\w{1,64}): ")
_PATH = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")
_RETRY = 1  # seconds until a retry


class HttpError(UndertowError):
    """A call that HTTP itself refuses; `kind` is one word or two for programs."""

    def __init__(self, status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.headers = status, kind, headers or {}


class NotFoundError(HttpError):
    """There is no bandit, arm or decision of this name."""

    def __init__(self, message: str) -> None:
        super().__init__(404, "not found", message)


class ConflictError(HttpError):
    """The call contradicts the state of the bandit."""

    def __init__(self, message: str) -> None:
        super().__init__(409, "conflict", message)


def problem_of(error: Exception) -> Problem:
    """Return the problem of an error, without details of unexpected ones."""
    happened: bool | UnsetType | None = UNSET
    match error:
        case HttpError():
            status, kind = error.status, error.kind
        case UnknownDecisionError():
            status, kind = _REASONS.get(error.reason, 422), error.reason
        case OutOfTurnError():
            status, kind = 409, "out of turn"
        case StoreBusyError():
            status, kind, happened = 503, "busy", False
        case StoreUnavailableError():
            status, kind, happened = 503, "unavailable", error.happened
        case StoreError():
            status, kind = 503, "store"
        case UndertowError():
            status, kind = 422, "invalid"
        case msgspec.DecodeError():
            return _invalid_json(error)
        case _:
            detail = "The service failed, and its log says why. The call did not happen unless it was repeated before"
            return _problem(500, "failed", f"{detail}; repeat it with the same id", None)
    detail = str(error)
    field = _FIELD.match(detail) if status != 503 and not isinstance(error, OutOfTurnError) else None
    return _problem(status, kind, detail, field and field[1], happened)


def _invalid_json(error: msgspec.DecodeError) -> Problem:
    """Return the mistake in the JSON of a body, and its field."""
    detail, place = str(error), _PATH.search(str(error))
    if place is None:
        missing = re.search(r"(?:missing required|unknown) field `([^`]*)`", detail)
        field = missing[1] if missing else None
    else:
        field, detail = place[1] or None, detail[: place.start()]
        if missing := re.search(r"(?:missing required|unknown) field `([^`]*)`", detail):
            field = f"{field}.{missing[1]}" if field else missing[1]
    said = f"{field or 'body'}: {uncapitalised(detail)}"
    return _problem(422, "invalid", f"{said}; /openapi.json describes the body", field)


def uncapitalised(text: str) -> str:
    """Return a sentence with a small first letter, for use behind a colon; abbreviations keep theirs."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def _problem(
    status: int, kind: str, detail: str, field: str | None, happened: bool | UnsetType | None = UNSET
) -> Problem:
    name = f"urn:undertow:{kind.replace(' ', '-')}"
    return Problem(name, HTTPStatus(status).phrase, status, detail, field, happened)


def headers_of(error: Exception) -> dict[str, str]:
    """Return the headers of the answer to an error."""
    found: dict[str, Any] = {"retry-after": str(_RETRY)} if isinstance(error, StoreError) else {}
    return found | (error.headers if isinstance(error, HttpError) else {})
