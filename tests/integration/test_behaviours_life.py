"""Behaviours 58 to 60 of spec/behaviours.md: how a crawl ends, goes on, and visits again."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from pace import patience
from scripted import NOT_FOUND, Ask, Page, Plan, Visit, Web, crawled, linking, page, until

PAGES, LINKS = 32, 4


def interrupt_and_resume(plan: Plan) -> None:
    """Ctrl-C in the middle of things, and then to the end."""
    process = plan.start()
    until(lambda: len(interrupted.asked_so_far()) >= PAGES // 4, 30)
    process.send_signal(signal.SIGINT)
    assert process.wait(patience(30)) == 130
    asked_before.extend(interrupted.asked_so_far())
    plan.run("--resume")


def visit_twice(plan: Plan) -> None:
    """A crawl, and another one when the site has changed."""
    plan.run()
    second.append(time.monotonic())
    change()
    plan.run("--resume", "--recrawl")


asked_before: list[str] = []
second: list[float] = []
MAX_PAGES = Plan("max-pages", max_pages=7, exit_code=3)
PER_DOMAIN = Plan("per-domain", max_pages_per_domain=5, exit_code=3)
MAX_TIME = Plan("max-time", max_duration=2.5, politeness_delay_seconds=0.2, exit_code=3)
MAX_SIZE = Plan("max-size", max_body_bytes=10_000)
RESUMED = Plan("resumed", drive=interrupt_and_resume)
AGAIN = Plan("again", drive=visit_twice)


@pytest.fixture(scope="module", autouse=True)
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    plans = (RESUMED, AGAIN, MAX_TIME, MAX_PAGES, PER_DOMAIN, MAX_SIZE)
    with crawled(tmp_path_factory.mktemp("life"), *plans) as running:
        yield running


def endless(ask: Ask) -> Page:
    """A page with links to four more."""
    number = int(ask.target.strip("/") or 0)
    return linking(*(f"/{LINKS * number + child}" for child in range(1, LINKS + 1)))


capped = MAX_PAGES.site("capped.test", "/0").on("/robots.txt", NOT_FOUND).on("/sitemap.xml", NOT_FOUND).on("*", endless)
hurried = (
    MAX_TIME.site("hurried.test", "/0").on("/robots.txt", NOT_FOUND).on("/sitemap.xml", NOT_FOUND).on("*", endless)
)
shared = (
    PER_DOMAIN.site("shared.test", "/0").on("/robots.txt", NOT_FOUND).on("/sitemap.xml", NOT_FOUND).on("*", endless)
)
heavy = MAX_SIZE.site("heavy.test", "/").on("/", linking("/fits", "/does-not"))
heavy.on("/fits", page("x" * 10_000)).on("/does-not", page("x" * 10_001))


def test_58_caps_on_pages_size_and_time_stop_a_crawl_cleanly_and_say_why() -> None:
    for plan, site, reason, pages in ((MAX_PAGES, capped, "max_pages", 7), (PER_DOMAIN, shared, "budget", 5)):
        assert (plan.status["state"], plan.status["note"], plan.status["pages"]) == ("limit", reason, pages)
        assert len(site.asked()) == len(plan.rows) == pages
    assert (MAX_TIME.status["state"], MAX_TIME.status["note"]) == ("limit", "max_duration")
    assert MAX_TIME.took_s > 2.5
    assert len(hurried.asked()) == len(MAX_TIME.rows) == MAX_TIME.status["pages"]
    for plan in (MAX_PAGES, MAX_TIME):
        assert plan.status["queued"] > 0 and plan.status["in_flight"] == 0
    assert (heavy.row("/fits").error, heavy.row("/does-not").error) == ("", "too_large")
    assert MAX_SIZE.status["errors"] == {"too_large": 1}


def numbered(ask: Ask) -> Page | bytes:
    number = int(ask.target.strip("/") or 0)
    return endless(ask) if number < PAGES else NOT_FOUND


interrupted = RESUMED.site("interrupted.test", "/0").on("/robots.txt", NOT_FOUND).on("/sitemap.xml", NOT_FOUND)
interrupted.on("*", numbered)


def test_59_an_interrupted_crawl_goes_on_without_loss_or_repetition() -> None:
    asked = Counter(interrupted.asked())
    last = LINKS * (PAGES - 1) + LINKS
    assert set(asked) == {f"/{number}" for number in range(last + 1)}
    assert set(asked.values()) == {1}
    assert PAGES // 4 <= len(asked_before) < PAGES
    assert Counter(row.url for row in RESUMED.rows) == {interrupted.url(path): 1 for path in asked}
    assert len(interrupted.asks("/robots.txt")) == 1
    assert (RESUMED.status["state"], RESUMED.status["pages"]) == ("finished", PAGES)


DATE = "Mon, 02 Mar 2026 10:00:00 GMT"


def conditional(etag: str, body: str) -> Callable[[Ask], Page]:
    """A page that is not sent again to those who have it."""

    def answer(ask: Ask) -> Page:
        if ask.header("if-none-match") == etag or ask.header("if-modified-since") == DATE:
            return Page(b"", (f"ETag: {etag}",), "304 Not Modified")
        return page(body, f"ETag: {etag}" if etag else f"Last-Modified: {DATE}")

    return answer


def change() -> None:
    """What the site has become by the second visit."""
    visited.on("/changed", conditional('"2"', "new")).on("/error", Page(b"broken", (), "500 No"))
    visited.on("/gone", NOT_FOUND).on("/cut", cut_off).on("/silent", hang_up).on("/short", short)


async def cut_off(visit: Visit) -> None:
    await visit.send(b'HTTP/1.1 200 OK\r\nETag: "2"\r\nContent-Length: 100\r\n\r\nne')
    visit.close()


async def hang_up(visit: Visit) -> None:
    visit.close()


short = b'HTTP/1.1 200 OK\r\nETag: "2"\r\nContent-Length: 2\r\n\r\nnewer'
PATHS = ("/etag", "/date", "/plain", "/changed", "/error", "/gone", "/cut", "/silent", "/short")
visited = AGAIN.site("visited.test", "/").on("/", linking(*PATHS))
for path in PATHS:
    visited.on(path, conditional('"1"', "old"))
visited.on("/date", conditional("", "old")).on("/plain", page("old"))


def test_60_a_recrawl_keeps_the_old_copy_when_unchanged_or_when_the_refetch_fails() -> None:
    statuses = {path: [row.status for row in visited.rows(path)] for path in PATHS}
    assert statuses == {
        "/etag": [200, 304], "/date": [200, 304], "/plain": [200, 304], "/changed": [200, 200], "/error": [200, 500],
        "/gone": [200, 404], "/cut": [200, 200], "/silent": [200, 0], "/short": [200, 200],
    }  # fmt: skip
    again = {path: next(ask for ask in visited.asks(path) if ask.at > second[0]) for path in PATHS}
    assert {path: ask.header("if-none-match") for path, ask in again.items()} == {
        path: None if path in ("/date", "/plain") else '"1"' for path in PATHS
    }
    assert again["/date"].header("if-modified-since") == DATE
    assert {path: visited.kept(path) for path in PATHS} == dict.fromkeys(PATHS, b"old") | {"/changed": b"new"}
    assert [visited.rows(path)[-1].error for path in ("/cut", "/silent", "/short")] == [
        "truncated",
        "reset",
        "wrong_length",
    ]
