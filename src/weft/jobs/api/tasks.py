"""The routes of tasks: submit, look, take, stop."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from hashlib import sha256
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Path, Query, Request
from pydantic import ValidationError
from starlette.responses import Response

from weft.errors import BadInput, BadUrl, Damaged, Missing
from weft.extract.formats import check_shape
from weft.extract.rules import BadRules, compile_rules
from weft.jobs.api import answers, cursors, schemas
from weft.jobs.api.callers import caller_of, needs, task_owner
from weft.jobs.api.documented import Responses, answer, body_of, problems
from weft.jobs.api.exporting import MEDIA_TYPES, export, export_records
from weft.jobs.api.feeds import Feeds
from weft.jobs.api.hook_orders import webhook_of
from weft.jobs.api.keys import KeyScope
from weft.jobs.api.problems import Refusal, invalid_fields
from weft.jobs.api.rates import Rate
from weft.jobs.api.settings import ApiSettings
from weft.jobs.api.streams import EventStream, Places
from weft.jobs.model import NO_PROXIES, Task, TaskSpec
from weft.jobs.service import JobService, Submission
from weft.jobs.store.contract import Idempotency
from weft.jobs.targets import check_target

_ACCEPTS = schemas.accepts(schemas.AsyncScrapeRequest)
_FIELDS = tuple(schemas.AsyncScrapeRequest.model_fields)
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_PREFIX = "/scraping"

_EVENTS_DOCUMENTED: Responses = {
    200: {
        "description": "Server-sent events: state, page, error (each with its number as id), and progress.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
    204: {"description": "The task has ended, and there is nothing behind this event: do not come again."},
}

TaskId = Annotated[str, Path(description="the `task_id` that the submit gave", min_length=1, max_length=100)]


class TaskRoutes:
    """Holds what the routes need; one object for an application."""

    def __init__(self, service: JobService, settings: ApiSettings, feeds: Feeds, places: Places) -> None:
        self._service = service
        self._settings = settings
        self._feeds = feeds
        self._places = places
        self.rate = Rate(settings.share(settings.submits_per_s), settings.share(settings.submit_burst))

    def router(self) -> APIRouter:
        """All of them."""
        router = APIRouter(prefix=_PREFIX, tags=["tasks"], redirect_slashes=False)
        task = "/tasks/{task_id}"
        replayed = {"Idempotent-Replayed": {"description": "the first task again", "schema": {"type": "string"}}}
        router.add_api_route(
            "/async-scrape", self.submit, methods=["POST"], status_code=202, operation_id="submit",
            responses=answer(schemas.TaskSubmitted, 202, "Accepted, and on the disk.", headers=replayed)
            | problems(409, 429, body=True),
            openapi_extra=body_of(schemas.AsyncScrapeRequest), summary="Start a task",
        )  # fmt: skip
        router.add_api_route(
            "/tasks", self.list, methods=["GET"], operation_id="list", summary="List tasks, newest first",
            responses=answer(schemas.TaskList) | problems(),
        )  # fmt: skip
        etag = {"ETag": {"description": "equal while nothing has changed", "schema": {"type": "string"}}}
        router.add_api_route(
            task + "/status", self.status, methods=["GET"], operation_id="status", summary="How far a task is",
            responses=answer(schemas.TaskStatus, headers=etag) | problems(404)
            | {304: {"description": "Nothing has changed since the answer with this ETag.", "headers": etag}},
        )  # fmt: skip
        router.add_api_route(
            task + "/results", self.results, methods=["GET"], operation_id="results",
            summary="What was scraped so far, also while the task runs",
            responses=_results_documented() | problems(404),
        )  # fmt: skip
        router.add_api_route(
            task + "/events", self.events, methods=["GET"], operation_id="events", summary="Events as they happen",
            responses=_EVENTS_DOCUMENTED | problems(404, 429),
        )  # fmt: skip
        router.add_api_route(
            task, self.cancel, methods=["DELETE"], operation_id="cancel", summary="Cancel; what was scraped is kept",
            responses=answer(schemas.TaskChanged) | problems(404, body=True),
        )  # fmt: skip
        for verb, doing in (("pause", self.pause), ("resume", self.resume)):
            router.add_api_route(
                f"{task}/{verb}", doing, methods=["POST"], operation_id=verb, summary=f"{verb.capitalize()} a task",
                responses=answer(schemas.TaskChanged) | problems(404, 409, body=True),
            )  # fmt: skip
        return router

    async def submit(
        self,
        request: Request,
        query: Annotated[schemas.NoQuery, Query()],  # noqa: ARG002 (refuses whatever is there)
        idempotency_key: Annotated[
            str | None,
            Header(min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$", description="the same key: the first task"),
        ] = None,
    ) -> Response:
        """Checks the order, keeps it, and answers with the task's id; the work is done in the background."""
        caller = needs(request, KeyScope.SUBMIT)
        if (waits := self.rate.take(caller.owner)) > 0:
            raise Refusal(429, "too many submissions: try again later", retry_after_s=waits)
        # In a thread: a body may hold hundreds of patterns to compile, and others must be answered meanwhile.
        url, spec = await asyncio.to_thread(read_order, await request.body(), self._settings)
        idempotency = None
        if idempotency_key is not None:
            if not _IDEMPOTENCY_KEY.fullmatch(idempotency_key):
                raise Refusal.of_field("Idempotency-Key", "use 1 to 200 visible ASCII characters")
            idempotency = Idempotency(idempotency_key, digest_of(url, spec))
        try:
            done = await self._service.submit(
                Submission(urls=(url,), spec=spec, owner=caller.owner, idempotency=idempotency)
            )
        except Damaged:
            raise  # no caller can correct that
        except BadInput as error:  # all other fields were checked
            raise Refusal.of_field("url", str(error)) from None
        headers = {"Location": answers.links(done.task.id)["status"]}
        if not done.is_new:
            headers["Idempotent-Replayed"] = "true"
        return answers.json_answer(answers.submitted(done.task), 202, headers)

    async def status(
        self,
        request: Request,
        task_id: TaskId,
        query: Annotated[schemas.NoQuery, Query()],  # noqa: ARG002
        if_none_match: Annotated[str | None, Header(description="the ETag of an answer before")] = None,
    ) -> Response:
        """One consistent answer, O(1); 304 where nothing but the clock has moved since."""
        owner = task_owner(request, task_id, KeyScope.READ)
        found = await self._service.status(task_id, owner)
        tag = f'W/"{sha256(found.tag.encode()).hexdigest()[:20]}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if if_none_match is not None and _matches(tag, if_none_match):
            return Response(status_code=304, headers=headers)
        return answers.json_answer(answers.status_of(found), headers=headers)

    async def results(
        self, request: Request, task_id: TaskId, query: Annotated[schemas.ResultsQuery, Query()]
    ) -> Response:
        """A stretch of pages in the order in which they were stored; go on with `next_cursor`."""
        owner = task_owner(request, task_id, KeyScope.READ)
        after = 0
        if query.cursor is not None:
            try:
                after = cursors.decode(task_id, query.cursor)
            except cursors.BadCursor:
                raise Refusal.of_field("cursor", "is none that an answer about this task has given") from None
        task = (await self._service.status(task_id, owner)).task
        wanted = query.format or task.spec.export_format
        limit, errors = query.limit, query.include_errors
        if wanted == "warc":
            records = await self._service.records(task_id, owner, cursor=after, limit=limit, include_errors=errors)
            return export_records(task, records)
        found = await self._service.results(task_id, owner, cursor=after, limit=limit, include_errors=errors)
        if wanted == "json":
            return answers.json_answer(answers.results_of(task, found, errors))
        return await export(task, found, wanted, include_errors=errors, is_first=query.cursor is None)

    async def events(
        self,
        request: Request,
        task_id: TaskId,
        query: Annotated[schemas.EventsQuery, Query()],
        last_event_id: Annotated[
            str | None, Header(pattern=r"^[0-9]{1,18}$", description="the number of the last event that you have")
        ] = None,
    ) -> Response:
        """Each numbered event once and in order, from the one after `Last-Event-ID`; ends with the task."""
        owner = task_owner(request, task_id, KeyScope.READ)
        after = int(last_event_id) if last_event_id is not None else query.after or 0
        found = await self._service.status(task_id, owner)
        if after > found.number:
            raise Refusal.of_field("Last-Event-ID", f"{after} is no event of this task: its last one is {found.number}")
        if found.task.is_terminal and after == found.number:
            return Response(status_code=204)
        pieces = partial(self._feeds.stream, task_id, owner, after, found.number)
        return EventStream(pieces, self._places, caller_of(request).owner, self._settings)

    async def cancel(
        self,
        request: Request,
        task_id: TaskId,
        query: Annotated[schemas.NoQuery, Query()],  # noqa: ARG002
    ) -> Response:
        """Ends it within two seconds; a task that has ended is left as it is."""
        return await self._change(request, task_id, self._service.cancel)

    async def pause(
        self,
        request: Request,
        task_id: TaskId,
        query: Annotated[schemas.NoQuery, Query()],  # noqa: ARG002
    ) -> Response:
        """Nothing more is asked for until `resume`; the deadline runs on."""
        return await self._change(request, task_id, self._service.pause)

    async def resume(
        self,
        request: Request,
        task_id: TaskId,
        query: Annotated[schemas.NoQuery, Query()],  # noqa: ARG002
    ) -> Response:
        """Goes on with a task that is paused."""
        return await self._change(request, task_id, self._service.resume)

    async def list(self, request: Request, query: Annotated[schemas.ListQuery, Query()]) -> Response:
        """The caller's own tasks; those that come later do not shift a list that goes on."""
        caller = needs(request, KeyScope.READ)
        try:
            found = await self._service.list(
                caller.owner, states=(query.status,) if query.status else (), cursor=query.cursor, limit=query.limit
            )
        except Damaged:
            raise
        except BadInput as error:
            raise Refusal.of_field("cursor", str(error)) from None
        return answers.json_answer(answers.listed(found))

    async def _change(self, request: Request, task_id: str, doing: Any) -> Response:
        owner = task_owner(request, task_id, KeyScope.CONTROL)
        check_no_order(await request.body())
        task: Task = await doing(task_id, owner)
        return answers.json_answer(answers.changed(task))


