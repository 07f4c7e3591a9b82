"""Errors as callers receive them: `application/problem+json` (RFC 9457), with one entry for each wrong field.

Routes raise `Refusal`; `problem_of` converts every other expected error into one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from weft.errors import BadInput, Damaged, DiskFull, ServerAway, ServerFull, WeftError
from weft.jobs.errors import (
    EngineAway,
    KeyReused,
    NoWebhook,
    QueueFull,
    SiteConflict,
    SiteUnknown,
    StoreDamaged,
    TaskFinished,
    TaskUnknown,
)
from weft.store.errors import StoreError

MEDIA_TYPE = "application/problem+json"
MOST_FIELDS = 100  # at most this many fields are named in one answer
_PHRASES = {status.value: status.phrase for status in HTTPStatus} | {
    413: "Content Too Large",
    422: "Unprocessable Content",
}


class Refusal(Exception):
    """An error answer. `errors`: the wrong fields, as (field, what is wrong with it)."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Sequence[tuple[str, str]] = (),
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after_s)))

    @classmethod
    def of_field(cls, field: str, detail: str, status: int = 422) -> Refusal:
        """The error for one wrong field."""
        return cls(status, f"{field}: {detail}", errors=[(field, detail)])

    def response(self) -> Response:
        """The HTTP response for this error."""
        body: dict[str, Any] = {
            "type": "about:blank",
            "title": phrase(self.status),
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            body["errors"] = [{"field": field, "detail": detail} for field, detail in self.errors]
        return Response(msgspec.json.encode(body), self.status, self.headers, MEDIA_TYPE)


def phrase(status: int) -> str:
    """The reason phrase of a status."""
    return _PHRASES.get(status, "Error")


def problem_of(error: WeftError) -> Refusal:
    """The error answer for an error that the service raises."""
    message = str(error)  # Messages that may name files of the server are replaced below; the log has them.
    match error:
        case TaskUnknown() | NoWebhook() | SiteUnknown():
            return Refusal(404, message)
        case TaskFinished() | KeyReused() | SiteConflict():
            return Refusal(409, message)
        case QueueFull():
            return Refusal(429, message, retry_after_s=error.retry_after_s)
        case EngineAway():
            return Refusal(503, "the engine does not answer now: try again later", retry_after_s=error.retry_after_s)
        case DiskFull():
            return Refusal(503, "the service's disk is full: try again later", retry_after_s=30)
        case ServerAway() | ServerFull():
            return Refusal(503, "the service cannot store anything now: try again later", retry_after_s=30)
        case StoreDamaged() | Damaged() | StoreError():
            return Refusal(500, "what the service has stored is damaged: its operator finds in its log what to do")
        case BadInput():
            return Refusal(422, message)
    return Refusal(500, "internal error: see the service's log")
