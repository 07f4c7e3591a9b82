"""Serves the calls that `weft.scraping` declares: binds each to its handler, checks its parameters, and writes the
OpenAPI document from the same declarations. The document lists every status that can occur."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import cleandoc
from typing import Any, is_typeddict

import msgspec
from msgspec import Struct
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from weft import __version__
from weft.jobs.api.bodies import quoted, wrong_fields
from weft.jobs.api.problems import MEDIA_TYPE, MOST_FIELDS, Refusal
from weft.jobs.checking import components_of, schemas_of, unknown, words_of
from weft.scraping import HEADERS, ApiCall, PageResult, Problem

Handler = Callable[[Request, Any], Awaitable[Response]]
Responses = dict[str, dict[str, Any]]
_SCHEMA_REF = "#/components/schemas/{name}"
_STATUS_TEXTS = {
    400: "Not HTTP as it should be, or not JSON.",
    401: "No API key, or none that is valid.",
    403: "The key lacks the scope; without keys: a foreign Host or Origin.",
    404: "There is no such task or site, or it is another key's.",
    405: "This route does not have that method.",
    408: "The body did not arrive in time.",
    409: "The state of the task or site, its name, or the idempotency key does not allow this.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "A field is not accepted: `errors` names it.",
    429: "Too many at once: again after `Retry-After` seconds.",
    500: "The service made a mistake.",
    503: "The engine does not answer now, or the disk is full: again after `Retry-After` seconds.",
}
_RETRY_HEADER = {"Retry-After": {"description": "seconds to wait", "schema": {"type": "integer", "minimum": 1}}}
_STATUSES_OF_ALL = (400, 401, 403, 405, 422, 500, 503)
_STATUSES_WITH_BODY = (408, 413, 415)
_PATH_PARAMETERS = {
    "task_id": "the `task_id` that the submit gave",
    "name": "the site's `name`",
}


class Operation(Struct, frozen=True):
    """A declared call with its handler; `headers` and the like of its answers, by status, beside those that all calls
    have."""

    call: ApiCall[Any]
    handler: Handler
    tag: str
    more: Responses = {}


class ApiPath:
    """The handlers of one path, by method."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._operations = {one.call.method: (one.handler, Query(one.call.query)) for one in operations}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request; a method that the path does not have is 405."""
        if scope["method"] not in self._operations:
            allowed = {"Allow": ", ".join(sorted(self._operations))}
            raise Refusal(405, "this route does not have that method", headers=allowed)
        handler, query = self._operations[scope["method"]]
        request = Request(scope, receive)
        response = await handler(request, query.read(request.query_params))
        await response(scope, receive, send)


class Query:
    """The query parameters of a call."""

    def __init__(self, kind: type[Struct]) -> None:
        self._type = kind
        schemas, components = schemas_of(kind)
        self._words = {name: words_of(schema, components) for name, schema in schemas.items()}
        self._types = {one.name: one.type for one in msgspec.structs.fields(kind)}

    def read(self, given: QueryParams) -> Struct:
        """The validated parameters of a request; raises Refusal, which names every wrong one."""
        values = dict(given)
        strange = [name for name in values if name not in self._types][:MOST_FIELDS]
        problems = {name[:200]: unknown(name, tuple(self._types)) for name in strange}
        for name, kind in self._types.items():
            if name in values:
                try:
                    values[name] = msgspec.convert(values[name], kind, strict=False)
                except msgspec.ValidationError:
                    problems[name] = f"{quoted(values[name])} is not accepted; use {self._words[name]}"
        if problems:
            raise wrong_fields(problems)
        return msgspec.convert(values, self._type)


def routes_of(operations: Sequence[Operation]) -> list[BaseRoute]:
    """A route for each path; literal paths come before those with a parameter in the same position."""
    paths = dict.fromkeys(one.call.path for one in operations)
    return [Route(path, ApiPath(one for one in operations if one.call.path == path)) for path in paths]


def document(operations: Sequence[Operation], components: Mapping[str, Any], *, has_keys: bool) -> dict[str, Any]:
    """The OpenAPI document of this service. `components`: schemas beside those of the calls."""
    kinds = [kind for one in operations for kind in (one.call.answer, one.call.body) if _is_json(kind)]
    _, schemas = components_of([Problem, PageResult, *kinds], _SCHEMA_REF)
    paths: dict[str, Any] = {}
    for one in operations:
        paths.setdefault(one.call.path, {})[one.call.method.lower()] = _describe_operation(one)
    for kind in filter(is_typeddict, kinds):
        schemas[kind.__name__]["additionalProperties"] = False
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Weft",
            "summary": "Scrapes in the background, and never lies about how far it is.",
            "version": __version__,
        },
        "paths": paths,
        "components": {"schemas": schemas | dict(components)},
    }
    if has_keys:
        document["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        document["security"] = [{"bearer": []}, {"header": []}]
    return document


def _is_json(kind: Any) -> bool:
    return kind not in (None, str, type(None))


def _describe_operation(one: Operation) -> dict[str, Any]:
    call = one.call
    operation: dict[str, Any] = {
        "tags": [one.tag],
        "summary": call.summary,
        "description": cleandoc(one.handler.__doc__ or ""),
        "operationId": call.name,
        "parameters": _describe_parameters(call),
        "responses": _describe_responses(call, one.more),
    }
    if call.body is not None:
        operation["requestBody"] = {"required": call.needs_body, "content": _describe_content(call.body)}
    return operation


def _describe_parameters(call: ApiCall[Any]) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = [
        {
            "name": name, "in": "path", "required": True, "description": _PATH_PARAMETERS[name],
            "schema": {"type": "string", "minLength": 1, "maxLength": 100},
        }
        for name in re.findall(r"{(\w+)}", call.path)
    ]  # fmt: skip
    _, queries = components_of([call.query], _SCHEMA_REF)
    for name, schema in queries[call.query.__name__]["properties"].items():
        about = {"description": schema.pop("description")} if "description" in schema else {}
        parameters.append({"name": name, "in": "query", "required": False, "schema": schema, **about})
    return parameters + [{"name": name, "in": "header", "required": False, **HEADERS[name]} for name in call.headers]


def _describe_responses(call: ApiCall[Any], more: Responses) -> Responses:
    has_body = call.method != "GET"
    responses: Responses = {str(call.status): {"description": call.said}}
    if _is_json(call.answer):
        responses[str(call.status)]["content"] = _describe_content(call.answer)
    for status in sorted({*_STATUSES_OF_ALL, *call.problems, *(_STATUSES_WITH_BODY if has_body else ())}):
        responses[str(status)] = {
            "description": _STATUS_TEXTS[status],
            "content": _describe_content(Problem, MEDIA_TYPE),
        }
        if status in (429, 503):
            responses[str(status)]["headers"] = _RETRY_HEADER
    for code, about in more.items():
        before = responses[code] if code == str(call.status) else {}
        responses[code] = {**before, **about, "content": {**before.get("content", {}), **about.get("content", {})}}
        if not responses[code]["content"]:
            del responses[code]["content"]
    return responses


def _describe_content(kind: Any, media_type: str = "application/json") -> dict[str, Any]:
    return {media_type: {"schema": {"$ref": _SCHEMA_REF.format(name=kind.__name__)}}}
