"""Packs the closed files of a request log and deletes the old ones, in a thread of the process that writes the log.

It works in steps of some milliseconds with pauses between them, so that the fetch loop is never delayed, and compresses
without the interpreter's lock. A kill at any moment leaves a log that is whole; the next process continues.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from weft.errors import WeftError
from weft.frontier.requests.packed_log import PackedSegment, UnreadableLog
from weft.frontier.requests.segments import (
    DeletedRequests,
    Segment,
    deleted_from,
    record_deleted,
    replace_by_packed,
    segment_serial,
    segments_of,
)
from weft.telemetry import Log

DAY_S = 86_400.0
PAUSE_SHARE = 4.0  # a pause is this many times as long as the step before it
# A start reads the log back by the longest delay of any site, and the duration of a request: no younger file is
# deleted.
KEPT_AT_LEAST_S = 3600.0
log = Log("weft.frontier.requests")


class Retention(Struct, frozen=True):
    """Limits for closed files, above which they are deleted; without limits, none is."""

    days: float | None = None
    bytes: int | None = None


KEEP_ALL = Retention()


class _UpkeepStopped(Exception):
    """The log is being closed."""


class LogUpkeep:
    """The maintenance of one log; the file that is appended to is not touched."""

    def __init__(self, folder: Path, retention: Retention) -> None:
        self._folder = folder
        self._retention = retention
        self._serial = 0
        self._has_work = threading.Event()
        self._is_stopping = False
        self._thread: threading.Thread | None = None
        self._failed: set[int] = set()
        self.deleted_until = self._deleted_until()

    def note_closed_before(self, serial: int) -> None:
        """Every file before this one is closed; the next step starts soon."""
        self._serial = serial
        if not serial:
            return
        self._has_work.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_thread, name="request log", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Ends the thread, in the middle of its work if necessary."""
        self._is_stopping = True
        self._has_work.set()
        if self._thread is not None:
            self._thread.join()

    def _run_thread(self) -> None:
        while True:
            self._has_work.wait()
            self._has_work.clear()
            if self._is_stopping:
                return
            try:
                self._delete_leftovers()
                self._pack_all()
                self._delete_old()
            except _UpkeepStopped:
                return
            except (WeftError, OSError, UnreadableLog) as error:
                log.warning("the request log was not packed: it stays as it is until the next file", why=str(error))

    def _closed_segments(self) -> list[Segment]:
        return [segment for segment in segments_of(self._folder) if segment.serial < self._serial]

    def _delete_leftovers(self) -> None:
        """Deletes what a killed process has left."""
        through = deleted_from(self._folder).through
        for path in self._folder.glob("requests-*"):
            if path.suffix == ".tmp" or -1 < segment_serial(path) <= through:
                path.unlink(missing_ok=True)

    def _pack_all(self) -> None:
        before: Segment | None = None
        for segment in self._closed_segments():
            if segment.plain is not None and segment.serial not in self._failed:
                began = time.monotonic()
                if replace_by_packed(segment, before, self._make_pauses()):
                    log.info("a file of the request log was packed", file=segment.plain.name,
                             seconds=round(time.monotonic() - began, 1))  # fmt: skip
                    segment = Segment(segment.serial, None, segment.plain.with_suffix(".packed"))
                else:
                    self._failed.add(segment.serial)
                    log.warning("a damaged file of the request log is not packed", file=segment.plain)
            before = segment

    def _deleted_until(self) -> float:
        """The time until which requests are deleted; the earliest of all slots, since the same robots.txt files are
        evidence for all of them.
        """
        of_slot = self._folder.parent.name == "requests"
        folders = [path for path in self._folder.parent.iterdir() if path.is_dir()] if of_slot else [self._folder]
        with suppress(UnreadableLog):
            return min(deleted_from(folder).until for folder in folders)
        return 0.0

    def _make_pauses(self) -> _Pauses:
        return _Pauses(lambda: self._is_stopping)

    def _delete_old(self) -> None:
        """Deletes the oldest closed files, while they are too old or the log is too large; the newest closed one is
        kept.
        """
        if self._retention.days is None and self._retention.bytes is None:
            return
        old = self._closed_segments()[:-1]
        size = sum(path.stat().st_size for path in self._folder.glob("requests-*") if segment_serial(path) >= 0)
        for segment in old:
            length = segment.path.stat().st_size
            until, longest_delay_s, requests = _facts_of_segment(segment)
            age_s = time.time() - until
            is_old = self._retention.days is not None and age_s > self._retention.days * DAY_S
            is_large = self._retention.bytes is not None and size > self._retention.bytes
            if not (is_old or is_large) or age_s < KEPT_AT_LEAST_S + longest_delay_s:
                return
            before = deleted_from(self._folder)
            until = max(before.until, until)
            record_deleted(self._folder, DeletedRequests(segment.serial, until, before.requests + requests))
            for path in (segment.plain, segment.packed):
                if path is not None:
                    path.unlink(missing_ok=True)
            size -= length
            self.deleted_until = self._deleted_until()
            log.info("a file of the request log was deleted: it is beyond its retention", file=segment.path.name)


class _Pauses:
    """Pauses between two steps."""

    def __init__(self, is_stopping: Callable[[], bool]) -> None:
        self._is_stopping = is_stopping
        self._began = time.thread_time()

    def __call__(self) -> None:
        if self._is_stopping():
            raise _UpkeepStopped
        time.sleep(PAUSE_SHARE * (time.thread_time() - self._began))
        self._began = time.thread_time()


def _facts_of_segment(segment: Segment) -> tuple[float, float, int]:
    """A closed file's latest request by the wall clock, its longest delay, and how many requests it has."""
    if segment.packed is not None:
        try:
            parts = [part.index for part in PackedSegment(segment.packed).parts]
        except UnreadableLog:
            parts = []
        walls = [part.last_wall for part in parts if part.last_wall is not None]
        if walls:
            return max(walls), max(part.longest_delay_s for part in parts), sum(part.requests for part in parts)
    return segment.path.stat().st_mtime, DAY_S, 0
