"""A fetcher or a parser of a pretended crawl, to be killed at any moment.

    redis_worker.py URL FOLDER SLOT INCARNATION

Page N of the web links to 2N+1 and 2N+2. A fetcher notes each request in FOLDER/arrivals; a parser writes a page's row
into FOLDER/SLOT.rows, which stands for the store: the rows of a batch are there whole or not at all.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from weft.config import PolitenessSection
from weft.errors import ServerAway
from weft.frontier.contract import CrawlLimits, End, EndedLease, HandedTransfer, RobotsRecord, TransferEnd
from weft.frontier.redis.connection import connect
from weft.frontier.redis.redis_frontier import RedisFrontier
from weft.records import Found, Purpose

PAGES = 600
SITES = 30
DELAY_S = 0.03
T = TypeVar("T")


def url_of(page: int) -> str:
    return f"http://site{page % SITES}.com/{page}"


def patient(step: Callable[[], T]) -> T:
    """The server may be away: the same step again, until it is back."""
    while True:
        try:
            return step()
        except ServerAway:
            time.sleep(0.02)


class Worker:
    def __init__(self, url: str, folder: Path, slot: str, incarnation: int) -> None:
        section = PolitenessSection(delay_s=DELAY_S, places=1, lease_s=5.0)
        self.folder = folder
        self.frontier = patient(
            lambda: RedisFrontier(
                connect(url), folder / "pod", section, slot=slot, incarnation=incarnation, idle_s=0.005
            )
        )
        self.crawl = patient(lambda: self.frontier.crawls.open_crawl("test", CrawlLimits()))
        self.rows_path = folder / f"{slot}.rows"
        rows = [line.split() for line in self.rows_path.read_text().splitlines()] if self.rows_path.exists() else []
        done = [int(item) for batch, item, _ in rows if int(batch) > self.frontier.durability.acknowledged]
        self.batch = max((int(batch) for batch, _, _ in rows), default=0)
        patient(lambda: self.frontier.recovery.recover(done, {self.crawl: len(rows)}))
        self.rows = os.open(self.rows_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.arrivals = os.open(folder / "arrivals", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def fetch(self) -> int:
        frontier = self.frontier
        leases = patient(lambda: frontier.leases.claim(frontier.owner, 20))
        handed = []
        for lease in leases:
            began = time.monotonic()
            end = TransferEnd(lease, time.monotonic(), ok=True)
            os.write(self.arrivals, f"{lease.key} {began:.6f} {end.at:.6f} {lease.item}\n".encode())
            if lease.purpose is Purpose.ROBOTS:
                frontier.leases.cool([end])
                patient(lambda origin=lease.about: self.learn(origin))  # type: ignore[misc]
                patient(lambda lease=lease: frontier.leases.finish([EndedLease(lease, End.OTHER)]))  # type: ignore[misc]
            else:
                handed.append(HandedTransfer(end, lease.url.encode()))
        if handed:
            patient(lambda: frontier.parse_queue.fetched(handed))
        return len(leases)

    def learn(self, origin: str) -> None:
        self.frontier.sites.robots_known(origin, RobotsRecord("allow", b"", 9e12), None)
        self.frontier.durability.commit()

    def parse(self) -> int:
        frontier = self.frontier
        taken = patient(lambda: frontier.parse_queue.claim(20))
        if not taken:
            return 0
        found = []
        for one in taken:
            page = int(one.reference.decode().rpartition("/")[2])
            found += [Found(url_of(link), 1, one.lease.item) for link in (2 * page + 1, 2 * page + 2) if link < PAGES]
        patient(lambda: frontier.queue.admit(self.crawl, found))
        batch = self.batch + 1
        ends = [EndedLease(one.lease, End.PAGE) for one in taken]
        valid = patient(lambda: frontier.leases.finish(ends, batch))
        rows = "".join(
            f"{batch} {one.lease.item} {one.lease.url}\n" for one, ok in zip(taken, valid, strict=True) if ok
        )
        os.write(self.rows, rows.encode())
        self.batch = batch
        frontier.durability.acknowledge(batch)
        patient(frontier.durability.commit)
        return len(taken)


def main() -> None:
    url, folder, slot, incarnation = sys.argv[1:]
    worker = Worker(url, Path(folder), slot, int(incarnation))
    step = worker.fetch if "fetcher" in slot else worker.parse
    while not (Path(folder) / "stop").exists():
        if not step():
            time.sleep(0.005)


if __name__ == "__main__":
    main()
