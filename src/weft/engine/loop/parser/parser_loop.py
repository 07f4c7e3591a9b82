"""The parser's loop: leases fetched pages from the frontier, reads them from the spool, parses, commits in groups.

It sleeps when there is nothing to lease, and leases in batches: links and ends of a batch are reported to the frontier
in one call each. `drain` continues until nothing waits any more or its time is over; the next process leases what is
left. A page whose entry cannot be read is fetched again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.loop.commit import Committer
from weft.engine.loop.fetcher.answer import EndedTransfer
from weft.engine.loop.fetcher.fetch_loop import COMMIT_EVERY_S, COMMIT_WHEN_IDLE_S, LONGEST_DRAIN_S, PROGRESS_EVERY_S
from weft.engine.loop.metrics import EngineMetrics
from weft.engine.loop.parser.parsing import MOST_PAGES_TOGETHER, Parsing
from weft.engine.loop.parser.spool import SpoolReader, UnreadableEntry
from weft.engine.loop.parser.suspects import Suspects
from weft.engine.loop.progress import CrawlProgress
from weft.engine.loop.round import Round
from weft.engine.loop.stop import BLOCKING
from weft.errors import WeftError
from weft.frontier.contract import End, FrontierStats, LeasedPage, SharedFrontier
from weft.telemetry import Log

CLAIM_EVERY_S = 0.02  # while fewer than a batch wait: one round trip per page would cost more than parsing it
LONGEST_IDLE_S = 0.05
log = Log("weft.engine.loop.parser.parser_loop")


class ParserLoop:
    """Parses pages until `drain` ends it."""

    def __init__(
        self,
        frontier: SharedFrontier,
        spool: SpoolReader,
        round_: Round,
        parsing: Parsing,
        committer: Committer,
        crawls: dict[int, RunningCrawl],
        progress: CrawlProgress,
        suspects: Suspects,
        metrics: EngineMetrics,
        *,
        at_a_time: int,
        step: Callable[[str], None],
        periodic_tasks: Sequence[Callable[[float], None]] = (),
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._queue, self._status = frontier.parse_queue, frontier.status
        self._spool = spool
        self._round = round_
        self._parsing = parsing
        self._committer = committer
        self._crawls = crawls
        self._progress = progress
        self._suspects = suspects
        self._metrics = metrics
        self._at_a_time = at_a_time
        self._step = step
        self._periodic_tasks = periodic_tasks
        self._clock = clock
        self._sleep = sleep
        self._drain_until: float | None = None
        self._next_commit = self._next_progress = 0.0
        self._blocked: WeftError | None = None
        self._stats = FrontierStats(0, 0, 0, 0, 0, 0, 0)
        self._parsing_now = 0  # pages leased in this round
        self._logs_debug = log.debugs

    def drain(self) -> None:
        """Ends the loop when nothing waits any more, or DRAIN_S seconds are over."""
        if self._drain_until is None:
            self._drain_until = self._clock() + LONGEST_DRAIN_S

    def run(self) -> None:
        """Runs until `drain` ends it."""
        while True:
            now = self._clock()
            self._suspects.send_heartbeat()
            self._run_periodic_tasks(now)
            taken = self._claim_pages() if self._blocked is None else []
            self._parsing_now = len(taken)
            for at in range(0, len(taken), MOST_PAGES_TOGETHER):
                self._parse_pages(taken[at : at + MOST_PAGES_TOGETHER])
            self._flush_round()
            self._commit_and_report_if_due(busy=bool(taken))
            if self._drain_until is not None and (not taken or self._clock() >= self._drain_until):
                break
            if len(taken) < self._at_a_time:
                self._sleep_when_idle(now, busy=bool(taken))
        self._commit_rows()

    def _run_periodic_tasks(self, now: float) -> None:
        try:
            for periodic_task in self._periodic_tasks:
                periodic_task(now)
        except BLOCKING as why:
            self._pause_until_unblocked(why)

    def _claim_pages(self) -> list[LeasedPage]:
        try:
            return self._queue.claim(self._at_a_time)
        except BLOCKING as why:
            self._pause_until_unblocked(why)
            return []

    def _parse_pages(self, pages: list[LeasedPage]) -> None:
        self._suspects.send_heartbeat()
        answers = [answer for page in pages if (answer := self._read_from_spool(page)) is not None]
        self._parsing.handle(answers)
        self._parsing.finish_all(self._suspects.send_heartbeat)
        for answer in answers:
            self._suspects.forget_page(answer.lease.item)
        if self._logs_debug:
            for answer in answers:
                log.debug("parsed", url=answer.lease.url, bytes=len(answer.result.body), depth=answer.lease.depth)

    def _read_from_spool(self, page: LeasedPage) -> EndedTransfer | None:
        lease = page.lease
        try:
            entry = self._spool.read(page.reference, lease.item)
            large = self._spool.read_large_body(page.reference, entry)
        except UnreadableEntry as why:
            log.warning("fetched again", url=lease.url, why=why)
            self._round.end_lease(lease, End.RETRY)
            return None
        self._step("taken")
        self._suspects.set_deaths(lease.item, page.deaths)
        return EndedTransfer(self._crawls[lease.crawl], lease, entry.result(lease.url, large), entry.asked_at)

    def _sleep_when_idle(self, began: float, *, busy: bool) -> None:
        self._sleep(max(0.0, (began + CLAIM_EVERY_S - self._clock()) if busy else LONGEST_IDLE_S))

    def _flush_round(self) -> None:
        if self._blocked is None:
            try:
                self._round.flush()
            except BLOCKING as why:
                self._pause_until_unblocked(why)

    def _commit_and_report_if_due(self, *, busy: bool) -> None:
        """Commits and reports when it is time."""
        now = self._clock()
        if now >= self._next_commit or (not busy and now >= self._next_commit - COMMIT_EVERY_S + COMMIT_WHEN_IDLE_S):
            self._commit_rows()
        if now >= self._next_progress:
            self._report_progress("draining" if self._drain_until is not None else "running")

    def _commit_rows(self) -> None:
        try:
            self._round.flush()
            self._committer.commit()
        except BLOCKING as why:
            self._pause_until_unblocked(why)
            return
        self._round.note_commit()
        if self._blocked is not None:
            log.info("going on", after=self._blocked)
            self._blocked = None
        self._next_commit = self._clock() + COMMIT_EVERY_S

    def _pause_until_unblocked(self, why: WeftError) -> None:
        if self._blocked is None:
            log.error("paused", why=why)
        self._blocked = why
        self._next_commit = self._clock() + 0.5
        self._report_progress("paused")

    def _report_progress(self, state: str) -> None:
        try:
            self._stats = self._status.stats()
            self._progress.status.reported_at = time.monotonic()
        except BLOCKING as away:
            self._blocked = self._blocked or away
        stats = self._stats
        self._progress.note_frontier(stats, 0)
        if self._blocked is not None:
            state = "paused"
        self._progress.write(state, str(self._blocked or ""))
        if self._blocked is None:
            self._metrics.save_if_due(self._progress, stats, self._parsing_now)
        self._next_progress = self._clock() + PROGRESS_EVERY_S