def check_no_order(body: bytes) -> None:
    """Refuses a body that asks for something; many HTTP clients send `{}` where there is nothing to say."""
    if body.strip() not in (b"", b"{}", b"null"):
        raise Refusal.of_field("body", "this route takes none")


def read_order(body: bytes, settings: ApiSettings) -> tuple[str, TaskSpec]:
    """The URL and the task that a body asks for; a Refusal that names what is wrong with it."""
    return spec_of(parse_order(body), settings)


def spec_of(order: schemas.AsyncScrapeRequest, settings: ApiSettings) -> tuple[str, TaskSpec]:
    """The URL and the task of an order; a Refusal that names what is wrong with it."""
    try:
        url = check_target(order.url, settings.allow_private)
    except BadUrl as error:
        raise Refusal.of_field("url", str(error)) from None
    check_rules(order)
    if order.proxies and not settings.has_proxies:
        raise Refusal.of_field("proxies", NO_PROXIES)
    articles = order.max_concurrent_articles or settings.max_articles
    return url, TaskSpec(
        max_depth=order.max_depth, timeout_s=order.timeout_minutes * 60.0,
        max_concurrent_articles=articles, retry_attempts=order.retry_attempts, proxies=order.proxies,
        partial_results_ok=order.partial_results_ok, export_format=order.export_format, max_pages=order.max_pages,
        include=tuple(order.include), exclude=tuple(order.exclude), scope=order.scope, extract=order.extract,
        trap_rules=order.trap_rules,
        formats=tuple(dict.fromkeys(order.formats)),
        format_options={
            "include_tags": order.include_tags, "exclude_tags": order.exclude_tags,
            "only_main_content": order.only_main_content,
        },
        webhook=webhook_of(order.webhook, settings.allow_private),
    )  # fmt: skip


