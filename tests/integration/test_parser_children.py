"""Crawls whose pages are parsed by children: the same rows, and a page that kills its parser costs that page alone."""

from __future__ import annotations

import http.server
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import Crawler, check_corpus, until
from pace import patience

import weft
from weft.errors import BadConfig
from weft.records import Row
from weft.store.pages import PageStore
from weft.supervise import process

PAGES = 40
DEADLY = (3, 4, 5, 11, 19)
_LETTERS = str.maketrans("0123456789", "abcdefghij")


class _Site(http.server.BaseHTTPRequestHandler):
    """Pages that link to each other: some kill whoever parses them, some are odd."""

    protocol_version = "HTTP/1.1"
    asked: Counter[str]

    def do_GET(self) -> None:
        self.asked[self.path] += 1
        number = int(self.path[1:]) if self.path[1:].isdigit() else 0
        links = "".join(f'<a href="/{(number * 3 + step) % PAGES}">x</a>' for step in range(6))
        name = str(number).translate(_LETTERS)  # alike but for a number, they would be a trap
        words = "kills-parsers" if number in DEADLY and self.path != "/" else f"Wörter der Seite {name} " * 20
        robots = "<meta name=robots content=noindex>" if number == 7 else ""
        charset = "iso-8859-1" if number % 2 else "utf-8"
        body = f"<title>Seite {name}</title>{robots}<p>{words}</p>{links}".encode(charset)
        self.send_response(200 if self.path != "/robots.txt" else 404)
        self.send_header("Content-Type", f"text/html; charset={charset}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def site() -> Iterator[tuple[str, Counter[str]]]:
    asked: Counter[str] = Counter()
    handler = type("Site", (_Site,), {"asked": asked})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/", asked
    server.shutdown()
    server.server_close()


def told(rows: list[Row]) -> set[tuple[str, int, str, str, str]]:
    return {(row.url, row.status, row.title, row.charset, row.error) for row in rows}


def children_of(data_dir: Path) -> list[int]:
    """The parser children of a crawl's processes."""
    return [pid for pid in process.pids() if process.name_of(pid) == "weft-parser" and _is_below(pid, data_dir)]


def _is_below(pid: int, data_dir: Path) -> bool:
    """Whether a process belongs to this crawl, of several on this machine."""
    try:
        return f"CHILDREN_OF={data_dir}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def test_deadly_pages_cost_themselves_and_nothing_is_fetched_twice(
    site: tuple[str, Counter[str]], tmp_path: Path
) -> None:
    origin, asked = site
    crawler = Crawler([origin], tmp_path, "--parser-children", 2, "--store", "warc,text", delay_s=0)
    assert crawler.run(WEFT_TEST_DEADLY_MARK="kills-parsers") == 0, crawler.said
    rows = check_corpus(crawler)
    errors = {row.url: row.error for row in rows if row.error}
    assert errors == {origin + str(n): "parse_crash" for n in DEADLY} | {f"{origin}7": "noindex"}
    assert len(rows) == PAGES + 1
    assert set(asked.values()) == {1}, "no process had to be started again"
    assert "Stored unparsed" in crawler.said
    store = PageStore.open([crawler.data_dir], read_only=True)
    assert "Wörter der Seite j" in (store.text(store.rows_of_url(f"{origin}9")[0]) or "")
    store.abandon()


def test_the_rows_are_those_of_a_crawl_that_parses_itself(site: tuple[str, Counter[str]], tmp_path: Path) -> None:
    crawls = []
    for children in (0, 1):
        crawler = Crawler(
            [site[0]], tmp_path / str(children), "--parser-children", children, "--max-depth", 2, delay_s=0
        )
        assert crawler.run() == 0, crawler.said
        crawls.append(told(check_corpus(crawler)))
    assert crawls[0] == crawls[1] and len(crawls[0]) > 10


def test_children_that_are_killed_lose_nothing(site: tuple[str, Counter[str]], tmp_path: Path) -> None:
    crawler = Crawler([site[0]], tmp_path, "--parser-children", 1, delay_s=0.05)
    with crawler.running(CHILDREN_OF=str(crawler.data_dir)) as running:
        for pages in (3, 12, 20):
            crawler.pages_at_least(pages)
            for pid in children_of(crawler.data_dir):
                process.kill(pid)
        assert running.wait(patience(60)) == 0, crawler.said
    rows = check_corpus(crawler)
    assert {row.error for row in rows} == {"", "noindex"} and len(rows) == PAGES + 1
    assert set(site[1].values()) == {1}


def test_a_crawl_that_is_killed_takes_its_children_along_and_goes_on(
    site: tuple[str, Counter[str]], tmp_path: Path
) -> None:
    crawler = Crawler([site[0]], tmp_path, "--parser-children", 2, delay_s=0.05)
    with crawler.running(CHILDREN_OF=str(crawler.data_dir)) as running:
        crawler.pages_at_least(5)
        children = until(lambda: children_of(crawler.data_dir), what="a child")
        running.kill()
    until(lambda: all(process.has_ended(pid) for pid in children), what="the end of the children")
    assert crawler.run(resume=True) == 0, crawler.said
    rows = check_corpus(crawler)
    assert len({row.url for row in rows}) == PAGES + 1


def test_an_engine_with_children_ends_each_of_its_crawls(
    site: tuple[str, Counter[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_TEST_DEADLY_MARK", "kills-parsers")
    settings: dict[str, Any] = {"seeds": [site[0]], "delay": 0, "allow_private": True, "scope": "any"}
    with weft.Engine(tmp_path / "engine", parser_children=1) as engine:
        with pytest.raises(BadConfig, match="parser_children: is a setting of the engine"):
            engine.open("own", parser_children=1, **settings)
        engine.open("all", **settings)
        engine.open("some", max_pages=5, **settings)
        engine.open("cancelled", **settings)
        engine.cancel("cancelled")
        ended = {name: engine.wait(name) for name in ("all", "some", "cancelled")}
        assert [ended[name].reason for name in ended] == ["done", "max_pages", "cancelled"]
        assert ended["some"].pages == 5
        pages = [page.url for page in engine.pages("all")]
        failed = {event.url: event.error for event in engine.events("all", follow=False) if event.kind == "failure"}
    assert {url for url, error in failed.items() if error == "parse_crash"} == {site[0] + str(n) for n in DEADLY}
    assert len(pages) == PAGES + 1 - len(DEADLY) - 1, ended["all"]
