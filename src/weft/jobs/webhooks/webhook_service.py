"""The interface to webhooks for the API and the dashboard: status, delivery log, and replays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import BadInput
from weft.jobs.errors import NoWebhook, TaskUnknown
from weft.jobs.model import Task
from weft.jobs.store.sqlite import SqliteJobStore
from weft.jobs.webhooks.signatures import secret_of
from weft.jobs.webhooks.webhook_model import END, NOTHING, Delivery, Hook, HookSpec, end_number, hook_spec_of
from weft.scraping import MOST_RESENT


class HookStatus(Struct, frozen=True):
    """A task's webhook: its configuration and its progress."""

    hook_spec: HookSpec
    hook: Hook


class Deliveries(Struct, frozen=True):
    """A part of the delivery log; `next_cursor` is None if there is no more now."""

    deliveries: tuple[Delivery, ...]
    next_cursor: int | None


class Webhooks:
    """The interface to webhooks. `owner` as in `JobService`; raises NoWebhook if the task was submitted without one."""

    def __init__(self, store: SqliteJobStore, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    async def status(self, task_id: str, owner: str | None = None) -> HookStatus:
        """The status of a task's webhook."""
        task, hook_spec = self._ordered(task_id, owner)
        return _hook_status(task, hook_spec, self._store.hooks.get(task_id) or Hook(task=task_id))

    async def deliveries(
        self, task_id: str, owner: str | None = None, *, after: int = NOTHING, limit: int = 100
    ) -> Deliveries:
        """The results of its events after a number, in their order."""
        self._ordered(task_id, owner)
        deliveries = self._store.hooks.deliveries(task_id, after, limit + 1)
        some = tuple(deliveries[:limit])
        return Deliveries(some, some[-1].number if len(deliveries) > limit else None)

    async def replay(
        self, task_id: str, owner: str | None = None, *, after: int | None = None, numbers: Sequence[int] = ()
    ) -> HookStatus:
        """Sends again, with the same ids: all events after a number, or the events with some numbers. With neither, a
        hook that was given up, or whose receiver answered 410, continues where it stopped."""
        task, hook_spec = self._ordered(task_id, owner)
        if after is not None and numbers:
            raise BadInput("after, numbers: cannot be combined")
        if len(numbers) > MOST_RESENT:
            raise BadInput(f"numbers: at most {MOST_RESENT} at a time; use `after` for more")
        if after is not None and task.is_terminal and after >= end_number(task):
            after = None  # there are no events after it
        hook = await asyncio.to_thread(self._store.hooks.replay, task_id, after, tuple(numbers), self._clock())
        if hook is None:
            raise TaskUnknown(task_id)
        return _hook_status(task, hook_spec, hook)

    async def secret(self, owner: str = "") -> str:
        """The key that signs an owner's deliveries."""
        return secret_of(await asyncio.to_thread(self._store.hooks.secret), owner)

    def _ordered(self, task_id: str, owner: str | None) -> tuple[Task, HookSpec]:
        task = self._store.task(task_id, owner)
        hook_spec = hook_spec_of(task)
        if hook_spec is None:
            raise NoWebhook(task_id)
        return task, hook_spec


def _hook_status(task: Task, hook_spec: HookSpec, hook: Hook) -> HookStatus:
    """The status, with the number of the end instead of END."""
    return HookStatus(hook_spec, replace(hook, cursor=end_number(task)) if hook.cursor == END else hook)
