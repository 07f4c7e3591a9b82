"""The page store: what a crawl has fetched, over any number of data dirs.

A URL's page is in the data dir that `urls.data_dir_of` returns, so the number of data dirs is fixed for a crawl. Each
process writes as its own slot (`pod0-fetcher0`), to files of its own; readers combine all slots.

Must stay true: the promises in `contract`. A batch is a number for each commit, over all data dirs; a crash between two
of their transactions commits a part of a batch, which is harmless, since each page is in only one of them. A batch is
recorded in every data dir, also in those without a row in it: so each index shows by itself whether it has lost rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import count
from operator import itemgetter
from pathlib import Path

import msgspec

from weft import urls
from weft.alive import Alive, silent
from weft.errors import BadInput
from weft.records import FetchResult, PastVisit, Row, RowOutput
from weft.store.contract import CurrentContents, Stats, StoredPage
from weft.store.corpus import Corpus
from weft.store.errors import rebuild_advice
from weft.store.index import schema
from weft.store.index.index_writer import CrawlChange, RowNumbers, SlotIndex
from weft.store.index.query import EVERY_ROW, RowFilter
from weft.store.index.visits import Visit
from weft.store.known_pages import KnownPages
from weft.store.repair.after_crash import UnindexedTail
from weft.store.shard import SlotFiles, StoreShard
from weft.store.warc import warc_file
from weft.store.warc.row_field import row_header
from weft.store.warc.warc_records import CONFORMS_TO, PageRecords, RecordMaker, payload_digest


class PageStore:
    """Stores pages and finds them. One thread adds, writes and commits; `sync` may be called from another.

    `batch` is the last batch committed. What is added now is committed by `batch + 1` or later, and durable when `sync`
    has returned `batch + 1` or more; what is added between `write` and `commit` is committed one batch later.
    """

    def __init__(self, data_dirs: Sequence[Path], shards: list[StoreShard], maker: RecordMaker, alive: Alive) -> None:
        """Use `open`."""
        self._shards = shards
        self._maker = maker
        self._corpus = Corpus(data_dirs, alive)
        self.read_back = 0  # rows that the index had lost and that were restored from the WARC files
        self._sync_lock = threading.Lock()
        self._attempts = self.batch = self.durable = 0
        self._keeps_warc, self.keeps_text = True, False
        self._numbers = RowNumbers()

    @classmethod
    def open(
        cls,
        data_dirs: Sequence[Path | str],
        *,
        crawl_id: str = "",
        slot: str = "pod0-fetcher0",
        software: str = "Weft",
        user_agent: str = "",
        robots: str = "obey",
        keep: Collection[str] = ("warc",),
        acknowledged: int = 0,
        is_done: Callable[[int], bool] | None = None,
        read_only: bool = False,
        is_checked: bool = False,
        rotate_bytes: int = warc_file.ROTATE_BYTES,
        step: Callable[[str], None] = lambda _: None,
        alive: Alive = silent,
    ) -> PageStore:
        """Opens the store, for reading or as the one writer of a slot, and repairs what a crash left.

        `keep` is what is stored of pages: `warc`, `text`, or both. `acknowledged` is the last batch acknowledged to
        the frontier: an index that ends before it has lost rows. They are restored from the WARC files if `is_done`
        can tell which items the frontier has finished; else the store does not open. `is_checked`: a reader need
        not compare the WARC files with the indexes, since a writer that runs has. `step` is called with the name of
        each step between two durable writes, for tests that kill the process there; `alive` for each piece of what
        grows with the crawl, by the thread that does it.
        """
        folders = [Path(folder) for folder in data_dirs]
        if not folders:
            raise BadInput("a page store needs at least one data dir")
        maker = RecordMaker()
        if read_only:
            return cls._open_for_reading(folders, maker, is_checked, alive)
        warc_file.check_slot(slot)
        _refuse_missing([schema.index_path(folder, slot) for folder in folders], acknowledged)
        names = (warc_file.warc_name(crawl_id, slot, serial) for serial in count(_next_serial(folders)))
        files = SlotFiles(maker, _warcinfo_fields(crawl_id, software, user_agent, robots), names, rotate_bytes)
        shards: list[StoreShard] = []
        numbers = RowNumbers()
        try:
            for place, folder in enumerate(folders):
                facts = {"crawl_id": crawl_id, "data_dirs": len(folders), "data_dir": place}
                shards.append(StoreShard(folder, slot, facts, files, step, numbers, alive))
            store = cls(folders, shards, maker, alive)
            store._numbers = numbers
            store._keeps_warc, store.keeps_text = "warc" in keep, "text" in keep
            on_disk = [warc_file.files_of(folder / "warc", crawl_id, slot) for folder in folders]
            store._repair_shards(on_disk, acknowledged, is_done)
            return store
        except BaseException:
            for shard in shards:
                shard.close()
            raise

    @classmethod
    def _open_for_reading(cls, folders: list[Path], maker: RecordMaker, is_checked: bool, alive: Alive) -> PageStore:
        store = cls(folders, [], maker, alive)
        if not is_checked:
            store._corpus.check_is_whole()
        if store._corpus.is_empty():
            raise BadInput(f"{folders[0]} holds no crawl: there is no index in it")
        return store

    def add(
        self,
        row: Row,
        result: FetchResult | None,
        *,
        truncated: str | None = None,
        text: str | None = None,
        output: RowOutput | None = None,
    ) -> None:
        """Adds an ended item in memory, its records made and compressed; without a response it becomes a row alone.

        `truncated` is `length`, `time`, `disconnect` or `unspecified`. An empty `row.digest` becomes that of the body
        as received. `text` is stored where the store keeps texts. `output`: what a user's code has made of it.
        """
        page = None
        if not self._keeps_warc:
            page = PageRecords(b"", b"", payload_digest(result.body)) if result is not None and result.status else None
        elif result is not None and result.status:
            response_id, rendered = "", b""
            if result.rendered is not None and result.rendered.html:
                response_id, rendered = self._maker.rendered(row.url, result.rendered, row.fetched_at)
                row = msgspec.structs.replace(row, rendered=len(rendered))
            page = self._maker.page(
                result, truncated, at=row.fetched_at, named=row_header(row), response_id=response_id, rendered=rendered
            )
        else:
            page = self._maker.note(row.url, row.fetched_at, row_header(row))
        if output is not None and page is not None and (page.response or page.note):
            page.output = self._maker.output(row, output)
        self._shard_of(row.url).add(row, page, text if self.keeps_text else None, output)

    def add_revisit(self, row: Row, result: FetchResult, *, of_date: float, not_modified: bool = False) -> None:
        """Adds a page that has not changed since `of_date`: a record that refers to the copy stored then."""
        if self._keeps_warc:
            named = row_header(row)
            page = self._maker.revisit(result, row.digest, of_date, not_modified, at=row.fetched_at, named=named)
        else:
            page = PageRecords(b"", b"", row.digest)
        self._shard_of(row.url).add(row, page)

    def forget(self, items: Collection[int]) -> list[Row]:
        """Drops added rows of these items that are not written yet, and returns the rows; none reaches a file."""
        return [row for shard in self._shards for row in shard.forget(items)]

    def write(self) -> None:
        """Appends added records to the WARC files. DiskFull: nothing is lost, call it again."""
        for shard in self._shards:
            shard.write()

    def commit(self) -> int:
        """Commits the rows of written records; returns the number of their batch. DiskFull: call it again."""
        if any(shard.uncommitted for shard in self._shards):
            self._attempts += 1  # an attempt that succeeded in only some data dirs must not share its number
            for shard in self._shards:
                shard.commit(self._attempts, self.durable)
            self.batch = self._attempts
        return self.batch

    def sync(self, last: bool = False) -> int:
        """Makes committed rows durable, bytes before rows; returns the last durable batch."""
        with self._sync_lock:
            batch = self.batch
            for shard in self._shards:
                shard.sync()
            for shard in self._shards:
                shard.index.sync(last)
            self.durable = batch
            return batch

    def sync_rows(self) -> None:
        """Puts the committed rows on the disk. The next opening detects bytes that a power cut has lost."""
        with self._sync_lock:
            for shard in self._shards:
                shard.index.flush()

    def lost_pages_to_refetch(self) -> list[Row]:
        """The rows whose bytes are gone, found when the store was opened or by a rebuild: to be fetched again.

        A URL of which a whole page is there all the same is not among them. They are given until `readmitted`, in the
        order of their items.
        """
        return [
            row
            for row in self._lost_rows()
            if not any(_is_whole_page(one, row) for one in self.rows_of_url(row.url, row.crawl))
        ]

    def lost_name(self) -> str:
        """A name for all lost pages: the caller that queues them recognises them by it after a crash before
        `readmitted`.
        """
        return sha256(b"".join(b"%d " % row.item for row in self._lost_rows())).hexdigest()[:32]

    def forget_repaired(self) -> None:
        """The rows that `repair` returned are queued again, durably: they are not returned any more."""
        for shard in self._shards:
            shard.index.delete_lost_rows()

    # ── the crawls of an engine ────────────────────────────────────────────────────────────────────────────────────

    def change(self, change: CrawlChange) -> None:
        """Writes a crawl's new record with the next commit; a new state gets the crawl's next number."""
        self._shards[0].change(change)

    def crawls(self) -> list[tuple[int, str, bytes]]:
        """The stored crawls: number, name and record."""
        if self._shards:
            return self._shards[0].index.crawls()
        return [crawl for index in self._corpus.indexes() for crawl in index.crawls()]

    def crawl(self, number: int) -> tuple[str, bytes] | None:
        """The name and record of a stored crawl."""
        return next((one for index in self._corpus.indexes() if (one := index.crawl(number)) is not None), None)

    def crawl_named(self, name: str) -> int | None:
        """The number of the crawl of that name."""
        return next((one for index in self._corpus.indexes() if (one := index.crawl_named(name)) is not None), None)

    def last_batch(self) -> int:
        """The last committed batch, as a reader sees it."""
        return max((index.last_batch() for index in self._corpus.indexes()), default=0)

    def keep_visited(self, crawl: int, visits: Iterable[PastVisit]) -> None:
        """Stores earlier visits of pages that a crawl will request, until the crawl is forgotten."""
        self._shards[0].index.keep_visited(crawl, visits)

    def visited(self, crawl: int, urls: Sequence[str]) -> dict[str, PastVisit]:
        """The stored earlier visits of a crawl's pages, by URL."""
        return self._shards[0].index.visited(crawl, urls)

    def crawls_with_rows(self) -> set[int]:
        """The crawls that have stored something."""
        return {crawl for index in self._corpus.indexes() for crawl in index.crawls_with_rows()}

    def last_number(self, crawl: int) -> int:
        """The number of a crawl's last row or change of state, as committed."""
        return self._numbers.last_number(crawl)

    def forget_crawls(self, crawls: Sequence[int], at_most: int = 500) -> bool:
        """Deletes a part of the data of several crawls in a few transactions, which are most of the cost of a small
        crawl.
        """
        return sum(shard.forget_crawls(crawls, at_most) for shard in self._shards) == len(self._shards)

    def numbered(self, crawl: int, after: int, limit: int) -> list[tuple[int, Row]]:
        """A crawl's rows after a number, in the order of their numbers."""
        return self.rows_and_changes(crawl, after, limit)[0]

    def changes(self, crawl: int, after: int, limit: int) -> list[tuple[int, float, str, str]]:
        """A crawl's changes of state after a number: number, time, state, reason."""
        return self.rows_and_changes(crawl, after, limit)[1]

    def rows_and_changes(
        self, crawl: int, after: int, limit: int
    ) -> tuple[list[tuple[int, Row]], list[tuple[int, float, str, str]]]:
        """A crawl's rows and its changes of state after a number, at most `limit` of each, consistent with each
        other.
        """
        rows, changes = list[tuple[int, Row]](), list[tuple[int, float, str, str]]()
        for index in self._corpus.indexes():
            some, others = index.rows_and_changes(crawl, after, limit)
            rows += some
            changes += others
        return sorted(rows, key=itemgetter(0))[:limit], sorted(changes)[:limit]

    def timeline(self, crawl: int, after: int, upto: int) -> list[tuple[int, int, str, int, int]]:
        """A crawl's rows between two numbers by second, status and kind of error: how many, and their bytes."""
        return [entry for index in self._corpus.indexes() for entry in index.timeline(crawl, after, upto)]

    def page_numbers(self, crawl: int, after: int, upto: int) -> list[int]:
        """The numbers of a crawl's pages, without errors and redirects, between two numbers, in order."""
        return sorted(number for index in self._corpus.indexes() for number in index.page_numbers(crawl, after, upto))

    def lost_pages(self, crawl: int) -> int:
        """How many pages of a crawl of an engine have lost their bytes (see `keep_lost`)."""
        return sum(index.lost_pages(crawl) for index in self._corpus.indexes())

    def may_come_again(self, crawl: int, after: int) -> None:
        """Notes that rows of items beyond this one may be visits of URLs that have a row in that crawl (0: in their
        own). Durable when this returns; called before such URLs are queued: readers rely on it.
        """
        for shard in self._shards:
            shard.index.may_come_again(crawl, after)

    def keep_lost(self, rows: Iterable[Row]) -> None:
        """Keeps rows from `repair` that will not be fetched again as pages without bytes, so that readers can report
        the loss. Committed when this returns.
        """
        for row in rows:
            self.may_come_again(row.crawl, row.item - 1)
            self.add(msgspec.structs.replace(row, warc_file="", warc_offset=0, warc_length=0, digest=""), None)
        self.write()
        self.commit()

    def highest_number(self, crawl: int) -> int:
        """The number of a crawl's last row or change of state; 0 if there is none."""
        return max((index.highest_number(crawl) for index in self._corpus.indexes()), default=0)

    def batches(self, after: int, limit: int) -> list[tuple[int, int, int, int]]:
        """The commits after a batch, of all crawls: batch, position in it, crawl and number, in order."""
        entries = [entry for index in self._corpus.indexes() for entry in index.batches(after, limit)]
        return sorted(entries)

    def verify(self) -> Iterator[int]:
        """Checks all rows of this slot, in pieces of some milliseconds: yields how many rows each had. DamagedIndex if
        one is not what was written. An earlier check that did not come to its end is continued."""
        for shard in self._shards:
            yield from shard.index.verify()

    def items_since(self, batch: int) -> list[int]:
        """The items that this slot has committed after a batch, in order: the frontier may lack their ends."""
        return sorted(item for shard in self._shards for item in shard.index.items_since(batch))

    def close(self) -> None:
        """Writes, commits and syncs what is left, and releases the slot."""
        try:
            if self._shards:
                self.write()
                self.commit()
                self.sync(last=True)
                for shard in self._shards:
                    shard.index.note_durable(self.durable)
                    shard.index.seal()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Releases the slot without a commit: uncommitted rows are lost."""
        with self._sync_lock:
            self._corpus.close()  # before the writers: the last connection to close removes the log
            for shard in self._shards:
                shard.close()
            self._shards = []

    def latest_page(self, url: str, crawl: int = 0) -> StoredPage | None:
        """The latest complete page of a URL; else its latest page, response or row. A later visit that failed or found
        no change hides no earlier copy.
        """
        return self._corpus.latest_page(url, crawl)

    def row_of(self, url: str, crawl: int = 0) -> Row | None:
        """The row of the page that `get` returns; the page itself is not read."""
        return self._corpus.row_of(url, crawl)

    def rows_of_url(self, url: str, crawl: int = 0) -> list[Row]:
        """Every row of a URL, oldest first."""
        return self._corpus.rows_of_url(url, crawl)

    def with_visits(self, rows: Iterable[Row]) -> Iterator[tuple[Row, list[Visit]]]:
        """Rows, each with all visits of its URL, oldest first."""
        return self._corpus.with_visits(rows)

    def outputs_of(self, items: Sequence[int]) -> dict[int, RowOutput]:
        """The outputs of a user's code for pages, by item; pages without output are left out."""
        return self._corpus.outputs_of(items)

    def new_outputs(
        self, seen: dict[Path, int], passed: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[int, RowOutput]]:
        """See `Corpus.new_outputs`."""
        return self._corpus.new_outputs(seen, passed)

    def items_made(self, crawl: int = 0) -> int:
        """How many items a user's code has produced."""
        return self._corpus.items_made(crawl)

    def known_pages(self) -> KnownPages:
        """The pages that are stored now, for a recrawl."""
        return self._corpus.known_pages()

    def read_page(self, row: Row) -> StoredPage:
        """The page of a row."""
        return self._corpus.read_page(row)

    def warc_path(self, row: Row) -> Path:
        """The WARC file of a row's record."""
        return self._corpus.warc_path(row)

    def text(self, row: Row) -> str | None:
        """The latest text of a row's URL if it is stored as a file, or None."""
        return self._corpus.text(row)

    def rows_of(self, crawl: int) -> Iterator[Row]:
        """The rows of one crawl in the order of their numbers, without reading other crawls; for 0 all rows, by
        item.
        """
        if not crawl:
            yield from self.rows()
            return
        after = 0
        while some := self.numbered(crawl, after, 1000):
            yield from (row for _, row in some)
            after = some[-1][0]

    def rows(self, where: RowFilter = EVERY_ROW) -> Iterator[Row]:
        """Rows in the order of their items, in constant memory."""
        return self._corpus.rows(where)

    def new_rows(self, seen: dict[Path, int], passed: Callable[[], None] = lambda: None) -> Iterator[Row]:
        """The rows committed since the last call with this `seen` (empty at first), each slot's in order; `passed` is
        called when `seen` changes.

        For following a running crawl: the cost grows with the new rows only.
        """
        return self._corpus.new_rows(seen, passed)

    def committed_so_far(self) -> dict[Path, int]:
        """A `seen` for `new_rows`: what is committed after this call is new."""
        return {index.path: index.last_batch() for index in self._corpus.indexes()}

    def url_of(self, item: int) -> str | None:
        """The URL of an item: a row's `parent` is one."""
        return self._corpus.url_of(item)

    def stats(self, top: int = 20, slots: str = "", crawl: int = 0) -> Stats:
        """The totals of the crawl, or of the slots whose names begin with `slots` (`pod1-`)."""
        return self._corpus.stats(top, slots, crawl)

    def current(self, top: int = 0, crawl: int = 0) -> CurrentContents:
        """The current contents of one crawl, or all: each URL of a crawl counted once; `top` hosts with the
        most pages.
        """
        return self._corpus.current(top, crawl)

    def kinds(self, depth: int | None = None) -> dict[tuple[int, str], int]:
        """How many rows there are of each status and error; with a depth, of those found there (0: seeds)."""
        return self._corpus.kinds(depth)

    def _lost_rows(self) -> list[Row]:
        rows = (row for shard in self._shards for row in shard.index.lost_rows())
        return sorted(rows, key=lambda row: row.item)

    def _shard_of(self, url: str) -> StoreShard:
        if len(self._shards) == 1:
            return self._shards[0]
        return self._shards[urls.data_dir_of(url, len(self._shards))]

    def _repair_shards(
        self, on_disk: list[list[str]], acknowledged: int, is_done: Callable[[int], bool] | None
    ) -> None:
        indexes = [shard.index for shard in self._shards]
        behind = _indexes_behind(indexes, acknowledged)
        if behind and is_done is None:
            raise _older_index_error(behind[0])
        self._attempts = self.batch = max(acknowledged, *(index.meta_number("batch") for index in indexes))
        durable = max(index.meta_number("durable") for index in indexes)
        tail = None if is_done is None else UnindexedTail(is_done, self._next_batch)
        for shard, names in zip(self._shards, on_disk, strict=True):
            # An index that has every acknowledged batch has the row of every finished item.
            may_be_behind = shard.index.meta_number("batch") < acknowledged
            if may_be_behind:
                shard.index.may_come_again(0, -1)  # its notes may be lost, too
            back = shard.repair(durable, names, tail if may_be_behind else None)
            if shard.index in behind and not back:
                raise _older_index_error(shard.index)
            self.read_back += back
        for index in indexes:
            index.begin_at_batch(self.batch)
        self.sync()

    def _next_batch(self) -> int:
        self._attempts = self.batch = self._attempts + 1
        return self.batch


