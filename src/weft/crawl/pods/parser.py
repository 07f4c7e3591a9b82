"""The parser process of a pod: opens and wires its parts. It may be killed at any moment, and continues after a
restart.

A page that killed it is reported to the frontier before its other pages go back to the queue, so that the next parser
can avoid it.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Collection, Sequence

if __name__ == "__main__":
    gc.disable()  # imports leave no garbage; searching for it would take a tenth of the start-up time

from weft.config import Config
from weft.crawl.folder import CrawlFolder
from weft.crawl.pods.redis_process import open_frontier, record_outbox_metrics, shared_periodic_tasks
from weft.crawl.processes.child import GuardedStart, progress_of, run_child
from weft.crawl.processes.following import FolderChanges
from weft.crawl.processes.process_spec import ControlInput, ProcessSpec
from weft.crawl.seeds.feeding import learn_scope
from weft.engine.admission.rules import AdmissionRules
from weft.engine.assembly import PeriodicTask, Reading
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.folder import CRAWL_SUFFIX
from weft.engine.loop.long_work import LongWork
from weft.engine.loop.parser.suspects import Heartbeat, pop_suspect
from weft.engine.loop.progress import CrawlProgress
from weft.engine.recovery import readmit_lost_links, resume_crawl
from weft.frontier.contract import SharedFrontier
from weft.frontier.redis.connection import server_addresses
from weft.telemetry import Log, Peer, Slot

log = Log("weft.crawl.pods.parser")


class Parser:
    """One parser process. `frontier` accepts links for any pod, and has this pod's parse queue."""

    def __init__(
        self,
        config: Config,
        folder: CrawlFolder,
        crawl_id: str,
        slot: Slot,
        frontier: SharedFrontier,
        progress: CrawlProgress,
        work: LongWork,
        *,
        at_a_time: int,
        redis: Collection[Peer] = (),
        periodic_tasks: Callable[[Parser], Sequence[PeriodicTask]] = lambda _: (),
    ) -> None:
        self.progress = progress
        if suspect := pop_suspect(work.heartbeat.folder):
            log.error("a page killed its parser", item=suspect, deaths=frontier.parse_queue.died_on(suspect))
        self._parts = parts = Reading(
            frontier, config, slot, progress, corpus_id=crawl_id, data_dirs=folder.data_dirs, work=work,
            metrics=folder.metrics, peers=redis, spool=folder.spool_folder(slot.pod),
        )  # fmt: skip

        def restore_links(crawl: RunningCrawl) -> None:
            progress.count_repair("links_read_again", readmit_lost_links(frontier, parts.store, crawl, work))

        def learn(rules: AdmissionRules) -> None:
            if config.scope.scope != "any":
                learn_scope(rules, folder, progress, work)

        self.seeds = folder.seeds()
        self.crawl = resume_crawl(parts, frontier, CRAWL_SUFFIX, self.seeds, restore_links, learn_scope=learn)
        self.metrics, self.round = parts.metrics, parts.round
        self.loop = parts.start(at_a_time, periodic_tasks(self))

    def run(self) -> None:
        """Parses until the loop is drained; everything done is on disk then."""
        self.progress.write("running")
        self.loop.run()
        self._parts.close()
        log.info("ended", pages=self.progress.status.pages, errors=sum(self.progress.errors.values()))


def parse(spec: ProcessSpec, control: ControlInput) -> int:
    """Runs a parser process by its spec."""
    folder, progress = CrawlFolder(spec.config.store.data_dirs), progress_of(spec)
    start = GuardedStart(spec, control)
    work = LongWork(Heartbeat(folder.heartbeat_folder(spec.slot)), progress)
    work.begin("opening the frontier")
    frontier = open_frontier(spec, folder, progress, work)

    def periodic_tasks(parser: Parser) -> Sequence[PeriodicTask]:
        following = FolderChanges(
            folder,
            spec.config,
            control,
            frontier,
            parser.crawl,
            progress,
            parser.seeds,
            drain=lambda _: parser.loop.drain(),
        )
        record_outbox_metrics(frontier, parser.metrics)
        return [following, *shared_periodic_tasks(spec, frontier, parser.crawl, parser.round.expand)]

    parser = Parser(
        spec.config, folder, spec.crawl_id, spec.slot, frontier, progress, work,
        at_a_time=spec.config.pods.parser_workers, redis=server_addresses(spec.servers), periodic_tasks=periodic_tasks,
    )  # fmt: skip
    start.end_guard()
    signal.signal(signal.SIGTERM, lambda *_: parser.loop.drain())
    parser.run()
    progress.write("finished")
    return 0


if __name__ == "__main__":
    sys.exit(run_child(parse))
