"""The browser process: it receives orders from the engine over a socket, and runs browsers for them.

    python -m weft.fetch.browser.host FD

A browser is started when a page needs one, takes some pages at a time, is replaced after so many pages or when it has
grown, and is ended when nothing was to be rendered for a while. A browser that does not release a page is killed; its
other pages are marked as not at fault (`uncounted`). The process ends with the engine, and its browsers with it.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import socket
import sys
import time
from collections import Counter, deque
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from weft.fetch.browser.chromium import ChromiumTree
from weft.fetch.browser.devtools import DevtoolsError, DevtoolsPipe
from weft.fetch.browser.messages import (
    LONGEST,
    BrowserReport,
    CancelRender,
    HostSettings,
    PartQuestion,
    PartVerdict,
    RenderedPage,
    RenderOrder,
    ToEngine,
    for_host,
    packed,
)
from weft.fetch.browser.names import AwaitedNames
from weft.fetch.browser.proxy import GuardProxy, ProxyPass
from weft.fetch.browser.tab import RenderFailed, RenderTab
from weft.fetch.guard import Guard, is_loopback
from weft.frames import HEAD, length_of

REPORT_S = 0.5
MEASURE_S = 1.0
DISPOSE_S = 2.0
START_S = 30.0
LATE_START_S = 6.0  # after which it is reported that the first browser does not start
FAILED_STARTS = 3
RETRY_START_S = 10.0
LEAST_S = 2.0  # with less time than this left, no browser gets the page
HARD_BYTES = 2 << 30  # above an idle browser's memory: it is killed at once


def seen(work: asyncio.Future[Any]) -> None:
    """Retrieves the result of a task, so that asyncio does not warn of an error that was ignored on purpose."""
    if not work.cancelled():
        work.exception()


class BrowserGone(Exception):
    """The browser ended while it had a page; `is_own`: probably because of this page."""

    def __init__(self, why: str, *, is_own: bool) -> None:
        super().__init__(why)
        self.is_own = is_own


class BrowserSlot:
    """One browser, and the pages that it renders now."""

    def __init__(self, tree: ChromiumTree, refused: Counter[str]) -> None:
        """`refused`: counts the requests that no page's rules have permitted."""
        self.tree = tree
        self._refused = refused
        self.tabs: dict[str, RenderTab] = {}  # by context
        self.pages = 0  # pages that it was given, and that have not ended
        self.rendered = 0
        self.is_retiring = False
        self.is_reserved = False  # for the one page that it has
        self.died_of = "the browser has ended"
        self.idle_since = time.monotonic()
        self.base_bytes = 0  # its memory before its first page
        self.bytes = 0
        self.killed_for: RenderTab | None = None
        self._sessions: dict[str, RenderTab] = {}
        self._opening: list[RenderTab] = []
        self.pipe = DevtoolsPipe(tree.reads, tree.writes, self._event)

    async def start(self) -> None:
        """Starts the browser; returns when it answers."""
        await asyncio.wait_for(self.pipe.call("Browser.getVersion"), START_S)
        # Behind the rules of each target, which end with it: what they held of a frame that is removed, Chromium sends.
        await self.pipe.call("Fetch.enable", patterns=[{"urlPattern": "*", "requestStage": "Request"}])
        await self.pipe.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=True, flatten=True)
        self.base_bytes = self.bytes = self.tree.memory_bytes()

    async def render(self, tab: RenderTab) -> RenderedPage:
        """Renders one page in it."""
        self.rendered += 1
        self._opening.append(tab)
        work = asyncio.ensure_future(tab.render())
        work.add_done_callback(seen)
        gone = asyncio.ensure_future(self.pipe.gone.wait())
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if not work.done() or (gone.done() and work.exception() is not None):
                work.cancel()
                raise BrowserGone(self.died_of, is_own=self.killed_for is tab)
            return work.result()
        finally:
            gone.cancel()
            await self._release(tab)

    async def _release(self, tab: RenderTab) -> None:
        """Closes a page; a browser that does not release it is killed."""
        if tab in self._opening:
            self._opening.remove(tab)
        try:
            await asyncio.wait_for(tab.dispose(), DISPOSE_S)
        except DevtoolsError:
            pass
        except TimeoutError:
            self.end(tab)
        self.tabs.pop(tab.context, None)
        for session in [name for name, one in self._sessions.items() if one is tab]:
            del self._sessions[session]

    def end(self, because_of: RenderTab | None = None) -> None:
        """Kills the browser."""
        self.killed_for = self.killed_for or because_of
        self.is_retiring = True
        self.pipe.close()
        self.tree.kill()

    def _event(self, session: str, method: str, params: dict[str, Any]) -> None:
        if method == "Target.attachedToTarget":
            self._attached(params["sessionId"], params["targetInfo"])
            return
        if method == "Fetch.requestPaused" and not session:
            self._leaving(params)
            return
        tab = self._sessions.get(session)
        if tab is None and method == "Target.detachedFromTarget":
            tab = self._sessions.pop(params.get("sessionId", ""), None)
        if tab is not None:
            tab.event(session, method, params)

    def _leaving(self, params: dict[str, Any]) -> None:
        """A request is about to leave the browser: it does if a page's rules have permitted it."""
        if any(tab.passes(params) for tab in self.tabs.values()):
            self.pipe.send("Fetch.continueRequest", requestId=params["requestId"])
            return
        self._refused["not judged"] += 1
        self.pipe.send("Fetch.failRequest", requestId=params["requestId"], errorReason="BlockedByClient")

    def _attached(self, session: str, target: dict[str, Any]) -> None:
        context = target.get("browserContextId", "")
        tab = self.tabs.get(context)
        if tab is None:
            tab = next((one for one in self._opening if one.context == context), None)
            if tab is None:
                # Targets that no order has created, such as the browser's own first page.
                self.pipe.send("Runtime.runIfWaitingForDebugger", session)
                self.pipe.send("Target.detachFromTarget", sessionId=session)
                return
            self.tabs[context] = tab
        self._sessions[session] = tab
        tab.attach(session, target)


