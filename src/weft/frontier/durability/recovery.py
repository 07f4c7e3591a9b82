"""How an embedded frontier is restored: the last checkpoint, then a replay of the journal since.

The queue is what was admitted minus what has ended. A checkpoint restores the queues without reading their parts on
disk; items that have ended since are skipped when they are popped.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from weft.alive import Alive, silent
from weft.frontier.durability.blobs import BlobCheckpoint
from weft.frontier.durability.checkpoint import (
    LAYOUT,
    CheckpointHeader,
    CheckpointReader,
    CheckpointWriter,
    CrawlRecord,
    OpenItem,
    temporary_of,
)
from weft.frontier.durability.items import Bitmap
from weft.frontier.durability.journal import FrontierJournal, sync_log
from weft.frontier.durability.journal_lines import parse_line
from weft.frontier.durability.saving import CheckpointChild
from weft.frontier.durability.swap_file import SwapFile, SwapPosition
from weft.frontier.requests import boot_id
from weft.frontier.scheduling.queues import Queues
from weft.frontier.scheduling.sites import Crawl, KnownDepth
from weft.frontier.seen.seen_runs import SeenRuns
from weft.frontier.seen.seen_set import seen_key
from weft.records import Found
from weft.telemetry import Log

_SITES_PER_HEARTBEAT = 1000  # sites between two heartbeats
log = Log("weft.frontier.durability.recovery")


class FrontierCounters(Struct):
    """Counters that a restart restores."""

    next_item: int
    admitted: int = 0
    finished: int = 0
    last_transient: int = -1

    def next_transient_item(self) -> int:
        """A negative number, for an item that is not in the journal: a robots.txt request."""
        self.last_transient -= 1
        return self.last_transient


class FrontierRecovery:
    """Writes checkpoints and restores from them."""

    def __init__(
        self, folder: Path, journal: FrontierJournal, queues: Queues, seen: SeenRuns, alive: Alive = silent
    ) -> None:
        self._path = folder / "checkpoint"
        self._seen = seen
        self._named_runs: frozenset[str] = frozenset()  # the runs named by the checkpoint that is being written
        self._swap_file = SwapFile(folder, queues.swapped)
        self._blobs = queues.blobs
        self._alive = alive
        self.is_restored = False  # crawls that are opened from now on are restored one by one
        self.replayed_lines = 0  # by `restore`: lines that the checkpoint did not contain
        self._journal = journal
        self._queues = queues
        self._excluded_items: Container[int] = ()  # items that an edit has excluded
        self._first_replayed = 0  # the checkpoint includes all items before this one
        self._replayed_items = Bitmap()  # items admitted by the journal since; filled by `restore(remember=True)`

    def knows_item(self, item: int) -> bool:
        """Whether the checkpoint or the journal has an item; valid after `restore(remember=True)`."""
        return item < self._first_replayed or item in self._replayed_items

    def save_checkpoint(self, counts: FrontierCounters, out: Callable[[], list[OpenItem]]) -> int:
        """Writes a checkpoint; everything must be committed to the journal. Returns its size in bytes."""
        write = self._begin_checkpoint(counts, out)
        try:
            write()
        except BaseException:
            self.end_checkpoint(was_written=False)
            raise
        return self.end_checkpoint(was_written=True)

    def save_in_child(self, counts: FrontierCounters, out: Callable[[], list[OpenItem]]) -> CheckpointChild:
        """Writes a checkpoint in a child process; call `saved` when that has ended."""
        return CheckpointChild(self._begin_checkpoint(counts, out))

    def written_bytes(self) -> int:
        """How many bytes of the checkpoint that is being written are in its file."""
        try:
            return temporary_of(self._path).stat().st_size
        except OSError:
            return 0

    def end_checkpoint(self, *, was_written: bool) -> int:
        """The checkpoint is on the disk, or was not written. Returns its size in bytes, with everything written
        for it.
        """
        if was_written:
            self._seen.keep_named(self._named_runs)
        temporary_of(self._path).unlink(missing_ok=True)  # left by a killed writer
        self._swap_file.end_checkpoint(was_written=was_written)
        self._blobs.end_checkpoint(was_written=was_written)
        if not was_written:
            return 0
        size = self._path.stat().st_size + self._swap_file.bytes_written + self._blobs.bytes_written
        self._swap_file.bytes_written = self._blobs.bytes_written = 0
        return size

    def _begin_checkpoint(self, counts: FrontierCounters, out: Callable[[], list[OpenItem]]) -> Callable[[], None]:
        seq = self._journal.last_seq()
        self._named_runs = self._seen.file_names()
        blobs, write_swapped = self._blobs.begin_checkpoint(), self._swap_file.begin_checkpoint()

        def write() -> None:
            sync_log(self._journal.path)
            self._blobs.sync()
            self._write_checkpoint(seq, counts, out(), blobs, write_swapped())

        return write

    def _write_checkpoint(
        self, seq: int, counts: FrontierCounters, out: list[OpenItem], blobs: BlobCheckpoint, swapped: SwapPosition
    ) -> None:
        crawls = [_crawl_record(crawl) for crawl in self._queues.crawls.values()]
        header = CheckpointHeader(
            LAYOUT, seq, counts.next_item, counts.admitted, counts.finished, crawls, blobs, swapped, boot_id()
        )  # fmt: skip
        # Items that ended before this process may still lie in a queue, and the lines with their ends will not be
        # replayed.
        seen = self._seen.state_for_checkpoint()
        self._seen.sync()
        CheckpointWriter(self._path, header, self._queues, seen).write(out, self._queues.ended.blocks())

    def restore(
        self,
        counts: FrontierCounters,
        done: Iterable[int],
        now: float,
        *,
        remember: bool,
        aside: Container[int],
        by_checkpoint: bool,
    ) -> list[int]:
        """Fills the queues and the counts; returns those of `done` whose ends are not in the journal.

        `remember`: keep what `knows` needs. `aside`: items that are not queued. Without
        `by_checkpoint` the journal alone is read.
        """
        queues, journal = self._queues, self._journal
        queues.retries = {item: (attempt, wall) for item, attempt, wall, _ in journal.rows("retries")}
        self._excluded_items = aside
        reader = CheckpointReader(self._path, journal.last_seq(), queues.crawls, self._alive)
        header = reader.header if by_checkpoint and self._has_named_files(reader.header) else None
        if header is None:
            self._blobs.clear()
            queues.swapped.clear()
        seq = header.seq if header is not None else 0
        self._seen.restore(reader.seen() if header is not None else None)
        ended = Bitmap(reader.ended() if header is not None else None)
        for line, crawl, numbers in journal.done_since(seq):
            self._seen.assign_entries(line, crawl, numbers)
            counts.finished += ended.add(numbers)
            self.replayed_lines += len(numbers)
            self._alive()
        unrecorded = [item for item in done if item not in ended]
        counts.finished += ended.add(unrecorded)
        queues.ended = ended
        if header is not None:
            self._first_replayed = header.next_item
            counts.next_item = max(counts.next_item, header.next_item)
            counts.admitted += header.admitted
            counts.finished += header.finished
            self._load_swapped_sites(header)
            for one in reader.load(queues, now, ended):
                self._queue_open_item(one, now, ended)
        reader.close()
        there = {crawl.number for crawl in header.crawls} if header is not None else set()
        absent = [number for number in queues.crawls if number not in there] if seq else []
        replayed = self._replayed_items if remember else None
        self._replay_admissions(seq, counts, ended, now, replayed, but=frozenset(absent))
        if not any(crawl.depths is not None for crawl in queues.crawls.values()):
            ended.keep_below(self._first_replayed)  # the others are in no queue
        for number in absent:
            # It was not open when the checkpoint was written: its items are only in the journal.
            self.restore_late_crawl(queues.crawls[number], counts, now, unrecorded)
        sites = iter(queues.sites.values())
        while some := list(islice(sites, _SITES_PER_HEARTBEAT)):
            for site in some:
                queues.schedule(site)
            self._alive()
        return unrecorded

    def _has_named_files(self, header: CheckpointHeader | None) -> bool:
        """Whether a checkpoint's blobs and swapped-out sites exist; the sites are then loaded."""
        if header is None:
            return False
        is_there = self._blobs.has_checkpoint(header.blobs) and self._swap_file.restore(header.swapped, self._alive)
        if not is_there:
            log.warning("what the checkpoint names is not there: the whole journal is replayed", file=self._blobs.path)
        return is_there

    def _load_swapped_sites(self, header: CheckpointHeader) -> None:
        """Restores the swapped-out sites."""
        queues = self._queues
        self._blobs.discard_since(header.blobs)
        for record in header.crawls:
            crawl = queues.crawls.get(record.number)
            if crawl is not None:
                crawl.queued += record.queued_on_disk
                queues.queued += record.queued_on_disk
                if crawl.section.delay_s < record.delay_s:
                    queues.swapped.make_due_now(crawl.number, queues.now())
        for number in {*queues.swapped.crawls()} - ({record.number for record in header.crawls} & {*queues.crawls}):
            queues.swapped.abandon(number)
        if header.boot != boot_id() or queues.clocks.not_before:  # the times may be of another clock, or invalid
            for number in queues.crawls:
                queues.swapped.make_due_now(number, queues.clocks.not_before)

    def _queue_open_item(self, one: OpenItem, now: float, ended: Bitmap) -> None:
        """Queues an item that was out of its queue, before the others, unless it has ended since."""
        crawl = self._queues.crawls.get(one.crawl)
        if crawl is None or one.item.item in ended:
            if crawl is None or crawl.depths is None:
                ended.discard(one.item.item)  # it is in no queue
            return
        if (known := crawl.known_depth(one.item)) is not None:
            known.ended = False  # its end was not durable; marked as ended it would be skipped by `pop`
        queue = self._queues.queue_at(self._queues.key_of(one.item.url), crawl)
        attempt, not_before = self._queues.failed_tries(one.item.item, now)
        item = msgspec.structs.replace(crawl.at_known_depth(one.item), attempt=attempt or one.item.attempt)
        self._queues.push_urgent(queue, item, not_before, first=True)

    def restore_late_crawl(
        self, crawl: Crawl, counts: FrontierCounters, now: float, unrecorded: Iterable[int] = ()
    ) -> None:
        """Fills the queues of a crawl that is opened after the others were restored. `unrecorded`: ended items whose
        ends the journal does not have.
        """
        self._queues.swapping.clear_all_sites(crawl.number, self._alive)
        ended = Bitmap()
        ended.add(unrecorded)
        for _, _, numbers in self._journal.done_since(0, crawl.number):
            ended.add(numbers)
            self._alive()
        self._replay_admissions(0, counts, ended, now, None, crawl.number)

    def _replay_admissions(
        self,
        seq: int,
        counts: FrontierCounters,
        ended: Bitmap,
        now: float,
        replayed: Bitmap | None,
        only: int | None = None,
        but: frozenset[int] = frozenset(),
    ) -> None:
        """Replays admissions after a line of the journal; of one crawl only, or of all `but` some."""
        crawls = self._queues.crawls
        for line, number, lines in self._journal.admitted_since(seq, only):
            self._alive()
            self.replayed_lines += len(lines)
            for text in lines:
                item, crawl_number, found_url = parse_line(text)
                if item >= counts.next_item:
                    counts.next_item = item + 1
                crawl = crawls.get(crawl_number)
                if crawl is None or crawl.number in but:
                    continue
                if replayed is not None:
                    replayed.add((item,))
                crawl.seen.replay(seen_key(found_url), is_counted=only is None)
                if crawl.depths is not None and not found_url.key:
                    self._replay_depth(crawl, found_url, item, ended, counts, now)
                    continue
                counts.admitted += 1
                if item not in ended:
                    self._queue_replayed(crawl, found_url, item, now)
            self._seen.note_replayed(line, number, covers=only is None)

    def _replay_depth(
        self, crawl: Crawl, found_url: Found, item: int, ended: Bitmap, counts: FrontierCounters, now: float
    ) -> None:
        """With a `max_depth` an item's last line is valid: `pop` skips its earlier entries."""
        assert crawl.depths is not None
        mark = crawl.seen.fingerprint(found_url.url)
        known = crawl.depths.get(mark)
        counts.admitted += known is None or known.item != item
        crawl.depths[mark] = KnownDepth(found_url.depth, item, ended=item in ended)
        if item not in ended:
            self._queue_replayed(crawl, found_url, item, now)

    def _queue_replayed(self, crawl: Crawl, found_url: Found, item: int, now: float) -> None:
        if item in self._excluded_items:
            return
        attempt, not_before = self._queues.failed_tries(item, now)
        self._queues.enqueue(crawl, found_url, item, attempt, not_before)


def _crawl_record(crawl: Crawl) -> CrawlRecord:
    in_memory = sum(queue.queued for queue in crawl.sites.values())
    return CrawlRecord(crawl.number, crawl.depths is not None, crawl.queued - in_memory, crawl.section.delay_s)


class FinishedItems:
    """The items whose ends a journal has; it is read through when the first item is looked up."""

    def __init__(self, journal: FrontierJournal) -> None:
        self._journal = journal
        self._items: Bitmap | None = None

    def __contains__(self, item: int) -> bool:
        if self._items is None:
            self._items = Bitmap()
            for _, _, numbers in self._journal.done_since(0):
                self._items.add(numbers)
        return item in self._items
