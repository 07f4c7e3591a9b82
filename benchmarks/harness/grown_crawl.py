"""Fills the folder of a crawl to a given size, through the frontier and the store, without a request.

    python benchmarks/harness/grown_crawl.py DATA_DIR PAGES HOSTS PORT

The folder must hold a crawl that was begun (`weft crawl --delay DELAY_S`), and that does not run. It gets PAGES stored
pages, one in FAILED_EVERY of them failed, over HOSTS hosts and a hot one that has a thousandth of them, their lines in
the request log, and LINKS queued URLs for each page. At most MOST_RECORDS pages and all of the hot host's have a WARC
record; the others are rows like those of a crawl that keeps texts alone. Prints what it cost as JSON: CPU a row by
windows of rows, bytes written.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from weft.alive import silent
from weft.config import PolitenessSection
from weft.crawl.folder import CrawlFolder
from weft.engine.folder import CRAWL_SUFFIX
from weft.frontier.contract import CrawlLimits, End, EndedLease, PageLinks, RobotsRecord, TransferEnd
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.requests.segments import Segment, replace_by_packed, segment_name, segments_of
from weft.records import FetchResult, Found, Lease, Purpose, Row
from weft.store.pages import PageStore

DELAY_S = 0.001  # less than a round takes, so that the audit of what is built finds no violation
FAILED_EVERY = 20
HOT_EVERY = 1000
LINKS = 3
MOST_RECORDS = 1_000_000
ROBOTS_S = 365 * 86_400.0
WINDOWS = 50
_ROUND = 1000
_CLAIMED_AT_ONCE = 250
_SYNC_EVERY = 20  # rounds
_LINKS_AT_ONCE = 20  # to one host, as a page has them
_SLUGS = ("archive", "report", "weaving", "catalogue", "letters", "review", "journal", "pictures")
_BODY = b"<title>A page</title><p>Some words of a page that nobody reads."
_HEAD = b'HTTP/1.1 %d Something\r\nContent-Type: text/html\r\nContent-Length: %d\r\nETag: "%d"\r\n\r\n'


@dataclass(frozen=True, slots=True)
class Shape:
    """What a folder of a size holds, and the names of it; the same for the same numbers."""

    pages: int
    hosts: int
    port: int

    @property
    def hot_rows(self) -> int:
        """Stored pages of the hot host."""
        return len(range(0, self.pages, HOT_EVERY))

    @property
    def record_every(self) -> int:
        """One in how many pages has a WARC record."""
        return max(1, self.pages // MOST_RECORDS)

    @property
    def known(self) -> int:
        """URLs that the frontier has admitted."""
        return self.pages * (1 + LINKS)

    def rows_of(self, number: int) -> int:
        """Stored pages of the host of page `number`, which is not the hot one."""
        return sum(1 for page in range(number % self.hosts, self.pages, self.hosts) if page % HOT_EVERY)

    def host(self, number: int) -> str:
        """The name of the host of page `number`."""
        if number % HOT_EVERY == 0:
            return "www.hot.test"
        host = number % self.hosts
        return f"www.{_SLUGS[host & 7]}-{host:x}.test"

    def origin(self, number: int) -> str:
        """The origin of page `number`."""
        return f"http://{self.host(number)}:{self.port}"

    def page(self, number: int) -> str:
        """The URL of page `number`."""
        path = f"{_SLUGS[number % 7]}/{2000 + number % 27}/{_SLUGS[number % 5]}-{number:x}.html"
        return f"{self.origin(number)}/{path}"

    def link(self, number: int, of: int) -> str:
        """One of the queued URLs of the host of page `number`."""
        return f"{self.page(number)}?from={_SLUGS[of % 8]}-{of:x}"

    def has_record(self, number: int) -> bool:
        """Whether the page's response is stored."""
        return number % HOT_EVERY == 0 or number % self.record_every == 0

    def numbers(self, *, with_record: bool) -> Iterator[int]:
        """The pages that are stored with a record, or those without."""
        return (number for number in range(self.pages) if self.has_record(number) == with_record)


