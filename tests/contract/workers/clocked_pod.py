"""One pod on Redis under a clock that the test moves, and what its processes are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits, RobotsRecord
from weft.frontier.redis.connection import connect
from weft.frontier.redis.link import PodLink, QueueLimits
from weft.frontier.redis.pods.client import PodClient
from weft.frontier.redis.redis_frontier import RedisFrontier
from weft.records import Found, Lease
from weft.supervise.redis_server import RedisServer

ALLOW = RobotsRecord("allow", b"", 9e12)
SMALL = QueueLimits(split_above=20, moved_at_once=5, refill_below=2, most_in_tail=200)


class Pod:
    """One pod under a clock that the test moves."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.folder = folder
        self.server = server
        self.time = 1000.0
        self.client: Any = connect(server.url)
        self.client.flushall()
        self._incarnations: dict[str, int] = {}

    def process(
        self, slot: str = "pod0-fetcher0", crawl: CrawlLimits | None = None, *, limits: QueueLimits | None = None,
        idle_s: float = 0.0, pod: int = 0, **settings: Any,
    ) -> RedisFrontier:  # fmt: skip
        self._incarnations[slot] = self._incarnations.get(slot, 0) + 1
        section = PolitenessSection(**({"delay_s": 10.0, "places": 1} | settings))
        frontier = RedisFrontier(
            connect(self.server.url), self.folder, section, slot=slot, incarnation=self._incarnations[slot], pod=pod,
            limits=limits, clock=lambda: self.time, wall=lambda: self.time, server_clock=lambda: self.time,
            idle_s=idle_s,
        )  # fmt: skip
        assert frontier.crawls.open_crawl("test", crawl or CrawlLimits()) == 1
        return frontier

    def from_afar(self) -> PodClient:
        section = PolitenessSection(delay_s=10.0, places=1)
        return PodClient(
            PodLink(
                connect(self.server.url),
                section,
                pod=0,
                pods=2,
                clock=lambda: self.time,
                server_clock=lambda: self.time,
            )
        )


def admit(frontier: RedisFrontier, *hosts: str, pages: int = 1) -> None:
    for host in hosts:
        frontier.sites.robots_known(f"https://{host}", ALLOW, None)
    frontier.queue.admit(1, [Found(f"https://{host}/{number}", 0) for host in hosts for number in range(pages)])


def claim(frontier: RedisFrontier, limit: int = 9) -> list[Lease]:
    return frontier.leases.claim(frontier.owner, limit)
