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
from weft.frontier.requests.columns import unpack_ints, unpack_steps
from weft.frontier.requests.log_packing import BUCKETS, FramePosition, PartIndex, zstd
from weft.frontier.requests.request_lines import (
    BootLine,
    LogLine,
    RequestEnd,
    RequestStart,
    RobotsKnown,
    SettingsInForce,
    parse_log_line,
)

PACKED_MAGIC = b"weft\x00rq2"
_EARLIER_MAGIC = b"weft\x00rq1"  # keys as they are, which `restore_key` reads too
PART_BYTES = 24 * 1024 * 1024  # a file has one: it is closed at 16 MiB, with the lines that were flushed then
_INDEX_ENDS = struct.Struct("<II")
_EDGE_BYTES = len(PACKED_MAGIC) + _INDEX_ENDS.size
_MOST_INDEX_BYTES = 1 << 28
_MOST_FRAME_BYTES = 1 << 31
_CHUNK_BYTES = 1 << 16
_START_LETTERS = (log_packing.START, log_packing.ROBOTS_START)
_NOTES = (log_packing.ROBOTS, log_packing.CRAWL, log_packing.BOOT)
PairFilter = Callable[[str, str], bool]  # whether requests of a pair of key and origin are read
WallRange = tuple[float, float]  # from a time of the wall clock to another
ALL_TIME: WallRange = (-inf, inf)
_FrameContent = TypeVar("_FrameContent")


class UnreadableLog(Exception):
    """A frame, or a whole segment, differs from what was written."""

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.path = path


class _SegmentIndex(Struct, frozen=True, array_like=True):
    raw_bytes: int
    parts: list[PartIndex]


def write_packed(out: Path, raw_bytes: int, parts: list[tuple[list[bytes], PartIndex]]) -> None:
    """Writes a new file; the caller moves it to its final name."""
    index = msgspec.msgpack.encode(_SegmentIndex(raw_bytes, [index for _, index in parts]))
    ends = _INDEX_ENDS.pack(len(index), crc32(index))
    with out.open("xb") as file:
        file.write(PACKED_MAGIC + ends + index)
        for frames, _ in parts:
            file.writelines(frames)
        file.write(index + ends + PACKED_MAGIC)


class _FarFinish(RequestEnd, frozen=True, gc=False):
    """An end whose start is in an earlier part."""


