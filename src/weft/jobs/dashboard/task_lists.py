"""The first page: running tasks, and a list of the others by state, host and text, 50 at a time.

A page is rendered at most once a second for all viewers of the same one (`_Kept`), so the work does not grow with the
number of viewers and changes.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from weft.errors import BadInput
from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.callers import needs
from weft.jobs.api.access.gate import Caller
from weft.jobs.api.problems import Refusal
from weft.jobs.dashboard import display
from weft.jobs.dashboard.board import Board, Moment
from weft.jobs.dashboard.door import Visitor
from weft.jobs.dashboard.pages import DashboardPages
from weft.jobs.model import LIVE, STARTED, Task
from weft.jobs.service import JobService
from weft.jobs.store.contract import Listing
from weft.scraping import TERMINAL, TaskState

AT_ONCE = 50
KEPT_S = 1.0
KEPT_PAGES = 64
# filter → the states that it selects
FILTERS: dict[str, tuple[str, frozenset[TaskState]]] = {
    "": ("All states", frozenset()),
    "live": ("Not ended", LIVE),
    "ended": ("Ended", TERMINAL),
} | {str(state).lower(): (label, frozenset({TaskState(state)})) for state, label in display.LABELS.items()}


class TaskLists:
    """Handler of the page."""

    def __init__(self, service: JobService, board: Board, pages: DashboardPages) -> None:
        self._service = service
        self._board = board
        self._pages = pages
        self._kept: OrderedDict[tuple[Any, ...], tuple[float, bytes]] = OrderedDict()

    async def show(self, request: Request) -> Response:
        """Renders the page with the visitor's filters."""
        visitor = needs(request, KeyScope.READ)
        assert isinstance(visitor, Visitor)
        chosen = {name: request.query_params.get(name, "").strip()[:500] for name in ("state", "host", "q", "cursor")}
        chosen["state"] = chosen["state"].lower()  # the API writes states in capitals
        if chosen["state"] not in FILTERS:
            raise Refusal.of_field(
                "state", f"there is no {chosen['state'][:40]!r}; use one of {', '.join(FILTERS)[2:]}"
            )
        key = (visitor, *chosen.values())
        made_at, html = self._kept.get(key, (float("-inf"), b""))
        if time.monotonic() - made_at > KEPT_S:
            html = await self._list_html(visitor, chosen)
            self._kept[key] = (time.monotonic(), html)
            if len(self._kept) > KEPT_PAGES:
                self._kept.popitem(last=False)
        return Response(html, 200, {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}, "text/html")

    async def _list_html(self, visitor: Visitor, chosen: dict[str, str]) -> bytes:
        moment, counts = await self._board.moment(), await self._board.counts(visitor.owner)
        mine = [status for status in moment.started.values() if status.task.owner == visitor.owner]
        is_start = not any(chosen.values())
        listing = await self._read_listing(visitor, chosen, without_started=is_start)
        running = sorted(mine, key=lambda status: -(status.task.started_at or 0.0))[:AT_ONCE] if is_start else []
        return self._pages.html("tasks.html", visitor, {
            "nav": "tasks", "filters": FILTERS, "chosen": chosen, "is_start": is_start,
            "running": [_task_row(status.task, moment) for status in running], "more_running": len(mine) - len(running),
            "tasks": [_task_row(task, moment) for task in listing.tasks],
            "older": self._link(chosen, listing.next_cursor), "newer": self._link(chosen, listing.previous_cursor),
            "first": self._link(chosen, ""), "totals": self._board.totals(mine, counts),
            "counted": msgspec.json.encode(sorted(counts.items())).decode(),
            "total": sum(counts.values()), "moment": moment, "has_gap": bool(listing.next_cursor and not listing.tasks),
        })  # fmt: skip

    async def _read_listing(self, visitor: Caller, chosen: dict[str, str], *, without_started: bool) -> Listing:
        states = FILTERS[chosen["state"]][1]
        if without_started or (chosen["cursor"] and not any(chosen[name] for name in ("state", "host", "q"))):
            states = frozenset(TaskState) - STARTED
        try:
            return await self._service.list(
                visitor.owner, states=states, cursor=chosen["cursor"] or None, limit=AT_ONCE, text=chosen["q"],
                host=chosen["host"],
            )  # fmt: skip
        except BadInput as error:
            raise Refusal.of_field("cursor", str(error)) from None

    @staticmethod
    def _link(chosen: dict[str, str], cursor: str | None) -> str:
        if cursor is None:
            return ""
        given = {name: value for name, value in {**chosen, "cursor": cursor}.items() if value}
        return "/?" + urlencode(given) if given else "/"


def _task_row(task: Task, moment: Moment) -> dict[str, Any]:
    status = moment.started.get(task.id)
    if status is None or task.is_terminal:
        status = display.stored(task)
    return display.row(status, moment.at) | display.described(task, moment.at)
