"""How a process that fetches takes up its part of a crawl: what it has stored, what it must ask again, its seeds."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from weft import urls
from weft.crawl.folder import CrawlFolder
from weft.crawl.limits import CRAWL
from weft.crawl.order import ProcessOrder
from weft.engine.crawls import RunningCrawl
from weft.engine.limits import limits_of
from weft.engine.loop.leads import Leads
from weft.engine.loop.progress import CrawlProgress
from weft.engine.loop.revisits import Revisits
from weft.engine.loop.robots import RobotsBook
from weft.engine.loop.suspects import beat
from weft.engine.loop.verdict import RETRYABLE
from weft.engine.ways import Ways
from weft.frontier.admission import Rules
from weft.frontier.contract import CrawlLimits, Frontier
from weft.frontier.embedded.frontier import EmbeddedFrontier
from weft.frontier.embedded.routing import RoutedFrontier
from weft.frontier.redis.routing import RoutedRedisFrontier
from weft.records import POD_SHIFT, Found, Reason, Row
from weft.store.errors import StoreError
from weft.store.pages import PageStore
from weft.store.query import Where
from weft.telemetry import Log, Slot

MAY_SUCCEED = RETRYABLE | {Reason.ROBOTS_UNREACHABLE, Reason.BREAKER, Reason.RETRY_AFTER}
WAIT_S, SETTLE_S = 0.1, 60.0
TOGETHER = 1000  # stored pages whose links are let in with one commit
LINKS = "links_read_again"
log = Log("weft.crawl.opening")


class Losing(Frontier, Protocol):
    """A frontier on a server that may lose acknowledged writes."""

    lost_ends: list[int]

    def readmit(self, crawl: int, found: Found) -> None: ...

    def readmit_once(self, crawl: int, name: str, what: str, lost: Iterable[tuple[int, Found]]) -> None: ...

    def note(self, name: str, value: str | None = None) -> str: ...

    def restore_stored(self, crawl: int, rows: Iterable[tuple[str, int, int]]) -> None: ...

    def settled(self) -> bool: ...


def read_lost(frontier: Losing, store: PageStore, crawl: RunningCrawl, alive: Callable[[], None]) -> int:
    """Lets in once more what stored pages lead to whose ends a server has lost: it may have lost their links, too.

    All processes of the pod restore the pages' own URLs first: the links of one may lead to a page of
    another, which must not be fetched again. A page that is not kept (noindex) is visited again, and has a second row.
    Returns how many pages there were.
    """
    wanted = set(frontier.lost_ends)
    rows = [row for row in store.rows() if row.item in wanted] if wanted else []
    frontier.restore_stored(crawl.number, ((row.url, row.depth, row.item) for row in rows))
    until = time.monotonic() + SETTLE_S
    while not frontier.settled() and time.monotonic() < until:
        alive()
        time.sleep(WAIT_S)
    if not rows:
        return 0
    log.warning("the server has lost ends of pages: their links are read again", pages=len(rows))
    leads = Leads(frontier, store)
    known = ((row.item, row.url, row.depth) for row in rows)
    leads.expand_readable(crawl, known, {row.item: row.hops for row in rows})
    for row in rows:
        if row.error == "noindex":
            frontier.readmit(crawl.number, Found(row.url, row.depth, row.parent))
    frontier.commit()
    frontier.sync()
    frontier.acknowledge(store.durable)  # or a process that is killed before its first sync would read them once more
    frontier.commit()
    return len(rows)


def queue_lost(
    frontier: Losing | EmbeddedFrontier, store: PageStore, crawl: int, slot: Slot, step: Callable[[str], None]
) -> int:
    """Queues the URLs of pages whose bytes are gone, under new numbers, and returns how many. A crash repeats none."""
    lost = store.repair()
    if lost:
        name = f"lost:{slot.name}"
        frontier.readmit_once(crawl, name, store.lost_name(), ((row.item, _found(row)) for row in lost))
        frontier.commit()
        step("lost-queued")
        store.readmitted()
        frontier.note(name, "")
    else:
        store.readmitted()
    return len(lost)


class Opening:
    """One process's opening of the crawl."""

    def __init__(
        self,
        order: ProcessOrder,
        folder: CrawlFolder,
        frontier: EmbeddedFrontier | RoutedRedisFrontier,
        store: PageStore,
        progress: CrawlProgress,
        ways: Ways,
        step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._order = order
        self._ways = ways
        self._folder = folder
        self._frontier = frontier
        self._store = store
        self._progress = progress
        self._step = step
        self._owns: Callable[[str], bool] = (
            frontier.owns if isinstance(frontier, RoutedFrontier | RoutedRedisFrontier) else lambda _: True
        )

    def open(self) -> RunningCrawl:
        """The crawl, ready to run; what its pod as a whole must do is done by the pod's first fetcher."""
        order, frontier = self._order, self._frontier
        limits, scope = limits_of(order.config), order.config.scope
        number = frontier.open_crawl(CRAWL, limits)
        self._recover(number, limits)
        seeds, extensions = self._folder.seeds(), frontier.scope_extensions(number)
        rules = Rules(scope, seeds, this_year=datetime.now(UTC).year, extensions=extensions)
        fetch = order.config.fetch
        crawl = RunningCrawl(
            number, rules, scope, fetch, frontier, self._progress, seeds, politeness=order.config.politeness,
            book=RobotsBook(frontier, fetch.user_agent()), way=self._ways.open(fetch),
        )  # fmt: skip
        lost, read_back = queue_lost(frontier, self._store, number, order.slot, self._step), self._store.read_back
        self._progress.repaired("lost_pages", lost)
        self._progress.repaired("rows_read_back", read_back)
        if lost or read_back:
            log.warning("the index was mended", lost_and_queued_again=lost, read_back=read_back)
        if isinstance(frontier, RoutedRedisFrontier):
            alive = partial(beat, self._folder.pulse_of(order.slot))
            self._progress.repaired(LINKS, read_lost(frontier, self._store, crawl, alive))
        elif frontier.unsure_of_links:
            self._read_links_again(crawl, frontier)
        if order.index == 0:
            self._admit_seeds(crawl, seeds)
            self._visit_again(number)
            self._ask_refused_addresses(number)
            self._offer_left_sitemaps(crawl, limits)
            if isinstance(frontier, RoutedRedisFrontier):
                frontier.note("seeded", "1")
        if frontier.is_recrawled(number):
            crawl.revisits = Revisits(self._store)
        frontier.commit()
        return crawl

    def _read_links_again(self, crawl: RunningCrawl, frontier: EmbeddedFrontier) -> None:
        """Lets in what stored pages lead to: after a power cut that of the last ones, for a new frontier of all.

        A page that cannot be read, or is not kept, is visited again; for a new frontier one page of each origin as
        well, since sitemaps are asked for with the pages of an origin, and are not stored.
        """
        log.warning("the frontier has lost URLs: the links of stored pages are read again", all=frontier.is_new)
        frontier.restore_stored(crawl.number, ((_found(row), row.item) for row in self._unsure_rows(frontier)))
        leads, origins, again, count = self._leads(), set[str](), 0, 0
        for count, row in enumerate(self._unsure_rows(frontier), 1):
            origin = urls.origin_of(row.url)
            is_first = frontier.is_new and bool(row.warc_file) and origin not in origins
            if is_first:
                origins.add(origin)
            if is_first or not _lead_on(leads, crawl, row):
                again += 1
                frontier.readmit(crawl.number, _found(row))
            if count % TOGETHER == 0:
                frontier.commit()
                beat(self._folder.pulse_of(self._order.slot))
        frontier.links_are_known()
        self._progress.repaired(LINKS, count)
        self._progress.repaired("visited_again", again)
        log.warning("the links of stored pages are known again", pages=count, visited_again=again)

    def _unsure_rows(self, frontier: EmbeddedFrontier) -> Iterator[Row]:
        """The rows of pages whose links the frontier may not have."""
        if frontier.is_new:
            return (row for row in self._store.rows() if row.item >> POD_SHIFT == self._order.pod)
        late = self._store.items_since(frontier.acknowledged)
        found = ((item, url) for item in late if (url := self._store.url_of(item)) is not None)
        return (row for item, url in found for row in self._store.for_url(url) if row.item == item)

    def _ask_refused_addresses(self, number: int) -> None:
        """What was refused for its address is asked again once the settings let more addresses in than before."""
        fetch = self._order.config.fetch
        allowed = [name for name, on in (("private", fetch.allow_private), ("public", bool(fetch.email))) if on]
        before = self._frontier.note("addresses").split()
        if set(allowed) - set(before):
            for row in self._store.rows():
                if (
                    row.error.partition(":")[0] == Reason.ADDRESS
                    and self._store.for_url(row.url)[-1].item == row.item
                    and self._owns(row.url)
                ):
                    self._frontier.readmit(number, Found(row.url, row.depth, row.parent))
            self._frontier.note("addresses", " ".join(sorted({*before, *allowed})))

    def _offer_left_sitemaps(self, crawl: RunningCrawl, limits: CrawlLimits) -> None:
        """Sitemaps for which there was no room come in once the crawl may have more: it may have more pages."""
        most, before = limits.max_sitemaps or 0, int(self._frontier.note("sitemaps") or 0)
        if before and most > before:
            left = [
                one
                for one in self._frontier.left_sitemaps(crawl.number)
                if crawl.rules.refusal(one.url, one.depth, is_link=False, included=True) is None
            ]
            self._frontier.admit(crawl.number, left)
        if most != before:
            self._frontier.note("sitemaps", str(most))

    def _recover(self, number: int, limits: CrawlLimits) -> None:
        frontier, store = self._frontier, self._store
        own = f"{self._order.slot.name}."
        stats = store.stats(0, own)
        self._progress.take_up(stats)
        by_key: Counter[str] = Counter()
        if limits.max_pages_per_domain is not None:
            for host, pages in store.stats(sys.maxsize, own).hosts:
                by_key[frontier.key_of(f"http://{host}/")] += pages
        late = store.items_since(frontier.acknowledged)
        if isinstance(frontier, RoutedRedisFrontier):
            frontier.recover(late, {number: stats.pages}, by_key, batch=store.durable)
        else:
            frontier.recover(late, {number: stats.pages}, by_key)
            self._progress.repaired("request_log_lines", frontier.unreadable_requests)
            self._progress.repaired("request_log_bytes", frontier.missing_log_bytes)

    def _admit_seeds(self, crawl: RunningCrawl, seeds: list[str]) -> None:
        admitted, refused = [], 0
        for seed in filter(self._owns, map(crawl.rules.rewritten, seeds)):
            reason = crawl.rules.refusal(seed, 0, is_link=False, included=True)
            if reason is None:
                admitted.append(Found(seed, 0))
            else:
                self._progress.refused[reason] += 1
                refused += 1
        admission = self._frontier.admit(crawl.number, admitted)
        log.info("seeds taken in", seeds=len(admitted), new=admission.new, refused=refused)
        if admission.expand:  # it was fetched before, as some page's link, and is nearer now
            self._leads().expand_readable(crawl, admission.expand)

    def _leads(self) -> Leads:
        return Leads(self._frontier, self._store)

    def _visit_again(self, number: int) -> None:
        order, frontier, run = self._order, self._frontier, self._order.config.run
        if run.retry_failed:
            for row in _failed(self._store):
                if self._owns(row.url):
                    frontier.readmit(number, Found(row.url, row.depth, row.parent))
        if run.recrawl:
            known = (found for found in _first_pages(self._store) if self._owns(found.url))
            frontier.recrawl(number, order.run, known, partial(self._folder.begin_recrawl, order.pod))


def _found(row: Row) -> Found:
    return Found(row.url, row.depth, row.parent, row.hops)


def _lead_on(leads: Leads, crawl: RunningCrawl, row: Row) -> bool:
    """Lets in what a stored answer leads to; False where that is no longer known."""
    if row.error == "noindex" or (200 <= row.status < 300 and not row.warc_file):
        return False
    try:
        leads.expand(crawl, [(row.item, row.url, row.depth)], {row.item: row.hops})
    except StoreError as error:
        log.error("a stored page cannot be read: it is visited again", url=row.url, error=error)
        return False
    return True


def _first_pages(store: PageStore) -> Iterator[Found]:
    """Every page that is known, once, as it was first found."""
    for row in store.rows(Where(stored=True)):
        if 200 <= row.status < 300 and not any(
            200 <= other.status < 300 and other.item < row.item for other in store.for_url(row.url)
        ):
            yield Found(row.url, row.depth, row.parent)


def _failed(store: PageStore) -> Iterator[Row]:
    """The last rows of URLs that may succeed another time."""
    for row in store.rows():
        kind = row.error.partition(":")[0]
        if (kind in MAY_SUCCEED or row.status in (408, 429) or row.status >= 500) and (
            store.for_url(row.url)[-1].item == row.item
        ):
            yield row