class LogPart:
    """About PART_BYTES of lines of a segment."""

    def __init__(self, segment: PackedSegment, index: PartIndex) -> None:
        self.segment = segment
        self.index = index

    def open_requests(self) -> dict[int, int]:
        """The blocks of the requests that have no end yet."""
        opened = self._read_frame(self.index.open, log_packing.OpenRequests)
        return dict(zip(unpack_steps(opened.items), unpack_ints(opened.buckets), strict=True))

    def starts_of(self, bucket: int, items: set[int], slot: str = "") -> list[RequestStart]:
        """The starts of some items in a block."""
        body = self._read_frame(self.index.blocks[bucket].body, log_packing.BlockColumns)
        chosen = bytes(item in items for item in _items_of_starts(body))
        if not any(chosen):
            return []
        lines = self._decode_lines(body, self.key_origin_pairs(bucket), chosen, slot, only_requests=True)
        return [line for line in lines if isinstance(line, RequestStart)]

    def frame_positions(self) -> list[FramePosition]:
        """The positions of all frames."""
        blocks = [frame for block in self.index.blocks for frame in (block.head, block.body)]
        return [*blocks, self.index.texts, self.index.robots, self.index.open]

    def key_origin_pairs(self, bucket: int) -> list[tuple[str, str]]:
        """The politeness keys and origins of a block's requests."""
        head = self._read_frame(self.index.blocks[bucket].head, log_packing.BlockHeader)
        if not head.keys:
            return []
        rows = zip(_lines(head.keys), _lines(head.origins), strict=True)
        return [(log_packing.restore_key(key, origin), origin) for key, origin in rows]

    def settings(self, slot: str) -> list[SettingsInForce]:
        """The settings that crawls' requests follow at the end of this part, as far as its process recorded
        them here.
        """
        texts = self._read_texts()
        return self._decode_settings(texts, slot)[texts.current :]

    def mentions_any(self, bucket: int, texts: Collection[bytes]) -> bool:
        """Whether one of some texts occurs in the keys or origins of a block, which costs far less than `pairs`."""
        head = self._read_frame(self.index.blocks[bucket].head, log_packing.BlockHeader)
        return any(text in head.origins or text in head.keys for text in texts)

    def robots(self, slot: str, origins: Collection[bytes]) -> list[RobotsKnown]:
        """The robots.txt files of some origins that came into force in this part. A part may have a hundred thousand:
        those of others are passed over without an object for each.
        """
        columns = self._read_frame(self.index.robots, log_packing.RobotsColumns)
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
        notes = zip(kinds, unpack_ints(body.notes), strict=True)
        named = {number for kind, number in notes if kind == log_packing.ROBOTS}
        columns = self._read_frame(self.index.robots, log_packing.RobotsColumns)
        texts = chain.from_iterable(_chunks(columns.origins))
        wanted = [(number, text) for number, text in enumerate(texts) if number in named]
        numbers = (number for number, _ in wanted)
        return dict(zip(numbers, _robots_at(columns, wanted, slot), strict=True))

    def events(
        self,
        bucket: int,
        slot: str,
        takes: PairFilter | None = None,
        span: WallRange = ALL_TIME,
        *,
        texts: Collection[bytes] | None = None,
        only_requests: bool = False,
    ) -> Iterator[LogLine]:
        """A block's lines in the order of the log: of the accepted pairs, or all, and of requests that began or ended
        within a range of the wall clock. `texts`: a block whose keys and origins mention none of them has no accepted
        pair. `only_requests`: without the records they are judged by.
        """
        block = self.index.blocks[bucket]
        has_notes = bool(self.index.boots or block.far)
        if not has_notes and texts is not None and not self.mentions_any(bucket, texts):
            return iter(())
        pairs = self.key_origin_pairs(bucket)
        mask = [takes(*pair) for pair in pairs] if takes is not None else []
        if takes is not None and not any(mask) and not has_notes:
            return iter(())
        body = self._read_frame(block.body, log_packing.BlockColumns)
        chosen = _select_starts(body, mask, span) if mask or span != ALL_TIME else b""
        if chosen and not any(chosen) and not has_notes:
            return iter(())
        return self._decode_lines(body, pairs, chosen, slot, only_requests=only_requests)

    def requests(self, slot: str) -> Iterator[LogLine]:
        """All requests and openings: between two openings block after block, so each site's are in their order. This
        costs half as much as sorting all of them by time.
        """
        streams = [self.events(bucket, slot, only_requests=True) for bucket in range(BUCKETS)]
        for boot in (*self.index.boots, None):
            for stream in streams:
                for line in stream:
                    if isinstance(line, BootLine):
                        break
                    yield line
            if boot is not None:
                yield boot

    def lines_in_order(self, slot: str) -> Iterator[LogLine]:
        """All lines: between two openings those of different blocks by their times."""
        streams = [self.events(bucket, slot) for bucket in range(BUCKETS)]
        for number in range(len(self.index.boots) + 1):
            far = set[tuple[int, float, str]]()  # an end whose start is unknown is in all blocks
            for _, line in merge(*(_with_growing_times(stream) for stream in streams), key=lambda timed: timed[0]):
                if not isinstance(line, _FarFinish):
                    yield line
                elif (end := (line.item, line.at, line.status)) not in far:
                    far.add(end)
                    yield RequestEnd(*end)
            yield from islice(self.index.boots, number, number + 1)

    def _decode_lines(
        self,
        body: log_packing.BlockColumns,
        pairs: list[tuple[str, str]],
        chosen: bytes,
        slot: str,
        *,
        only_requests: bool,
    ) -> Iterator[LogLine]:
        texts = self._read_texts()
        forms = self._decode_forms(texts)
        statuses = texts.statuses.decode().split("\n")
        items, ats = array("q", _items_of_starts(body)), array("q", _steps(body.ats))
        starts = zip(
            items, ats, _steps(body.leads), unpack_ints(body.pairs), unpack_ints(body.forms), _lines(body.paths),
            strict=False,
        )  # fmt: skip
        ends = zip(unpack_ints(body.back), unpack_ints(body.took), unpack_ints(body.statuses), strict=True)
        far, notes = _steps(body.far), iter(unpack_ints(body.notes))
        robots: dict[int, RobotsKnown] | None = None
        settings: list[SettingsInForce] | None = None
        count = 0
        for kind in body.kinds:
            if kind == log_packing.END:
                back, took, status = next(ends)
                if not back:
                    yield _FarFinish(next(far), took / 1e6, statuses[status])
                elif not chosen or chosen[count - back]:
                    number = count - back
                    yield RequestEnd(items[number], (ats[number] + took) / 1e6, statuses[status])
            elif kind in _START_LETTERS:
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
                settings = self._decode_settings(texts, slot) if settings is None else settings
                yield settings[next(notes)]
            else:
                yield self.index.boots[next(notes)]

    def _decode_forms(self, texts: log_packing.RepeatedTexts) -> list[tuple[float, int, int, str, float]]:
        """What many requests have in common: delay, slots, crawl, hand, and how long that may take."""
        forms = list[tuple[float, int, int, str, float]]()
        for delay, places, crawl, *by_hand in _split_rows(texts.forms):
            hand, lasts = by_hand or ("", "0")
            forms.append((float(delay), int(places), int(crawl), hand, float(lasts)))
        return forms

    def _decode_settings(self, texts: log_packing.RepeatedTexts, slot: str) -> list[SettingsInForce]:
        lines = (parse_log_line(text, slot) for text in texts.settings.split(b"\n") if text)
        return [line for line in lines if isinstance(line, SettingsInForce)]

    def _read_texts(self) -> log_packing.RepeatedTexts:
        return self._read_frame(self.index.texts, log_packing.RepeatedTexts)

    def _read_frame(self, frame: FramePosition, kind: type[_FrameContent]) -> _FrameContent:
        data = self.segment.read_frame(frame)
        try:
            return msgspec.msgpack.decode(zstd.decompress(data), type=kind)
        except (msgspec.MsgspecError, zstd.ZstdError) as error:
            raise UnreadableLog(self.segment.path, f"a frame cannot be read: {error}") from None


