"""The request log: every request that is made, written before its first byte is sent.

It is the evidence of politeness (`weft audit`), and restores the politeness clocks after a crash: a site whose last
request ended waits from that end, one whose request was in flight waits from now. Lines of tab-separated text:

    S item monotonic wall key delay places url crawl   a request of a crawl (its number) is about to start
    E item monotonic status                        it has ended (`unasked`: it was not made after all)
    B boot-id monotonic wall [revision]            a process opened the log; monotonic times are of this boot, and
                                                   requests follow that revision of the crawl's settings
    R monotonic digest origin                      from here on this robots.txt is in force for an origin
    C monotonic crawl revision trust               from here on requests of a crawl follow that revision of its own
                                                   settings, and the robots.txt files of that trust (may be empty)

Behind each of them stands its CRC-32, eight digits.

Appended with one write(2) for each batch, so that a killed process leaves whole lines; rotated at ROTATE_BYTES. A power
cut may leave half a line, or zeros in its place: the next opening ends it with a NUL, so that it never joins the line
that follows. A damaged line is skipped and counted (`Gaps`); as long as one may hide a recent request, every site waits
a full delay (`Recent.unsure_at`).
"""

from __future__ import annotations

import errno
import heapq
import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from msgspec import Struct, msgpack
from xxhash import xxh3_64_hexdigest

from weft.alive import Alive, silent
from weft.errors import DiskFull, writing
from weft.frontier.contract import RobotsRecord
from weft.telemetry import Log

ROTATE_BYTES = 256 * 1024 * 1024
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TORN = b"\0\n"  # ends a line that was left half written: no whole line holds a NUL
_LONGEST_LINE = 64 * 1024
_PIECE = 1000  # lines between two signs of life
_SUM_BYTES = 10  # with the tab before it and the end of the line
_ROUNDING_S = 1e-3  # more than what writing a time down to the microsecond may change
log = Log("weft.frontier.requests")


def boot_id() -> str:
    """An identifier that changes when the machine restarts."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"


def summed(line: str) -> bytes:
    """A line as it is written, with its checksum."""
    data = line.encode()
    return b"%b\t%08x\n" % (data, crc32(data))


def robots_digest(record: bytes) -> str:
    """What names a robots.txt in the log: the digest of its record as a frontier's history has it."""
    return xxh3_64_hexdigest(record)


class RequestLog:
    """The log of one pod; one writer."""

    def __init__(self, folder: Path, clock: float, revision: int = 0) -> None:
        """`revision`: of the crawl's settings; 0 where nobody counts them."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._buffer: list[bytes] = []
        self._serial = max((_serial(path) for path in folder.glob("requests-*.log")), default=0)
        self._open()
        self._end_torn_line()
        settings = f"\t{revision}" if revision else ""
        self._buffer.append(summed(f"B\t{boot_id()}\t{clock:.6f}\t{time.time():.3f}{settings}"))
        self.flush()

    @property
    def place(self) -> tuple[str, int]:
        """The newest file's name and size: if it is found shorter later, lines are lost."""
        return self._path.name, self._size

    def start(self, item: int, now: float, key: str, delay_s: float, places: int, url: str, crawl: int = 0) -> None:
        """A request that will be made once `flush` has returned."""
        line = f"S\t{item}\t{now:.6f}\t{time.time():.6f}\t{key}\t{delay_s:g}\t{places}\t{url}\t{crawl}"
        self._buffer.append(summed(line))

    def end(self, item: int, at: float, status: str) -> None:
        """A request that is over."""
        self._buffer.append(summed(f"E\t{item}\t{at:.6f}\t{status}"))

    def robots(self, now: float, origin: str, record: RobotsRecord) -> None:
        """A robots.txt that the requests after this follow; its text is in the frontier's history."""
        self._buffer.append(summed(f"R\t{now:.6f}\t{robots_digest(msgpack.encode(record))}\t{origin}"))

    def crawl(self, now: float, crawl: int, revision: int, trust: str) -> None:
        """What the requests of a crawl after this follow; a process that opens the log anew begins without any."""
        self._buffer.append(summed(f"C\t{now:.6f}\t{crawl}\t{revision}\t{trust}"))

    def flush(self) -> None:
        """Hands everything to the operating system: a kill cannot undo it."""
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
        if self._size >= ROTATE_BYTES:
            os.close(self._fd)
            self._serial += 1
            self._open()

    def try_flush(self) -> None:
        """As `flush`, but ignores a full disk: the lines stay buffered, and the next `flush` raises."""
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
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size

    def _end_torn_line(self) -> None:
        tail = os.pread(self._fd, _LONGEST_LINE, max(0, self._size - _LONGEST_LINE))
        if not tail or tail.endswith(b"\n"):
            return
        torn = len(tail) - 1 - tail.rfind(b"\n")
        log.warning("a torn line at the end of the request log is passed over", file=self._path, bytes=torn)
        with writing(self._path):
            os.write(self._fd, _TORN)
        self._size = os.fstat(self._fd).st_size


