"""Appends to a request log."""

from __future__ import annotations

import errno
import os
import random
import time
from contextlib import suppress
from pathlib import Path

from weft.errors import DiskFull, writing
from weft.files import sync_folder
from weft.frontier.contract import RobotsRecord
from weft.frontier.requests.packed_log import UnreadableLog
from weft.frontier.requests.request_lines import boot_id, robots_digest, robots_evidence, with_checksum
from weft.frontier.requests.segments import deleted_from, segment_name, segment_serial
from weft.frontier.requests.upkeep import DAY_S, KEEP_ALL, LogUpkeep, Retention
from weft.records import RenderedPart
from weft.telemetry import Log

SEGMENT_BYTES = 16 * 1024 * 1024
_PART_NUMBERS_FROM = 1 << 60  # above the numbers of all items: numbers of requests that rendered pages make
_TORN_LINE_END = b"\0\n"  # ends an incomplete line: no complete line contains a NUL
_LONGEST_LINE_BYTES = 64 * 1024
_AGE_SHARE = 10  # a file is closed after this fraction of the retention time
log = Log("weft.frontier.requests")


class RequestLog:
    """The log of one pod; one writer."""

    def __init__(self, folder: Path, clock: float, revision: int = 0, retention: Retention = KEEP_ALL) -> None:
        """`revision`: of the crawl's settings; 0 if it has none."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._buffer: list[bytes] = []
        self._has_new_name = False  # in the folder, which may not be on the disk yet
        self._closed_unsynced: list[int] = []  # descriptors of files that are full, and not on the disk yet
        self._close_after_s = retention.days * DAY_S / _AGE_SHARE if retention.days is not None else None
        self._serial = max((segment_serial(path) for path in folder.glob("requests-*")), default=0)
        with suppress(UnreadableLog):
            self._serial = max(self._serial, deleted_from(folder).through + 1)
        if (folder / segment_name(self._serial, ".packed")).exists():
            self._serial += 1  # a file that is closed is not appended to
        self._upkeep = LogUpkeep(folder, retention)
        self._last_start_times = clock, time.time()
        self._open_file()
        self._end_torn_line()
        settings = f"\t{revision}" if revision else ""
        self._buffer.append(with_checksum(f"B\t{boot_id()}\t{clock:.6f}\t{time.time():.3f}{settings}"))
        self.flush()
        self._upkeep.note_closed_before(self._serial)

    @property
    def position(self) -> tuple[str, int]:
        """The newest file's name and size: if it is found shorter later, lines are lost."""
        return self._path.name, self._size

    @property
    def deleted_until(self) -> float:
        """The time of the last request that retention has deleted: evidence for older ones only may be deleted, too."""
        return self._upkeep.deleted_until

    def log_start(
        self,
        item: int,
        now: float,
        key: str,
        delay_s: float,
        places: int,
        url: str,
        crawl: int = 0,
        *,
        hand: str = "",
        lasts_s: float = 0.0,
    ) -> None:
        """A request that will be made once `flush` has returned; by a hand, which may take that long."""
        if (
            now != self._last_start_times[0]
        ):  # requests that begin together have one time by both clocks, which packs to nothing
            self._last_start_times = now, time.time()
        line = f"S\t{item}\t{now:.6f}\t{self._last_start_times[1]:.6f}\t{key}\t{delay_s:g}\t{places}\t{url}\t{crawl}"
        if hand:
            line += f"\t{hand}\t{lasts_s:g}"
        self._buffer.append(with_checksum(line))

    def log_part(self, crawl: int, key: str, part: RenderedPart, now: float) -> None:
        """Logs a request of a rendered page; it uses no slot, and is logged when the page is finished."""
        item, wall = _PART_NUMBERS_FROM | random.getrandbits(58), time.time() - max(0.0, now - part.began)
        line = f"S\t{item}\t{part.began:.6f}\t{wall:.6f}\t{key}\t0\t0\t{part.url}\t{crawl}"
        self._buffer.append(with_checksum(line))
        self.log_end(item, part.ended, part.outcome.partition("\t")[0] or "-")

    def log_end(self, item: int, at: float, status: str) -> None:
        """Logs the end of a request."""
        self._buffer.append(with_checksum(f"E\t{item}\t{at:.6f}\t{status}"))

    def log_robots(self, now: float, origin: str, record: RobotsRecord) -> None:
        """Logs the robots.txt that later requests follow; its text is in the frontier's history."""
        self._buffer.append(with_checksum(f"R\t{now:.6f}\t{robots_digest(robots_evidence(record))}\t{origin}"))

    def log_crawl(self, now: float, crawl: int, revision: int, trust: str) -> None:
        """Logs the settings that later requests of a crawl follow; a process that opens the log again begins without
        any.
        """
        self._buffer.append(with_checksum(f"C\t{now:.6f}\t{crawl}\t{revision}\t{trust}"))

    def flush(self) -> None:
        """Writes everything to the operating system: a kill cannot undo it."""
        if not self._buffer:
            return
        data = b"".join(self._buffer)
        with writing(self._path):
            try:
                written = os.write(self._fd, data)
                if written < len(data):
                    raise OSError(errno.ENOSPC, "short write")
            except OSError:
                os.ftruncate(self._fd, self._size)  # no half line; the buffer keeps what could not be written
                raise
        self._size += len(data)
        self._buffer.clear()
        if self._size >= SEGMENT_BYTES or self._is_old():
            self._begin_next_file()

    def try_flush(self) -> None:
        """Does the same as `flush`, but ignores a full disk: the lines remain buffered, and the next `flush` raises."""
        with suppress(DiskFull):
            self.flush()

    def sync(self) -> None:
        """Syncs everything to the disk, also files that have become full since the last call."""
        os.fdatasync(self._fd)
        while self._closed_unsynced:
            os.fdatasync(self._closed_unsynced[-1])
            os.close(self._closed_unsynced.pop())
        if self._has_new_name:
            sync_folder(self._folder)
            self._has_new_name = False

    def close(self) -> None:
        """Flushes and closes; what could not be packed yet is packed by the next process."""
        self.flush()
        self._upkeep.close()
        os.close(self._fd)
        while self._closed_unsynced:
            os.close(self._closed_unsynced.pop())

    def _is_old(self) -> bool:
        return self._close_after_s is not None and time.monotonic() - self._opened > self._close_after_s

    def _begin_next_file(self) -> None:
        """Continues in the next file, or in this one if there is no room for another."""
        full = self._fd
        self._serial += 1
        try:
            self._open_file()
        except OSError as error:
            self._serial -= 1
            log.warning("no new file for the request log: the old one grows", why=str(error))
            return
        self._closed_unsynced.append(full)
        self._upkeep.note_closed_before(self._serial)

    def _open_file(self) -> None:
        path = self._folder / segment_name(self._serial)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._path, self._size = path, os.fstat(self._fd).st_size
        self._has_new_name = True
        self._opened = time.monotonic()

    def _end_torn_line(self) -> None:
        tail = os.pread(self._fd, _LONGEST_LINE_BYTES, max(0, self._size - _LONGEST_LINE_BYTES))
        if not tail or tail.endswith(b"\n"):
            return
        torn = len(tail) - 1 - tail.rfind(b"\n")
        log.warning("a torn line at the end of the request log is passed over", file=self._path, bytes=torn)
        with writing(self._path):
            os.write(self._fd, _TORN_LINE_END)
        self._size = os.fstat(self._fd).st_size
