"""One pass over the stored pages whose callback has failed: calls the user's code for them again, and commits the
results. No request is sent.

A page that succeeds gets a row of its own under a new number, which counts for it from then on: the error is cleared.
Its number, the requests and the items are in one commit of the loop: the frontier's part first, then the row. After a
crash between the two, the requests are queued and the page still counts as failed; the next pass reads it again, and
its requests have the same keys.

A part of the process that owns the frontier and the store, called between pages; bounded work at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import msgspec

from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.loop.round import Round
from weft.engine.loop.stop import CALLBACK_ERROR
from weft.engine.parsing.parsers import Parsers, PendingPage
from weft.engine.stored.stored_page import fetch_result_of
from weft.engine.user_code.again import call_again, has_come_again, lease_of, result_of, spec_in_output
from weft.engine.user_code.calls import CallResult, Reextracted
from weft.errors import WeftError
from weft.frontier.embedded.revisits import EmbeddedRevisits
from weft.records import POD_SHIFT, Found, Row, RowOutput
from weft.store.index.query import RowFilter
from weft.store.pages import PageStore
from weft.telemetry import Log

MOST_AHEAD = 32  # pages at the children at a time
_ROWS_AT_ONCE = 250  # read in one call: some milliseconds
NOT_STORED = "its body is not stored"
log = Log("weft.engine.user_code.reextraction")


class Reextraction:
    """A pass of one pod. `is_over` is True when every failed page was tried once, and the results are committed."""

    def __init__(
        self,
        crawl: RunningCrawl,
        revisits: EmbeddedRevisits,
        store: PageStore,
        round_: Round,
        parsers: Parsers,
        pod: int,
        step: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`parsers` have loaded the current code, and serve only this pass. `step`: see `PageStore.open`."""
        assert crawl.spider is not None
        self.made = Reextracted()
        self.is_over = False
        self._crawl, self._spider = crawl, crawl.spider
        self._revisits = revisits
        self._store = store
        self._round = round_
        self._parsers = parsers
        self._step = step
        self._pages_left: Iterator[tuple[Row, RowOutput | None] | None] = self._failed_pages(pod)
        self._is_read = not _has_failures(store, crawl.number)
        self._at_children: dict[int, tuple[Row, RowOutput | None]] = {}  # by request number
        self._returned: list[PendingPage] = []
        self._until_batch = 0
        parsers.on_done = self._returned.append

    def turn(self) -> None:
        """Sends pages, and receives results. DiskFull and similar errors: nothing is lost, call it again."""
        while not self._is_read and len(self._at_children) < MOST_AHEAD:
            try:
                one = next(self._pages_left)
            except StopIteration:
                self._is_read = True
                break
            if one is None:
                break
            self._send_page(*one)
        self._parsers.turn()
        while self._returned:
            self._accept_result(self._returned[0])
            del self._returned[0]
        self.is_over = self._is_read and not self._at_children and self._store.batch >= self._until_batch

    def _failed_pages(self, pod: int) -> Iterator[tuple[Row, RowOutput | None] | None]:
        """The pages that count as failed, in the order of their items; None between them, so that a long search can be
        interrupted.
        """
        where = RowFilter(
            after_item=(pod << POD_SHIFT) - 1, upto_item=self._revisits.last_number, crawl=self._crawl.number
        )
        rows = self._store.rows(where)
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            failed = [row for row in some if row.error.startswith(CALLBACK_ERROR)]
            outputs = self._store.outputs_of([row.item for row in failed])
            for row, visits in self._store.with_visits(failed):
                output = outputs.get(row.item)
                if len(visits) == 1 or not has_come_again(self._store, row, output):
                    yield row, output
            yield None

    def _send_page(self, row: Row, output: RowOutput | None) -> None:
        try:
            pending = call_again(self._parsers, self._store, row, output)
        except WeftError as error:
            self.made.fail(row.url, f"its body cannot be read: {type(error).__name__}", str(error))
            return
        if pending is None:
            self.made.fail(row.url, NOT_STORED)
        else:
            self._at_children[pending.position] = row, output

    def _accept_result(self, pending: PendingPage) -> None:
        row, output = self._at_children[pending.position]
        result = result_of(self._parsers, pending)
        if result.printed:
            log.info("printed", url=row.url, text=result.printed[:4000])
        if result.error:
            self.made.fail(row.url, result.error, result.traceback)
        else:
            self._store_result(row, output, result)
        del self._at_children[pending.position]

    def _store_result(self, row: Row, output: RowOutput | None, result: CallResult) -> None:
        crawl, spider, lease = self._crawl, self._spider, lease_of(row, spec_in_output(output))
        stored = self._store.read_page(row)
        known = Found(row.url, row.depth, row.parent, row.hops, key=f"read-again-{row.item}")
        requests = spider.requests_of_page(lease, result.requests, partial(crawl.refused_request, parent=row.item))
        if requests:
            self._round.add_urls(crawl, requests)
        number = self._revisits.number_again(crawl.number, known)
        fetched, truncated = fetch_result_of(stored)
        error = "wrong_length" if truncated else ""
        again = msgspec.structs.replace(row, item=number, error=error, warc_file="", warc_offset=0, warc_length=0)
        self._store.add(again, fetched, truncated=truncated, output=spider.output_for_row(lease, result))
        spider.keep_state(result)
        self._until_batch = self._store.batch + 1
        self.made.pages += 1
        self.made.items += len(result.items)
        self.made.requests += len(result.requests)
        progress = crawl.progress
        progress.status.items += len(result.items)
        progress.errors[CALLBACK_ERROR] -= 1
        progress.statuses[str(row.status)] += 1
        if 200 <= row.status < 300:
            progress.count_page(row.url, row.length)
        self._step("read-again")


def _has_failures(store: PageStore, crawl: int) -> bool:
    return any(error.startswith(CALLBACK_ERROR) for error in store.stats(0, crawl=crawl).errors)
