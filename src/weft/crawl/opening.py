"""How a process that fetches takes up its part of a crawl: what it has stored, what it must ask again, its seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from weft.crawl.feeding import Feeding, learn_scope
from weft.crawl.folder import CrawlFolder
from weft.crawl.frontier_settings import CRAWL
from weft.crawl.order import ProcessOrder
from weft.crawl.pods.backend import Backend
from weft.engine.admission.rules import Rules
from weft.engine.assembly import Fetching
from weft.engine.crawls import RunningCrawl
from weft.engine.limits import limits_of
from weft.engine.loop.leads import Leads
from weft.engine.loop.revisits import Revisits, StoredVisits
from weft.engine.loop.verdict import RETRYABLE
from weft.engine.recovery import take_up
from weft.frontier.contract import Admission
from weft.records import Found, Reason, Row
from weft.store.query import Where
from weft.telemetry import Log

MAY_SUCCEED = RETRYABLE | {Reason.ROBOTS_UNREACHABLE, Reason.BREAKER, Reason.RETRY_AFTER}
log = Log("weft.crawl.opening")


class Opening:
    """One process's opening of the crawl."""

    def __init__(self, order: ProcessOrder, folder: CrawlFolder, backend: Backend, parts: Fetching) -> None:
        self._order = order
        self._folder = folder
        self._backend = backend
        self._frontier = backend.frontier
        self._owns = backend.owns
        self._parts = parts
        self.feeding: Feeding | None = None
        self._store = parts.store
        self._work = parts.work

    def open(self) -> RunningCrawl:
        """The crawl, ready to run; what its pod as a whole must do is done by the pod's first fetcher."""
        frontier, seeds = self._frontier, self._folder.seeds()
        restore = partial(self._backend.restore_links, self._parts)
        crawl = take_up(
            self._parts, frontier, CRAWL, seeds, restore, self._parts.ways, self.learn_scope, self._folder.origins()
        )
        if self._order.index == 0:
            self._admit_seeds(crawl, seeds)
            self._visit_again(crawl.number)
            self._ask_refused_addresses(crawl.number)
            self._offer_left_sitemaps(crawl)
            self._feed(crawl)
        elif self._folder.streams():
            self.feeding = self._feeding(crawl, admits=False, ended=lambda: None)
        if frontier.revisits.is_recrawled(crawl.number):
            self._work.begin("looking for known pages")
            crawl.revisits = Revisits(StoredVisits(self._store))
        frontier.durability.commit()
        return crawl

    def learn_scope(self, rules: Rules) -> None:
        """What large seed files say of it."""
        if self._order.config.scope.scope != "any":
            learn_scope(rules, self._folder, self._parts.progress, self._work)

    def _feed(self, crawl: RunningCrawl) -> None:
        """The pod's seeds are admitted, or the first of a large file: the others while the crawl runs."""
        self.feeding = self._feeding(crawl, admits=True, ended=self._backend.seeded)
        self.feeding()
        self._backend.begun()

    def _feeding(self, crawl: RunningCrawl, *, admits: bool, ended: Callable[[], None]) -> Feeding:
        def expand(admission: Admission) -> None:
            Leads(self._frontier, self._store).expand_readable(crawl, admission.expand)

        return Feeding(
            self._folder, self._frontier, crawl, self._owns, admits=admits, expand=expand, ended=ended
        )  # fmt: skip

    def _ask_refused_addresses(self, number: int) -> None:
        """What was refused for its address is asked again once the settings let more addresses in than before."""
        fetch = self._order.config.fetch
        allowed = [name for name, on in (("private", fetch.allow_private), ("public", bool(fetch.email))) if on]
        before = self._frontier.notes.note("addresses").split()
        if set(allowed) - set(before):
            now = sorted({*before, *allowed})
            refused = partial(self._last_rows, _is_address_refused)
            self._readmit(number, "addresses_asked", "+".join(now), refused, "queueing refused addresses again")
            self._frontier.notes.note("addresses", " ".join(now))

    def _offer_left_sitemaps(self, crawl: RunningCrawl) -> None:
        """Sitemaps for which there was no room come in once the crawl may have more: it may have more pages."""
        most, before = limits_of(self._order.config).max_sitemaps or 0, int(self._frontier.notes.note("sitemaps") or 0)
        if before and most > before:
            left = [
                one
                for one in self._frontier.rejected.left_sitemaps(crawl.number)
                if crawl.rules.refusal(one.url, one.depth, is_link=False, included=True) is None
            ]
            self._frontier.queue.admit(crawl.number, left)
        if most != before:
            self._frontier.notes.note("sitemaps", str(most))

    def _admit_seeds(self, crawl: RunningCrawl, seeds: list[str]) -> None:
        admitted, refused = [], 0
        for seed in filter(self._owns, map(crawl.rules.rewritten, seeds)):
            reason = crawl.rules.refusal(seed, 0, is_link=False, included=True)
            if reason is None:
                admitted.append(Found(seed, 0))
            else:
                crawl.progress.refused[reason] += 1
                refused += 1
        admission = self._frontier.queue.admit(crawl.number, admitted)
        log.info("seeds taken in", seeds=len(admitted), new=admission.new, refused=refused)
        if admission.expand:  # it was fetched before, as some page's link, and is nearer now
            Leads(self._frontier, self._store).expand_readable(crawl, admission.expand)

    def _visit_again(self, number: int) -> None:
        order, frontier, run = self._order, self._frontier, self._order.config.run
        if run.retry_failed:
            with self._not_twice("retried_to") as queued:
                failed = partial(self._last_rows, _may_succeed, queued=queued)
                self._readmit(number, "retry_failed", order.run, failed, "queueing failed URLs again")
        if run.recrawl or frontier.revisits.is_recrawl_cut_off(number):
            self._work.begin("queueing known pages again", self._store.stats(0).rows)
            begin = partial(self._folder.begin_recrawl, order.pod, order.started_at)
            with self._not_twice("recrawled_to") as queued:
                pages = partial(self._first_pages, queued=queued)
                frontier.revisits.recrawl(number, order.run, lambda after: self._found(pages(after)), begin)

    @contextmanager
    def _not_twice(self, note: str) -> Iterator[_Queued]:
        """What an earlier run has queued again and not visited yet is not queued a second time."""
        queued = _Queued(int(self._frontier.notes.note(note) or 0))
        yield queued
        if queued.highest:
            self._frontier.notes.note(note, str(queued.highest))

    def _readmit(self, number: int, name: str, what: str, rows: Callable[[int], Iterable[Row]], doing: str) -> None:
        """Queues stored URLs again, once for each `what`, however often the process is killed meanwhile."""
        self._work.begin(doing, self._store.stats(0).rows)
        self._frontier.revisits.readmit_once(number, name, what, lambda after: self._found(rows(after)), continues=True)

    def _found(self, rows: Iterable[Row]) -> Iterator[tuple[int, Found]]:
        """Those of this pod, as they were found."""
        return ((row.item, Found(row.url, row.depth, row.parent)) for row in rows if self._owns(row.url))

    def _first_pages(self, after: int, queued: _Queued) -> Iterator[Row]:
        """Every page that is known, once, as it was first found; after an item."""
        rows = self._work.each(self._store.rows(Where(after_item=after, stored=True)))
        for row, visits in self._store.with_visits(row for row in rows if 200 <= row.status < 300):
            is_first = not any(200 <= other.status < 300 and other.item < row.item for other in visits)
            if is_first and not queued.holds(max(visit.item for visit in visits)):
                yield row

    def _last_rows(self, wanted: Callable[[Row], bool], after: int, queued: _Queued | None = None) -> Iterator[Row]:
        """The rows of some kind that are the last of their URLs; after an item."""
        rows = self._work.each(self._store.rows(Where(after_item=after)))
        for row, visits in self._store.with_visits(filter(wanted, rows)):
            if visits[-1].item == row.item and not (queued is not None and queued.holds(row.item)):
                yield row


class _Queued:
    """URLs that an earlier run has queued for another visit: those whose last row was there then. A visit has a higher
    number than every row before it, and ends in a row."""

    def __init__(self, before: int) -> None:
        self._before = before
        self.highest = 0  # of the rows that this run has read

    def holds(self, last_item: int) -> bool:
        """Whether the visit of a URL with this last row is still queued."""
        self.highest = max(self.highest, last_item)
        return last_item <= self._before


def _is_address_refused(row: Row) -> bool:
    return row.error.partition(":")[0] == Reason.ADDRESS


def _may_succeed(row: Row) -> bool:
    return row.error.partition(":")[0] in MAY_SUCCEED or row.status in (408, 429) or row.status >= 500
