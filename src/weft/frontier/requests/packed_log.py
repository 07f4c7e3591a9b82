"""A packed segment of a request log: a closed file of it, compressed, in blocks that can be read separately.

    MAGIC, length and CRC-32 of the index, index, frames, index, length and CRC-32 of the index, MAGIC

A frame is compressed by zstd and has its CRC-32 in the index, of which there are two copies: a flipped bit costs one
frame, or nothing. A segment has a part for each PART_BYTES of lines; see `packing`.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Collection, Iterator
from heapq import merge
from itertools import accumulate, chain, islice
from math import inf
from pathlib import Path
from sys import intern
from typing import TypeVar
from zlib import crc32

import msgspec
from msgspec import Struct

from weft.frontier.requests import log_packing
from weft.frontier.requests.columns import unpacked_ints, unpacked_steps
from weft.frontier.requests.log_packing import BUCKETS, Frame, PartIndex, zstd
from weft.frontier.requests.request_lines import (
    Boot,
    CrawlSettings,
    Line,
    RequestEnd,
    RequestStart,
    RobotsKnown,
    parsed,
)

MAGIC = b"weft\x00rq2"
_EARLIER = b"weft\x00rq1"  # keys as they are, which `long_key` reads too
PART_BYTES = 16 * 1024 * 1024
_ENDS = struct.Struct("<II")
_EDGE = len(MAGIC) + _ENDS.size
_MOST_INDEX = 1 << 28
_MOST_FRAME = 1 << 31
_CHUNK_BYTES = 1 << 16
_STARTS = (log_packing.START, log_packing.ROBOTS_START)
_NOTES = (log_packing.ROBOTS, log_packing.CRAWL, log_packing.BOOT)
Takes = Callable[[str, str], bool]  # whether requests of a pair of key and origin are read
Span = tuple[float, float]  # from a time of the wall clock to another
EVER: Span = (-inf, inf)
_Read = TypeVar("_Read")


class Unjudged(Exception):
    """A frame, or a whole segment, differs from what was written."""

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.path = path


class _Index(Struct, frozen=True, array_like=True):
    raw_bytes: int
    parts: list[PartIndex]


def write_packed(out: Path, raw_bytes: int, parts: list[tuple[list[bytes], PartIndex]]) -> None:
    """Writes a new file; the caller moves it to its final name."""
    index = msgspec.msgpack.encode(_Index(raw_bytes, [index for _, index in parts]))
    ends = _ENDS.pack(len(index), crc32(index))
    with out.open("xb") as file:
        file.write(MAGIC + ends + index)
        for frames, _ in parts:
            file.writelines(frames)
        file.write(index + ends + MAGIC)


class _FarFinish(RequestEnd, frozen=True, gc=False):
    """An end whose start is in an earlier part."""


class LogPart:
    """About PART_BYTES of lines of a segment."""

    def __init__(self, segment: PackedSegment, index: PartIndex) -> None:
        self.segment = segment
        self.index = index

    def open(self) -> dict[int, int]:
        """The blocks of the requests that have no end yet."""
        opened = self._frame(self.index.open, log_packing.Opened)
        return dict(zip(unpacked_steps(opened.items), unpacked_ints(opened.buckets), strict=True))

    def starts_of(self, bucket: int, items: set[int], slot: str = "") -> list[RequestStart]:
        """The starts of some items in a block."""
        body = self._frame(self.index.blocks[bucket].body, log_packing.BlockColumns)
        chosen = bytes(item in items for item in _items(body))
        if not any(chosen):
            return []
        lines = self._decoded(body, self.pairs(bucket), chosen, slot, only_requests=True)
        return [line for line in lines if isinstance(line, RequestStart)]

    def frames(self) -> list[Frame]:
        """The positions of all frames."""
        blocks = [frame for block in self.index.blocks for frame in (block.head, block.body)]
        return [*blocks, self.index.texts, self.index.robots, self.index.open]

    def pairs(self, bucket: int) -> list[tuple[str, str]]:
        """The politeness keys and origins of a block's requests."""
        head = self._frame(self.index.blocks[bucket].head, log_packing.BlockHeader)
        if not head.keys:
            return []
        rows = zip(_lines(head.keys), _lines(head.origins), strict=True)
        return [(log_packing.long_key(key, origin), origin) for key, origin in rows]

    def settings(self, slot: str) -> list[CrawlSettings]:
        """The settings that crawls' requests follow at the end of this part, as far as its process recorded
        them here.
        """
        texts = self._texts()
        return self._settings(texts, slot)[texts.current :]

    def mentions(self, bucket: int, texts: Collection[bytes]) -> bool:
        """Whether one of some texts occurs in the keys or origins of a block, which costs far less than `pairs`."""
        head = self._frame(self.index.blocks[bucket].head, log_packing.BlockHeader)
        return any(text in head.origins or text in head.keys for text in texts)

    def robots(self, slot: str, origins: Collection[bytes]) -> list[RobotsKnown]:
        """The robots.txt files of some origins that came into force in this part. A part may have a hundred thousand:
        those of others are passed over without an object for each.
        """
        columns = self._frame(self.index.robots, log_packing.RobotsColumns)
        if not columns.origins:
            return []
        has_trust = b" " in columns.origins
        texts = chain.from_iterable(_chunks(columns.origins))
        wanted = [
            (number, text)
            for number, text in enumerate(texts)
            if (text.rpartition(b" ")[2] if has_trust else text) in origins
        ]
        return _robots_at(columns, wanted, slot)

    def _robots_of(self, body: log_packing.BlockColumns, slot: str) -> dict[int, RobotsKnown]:
        """The robots.txt files that a block's notes name, by their numbers."""
        kinds = (kind for kind in body.kinds if kind in _NOTES)
        notes = zip(kinds, unpacked_ints(body.notes), strict=True)
        named = {number for kind, number in notes if kind == log_packing.ROBOTS}
        columns = self._frame(self.index.robots, log_packing.RobotsColumns)
        texts = chain.from_iterable(_chunks(columns.origins))
        wanted = [(number, text) for number, text in enumerate(texts) if number in named]
        numbers = (number for number, _ in wanted)
        return dict(zip(numbers, _robots_at(columns, wanted, slot), strict=True))

    def events(
        self,
        bucket: int,
        slot: str,
        takes: Takes | None = None,
        span: Span = EVER,
        *,
        texts: Collection[bytes] | None = None,
        only_requests: bool = False,
    ) -> Iterator[Line]:
        """A block's lines in the order of the log: of the accepted pairs, or all, and of requests that began or ended
        within a range of the wall clock. `texts`: a block whose keys and origins mention none of them has no accepted
        pair. `only_requests`: without the records they are judged by.
        """
        block = self.index.blocks[bucket]
        has_notes = bool(self.index.boots or block.far)
        if not has_notes and texts is not None and not self.mentions(bucket, texts):
            return iter(())
        pairs = self.pairs(bucket)
        mask = [takes(*pair) for pair in pairs] if takes is not None else []
        if takes is not None and not any(mask) and not has_notes:
            return iter(())
        body = self._frame(block.body, log_packing.BlockColumns)
        chosen = _chosen(body, mask, span) if mask or span != EVER else b""
        if chosen and not any(chosen) and not has_notes:
            return iter(())
        return self._decoded(body, pairs, chosen, slot, only_requests=only_requests)

    def requests(self, slot: str) -> Iterator[Line]:
        """All requests and openings: between two openings block after block, so each site's are in their order. This
        costs half as much as sorting all of them by time.
        """
        streams = [self.events(bucket, slot, only_requests=True) for bucket in range(BUCKETS)]
        for boot in (*self.index.boots, None):
            for stream in streams:
                for line in stream:
                    if isinstance(line, Boot):
                        break
                    yield line
            if boot is not None:
                yield boot

    def in_order(self, slot: str) -> Iterator[Line]:
        """All lines: between two openings those of different blocks by their times."""
        streams = [self.events(bucket, slot) for bucket in range(BUCKETS)]
        for number in range(len(self.index.boots) + 1):
            far = set[tuple[int, float, str]]()  # an end whose start is unknown is in all blocks
            for _, line in merge(*(_timed(stream) for stream in streams), key=lambda timed: timed[0]):
                if not isinstance(line, _FarFinish):
                    yield line
                elif (end := (line.item, line.at, line.status)) not in far:
                    far.add(end)
                    yield RequestEnd(*end)
            yield from islice(self.index.boots, number, number + 1)

    def _decoded(
        self,
        body: log_packing.BlockColumns,
        pairs: list[tuple[str, str]],
        chosen: bytes,
        slot: str,
        *,
        only_requests: bool,
    ) -> Iterator[Line]:
        texts = self._texts()
        forms = self._forms(texts)
        statuses = texts.statuses.decode().split("\n")
        items, ats = array("q", _items(body)), array("q", _steps(body.ats))
        starts = zip(
            items, ats, _steps(body.leads), unpacked_ints(body.pairs), unpacked_ints(body.forms), _lines(body.paths),
            strict=False,
        )  # fmt: skip
        ends = zip(unpacked_ints(body.back), unpacked_ints(body.took), unpacked_ints(body.statuses), strict=True)
        far, notes = _steps(body.far), iter(unpacked_ints(body.notes))
        robots: dict[int, RobotsKnown] | None = None
        settings: list[CrawlSettings] | None = None
        count = 0
        for kind in body.kinds:
            if kind == log_packing.END:
                back, took, status = next(ends)
                if not back:
                    yield _FarFinish(next(far), took / 1e6, statuses[status])
                elif not chosen or chosen[count - back]:
                    number = count - back
                    yield RequestEnd(items[number], (ats[number] + took) / 1e6, statuses[status])
            elif kind in _STARTS:
                item, at, lead, pair, form, path = next(starts)
                count += 1
                if not chosen or chosen[count - 1]:
                    (key, origin), (delay_s, places, crawl, hand, lasts_s) = pairs[pair], forms[form]
                    wall, url = (at + lead) / 1e6, origin + path
                    yield RequestStart(item, at / 1e6, wall, key, delay_s, places, url, slot, crawl, hand, lasts_s)
            elif only_requests and kind != log_packing.BOOT:
                next(notes)
            elif kind == log_packing.ROBOTS:
                robots = self._robots_of(body, slot) if robots is None else robots
                yield robots[next(notes)]
            elif kind == log_packing.CRAWL:
                settings = self._settings(texts, slot) if settings is None else settings
                yield settings[next(notes)]
            else:
                yield self.index.boots[next(notes)]

    def _forms(self, texts: log_packing.Texts) -> list[tuple[float, int, int, str, float]]:
        """What many requests have in common: delay, slots, crawl, hand, and how long that may take."""
        forms = list[tuple[float, int, int, str, float]]()
        for delay, places, crawl, *by_hand in _rows(texts.forms):
            hand, lasts = by_hand or ("", "0")
            forms.append((float(delay), int(places), int(crawl), hand, float(lasts)))
        return forms

    def _settings(self, texts: log_packing.Texts, slot: str) -> list[CrawlSettings]:
        lines = (parsed(text, slot) for text in texts.settings.split(b"\n") if text)
        return [line for line in lines if isinstance(line, CrawlSettings)]

    def _texts(self) -> log_packing.Texts:
        return self._frame(self.index.texts, log_packing.Texts)

    def _frame(self, frame: Frame, kind: type[_Read]) -> _Read:
        data = self.segment.read(frame)
        try:
            return msgspec.msgpack.decode(zstd.decompress(data), type=kind)
        except (msgspec.MsgspecError, zstd.ZstdError) as error:
            raise Unjudged(self.segment.path, f"a frame cannot be read: {error}") from None