@dataclass(slots=True)
class Costs:
    """CPU seconds of storing, by part; `rows` are those that they were spent on."""

    rows: int = 0
    index_s: float = 0.0
    frontier_s: float = 0.0
    records_s: float = 0.0
    windows: list[dict[str, float]] = field(default_factory=list)

    def close_window(self) -> None:
        """Begins the next window."""
        if self.rows:
            parts = {"index_us": self.index_s, "frontier_us": self.frontier_s, "records_us": self.records_s}
            before = self.windows[-1]["rows"] if self.windows else 0
            costs = {name: round(1e6 * spent / self.rows, 2) for name, spent in parts.items()}
            self.windows.append({"rows": before + self.rows, **costs})
        self.rows, self.index_s, self.frontier_s, self.records_s = 0, 0.0, 0.0, 0.0


class Builder:
    """One folder, its frontier and its store."""

    def __init__(self, data_dir: Path, shape: Shape) -> None:
        self._data_dir, self._shape = data_dir, shape
        self._folder = CrawlFolder([data_dir])
        section = PolitenessSection(delay_s=DELAY_S, places=1)
        self._frontier = EmbeddedFrontier(self._folder.pod_folder(0), section, revision=1)
        self._crawl = self._frontier.crawls.open_crawl(CRAWL_SUFFIX, CrawlLimits())
        self._frontier.recovery.recover()
        self._costs = Costs()
        self._rounds = 0
        self.since = time.time()

    def build(self) -> dict[str, Any]:
        """Everything; what it cost."""
        began, written = time.monotonic(), bytes_written()
        self._know_robots()
        for with_record in (True, False):
            self._store_pages(with_record=with_record)
        stored_s, stored_bytes = time.monotonic() - began, bytes_written() - written
        before = self._frontier_bytes()
        self._queue_links()
        self._frontier.close()
        pack_closed(self._folder.pod_folder(0) / "requests")
        queued_bytes = bytes_written() - written - stored_bytes
        return {
            "seconds": round(time.monotonic() - began, 1),
            "stored_s": round(stored_s, 1),
            "cpu_s": round(sum(os.times()[:4]), 1),
            "written_bytes": bytes_written() - written,
            "stored_written_bytes": stored_bytes,
            "queued_written_bytes": queued_bytes,
            "queued_grown_bytes": self._frontier_bytes() - before,
            "since": self.since,
            "windows": self._costs.windows,
        }

    def _frontier_bytes(self) -> int:
        """Without the request log, which is packed meanwhile."""
        folder = self._folder.pod_folder(0)
        return size_of(folder) - size_of(folder / "requests")

    def _know_robots(self) -> None:
        """Every host's robots.txt allows all."""
        record = RobotsRecord("allow", b"", time.time() + ROBOTS_S)
        # The numbers of one page of each host: those of the hot host are left out, since it has taken them.
        numbers = (host if host % HOT_EVERY else host + self._shape.hosts for host in range(self._shape.hosts))
        for count, number in enumerate((0, *numbers)):
            self._frontier.sites.robots_known(self._shape.origin(number), record, None)
            if count % _ROUND == 0:
                self._frontier.durability.commit()

    def _open_store(self, *, with_record: bool) -> PageStore:
        return PageStore.open(
            [self._data_dir], crawl_id=self._folder.identity().id, keep=("warc",) if with_record else ("text",),
            is_done=self._frontier.durability.knows_finished(),
        )  # fmt: skip

    def _store_pages(self, *, with_record: bool) -> None:
        numbers = self._shape.numbers(with_record=with_record)
        store = self._open_store(with_record=with_record)
        while some := list(islice(numbers, min(_ROUND, self._shape.hosts))):
            self._round(store, some)
            if self._costs.rows * WINDOWS >= self._shape.pages:
                self._costs.close_window()
        self._costs.close_window()
        self._sync(store)
        store.close()

    def _round(self, store: PageStore, numbers: list[int]) -> None:
        """Admits, claims, stores and finishes some pages of as many hosts."""
        shape, frontier, costs = self._shape, self._frontier, self._costs
        began = time.thread_time()
        frontier.queue.admit(self._crawl, [Found(shape.page(number), 1) for number in numbers])
        leases = self._claimed(len(numbers))
        costs.frontier_s += time.thread_time() - began
        began = time.thread_time()
        for lease in leases:
            store.add(*visit_of(lease, self._crawl, frontier.now()))
        costs.records_s += time.thread_time() - began
        self._commit(store, leases)
        costs.rows += len(leases)

    def _claimed(self, count: int) -> list[Lease]:
        """Leases of that many pages, cooled; a host that has several waits for its delay."""
        frontier, leases = self._frontier, list[Lease]()
        while len(leases) < count:
            some = frontier.leases.claim("bench", min(count - len(leases), _CLAIMED_AT_ONCE))
            if any(lease.purpose is not Purpose.PAGE for lease in some):
                raise RuntimeError(f"a claim without a robots.txt: {some[0]}")
            now = frontier.now()
            frontier.leases.cool(
                [TransferEnd(lease, now, ok=True, outcome=str(status_of(lease.item))) for lease in some]
            )
            leases += some
        return leases

    def _commit(self, store: PageStore, leases: list[Lease]) -> None:
        began = time.thread_time()
        store.write()
        self._costs.records_s += time.thread_time() - began
        self._frontier.durability.commit()
        began = time.thread_time()
        batch = store.commit()
        self._costs.index_s += time.thread_time() - began
        began = time.thread_time()
        self._frontier.leases.finish([EndedLease(lease, End.PAGE) for lease in leases], batch)
        self._frontier.durability.commit()
        self._costs.frontier_s += time.thread_time() - began
        self._rounds += 1
        if self._rounds % _SYNC_EVERY == 0:
            self._sync(store)
            self.since = time.time()

    def _sync(self, store: PageStore) -> None:
        began = time.thread_time()
        store.sync()
        self._costs.index_s += time.thread_time() - began
        self._frontier.durability.acknowledge(store.durable)
        self._frontier.durability.commit()

    def _queue_links(self) -> None:
        """LINKS URLs for each page, as pages have them: some at once to one host."""
        shape, links = self._shape, list[PageLinks]()
        for first in range(0, shape.pages * LINKS, _LINKS_AT_ONCE):
            number = first // _LINKS_AT_ONCE
            urls = [shape.link(number, of) for of in range(first, min(first + _LINKS_AT_ONCE, shape.pages * LINKS))]
            links.append(PageLinks(shape.origin(number), urls, 2, 1 + number))
            if len(links) * _LINKS_AT_ONCE >= _ROUND:
                self._admit(links)
                links = []
        self._admit(links)

    def _admit(self, links: list[PageLinks]) -> None:
        self._frontier.queue.admit_links(self._crawl, links)
        self._frontier.durability.commit()


