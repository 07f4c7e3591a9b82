"""The page of sites: their status, their last runs, and buttons to run and stop them. A run is a task of the same
key."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.callers import caller_of, needs
from weft.jobs.api.access.rates import Rate
from weft.jobs.dashboard import text
from weft.jobs.dashboard.board import Board
from weft.jobs.dashboard.pages import DashboardPages
from weft.jobs.service import JobService
from weft.jobs.sites.status import SiteStatus

MOST = 500  # The number of sites on the page; `weft sites status` lists all.
_STATES = {
    "idle": ("", "Idle"),
    "waiting": ("PENDING", "Waiting"),
    "running": ("RUNNING", "Running"),
    "stopping": ("RUNNING", "Stopping"),
    "paused": ("PAUSED", "Paused"),
}


class SiteListPage:
    """Handlers of the page."""

    def __init__(self, service: JobService, board: Board, pages: DashboardPages, rate: Rate) -> None:
        """`rate`: the limit on what a key submits; a run counts as one submission."""
        self._service = service
        self._board = board
        self._pages = pages
        self._rate = rate

    async def show(self, request: Request) -> Response:
        """Renders the sites that the visitor's key has added."""
        owner = needs(request, KeyScope.READ).owner
        sites = await self._service.sites.all(owner)
        moment = await self._board.moment()
        return self._pages.page("sites.html", caller_of(request), {
            "nav": "sites", "moment": moment, "more": max(0, len(sites) - MOST),
            "sites": [_site_row(one.status, moment.at) for one in sites[:MOST]],
        })  # fmt: skip

    async def run(self, request: Request) -> Response:
        """Starts a run, after the sites that it depends on; a run in progress is left as it is."""
        owner = needs(request, KeyScope.SUBMIT).owner
        self._rate.check(owner)
        await self._service.sites.run(str(request.path_params["name"]), owner)
        return self._redirect_to_sites()

    async def stop(self, request: Request) -> Response:
        """Ends a run, or cancels one that waits to start; stored results are kept."""
        owner = needs(request, KeyScope.CONTROL).owner
        await self._service.sites.stop(str(request.path_params["name"]), owner)
        return self._redirect_to_sites()

    def _redirect_to_sites(self) -> Response:
        self._board.forget()
        return RedirectResponse("/sites", 303, {"Cache-Control": "no-store"})


def _site_row(site: SiteStatus, now: float) -> dict[str, Any]:
    state, label = _STATES[site.state]
    changes = ", ".join(f"{count:,} {name}" for name, count in site.changes.items() if count)
    return {
        "name": site.name, "state": state, "label": label, "task": site.task, "pages": text.count(site.pages),
        "failed": text.count(site.failed), "success": text.percent(site.health.success_rate), "changes": changes,
        "next_at": text.machine_time(site.next_at), "next": "–" if site.next_at is None else text.clock(site.next_at),
        "last_at": text.machine_time(site.last_ended_at), "last_clock": text.clock(site.last_ended_at),
        "last": text.ago(site.last_ended_at, now), "message": text.one_line(site.waiting or site.health.message, 300),
        "is_going": site.state in ("waiting", "running", "stopping"),
    }  # fmt: skip
