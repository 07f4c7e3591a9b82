"""The changes detected by a recrawl: pages that are new, changed, gone or moved since the previous visit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from msgspec import Struct

from weft.crawl.folder import CrawlFolder, RecrawlStart
from weft.crawl.reports.redirects import leads_to_no_page
from weft.records import POD_SHIFT, Reason, Row
from weft.store.index.query import RowFilter
from weft.store.pages import PageStore

_WITHOUT_PAGE = frozenset(
    {"noindex", "too_large", Reason.CONTENT_TYPE}
)  # errors of responses that are not pages of the crawl


class RecrawlChanges(Struct):
    """URLs by kind of change; unchanged and failed ones are only counted."""

    new: list[str] = []
    changed: list[str] = []
    gone: list[str] = []
    moved: list[str] = []
    unchanged: int = 0
    failed: int = 0

    def summary(self) -> str:
        """A summary: `3 new, 12 changed, 1 gone, 2 moved, 900 unchanged, 0 failed`."""
        counts = {name: len(getattr(self, name)) for name in ("new", "changed", "gone", "moved")}
        counts |= {"unchanged": self.unchanged, "failed": self.failed}
        return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def last_changes(folder: CrawlFolder) -> RecrawlChanges | None:
    """The report of the last recrawl; None if there was none."""
    began = folder.recrawl()
    if not began:
        return None
    store = PageStore.open(folder.data_dirs, read_only=True)
    report = RecrawlChanges([], [], [], [])
    try:
        for row, before in _visits_since(store, began):
            _classify(report, row, before, store)
    finally:
        store.abandon()
    return report


def _visits_since(store: PageStore, began: dict[int, RecrawlStart]) -> Iterator[tuple[Row, Row | None]]:
    """Each URL that ended since, with its last good visit before. Each pod numbers its own items."""

    def was_queued(row: Row) -> bool:
        """Whether a row was queued before the recrawl and first fetched by it: its number is early, its time is not."""
        start = began.get(row.item >> POD_SHIFT)
        return start is not None and row.item <= start.last_item and row.fetched_at >= start.at

    def is_later(row: Row) -> bool:
        start = began.get(row.item >> POD_SHIFT)
        return start is not None and row.item > start.last_item

    last, earliest = (min(getattr(one, name) for one in began.values()) for name in ("last_item", "at"))
    late = store.rows(RowFilter(fetched_since=earliest))
    for row in chain(filter(was_queued, late), filter(is_later, store.rows(RowFilter(after_item=last)))):
        visits = store.rows_of_url(row.url)
        if visits[-1].item != row.item:
            continue  # a later visit of the same recrawl counts
        good = [one for one in visits if not (is_later(one) or was_queued(one)) and 200 <= one.status < 300]
        yield row, good[-1] if good else None


def _classify(report: RecrawlChanges, row: Row, before: Row | None, store: PageStore) -> None:
    if row.status == 304:
        report.unchanged += 1
    elif 200 <= row.status < 300:
        if before is not None:
            report.changed.append(row.url)
        elif row.error.partition(":")[0] not in _WITHOUT_PAGE:
            report.new.append(row.url)
    elif before is None:
        return  # it was never a page: nothing has changed
    elif row.status in (404, 410):
        report.gone.append(row.url)
    elif 300 <= row.status < 400 and not leads_to_no_page(store, row):
        report.moved.append(row.url)
    else:
        report.failed += 1
