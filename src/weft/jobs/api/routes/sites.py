"""The routes of sites: add, list, run, stop, remove, and the change reports of their runs. A run is a task of the same
key."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from weft.config.values import bounded
from weft.errors import BadInput, BadUrl, Damaged
from weft.jobs.api import answers, bodies
from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.callers import needs
from weft.jobs.api.access.rates import Rate
from weft.jobs.api.openapi import Operation
from weft.jobs.api.problems import Refusal
from weft.jobs.api.routes.tasks import check_empty_body
from weft.jobs.api.settings import ApiSettings
from weft.jobs.api.webhook_bodies import webhook_of
from weft.jobs.checking import components_of, misfits
from weft.jobs.errors import BadSite, SiteConflict
from weft.jobs.model import NO_PROXIES
from weft.jobs.service import JobService
from weft.jobs.sites.changes import ChangeReport
from weft.jobs.sites.site_documents import document, file_document
from weft.jobs.sites.site_model import SiteFile
from weft.jobs.sites.status import SiteStatus, SiteView
from weft.jobs.targets import check_target
from weft.scraping import ApiCall, Hooked, NoQuery, ReportsQuery, TaskLinks

MOST_ERRORS = 100
_FIELDS = SiteFile.__struct_fields__
_SITES, _SITE = "/scraping/sites", "/scraping/sites/{name}"


class SiteState(SiteStatus, frozen=True, kw_only=True):
    """The state of a site at one moment."""

    task_id: Annotated[str | None, Meta(description="the task of its current or last run: for the routes of tasks")]
    links: Annotated[TaskLinks | None, Meta(description="of that task, for as long as it is kept")]
    file: Annotated[dict[str, Any], Meta(description="as it was added, without secrets")]


class SiteList(Struct):
    """All sites of the caller, by name."""

    sites: list[SiteState]


class SiteReport(ChangeReport, frozen=True, kw_only=True):
    """The changes that a run has detected: at most 1,000 URLs of each kind are listed; the counts include all."""


class SiteReports(Struct):
    """Change reports, newest first."""

    reports: list[SiteReport]


class SiteRoutes:
    """Handlers of the site routes."""

    def __init__(self, service: JobService, settings: ApiSettings, rate: Rate) -> None:
        """`rate`: the limit on what a key submits; a run counts as one submission."""
        self._sites = service.sites
        self._settings = settings
        self._rate = rate

    def operations(self) -> list[Operation]:
        """The declared calls, with their handlers."""
        calls: list[tuple[ApiCall[Any], Any]] = [
            (ApiCall("sites", "GET", _SITES, SiteList, "The status of all sites"), self.list),
            (ApiCall(
                "add_site", "POST", _SITES, SiteState, "Add a site, or replace the one of that name", body=SiteFile,
                status=201, said="It was stored.", problems=(409, 429),
            ), self.add),
            (ApiCall("site", "GET", _SITE, SiteState, "The status of a site", problems=(404,)), self.get),
            (ApiCall(
                "remove_site", "DELETE", _SITE, type(None), "Remove a site and what is known of its pages", status=204,
                said="It was removed; the results of its runs stay.", problems=(404, 409),
            ), self.remove),
            (ApiCall(
                "run_site", "POST", f"{_SITE}/run", SiteState, "Run a site now, after those that it depends on",
                status=202, said="It runs, or waits for other sites: `task_id`, `waits_for`.", problems=(404, 409, 429),
            ), self.run),
            (ApiCall(
                "stop_site", "POST", f"{_SITE}/stop", SiteState,
                "End a site's run; what it has is kept, and its schedule continues", status=202, said="It ends soon.",
                problems=(404,),
            ), self.stop),
            (ApiCall(
                "site_reports", "GET", f"{_SITE}/reports", SiteReports,
                "The changes that its last runs have detected: new, changed, gone and moved pages", query=ReportsQuery,
                problems=(404,),
            ), self.reports),
        ]  # fmt: skip
        return [Operation(call, handler, "sites") for call, handler in calls]

    async def list(self, request: Request, _: NoQuery) -> Response:
        """The sites that the caller's key has added."""
        caller = needs(request, KeyScope.READ)
        return answers.json_answer({"sites": [_site_state(one) for one in await self._sites.all(caller.owner)]})

    async def add(self, request: Request, _: NoQuery) -> Response:
        """Adds a site. The body has the fields of a site file (docs/sites.md); its rules are inline, not in a file of
        their own."""
        caller = needs(request, KeyScope.SUBMIT)
        self._rate.check(caller.owner)
        given = self._check_targets(_parse_body(await request.body()))
        try:
            return answers.json_answer(_site_state(await self._sites.add(given, caller.owner)), 201)
        except (SiteConflict, Damaged):
            raise
        except BadSite as error:
            raise Refusal(422, str(error), errors=error.problems[:MOST_ERRORS]) from None
        except BadInput as error:
            raise _refusal_of_field(str(error)) from None

    async def get(self, request: Request, _: NoQuery) -> Response:
        """A site's state, health, current run and file."""
        owner = needs(request, KeyScope.READ).owner
        return answers.json_answer(_site_state(await self._sites.get(_site_name(request), owner)))

    async def remove(self, request: Request, _: NoQuery) -> Response:
        """Removes a site; refused while it runs, or while other sites depend on it."""
        await self._sites.remove(_site_name(request), await self._owner_who_may_control(request, KeyScope.CONTROL))
        return Response(status_code=204)

    async def run(self, request: Request, _: NoQuery) -> Response:
        """Starts a run and ends a pause of the schedule; a run in progress is left as it is."""
        owner = await self._owner_who_may_control(request, KeyScope.SUBMIT)
        self._rate.check(owner)
        return answers.json_answer(_site_state(await self._sites.run(_site_name(request), owner)), 202)

    async def stop(self, request: Request, _: NoQuery) -> Response:
        """Ends a run, or cancels one that waits to start."""
        owner = await self._owner_who_may_control(request, KeyScope.CONTROL)
        return answers.json_answer(_site_state(await self._sites.stop(_site_name(request), owner)), 202)

    async def reports(self, request: Request, query: ReportsQuery) -> Response:
        """The last 100 change reports, which are kept longer than the tasks of the runs."""
        caller = needs(request, KeyScope.READ)
        reports = await self._sites.reports(_site_name(request), caller.owner, query.limit)
        return answers.json_answer({"reports": [document(one) for one in reports]})

    async def _owner_who_may_control(self, request: Request, scope: KeyScope) -> str:
        caller = needs(request, scope)
        check_empty_body(await request.body())
        return caller.owner

    def _check_targets(self, given: dict[str, Any]) -> dict[str, Any]:
        """Checks the URLs and webhook as those of a task are checked; the other fields are checked with the file."""
        starts = given.get("start_urls")
        for url in starts if isinstance(starts, list) else ():
            try:
                check_target(url, self._settings.allow_private) if isinstance(url, str) else None
            except BadUrl as error:
                raise Refusal.of_field("start_urls", str(error)) from None
        if given.get("proxies") is True and not self._settings.has_proxies:
            raise Refusal.of_field("proxies", NO_PROXIES)
        if (hook := given.get("webhook")) is not None:
            for problem in misfits({"webhook": hook}, {"webhook": Hooked}, {}, str):
                raise Refusal.of_field(*problem)
            order = webhook_of(hook, self._settings.allow_private) or {}
            given = given | {"webhook": {name: value for name, value in order.items() if name != "form"}}
        return given


