"""Pages in a browser, by the browser process alone: what they give, and what becomes of those that misuse it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from functools import partial
from typing import cast

import pytest
from browsing import missing
from drawn_site import HOSTILE, THIRD_PARTY, DrawnSite, drawn_site
from pace import patience
from rendering import BrowserProcess, chromiums, profiles

from weft.config import FetchSection
from weft.fetch.browser.messages import PartQuestion, RenderedPage, RenderOptions
from weft.fetch.browser.renderer import RenderingTransport
from weft.fetch.contract import Transport
from weft.fetch.dns.resolver import NameCounts
from weft.records import FetchResult

GROWN_BYTES = int(os.environ.get("WEFT_TEST_GROWN_MB", "100")) << 20


@pytest.fixture(scope="module")
def site() -> Iterator[DrawnSite]:
    with drawn_site() as one:
        yield one


@pytest.fixture(scope="module")
def browsers() -> Iterator[BrowserProcess]:
    if shutil.which("chromium") is None:
        missing("chromium")
    with profiles() as folder:
        one = BrowserProcess(folder)
        yield one
        one.close()
        assert chromiums(str(folder)) == []


def test_a_page_is_drawn_by_its_scripts_and_its_parts_are_judged(browsers: BrowserProcess, site: DrawnSite) -> None:
    asked: list[str] = []

    def refuse(question: PartQuestion) -> str:
        asked.append(question.url)
        return "robots" if "/forbidden" in question.url or "/private" in question.url else ""

    options = RenderOptions(screenshot="viewport", pdf=True)
    page = browsers.render(f"{site.url}/drawn1", site.page("/drawn1"), refuse=refuse, options=options)
    assert (page.error, page.detail) == ("", "")
    assert b"hello /drawn1" in page.html and page.title == "drawn /drawn1"
    assert page.screenshot.startswith(b"\x89PNG") and page.pdf.startswith(b"%PDF")
    outcomes = {part.url.rpartition(str(site.port))[2]: (part.outcome, part.was_sent) for part in page.parts}
    assert outcomes["/app.js"] == ("200", True)
    assert outcomes["/forbidden/picture.png"] == ("robots", False) == outcomes["/private/picture.png"]
    assert "/forbidden/picture.png" not in site.paths(THIRD_PARTY) and "/picture.png" in site.paths(THIRD_PARTY)
    assert "/drawn1" not in site.paths(), "the page itself was fetched before: it costs its site no second request"
    assert "/favicon.ico" not in site.paths()


@pytest.mark.parametrize("path", [path for path in HOSTILE if path not in ("/loop", "/crash", "/form")])
def test_what_a_page_tries_ends_with_the_page(browsers: BrowserProcess, site: DrawnSite, path: str) -> None:
    questions: list[PartQuestion] = []

    def refuse(question: PartQuestion) -> str:
        questions.append(question)
        is_away = question.is_page and THIRD_PARTY in question.url
        is_barred = "169.254" in question.url or f":{site.canary_port}" in question.url
        return "another site" if is_away else "address" if is_barred else ""

    options = RenderOptions(longest_settle_s=2.0, screenshot="full" if path == "/tall" else "")
    page = browsers.render(f"{site.url}{path}", site.page(path), refuse=refuse, options=options)
    assert page.error == "" and b"the end" in page.html
    assert site.canary_calls == 0
    assert not any(one.startswith(("/window", "/service.js")) for one in site.paths())
    assert "/landed" not in site.paths(THIRD_PARTY)
    if path == "/elsewhere":
        assert page.leads_to == [f"http://{THIRD_PARTY}:{site.port}/landed"]
    if path == "/pushed":
        assert page.url.endswith("/pushed/deeper")
    if path == "/same":
        assert page.url.endswith("/same?again") and "/same?again" in site.paths()


def test_a_part_that_was_not_judged_cannot_reach_an_address_that_is_refused(
    browsers: BrowserProcess, site: DrawnSite
) -> None:
    page = browsers.render(f"{site.url}/metadata", site.page("/metadata"))
    assert page.error == ""
    parts = [part for part in page.parts if "169.254" in part.url]
    assert parts and all(not part.outcome.startswith("2") for part in parts)


def test_a_browser_has_as_many_pages_as_it_may(browsers: BrowserProcess, site: DrawnSite) -> None:
    with profiles() as folder:
        own, came, most = BrowserProcess(folder, pages_per_browser=2), list[RenderedPage](), 0
        for number in range(8):  # before there is a browser
            own.begin(f"{site.url}/drawn{number}", site.page("/drawn1"), came.append, left_s=patience(20))

        def has_ended() -> bool:
            nonlocal most
            most = max(most, own.link.report.pages)
            return len(came) == 8

        own.until(has_ended)
        assert most == 2 and [one.error for one in came] == [""] * 8
        own.close()


def test_a_page_that_hangs_or_dies_costs_itself_alone(browsers: BrowserProcess, site: DrawnSite) -> None:
    came: dict[str, RenderedPage] = {}
    for path in ("/loop", "/crash"):
        browsers.begin(f"{site.url}{path}", site.page(path), partial(came.__setitem__, path), left_s=8.0)
    for number in range(3):
        path = f"/drawn{number}"
        browsers.begin(f"{site.url}{path}", site.page(path), partial(came.__setitem__, path))
    browsers.until(lambda: len(came) == 5)
    assert came["/loop"].error == "timeout" and came["/crash"].error in ("crash", "timeout")
    assert [came[f"/drawn{number}"].error for number in range(3)] == ["", "", ""]


class AtHand:
    """A transport that has every page already."""

    free, in_flight, lookups = 1000, 0, NameCounts()

    def __init__(self, html: str) -> None:
        self._html, self._done = html, list[tuple[object, FetchResult]]()

    def submit(self, url: str, _headers: object, tag: object, **_: object) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
        self._done.append((tag, FetchResult(url, 200, head, self._html.encode(), None, "", 0.0, 0.0, "", b"")))

    def poll(self, _timeout_s: float) -> list[tuple[object, FetchResult]]:
        done, self._done = self._done, []
        return done

    def fileno(self) -> int:
        return os.eventfd(0)

    def timeout_s(self) -> None:
        return None

    def abort(self, _tag: object) -> None: ...

    def close(self) -> None: ...


class AllWanted:
    """Every page is to be rendered, and every part may be asked for."""

    def wants(self, _tag: object, _result: FetchResult) -> RenderOptions:
        return RenderOptions(longest_settle_s=1.0)

    def refusal(self, *_: object) -> str:
        return ""

    def learn(self, *_: object) -> None: ...

    def storage(self, *_: object) -> None: ...

    def cookies(self, *_: object) -> list[tuple[str, str]]:
        return []


def test_a_page_that_no_browser_has_room_for_is_given_back_and_no_more_are_begun(site: DrawnSite) -> None:
    if shutil.which("chromium") is None:
        missing("chromium")
    section = FetchSection(render="always", allow_private=True)
    with profiles() as folder:
        own = BrowserProcess(folder, pages_per_browser=1)
        assert own.render(f"{site.url}/plain0", "<p>it has started").error == ""
        transport = RenderingTransport(cast(Transport, AtHand(HOSTILE["/loop"])), own.link, AllWanted(), section)
        room, until = transport.free, time.monotonic() + 10.0
        for number in range(3):
            transport.submit(f"{site.url}/loop", (), number, until=until, filtered=True)
        assert transport.free == room - 3, "pages that are being fetched will need a browser"
        ended: list[tuple[str, str]] = []

        def has_ended() -> bool:
            for _, result in transport.poll(0.1):
                assert result.rendered is not None
                ended.append((result.error or "", result.rendered.error))
            return len(ended) == 3

        own.until(has_ended)
        assert sorted(ended) == [("", "timeout"), ("aborted", "busy"), ("aborted", "busy")]
        own.close()


def test_actions_are_carried_out_and_one_that_cannot_be_says_why(browsers: BrowserProcess, site: DrawnSite) -> None:
    actions = (
        {"type": "write", "selector": "#q", "text": "crawler"},
        {"type": "select", "selector": "#s", "value": "b"},
        {"type": "click", "selector": "#go"},
        {"type": "screenshot"},
        {"type": "wait", "milliseconds": 10},
    )
    page = browsers.render(f"{site.url}/form", site.page("/form"), options=RenderOptions(actions=actions))
    assert page.error == "" and b"typed crawler b" in page.html and len(page.pictures) == 1
    lost = ({"type": "executeJavascript", "script": "1"},)
    page = browsers.render(f"{site.url}/form", site.page("/form"), options=RenderOptions(actions=lost))
    assert page.error == "action" and "allow_scripts" in page.detail


def test_no_browser_outlives_the_process_that_has_started_it(browsers: BrowserProcess, site: DrawnSite) -> None:
    with profiles() as folder:
        own = BrowserProcess(folder)
        assert own.render(f"{site.url}/drawn1", site.page("/drawn1")).error == ""
        assert chromiums(str(folder))
        came: list[RenderedPage] = []
        own.begin(f"{site.url}/drawn2", site.page("/drawn2"), came.append)
        own.process.send_signal(signal.SIGKILL)
        own.process.wait()
        own.until(lambda: chromiums(str(folder)) == [])
        own.process = own.start()  # what the killed process had is rendered by the next
        own.until(lambda: bool(came))
        assert came[0].error == ""
        for pid in chromiums(str(folder))[:1]:
            os.kill(pid, signal.SIGKILL)
        assert own.render(f"{site.url}/drawn3", site.page("/drawn3")).error == ""
        own.close()
        assert chromiums(str(folder)) == []


def test_a_browser_that_has_grown_is_replaced_when_its_pages_are_finished(site: DrawnSite) -> None:
    if shutil.which("chromium") is None:
        missing("chromium")
    # It keeps its memory, and requests something again and again, until that is refused.
    large = """<p id=end>the end</p><script>const kept = new Uint8Array(SIZE).fill(1);
      const again = setInterval(() => fetch("/data").catch(() => clearInterval(again)), 300)</script>"""
    with profiles() as folder:
        own, came, left_s = BrowserProcess(folder, recycle_bytes=GROWN_BYTES), list[RenderedPage](), patience(40)
        assert own.render(f"{site.url}/drawn1", site.page("/drawn1"), left_s=left_s).error == ""
        first, before = min(chromiums(str(folder))), own.link.report.memory_bytes

        def refuse(_: PartQuestion) -> str:
            return "enough" if own.link.report.memory_bytes - before > 1.2 * GROWN_BYTES else ""

        own.begin(
            f"{site.url}/large", large.replace("SIZE", str(2 * GROWN_BYTES)), came.append, refuse=refuse,
            options=RenderOptions(longest_settle_s=left_s / 4), left_s=left_s,
        )  # fmt: skip
        for number in range(3):
            own.begin(f"{site.url}/drawn{number}", site.page("/drawn1"), came.append, left_s=left_s)
        own.until(lambda: len(came) == 4)
        assert [(one.error, one.detail) for one in came] == [("", "")] * 4, "it costs no page"
        own.until(lambda: own.link.report.recycled == 1)
        assert own.render(f"{site.url}/drawn4", site.page("/drawn1"), left_s=left_s).error == ""
        assert first not in chromiums(str(folder))
        own.close()
