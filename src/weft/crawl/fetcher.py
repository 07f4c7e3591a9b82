"""The process that fetches: it puts the parts together, runs the loop, and tells by its exit code how that ended.

Of an embedded pod it is the only one, and does all; of a pod on Redis it is one of several, and parses itself or leaves
that to parsers. SIGTERM drains; the orchestrator may say another reason to end.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from weft import __version__
from weft.crawl.child import progress_of, run_child
from weft.crawl.ends import EXIT_CODES, STATES
from weft.crawl.folder import CrawlFolder
from weft.crawl.opening import Opening
from weft.crawl.order import Control, ProcessOrder
from weft.crawl.pods.exchange import Exchange
from weft.crawl.pods.handoff import GATHER_S, Outlet
from weft.crawl.pods.permits import PermitChore, Permits
from weft.crawl.pods.redis_process import Chore, lead_chores, open_frontier, shared_chores
from weft.engine.crawls import RunningCrawl
from weft.engine.loop.commit import Committer
from weft.engine.loop.fetch_loop import Loop
from weft.engine.loop.halves import fetching, fused, parsers_of
from weft.engine.loop.metrics import EngineMetrics
from weft.engine.loop.results import Results
from weft.engine.loop.steps import crash_point
from weft.engine.loop.stop import Stop
from weft.engine.loop.suspects import Suspects
from weft.engine.ways import Ways, client_for
from weft.errors import Busy
from weft.frontier.embedded.frontier import EmbeddedFrontier
from weft.frontier.embedded.routing import Received, RoutedFrontier
from weft.frontier.redis.connection import peers
from weft.frontier.redis.routing import RoutedRedisFrontier
from weft.store.pages import PageStore
from weft.telemetry import Log, Metrics

LOCK_WAIT_S = 5.0
SEEDS_EVERY_S = 0.05
log = Log("weft.crawl.fetcher")


class Fetcher:
    """All parts of one fetcher, opened and wired."""

    def __init__(self, order: ProcessOrder, control: Control) -> None:
        config = order.config
        self._order = order
        self._control = control
        self.folder = CrawlFolder(config.store.data_dirs)
        slot, pulse = order.slot, self.folder.pulse_of(order.slot)
        self.progress = progress_of(order)
        step = crash_point()
        self._frontier = self._open_frontier()
        self._store = PageStore.open(
            self.folder.data_dirs,
            crawl_id=order.crawl_id,
            slot=slot.name,
            software=f"Weft/{__version__}",
            user_agent=config.fetch.user_agent(),
            keep=config.store.store,
            secret_headers=config.fetch.headers,
            acknowledged=self._frontier.acknowledged,
            is_done=self._frontier.knows_finished(),
            step=step,
        )
        self._suspects = Suspects(pulse)
        if self._suspects.died_on:
            log.error("a page killed its parser", item=self._suspects.died_on)
        self._ways = Ways(client_for(config.fetch.workers), config.fetch.workers)
        crawl = Opening(order, self.folder, self._frontier, self._store, self.progress, self._ways, step).open()
        self._await_seeds()
        if isinstance(self._frontier, EmbeddedFrontier):
            self._frontier.forbids = lambda _number, record, origin, url: crawl.book.forbids(record, origin, url)
        self._metrics = EngineMetrics(
            Metrics(self.folder.metrics, slot, peers(order.servers)), config.log.metrics_update_s
        )
        self._outlet = self._open_outlet()
        self._results = results = self._results_of(crawl)
        self._committer = Committer(
            self._frontier, self._store, step, self._outlet.spool.sync if self._outlet else lambda: None
        )
        self._exchange: Exchange | None = None
        on_redis = isinstance(self._frontier, RoutedRedisFrontier)
        until = None if order.until is None else time.monotonic() + order.until - time.time()
        self.loop = Loop(
            self._frontier, self._ways, results, self._committer, {crawl.number: crawl}, self.progress,
            self._suspects, self._metrics, step=step, until=until,
            owner=self._frontier.owner if isinstance(self._frontier, RoutedRedisFrontier) else slot.name,
            by_address=config.politeness.key_scope == "ip", chores=self._chores(crawl, results),
            ends_alone=self.folder.is_one_process, gather_s=GATHER_S if on_redis else 0.0,
            pressure=self._outlet.pressure if self._outlet else None,
        )  # fmt: skip

    def _open_frontier(self) -> EmbeddedFrontier | RoutedRedisFrontier:
        order, home = self._order, self.folder.of_pod(self._order.pod)
        if order.servers:
            return open_frontier(order, self.folder, self.progress)
        return _open_embedded(home, order)

    def _await_seeds(self) -> None:
        """The pod's first fetcher brings them in. A seed that was fetched before that as some page's link would be a
        step too deep, and what it leads to with it."""
        frontier = self._frontier
        while self._order.index and isinstance(frontier, RoutedRedisFrontier) and not frontier.note("seeded"):
            self._suspects.beat()
            time.sleep(SEEDS_EVERY_S)

    def _open_outlet(self) -> Outlet | None:
        pods, frontier = self._order.config.pods, self._frontier
        if not pods.parsers_per_pod or not isinstance(frontier, RoutedRedisFrontier):
            return None
        return Outlet(frontier, frontier, self.folder.home, self._order.slot, pods.parse_soft, pods.parse_hard)

    def _results_of(self, crawl: RunningCrawl) -> Results:
        crawls = {crawl.number: crawl}
        if self._outlet is not None:
            return fetching(self._frontier, self._store, crawls, self._metrics, self._outlet.handoff)
        parsers = parsers_of(self._order.config)
        return fused(self._frontier, self._store, crawls, self._suspects, self._metrics, parsers)

    def _chores(self, crawl: RunningCrawl, results: Results) -> list[Chore]:
        """What a process among several does between its pages."""
        order, frontier = self._order, self._frontier
        if self.folder.is_one_process:
            return []

        def heed(_now: float) -> None:
            if (reason := self._control.reason()) is not None:
                self.loop.drain(Stop(reason))

        metrics = self._metrics
        if isinstance(frontier, RoutedRedisFrontier):
            frontier.crossed = metrics.crossed
            metrics.before_save.append(lambda: metrics.waiting(frontier.waiting))
            expand = None if self._outlet is not None else results.round.expand
            chores = [heed, *shared_chores(order, frontier, crawl, expand)]
            return [*chores, *lead_chores(order, self.folder, frontier, crawl)] if order.index == 0 else chores

        def take(received: Received) -> None:
            for _, url in received.scopes:
                crawl.extend(url)
            for _, count, admission in received.admissions:
                crawl.count(count, admission)
                if admission.expand:
                    results.round.expand(crawl, admission.expand)

        assert isinstance(frontier, RoutedFrontier)
        outbox = frontier.outbox
        self._exchange = Exchange(
            self.folder.of_pod, frontier, order.pod, order.pods, order.crawl_id, take, metrics.crossed
        )
        metrics.before_save.append(lambda: metrics.waiting(outbox.waiting))
        if order.config.limits.max_pages is None:
            return [self._exchange, heed]
        permits = Permits.of(self.folder)
        return [self._exchange, heed, PermitChore(permits, frontier, crawl.number, order.pod, order.pods)]

    def run(self) -> int:
        """Crawls; gives the exit code."""
        self.progress.write("running")
        reason = self.loop.run()
        self._ways.shut()
        self._results.close()
        if self._exchange is not None:
            self._exchange.close()
        self._committer.close()
        if self._outlet is not None:
            self._outlet.spool.close()
        self._store.close()
        stats = self._frontier.stats()
        self.progress.ends(stats)
        self._metrics.update(self.progress, stats, 0, now=True)
        self._frontier.close()
        self._suspects.close()
        code = EXIT_CODES[reason]
        self.progress.write(STATES[code], str(reason))
        status = self.progress.status
        log.info(
            "ended",
            reason=reason,
            pages=status.pages,
            requests=status.requests,
            retries=status.retries,
            errors=sum(self.progress.errors.values()),
            queued=status.queued,
        )
        return code


def fetch(order: ProcessOrder, control: Control) -> int:
    """Carries out an order."""
    fetcher = Fetcher(order, control)
    signal.signal(signal.SIGTERM, lambda *_: fetcher.loop.drain())
    return fetcher.run()


def _open_embedded(folder: Path, order: ProcessOrder) -> EmbeddedFrontier:
    """A fetcher that is being killed may hold the lock for a moment longer."""
    until = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            if order.pods > 1:
                return RoutedFrontier(folder, order.config.politeness, pod=order.pod, pods=order.pods)
            return EmbeddedFrontier(folder, order.config.politeness)
        except Busy:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(run_child(fetch))
