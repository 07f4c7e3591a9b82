"""Saves the working set, so that a restart need not replay the journal from its beginning.

What grows with a crawl is written as it comes: the pieces of long queues and the swapped-out sites as blobs (`blobs`),
the list of those sites as changes (`swap_file`). A checkpoint names the valid part of both, and contains the state of
the sites that are in memory, whose number is bounded. It names the last journal line that it includes; the journal
stays the truth. It is a stream of length-prefixed msgpack records, compressed, written to a temporary file that
replaces the old one when it is complete and on the disk. If it is missing, torn, of another layout or fails its
checksum, or if a blob that it names is missing, the whole journal is replayed instead.
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
from weft.files import sync_folder
from weft.frontier.contract import Item
from weft.frontier.durability.blobs import BlobCheckpoint
from weft.frontier.durability.compression import packed, unpacked
from weft.frontier.durability.journal import REMEDY
from weft.frontier.durability.swap_file import SwapPosition
from weft.frontier.scheduling.queues import Queues
from weft.frontier.scheduling.sites import Crawl, KnownDepth, SiteQueue
from weft.frontier.scheduling.spill import QueueState, pieces_of
from weft.frontier.seen.seen_runs import SeenState
from weft.telemetry import Log

LAYOUT = 7
_QUEUES_PER_RECORD = 500
_encode_record = msgspec.msgpack.Encoder().encode
_END_RECORD = b"\x05\x00\x00\x00" + packed(_encode_record("end"))
_SUM_BYTES = 8  # a checksum of the whole file follows the end record
_READ_BYTES = 1024 * 1024
log = Log("weft.frontier.durability.checkpoint")


class CrawlRecord(Struct, array_like=True):
    """The record of one crawl."""

    number: int
    has_depths: bool
    queued_on_disk: int
    delay_s: float  # by which its swapped-out sites are due


class CheckpointHeader(Struct, array_like=True):
    """The first record."""

    layout: int
    seq: int  # the last journal line that is included
    next_item: int
    admitted: int
    finished: int
    crawls: list[CrawlRecord]
    blobs: BlobCheckpoint
    swapped: SwapPosition
    boot: str  # by whose clock swapped-out sites are due


class OpenItem(Struct, array_like=True):
    """An item that was taken out of its queue and whose end is not durable."""

    crawl: int
    item: Item


class SiteQueueRecord(Struct, array_like=True):
    """The record of a crawl's queued items at a site.

    How often something urgent was tried, and when it may be again, is in the journal.
    """

    crawl: int
    key: str
    origins: list[str]
    urgent: list[Item]
    queues: list[tuple[int, QueueState]]  # by depth


class CheckpointWriter:
    """Writes a checkpoint."""

    def __init__(self, path: Path, header: CheckpointHeader, queues: Queues, seen: SeenState) -> None:
        self._path = path
        self._header = header
        self._queues = queues
        self._seen = seen

    def write(self, out: list[OpenItem], ended: dict[int, bytes]) -> None:
        """Replaces the checkpoint, or leaves the old one if that fails.

        `out`: items that are leased, or ended and not yet acknowledged. `ended`: see `CheckpointReader.ended`.
        """
        temporary = temporary_of(self._path)
        with writing(self._path):
            try:
                with open(temporary, "wb", opener=_open_private) as file:
                    checksum = xxh3_64()
                    for record in self._all_records(out, ended):
                        data = packed(_encode_record(record))
                        data = len(data).to_bytes(4, "little") + data
                        checksum.update(data)
                        file.write(data)
                    file.write(checksum.digest())
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(self._path)
                sync_folder(self._path.parent)  # blobs that only the previous one names are deleted after this
            except OSError:
                temporary.unlink(missing_ok=True)
                raise

    def _all_records(self, out: list[OpenItem], ended: dict[int, bytes]) -> Iterator[Any]:
        yield self._header
        yield self._seen
        yield ended
        yield out
        for crawl in self._queues.crawls.values():
            if crawl.depths is not None:
                yield [(mark, known.depth, known.item, known.ended) for mark, known in crawl.depths.items()]
        waiting = self._site_queues()
        while queues := list(islice(waiting, _QUEUES_PER_RECORD)):
            yield list(map(_record_of, queues))
        yield "end"

    def _site_queues(self) -> Iterator[SiteQueue]:
        for site in self._queues.sites.values():
            yield from (queue for queue in site.all_queues() if queue.queued)


class CheckpointReader:
    """Reads a checkpoint; `header` is None if there is no usable one."""

    def __init__(self, path: Path, last_seq: int, crawls: dict[int, Crawl], alive: Alive = silent) -> None:
        self._alive = alive
        self._file: BinaryIO | None = None
        self.header: CheckpointHeader | None = None
        try:
            self._file = path.open("rb")
            whole = _is_whole(self._file, alive)
            header = self._next_record(CheckpointHeader)
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError, ValueError, EOFError):
            whole, header = False, None
        if not whole or header is None:
            log.warning("the checkpoint cannot be used: the whole journal is replayed", file=path)
        elif header.layout == LAYOUT and header.seq > last_seq:
            # The journal was synced up to that line before the checkpoint was written.
            journal = path.with_name("frontier.db")
            raise Damaged(
                journal, f"ends before the checkpoint beside it ({last_seq:,} of {header.seq:,} lines)", REMEDY
            )
        elif header.layout == LAYOUT and _has_needed_depths(header, crawls):
            self.header = header

    def seen(self) -> SeenState:
        """What the crawls have seen. Must be read before `ended`."""
        state: SeenState = self._next_record(SeenState)
        return state

    def ended(self) -> dict[int, bytes]:
        """A bitmap of items that lie in the queues although they have ended. Must be read before `load`."""
        ended: dict[int, bytes] = self._next_record(dict[int, bytes])
        return ended

    def load(self, queues: Queues, now: float, ended: Container[int]) -> list[OpenItem]:
        """Fills the working set and returns the items that were out of their queues."""
        assert self.header is not None
        out: list[OpenItem] = self._next_record(list[OpenItem])
        for record in self.header.crawls:
            self._load_crawl(queues.crawls.get(record.number), record.has_depths, ended)
        while (records := self._next_record(list[SiteQueueRecord] | str)) != "end":
            for record in records:
                assert isinstance(record, SiteQueueRecord)
                self._load_queue(record, queues, now, ended)
        return out

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()

    def _load_crawl(self, crawl: Crawl | None, has_depths: bool, ended: Container[int]) -> None:
        """Loads the depths of a crawl; one that has ended since, or is not open, is skipped."""
        if has_depths:
            marks = self._next_record(list[tuple[int, int, int, bool]])
            if crawl is not None and crawl.depths is not None:
                for mark, depth, item, over in marks:
                    crawl.depths[mark] = KnownDepth(depth, item, ended=over or item in ended)

    def _load_queue(self, record: SiteQueueRecord, queues: Queues, now: float, ended: Container[int]) -> None:
        crawl = queues.crawls.get(record.crawl)
        if crawl is None:
            for _, state in record.queues:
                queues.blobs.drop_all(pieces_of(state))
            return
        site_queue = queues.queue_at(record.key, crawl)
        for origin in record.origins:
            site_queue.origin_number(origin)
        for depth, state in record.queues:
            queue = site_queue.queue(depth)
            queue.restore(state)
            site_queue.queued += len(queue)
            crawl.queued += len(queue)
            queues.queued += len(queue)
        for item in record.urgent:
            if item.item not in ended:
                attempt, not_before = queues.failed_tries(item.item, now)
                queues.push_urgent(site_queue, msgspec.structs.replace(item, attempt=attempt), not_before)
        queues.swapping.make_swappable_later(site_queue.site)

    def _next_record(self, kind: Any) -> Any:
        assert self._file is not None
        size = self._file.read(4)
        if len(size) < 4:
            raise EOFError
        self._alive()
        return msgspec.msgpack.decode(unpacked(self._file.read(int.from_bytes(size, "little"))), type=kind)


def _record_of(site_queue: SiteQueue) -> SiteQueueRecord:
    urgent = [item for _, _, item in (*(site_queue.urgent or ()), *(site_queue.sitemaps or ()))]
    queues = [(queue.depth, queue.state()) for queue in site_queue.queues]
    return SiteQueueRecord(site_queue.crawl.number, site_queue.key, site_queue.origins, urgent, queues)


def temporary_of(path: Path) -> Path:
    """The file in which a checkpoint is written before it replaces the previous one."""
    return path.with_suffix(".tmp")


def _is_whole(file: BinaryIO, alive: Alive) -> bool:
    """Whether a file is complete and matches its checksum; resets it to its beginning."""
    size = file.seek(0, os.SEEK_END) - _SUM_BYTES
    checksum, end = xxh3_64(), b""
    file.seek(0)
    while (left := size - file.tell()) > 0 and (piece := file.read(min(_READ_BYTES, left))):
        checksum.update(piece)
        alive()
        end = (end + piece)[-len(_END_RECORD) :]
    whole = end == _END_RECORD and file.read() == checksum.digest()
    file.seek(0)
    return whole


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _has_needed_depths(header: CheckpointHeader, crawls: dict[int, Crawl]) -> bool:
    """Whether it has the depths of those crawls that need them now. Crawls that it lacks are read from the journal."""
    there = {crawl.number: crawl.has_depths for crawl in header.crawls}
    return all(crawl.depths is None or there.get(number, True) for number, crawl in crawls.items())
