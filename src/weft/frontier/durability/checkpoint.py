"""The working set written down as a whole, so that a restart need not replay the journal from its beginning.

A checkpoint names the last journal line it includes; the journal stays the truth. It is a stream of length-prefixed
msgpack records, written to a temporary file that replaces the old one when it is complete and on the disk. Where it is
missing, torn, of another layout or fails its checksum, the whole journal is replayed instead.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct
from xxhash import xxh3_64

from weft.alive import Alive, silent
from weft.errors import Damaged, writing
from weft.frontier.contract import Item
from weft.frontier.journal import REMEDY
from weft.frontier.scheduling.queues import Queues
from weft.frontier.scheduling.sites import Crawl, KnownDepth, Lane
from weft.frontier.seen import SeenSet
from weft.telemetry import Log

LAYOUT = 4
_LANES_PER_RECORD = 500
_encode = msgspec.msgpack.Encoder().encode
_END = b"\x04\x00\x00\x00" + _encode("end")
_SUM_BYTES = 8  # a checksum of the whole file follows the end record
_PIECE = 1024 * 1024
log = Log("weft.frontier.durability.checkpoint")


class Header(Struct, array_like=True):
    """The first record."""

    layout: int
    seq: int  # the last journal line that is included
    next_item: int
    admitted: int
    finished: int
    crawls: list[tuple[int, bool]]  # their numbers, and whether the depths of their URLs are included


class OpenItem(Struct, array_like=True):
    """An item that was taken out of its queue and whose end is not durable."""

    crawl: int
    item: Item


class LaneRecord(Struct, array_like=True):
    """The queues of a lane; a long queue continues in the records that follow.

    How often something urgent was tried, and when it may be again, is in the journal.
    """

    crawl: int
    key: str
    origins: list[str]
    urgent: list[Item]
    queues: list[tuple[int, int, bytes]]  # depth, length, first piece
    more: list[int]  # the depth of each further piece; the pieces follow, one a record


class Writer:
    """Writes a checkpoint."""

    def __init__(self, path: Path, header: Header, queues: Queues) -> None:
        self._path = path
        self._header = header
        self._queues = queues

    def write(self, out: list[OpenItem], ended: dict[int, bytes]) -> None:
        """Replaces the checkpoint, or leaves the old one where that fails.

        `out`: items that are leased, or ended and not yet acknowledged. `ended`: see `Reader.ended`.
        """
        temporary = temporary_of(self._path)
        with writing(self._path):
            try:
                with open(temporary, "wb", opener=_private) as file:
                    checksum = xxh3_64()
                    for record in self._records(out, ended):
                        data = _encode(record)
                        data = len(data).to_bytes(4, "little") + data
                        checksum.update(data)
                        file.write(data)
                    file.write(checksum.digest())
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(self._path)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise

    def _records(self, out: list[OpenItem], ended: dict[int, bytes]) -> Iterator[Any]:
        yield self._header
        yield ended
        yield out
        for crawl in self._queues.crawls.values():
            yield crawl.seen.shape()
            yield from crawl.seen.dump()
            if crawl.depths is not None:
                yield [(mark, known.depth, known.item, known.ended) for mark, known in crawl.depths.items()]
        waiting = self._lanes()
        while lanes := list(islice(waiting, _LANES_PER_RECORD)):
            pieces: list[bytes] = []
            yield [self._lane(lane, pieces) for lane in lanes]
            yield from pieces
        yield "end"

    def _lanes(self) -> Iterator[Lane]:
        for site in self._queues.sites.values():
            yield from (lane for lane in site.all_lanes() if lane.queued)
        for crawl in self._queues.crawls.values():
            yield from self._queues.at_rest.lanes_at_rest(crawl)

    def _lane(self, lane: Lane, pieces: list[bytes]) -> LaneRecord:
        urgent = [item for _, _, item in (*(lane.urgent or ()), *(lane.sitemaps or ()))]
        record = LaneRecord(lane.crawl.number, lane.key, lane.origins, urgent, [], [])
        for queue in lane.queues:
            first, *others = queue.dump()
            record.queues.append((queue.depth, len(queue), first))
            record.more += [queue.depth] * len(others)
            pieces += others
        return record


class Reader:
    """Reads a checkpoint; `header` is None where there is no usable one."""

    def __init__(self, path: Path, last_seq: int, crawls: dict[int, Crawl], alive: Alive = silent) -> None:
        self._alive = alive
        self._file: BinaryIO | None = None
        self.header: Header | None = None
        try:
            self._file = path.open("rb")
            whole = _is_whole(self._file, alive)
            header = self._next(Header)
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, EOFError):
            whole, header = False, None
        if not whole or header is None:
            log.warning("the checkpoint cannot be used: the whole journal is replayed", file=path)
        elif header.layout == LAYOUT and header.seq > last_seq:
            # The journal was synced up to that line before the checkpoint was written.
            journal = path.with_name("frontier.db")
            raise Damaged(
                journal, f"ends before the checkpoint beside it ({last_seq:,} of {header.seq:,} lines)", REMEDY
            )
        elif header.layout == LAYOUT and _fits(header, crawls):
            self.header = header

    def ended(self) -> dict[int, bytes]:
        """A bitmap of items that lie in the queues although they have ended. Must be read before `load`."""
        ended: dict[int, bytes] = self._next(dict[int, bytes])
        return ended

    def load(self, queues: Queues, now: float, ended: Container[int]) -> list[OpenItem]:
        """Fills the working set and returns the items that were out of their queues, without those in `ended`."""
        assert self.header is not None
        out = [one for one in self._next(list[OpenItem]) if one.item.item not in ended and one.crawl in queues.crawls]
        for number, has_depths in self.header.crawls:
            self._load_crawl(queues.crawls.get(number), has_depths, ended)
        while (records := self._next(list[LaneRecord] | str)) != "end":
            for record in records:
                assert isinstance(record, LaneRecord)
                self._load_lane(record, queues, now, ended)
        return out

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()

    def _load_crawl(self, crawl: Crawl | None, has_depths: bool, ended: Container[int]) -> None:
        """What a crawl has seen; one that has ended since, or is not open, is passed over."""
        seen = crawl.seen if crawl is not None else SeenSet(0)
        pieces = seen.reset_to(self._next(tuple[int, int, int]))
        for _ in range(pieces):
            seen.load(self._next(tuple[list[int], bytes]))
        if has_depths:
            marks = self._next(list[tuple[int, int, int, bool]])
            if crawl is not None and crawl.depths is not None:
                for mark, depth, item, over in marks:
                    crawl.depths[mark] = KnownDepth(depth, item, ended=over or item in ended)

    def _load_lane(self, record: LaneRecord, queues: Queues, now: float, ended: Container[int]) -> None:
        crawl = queues.crawls.get(record.crawl)
        if crawl is None:
            for _ in record.more:
                self._next(bytes)
            return
        lane = queues.lane_at(record.key, crawl)
        for origin in record.origins:
            lane.place_of(origin)
        for depth, count, piece in record.queues:
            lane.queue(depth).load(piece, count)
            lane.queued += count
            crawl.queued += count
            queues.queued += count
        for depth in record.more:
            lane.queue(depth).load(self._next(bytes), 0)
        for item in record.urgent:
            if item.item not in ended:
                attempt, not_before = queues.tried(item.item, now)
                queues.push_urgent(lane, msgspec.structs.replace(item, attempt=attempt), not_before)
        queues.at_rest.settle(lane.site, lane)

    def _next(self, kind: Any) -> Any:
        assert self._file is not None
        size = self._file.read(4)
        if len(size) < 4:
            raise EOFError
        self._alive()
        return msgspec.msgpack.decode(self._file.read(int.from_bytes(size, "little")), type=kind)


def temporary_of(path: Path) -> Path:
    """The file in which a checkpoint is written before it replaces the one before."""
    return path.with_suffix(".tmp")


def _is_whole(file: BinaryIO, alive: Alive) -> bool:
    """Whether a file is complete and matches its checksum; leaves it at its beginning."""
    size = file.seek(0, os.SEEK_END) - _SUM_BYTES
    checksum, end = xxh3_64(), b""
    file.seek(0)
    while (left := size - file.tell()) > 0 and (piece := file.read(min(_PIECE, left))):
        checksum.update(piece)
        alive()
        end = (end + piece)[-len(_END) :]
    whole = end == _END and file.read() == checksum.digest()
    file.seek(0)
    return whole


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _fits(header: Header, crawls: dict[int, Crawl]) -> bool:
    """Whether it has these crawls' depths where depth decides now. What it lacks of a crawl is in the journal."""
    there = dict(header.crawls)
    return all(crawl.depths is None or there.get(number, True) for number, crawl in crawls.items())
