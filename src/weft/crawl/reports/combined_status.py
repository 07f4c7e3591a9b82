"""The status of a crawl of several processes: combines their status files into the crawl's own.

A single process writes the crawl's file itself; several write one each (`status/pod0-fetcher1.json`), and the
orchestrator writes the combined one. Counts of processes are added; values that a pod's processes share count once. At
the end the store decides: a process that was killed has committed more than it could report (`settle`).
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.crawl.folder import CrawlFolder
from weft.crawl.processes.process import CrawlProcess
from weft.engine.loop.progress import CrawlStatus, PodStatus, counts_of, failures_by_kind, read_status, write_status
from weft.errors import WeftError
from weft.frontier.contract import FrontierStats
from weft.store.pages import PageStore

WRITE_EVERY_S = 0.2
RATE_WINDOW_S = 10.0  # the period over which the displayed rate is computed, as in a single process
_LIVE_STATES = frozenset({"starting", "running", "draining", "paused"})  # states of a crawl that a process runs
_SUMMED_FIELDS = (
    "pages",
    "requests",
    "body_bytes",
    "items",
    "in_flight",
    "retries",
    "redirects",
    "shells",
    "rendered",
    "rendering_s",
    "parts",
)
_SHARED_FIELDS = ("queued", "sites", "seen", "admitted", "finished", "sent", "received")  # by all processes of a pod


class CombinedStatus:
    """The crawl's status, combined from those of its processes."""

    def __init__(self, path: Path, processes: Sequence[CrawlProcess]) -> None:
        self._path = path
        self._processes = processes
        earlier = read_status(path) or CrawlStatus()
        self._earlier_s = earlier.elapsed_s
        self._started_at = time.time()
        self._pages_at_start: dict[str, int] = {}
        self._last_report_of: dict[str, float] = {}
        self._rate_windows: dict[int, list[tuple[float, int]]] = {}
        self._next_at = 0.0
        self._is_over = False
        self.status = CrawlStatus(pid=os.getpid(), started_at=self._started_at, elapsed_s=self._earlier_s)

    def update(self) -> CrawlStatus:
        """Reads all files and writes the combined status, several times a second."""
        if self._is_over or time.monotonic() < self._next_at:
            return self.status
        self._next_at = time.monotonic() + WRITE_EVERY_S
        reports = [(process, process.status()) for process in self._processes]
        self.status = self._combine_reports(reports)
        write_status(self._path, self.status)
        return self.status

    def end(self, state: str, note: str, folder: CrawlFolder, pods: Mapping[int, FrontierStats]) -> None:
        """Writes the final status after all processes have ended. `pods`: the counts of pods that answered."""
        self._is_over = True
        status = self.status = self._combine_reports([(process, process.status()) for process in self._processes])
        for pod in status.pods:
            pod.state = state
            if (stats := pods.get(pod.pod)) is not None:
                pod.queued, pod.sites = stats.queued + stats.leased + stats.to_parse, stats.sites
        if len(pods) == len(status.pods):
            for name in ("seen", "admitted", "finished"):
                setattr(status, name, sum(getattr(stats, name) for stats in pods.values()))
            status.queued, status.sites = sum(pod.queued for pod in status.pods), sum(pod.sites for pod in status.pods)
        _write_end(self._path, status, state, note, folder)

    def _combine_reports(self, reports: list[tuple[CrawlProcess, CrawlStatus]]) -> CrawlStatus:
        now = time.time()
        total = CrawlStatus(pid=os.getpid(), started_at=self._started_at, updated_at=now)
        total.elapsed_s = self._earlier_s + now - self._started_at
        for name in _SUMMED_FIELDS:
            setattr(total, name, sum(getattr(status, name) for _, status in reports))
        for kind in ("statuses", "errors", "refused", "repairs", "slowed"):
            counts: Counter[str] = Counter()
            for _, status in reports:
                counts.update(getattr(status, kind))
            setattr(total, kind, dict(counts))
        total.stop = next((status.stop for _, status in reports if status.stop), "")
        total.seeds = sum(status.seeds for _, status in reports)
        total.seeds_read = min((status.seeds_read for _, status in reports), default=1.0)
        total.matched = sorted({pattern for _, status in reports for pattern in status.matched})
        for process, status in reports:
            self._count_pages(total, process, status)
        pods = sorted({process.slot.pod for process, _ in reports})
        total.pods = [
            self._status_of_pod(pod, [pair for pair in reports if pair[0].slot.pod == pod], total, now) for pod in pods
        ]
        total.rate = sum(pod.rate for pod in total.pods)
        total.state, total.note = _combined_state([status for _, status in reports])
        fetching = [status for process, status in reports if process.slot.role == "fetcher"]
        total.waiting_for, total.waiting_until = _common_wait(fetching, total)
        return total

    def _count_pages(self, total: CrawlStatus, process: CrawlProcess, status: CrawlStatus) -> None:
        slot = process.slot.name
        if slot not in self._pages_at_start and status.pid == process.pid:
            self._pages_at_start[slot] = status.pages_at_start
        total.pages_at_start += self._pages_at_start.get(slot, status.pages)
        total.poisoned += status.poisoned
        if self._last_report_of.get(slot) != status.updated_at:
            self._last_report_of[slot] = status.updated_at
            total.recent += status.recent

    def _status_of_pod(
        self, pod: int, reports: list[tuple[CrawlProcess, CrawlStatus]], total: CrawlStatus, now: float
    ) -> PodStatus:
        statuses = [status for _, status in reports]
        latest = max(statuses, key=lambda status: status.reported_at)
        for name in _SHARED_FIELDS:
            setattr(total, name, getattr(total, name) + getattr(latest, name))
        pages = sum(status.pages for status in statuses)
        window = self._rate_windows[pod] = [*self._rate_windows.get(pod, []), (now, pages)][
            -int(RATE_WINDOW_S / WRITE_EVERY_S) :
        ]
        spent_s = now - window[0][0]
        return PodStatus(
            pod,
            pages=pages,
            requests=sum(status.requests for status in statuses),
            rate=max(0.0, (pages - window[0][1]) / spent_s) if spent_s else 0.0,
            queued=latest.queued,
            in_flight=sum(status.in_flight for status in statuses),
            sites=latest.sites,
            errors=sum(sum(status.errors.values()) for status in statuses),
            processes=sum(1 for process, _ in reports if process.pid),
            restarts=sum(max(0, process.starts - 1) for process, _ in reports),
            state=_combined_state(statuses)[0],
        )


