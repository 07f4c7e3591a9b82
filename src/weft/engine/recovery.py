"""What a process restores when it resumes crawls: ends that only its store has, lost pages, lost links.

A store may have lost bytes (damage, a power cut): their URLs are queued again. A frontier may have lost the links of
stored pages: they are extracted again from the stored pages.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec

from weft import urls
from weft.config import Config
from weft.engine.admission.rules import AdmissionRules
from weft.engine.assembly import Parts
from weft.engine.crawls.limits import frontier_limits_of, robots_ignored_at
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.loop.fetcher.robots import RobotsBook, rules_of
from weft.engine.loop.long_work import LongWork
from weft.engine.loop.parser.discovered_links import DiscoveredLinks
from weft.engine.parsing.extraction import extraction_of
from weft.engine.parsing.parsers import Parsers
from weft.engine.transports.transports import Transports
from weft.engine.user_code.again import queue_requests_again
from weft.engine.user_code.calls import Description
from weft.engine.user_code.running import RunningSpider, found_from_output, seen_key_of
from weft.frontier.contract import CrawlLimits, Frontier, SharedFrontier
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.records import POD_SHIFT, Found, Reason, Row
from weft.store.contract import Stats
from weft.store.errors import StoreError
from weft.store.pages import PageStore
from weft.telemetry import Log

WAIT_S, SETTLE_S = 0.1, 60.0
CHECKED_ROWS = 10_000  # before the crawl runs; the others while it runs
ROWS_TOGETHER = 1000  # stored pages whose links are admitted with one commit
LINKS_READ = "links_read"  # a note: the links of stored pages up to this item were admitted
log = Log("weft.engine.recovery")


def found_from_row(row: Row) -> Found:
    """A stored URL in the form in which it was found."""
    return Found(row.url, row.depth, row.parent, row.hops)


class CrawlRecovery:
    """Restores the crawls of a process, in one order for every kind of process: counts what is stored of each, restores
    the queue, opens the crawls, and queues lost pages again.
    """

    def __init__(self, parts: Parts, frontier: Frontier, slots: str = "") -> None:
        """`slots`: prefixes of the slots whose rows count, where several processes share a folder."""
        self._parts = parts
        self._frontier = frontier
        self._slots = slots
        self._pages: dict[int, int] = {}
        self._by_site: dict[int, Counter[str]] = {}

    def count_stored(self, crawl: int, limits: CrawlLimits) -> Stats:
        """Counts what is stored of a crawl; its queue is restored from these rows."""
        store, work = self._parts.store, self._parts.work
        work.begin("counting what is stored")
        stats = store.stats(0, self._slots, crawl)
        self._pages[crawl] = stats.pages
        if limits.max_pages_per_domain is not None:
            counts = self._by_site[crawl] = Counter()
            for host, pages in work.count_each(store.stats(sys.maxsize, self._slots, crawl).hosts):
                counts[self._frontier.sites.key_of(f"http://{host}/")] += pages
        return stats

    def restore_queue(self) -> None:
        """Restores the queue, once all crawls are counted and known to the frontier."""
        store = self._parts.store
        self._parts.work.begin("restoring the queue")
        late = store.items_since(self._frontier.durability.acknowledged)
        self._frontier.recovery.recover(late, self._pages, by_crawl=self._by_site, batch=store.durable)

    def _note_visits(self, crawl: int, lost: Sequence[Row]) -> None:
        """Notifies the store of the coming visits of lost pages whose URLs have other rows."""
        visited = [row for row in lost if row.crawl == crawl and self._parts.store.rows_of_url(row.url, crawl)]
        if visited:
            self._parts.store.may_come_again(crawl, max(row.item for row in visited))

    def queue_lost(self, crawls: Collection[int], ended: Collection[int] = ()) -> int:
        """Queues the pages again whose bytes are gone, under new numbers, and returns how many. A crash repeats none.
        Those of crawls that have `ended` are not fetched again: their loss remains recorded.
        """
        parts, frontier = self._parts, self._frontier
        parts.work.begin("looking for lost pages")
        lost = parts.store.lost_pages_to_refetch()
        notes = {crawl: f"lost:{parts.slot.name}:{crawl}" for crawl in {row.crawl for row in lost} & set(crawls)}
        for crawl, note in notes.items():
            self._note_visits(crawl, lost)
            again = self._requests_to_repeat([row for row in lost if row.crawl == crawl])
            for _ in frontier.revisits.readmit_once(crawl, note, parts.store.lost_name(), partial(_rows_behind, again)):
                parts.work()
        if gone := [row for row in lost if row.crawl in ended]:
            log.error("pages of crawls that have ended are damaged or gone", pages=len(gone), first=gone[0].url)
            parts.store.keep_lost(gone)
        if lost:
            frontier.durability.commit()
            parts.step("lost-queued")
        parts.store.forget_repaired()
        for note in notes.values():
            frontier.notes.note(note, "")
        return len(lost)

    def _requests_to_repeat(self, rows: list[Row]) -> list[tuple[int, Found]]:
        """Lost pages in the form in which they were found, with their requests. A request with a body cannot be
        repeated: its loss remains recorded.
        """
        asked, gone = [row for row in rows if not row.request], [row for row in rows if row.request]
        if gone:
            log.error("answers to requests with a body are damaged or gone", rows=len(gone), first=gone[0].url)
            self._parts.store.keep_lost(gone)
        outputs = self._parts.store.outputs_of([row.item for row in asked])
        found = ((row.item, found_from_output(row, outputs.get(row.item), hops=row.hops)) for row in asked)
        return [(item, one) for item, one in found if one is not None]


def _rows_behind(stored: list[tuple[int, Found]], after: int) -> Iterator[tuple[int, Found]]:
    return (one for one in stored if one[0] > after)


def resume_crawl(
    parts: Parts,
    frontier: Frontier,
    name: str,
    seeds: Sequence[str],
    restore_links: Callable[[RunningCrawl], None],
    transports: Transports | None = None,
    learn_scope: Callable[[AdmissionRules], None] = lambda _: None,
    origins: Iterable[str] = (),
    description: Description | None = None,
) -> RunningCrawl:
    """Resumes a process's part of a crawl; `transports` and `origins` (see `RunningCrawl`) are for one that fetches.

    `description` is that of the user's code, if the crawl has some. `learn_scope` extends the rules by seeds that are
    not among `seeds`; `restore_links` brings back what the frontier may have lost of the links of stored pages.
    """
    config, store, progress, work = parts.config, parts.store, parts.progress, parts.work
    recovery, limits = CrawlRecovery(parts, frontier, f"{parts.slot.name}."), frontier_limits_of(config)
    number = frontier.crawls.open_crawl(name, limits)
    if description is not None:
        store.may_come_again(number, -1)  # the user's code may repeat a request
    stats = recovery.count_stored(number, limits)
    progress.restore(stats)
    parts.check_rows(CHECKED_ROWS)
    recovery.restore_queue()
    work.begin("restoring the scope")
    year, extensions = datetime.now(UTC).year, frontier.notes.scope_extensions(number)
    rules = AdmissionRules(config.scope, seeds, this_year=year, extensions=extensions)
    learn_scope(rules)
    crawl = parts.crawls[number] = RunningCrawl(
        number,
        rules,
        config.scope,
        config.fetch,
        frontier,
        progress,
        seeds,
        politeness=config.politeness,
        book=None if transports is None else _make_robots_book(frontier, config, description),
        transport=None if transports is None else transports.open(config.fetch),
        open_transport=None if transports is None else transports.open,
        extraction=extraction_of(config.extract),
        spider=None if description is None else RunningSpider(description, rules, frontier.notes),
        origins=origins,
    )
    lost, read_back = recovery.queue_lost([number]), store.read_back
    progress.count_repair("lost_pages", lost)
    progress.count_repair("rows_read_back", read_back)
    if lost or read_back:
        log.warning("the index was mended", lost_and_queued_again=lost, read_back=read_back)
    restore_links(crawl)
    return crawl


def _make_robots_book(frontier: Frontier, config: Config, description: Description | None) -> RobotsBook:
    """A delay that a spider brings along may be too short for the public; one that somebody gave is taken as given."""
    least_s = 0.0
    if description is not None and config.politeness.delay_s == description.settings.get("delay"):
        least_s = description.least_public_delay_s
    return RobotsBook(
        frontier.sites, config.fetch.user_agent(), least_public_delay_s=least_s, ignored_at=robots_ignored_at(config)
    )


def readmit_lost_links(frontier: SharedFrontier, store: PageStore, crawl: RunningCrawl, work: LongWork) -> int:
    """Admits again the links of stored pages whose ends a server has lost: it may have lost their links, too.

    All processes of the pod restore the pages' own URLs first: the links of one may lead to a page of another, which
    must not be fetched again. A page that is not kept (noindex) is visited again, and has a second row. Returns how
    many pages there were.
    """
    wanted = set(frontier.recovery.lost_ends)
    rows = [row for row in work.count_each(store.rows()) if row.item in wanted] if wanted else []
    frontier.recovery.restore_stored(crawl.number, ((row.url, row.depth, row.item) for row in rows))
    until = time.monotonic() + SETTLE_S
    while not frontier.recovery.settled() and time.monotonic() < until:
        work.heartbeat.send_heartbeat()
        time.sleep(WAIT_S)
    if not rows:
        return 0
    log.warning("the server has lost ends of pages: their links are read again", pages=len(rows))
    store.may_come_again(crawl.number, min(row.item for row in rows) - 1)
    discovered_links = DiscoveredLinks(frontier, store)
    for row in rows:
        discovered_links.expand_readable(crawl, [(row.item, row.url, row.depth)], {row.item: row.hops})
        work()
    for row in rows:
        if row.error == "noindex":
            frontier.revisits.readmit(crawl.number, Found(row.url, row.depth, row.parent))
    _offer_sitemaps(frontier, crawl, rows)
    frontier.durability.commit()
    frontier.durability.sync()
    # Otherwise a process that is killed before its first sync would read them once more.
    frontier.durability.acknowledge(store.durable)
    frontier.durability.commit()
    return len(rows)


def _offer_sitemaps(frontier: SharedFrontier, crawl: RunningCrawl, rows: Iterable[Row]) -> None:
    """Admits the sitemaps of stored pages' origins: sitemaps are not stored, and are requested with a page of the
    origin, of which none may be left.
    """
    depths: dict[str, int] = {}
    for row in rows:
        origin = urls.origin_of(row.url)
        depths[origin] = min(row.depth, depths.get(origin, row.depth))
    for origin, depth in depths.items():
        if (record := frontier.sites.robots(origin)) is not None:
            frontier.queue.admit(crawl.number, crawl.sitemaps_of_origin(depth, origin, rules_of(record).sitemaps))


def readmit_links_of_stored_pages(
    frontier: EmbeddedFrontier,
    store: PageStore,
    crawl_of: Callable[[Row], RunningCrawl | None],
    pod: int,
    work: LongWork,
    parsers: Parsers | None = None,
) -> tuple[int, int]:
    """Admits the links of stored pages: after a power cut those of the last pages, for a new frontier those of all.

    A page that cannot be read, or is not kept, is visited again; for a new frontier one page of each origin as well,
    since sitemaps are asked for with the pages of an origin, and are not stored. Returns how many pages were read, and
    how many are visited again. `parsers` are called for pages of a user's code. Progress is noted: a kill costs at most
    the last TOGETHER pages.
    """
    log.warning("the frontier has lost URLs: the links of stored pages are read again", all=frontier.recovery.is_new)
    total = store.stats(0).rows if frontier.recovery.is_new else 0
    work.begin("restoring the URLs of stored pages", total)
    for row in work.count_each(_rows_with_unsure_links(frontier, store, pod)):
        if (crawl := crawl_of(row)) is not None:
            known = msgspec.structs.replace(found_from_row(row), key=seen_key_of(row.request, row.url))
            frontier.recovery.restore_stored(crawl.number, [(known, row.item)])
    discovered_links, origins, again, count = DiscoveredLinks(frontier, store), set[tuple[int, str]](), 0, 0
    done = int(frontier.notes.note(LINKS_READ) or 0)
    work.begin("reading the links of stored pages", total)
    for row in work.count_each(_rows_with_unsure_links(frontier, store, pod)):
        if (crawl := crawl_of(row)) is None:
            continue
        origin = crawl.number, urls.origin_of(row.url)
        is_first = frontier.recovery.is_new and bool(row.warc_file) and origin not in origins
        if is_first:
            origins.add(origin)
        if row.item <= done:
            continue
        count += 1
        if crawl.spider is not None and parsers is not None:
            queue_requests_again(crawl, frontier.queue, parsers, store, row)
        if (
            crawl.follows_links
            and not row.request
            and (is_first or not _admit_stored_links(discovered_links, crawl, row))
        ):
            again += 1
            store.may_come_again(crawl.number, row.item)
            frontier.revisits.readmit(crawl.number, found_from_row(row))
        work()
        if count % ROWS_TOGETHER == 0:
            frontier.notes.note(LINKS_READ, str(row.item))
            frontier.durability.commit()
    frontier.notes.note(LINKS_READ, "0")
    frontier.recovery.record_links_complete()
    log.warning("the links of stored pages are known again", pages=count, visited_again=again)
    return count, again


def _rows_with_unsure_links(frontier: EmbeddedFrontier, store: PageStore, pod: int) -> Iterator[Row]:
    """The rows of pages whose links the frontier may not have."""
    if frontier.recovery.is_new:
        return (row for row in store.rows() if row.item >> POD_SHIFT == pod)
    late = store.items_since(frontier.durability.acknowledged)
    found = ((item, url) for item in late if (url := store.url_of(item)) is not None)
    return (row for item, url in found for row in store.rows_of_url(url) if row.item == item)


def _admit_stored_links(discovered_links: DiscoveredLinks, crawl: RunningCrawl, row: Row) -> bool:
    """Admits the links of a stored answer; False if they are no longer known."""
    if row.error.partition(":")[0] == Reason.CONTENT_TYPE:
        return True  # it has no links
    if row.error == "noindex" or (200 <= row.status < 300 and not row.warc_file):
        return False
    try:
        discovered_links.expand(crawl, [(row.item, row.url, row.depth)], {row.item: row.hops})
    except StoreError as error:
        log.error("a stored page cannot be read: it is visited again", url=row.url, error=error)
        return False
    return True
