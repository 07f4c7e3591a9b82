"""The engine on a real Redis, parsing in its fetchers or in processes of its own: every page once, whoever dies."""

from __future__ import annotations

import base64
import http.server
import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from crawling import check_corpus, until
from redis_pod import Pod
from server_kills import kill_written

from weft.engine.loop.steps import SPLIT_STEPS
from weft.records import Row
from weft.supervise.redis_server import RedisServer
from weft.testing.judge import judge
from weft.testing.web import synthetic_web

pytestmark = pytest.mark.timeout(360)  # many processes each, and several crawls at once

SPLIT = ("fetcher0", "fetcher1", "parser0", "parser1")
FUSED = ("fused0", "fused1")
StartServer = Callable[..., RedisServer]


@pytest.fixture
def pod(start_server: StartServer, tmp_path: Path) -> Iterator[Callable[..., Pod]]:
    made: list[Pod] = []

    def make(seeds: list[str], **flags: Any) -> Pod:
        made.append(Pod(start_server().url, tmp_path / "data", seeds, **flags))
        return made[-1]

    yield make
    for one in made:
        one.close()


def pages_of(rows: list[Row]) -> Counter[str]:
    return Counter(row.url for row in rows if row.warc_file and 200 <= row.status < 300)


def has_finished(crawl: Pod, many: int) -> bool:
    return crawl.frontier.status.stats().finished >= many


def has_begun(crawl: Pod, slot: str) -> bool:
    status = crawl.status(slot)
    return status is not None and status.state == "running"


def is_paused(crawl: Pod, slot: str) -> bool:
    status = crawl.status(slot)
    return status is not None and status.state == "paused"


@pytest.mark.parametrize("processes", [FUSED, SPLIT], ids=["fused", "split"])
def test_every_page_is_fetched_and_stored_once(pod: Callable[..., Pod], processes: tuple[str, ...]) -> None:
    with synthetic_web(hosts=6, pages=90, profile="calm", stocked=1, seed=3) as web:
        crawl = pod(web.seeds, politeness_delay_seconds=0.05)
        for name in processes:
            crawl.start(name)
        crawl.until_ended()
        crawl.stop()
        verdict = web.judge(delay_s=0.05)
        assert verdict.ok, verdict
        check_corpus(crawl)
        assert crawl.spool() == [], "what has been read is gone"
        slots = {path.name for path in crawl.data_dir.glob("index-*.db")}
        assert len(slots) == len(processes), "each process has an index of its own"


def test_a_killed_parser_or_fetcher_loses_and_doubles_nothing(pod: Callable[..., Pod]) -> None:
    with synthetic_web(hosts=6, pages=150, profile="calm", stocked=1, seed=4) as web:
        crawl = pod(web.seeds, politeness_delay_seconds=0.02)
        for name in SPLIT:
            crawl.start(name)
        kills = []
        for many, name in enumerate(("parser0", "fetcher0", "parser1", "parser0"), 1):
            until(partial(has_finished, crawl, 20 * many), what=f"item {20 * many}")
            kills.append(crawl.kill(name))
            crawl.start(name)
        crawl.until_ended()
        crawl.stop()
        web.stop()
        last = {arrival.url: arrival.t for arrival in web.arrivals()}
        # What a killed fetcher had sent may reach the server whenever it likes, and is asked for again.
        whole = [
            arrival
            for arrival in web.arrivals()
            if arrival.t == last[arrival.url]
            or not any(arrival.end >= kill.before and arrival.t <= kill.after + 1.0 for kill in kills)
        ]
        verdict = judge(whole, web.expect(), 0.02)
        assert len(verdict.duplicates) <= 200, "no more than what it had in flight"
        verdict.duplicates = []
        assert verdict.ok, verdict
        check_corpus(crawl)
        assert crawl.spool() == []


FETCHER_STEPS, PARSER_STEPS = SPLIT_STEPS[:1], SPLIT_STEPS[1:]
# Those at which one process dies in one crawl: at the first, and whoever replaces it at the next.
DEATHS = (FETCHER_STEPS, (*PARSER_STEPS, "after-links", "after-acknowledge"), ("after-write", "after-rows"))


@pytest.mark.parametrize("steps", DEATHS, ids=" ".join)
def test_kills_between_two_writes_cost_repeated_work_alone(
    pod: Callable[..., Pod], tmp_path: Path, steps: tuple[str, ...]
) -> None:
    markers = [tmp_path / step for step in steps]
    places = [f"{step}:{1 if step == 'after-acknowledge' else 4}@{tmp_path / step}" for step in steps]
    crash, is_fetcher = {"WEFT_TEST_CRASH_AT": ",".join(places)}, steps == FETCHER_STEPS
    with synthetic_web(hosts=6, pages=60, profile="calm", stocked=1, seed=6) as web:
        crawl = pod(web.seeds, politeness_delay_seconds=0.02)
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


def test_a_fetcher_that_was_stopped_for_long_sends_nothing_late(pod: Callable[..., Pod]) -> None:
    with synthetic_web(hosts=6, pages=60, profile="calm", stocked=1, seed=8) as web:
        crawl = pod(web.seeds, politeness_delay_seconds=0.1, total_timeout=1, read_timeout=1, lease_seconds=1.5)
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


def test_a_server_that_goes_away_pauses_the_pod_and_comes_back_with_it(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server()
    with synthetic_web(hosts=6, pages=150, profile="calm", stocked=1, seed=5) as web:
        crawl = Pod(server.url, tmp_path / "data", web.seeds, politeness_delay_seconds=0.02)
        try:
            for name in SPLIT:
                crawl.start(name)
            for name in SPLIT:  # one that has not begun would end, and nothing starts it again here
                until(partial(has_begun, crawl, f"pod0-{name}"), what=f"the start of {name}")
            until(lambda: crawl.frontier.status.stats().finished >= 30, what="item 30")
            kill_written(server)
            for slot in ("pod0-fetcher0", "pod0-parser0"):
                until(partial(is_paused, crawl, slot), what=f"a pause of {slot}")
            server.start()
            until(lambda: not is_paused(crawl, "pod0-fetcher0"), what="an end of the pause")
            crawl.until_ended()
            crawl.stop()
        finally:
            crawl.close()
        verdict = web.judge(delay_s=0.02)
        verdict.duplicates = []  # what was under way is asked for again
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


@pytest.mark.parametrize("processes", [("fused0",), ("fetcher0", "parser0", "parser1")], ids=["fused", "split"])
def test_poison_logins_cookies_and_visits_to_known_pages(pod: Callable[..., Pod], processes: tuple[str, ...]) -> None:
    deadly = {"WEFT_TEST_DEADLY_MARK": "THIS PAGE KILLS"}
    with site() as (seed, asked):
        flags = {"politeness_delay_seconds": 0.01, "auth": {"127.0.0.1": "me:secret"}}
        crawl = pod([seed], **flags)
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


def test_fetchers_wait_for_parsers_that_cannot_keep_up(pod: Callable[..., Pod]) -> None:
    with site() as (root, asked):
        crawl = pod([f"{root}{n}" for n in range(200)], politeness_delay_seconds=0)
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
