"""How an embedded frontier is restored: the last checkpoint, then a replay of the journal since.

The queue is what was admitted minus what has ended. A checkpoint restores the queues as they were; items that have
ended since are skipped when they are popped, so that a restart need not look at every one of millions of URLs.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from weft.alive import Alive, silent
from weft.frontier.durability.checkpoint import LAYOUT, Header, OpenItem, Reader, Writer, temporary_of
from weft.frontier.durability.saving import Saving
from weft.frontier.journal import Journal, sync_log
from weft.frontier.scheduling.queues import Queues
from weft.frontier.scheduling.sites import Crawl, KnownDepth
from weft.frontier.scheduling.spill import SpillQueue
from weft.frontier.seen import seen_key
from weft.records import Found, Purpose
from weft.removal import Trash

_PIECE = 1000  # sites between two signs of life
LETTER = {Purpose.PAGE: "p", Purpose.SITEMAP: "s"}
_PURPOSE = {letter: purpose for purpose, letter in LETTER.items()}


class Counts(Struct):
    """Counters that a restart restores."""

    next_item: int
    admitted: int = 0
    finished: int = 0
    last_transient: int = -1

    def transient(self) -> int:
        """A negative number, for an item that is not in the journal: a robots.txt request."""
        self.last_transient -= 1
        return self.last_transient


class Recovery:
    """Writes checkpoints and restores from them."""

    def __init__(self, folder: Path, journal: Journal, queues: Queues, trash: Trash, alive: Alive = silent) -> None:
        self._path = folder / "checkpoint"
        self._trash = trash
        self._alive = alive
        self.is_restored = False  # what is opened from now on is restored by itself
        self.replayed_lines = 0  # by `restore`: what the checkpoint did not have
        self._journal = journal
        self._queues = queues
        self._aside: Container[int] = ()  # items that an edit has excluded
        self._before = 0  # the checkpoint includes all items before this one
        self._unused: list[Path] = []  # folders of queues to be deleted after a checkpoint that is being written
        self._replayed = Bitmap()  # items admitted by the journal since; filled by `restore(remember=True)`

    def knows(self, item: int) -> bool:
        """Whether the checkpoint or the journal has an item; valid after `restore(remember=True)`."""
        return item < self._before or item in self._replayed

    def save(self, counts: Counts, out: Callable[[], list[OpenItem]]) -> None:
        """Writes a checkpoint; everything must be committed to the journal."""
        self._writing(counts, out)()

    def save_beside(self, counts: Counts, out: Callable[[], list[OpenItem]]) -> Saving:
        """The same in a process of its own; files that it reads are deleted after it (`saved`)."""
        write = self._writing(counts, out)
        self._queues.resting.rows.keep_files()
        SpillQueue.unused = set()

        def in_child() -> None:
            self._queues.resting.rows.reopen()
            write()

        return Saving(in_child)

    def written(self) -> int:
        """How much of the checkpoint that is being written is in its file."""
        try:
            return temporary_of(self._path).stat().st_size
        except OSError:
            return 0

    def saved(self) -> None:
        """The process has ended."""
        temporary_of(self._path).unlink(missing_ok=True)  # of one that was killed
        self._queues.resting.rows.delete_kept()
        for path in SpillQueue.unused or ():
            path.unlink(missing_ok=True)
            self._alive()
        SpillQueue.unused = None
        folders, self._unused = self._unused, []
        for folder in folders:
            self.delete(folder)

    def delete(self, folder: Path) -> None:
        """Deletes the queues of a crawl that has ended, once no process reads them."""
        if SpillQueue.unused is None:
            self._trash.discard(folder)
        else:
            self._unused.append(folder)

    def _writing(self, counts: Counts, out: Callable[[], list[OpenItem]]) -> Callable[[], None]:
        seq = self._journal.last_seq()

        def write() -> None:
            sync_log(self._journal.path)
            self._write(seq, counts, out())

        return write

    def _write(self, seq: int, counts: Counts, out: list[OpenItem]) -> None:
        crawls = [(number, crawl.depths is not None) for number, crawl in self._queues.crawls.items()]
        header = Header(LAYOUT, seq, counts.next_item, counts.admitted, counts.finished, crawls)
        # Items that ended before this process may still lie in a queue, and the lines that say so will not be replayed.
        ended = self._queues.ended.blocks() if isinstance(self._queues.ended, Bitmap) else {}
        Writer(self._path, header, self._queues).write(out, ended)

    def restore(
        self,
        counts: Counts,
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
        self._aside = aside
        reader = Reader(self._path, journal.last_seq(), queues.crawls, self._alive)
        header = reader.header if by_checkpoint else None
        seq = header.seq if header is not None else 0
        ended = Bitmap(reader.ended() if header is not None else None)
        for numbers in journal.done_since(seq):
            counts.finished += ended.add(numbers)
            self.replayed_lines += len(numbers)
            self._alive()
        unrecorded = [item for item in done if item not in ended]
        counts.finished += ended.add(unrecorded)
        queues.ended = ended
        if header is not None:
            self._before = header.next_item
            counts.next_item = max(counts.next_item, header.next_item)
            counts.admitted += header.admitted
            counts.finished += header.finished
            for one in reader.load(queues, now, ended):
                self._put_back(one, now)
        reader.close()
        there = {number for number, _ in header.crawls} if header is not None else set()
        absent = [number for number in queues.crawls if number not in there] if seq else []
        for number in absent:
            # It was not open when the checkpoint was written: what it has is in the journal alone.
            self._replay(0, counts, ended, now, None, number)
        replayed = self._replayed if remember else None
        self._replay(seq, counts, ended, now, replayed, but=frozenset(absent))
        sites = iter(queues.sites.values())
        while some := list(islice(sites, _PIECE)):
            for site in some:
                queues.schedule(site)
            self._alive()
        return unrecorded

    def _put_back(self, one: OpenItem, now: float) -> None:
        """Queues an item that was out of its queue, before the others."""
        crawl = self._queues.crawls[one.crawl]
        if (known := crawl.known(one.item)) is not None:
            known.ended = False  # its end was not durable; marked as ended it would be skipped by `pop`
        lane = self._queues.lane_at(self._queues.key_of(one.item.url), crawl)
        attempt, not_before = self._queues.tried(one.item.item, now)
        item = msgspec.structs.replace(crawl.at_known_depth(one.item), attempt=attempt or one.item.attempt)
        self._queues.push_urgent(lane, item, not_before, first=True)

    def restore_late(self, crawl: Crawl, counts: Counts, now: float) -> None:
        """Fills the queues of a crawl that is opened after the others were restored."""
        ended = Bitmap()
        for numbers in self._journal.done_since(0):
            ended.add(numbers)
            self._alive()
        before = counts.finished
        self._replay(0, counts, ended, now, None, crawl.number)
        counts.finished = before

    def _replay(
        self,
        seq: int,
        counts: Counts,
        ended: Bitmap,
        now: float,
        replayed: Bitmap | None,
        only: int | None = None,
        but: frozenset[int] = frozenset(),
    ) -> None:
        """Takes up what was admitted after a line of the journal; of one crawl alone, or of all `but` some."""
        crawls = self._queues.crawls
        for lines in self._journal.admitted_since(seq, only):
            self._alive()
            self.replayed_lines += len(lines)
            for line in lines:
                number, depth, parent, hops, offsite, crawl_number, letter, rest = line.split(" ", 7)
                item = int(number)
                if item >= counts.next_item:
                    counts.next_item = item + 1
                crawl = crawls.get(int(crawl_number))
                if crawl is None or crawl.number in but:
                    continue
                if replayed is not None:
                    replayed.add((item,))
                url, _, about = rest.partition(" ")
                found = Found(url, int(depth), int(parent), int(hops), _PURPOSE[letter], about, int(offsite))
                crawl.seen.add(seen_key(found))
                if crawl.depths is not None:
                    self._replay_depth(crawl, found, item, ended, counts, now)
                    continue
                counts.admitted += 1
                if item not in ended:
                    self._enqueue(crawl, found, item, now)

    def _replay_depth(self, crawl: Crawl, found: Found, item: int, ended: Bitmap, counts: Counts, now: float) -> None:
        """With a `max_depth` an item's last line is valid: `pop` skips its earlier entries."""
        assert crawl.depths is not None
        mark = crawl.seen.fingerprint(found.url)
        known = crawl.depths.get(mark)
        counts.admitted += known is None or known.item != item
        crawl.depths[mark] = KnownDepth(found.depth, item, ended=item in ended)
        if item not in ended:
            self._enqueue(crawl, found, item, now)

    def _enqueue(self, crawl: Crawl, found: Found, item: int, now: float) -> None:
        if item in self._aside:
            return
        attempt, not_before = self._queues.tried(item, now)
        self._queues.enqueue(crawl, found, item, attempt, not_before)


