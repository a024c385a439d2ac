"""From a request to a call: its role, its body, and its answer or error."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from undertow.serve.calls import Call
from undertow.serve.openapi import PATH_TYPES
from undertow.serve.problems import HttpError, headers_of, problem_of, uncapitalised
from undertow.serve.service import Service, header

__all__ = ["Endpoint", "refusal"]

_LOG = logging.getLogger("undertow.serve")
_ENCODER = msgspec.json.Encoder()
_LARGEST = 2**16  # bytes of a body


class Endpoint:
    """The calls under one path."""

    def __init__(self, service: Service, calls: Sequence[Call]) -> None:
        self._service = service
        self._calls = {call.method: call for call in calls}
        self._decoders = {call.method: msgspec.json.Decoder(call.takes) for call in calls if call.takes is not None}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            response = await self._answer(scope, receive)
        except Exception as error:
            response = refusal(error)
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        call = self._calls.get(method)
        if call is None:
            allowed = ", ".join(self._calls)
            raise HttpError(405, "method", f"method: expected {allowed}, got {method:.20}", {"allow": allowed})
        self._service.check_role(scope, call.role)
        given = _in_path(scope["path_params"]) | _in_query(call, scope["query_string"])
        body = await self._body(call, scope, receive)
        status, answer = await self._service.run(call.function, self._service.bandits, given, body)
        return Response(_ENCODER.encode(answer), status, media_type="application/json")

    async def _body(self, call: Call, scope: Scope, receive: Receive) -> Any:
        """Parse the body of a request, strict JSON, into its struct."""
        if call.method == "GET":
            return None
        content, kind = b"", (header(scope, b"content-type") or b"").partition(b";")[0].strip().lower()
        if kind == b"application/json" or not call.needs_body:
            content = await _read(receive)
        if call.takes is None:
            if content.strip() not in (b"", b"{}"):
                raise HttpError(422, "invalid", "body: this call takes none; omit it")
            return None
        if not call.needs_body and not content:
            return call.takes()
        if kind != b"application/json":
            raise HttpError(415, "media type", "content-type: expected application/json")
        return self._decoders[call.method].decode(content)


async def _read(receive: Receive) -> bytes:
    """Return a body, unless it is too large; its size is checked while it arrives."""
    content = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpError(400, "cut short", "body: the connection was closed before the end")
        content += message.get("body", b"")
        if len(content) > _LARGEST:
            close = {"connection": "close"}
            raise HttpError(413, "too large", f"body: expected at most {_LARGEST} bytes; split the call", close)
        if not message.get("more_body", False):
            return bytes(content)


def _in_path(given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {name: msgspec.convert(value, PATH_TYPES[name], strict=False) for name, value in given.items()}
    except msgspec.ValidationError as error:
        raise HttpError(404, "not found", f"path: there is nothing with this name ({error})") from error


def _in_query(call: Call, text: bytes) -> dict[str, Any]:
    """Return the parameters of a query; unknown ones are refused."""
    given = dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True))
    known = {each.name: each for each in call.query}
    found = {name: each.default for name, each in known.items()}
    for name, value in given.items():
        if name not in known:
            takes = ", ".join(known) or "none"
            raise HttpError(422, "invalid", f"{name:.40}: this call has no such parameter; it takes {takes}")
        try:
            found[name] = msgspec.convert(value, known[name].type, strict=False)
        except msgspec.ValidationError as error:
            raise HttpError(422, "invalid", f"{name}: {uncapitalised(str(error))}") from error
    return found


def refusal(error: Exception) -> Response:
    """Return the answer to a call that raised an error; log unexpected ones."""
    problem = problem_of(error)
    if problem.status == 500:
        _LOG.error("a call failed", exc_info=error)
    headers = headers_of(error)
    return Response(_ENCODER.encode(problem), problem.status, headers, "application/problem+json")
