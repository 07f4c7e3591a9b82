"""The page of the service as a whole: its health, slots, engine, blocked sites, and the panels of other products."""

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

_LANE_TITLES = {"task": "Tasks", "scrape": "Single pages", "site": "Sites"}
_PROCESS_METRICS = (  # What is shown of a process: metric, label, format.
    ("weft_process_resident_memory_bytes", "memory", text.size),
    ("weft_process_cpu_seconds_total", "cpu", text.duration),
    ("weft_process_open_fds", "files", text.count),
    ("weft_process_written_bytes_total", "written", text.size),
)


class ServicePage:
    """Handler of the service page."""

    def __init__(
        self,
        service: JobService,
        board: Board,
        pages: DashboardPages,
        settings: ApiSettings,
        stream_slots: StreamSlots,
        panels: Sequence[Panel],
    ) -> None:
        self._service = service
        self._board = board
        self._pages = pages
        self._metrics = {
            settings.data_dir / "engine" / "metrics",
            settings.metrics_dir or settings.data_dir / "metrics",
        }
        self._stream_slots = stream_slots
        self._panels = Panels(panels)

    async def show(self, request: Request) -> Response:
        """Renders the page."""
        visitor = needs(request, KeyScope.MONITOR)
        assert isinstance(visitor, Visitor)
        health, panels, processes, moment = await asyncio.gather(
            self._service.health(), self._panels.table(), asyncio.to_thread(_process_rows, self._metrics),
            self._board.moment(),
        )  # fmt: skip
        return self._pages.page("service.html", visitor, {
            "nav": "service", "health": health, "processes": processes, "moment": moment,
            "panels": [(title, table, column_kinds(table)) for title, table in panels],
            "lanes": _lane_rows(health), "error_kinds": display.errors(health.errors_by_class),
            "blocked": [
                (text.one_line(one.site, 200), text.machine_time(one.until), text.clock(one.until),
                 text.duration(max(0.0, one.until - moment.at)))
                for one in sorted(health.blocked_domains, key=lambda one: one.until)[:200]
            ],
            "streams": self._stream_slots.taken, "labels": display.LABELS,
        })  # fmt: skip


def _lane_rows(health: Health) -> list[dict[str, Any]]:
    return [
        {
            "title": _LANE_TITLES.get(name, name), "slots": lane.slots, "used": lane.slots - lane.available,
            "running": lane.running, "paused": lane.paused, "waiting": lane.waiting, "pending": lane.pending,
            "share": round(100 * (lane.slots - lane.available) / max(1, lane.slots), 1),
        }
        for name, lane in health.lanes.items()
    ]  # fmt: skip


def _process_rows(folders: set[Path]) -> list[dict[str, str]]:
    """The processes of the service, with the metrics that each has saved last."""
    processes: dict[int, dict[str, str]] = {}
    for path in sorted(path for folder in folders for path in folder.glob("*.metrics")):
        snapshot = read_snapshot(path)
        if snapshot is not None and snapshot.pid and Path(f"/proc/{snapshot.pid}").exists():
            processes[snapshot.pid] = _process_row(snapshot)
    return list(processes.values())


def _process_row(snapshot: Snapshot) -> dict[str, str]:
    cells = {"name": snapshot.process, "pid": str(snapshot.pid)}
    for metric, name, written in _PROCESS_METRICS:
        values = [series.values[0] for series in snapshot.series if series.name == metric]
        cells[name] = written(sum(values)) if values else "–"
    return cells
