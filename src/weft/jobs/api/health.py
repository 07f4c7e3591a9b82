"""The routes that tell how the service is: for people, load balancers and Prometheus."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from weft.errors import WeftError
from weft.jobs.api import answers, schemas
from weft.jobs.api.callers import needs
from weft.jobs.api.documented import Responses, answer, problems
from weft.jobs.api.figures import WorkerFigures
from weft.jobs.api.keys import Keyring, KeyScope
from weft.jobs.api.problems import problem_of
from weft.jobs.api.streams import Places
from weft.jobs.service import Health, JobService

FRESH_S = 0.5  # how long one answer serves all who ask
ANSWER_S = 5.0  # a service that does not know how it is by then is not well
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class HealthRoutes:
    """Holds what the routes need."""

    def __init__(self, service: JobService, places: Places, figures: WorkerFigures, keyring: Keyring) -> None:
        self._service = service
        self._places = places
        self._figures = figures
        self._keyring = keyring
        self._known: Health | None = None
        self._known_at = float("-inf")
        self._asking = asyncio.Lock()

    def router(self) -> APIRouter:
        """All of them."""
        router = APIRouter(tags=["service"], redirect_slashes=False)
        router.add_api_route(
            "/scraping/status", self.status, methods=["GET"], operation_id="service_status",
            summary="How the service as a whole is", responses=answer(schemas.ServiceStatus) | problems(),
        )  # fmt: skip
        unwell: Responses = {503: {"model": schemas.Liveness, "description": "It does not; `problems` says why."}}
        router.add_api_route(
            "/healthz", self.healthz, methods=["GET"], operation_id="healthz", summary="Whether it makes progress",
            responses=answer(schemas.Liveness) | problems() | unwell,
        )  # fmt: skip
        router.add_api_route(
            "/readyz", self.readyz, methods=["GET"], operation_id="readyz", summary="Whether to send requests here",
            responses=answer(schemas.Liveness) | problems() | unwell,
        )  # fmt: skip
        text: Responses = {
            200: {"description": "Prometheus' format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
        }
        router.add_api_route(
            "/metrics", self.metrics, methods=["GET"], operation_id="metrics", summary="Figures for Prometheus",
            responses=text | problems(),
        )  # fmt: skip
        return router

    async def status(self, request: Request, query: Annotated[schemas.NoQuery, Query()]) -> Response:  # noqa: ARG002
        """Slots, queue, blocked domains, errors, throughput and times."""
        needs(request, KeyScope.MONITOR)
        return answers.json_answer(answers.service_of(await self._health(), self._places.taken))

    async def healthz(self, query: Annotated[schemas.NoQuery, Query()]) -> Response:  # noqa: ARG002
        """200 while the runner renews its lease and the engine moves; a process that merely exists is not enough."""
        try:
            health = await self._health()
        except (WeftError, TimeoutError) as error:
            return answers.json_answer({"status": "unhealthy", "problems": [_named(error)]}, 503)
        if health.is_healthy:
            return answers.json_answer({"status": "ok", "problems": []})
        return answers.json_answer({"status": "unhealthy", "problems": health.problems}, 503)

    async def readyz(self, query: Annotated[schemas.NoQuery, Query()]) -> Response:  # noqa: ARG002
        """200 when tasks are accepted: keys can be checked, the store answers, and there is room on the disk. They may
        wait for an engine that is being started."""
        problems = [] if self._keyring.problem is None else ["API keys cannot be read: nobody is let in"]
        try:
            problems += (await self._health()).refusing
        except (WeftError, TimeoutError) as error:
            return answers.json_answer({"status": "starting", "problems": [*problems, _named(error)]}, 503)
        if problems:
            return answers.json_answer({"status": "unhealthy", "problems": problems}, 503)
        return answers.json_answer({"status": "ok", "problems": []})

    async def metrics(self, request: Request, query: Annotated[schemas.NoQuery, Query()]) -> Response:  # noqa: ARG002
        """Of all processes of the service."""
        needs(request, KeyScope.MONITOR)
        health = await self._health()
        self._figures.save(self._places.taken)
        return Response(self._figures.text(health), 200, {"Cache-Control": "no-store", "Content-Type": PROMETHEUS})

    async def _health(self) -> Health:
        async with self._asking:
            if self._known is None or monotonic() - self._known_at > FRESH_S:
                async with asyncio.timeout(ANSWER_S):
                    self._known = await self._service.health()
                self._known_at = monotonic()
            return self._known


def _named(error: WeftError | TimeoutError) -> str:
    """What went wrong, as callers may read it."""
    return problem_of(error).detail if isinstance(error, WeftError) else "no answer in time"
