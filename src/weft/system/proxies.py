"""The proxies of a data dir, as the supervisor monitors them: refreshed in the background, counted, waited for, and
shown as a row among the services."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from weft.config import ServiceConfig
from weft.engine.transports.transports import proxy_refresh
from weft.errors import BadInput, Busy, WeftError
from weft.fetch.proxies import live
from weft.fetch.proxies.counts import ProxyCounts
from weft.fetch.proxies.pool import read_list, written_at
from weft.fetch.proxies.refresh import KIND, UNDER_WAY, RefreshJob, cut_off, is_under_way, last_job, new_id
from weft.jobs.crawls import proxies_of
from weft.jobs.reading.progress import ProgressKeys
from weft.system.celery import CeleryServices
from weft.system.state import ProxyRow
from weft.telemetry import Log

POLL_S = 0.05
TURN_S = 1.0
log = Log("weft.system.proxies")


class _FileCounts(msgspec.Struct, frozen=True):
    """The counts in a file of proxies, or why it cannot be read."""

    listed: int = 0
    usable: int = 0
    tested_at: str | None = None  # None: never tested
    problem: str = ""  # why the file cannot be read


class ProxyKeeping:
    """Its methods may be called from any thread."""

    def __init__(self, config: ServiceConfig, celery: Callable[[], CeleryServices | None] = lambda: None) -> None:
        """`celery`: the workers that test them, while there are some."""
        self._celery = celery
        self._is_closing = threading.Event()
        self._section, self._least = config.proxy, config.proxy.least
        self._refresh = proxy_refresh(config.fetch, config.proxy, Path(config.server.data_dir))
        self._can_test = config.proxy.test_url is not None and bool(self._refresh.sources)
        used = proxies_of(config)
        self._live_file = Path(used) if used else None
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._job_id = ""
        self._progress = ProgressKeys(Path(config.server.data_dir), config.jobs.retention_hours * 3600)
        self._noted: RefreshJob | None = None  # as last written to the store
        self._next_turn = 0.0
        self._seen: tuple[Path, int, _FileCounts] | None = None  # a file, its time of writing, and its content

    def trigger(self) -> str:
        """Begins a refresh; gives the id of its job, or that of the one that runs already."""
        if not self._can_test:
            raise BadInput("there are no proxies to refresh: set `proxies` or `proxy_sources`, and `proxy_test_url`")
        with self._mutex:
            if self._is_running():
                return self._job_id
            another = self.job()
            if another is not None and another.status in UNDER_WAY:
                self._begin_refresh(self._follow, another.job_id)
            else:
                self._begin_refresh(self._run_refresh, new_id())
            return self._job_id

    def _begin_refresh(self, work: Callable[[str], None], job_id: str) -> None:
        self._job_id, self._is_closing = job_id, threading.Event()
        self._thread = threading.Thread(target=work, args=(job_id,), name="proxy refresh", daemon=True)
        self._thread.start()

    def progress(self, job_id: str = "") -> dict[str, Any]:
        """The progress keys of a refresh, or of the last one: `proxy_refresh:ID:status` and others."""
        last = self.job() if not job_id else None
        job_id = job_id or (last.job_id if last is not None else "")
        return self._progress.get(KIND, job_id) if job_id else {}

    def count(self) -> int:
        """The number of proxies that were tested the last time."""
        return self._read_counts(self._refresh.live).listed

    def usable(self) -> int:
        """The number of proxies that have passed their last test."""
        return self._read_counts(self._refresh.live).usable

    def job(self) -> RefreshJob | None:
        """The last refresh, whichever process has done it."""
        return last_job(self._refresh.live)

    def wait(self, timeout_s: float | None) -> bool | None:
        """Whether there are enough; a refresh is begun first if there are not. None: the time was over."""
        if self.usable() >= self._least:
            return True
        until = None if timeout_s is None else time.monotonic() + timeout_s
        self.trigger()
        while self.usable() < self._least:
            with self._mutex:
                is_over = not self._is_running()
            if is_over:
                return self.usable() >= self._least
            if until is not None and time.monotonic() >= until:
                return None
            time.sleep(POLL_S)
        return True

    def close(self) -> None:
        """Ends the wait for workers."""
        self._is_closing.set()

    def turn(self) -> None:
        """To be called now and then: begins a refresh if too few are usable, or their test is old."""
        now = time.monotonic()
        if now < self._next_turn or not self._can_test:
            return
        self._next_turn = now + TURN_S
        written = written_at(self._refresh.live)
        age_s = math.inf if written is None else time.time() - written / 1e9
        if self._is_due(age_s):
            self._next_turn = now + max(TURN_S, self._section.pause_s)
            self.trigger()
        elif (job := self.job()) is not None and job != self._noted:  # of another process
            with self._mutex:
                if not self._is_running():
                    self._begin_refresh(self._follow, job.job_id)

    def _is_due(self, age_s: float) -> bool:
        """By age, or by scheduler where there is one; and when too few are usable."""
        if age_s >= self._section.pause_s and self.usable() < self._least:
            return True
        celery = self._celery()
        if celery is None or not celery.scheduler.healthy or not celery.worker.healthy:
            return age_s >= self._section.refresh_s
        return celery.wants_refresh() and age_s >= self._section.pause_s

    def counts(self) -> ProxyCounts | None:
        """The counts of proxies for metrics; None if the service has no proxies."""
        if self._live_file is None:
            return None
        counted, counts = self._read_counts(self._live_file), self._refresh.counts
        counts.listed, counts.usable = counted.listed, counted.usable
        return counts

    def row(self) -> ProxyRow | None:
        """The state of the proxies, with advice if there are too few; None: the service has none."""
        if self._live_file is None:
            return None
        counted, job = self._read_counts(self._live_file), self.job()
        is_untested = self._live_file != self._refresh.live
        least = 1 if is_untested else self._least
        is_testing = self._is_tested_now(counted, job)
        is_enough = counted.usable >= least
        word = "untested" if is_untested else "ready" if is_enough else "too few"
        return ProxyRow(
            name="proxies", state="testing" if is_testing else word, healthy=is_enough, usable=counted.usable,
            min_proxies=least, listed=counted.listed, tested_at=counted.tested_at, refresh=job,
            last_error=None if is_enough else self._problem_text(counted, least, job),
        )  # fmt: skip

    def _problem_text(self, counted: _FileCounts, least: int, job: RefreshJob | None) -> str:
        """The message about too few proxies, with the remedy."""
        what = counted.problem or f"{counted.usable:,} of {counted.listed:,} usable, {least:,} needed"
        if self._is_tested_now(counted, job):
            return f"{what}; they are being tested"
        if job is not None and job.error:
            what = f"{what}; the last test failed: {job.error}"
        if not self._can_test:
            return f"{what}: set `proxy_test_url`, or run `weft proxies refresh`"
        return f"{what}: add to `proxies`, or lower `min_proxies`; they are tested again by themselves"

    def _is_tested_now(self, counted: _FileCounts, job: RefreshJob | None) -> bool:
        """Whether a first test runs or is about to: proxies that were never tested are tested at the first `turn`."""
        if job is None:
            return self._can_test and counted.tested_at is None and not counted.problem
        return job.status in UNDER_WAY

    def _read_counts(self, path: Path) -> _FileCounts:
        """The counts of the file, cached until it changes: a row is requested every second, and a list may be long."""
        written = written_at(path)
        if written is None:
            return _FileCounts()
        if self._seen is None or self._seen[:2] != (path, written):
            self._seen = path, written, _count_file(path)
        return self._seen[2]

    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run_refresh(self, job_id: str) -> None:
        try:
            celery = self._celery()
            work = celery.refresh_work(self._refresh, self._is_closing) if celery is not None else None
            self._refresh.run(self._note_progress, job_id, work)
        except Busy:  # another process was first: its result is as good
            self._follow(job_id)
        except WeftError as error:
            log.warning("proxies could not be tested", why=error)
        finally:
            self._progress.close()

    def _follow(self, job_id: str) -> None:
        """Writes down how far another process's refresh is, until it has ended. A caller knows it by this id."""
        try:
            is_over = False
            while not is_over:
                is_over = not is_under_way(self._refresh.live)  # asked first: what is read then is how it has ended
                if (job := self.job()) is not None:
                    self._note_progress(msgspec.structs.replace(job, job_id=job_id), job)
                time.sleep(0 if is_over else 10 * POLL_S)
        finally:
            self._progress.close()

    def _note_progress(self, job: RefreshJob, seen: RefreshJob | None = None) -> None:
        if (seen or job) != self._noted:
            self._noted = seen or job
            self._progress.put(KIND, job.job_id, job.progress)


def unattended(row: ProxyRow) -> ProxyRow:
    """The row of the proxies while no supervisor answers: their last known state."""
    refresh = row.refresh and cut_off(row.refresh)
    why = "no supervisor monitors them: start one with `weft up`"
    return msgspec.structs.replace(row, state="stopped", healthy=False, last_error=why, refresh=refresh)


def _count_file(path: Path) -> _FileCounts:
    try:
        if not live.is_live_file(path):
            listed = len(read_list(path).proxies)
            return _FileCounts(listed, listed)
        file_state = live.read(path)
    except BadInput as error:
        log.warning("proxies cannot be read", why=error)
        return _FileCounts(problem=str(error))
    return (
        _FileCounts()
        if file_state is None
        else _FileCounts(file_state.tested, len(file_state.proxies), file_state.tested_at or None)
    )