def _is_whole_page(row: Row, lost: Row) -> bool:
    is_same = row.request == lost.request
    return is_same and bool(row.warc_file) and 200 <= row.status < 300 and row.is_whole


def _indexes_behind(indexes: list[SlotIndex], acknowledged: int) -> list[SlotIndex]:
    """The indexes that have lost rows: they end before a batch that was on the disk in every data dir."""
    if any(index.is_rebuilt() for index in indexes):
        return []
    return [index for index in indexes if index.meta_number("batch") < acknowledged]


def _older_index_error(index: SlotIndex) -> BadInput:
    return BadInput(f"{index.path} is older than the crawl, it has lost rows: {rebuild_advice(index.path.parent)}")


def _refuse_missing(paths: list[Path], acknowledged: int) -> None:
    """Checks, before any file is created, that every data dir has an index if the crawl has committed something."""
    for path in paths if acknowledged else ():
        if not path.exists() or not path.stat().st_size:
            raise BadInput(
                f"{path} is missing or empty, though the crawl has stored rows: {rebuild_advice(path.parent)}"
            )


def _next_serial(folders: list[Path]) -> int:
    """A serial after every existing file, in all data dirs: a name is used once."""
    there = (name for folder in folders for name in warc_file.files_in(folder / "warc"))
    return 1 + max(map(warc_file.warc_serial, there), default=-1)


def _warcinfo_fields(crawl_id: str, software: str, user_agent: str, robots: str) -> dict[str, str]:
    return {
        "software": software,
        "format": "WARC File Format 1.1",
        "conformsTo": CONFORMS_TO,
        "robots": robots,
        "http-header-user-agent": user_agent,
        "isPartOf": crawl_id,
    }
