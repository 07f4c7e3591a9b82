"""The routes of tasks: submit, list, status, results, events, pause, resume and cancel."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from weft import scraping
from weft.errors import BadInput, BadUrl, Damaged, Missing
from weft.extract.formats import check_shape
from weft.extract.rules.field_rules import BadRules, compile_rules
from weft.jobs.api import answers, bodies, cursors
from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.callers import asked_task, caller_of, needs
from weft.jobs.api.access.rates import Rate
from weft.jobs.api.openapi import Operation
from weft.jobs.api.problems import Refusal
from weft.jobs.api.routes.exporting import MEDIA_TYPES, export, export_records
from weft.jobs.api.settings import ApiSettings
from weft.jobs.api.streams import EventStream, StreamSlots
from weft.jobs.api.webhook_bodies import webhook_of
from weft.jobs.model import NO_PROXIES, Task, TaskSpec, problem_of_globs
from weft.jobs.reading.hub import Hub
from weft.jobs.service import JobService, Submission
from weft.jobs.store.contract import Idempotency
from weft.jobs.targets import check_target

IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_NUMBER = re.compile(r"[0-9]{1,18}")


def _describe_header(name: str, description: str) -> dict[str, Any]:
    return {"headers": {name: {"description": description, "schema": {"type": "string"}}}}


class TaskRoutes:
    """Handlers of the task routes; one object for each application."""

    def __init__(self, service: JobService, settings: ApiSettings, hub: Hub, stream_slots: StreamSlots) -> None:
        self._service = service
        self._settings = settings
        self._hub = hub
        self._stream_slots = stream_slots
        self.rate = Rate(settings.share(settings.submits_per_s), settings.share(settings.submit_burst))

    def operations(self) -> list[Operation]:
        """The declared calls, with their handlers."""
        etag = _describe_header("ETag", "equal while nothing has changed")
        stream = {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
        return [
            Operation(
                scraping.SUBMIT, self.submit, "tasks", {"202": _describe_header("Idempotent-Replayed",
                "the first task again")}
            ),
            Operation(scraping.LIST, self.list, "tasks"),
            Operation(scraping.STATUS, self.status, "tasks", {
                "200": etag, "304": {"description": "Nothing has changed since the answer with this ETag.", **etag},
            }),
            Operation(scraping.RESULTS, self.results, "tasks", {"200": {"content": _other_formats()}}),
            Operation(scraping.EVENTS, self.events, "tasks", {"200": stream, "204": {
                "description": "The task has ended, and there is nothing behind this event: do not come again.",
            }}),
            Operation(scraping.CANCEL, self.cancel, "tasks"),
            Operation(scraping.PAUSE, self.pause, "tasks"),
            Operation(scraping.RESUME, self.resume, "tasks"),
        ]  # fmt: skip

    async def submit(self, request: Request, _: scraping.NoQuery) -> Response:
        """Checks the request, stores the task, and answers with its id; the work is done in the background."""
        caller = needs(request, KeyScope.SUBMIT)
        self.rate.check(caller.owner)
        # In a thread: a body may hold hundreds of patterns to compile, and the event loop must answer others meanwhile.
        url, spec = await asyncio.to_thread(read_task_request, await request.body(), self._settings)
        idempotency = None
        if (key := request.headers.get("idempotency-key")) is not None:
            if not IDEMPOTENCY_KEY.fullmatch(key):
                raise Refusal.of_field("Idempotency-Key", "use 1 to 200 visible ASCII characters")
            idempotency = Idempotency(key, digest_of(url, spec))
        try:
            done = await self._service.submit(
                Submission(urls=(url,), spec=spec, owner=caller.owner, idempotency=idempotency)
            )
        except Damaged:
            raise  # not an error of the caller: no change of the request would help
        except BadInput as error:  # the other fields were checked before
            raise Refusal.of_field("url", str(error)) from None
        headers = {"Location": answers.links(done.task.id)["status"]}
        if not done.is_new:
            headers["Idempotent-Replayed"] = "true"
        return answers.json_answer(answers.submitted(done.task), 202, headers)

    async def status(self, request: Request, _: scraping.NoQuery) -> Response:
        """A consistent snapshot of the task in O(1); 304 if nothing but the clock has changed since the ETag."""
        status = await self._service.status(*asked_task(request, KeyScope.READ))
        tag = f'W/"{sha256(status.tag.encode()).hexdigest()[:20]}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if _etag_matches(tag, request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        return answers.json_answer(answers.status_of(status), headers=headers)

    async def results(self, request: Request, query: scraping.ResultsQuery) -> Response:
        """A page of results in the order in which they were stored; continue with `next_cursor`."""
        task_id, owner = asked_task(request, KeyScope.READ)
        after = cursors.position(task_id, query.cursor, 0)
        task = (await self._service.status(task_id, owner)).task
        wanted = query.format or task.spec.export_format
        limit, errors = query.limit, query.include_errors
        if wanted == "warc":
            records = await self._service.records(task_id, owner, cursor=after, limit=limit, include_errors=errors)
            return export_records(task, records)
        results = await self._service.results(task_id, owner, cursor=after, limit=limit, include_errors=errors)
        if wanted == "json":
            return answers.json_answer(answers.results_of(task, results, errors))
        return await export(task, results, wanted, include_errors=errors, is_first=query.cursor is None)

    async def events(self, request: Request, query: scraping.EventsQuery) -> Response:
        """A server-sent event stream: each numbered event once and in order, after `Last-Event-ID`; ends with the
        task."""
        task_id, owner = asked_task(request, KeyScope.READ)
        after, last_id = query.after or 0, request.headers.get("last-event-id")
        if last_id is not None:
            if not _NUMBER.fullmatch(last_id):
                raise Refusal.of_field("Last-Event-ID", f"{last_id[:40]!r} is not the number of an event")
            after = int(last_id)
        status = await self._service.status(task_id, owner)
        if after > status.number:
            raise Refusal.of_field(
                "Last-Event-ID", f"{after} is not an event of this task: its last one is {status.number}"
            )
        if status.task.is_terminal and after == status.number:
            return Response(status_code=204)
        pieces = partial(self._hub.stream, task_id, owner, after, status.number)
        return EventStream(pieces, self._stream_slots, caller_of(request).owner, self._settings)

    async def cancel(self, request: Request, _: scraping.NoQuery) -> Response:
        """Cancels a task within two seconds; a task that has ended is left as it is."""
        return await self._change_task(request, self._service.cancel)

    async def pause(self, request: Request, _: scraping.NoQuery) -> Response:
        """Pauses a task: no requests are sent until `resume`; the deadline is not extended."""
        return await self._change_task(request, self._service.pause)

    async def resume(self, request: Request, _: scraping.NoQuery) -> Response:
        """Resumes a paused task."""
        return await self._change_task(request, self._service.resume)

    async def list(self, request: Request, query: scraping.ListQuery) -> Response:
        """The caller's own tasks; tasks that are submitted later do not shift the pages of a list."""
        caller = needs(request, KeyScope.READ)
        try:
            listing = await self._service.list(
                caller.owner, states=(query.status,) if query.status else (), cursor=query.cursor, limit=query.limit
            )
        except Damaged:
            raise
        except BadInput as error:
            raise Refusal.of_field("cursor", str(error)) from None
        return answers.json_answer(answers.listed(listing))

    async def _change_task(self, request: Request, doing: Callable[[str, str], Awaitable[Task]]) -> Response:
        task_id, owner = asked_task(request, KeyScope.CONTROL)
        check_empty_body(await request.body())
        return answers.json_answer(answers.changed(await doing(task_id, owner)))


