"""The application: every route of the scrape service over HTTP, behind its gate, and the dashboard behind its door.

`create_app(service, settings)` makes one for a worker. It knows the service by its protocol alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from weft import __version__
from weft.errors import WeftError
from weft.jobs.api import schemas
from weft.jobs.api.docs_page import docs_page
from weft.jobs.api.feeds import Feeds
from weft.jobs.api.figures import WorkerFigures
from weft.jobs.api.gate import Gate
from weft.jobs.api.health import HealthRoutes
from weft.jobs.api.keys import Keyring
from weft.jobs.api.problems import Refusal, invalid_fields, problem_of
from weft.jobs.api.settings import ApiSettings, is_loopback
from weft.jobs.api.sites import SiteRoutes, site_schema
from weft.jobs.api.streams import Places
from weft.jobs.api.tasks import TaskRoutes
from weft.jobs.api.webhooks import WebhookReplay, WebhookRoutes
from weft.jobs.compat.envelope import enveloped, is_firecrawls
from weft.jobs.compat.routes import CompatRoutes
from weft.jobs.dashboard.app import Dashboard
from weft.jobs.dashboard.panels import Panel
from weft.jobs.service import JobService
from weft.telemetry import Log

SAVE_S = 5.0
_HEADER_NAMES = {name.lower(): name for name in ("Idempotency-Key", "If-None-Match", "Last-Event-ID")}
log = Log("weft.jobs.api")


def create_app(service: JobService, settings: ApiSettings, panels: Sequence[Panel] = ()) -> ASGIApp:
    """The application of one worker; `panels` are what other rooms show on the dashboard."""
    feeds, places = Feeds(service, settings.heartbeat_s), Places(settings)
    figures = WorkerFigures(settings.metrics_dir or settings.data_dir / "metrics", settings.index)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        saving = asyncio.create_task(_save(figures, places))
        try:
            yield
        finally:
            saving.cancel()

    app = FastAPI(
        title="Weft", version=__version__, summary="Scrapes in the background, and never lies about how far it is.",
        lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False,
    )  # fmt: skip
    keyring = Keyring(settings.keys_file, is_required=not is_loopback(settings.host))
    tasks = TaskRoutes(service, settings, feeds, places)
    app.include_router(tasks.router())
    app.include_router(CompatRoutes(service, settings, tasks.rate, places).router())
    app.include_router(WebhookRoutes(service).router())
    app.include_router(SiteRoutes(service, settings, tasks.rate).router())
    app.include_router(HealthRoutes(service, places, figures, keyring).router())
    for error, handler in _HANDLERS.items():
        app.add_exception_handler(error, handler)
    _add_documents(app, keyring)
    gate = Gate(app, settings, keyring, figures, feeds.close)
    return Doors(gate, Dashboard(service, settings, keyring, figures, places, tasks.rate, panels))


class Doors:
    """Both ways in: each has the paths that are its own."""

    def __init__(self, gate: Gate, dashboard: Dashboard) -> None:
        self._gate = gate
        self._dashboard = dashboard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        is_page = scope["type"] == "http" and self._dashboard.owns(scope["path"])
        await (self._dashboard if is_page else self._gate)(scope, receive, send)

    def end_streams(self) -> None:
        """For the server, before it waits for what is under way."""
        self._gate.end_streams()
        self._dashboard.close()


async def _save(figures: WorkerFigures, places: Places) -> None:
    while True:
        await asyncio.sleep(SAVE_S)
        with suppress(OSError):  # on a full disk the old figures must do
            figures.save(places.taken)


def _add_documents(app: FastAPI, keyring: Keyring) -> None:
    async def openapi(_: Request) -> Response:
        return Response(_encoded(document(app, not keyring.is_empty)), 200, media_type="application/json")

    async def docs(_: Request) -> Response:
        return docs_page(document(app, not keyring.is_empty))

    app.add_route("/openapi.json", openapi, methods=["GET"], include_in_schema=False)
    app.add_route("/docs", docs, methods=["GET"], include_in_schema=False)


def document(app: FastAPI, has_keys: bool) -> dict[str, Any]:
    """The OpenAPI document, as it holds for this service now."""
    found = dict(app.openapi())
    components = found["components"] = {**found["components"]}
    models = {model.__name__: model for model in (schemas.Problem, schemas.AsyncScrapeRequest, WebhookReplay)}
    components["schemas"] = {**components["schemas"]}
    for name, model in models.items():
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        components["schemas"] |= {**schema.pop("$defs", {}), name: schema}
    components["schemas"] |= site_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(unused, None)
    if has_keys:
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        found["security"] = [{"bearer": []}, {"header": []}]
    return found


def _encoded(value: Any) -> bytes:
    import msgspec

    return msgspec.json.encode(value)


def _told(request: Request, refusal: Refusal) -> Response:
    return enveloped(refusal) if is_firecrawls(request.url.path) else refusal.response()


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return _told(request, error)


async def _weft_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, WeftError)
    refusal = problem_of(error)
    if refusal.status >= 500:
        log.warning("request refused", path=request.url.path, status=refusal.status, error=str(error))
    return _told(request, refusal)


async def _bad_parameters(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [{**one, "loc": _named(one["loc"])} for one in error.errors()]
    return invalid_fields(found, {}, ()).response()


def _named(loc: tuple[Any, ...]) -> tuple[Any, ...]:
    """Without the word for where it was; headers by the name that they are sent with."""
    if loc[0] == "header":
        return (_HEADER_NAMES.get(str(loc[1]).lower().replace("_", "-"), loc[1]),)
    return tuple(loc[1:])


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = {404: "there is no such route", 405: "this route does not have that method"}
    headers = dict(error.headers or {})
    if error.status_code == 405 and (methods := _methods(request)):
        headers["Allow"] = ", ".join(methods)
    refusal = Refusal(error.status_code, said.get(error.status_code, str(error.detail)), headers=headers)
    return _told(request, refusal)


def _methods(request: Request) -> list[str]:
    """What a path can be asked for: the router names the methods of one of its routes alone."""
    path = getattr(request.scope.get("route"), "path", "")
    return sorted(method.upper() for method in request.app.openapi()["paths"].get(path, ()))


async def _mistake(request: Request, error: Exception) -> Response:  # noqa: ARG001 (the gate logs it)
    return _told(request, Refusal(500, "the service made a mistake, which is in its log"))


_HANDLERS: dict[type[Exception], Any] = {
    Refusal: _refused,
    WeftError: _weft_error,
    RequestValidationError: _bad_parameters,
    HTTPException: _http_error,
    Exception: _mistake,
}
