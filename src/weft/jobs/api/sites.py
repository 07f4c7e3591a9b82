"""The routes of sites: add, look, run, stop, forget, and what runs have found. A run is a task of the same key."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.responses import Response

from weft.config.values import bounded
from weft.errors import BadInput, BadUrl, Damaged
from weft.jobs.api import answers, schemas
from weft.jobs.api.callers import needs
from weft.jobs.api.documented import answer, problems
from weft.jobs.api.hook_orders import webhook_of
from weft.jobs.api.keys import KeyScope
from weft.jobs.api.problems import Refusal, invalid_fields
from weft.jobs.api.rates import Rate
from weft.jobs.api.settings import ApiSettings
from weft.jobs.api.tasks import check_no_order
from weft.jobs.errors import BadSite, SiteConflict
from weft.jobs.model import NO_PROXIES
from weft.jobs.service import JobService
from weft.jobs.sites.documents import document, file_document
from weft.jobs.sites.model import SiteFile
from weft.jobs.sites.status import SiteView
from weft.jobs.targets import check_target

SiteName = Annotated[str, Path(description="the site's `name`", min_length=1, max_length=100)]
MOST_ERRORS = 100
_FIELDS = SiteFile.__struct_fields__
_HOOK: TypeAdapter[Any] = TypeAdapter(schemas.Hooked | None)


class SiteHealth(BaseModel):
    """How a site is: of its run while it runs, else of its last one."""

    site: str
    state: str
    is_healthy: bool
    breaker: Annotated[str, Field(description="closed, open (paused) or half-open (being tried)")]
    pages: int
    success_rate: float | None
    errors_by_class: dict[str, int]
    failures: Annotated[int, Field(description="runs in a row that did not end well")]
    last_success_at: str | None
    paused_until: str | None
    message: str


class SiteState(BaseModel):
    """A site at one moment."""

    name: str
    state: Annotated[str, Field(description="idle, waiting, running, stopping or paused")]
    task_id: Annotated[str | None, Field(description="of its run, or of its last one: for the routes of tasks")]
    links: Annotated[schemas.TaskLinks | None, Field(description="of that task, for as long as it is kept")]
    health: SiteHealth
    schedule: str | None
    next_at: str | None
    depends_on: list[str]
    waits_for: Annotated[list[str], Field(description="sites, `proxies` or `service`")]
    last_state: str
    last_ended_at: str | None
    runs: int
    pages: int
    failed: int
    queued: int
    in_flight: int
    memory_bytes: Annotated[int, Field(description="that its run takes at most now")]
    max_memory_bytes: int
    pages_per_s: float
    changes: Annotated[dict[str, int], Field(description="of its last run")]
    file: Annotated[dict[str, Any], Field(description="as it was added, without secrets")]


class SiteList(BaseModel):
    """All sites of the caller, by name."""

    sites: list[SiteState]


class SiteReport(BaseModel):
    """What a run has found; at most 1,000 URLs of each kind, the counts are of all."""

    site: str
    task: str
    at: str
    is_first: bool
    why_full: Annotated[str, Field(description="why every page was read; empty: those that had changed, and no others")]
    new: list[str]
    changed: list[str]
    gone: list[str]
    moved: Annotated[list[tuple[str, str]], Field(description="from, to")]
    counts: dict[str, int]


class SiteReports(BaseModel):
    """Newest first."""

    reports: list[SiteReport]


class ReportsQuery(BaseModel):
    """How many of them."""

    model_config = ConfigDict(extra="forbid")
    limit: Annotated[int, Field(ge=1, le=100)] = 10


class SiteRoutes:
    """Holds what the routes need."""

    def __init__(self, service: JobService, settings: ApiSettings, rate: Rate) -> None:
        """`rate`: of what a key submits; a run counts as one."""
        self._sites = service.sites
        self._settings = settings
        self._rate = rate

    def router(self) -> APIRouter:
        """All of them."""
        router = APIRouter(prefix="/scraping/sites", tags=["sites"], redirect_slashes=False)
        body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/SiteFile"}}}}
        router.add_api_route(
            "", self.list, methods=["GET"], operation_id="sites", summary="How all sites are",
            responses=answer(SiteList) | problems(),
        )  # fmt: skip
        router.add_api_route(
            "", self.add, methods=["POST"], status_code=201, operation_id="add_site",
            summary="Keep a site; one of the same name is replaced",
            openapi_extra={"requestBody": {"required": True, **body}},
            responses=answer(SiteState, 201, "It is kept.") | problems(409, 429, body=True),
        )  # fmt: skip
        router.add_api_route(
            "/{name}", self.get, methods=["GET"], operation_id="site", summary="How a site is",
            responses=answer(SiteState) | problems(404),
        )  # fmt: skip
        router.add_api_route(
            "/{name}", self.remove, methods=["DELETE"], operation_id="remove_site", status_code=204,
            summary="Forget a site and what is known of its pages",
            responses=problems(404, 409, body=True) | {204: {"description": "It is gone; its runs' results stay."}},
        )  # fmt: skip
        router.add_api_route(
            "/{name}/run", self.run, methods=["POST"], status_code=202, operation_id="run_site",
            summary="Run a site now, after those that it depends on",
            responses=answer(SiteState, 202, "It runs, or waits for others: `task_id`, `waits_for`.")
            | problems(404, 409, 429, body=True),
        )  # fmt: skip
        router.add_api_route(
            "/{name}/stop", self.stop, methods=["POST"], status_code=202, operation_id="stop_site",
            summary="End a site's run; what it has is kept, and its schedule goes on",
            responses=answer(SiteState, 202, "It ends soon.") | problems(404, body=True),
        )  # fmt: skip
        router.add_api_route(
            "/{name}/reports", self.reports, methods=["GET"], operation_id="site_reports",
            summary="What its last runs have found: new, changed, gone and moved pages",
            responses=answer(SiteReports) | problems(404),
        )  # fmt: skip
        return router

    async def list(self, request: Request, query: Annotated[schemas.NoQuery, Query()]) -> Response:  # noqa: ARG002
        """Those that the caller's key has added."""
        caller = needs(request, KeyScope.READ)
        return answers.json_answer({"sites": [_shown(one) for one in await self._sites.all(caller.owner)]})

    async def add(self, request: Request, query: Annotated[schemas.NoQuery, Query()]) -> Response:  # noqa: ARG002
        """The body is what a site's file holds (docs/sites.md); rules are in it, not in a file of their own."""
        caller = needs(request, KeyScope.SUBMIT)
        self._take(caller.owner)
        given = self._checked(_parsed(await request.body()))
        try:
            return answers.json_answer(_shown(await self._sites.add(given, caller.owner)), 201)
        except (SiteConflict, Damaged):
            raise
        except BadSite as error:
            raise Refusal(422, str(error), errors=error.problems[:MOST_ERRORS]) from None
        except BadInput as error:
            raise _of_field(str(error)) from None

    async def get(self, request: Request, name: SiteName, query: Annotated[schemas.NoQuery, Query()]) -> Response:  # noqa: ARG002
        """Its state, its health, its run, and its file."""
        caller = needs(request, KeyScope.READ)
        return answers.json_answer(_shown(await self._sites.get(name, caller.owner)))

    async def remove(self, request: Request, name: SiteName, query: Annotated[schemas.NoQuery, Query()]) -> Response:  # noqa: ARG002
        """Refused while it runs, or others depend on it."""
        caller = await self._controls(request, KeyScope.CONTROL)
        await self._sites.remove(name, caller)
        return Response(status_code=204)

    async def run(self, request: Request, name: SiteName, query: Annotated[schemas.NoQuery, Query()]) -> Response:  # noqa: ARG002
        """One that runs already is left as it is; a pause ends."""
        owner = await self._controls(request, KeyScope.SUBMIT)
        self._take(owner)
        return answers.json_answer(_shown(await self._sites.run(name, owner)), 202)

    async def stop(self, request: Request, name: SiteName, query: Annotated[schemas.NoQuery, Query()]) -> Response:  # noqa: ARG002
        """Also what only waits to run."""
        owner = await self._controls(request, KeyScope.CONTROL)
        return answers.json_answer(_shown(await self._sites.stop(name, owner)), 202)

    async def reports(self, request: Request, name: SiteName, query: Annotated[ReportsQuery, Query()]) -> Response:
        """The last 100 are kept, longer than the tasks that have made them."""
        caller = needs(request, KeyScope.READ)
        found = await self._sites.reports(name, caller.owner, query.limit)
        return answers.json_answer({"reports": [document(one) for one in found]})

    async def _controls(self, request: Request, scope: KeyScope) -> str:
        caller = needs(request, scope)
        check_no_order(await request.body())
        return caller.owner

    def _take(self, owner: str) -> None:
        if (waits := self._rate.take(owner)) > 0:
            raise Refusal(429, "too many submissions: try again later", retry_after_s=waits)

    def _checked(self, given: dict[str, Any]) -> dict[str, Any]:
        """Where it leads, checked as a task's order is; the rest is checked with the file."""
        starts = given.get("start_urls")
        for url in starts if isinstance(starts, list) else ():
            try:
                check_target(url, self._settings.allow_private) if isinstance(url, str) else None
            except BadUrl as error:
                raise Refusal.of_field("start_urls", str(error)) from None
        if given.get("proxies") is True and not self._settings.has_proxies:
            raise Refusal.of_field("proxies", NO_PROXIES)
        if "webhook" not in given:
            return given
        try:
            hook = _HOOK.validate_python(given["webhook"])
        except ValidationError as error:
            found = [{**one, "loc": ("webhook", *one["loc"])} for one in error.errors(include_url=False)]
            raise invalid_fields(found, {}, ()) from None
        order = webhook_of(hook, self._settings.allow_private)
        if order is not None:
            order.pop("form", None)
        return {**given, "webhook": order}