def status_of(item: int) -> int:
    """How the request of an item has ended."""
    return 503 if item % FAILED_EVERY == 0 else 200


def visit_of(lease: Lease, crawl: int, now: float) -> tuple[Row, FetchResult]:
    """A page as it would have been fetched."""
    status = status_of(lease.item)
    head = _HEAD % (status, len(_BODY), lease.item)
    row = Row(
        lease.item, crawl, lease.url, lease.url, status, time.time(), "text/html", "utf-8", "", "A page", lease.depth,
        lease.parent, "", len(_BODY), "",
    )  # fmt: skip
    return row, FetchResult(lease.url, status, head, _BODY, None, "", now, now, "127.0.0.1", b"")


def bytes_written() -> int:
    """Bytes that this process and the children it has waited for have sent to the disk."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["write_bytes"]) - int(fields["cancelled_write_bytes"])


def pack_closed(log: Path) -> None:
    """Packs the closed files of a request log: what is built as fast as this is ahead of the thread that does it."""
    before: Segment | None = None
    *closed, _ = segments_of(log)
    for segment in closed:
        if segment.plain is not None and not replace_by_packed(segment, before, silent):
            raise RuntimeError(f"{segment.plain} is damaged")
        before = Segment(segment.serial, None, log / segment_name(segment.serial, ".packed"))


def size_of(folder: Path) -> int:
    """Bytes of all files in it."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    shape = Shape(*map(int, sys.argv[2:5]))
    print(json.dumps(Builder(Path(sys.argv[1]), shape).build()))
