"""Browsers for the crawls of a process: keeps the browser process running, and decides what a page may request.

A page is rendered when its crawl says so (`render: always`), or when it is a shell that scripts must fill (`auto`). The
parts of a page follow the same rules as pages: robots.txt of their own origin, open breakers, Retry-After. Requests of
a page advance the clocks of the sites they go to.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import msgspec

from weft import urls
from weft.bodies import first_of
from weft.config import FetchSection
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.loop.fetcher import robots as robots_txt
from weft.engine.loop.fetcher.robots import REASON_BY_ROBOTS_STATE
from weft.engine.model import BrowserStatus
from weft.errors import BadUrl, Missing
from weft.extract.missing_content import is_shell
from weft.extract.page import extract
from weft.fetch.browser.chromium import chromium_path, sandbox_trouble
from weft.fetch.browser.messages import NO_BROWSERS, HostSettings, RenderOptions
from weft.fetch.browser.renderer import RenderingTransport, RenderLink
from weft.fetch.contract import Transport
from weft.fetch.decode import decode
from weft.fetch.headers import Head
from weft.frontier.contract import Frontier
from weft.records import FetchResult, Lease, Purpose, RenderedPart
from weft.supervise.child import RestartPolicy
from weft.supervise.service import HEALTHY, Command, HealthReport, Service, ServiceHealth
from weft.telemetry import Log

JUDGED_BYTES = 1 << 20
STUCK_S = 10.0  # without a message of the browser process
SILENT_S = 7.0  # the process may be silent this long, a restart included, before that is reported
_POLICY = RestartPolicy(first_delay_s=0.1, max_delay_s=5.0, max_failures=20, start_timeout_s=60.0, stop_grace_s=5.0)
log = Log("weft.engine.transports.browsers")


class Browsers:
    """The browser process of an engine or fetcher; started when the first page is to be rendered."""

    def __init__(
        self, section: FetchSection, folder: Path, crawls: Mapping[int, RunningCrawl], frontier: Frontier
    ) -> None:
        """`folder`: that of the process; the profiles of its browsers are named after it while they run."""
        self._section = section
        self._folder = _profiles_of(folder)
        self._link: RenderLink | None = None
        self._service: Service | None = None
        self._heard_at = 0.0  # when the browser process last reported, or was first needed
        self.judge = PartJudge(crawls, frontier)

    def around(self, inner: Transport, section: FetchSection) -> Transport:
        """A transport that renders the pages that need it. Missing: no browser is installed."""
        if self._link is None:
            self._open_service(chromium_path())
        assert self._link is not None
        return RenderingTransport(inner, self._link, self.judge, section)

    def poll(self, _now: float) -> None:
        """Starts, monitors and restarts the process; called between pages."""
        if self._service is not None and self._link is not None:
            self._service.check()
            self._service.act()
            self._link.poll()  # no page may need it now, and its reports come all the same
            self._heard_at = max(self._heard_at, self._link.reported_at)

    @property
    def unusable(self) -> str:
        """Why nothing can be rendered; empty while it can."""
        if self._service is None or self._link is None:
            return ""
        if self._service.has_ended:
            return f"no browser can be kept running: {self._service.failure}"
        silent_s = time.monotonic() - self._heard_at
        if silent_s > SILENT_S:
            return f"the process that keeps the browsers has not answered for {silent_s:.0f} s"
        return self._link.report.unusable

    @property
    def status(self) -> BrowserStatus:
        """The state of the browsers, for callers that ask the engine."""
        report = self._link.report if self._link is not None else NO_BROWSERS
        return BrowserStatus(
            self._link is not None, self.unusable, self._section.browser_sandbox, report.browsers, report.pages,
            report.memory_bytes, report.rendered, report.deaths,
        )  # fmt: skip

    @property
    def report(self) -> Mapping[str, float]:
        """Numbers for the metrics."""
        if self._link is None:
            return {}
        report = self._link.report
        return {
            "browsers": report.browsers, "pages": report.pages, "memory_bytes": report.memory_bytes,
            "rendered": report.rendered, "recycled": report.recycled,
            **{f"died_{cause}": count for cause, count in report.deaths.items()},
            **{f"refused_{cause}": count for cause, count in report.refused.items()},
        }  # fmt: skip

    def close(self) -> None:
        """Ends the browsers."""
        if self._link is not None:
            self._link.close()
        if self._service is not None:
            self._service.stop_and_wait()

    def _open_service(self, executable: str) -> None:
        section = self._section
        self._heard_at = time.monotonic()
        self._link = link = RenderLink(
            HostSettings(
                executable, str(self._folder), max_browsers=section.max_browsers,
                pages_per_browser=section.pages_per_browser, sandbox=section.browser_sandbox,
                dns_servers=section.dns_servers,
            )
        )  # fmt: skip
        if not section.browser_sandbox:
            log.warning("browsers run without their sandbox", setting="browser_sandbox")

        def command() -> Command:
            here, there = socket.socketpair()
            link.connect(here)
            argv = [sys.executable, "-m", "weft.fetch.browser.host", str(there.detach())]
            return Command(argv, inherits=(int(argv[-1]),), keeps_words=True)

        def health(_pid: int) -> HealthReport:
            silent_s = time.monotonic() - link.reported_at
            if not link.reported_at:
                return HealthReport(ServiceHealth.STARTING)
            if silent_s > STUCK_S:
                return HealthReport(ServiceHealth.UNHEALTHY, f"it has said nothing for {silent_s:.0f} s")
            return (
                HEALTHY if link.report.working else HealthReport(ServiceHealth.UNHEALTHY, "its pages make no progress")
            )

        def started(_pid: int) -> None:
            link.reported_at = 0.0

        self._service = Service("browsers", command, health=health, policy=_POLICY, on_start=started)
        self.poll(0.0)


class PartJudge:
    """Judges what the browser may do; see `renderer.Judge`."""

    def __init__(self, crawls: Mapping[int, RunningCrawl], frontier: Frontier) -> None:
        self._crawls = crawls
        self._frontier = frontier

    def wants(self, tag: object, result: FetchResult) -> RenderOptions | None:
        """How a page is to be rendered, if it is HTML that needs it."""
        crawl = self._crawl_of(tag)
        if crawl is None or not isinstance(tag, Lease):
            return None
        head = Head(result.head)
        if "html" not in head.content_type()[0]:
            return None
        if tag.purpose is Purpose.LOGIN and crawl.session is not None:
            own = RenderOptions(mobile=crawl.fetch.render_mobile, blocked=crawl.fetch.render_blocked)
            return msgspec.structs.replace(own, actions=crawl.session.actions())
        render, actions = crawl.rendering(tag)
        if render == "never":
            return None
        if render == "auto" and not self._needs_rendering(crawl, result, head):
            return None
        return msgspec.structs.replace(options_of(crawl.fetch), actions=tuple(actions))

    def refusal(self, tag: object, url: str, is_page: bool) -> str | None:
        """Why a part may not be requested; None: its origin's robots.txt is not known."""
        crawl = self._crawl_of(tag)
        if crawl is None or not isinstance(tag, Lease):
            return "cancelled"
        try:
            url = urls.canonical(url)
        except BadUrl as bad:
            if is_page or bad.reason != "length":
                return bad.reason
            url = f"{url[: (url + '/').index('/', 8)]}/"
        if crawl.session is not None and crawl.session.is_beside(url):
            return "session"  # a browser would send it the session's cookies, which ignore ports
        if is_page and self._frontier.sites.key_of(url) != tag.key:
            return "another site"
        origin = urls.origin_of(url)
        if not crawl.robots_book.is_known(origin, time.time()):
            return None
        record, rules = crawl.robots_book.rules_of_origin(origin)
        if (reason := REASON_BY_ROBOTS_STATE.get(record.status)) is not None:
            return str(reason)
        if rule := crawl.robots_book.rule_against(url, rules):
            return f"robots: {rule}"
        return self._frontier.sites.held(tag.crawl, url)

    def learn(self, tag: object, origin: str, result: FetchResult) -> None:
        """Records a third party's robots.txt; while it is unreachable, nothing of that party is loaded."""
        crawl = self._crawl_of(tag)
        if crawl is not None:
            outcome = result.error or str(result.status)
            asked = RenderedPart(f"{origin}/robots.txt", "Robots", outcome, result.started, result.ended, True)
            self._frontier.sites.asked(crawl.number, [asked])
            record = robots_txt.record_of(result, time.time(), crawl.politeness.robots_ttl_s)
            crawl.robots_book.store_record(
                crawl.robots_book.trusted_name(origin), record or robots_txt.unreachable_record(result, time.time())
            )

    def storage(self, tag: object, url: str) -> dict[str, str] | None:
        """What the page's origin has kept for the crawl's session there."""
        crawl = self._crawl_of(tag)
        return None if crawl is None or crawl.session is None else crawl.session.storage_for(url)

    def cookies(self, tag: object, url: str) -> list[tuple[str, str]]:
        """The cookies of the crawl's jar for a page."""
        crawl = self._crawl_of(tag)
        if crawl is None or not (crawl.jar or crawl.session):
            return []
        header = crawl.cookies_for(url, time.time())
        pairs = (pair.strip().partition("=") for pair in header.split(";") if "=" in pair)
        return [(name, value) for name, _, value in pairs]

    def _needs_rendering(self, crawl: RunningCrawl, result: FetchResult, head: Head) -> bool:
        if crawl.shells is not None and crawl.shells.is_no_better(result.url):
            return False
        body = first_of(result.body, JUDGED_BYTES)
        if encoding := head.content_encoding:
            body = decode(body, encoding, JUDGED_BYTES).body
        return is_shell(extract(body, result.url, head.get("content-type")))

    def _crawl_of(self, tag: object) -> RunningCrawl | None:
        return self._crawls.get(tag.crawl) if isinstance(tag, Lease) else None


