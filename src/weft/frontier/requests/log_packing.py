"""Turns lines of a request log into a part of a packed segment.

Requests are divided by a hash of their politeness key into BUCKETS blocks, each in the order of the log, so that the
requests to one site, or to a share of the sites, are read without the rest. A block has a head (its pairs of key and
origin, and other texts that repeat) and a body (columns of numbers, and the paths). An end is kept beside its start.

The records that a request is judged by come before it in its block: openings of the log and edits of a crawl's settings
are in every block, a robots.txt in those of its site, the settings that a crawl began with in those with requests that
follow them. All of them are also listed once for the whole part: what comes later in the log follows them, too.

Times are whole microseconds, as they were logged. A part with a line that could not be read counts it; the lines' own
checksums are not kept: each frame has one.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import AnyStr
from zlib import crc32

from msgspec import Struct, msgpack
from xxhash import xxh3_64_intdigest

from weft.frontier.requests.columns import pack_ints, pack_steps
from weft.frontier.requests.request_lines import (
    CHECKSUM_BYTES,
    BootLine,
    RobotsKnown,
    SettingsInForce,
    parse_log_line,
    without_checksum,
)
from weft.urls import domain_of, host_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["BUCKETS", "LogPacker", "PartIndex", "block_of_key", "share_of_key", "zstd"]
BUCKETS = 16
START, ROBOTS_START, END, ROBOTS, CRAWL, BOOT = b"SsERCB"
_COMPRESSION_LEVEL = 9
_FIELD_SEPARATOR = b"\t"
_MOST_NUMBER = 1 << 61  # of a number in a column: sums and differences of two fit into eight bytes

FramePosition = tuple[int, int, int]  # offset, length, CRC-32


class BlockIndex(Struct, frozen=True, array_like=True):
    """The position of a block, and its contents."""

    head: FramePosition
    body: FramePosition
    requests: int
    far: int  # ends of requests of earlier parts


class PartIndex(Struct, frozen=True, array_like=True):
    """The range that a part covers, and the positions of its frames."""

    lines: int
    unreadable: int
    first_at: float | None
    first_wall: float | None  # of requests and openings
    last_wall: float | None
    longest_delay_s: float
    boots: list[BootLine]
    blocks: list[BlockIndex]
    texts: FramePosition
    robots: FramePosition
    open: FramePosition
    last_at: float | None = None  # the latest time of any line; an earlier Weft version did not record it

    @property
    def requests(self) -> int:
        """The number of starts in all blocks."""
        return sum(block.requests for block in self.blocks)


class BlockHeader(Struct, array_like=True):
    """The header of a block: the pairs of a key and an origin of its requests."""

    keys: bytes  # as `shorten_key` writes them
    origins: bytes


class RepeatedTexts(Struct, array_like=True):
    """Texts that repeat in all blocks."""

    forms: bytes  # delay, slots and crawl of requests; of those that hands make also the hand and how long it may take
    statuses: bytes
    settings: bytes  # lines C
    current: int  # how many of them are older than the last opening


class BlockColumns(Struct, array_like=True):
    """The columns of a block."""

    kinds: bytes
    items: bytes
    robots_items: bytes
    ats: bytes
    leads: bytes  # of the wall clock, in steps
    pairs: bytes
    forms: bytes
    paths: bytes
    back: bytes  # how many starts before an end its own start is; 0: in an earlier part
    took: bytes
    far: bytes  # numbers of those in earlier parts
    statuses: bytes
    notes: bytes


class RobotsColumns(Struct, array_like=True):
    """The columns of lines R."""

    origins: bytes
    digests: bytes
    ats: bytes


class OpenRequests(Struct, array_like=True):
    """The requests without an end at the end of a part, and their blocks."""

    items: bytes
    buckets: bytes


def block_of_key(key: bytes) -> int:
    """The block of a politeness key."""
    return xxh3_64_intdigest(key) % BUCKETS


def share_of_key(key: bytes, shares: int) -> int:
    """Divides a block's keys further."""
    return xxh3_64_intdigest(key) // BUCKETS % shares


@lru_cache(maxsize=10_000)
def _usual_blocks(origin: str) -> tuple[int, ...]:
    """The blocks of an origin's requests, if sites are not divided by their addresses."""
    try:
        keys = host_of(origin + "/"), domain_of(origin + "/")
    except ValueError:
        return ()
    return tuple({block_of_key(key.encode()) for key in keys})


