"""The parser process of a pod: its parts, opened and wired. It may be killed at any moment; started again, it goes on.

A page that killed it is told to the frontier before anything that it held goes back, so that the next parser knows.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

from weft import __version__
from weft.config import Config
from weft.crawl.child import progress_of, run_child
from weft.crawl.folder import CrawlFolder
from weft.crawl.opening import LINKS, Losing, queue_lost, read_lost
from weft.crawl.order import Control, ProcessOrder
from weft.crawl.pods.handoff import spool_of
from weft.crawl.pods.redis_process import open_frontier, shared_chores
from weft.engine.crawls import RunningCrawl
from weft.engine.limits import limits_of
from weft.engine.loop.commit import Committer
from weft.engine.loop.halves import reading
from weft.engine.loop.metrics import EngineMetrics
from weft.engine.loop.parser_loop import ParserLoop
from weft.engine.loop.progress import CrawlProgress
from weft.engine.loop.round import Round
from weft.engine.loop.spool import SpoolReader, Sweeper
from weft.engine.loop.steps import crash_point
from weft.engine.loop.suspects import Suspects, beat, take_suspect
from weft.frontier.admission import Rules
from weft.frontier.contract import CrawlLimits, ParseQueue
from weft.frontier.redis.connection import peers
from weft.store.pages import PageStore
from weft.telemetry import Log, Metrics, Peer, Slot

log = Log("weft.crawl.pods.parser")


class ParsersFrontier(Losing, ParseQueue, Protocol):
    """What a parser needs of its pod's frontier, or of a router before it."""

    acknowledged: int

    def open_crawl(self, name: str, limits: CrawlLimits) -> int: ...

    def recover(self, done: Sequence[int] = (), pages: dict[int, int] | None = None, *, batch: int = 0) -> int: ...

    def scope_extensions(self, crawl: int) -> list[str]: ...

    def close(self) -> None: ...


class Parser:
    """One parser. `frontier` takes links for any pod, and has this pod's parse queue; `pulse` is the slot's folder."""

    def __init__(
        self,
        config: Config,
        folder: CrawlFolder,
        crawl_id: str,
        slot: Slot,
        frontier: ParsersFrontier,
        progress: CrawlProgress,
        pulse: Path,
        *,
        at_a_time: int,
        redis: Collection[Peer] = (),
        chores: Callable[[Parser], Sequence[Callable[[float], None]]] = lambda _: (),
    ) -> None:
        self._step = step = crash_point()
        self._pulse = pulse
        self._frontier = frontier
        self.progress = progress
        if suspect := take_suspect(pulse):
            log.error("a page killed its parser", item=suspect, deaths=frontier.died_on(suspect))
        self._suspects = Suspects(pulse)
        self._store = PageStore.open(
            folder.data_dirs,
            crawl_id=crawl_id,
            slot=slot.name,
            software=f"Weft/{__version__}",
            user_agent=config.fetch.user_agent(),
            keep=config.store.store,
            secret_headers=config.fetch.headers,
            acknowledged=frontier.acknowledged,
            step=step,
        )
        crawl = self._open_crawl(config, folder, slot)
        self.metrics = EngineMetrics(Metrics(folder.metrics, slot, redis), config.log.metrics_update_s)
        crawls = {crawl.number: crawl}
        self._round, parsing = reading(frontier, self._store, crawls, self._suspects, self.metrics)
        self._committer = Committer(frontier, self._store, step)
        self.crawl = crawl
        spool = spool_of(folder.home, slot.pod)
        self._reader = SpoolReader(spool)
        self._sweeper = Sweeper(spool, frontier.awaited)
        self.loop = ParserLoop(
            frontier, frontier, self._reader, self._round, parsing, self._committer, crawls, progress, self._suspects,
            self.metrics, at_a_time=at_a_time, step=step, chores=[*chores(self), self._sweeper],
        )  # fmt: skip

    def _open_crawl(self, config: Config, folder: CrawlFolder, slot: Slot) -> RunningCrawl:
        frontier, store = self._frontier, self._store
        number = frontier.open_crawl("crawl", limits_of(config))
        stats = store.stats(0, slot.name + ".")
        self.progress.take_up(stats)
        frontier.recover(store.items_since(frontier.acknowledged), {number: stats.pages}, batch=store.durable)
        self.progress.repaired("lost_pages", queue_lost(frontier, store, number, slot, self._step))
        seeds, extensions = folder.seeds(), frontier.scope_extensions(number)
        rules = Rules(config.scope, seeds, this_year=datetime.now(UTC).year, extensions=extensions)
        crawl = RunningCrawl(
            number, rules, config.scope, config.fetch, frontier, self.progress, seeds, politeness=config.politeness
        )
        self.progress.repaired(LINKS, read_lost(frontier, store, crawl, partial(beat, self._pulse)))
        return crawl

    @property
    def round(self) -> Round:
        """Where links and ends are gathered."""
        return self._round

    def run(self) -> None:
        """Parses until the loop is drained; what it has done is safe then."""
        self.progress.write("running")
        self.loop.run()
        self._committer.close()
        self._store.close()
        self._sweeper.sweep()
        self._reader.close()
        stats = self._frontier.stats()
        self.progress.ends(stats)
        self.metrics.update(self.progress, stats, 0, now=True)
        self._frontier.close()
        self._suspects.close()
        log.info("ended", pages=self.progress.status.pages, errors=sum(self.progress.errors.values()))


def parse(order: ProcessOrder, control: Control) -> int:
    """Carries out an order."""
    folder, progress = CrawlFolder(order.config.store.data_dirs), progress_of(order)
    frontier = open_frontier(order, folder, progress)

    def chores(parser: Parser) -> Sequence[Callable[[float], None]]:
        def heed(_now: float) -> None:
            if control.reason() is not None:
                parser.loop.drain()

        metrics = parser.metrics
        frontier.crossed = metrics.crossed
        metrics.before_save.append(lambda: metrics.waiting(frontier.waiting))
        return [heed, *shared_chores(order, frontier, parser.crawl, parser.round.expand)]

    parser = Parser(
        order.config, folder, order.crawl_id, order.slot, frontier, progress, folder.pulse_of(order.slot),
        at_a_time=order.config.pods.parser_workers, redis=peers(order.servers), chores=chores,
    )  # fmt: skip
    signal.signal(signal.SIGTERM, lambda *_: parser.loop.drain())
    parser.run()
    progress.write("finished")
    return 0


if __name__ == "__main__":
    sys.exit(run_child(parse))
