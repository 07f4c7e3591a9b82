"""A crawl as a service: `weft crawl` with a configuration file, which a supervisor keeps running until it has
finished.

A start continues the crawl in the data dir, if there is one. Health means progress: the orchestrator monitors its own
processes, and the crawl's status must change. A crawl that has ended by itself is done, and not restarted; any other
end is a crash.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import disk_usage

from weft.config import load
from weft.crawl.folder import CrawlFolder
from weft.crawl.processes.ends import EXIT_BAD_USE, EXIT_CODES, EXIT_NOTHING
from weft.crawl.processes.logs import orchestrator_slot
from weft.engine.loop.progress import read_status
from weft.engine.loop.stop import Stop
from weft.errors import BadInput
from weft.supervise.child import RestartPolicy
from weft.supervise.process import Exit
from weft.supervise.service import (
    Command,
    ExitMeaning,
    HealthCheck,
    HealthReport,
    Moving,
    Service,
    ServiceHealth,
    touched,
)

LATE_AFTER_S = 10.0  # without a change of its status for this long it is unhealthy
STUCK_S = 90.0  # and is replaced: its orchestrator replaces a process that hangs after 30 s
LEAST_ROOM_BYTES = 1 << 20  # with less its status cannot be written, and it waits for disk space
CRAWL_RESTARTS = RestartPolicy(max_delay_s=10.0, start_timeout_s=300.0, health_forgives=True, stop_grace_s=30.0)
DONE_EXIT_CODES = frozenset({EXIT_NOTHING, *EXIT_CODES.values()} - {EXIT_CODES[Stop.INTERRUPTED]})
DONE_STATES = ("finished", "limit", "cancelled")
_SERVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")


class DeclaredCrawl:
    """One crawl of the configuration; raises what is wrong with its file."""

    def __init__(self, file: str) -> None:
        self.file = Path(file).resolve()
        if not _SERVICE_NAME.fullmatch(self.file.stem):
            raise BadInput(f"crawls: {file}: name the file with letters, digits, `-` and `_`: the service has its name")
        self.name = f"crawl-{self.file.stem}"
        config = load(self.file, service_environment(), is_judged=False).config
        if config.scope.seed_file is None:
            raise BadInput(f"crawls: {file}: has no seeds; set `seed_file` in it")
        self.folder = CrawlFolder([Path(one).resolve() for one in config.store.data_dirs])
        self.logs = (orchestrator_slot(config.pods.here).log_path(Path(config.log.log_dir)),)

    def service(self, environment: Mapping[str, str]) -> Service:
        """The supervised service; does nothing if the crawl has ended already."""

        def command() -> Command:
            argv = [sys.executable, "-m", "weft.crawl.processes.supervised", str(os.getpid()), str(self.file)]
            argv += map(str, self.folder.data_dirs)
            return Command(argv, quiet=True, keeps_words=True)

        service = Service(
            self.name, command, health=self._make_health_check(), policy=CRAWL_RESTARTS,
            judge=self._judge_exit, environment=environment,
            ending=self._ending_progress,
        )  # fmt: skip
        if self._is_done():
            service.be_done()
        return service

    def _is_done(self) -> bool:
        status = read_status(self.folder.status) if self.folder.exists() else None
        return status is not None and status.state in DONE_STATES

    def _judge_exit(self, how: Exit) -> ExitMeaning:
        if how.code in DONE_EXIT_CODES or (how.code is not None and self._is_done()):
            return ExitMeaning.DONE
        if how.code == EXIT_BAD_USE:
            return ExitMeaning.FINAL
        return ExitMeaning.HARMLESS if how.signal_name == "SIGKILL" else ExitMeaning.BY_TIME

    def _ending_progress(self) -> float:
        """A value that changes while the crawl makes progress with its end."""
        status = read_status(self.folder.status)
        return status.updated_at if status is not None and status.state == "draining" else 0.0

    def _make_health_check(self) -> HealthCheck:
        path = self.folder.status
        moving = Moving(lambda: touched(path), STUCK_S, must_move_first=True, late_s=LATE_AFTER_S)

        def health(pid: int) -> HealthReport:
            report = moving(pid)
            if report.health is ServiceHealth.HEALTHY:
                return report
            status = read_status(path)
            if status is not None and status.state == "starting":
                return HealthReport(ServiceHealth.LOADING, "it restores the crawl in its data dir")
            if report.health is ServiceHealth.UNHEALTHY and disk_usage(path.parent).free < LEAST_ROOM_BYTES:
                return HealthReport(ServiceHealth.FAILING, f"{path.parent}: the disk is full")
            return report

        return health


def service_environment() -> dict[str, str]:
    """The environment for the crawl's file, without settings: those are the service's, whose data dir is not the
    crawl's."""
    return {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}


def declared_crawls(files: Sequence[str]) -> list[DeclaredCrawl]:
    """The crawls of a configuration; refuses two with the same name or data dir."""
    crawls: list[DeclaredCrawl] = []
    for file in files:
        one = DeclaredCrawl(file)
        for other in crawls:
            if one.name == other.name:
                raise BadInput(f"crawls: {file}: there is a {one.file.stem} already; give the file another name")
            if set(one.folder.data_dirs) & set(other.folder.data_dirs):
                raise BadInput(f"crawls: {file}: has the data dir of {other.file}; give it one of its own")
        crawls.append(one)
    return crawls
