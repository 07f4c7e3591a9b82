"""The routes of webhooks: a task's webhook status, its delivery log, replays, and the secret that signs deliveries."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from weft import scraping
from weft.jobs.api import answers, bodies, cursors
from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.callers import asked_task, needs
from weft.jobs.api.openapi import Operation
from weft.jobs.service import JobService
from weft.jobs.webhooks.webhook_model import NOTHING, Delivery, event_id
from weft.jobs.webhooks.webhook_service import HookStatus


class WebhookRoutes:
    """Handlers of the webhook routes."""

    def __init__(self, service: JobService) -> None:
        self._hooks = service.webhooks

    def operations(self) -> list[Operation]:
        """The declared calls, with their handlers."""
        return [
            Operation(scraping.WEBHOOK, self.status, "webhooks"),
            Operation(scraping.DELIVERIES, self.deliveries, "webhooks"),
            Operation(scraping.REPLAY, self.replay, "webhooks"),
            Operation(scraping.WEBHOOK_SECRET, self.secret, "webhooks"),
        ]

    async def status(self, request: Request, _: scraping.NoQuery) -> Response:
        """The webhook's configuration, its progress and its last error."""
        return answers.json_answer(_webhook_body(await self._hooks.status(*asked_task(request, KeyScope.READ))))

    async def deliveries(self, request: Request, query: scraping.DeliveriesQuery) -> Response:
        """The delivery log in the order of the events; events without an attempt are not in it."""
        task_id, owner = asked_task(request, KeyScope.READ)
        after = cursors.position(task_id, query.cursor, NOTHING)
        deliveries = await self._hooks.deliveries(task_id, owner, after=after, limit=query.limit)
        more = None if deliveries.next_cursor is None else cursors.encode(task_id, deliveries.next_cursor)
        lines = [_delivery_entry(task_id, one) for one in deliveries.deliveries]
        return answers.json_answer({"deliveries": lines, "next_cursor": more})

    async def replay(self, request: Request, _: scraping.NoQuery) -> Response:
        """Sends events again with the same ids and bodies, in order; each is retried for a day, as the first time."""
        task_id, owner = asked_task(request, KeyScope.CONTROL)
        replayed = await self._hooks.replay(task_id, owner, **bodies.REPLAY.read(await request.body() or b"{}"))
        return answers.json_answer(_webhook_body(replayed), 202)

    async def secret(self, request: Request, _: scraping.NoQuery) -> Response:
        """The signing secret of the caller's API key."""
        caller = needs(request, KeyScope.SUBMIT)
        return answers.json_answer({"secret": await self._hooks.secret(caller.owner)})


def _webhook_body(status: HookStatus) -> dict[str, Any]:
    hook = status.hook
    return {
        "task_id": hook.task,
        "url": status.hook_spec.url,
        "events": status.hook_spec.events,
        "state": hook.state,
        "delivered_up_to": hook.cursor,
        "to_send_again": hook.resend,
        "failed_attempts": hook.attempts,
        "next_attempt_at": answers.moment(hook.next_at),
        "last_error": hook.last_error,
    }


def _delivery_entry(task_id: str, one: Delivery) -> dict[str, Any]:
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
