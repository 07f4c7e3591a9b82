"""The routes that report the service's health: for people, load balancers and Prometheus."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from weft import scraping
from weft.errors import WeftError
from weft.jobs.api import answers
from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.callers import needs
from weft.jobs.api.access.keys import Keyring
from weft.jobs.api.openapi import Operation
from weft.jobs.api.problems import problem_of
from weft.jobs.api.streams import StreamSlots
from weft.jobs.api.worker_metrics import WorkerMetrics
from weft.jobs.service import Health, JobService

ANSWER_S = 5.0  # a service that cannot report its health by then counts as unhealthy
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class HealthRoutes:
    """Handlers of the health and metrics routes."""

    def __init__(
        self, service: JobService, stream_slots: StreamSlots, metrics: WorkerMetrics, keyring: Keyring
    ) -> None:
        self._service = service
        self._stream_slots = stream_slots
        self._metrics = metrics
        self._keyring = keyring

    def operations(self) -> list[Operation]:
        """The declared calls, with their handlers."""
        unwell = {"503": {
            "description": "It does not; `problems` says why.",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Liveness"}}},
        }}  # fmt: skip
        text = {"200": {"content": {"text/plain": {"schema": {"type": "string"}}}}}
        return [
            Operation(scraping.SERVICE_STATUS, self.status, "service"),
            Operation(scraping.HEALTHZ, self.healthz, "service", unwell),
            Operation(scraping.READYZ, self.readyz, "service", unwell),
            Operation(scraping.METRICS, self.metrics, "service", text),
        ]

    async def status(self, request: Request, _: scraping.NoQuery) -> Response:
        """The status of the service: slots, queue, blocked domains, errors, throughput and times."""
        needs(request, KeyScope.MONITOR)
        return answers.json_answer(answers.service_of(await self._read_health(), self._stream_slots.taken))

    async def healthz(self, _request: Request, _: scraping.NoQuery) -> Response:
        """200 while the runner renews its lease and the engine makes progress; a process that only exists is not
        enough."""
        try:
            health = await self._read_health()
        except (WeftError, TimeoutError) as error:
            return answers.json_answer({"status": "unhealthy", "problems": [_describe_error(error)]}, 503)
        status, code = ("ok", 200) if health.is_healthy else ("unhealthy", 503)
        return answers.json_answer({"status": status, "problems": health.problems, "warnings": health.warnings}, code)

    async def readyz(self, _request: Request, _: scraping.NoQuery) -> Response:
        """200 while tasks are accepted: keys can be checked, the store answers, and the disk has room. Tasks may have
        to wait for an engine that is restarting."""
        problems = [] if self._keyring.problem is None else ["API keys cannot be read: all requests are refused"]
        try:
            health = await self._read_health()
        except (WeftError, TimeoutError) as error:
            return answers.json_answer({"status": "starting", "problems": [*problems, _describe_error(error)]}, 503)
        problems += health.refusing
        status, code = ("unhealthy", 503) if problems else ("ok", 200)
        return answers.json_answer({"status": status, "problems": problems, "warnings": health.warnings}, code)

    async def metrics(self, request: Request, _: scraping.NoQuery) -> Response:
        """The metrics of all processes of the service, for Prometheus."""
        needs(request, KeyScope.MONITOR)
        health = await self._read_health()
        self._metrics.save(self._stream_slots.taken)
        return Response(self._metrics.text(health), 200, {"Cache-Control": "no-store", "Content-Type": PROMETHEUS})

    async def _read_health(self) -> Health:
        async with asyncio.timeout(ANSWER_S):
            return await self._service.health()


def _describe_error(error: WeftError | TimeoutError) -> str:
    """The error as callers may read it, without details of the server."""
    return problem_of(error).detail if isinstance(error, WeftError) else "no answer in time"
