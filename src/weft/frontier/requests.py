"""The request log: every request that is made, written before its first byte is sent.

It is the evidence of politeness (`weft audit`), and what a crash leaves of the clocks: after one, a site whose last
request ended waits from that end, one whose request was under way waits from now. Lines of tab-separated text:

    S item monotonic wall key delay places url     a request is about to start
    E item monotonic status                        it has ended (`unasked`: it was not made after all)
    B boot-id monotonic wall                       a process opened the log; in another boot the clock is another one

Appended with one write(2) for each batch, so that a killed process leaves whole lines; rotated at ROTATE_BYTES.
"""

from __future__ import annotations

import errno
import heapq
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from weft.errors import DiskFull, writing

ROTATE_BYTES = 256 * 1024 * 1024
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """A word that differs from one start of the machine to the next."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"


class RequestLog:
    """The log of one pod; one writer."""

    def __init__(self, folder: Path, clock: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._buffer: list[str] = []
        self._size = 0
        self._serial = max((_serial(path) for path in folder.glob("requests-*.log")), default=0)
        self._open()
        self._buffer.append(f"B\t{boot_id()}\t{clock:.6f}\t{time.time():.3f}\n")
        self.flush()

    def start(self, item: int, now: float, key: str, delay_s: float, places: int, url: str) -> None:
        """A request that will be made once `flush` has returned."""
        self._buffer.append(f"S\t{item}\t{now:.6f}\t{time.time():.6f}\t{key}\t{delay_s:g}\t{places}\t{url}\n")

    def end(self, item: int, at: float, status: str) -> None:
        """A request that is over."""
        self._buffer.append(f"E\t{item}\t{at:.6f}\t{status}\n")

    def flush(self) -> None:
        """Hands everything to the operating system: a kill cannot undo it."""
        if not self._buffer:
            return
        data = "".join(self._buffer).encode()
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
        if self._size >= ROTATE_BYTES:
            os.close(self._fd)
            self._serial += 1
            self._open()

    def try_flush(self) -> None:
        """The same where a full disk stops nobody: what could not be written is kept, and the next `flush` tells."""
        with suppress(DiskFull):
            self.flush()

    def sync(self) -> None:
        """Hands everything to the disk."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Flushes and closes."""
        self.flush()
        os.close(self._fd)

    def _open(self) -> None:
        self._path = self._folder / f"requests-{self._serial:05d}.log"
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._size = os.fstat(self._fd).st_size


def last_requests(folder: Path, not_before: float) -> dict[str, float | None]:
    """For each key the end of its last request in this boot, None if it had not ended; older ones may be left out.

    `not_before`: requests that ended earlier than this time of the clock do not matter any more.
    """
    started: dict[int, str] = {}
    running: dict[str, int] = {}
    last: dict[str, float | None] = {}
    for kind, fields in _recent_lines(folder, not_before):
        if kind == "B":
            # What an earlier process had under way has no end; in an earlier boot the clock was another one.
            started.clear()
            running.clear()
            if fields[0] != boot_id():
                last.clear()
        elif kind == "S":
            key = started[int(fields[0])] = fields[3]
            running[key] = running.get(key, 0) + 1
            last[key] = None
        elif kind == "E" and (ended := started.pop(int(fields[0]), None)) is not None:
            running[ended] -= 1
            if not running[ended]:
                last[ended] = float(fields[1])
    return last


class Start(Struct, frozen=True, gc=False):
    """A request that was about to be made."""

    item: int
    at: float
    wall: float
    key: str
    delay_s: float
    places: int
    url: str
    slot: str = ""  # whose log it is in, where a pod has several


class Finish(Struct, frozen=True, gc=False):
    """Its end."""

    item: int
    at: float
    status: str


class Opening(Struct, frozen=True, gc=False):
    """A process opened the log: what was under way before has no end; in a new boot the clock began anew."""

    new_boot: bool
    slot: str = ""


def read_events(folder: Path) -> Iterator[Start | Finish | Opening]:
    """The whole log, in the order in which things happened; the logs of several slots lie in folders of their own."""
    slots = {"": folder} | {path.name: path for path in sorted(folder.iterdir()) if path.is_dir()}
    order = _boots(slots.values())
    boot = -1
    for (at, _), event in heapq.merge(*(_events(path, slot, order) for slot, path in slots.items()), key=_moment):
        if not isinstance(event, Opening):
            yield event
            continue
        yield Opening(at != boot, event.slot)
        boot = at


def _boots(folders: Iterable[Path]) -> dict[str, int]:
    """The machine's starts that the logs tell of, in their order."""
    first: dict[str, float] = {}
    for folder in folders:
        for path in folder.glob("requests-*.log"):
            for kind, fields in _lines(path):
                if kind == "B" and len(fields) == 3:
                    first[fields[0]] = min(float(fields[2]), first.get(fields[0], float("inf")))
    return {boot: number for number, boot in enumerate(sorted(first, key=first.__getitem__))}


def _moment(event: tuple[tuple[int, float], Start | Finish | Opening]) -> tuple[int, float]:
    return event[0]


def _events(
    folder: Path, slot: str, boots: dict[str, int]
) -> Iterator[tuple[tuple[int, float], Start | Finish | Opening]]:
    """One log's events, each with its boot and the time at which it was written down, which never goes back."""
    boot, latest = 0, 0.0
    for path in sorted(folder.glob("requests-*.log"), key=_serial):
        for kind, fields in _lines(path):
            if kind == "S" and len(fields) == 7:
                item, at, wall, key, delay, places, url = fields
                latest = max(latest, float(at))
                event = Start(int(item), float(at), float(wall), key, float(delay), int(places), url, slot)
                yield (boot, latest), event
            elif kind == "E" and len(fields) == 3:
                latest = max(latest, float(fields[1]))
                yield (boot, latest), Finish(int(fields[0]), float(fields[1]), fields[2])
            elif kind == "B" and len(fields) == 3:
                latest = float(fields[1]) if boots[fields[0]] != boot else max(latest, float(fields[1]))
                boot = boots[fields[0]]
                yield (boot, latest), Opening(False, slot)


def _lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The whole lines of one file; a torn last line is left out."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            kind, *fields = line.rstrip("\n").split("\t")
            if line.endswith("\n") and len(fields) >= 2:
                yield kind, fields


def _recent_lines(folder: Path, not_before: float) -> Iterator[tuple[str, list[str]]]:
    """The lines of the newest files, from a little before the given time on; a torn last line is left out."""
    files = sorted(folder.glob("requests-*.log"), key=_serial)
    first = len(files) - 1
    while first > 0 and _first_time(files[first]) > not_before:
        first -= 1
    for path in files[max(first, 0) :]:
        yield from _lines(path)


def _first_time(path: Path) -> float:
    with path.open(encoding="utf-8", errors="replace") as file:
        fields = file.readline().split("\t")
    try:
        return float(fields[2])
    except (IndexError, ValueError):
        return 0.0


def _serial(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])
