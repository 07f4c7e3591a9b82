"""One page in a browser: loaded from the fetched response, its parts judged one by one, read when it is complete.

Every target of the page (its frames, its workers, windows that it opens) is attached before it runs, with requests held
at their beginning. The page's own document is answered from the order; each part is requested when the engine permits
it.
"""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64encode
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from weft import urls
from weft.errors import BadUrl
from weft.fetch.browser.actions import ActionFailed, PageActions
from weft.fetch.browser.devtools import DevtoolsError, DevtoolsPipe
from weft.fetch.browser.messages import PartAge, RenderedPage, RenderOrder
from weft.fetch.browser.proxy import ProxyPass

MOST_NAVIGATIONS = 5  # of the page's main frame, after the first
LATE_FACTOR = 3  # of the longest wait: for pages whose scripts have not arrived or run
MOST_CONSOLE = 50
MOST_KEPT_CHARS = 1 << 20  # of an origin's storage
OF_ELEMENT = "css:"  # in front of the selector of a screenshot
Ask = Callable[[str, str, bool], Awaitable[str]]
# Headers of the page that describe the transfer, or make the browser request or store more than the page.
_LEFT_OUT = frozenset(
    "content-encoding content-length transfer-encoding connection keep-alive content-disposition alt-svc nel report-to "
    "reporting-endpoints strict-transport-security clear-site-data accept-ch critical-ch service-worker-allowed "
    "speculation-rules origin-agent-cluster trailer upgrade".split()
)
# Kinds of requests that belong to a page; favicons, prefetches, pings and reports do not.
_WANTED = frozenset("Document Stylesheet Image Media Font Script TextTrack XHR Fetch EventSource".split())
_KINDS = {"media": "Media", "font": "Font", "image": "Image", "stylesheet": "Stylesheet", "script": "Script"}
_TRACKERS = (
    "google-analytics.com", "googletagmanager.com", "doubleclick.net", "googlesyndication.com", "adservice.google.com",
    "connect.facebook.net", "facebook.com", "hotjar.com", "clarity.ms", "segment.io", "segment.com", "mixpanel.com",
    "amplitude.com", "scorecardresearch.com", "quantserve.com", "criteo.com", "taboola.com", "outbrain.com",
    "adnxs.com", "newrelic.com", "nr-data.net", "bat.bing.com", "matomo.cloud", "cloudflareinsights.com",
)  # fmt: skip
# Runs first in every frame and worker. It covers prototypes, too: a getter of a prototype works on an object that has
# lost its own.
_QUIET = """
for (const name of ["WebSocket", "WebSocketStream", "WebTransport", "RTCPeerConnection", "webkitRTCPeerConnection",
                    "SharedWorker", "fetchLater"])
  try { Object.defineProperty(globalThis, name, {value: undefined, configurable: false}) } catch {}
try { globalThis.print = () => {} } catch {}
// What outlives its frame is sent when no request of the frame is held any more.
try { Navigator.prototype.sendBeacon = function sendBeacon() { return true } } catch {}
{ const { fetch, Request } = globalThis;
  const within = options => options && options.keepalive ? { ...options, keepalive: false } : options;
  globalThis.fetch = function (input, options) {
    const is_kept = input instanceof Request && input.keepalive;
    return fetch.call(this, is_kept ? new Request(input, { keepalive: false }) : input, within(options)) } }
for (const name of ["Navigator", "WorkerNavigator"]) try { delete globalThis[name].prototype.serviceWorker } catch {}
try { Object.defineProperty(navigator, "serviceWorker", {value: undefined, configurable: false}) } catch {}
"""
# Idle, or many tasks later: after an input Chromium may have no idle time for seconds, however little there is to do.
_IDLE = """new Promise(done => { let left = 50; requestIdleCallback(done);
  const next = () => left-- ? setTimeout(next) : done(); next() }).then(() => 0)"""
_MOST_BUSY_WAITS = 3  # in a row, without a request: what a page does for longer is taken for an animation
_HAS_TEXT = "/\\w/.test(document.body ? document.body.innerText : '')"
_DATA = frozenset({"XHR", "Fetch"})
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
# A page that has cleared its storage, as a logout does, keeps it empty.
_STORE = """try { if (location.origin === ORIGIN && !localStorage.length)
  for (const [name, value] of Object.entries(KEPT)) localStorage.setItem(name, value) } catch {}"""
