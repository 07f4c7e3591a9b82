"""The parts of a process that fetches or parses, over any frontier: opened and closed in one order for all products.

An engine with many crawls, the fetcher of `weft crawl` and the parser of a pod differ in their frontier, in their
crawls and in what they do between pages; not in their parts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from weft import __version__
from weft.bodies import Spool
from weft.config import Config
from weft.engine.loop.commit import Committer
from weft.engine.loop.fetcher.fetch_loop import Loop
from weft.engine.loop.fetcher.flight import FlightControl, most_in_flight
from weft.engine.loop.long_work import LongWork
from weft.engine.loop.loop_parts import handler_that_hands_over, handler_that_parses, make_parsers, parser_half
from weft.engine.loop.metrics import EngineMetrics
from weft.engine.loop.parser.handoff import HandoffParts
from weft.engine.loop.parser.parser_loop import ParserLoop
from weft.engine.loop.parser.spool import SegmentSweeper, SpoolReader
from weft.engine.loop.parser.suspects import Suspects
from weft.engine.loop.progress import CrawlProgress
from weft.engine.loop.steps import crash_point
from weft.engine.parsing.parsers import Parsers
from weft.engine.transports.browsers import Browsers
from weft.engine.transports.hands import Hands
from weft.engine.transports.transports import ClientFactory, Transports
from weft.errors import Busy
from weft.frontier.contract import Frontier, SharedFrontier
from weft.store.pages import PageStore
from weft.telemetry import Metrics, Peer, Slot

LOCK_WAIT_S = 20.0
CHECK_EVERY_S = 0.2  # The interval between two checks of a few rows of the index, which take about a hundredth of it.
PeriodicTask = Callable[[float], None]  # runs between pages, with the current time
T = TypeVar("T")


class Parts:
    """What every such process has: the store, the crawls by number, the suspects (pages that kill) and the metrics."""

    def __init__(
        self,
        frontier: Frontier,
        config: Config,
        slot: Slot,
        progress: CrawlProgress,
        *,
        corpus_id: str,
        data_dirs: Sequence[Path],
        work: LongWork,
        metrics: Path,
        peers: Collection[Peer] = (),
    ) -> None:
        """`metrics` is a folder."""
        self.work = work
        work.begin("opening the store")
        self.config = config
        self.folder = data_dirs[0]
        self.slot = slot
        self.progress = progress
        self.step = crash_point()
        open_store = partial(
            PageStore.open,
            data_dirs,
            crawl_id=corpus_id,
            slot=slot.name,
            software=f"Weft/{__version__}",
            user_agent=config.fetch.user_agent(),
            keep=config.store.store,
            acknowledged=frontier.durability.acknowledged,
            is_done=frontier.durability.knows_finished(),
            step=self.step,
            alive=work,
        )
        self.store = retry_while_locked(open_store)
        self._check, self._next_check = self.store.verify(), 0.0
        self.suspects = Suspects(work.heartbeat, died_with_its_starter=progress.is_new_run)
        self.metrics = EngineMetrics(Metrics(metrics, slot, peers), config.log.metrics_update_s)
        self.crawls: dict[int, Any] = {}  # RunningCrawl, or a product's own subclass
        self._opened: Frontier = frontier

    def check_rows(self, at_most: int) -> None:
        """Checks the next rows of the index; DamagedIndex where one differs from what was written."""
        self.work.begin("checking the index", at_most)
        while at_most > 0 and (checked := next(self._check, 0)):
            self.work(checked)
            at_most -= checked

    def _check_more_rows(self, now: float) -> None:
        """Checks the index in small pieces between pages, so that no start waits for it, whatever its size."""
        if now >= self._next_check:
            self._next_check = now + CHECK_EVERY_S
            next(self._check, 0)

    def _close_frontier(self) -> None:
        """The last step of closing: what was stored is on the disk, and the frontier has been notified."""
        self.work.begin("closing the queue", state="draining")
        stats = self._opened.status.stats()
        self.progress.record_final_stats(stats)
        self.metrics.save_if_due(self.progress, stats, 0, now=True)
        self._opened.close()
        self.suspects.close()


def retry_while_locked(open_it: Callable[[], T]) -> T:
    """Opens a resource that a process locks. A process that is being killed holds the lock until its last write is on
    the disk.
    """
    until = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            return open_it()
        except Busy:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


class Fetching(Parts):
    """A process that fetches; it also parses, unless it has an outlet to parsers."""

    committer: Committer
    loop: Loop
    parsers: Parsers  # where pages are parsed

    def __init__(
        self,
        frontier: Frontier,
        *args: Any,
        outlet: HandoffParts | None = None,
        loading: Callable[[], bytes] | None = None,
        is_alone: bool = True,
        **kwargs: Any,
    ) -> None:
        """`loading`: what a parser child is sent of the user's code. `is_alone`: its one crawl may end it."""
        super().__init__(frontier, *args, **kwargs)
        most = most_in_flight(self.config.fetch.workers)
        # The spool's files are created where the pages are stored: they are unnamed, and that disk must have room
        # anyway.
        self.bodies = Spool(self.config.fetch.body_memory_bytes, self.folder)
        self.browsers = Browsers(self.config.fetch, self.folder / self.slot.name, self.crawls, frontier)
        self.hands = Hands(self.config.cluster, self.folder, self.slot.name, self.crawls, is_alone=is_alone)
        clients = ClientFactory(most, self.bodies, self.config.proxy, self.folder, self.browsers, self.hands)
        self.transports = Transports(clients, most)
        self._held_up = lambda now: clients.held_up(now) or self.browsers.unusable
        self._flight = FlightControl(most)
        self.metrics.before_save.append(lambda: self.metrics.record_lookups(self.transports.lookups()))
        self.metrics.before_save.append(lambda: self.metrics.record_body_memory(self.bodies))
        self.metrics.before_save.append(lambda: self.metrics.record_proxies(clients.counts(time.monotonic())))
        self.metrics.before_save.append(lambda: self.metrics.record_browsers(self.browsers.report))
        self.outlet = outlet
        store, crawls = self.store, self.crawls
        if outlet is not None:
            self.results = handler_that_hands_over(frontier, store, crawls, self.metrics, outlet.handoff)
        else:
            parsers, sends_all = make_parsers(self.config, loading)
            self.parsers = parsers
            self.results = handler_that_parses(
                frontier, store, crawls, self.suspects, self.metrics, parsers, sends_all=sends_all
            )

    def start(self, owner: str, periodic_tasks: Sequence[PeriodicTask] = (), **how: Any) -> Loop:
        """Starts the loop, once crawls are recovered; for the other arguments see `Loop`."""
        self.work.end()
        outlet, frontier = self.outlet, self._opened
        self.committer = Committer(frontier, self.store, self.step, outlet.spool.sync if outlet else lambda: None)
        self.loop = Loop(
            frontier, self.transports, self.results, self.committer, self.crawls, self.progress, self.suspects,
            self.metrics, owner=owner, step=self.step, flight=self._flight, held_up=self._held_up,
            periodic_tasks=[*periodic_tasks, self._check_more_rows, self.browsers.poll],
            by_address=self.config.politeness.key_scope == "ip", pressure=outlet.pressure if outlet else None,
            hands=self.hands, **how,
        )  # fmt: skip
        return self.loop

    def close(self) -> None:
        """Closes the parts after the loop has ended."""
        self.work.begin("storing the last pages", state="draining")
        self.transports.close_all()
        self.hands.close()
        self.browsers.close()
        self.results.close()
        self.committer.close()
        if self.outlet is not None:
            self.outlet.spool.close()
        self.store.close()
        self._close_frontier()