def site_schemas() -> dict[str, Any]:
    """Schemas of a site and its file where the types do not describe the JSON: times are texts there."""
    _, schemas = components_of((SiteState, SiteFile), "#/components/schemas/{name}")
    order = {"$ref": "#/components/schemas/WebhookOrder"}
    schemas["SiteFile"]["properties"]["webhook"] = {"anyOf": [{"type": "string"}, order, {"type": "null"}]}
    del schemas["SiteState"]["properties"]["task"]
    schemas["SiteState"]["required"].remove("task")
    return schemas


def _site_name(request: Request) -> str:
    return str(request.path_params["name"])


def _parse_body(body: bytes) -> dict[str, Any]:
    given = bodies.decoded(body)
    try:
        bounded(given, "it")
    except ValueError:
        raise Refusal.of_field("body", "has too many parts for a site") from None
    if not isinstance(given, dict):
        raise Refusal.of_field("body", "is not a site: an object with `name` and `start_urls` is expected")
    return given


def _refusal_of_field(message: str) -> Refusal:
    """The Refusal for a message; if it begins with the name of a field, it is reported for that field."""
    field, _, what = message.partition(": ")
    is_field = field.partition(".")[0].partition("[")[0] in _FIELDS
    return Refusal.of_field(field, what) if is_field and what else Refusal(422, message)


def _site_state(view: SiteView) -> dict[str, Any]:
    state = document(view.status)
    task_id = state.pop("task") or None
    return state | {
        "task_id": task_id, "links": answers.links(task_id) if task_id else None, "file": file_document(view.file),
    }  # fmt: skip