def shorten_key(key: bytes, origin: bytes) -> bytes:
    """A key as a block header stores it: most are the end of their origin's host, and need no bytes then."""
    host = _host_text(origin, b"://", b":")
    return b"\x01%d" % (len(host) - len(key)) if key and host.endswith(key) and host.isascii() else key


def restore_key(key: str, origin: str) -> str:
    """The key that `shorten_key` has shortened."""
    return _host_text(origin, "://", ":")[int(key[1:]) :] if key[:1] == "\x01" else key


def _host_text(origin: AnyStr, scheme_end: AnyStr, port_begin: AnyStr) -> AnyStr:
    """The host of an origin, except an IPv6 one: the same slice of a text or of bytes."""
    return origin.partition(scheme_end)[2].partition(port_begin)[0]


def _parse_microseconds(text: bytes) -> int:
    whole, point, rest = text.partition(b".")
    return int(whole + rest) if point and len(rest) == 6 else round(float(text) * 1e6)


class _BlockBuilder:
    """A block that is being filled."""

    __slots__ = (
        "ats",
        "back",
        "crawls_seen",
        "far",
        "forms",
        "items",
        "kinds",
        "last",
        "leads",
        "notes",
        "pair_texts",
        "pairs",
        "paths",
        "robots_items",
        "robots_seen",
        "statuses",
        "took",
    )  # fmt: skip

    def __init__(self) -> None:
        self.kinds, self.paths = bytearray(), bytearray()
        self.items, self.robots_items, self.ats, self.leads = (array("q") for _ in range(4))
        self.pairs, self.forms, self.statuses, self.notes, self.back = (array("i") for _ in range(5))
        self.took, self.far = array("q"), array("q")
        self.pair_texts: list[tuple[bytes, bytes]] = []
        self.robots_seen: dict[bytes, int] = {}  # by origin: how many of its lines R are in this block
        self.crawls_seen: dict[int, int] = {}

    def add_line_kind(self, kind: int, number: int) -> None:
        self.kinds.append(kind)
        self.notes.append(number)

    def packed_header(self) -> BlockHeader:
        keys, origins = zip(*self.pair_texts, strict=True) if self.pair_texts else ((), ())
        return BlockHeader(b"\n".join(map(shorten_key, keys, origins)), b"\n".join(origins))

    def packed_columns(self) -> BlockColumns:
        return BlockColumns(
            bytes(self.kinds), pack_steps(self.items), pack_steps(self.robots_items), pack_steps(self.ats),
            pack_steps(self.leads), pack_ints(self.pairs), pack_ints(self.forms), bytes(self.paths),
            pack_ints(self.back), pack_ints(self.took), pack_steps(self.far), pack_ints(self.statuses),
            pack_ints(self.notes),
        )  # fmt: skip


