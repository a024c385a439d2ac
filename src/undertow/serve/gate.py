"""Middleware for every request: check its host, add headers to its answer, count and log both."""

import logging
import time
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from undertow.errors import UndertowError
from undertow.serve.endpoints import refusal
from undertow.serve.service import Service

__all__ = ["ACCESS", "Gate"]

ACCESS = logging.getLogger("undertow.access")
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
]


class Gate:
    """Middleware around all of the service."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*_HEADERS, *message["headers"]]
            await send(message)

        try:
            self._service.check_host(scope)
        except UndertowError as error:
            await refusal(error)(scope, receive, answer)
        else:
            await self._app(scope, receive, answer)
        finally:
            taken, method, route = time.perf_counter() - began, scope["method"], scope.get("route")
            place = getattr(route, "path", "other")
            self._service.counters.note(method if method in _METHODS else "other", place, status, taken)
            if ACCESS.isEnabledFor(logging.INFO):
                ACCESS.info("%s %s %d %.1f ms", method, quote(scope["path"]), status, 1e3 * taken)


_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")
