"""Bearer tokens with a role, from a file that may change, or from the environment."""

import hashlib
import hmac
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from undertow.errors import InvalidInputError

__all__ = ["ROLES", "Role", "Tokens", "allows"]

Role = Literal["read", "play", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)  # each includes the ones before it

_LOG = logging.getLogger("undertow.serve")
_SHORTEST = 16  # characters of a token


def allows(role: Role, needed: Role) -> bool:
    """Return whether a role includes another one."""
    return ROLES.index(role) >= ROLES.index(needed)


class Tokens:
    """Tokens and their roles.

    Parameters
    ----------
    path
        A file with a role and a token per line, such as `play 5f2c…`. It is read again when it changes.
    text
        The content, if there is no file.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, text: str = "") -> None:
        self._path = None if path is None else Path(path)
        self._stamp: tuple[int, int, int] | None = None
        self._roles: Mapping[bytes, Role] = _read(text, "UNDERTOW_TOKENS") if path is None and text else {}
        if self._path is not None:
            self._stamp = self._stamp_now(self._path)
            self._roles = _read(_content(self._path), str(self._path))

    def __bool__(self) -> bool:
        return self._path is not None or bool(self._roles)

    def role(self, token: str) -> Role | None:
        """Return the role of a token; None if unknown. The time it takes does not depend on the token."""
        if self._path is not None:
            self._read_again(self._path)
        given, found = _digest(token), None
        for digest, role in self._roles.items():
            if hmac.compare_digest(digest, given):
                found = role
        return found

    @staticmethod
    def _stamp_now(path: Path) -> tuple[int, int, int] | None:
        try:
            now = path.stat()
        except OSError:
            return None
        return now.st_mtime_ns, now.st_size, now.st_ino

    def _read_again(self, path: Path) -> None:
        """Read the file if it has changed; if it cannot be read, keep the tokens."""
        now = self._stamp_now(path)
        if now == self._stamp:
            return
        self._stamp = now
        try:
            self._roles = _read(_content(path), str(path))
            _LOG.info("tokens reloaded from %s: %d", path, len(self._roles))
        except InvalidInputError as error:
            _LOG.error("tokens unchanged: %s", error)


def _content(path: Path) -> str:
    try:
        if path.stat().st_mode & stat.S_IROTH:
            _LOG.warning("anybody on this machine can read the tokens in %s; run chmod 600 on it", path)
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"tokens: {path}: {getattr(error, 'strerror', None) or error}") from error


def _read(text: str, place: str) -> dict[bytes, Role]:
    """Return roles by digests of their tokens; no message shows a token."""
    found: dict[bytes, Role] = {}
    for number, line in enumerate(text.replace(",", "\n").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or words[0] not in ROLES or len(words[1]) < _SHORTEST:
            raise InvalidInputError(
                f"tokens: {place}, line {number}: expected a role (read, play or admin) and a token of at least "
                f"{_SHORTEST} characters, such as the output of `openssl rand -hex 24`"
            )
        found[_digest(words[1])] = words[0]
    if not found:
        raise InvalidInputError(f"tokens: {place} has none")
    return found


def _digest(token: str) -> bytes:
    return hashlib.blake2b(token.encode("utf-8", "surrogateescape"), digest_size=32).digest()
