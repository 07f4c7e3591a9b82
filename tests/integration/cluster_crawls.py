"""Crawls whose pages real workers ask for, over a real broker, while workers and the brain are killed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crawling import Crawler, audited, check_corpus
from hands import HandProcess

from weft.cluster.key import make_key
from weft.testing.judge import CrawlVerdict, judge
from weft.testing.web import synthetic_web

DELAY_S = 0.05


class ClusterOfOne:
    """A broker's address, a key, and the workers that were started with them."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url, self.key_file = url, folder / "cluster.key"
        self.key = make_key(self.key_file)
        self._folder = folder
        self.hands: list[HandProcess] = []

    @property
    def flags(self) -> list[object]:
        """What `weft crawl` is told; requests are given up sooner than usual, so that kills cost less time."""
        return [
            "--workers", "cluster", "--broker", self.url, "--cluster-key-file", self.key_file, "--total-timeout", 2,
            "--connect-timeout", 2, "--read-timeout", 2, "--hand-queue-seconds", 3, "--hand-slack-seconds", 1,
        ]  # fmt: skip

    def start_hand(self, *flags: str, wait: bool = True) -> HandProcess:
        """One more worker for pages."""
        hand = HandProcess(self._folder / "hands", self.url, self.key_file, "--queues", "fetch", *flags)
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


def crawl_while_hands_and_brain_are_killed(
    folder: Path, url: str, world: dict[str, Any], *, hands: int, hand_kills: int, brain_kills: int, timeout_s: float
) -> tuple[CrawlVerdict, dict[str, int]]:
    """Each page is stored once and no site was asked too early, by the server's own log; the audit says so, too."""
    with synthetic_web(**world) as web, cluster_at(folder, url, hands) as cluster:
        crawler = Crawler(web.seeds, folder / "crawl", *cluster.flags, delay_s=DELAY_S)
        kills = ["hand"] * hand_kills + ["brain"] * brain_kills
        random.Random(7).shuffle(kills)
        step = max(1, world["pages"] // (len(kills) + 2))
        running = crawler.start()
        try:
            for number, kill in enumerate(kills, 1):
                crawler.pages_at_least(number * step, timeout_s)
                if kill == "hand":
                    cluster.hands.pop(0).kill()
                    cluster.start_hand("--concurrency", "2")
                else:
                    running.kill()
                    running.wait()
                    running = crawler.start(resume=True)
            assert running.wait(timeout_s) == 0, crawler.logs()
        finally:
            running.kill()
            running.wait()
        check_corpus(crawler)
        web.stop()
        verdict = judge(web.arrivals(), web.expect(), DELAY_S)
        verdict.duplicates.clear()  # a kill costs a request more
        report = audited(crawler.data_dir)
        assert report.is_proof, report
        return verdict, report.hands
