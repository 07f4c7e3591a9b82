"""What a recrawl found: which pages are new, changed, gone or moved since the visit before."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from weft.crawl.folder import CrawlFolder
from weft.records import POD_SHIFT, Row
from weft.store.pages import PageStore
from weft.store.query import Where


class Changes(Struct):
    """URLs by what became of them; unchanged and failed ones are only counted."""

    new: list[str] = []
    changed: list[str] = []
    gone: list[str] = []
    moved: list[str] = []
    unchanged: int = 0
    failed: int = 0

    def summary(self) -> str:
        """`3 new, 12 changed, 1 gone, 2 moved, 900 unchanged, 0 failed`."""
        counts = {name: len(getattr(self, name)) for name in ("new", "changed", "gone", "moved")}
        counts |= {"unchanged": self.unchanged, "failed": self.failed}
        return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def changes(folder: CrawlFolder) -> Changes | None:
    """The report of the last recrawl; None if there was none."""
    began = folder.recrawl()
    if not began:
        return None
    store = PageStore.open(folder.data_dirs, read_only=True)
    found = Changes([], [], [], [])
    try:
        for row, before in _visits(store, began):
            _sort(found, row, before)
    finally:
        store.abandon()
    return found


def _visits(store: PageStore, began: dict[int, int]) -> Iterator[tuple[Row, Row | None]]:
    """Each URL that ended since, with its last good visit before. Each pod numbers its own items."""

    def is_new(row: Row) -> bool:
        return row.item > began.get(row.item >> POD_SHIFT, row.item)

    for row in filter(is_new, store.rows(Where(after_item=min(began.values())))):
        visits = store.for_url(row.url)
        if visits[-1].item != row.item:
            continue  # a later visit of the same round tells more
        good = [one for one in visits if not is_new(one) and 200 <= one.status < 300]
        yield row, good[-1] if good else None


def _sort(found: Changes, row: Row, before: Row | None) -> None:
    if row.status == 304:
        found.unchanged += 1
    elif 200 <= row.status < 300:
        if before is None:
            found.new.append(row.url)
        else:
            found.changed.append(row.url)
    elif before is None:
        return  # never was a page: nothing of it has changed
    elif row.status in (404, 410):
        found.gone.append(row.url)
    elif 300 <= row.status < 400:
        found.moved.append(row.url)
    else:
        found.failed += 1
