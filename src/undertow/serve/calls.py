"""The calls of the service: their paths, roles, parameters, bodies and answers.

The routes and the OpenAPI document are generated from this table.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from undertow.serve import actions, answers, bodies
from undertow.serve.actions import Answer, Path
from undertow.serve.bandits import Bandits
from undertow.serve.tokens import Role

__all__ = ["CALLS", "Call", "Parameter"]


class Parameter(NamedTuple):
    """A parameter of the query: its name, type, default and description."""

    name: str
    type: Any
    default: Any
    description: str


class Call(NamedTuple):
    """A call: its method and path, the least role that may make it, the function, its body and its answers."""

    method: str
    path: str
    role: Role
    function: Callable[[Bandits, Path, Any], Answer]
    takes: type[msgspec.Struct] | None
    answers: Mapping[int, tuple[type[msgspec.Struct], str]]
    refuses: tuple[int, ...] = (404, 422)
    query: tuple[Parameter, ...] = ()

    @property
    def needs_body(self) -> bool:
        """Whether the body has required fields, or a form could make the call without one."""
        fields = () if self.takes is None else msgspec.structs.fields(self.takes)
        return self.method == "POST" or any(field.required for field in fields)


_BANDIT = "/v1/bandits/{name}"
_AFTER = Parameter("after", str, "", "The name after which the page begins.")
_NUMBER = Parameter("after", bodies.Count, 0, "The number after which the page begins.")
_EVENTS = Parameter("events", bodies.Count, 10_000, "Number of newest events to read.")
_POINTS = Parameter("points", bodies.Points, 2000, "About the maximum number of rows.")
_FIGURES = Parameter("figures", bool, False, "Whether to open each bandit and return its figures.")
_MOST = Parameter("most", bodies.Page, 100, "Maximum number.")

CALLS = (
    Call(
        "POST",
        f"{_BANDIT}/decisions",
        "play",
        actions.decide,
        bodies.Decide,
        {201: (answers.Decision, "A new decision."), 200: (answers.Decision, "The decision that was made before.")},
        (404, 409, 422),
    ),
    Call(
        "PUT",
        f"{_BANDIT}/decisions/{{id:path}}/reward",
        "play",
        actions.reward,
        bodies.Reward,
        {200: (answers.Rewarded, "Learned, now or before.")},
        (404, 409, 410, 422),
    ),
    Call(
        "PUT",
        f"{_BANDIT}/rounds/{{t}}/context",
        "play",
        actions.observe,
        bodies.Context,
        {200: (answers.Observed, "Observed, now or before.")},
        (404, 409, 422),
    ),
    Call(
        "POST",
        f"{_BANDIT}/skips",
        "play",
        actions.skip,
        bodies.Skip,
        {200: (answers.Observed, "The rounds have passed.")},
        (404, 409, 422),
    ),
    Call(
        "GET",
        f"{_BANDIT}/decisions/{{id:path}}",
        "read",
        actions.look_up,
        None,
        {200: (answers.Decision, "The decision, and its reward if that has come.")},
    ),
    Call(
        "GET",
        f"{_BANDIT}/events",
        "read",
        actions.events,
        None,
        {200: (answers.EventPage, "Events.")},
        query=(_NUMBER, _MOST),
    ),
    Call(
        "GET",
        f"{_BANDIT}/history",
        "read",
        actions.history,
        None,
        {200: (answers.History, "Columns.")},
        query=(_EVENTS, _POINTS),
    ),
    Call(
        "GET",
        "/v1/bandits",
        "read",
        actions.overview,
        None,
        {200: (answers.BanditPage, "Bandits.")},
        (422,),
        (_AFTER, _MOST, _FIGURES),
    ),
    Call("GET", _BANDIT, "read", actions.state, None, {200: (answers.Bandit, "The bandit.")}),
    Call(
        "PUT",
        _BANDIT,
        "admin",
        actions.create,
        bodies.Create,
        {201: (answers.Created, "The bandit is new."), 200: (answers.Created, "It was there before.")},
        (404, 409, 422),
    ),
    Call(
        "PUT",
        f"{_BANDIT}/arms/{{arm:path}}",
        "admin",
        actions.add_arm,
        None,
        {201: (answers.Arms, "The arm is played from now on."), 200: (answers.Arms, "It was played before.")},
        (404, 409, 422),
    ),
    Call(
        "DELETE",
        f"{_BANDIT}/arms/{{arm:path}}",
        "admin",
        actions.retire_arm,
        None,
        {200: (answers.Arms, "The arm is no longer played.")},
        (404, 409, 422),
    ),
    Call(
        "PUT",
        f"{_BANDIT}/pin/{{arm:path}}",
        "admin",
        actions.pin,
        bodies.Pin,
        {200: (answers.Pinned, "Every decision is this arm.")},
        (404, 409, 422),
    ),
    Call(
        "DELETE",
        f"{_BANDIT}/pin/{{arm:path}}",
        "admin",
        actions.unpin,
        None,
        {200: (answers.Pinned, "The policy chooses again.")},
        (404, 409, 422),
    ),
    Call(
        "PUT",
        f"{_BANDIT}/costs",
        "admin",
        actions.set_costs,
        bodies.Costs,
        {200: (answers.Costed, "The costs apply from the next decision on.")},
    ),
)