# What a reader sees: an element with a shadow tree has that instead of its children, which are put into its slots. The
# copy is made in a document that runs nothing. HTML that is longer than MOST is not transferred, only its length.
_READ = """(() => { const root = document.documentElement, type = document.doctype;
  const kind = type ? new XMLSerializer().serializeToString(type) : "";
  const inert = document.implementation.createHTMLDocument("");
  const inside = node => node.shadowRoot ? node.shadowRoot.childNodes : node.childNodes;
  const flat = node => {
    if (node.nodeType !== 1 || node.localName === "template") return [inert.importNode(node, true)];
    if (node.localName === "slot" && node.getRootNode() instanceof ShadowRoot) {
      const given = node.assignedNodes();
      return [...(given.length ? given : node.childNodes)].flatMap(flat) }
    const made = inert.importNode(node, false);
    for (const child of inside(node)) made.append(...flat(child));
    return [made] };
  let html = root ? root.outerHTML : "";
  if (html.length <= MOST && [...document.querySelectorAll("*")].some(one => one.shadowRoot))
    try { html = flat(root)[0].outerHTML } catch {}
  let kept = null;
  if (IS_KEPT) try { kept = Object.entries(localStorage) } catch {}
  return [location.href, document.title, html.length, html.length > MOST ? "" : kind + html, kept] })()"""


