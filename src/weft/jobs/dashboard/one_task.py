"""A task's own page: progress, history, pages, errors and log; and the actions pause, resume, cancel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.callers import asked_task, caller_of
from weft.jobs.api.problems import Refusal
from weft.jobs.api.routes.exporting import MEDIA_TYPES, export
from weft.jobs.api.settings import ApiSettings
from weft.jobs.dashboard import display
from weft.jobs.dashboard.board import Board
from weft.jobs.dashboard.deliveries import WebhookPages
from weft.jobs.dashboard.door import Visitor
from weft.jobs.dashboard.logs import lines_about
from weft.jobs.dashboard.pages import DashboardPages
from weft.jobs.errors import TaskFinished, TaskUnknown
from weft.jobs.model import Task
from weft.jobs.service import JobService, ScrapedResult
from weft.scraping import ErrorClass

AT_ONCE = 50
FORMATS = {"jsonl": "JSON lines", "csv": "CSV", "markdown": "Markdown"}  # formats whose parts can be concatenated
MOST_CHARACTERS = 200_000  # The characters that are shown of one format of a page's content.
STRETCH = 200
_KINDS = {"": ("page", "error"), "page": ("page",), "error": ("error",)}


class TaskPages:
    """Handlers of a task's pages."""

    def __init__(
        self, service: JobService, board: Board, pages: DashboardPages, settings: ApiSettings, hooks: WebhookPages
    ) -> None:
        self._service = service
        self._hooks = hooks
        self._board = board
        self._pages = pages
        self._settings = settings

    async def show(self, request: Request) -> Response:
        """Renders the task's page."""
        visitor, task_id = _requested_task(request, KeyScope.READ)
        status = await self._board.status(task_id, visitor.owner)
        view, states, lines = await asyncio.gather(
            self._board.task(task_id, visitor.owner),
            self._service.latest(task_id, limit=AT_ONCE, kinds=("state",)),
            asyncio.to_thread(lines_about, self._settings.log_dir, task_id),
        )
        moment, task = await self._board.moment(), status.task
        return self._pages.page("task.html", visitor, {
            "nav": "tasks", "task": task, "view": view, "about": display.described(task, moment.at), "moment": moment,
            "order": _options_of(task), "formats": FORMATS, "lines": lines, "labels": display.LABELS,
            "states": [display.event(event, moment.at) for event in reversed(states.events)],
            "hook": await self._hooks.of_task(task_id, visitor.owner, moment.at),
        })  # fmt: skip

    async def rows(self, request: Request) -> Response:
        """Renders the task's pages and errors, newest first."""
        visitor, task_id = _requested_task(request, KeyScope.READ)
        kind, error_class = request.query_params.get("kind", ""), request.query_params.get("class", "")
        before = request.query_params.get("before", "")
        if kind not in _KINDS or (error_class and error_class not in set(ErrorClass)):
            raise Refusal(422, f"kind: use page or error; class: one of {', '.join(ErrorClass)}")
        if before and not (before.isascii() and before.isdigit() and len(before) < 18):
            raise Refusal.of_field("before", "is not the number of an event")
        status = await self._board.status(task_id, visitor.owner)
        latest = await self._service.latest(
            task_id, limit=AT_ONCE, before=int(before) if before else None, kinds=_KINDS[kind], error_class=error_class
        )
        chosen = {"kind": kind, "class": error_class}
        moment = await self._board.moment()
        older = urlencode({name: value for name, value in chosen.items() if value} | {"before": latest.before})
        return self._pages.page("rows.html", visitor, {
            "nav": "tasks", "task": status.task, "about": display.described(status.task, moment.at), "chosen": chosen,
            "rows": [display.event(event, moment.at) for event in latest.events], "moment": moment,
            "classes": display.CLASSES, "is_first": not before,
            "older": f"/tasks/{task_id}/pages?{older}" if latest.before else "",
        })  # fmt: skip

    async def page(self, request: Request) -> Response:
        """Renders one stored page: its title, its status, and its content in the task's formats, as text."""
        visitor, task_id = _requested_task(request, KeyScope.READ)
        result = await self._requested_result(request)
        status = await self._board.status(task_id, visitor.owner)
        moment = await self._board.moment()
        return self._pages.page("page.html", visitor, {
            "nav": "tasks", "task": status.task, "about": display.described(status.task, moment.at),
            "page": display.page(result, moment.at, MOST_CHARACTERS), "formats": FORMATS.items(),
        })  # fmt: skip

    async def picture(self, request: Request) -> Response:
        """What a browser has made of a page: its picture, those that its actions have taken, its PDF."""
        pictures = display.pictures(await self._requested_result(request))
        kind, content = pictures.get(str(request.path_params["picture"]), ("", b""))
        if not content:
            raise Refusal(404, "the page has no such picture")
        return Response(content, media_type=kind, headers={"Cache-Control": "private, no-store"})

    async def _requested_result(self, request: Request) -> ScrapedResult:
        """The page that a request names."""
        visitor, task_id = _requested_task(request, KeyScope.READ)
        given = str(request.path_params["number"])
        if not (given.isascii() and given.isdigit() and len(given) < 18):
            raise Refusal(404, "there is no such page")
        found = await self._service.results(task_id, visitor.owner, cursor=max(0, int(given) - 1), limit=1)
        result = next((one for one in found.results if one.number == int(given)), None)
        if result is None:
            raise Refusal(404, "the task has stored no page of this number")
        return result

    async def results(self, request: Request) -> Response:
        """Sends all results as a file."""
        visitor, task_id = _requested_task(request, KeyScope.READ)
        wanted = request.query_params.get("format", "jsonl")
        if wanted not in FORMATS:
            raise Refusal.of_field("format", f"use one of {', '.join(FORMATS)}")
        task = (await self._service.status(task_id, visitor.owner)).task
        headers = {"Cache-Control": "no-store", "Content-Disposition": f'attachment; filename="{task_id}.{wanted}"'}
        return StreamingResponse(self._result_parts(task, wanted), 200, headers, MEDIA_TYPES[wanted])

    async def _result_parts(self, task: Task, wanted: str) -> AsyncGenerator[bytes, None]:
        after: int | None = 0
        while after is not None:
            results = await self._service.results(task.id, cursor=after, limit=STRETCH)
            piece = await export(task, results, wanted, include_errors=False, is_first=not after)
            yield bytes(piece.body)
            after = results.next_cursor

    async def pause(self, request: Request) -> Response:
        """Pauses the task: RUNNING → PAUSED."""
        return await self._change_task(request, self._service.pause)

    async def resume(self, request: Request) -> Response:
        """Resumes the task: PAUSED → RUNNING."""
        return await self._change_task(request, self._service.resume)

    async def cancel(self, request: Request) -> Response:
        """Cancels the task."""
        return await self._change_task(request, self._service.cancel)

    async def _change_task(self, request: Request, doing: Callable[[str, str], Awaitable[Task]]) -> Response:
        visitor, task_id = _requested_task(request, KeyScope.CONTROL)
        try:
            await doing(task_id, visitor.owner)
        except TaskFinished:
            pass  # it ended after the page with the button was rendered: its page shows that now
        self._board.forget()
        return RedirectResponse(f"/tasks/{task_id}", 303, {"Cache-Control": "no-store"})

    async def live(self, task_id: str, owner: str) -> dict[str, Any] | None:
        """The live update for the task's page."""
        try:
            return await self._board.task(task_id, owner)
        except TaskUnknown:  # deleted at the end of its retention
            return None