class Gaps(Struct):
    """Lines of a log that could not be read."""

    lines: int = 0
    files: list[str] = []  # that contain them


class Recent(Struct):
    """What the log has of requests before this process."""

    ended: dict[str, float | None] = {}  # by key: the end of its last request in this boot; None: it had not ended
    unreadable: int = 0
    # A time from which sites without a known last request wait a full delay: an unreadable line may have been theirs.
    # None: every line could be read.
    unsure_at: float | None = None


def last_requests(folder: Path, not_before: float, now: float, alive: Alive = silent) -> Recent:
    """The sites' last requests. Those that ended before `not_before` (monotonic) may be left out."""
    started: dict[int, tuple[str, float]] = {}
    running: dict[str, int] = {}
    recent = Recent({})
    last = recent.ended
    hidden = False  # a line since the last opening could not be read
    is_of_this_boot = True  # where a rotated file does not tell: else it would be too old to matter
    for number, event in enumerate(_recent_lines(folder, not_before)):
        if number % _PIECE == 0:
            alive()
        if event is None:
            recent.unreadable += 1
            hidden = True
        elif isinstance(event, _Boot):
            # Requests in flight in an earlier process have no end line; times of an earlier boot do not compare.
            started.clear()
            running.clear()
            is_of_this_boot = event.boot == boot_id()
            if not is_of_this_boot:
                last.clear()
                recent.unsure_at = None
            elif hidden:
                recent.unsure_at = min(event.at, now)  # the process that opened it then waited from there as well
            hidden = False
        elif isinstance(event, RobotsKnown | CrawlSettings) or not is_of_this_boot:
            continue  # its times are of another clock: they would be taken for waits, or for damage
        elif isinstance(event, Start):
            started[event.item] = event.key, event.at
            running[event.key] = running.get(event.key, 0) + 1
            last[event.key] = None
        elif (ended := started.pop(event.item, None)) is not None:
            key, began = ended
            running[key] -= 1
            if not began - _ROUNDING_S <= event.at <= now + _ROUNDING_S:
                # An impossible time. Trusting it could let a request go too early, or make the site wait for ever.
                recent.unreadable += 1
                hidden = True
            elif not running[key]:
                last[key] = event.at
    if hidden:
        recent.unsure_at = now
    return recent


class Start(Struct, frozen=True, gc=False):
    """A request that was about to be sent."""

    item: int
    at: float
    wall: float
    key: str
    delay_s: float
    places: int
    url: str
    slot: str = ""  # the process whose log it is in, where a pod has several
    crawl: int = 0


class Finish(Struct, frozen=True, gc=False):
    """The end of a request."""

    item: int
    at: float
    status: str


class RobotsKnown(Struct, frozen=True, gc=False):
    """A robots.txt from which requests are judged by it."""

    at: float
    digest: str
    origin: str
    slot: str = ""


class CrawlSettings(Struct, frozen=True, gc=False):
    """What a crawl's requests follow from here on."""

    at: float
    crawl: int
    revision: int
    trust: str
    slot: str = ""


class Opening(Struct, frozen=True, gc=False):
    """A process opened the log: requests in flight before have no end; in a new boot the clock restarted."""

    new_boot: bool
    slot: str = ""
    revision: int = 0  # of the crawl's settings; 0: not recorded


Event = Start | Finish | RobotsKnown | CrawlSettings | Opening


class _Boot(Struct, frozen=True, gc=False):
    """A `B` line."""

    boot: str
    at: float
    wall: float
    revision: int = 0


_Line = Start | Finish | RobotsKnown | CrawlSettings | _Boot


def missing_bytes(folder: Path, place: tuple[str, int] | None) -> int:
    """How many bytes a log has lost since its size was recorded (`RequestLog.place`)."""
    if place is None:
        return 0
    path = folder / place[0]
    return max(0, place[1] - (path.stat().st_size if path.exists() else 0))


