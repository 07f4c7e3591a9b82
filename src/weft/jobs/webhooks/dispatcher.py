"""Delivers webhooks: a loop in the worker that has the runner's lease.

It keeps nothing that decides anything: what is due, how far each hook is and when it is tried again is in the store. A
hook's events are sent one after the other, each until the receiver has taken it, so a receiver sees them first in their
order. How far a hook is, is written down after it has sent something for half a second, or has failed: a kill before
that sends a few events once more, with the same ids and bodies.

A receiver is asked by libcurl as sites are (fetch/curl/client.py): names are resolved here, every address passes the
guard at every connection, and no redirect is followed. It has ten seconds, and what it answers is not read.
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
from weft.jobs.webhooks.notification import Telling
from weft.jobs.webhooks.signatures import secret_of
from weft.jobs.webhooks.source import DeliverySource, Stretch
from weft.jobs.webhooks.webhook_model import Attempt, Hook, HookState, failed, order_of, succeeded
from weft.records import FetchResult
from weft.scraping import HookEvent, TaskState
from weft.telemetry import Log

POLL_S = 0.1  # between two looks at what is due
QUIET_S = 0.25  # between two looks at one hook that had nothing to tell
ANSWER_S = 10.0  # for a receiver
ANSWER_BYTES = 1024  # of its answer that are read
AT_ONCE = 64  # deliveries in flight
OF_ONE_HOST = 8
DUE_AT_ONCE = 1000
KEEP_S = 0.5  # of deliveries that a kill may repeat
_CHANGED = {"headers": {}, "auth": {}, "cookies": "off", "accept": ("*/*",)}  # a crawl's: not for strangers
log = Log("weft.jobs.webhooks")


class Dispatcher:
    """One worker's; it does nothing while another has the lease."""

    def __init__(
        self,
        store: SqliteJobStore,
        engine_dir: Path,
        fetch: FetchSection,
        fence: Callable[[], int | None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`fence`: the epoch of this worker's lease; None while it has none."""
        self._store = store
        self._fence = fence
        self._clock = clock
        self._section = msgspec.structs.replace(
            fetch, connect_timeout_s=min(fetch.connect_timeout_s, ANSWER_S), read_timeout_s=ANSWER_S,
            total_timeout_s=ANSWER_S, **_CHANGED,
        )  # fmt: skip
        self._guard = Guard(fetch.allow_private)
        self._source = DeliverySource(engine_dir, store.sites)
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._looked: dict[str, float] = {}  # monotonic, of hooks that had nothing to tell
        self._hosts: Counter[str] = Counter()

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            async with AsyncClient(self._section, refusal=self._guard.check, handles=AT_ONCE) as client:
                while True:
                    try:
                        self._turn(client)
                    except Exception as error:  # the edge of the loop: the next turn tries again
                        log.error(
                            "webhooks cannot be looked at", exc_info=not isinstance(error, WeftError), error=error
                        )
                    await asyncio.sleep(POLL_S)
        finally:
            await self._stop()
            await self._source.close()

    def _turn(self, client: AsyncClient) -> None:
        if self._fence() is None:
            for busy in self._busy.values():
                busy.cancel()
            return
        now = time.monotonic()
        hooks = self._store.hooks.due(self._clock(), DUE_AT_ONCE + len(self._busy))
        due = {hook.task for hook in hooks}
        self._looked = {name: at for name, at in self._looked.items() if name in due}
        for hook in hooks:
            if hook.task in self._busy or now - self._looked.get(hook.task, 0.0) < QUIET_S:
                continue
            task = self._store.get(hook.task)
            if task is None or task.state is TaskState.PENDING:
                self._looked[hook.task] = now
                continue
            self._begin(client, hook, task)

    def _begin(self, client: AsyncClient, hook: Hook, task: Task) -> None:
        order = order_of(task)
        host = url_rules.host_of(order.url) if order is not None else ""
        if self._hosts[host] >= OF_ONE_HOST:
            return
        self._hosts[host] += 1
        running = asyncio.create_task(self._serve(client, hook, task), name=f"webhook-{task.id}")
        self._busy[task.id] = running

        def ended(_: object) -> None:
            del self._busy[task.id]
            self._hosts[host] -= 1
            self._looked[task.id] = time.monotonic()

        running.add_done_callback(ended)

    async def _stop(self) -> None:
        busy = list(self._busy.values())
        for one in busy:
            one.cancel()
        await asyncio.gather(*busy, return_exceptions=True)

    async def _serve(self, client: AsyncClient, hook: Hook, task: Task) -> None:
        """Tells all that there is to tell, until the receiver fails."""
        try:
            await _Run(self, client, hook, task).run()
        except LeaseLost:
            pass
        except WeftError as error:
            log.error("a webhook could not be served", task=task.id, error=error)
        except Exception:
            # The edge of one hook: the others go on, and this one is tried again.
            log.error("a webhook could not be served", task=task.id, exc_info=True)
            await asyncio.sleep(POLL_S)

    # ── for one hook's run ─────────────────────────────────────────────────────────────────────────────────────────

    async def stretch(self, task: Task, hook: Hook) -> Stretch:
        """What a hook has to tell next."""
        order = order_of(task)
        assert order is not None
        return await self._source.next(task, order, hook)

    async def post(self, client: AsyncClient, told: Telling) -> tuple[Attempt, float]:
        """One attempt, and the seconds of patience that the receiver asks for."""
        body, now = body_of(told), self._clock()
        secret = secret_of(self._store.hooks.secret(), told.task.owner)
        headers = headers_of(told, secret, body, int(now))
        result = await client.post(told.order.url, body, headers, keep_bytes=ANSWER_BYTES)
        if result.error == "stale":  # the kept connection had ended: nobody has seen this request
            result = await client.post(told.order.url, body, headers, keep_bytes=ANSWER_BYTES)
        attempt = Attempt(
            number=told.number, event=told.event, at=self._clock(), status=result.status, error=_said(result)
        )
        return attempt, Head(result.head).retry_after_s(self._clock()) or 0.0

    def now(self) -> float:
        """By the wall clock."""
        return self._clock()

    async def keep(self, hook: Hook, attempts: list[Attempt]) -> Hook:
        """Writes down how far a hook is."""
        fence = self._fence()
        if fence is None:
            raise LeaseLost(0)
        return await asyncio.to_thread(self._store.hooks.record, hook, attempts, fence=fence)


class _Run:
    """One hook, from a look at it until there is nothing more to tell, or it fails."""

    def __init__(self, dispatcher: Dispatcher, client: AsyncClient, hook: Hook, task: Task) -> None:
        self._dispatcher = dispatcher
        self._client = client
        self._hook = self._kept = hook
        self._task = task
        self._attempts: list[Attempt] = []
        self._kept_at = time.monotonic()

    async def run(self) -> None:
        """Tells one stretch after the other."""
        while True:
            version = self._hook.version
            try:
                stretch = await self._dispatcher.stretch(self._task, self._hook)
            except Exception as error:
                await self._unread(error)
                return
            for told in stretch.told:
                if not await self._deliver(told):
                    return
                if self._hook.version != version:  # a replay has come: what was read is void
                    break
            else:
                before, self._hook = self._hook, _behind(self._hook, stretch)
                if stretch.is_last or (self._hook == before and not stretch.told):
                    if self._hook != self._kept or self._attempts:
                        await self._keep()
                    return

    async def _deliver(self, told: Telling) -> bool:
        attempt, patience_s = await self._dispatcher.post(self._client, told)
        self._attempts.append(attempt)
        if attempt.is_delivered:
            self._hook = succeeded(self._hook, told.number)
            if time.monotonic() - self._kept_at >= KEEP_S:
                await self._keep()
            return True
        self._hook = failed(self._hook, attempt, patience_s, self._task.finished_at)
        log.info("webhook failed", task=self._task.id, number=told.number, error=attempt.error, state=self._hook.state)
        await self._keep()
        return False

    async def _unread(self, error: Exception) -> None:
        """What is to be told cannot be read: tried again as if the receiver had failed, and given up as late."""
        log.error("an event cannot be read", task=self._task.id, error=error, exc_info=not isinstance(error, WeftError))
        said = f"the next event cannot be read: {error}"[:300]
        attempt = Attempt(number=self._hook.cursor + 1, event=HookEvent.PAGE, at=self._dispatcher.now(), error=said)
        self._hook = failed(self._hook, attempt, 0.0, self._task.finished_at)
        await self._keep()

    async def _keep(self) -> None:
        attempts, self._attempts = self._attempts, []
        self._hook = self._kept = await self._dispatcher.keep(self._hook, attempts)
        self._kept_at = time.monotonic()


def _behind(hook: Hook, stretch: Stretch) -> Hook:
    """The hook when all of a stretch was told."""
    for number in stretch.again:  # those that are no events any more, or never were, are dropped, too
        hook = succeeded(hook, number)
    if not stretch.again:
        hook = succeeded(hook, stretch.upto)
    return msgspec.structs.replace(hook, state=HookState.DONE) if stretch.is_last else hook


def _said(result: FetchResult) -> str:
    """What went wrong, in a line; empty where the receiver has taken it."""
    if 200 <= result.status < 300:
        return ""
    if 300 <= result.status < 400:
        return f"HTTP {result.status}: redirects are not followed"
    if result.status:
        return f"HTTP {result.status}"
    return f"{result.error}: {result.detail}"[:300]
