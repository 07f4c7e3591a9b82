"""Drives an embedded frontier directly, with a clock of its own, as the engine would: batches of 50 links, commits,
claims of many sites at once. Run in a process of its own wherever memory is measured."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from harness.measure import resident
from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits, End, EndedLease, RobotsRecord, TransferEnd
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.records import Found, Lease, Purpose

BATCH = 50
COMMIT_EVERY = 100
DELAY_S = 70.0
SLUGS = ("archive", "report", "weaving", "catalogue", "letters", "review", "journal", "pictures")


def origin(number: int) -> str:
    """The origin of domain `number`: a registrable domain of its own."""
    return f"http://www.{SLUGS[number & 7]}-{number:x}.org"


def url(domain: int, number: int) -> str:
    """A URL of 60 to 70 characters, as they are."""
    return f"{origin(domain)}/{SLUGS[number % 7]}/{2000 + number % 27}/{SLUGS[number % 5]}-{number:x}.html"


class Driven:
    """A frontier and its clock."""

    def __init__(self, folder: Path, domains: int) -> None:
        self.time = 1000.0
        self.domains = domains
        section = PolitenessSection(delay_s=DELAY_S, places=1)
        self.frontier = EmbeddedFrontier(folder, section, clock=lambda: self.time)
        self.crawl = self.frontier.crawls.open_crawl("bench", CrawlLimits())
        self.frontier.recovery.recover()
        self.next = 0
        self._batches = 0

    def batches(self, count: int) -> Iterator[list[Found]]:
        """New URLs, spread over all domains."""
        end = self.next + count
        while self.next < end:
            size = min(BATCH, end - self.next)
            yield [Found(url(n * 7919 % self.domains, n), 3, 1 + n // 50) for n in range(self.next, self.next + size)]
            self.next += size

    def admit(self, count: int) -> float:
        """Admits so many new URLs; gives the CPU seconds that it took, commits included."""
        spent = 0.0
        for batch in self.batches(count):
            start = time.thread_time()
            self.frontier.queue.admit(self.crawl, batch)
            self._batches += 1
            if self._batches % COMMIT_EVERY == 0:
                self.frontier.durability.commit()
            spent += time.thread_time() - start
        start = time.thread_time()
        self.frontier.durability.commit()
        return spent + time.thread_time() - start

    def know_robots(self) -> None:
        """Every origin's robots.txt is known and allows all."""
        record = RobotsRecord("allow", b"", time.time() + 86400)
        for number in range(self.domains):
            self.frontier.sites.robots_known(origin(number), record, None)
            if number % 20_000 == 19_999:
                self.frontier.durability.commit()
        self.frontier.durability.commit()

    def work(self, count: int) -> tuple[float, float, int]:
        """Claims, cools and finishes so many pages; gives the CPU seconds of claiming, of ending, and their number."""
        claiming = ending = 0.0
        done = 0
        while done < count:
            start = time.thread_time()
            leases = self.frontier.leases.claim("bench", min(200, count - done))
            claiming += time.thread_time() - start
            if not leases:
                self.time += DELAY_S + 1
                continue
            self.time += 0.05
            start = time.thread_time()
            self._end(leases)
            ending += time.thread_time() - start
            done += sum(lease.purpose is Purpose.PAGE for lease in leases)
        return claiming, ending, done

    def _end(self, leases: list[Lease]) -> None:
        now = self.frontier.now()
        self.frontier.leases.cool(TransferEnd(lease, now, ok=True, outcome="200") for lease in leases)
        self.frontier.leases.finish(EndedLease(lease, End.PAGE) for lease in leases)
        self.frontier.durability.commit()


def rss() -> int:
    """Bytes of resident memory of this process."""
    return resident(os.getpid())
