"""Crawls through workers: the whole way of a page, and what kills cost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cluster_crawls import cluster_at, crawl_while_all_parts_fail
from crawling import Crawler, audited, until, weft
from hands import wait_until
from pace import patience

from weft.store.pages import PageStore
from weft.supervise.redis_server import RedisServer

StartServer = Callable[..., RedisServer]
WORLD = {"hosts": 16, "pages": 40, "seed": 11, "stocked": 1}
LARGE = bytes(range(32, 127)) * 8000  # 760 KB: too large for a message
SPIDER = """
import weft

class Orders(weft.Spider):
    workers = "cluster"

    def start(self):
        yield weft.Request("{url}/order", method="POST", body=b"one")

    def parse(self, page):
        yield {{"status": page.status}}
"""


class SmallSite:
    """A page, a large one behind it, and an order that is answered when the test says so."""

    def __init__(self) -> None:
        site = self
        self.asked: list[str] = []
        self.may_answer = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                if self.path == "/robots.txt":
                    self._send(404, b"", "text/plain")
                elif self.path == "/large.txt":
                    self._send(200, LARGE, "text/plain")
                else:
                    self._send(200, b"<title>one</title><a href='/large.txt'>two</a>", "text/html")

            def do_POST(self) -> None:
                site.asked.append(self.path)
                site.may_answer.wait(patience(60))

            def _send(self, status: int, body: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[SmallSite]:
    made = SmallSite()
    yield made
    made.close()


def test_kills_and_an_emptied_broker_lose_nothing_and_are_not_rude(tmp_path: Path, start_server: StartServer) -> None:
    verdict, hands = crawl_while_all_parts_fail(
        tmp_path, start_server("valkey"), dict(WORLD), hands=2, failures=["hand", "brain", "flush"], timeout_s=120
    )
    assert verdict.ok, verdict
    assert len(hands) >= 2, "one of them was killed, and others did its work"


def test_without_a_worker_a_crawl_waits_and_says_so_or_asks_for_itself(
    tmp_path: Path, start_server: StartServer, site: SmallSite
) -> None:
    url = start_server().url
    with cluster_at(tmp_path, url, 0) as cluster:
        alone = Crawler([site.url + "/"], tmp_path / "alone", *cluster.flags, "--workers", "prefer-cluster")
        assert alone.run() == 0, alone.logs()
        assert audited(alone.data_dir).hands == {}
        assert "/large.txt" in site.asked
        site.asked.clear()
        crawler = Crawler([site.url + "/"], tmp_path / "crawl", *cluster.flags)
        with crawler.running() as running:
            until(lambda: "no worker is connected" in crawler.status().get("note", ""), what="the note")
            second = weft("crawl", site.url, "--allow-private", "--data-dir", tmp_path / "second", *cluster.flags)
            assert second.returncode == 2, second.stderr
            assert "another brain has this cluster's key" in second.stderr
            assert site.asked == []
            hand = cluster.start_hand()
            assert running.wait(patience(60)) == 0, crawler.logs()
        assert [*audited(crawler.data_dir).hands] == [hand.name]
        store = PageStore.open([crawler.data_dir], read_only=True)
        (large,) = [row for row in crawler.rows() if row.url.endswith(".txt")]
        http = store.read_page(large).http
        store.abandon()
        assert http is not None
        assert http.body == LARGE


def test_an_order_whose_worker_dies_is_not_sent_again(
    tmp_path: Path, start_server: StartServer, site: SmallSite
) -> None:
    with cluster_at(tmp_path, start_server().url, 1) as cluster:
        (tmp_path / "orders.py").write_text(SPIDER.format(url=site.url))
        crawler = Crawler([], tmp_path / "crawl", *cluster.flags)
        words = ["--spider", tmp_path / "orders.py", "--allow-private", "--data-dir", crawler.data_dir, *cluster.flags]
        run = threading.Thread(target=lambda: weft("crawl", *words, timeout_s=60))
        run.start()
        wait_until(lambda: "/order" in site.asked, "the order did not come")
        cluster.hands[0].kill()
        run.join()
    assert [row.error.partition(":")[0] for row in crawler.rows()] == ["unknown_outcome"], crawler.logs()
    assert site.asked.count("/order") == 1
