"""The outer format of Firecrawl's requests and answers: JSON bodies, errors, and the base URL for links."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from weft.jobs.api.problems import Refusal
from weft.jobs.compat.fields import BAD_REQUEST, Denied

_FORWARDED_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]{1,64}){1,8}")
_FIRECRAWL_PATH = re.compile(r"/v[12](/|\Z)")


def is_firecrawls(path: str) -> bool:
    """Whether a path is one of Firecrawl's routes, so that errors use Firecrawl's format."""
    return _FIRECRAWL_PATH.match(path) is not None


def body_of(raw: bytes) -> Any:
    """Parses a body as JSON; raises Denied (400) if it is not."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Denied(400, f"the body is not JSON: {error}", "BAD_REQUEST_INVALID_JSON") from None


def base_of(request: Request) -> str:
    """The base URL under which the caller reaches the service, for links in answers. Forwarded headers are trusted,
    because the answer goes only to their sender."""
    scheme = "https" if request.headers.get("x-forwarded-proto") == "https" else request.url.scheme
    prefix = request.headers.get("x-forwarded-prefix", "").rstrip("/")
    host = request.headers.get("host", "")
    return f"{scheme}://{host}{prefix if _FORWARDED_PREFIX.fullmatch(prefix) else ''}"


def enveloped(refusal: Refusal) -> Response:
    """An error in Firecrawl's format."""
    status = 400 if refusal.status == 422 else refusal.status
    body: dict[str, Any] = {"success": False, "error": refusal.detail}
    if code := getattr(refusal, "code", "") or (BAD_REQUEST if status == 400 else ""):
        body["code"] = code
    if refusal.errors:
        body["details"] = [{"path": field.split("."), "message": problem} for field, problem in refusal.errors]
    return Response(msgspec.json.encode(body), status, refusal.headers, "application/json")
