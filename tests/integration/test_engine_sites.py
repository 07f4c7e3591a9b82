"""What a site asks for binds every crawl of an engine: Crawl-delay, Retry-After; told by the server's own log."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from engines import ended

import weft
from weft.config import FetchSection, PolitenessSection
from weft.engine.crawls.settings import trust_key_of
from weft.engine.loop.fetcher.robots import REPEAT_AFTER_S
from weft.engine.model import EndReason
from weft.frontier.contract import RobotsRecord
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier

PAGES = 2
ASKED_S = 0.4


class _Site(http.server.ThreadingHTTPServer):
    """Notes each request before it is answered: what the answer sets off is later, whoever is slow."""

    def __init__(self, robots: str, busy: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.robots, self.busy = robots, busy
        self.arrivals: list[tuple[float, str]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Site

    def do_GET(self) -> None:
        is_first = self.path not in [path for _, path in self.server.arrivals]
        self.server.arrivals.append((time.monotonic(), self.path))
        if self.path == "/robots.txt":
            self._send(200, self.server.robots.encode(), "text/plain")
        elif self.path == self.server.busy and is_first:
            self._send(503, b"", "text/html", retry_after="2")
        else:
            self._send(200 if self.path.startswith("/crawl") else 404, b"<title>x</title>", "text/html")

    def _send(self, status: int, body: bytes, kind: str, retry_after: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return None


@contextmanager
def site(robots: str, busy: str = "") -> Iterator[_Site]:
    server = _Site(robots, busy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def crawled(server: _Site, folder: Path, count: int) -> None:
    """So many crawls of one site, each of pages of its own; they differ in user agent, delay and trust."""
    unlike: list[dict[str, Any]] = [
        {},
        {"headers": {"X-Name": "another way out"}},
        {"user_agent_template": "Other/1 ({email})"},
        {"tls_verify": False},
    ]
    shared = {"delay": 0, "per_domain_concurrency": 1, "allow_private": True, "seeded_urls_only": True}
    with weft.Engine(folder / "engine", **shared) as engine:
        names = [f"crawl{number}" for number in range(count)]
        for number, name in enumerate(names):
            urls = [f"{server.url}{name}/{page}" for page in range(PAGES)]
            engine.open(name, **unlike[number % len(unlike)])
            engine.pause(name)
            engine.seed(name, urls)
        for name in names:
            engine.resume(name)
        for name in names:
            standing = ended(engine, name)
            assert (standing.reason, standing.pages) == (EndReason.DONE, PAGES), standing


def test_a_crawl_delay_binds_every_crawl_of_the_site(tmp_path: Path) -> None:
    with site(f"User-agent: *\nCrawl-delay: {ASKED_S}\n") as server:
        crawled(server, tmp_path, 4)
        first = next(at for at, path in server.arrivals if path == "/robots.txt")
        gaps = [
            (later - earlier, path) for (earlier, _), (later, path) in pairwise(server.arrivals) if earlier >= first
        ]
    assert len(server.arrivals) >= 4 * PAGES + 2, "and each trust has its own robots.txt"
    assert min(gaps)[0] >= ASKED_S, min(gaps)


@pytest.mark.parametrize("busy", ["/crawl0/0", "/crawl3/0"])
def test_a_retry_after_binds_every_crawl_of_the_site(tmp_path: Path, busy: str) -> None:
    with site("", busy) as server:
        crawled(server, tmp_path, 4)
        arrivals = sorted(server.arrivals)
    told = next(at for at, path in arrivals if path == busy)
    waits = [(at - told, path) for at, path in arrivals if at > told]
    assert waits and min(waits)[0] >= 2.0, min(waits)


def test_a_site_that_was_down_is_asked_again_for_a_seed_but_not_at_once(tmp_path: Path) -> None:
    trust, now = trust_key_of(FetchSection(allow_private=True)), time.time()
    with site("") as down_before, site("") as down_now:
        frontier = EmbeddedFrontier(tmp_path / "engine" / "frontier", PolitenessSection(delay_s=0.0, places=1))
        for server, ago_s in ((down_before, 60.0), (down_now, -3600.0)):  # in an hour: however slow this machine is
            record = RobotsRecord("unreachable", b"", now - ago_s + REPEAT_AFTER_S, "connect: refused")
            frontier.sites.robots_known(f"{trust} {server.url.rstrip('/')}", record, None)
        frontier.close()
        with weft.Engine(tmp_path / "engine", delay=0, allow_private=True, seeded_urls_only=True) as engine:
            for name, server in (("before", down_before), ("now", down_now)):
                engine.open(name, [f"{server.url}crawl/1"])
            assert (ended(engine, "before").pages, ended(engine, "now").pages) == (1, 0)
    assert [path for _, path in down_before.arrivals] == ["/robots.txt", "/crawl/1"]
    assert down_now.arrivals == [], "many tasks in a row are one request"
