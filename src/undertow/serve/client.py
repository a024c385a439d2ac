"""A client of the service, which repeats every call until it is answered."""

import asyncio
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx
import msgspec
import numpy.typing as npt
from msgspec import UNSET, UnsetType

from undertow.errors import (
    InvalidInputError,
    OutOfTurnError,
    StoreUnavailableError,
    UndertowError,
    UnknownDecisionError,
)
from undertow.serve import answers, bodies

__all__ = ["AsyncClient", "Client"]

T = TypeVar("T", bound=msgspec.Struct)
_AGAIN = (429, 502, 503, 504)
_FIRST, _LONGEST = 0.05, 2.0  # seconds of the first pause, which doubles, and of the longest one
_ENCODE = msgspec.json.Encoder().encode
_JSON = {"content-type": "application/json"}


class _Request(NamedTuple, Generic[T]):
    """A call: method, path, body, and type of the answer."""

    method: str
    path: str
    body: msgspec.Struct | None
    answer: type[T]


def _path(*parts: str) -> str:
    return "/v1/bandits/" + "/".join(quote(part, safe="") for part in parts)


def _create(name: str, policy: str, arms: Sequence[str], parameters: Mapping[str, Any]) -> _Request[answers.Created]:
    body = bodies.Create(policy=policy, arms=list(arms), parameters=dict(parameters))
    return _Request("PUT", _path(name), body, answers.Created)


def _decide(
    name: str, features: Any, context: Any, available: Any, id: str | None, **how: Any
) -> _Request[answers.Decision]:
    body = bodies.Decide(
        id=uuid4().hex if id is None else id,  # without one, a repeated call would make another decision
        features=None if features is None else _listed(features),
        context=context if context is UNSET or context is None else _listed(context),
        available=None if available is None else list(available),
        **how,
    )
    return _Request("POST", _path(name, "decisions"), body, answers.Decision)


def _reward(name: str, decision: Any, value: float, context: Any) -> _Request[answers.Rewarded]:
    given = context if context is UNSET or context is None else _listed(context)
    body = bodies.Reward(reward=float(value), context=given)
    return _Request("PUT", _path(name, "decisions", _id(decision), "reward"), body, answers.Rewarded)


def _observe(name: str, round: int, context: Any) -> _Request[answers.Observed]:
    body = bodies.Context(context=None if context is None else _listed(context))
    return _Request("PUT", _path(name, "rounds", str(round), "context"), body, answers.Observed)


def _id(decision: answers.Decision | str) -> str:
    return decision if isinstance(decision, str) else decision.id


def _listed(values: Any) -> Any:
    """Return an array as lists; names stay."""
    if isinstance(values, Mapping):
        return {name: _listed(row) if isinstance(row, Mapping) else row for name, row in values.items()}
    return values.tolist() if hasattr(values, "tolist") else [_listed(v) if isinstance(v, list) else v for v in values]


class _Base:
    """Shared by both clients: the address, the token, and the retries."""

    def __init__(self, url: str, *, token: str | None = None, patience: float = 30.0) -> None:
        token = os.environ.get("UNDERTOW_TOKEN") if token is None else token
        self._settings: dict[str, Any] = {
            "base_url": url,
            "headers": {} if token is None else {"authorization": f"Bearer {token}"},
            "timeout": httpx.Timeout(15.0, connect=5.0),
        }
        self._patience = patience

    def _pauses(self) -> Iterator[float]:
        """Yield the pauses between attempts: longer each time, and random, so that clients do not retry together."""
        until, longest = time.monotonic() + self._patience, _FIRST
        while time.monotonic() < until:
            yield longest * random.uniform(0.5, 1.0)
            longest = min(2 * longest, _LONGEST)


def _given_up(request: _Request[Any], last: httpx.Response | httpx.TransportError) -> UndertowError:
    why = str(last) or type(last).__name__ if isinstance(last, Exception) else _problem(last).detail
    return StoreUnavailableError(
        f"service: {request.method} {request.path} was not answered ({why}); whether it happened is unknown. "
        f"Repeat it with the same id",
        happened=None,
    )


