"""Makes the one row in which every item ends: counts it, adds it to the store and notes the item's end."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from weft.engine.loop.fetcher.answer import EndedTransfer
from weft.engine.loop.fetcher.verdict import failure_of, refusal_of
from weft.engine.loop.round import Round
from weft.engine.model import end_kind
from weft.engine.parsing.extracted import Extracted
from weft.extract.kind import BodyKind as PageKind
from weft.extract.page import ParsedPage
from weft.frontier.contract import End, Item
from weft.records import Lease, Reason, Row, RowOutput
from weft.store.pages import PageStore

# Why a stored body is incomplete, in WARC's terms.
TRUNCATED = {"truncated": "disconnect", "protocol": "disconnect", "reset": "disconnect", "timeout": "time"}


class RowMaker:
    """Makes rows for one store."""

    def __init__(self, store: PageStore, round_: Round, wall: Callable[[], float] = time.time) -> None:
        self._store = store
        self._round = round_
        self._wall = wall

    def make_row(
        self,
        answer: EndedTransfer,
        *,
        error: str,
        page: ParsedPage | Extracted | None = None,
        final_url: str = "",
        stored: bool = True,
        fields: str = "",
        output: RowOutput | None = None,
    ) -> None:
        """Makes the row of an answer or a failure; one that is not `stored` is only counted. `output`: the result of
        the user's code.
        """
        lease, result, progress, spider = answer.lease, answer.result, answer.crawl.progress, answer.crawl.spider
        if spider is not None and output is None and lease.request:
            output = spider.output_for_row(lease, None)
        status, length = result.status, len(result.body)
        is_page = stored and 200 <= status < 300
        progress.statuses[str(status)] += 1
        if is_page:
            progress.count_page(lease.url, length)
        error = error or result.error or ""
        progress.kinds[status, end_kind(error)] += 1
        if error or status >= 400:
            if reason := refusal_of(status, error):
                progress.refused[reason] += 1
            else:
                progress.errors[failure_of(status, error)] += 1
        row = Row(
            lease.item, lease.crawl, lease.url, final_url or lease.url, status, answer.asked_at,
            answer.head.content_type()[0], (page.charset if page else "") or "", "", (page.title if page else "") or "",
            lease.depth, lease.parent, "", length, error, lease.hops, fields=fields,
            request="" if spider is None else spider.request_of(lease),
        )  # fmt: skip
        truncated = "unspecified" if result.surplus else TRUNCATED.get(result.error or "")
        readable = page is not None and page.kind is not PageKind.OTHER and self._store.keeps_text
        text = page.text if page is not None and readable else None
        self._store.add(row, result if stored else None, truncated=truncated, text=text, output=output)
        self._round.end_with_row(lease, End.PAGE if is_page else End.OTHER)

    def make_unchanged_row(self, answer: EndedTransfer, before: Row) -> None:
        """Makes the row of a visit that found the page unchanged; it refers to the stored copy.

        Its length is that of the received body: zero with a 304.
        """
        lease, result = answer.lease, answer.result
        answer.crawl.progress.statuses["304"] += 1
        answer.crawl.progress.kinds[304, ""] += 1
        row = msgspec.structs.replace(
            before, item=lease.item, status=304, fetched_at=answer.asked_at, depth=lease.depth,
            parent=lease.parent, hops=lease.hops, error="", length=len(result.body), warc_file="", warc_offset=0,
            warc_length=0,
        )  # fmt: skip
        self._store.add_revisit(row, result, of_date=before.fetched_at, not_modified=result.status == 304)
        self._round.end_with_row(lease, End.OTHER)

    def make_refused_row(
        self,
        item: Item | Lease,
        crawl: int,
        reason: Reason,
        detail: str = "",
        *,
        request: str = "",
        output: RowOutput | None = None,
    ) -> None:
        """Makes the row of an item that was not requested; the caller that holds its lease ends it."""
        error = f"{reason}: {detail}" if detail else str(reason)
        row = Row(
            item.item, crawl, item.url, item.url, 0, self._wall(), "", "", "", "",
            item.depth, item.parent, "", 0, error, item.hops, request=request,
        )  # fmt: skip
        self._store.add(row, None, output=output)
