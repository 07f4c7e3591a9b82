"""The page of a task's webhook: its progress, the result of each delivery, and replays."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.callers import asked_task, caller_of
from weft.jobs.api.problems import Refusal
from weft.jobs.dashboard import display, text
from weft.jobs.dashboard.board import Board
from weft.jobs.dashboard.pages import DashboardPages
from weft.jobs.errors import NoWebhook
from weft.jobs.service import JobService
from weft.jobs.webhooks.webhook_model import NOTHING, Delivery, HookState
from weft.jobs.webhooks.webhook_service import HookStatus

AT_ONCE = 50
_STATES = {
    HookState.OPEN: ("RUNNING", "Open"),
    HookState.DONE: ("COMPLETED", "All delivered"),
    HookState.GONE: ("FAILED", "The receiver has gone (410)"),
    HookState.GIVEN_UP: ("FAILED", "Given up after a day"),
}


class WebhookPages:
    """Handlers of the webhook pages."""

    def __init__(self, service: JobService, board: Board, pages: DashboardPages) -> None:
        self._hooks = service.webhooks
        self._board = board
        self._pages = pages

    async def show(self, request: Request) -> Response:
        """Renders the webhook and its delivery log."""
        task_id, owner = asked_task(request, KeyScope.READ)
        after = _read_number(request.query_params.get("after", ""), NOTHING)
        status = await self._board.status(task_id, owner)
        hook, deliveries = (
            await self._hooks.status(task_id, owner),
            await self._hooks.deliveries(task_id, owner, after=after, limit=AT_ONCE),
        )
        moment = await self._board.moment()
        return self._pages.page("webhook.html", caller_of(request), {
            "nav": "tasks", "task": status.task, "about": display.described(status.task, moment.at),
            "hook": hook_view(hook, moment.at),
            "rows": [_delivery_row(one, moment.at) for one in deliveries.deliveries],
            "next": deliveries.next_cursor, "is_first": after == NOTHING,
        })  # fmt: skip

    async def replay(self, request: Request) -> Response:
        """Sends again: one event, all of them, or the rest of a webhook that has stopped."""
        task_id, owner = asked_task(request, KeyScope.CONTROL)
        form = parse_qs((await request.body()).decode("utf-8", "replace"), max_num_fields=10)
        if "number" in form:
            await self._hooks.replay(task_id, owner, numbers=(_read_number(form["number"][-1], NOTHING),))
        else:
            await self._hooks.replay(task_id, owner, after=NOTHING if "all" in form else None)
        return RedirectResponse(f"/tasks/{task_id}/webhook", 303, {"Cache-Control": "no-store"})

    async def of_task(self, task_id: str, owner: str, now: float) -> dict[str, Any] | None:
        """The webhook for the task's own page; None if the task has none."""
        try:
            return hook_view(await self._hooks.status(task_id, owner), now)
        except NoWebhook:
            return None


def hook_view(status: HookStatus, now: float) -> dict[str, Any]:
    """The progress of a webhook, without its headers, which may hold secrets."""
    hook_spec, hook = status.hook_spec, status.hook
    state, label = _STATES[hook.state]
    host, path = text.split_url(hook_spec.url)
    return {
        "host": host, "path": path, "events": ", ".join(hook_spec.events), "state": state, "label": label,
        "is_stopped": hook.state in (HookState.GONE, HookState.GIVEN_UP), "attempts": hook.attempts,
        "again": text.duration(max(0.0, hook.next_at - now)) if hook.next_at is not None else "",
        "error": text.one_line(hook.last_error, 300), "resend": len(hook.resend),
        "is_open": hook.state is HookState.OPEN or bool(hook.resend),
    }  # fmt: skip


def _delivery_row(one: Delivery, now: float) -> dict[str, Any]:
    error = one.error.removeprefix(f"HTTP {one.status}").removeprefix(": ")  # the status has a column of its own
    return {
        "number": one.number, "event": str(one.event), "attempts": one.attempts, "status": one.status or "–",
        "error": text.one_line(error, 200), "is_bad": not 200 <= one.status < 300,
        "is_delivered": one.delivered_at is not None,
        "at": text.machine_time(one.last_at), "clock": text.clock(one.last_at), "ago": text.ago(one.last_at, now),
    }  # fmt: skip


def _read_number(given: str, empty: int) -> int:
    if not given:
        return empty
    if not (given.isascii() and given.removeprefix("-").isdigit() and len(given) < 18):
        raise Refusal.of_field("number", f"{given[:40]!r} is not the number of an event")
    return int(given)
