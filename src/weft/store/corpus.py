"""Reads what a crawl has stored: the indexes of all slots in all data dirs, as one.

It may be read at any time, also while processes write: what is committed is visible. Memory does not grow with the
crawl.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from weft import urls
from weft.alive import Alive, silent
from weft.errors import BadInput
from weft.records import Row, RowOutput
from weft.store import text
from weft.store.contract import CurrentContents, Stats, StoredPage
from weft.store.errors import rebuild_advice
from weft.store.index.hosts import MOST_HOSTS
from weft.store.index.query import EVERY_ROW, IndexReader, RowFilter
from weft.store.index.replaced import HASHES_TOGETHER, ReplacedCounts, group_by_url, host_counts
from weft.store.index.schema import index_path, row_hash, slot_of_index
from weft.store.index.visits import Visit, repeated_hashes
from weft.store.known_pages import KnownPages
from weft.store.warc.warc_file import files_in, slot_of_file, warc_name, warc_serial
from weft.store.warc.warc_read import read_record, read_records

_POD_IN_INDEX_NAME = re.compile(r"index-(pod\d+)-").match


class Corpus:
    """The reading side of a page store. Indexes are opened when they are first seen, and kept open."""

    def __init__(self, data_dirs: Sequence[Path], alive: Alive = silent) -> None:
        """`alive` is called from inside long statements."""
        self._data_dirs = list(data_dirs)
        self._alive = alive
        for folder in self._data_dirs:
            if folder.exists() and not folder.is_dir():
                raise BadInput(f"data dir {folder} is a file: name the folder that holds the crawl")
        self._open_indexes: dict[Path, IndexReader] = {}

    def is_empty(self) -> bool:
        """Whether there is no index."""
        return not self._all_indexes()

    def check_is_whole(self) -> None:
        """Refuses a crawl whose pages cannot all be found: a WARC file is in its slot's index before it is made.

        Without this an index that is missing, or was emptied, would only make the crawl look smaller.
        """
        for place, folder in enumerate(self._data_dirs):
            on_disk = sorted(files_in(folder / "warc"))  # before the indexes
            indexes = {slot_of_index(index.path): index for index in self._indexes_in(place)}
            crawls = {index.crawl_id() for index in self._all_indexes()}
            known: dict[str, Collection[str]] = {slot: index.files() for slot, index in indexes.items()}
            for name in on_disk:
                slot = slot_of_file(name)
                # Files of another crawl are ignored; without any index, ownership is unknown.
                if not crawls or name.rpartition("/")[2] in {
                    warc_name(str(crawl), slot, warc_serial(name)) for crawl in crawls
                }:
                    self._check_file(folder, name, slot, known.get(slot))

    def _check_file(self, folder: Path, name: str, slot: str, known: Collection[str] | None) -> None:
        path = index_path(folder, slot)
        if known is None:
            raise BadInput(f"{path} is missing or empty, and warc/{name} belongs to it: {rebuild_advice(folder)}")
        if name not in known and (folder / "warc" / name).exists():  # otherwise it was forgotten during this check
            raise BadInput(f"{path} has no entry for warc/{name}: {rebuild_advice(folder)}")

    def latest_page(self, url: str, crawl: int = 0) -> StoredPage | None:
        """The latest complete page of a URL; else the latest page, its latest response, its latest row.

        A later visit that failed, broke off, or found the page unchanged (304) does not hide an earlier copy.
        """
        latest = self.row_of(url, crawl)
        return self.read_page(latest) if latest else None

    def row_of(self, url: str, crawl: int = 0) -> Row | None:
        """The row of the page that `get` reads."""
        rows = self.rows_of_url(url, crawl)
        rows = [row for row in rows if not row.request] or rows  # requests other than a GET of the URL hide none
        stored = [row for row in rows if row.warc_file]
        good = [row for row in stored if 200 <= row.status < 300]
        whole = [row for row in good if row.is_whole]
        return max(whole or good or stored or rows, key=attrgetter("fetched_at", "item"), default=None)

    def rows_of_url(self, url: str, crawl: int = 0) -> list[Row]:
        """Every row of a URL, oldest first; of one crawl, or of all (0)."""
        rows = (row for index in self._indexes_in(self._data_dir_number(url)) for row in index.rows_of_url(url, crawl))
        return sorted(rows, key=attrgetter("fetched_at", "item"))

    def with_visits(self, rows: Iterable[Row]) -> Iterator[tuple[Row, list[Visit]]]:
        """Rows, each with all visits of its URL, oldest first: read for a thousand rows at a time."""
        left = iter(rows)
        while some := list(islice(left, HASHES_TOGETHER)):
            by_place: dict[int, set[int]] = {}
            for row in some:
                by_place.setdefault(self._data_dir_number(row.url), set()).add(row_hash(row))
            visits: dict[tuple[str, str], list[Visit]] = {(row.url, row.request): [] for row in some}
            for place, hashes in by_place.items():
                for visit in (visit for index in self._indexes_in(place) for visit in index.visits([*hashes])):
                    if (asked := (visit.url, visit.request or "")) in visits:
                        visits[asked].append(visit)
            for visits_of_url in visits.values():
                visits_of_url.sort(key=attrgetter("fetched_at", "item"))
            yield from ((row, visits[row.url, row.request]) for row in some)

    def known_pages(self) -> KnownPages:
        """The pages that are stored now, for a recrawl."""
        return KnownPages(self._data_dirs, [self._indexes_in(place) for place in range(len(self._data_dirs))])

    def read_page(self, row: Row) -> StoredPage:
        """The page of a row."""
        if not row.warc_file:
            return StoredPage(row, None)
        path = self.warc_path(row)
        record = read_record(path, row.warc_offset, row.warc_length)
        if not row.rendered:
            return StoredPage(row, record)
        return StoredPage(row, record, tuple(read_records(path, row.warc_offset + row.warc_length, row.rendered)))

    def warc_path(self, row: Row) -> Path:
        """The WARC file of a row's record."""
        return self._data_dirs[self._data_dir_number(row.url)] / "warc" / row.warc_file

    def text(self, row: Row) -> str | None:
        """The text of a row's page if it is stored as a file."""
        return text.read_text(self._data_dirs[self._data_dir_number(row.url)], row.url, row.crawl)

    def rows(self, where: RowFilter = EVERY_ROW) -> Iterator[Row]:
        """Rows in the order of their items."""
        return heapq.merge(*(index.rows(where) for index in self._all_indexes()), key=attrgetter("item"))

    def new_rows(self, seen: dict[Path, int], passed: Callable[[], None] = lambda: None) -> Iterator[Row]:
        """The rows committed since `seen`, the last batch read of each index. It is updated, and `passed` called, when
        all rows of some batches were consumed.
        """
        for index in self._all_indexes():
            while True:
                rows, upto = index.rows_of_next_batches(seen.get(index.path, 0))
                if not rows:
                    break
                yield from rows
                seen[index.path] = upto
                passed()

    def indexes(self) -> list[IndexReader]:
        """Every index that exists now."""
        return self._all_indexes()

    def outputs_of(self, items: Sequence[int]) -> dict[int, RowOutput]:
        """The outputs of a user's code for pages, by item."""
        return {item: output for index in self._all_indexes() for item, output in index.outputs_of(items).items()}

    def new_outputs(
        self, seen: dict[Path, int], passed: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[int, RowOutput]]:
        """The outputs with items, by item, committed since `seen`: like `new_rows`, in the order of the commits."""
        for index in self._all_indexes():
            while True:
                items, upto = index.outputs_committed(seen.get(index.path, 0))
                if upto == seen.get(index.path, 0):
                    break
                for item in items:
                    yield from index.outputs_of([item]).items()
                seen[index.path] = upto
                passed()

    def items_made(self, crawl: int = 0) -> int:
        """How many items a user's code has produced."""
        return sum(index.items_made(crawl) for index in self._all_indexes())

    def url_of(self, item: int) -> str | None:
        """The URL of an item."""
        rows = (index.row_of_item(item) for index in self._all_indexes())
        return next((row.url for row in rows if row), None)

    def stats(self, top: int = 20, slots: str = "", crawl: int = 0) -> Stats:
        """The totals of the crawl, or of the slots with a name prefix; of one crawl of several, or of all."""
        indexes = [index for index in self._all_indexes() if index.path.name.startswith(f"index-{slots}")]
        totals = [index.totals(crawl) for index in indexes]
        some = [total for total in totals if total[0]]
        kinds = [kind for index in indexes for kind in index.kinds(crawl)]
        return Stats(
            rows=sum(total[0] for total in totals),
            pages=sum(total[1] for total in totals),
            body_bytes=sum(total[2] for total in totals),
            warc_bytes=sum(index.warc_bytes(crawl) for index in indexes),
            first=min((total[3] for total in some), default=0.0),
            last=max((total[4] for total in some), default=0.0),
            statuses=_sum_counts(index.counts("status", crawl) for index in indexes),
            errors={
                error: n for error, n in _sum_counts(index.counts("error", crawl) for index in indexes).items() if error
            },
            content_types=_sum_counts(index.counts("content_type", crawl) for index in indexes),
            depths=_sum_counts(index.counts("depth", crawl) for index in indexes),
            hosts=_top_hosts(indexes, top, crawl),
            kinds=_sum_counts({(status, error): rows} for status, error, rows, _ in kinds),
            page_bytes=sum(page_bytes for _, _, _, page_bytes in kinds),
        )

    def current(self, top: int = 0, crawl: int = 0) -> CurrentContents:
        """The current contents of one crawl, or of all: the counts of the rows, without those that are no longer their
        URL's current visit.
        """
        indexes, held = self._all_indexes(), self.stats(0, crawl=crawl)
        kinds, types, depths = Counter(held.kinds), Counter(held.content_types), Counter(held.depths)
        urls_, pages, page_bytes, gone = held.rows, held.pages, held.page_bytes, 0
        replaced = self._count_replaced(crawl, top)
        for (_, status, error, content_type, depth), (rows, their_pages, size, last_of_gone) in replaced.kinds.items():
            urls_ -= rows
            gone += last_of_gone
            kinds[status, error] -= rows
            types[content_type] -= rows
            depths[depth] -= rows
            pages -= their_pages
            page_bytes -= size
        top_hosts = _top_hosts(indexes, top, crawl, host_counts(replaced.hosts))
        return CurrentContents(
            urls_,
            pages,
            gone,
            page_bytes,
            _nonzero_counts(kinds),
            _nonzero_counts(types),
            _nonzero_counts(depths),
            top_hosts,
        )

    def _count_replaced(self, crawl: int = 0, top: int = 0) -> ReplacedCounts:
        """The visits that are not their URL's current one in their crawl."""
        replaced_counts = ReplacedCounts()
        for place in range(len(self._data_dirs)):
            for indexes in _group_by_pod(self._indexes_in(place)):
                if len(indexes) == 1:
                    replaced_counts.add_counts(indexes[0].replaced(crawl, top))
                else:
                    _add_replaced(replaced_counts, indexes, crawl)
        return replaced_counts

    def kinds(self, depth: int | None = None) -> dict[tuple[int, str], int]:
        """URLs by the status and error of their current visit; of one depth, or all."""
        counts: Counter[tuple[int, str]] = Counter()
        for status, error, rows, _ in (kind for index in self._all_indexes() for kind in index.kinds(depth=depth)):
            counts[status, error] += rows
        for (_, status, error, _, at), (rows, _, _, last_of_gone) in self._count_replaced().kinds.items():
            if depth in (None, at):
                counts[status, error] -= rows - last_of_gone
        return _nonzero_counts(counts)

    def close(self) -> None:
        """Closes the connections."""
        for index in self._open_indexes.values():
            index.close()
        self._open_indexes.clear()

    def _all_indexes(self) -> list[IndexReader]:
        return [index for place in range(len(self._data_dirs)) for index in self._indexes_in(place)]

    def _indexes_in(self, place: int) -> list[IndexReader]:
        """Every slot's index in a data dir; a new slot may appear while the crawl runs."""
        paths = sorted(self._data_dirs[place].glob("index-*.db"))
        for path in paths:
            if path not in self._open_indexes:
                self._open_index(path, {"data_dirs": len(self._data_dirs), "data_dir": place})
        return [self._open_indexes[path] for path in paths if path in self._open_indexes]

    def _open_index(self, path: Path, facts: dict[str, object]) -> None:
        index = IndexReader(path, alive=self._alive)
        if index.has_tables(facts):
            self._open_indexes[path] = index
        else:
            index.close()

    def _data_dir_number(self, url: str) -> int:
        return urls.data_dir_of(url, len(self._data_dirs))


