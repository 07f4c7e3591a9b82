"""How a process that fetches takes up its part of a crawl: what it has stored, what it must ask again, its seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from weft.crawl.feeding import Feeding, learn_scope
from weft.crawl.folder import CrawlFolder
from weft.crawl.frontier_settings import CRAWL
from weft.crawl.order import ProcessOrder
from weft.crawl.pods.backend import Backend
from weft.engine.assembly import Fetching
from weft.engine.crawls import RunningCrawl
from weft.engine.limits import limits_of
from weft.engine.loop.leads import Leads
from weft.engine.loop.revisits import Revisits, StoredVisits
from weft.engine.loop.suspects import beat
from weft.engine.loop.verdict import RETRYABLE
from weft.engine.recovery import take_up
from weft.frontier.admission import Rules
from weft.frontier.contract import Admission
from weft.records import Found, Reason, Row
from weft.store.pages import PageStore
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
        if frontier.is_recrawled(crawl.number):
            crawl.revisits = Revisits(StoredVisits(self._store))
        frontier.commit()
        return crawl

    def learn_scope(self, rules: Rules) -> None:
        """What large seed files say of it."""
        if self._order.config.scope.scope != "any":
            alive = partial(beat, self._folder.pulse_of(self._order.slot))
            learn_scope(rules, self._folder, self._parts.progress, alive)

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
        before = self._frontier.note("addresses").split()
        if set(allowed) - set(before):
            refused = (row for row in self._store.rows() if row.error.partition(":")[0] == Reason.ADDRESS)
            for row, visits in self._store.with_visits(refused):
                if visits[-1].item == row.item and self._owns(row.url):
                    self._frontier.readmit(number, Found(row.url, row.depth, row.parent))
            self._frontier.note("addresses", " ".join(sorted({*before, *allowed})))

    def _offer_left_sitemaps(self, crawl: RunningCrawl) -> None:
        """Sitemaps for which there was no room come in once the crawl may have more: it may have more pages."""
        most, before = limits_of(self._order.config).max_sitemaps or 0, int(self._frontier.note("sitemaps") or 0)
        if before and most > before:
            left = [
                one
                for one in self._frontier.left_sitemaps(crawl.number)
                if crawl.rules.refusal(one.url, one.depth, is_link=False, included=True) is None
            ]
            self._frontier.admit(crawl.number, left)
        if most != before:
            self._frontier.note("sitemaps", str(most))

    def _admit_seeds(self, crawl: RunningCrawl, seeds: list[str]) -> None:
        admitted, refused = [], 0
        for seed in filter(self._owns, map(crawl.rules.rewritten, seeds)):
            reason = crawl.rules.refusal(seed, 0, is_link=False, included=True)
            if reason is None:
                admitted.append(Found(seed, 0))
            else:
                crawl.progress.refused[reason] += 1
                refused += 1
        admission = self._frontier.admit(crawl.number, admitted)
        log.info("seeds taken in", seeds=len(admitted), new=admission.new, refused=refused)
        if admission.expand:  # it was fetched before, as some page's link, and is nearer now
            Leads(self._frontier, self._store).expand_readable(crawl, admission.expand)

    def _visit_again(self, number: int) -> None:
        order, frontier, run = self._order, self._frontier, self._order.config.run
        if run.retry_failed:
            for row in _failed(self._store):
                if self._owns(row.url):
                    frontier.readmit(number, Found(row.url, row.depth, row.parent))
        if run.recrawl:
            known = (found for found in _first_pages(self._store) if self._owns(found.url))
            begin = partial(self._folder.begin_recrawl, order.pod, order.started_at)
            frontier.recrawl(number, order.run, known, begin)


def _first_pages(store: PageStore) -> Iterator[Found]:
    """Every page that is known, once, as it was first found."""
    pages = (row for row in store.rows(Where(stored=True)) if 200 <= row.status < 300)
    for row, visits in store.with_visits(pages):
        if not any(200 <= other.status < 300 and other.item < row.item for other in visits):
            yield Found(row.url, row.depth, row.parent)


def _failed(store: PageStore) -> Iterator[Row]:
    """The last rows of URLs that may succeed another time."""
    for row, visits in store.with_visits(filter(_may_succeed, store.rows())):
        if visits[-1].item == row.item:
            yield row


def _may_succeed(row: Row) -> bool:
    return row.error.partition(":")[0] in MAY_SUCCEED or row.status in (408, 429) or row.status >= 500