class PackedSegment:
    """A file of packed parts; Unjudged if neither copy of its index can be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        index, self._first = _index(path)
        self.raw_bytes = index.raw_bytes
        self.parts = [LogPart(self, part) for part in index.parts]

    def read(self, frame: Frame) -> bytes:
        """The compressed bytes of a frame."""
        offset, length, sum_ = frame
        with self.path.open("rb") as file:
            file.seek(self._first + offset)
            data = file.read(length)
        if crc32(data) != sum_:
            raise Unjudged(self.path, f"{length:,} bytes from {self._first + offset:,} on are damaged")
        return data


def _index(path: Path) -> tuple[_Index, int]:
    """The index, and the offset of the frames."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        for is_last in (False, True):
            file.seek(max(0, size - _EDGE) if is_last else 0)
            edge = file.read(_EDGE)
            magic, ends = (edge[-len(MAGIC) :], edge[: _ENDS.size]) if is_last else (edge[: len(MAGIC)], edge[8:])
            if magic not in (MAGIC, _EARLIER) or len(ends) < _ENDS.size:
                continue
            length, sum_ = _ENDS.unpack(ends)
            if length > min(size, _MOST_INDEX):
                continue
            file.seek(size - _EDGE - length if is_last else _EDGE)
            data = file.read(length)
            if crc32(data) == sum_:
                return msgspec.msgpack.decode(data, type=_Index), _EDGE + length
    raise Unjudged(path, "its index cannot be read")


