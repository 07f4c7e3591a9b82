"""The pages of earlier visits, which a recrawl looks up: several at a time, each with the validators of its response.

Called by the loop with the URLs of each claim. Invariant: a page that is returned was stored before the recrawl began,
is whole, and its record can be read to its end; a damaged one is left out, so that the visit stores a new copy. Memory
does not grow with the crawl.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from weft import urls
from weft.records import Row
from weft.store.index import schema
from weft.store.index.query import IndexReader
from weft.store.warc.heads import ResponseHeads


class KnownPage(NamedTuple):
    """A page as it was stored last, and the head of its response."""

    row: Row
    head: bytes


class _IndexBefore:
    """An index as it was when the recrawl began."""

    def __init__(self, index: IndexReader) -> None:
        self._index = index
        self._late: dict[int, list[int]] = {}  # positions by hash, of rows that have no keys
        for hash_, seq in index.rows_without_keys():
            self._late.setdefault(hash_, []).append(seq)

    def rows(self, hashes: Sequence[int]) -> list[Row]:
        """The rows of URLs with these hashes."""
        late = [seq for hash_ in hashes for seq in self._late.get(hash_, ())] if self._late else []
        return self._index.rows_of_hashes(hashes, late)


class KnownPages:
    """Looks up known pages. It uses the indexes that exist when it is made: later ones have no earlier visits."""

    def __init__(self, data_dirs: Sequence[Path], indexes: Iterable[Iterable[IndexReader]]) -> None:
        """`indexes`: those of each data dir."""
        self._data_dirs = data_dirs
        self._indexes_before = [[_IndexBefore(index) for index in some] for some in indexes]
        self._heads = ResponseHeads(self._warc_path)

    def find(self, wanted: Iterable[str], crawl: int = 0) -> dict[str, KnownPage]:
        """The known pages among these URLs, with the latest whole copy of each."""
        places: dict[int, dict[int, str]] = {}
        for url in wanted:
            places.setdefault(urls.data_dir_of(url, len(self._data_dirs)), {})[schema.url_hash(url)] = url
        known_pages = dict[str, KnownPage]()
        for place, by_hash in places.items():
            for row in self._latest_rows(place, by_hash, crawl):
                if (head := self._heads.head_of(row)) is not None:
                    known_pages[row.url] = KnownPage(row, head)
        return known_pages

    def close(self) -> None:
        """Closes the WARC files."""
        self._heads.close()

    def _warc_path(self, row: Row) -> Path:
        return self._data_dirs[urls.data_dir_of(row.url, len(self._data_dirs))] / "warc" / row.warc_file

    def _latest_rows(self, place: int, by_hash: dict[int, str], crawl: int) -> Iterable[Row]:
        latest: dict[str, Row] = {}
        wanted = set(by_hash.values())
        for row in (row for before in self._indexes_before[place] for row in before.rows([*by_hash])):
            if row.url not in wanted or not row.warc_file or not 200 <= row.status < 300 or not row.is_whole:
                continue
            if crawl in (row.crawl, 0) and (row.url not in latest or _visit_order(row) > _visit_order(latest[row.url])):
                latest[row.url] = row
        return latest.values()


_visit_order = attrgetter("fetched_at", "item")
