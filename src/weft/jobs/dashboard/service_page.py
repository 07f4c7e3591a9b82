"""The page of the service as a whole: whether it is well, its slots, its engine, blocked sites, and others' panels."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.callers import needs
from weft.jobs.api.settings import ApiSettings
from weft.jobs.api.streams import StreamSlots
from weft.jobs.dashboard import display, text
from weft.jobs.dashboard.board import Board
from weft.jobs.dashboard.door import Visitor
from weft.jobs.dashboard.pages import DashboardPages
from weft.jobs.dashboard.panels import Panel, Panels, column_kinds
from weft.jobs.service import Health, JobService
from weft.telemetry import Snapshot, read_snapshot

_LANES = {"task": "Tasks", "scrape": "Single pages", "site": "Sites"}
_FIGURES = (  # of a process: its metric, what it is called, how it is written
    ("weft_process_resident_memory_bytes", "memory", text.size),
    ("weft_process_cpu_seconds_total", "cpu", text.duration),
    ("weft_process_open_fds", "files", text.count),
    ("weft_process_written_bytes_total", "written", text.size),
)


class ServicePage:
    """Holds what the page needs."""

    def __init__(
        self,
        service: JobService,
        board: Board,
        pages: DashboardPages,
        settings: ApiSettings,
        places: StreamSlots,
        panels: Sequence[Panel],
    ) -> None:
        self._service = service
        self._board = board
        self._pages = pages
        self._metrics = {
            settings.data_dir / "engine" / "metrics",
            settings.metrics_dir or settings.data_dir / "metrics",
        }
        self._places = places
        self._panels = Panels(panels)

    async def show(self, request: Request) -> Response:
        """The page."""
        visitor = needs(request, KeyScope.MONITOR)
        assert isinstance(visitor, Visitor)
        health, panels, processes, moment = await asyncio.gather(
            self._service.health(), self._panels.table(), asyncio.to_thread(_processes, self._metrics),
            self._board.moment(),
        )  # fmt: skip
        return self._pages.page("service.html", visitor, {
            "nav": "service", "health": health, "processes": processes, "moment": moment,
            "panels": [(title, table, column_kinds(table)) for title, table in panels],
            "lanes": _lanes(health), "error_kinds": display.errors(health.errors_by_class),
            "blocked": [
                (text.shown(one.site, 200), text.machine_time(one.until), text.clock(one.until),
                 text.duration(max(0.0, one.until - moment.at)))
                for one in sorted(health.blocked_domains, key=lambda one: one.until)[:200]
            ],
            "streams": self._places.taken, "labels": display.LABELS,
        })  # fmt: skip


def _lanes(health: Health) -> list[dict[str, Any]]:
    return [
        {
            "title": _LANES.get(name, name), "slots": lane.slots, "used": lane.slots - lane.available,
            "running": lane.running, "paused": lane.paused, "waiting": lane.waiting, "pending": lane.pending,
            "share": round(100 * (lane.slots - lane.available) / max(1, lane.slots), 1),
        }
        for name, lane in health.lanes.items()
    ]  # fmt: skip


def _processes(folders: set[Path]) -> list[dict[str, str]]:
    """The service's processes, as they have told last."""
    found: dict[int, dict[str, str]] = {}
    for path in sorted(path for folder in folders for path in folder.glob("*.metrics")):
        snapshot = read_snapshot(path)
        if snapshot is not None and snapshot.pid and Path(f"/proc/{snapshot.pid}").exists():
            found[snapshot.pid] = _process(snapshot)
    return list(found.values())


def _process(snapshot: Snapshot) -> dict[str, str]:
    figures = {"name": snapshot.process, "pid": str(snapshot.pid)}
    for metric, name, written in _FIGURES:
        values = [series.values[0] for series in snapshot.series if series.name == metric]
        figures[name] = written(sum(values)) if values else "–"
    return figures
