"""The exceptions that undertow raises.

Every one of them derives from `UndertowError`, names the argument at fault and says what to do instead.
"""

__all__ = [
    "InvalidInputError",
    "NoStationaryLawError",
    "NoSteadyStateError",
    "OutOfTurnError",
    "StoreBusyError",
    "StoreError",
    "StoreUnavailableError",
    "UndertowError",
    "UnknownDecisionError",
]


class UndertowError(Exception):
    """Base of all errors that undertow raises on purpose."""


class InvalidInputError(UndertowError, ValueError):
    """An argument or a file is invalid; the message names it and says what is expected."""


class NoStationaryLawError(UndertowError):
    """The state has no stationary law, because the dynamics are not stable."""


class NoSteadyStateError(UndertowError):
    """The Riccati equation has no stabilising solution; the message says which assumption fails."""


class OutOfTurnError(UndertowError):
    """A policy was called out of turn; the message names the calls that fit."""


class UnknownDecisionError(UndertowError, LookupError):
    """A reward belongs to a decision that the policy did not make, has forgotten or has learned already.

    `reason` is one word for it, by which `health()` counts: unknown, repeated, defaulted, forgotten, late or different.
    """

    def __init__(self, message: str, reason: str = "unknown") -> None:
        super().__init__(message)
        self.reason = reason


class StoreError(UndertowError):
    """A store cannot do this; nothing has changed."""


class StoreBusyError(StoreError, TimeoutError):
    """Others held the bandit's lock until the time-out; the call did not happen."""


class StoreUnavailableError(StoreError, ConnectionError):
    """The store cannot be reached, or cannot write.

    `happened` says whether the call was committed: False, or None if unknown. A call repeated with the same id happens
    once.
    """

    def __init__(self, message: str, *, happened: bool | None = False) -> None:
        super().__init__(message)
        self.happened = happened
