"""The routes that Firecrawl's clients call, over the service: crawl, batch scrape, status, errors, cancel, usage.

Clients depend on these invariants. A start answers exactly 200. `next` is only there while more documents exist now,
and not in the plain status of a running job. A request for `next` is never refused for its rate, because clients follow
it at once and take a refusal for the end. A terminal status is read before the documents, so that it never comes
without the last of them.
"""

from __future__ import annotations

import asyncio
import time
from hashlib import sha256
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from weft.jobs.api import answers, cursors
from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.callers import asked_task, needs
from weft.jobs.api.access.rates import Rate
from weft.jobs.api.routes.tasks import IDEMPOTENCY_KEY
from weft.jobs.api.settings import ApiSettings
from weft.jobs.api.streams import StreamSlots
from weft.jobs.compat.compat_requests import CRAWL, CompatRequest, batch_request, crawl_request
from weft.jobs.compat.envelope import base_of, body_of
from weft.jobs.compat.fields import BAD_REQUEST, Denied
from weft.jobs.compat.mapping import MapRoute
from weft.jobs.compat.scraping import ScrapeRoute
from weft.jobs.compat.socket import Watching
from weft.jobs.compat.wire import document, error_line, job_status, state_of
from weft.jobs.errors import TaskFinished
from weft.jobs.model import LIVE
from weft.jobs.reading.hub import Hub
from weft.jobs.service import Failure, JobService, Submission
from weft.jobs.store.contract import Idempotency
from weft.scraping import ErrorClass, TaskState

TOGETHER_S = 5.0  # equal starts within this time are one job: clients send them again when an answer is lost
MOST_DOCUMENTS = 1000
_REASONS = {
    "it needs a language model, which Weft does not have": (
        "extract", "llmstxt", "deep-research", "agent", "crawl/params-preview", "support",
    ),
    "Weft scrapes what it is given, and has no index of the web": ("search",),
    "pages are not loaded in a browser that could be steered": ("browser", "interact", "scrape/{task_id}/interact"),
    "files are not uploaded to it": ("parse",),
    "sites are not watched over this interface": ("monitor", "schedules"),
    "nothing is metered": ("team/token-usage", "team/credit-usage/historical"),
    "it belongs to Firecrawl's own accounts and offers": (
        "team/activity", "team/threat-protection", "team/siem", "keyless", "exchange", "feedback", "slack", "x402",
        "fireclaw",
    ),
}  # fmt: skip
_ABSENT_ROUTES = {f"/{name}": why for why, names in _REASONS.items() for name in names}
_PLENTIFUL_CREDITS = 1_000_000_000  # reported as remaining: nothing is metered, and clients stop at 0