class WaitingOrder(NamedTuple):
    """A page that waits for room in a browser."""

    order: RenderOrder
    until: float

    @property
    def left_s(self) -> float:
        """The time left for it."""
        return self.until - time.monotonic()


class BrowserHost:
    """All browsers of an engine."""

    def __init__(self, settings: HostSettings, writer: asyncio.StreamWriter) -> None:
        self._settings = settings
        self._writer = writer
        self._proxy = GuardProxy()
        self._slots: list[BrowserSlot] = []
        self._starting = 0
        self._waiting: deque[WaitingOrder] = deque()
        self._running: dict[int, asyncio.Task[None]] = {}
        self._questions: dict[tuple[int, int], asyncio.Future[str]] = {}
        self._names: dict[tuple[tuple[str, str], ...], AwaitedNames] = {}
        self._deaths: Counter[str] = Counter()
        self._rendered = self._recycled = self._profiles = self._question = self._failures = 0
        self._unusable, self._unusable_until = "", 0.0
        self._progress = self._start_began = time.monotonic()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Removes the leftovers of an earlier process, and listens."""
        folder = Path(self._settings.folder)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o711, parents=True)
        await self._proxy.start()
        self._keep(self._watch())

    def handle(self, message: Any) -> None:
        """Handles a message of the engine."""
        match message:
            case RenderOrder():
                self._waiting.append(WaitingOrder(message, time.monotonic() + message.left_s))
                self._next()
            case CancelRender(number):
                self._waiting = deque(one for one in self._waiting if one.order.number != number)
                if (task := self._running.get(number)) is not None:
                    task.cancel()
            case PartVerdict(number, question, refused):
                answer = self._questions.pop((number, question), None)
                if answer is not None and not answer.done():
                    answer.set_result(refused)
            case _:
                pass

    def close(self) -> None:
        """Ends all browsers."""
        for task in (*self._tasks, *self._running.values()):
            task.cancel()
        for slot in self._slots:
            slot.end()
        self._proxy.close()
        shutil.rmtree(self._settings.folder, ignore_errors=True)

    # ── orders ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _next(self) -> None:
        """Gives waiting orders to browsers that have room."""
        while self._waiting:
            if self._unusable and time.monotonic() < self._unusable_until:
                order = self._waiting.popleft().order
                self._send(RenderedPage(order.number, error="browser", detail=self._unusable))
                continue
            if self._waiting[0].left_s < LEAST_S:
                order = self._waiting.popleft().order
                self._deaths["busy"] += 1
                self._send(RenderedPage(order.number, error="busy", detail="no browser had room for it in time"))
                continue
            slot = self._free_slot(is_alone=self._waiting[0].order.is_alone)
            if slot is None:
                is_enough = self._starting * self._settings.pages_per_browser >= len(self._waiting)
                if not is_enough and len(self._slots) + self._starting < self._settings.max_browsers:
                    self._starting += 1
                    self._keep(self._start())
                return
            waiting = self._waiting.popleft()
            order = msgspec.structs.replace(waiting.order, left_s=min(waiting.order.page_s, waiting.left_s))
            slot.is_reserved = order.is_alone
            slot.pages += 1  # counted now: several orders are assigned before the first of them runs
            task = asyncio.ensure_future(self._render(slot, order))
            self._running[order.number] = task
            task.add_done_callback(partial(self._ended, slot, order.number))

    def _ended(self, slot: BrowserSlot, number: int, _task: asyncio.Task[None]) -> None:
        self._running.pop(number, None)
        slot.pages -= 1
        slot.is_reserved = False
        slot.idle_since = time.monotonic()
        self._tidy(slot)
        self._next()

    def _free_slot(self, *, is_alone: bool) -> BrowserSlot | None:
        most = 1 if is_alone else self._settings.pages_per_browser
        usable = [
            slot
            for slot in self._slots
            if not (slot.is_retiring or slot.is_reserved or slot.pipe.gone.is_set()) and slot.pages < most
        ]
        # A second browser is started only when the first ones are busy.
        return min(usable, key=lambda slot: slot.pages, default=None)

    async def _start(self) -> None:
        settings = self._settings
        self._profiles += 1
        self._start_began = time.monotonic()
        try:
            profile = Path(settings.folder) / f"profile-{os.getpid()}-{self._profiles}"
            tree = ChromiumTree(settings.executable, profile, self._proxy.port, sandbox=settings.sandbox)
            slot = BrowserSlot(tree, self._proxy.refused)
            try:
                await slot.start()
            except (DevtoolsError, TimeoutError) as why:
                text = tree.why_it_failed()
                slot.end()
                raise OSError(f"Chromium does not start ({why or 'no answer'}): {text}") from None
            self._slots.append(slot)
            self._unusable, self._failures = "", 0
        except OSError as why:
            self._deaths["start"] += 1
            self._failures += 1
            if self._failures >= FAILED_STARTS:
                self._unusable, self._unusable_until = str(why), time.monotonic() + RETRY_START_S
        finally:
            self._starting -= 1
        self._next()

    async def _render(self, slot: BrowserSlot, order: RenderOrder) -> None:
        guard = Guard(order.allow_private)

        def refusal(address: str) -> str | None:
            why = guard.check(address)
            return why or ("beyond loopback" if order.loopback_only and not is_loopback(address) else None)

        one = ProxyPass(self._names_for(order), refusal, order.max_bytes * 10)
        self._proxy.add(str(order.number), one)

        async def ask(url: str, kind: str, is_page: bool) -> str:
            self._question += 1
            answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self._questions[order.number, self._question] = answer
            self._send(PartQuestion(order.number, self._question, url, kind, is_page))
            return await answer

        settings = self._settings
        tab = RenderTab(
            slot.pipe, order, one, ask, self._proxy.port,
            in_flight=settings.parts_in_flight, most_parts=settings.most_parts,
        )  # fmt: skip
        page = RenderedPage(order.number, error="cancelled")
        try:
            page = await slot.render(tab)
        except RenderFailed as why:
            page = self._failed(order, tab, why.kind, why.detail)
        except TimeoutError:
            page = self._failed(order, tab, "timeout", f"not there within {order.left_s:.0f} s")
        except BrowserGone as why:
            page = self._failed(order, tab, "crash" if why.is_own else "browser", str(why), uncounted=not why.is_own)
        except DevtoolsError as why:
            page = self._failed(order, tab, "browser", str(why))
        finally:
            self._proxy.remove(str(order.number))
            for key in [key for key in self._questions if key[0] == order.number]:
                self._questions.pop(key).cancel()
            self._progress = time.monotonic()
            self._rendered += not page.error
            self._send(page)

    def _failed(
        self, order: RenderOrder, tab: RenderTab, kind: str, detail: str, *, uncounted: bool = False
    ) -> RenderedPage:
        self._deaths[kind] += 1
        return RenderedPage(order.number, error=kind, detail=detail[:500], parts=tab.parts(), uncounted=uncounted)

    def _names_for(self, order: RenderOrder) -> AwaitedNames:
        key = tuple(sorted(order.resolve.items()))
        if key not in self._names:
            if len(self._names) > 100:
                self._names.pop(next(iter(self._names))).close()
            self._names[key] = AwaitedNames(order.resolve, self._settings.dns_servers)
        return self._names[key]

    # ── watching ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _tidy(self, slot: BrowserSlot) -> None:
        """Replaces a browser that has rendered its share, when its pages are finished."""
        if slot.rendered >= self._settings.recycle_pages or slot.bytes - slot.base_bytes > self._settings.recycle_bytes:
            slot.is_retiring = True
        if slot.is_retiring and not slot.pages and slot in self._slots:
            self._slots.remove(slot)
            self._recycled += slot.killed_for is None and not slot.tree.has_ended
            slot.end()

    async def _watch(self) -> None:
        measured = 0.0
        while True:
            await asyncio.sleep(REPORT_S)
            now = time.monotonic()
            for slot in list(self._slots):
                if slot.pipe.gone.is_set() or slot.tree.has_ended:
                    self._deaths["killed"] += slot.killed_for is None and not slot.is_retiring
                    slot.end()
                    if not slot.pages:
                        self._slots.remove(slot)
                elif not slot.pages and now - slot.idle_since > self._settings.idle_s:
                    self._slots.remove(slot)
                    slot.end()
            if self._unusable and now > self._unusable_until and not (self._starting or self._slots):
                self._starting += 1  # a restart is tested before the next page needs it
                self._keep(self._start())
            if now - measured > MEASURE_S:
                measured = now
                await self._measure()
            self._next()
            self._send(self._report(now))

    async def _measure(self) -> None:
        """Measures the browsers' memory; in a thread, since the kernel walks their pages for it."""
        for slot in list(self._slots):
            slot.bytes = await asyncio.to_thread(slot.tree.memory_bytes)
            if slot.bytes - slot.base_bytes > HARD_BYTES:
                self._deaths["memory"] += 1
                tabs = list(slot.tabs.values())
                slot.died_of = f"its browser took more than {HARD_BYTES >> 30} GB of memory"
                slot.end(tabs[0] if len(tabs) == 1 else None)
            elif not slot.pages:
                self._tidy(slot)

    def _report(self, now: float) -> BrowserReport:
        busy = sum(slot.pages for slot in self._slots)
        longest = max((one.order.left_s for one in self._waiting), default=0.0)
        working = not (busy or self._waiting) or now - self._progress < max(90.0, longest)
        if not busy and not self._waiting:
            self._progress = now
        return BrowserReport(
            len(self._slots), busy, sum(slot.bytes for slot in self._slots), self._rendered, self._recycled,
            dict(self._deaths), self._why_unusable(now), working, dict(self._proxy.refused),
        )  # fmt: skip

    def _why_unusable(self, now: float) -> str:
        is_late = self._starting and not self._slots and now - self._start_began > LATE_START_S
        return self._unusable or ("Chromium takes long to start, or cannot" if is_late else "")

    def _send(self, message: ToEngine) -> None:
        self._writer.write(packed(message))

    def _keep(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def serve(fd: int) -> None:
    """Serves until the engine has ended."""
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=fd), limit=1 << 20)
    host: BrowserHost | None = None
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    reading = asyncio.ensure_future(_stopped(stop))
    try:
        while True:
            taking = asyncio.ensure_future(_frame(reader))
            await asyncio.wait((taking, reading), return_when=asyncio.FIRST_COMPLETED)
            if not taking.done():
                taking.cancel()
                return
            message = for_host(taking.result())
            if isinstance(message, HostSettings):
                host = BrowserHost(message, writer)
                await host.start()
            elif host is not None:
                host.handle(message)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        reading.cancel()
        if host is not None:
            host.close()
        with suppress(OSError):
            writer.close()


async def _stopped(stop: asyncio.Event) -> None:
    await stop.wait()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = length_of(await reader.readexactly(HEAD))
    if size > LONGEST:
        raise ConnectionError("a frame is too long")
    return await reader.readexactly(size)


def main() -> None:
    """Runs the process."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    asyncio.run(serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