def current_status(folder: CrawlFolder) -> CrawlStatus:
    """The current status of a crawl. A process that was killed could not write its end: then no process has the
    lock."""
    status = read_status(folder.status) or CrawlStatus()
    if status.state in _LIVE_STATES and not folder.is_held():
        status = read_status(folder.status) or status  # it may have ended just now
        if status.state in _LIVE_STATES:
            status.state, status.note, status.in_flight = "interrupted", "no process is running it", 0
            for pod in status.pods:
                pod.state = status.state
    return status


def begin_alone(path: Path) -> None:
    """Prepares the status file of a crawl of one process, which otherwise has the end of an earlier run until the first
    report."""
    status = read_status(path) or CrawlStatus()
    status.state, status.note = "starting", ""
    status.pid = status.orchestrator = os.getpid()
    status.live_pages = None
    write_status(path, status)


def end_alone(path: Path, state: str, note: str, folder: CrawlFolder) -> None:
    """Writes the final status of a single process, which may have been killed before it could do so."""
    status = read_status(path) or CrawlStatus()
    _write_end(path, status, state, status.note if status.state == state else note, folder)


def _write_end(path: Path, status: CrawlStatus, state: str, note: str, folder: CrawlFolder) -> None:
    status.state, status.note, status.in_flight = state, note, 0
    settle_counts(status, folder)
    write_status(path, status)


def settle_counts(status: CrawlStatus, folder: CrawlFolder) -> None:
    """Sets pages, bytes and statuses to those in the store, and errors to the last result of each URL."""
    try:
        store = PageStore.open(folder.data_dirs, read_only=True)
    except WeftError:
        return  # no index, or one that cannot be read: the counts remain
    try:
        held, current = store.stats(0), store.current()
        for pod in status.pods:
            pod.pages = store.stats(0, f"pod{pod.pod}-").pages
    except WeftError:
        return
    finally:
        store.abandon()
    statuses, _ = counts_of(held)
    status.pages, status.body_bytes, status.live_pages = held.pages, held.page_bytes, current.pages
    status.statuses, status.errors = dict(statuses), dict(failures_by_kind(current.kinds))


def _common_wait(statuses: Sequence[CrawlStatus], total: CrawlStatus) -> tuple[str, float | None]:
    """What the processes wait for, if all of them wait: the wait that ends first."""
    if (
        total.state != "running"
        or total.in_flight
        or any(status.queued and not status.waiting_for for status in statuses)
    ):
        return "", None
    waiting = [status for status in statuses if status.waiting_for]
    if not waiting:
        return "", None
    first = min(waiting, key=lambda status: math.inf if status.waiting_until is None else status.waiting_until)
    return first.waiting_for, first.waiting_until


def _combined_state(statuses: Sequence[CrawlStatus]) -> tuple[str, str]:
    """The combined state: paused with its reason, before draining, before running; and a note of one of them."""
    for state in ("failed", "paused", "draining", "running"):
        if notes := [status.note for status in statuses if status.state == state]:
            return state, next(filter(None, notes), "")
    return "starting", ""