class Bitmap:
    """A set of item numbers, a bit for each: they are dense."""

    def __init__(self, blocks: Mapping[int, bytes] | None = None) -> None:
        self._bits = {number: bytearray(block) for number, block in (blocks or {}).items()}

    def blocks(self) -> dict[int, bytes]:
        """Its content, for a checkpoint."""
        return {number: bytes(block) for number, block in self._bits.items()}

    def add(self, items: Iterable[int]) -> int:
        """Adds items; returns how many were given."""
        count = 0
        for item in items:
            block = self._bits.get(item >> 16)
            if block is None:
                block = self._bits[item >> 16] = bytearray(8192)
            block[(item >> 3) & 8191] |= 1 << (item & 7)
            count += 1
        return count

    def __contains__(self, item: object) -> bool:
        assert isinstance(item, int)
        block = self._bits.get(item >> 16)
        return block is not None and bool(block[(item >> 3) & 8191] & (1 << (item & 7)))

    def __bool__(self) -> bool:
        return bool(self._bits)


class Finished:
    """The items that a journal knows to have ended; it is read through when the first one is asked for."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._items: Bitmap | None = None

    def __contains__(self, item: int) -> bool:
        if self._items is None:
            self._items = Bitmap()
            for numbers in self._journal.done_since(0):
                self._items.add(numbers)
        return item in self._items