def _group_by_pod(indexes: Iterable[IndexReader]) -> Iterable[list[IndexReader]]:
    """The indexes that may have visits of the same URLs: those of one pod."""
    indexes_by_pod: dict[str, list[IndexReader]] = {}
    for index in indexes:
        pod = _POD_IN_INDEX_NAME(index.path.name)
        indexes_by_pod.setdefault(pod[1] if pod else "", []).append(index)
    return indexes_by_pod.values()


def _add_replaced(replaced_counts: ReplacedCounts, indexes: Sequence[IndexReader], crawl: int) -> None:
    """Adds replaced visits of URLs that have rows in several indexes: no single index can detect them, so their visits
    are read.
    """
    if any(index.repeat_notes() for index in indexes):
        hashes = repeated_hashes(indexes)
    else:  # every URL was queued once
        hashes = (
            hash_ for hash_, _ in groupby(heapq.merge(*(sorted(index.redirect_target_hashes()) for index in indexes)))
        )
    while some := list(islice(hashes, HASHES_TOGETHER)):
        for visits in group_by_url(visit for index in indexes for visit in index.visits(some, crawl=crawl)):
            replaced_counts.add_visits(visits)


def _sum_counts(counts: Iterable[dict[Any, int]]) -> dict[Any, int]:
    total: Counter[Any] = Counter()
    for part in counts:
        total.update(part)
    return dict(total.most_common())


def _nonzero_counts(counts: Counter[Any]) -> dict[Any, int]:
    return {key: count for key, count in counts.most_common() if count > 0}


def _top_hosts(
    indexes: list[IndexReader], top: int, crawl: int = 0, less: Mapping[str, int] = MappingProxyType({})
) -> list[tuple[str, int]]:
    """The hosts with the most pages; counts come sorted by host from each index, so merging keeps none in memory."""
    every = top > MOST_HOSTS  # all hosts, exactly
    counts_by_index = (index.hosts(crawl) if every else index.top_hosts(crawl) for index in indexes if top)
    merged = heapq.merge(*counts_by_index, key=itemgetter(0))
    groups = groupby(merged, key=itemgetter(0))
    summed = ((host, sum(n for _, n in group) - less.get(host, 0)) for host, group in groups)
    return heapq.nsmallest(top, summed, key=lambda pair: (-pair[1], pair[0]))
