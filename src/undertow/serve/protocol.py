"""A deadline for receiving a request, which uvicorn's protocols lack.

Without one, a client that sends a header byte by byte can hold its connection forever.
"""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["Deadline"]


class Deadline(HttpToolsProtocol):
    """Closes connections whose request takes too long to arrive, and ends streams when the server stops."""

    seconds: ClassVar[float] = 10.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        """Note whether a request has arrived, or begins to."""
        before = self.cycle
        answers = before is not None and not before.response_complete
        super().data_received(data)
        is_request = self.cycle is not None and (answers or self.cycle is not before)
        if is_request and not self.cycle.more_body:
            self._end()
        elif self._deadline is None:
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._end()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Let streams end."""
        if (closing := self.app_state.get("closing")) is not None:
            closing.set()
        super().shutdown()

    def _begin(self) -> None:
        self._deadline = self.loop.call_later(self.seconds, self.transport.abort)

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