def read_events(folder: Path, gaps: Gaps | None = None) -> Iterator[Event]:
    """The whole log, in the order in which things happened; the logs of several slots lie in folders of their own.

    `gaps` counts the lines that could not be read.
    """
    slots = {"": folder} | {path.name: path for path in sorted(folder.iterdir()) if path.is_dir()}
    order = _boots(slots.values())
    gaps = Gaps() if gaps is None else gaps
    boot = -1
    for (at, _), event in heapq.merge(*(_events(path, slot, order, gaps) for slot, path in slots.items()), key=_moment):
        if not isinstance(event, Opening):
            yield event
            continue
        yield Opening(at != boot, event.slot, event.revision)
        boot = at


def _boots(folders: Iterable[Path]) -> dict[str, int]:
    """The boots that occur in the logs, numbered in their order.

    Each log has its boots in order. The wall clock, which may have been wrong, decides only between boots that no log
    has both of.
    """
    orders, first = list[list[str]](), dict[str, float]()
    for folder in folders:
        order = dict[str, None]()
        for path in _files(folder):
            for event in _lines(path):
                if isinstance(event, _Boot):
                    order[event.boot] = None
                    first[event.boot] = min(event.wall, first.get(event.boot, math.inf))
        orders.append(list(order))
    numbers = dict[str, int]()
    while orders := [rest for order in orders if (rest := [boot for boot in order if boot not in numbers])]:
        heads = {order[0] for order in orders}
        behind = {boot for order in orders for boot in order[1:]}
        numbers[min(heads - behind or heads, key=first.__getitem__)] = len(numbers)
    return numbers


def _moment(event: tuple[tuple[int, float], Event]) -> tuple[int, float]:
    return event[0]


def _events(folder: Path, slot: str, boots: dict[str, int], gaps: Gaps) -> Iterator[tuple[tuple[int, float], Event]]:
    """One log's events, each with its boot and a time that never decreases: that of the latest event so far."""
    boot, latest = 0, 0.0
    for path in _files(folder):
        for event in _lines(path, slot):
            if event is None:
                gaps.lines += 1
                if str(path) not in gaps.files:
                    gaps.files.append(str(path))
                continue
            if isinstance(event, _Boot):
                latest = event.at if boots[event.boot] != boot else max(latest, event.at)
                boot = boots[event.boot]
                yield (boot, latest), Opening(False, slot, event.revision)
                continue
            latest = max(latest, event.at)
            yield (boot, latest), event


def _lines(path: Path, slot: str = "") -> Iterator[_Line | None]:
    """What the lines of one file say; None for one that is not what was written, or only half of it."""
    with path.open("rb") as file:
        for line in file:
            text = _unsummed(line)
            yield None if text is None else _parsed(text, slot)


def _unsummed(line: bytes) -> bytes | None:
    """A line without its checksum; None if that is wrong, or not there."""
    text = line[:-_SUM_BYTES]
    return text if line[-_SUM_BYTES:] == b"\t%08x\n" % crc32(text) else None


def _parsed(line: bytes, slot: str) -> _Line | None:
    try:
        kind, *fields = line.decode().split("\t")
        if kind == "S":
            item, at, wall, key, delay, places, url, *crawl = fields
            figures = float(at), float(wall), key, float(delay), int(places)
            return Start(int(item), *figures, url, slot, *map(int, crawl))
        if kind == "E":
            item, at, status = fields
            return Finish(int(item), float(at), status)
        if kind == "R":
            at, digest, origin = fields
            return RobotsKnown(float(at), digest, origin, slot)
        if kind == "C":
            at, owner, revision, trust = fields
            return CrawlSettings(float(at), int(owner), int(revision), trust, slot)
        if kind == "B":
            boot, at, wall, *rest = fields
            return _Boot(boot, float(at), float(wall), *map(int, rest))
    except (TypeError, ValueError):  # fields of a line that no Weft has written
        pass
    return None


def _recent_lines(folder: Path, not_before: float) -> Iterator[_Line | None]:
    """The lines of the newest files, from a little before the given time on."""
    files = _files(folder)
    newest_first = range(len(files) - 1, -1, -1)
    first = next((at for at in newest_first if _first_time(files[at]) <= not_before), 0)
    for path in files[first:]:
        yield from _lines(path)


def _first_time(path: Path) -> float:
    """The time of a file's first readable line; infinite if there is none, so that older files are read as well."""
    return next((event.at for event in _lines(path) if event is not None), math.inf)


def _files(folder: Path) -> list[Path]:
    """A log's files, oldest first."""
    return sorted(folder.glob("requests-*.log"), key=_serial)


def _serial(path: Path) -> int:
    number = path.stem.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
