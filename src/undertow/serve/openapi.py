"""The OpenAPI document, generated from the calls and the structs of their bodies and answers."""

import inspect
import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from undertow.serve import answers, bodies
from undertow.serve.calls import Call

__all__ = ["PATH_TYPES", "document"]

PATH_TYPES: dict[str, Any] = {"name": bodies.Name, "id": bodies.Id, "arm": bodies.Name, "t": bodies.Count}
_ABOUT = {
    "name": "The bandit.",
    "id": "The decision's id.",
    "arm": "The arm's name.",
    "t": "The round, counted from 0.",
}
_REF = "#/components/schemas/{name}"
_REFUSED = {
    400: "The request is not HTTP as expected.",
    401: "A token is needed: `Authorization: Bearer …`.",
    403: "The role of the token does not allow this.",
    404: "There is no such bandit, arm or decision.",
    409: "The call contradicts the bandit's state.",
    410: "The reward comes too late.",
    413: "The body is too large.",
    415: "The body must be `application/json`.",
    421: "This host is not served here.",
    422: "The input is invalid; `field` says where.",
    503: "The store is busy or cannot be reached; repeat the call after `Retry-After` seconds.",
}
_ANYTIME = (401, 403, 421, 503)


def document(calls: Sequence[Call], path: str = "") -> dict[str, Any]:
    """Return the OpenAPI document of some calls, under a path."""
    takes = [call.takes for call in calls if call.takes is not None]
    given = [answer for call in calls for answer, _ in call.answers.values()]
    parts = list(dict.fromkeys([*takes, *given, answers.Problem]))
    _, components = msgspec.json.schema_components(parts, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for call in calls:
        place = re.sub(r":\w+}", "}", call.path)
        paths.setdefault(path + place, {})[call.method.lower()] = _operation(call, place)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "undertow",
            "version": version("undertow"),
            "description": "Decisions by bandits whose rewards drift. A call that was answered is in the database.",
        },
        "paths": paths,
        "components": {
            "schemas": {name: _described(schema) for name, schema in components.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(call: Call, place: str) -> dict[str, Any]:
    summary, _, more = inspect.cleandoc(call.function.__doc__ or "").partition("\n\n")
    parameters = [
        {"name": name, "in": "path", "required": True, "description": _ABOUT[name], "schema": _schema(PATH_TYPES[name])}
        for name in re.findall(r"{(\w+)}", place)
    ]
    parameters += [
        {
            "name": each.name,
            "in": "query",
            "required": False,
            "description": each.description,
            "schema": _schema(each.type) | {"default": each.default},
        }
        for each in call.query
    ]
    operation: dict[str, Any] = {
        "operationId": call.function.__name__,
        "summary": summary,
        "description": f"{more}\n\nNeeds the role {call.role}.".strip(),
        "parameters": parameters,
        "responses": _responses(call),
        "security": [{"token": []}, {}],
    }
    if call.takes is not None:
        operation["requestBody"] = {
            "required": call.needs_body,
            "content": {"application/json": {"schema": _ref(call.takes)}},
        }
    return operation


def _responses(call: Call) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, (answer, said) in call.answers.items():
        found[str(status)] = {"description": said, "content": {"application/json": {"schema": _ref(answer)}}}
    more = (400, 413, 415) if call.takes is not None else (400,)
    for status in sorted({*call.refuses, *_ANYTIME, *more}):
        content = {"application/problem+json": {"schema": _ref(answers.Problem)}}
        found[str(status)] = {"description": _REFUSED[status], "content": content}
    return found


def _ref(struct: type) -> dict[str, str]:
    return {"$ref": _REF.format(name=struct.__name__)}


def _schema(kind: Any) -> dict[str, Any]:
    return dict(msgspec.json.schema(kind))


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose fields are described by the docstring's table of attributes."""
    text = inspect.cleandoc(schema.get("description", ""))
    intro, _, table = text.partition("Attributes\n----------\n")
    for names, said in re.findall(r"^(\w[\w, ]*)\n((?:    .*(?:\n|$))+)", table, re.M):
        for name in names.split(", "):
            field = schema["properties"].get(name)
            if field is not None and "$ref" not in field:
                field["description"] = " ".join(said.split())
    return schema | {"description": intro.strip()}
