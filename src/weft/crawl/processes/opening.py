"""Opens a fetcher's part of a crawl: restores what it has stored, what must be requested again, and its seeds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from weft.crawl.folder import CrawlFolder
from weft.crawl.pods.backend import FrontierBackend
from weft.crawl.processes.process_spec import ProcessSpec
from weft.crawl.seeds.feeding import CombinedFeed, SeedFeed, learn_scope
from weft.crawl.seeds.known_urls import RECRAWL, KnownUrlsFeed
from weft.engine.admission.rules import AdmissionRules
from weft.engine.assembly import Fetching
from weft.engine.crawls.limits import frontier_limits_of
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.folder import CRAWL_SUFFIX
from weft.engine.loop.fetcher.fetch_loop import UrlFeed
from weft.engine.loop.fetcher.revisits import Revisits, StoredVisits
from weft.engine.loop.parser.discovered_links import DiscoveredLinks
from weft.engine.recovery import resume_crawl
from weft.engine.user_code.running import check_callbacks
from weft.frontier.contract import Admission
from weft.records import Found
from weft.telemetry import Log

log = Log("weft.crawl.processes.opening")


class CrawlOpening:
    """The start of one fetcher process."""

    def __init__(self, spec: ProcessSpec, folder: CrawlFolder, backend: FrontierBackend, parts: Fetching) -> None:
        self._spec = spec
        self._folder = folder
        self._backend = backend
        self._frontier = backend.frontier
        self._owns_url = backend.owns
        self._parts = parts
        self._feeds: list[UrlFeed] = []
        self.seeds = folder.seeds()
        self._crawl: RunningCrawl | None = None
        self._store = parts.store
        self._work = parts.work

    @property
    def feed(self) -> UrlFeed:
        """The seeds and known URLs that the loop admits while it runs."""
        return CombinedFeed(self._feeds)

    def open(self) -> RunningCrawl:
        """Opens the crawl. The pod's first fetcher also does what is needed once for the pod."""
        frontier, seeds = self._frontier, self.seeds
        restore = partial(self._backend.restore_links, self._parts)
        crawl = resume_crawl(
            self._parts, frontier, CRAWL_SUFFIX, seeds, restore, self._parts.transports, self.learn_scope,
            self._folder.origins(), self._folder.spider(),
        )  # fmt: skip
        self._crawl = crawl
        if crawl.spider is not None:
            check_callbacks(frontier, crawl.spider.description)
            if self._folder.is_one_process:
                self._parts.progress.status.items = self._store.items_made()
        if self._spec.index == 0:
            self.admit(seeds)
            self._offer_left_sitemaps(crawl)
            self._start_feeds(crawl)
        elif self._folder.seed_streams():
            self._feeds.append(self._feeding_of_streams(crawl, admits=False, ended=lambda: None))
        if self._spec.config.run.recrawl or frontier.notes.note(RECRAWL):
            self._work.begin("counting known pages")
            is_rendered = self._spec.config.fetch.render != "never"
            since = self._folder.settings_record().changed_at("render") if is_rendered else None
            crawl.revisits = Revisits(StoredVisits(self._store), since)
        frontier.durability.commit()
        return crawl

    def learn_scope(self, rules: AdmissionRules) -> None:
        """Extends the scope by the origins of large seed files."""
        if self._spec.config.scope.scope != "any":
            learn_scope(rules, self._folder, self._parts.progress, self._work)

    def _start_feeds(self, crawl: RunningCrawl) -> None:
        """Admits the pod's seeds, or the first part of a large file. The rest, and known URLs that are visited again,
        are admitted while the crawl runs."""
        again = KnownUrlsFeed(self._spec, self._folder, self._frontier, self._store, self._owns_url, crawl.number)
        feeding = self._feeding_of_streams(crawl, admits=True, ended=self._backend.on_all_seeds_admitted)
        self._feeds += [again, feeding]
        again()
        feeding()
        self._backend.on_first_seeds_admitted()

    def _feeding_of_streams(self, crawl: RunningCrawl, *, admits: bool, ended: Callable[[], None]) -> SeedFeed:
        def expand(admission: Admission) -> None:
            DiscoveredLinks(self._frontier, self._store).expand_readable(crawl, admission.expand)

        return SeedFeed(
            self._folder, self._frontier, crawl, self._owns_url, admits=admits, expand=expand, ended=ended
        )  # fmt: skip

    def _offer_left_sitemaps(self, crawl: RunningCrawl) -> None:
        """Admits sitemaps that a limit had excluded, if the crawl may have more pages now."""
        most, before = (
            frontier_limits_of(self._spec.config).max_sitemaps or 0,
            int(self._frontier.notes.note("sitemaps") or 0),
        )
        if before and most > before:
            left = [
                one
                for one in self._frontier.rejected.left_sitemaps(crawl.number)
                if crawl.rules.refusal(one.url, one.depth, is_link=False, included=True) is None
            ]
            self._frontier.queue.admit(crawl.number, left)
        if most != before:
            self._frontier.notes.note("sitemaps", str(most))

    def admit(self, seeds: list[str]) -> None:
        """Admits the seeds of this pod; only its first fetcher does that."""
        if self._spec.index:
            return
        crawl, admitted, refused = self._crawl, [], 0
        assert crawl is not None
        for seed in filter(self._owns_url, map(crawl.rules.rewritten, seeds)):
            reason = crawl.rules.refusal(seed, 0, is_link=False, included=True)
            if reason is None:
                admitted.append(Found(seed, 0))
            else:
                crawl.progress.refused[reason] += 1
                refused += 1
        admission = self._frontier.queue.admit(crawl.number, admitted)
        log.info("seeds admitted", seeds=len(admitted), new=admission.new, refused=refused)
        if admission.expand:  # it was fetched before, as a link of some page, and has a smaller depth now
            DiscoveredLinks(self._frontier, self._store).expand_readable(crawl, admission.expand)
