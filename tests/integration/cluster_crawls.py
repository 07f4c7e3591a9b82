"""Crawls whose pages real workers ask for, over a real broker, while workers and the brain are killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from crawling import Crawler, audited, check_corpus
from hands import HandProcess
from pace import LEAST, patience

from weft.cluster.key import make_key
from weft.supervise.redis_server import RedisServer
from weft.testing.judge import CrawlVerdict, judge
from weft.testing.web import SyntheticWeb, synthetic_web

DELAY_S = 0.05
# Requests are given up sooner than usual, so that kills cost less time; not so soon that a slow machine does it alone.
SLOWER = min(4.0, patience(1.0) / LEAST)
TOTAL_S, QUEUE_S, SLACK_S = 2 * SLOWER, 3 * SLOWER, 1 * SLOWER
OUTAGE_S = QUEUE_S + 1.0  # of a broker, longer than a request may wait for its worker
STOPPED_S = TOTAL_S + QUEUE_S + SLACK_S + 2.0
SITES_OUT_S = TOTAL_S + 0.5


class ClusterOfOne:
    """A broker's address, a key, and the workers that were started with them."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url, self.key_file = url, folder / "cluster.key"
        self.key = make_key(self.key_file)
        self._folder = folder
        self.hands: list[HandProcess] = []

    @property
    def flags(self) -> list[object]:
        """The flags of `weft crawl`."""
        return [
            "--workers", "cluster", "--broker", self.url, "--cluster-key-file", self.key_file,
            "--total-timeout", TOTAL_S, "--connect-timeout", TOTAL_S, "--read-timeout", TOTAL_S,
            "--hand-queue-seconds", QUEUE_S, "--hand-slack-seconds", SLACK_S,
        ]  # fmt: skip

    def start_hand(self, *flags: str, wait: bool = True, environment: dict[str, str] | None = None) -> HandProcess:
        """One more worker for pages."""
        own = ("--queues", "fetch", *flags)
        hand = HandProcess(self._folder / "hands", self.url, self.key_file, *own, environment=environment)
        self.hands.append(hand)
        return hand.wait_ready() if wait else hand

    def stop(self) -> None:
        """Ends all workers."""
        for hand in self.hands:
            hand.stop()


@contextmanager
def cluster_at(folder: Path, url: str, hands: int) -> Iterator[ClusterOfOne]:
    """A cluster with some workers, which have two processes each."""
    cluster = ClusterOfOne(folder, url)
    try:
        for _ in range(hands):
            cluster.start_hand("--concurrency", "2", wait=False)
        for hand in cluster.hands:
            hand.wait_ready()
        yield cluster
    finally:
        cluster.stop()


def crawl_while_all_parts_fail(
    folder: Path, server: RedisServer, world: dict[str, Any], *, hands: int, failures: list[str], timeout_s: float
) -> tuple[CrawlVerdict, dict[str, int]]:
    """Each page is stored once and no site was asked too early, by the server's own log; the audit says so, too. Gives
    the verdict, and how many requests each worker was to make."""
    with synthetic_web(**world) as web, cluster_at(folder, server.url, hands) as cluster:
        # A page that is lost four times is given up; here more fails in a minute than elsewhere in a month.
        crawler = Crawler(web.seeds, folder / "crawl", *cluster.flags, "--max-retries", 10, delay_s=DELAY_S)
        step = max(1, world["pages"] // (len(failures) + 2))
        running = crawler.start()
        try:
            for number, failure in enumerate(failures, 1):
                crawler.pages_at_least(number * step, timeout_s)
                if failure == "brain":
                    running.kill()
                    running.wait()
                    running = crawler.start(resume=True)
                else:
                    FAILURES[failure](cluster, server, web)
            assert running.wait(timeout_s) == 0, crawler.logs()
        finally:
            running.kill()
            running.wait()
        check_corpus(crawler)
        print(Counter(row.error.partition(":")[0] for row in crawler.rows() if row.error))
        web.stop()
        verdict = judge(web.arrivals(), web.expect(), DELAY_S)
        verdict.duplicates.clear()  # a failure costs a request more
        report = audited(crawler.data_dir)
        assert report.is_proof, report
        return verdict, report.hands


def _kill_a_hand(cluster: ClusterOfOne, _server: RedisServer, _web: SyntheticWeb) -> None:
    cluster.hands.pop(0).kill()
    cluster.start_hand("--concurrency", "2")


def _stop_a_hand(cluster: ClusterOfOne, _server: RedisServer, _web: SyntheticWeb) -> None:
    """For longer than its tasks may take; meanwhile the crawl continues."""
    hand = cluster.hands[-1]
    hand.suspend()
    threading.Timer(STOPPED_S, hand.resume).start()


def _stop_the_sites(_cluster: ClusterOfOne, _server: RedisServer, web: SyntheticWeb) -> None:
    """For longer than a transfer may take: requests are sent to servers that read them when nobody waits any more."""
    os.kill(web.pid, signal.SIGSTOP)
    time.sleep(SITES_OUT_S)
    os.kill(web.pid, signal.SIGCONT)


def _empty(_cluster: ClusterOfOne, server: RedisServer, _web: SyntheticWeb) -> None:
    with redis.Redis(unix_socket_path=str(server.socket)) as client:
        client.flushall()


def _silence(_cluster: ClusterOfOne, server: RedisServer, _web: SyntheticWeb) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    time.sleep(OUTAGE_S)
    os.kill(server.pid, signal.SIGCONT)


def _fill(_cluster: ClusterOfOne, server: RedisServer, _web: SyntheticWeb) -> None:
    with redis.Redis(unix_socket_path=str(server.socket)) as client:
        client.config_set("maxmemory", "1")
        time.sleep(OUTAGE_S)
        client.config_set("maxmemory", "0")


FAILURES = {
    "hand": _kill_a_hand, "stopped": _stop_a_hand, "sites": _stop_the_sites, "flush": _empty, "silent": _silence,
    "full": _fill,
}  # fmt: skip