def _timed(lines: Iterator[Line]) -> Iterator[tuple[float, Line]]:
    """Lines up to the next opening, each with a time that never decreases."""
    latest = float("-inf")
    for line in lines:
        if isinstance(line, Boot):
            return
        latest = max(latest, line.at)
        yield latest, line


def _chunks(text: bytes) -> Iterator[list[bytes]]:
    """The lines of a column of texts, some at a time: a list of all takes several times the memory of the column."""
    at = 0
    while (end := text.find(b"\n", at + _CHUNK_BYTES)) >= 0:
        yield text[at:end].split(b"\n")
        at = end + 1
    yield text[at:].split(b"\n")


def _lines(text: bytes) -> Iterator[str]:
    return map(bytes.decode, chain.from_iterable(_chunks(text)))


def _robots_at(columns: log_packing.RobotsColumns, wanted: list[tuple[int, bytes]], slot: str) -> list[RobotsKnown]:
    """Some of a part's robots.txt files: their numbers, which increase, and origins."""
    if not wanted:
        return []
    numbers = {number for number, _ in wanted}
    texts = enumerate(chain.from_iterable(_chunks(columns.digests)))
    digests = [intern(text.decode()) for number, text in texts if number in numbers]  # many sites have equal files
    ats = array("q", _steps(columns.ats))
    return [
        RobotsKnown(ats[number] / 1e6, digest, origin.decode(), slot)
        for (number, origin), digest in zip(wanted, digests, strict=True)
    ]


