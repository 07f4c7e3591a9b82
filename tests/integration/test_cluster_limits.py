"""Limits of time that politeness rests on: a hand sends nothing after its deadline, whatever stops it or its broker."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cluster_crawls import cluster_at
from crawling import Crawler
from hands import wait_until
from pace import patience

from weft.cluster.broker import Broker
from weft.cluster.key import ClusterKey
from weft.cluster.pages.fetch_task import run
from weft.cluster.running import HandSettings, TaskRunner
from weft.cluster.signing import Signer
from weft.cluster.tasks import KINDS, HandSide, hand_clock
from weft.supervise.redis_server import RedisServer

StartServer = Callable[..., RedisServer]
KEY = ClusterKey(bytes(32))

DEADLINE_S = 3 + 2 + 1 + 0.1  # of a task of `ClusterOfOne.flags`


class HangingSite:
    """Answers /one at once, and nothing else ever; knows when a client has hung up."""

    def __init__(self) -> None:
        site = self
        self.answered, self.left = threading.Event(), threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/one":
                    self.send_response(200)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    site.answered.set()
                else:
                    self.connection.recv(1)
                    site.left.set()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[HangingSite]:
    made = HangingSite()
    yield made
    made.close()


def side_at(server: RedisServer, folder: Path, within_s: float, *, timeout_s: float = 5.0) -> HandSide:
    return side_of(Broker(server.url, KEY.cluster_id, timeout_s=timeout_s), folder, within_s)


def side_of(broker: Broker, folder: Path, within_s: float) -> HandSide:
    signer = Signer(KEY)
    now_ms = broker.now_ms()
    message = signer.verify(signer.sign("fetch", {}, made_ms=now_ms, until_ms=now_ms + int(1000 * within_s)), "fetch")
    return HandSide(broker, signer, "hand", folder, False, message, (True, True), hand_clock() + within_s)


def task_of(timeout_s: float = 2.0, **urls: str) -> dict[str, Any]:
    """A task of requests by their ids."""
    return {
        "slot": "s", "epoch": 1, "claims": [*urls], "section": {"total_timeout": timeout_s, "allow_private": True},
        "requests": [{"id": id_, "url": url} for id_, url in urls.items()],
        "run_s": patience(60), "most_bytes": 1 << 20, "is_shared": False,
    }  # fmt: skip


def begin(task: dict[str, Any], side: HandSide) -> None:
    """Runs a task whose requests were all granted."""
    run(task, replace(side, granted=(True,) * len(task["requests"])))


def results_of(side: HandSide) -> list[tuple[str, str | None]]:
    """The results so far, with their errors."""
    texts: list[bytes] = side.broker.client.lrange(side.broker.key("results:s"), 0, -1)  # type: ignore[assignment]
    results = [side.signer.verify(one.decode(), "fetch-result").body for one in texts]
    return [(one["id"], one.get("error")) for one in results]


def test_a_silent_broker_holds_up_no_transfer(tmp_path: Path, start_server: StartServer, site: HangingSite) -> None:
    """One that hangs is ended at its time, while the result of another waits."""
    server = start_server()
    side = side_at(server, tmp_path, patience(60), timeout_s=patience(120))
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    try:
        begin(task_of(a=f"{site.url}/one", b=f"{site.url}/never"), side)
        assert site.answered.wait(patience(30))
        assert site.left.wait(patience(30)), "it went on while a result waited for the broker"
    finally:
        os.kill(server.pid, signal.SIGCONT)
    wait_until(lambda: len(results_of(side)) == 2, "the results did not come", 60)
    assert results_of(side) == [("a", None), ("b", "timeout")]


def test_a_page_that_hangs_holds_up_no_other_task(tmp_path: Path, start_server: StartServer, site: HangingSite) -> None:
    """A process of a hand has as many transfers as it has room for, of whatever tasks."""
    side = side_at(start_server(), tmp_path, patience(60))
    long_s = patience(20)
    for number in range(3):
        begin(task_of(long_s, **{f"hangs{number}": f"{site.url}/never"}), side)
    begin(task_of(long_s, a=f"{site.url}/one"), side)
    wait_until(lambda: results_of(side), "it waited for the pages that hang", 20)
    assert results_of(side)[0] == ("a", None)
    wait_until(lambda: len(results_of(side)) == 4, "those that hang did not end", 40)


def test_a_task_that_is_late_says_that_nothing_was_sent(
    tmp_path: Path, start_server: StartServer, site: HangingSite
) -> None:
    """Its requests are claimed all the same: another delivery of it must not make them."""
    broker = Broker(start_server().url, KEY.cluster_id)
    late = broker.claim(["a"], until_ms=broker.now_ms())
    assert (late.word, late.granted) == ("late", (True,))
    assert broker.claim(["a"], until_ms=broker.now_ms() + 60_000).granted == (False,)
    now_ms = broker.now_ms()
    signer = Signer(KEY)
    text = signer.sign("fetch", task_of(a=f"{site.url}/one"), made_ms=now_ms - 2000, until_ms=now_ms - 1000)
    broker.client.delete(broker.key("claim:a"))
    broker.client.set(broker.key("epoch:s"), 1)
    runner = TaskRunner(HandSettings(broker.url, KEY, "hand", tmp_path))
    assert runner.run(KINDS["fetch"], [text]) is None
    side = side_of(broker, tmp_path, 60.0)
    assert results_of(side) == [("a", "late")]
    assert runner.run(KINDS["fetch"], [text]) is None
    assert results_of(side) == [("a", "late")], "one result for a request"
    assert broker.counts()["fetch:refused:late"] == 2
    assert not site.answered.is_set()


def test_a_task_of_the_future_is_refused_since_the_brokers_clock_was_set_back(start_server: StartServer) -> None:
    broker = Broker(start_server().url, KEY.cluster_id)
    now_ms = broker.now_ms()
    assert broker.claim(["a"], made_ms=now_ms, until_ms=now_ms + 30_000).word == "ok"
    assert broker.claim(["b"], made_ms=now_ms + 3_600_000, until_ms=now_ms + 3_630_000).word == "clock"


@contextmanager
def crowded_listener() -> Iterator[tuple[socket.socket, set[int]]]:
    """A server that takes no more connections until somebody accepts: the next one waits for that."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as others:
        first = others.enter_context(socket.create_connection(listener.getsockname()))
        waiting = others.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex(listener.getsockname())
        yield listener, {one.getsockname()[1] for one in (first, waiting)}


