"""Runs a crawl's processes: starts them, watches them, starts them again, stops them, and reports how it ended.

Pages are fetched and parsed in processes of their own, because a page may kill whoever parses it. One that dies is
started again and goes on; one that stands still (stuck in native code, where no timer reaches it) is killed first. A
crash loop that brings the crawl no step forward ends it with its reason. If this process is killed, the kernel kills
the others.

A process that is alone ends by itself. Of several none does, because the others may send it work: that all is done is
found out here (`termination`), and told to all. If one dies while they end, they are all started again, and it is found
out anew.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.config import Config
from weft.crawl.ends import BAD_USE, EXIT_CODES, FINAL, SERVER_AWAY, STATES
from weft.crawl.folder import CrawlFolder
from weft.crawl.logs import orchestrator_slot
from weft.crawl.order import ProcessOrder
from weft.crawl.pods.permits import Permits
from weft.crawl.pods.places import places
from weft.crawl.pods.termination import Termination
from weft.crawl.process import Process
from weft.crawl.reports.standing import Standing, begin_alone, end_alone
from weft.engine.loop.progress import CrawlStatus, ProgressLines, read_status
from weft.engine.loop.stop import UNWRITTEN, Stop
from weft.errors import WeftError
from weft.supervise.process import Exit, named
from weft.telemetry import Log

if TYPE_CHECKING:
    from weft.crawl.pods.redis_pods import RedisPods

STUCK_S = 30.0  # no heartbeat for so long: it is killed
LOOK_EVERY_S = 0.1
_NOTHING, _DRAINED, _AT_ONCE = range(3)
log = Log("weft.crawl.orchestrator")


class CrashLoop(WeftError):
    """A process dies again and again."""


class Orchestrator:
    """One crawl from start to end; `run` returns its exit code."""

    def __init__(
        self,
        config: Config,
        folder: CrawlFolder,
        crawl_id: str,
        *,
        pods: RedisPods | None = None,
        stuck_s: float = STUCK_S,
    ) -> None:
        self._config = config
        self._folder = folder
        self._pods = pods
        duration_s = config.limits.max_duration_s
        self._until = None if duration_s is None else time.time() + duration_s
        self._alone = folder.is_one_process
        if pods is not None:
            # A call to a server may take this long, and nothing beats meanwhile.
            stuck_s += config.redis.socket_timeout_s + config.redis.connect_timeout_s
        run, until = uuid.uuid4().hex, self._until if self._alone else None
        servers = tuple(pods.urls) if pods is not None else ()
        self._processes = [
            Process(
                ProcessOrder(
                    config, crawl_id, os.getpid(), run, until, slot.pod, slot.role, slot.index, config.pods.num_pods,
                    servers, core=core, started_at=time.time(),
                ),
                folder.pulse_of(slot), folder.status_of(slot), stuck_s=stuck_s,
            )
            for slot, core in places(config.pods)
        ]  # fmt: skip
        self._standing = None if self._alone else Standing(folder.status, self._processes)
        self._termination = Termination()
        self._permits = None
        if config.limits.max_pages is not None and not self._alone and pods is None:
            self._permits = Permits.of(folder)
        self._reason: Stop | None = None  # why it is ending
        self._again = False  # one died while they ended: it has not ended yet
        self._wanted = self._heeded = _NOTHING

    def run(self, watch: Callable[[CrawlStatus], None] = lambda _: None) -> int:
        """Until the crawl has ended; `watch` is shown the status a few times a second."""
        code: int | None = None
        lines = ProgressLines()
        try:
            if self._permits is not None:
                self._permits.begin(self._config.limits.max_pages or 0, self._folder.pages_by_pod())
            if self._config.pods.affinity:
                os.sched_setaffinity(0, {0})
            if self._alone:
                begin_alone(self._folder.status)
            with named(orchestrator_slot(self._config.pods.here).name):
                while True:
                    self._heed()
                    if self._pods is not None:
                        self._pods.look()
                    for process in self._processes:
                        process.act()
                    code = self._look()
                    if code is not None:
                        return code
                    status = self.status()
                    lines(status)
                    watch(status)
                    time.sleep(LOOK_EVERY_S)
        except WeftError as error:
            log.error("crawl failed", error=error)
            raise
        finally:
            for process in self._processes:
                process.kill()
            self._close_status(code)

    def _close_status(self, code: int | None) -> None:
        """How it ended, in the crawl's status and in the log."""
        state = "failed" if code is None else STATES.get(code, "failed")
        note = "" if code is None else str(self._reason or self._last_words())
        if self._standing is not None:
            self._standing.end(state, note, self._folder, self._pods.figures() if self._pods is not None else {})
        else:
            end_alone(self._folder.status, state, note, self._folder)
        status = self.status()
        log.info(
            "crawl ended",
            state=state,
            reason=status.note,
            pages=status.pages,
            seconds=round(status.elapsed_s, 3),
            queued=status.queued,
            errors=sum(status.errors.values()),
        )

    def stop(self, *, at_once: bool = False) -> None:
        """Lets the crawl end: drained, or at once. For signal handlers and other threads: `run` does it when it can."""
        self._wanted = max(self._wanted, _AT_ONCE if at_once else _DRAINED)

    def status(self) -> CrawlStatus:
        """How the crawl stands."""
        if self._standing is not None:
            return self._standing.update()
        return read_status(self._folder.status) or CrawlStatus()

    def _heed(self) -> None:
        """Carries out what `stop` has requested: not in `stop`, which may interrupt the start of a process."""
        if self._heeded == self._wanted:
            return
        self._heeded = self._wanted
        self._again = False
        self._end(Stop.INTERRUPTED)
        if self._wanted == _AT_ONCE:
            for process in self._processes:
                process.kill()

    def _end(self, reason: Stop) -> None:
        """All processes shall drain and end: fetchers first, and when they have, parsers."""
        message = "limit reached" if EXIT_CODES[reason] == EXIT_CODES[Stop.MAX_PAGES] else "stopping"
        log.info(message, reason=reason)
        self._reason = reason
        self._stop("fetcher")

    def _stop(self, role: str) -> None:
        for process in self._processes:
            if process.slot.role == role:
                process.stop(None if self._reason is Stop.INTERRUPTED else str(self._reason))

    def _have_ended(self, role: str) -> bool:
        return all(process.has_ended for process in self._processes if process.slot.role == role)

    def _look(self) -> int | None:
        """Sees how the processes do; gives the crawl's exit code when it has ended."""
        code: int | None = None
        for process in self._processes:
            how = process.look()
            if how is not None:
                code = self._ended(process, how)
                if code is not None and (self._alone or code == BAD_USE):
                    return code
        if self._reason is not None and self._have_ended("fetcher"):
            if self._have_ended("parser"):
                return self._all_ended()
            self._stop("parser")
        if not self._alone and self._reason is None:
            self._decide()
        return None

    def _ended(self, process: Process, how: Exit) -> int | None:
        """What one process's end means for the crawl: its exit code, or None if it is started again."""
        if how.code in FINAL and (self._alone or self._reason is not None or how.code == BAD_USE):
            return how.code
        if self._pods is not None:
            self._pods.died(process)
        if how.code == SERVER_AWAY and self._reason is None:
            return None
        message = "the parser died" if process.slot.role == "parser" else "the fetcher died"
        log.error(message, process=process.slot.name, how=str(how), failures=process.child.failures)
        if self._reason is not None:
            self._again = self._reason not in UNWRITTEN
            return None
        if process.child.looping:
            times = f"{message} {process.child.failures} times in a row"
            raise CrashLoop(f"{times} ({how}): {process.status().note or 'it left no message'}; see {self._logs}")
        return None

    def _all_ended(self) -> int | None:
        if self._again:
            self._again, self._reason, self._termination = False, None, Termination()
            for process in self._processes:
                process.begin_anew()
            return None
        return EXIT_CODES[self._reason or Stop.INTERRUPTED]

    def _decide(self) -> None:
        """Whether all is done, or the time is over."""
        if self._until is not None and time.time() >= self._until:
            self._end(Stop.MAX_DURATION)
            return
        if self._pods is not None:
            if (reason := self._pods.verdict()) is not None:
                self._end(reason)
            return
        reports = [process.status() for process in self._processes]
        if any(report.pid != process.pid for report, process in zip(reports, self._processes, strict=True)):
            return
        reason = self._termination.judge(reports)
        if reason is Stop.MAX_PAGES and self._permits is not None and self._permits.left():
            return  # one pod has given some back, and another will ask for them
        if reason is not None:
            self._end(reason)

    @property
    def _logs(self) -> str:
        return self._config.log.log_dir

    def _last_words(self) -> str:
        """Why it cannot go on: the note of a process that failed, else one left by an earlier run."""
        reports = sorted((process.status() for process in self._processes), key=lambda status: status.state != "failed")
        return next((status.note for status in reports if status.note), "")
