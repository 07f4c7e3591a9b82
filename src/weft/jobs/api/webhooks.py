"""The routes of webhooks: how a task's stands, its delivery log, sending again, the secret to check signatures with."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from weft.jobs.api import answers, cursors, schemas
from weft.jobs.api.callers import needs, task_owner
from weft.jobs.api.documented import answer, body_of, problems
from weft.jobs.api.keys import KeyScope
from weft.jobs.api.problems import Refusal, invalid_fields
from weft.jobs.service import JobService
from weft.jobs.webhooks.model import MOST_RESENT, NOTHING, Delivery, event_id
from weft.jobs.webhooks.service import HookStatus

Number = Annotated[int, Field(ge=NOTHING, le=2**62)]
TaskId = Annotated[str, Path(description="the `task_id` that the submit gave", min_length=1, max_length=100)]


class Webhook(BaseModel):
    """A task's webhook."""

    task_id: str
    url: str
    events: list[str]
    state: Annotated[str, Field(description="open, done, gone (the receiver answered 410) or given_up (after a day)")]
    delivered_up_to: Annotated[int, Field(description="the number of the last event that was delivered; -1: none yet")]
    to_send_again: Annotated[list[int], Field(description="numbers that a replay has asked for")]
    failed_attempts: Annotated[int, Field(ge=0, description="in a row")]
    next_attempt_at: str | None
    last_error: str


class WebhookDelivery(BaseModel):
    """What became of one event."""

    id: Annotated[str, Field(description="the `webhook-id` of every attempt")]
    number: int
    event: str
    attempts: int
    status: Annotated[int, Field(description="of the last attempt; 0: there was no answer")]
    error: str
    first_at: str
    last_at: str
    delivered_at: str | None


class WebhookDeliveries(BaseModel):
    """A stretch of the delivery log."""

    deliveries: list[WebhookDelivery]
    next_cursor: Annotated[str | None, Field(description="null when there is no more now")]


class WebhookSecret(BaseModel):
    """What the caller's deliveries are signed with."""

    secret: str


class WebhookReplay(BaseModel):
    """What to send again, with the ids it had. With neither: go on where the webhook has stopped."""

    model_config = ConfigDict(extra="forbid", strict=True)
    after: Annotated[Number | None, Field(description="everything behind this number; -1: everything")] = None
    numbers: Annotated[list[Number], Field(max_length=MOST_RESENT, description="these events alone")] = []


class DeliveriesQuery(BaseModel):
    """Which part of the log."""

    model_config = ConfigDict(extra="forbid")
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: Annotated[str | None, Field(max_length=100, description="`next_cursor` of the answer before")] = None


class WebhookRoutes:
    """Holds what the routes need."""

    def __init__(self, service: JobService) -> None:
        self._hooks = service.webhooks

    def router(self) -> APIRouter:
        """All of them."""
        router = APIRouter(prefix="/scraping", tags=["webhooks"], redirect_slashes=False)
        hook = "/tasks/{task_id}/webhook"
        router.add_api_route(
            hook, self.status, methods=["GET"], operation_id="webhook", summary="How far a task's webhook is",
            responses=answer(Webhook) | problems(404),
        )  # fmt: skip
        router.add_api_route(
            f"{hook}/deliveries", self.deliveries, methods=["GET"], operation_id="deliveries",
            summary="What became of each event", responses=answer(WebhookDeliveries) | problems(404),
        )  # fmt: skip
        router.add_api_route(
            f"{hook}/replay", self.replay, methods=["POST"], status_code=202, operation_id="replay",
            summary="Send events again", openapi_extra=body_of(WebhookReplay, required=False),
            responses=answer(Webhook, 202, "It is sent soon.") | problems(404, body=True),
        )  # fmt: skip
        router.add_api_route(
            "/webhook-secret", self.secret, methods=["GET"], operation_id="webhook_secret",
            summary="The secret to check signatures with", responses=answer(WebhookSecret) | problems(),
        )  # fmt: skip
        return router

    async def status(self, request: Request, task_id: TaskId, query: Annotated[schemas.NoQuery, Query()]) -> Response:  # noqa: ARG002
        """What was ordered, how far it is, and what the last error was."""
        owner = task_owner(request, task_id, KeyScope.READ)
        return answers.json_answer(_hook(await self._hooks.status(task_id, owner)))

    async def deliveries(
        self, request: Request, task_id: TaskId, query: Annotated[DeliveriesQuery, Query()]
    ) -> Response:
        """In the order of the events; those that were not tried yet are not in it."""
        owner = task_owner(request, task_id, KeyScope.READ)
        after = NOTHING
        if query.cursor is not None:
            try:
                after = cursors.decode(task_id, query.cursor)
            except cursors.BadCursor:
                raise Refusal.of_field("cursor", "is none that an answer about this task has given") from None
        found = await self._hooks.deliveries(task_id, owner, after=after, limit=query.limit)
        more = None if found.next_cursor is None else cursors.encode(task_id, found.next_cursor)
        lines = [_delivery(task_id, one) for one in found.deliveries]
        return answers.json_answer({"deliveries": lines, "next_cursor": more})

    async def replay(self, request: Request, task_id: TaskId, query: Annotated[schemas.NoQuery, Query()]) -> Response:  # noqa: ARG002
        """With the same ids and bodies, in order; each is tried for a day, as the first time."""
        owner = task_owner(request, task_id, KeyScope.CONTROL)
        wanted = _replay(await request.body())
        found = await self._hooks.replay(task_id, owner, after=wanted.after, numbers=wanted.numbers)
        return answers.json_answer(_hook(found), 202)

    async def secret(self, request: Request, query: Annotated[schemas.NoQuery, Query()]) -> Response:  # noqa: ARG002
        """Of this API key: every key has its own."""
        caller = needs(request, KeyScope.SUBMIT)
        return answers.json_answer({"secret": await self._hooks.secret(caller.owner)})


def _replay(body: bytes) -> WebhookReplay:
    try:
        return WebhookReplay.model_validate_json(body or b"{}")
    except ValidationError as error:
        found = error.errors(include_url=False)
    if found[0]["type"] == "json_invalid":
        raise Refusal.of_field("body", f"is no JSON: {found[0]['ctx']['error']}", 400)
    raise invalid_fields(found, {}, tuple(WebhookReplay.model_fields))


def _hook(found: HookStatus) -> dict[str, Any]:
    hook = found.hook
    return {
        "task_id": hook.task,
        "url": found.order.url,
        "events": found.order.events,
        "state": hook.state,
        "delivered_up_to": hook.cursor,
        "to_send_again": hook.resend,
        "failed_attempts": hook.attempts,
        "next_attempt_at": answers.moment(hook.next_at),
        "last_error": hook.last_error,
    }


def _delivery(task_id: str, one: Delivery) -> dict[str, Any]:
    return {
        "id": event_id(task_id, one.number),
        "number": one.number,
        "event": one.event,
        "attempts": one.attempts,
        "status": one.status,
        "error": one.error,
        "first_at": answers.moment(one.first_at),
        "last_at": answers.moment(one.last_at),
        "delivered_at": answers.moment(one.delivered_at),
    }
