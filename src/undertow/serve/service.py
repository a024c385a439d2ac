"""Shared by all calls of a worker: bandits, tokens, threads, counters, and whether the worker is ready."""

import asyncio
import ipaddress
import logging
import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from undertow.precompiling import precompile
from undertow.serve.bandits import Bandits
from undertow.serve.counters import Counters
from undertow.serve.problems import HttpError
from undertow.serve.tokens import Role, Tokens, allows

__all__ = ["LOCAL", "Service", "header", "is_loopback"]

_LOG = logging.getLogger("undertow.serve")
_HOST = re.compile(rb"(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:\d{1,5})?")
LOCAL = ("localhost", "127.0.0.1", "[::1]")
T = TypeVar("T")


class Service:
    """Shared by all calls.

    Parameters
    ----------
    bandits, tokens
        The bandits, and the roles; without tokens anybody may do everything.
    hosts
        The accepted hosts; None for any.
    threads
        Maximum number of concurrent calls. Each may use a connection to the database.
    """

    def __init__(self, bandits: Bandits, tokens: Tokens, hosts: tuple[str, ...] | None, threads: int) -> None:
        self.bandits, self.tokens, self.hosts = bandits, tokens, hosts
        self.counters = Counters()
        self.closing = asyncio.Event()
        self._threads = threads
        self._limiter: anyio.CapacityLimiter | None = None
        self._loading: threading.Thread | None = None
        self._failure: str | None = None

    async def run(self, call: Callable[..., T], *given: Any) -> T:
        """Call a blocking function in a thread."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self._threads)
        return await anyio.to_thread.run_sync(partial(call, *given), limiter=self._limiter)

    def check_host(self, scope: Mapping[str, Any]) -> None:
        """Refuse requests for other hosts: a web page can make a browser send them to an address of this machine."""
        if self.hosts is None:
            return
        found = _HOST.fullmatch(header(scope, b"host") or b"")
        if found is None or found[1].decode("latin-1").lower() not in self.hosts:
            given = ", ".join(self.hosts)
            raise HttpError(421, "misdirected", f"host: expected {given}; start the service with --allow-host for more")

    def check_role(self, scope: Mapping[str, Any], needed: Role) -> Role:
        """Return the role of a request; refuse one without a token that allows it."""
        if not self.tokens:
            return "admin"
        scheme, _, token = (header(scope, b"authorization") or b"").decode("latin-1").partition(" ")
        role = self.tokens.role(token.strip()) if scheme.lower() == "bearer" and token else None
        if role is None:
            asks = {"www-authenticate": 'Bearer realm="undertow"'}
            raise HttpError(401, "unauthorised", "token: expected the header Authorization: Bearer TOKEN", asks)
        if not allows(role, needed):
            raise HttpError(403, "forbidden", f"token: this call needs the role {needed}, and the token's is {role}")
        return role

    # Ready

    def begin(self) -> None:
        """Load the kernels of the bandits' policies in a thread."""
        if self._loading is None:
            self._loading = threading.Thread(target=self._load, name="undertow-kernels", daemon=True)
            self._loading.start()

    def _load(self) -> None:
        try:
            names = self.bandits.policies()
            if names:
                precompile(*names)
            _LOG.info("ready; kernels are loaded of %s", ", ".join(names) or "no policy, as there are no bandits yet")
        except Exception as error:
            _LOG.exception("kernels cannot be loaded")
            self._failure = f"{type(error).__name__}: {error!s:.200}"

    def check_ready(self) -> None:
        """Refuse if kernels are not loaded, or the store cannot be read."""
        self.begin()
        assert self._loading is not None
        if self._loading.is_alive():
            raise HttpError(503, "loading", "ready: kernels are being loaded; try again", {"retry-after": "1"})
        if self._failure is not None:
            self._loading, failure = None, self._failure  # the next request tries again
            self._failure = None
            raise HttpError(503, "failed", f"ready: kernels cannot be loaded ({failure})", {"retry-after": "5"})
        self.bandits.store.page("", 1)


def header(scope: Mapping[str, Any], name: bytes) -> bytes | None:
    """Return a header of a request; None if it is missing or ambiguous."""
    found = {value for key, value in scope["headers"] if key == name}
    return found.pop() if len(found) == 1 else None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