class PackedSegment:
    """A file of packed parts; UnreadableLog if neither copy of its index can be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        index, self._first = _read_index(path)
        self.raw_bytes = index.raw_bytes
        self.parts = [LogPart(self, part) for part in index.parts]

    def read_frame(self, frame: FramePosition) -> bytes:
        """The compressed bytes of a frame."""
        offset, length, sum_ = frame
        with self.path.open("rb") as file:
            file.seek(self._first + offset)
            data = file.read(length)
        if crc32(data) != sum_:
            raise UnreadableLog(self.path, f"{length:,} bytes from {self._first + offset:,} on are damaged")
        return data


def _read_index(path: Path) -> tuple[_SegmentIndex, int]:
    """The index, and the offset of the frames."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        for is_last in (False, True):
            file.seek(max(0, size - _EDGE_BYTES) if is_last else 0)
            edge = file.read(_EDGE_BYTES)
            magic, ends = (
                (edge[-len(PACKED_MAGIC) :], edge[: _INDEX_ENDS.size])
                if is_last
                else (edge[: len(PACKED_MAGIC)], edge[8:])
            )
            if magic not in (PACKED_MAGIC, _EARLIER_MAGIC) or len(ends) < _INDEX_ENDS.size:
                continue
            length, sum_ = _INDEX_ENDS.unpack(ends)
            if length > min(size, _MOST_INDEX_BYTES):
                continue
            file.seek(size - _EDGE_BYTES - length if is_last else _EDGE_BYTES)
            data = file.read(length)
            if crc32(data) == sum_:
                return msgspec.msgpack.decode(data, type=_SegmentIndex), _EDGE_BYTES + length
    raise UnreadableLog(path, "its index cannot be read")


def _with_growing_times(lines: Iterator[LogLine]) -> Iterator[tuple[float, LogLine]]:
    """Lines up to the next opening, each with a time that never decreases."""
    latest = float("-inf")
    for line in lines:
        if isinstance(line, BootLine):
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
    return accumulate(unpack_ints(data))


def _items_of_starts(body: log_packing.BlockColumns) -> Iterator[int]:
    """The items of a block's starts."""
    pages, robots_items = _steps(body.items), _steps(body.robots_items)
    kinds = (kind for kind in body.kinds if kind in _START_LETTERS)
    return (next(pages) if kind == log_packing.START else next(robots_items) for kind in kinds)


def _select_starts(body: log_packing.BlockColumns, mask: list[bool], span: WallRange) -> bytes:
    """The starts of a block that are read: of the pairs in the mask, without those that ended before the range or began
    after it. One without an end here is open at the end of the part, or for good.
    """
    of, (since, until) = unpack_ints(body.pairs), span
    if span == ALL_TIME:
        return bytes(mask[pair] for pair in of)
    took = _durations_us(body, len(of))
    walls = zip(_steps(body.ats), _steps(body.leads), took, strict=True)
    is_near = bytes(1e6 * since <= at + lead + lasted and at + lead < 1e6 * until for at, lead, lasted in walls)
    return bytes(near and mask[pair] for near, pair in zip(is_near, of, strict=True)) if mask else is_near


def _durations_us(body: log_packing.BlockColumns, starts: int) -> array[float]:
    """How many microseconds each request took; infinite without an end here."""
    lasted, count = array("d", [inf]) * starts, 0
    ends = zip(unpack_ints(body.back), unpack_ints(body.took), strict=True)
    for kind in body.kinds:
        if kind == log_packing.END:
            back, took = next(ends)
            if back:
                lasted[count - back] = took
        elif kind in _START_LETTERS:
            count += 1
    return lasted


def _split_rows(text: bytes) -> list[list[str]]:
    return [row.split("\t") for row in text.decode().split("\n")] if text else []