class CompatRoutes:
    """Handlers of Firecrawl's routes; one object for each application."""

    def __init__(
        self, service: JobService, settings: ApiSettings, rate: Rate, stream_slots: StreamSlots, hub: Hub
    ) -> None:
        self._service = service
        self._settings = settings
        self._rate = rate
        self._scrape = ScrapeRoute(service, settings, hub)
        self._map = MapRoute(service, settings)
        self._watching = Watching(service, settings, stream_slots, hub)

    def routes(self) -> list[BaseRoute]:
        """The routes of both versions. They are not in Weft's OpenAPI document."""
        return [route for version in (1, 2) for route in self._routes_of_version(version)]

    def _routes_of_version(self, version: int) -> list[BaseRoute]:
        base, routes = f"/v{version}", list[BaseRoute]()

        def add(path: str, methods: str, doing: Any, *more: Any) -> None:
            async def endpoint(request: Request) -> Response:
                response: Response = await doing(request, version, *more)
                return response

            routes.append(Route(base + path, endpoint, methods=methods.split()))

        add("/scrape", "POST", self._limit_rate(self._scrape.scrape))
        add("/scrape/{task_id}", "GET", self._scrape.again)
        add("/map", "POST", self._limit_rate(self._map.map))
        for name in ("active", "ongoing"):
            add(f"/crawl/{name}", "GET", self._active_jobs)
        for path, why in _ABSENT_ROUTES.items():
            for one in (path, path + "/{rest:path}"):
                add(one, "GET POST PATCH PUT DELETE", self._not_available, why)
        for path, kind in (("/crawl", "crawl"), ("/batch/scrape", "batch")):
            add(path, "POST", self._limit_rate(self._start), kind)
            add(path + "/{task_id}", "GET", self._job_status)
            add(path + "/{task_id}", "DELETE", self._cancel_job)
            # The JavaScript client of version 1 sends these as DELETE.
            add(path + "/{task_id}/errors", "GET DELETE" if version == 1 else "GET", self._job_errors)
            routes.append(WebSocketRoute(base + path + "/{task_id}", self._watching.route(version)))
        add("/concurrency-check", "GET", self._report_concurrency)
        add("/team/queue-status", "GET", self._report_queue)
        add("/team/credit-usage", "GET", self._report_credits)
        return routes

    def _limit_rate(self, doing: Any) -> Any:
        async def limited(request: Request, *more: Any) -> Response:
            caller = needs(request, KeyScope.SUBMIT)
            if (waits := self._rate.consume(caller.owner)) > 0:
                raise Denied(429, "Rate limit exceeded: try again later", retry_after_s=waits)
            response: Response = await doing(request, *more)
            return response

        return limited

    # ── starting ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _start(self, request: Request, version: int, kind: str) -> Response:
        owner, raw = needs(request, KeyScope.SUBMIT).owner, await request.body()
        make = crawl_request if kind == "crawl" else batch_request
        settings = self._settings
        wanted = await asyncio.to_thread(
            lambda: make(body_of(raw), version, settings.allow_private, settings.max_articles)
        )
        idempotency = _idempotency_of(request, raw)
        if wanted.appends_to:
            task_id = await self._append_urls(owner, wanted, idempotency)
        else:
            submission = Submission(urls=wanted.urls, spec=wanted.spec, owner=owner, idempotency=idempotency)
            task_id = (await self._service.submit(submission)).task.id
        body: dict[str, Any] = {
            "success": True,
            "id": task_id,
            "url": f"{base_of(request)}{request.url.path}/{task_id}",
        }
        if kind == "batch" and (wanted.invalid or version == 2):
            body["invalidURLs"] = wanted.invalid
        return answers.json_answer(body)

    async def _append_urls(self, owner: str, wanted: CompatRequest, idempotency: Idempotency) -> str:
        try:
            done = await self._service.append(wanted.appends_to, wanted.urls, owner, idempotency=idempotency)
            return done.id
        except TaskFinished as error:
            raise Denied(409, f"the batch {wanted.appends_to} is over: start another one", BAD_REQUEST) from error

    # ── status ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _job_status(self, request: Request, version: int) -> Response:
        task_id, owner = asked_task(request, KeyScope.READ)
        limit, skip = _count_parameter(request, "limit", 100, 1), _count_parameter(request, "skip", 0, 0)
        cursor = _cursor_parameter(request, task_id)
        status = await self._service.status(task_id, owner)  # before the documents: see the module
        if skip and not cursor:
            cursor = await self._service.cursor_behind(task_id, owner, pages=skip)
        results = await self._service.results(task_id, owner, cursor=cursor, limit=min(limit, MOST_DOCUMENTS))
        documents = [document(one, status.task) for one in results.results]
        more = None
        # A client that polls the status follows `next` at once, and would download a running job again at each poll. A
        # client that wants pages passes a limit or a cursor.
        if results.next_cursor is not None and (status.task.is_terminal or request.query_params):
            # The limit is part of the link, so that all pages of a listing have the same length.
            next_cursor = cursors.encode(task_id, results.next_cursor)
            more = f"{base_of(request)}{request.url.path}?cursor={next_cursor}&limit={limit}"
        return answers.json_answer(job_status(status, version, documents, more, self._settings.retention_s))

    async def _job_errors(self, request: Request, version: int) -> Response:
        task_id, owner = asked_task(request, KeyScope.READ)
        task = (await self._service.status(task_id, owner)).task
        errors: list[dict[str, Any]] = []
        blocked: list[str] = []
        before: int | None = None
        while True:
            failures = await self._service.latest(task_id, owner, before=before, limit=1000, kinds=("error",))
            for event in failures.events:
                failure = _failure_of_event(event.number or 0, event.at, event.data)
                if failure.error_class is ErrorClass.ROBOTS:
                    blocked.append(failure.url)
                else:
                    errors.append(error_line(task, failure, version))
            before = failures.before
            if before is None:
                return answers.json_answer({"errors": errors[::-1], "robotsBlocked": blocked[::-1]})

    async def _active_jobs(self, request: Request, version: int) -> Response:  # noqa: ARG002 (as all routes)
        owner = needs(request, KeyScope.READ).owner
        crawls: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            listing = await self._service.list(owner, states=LIVE, cursor=cursor, limit=500)
            crawls += [
                {
                    "id": task.id, "teamId": owner or "local", "url": task.url,
                    "created_at": answers.moment(task.created_at),
                    "options": {"limit": task.spec.max_pages, "scrapeOptions": {"formats": task.spec.formats[:-1]}},
                }
                for task in listing.tasks
                if task.spec.kind == CRAWL
            ]  # fmt: skip
            cursor = listing.next_cursor
            if cursor is None:
                return answers.json_answer({"success": True, "crawls": crawls})

    async def _cancel_job(self, request: Request, version: int) -> Response:  # noqa: ARG002
        task_id, owner = asked_task(request, KeyScope.CONTROL)
        before = (await self._service.status(task_id, owner)).task
        task = before if before.is_terminal else await self._service.cancel(task_id, owner)
        if task.state is not TaskState.CANCELLED:
            raise Denied(409, f"Crawl is already {state_of(task)}")
        return answers.json_answer({"success": True, "status": "cancelled"})

    # ── usage ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _report_concurrency(self, request: Request, version: int) -> Response:  # noqa: ARG002
        needs(request, KeyScope.READ)
        lane = (await self._service.health()).lanes["task"]
        return answers.json_answer(
            {"success": True, "concurrency": lane.running - lane.waiting, "maxConcurrency": lane.slots}
        )

    async def _report_queue(self, request: Request, version: int) -> Response:  # noqa: ARG002
        needs(request, KeyScope.READ)
        lane = (await self._service.health()).lanes["task"]
        counts = {
            "success": True, "jobsInQueue": lane.pending + lane.running,
            "activeJobsInQueue": lane.running - lane.waiting, "waitingJobsInQueue": lane.pending + lane.waiting,
            "maxConcurrency": lane.slots, "mostRecentSuccess": None,
        }  # fmt: skip
        return answers.json_answer(counts)

    async def _report_credits(self, request: Request, version: int) -> Response:
        needs(request, KeyScope.READ)
        names = ("remainingCredits", "planCredits") if version == 2 else ("remaining_credits", "plan_credits")
        data: dict[str, Any] = dict.fromkeys(names, _PLENTIFUL_CREDITS)
        return answers.json_answer({"success": True, "data": data, "warning": "nothing is metered"})

    async def _not_available(self, request: Request, version: int, why: str) -> Response:  # noqa: ARG002
        raise Denied(501, f"{request.url.path} is not available: {why}")


