"""A view of the service that is shared by all dashboard viewers of a worker, so that they cost one query together.

`moment` has the status of everything that runs, at most FRESH_S old; `histories` has the past of tasks that are viewed.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from weft.jobs.api.access.keys import Keyring
from weft.jobs.dashboard import display, text
from weft.jobs.dashboard.charts import charts_of
from weft.jobs.dashboard.history import History
from weft.jobs.errors import JobError
from weft.jobs.model import STARTED
from weft.jobs.service import JobEvent, JobService, TaskSnapshot
from weft.scraping import TaskState

FRESH_S = 0.5
HEALTH_S = 5.0  # maximum age of the health shown on every page
LATEST = 15  # recent pages shown for a task
KEPT_HISTORIES = 200
AT_ONCE_S = 0.2  # The time limit for reading a task's past in one update; the rest is read at the next one.


class Moment(Struct, frozen=True):
    """The status of everything that runs, at one moment."""

    at: float
    started: dict[str, TaskSnapshot]
    counts: dict[str, int]  # tasks by state, of all owners
    is_healthy: bool
    problem: str


class Board:
    """Reads the service for the viewers of one worker, and caches the answers."""

    def __init__(self, service: JobService, keyring: Keyring, clock: Callable[[], float] = time.time) -> None:
        self._service = service
        self._keyring = keyring
        self._clock = clock
        self._refreshing = asyncio.Lock()
        self._moment: Moment | None = None
        self._moment_at = self._health_at = float("-inf")  # monotonic
        self._problem = ""
        # owner → counts of all owners at that time, and the owner's own
        self._counts: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
        self._histories: OrderedDict[str, History] = OrderedDict()
        # task → number of its last event, and its latest events
        self._latest: dict[str, tuple[int, tuple[JobEvent, ...]]] = {}

    async def moment(self) -> Moment:
        """The current moment, at most FRESH_S old."""
        async with self._refreshing:
            if self._moment is None or time.monotonic() - self._moment_at > FRESH_S:
                await self._refresh_health()
                started, counts = await asyncio.gather(self._service.started(), self._service.counts())
                by_id = {status.task.id: status for status in started}
                self._moment = Moment(self._clock(), by_id, counts, not self._problem, self._problem)
                self._moment_at = time.monotonic()
            return self._moment

    def forget(self) -> None:
        """Drops the cached moment after a change, so that the next viewer sees it."""
        self._moment_at = float("-inf")

    async def _refresh_health(self) -> None:
        if time.monotonic() - self._health_at < HEALTH_S:
            return
        self._health_at = time.monotonic()
        try:
            self._problem = "; ".join((await self._service.health()).problems)
        except JobError as error:
            self._problem = str(error)

    async def counts(self, owner: str) -> dict[str, int]:
        """An owner's tasks by state; counted again when any count has changed."""
        moment = await self.moment()
        if self._keyring.is_empty:
            return moment.counts
        then, own = self._counts.get(owner, ({}, {}))
        if then != moment.counts or not own:
            own = await self._service.counts(owner)
            self._counts[owner] = (moment.counts, own)
            if len(self._counts) > 1000:
                self._counts.pop(next(iter(self._counts)))
        return own

    # ── live updates ───────────────────────────────────────────────────────────────────────────────────────────────

    async def tasks(self, owner: str) -> dict[str, Any]:
        """The live update for pages with many tasks: the status of running tasks, and whether the list has changed."""
        moment, counts = await self.moment(), await self.counts(owner)
        mine = [status for status in moment.started.values() if status.task.owner == owner]
        return {
            "rows": [display.row(status, moment.at) for status in mine],
            "figures": self.totals(mine, counts),
            "is_healthy": moment.is_healthy,
            "counts": sorted(counts.items()),
        }

    @staticmethod
    def totals(mine: list[TaskSnapshot], counts: dict[str, int]) -> dict[str, str]:
        """The totals above a list."""
        running = sum(counts.get(state, 0) for state in STARTED)
        ended = sum(
            number for state, number in counts.items() if state in display.LABELS and TaskState(state).is_terminal
        )
        return {
            "running": text.count(running),
            "waiting": text.count(counts.get(TaskState.PENDING, 0)),
            "ended": text.count(ended),
            "rate": text.decimal(sum(status.pages_per_s for status in mine)),
        }

    async def task(self, task_id: str, owner: str) -> dict[str, Any]:
        """The live update for a task's own page."""
        status = await self.status(task_id, owner)
        history, now = await self.history(status), self._clock()
        until = None if status.task.is_terminal else now
        return {
            **display.row(status, now),
            "finish": display.REASONS.get(str(status.task.finish_reason), ""),
            "figures": display.figures(status, history.body_bytes, now),
            "error_kinds": display.errors(status.errors_by_class),
            "charts": charts_of(history, until),
            "latest": [display.event(event, now) for event in await self.latest(status)],
            "is_over": status.task.is_terminal,
        }

    async def status(self, task_id: str, owner: str) -> TaskSnapshot:
        """A task's status; from the cached moment if it runs."""
        moment = await self.moment()
        status = moment.started.get(task_id)
        if status is not None and status.task.owner == owner:
            return status
        return await self._service.status(task_id, owner)

    async def history(self, status: TaskSnapshot) -> History:
        """A task's history; reads what is missing, a part at a time."""
        history = self._histories.setdefault(status.task.id, History())
        self._histories.move_to_end(status.task.id)
        if len(self._histories) > KEPT_HISTORIES:
            gone, _ = self._histories.popitem(last=False)
            self._latest.pop(gone, None)
        until = time.monotonic() + AT_ONCE_S
        while history.number < status.number:
            after = history.number
            timeline = await self._service.timeline(status.task.id, after=after)
            if history.number == after:  # otherwise a concurrent request has added it
                history.add(timeline.seconds, timeline.number)
            if timeline.is_whole or time.monotonic() > until:
                break
        return history

    async def latest(self, status: TaskSnapshot) -> tuple[JobEvent, ...]:
        """The pages and errors of a task that were stored last."""
        number, events = self._latest.get(status.task.id, (-1, ()))
        if number != status.number:
            latest = await self._service.latest(status.task.id, limit=LATEST, kinds=("page", "error"))
            events = latest.events
            self._latest[status.task.id] = (status.number, events)
        return events