def check_empty_body(body: bytes) -> None:
    """Refuses a body with fields; an empty object is accepted, because many HTTP clients send `{}` for no body."""
    if body.strip() not in (b"", b"{}", b"null"):
        raise Refusal.of_field("body", "this route accepts no body")


def read_task_request(body: bytes, settings: ApiSettings) -> tuple[str, TaskSpec]:
    """The URL and the task specification in a request body; raises Refusal, which names what is wrong."""
    order = bodies.SCRAPE.read(body)
    for name in ("include", "exclude"):
        if problem := problem_of_globs(order[name]):
            raise Refusal.of_field(name, problem)
    try:
        url = check_target(order["url"], settings.allow_private)
    except BadUrl as error:
        raise Refusal.of_field("url", str(error)) from None
    shape = {name: order[name] for name in ("only_main_content", "include_tags", "exclude_tags", "links")}
    _check_rules(order["extract"], shape)
    if order["proxies"] and not settings.has_proxies:
        raise Refusal.of_field("proxies", NO_PROXIES)
    made = {
        "timeout_s": order["timeout_minutes"] * 60.0,
        "max_concurrent_articles": order["max_concurrent_articles"] or settings.max_articles,
        "formats": tuple(dict.fromkeys(order["formats"])),
        "format_options": shape,
        "webhook": webhook_of(order["webhook"], settings.allow_private),
        "render": order["render"] or "",
        "workers": order["workers"] or "",
        "login": order["login"] or "",
    }
    return url, msgspec.convert(order | made, TaskSpec)


def _check_rules(extract: dict[str, Any], shape: dict[str, Any]) -> None:
    """Refuses extraction rules and selectors that cannot be compiled."""
    try:
        compile_rules(extract)
        tags = ("include_tags", "exclude_tags")
        check_shape(shape["only_main_content"], shape[tags[0]], shape[tags[1]], at=tags)
    except BadRules as error:
        raise Refusal(422, "; ".join(error.problems[:5]), errors=error.found[:100]) from None
    except Missing as error:
        raise Refusal.of_field("extract", f"this service has no patterns: {error}") from None


def _etag_matches(tag: str, if_none_match: str) -> bool:
    """Whether an ETag matches If-None-Match (RFC 9110, 13.1.2): `*` matches any tag; weak tags compare as strong
    ones."""
    given = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return "*" in given or tag.removeprefix("W/") in given


def digest_of(url: str, spec: TaskSpec) -> str:
    """The digest by which two requests with one idempotency key are compared."""
    return sha256(msgspec.json.encode([url, spec], order="sorted")).hexdigest()


def _other_formats() -> dict[str, Any]:
    own = {"schema": {"type": "string"}}
    binary = {"schema": {"type": "string", "format": "binary"}}
    return {kind: binary if "parquet" in kind or "warc" in kind else own for kind in MEDIA_TYPES.values()}
