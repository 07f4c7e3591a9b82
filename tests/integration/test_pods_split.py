"""The engine on a real Redis, parsing in its fetchers or in processes of its own, where a crawl through the command
line (test_pods_redis) cannot aim: deaths between two writes or of a page, a process that is stopped, slow parsers."""

from __future__ import annotations

import base64
import http.server
import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from crawling import check_corpus, until
from redis_pod import Pod

from weft.engine.loop.steps import SPLIT_STEPS
from weft.records import Row
from weft.supervise.redis_server import RedisServer
from weft.testing.web import synthetic_web

pytestmark = pytest.mark.timeout(360)  # many processes each, and several crawls at once

FUSED = ("fused0", "fused1")


@contextmanager
def pod(folder: Path, seeds: list[str], **flags: Any) -> Iterator[tuple[Pod, RedisServer]]:
    """A pod, whose processes the caller starts, and its server."""
    server = RedisServer(folder / "server")
    server.start()
    try:
        crawl = Pod(server.url, folder / "data", seeds, **flags)
        try:
            yield crawl, server
        finally:
            crawl.close()
    finally:
        server.kill()
        server.stop()


def pages_of(rows: list[Row]) -> Counter[str]:
    return Counter(row.url for row in rows if row.warc_file and 200 <= row.status < 300)


def has_finished(crawl: Pod, many: int) -> bool:
    return crawl.frontier.status.stats().finished >= many


FETCHER_STEPS, PARSER_STEPS = SPLIT_STEPS[:1], SPLIT_STEPS[1:]
# Those at which one process dies in one crawl: at the first, and whoever replaces it at the next.
DEATHS = (FETCHER_STEPS, (*PARSER_STEPS, "after-links", "after-acknowledge"), ("after-write", "after-rows"))


def fetcher_killed_between_writes(folder: Path) -> None:
    killed_between_writes(folder, DEATHS[0])


def parser_killed_between_writes(folder: Path) -> None:
    killed_between_writes(folder, DEATHS[1])


def parser_killed_between_rows(folder: Path) -> None:
    killed_between_writes(folder, DEATHS[2])


def killed_between_writes(folder: Path, steps: tuple[str, ...]) -> None:
    """Kills between two writes cost repeated work alone."""
    markers = [folder / step for step in steps]
    places = [f"{step}:{1 if step == 'after-acknowledge' else 4}@{folder / step}" for step in steps]
    crash, is_fetcher = {"WEFT_TEST_CRASH_AT": ",".join(places)}, steps == FETCHER_STEPS
    with (
        synthetic_web(hosts=6, pages=60, profile="calm", stocked=0, seed=6) as web,
        pod(folder, web.seeds, politeness_delay_seconds=0.02) as (crawl, _),
    ):
        crawl.start("fetcher0", env=crash if is_fetcher else None)
        crawl.start("parser0", env=None if is_fetcher else crash)
        crawl.until_ended(env=crash)
        crawl.stop()
        assert all(marker.exists() for marker in markers), "a step was not reached"
        verdict = web.judge(delay_s=0.02)
        if not is_fetcher:
            assert verdict.duplicates == [], "what is in the spool is not asked for again"
        verdict.duplicates = []
        assert verdict.ok, verdict
        check_corpus(crawl)
        assert crawl.spool() == []


def stopped_for_long(folder: Path) -> None:
    """A fetcher that was stopped for long sends nothing late."""
    limits = {"total_timeout": 1, "read_timeout": 1, "lease_seconds": 1.5}
    with (
        synthetic_web(hosts=6, pages=60, profile="calm", stocked=0, seed=8) as web,
        pod(folder, web.seeds, politeness_delay_seconds=0.1, **limits) as (crawl, _),
    ):
        for name in FUSED:
            crawl.start(name)
        until(partial(has_finished, crawl, 10), what="item 10")
        crawl.running["fused0"].send_signal(signal.SIGSTOP)
        time.sleep(2.0)  # longer than a lease: what it held is given to the other
        crawl.running["fused0"].send_signal(signal.SIGCONT)
        crawl.until_ended()
        crawl.stop()
        verdict = web.judge(delay_s=0.1)
        verdict.duplicates = []
        assert verdict.ok, verdict
        check_corpus(crawl)