class LogPacker:
    """Packs the lines of one part; `carried`: the blocks of requests that are open from earlier parts."""

    def __init__(self, carried: Mapping[int, int]) -> None:
        self._blocks = [_BlockBuilder() for _ in range(BUCKETS)]
        # For each open request its block, its number among the block's starts (-1: in an earlier part) and its time.
        self._open_requests: dict[bytes, tuple[int, int, int]] = {
            b"%d" % item: (at, -1, 0) for item, at in carried.items()
        }
        self._pairs: dict[tuple[bytes, bytes], tuple[int, int]] = {}
        self._forms: dict[tuple[bytes, ...], tuple[int, int]] = {}  # with the crawl
        self._statuses: dict[bytes, int] = {}
        self._robots: list[RobotsKnown] = []
        self._robots_by_origin: dict[bytes, list[int]] = {}  # by origin, without its trust
        self._blocks_of_origin: dict[bytes, list[int]] = {}  # blocks
        self._settings: list[bytes] = []
        self._first_current = 0  # the first of them after the last opening
        self._settings_by_crawl: dict[int, list[int]] = {}
        self._boots: list[BootLine] = []
        self._lines = self.unreadable = self.raw_bytes = 0
        self._first_at: float | None = None
        self._last_at = 0
        self._first_wall, self._last_wall, self._longest_delay_s = sys.maxsize, -sys.maxsize, 0.0

    def add_lines(self, data: bytes) -> None:
        """Adds whole lines, except for the last line of a truncated log."""
        self.raw_bytes += len(data)
        lines = data.split(b"\n")
        if lines[-1] == b"":
            lines.pop()
        for text in _without_checksums(lines):
            self._lines += 1
            if text is None or not self._pack_line(text):
                self.unreadable += 1

    def _pack_line(self, text: bytes) -> bool:
        try:
            if text[:2] == b"S\t":
                self._pack_start(text)
            elif text[:2] == b"E\t":
                self._pack_end(text)
            else:
                return self._pack_note(text)
        except (ValueError, OverflowError):  # no Weft version has written such a line
            return False
        return True

    def _pack_start(self, text: bytes) -> None:
        _, item, at_text, wall_text, key, delay, places, url, *rest = text.split(_FIELD_SEPARATOR)
        crawl = rest[0] if rest else b"0"
        by_hand = rest[1:]
        at, wall, path_at, number = (
            _parse_microseconds(at_text),
            _parse_microseconds(wall_text),
            url.index(b"/", 8),
            int(item),
        )
        if at > _MOST_NUMBER or wall > _MOST_NUMBER or not -_MOST_NUMBER < number < _MOST_NUMBER:
            raise ValueError("out of range")
        form_key = (delay, places, crawl, *by_hand)
        form, owner = self._forms.get(form_key) or self._number_form(form_key)
        pair = key, url[:path_at]
        bucket, pair_number = self._pairs.get(pair) or self._number_pair(pair)
        block, is_page = self._blocks[bucket], item[:1] != b"-"
        (block.items if is_page else block.robots_items).append(number)
        if self._robots_by_origin or self._settings_by_crawl:
            self._add_judged_by(block, pair[1], owner)
        self._open_requests[item] = bucket, len(block.ats), at
        block.kinds.append(START if is_page else ROBOTS_START)
        block.ats.append(at)
        block.leads.append(wall - at)
        block.pairs.append(pair_number)
        block.forms.append(form)
        block.paths += url[path_at:] + b"\n"
        if self._first_at is None:
            self._first_at = at / 1e6
        if at > self._last_at:
            self._last_at = at
        if wall < self._first_wall:
            self._first_wall = wall
        if wall > self._last_wall:
            self._last_wall = wall

    def _number_form(self, form: tuple[bytes, ...]) -> tuple[int, int]:
        delay, places, crawl, *by_hand = form
        delay_s, number = float(delay), int(crawl)
        int(places)
        lasts_s = 0.0
        if by_hand:
            _hand, lasts = by_hand
            lasts_s = float(lasts)
        self._longest_delay_s = max(self._longest_delay_s, delay_s + lasts_s)
        made = self._forms[form] = len(self._forms), number
        return made

    def _number_pair(self, pair: tuple[bytes, bytes]) -> tuple[int, int]:
        key, origin = pair
        if key[:1] == b"\x01":
            raise ValueError("no politeness key")
        if not (key.isascii() and origin.isascii()):
            (key + origin).decode()
        bucket = block_of_key(key)
        texts = self._blocks[bucket].pair_texts
        made = self._pairs[pair] = bucket, len(texts)
        texts.append(pair)
        blocks = self._blocks_of_origin.setdefault(origin, [])
        if bucket not in blocks:
            blocks.append(bucket)
        return made

    def _add_judged_by(self, block: _BlockBuilder, origin: bytes, crawl: int) -> None:
        """Adds the records that this request is judged by, if its block does not have them."""
        notes = self._robots_by_origin.get(origin)
        if notes is not None and block.robots_seen.get(origin, 0) < len(notes):
            for number in notes[block.robots_seen.get(origin, 0) :]:
                block.add_line_kind(ROBOTS, number)
            block.robots_seen[origin] = len(notes)
        notes = self._settings_by_crawl.get(crawl)
        if notes is not None and block.crawls_seen.get(crawl, 0) < len(notes):
            for number in notes[block.crawls_seen.get(crawl, 0) :]:
                block.add_line_kind(CRAWL, number)
            block.crawls_seen[crawl] = len(notes)

    def _pack_end(self, text: bytes) -> None:
        _, item, at_text, status = text.split(_FIELD_SEPARATOR)
        at, named = _parse_microseconds(at_text), int(item)
        if at > _MOST_NUMBER or not -_MOST_NUMBER < named < _MOST_NUMBER:
            raise ValueError("out of range")
        if status not in self._statuses:
            status.decode()
        code = self._statuses.setdefault(status, len(self._statuses))
        started = self._open_requests.pop(item, None)
        # The start may be in the log of another slot, whose lease has expired here: its block is unknown.
        blocks = self._blocks if started is None else (self._blocks[started[0]],)
        _, number, began = started or (0, -1, 0)
        for block in blocks:
            if number < 0:
                block.far.append(named)
            block.kinds.append(END)
            block.back.append(0 if number < 0 else len(block.ats) - number)
            block.took.append(at - began)
            block.statuses.append(code)
        if at > self._last_at:
            self._last_at = at
        if self._first_at is None:
            self._first_at = at / 1e6

    def _pack_note(self, text: bytes) -> bool:
        line = parse_log_line(text)
        if line is None:
            return False
        if isinstance(line, BootLine):
            self._pack_opening(line)
        elif isinstance(line, RobotsKnown):
            self._pack_robots_line(line)
        elif isinstance(line, SettingsInForce):
            self._pack_settings_line(line, text)
        if self._first_at is None:
            self._first_at = line.at
        self._last_at = max(self._last_at, round(line.at * 1e6))
        return True

    def _pack_opening(self, boot: BootLine) -> None:
        wall = round(boot.wall * 1e6)
        self._first_wall, self._last_wall = min(wall, self._first_wall), max(wall, self._last_wall)
        self._open_requests.clear()
        self._first_current = len(self._settings)
        for block in self._blocks:
            block.add_line_kind(BOOT, len(self._boots))
        self._boots.append(boot)

    def _pack_robots_line(self, line: RobotsKnown) -> None:
        origin = line.origin.rpartition(" ")[2].encode()
        numbers = self._robots_by_origin.setdefault(origin, [])
        numbers.append(len(self._robots))
        # Another process of the pod may have asked the origin: its requests are in the same block of its own log.
        for bucket in {*self._blocks_of_origin.get(origin, ()), *_usual_blocks(origin.decode())}:
            block = self._blocks[bucket]
            for number in numbers[block.robots_seen.get(origin, 0) :]:
                block.add_line_kind(ROBOTS, number)
            block.robots_seen[origin] = len(numbers)
        self._robots.append(line)

    def _pack_settings_line(self, line: SettingsInForce, text: bytes) -> None:
        numbers = self._settings_by_crawl.setdefault(line.crawl, [])
        numbers.append(len(self._settings))
        if line.revision > 1:  # an edit that another process has read applies to all of a pod
            for block in self._blocks:
                for number in numbers[block.crawls_seen.get(line.crawl, 0) :]:
                    block.add_line_kind(CRAWL, number)
                block.crawls_seen[line.crawl] = len(numbers)
        self._settings.append(text)

    def open_requests(self) -> dict[int, int]:
        """The blocks of the requests that have not ended."""
        return {int(item): bucket for item, (bucket, _, _) in self._open_requests.items()}

    def frames(self, offset: int) -> Iterator[bytes | PartIndex]:
        """The part's frames from an offset on, then its index."""
        places: list[FramePosition] = []

        def make_frame(value: object) -> bytes:
            nonlocal offset
            data = zstd.compress(msgpack.encode(value), level=_COMPRESSION_LEVEL)
            places.append((offset, len(data), crc32(data)))
            offset += len(data)
            return data

        for block in self._blocks:
            yield make_frame(block.packed_header())
            yield make_frame(block.packed_columns())
        forms = b"\n".join(map(_FIELD_SEPARATOR.join, self._forms))
        yield make_frame(
            RepeatedTexts(forms, b"\n".join(self._statuses), b"\n".join(self._settings), self._first_current)
        )
        yield make_frame(self._robots_columns())
        opened = self.open_requests()
        yield make_frame(OpenRequests(pack_steps(array("q", opened)), pack_ints(opened.values())))
        blocks = [
            BlockIndex(places[2 * at], places[2 * at + 1], len(block.ats), len(block.far))
            for at, block in enumerate(self._blocks)
        ]
        has_wall = self._first_wall <= self._last_wall
        first, last = (self._first_wall / 1e6, self._last_wall / 1e6) if has_wall else (None, None)
        yield PartIndex(
            self._lines, self.unreadable, self._first_at, first, last, self._longest_delay_s, self._boots, blocks,
            places[-3],
            places[-2],
            places[-1],
            self._last_at / 1e6,
        )  # fmt: skip

    def _robots_columns(self) -> RobotsColumns:
        return RobotsColumns(
            "\n".join([line.origin for line in self._robots]).encode(),
            "\n".join([line.digest for line in self._robots]).encode(),
            pack_steps(array("q", [round(line.at * 1e6) for line in self._robots])),
        )


def _without_checksums(lines: list[bytes]) -> list[bytes] | Iterator[bytes | None]:
    """The lines without their checksums; None for a line that differs from what was written."""
    texts = [line[: 1 - CHECKSUM_BYTES] for line in lines]
    sums = b"".join([line[1 - CHECKSUM_BYTES :] for line in lines])
    if sums == b"".join([b"\t%08x" % crc32(text) for text in texts]):
        return texts
    return (without_checksum(line + b"\n") for line in lines)