def _profiles_of(folder: Path) -> Path:
    """The folder of the profiles. It is not in the data dir, which an unprivileged browser must not be able to read.
    The name is the same at every start, so that the next process deletes what a killed one has left.
    """
    mark = sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"weft-browsers-{os.getuid()}-{mark}"


def options_of(section: FetchSection) -> RenderOptions:
    """The rendering options of a crawl."""
    wait = section.render_wait_for
    width, _, height = section.render_viewport.partition("x")
    return RenderOptions(
        wait_for=float(wait) if wait is not None and _is_finite_number(wait) else wait,
        scrolls=section.render_scrolls,
        screenshot="" if section.render_screenshot == "none" else section.render_screenshot,
        actions=tuple(section.render_actions),
        pdf=section.render_pdf,
        mobile=section.render_mobile,
        width=int(width),
        height=int(height),
        blocked=tuple(section.render_blocked),
        allow_scripts=True,  # the operator of a crawl may; the service decides what its callers may
    )


def browser_trouble(section: FetchSection) -> str:
    """Why pages cannot be rendered on this machine, checked before a crawl starts; empty if they can."""
    try:
        chromium_path()
    except Missing as why:
        return str(why)
    if section.browser_sandbox and (trouble := sandbox_trouble()):
        return f"browsers have no sandbox here ({trouble}): set `browser_sandbox: false` to run them without"
    return ""


def _is_finite_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
