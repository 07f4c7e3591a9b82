"""How a crawl stands: counted by the engine, written to a small file that displays, `weft watch` and tests read.

The file is replaced as a whole, twice a second at most; reading it costs the crawl nothing.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import msgspec

from weft.records import Row

UNSTORED = frozenset({"noindex", "too_large"})  # errors of responses that are counted, and not kept


class PodStatus(msgspec.Struct):
    """One pod among several."""

    pod: int
    pages: int = 0
    requests: int = 0
    rate: float = 0.0
    queued: int = 0
    in_flight: int = 0
    sites: int = 0
    errors: int = 0
    processes: int = 0
    restarts: int = 0
    state: str = "starting"


class Status(msgspec.Struct):
    """What the file holds. Times are of the wall clock; counts are of the whole crawl, over all its runs."""

    state: str = "starting"  # starting, running, draining, paused, finished, limit, interrupted, failed
    note: str = ""
    pid: int = 0
    started_at: float = 0.0
    updated_at: float = 0.0
    elapsed_s: float = 0.0
    pages: int = 0
    pages_at_start: int = 0
    requests: int = 0
    body_bytes: int = 0
    queued: int = 0
    in_flight: int = 0
    sites: int = 0
    seen: int = 0
    rate: float = 0.0
    statuses: dict[str, int] = {}
    errors: dict[str, int] = {}
    refused: dict[str, int] = {}
    retries: int = 0
    redirects: int = 0
    recent: list[str] = []
    poisoned: list[str] = []
    # Of one process of several, for whoever decides that the crawl is over: counts that only grow, but for a crash.
    idle: str = ""  # why it has nothing to do
    told_at: float = 0.0  # when that was so, by the machine's monotonic clock
    admitted: int = 0
    finished: int = 0
    sent: int = 0
    received: int = 0
    pods: list[PodStatus] = []  # of a crawl of several pods


class Progress:
    """Counts, and writes them down."""

    def __init__(self, path: Path, pid: int) -> None:
        self._path = path
        earlier = read_status(path)
        self.status = earlier or Status()
        self.status.pid = pid
        self.status.idle = ""
        self.status.started_at = time.time()
        self.status.recent = []
        self.refused: Counter[str] = Counter(self.status.refused)
        self.errors: Counter[str] = Counter(self.status.errors)
        self.statuses: Counter[str] = Counter(self.status.statuses)
        self._earlier_s = self.status.elapsed_s
        self._window: list[tuple[float, int]] = []

    def page(self, url: str, body_bytes: int) -> None:
        """A page was stored."""
        status = self.status
        status.pages += 1
        status.body_bytes += body_bytes
        if len(status.recent) < 8:
            status.recent.append(url)

    def dropped(self, row: Row) -> None:
        """A row that was counted is not kept after all."""
        self.statuses[str(row.status)] -= 1
        if 200 <= row.status < 300 and row.error not in UNSTORED:
            self.status.pages -= 1
            self.status.body_bytes -= row.length

    def write(self, state: str, note: str = "") -> None:
        """Replaces the file."""
        status, now = self.status, time.time()
        status.state, status.note, status.updated_at = state, note, now
        status.elapsed_s = self._earlier_s + now - status.started_at
        status.refused, status.errors, status.statuses = dict(self.refused), dict(self.errors), dict(self.statuses)
        self._window.append((now, status.pages))
        self._window = self._window[-20:]
        first_at, first_pages = self._window[0]
        status.rate = (status.pages - first_pages) / (now - first_at) if now > first_at else 0.0
        write_status(self._path, status)
        status.recent = []


def write_status(path: Path, status: Status) -> None:
    """Replaces the file."""
    data, beside = msgspec.json.encode(status), path.with_suffix(".tmp")
    try:
        beside.unlink(missing_ok=True)
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        beside.replace(path)
    except OSError:
        # A full disk, which this file must tell of: what it takes up already can be written over.
        beside.unlink(missing_ok=True)
        _write_over(path, data)


def _write_over(path: Path, data: bytes) -> None:
    try:
        with path.open("r+b", buffering=0) as file:
            file.write(data)
            file.truncate(len(data))
    except OSError:
        pass  # told in the log file, and here when there is room


def read_status(path: Path) -> Status | None:
    """The file's content, or None where there is none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Status)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
