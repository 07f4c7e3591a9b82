"""One process of a crawl, through all its restarts: a supervised service, started with a spec and monitored by
heartbeats.

When to start, stop and kill it is decided by the service (supervise) and the orchestrator. The heartbeat and the page
that is being parsed are in a file of the slot; its progress is in its status file.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec

from weft.config import Config
from weft.crawl.processes.ends import EXIT_SERVER_AWAY
from weft.crawl.processes.process_spec import ProcessSpec
from weft.engine.loop.parser.suspects import read_heartbeat, steps_of
from weft.engine.loop.progress import CrawlStatus, read_status
from weft.supervise.child import Child, RestartPolicy
from weft.supervise.process import Exit
from weft.supervise.service import Command, ExitMeaning, Moving, Service
from weft.telemetry import Log, Slot

# A process drains for ten seconds, then writes its state, and reports progress meanwhile (engine/loop/long_work). What
# is in flight when it is killed is fetched again.
STOP_WITHIN_S = 20.0
# Python starts before the first heartbeat: on a busy machine that may take this many times longer than later pauses.
START_FACTOR = 4
PROCESS_RESTARTS = RestartPolicy(first_delay_s=0.2, max_failures=6, stop_grace_s=STOP_WITHIN_S)
log = Log("weft.crawl.processes.orchestrator")
_MODULES = {"fetcher": "weft.crawl.processes.fetcher", "parser": "weft.crawl.pods.parser"}  # by role


class CrawlProcess:
    """A slot, and the process that currently runs in it."""

    def __init__(self, spec: ProcessSpec, heartbeat_folder: Path, status: Path, *, stuck_s: float) -> None:
        self.slot: Slot = spec.slot
        self.starts = 0
        self._spec = spec
        self._heartbeat_folder = heartbeat_folder
        self._status = status
        self._work_done_before = 0  # requests and pages before this process was started
        self._began_at = 0.0
        self._service = Service(
            self.slot.name,
            self._make_command,
            health=Moving(lambda: read_heartbeat(heartbeat_folder), stuck_s, start_s=START_FACTOR * stuck_s),
            policy=PROCESS_RESTARTS,
            judge=self._judge_exit,
            on_start=self._on_start,
            ending=lambda: steps_of(heartbeat_folder),
        )

    @property
    def child(self) -> Child:
        """The supervised child process."""
        return self._service.child

    @property
    def pid(self) -> int:
        """The id of the running process; 0 if there is none."""
        return self._service.pid or 0

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, and is not to be restarted."""
        return self._service.has_ended

    def status(self) -> CrawlStatus:
        """Its last report."""
        return read_status(self._status) or CrawlStatus()

    def do_what_is_due(self) -> None:
        """Does what is due: start, request a stop, kill."""
        self._service.act()

    def check_exit(self) -> Exit | None:
        """How it has ended, if it has just ended; a process without progress is killed."""
        pid, how = self.pid, self._service.check()
        if how is not None:
            seconds = round(time.monotonic() - self._began_at, 3)
            log.info("process ended", process=self.slot.name, pid=pid, how=how, seconds=seconds)
        return how

    def stop(self, reason: str | None = None) -> None:
        """Requests its end: sends the reason on its standard input, or SIGTERM (interrupted) without one."""
        self._service.stop(None if reason is None else f"stop {reason}\n".encode())

    def follow(self, config: Config, changes: int) -> None:
        """Makes it read the crawl's folder again; a process started from now on has these settings."""
        self._spec = msgspec.structs.replace(self._spec, config=config, changes=changes)
        self._service.write(f"read {changes}\n".encode())

    @property
    def changes(self) -> int:
        """The number of folder changes that it has read; a process that is about to start reads all."""
        return self.status().changes if self.pid else self._spec.changes

    def allow_restart(self) -> None:
        """Allows a restart of a process that has ended."""
        self._service.allow_restart()

    def kill(self) -> None:
        """Kills it at once."""
        self._service.kill()

    def _make_command(self) -> Command:
        self._spec = msgspec.structs.replace(self._spec, incarnation=time.time_ns() // 1_000_000)
        # The last argument is only there for `ps`.
        argv = [sys.executable, "-m", _MODULES[self.slot.role], self.slot.name]
        return Command(argv, stdin=self._spec.framed())

    def _on_start(self, pid: int) -> None:
        self.starts += 1
        log.info(
            "process started" if self.starts == 1 else "process restarted",
            process=self.slot.name,
            pid=pid,
            core="any" if self._spec.core is None else self._spec.core,
            incarnation=self._spec.incarnation,
            failures=self.child.failures,
        )
        self._began_at = time.monotonic()
        self._work_done_before = self._count_work_done()

    def _judge_exit(self, how: Exit) -> ExitMeaning:
        """The meaning of an exit: a process that died is not part of a crash loop if it made progress, or a page
        killed it.

        A page kills a parser twice at most; after that it is stored unparsed.
        """
        was_of_use = read_heartbeat(self._heartbeat_folder)[1] > 0 or self._count_work_done() > self._work_done_before
        return ExitMeaning.HARMLESS if how.code == EXIT_SERVER_AWAY or was_of_use else ExitMeaning.BY_TIME

    def _count_work_done(self) -> int:
        status = self.status()
        return status.requests + status.pages
