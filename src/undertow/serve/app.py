"""The service as an ASGI application."""

import os
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from undertow.errors import InvalidInputError
from undertow.serve.answers import Access, Status
from undertow.serve.bandits import Bandits
from undertow.serve.calls import CALLS, Call
from undertow.serve.download import Download
from undertow.serve.endpoints import Endpoint, refusal
from undertow.serve.gate import Gate
from undertow.serve.metrics import Metrics
from undertow.serve.openapi import document
from undertow.serve.problems import HttpError
from undertow.serve.service import LOCAL, Service
from undertow.serve.stream import Streams
from undertow.serve.tokens import Tokens
from undertow.store import Store
from undertow.store.address import store_at

__all__ = ["application"]

_PAGE = Path(__file__).parent / "page"
ENVIRONMENT = "UNDERTOW_TOKENS"


def application(
    store: str | Store,
    *,
    tokens: str | os.PathLike[str] | None = None,
    hosts: Iterable[str] | None = LOCAL,
    threads: int = 40,
    timeout: float = 5.0,
    most_open: int = 1000,
    most_bandits: int = 1_000_000,
) -> Starlette:
    """Return the service as a Starlette application, to run with uvicorn or to mount in another one.

    Parameters
    ----------
    store
        The bandits: sqlite:///file.db, or postgresql://user:password@host/database.
    tokens
        A file with a role (read, play or admin) and a token per line. Without it, the environment variable
        UNDERTOW_TOKENS has the same, and if that is not set, everybody who can reach the service may do everything.
    hosts
        Accepted host names, by default those of this machine; None for any.
    threads
        Maximum number of concurrent calls, each with a connection to the database.
    timeout
        Seconds that a call waits for a bandit locked by others.
    most_open
        Maximum number of bandits in memory.
    most_bandits
        Number of bandits from which no more can be created over HTTP.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     service = application(f"sqlite:///{folder}/shop.db")  # uvicorn.run(service)
    ...     "/v1/bandits/{name}/decisions" in [route.path for route in service.routes]
    True
    """
    if isinstance(hosts, str):
        raise InvalidInputError(f"hosts: expected a list of names, got {hosts!r:.80}")
    bandits = Bandits(
        store if isinstance(store, Store) else store_at(store),
        timeout=timeout,
        most_open=most_open,
        most=most_bandits,
    )
    known = Tokens(tokens, os.environ.get(ENVIRONMENT, ""))
    service = Service(bandits, known, None if hosts is None else tuple(host.lower() for host in hosts), threads)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Any]]:
        service.begin()
        yield {"closing": service.closing}
        service.closing.set()
        bandits.store.close()

    handlers: dict[Any, Any] = {404: _nothing_here, Exception: _failed}
    app = Starlette(routes=_routes(service), lifespan=lifespan, exception_handlers=handlers)
    app.user_middleware.append(Middleware(Gate, service=service))
    app.router.redirect_slashes = False
    return app


def _routes(service: Service) -> list[BaseRoute]:
    by_path: defaultdict[str, list[Call]] = defaultdict(list)
    for call in CALLS:
        by_path[call.path].append(call)
    encode = msgspec.json.Encoder().encode

    async def openapi(request: Request) -> Response:
        """Return the OpenAPI document, which is public."""
        content = encode(document(CALLS, request.scope.get("root_path", "")))
        return Response(content, media_type="application/json")

    async def healthz(request: Request) -> Response:
        """Return that the worker runs."""
        return Response(encode(Status("ok")), media_type="application/json")

    async def readyz(request: Request) -> Response:
        """Return whether the worker can take requests: kernels are loaded, and the store can be read."""
        try:
            await service.run(service.check_ready)
        except Exception as error:
            return refusal(error)
        return Response(encode(Status("ready")), media_type="application/json")

    async def access(request: Request) -> Response:
        """Return the role of the caller."""
        try:
            role = service.check_role(request.scope, "read")
        except Exception as error:
            return refusal(error)
        return Response(encode(Access(role)), media_type="application/json")

    async def page(request: Request) -> Response:
        """Return the page, which asks for a token itself."""
        return FileResponse(_PAGE / "index.html")

    return [
        *(Route(path, Endpoint(service, calls)) for path, calls in by_path.items()),
        Route("/v1/bandits/{name}/stream", Streams(service).__call__),
        Route("/v1/bandits/{name}/log.{kind}", Download(service).__call__),
        Route("/v1/access", access),
        Route("/", page),
        Mount("/page", StaticFiles(directory=_PAGE)),
        Route("/metrics", Metrics(service).__call__),
        Route("/openapi.json", openapi),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
    ]


async def _nothing_here(request: Request, error: Exception) -> Response:
    return refusal(
        HttpError(404, "not found", f"path: there is nothing at {request.url.path!r:.100}; see /openapi.json")
    )


async def _failed(request: Request, error: Exception) -> Response:
    return refusal(error)
