"""The dashboard in a real browser, over a real service: submit, watch, filter, cancel, sign in; by keyboard, at phone
width, in the dark, without scripts; no error in any console, and nothing serious for axe-core."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal
from urllib.request import Request, urlopen

import pytest
from browsing import Open, axe
from pace import patience
from playwright.sync_api import Page, ViewportSize, expect
from scripted_service import ScriptedService
from served import served
from served_http import Service, service_in

from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.keys import Keyring
from weft.jobs.model import Task, TaskSpec, new_task_id
from weft.records import PanelTable
from weft.scraping import TaskState

# How pages are looked at. In the dark only colours differ, and on a phone only places.
WIDE, PHONE = ViewportSize(width=1200, height=800), ViewportSize(width=360, height=740)
LOOKS: tuple[tuple[ViewportSize, Literal["light", "dark"], list[str]], ...] = (
    (WIDE, "light", []),
    (WIDE, "dark", ["color-contrast"]),
    (PHONE, "light", ["target-size"]),
)
HOSTILE = {
    "/script": "&lt;script>document.title='broken'&lt;/script>",
    "/long": "long " * 20_000,
    "/rtl": "\u202e\u202egnp.exe שלום",
}


class Site(BaseHTTPRequestHandler):
    """`/` links to pages that take their time, to some that fail, and to some with titles that are meant badly."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        status = 404 if self.path in ("/robots.txt", "/gone") else 500 if self.path == "/fails" else 200
        links = (
            [*HOSTILE, "/gone", "/fails", *(f"/page/{number}" for number in range(3000))] if self.path == "/" else []
        )
        time.sleep(0.05 if self.path.startswith("/page") else 0)
        title = HOSTILE.get(self.path, f"Page {self.path}")
        body = f"<meta charset=utf-8><title>{title}</title><h1>Goods</h1><p class=price>12</p>" + "".join(
            f'<a href="{link}">x</a>' for link in links
        )
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with suppress(ConnectionError):  # its task was cancelled
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("dashboard") / "data", "--breaker-failures", 1000) as service:
        yield service


@pytest.fixture(scope="module")
def ended(service: Service, site: str) -> str:
    """A task that has ended, with a bit of everything."""
    client = service.client
    task = client.submit(
        site, max_depth=1, max_pages=25, retry_attempts=0, exclude=["/page/3*"], webhook=f"{site}takes-no-post"
    ).task_id
    return client.wait(task).task_id


@pytest.fixture
def running(service: Service, site: str) -> Iterator[str]:
    """A task that runs for as long as the test does."""
    task = service.client.submit(site, max_depth=1, max_concurrent_articles=2).task_id
    yield task
    service.client.cancel(task)


def completed(page: Page) -> int:
    return int(page.locator('.legend [data-f="completed"]').inner_text().replace(",", ""))


def moves(page: Page, above: int) -> None:
    """Waits until the page says, by itself, that more was scraped."""
    count = "document.querySelector('.legend [data-f=completed]').textContent.replace(',', '')"
    page.wait_for_function(f"above => Number({count}) > above", arg=above, timeout=patience(15) * 1000)