def site_schema() -> dict[str, Any]:
    """What a site's file may hold, as a JSON schema."""
    _, components = msgspec.json.schema_components((SiteFile,), ref_template="#/components/schemas/{name}")
    order = {"$ref": "#/components/schemas/WebhookOrder"}
    components["SiteFile"]["properties"]["webhook"] = {"anyOf": [{"type": "string"}, order, {"type": "null"}]}
    return components


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        given = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Refusal.of_field("body", f"is no JSON: {error}", 400) from None
    try:
        bounded(given, "it")
    except ValueError:
        raise Refusal.of_field("body", "has too many parts for a site") from None
    if not isinstance(given, dict):
        raise Refusal.of_field("body", "is no site: an object with `name` and `start_urls` is expected")
    return given


def _of_field(said: str) -> Refusal:
    """A message that begins with a field's name is told as that field's."""
    place, _, what = said.partition(": ")
    is_field = place.partition(".")[0].partition("[")[0] in _FIELDS
    return Refusal.of_field(place, what) if is_field and what else Refusal(422, said)


def _shown(view: SiteView) -> dict[str, Any]:
    found = document(view.status)
    task_id = found.pop("task") or None
    return found | {
        "task_id": task_id, "links": answers.links(task_id) if task_id else None, "file": file_document(view.file),
    }  # fmt: skip
