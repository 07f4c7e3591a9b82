"""The answers of each route, for the OpenAPI document: every status that can occur is in it."""

from __future__ import annotations

from typing import Any

from weft.jobs.api.problems import MEDIA_TYPE

Responses = dict[int | str, dict[str, Any]]

_TEXTS = {
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
_RETRY = {"Retry-After": {"description": "seconds to wait", "schema": {"type": "integer", "minimum": 1}}}
_ALL = (400, 401, 403, 405, 422, 500, 503)
_WITH_BODY = (408, 413, 415)


def problems(*statuses: int, body: bool = False) -> Responses:
    """The errors of a route: those of all, and its own."""
    found: Responses = {}
    for status in sorted({*_ALL, *statuses, *(_WITH_BODY if body else ())}):
        found[status] = {
            "description": _TEXTS[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        if status in (429, 503):
            found[status]["headers"] = _RETRY
    return found


def answer(model: type, status: int = 200, description: str = "As asked for.", **more: Any) -> Responses:
    """The good answer of a route."""
    return {status: {"model": model, "description": description, **more}}


def body_of(model: type, *, required: bool = True) -> dict[str, Any]:
    """The body of a route that reads it by itself: within limits, and with our own messages."""
    reference = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": reference}}}}