class Site(http.server.BaseHTTPRequestHandler):
    """Pages that are all linked from the first; some want a cookie, a login, or kill their parser."""

    protocol_version = "HTTP/1.1"
    asked: list[tuple[str, dict[str, str], int]]
    pages = 12

    def do_GET(self) -> None:
        status, headers, body = self.answer()
        self.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}, status))
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        html = {"Content-Type": "text/html", "ETag": f'"{self.path}"'}
        if self.path == "/robots.txt":
            return 404, {}, b""
        if self.headers.get("If-None-Match") == html["ETag"]:
            return 304, {"ETag": html["ETag"]}, b""
        if self.path == "/login":
            wanted = "Basic " + base64.b64encode(b"me:secret").decode()
            if self.headers.get("Authorization") != wanted:
                return 401, {"WWW-Authenticate": 'Basic realm="here"'}, b"no"
        if self.path == "/wall" and "seen=1" not in self.headers.get("Cookie", ""):
            return 302, {"Location": "/wall", "Set-Cookie": "seen=1"}, b""
        links = "".join(f'<a href="/{n}">' for n in [*range(self.pages), "login", "wall", "deadly"])
        mark = "THIS PAGE KILLS" if self.path == "/deadly" else ""
        return 200, html, f"<title>{self.path}</title>{links if self.path == '/' else ''}<p>{mark}".encode()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def site(pages: int = 12) -> Iterator[tuple[str, list[tuple[str, dict[str, str], int]]]]:
    asked: list[tuple[str, dict[str, str], int]] = []
    handler = type("Handler", (Site,), {"asked": asked, "pages": pages})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", asked
    finally:
        server.shutdown()
        server.server_close()


def poison_fused(folder: Path) -> None:
    poison_logins_and_visits(folder, ("fused0",))


def poison_split(folder: Path) -> None:
    poison_logins_and_visits(folder, ("fetcher0", "parser0", "parser1"))


def poison_logins_and_visits(folder: Path, processes: tuple[str, ...]) -> None:
    """A page that kills its parser, logins, cookies, and visits to known pages."""
    deadly = {"WEFT_TEST_DEADLY_MARK": "THIS PAGE KILLS"}
    flags = {"politeness_delay_seconds": 0.01, "auth": {"127.0.0.1": "me:secret"}}
    with site() as (seed, asked), pod(folder, [seed], **flags) as (crawl, _):
        for name in processes:
            crawl.start(name, env=deadly)
        crawl.until_ended(env=deadly)
        crawl.stop()
        rows = {row.url.removeprefix(seed): row for row in check_corpus(crawl)}
        assert rows["deadly"].error == "parse_crash" and rows["deadly"].warc_file, "stored, unparsed"
        assert rows["login"].status == 200
        # Each life may ask once for the wall and once for where it leads: for what the one before did not commit. Of a
        # parser's death nothing is asked again, as its pages are in the spool.
        lives = 1 + sum(deaths for name, deaths in crawl.deaths.items() if not name.startswith("parser"))
        assert sum(crawl.deaths.values()) == 2 and lives == (3 if processes == ("fused0",) else 1)
        walls = [status for path, _, status in asked if path == "/wall"]
        assert len(walls) <= 2 * lives and walls == sorted(walls, reverse=True), "once the cookie is kept, it is sent"
        assert set(walls) == {302, 200}
        assert set(pages_of(list(rows.values()))) == {
            seed,
            *(seed + str(n) for n in [*range(12), "login", "wall", "deadly"]),
        }
        before = len(asked)
        for name in processes:
            crawl.start(name, recrawl="again", env=deadly)
        until(lambda: len(asked) >= before + 12, what="a second visit")
        crawl.until_ended(env=deadly)
        crawl.stop()
        again = [row for row in crawl.rows() if row.status == 304]
        assert {row.url for row in again} >= {seed + str(n) for n in range(12)}, (
            "known pages are asked for conditionally"
        )


def parsers_too_slow(folder: Path) -> None:
    """Fetchers wait for parsers that cannot keep up."""
    with (
        site() as (root, asked),
        pod(folder, [f"{root}{n}" for n in range(200)], politeness_delay_seconds=0) as (crawl, _),
    ):
        crawl.start("fetcher0", soft=20, hard=40)
        until(lambda: crawl.frontier.status.stats().to_parse >= 40, what="a full queue")
        until(lambda: crawl.frontier.status.stats().leased == 0, what="the end of what was in flight")
        assert crawl.frontier.status.stats().to_parse <= 40 + 8, (
            "what was in flight when the limit was reached comes on top"
        )
        assert sum(path.stat().st_size for path in crawl.spool()) > 0
        assert len(asked) < 60
        crawl.start("parser0", at_a_time=5)
        crawl.until_ended()
        crawl.stop()
        assert len(pages_of(crawl.rows())) == 200
        events = json.loads((crawl.data_dir / "pressure-pod0-fetcher0.json").read_text())
        assert events["hard"] >= 1
        assert crawl.spool() == []


# Those that wait longest come first.
SCENARIOS = [
    stopped_for_long,
    fetcher_killed_between_writes,
    poison_fused,
    poison_split,
    parser_killed_between_writes,
    parser_killed_between_rows,
    parsers_too_slow,
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_processes_of_a_pod_work_as_one_does(crawls: dict[Any, Future[None]], scenario: Any) -> None:
    crawls[scenario].result()
