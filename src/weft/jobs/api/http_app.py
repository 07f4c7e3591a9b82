"""The ASGI application of a worker: the routes of the scrape service behind their gate, and the dashboard behind its
own.

`create_app(service, settings)` makes it. It knows the service through its protocol alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from weft.jobs.api.access.gate import Gate
from weft.jobs.api.access.keys import Keyring
from weft.jobs.api.openapi import Operation, document, routes_of
from weft.jobs.api.routes.health_routes import HealthRoutes
from weft.jobs.api.routes.sites import SiteRoutes, site_schemas
from weft.jobs.api.routes.tasks import TaskRoutes
from weft.jobs.api.routes.webhooks import WebhookRoutes
from weft.jobs.api.settings import ApiSettings, is_loopback
from weft.jobs.api.streams import StreamSlots
from weft.jobs.api.worker_metrics import WorkerMetrics
from weft.jobs.compat.routes import CompatRoutes
from weft.jobs.dashboard.dashboard_app import Dashboard
from weft.jobs.dashboard.pages import DashboardPages
from weft.jobs.dashboard.panels import Panel
from weft.jobs.reading.hub import Hub
from weft.jobs.service import JobService

SAVE_S = 5.0
_DOCS_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'"
)


def create_app(service: JobService, settings: ApiSettings, panels: Sequence[Panel] = ()) -> ASGIApp:
    """The application of one worker. `panels`: additional panels of the dashboard, from other products."""
    hub, stream_slots = Hub(service, settings.heartbeat_s), StreamSlots(settings)
    metrics = WorkerMetrics(settings.metrics_dir or settings.data_dir / "metrics", settings.index)

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        saving = asyncio.create_task(_save_metrics(metrics, stream_slots))
        try:
            yield
        finally:
            saving.cancel()

    keyring = Keyring(settings.keys_file, is_required=not is_loopback(settings.host), listed=settings.listed_keys)
    tasks = TaskRoutes(service, settings, hub, stream_slots)
    operations = [
        *tasks.operations(),
        *WebhookRoutes(service).operations(),
        *SiteRoutes(service, settings, tasks.rate).operations(),
        *HealthRoutes(service, stream_slots, metrics, keyring).operations(),
    ]
    compat = CompatRoutes(service, settings, tasks.rate, stream_slots, hub)
    pages = DashboardPages(lambda: not keyring.is_empty)
    routes = [*routes_of(operations), *compat.routes(), *_document_routes(operations, keyring, pages)]
    gate = Gate(Router(routes, redirect_slashes=False, lifespan=lifespan), settings, keyring, metrics)
    return ServiceApp(
        gate, Dashboard(service, settings, keyring, metrics, stream_slots, tasks.rate, hub, pages, panels), hub
    )


class ServiceApp:
    """Routes a request to the dashboard or to the API, by its path."""

    def __init__(self, gate: Gate, dashboard: Dashboard, hub: Hub) -> None:
        self._gate = gate
        self.end_streams = hub.close  # called by the server before it waits for requests in progress
        self._dashboard = dashboard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        is_page = scope["type"] == "http" and self._dashboard.owns(scope["path"])
        await (self._dashboard if is_page else self._gate)(scope, receive, send)


async def _save_metrics(metrics: WorkerMetrics, stream_slots: StreamSlots) -> None:
    while True:
        await asyncio.sleep(SAVE_S)
        with suppress(OSError):  # on a full disk the metrics saved before remain
            metrics.save(stream_slots.taken)


def _document_routes(operations: Sequence[Operation], keyring: Keyring, pages: DashboardPages) -> list[BaseRoute]:
    @cache
    def made(has_keys: bool) -> tuple[bytes, bytes]:
        openapi_document = document(operations, site_schemas(), has_keys=has_keys)
        return msgspec.json.encode(openapi_document), pages.html("docs.html", None, {"document": openapi_document})

    async def openapi(_: Request) -> Response:
        return Response(made(not keyring.is_empty)[0], 200, media_type="application/json")

    async def docs(_: Request) -> Response:
        html = made(not keyring.is_empty)[1]
        return Response(html, 200, {"Content-Security-Policy": _DOCS_POLICY}, "text/html")

    return [Route("/openapi.json", openapi, methods=["GET"]), Route("/docs", docs, methods=["GET"])]
