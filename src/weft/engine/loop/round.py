"""What one round of the loop reports to the frontier, in one call of each kind: ended transfers, links, ended items.

A round is the result of one poll. Everything waits in lists until `flush`, whose order makes a crash cheap: links
before the ends of the pages that they were found on, and both before the next claim and before a commit. When the
frontier refuses an end because the lease was over, its row is removed from the store again before it is written.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.loop.parser.discovered_links import DiscoveredLinks
from weft.engine.loop.parser.handoff import Handoff
from weft.errors import ServerAway
from weft.frontier.contract import Admission, End, EndedLease, Frontier, PageLinks, TransferEnd
from weft.records import Found, Lease, Purpose, Reason, RenderedPart
from weft.store.pages import PageStore
from weft.telemetry import Log

_LinksOfPage = tuple[Lease, list[str]]  # a page and what it links to
log = Log("weft.engine.loop.round")


class _UrlsToAdmit:
    """The URLs that one crawl is about to admit."""

    __slots__ = ("found", "links", "pages", "robots_and_sitemaps")

    def __init__(self) -> None:
        self.pages: list[_LinksOfPage] = []
        self.links: list[PageLinks] = []  # links of those pages, after the rules have judged them
        self.found: list[Found] = []
        self.robots_and_sitemaps: list[Found] = []


class Round:
    """Collects a round's results; `flush` reports them to the frontier."""

    def __init__(
        self,
        frontier: Frontier,
        store: PageStore,
        crawls: dict[int, RunningCrawl],
        discovered_links: DiscoveredLinks | None = None,
        handoff: Handoff | None = None,
    ) -> None:
        self._queue, self._leases, self._sites = frontier.queue, frontier.leases, frontier.sites
        self._store = store
        self._crawls = crawls
        self._discovered_links = discovered_links
        self._handoff = handoff
        self._ended_transfers: list[TransferEnd] = []
        self._requested_parts: list[tuple[int, list[RenderedPart]]] = []
        self._urls_by_crawl: dict[int, _UrlsToAdmit] = {}
        self._ends: list[EndedLease] = []
        self._rows: list[EndedLease] = []
        self.touched: set[int] = set()  # crawls of which an item has ended: the loop's caller checks and clears it

    def add_cooled(self, ended: TransferEnd) -> None:
        """Adds an ended transfer."""
        self._ended_transfers.append(ended)

    def add_requested_parts(self, lease: Lease, parts: Iterable[RenderedPart]) -> None:
        """A rendered page has requested parts of itself. A script of a login's page may send in a query what was typed:
        it is not written down."""
        sent = [part for part in parts if part.was_sent]
        if lease.purpose is Purpose.LOGIN:
            sent = [msgspec.structs.replace(part, url=part.url.partition("?")[0]) for part in sent]
        self._requested_parts.append((lease.crawl, sent))

    def add_links(self, crawl: RunningCrawl, lease: Lease, links: list[str]) -> None:
        """Adds the links of a page, as `AdmissionRules.candidates` returns them."""
        if not crawl.scope.seeded_urls_only:
            self._urls_of_crawl(crawl).pages.append((lease, links))

    def add_urls(self, crawl: RunningCrawl, found: list[Found]) -> None:
        """Adds URLs that the rules admit."""
        self._urls_of_crawl(crawl).found += found

    def add_robots_and_sitemaps(self, crawl: RunningCrawl, found: list[Found]) -> None:
        """Adds robots.txt files and sitemaps: of these, only refusals by a budget are counted."""
        self._urls_of_crawl(crawl).robots_and_sitemaps += found

    def end_lease(self, lease: Lease, end: End, wait_s: float = 0.0) -> None:
        """Ends the lease of an item that has no row."""
        self._ends.append(EndedLease(lease, end, wait_s))
        self.touched.add(lease.crawl)

    def mark_unsent(self, lease: Lease) -> None:
        """Records that a request which must not be sent twice was not sent after all."""
        self._leases.not_sent(lease)

    def end_with_row(self, lease: Lease, end: End) -> None:
        """Ends an item whose row was added to the store."""
        self._rows.append(EndedLease(lease, end))
        self.touched.add(lease.crawl)

    def drop_crawl(self, crawl: int) -> None:
        """Drops the links of an ended crawl; items with rows end as usual."""
        self._urls_by_crawl.pop(crawl, None)

    def flush_cooled(self) -> None:
        """Reports only ended transfers: their sites may get the next request while their pages are parsed.

        If the frontier cannot be reached, `flush` reports them.
        """
        try:
            self._report_cooled()
        except ServerAway:
            pass

    def flush(self) -> None:
        """Reports everything. DiskFull, ServerAway: nothing is lost, call it again."""
        self._report_cooled()
        if self._handoff is not None:
            self._handoff.flush()
        while self._urls_by_crawl:
            number = next(iter(self._urls_by_crawl))
            self._admit_urls(self._crawls[number], self._urls_by_crawl[number])
            del self._urls_by_crawl[number]
        if self._ends:
            self._leases.finish(self._ends)
            self._ends = []
        if self._rows:
            self._finish_leases(self._rows)
            self._rows = []

    def _report_cooled(self) -> None:
        if self._ended_transfers:
            self._leases.cool(self._ended_transfers)
            self._ended_transfers = []
        while self._requested_parts:
            self._sites.asked(*self._requested_parts[-1])
            self._requested_parts.pop()

    def expand(self, crawl: RunningCrawl, known: Iterable[tuple[int, str, int]]) -> None:
        """Expands pages that were fetched without their deep links and are now known to be nearer: item, URL and depth
        (see `Admission`).
        """
        assert self._discovered_links is not None
        self._discovered_links.expand_readable(crawl, known)

    def note_commit(self) -> None:
        """Called when everything reported so far is committed to the store."""
        if self._discovered_links:
            self._discovered_links.note_commit()

    def _urls_of_crawl(self, crawl: RunningCrawl) -> _UrlsToAdmit:
        waiting = self._urls_by_crawl.get(crawl.number)
        if waiting is None:
            waiting = self._urls_by_crawl[crawl.number] = _UrlsToAdmit()
        return waiting

    def _admit_urls(self, crawl: RunningCrawl, waiting: _UrlsToAdmit) -> None:
        if waiting.found:
            found = waiting.found
            crawl.before_admission(one.url for one in found)
            admission = self._queue.admit(crawl.number, found)
            waiting.found = []
            self._count_not_admitted(crawl, len(found), admission)
        if waiting.pages:
            waiting.links += (self._links_with_depth if crawl.finds_depth else self._unknown_links)(
                crawl, waiting.pages
            )
            waiting.pages = []
        if waiting.links:
            links = waiting.links
            crawl.before_admission(url for some in links for url in some.urls)
            admission = self._queue.admit_links(crawl.number, links)
            waiting.links = []
            self._count_not_admitted(crawl, sum(len(some.urls) for some in links), admission)
        if waiting.robots_and_sitemaps:
            sitemaps = sum(one.purpose is Purpose.SITEMAP for one in waiting.robots_and_sitemaps)
            admission = self._queue.admit(crawl.number, waiting.robots_and_sitemaps)
            crawl.progress.refused[Reason.BUDGET] += max(0, sitemaps - admission.new - admission.duplicates)

    def _count_not_admitted(self, crawl: RunningCrawl, found: int, admission: Admission) -> None:
        crawl.count_not_admitted(found - len(admission.full), admission)
        if admission.expand:
            self.expand(crawl, admission.expand)

    def _unknown_links(self, crawl: RunningCrawl, pages: list[_LinksOfPage]) -> list[PageLinks]:
        """The unknown links; the first of several pages that link to a URL is its parent."""
        admitted, taken, duplicates = list[PageLinks](), set[str](), 0
        for page, links in pages:
            new = self._queue.unseen(crawl.number, links)
            if taken:
                new = [url for url in new if url not in taken]
            if len(pages) > 1:
                taken.update(new)
            duplicates += len(links) - len(new)
            if new:
                admitted += crawl.admit_links(new, page)
        crawl.progress.refused[Reason.DUPLICATE] += duplicates
        return admitted

    def _links_with_depth(self, crawl: RunningCrawl, pages: list[_LinksOfPage]) -> list[PageLinks]:
        """The links to report with a depth limit: a known URL is reported again, since this path to it may be
        shorter.
        """
        near, sameness = list[PageLinks](), crawl.rules.sameness
        for page, links in pages:
            admitted = crawl.admit_links(links, page, are_new=False)
            if sameness.needs_new_links(page.url):
                new = set(self._queue.unseen(crawl.number, links))
                sameness.record_links(page.url, [url for some in admitted for url in some.urls if url in new])
            near += admitted
        return near

    def _finish_leases(self, rows: list[EndedLease]) -> None:
        accepted = self._leases.finish(rows, self._store.batch + 1)
        if not all(accepted):
            # An item that was leased again meanwhile may be here twice; the store keeps its one row.
            kept = {outcome.lease.item for outcome, valid in zip(rows, accepted, strict=True) if valid}
            self._drop_refused([outcome for outcome in rows if outcome.lease.item not in kept])
        if self._discovered_links:
            # A shorter path was found while the page was in flight. From here on `admit` returns such items in
            # `expand`.
            self._discovered_links.expand_nearer(
                self._crawls, [one.lease for one in rows if one.lease.crawl in self._crawls]
            )

    def _drop_refused(self, refused: list[EndedLease]) -> None:
        log.warning("leases were over, their pages are dropped", items=len(refused))
        for row in self._store.forget([outcome.lease.item for outcome in refused]):
            if row.crawl in self._crawls:
                self._crawls[row.crawl].progress.uncount_row(row)