def _answer(request: _Request[T], response: httpx.Response) -> T:
    """Return the answer, or raise the error in it."""
    if response.is_success:
        return msgspec.json.decode(response.content, type=request.answer)
    problem = _problem(response)
    kind = problem.type.rpartition(":")[2]
    if kind == "out-of-turn":
        raise OutOfTurnError(problem.detail)
    if kind in ("unknown", "repeated", "different", "defaulted", "forgotten", "late"):
        raise UnknownDecisionError(problem.detail, kind)
    if problem.status in (404, 409, 413, 415, 422):
        raise InvalidInputError(problem.detail)
    raise UndertowError(f"service: {problem.status} {problem.title}: {problem.detail}")


def _problem(response: httpx.Response) -> answers.Problem:
    try:
        return msgspec.json.decode(response.content, type=answers.Problem)
    except msgspec.DecodeError:
        return answers.Problem("", response.reason_phrase, response.status_code, response.text[:200])


class Client(_Base):
    """A client of `undertow serve`.

    Every call is repeated, with the same id and growing pauses, until it is answered or `patience` is over. Refusals
    raise the errors of a policy: `InvalidInputError`, `OutOfTurnError`, `UnknownDecisionError`.

    Parameters
    ----------
    url
        Address of the service.
    token
        Its token, by default that of the environment variable UNDERTOW_TOKEN.
    patience
        Seconds after which `StoreUnavailableError` is raised.
    """

    def __init__(self, url: str, *, token: str | None = None, patience: float = 30.0) -> None:
        super().__init__(url, token=token, patience=patience)
        self._http = httpx.Client(**self._settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _send(self, request: _Request[T]) -> T:
        content = None if request.body is None else _ENCODE(request.body)
        last: httpx.Response | httpx.TransportError = httpx.ConnectError("no time to connect")
        for pause in self._pauses():
            try:
                last = self._http.request(request.method, request.path, content=content, headers=_JSON)
            except httpx.TransportError as error:
                last = error
            else:
                if last.status_code not in _AGAIN:
                    return _answer(request, last)
            time.sleep(pause)
        raise _given_up(request, last)

    def create(self, name: str, policy: str, arms: Sequence[str], **parameters: Any) -> answers.Created:
        """Create a bandit; a repeated call changes nothing."""
        return self._send(_create(name, policy, arms, parameters))

    def decide(
        self,
        name: str,
        features: npt.ArrayLike | Mapping[str, Any] | None = None,
        *,
        context: Sequence[float | None] | Mapping[str, Any] | UnsetType | None = UNSET,
        available: Sequence[str] | None = None,
        id: str | None = None,
        elapsed: int = 1,
        at: datetime | None = None,
        subject: str | None = None,
        sticky: str | int | None = None,
    ) -> answers.Decision:
        """Decide a round; the client generates an id unless you pass one."""
        return self._send(
            _decide(name, features, context, available, id, elapsed=elapsed, at=at, subject=subject, sticky=sticky)
        )

    def reward(
        self,
        name: str,
        decision: answers.Decision | str,
        value: float,
        *,
        context: Sequence[float | None] | Mapping[str, Any] | UnsetType | None = UNSET,
    ) -> answers.Rewarded:
        """Learn the reward of a decision or of its id, and the context of its round if it comes with it."""
        return self._send(_reward(name, decision, value, context))

    def observe(
        self, name: str, round: int, context: Sequence[float | None] | Mapping[str, Any] | None
    ) -> answers.Observed:
        """Observe the context of a round; None if it is missing."""
        return self._send(_observe(name, round, context))

    def look_up(self, name: str, decision: answers.Decision | str) -> answers.Decision:
        """Return any decision, with its reward."""
        return self._send(_Request("GET", _path(name, "decisions", _id(decision)), None, answers.Decision))

    def state(self, name: str) -> answers.Bandit:
        """Return a bandit: arms, rounds, health, models and forecast."""
        return self._send(_Request("GET", _path(name), None, answers.Bandit))

    def pin(self, name: str, arm: str, *, learn: bool = True) -> answers.Pinned:
        """Play an arm until further notice; without `learn`, rewards of these decisions are not learned."""
        return self._send(_Request("PUT", _path(name, "pin", arm), bodies.Pin(learn=learn), answers.Pinned))

    def unpin(self, name: str, arm: str) -> answers.Pinned:
        """Let the policy choose again."""
        return self._send(_Request("DELETE", _path(name, "pin", arm), None, answers.Pinned))

    def set_costs(self, name: str, costs: Mapping[str, float]) -> answers.Costed:
        """Set the cost of playing some arms, from the next decision on."""
        return self._send(_Request("PUT", _path(name, "costs"), bodies.Costs(costs=dict(costs)), answers.Costed))


class AsyncClient(_Base):
    """A client for asynchronous programs, with the calls of `Client`."""

    def __init__(self, url: str, *, token: str | None = None, patience: float = 30.0) -> None:
        super().__init__(url, token=token, patience=patience)
        self._http = httpx.AsyncClient(**self._settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _send(self, request: _Request[T]) -> T:
        content = None if request.body is None else _ENCODE(request.body)
        last: httpx.Response | httpx.TransportError = httpx.ConnectError("no time to connect")
        for pause in self._pauses():
            try:
                last = await self._http.request(request.method, request.path, content=content, headers=_JSON)
            except httpx.TransportError as error:
                last = error
            else:
                if last.status_code not in _AGAIN:
                    return _answer(request, last)
            await asyncio.sleep(pause)
        raise _given_up(request, last)

    async def create(self, name: str, policy: str, arms: Sequence[str], **parameters: Any) -> answers.Created:
        """Create a bandit; a repeated call changes nothing."""
        return await self._send(_create(name, policy, arms, parameters))

    async def decide(
        self,
        name: str,
        features: npt.ArrayLike | Mapping[str, Any] | None = None,
        *,
        context: Sequence[float | None] | Mapping[str, Any] | UnsetType | None = UNSET,
        available: Sequence[str] | None = None,
        id: str | None = None,
        elapsed: int = 1,
        at: datetime | None = None,
        subject: str | None = None,
        sticky: str | int | None = None,
    ) -> answers.Decision:
        """Decide a round; the client generates an id unless you pass one."""
        return await self._send(
            _decide(name, features, context, available, id, elapsed=elapsed, at=at, subject=subject, sticky=sticky)
        )

    async def reward(
        self,
        name: str,
        decision: answers.Decision | str,
        value: float,
        *,
        context: Sequence[float | None] | Mapping[str, Any] | UnsetType | None = UNSET,
    ) -> answers.Rewarded:
        """Learn the reward of a decision or of its id, and the context of its round if it comes with it."""
        return await self._send(_reward(name, decision, value, context))

    async def observe(
        self, name: str, round: int, context: Sequence[float | None] | Mapping[str, Any] | None
    ) -> answers.Observed:
        """Observe the context of a round; None if it is missing."""
        return await self._send(_observe(name, round, context))

    async def look_up(self, name: str, decision: answers.Decision | str) -> answers.Decision:
        """Return any decision, with its reward."""
        return await self._send(_Request("GET", _path(name, "decisions", _id(decision)), None, answers.Decision))

    async def state(self, name: str) -> answers.Bandit:
        """Return a bandit: arms, rounds, health, models and forecast."""
        return await self._send(_Request("GET", _path(name), None, answers.Bandit))

    async def pin(self, name: str, arm: str, *, learn: bool = True) -> answers.Pinned:
        """Play an arm until further notice; without `learn`, rewards of these decisions are not learned."""
        return await self._send(_Request("PUT", _path(name, "pin", arm), bodies.Pin(learn=learn), answers.Pinned))

    async def unpin(self, name: str, arm: str) -> answers.Pinned:
        """Let the policy choose again."""
        return await self._send(_Request("DELETE", _path(name, "pin", arm), None, answers.Pinned))

    async def set_costs(self, name: str, costs: Mapping[str, float]) -> answers.Costed:
        """Set the cost of playing some arms, from the next decision on."""
        return await self._send(_Request("PUT", _path(name, "costs"), bodies.Costs(costs=dict(costs)), answers.Costed))