def _steps(data: bytes) -> Iterator[int]:
    """The numbers of a column of differences, one at a time."""
    return accumulate(unpacked_ints(data))


def _items(body: log_packing.BlockColumns) -> Iterator[int]:
    """The items of a block's starts."""
    pages, robots_items = _steps(body.items), _steps(body.robots_items)
    kinds = (kind for kind in body.kinds if kind in _STARTS)
    return (next(pages) if kind == log_packing.START else next(robots_items) for kind in kinds)


def _chosen(body: log_packing.BlockColumns, mask: list[bool], span: Span) -> bytes:
    """The starts of a block that are read: of the pairs in the mask, without those that ended before the range or began
    after it. One without an end here is open at the end of the part, or for good.
    """
    of, (since, until) = unpacked_ints(body.pairs), span
    if span == EVER:
        return bytes(mask[pair] for pair in of)
    took = _lasted(body, len(of))
    walls = zip(_steps(body.ats), _steps(body.leads), took, strict=True)
    is_near = bytes(1e6 * since <= at + lead + lasted and at + lead < 1e6 * until for at, lead, lasted in walls)
    return bytes(near and mask[pair] for near, pair in zip(is_near, of, strict=True)) if mask else is_near


def _lasted(body: log_packing.BlockColumns, starts: int) -> array[float]:
    """How many microseconds each request took; infinite without an end here."""
    lasted, count = array("d", [inf]) * starts, 0
    ends = zip(unpacked_ints(body.back), unpacked_ints(body.took), strict=True)
    for kind in body.kinds:
        if kind == log_packing.END:
            back, took = next(ends)
            if back:
                lasted[count - back] = took
        elif kind in _STARTS:
            count += 1
    return lasted


def _rows(text: bytes) -> list[list[str]]:
    return [row.split("\t") for row in text.decode().split("\n")] if text else []