def test_submit_watch_open_and_cancel_by_keyboard(service: Service, site: str, open_page: Open) -> None:
    page = open_page()
    page.goto(service.url)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.get_by_role("link", name="New task").first.press("Enter")
    expect(page.get_by_label("URL", exact=True)).to_be_focused()
    page.keyboard.type(site)
    page.get_by_label("Depth").fill("1")
    page.get_by_label("Pages at a time").fill("2")
    page.get_by_label("URL", exact=True).press("Enter")
    page.wait_for_url(re.compile(r"/tasks/[0-9a-f]{32}$"))
    task = page.url.rpartition("/")[2]
    loaded = page.evaluate("performance.timeOrigin")

    moves(page, completed(page))
    bar = page.locator("main > .card [data-bar]").first
    first = float(bar.get_attribute("aria-valuenow") or 0)
    moves(page, completed(page))
    assert float(bar.get_attribute("aria-valuenow") or 0) > first
    expect(page.locator("[data-chart=pages] .line")).to_have_attribute("d", re.compile("^M0 .*L"))
    expect(page.locator("[data-latest] tr").first).to_contain_text("Page /page/")
    assert page.evaluate("performance.timeOrigin") == loaded  # it was never loaded again

    page.get_by_role("link", name="Tasks").first.click()
    row = page.locator(f'tr[data-task="{task}"]')
    expect(row).to_contain_text("Running")
    before = row.locator('[data-f="done"]').inner_text()
    expect(row.locator('[data-f="done"]')).not_to_have_text(before, timeout=patience(15) * 1000)
    row.get_by_role("link").press("Enter")

    page.get_by_role("button", name="Pause").press("Enter")
    expect(page.locator(".sub .state")).to_have_text("Paused")
    expect(page.get_by_role("button", name="Resume")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".sub .state")).to_have_text("Running")
    expect(page.get_by_role("button", name="Pause")).to_be_focused()
    assert page.locator("[data-chart=pages] .y span").all_inner_texts()[-1] == "0/s"
    assert page.locator("[data-chart=pages] .x span").first.inner_text() == "0 s"
    page.get_by_role("button", name="Cancel").press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("What was scraped is kept")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    page.get_by_role("button", name="Cancel").press("Enter")
    dialog.get_by_role("button", name="Cancel").press("Enter")
    expect(page.locator(".sub .state")).to_have_text("Cancelled")
    assert service.client.status(task).status == "CANCELLED"


def test_a_page_that_is_open_sees_how_its_task_ends(service: Service, running: str, open_page: Open) -> None:
    page = open_page()
    page.goto(f"{service.url}/tasks/{running}")
    moves(page, 0)
    service.client.cancel(running)
    expect(page.locator(".sub .state")).to_have_text("Cancelled", timeout=patience(15) * 1000)
    expect(page.locator("[data-said]")).to_have_text("The task is cancelled: it was cancelled.")
    expect(page.locator("[data-link]")).to_have_text("Ended")
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)


def test_filters_and_what_comes_while_somebody_looks(service: Service, site: str, ended: str, open_page: Open) -> None:
    page = open_page()
    page.goto(service.url)
    page.get_by_label("State").select_option("partial")  # submits by itself
    page.wait_for_url(re.compile("state=partial"))
    expect(page.locator(f'tr[data-task="{ended}"]')).to_have_count(1)
    page.get_by_label("URL or id").fill("no such thing")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("No task is like this")).to_be_visible()
    page.get_by_role("link", name="Clear").click()
    link = page.locator(f'tr[data-task="{ended}"] a')
    link.focus()
    new = service.client.submit(site + "page/1", max_depth=0).task_id
    expect(page.locator(f'tr[data-task="{new}"]')).to_contain_text("Completed", timeout=patience(15) * 1000)
    expect(link).to_be_focused()  # the table was drawn anew around it


def test_rules_are_tried_on_one_page_and_a_webhook_is_ordered(service: Service, site: str, open_page: Open) -> None:
    page = open_page()
    page.goto(f"{service.url}/new")
    page.get_by_label("URL", exact=True).fill(site + "page/1")
    page.get_by_label("Rules").fill("name: h1\nprice: .price\nnothing: .not-there")
    page.get_by_role("button", name="Try on this page").click()
    result = page.locator("#tried-result")
    expect(result).to_be_focused(timeout=patience(20) * 1000)
    expect(result).to_contain_text("Goods")
    expect(result).to_contain_text("nothing found")
    expect(page.get_by_label("Rules")).to_have_value("name: h1\nprice: .price\nnothing: .not-there")
    assert axe(page) == []
    page.get_by_label("Rules").fill("title: h1")
    page.get_by_label("URL that receives events").fill(site)
    page.get_by_role("button", name="Start task").click()
    page.wait_for_url(re.compile(r"/tasks/[0-9a-f]{32}$"))
    page.get_by_role("link", name="Deliveries").click()
    expect(page.get_by_role("heading", name="Webhook")).to_be_visible()
    assert axe(page) == []


