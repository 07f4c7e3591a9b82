"""A scrape service in memory that does what a test tells it to: tasks, events and results, and no engine.

It keeps the promises of `weft.jobs.service.JobService`: numbered events, owners, idempotency keys, states.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

from msgspec.structs import replace

from weft.errors import BadInput
from weft.jobs.errors import KeyReused, NoWebhook, QueueFull, TaskFinished, TaskUnknown
from weft.jobs.model import STARTED, JobProgress, Task, new_task_id, waiting_of
from weft.jobs.service import (
    Failure,
    Health,
    JobEvent,
    LaneHealth,
    Latest,
    RecordSlice,
    ResultSlice,
    ScrapedResult,
    Second,
    Submission,
    TaskSnapshot,
    Timeline,
)
from weft.jobs.store.contract import Idempotency, Listing, Submitted
from weft.jobs.webhooks.webhook_model import Delivery, Hook, hook_spec_of
from weft.jobs.webhooks.webhook_service import Deliveries, HookStatus, Webhooks
from weft.scraping import ErrorClass, FinishReason, TaskState
from weft.urls import host_of


class ScriptedService:
    """See `JobService`."""

    def __init__(self, max_pending: int = 10_000) -> None:
        self.tasks: dict[str, Task] = {}
        self.log: dict[str, list[JobEvent]] = {}
        self.keys: dict[tuple[str, str], tuple[str, str]] = {}
        self.max_pending = max_pending
        self.fails: Exception | None = None  # what the next calls raise
        self.problems: tuple[str, ...] = ()
        self.webhooks = ScriptedWebhooks(self)
        self.sites: Any = None  # a test that asks for them gives some
        self._news = asyncio.Event()

    # ── what a test makes happen ───────────────────────────────────────────────────────────────────────────────────

    def happens(self, task_id: str, kind: str, **data: Any) -> JobEvent:
        """One event; progress has no number."""
        log = self.log[task_id]
        number = None if kind == "progress" else sum(event.number is not None for event in log) + 1
        event = JobEvent(kind=kind, number=number, at=time.time(), data=data)
        log.append(event)
        self._wake()
        return event

    def page(self, task_id: str, url: str, **document: Any) -> None:
        """A page was scraped."""
        self.happens(task_id, "page", url=url, status=200, title="A title", depth=0, length=5, document=document)

    def error(self, task_id: str, url: str, status: int = 500) -> None:
        """A page failed."""
        self.happens(task_id, "error", url=url, status=status, error="", error_class=ErrorClass.HTTP_5XX, depth=1)

    def move(self, task_id: str, state: TaskState, reason: FinishReason | None = None) -> Task:
        """The task changes its state."""
        task, now = self.tasks[task_id], time.time()
        times: dict[str, Any] = {"finished_at": now} if state.is_terminal else {}
        if state is TaskState.RUNNING and task.started_at is None:
            times = {"started_at": now, "deadline_at": now + task.spec.timeout_s}
        moved = replace(task, state=state, finish_reason=reason, version=task.version + 1, **times)
        self.tasks[task_id] = moved
        self.happens(task_id, "state", state=str(state), finish_reason=reason)
        return moved

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    # ── the protocol ───────────────────────────────────────────────────────────────────────────────────────────────

    async def submit(self, submission: Submission) -> Submitted:
        self._raise()
        idempotency = submission.idempotency
        if idempotency is not None and (known := self.keys.get((submission.owner, idempotency.key))):
            if known[1] != idempotency.digest:
                raise KeyReused(known[0])
            return Submitted(self.tasks[known[0]], False)
        if len(self.tasks) >= self.max_pending:
            raise QueueFull(len(self.tasks), 7)
        task = Task(
            id=new_task_id(), owner=submission.owner, url=submission.urls[0], url_count=len(submission.urls),
            spec=submission.spec, created_at=time.time(),
        )  # fmt: skip
        self.tasks[task.id], self.log[task.id] = task, []
        if idempotency is not None:
            self.keys[submission.owner, idempotency.key] = (task.id, idempotency.digest)
        return Submitted(task, True)

    async def status(self, task_id: str, owner: str | None = None) -> TaskSnapshot:
        task = self._task(task_id, owner)
        events = self.log[task_id]
        progress = JobProgress(
            completed=sum(event.kind == "page" for event in events),
            failed=sum(event.kind == "error" for event in events),
        )
        waiting_for, waiting_until = waiting_of(task)
        return TaskSnapshot(
            waiting_for=waiting_for, waiting_until=waiting_until,
            task=task, progress=progress, errors_by_class={"http_5xx": progress.failed} if progress.failed else {},
            duration_s=task.duration_s(time.time()), remaining_s=task.remaining_s(time.time()),
            waiting_before=0 if task.state is TaskState.PENDING else None, number=self._numbered(task_id),
        )  # fmt: skip

    async def results(
        self,
        task_id: str,
        owner: str | None = None,
        *,
        cursor: int = 0,
        limit: int = 100,
        include_errors: bool = False,
    ) -> ResultSlice:
        self._task(task_id, owner)
        wanted = ("page", "error") if include_errors else ("page",)
        behind = [event for event in self.log[task_id] if (event.number or 0) > cursor]
        found = [event for event in behind if event.kind in wanted]
        some = found[:limit]
        last = some[-1].number or 0 if len(found) > limit else max(self._numbered(task_id), cursor)
        return ResultSlice(
            results=tuple(_result(event) for event in some if event.kind == "page"),
            errors=tuple(_failure(event) for event in some if event.kind == "error"),
            cursor=last,
            next_cursor=last if len(found) > limit else None,
        )

    async def cursor_behind(self, task_id: str, owner: str | None = None, *, pages: int) -> int:
        self._task(task_id, owner)
        numbers = [event.number or 0 for event in self.log[task_id] if event.kind == "page"]
        return self._numbered(task_id) if pages > len(numbers) else [0, *numbers][pages]

    async def records(self, task_id: str, owner: str | None = None, **stretch: Any) -> RecordSlice:
        """No records: the URLs of the pages that they would be of."""
        found = await self.results(task_id, owner, **stretch)
        data = "".join(f"{page.url}\n" for page in found.results).encode()
        return RecordSlice(data=data, cursor=found.cursor, next_cursor=found.next_cursor)

    async def events(self, task_id: str, owner: str | None = None, *, after: int = 0) -> AsyncIterator[JobEvent]:
        place = 0
        while True:
            task, news = self._task(task_id, owner), self._news
            log = self.log[task_id]
            while place < len(log):
                event = log[place]
                place += 1
                if event.number is None or event.number > after:
                    yield _event(event)
            if task.is_terminal:
                return
            await news.wait()

    async def stored(self, task_id: str, owner: str | None = None, *, after: int = 0) -> Sequence[JobEvent]:
        self._task(task_id, owner)
        return [_event(event) for event in self.log[task_id] if (event.number or 0) > after]

    async def cancel(self, task_id: str, owner: str | None = None) -> Task:
        task = self._task(task_id, owner)
        return task if task.is_terminal else self.move(task_id, TaskState.CANCELLED, FinishReason.CANCELLED)

    async def pause(self, task_id: str, owner: str | None = None) -> Task:
        return self._step(task_id, owner, TaskState.RUNNING, TaskState.PAUSED, "paused")

    async def resume(self, task_id: str, owner: str | None = None) -> Task:
        return self._step(task_id, owner, TaskState.PAUSED, TaskState.RUNNING, "resumed")

    async def append(
        self,
        task_id: str,
        urls: Sequence[str],
        owner: str | None = None,
        *,
        idempotency: Idempotency | None = None,
    ) -> Task:
        return self._task(task_id, owner)

    async def list(
        self,
        owner: str | None = None,
        *,
        states: Collection[TaskState] = (),
        cursor: str | None = None,
        limit: int = 50,
        text: str = "",
        host: str = "",
    ) -> Listing:
        if cursor is not None and not cursor.isdigit():
            raise BadInput(f"{cursor!r} is no cursor")
        mine = [task for task in reversed(self.tasks.values()) if owner in (None, task.owner)]
        mine = [task for task in mine if text in task.url and host in host_of(task.url)]
        found = [task for task in mine if not states or task.state in states][int(cursor or 0) :]
        more = str(int(cursor or 0) + limit) if len(found) > limit else None
        return Listing(tuple(found[:limit]), more)

    async def started(self) -> tuple[TaskSnapshot, ...]:
        return tuple([await self.status(task.id) for task in self.tasks.values() if task.state in STARTED])

    async def counts(self, owner: str | None = None) -> dict[str, int]:
        return dict(Counter(str(task.state) for task in self.tasks.values() if owner in (None, task.owner)))

    async def latest(
        self,
        task_id: str,
        owner: str | None = None,
        *,
        before: int | None = None,
        limit: int = 50,
        kinds: Collection[str] = (),
        error_class: str = "",
    ) -> Latest:
        self._task(task_id, owner)
        found = [event for event in reversed(self.log[task_id]) if 0 < (event.number or 0) < (before or 1 << 62)]
        found = [event for event in found if event.kind in (kinds or ("state", "page", "error"))]
        found = [event for event in found if error_class in ("", str(event.data.get("error_class")))]
        return Latest(tuple(found[:limit]), found[limit - 1].number if len(found) > limit else None)

    async def timeline(self, task_id: str, owner: str | None = None, *, after: int = 0) -> Timeline:
        self._task(task_id, owner)
        behind = [event for event in self.log[task_id] if (event.number or 0) > after]
        seconds = [
            Second(int(event.at), int(event.kind == "page"), int(event.kind == "error"), event.data.get("length", 0))
            for event in behind
            if event.kind in ("page", "error")
        ]
        return Timeline(tuple(seconds), max([after, *(event.number or 0 for event in behind)]), True)

    async def health(self) -> Health:
        self._raise()
        running = tuple(task.id for task in self.tasks.values() if task.state is TaskState.RUNNING)
        return Health(
            is_healthy=not self.problems, problems=self.problems, active=running, blocked_domains=(),
            lanes={"task": LaneHealth(5, 5 - len(running), len(running), 0, 0)}, errors_by_class={}, tasks_by_state={},
            success_rate=None, pages_per_s=0.0, page_seconds_p50=None, page_seconds_p95=None, task_seconds_p50=None,
            task_seconds_p95=None,
        )  # fmt: skip

    async def close(self) -> None:
        self._wake()

    def _raise(self) -> None:
        if self.fails is not None:
            raise self.fails

    def _task(self, task_id: str, owner: str | None) -> Task:
        self._raise()
        task = self.tasks.get(task_id)
        if task is None or owner not in (None, task.owner):
            raise TaskUnknown(task_id)
        return task

    def _step(self, task_id: str, owner: str | None, before: TaskState, after: TaskState, done: str) -> Task:
        task = self._task(task_id, owner)
        if task.state is after:
            return task
        if task.state is not before:
            raise TaskFinished(task_id, task.state, done)
        return self.move(task_id, after)

    def _numbered(self, task_id: str) -> int:
        return max((event.number or 0 for event in self.log[task_id]), default=0)


class ScriptedWebhooks(Webhooks):
    """A log that a test fills, and what was asked to be sent again."""

    def __init__(self, service: ScriptedService) -> None:
        self._service = service
        self.log: dict[str, list[Delivery]] = {}
        self.hooks: dict[str, Hook] = {}

    async def status(self, task_id: str, owner: str | None = None) -> HookStatus:
        hook_spec = hook_spec_of(self._service._task(task_id, owner))
        if hook_spec is None:
            raise NoWebhook(task_id)
        return HookStatus(hook_spec, self.hooks.get(task_id, Hook(task=task_id)))

    async def deliveries(
        self, task_id: str, owner: str | None = None, *, after: int = -1, limit: int = 100
    ) -> Deliveries:
        await self.status(task_id, owner)
        found = [one for one in self.log.get(task_id, []) if one.number > after]
        return Deliveries(tuple(found[:limit]), found[limit - 1].number if len(found) > limit else None)

    async def replay(
        self, task_id: str, owner: str | None = None, *, after: int | None = None, numbers: Sequence[int] = ()
    ) -> HookStatus:
        hook_spec = (await self.status(task_id, owner)).hook_spec
        self.hooks[task_id] = Hook(task=task_id, cursor=-1 if after is None else after, resend=tuple(numbers))
        return HookStatus(hook_spec, self.hooks[task_id])

    async def secret(self, owner: str = "") -> str:
        return f"whsec_{owner}"


def _event(event: JobEvent) -> JobEvent:
    return replace(event, data={name: value for name, value in event.data.items() if name != "document"})


def _result(event: JobEvent) -> ScrapedResult:
    data = event.data
    return ScrapedResult(
        number=event.number or 0, url=data["url"], status=data["status"], title=data["title"], depth=data["depth"],
        fetched_at=event.at, document=data["document"],
    )  # fmt: skip


def _failure(event: JobEvent) -> Failure:
    data = event.data
    return Failure(
        number=event.number or 0, url=data["url"], status=data["status"], error=data["error"],
        error_class=data["error_class"], depth=data["depth"], at=event.at,
    )  # fmt: skip
