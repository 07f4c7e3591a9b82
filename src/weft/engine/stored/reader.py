"""Reads what an engine has stored from its index: events, rows and pages behind a number.

The engine does the same work for one reader as for fifty: it only notifies them of commits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from weft.engine.crawls.tenant import TenantRecord
from weft.engine.loop.fetcher.verdict import failure_of, refusal_of
from weft.engine.model import CrawlEvent, CrawlState, EndReason, end_name
from weft.engine.stored.stored_page import CrawledPage, read_page
from weft.fetch.headers import Head
from weft.records import PastVisit, Row
from weft.store.errors import UnreadableData
from weft.store.export.warc import RecordLocator
from weft.store.pages import PageStore
from weft.store.warc.heads import ResponseHeads
from weft.telemetry import Log

READ_AT_ONCE = 500
NAMES_KEPT = 10_000
LONGEST_VALIDATOR = 500  # characters of an ETag or a date
log = Log("weft.engine.stored.reader")
_BATCH_BITS = 20  # a cursor over all crawls: the batch, and the position in it


class EngineReader:
    """Reads an engine's stored events, rows and pages directly from the index."""

    def __init__(self, data_dir: Path) -> None:
        # The engine has checked it: thousands of crawls have as many folders of WARC files.
        self._store = PageStore.open([data_dir], read_only=True, is_checked=True)
        self._names: dict[int, str] = {}
        self._response_heads = ResponseHeads(self._store.warc_path)

    def __enter__(self) -> EngineReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._response_heads.close()
        self._store.abandon()

    def events(self, crawl: int, name: str, after: int) -> Iterator[CrawlEvent]:
        """A crawl's rows and changes of state after a number."""
        while True:
            some = self.some_events(crawl, name, after)
            yield from some
            if len(some) < READ_AT_ONCE:
                return
            after = some[-1].number

    def some_events(self, crawl: int, name: str, after: int, limit: int = READ_AT_ONCE) -> list[CrawlEvent]:
        """The next few events of a crawl."""
        rows_found, changes_found = self._store.rows_and_changes(crawl, after, limit)
        rows = [_row_event(name, number, row) for number, row in rows_found]
        changes = [
            CrawlEvent(
                crawl=name,
                kind="state",
                number=number,
                cursor=number,
                at=at,
                state=CrawlState(state),
                reason=EndReason(reason) if reason else None,
            )
            for number, at, state, reason in changes_found
        ]
        return sorted([*rows, *changes], key=lambda event: event.number)[:limit]

    def all_events(self, after: int) -> Iterator[CrawlEvent]:
        """The events of all crawls after a cursor, in the order of their commits."""
        batch, place = after >> _BATCH_BITS, after & ((1 << _BATCH_BITS) - 1)
        while found := self._store.batches(batch - 1 if place else batch, READ_AT_ONCE):
            events = self._events_of_commits(found)
            for at, spot, crawl, number in found:
                # A crawl that is being forgotten has no events any more.
                if (at > batch or spot > place) and (event := events.get((crawl, number))) is not None:
                    yield msgspec.structs.replace(event, cursor=(at << _BATCH_BITS) + spot)
            batch, place = found[-1][0], 0

    def _events_of_commits(self, found: list[tuple[int, int, int, int]]) -> dict[tuple[int, int], CrawlEvent]:
        """The events of some commits, by crawl and number."""
        spans: dict[int, tuple[int, int]] = {}
        for _, _, crawl, number in found:
            first, last = spans.get(crawl, (number, number))
            spans[crawl] = min(first, number), max(last, number)
        events: dict[tuple[int, int], CrawlEvent] = {}
        for crawl, (first, last) in spans.items():
            if name := self._crawl_name(crawl):
                # Numbers have no gaps except those of deleted rows, so these are all events, and few more.
                for event in self.some_events(crawl, name, first - 1, last - first + 1):
                    events[crawl, event.number] = event
        return events

    def settings(self, crawl: int) -> dict[str, Any]:
        """The settings that a crawl was opened with."""
        kept = self._store.crawl(crawl)
        return {} if kept is None else msgspec.msgpack.decode(kept[1], type=TenantRecord).settings

    def crawls(self) -> list[tuple[int, str, TenantRecord]]:
        """Every crawl in the index: number, name and record."""
        return [
            (number, name, msgspec.msgpack.decode(data, type=TenantRecord))
            for number, name, data in self._store.crawls()
        ]

    def rows(self, crawl: int, after: int, limit: int) -> list[tuple[int, Row]]:
        """A crawl's rows after a number, in their order."""
        return self._store.numbered(crawl, after, limit)

    def visit(self, row: Row) -> PastVisit:
        """The result of a visit, for a later crawl that asks conditionally; without validators if the record is
        damaged, or if they are longer than any server needs.
        """
        head = self._response_heads.head_of(row) if row.warc_file else None
        found = Head(head) if head is not None else None
        etag, modified = (found.etag or "", found.last_modified or "") if found is not None else ("", "")
        if max(len(etag), len(modified)) > LONGEST_VALIDATOR:
            etag = modified = ""
        return PastVisit(row.url, row.digest, row.fetched_at, etag, modified)

    def read_page(self, number: int, row: Row) -> CrawledPage | None:
        """The page of a row; None if no response was stored."""
        page = read_page(self._store.read_page(row))
        if page is not None:
            page.number, page.asked_url = number, self._requested_url(row)
        return page

    def read_page_even_damaged(self, number: int, row: Row) -> CrawledPage:
        """The page of a row that has one; if its bytes are damaged or lost, its facts and the error."""
        try:
            page = self.read_page(number, row)
        except UnreadableData as error:
            log.error("a stored page cannot be read", url=row.url, error=error)
            page = None
        if page is None:
            page = CrawledPage(row, (), b"")
            page.number, page.damage = number, "what was stored of this page is damaged or gone"
        return page

    def _requested_url(self, row: Row) -> str:
        """The URL that was requested before redirects led to a row's URL."""
        url, parent = row.url, row.parent
        for hop in range(row.hops, 0, -1):
            before = self._store.url_of(parent)  # the parent of a redirect's target is that redirect
            if before is None:
                break
            url = before
            if hop > 1:
                parent = next((one.parent for one in self._store.rows_of_url(url, row.crawl) if one.item == parent), 0)
        return url

    def records(self, rows: Iterable[Row]) -> Iterator[bytes]:
        """The WARC records of rows, request and response, as gzip members; credentials are masked. Rows without records
        and damaged records are left out.
        """
        places = RecordLocator(self._store.warc_path)
        try:
            for row in rows:
                if row.warc_file:
                    try:
                        yield places.members_of(row)
                    except UnreadableData as error:
                        log.error("a stored record cannot be read", url=row.url, error=error)
        finally:
            places.close()

    def lost_pages(self, crawl: int) -> int:
        """How many pages of a crawl have lost their bytes, as the engine determined at its start."""
        return self._store.lost_pages(crawl)

    def crawl_named(self, name: str) -> int | None:
        """The number of a crawl; None if there is none."""
        return self._store.crawl_named(name)

    def page_numbers(self, crawl: int, after: int, upto: int) -> list[int]:
        """The numbers of a crawl's pages, without errors and redirects, between two numbers, in order."""
        return self._store.page_numbers(crawl, after, upto)

    def last_number(self, crawl: int) -> int:
        """The number of a crawl's last event."""
        return self._store.highest_number(crawl)

    def timeline(self, crawl: int, after: int, upto: int) -> list[tuple[int, int, str, int, int]]:
        """A crawl's rows between two numbers, counted by second, status and kind of error, with their bytes."""
        return self._store.timeline(crawl, after, upto)

    def last_batch(self) -> int:
        """The number of the last commit."""
        return self._store.last_batch()

    def commits_after(self, after: int) -> tuple[int, dict[int, int]]:
        """The changes of the commits after one: the last commit, and by crawl its last number."""
        last: dict[int, int] = {}
        while found := self._store.batches(after, READ_AT_ONCE):
            after = found[-1][0]
            for _, _, crawl, number in found:
                last[crawl] = max(number, last.get(crawl, 0))
        return after, last

    def ends(self, crawl: int) -> dict[str, int]:
        """The committed part of `CrawlSnapshot.ends`."""
        found: Counter[str] = Counter()
        for (status, error), count in self._store.stats(0, crawl=crawl).kinds.items():
            found[end_name(status, error)] += count
        return dict(found)

    def page(self, crawl: int, number: int) -> CrawledPage | None:
        """The page of an event."""
        row = self.row(crawl, number)
        return None if row is None else self.read_page(number, row)

    def row(self, crawl: int, number: int) -> Row | None:
        """The row of an event; None for a change of state."""
        return next((row for found, row in self._store.numbered(crawl, number - 1, 1) if found == number), None)

    def _crawl_name(self, crawl: int) -> str:
        """A crawl's name; empty if it is forgotten or being forgotten."""
        name = self._names.get(crawl)
        if name is None:
            kept = self._store.crawl(crawl)
            name = kept[0] if kept is not None and "/" not in kept[0] else ""
            if len(self._names) >= NAMES_KEPT:
                self._names.clear()
            self._names[crawl] = name  # also an empty one: a number is never reused
        return name


def _row_event(name: str, number: int, row: Row) -> CrawlEvent:
    if refusal_of(row.status, row.error):
        kind = "refusal"
    elif failure_of(row.status, row.error):
        kind = "failure"
    else:
        kind = "redirect" if 300 <= row.status < 400 and row.status != 304 else "page"
    return CrawlEvent(
        crawl=name, kind=kind, number=number, cursor=number, at=row.fetched_at, url=row.url, status=row.status,
        error=row.error, title=row.title, depth=row.depth, length=row.length,
    )  # fmt: skip
