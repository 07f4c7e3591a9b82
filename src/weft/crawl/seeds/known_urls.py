"""Queues known URLs again: all pages (`recrawl`), failures (`retry_failed`), and URLs whose address was refused.

They are queued while the crawl runs, a slice between two rounds of the loop: the first request does not wait for the
walk over all rows. The position of a walk is stored in the frontier with the URLs that it queues, so that a restart
continues there; an interrupted walk is completed by the next start, even if that did not request it.

Invariant: a walk sees what was stored before it began, and nothing later. So its beginning is stored first: the last
item number of the frontier, and the time. A URL that an earlier walk has queued, and whose visit has not ended, has no
row since that walk's beginning; it is not queued a second time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import msgspec

from weft.crawl.folder import CrawlFolder
from weft.crawl.processes.process_spec import ProcessSpec
from weft.crawl.seeds.feeding import SLICE_S
from weft.engine.loop.stop import BLOCKING
from weft.engine.user_code.running import found_from_output
from weft.frontier.contract import Frontier
from weft.frontier.durability.walk import is_walk_unfinished
from weft.records import MAY_SUCCEED, POD_SHIFT, Found, Reason, Row
from weft.store.index.query import RowFilter
from weft.store.index.visits import Visit
from weft.store.pages import PageStore
from weft.telemetry import Log

RECRAWL, RETRY, ADDRESSES = "recrawl", "retry_failed", "addresses_asked"  # names of notes in the frontier
_ROWS_AT_ONCE = 250  # read together: takes some milliseconds
log = Log("weft.crawl.seeds.known_urls")


class WalkStart(msgspec.Struct, frozen=True):
    """The moment at which a walk began."""

    last_item: int = -1
    at: float = 0.0  # wall clock

    def is_before(self, item: int, fetched_at: float) -> bool:
        """Whether a row existed then. The item number alone does not say so: URLs queued before and stored since have
        an early number, too. A time in the future is ignored: the clock was set back."""
        return item <= self.last_item and not self.at <= fetched_at <= time.time()


class KnownUrlsFeed:
    """The walks of one pod. `is_over` when all wanted URLs are queued."""

    def __init__(
        self,
        spec: ProcessSpec,
        folder: CrawlFolder,
        frontier: Frontier,
        store: PageStore,
        owns: Callable[[str], bool],
        crawl: int,
    ) -> None:
        self._spec = spec
        self._folder = folder
        self._frontier = frontier
        self._store = store
        self._owns_url = owns
        self._crawl = crawl
        self._queued = 0
        self._walks_left = list(self._pending_walks())
        self._current_walk: Iterator[None] | None = None
        self.is_over = not self._walks_left

    def __call__(self) -> None:
        """Queues URLs for a short time. If a full disk or an unavailable server causes an error, the next call tries
        again."""
        until = time.monotonic() + SLICE_S
        while not self.is_over:
            self._take_step()
            if time.monotonic() >= until:
                return

    def _take_step(self) -> None:
        if self._current_walk is None:
            self._current_walk = self._walks_left[0]()
        try:
            next(self._current_walk)
        except StopIteration:
            self._current_walk = None
            del self._walks_left[0]
            self.is_over = not self._walks_left
        except BLOCKING:
            self._current_walk = None  # a new one continues at the stored position
            raise

    def _pending_walks(self) -> Iterator[Callable[[], Iterator[None]]]:
        run, note = self._spec.config.run, self._frontier.notes.note
        if run.retry_failed or is_walk_unfinished(note(RETRY)):
            yield partial(self._walk_rows, RETRY, self._spec.run, _may_succeed)
        if run.recrawl or is_walk_unfinished(note(RECRAWL)):
            yield partial(self._walk_rows, RECRAWL, self._spec.run, None)
        before, now = self._allowed_address_kinds()
        if before != now or is_walk_unfinished(note(ADDRESSES)):
            yield partial(self._queue_refused, " ".join(now))

    def _allowed_address_kinds(self) -> tuple[list[str], list[str]]:
        """The kinds of addresses that the crawl was allowed to request before, and those that it is now."""
        fetch = self._spec.config.fetch
        allowed = [name for name, is_on in (("private", fetch.allow_private), ("public", bool(fetch.email))) if is_on]
        before = self._frontier.notes.note("addresses").split()
        return before, before if set(allowed) <= set(before) else sorted({*before, *allowed})

    def _queue_refused(self, now: str) -> Iterator[None]:
        """Queues URLs that were refused for their address, if the settings allow more addresses than before."""
        yield from self._walk_rows(ADDRESSES, now.replace(" ", "+"), _is_address_refused)
        self._frontier.notes.note("addresses", now)

    def _walk_rows(self, name: str, run: str, wanted: Callable[[Row], bool] | None) -> Iterator[None]:
        """Queues the last rows of URLs that are `wanted`; None: every known page, once."""
        self._queued = 0
        stored = partial(self._rows_to_queue, name, wanted)
        yield from self._frontier.revisits.walk(self._crawl, name, run, stored, partial(self._begin_walk, name))
        log.info("has requeued known URLs", kind=name, queued=self._queued)

    def _begin_walk(self, name: str, last_item: int) -> None:
        start = WalkStart(last_item, self._spec.started_at)
        if name == RECRAWL:
            self._folder.begin_recrawl(self._spec.pod, start.at, start.last_item)
        self._frontier.notes.note(f"{name}_from", msgspec.json.encode(start).decode())
        log.info("begins to requeue known URLs", kind=name, up_to_item=last_item)

    def _start(self, note: str) -> WalkStart:
        noted = self._frontier.notes.note(note)
        return msgspec.json.decode(noted, type=WalkStart) if noted else WalkStart()

    def _rows_to_queue(
        self, name: str, wanted: Callable[[Row], bool] | None, after: int
    ) -> Iterator[tuple[int, Found | None]]:
        """The rows of this pod after an item, as links to queue; None for those that are not queued."""
        start, earlier = self._start(f"{name}_from"), self._start(f"{name}_queued")
        where = RowFilter(
            after_item=max(after, (self._spec.pod << POD_SHIFT) - 1),
            upto_item=start.last_item,
            stored=True if wanted is None else None,
            may_change=wanted is not None,
        )
        chosen = _is_first_page if wanted is None else _is_latest_visit
        rows = self._store.rows(where)
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            asked = [row for row in some if self._is_to_queue(row, start, wanted)]
            again = {
                row.item
                for row, visits in self._store.with_visits(asked)
                if chosen(row, visits) and not earlier.is_before(visits[-1].item, visits[-1].fetched_at)
            }
            if again:
                self._store.may_come_again(self._crawl, start.last_item)
            self._queued += len(again)
            outputs = self._store.outputs_of([*again]) if self._spec.config.spider.is_given else {}
            yield from (
                (row.item, found_from_output(row, outputs.get(row.item)) if row.item in again else None) for row in some
            )
        self._frontier.notes.note(f"{name}_queued", self._frontier.notes.note(f"{name}_from"))

    def _is_to_queue(self, row: Row, start: WalkStart, wanted: Callable[[Row], bool] | None) -> bool:
        is_kind = 200 <= row.status < 300 if wanted is None else wanted(row)
        return is_kind and not row.request and start.is_before(row.item, row.fetched_at) and self._owns_url(row.url)


def _is_first_page(row: Row, visits: list[Visit]) -> bool:
    return not any(200 <= other.status < 300 and other.item < row.item for other in visits)


def _is_latest_visit(row: Row, visits: list[Visit]) -> bool:
    return visits[-1].item == row.item


def _is_address_refused(row: Row) -> bool:
    return row.error.partition(":")[0] == Reason.ADDRESS


def _may_succeed(row: Row) -> bool:
    return row.error.partition(":")[0] in MAY_SUCCEED or row.status in (408, 429) or row.status >= 500
