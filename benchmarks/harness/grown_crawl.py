"""Fills the folder of a crawl with stored pages and queued hosts, through frontier and store, without a request.

    python benchmarks/harness/grown_crawl.py DATA_DIR PAGES HOSTS PORT

The folder must hold a crawl that was begun (`weft crawl`), and that does not run. One page in FAILED_EVERY has failed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from weft.config import PolitenessSection
from weft.crawl.folder import CrawlFolder
from weft.engine.folder import CRAWL
from weft.frontier.contract import CrawlLimits, End, Ended, Outcome, RobotsRecord
from weft.frontier.embedded.frontier import EmbeddedFrontier
from weft.records import FetchResult, Found, Lease, Purpose, Row
from weft.store.pages import PageStore

SITES = 2000  # that the stored pages are of
FAILED_EVERY = 20
_BATCH = 1000
_BODY = b"<title>A page</title><p>Some words of a page that nobody reads."
_HEAD = b'HTTP/1.1 %d Something\r\nContent-Type: text/html\r\nContent-Length: %d\r\nETag: "%d"\r\n\r\n'


def page_url(number: int, port: int) -> str:
    """The URL of a stored page."""
    return f"http://www.site{number % SITES}.test:{port}/page/{number}"


def host_url(number: int, port: int) -> str:
    """The one URL of a queued host."""
    return f"http://www.host{number}.test:{port}/"


def fill(data_dir: Path, pages: int, hosts: int, port: int) -> None:
    """Stores pages and queues hosts."""
    folder = CrawlFolder([data_dir])
    frontier = EmbeddedFrontier(folder.of_pod(0), PolitenessSection(delay_s=0.0, places=_BATCH))
    crawl = frontier.crawls.open_crawl(CRAWL, CrawlLimits())
    frontier.recovery.recover()
    store = PageStore.open([data_dir], crawl_id=folder.identity().id, is_done=frontier.durability.knows_finished())
    allowed = RobotsRecord("allow", b"", time.time() + 86_400)
    for site in range(SITES):
        frontier.sites.robots_known(f"http://www.site{site}.test:{port}", allowed, None)
    for first in range(0, pages, _BATCH):
        numbers = range(first, min(pages, first + _BATCH))
        frontier.queue.admit(crawl, [Found(page_url(number, port), 1) for number in numbers])
        store_some(frontier, store, crawl, len(numbers))
    store.sync()
    frontier.durability.acknowledge(store.durable)
    for first in range(0, hosts, _BATCH):
        numbers = range(first, min(hosts, first + _BATCH))
        frontier.queue.admit(crawl, [Found(host_url(number, port), 1) for number in numbers])
        frontier.durability.commit()
    store.close()
    frontier.close()


def store_some(frontier: EmbeddedFrontier, store: PageStore, crawl: int, count: int) -> None:
    """Claims, stores and finishes `count` pages, and commits them."""
    while count > 0:
        leases = frontier.leases.claim("bench", _BATCH)
        now = frontier.now()
        frontier.leases.cool([Ended(lease, now, ok=True, outcome="200") for lease in leases])
        for lease in leases:
            if lease.purpose is Purpose.PAGE:
                store.add(*visit_of(lease, crawl, now))
                count -= 1
        frontier.leases.finish([Outcome(lease, End.PAGE) for lease in leases])
    store.write()
    frontier.durability.commit()
    store.commit()


def visit_of(lease: Lease, crawl: int, now: float) -> tuple[Row, FetchResult]:
    """A page as it would have been fetched."""
    status = 503 if lease.item % FAILED_EVERY == 0 else 200
    head = _HEAD % (status, len(_BODY), lease.item)
    row = Row(
        lease.item, crawl, lease.url, lease.url, status, time.time(), "text/html", "utf-8", "", "A page", lease.depth,
        lease.parent, "", len(_BODY), "",
    )  # fmt: skip
    request = b"GET / HTTP/1.1\r\n\r\n"
    return row, FetchResult(lease.url, status, head, _BODY, None, "", now, now, "127.0.0.1", request)


if __name__ == "__main__":
    fill(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