class Reading(Parts):
    """A process that parses what the fetchers of its pod have spooled."""

    def __init__(self, frontier: SharedFrontier, *args: Any, spool: Path, **kwargs: Any) -> None:
        super().__init__(frontier, *args, **kwargs)
        self._frontier = frontier
        self._reader = SpoolReader(spool)
        self._sweeper = SegmentSweeper(spool, frontier.parse_queue.awaited)
        parsers, _ = make_parsers(self.config)
        self.round, self._parsing = parser_half(
            frontier, self.store, self.crawls, self.suspects, self.metrics, parsers, sends_all=False
        )

    def start(self, at_a_time: int, periodic_tasks: Sequence[PeriodicTask] = ()) -> ParserLoop:
        """Starts the loop, once crawls are recovered."""
        self.work.end()
        self._committer = Committer(self._frontier, self.store, self.step)
        return ParserLoop(
            self._frontier, self._reader, self.round, self._parsing, self._committer, self.crawls,
            self.progress, self.suspects, self.metrics, at_a_time=at_a_time, step=self.step,
            periodic_tasks=[*periodic_tasks, self._sweeper, self._check_more_rows],
        )  # fmt: skip

    def close(self) -> None:
        """Closes the parts after the loop has ended."""
        self._parsing.close()
        self.work.begin("storing the last pages", state="draining")
        self._committer.close()
        self.store.close()
        self._sweeper.sweep()
        self._reader.close()
        self._close_frontier()
