"""`POST /scrape`: fetches one page and waits for it, as a task in the lane of single pages."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from weft.jobs.api import answers
from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.callers import asked_task, needs
from weft.jobs.api.settings import ApiSettings
from weft.jobs.compat.compat_requests import scrape_request
from weft.jobs.compat.envelope import body_of
from weft.jobs.compat.fields import Denied
from weft.jobs.compat.wire import answered_badly, document, error_code, warning_of
from weft.jobs.model import Task
from weft.jobs.reading.hub import Hub
from weft.jobs.service import Failure, JobService, Submission
from weft.scraping import ErrorClass

GRACE_S = 5.0  # The wait after the deadline, at which the engine ends the task unless it does not answer.
TIMEOUT = "SCRAPE_TIMEOUT"
_ANSWERED_ERRORS = (ErrorClass.HTTP_4XX, ErrorClass.HTTP_5XX)
_REFUSED_ERRORS = (ErrorClass.ROBOTS, ErrorClass.BLOCKED)


class ScrapeRoute:
    """Handler of the scrape routes."""

    def __init__(self, service: JobService, settings: ApiSettings, hub: Hub) -> None:
        self._service = service
        self._hub = hub
        self._settings = settings

    async def scrape(self, request: Request, version: int) -> Response:
        """Scrapes one page, and answers with it or with the error."""
        owner = needs(request, KeyScope.SUBMIT).owner
        raw, is_private_allowed = await request.body(), self._settings.allow_private
        wanted = await asyncio.to_thread(lambda: scrape_request(body_of(raw), version, is_private_allowed))
        submission = Submission(urls=wanted.urls, spec=wanted.spec, owner=owner)
        task = (await self._service.submit(submission)).task
        if not await self._wait_or_cancel(task, task.spec.timeout_s + GRACE_S):
            raise Denied(408, "the page was not scraped in time", TIMEOUT)
        return await self._answer(task.id, owner)

    async def again(self, request: Request, version: int) -> Response:  # noqa: ARG002 (as all routes)
        """The page of an earlier scrape, while it is kept."""
        return await self._answer(*asked_task(request, KeyScope.READ))

    async def _wait_or_cancel(self, task: Task, at_most_s: float) -> bool:
        """Whether a task has ended in time; otherwise it is cancelled, also when its caller has disconnected."""
        try:
            if not (is_in_time := await self._hub.ended(task.id, at_most_s)):
                await self._service.cancel(task.id)
            return is_in_time
        except asyncio.CancelledError:
            await asyncio.shield(self._service.cancel(task.id))
            raise

    async def _answer(self, task_id: str, owner: str) -> Response:
        task = (await self._service.status(task_id, owner)).task
        results = await self._service.results(task_id, owner, limit=10, include_errors=True)
        if results.results:
            return _document_response(document(results.results[-1], task), task)
        failure = results.errors[-1] if results.errors else None
        if failure is not None and failure.error_class in _ANSWERED_ERRORS and failure.status:
            return _document_response(answered_badly(failure, task), task)
        raise _failure_response(task, failure)


def _document_response(made: dict[str, Any], task: Task) -> Response:
    answer: dict[str, Any] = {"success": True, "data": made, "scrape_id": task.id}
    if warning := warning_of(task):
        answer["warning"] = warning
    return answers.json_answer(answer)


def _failure_response(task: Task, failure: Failure | None) -> Denied:
    if failure is None:
        if not task.is_terminal:
            return Denied(404, "this scrape has not ended yet")
        return Denied(408, "the page was not scraped in time", TIMEOUT)
    message = f"{failure.url} could not be scraped: {failure.error}"
    kind = failure.error_class
    if kind is ErrorClass.TIMEOUT:
        return Denied(408, message, TIMEOUT)
    return Denied(403 if kind in _REFUSED_ERRORS else 500, message, error_code(failure))
