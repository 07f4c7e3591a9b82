"""Every frontier under a clock that the test moves, and small steps for it. A backend joins by adding to HARNESSES."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from server_kills import kill_written

from weft.config import PolitenessSection
from weft.frontier.contract import Admission, CrawlLimits, End, EndedLease, RobotsRecord, StoredUrls, TransferEnd
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.outbox import PodMessage, encode_message
from weft.frontier.redis.connection import RedisSettings, connect
from weft.frontier.redis.redis_frontier import IDLE_S, RedisFrontier
from weft.records import Found, Lease
from weft.supervise.redis_server import RedisServer

Settings = tuple[CrawlLimits, PolitenessSection, float]


class EmbeddedHarness:
    """An embedded frontier under a clock that the test moves. `crash` leaves what a killed process leaves.

    With `others` each opening brings every crawl back that is kept, with these settings.
    """

    checkpoint_every: int | None = None
    max_in_memory: int | None = None

    def __init__(self, folder: Path, **politeness: Any) -> None:
        self.folder = folder
        self.time = 1000.0
        self.wall = 1_700_000_000.0
        settings = {"delay_s": 10.0, "places": 1} | politeness
        self.section = PolitenessSection(**settings)
        self.limits = CrawlLimits()
        self.others: Settings | None = None
        self.frontier = self._open()

    def _open(self) -> EmbeddedFrontier:
        frontier = self._make(clock=lambda: self.time, wall=lambda: self.wall)
        self.crawl = frontier.crawls.open_crawl("test", self.limits)
        if self.others is not None:
            for number in set(frontier.crawls.kept_crawls()) - {self.crawl}:
                frontier.crawls.reopen_crawl(number, *self.others)
        return frontier

    def _make(self, **clocks: Any) -> EmbeddedFrontier:
        own = {"checkpoint_every": self.checkpoint_every, "max_in_memory": self.max_in_memory}
        given: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
        return EmbeddedFrontier(self.folder, self.section, **clocks, **given)

    def start(self, limits: CrawlLimits | None = None) -> EmbeddedFrontier:
        if limits is not None:
            self.limits = limits
            self.frontier.crawls.open_crawl("test", limits)
            self.frontier.close()
            self.frontier = self._open()
        self.frontier.recovery.recover()
        return self.frontier

    def advance(self, seconds: float) -> None:
        self.time += seconds
        self.wall += seconds

    def crash(self, done: tuple[int, ...] = (), pages: int = 0) -> EmbeddedFrontier:
        """What a SIGKILL leaves: the files as they are now, opened by a new process."""
        copy = self.folder.with_name(self.folder.name + "x")
        shutil.copytree(self.folder, copy)
        self.frontier.close()
        self.folder = copy
        self.frontier = self._open()
        self.frontier.recovery.recover(done, {self.crawl: pages})
        return self.frontier

    def close(self) -> None:
        self.frontier.close()


class CheckpointedHarness(EmbeddedHarness):
    """A checkpoint at every commit: what comes back after a crash comes from there."""

    checkpoint_every = -1_000_000

    def crash(self, done: tuple[int, ...] = (), pages: int = 0) -> EmbeddedFrontier:
        assert (self.folder / "checkpoint").exists()
        return super().crash(done, pages)


class CrowdedHarness(CheckpointedHarness):
    """One site is awake unless more are needed: the others are at rest."""

    max_in_memory = 1


class PodHarness(EmbeddedHarness):
    """A pod to which all URLs come as messages of another pod."""

    def _make(self, **clocks: Any) -> EmbeddedFrontier:
        frontier = EmbeddedFrontier(self.folder, self.section, pod=0, pods=2, **clocks)
        pods: Any = frontier.pods
        pods.pod_of = lambda _url: 0
        queue: Any = frontier.queue
        queue.admit = partial(_fed, frontier)
        return frontier


def _fed(frontier: EmbeddedFrontier, crawl: int, found: Sequence[Found]) -> Admission:
    """What is admitted comes in a message, whose sender numbers its crawls otherwise."""
    message = PodMessage([], [], [], [], {crawl + 100: frontier._base.queues.crawls[crawl].name})
    for one in found:
        message.add(crawl + 100, one)
    received = frontier.inbox.receive(1, frontier.pods.last_message_from(1) + 1, encode_message(message))
    assert received is not None
    assert {crawl} >= {number for number, *_ in received.admissions}
    parts = [admission for *_, admission in received.admissions]
    expand = tuple(item for part in parts for item in part.expand)
    return Admission(sum(part.new for part in parts), sum(part.duplicates for part in parts), expand)


class RedisHarness:
    """A pod's frontier on a real server, under the same clock. `crash` leaves what a killed process leaves."""

    kills_server = False
    idle_s = IDLE_S  # a claim that got nothing is not repeated sooner

    def __init__(self, folder: Path, server: RedisServer, db: int, **politeness: Any) -> None:
        self.folder = folder
        self.server = server
        self.db = db
        self.time = 1000.0
        self.wall = 1_700_000_000.0
        settings = {"delay_s": 10.0, "places": 1} | politeness
        self.section = PolitenessSection(**settings)
        self.limits = CrawlLimits()
        self.others: Settings | None = None
        self.incarnation = 0
        self.clients: list[Any] = []
        self._client().flushdb()
        self.frontier = self._open()

    def _client(self) -> Any:
        self.clients.append(connect(self.server.url, RedisSettings(db=self.db)))
        return self.clients[-1]

    def _open(self) -> RedisFrontier:
        self.incarnation += 1
        frontier = RedisFrontier(
            self._client(), self.folder, self.section, slot="pod0-fetcher0", incarnation=self.incarnation,
            clock=lambda: self.time, wall=lambda: self.wall, server_clock=lambda: self.time,
            idle_s=self.idle_s,
        )  # fmt: skip
        self.crawl = frontier.crawls.open_crawl("test", self.limits)
        if self.others is not None:
            for name in set(self.clients[0].hkeys("crawls")) - {b"test"}:
                frontier.crawls.open_crawl(name.decode(), *self.others)
        return frontier

    def start(self, limits: CrawlLimits | None = None) -> RedisFrontier:
        if limits is not None:
            self.limits = limits
            self.frontier.crawls.open_crawl("test", limits)
            self.frontier.close()
            self.frontier = self._open()
        self.frontier.recovery.recover()
        return self.frontier

    def advance(self, seconds: float) -> None:
        self.time += seconds
        self.wall += seconds

    def crash(self, done: tuple[int, ...] = (), pages: int = 0) -> RedisFrontier:
        """What a SIGKILL leaves: nothing that was put off is sent; whoever watches gives back what the owner held."""
        if self.kills_server:
            kill_written(self.server)
            self.server.start()
        self.frontier = self._open()
        self.frontier.recovery.recover(done, {self.crawl: pages})
        self.frontier.processes.release_owner("me")
        return self.frontier

    def close(self) -> None:
        self.frontier.close()
        for client in self.clients:
            client.close()