def check_rules(order: schemas.AsyncScrapeRequest) -> None:
    """Refuses rules and selectors that no page could be read with."""
    try:
        compile_rules(order.extract)
        shape = order.only_main_content, order.include_tags, order.exclude_tags
        check_shape(*shape, at=("include_tags", "exclude_tags"))
    except BadRules as error:
        raise Refusal(422, "; ".join(error.problems[:5]), errors=error.found[:100]) from None
    except Missing as error:
        raise Refusal.of_field("extract", f"this service has no patterns: {error}") from None


def parse_order(body: bytes) -> schemas.AsyncScrapeRequest:
    """The order in a body; a Refusal that names each field that is wrong."""
    try:
        return schemas.AsyncScrapeRequest.model_validate_json(body)
    except ValidationError as error:
        found = error.errors(include_url=False)
    if found[0]["type"] == "json_invalid":
        raise Refusal.of_field("body", f"is no JSON: {found[0]['ctx']['error']}", 400)
    raise invalid_fields(found, _ACCEPTS, _FIELDS)


def _matches(tag: str, if_none_match: str) -> bool:
    """RFC 9110, 13.1.2: any tag is equal to `*`, and whether one is weak does not matter."""
    given = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return "*" in given or tag.removeprefix("W/") in given


def digest_of(url: str, spec: TaskSpec) -> str:
    """What an idempotency key stands for."""
    return sha256(msgspec.json.encode([url, spec], order="sorted")).hexdigest()


def _results_documented() -> Responses:
    own = {"schema": {"type": "string"}}
    binary = {"schema": {"type": "string", "format": "binary"}}
    others = {kind: binary if "parquet" in kind or "warc" in kind else own for kind in MEDIA_TYPES.values()}
    return {200: {"model": schemas.TaskResults, "description": "A stretch of what there is now.", "content": others}}