def is_connecting(listener: socket.socket) -> bool:
    """Whether more than the one connection of `crowded_listener` waits for its answer."""
    port = f":{listener.getsockname()[1]:04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(words[2].endswith(port) and words[3] == "02" for words in lines) > 1


def accepted_beside(own: set[int], listener: socket.socket) -> socket.socket:
    """The connection that waits behind those from our own ports."""
    listener.settimeout(patience(60))
    while True:
        connection, (_, port) = listener.accept()
        if port not in own:
            return connection
        connection.close()


def test_a_hand_that_is_stopped_between_claim_and_send_sends_nothing_after_its_deadline(
    tmp_path: Path, start_server: StartServer
) -> None:
    """Its connection is made while it is stopped, and could be used at once."""
    server = start_server()
    with crowded_listener() as (listener, own), cluster_at(tmp_path, server.url, 1) as cluster:
        url = "http://{}:{}/".format(*listener.getsockname())
        crawler = Crawler([url], tmp_path / "crawl", *cluster.flags)
        broker = Broker(server.url, cluster.key.cluster_id)
        with crawler.running() as running:
            wait_until(lambda: broker.client.keys(broker.key("claim:*")), "nothing was claimed")
            wait_until(lambda: is_connecting(listener), "it did not connect")
            (hand,) = cluster.hands
            hand.suspend()
            deadline = time.monotonic() + DEADLINE_S
            running.kill()
            running.wait()
        listener.listen(100)
        connection = accepted_beside(own, listener)
        time.sleep(max(0.0, deadline - time.monotonic()))
        hand.resume()
        wait_until(lambda: "fetch:done" in broker.counts(), "it did not end its task", 60)
        with connection:
            connection.settimeout(patience(30))
            assert connection.recv(1) == b"", "it was sent"