class KilledServerHarness(RedisHarness):
    """The server is killed together with the process, and comes back from its append-only file."""

    kills_server = True


Harness = EmbeddedHarness | RedisHarness
HARNESSES = {
    "embedded": (EmbeddedHarness, ""),
    "checkpointed": (CheckpointedHarness, ""),
    "crowded": (CrowdedHarness, ""),
    "pod": (PodHarness, ""),
    "redis": (RedisHarness, "redis"),
    "valkey-killed": (KilledServerHarness, "valkey killed"),
}
NO_ENDS = "the only crawl of a pod on Redis ends with its databases"
RECRAWL = "recrawl"  # a note
ALLOW = RobotsRecord("allow", b"", 9e12)


def stored(known: Iterable[Found | tuple[int, Found]]) -> StoredUrls:
    """What is queued again, as a store gives it: by item, or numbered from 1 on."""
    numbered = [one if isinstance(one, tuple) else (number, one) for number, one in enumerate(known, 1)]
    return lambda after: (one for one in numbered if one[0] > after)


def walked(steps: Iterator[None]) -> None:
    """All steps of queueing URLs again."""
    for _ in steps:
        pass


def page(url: str, depth: int = 0, parent: int = 0) -> Found:
    return Found(url, depth, parent)


def no_robots(harness: Harness, *hosts: str) -> None:
    for host in hosts:
        harness.frontier.sites.robots_known(f"http://{host}", ALLOW, None)


def cool(harness: Harness, lease: Lease, **facts: Any) -> None:
    harness.frontier.leases.cool([TransferEnd(lease, harness.frontier.now(), **facts)])


def done(harness: Harness, lease: Lease, end: End = End.PAGE) -> None:
    cool(harness, lease, ok=True)
    assert harness.frontier.leases.finish([EndedLease(lease, end)]) == [True]


def claim_one(harness: Harness) -> Lease:
    leases = harness.frontier.leases.claim("me", 10)
    assert len(leases) == 1, leases
    return leases[0]


def urls_of(leases: list[Lease]) -> list[str]:
    return [lease.url for lease in leases]


def polite(delay_s: float, places: int = 1) -> PolitenessSection:
    return PolitenessSection(delay_s=delay_s, places=places)


def pages(host: str, count: int) -> list[Any]:
    return [page(f"http://{host}/{number}") for number in range(count)]


def served(harness: Harness, seconds: float, step_s: float = 0.5) -> list[tuple[float, int]]:
    """Claims and ends what is due, again and again: when, and whose."""
    found = []
    until = harness.time + seconds
    while harness.time < until:
        for lease in harness.frontier.leases.claim("me", 10):
            found.append((harness.time, lease.crawl))
            done(harness, lease)
        harness.advance(step_s)
    return found