class RenderFailed(Exception):
    """The page cannot be rendered; `kind` is counted."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(detail or kind)
        self.kind, self.detail = kind, detail


class _PartState:
    """A request under way."""

    __slots__ = ("began", "ended", "host", "kind", "outcome", "sent", "url")

    def __init__(self, url: str, kind: str, host: str) -> None:
        self.url, self.kind, self.host = url, kind, host
        self.began = time.monotonic()
        self.ended = 0.0
        self.outcome = ""
        self.sent = False


class RenderTab:
    """Renders one order in a browser context of its own, which shares nothing with other pages."""

    def __init__(
        self,
        pipe: DevtoolsPipe,
        order: RenderOrder,
        one: ProxyPass,
        ask: Ask,
        proxy_port: int,
        *,
        in_flight: int,
        most_parts: int,
    ) -> None:
        self._pipe = pipe
        self._order = order
        self._pass = one
        self._ask = ask
        self._proxy_port = proxy_port
        self._most_parts = most_parts
        self._gates: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(in_flight))
        self.context = ""
        self.session = ""
        self.sessions: set[str] = set()
        self._frame = ""
        self._attached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failed.add_done_callback(lambda failed: failed.cancelled() or failed.exception())
        self._changed = asyncio.Event()
        self._loaded = False
        self._is_busy = False  # it has not run all that has arrived
        self._is_answered = False  # the page's document was given to the browser
        self._navigations = 0
        self._navigation = ""  # the browser's id of the last permitted navigation
        self._parts: list[_PartState] = []
        self._sent = 0
        self._open: dict[str, _PartState] = {}  # by the browser's id of the request
        self._permitted: set[tuple[str, str, str]] = set()  # that id, method and URL, until it is sent
        self._moved = time.monotonic()  # when a request last began or ended
        self._leads_to: list[str] = []
        self._console: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def render(self) -> RenderedPage:
        """Renders the page. RenderFailed, DevtoolsError or TimeoutError: it is not available."""
        began = time.monotonic()
        work = asyncio.ensure_future(self._render())
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait((work, self._failed), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            with suppress(asyncio.CancelledError, DevtoolsError):
                await work
            self._failed.result()
        page = work.result()
        return _with(page, spent_s=time.monotonic() - began)

    def parts(self) -> list[PartAge]:
        """The requests made and refused until now."""
        now = time.monotonic()
        return [
            PartAge(
                one.url[:2000], one.kind, one.outcome or "cut off", now - one.began,
                now - one.ended if one.ended else 0.0, one.sent,
            )
            for one in self._parts
        ]  # fmt: skip

    async def dispose(self) -> None:
        """Closes the context with all its targets."""
        self._pass.close()  # first: no rule covers requests that a page sends while it is closed
        self._permitted.clear()
        for task in self._tasks:
            task.cancel()
        if self.context:
            await self._pipe.call("Target.disposeBrowserContext", browserContextId=self.context)

    def passes(self, params: dict[str, Any]) -> bool:
        """Whether a request that is about to leave the browser is one that was permitted here; once for each."""
        one = (params.get("networkId", ""), params["request"]["method"], params["request"]["url"])
        if one not in self._permitted:
            return False
        self._permitted.remove(one)
        return True

    def fail(self, kind: str, detail: str = "") -> None:
        """Ends the rendering from outside."""
        if not self._failed.done():
            self._failed.set_exception(RenderFailed(kind, detail))

    # ── events ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def attach(self, session: str, target: dict[str, Any]) -> None:
        """A target of this context was created, and waits."""
        kind = target["type"]
        is_first = kind == "page" and not self.session  # it is attached before the command that makes it is answered
        if not is_first and kind in ("page", "tab", "service_worker", "shared_worker", "webview", "auction_worklet"):
            if kind == "page" and target.get("url", "").startswith("http"):
                self._note_lead(target["url"])
            self._pipe.send("Target.closeTarget", targetId=target["targetId"])
            return
        self.sessions.add(session)
        send = self._pipe.send
        if kind in ("page", "iframe"):
            send("Page.enable", session)
            send("Page.addScriptToEvaluateOnNewDocument", session, source=_QUIET, runImmediately=True)
            send("Network.setBypassServiceWorker", session, bypass=True)
            send("Runtime.enable", session)
        else:
            send("Runtime.evaluate", session, expression=_QUIET)
        send("Network.enable", session, maxTotalBufferSize=1 << 20, maxResourceBufferSize=1 << 20)
        send("Network.setBlockedURLs", session, urls=["ws://*", "wss://*"])
        send("Network.setUserAgentOverride", session, userAgent=self._order.user_agent)
        if not self._order.tls_verify:
            send("Security.setIgnoreCertificateErrors", session, ignore=True)
        if self._order.part_headers:
            send("Network.setExtraHTTPHeaders", session, headers=self._order.part_headers)
        send(
            "Fetch.enable", session, patterns=[{"urlPattern": "*", "requestStage": "Request"}], handleAuthRequests=True
        )
        send("Target.setAutoAttach", session, autoAttach=True, waitForDebuggerOnStart=True, flatten=True)
        if is_first:
            self.session = session
            if not self._attached.done():
                self._attached.set_result(None)
        send("Runtime.runIfWaitingForDebugger", session)

    def event(self, session: str, method: str, params: dict[str, Any]) -> None:
        """Handles an event of a target in this context."""
        handler = _HANDLERS.get(method)
        if handler is not None:
            handler(self, session, params)

    def _paused(self, session: str, params: dict[str, Any]) -> None:
        task = asyncio.ensure_future(self._decide(session, params))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _needs_login(self, session: str, params: dict[str, Any]) -> None:
        challenge = params.get("authChallenge", {})
        response: dict[str, Any] = {"response": "CancelAuth"}
        if challenge.get("source") == "Proxy":
            response = {
                "response": "ProvideCredentials", "username": str(self._order.number), "password": self._pass.secret,
            }  # fmt: skip
        self._pipe.send(
            "Fetch.continueWithAuth", session, requestId=params["requestId"], authChallengeResponse=response
        )

    def _response(self, _session: str, params: dict[str, Any]) -> None:
        if (part := self._open.get(params["requestId"])) is not None:
            part.outcome = str(params["response"]["status"])

    def _finished(self, _session: str, params: dict[str, Any]) -> None:
        self._end(params["requestId"], "")

    def _failed_part(self, _session: str, params: dict[str, Any]) -> None:
        self._loaded |= params["requestId"] == self._navigation  # the page is unchanged
        self._end(params["requestId"], params.get("blockedReason") or params.get("errorText", "failed"))

    def _lifecycle(self, session: str, params: dict[str, Any]) -> None:
        if session == self.session and params.get("frameId") == self._frame and self._is_answered:
            if params.get("name") == "load":
                # The quiet time begins here: a page without parts would otherwise be read before its timers have run.
                self._loaded, self._moved = True, time.monotonic()
            self._changed.set()

    def _dialog(self, session: str, _params: dict[str, Any]) -> None:
        self._pipe.send("Page.handleJavaScriptDialog", session, accept=False)

    def _crashed(self, session: str, _params: dict[str, Any]) -> None:
        if session == self.session:
            self.fail("crash", "the page's process has died")

    def _detached(self, _session: str, params: dict[str, Any]) -> None:
        self.sessions.discard(params.get("sessionId", ""))
        if params.get("sessionId") == self.session and self._is_answered:
            self.fail("crash", "the page has closed itself")

    def _exception(self, _session: str, params: dict[str, Any]) -> None:
        if len(self._console) < MOST_CONSOLE:
            details = params.get("exceptionDetails", {})
            text = details.get("exception", {}).get("description") or details.get("text", "")
            self._console.append(str(text)[:500])

    # ── parts ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _decide(self, session: str, params: dict[str, Any]) -> None:
        request, number = params["request"], params["requestId"]
        url, kind = request["url"] + request.get("urlFragment", ""), _kind_of(params)
        is_own = kind == "Document" and params.get("frameId") == self._frame and session == self.session
        try:
            if is_own and not self._is_answered:
                self._is_answered = True
                await self._answer(session, number)
            elif why := await self._refusal(url, kind, _method_of(request), is_own):
                self._note_refused(url, kind, why)
                # An aborted navigation leaves the page unchanged; a blocked one would replace it by an error page.
                reason = "Aborted" if is_own else "BlockedByClient"
                await self._pipe.call("Fetch.failRequest", session, requestId=number, errorReason=reason)
            else:
                if is_own:  # another document: it was loaded with that
                    self._loaded, self._navigation = False, params.get("networkId", number)
                await self._send(session, params, url, kind)
        except DevtoolsError:
            self._end(params.get("networkId", number), "gone")  # its target is gone

    async def _answer(self, session: str, number: str) -> None:
        order = self._order
        headers = [{"name": name, "value": value} for name, value in order.headers if name.lower() not in _LEFT_OUT]
        await self._pipe.call(
            "Fetch.fulfillRequest", session, requestId=number, responseCode=order.status, responseHeaders=headers,
            body=b64encode(order.body).decode(),
        )  # fmt: skip

    async def _refusal(self, url: str, kind: str, method: str, is_own: bool) -> str:
        """Why a request may not be sent."""
        if not url.startswith(("http://", "https://")):
            return "scheme"
        host = _host(url)
        options = self._order.options
        if kind not in _WANTED or kind in {_KINDS.get(name, name) for name in options.blocked}:
            return "kind"
        if (
            not is_own
            and "tracker" in options.blocked
            and any(host == one or host.endswith(f".{one}") for one in _TRACKERS)
        ):
            return "tracker"
        if not self._may_use(method, url, kind):
            return f"method {method[:10]}"
        if self._sent >= self._most_parts:
            return "too many parts"
        self._sent += 1  # before the answer: several questions are open at a time
        if is_own:
            self._navigations += 1
            if self._navigations > MOST_NAVIGATIONS:
                return "too many navigations"
        why = await self._ask(url, kind, is_own)
        self._sent -= bool(why)
        if is_own and why:
            self._note_lead(url)
        return why

    def _may_use(self, method: str, url: str, kind: str) -> bool:
        """Whether a script may send this: reads are free; others only to the page's own site, as POST, since many sites
        load data so. A form may be submitted only if actions were ordered: one of them may have pressed its button.
        """
        if method in _READS:
            return True
        if method != "POST":
            return False
        if kind == "Document":
            return bool(self._order.options.actions)
        return urls.domain_of(url) == urls.domain_of(self._order.url)

    def _note_refused(self, url: str, kind: str, why: str) -> None:
        """Some of the refused requests are listed: a page may make any number of them."""
        self._moved = time.monotonic()
        if len(self._parts) < 2 * self._most_parts:
            part = self._begin(url, kind)
            part.outcome, part.ended = why, part.began

    async def _send(self, session: str, params: dict[str, Any], url: str, kind: str) -> None:
        name = params.get("networkId", params["requestId"])
        self._end(name, "redirect")  # a hop of the same request
        part = self._begin(url, kind)
        await self._gates[part.host].acquire()
        part.sent, part.began = True, time.monotonic()
        self._open[name] = part
        request = params["request"]
        self._permitted.add((name, request["method"], request["url"]))
        self._pass.permit(request["method"], url)
        await self._pipe.call("Fetch.continueRequest", session, requestId=params["requestId"])

    def _begin(self, url: str, kind: str) -> _PartState:
        part = _PartState(url, kind, _host(url))
        self._parts.append(part)
        self._moved = time.monotonic()
        return part

    def _end(self, name: str, outcome: str) -> None:
        part = self._open.pop(name, None)
        if part is None:
            return
        part.outcome, part.ended = outcome or part.outcome or "ok", time.monotonic()
        self._gates[part.host].release()
        self._moved = part.ended
        self._changed.set()

    def _note_lead(self, url: str) -> None:
        if len(self._leads_to) < self._most_parts and url not in self._leads_to:
            self._leads_to.append(url)

    # ── the page ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _render(self) -> RenderedPage:
        async with asyncio.timeout(self._order.left_s):
            await self._open_page()
            await self._settle()
            options = self._order.options
            actions = PageActions(self._pipe, self.session, self._frame, self._settle, options)
            try:
                await actions.wait_for(options.wait_for)
                await actions.scroll_to_end(options.scrolls)
                await actions.run()
            except ActionFailed as why:
                raise RenderFailed("action", str(why)) from None
            return await self._read(actions)

    async def _open_page(self) -> None:
        order, call = self._order, self._pipe.call
        self.context = (
            await call(
                "Target.createBrowserContext", disposeOnDetach=True,
                proxyServer=f"http://127.0.0.1:{self._proxy_port}", proxyBypassList="<-loopback>",
            )
        )["browserContextId"]  # fmt: skip
        self._pipe.send("Browser.setDownloadBehavior", behavior="deny", browserContextId=self.context)
        await call("Target.createTarget", url="about:blank", browserContextId=self.context)
        await self._attached
        tree = await call("Page.getFrameTree", self.session)
        self._frame = tree["frameTree"]["frame"]["id"]
        options = order.options
        await call("Page.setLifecycleEventsEnabled", self.session, enabled=True)
        await call(
            "Emulation.setDeviceMetricsOverride", self.session, width=390 if options.mobile else options.width,
            height=844 if options.mobile else options.height, deviceScaleFactor=1, mobile=options.mobile,
        )  # fmt: skip
        if order.cookies:
            await call(
                "Network.setCookies", self.session,
                cookies=[{"name": name, "value": value, "url": order.url} for name, value in order.cookies],
            )  # fmt: skip
        if order.storage:
            await call(
                "Page.addScriptToEvaluateOnNewDocument", self.session,
                source=_STORE.replace("ORIGIN", json.dumps(urls.origin_of(order.url))).replace(
                    "KEPT", json.dumps(order.storage)
                ),
            )  # fmt: skip
        went = await call("Page.navigate", self.session, url=order.url)
        if (error := went.get("errorText")) and not self._is_answered:
            raise RenderFailed("browser", str(error))

    async def _settle(self) -> None:
        """Waits until the page is loaded and has requested nothing for a while, or its time is over."""
        settle_s = self._order.options.settle_s
        began = self._moved = time.monotonic()  # the effect of an action may not have caused a request yet
        self._is_busy, busy_waits = False, 0
        while (now := time.monotonic()) < (until := self._latest(began)):
            quiet_s = now - self._moved if self._loaded and not self._open else 0.0
            if quiet_s >= settle_s:
                await self._be_idle(until - now)
                busy_waits = busy_waits + 1 if self._is_busy and self._moved <= now else 0
                if self._moved <= now and busy_waits in (0, _MOST_BUSY_WAITS):
                    return
                self._moved = max(self._moved, time.monotonic())
                continue
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), max(0.01, min(settle_s - quiet_s, until - now)))

    def _latest(self, began: float) -> float:
        """When a page is read at the latest. One that is late has more time: the site is slow, or the machine."""
        return began + self._order.options.longest_settle_s * (LATE_FACTOR if self._is_late() else 1)

    def _is_late(self) -> bool:
        """Whether its scripts or its first data have not arrived, or have not run yet."""
        open_kinds = {part.kind for part in self._open.values()}
        had_data = any(part.sent and part.ended and part.kind in _DATA for part in self._parts)
        is_coming = "Script" in open_kinds or (not had_data and not _DATA.isdisjoint(open_kinds))
        return not self._loaded or self._is_busy or is_coming

    async def _be_idle(self, limit_s: float) -> None:
        """Waits until the page has nothing left to do. If that takes long, what has arrived may not have run yet."""
        began = time.monotonic()
        with suppress(TimeoutError):
            idle = self._pipe.call("Runtime.evaluate", self.session, expression=_IDLE, awaitPromise=True)
            await asyncio.wait_for(idle, limit_s)
        self._is_busy = time.monotonic() - began >= self._order.options.settle_s

    async def _read(self, actions: PageActions) -> RenderedPage:
        order, options = self._order, self._order.options
        is_kept = json.dumps(order.storage is not None)
        read = _READ.replace("MOST", str(order.max_bytes)).replace("IS_KEPT", is_kept)
        url, title, size, html, kept = await actions.evaluate(read)
        if self._is_late() and not await actions.evaluate(_HAS_TEXT):
            raise RenderFailed("timeout", "its scripts have not drawn anything in time")
        if size > order.max_bytes:
            raise RenderFailed("too_large", f"the rendered page has {size:,} characters")
        if not str(url).startswith(("http://", "https://")):
            raise RenderFailed("navigation", "the page went to where nothing could be had")
        return RenderedPage(
            order.number,
            url=str(url)[:2000],
            html=str(html).encode("utf-8", "replace"),
            title=str(title)[:1000],
            screenshot=await self._picture(actions) if options.screenshot else b"",
            pictures=actions.pictures,
            pdf=await actions.printed() if options.pdf else actions.pdf,
            parts=self.parts(),
            leads_to=self._leads_to,
            console_errors=self._console,
            cookies=await self._cookies(),
            storage=self._storage(kept or [], str(url)),
        )

    async def _picture(self, actions: PageActions) -> bytes:
        wanted = self._order.options.screenshot
        if not wanted.startswith(OF_ELEMENT):
            return await actions.picture(is_full=wanted == "full")
        try:
            return await actions.picture_of(wanted.removeprefix(OF_ELEMENT))
        except ActionFailed as why:
            raise RenderFailed("action", f"screenshot: {why}") from None

    async def _cookies(self) -> list[str]:
        kept = await self._pipe.call("Storage.getCookies", browserContextId=self.context)
        host = _host(self._order.url)
        return [_set_cookie(one) for one in kept.get("cookies", []) if is_sent_to(host, one["domain"])]

    def _storage(self, kept: list[list[str]], url: str) -> dict[str, str]:
        """The browser's storage of the page's origin, for later pages of its session."""
        if urls.origin_of(url) != urls.origin_of(self._order.url):
            return {}
        if sum(len(name) + len(value) for name, value in kept) > MOST_KEPT_CHARS:
            return {}
        return {str(name): str(value) for name, value in kept}


_HANDLERS: dict[str, Callable[[RenderTab, str, dict[str, Any]], None]] = {
    "Fetch.requestPaused": RenderTab._paused,
    "Fetch.authRequired": RenderTab._needs_login,
    "Network.responseReceived": RenderTab._response,
    "Network.loadingFinished": RenderTab._finished,
    "Network.loadingFailed": RenderTab._failed_part,
    "Page.lifecycleEvent": RenderTab._lifecycle,
    "Page.javascriptDialogOpening": RenderTab._dialog,
    "Inspector.targetCrashed": RenderTab._crashed,
    "Target.detachedFromTarget": RenderTab._detached,
    "Runtime.exceptionThrown": RenderTab._exception,
}


def is_sent_to(host: str, domain: str) -> bool:
    """Whether a cookie's domain covers a host: a domain without a leading dot is that host only."""
    return domain == host or (domain.startswith(".") and f".{host}".endswith(domain))