def test_titles_that_are_meant_badly_are_texts(service: Service, ended: str, open_page: Open) -> None:
    page = open_page()
    page.goto(f"{service.url}/tasks/{ended}/pages?kind=page")
    expect(page.get_by_text("<script>document.title='broken'</script>")).to_be_visible()
    assert "broken" not in page.title()
    assert "\u202e" not in page.content() and len(page.content()) < 60_000
    page.get_by_role("link", name="<script>document.title='broken'</script>").click()
    expect(page.locator("h1")).to_have_text("<script>document.title='broken'</script>")
    expect(page.locator("pre.content").first).to_contain_text("Goods")
    assert "broken" not in page.title().removeprefix("<script>document.title='broken'</script>")
    page.go_back()
    height = page.evaluate("Math.max(...[...document.querySelectorAll('tbody tr')].map(row => row.offsetHeight))")
    assert height < 80  # none takes more than its two lines
    page.goto(f"{service.url}/tasks/{ended}/pages?kind=error&class=http_5xx")
    expect(page.locator("tbody tr")).to_have_count(1)


def test_every_page_passes_axe_and_fits(service: Service, running: str, ended: str, open_page: Open) -> None:
    page = open_page()
    of_ended = [f"/tasks/{ended}{what}" for what in ("", "/pages", "/webhook")]
    page.goto(f"{service.url}/tasks/{ended}/pages?kind=page")
    content = str(page.locator(".title a").first.get_attribute("href"))
    for path in ("/", f"/tasks/{running}", *of_ended, content, "/new", "/sites", "/service"):
        page.goto(service.url + path)
        for size, colors, rules in LOOKS:
            page.set_viewport_size(size)
            page.emulate_media(color_scheme=colors)
            assert axe(page, *rules) == [], (path, size, colors)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, size)
            dark = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)[0] < 100")
            assert dark is (colors == "dark")
    page.goto(f"{service.url}/docs")
    for size, *_ in LOOKS:
        page.set_viewport_size(size)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_page_that_is_drawn_anew_keeps_the_focus_and_what_somebody_is_asked(
    service: Service, ended: str, open_page: Open
) -> None:
    page = open_page()
    page.clock.install()
    page.goto(f"{service.url}/tasks/{ended}/webhook")
    heading, spoil = page.locator("h1"), "it => { it.textContent = 'as it was' }"
    page.get_by_role("button", name="Send started 0 again").focus()
    heading.evaluate(spoil)
    page.clock.run_for(10_000)
    expect(heading).to_have_text("Webhook")
    expect(page.get_by_role("button", name="Send started 0 again")).to_be_focused()

    page.get_by_role("button", name="Send all again").press("Enter")
    heading.evaluate(spoil)
    with page.expect_response(page.url):
        page.clock.run_for(10_000)
    dialog = page.get_by_role("dialog")
    expect(heading).to_have_text("as it was")
    with page.expect_request("**/webhook/replay"):
        dialog.get_by_role("button", name="Send all again").press("Enter")
    expect(heading).to_have_text("Webhook")


def test_addresses_are_told_apart_at_any_width(tmp_path: Path, open_page: Open) -> None:
    service = ScriptedService()
    for number in range(2):
        url = f"http://docs.example.com:8080/guide/{number}"
        task = Task(id=new_task_id(), owner="", url=url, url_count=1, spec=TaskSpec(), created_at=time.time())
        service.tasks[task.id], service.log[task.id] = task, []
        service.move(task.id, TaskState.RUNNING)
        service.page(task.id, url)
    fits = "!it.clientWidth || it.scrollWidth <= it.clientWidth && it.scrollHeight <= it.clientHeight"  # or is inline
    shows_all = f"all => all.every(it => {fits})"
    with served(service, tmp_path) as server:
        page = open_page()
        for path, link in (("/", ".c-url a"), (f"/tasks/{task.id}", ".c-page a")):
            page.goto(server.url + path)
            for width in (360, 740, 1000, 1160):
                page.set_viewport_size({"width": width, "height": 800})
                assert page.locator(f"{link}, {link} .path").evaluate_all(shows_all), (path, width)