def _idempotency_of(request: Request, raw: bytes) -> Idempotency:
    digest = sha256(request.url.path.encode() + b"\n" + raw).hexdigest()
    key = request.headers.get("x-idempotency-key") or request.headers.get("idempotency-key")
    if key is None:
        return Idempotency(f"firecrawl {digest}", digest, time.time() + TOGETHER_S)
    if not IDEMPOTENCY_KEY.fullmatch(key):
        raise Denied(400, "x-idempotency-key: use 1 to 200 visible ASCII characters", BAD_REQUEST)
    return Idempotency(key, digest)


def _count_parameter(request: Request, name: str, default: int, least: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= least):
        raise Denied(400, f"{name}: must be a whole number from {least}", BAD_REQUEST)
    return int(text)


def _cursor_parameter(request: Request, task_id: str) -> int:
    text = request.query_params.get("cursor")
    if text is None:
        return 0
    try:
        return cursors.decode(task_id, text)
    except cursors.BadCursor:
        raise Denied(400, "cursor: is not a cursor of this job", BAD_REQUEST) from None


def _failure_of_event(number: int, at: float, data: dict[str, Any]) -> Failure:
    return Failure(
        number=number, url=data["url"], status=data["status"], error=data["error"],
        error_class=ErrorClass(data["error_class"]), depth=data["depth"], at=at,
    )  # fmt: skip
