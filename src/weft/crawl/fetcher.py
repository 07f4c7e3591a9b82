"""The process that crawls: it puts the parts together, runs the loop, and tells by its exit code how that ended.

Started by the orchestrator with an Order on its standard input; it dies with it. SIGTERM drains. It may be killed at
any moment: started again with the same order, it goes on.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from weft import __version__
from weft.config import Config
from weft.crawl.ends import EXIT_CODES, STATES
from weft.crawl.exchange import Exchange
from weft.crawl.folder import CrawlFolder
from weft.crawl.order import Control, Order, read_order
from weft.crawl.permits import PermitChore, Permits
from weft.crawl.seeds import is_loopback
from weft.engine.commit import Committer
from weft.engine.crawls import RunningCrawl
from weft.engine.halves import fused
from weft.engine.loop import Loop, Stop
from weft.engine.metrics import EngineMetrics
from weft.engine.progress import Progress
from weft.engine.results import Results
from weft.engine.revisits import Revisits
from weft.engine.robots import RobotsBook
from weft.engine.steps import crash_point
from weft.engine.suspects import Suspects
from weft.engine.verdict import RETRYABLE
from weft.errors import Busy, WeftError
from weft.fetch.client import Client
from weft.fetch.guard import Guard
from weft.frontier.admission import Rules
from weft.frontier.contract import CrawlLimits
from weft.frontier.embedded import EmbeddedFrontier
from weft.frontier.routing import Received, RoutedFrontier
from weft.records import Found, Reason, Row
from weft.store.pages import PageStore
from weft.store.query import Where
from weft.supervise.process import die_with_parent
from weft.telemetry import Log, Metrics, log_to_file

LOCK_WAIT_S = 5.0
MAY_SUCCEED = RETRYABLE | {Reason.ROBOTS_UNREACHABLE, Reason.BREAKER, Reason.RETRY_AFTER}
log = Log("weft.crawl.fetcher")


class Fetcher:
    """All parts of one embedded pod, opened and wired."""

    def __init__(self, order: Order, control: Control) -> None:
        config = order.config
        self._order = order
        self._control = control
        self.folder = CrawlFolder(config.store.data_dirs)
        slot, home = order.slot, self.folder.of_pod(order.pod)
        self.progress = _progress(self.folder, order)
        step = crash_point()
        self._frontier = _open_frontier(home, order)
        self._store = PageStore.open(
            self.folder.data_dirs,
            crawl_id=order.crawl_id,
            slot=slot.name,
            software=f"Weft/{__version__}",
            user_agent=config.fetch.user_agent(),
            keep=config.store.store,
            step=step,
        )
        self._suspects = Suspects(home)
        if self._suspects.died_on:
            log.error("a page killed its parser", item=self._suspects.died_on)
        crawl = self._open_crawl(config)
        self._client = Client(config.fetch, refusal=_refusal(config), handles=config.fetch.workers)
        book = RobotsBook(self._frontier, config.fetch.user_agent())
        self._metrics = EngineMetrics(Metrics(self.folder.metrics, slot), config.log.metrics_update_s)
        results = fused(
            self._frontier, self._store, {crawl.number: crawl}, book, self._suspects, config.politeness, config.fetch,
            self._metrics,
        )  # fmt: skip
        self._committer = Committer(self._frontier, self._store, step)
        self._exchange: Exchange | None = None
        until = None if order.until is None else time.monotonic() + order.until - time.time()
        self.loop = Loop(
            self._frontier, self._client, results, book, self._committer, {crawl.number: crawl}, self.progress,
            self._suspects, self._metrics, owner=slot.name, step=step, until=until,
            by_address=config.politeness.key_scope == "ip", chores=self._chores(crawl, results),
            ends_alone=order.pods == 1,
        )  # fmt: skip

    def _chores(self, crawl: RunningCrawl, results: Results) -> list[Callable[[float], None]]:
        """What a pod among several does between its pages."""
        order, frontier = self._order, self._frontier
        if not isinstance(frontier, RoutedFrontier):
            return []

        def take(received: Received) -> None:
            for _, url in received.scopes:
                crawl.rules.extend(url)
            for _, count, admission in received.admissions:
                crawl.count(count, admission)
                if admission.expand:
                    results.round.expand(crawl, admission.expand)

        def heed(_now: float) -> None:
            if (reason := self._control.reason()) is not None:
                self.loop.drain(Stop(reason))

        metrics, outbox = self._metrics, frontier.outbox
        self._exchange = Exchange(
            self.folder.of_pod, frontier, order.pod, order.pods, order.crawl_id, take, metrics.crossed
        )
        metrics.before_save.append(lambda: metrics.waiting(outbox.waiting))
        chores: list[Callable[[float], None]] = [self._exchange, heed]
        if order.config.limits.max_pages is not None:
            permits = Permits.of(self.folder)
            chores.append(PermitChore(permits, frontier, crawl.number, order.pod, order.pods))
        return chores

    def _open_crawl(self, config: Config) -> RunningCrawl:
        limits = CrawlLimits(config.limits.max_pages, config.limits.max_pages_per_domain, config.scope.max_depth)
        frontier, store = self._frontier, self._store
        number = frontier.open_crawl("crawl", limits)
        own = f"pod{self._order.pod}-"
        stats = store.stats(0, own)
        self.progress.status.pages = self.progress.status.pages_at_start = stats.pages
        self.progress.status.body_bytes = stats.body_bytes
        by_key: Counter[str] = Counter()
        if limits.max_pages_per_domain is not None:
            for host, pages in store.stats(sys.maxsize, own).hosts:
                by_key[frontier.key_of(f"http://{host}/")] += pages
        frontier.recover(store.items_since(frontier.acknowledged), {number: stats.pages}, by_key)
        seeds = self.folder.seeds()
        year = datetime.now(UTC).year
        rules = Rules(config.scope, seeds, this_year=year, extensions=frontier.scope_extensions(number))
        crawl = RunningCrawl(number, rules, config.scope, config.fetch, frontier, self.progress, seeds)
        admitted = []
        owns = frontier.owns if isinstance(frontier, RoutedFrontier) else lambda _: True
        for seed in filter(owns, map(rules.rewritten, seeds)):
            reason = rules.refusal(seed, 0, is_link=False, included=True)
            if reason is None:
                admitted.append(Found(seed, 0))
            else:
                self.progress.refused[reason] += 1
        frontier.admit(number, admitted)
        for row in [*store.repair(), *(_failed(store) if config.run.retry_failed else ())]:
            # A power cut took these pages' bytes, or they failed: their URLs come in again under a new number.
            if owns(row.url):
                frontier.readmit(number, Found(row.url, row.depth, row.parent))
        if config.run.recrawl:
            known = (found for found in _first_pages(store) if owns(found.url))
            frontier.recrawl(number, self._order.run, known, partial(self.folder.begin_recrawl, self._order.pod))
        if frontier.is_recrawled(number):
            crawl.revisits = Revisits(store)
        frontier.commit()
        return crawl

    def run(self) -> int:
        """Crawls; gives the exit code."""
        self.progress.write("running")
        reason = self.loop.run()
        self._client.close()
        if self._exchange is not None:
            self._exchange.close()
        self._committer.close()
        self._store.close()
        stats = self._frontier.stats()
        self.progress.status.queued, self.progress.status.in_flight = stats.queued, 0
        self._metrics.update(self.progress, stats, 0, now=True)
        self._frontier.close()
        self._suspects.close()
        code = EXIT_CODES[reason]
        self.progress.write(STATES[code], str(reason))
        log.info("ended", reason=str(reason), pages=self.progress.status.pages)
        return code


def main(fd: int) -> int:
    """Reads the order and carries it out."""
    order = read_order(fd)
    die_with_parent(order.parent_pid)
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))  # the usual 1024 are few for many connections
    folder = CrawlFolder(order.config.store.data_dirs)
    log_to_file(Path(order.config.log.log_dir), order.slot, order.config.log.log_level)
    try:
        fetcher = Fetcher(order, Control(fd))
        signal.signal(signal.SIGTERM, lambda *_: fetcher.loop.drain())
        return fetcher.run()
    except WeftError as error:
        log.error("stopped", error=error)
        _progress(folder, order).write("failed", str(error))
        return error.exit_code
    except Exception as error:
        log.error("crashed", exc_info=True)
        _progress(folder, order).write("failed", f"{type(error).__name__}: {error}")
        return 70


def _progress(folder: CrawlFolder, order: Order) -> Progress:
    path = folder.status_of(order.slot)
    path.parent.mkdir(exist_ok=True)
    return Progress(path, os.getpid())


def _open_frontier(folder: Path, order: Order) -> EmbeddedFrontier:
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


def _refusal(config: Config) -> Callable[[str], str | None]:
    """What the client asks of every address before it connects; without an email it stays on this machine."""
    guard = Guard(config.fetch.allow_private)
    if config.fetch.email:
        return guard.check

    def check(address: str) -> str | None:
        why = guard.check(address)
        return why or (None if is_loopback(address) else "beyond loopback, which needs --email")

    return check


if __name__ == "__main__":
    sys.exit(main(sys.stdin.fileno()))
