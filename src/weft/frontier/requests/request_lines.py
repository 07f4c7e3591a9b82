"""The lines of a request log, and their meaning."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

from msgspec import Struct, msgpack, structs
from xxhash import xxh3_64_hexdigest

from weft.frontier.contract import RobotsRecord

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
CHECKSUM_BYTES = 10  # with the tab before it and the end of the line


def boot_id() -> str:
    """An identifier that changes when the machine restarts."""
    try:
        return BOOT_ID_FILE.read_text().strip()
    except OSError:
        return "unknown"


def with_checksum(line: str) -> bytes:
    """A line with its checksum."""
    data = line.encode()
    return b"%b\t%08x\n" % (data, crc32(data))


def without_checksum(line: bytes) -> bytes | None:
    """A line without its checksum; None if the checksum is wrong, or missing."""
    text = line[:-CHECKSUM_BYTES]
    return text if line[-CHECKSUM_BYTES:] == b"\t%08x\n" % crc32(text) else None


def robots_evidence(record: RobotsRecord) -> bytes:
    """The part of a robots.txt record that a frontier's history stores: the same for the same file, whenever it was
    fetched.
    """
    return msgpack.encode(structs.replace(record, expires=0.0))


def robots_digest(record: bytes) -> str:
    """The name of a robots.txt in the log: the digest of its record in a frontier's history."""
    return xxh3_64_hexdigest(record)


class RequestStart(Struct, frozen=True, gc=False):
    """A request that was about to be sent."""

    item: int
    at: float
    wall: float
    key: str
    delay_s: float
    slots: int
    url: str
    slot: str = ""  # the process whose log it is in, where a pod has several
    crawl: int = 0
    hand: str = ""  # the worker on another machine that was to send it
    lasts_s: float = 0.0  # for that long after `at` it may be under way there, whatever became of this process

    @property
    def is_part(self) -> bool:
        """Whether it was made by a rendered page: it uses no slot, and waits for no delay."""
        return not self.slots


class RequestEnd(Struct, frozen=True, gc=False):
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


class SettingsInForce(Struct, frozen=True, gc=False):
    """The settings that a crawl's requests follow from here on."""

    at: float
    crawl: int
    revision: int
    trust: str
    slot: str = ""


class LogOpening(Struct, frozen=True, gc=False):
    """A process opened the log: requests in flight before have no end; in a new boot the monotonic clock restarted."""

    new_boot: bool
    slot: str = ""
    revision: int = 0  # of the crawl's settings; 0: not recorded


class BootLine(Struct, frozen=True, gc=False):
    """A `B` line."""

    boot: str
    at: float
    wall: float
    revision: int = 0


class LostLines(Struct, frozen=True, gc=False):
    """Lines here cannot be read: open requests, and the last requests to sites, are unknown."""

    at: float
    slot: str = ""


LogEvent = RequestStart | RequestEnd | RobotsKnown | SettingsInForce | LogOpening | LostLines
LogLine = RequestStart | RequestEnd | RobotsKnown | SettingsInForce | BootLine | LostLines


def _parse_crawl_and_hand(rest: list[str]) -> tuple[int, str, float]:
    """The last fields of a start: the crawl, then the hand and how long it may take; the first logs had neither."""
    if len(rest) == 3:
        return int(rest[0]), rest[1], float(rest[2])
    return (int(*rest), "", 0.0) if rest else (0, "", 0.0)


def parse_log_line(line: bytes, slot: str = "") -> LogLine | None:
    """Parses a line without its checksum; None for fields that no Weft version has written."""
    try:
        kind, *fields = line.decode().split("\t")
        if kind == "S":
            item, at, wall, key, delay, places, url, *rest = fields
            figures = float(at), float(wall), key, float(delay), int(places)
            crawl, hand, lasts = _parse_crawl_and_hand(rest)
            return RequestStart(int(item), *figures, url, slot, crawl, hand, lasts)
        if kind == "E":
            item, at, status = fields
            return RequestEnd(int(item), float(at), status)
        if kind == "R":
            at, digest, origin = fields
            return RobotsKnown(float(at), digest, origin, slot)
        if kind == "C":
            at, owner, revision, trust = fields
            return SettingsInForce(float(at), int(owner), int(revision), trust, slot)
        if kind == "B":
            boot, at, wall, *rest = fields
            return BootLine(boot, float(at), float(wall), *map(int, rest))
    except (TypeError, ValueError):
        pass
    return None
