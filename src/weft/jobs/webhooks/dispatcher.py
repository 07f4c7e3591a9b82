"""Delivers webhooks: a loop in the worker that has the runner's lease.

It keeps no state that decides anything: due hooks, their progress and next attempts are in the store. The events of a
hook are sent one after the other, each until the receiver has accepted it, so a receiver sees them in order. Progress
is stored after half a second of deliveries, or after a failure: a kill before that repeats a few events, with the same
ids and bodies.

Receivers are requested through libcurl, as sites are (fetch/curl/client.py): names are resolved here, every address
passes the guard at every connection, and redirects are not followed. A receiver has ten seconds, and its answer is not
read.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from weft import urls as url_rules
from weft.config import FetchSection
from weft.errors import WeftError
from weft.fetch.curl.async_client import AsyncClient
from weft.fetch.guard import Guard
from weft.fetch.headers import Head
from weft.jobs.errors import LeaseLost
from weft.jobs.model import Task
from weft.jobs.store.sqlite import SqliteJobStore
from weft.jobs.webhooks.forms import body_of, headers_of
from weft.jobs.webhooks.notification import Notification
from weft.jobs.webhooks.signatures import secret_of
from weft.jobs.webhooks.source import DeliverySource, EventBatch
from weft.jobs.webhooks.webhook_model import Attempt, Hook, HookState, failed, hook_spec_of, succeeded
from weft.records import FetchResult
from weft.scraping import HookEvent, TaskState
from weft.telemetry import Log

POLL_S = 0.1  # interval between reads of the due hooks
QUIET_S = 0.25  # interval between reads of one hook that had no events
ANSWER_S = 10.0  # timeout for a receiver
ANSWER_BYTES = 1024  # The bytes that are read of a receiver's answer.
AT_ONCE = 64  # The number of deliveries in flight.
OF_ONE_HOST = 8
DUE_AT_ONCE = 1000
KEEP_S = 0.5  # seconds of deliveries that a kill may repeat
# settings that belong to crawls, and must not apply to receivers
_CHANGED = {"headers": {}, "auth": {}, "cookies": "off", "accept": ("*/*",)}
log = Log("weft.jobs.webhooks")


class Dispatcher:
    """The dispatcher of one worker; it does nothing while another worker has the lease."""

    def __init__(
        self,
        store: SqliteJobStore,
        engine_dir: Path,
        fetch: FetchSection,
        fence: Callable[[], int | None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`fence`: returns the epoch of this worker's lease; None while it has none."""
        self._store = store
        self._fence = fence
        self._clock = clock
        self._section = msgspec.structs.replace(
            fetch, connect_timeout_s=min(fetch.connect_timeout_s, ANSWER_S), read_timeout_s=ANSWER_S,
            total_timeout_s=ANSWER_S, **_CHANGED,
        )  # fmt: skip
        self._guard = Guard(fetch.allow_private)
        self._source = DeliverySource(engine_dir, store.sites)
        self._running_deliveries: dict[str, asyncio.Task[None]] = {}
        self._last_read: dict[str, float] = {}  # monotonic, of hooks that had no events
        self._deliveries_by_host: Counter[str] = Counter()

    async def run(self) -> None:
        """Delivers until it is cancelled."""
        try:
            async with AsyncClient(self._section, refusal=self._guard.check, handles=AT_ONCE) as client:
                while True:
                    try:
                        self._run_turn(client)
                    except Exception as error:  # the edge of the loop: the next turn tries again
                        log.error("due webhooks cannot be read", exc_info=not isinstance(error, WeftError), error=error)
                    await asyncio.sleep(POLL_S)
        finally:
            await self._stop_deliveries()
            await self._source.close()

    def _run_turn(self, client: AsyncClient) -> None:
        if self._fence() is None:
            for busy in self._running_deliveries.values():
                busy.cancel()
            return
        now = time.monotonic()
        hooks = self._store.hooks.due(self._clock(), DUE_AT_ONCE + len(self._running_deliveries))
        due = {hook.task for hook in hooks}
        self._last_read = {name: at for name, at in self._last_read.items() if name in due}
        for hook in hooks:
            if hook.task in self._running_deliveries or now - self._last_read.get(hook.task, 0.0) < QUIET_S:
                continue
            task = self._store.get(hook.task)
            if task is None or task.state is TaskState.PENDING:
                self._last_read[hook.task] = now
                continue
            self._begin_delivery(client, hook, task)

    def _begin_delivery(self, client: AsyncClient, hook: Hook, task: Task) -> None:
        hook_spec = hook_spec_of(task)
        host = url_rules.host_of(hook_spec.url) if hook_spec is not None else ""
        if self._deliveries_by_host[host] >= OF_ONE_HOST:
            return
        self._deliveries_by_host[host] += 1
        running = asyncio.create_task(self._deliver_hook(client, hook, task), name=f"webhook-{task.id}")
        self._running_deliveries[task.id] = running

        def ended(_: object) -> None:
            del self._running_deliveries[task.id]
            self._deliveries_by_host[host] -= 1
            self._last_read[task.id] = time.monotonic()

        running.add_done_callback(ended)

    async def _stop_deliveries(self) -> None:
        busy = list(self._running_deliveries.values())
        for one in busy:
            one.cancel()
        await asyncio.gather(*busy, return_exceptions=True)

    async def _deliver_hook(self, client: AsyncClient, hook: Hook, task: Task) -> None:
        """Delivers all events of a hook, until the receiver fails."""
        try:
            await _HookDelivery(self, client, hook, task).run()
        except LeaseLost:
            pass
        except WeftError as error:
            log.error("a webhook could not be delivered", task=task.id, error=error)
        except Exception:
            # An error with one hook: the others continue, and this one is tried again.
            log.error("a webhook could not be delivered", task=task.id, exc_info=True)
            await asyncio.sleep(POLL_S)

    # ── for the delivery of one hook ───────────────────────────────────────────────────────────────────────────────

    async def batch(self, task: Task, hook: Hook) -> EventBatch:
        """The next events of a hook."""
        hook_spec = hook_spec_of(task)
        assert hook_spec is not None
        return await self._source.next(task, hook_spec, hook)

    async def post(self, client: AsyncClient, notification: Notification) -> tuple[Attempt, float]:
        """Makes one attempt; returns it, and the seconds of the receiver's Retry-After."""
        body, now = body_of(notification), self._clock()
        secret = secret_of(self._store.hooks.secret(), notification.task.owner)
        headers = headers_of(notification, secret, body, int(now))
        result = await client.post(notification.hook_spec.url, body, headers, keep_bytes=ANSWER_BYTES)
        if result.error == "stale":  # the kept connection was closed: the receiver has not seen this request
            result = await client.post(notification.hook_spec.url, body, headers, keep_bytes=ANSWER_BYTES)
        attempt = Attempt(
            number=notification.number,
            event=notification.event,
            at=self._clock(),
            status=result.status,
            error=_failure_text(result),
        )
        return attempt, Head(result.head).retry_after_s(self._clock()) or 0.0

    def now(self) -> float:
        """The wall-clock time."""
        return self._clock()

    async def keep(self, hook: Hook, attempts: list[Attempt]) -> Hook:
        """Stores the progress of a hook."""
        fence = self._fence()
        if fence is None:
            raise LeaseLost(0)
        return await asyncio.to_thread(self._store.hooks.record, hook, attempts, fence=fence)


