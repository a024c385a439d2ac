"""Committed events as they come, over server-sent events: from any number on, each exactly once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from undertow.serve.answers import EventRow
from undertow.serve.endpoints import refusal
from undertow.serve.problems import HttpError
from undertow.serve.service import Service

__all__ = ["Streams"]

_PAUSE = 0.25  # seconds between two reads of the store
_QUIET = 15.0  # seconds after which a comment keeps the connection open
_LONGEST = 60.0  # seconds after which a stream ends; the client reconnects for the rest
_PAGE = 500
_MOST = 1000  # streams of a worker
_ENCODER = msgspec.json.Encoder()


class Streams:
    """The streams of a worker; one task looks for new events of all bandits with listeners."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._listeners: Counter[str] = Counter()
        self._newest: dict[str, int] = {}
        self._looked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, request: Request) -> Response:
        """Answer a request with a stream."""
        try:
            self._service.check_role(request.scope, "read")
            name = request.path_params["name"]
            given = request.headers.get("last-event-id") or request.query_params.get("after", "0")
            if not given.isdecimal() or len(given) > len(str(2**53)):
                raise HttpError(422, "invalid", f"after: expected the number of an event, got {given:.40}")
            if self._listeners.total() >= _MOST:
                raise HttpError(503, "busy", f"stream: this worker has {_MOST} already", {"retry-after": "5"})
            await self._service.run(self._service.bandits.spec, name)
        except Exception as error:
            return refusal(error)
        return StreamingResponse(self._events(name, int(given)), media_type="text/event-stream")

    async def _events(self, name: str, position: int) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop()
        until, spoken = clock.time() + _LONGEST, clock.time()
        self._listeners[name] += 1
        try:
            yield b"retry: 1000\n\n"
            while clock.time() < until and not self._service.closing.is_set():
                rows = await self._service.run(self._service.bandits.store.events, name, position, _PAGE)
                for row in rows:
                    data = _ENCODER.encode(EventRow(row.n, row.at, msgspec.Raw(row.body)))
                    yield b"id: %d\ndata: %b\n\n" % (row.n, data)
                if rows:
                    position, spoken = rows[-1].n, clock.time()
                    continue
                await self._wait(name, position, min(until, spoken + _QUIET))
                if clock.time() >= spoken + _QUIET:
                    yield b": nothing new\n\n"
                    spoken = clock.time()
        finally:
            self._listeners[name] -= 1
            if not self._listeners[name]:
                del self._listeners[name]

    async def _wait(self, name: str, position: int, until: float) -> None:
        """Wait until there is a newer event."""
        clock = asyncio.get_running_loop()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        while not self._service.closing.is_set() and clock.time() < until:
            await self._looked.wait()
            if self._newest.get(name, 0) > position:
                return

    async def _look(self) -> None:
        """Look for new events repeatedly, as long as there are listeners."""
        while self._listeners and not self._service.closing.is_set():
            try:
                self._newest = await self._service.run(self._numbers, tuple(self._listeners))
            except Exception:  # the store is unavailable: streams notice when they read
                self._newest = dict.fromkeys(self._listeners, 2**63)
            self._wake()
            await asyncio.sleep(_PAUSE)
        self._wake()

    def _wake(self) -> None:
        """Wake all waiting streams; later ones wait for the next time."""
        looked, self._looked = self._looked, asyncio.Event()
        looked.set()

    def _numbers(self, names: tuple[str, ...]) -> dict[str, int]:
        store = self._service.bandits.store
        return {found.name: found.n for name in names for found in store.overview(name)}