def test_a_chip_beside_a_long_address_is_seen_whole(tmp_path: Path, open_page: Open) -> None:
    service = ScriptedService()
    url = "http://docs.example.com/" + "guide/" * 40
    task = Task(id=new_task_id(), owner="", url=url, url_count=1200, spec=TaskSpec(), created_at=time.time())
    service.tasks[task.id], service.log[task.id] = task, []
    is_whole = "it => { const cell = it.closest('th').getBoundingClientRect(), own = it.getBoundingClientRect();"
    is_whole += " return own.width > 0 && own.right <= cell.right + 1 && it.scrollWidth <= it.clientWidth; }"
    with served(service, tmp_path) as server:
        page = open_page()
        page.goto(server.url)
        for width in (360, 740, 1000, 1160):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.get_by_text("+1,199 URLs").evaluate(is_whole), width


def test_a_site_is_run_and_stopped_by_keyboard(service: Service, site: str, open_page: Open) -> None:
    order = json.dumps({"name": "shop", "start_urls": [site], "max_depth": 1}).encode()
    with urlopen(Request(f"{service.url}/scraping/sites", order, {"Content-Type": "application/json"})) as answer:
        assert answer.status == 201
    page = open_page()
    page.goto(f"{service.url}/sites")
    assert axe(page) == []
    page.get_by_role("button", name="Run shop").press("Enter")
    expect(page.get_by_role("button", name="Stop shop")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Run shop")).to_be_focused(timeout=patience(15) * 1000)


def test_without_scripts_pages_are_whole_and_forms_work(
    service: Service, site: str, ended: str, open_page: Open
) -> None:
    page = open_page(java_script_enabled=False)
    page.goto(service.url)
    expect(page.locator(f'tr[data-task="{ended}"]')).to_contain_text("Partial")
    page.goto(f"{service.url}/new")
    page.get_by_label("URL", exact=True).fill(site)
    page.get_by_label("Depth").fill("1")
    page.get_by_label("Pages at a time").fill("1")
    page.get_by_role("button", name="Start task").click()
    page.wait_for_url(re.compile(r"/tasks/[0-9a-f]{32}$"))
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".sub .state")).to_have_text("Cancelled")


def test_sign_in_and_out_where_there_are_keys(tmp_path: Path, open_page: Open) -> None:
    reader, _ = Keyring(tmp_path / "api-keys.json").create("reader", (KeyScope.READ, KeyScope.MONITOR))
    with served(ScriptedService(), tmp_path) as server:
        page = open_page()
        page.context.add_cookies([{"name": "session", "value": "of another server", "url": server.url}])
        page.goto(f"{server.url}/service")
        page.wait_for_url(f"{server.url}/sign-in?next=/service")
        assert axe(page) == []
        page.get_by_label("API key").fill(reader)
        page.keyboard.press("Enter")
        page.wait_for_url(f"{server.url}/service")
        expect(page.get_by_role("link", name="New task")).to_have_count(0)
        (cookie,) = [one for one in page.context.cookies() if one["name"].startswith("weft-")]
        assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
        assert page.evaluate("document.cookie") == "session=of another server"
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url(f"{server.url}/sign-in")
        page.goto(server.url)
        expect(page.get_by_label("API key")).to_be_visible()


class Wide:
    """As wide as the panel of sites, whose last column says why one is paused."""

    title = "Wide"

    def table(self) -> PanelTable:
        row = (
            "shop",
            "paused",
            "1,204",
            "7",
            "12",
            "98%",
            "3 new, 4 changed",
            "",
            "paused: 5 runs in a row have failed",
        )
        return PanelTable(
            ("Site", "State", "Pages", "Failed", "Queued", "Success", "Changes", "Next run", "Said"), (row,)
        )


def test_the_last_column_of_a_panel_is_seen_at_phone_width(tmp_path: Path, open_page: Open) -> None:
    with served(ScriptedService(), tmp_path, panels=(Wide(),)) as server:
        page = open_page(viewport={"width": 390, "height": 800})
        page.goto(f"{server.url}/service")
        box = page.get_by_text("5 runs in a row have failed").bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
        fit = "all => all.length > 1 && all.every(it => it.scrollWidth <= it.clientWidth)"
        assert page.locator(".scroll:has(.panel)").evaluate_all(fit)
        expect(page.locator(".panel td.blank")).to_be_hidden()