class _HookDelivery:
    """The delivery of one hook, until there are no more events, or it fails."""

    def __init__(self, dispatcher: Dispatcher, client: AsyncClient, hook: Hook, task: Task) -> None:
        self._dispatcher = dispatcher
        self._client = client
        self._hook = self._kept = hook
        self._task = task
        self._attempts: list[Attempt] = []
        self._stored_at = time.monotonic()

    async def run(self) -> None:
        """Delivers one batch of events after the other."""
        while True:
            version = self._hook.version
            try:
                batch = await self._dispatcher.batch(self._task, self._hook)
            except Exception as error:
                await self._handle_unreadable(error)
                return
            for notification in batch.notifications:
                if not await self._deliver(notification):
                    return
                if self._hook.version != version:  # a replay was requested: the batch is outdated
                    break
            else:
                before, self._hook = self._hook, _after_batch(self._hook, batch)
                if batch.is_last or (self._hook == before and not batch.notifications):
                    if self._hook != self._kept or self._attempts:
                        await self._keep()
                    return

    async def _deliver(self, notification: Notification) -> bool:
        attempt, patience_s = await self._dispatcher.post(self._client, notification)
        self._attempts.append(attempt)
        if attempt.is_delivered:
            self._hook = succeeded(self._hook, notification.number)
            if time.monotonic() - self._stored_at >= KEEP_S:
                await self._keep()
            return True
        self._hook = failed(self._hook, attempt, patience_s, self._task.finished_at)
        log.info(
            "webhook failed",
            task=self._task.id,
            number=notification.number,
            error=attempt.error,
            state=self._hook.state,
        )
        await self._keep()
        return False

    async def _handle_unreadable(self, error: Exception) -> None:
        """Handles events that cannot be read: retried as if the receiver had failed, and given up as late."""
        log.error("an event cannot be read", task=self._task.id, error=error, exc_info=not isinstance(error, WeftError))
        error_text = f"the next event cannot be read: {error}"[:300]
        attempt = Attempt(
            number=self._hook.cursor + 1, event=HookEvent.PAGE, at=self._dispatcher.now(), error=error_text
        )
        self._hook = failed(self._hook, attempt, 0.0, self._task.finished_at)
        await self._keep()

    async def _keep(self) -> None:
        attempts, self._attempts = self._attempts, []
        self._hook = self._kept = await self._dispatcher.keep(self._hook, attempts)
        self._stored_at = time.monotonic()


def _after_batch(hook: Hook, batch: EventBatch) -> Hook:
    """The hook after all events of a batch were delivered."""
    for number in batch.again:  # also drops numbers that are not events, or no longer
        hook = succeeded(hook, number)
    if not batch.again:
        hook = succeeded(hook, batch.upto)
    return msgspec.structs.replace(hook, state=HookState.DONE) if batch.is_last else hook


def _failure_text(result: FetchResult) -> str:
    """What went wrong, in a line; empty if the receiver has accepted it."""
    if 200 <= result.status < 300:
        return ""
    if 300 <= result.status < 400:
        return f"HTTP {result.status}: redirects are not followed"
    if result.status:
        return f"HTTP {result.status}"
    return f"{result.error}: {result.detail}"[:300]