def _requested_task(request: Request, scope: KeyScope) -> tuple[Visitor, str]:
    task_id, _ = asked_task(request, scope)
    visitor = caller_of(request)
    assert isinstance(visitor, Visitor)
    return visitor, task_id


def _options_of(task: Task) -> list[tuple[str, str]]:
    """What the task was submitted with, as names and values."""
    spec = task.spec
    options = [
        f"{name.replace('_', ' ')}: {_option_text(value)}" for name, value in spec.format_options.items() if value
    ]
    values: dict[str, Any] = {
        "Depth": spec.max_depth, "Time limit": f"{spec.timeout_s / 60:g} min",
        "At a time": spec.max_concurrent_articles, "Retries": spec.retry_attempts,
        "Most pages": "no limit" if spec.max_pages is None else f"{spec.max_pages:,}", "Scope": spec.scope,
        "Include": ", ".join(spec.include) or "–", "Exclude": ", ".join(spec.exclude) or "–",
        "Formats": ", ".join(spec.formats) or "–", "Options": "; ".join(options) or "–",
        "Partial results": "accepted" if spec.partial_results_ok else "count as failed",
        "Proxies": "the service's" if spec.proxies else "none", "Login": spec.login or "none",
        "Workers": spec.workers or "as the service is set",
    }  # fmt: skip
    if spec.extract:
        values["Rules"] = msgspec.json.format(msgspec.json.encode(spec.extract), indent=2).decode()
    return [(name, str(value)[:5000]) for name, value in values.items()]


def _option_text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "yes" if value is True else str(value)
