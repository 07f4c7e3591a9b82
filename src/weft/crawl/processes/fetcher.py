"""The fetcher process: wires the parts together, runs the loop, and reports by its exit code how it ended.

An embedded pod has one fetcher, which does everything; a pod on Redis has several, which parse themselves or leave that
to parsers. SIGTERM drains it; the orchestrator may send another reason to end, or changes (`following`).
"""

from __future__ import annotations

import gc
import signal
import sys

if __name__ == "__main__":
    gc.disable()  # imports leave no garbage; searching for it would take a tenth of the start-up time

from weft.crawl.folder import CrawlFolder
from weft.crawl.items.failures import keep_closing
from weft.crawl.items.processing import ItemProcessing
from weft.crawl.pods.backend import backend_of
from weft.crawl.processes.child import GuardedStart, progress_of, run_child
from weft.crawl.processes.ends import EXIT_CODES, state_of
from weft.crawl.processes.following import FolderChanges
from weft.crawl.processes.opening import CrawlOpening
from weft.crawl.processes.process_spec import ControlInput, ProcessSpec
from weft.engine.assembly import Fetching
from weft.engine.loop.long_work import LongWork
from weft.engine.loop.parser.parsing import MOST_LOGGED
from weft.engine.loop.parser.suspects import Heartbeat
from weft.engine.loop.stop import BLOCKING, NOT_IN_LOG_STOPS, Stop
from weft.engine.user_code.calls import CLOSED, Call, CallResult, encode
from weft.engine.user_code.sources import loading_of
from weft.engine.user_code.starting import SpiderStart
from weft.telemetry import Log

log = Log("weft.crawl.processes.fetcher")


class Fetcher:
    """All parts of one fetcher, opened and wired."""

    def __init__(self, spec: ProcessSpec, control: ControlInput) -> None:
        folder, slot = CrawlFolder(spec.config.store.data_dirs), spec.slot
        start = GuardedStart(spec, control)
        self.progress = progress_of(spec)
        work = LongWork(Heartbeat(folder.heartbeat_folder(slot)), self.progress)
        work.begin("opening the frontier")
        self._backend = backend = backend_of(spec, folder, self.progress, work)
        self._parts = parts = Fetching(
            backend.frontier, spec.config, slot, self.progress, corpus_id=spec.crawl_id, data_dirs=folder.data_dirs,
            work=work, metrics=folder.metrics, peers=backend.peers, outlet=backend.outlet,
            loading=loading_of(spec.config, backend.frontier.notes),
        )  # fmt: skip
        if parts.suspects.died_on:
            log.error("a page killed its parser", item=parts.suspects.died_on)
        opening = CrawlOpening(spec, folder, backend, parts)
        crawl = opening.open()
        backend.await_seeds(parts.suspects.send_heartbeat)
        periodic_tasks = list(backend.periodic_tasks(parts, crawl))
        self._crawl, self._data_dirs = crawl, folder.data_dirs
        if crawl.spider is not None and spec.pod == 0:
            periodic_tasks.append(SpiderStart(crawl, crawl.spider, backend.frontier, parts.results.call_code))
        self._processing: ItemProcessing | None = None
        if crawl.spider is not None and crawl.spider.description.has_pipelines:
            self._processing = ItemProcessing(folder.data_dirs, parts.results.call_code, self.progress.status)
            periodic_tasks.append(self._processing)
        self._is_first = spec.pod == 0
        self._failed_again = failed_again = backend.failed_pages_task(parts, crawl)
        if failed_again is not None:
            periodic_tasks.append(failed_again)
        following = FolderChanges(
            folder, spec.config, control, backend.frontier, crawl, self.progress, opening.seeds,
            drain=lambda reason: self.loop.drain(reason), admit=opening.admit, has_edited=backend.apply_edit,
            read_more=failed_again.read_request if failed_again is not None else lambda: None,
        )  # fmt: skip
        start.end_guard()
        self._ends_alone = folder.is_one_process
        self.feed = opening.feed
        self.loop = parts.start(
            backend.owner,
            [*periodic_tasks, following, self._end_if_closed],
            why_over=self._stop_reason,
            ends_alone=self._ends_alone,
            gather_s=backend.gather_s,
            feed=self.feed,
        )

    def _end_if_closed(self, _now: float) -> None:
        """Ends the loop if the user's code has closed the crawl; with several processes the orchestrator does it."""
        if self.progress.status.stop and self._ends_alone:
            self.loop.drain(Stop.CLOSED)

    def _stop_reason(self) -> Stop | None:
        is_busy = self._failed_again is not None and self._failed_again.is_busy
        return None if is_busy else self._crawl.why_over()

    def run(self) -> int:
        """Crawls; returns the exit code."""
        self.progress.write("running")
        reason = self.loop.run()
        if self._processing is not None:
            self._processing.finish(self._wait_for_code, whole=reason not in (Stop.INTERRUPTED, Stop.CANCELLED))
        self._close_spider(reason)
        try:
            self._backend.close()
            self._parts.close()
        except BLOCKING as why:
            if reason not in NOT_IN_LOG_STOPS:
                raise
            log.warning("what could not be written is fetched again on resume", why=why)
        code = EXIT_CODES[reason]
        cause = self._crawl.pause_reason if reason is Stop.LOGIN_FAILED else ""
        self.progress.write(state_of(reason), cause or str(reason))
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

    def _close_spider(self, reason: Stop) -> None:
        """Calls the user code's `closed()`: the crawl has ended, or is interrupted."""
        spider = self._crawl.spider
        if spider is None or not spider.description.hears_end or not self._is_first:
            return
        results = list[CallResult]()
        self._parts.results.call_code(encode(Call(CLOSED, reason=str(reason))), results.append)
        while not results:
            self._wait_for_code()
        (result,) = results
        spider.keep_state(result)
        if result.printed:
            log.info("printed", text=result.printed[:MOST_LOGGED])
        if result.error:
            log.error("closed() of the spider failed", error=result.error, traceback=result.traceback)
        keep_closing(self._data_dirs, result)

    def _wait_for_code(self) -> None:
        """A moment, for the user's code, when the loop has ended."""
        self._parts.suspects.send_heartbeat()
        self._parts.results.wait_for_code()


def fetch(spec: ProcessSpec, control: ControlInput) -> int:
    """Runs a fetcher process by its spec."""
    fetcher = Fetcher(spec, control)
    signal.signal(signal.SIGTERM, lambda *_: fetcher.loop.drain())
    return fetcher.run()


if __name__ == "__main__":
    sys.exit(run_child(fetch))