def _set_cookie(cookie: dict[str, Any]) -> str:
    """A cookie in Set-Cookie form: with all attributes that limit where it is sent."""
    parts = [f"{cookie['name']}={cookie['value']}", f"Path={cookie['path']}"]
    if cookie["domain"].startswith("."):
        parts.append(f"Domain={cookie['domain']}")
    if not cookie.get("session", True):
        parts.append(f"Max-Age={max(0, int(cookie['expires'] - time.time()))}")
    parts += [word for word, name in (("Secure", "secure"), ("HttpOnly", "httpOnly")) if cookie.get(name)]
    return "; ".join(parts)


def _with(page: RenderedPage, **changes: Any) -> RenderedPage:
    import msgspec

    return msgspec.structs.replace(page, **changes)


def _method_of(request: dict[str, Any]) -> str:
    """A request's method; for a preflight, that of the actual request."""
    headers = {name.lower(): value for name, value in request.get("headers", {}).items()}
    return str(headers.get("access-control-request-method") or request.get("method", "GET"))


def _kind_of(params: dict[str, Any]) -> str:
    """The kind of a request. A prefetch has the kind of a script's own request: only a header distinguishes them."""
    headers = {name.lower(): value for name, value in params["request"].get("headers", {}).items()}
    is_early = "prefetch" in headers.get("sec-purpose", headers.get("purpose", ""))
    return "Prefetch" if is_early else params.get("resourceType", "Other")


def _host(url: str) -> str:
    try:
        return str(urls.parse(url).hostname)
    except BadUrl:
        return ""
