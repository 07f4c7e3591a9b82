"""Gives committed items to the pipelines of a spider, which run in the process that has the spider's object.

A part of the process that fetches: between pages it sends some items to that child, and commits what came of them with
the position (`ProcessedItems`). A child that dies or hangs at several items gets them one by one: the item that it
fails at twice is counted as lost.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from weft.crawl.items.processed import ProcessedItems
from weft.crawl.items.reading import CommittedItem, ItemReader
from weft.engine.loop.parser.parsing import MOST_LOGGED
from weft.engine.loop.progress import CrawlStatus
from weft.engine.user_code.calls import ITEMS, Call, CallResult, ProcessedItem, encode
from weft.errors import BadInput
from weft.telemetry import Log

ITEMS_AT_ONCE = 100  # items that are read, and committed, together
POLL_EVERY_S = 0.25
CallCode = Callable[[bytes, Callable[[CallResult], None]], None]
log = Log("weft.crawl.items.processing")


class ItemProcessing:
    """The periodic task that runs pipelines."""

    def __init__(self, data_dirs: Sequence[Path], call: CallCode, status: CrawlStatus) -> None:
        """`call` sends a call to the child with the spider's object, and gives its result to a function."""
        self._call = call
        self._status = status
        self._processed_items = ProcessedItems(data_dirs)
        self._reader = ItemReader(data_dirs, copy.deepcopy(self._processed_items.state.position))
        self._waiting: list[CommittedItem] = []  # read, and not processed
        self._processed: list[ProcessedItem] = []  # ... and processed, but not committed
        self._most_items = ITEMS_AT_ONCE  # items in a call
        self._sent_items = 0
        self._is_open = False  # the pipelines were called in this run
        self._is_called = False
        self._poll_at = 0.0

    def __call__(self, _now: float) -> None:
        """Sends the next items, if there are some."""
        if not self._is_called and time.monotonic() >= self._poll_at:
            self._send_next()

    def finish(self, wait: Callable[[], None], *, whole: bool) -> None:
        """The crawl has ended: waits for what is under way, and with `whole` for all that is committed."""
        while self._is_called or (whole and self._send_next()):
            wait()
        self._processed_items.close()
        self._reader.close()

    def _send_next(self) -> bool:
        """Whether there was something to send."""
        if not self._waiting:
            self._waiting = self._reader.read_some(ITEMS_AT_ONCE)
            self._most_items = ITEMS_AT_ONCE
        if not self._waiting and self._is_open:
            self._poll_at = time.monotonic() + POLL_EVERY_S
            return False
        some = self._waiting[: self._most_items]
        self._sent_items, self._is_called, self._is_open = len(some), True, True
        self._call(encode(Call(ITEMS, items=[one.whole or one.json for one in some])), self._accept)
        return True

    def _accept(self, result: CallResult) -> None:
        self._is_called = False
        if result.printed:
            log.info("printed", text=result.printed[:MOST_LOGGED])
        self._status.stop = self._status.stop or result.stop
        processed = result.processed
        if result.is_over:
            raise BadInput(f"the item pipelines cannot be opened: {result.error}\n{result.traceback}")
        if result.error and not self._sent_items:
            raise BadInput(f"the item pipelines cannot be opened: {result.error}")
        if result.error and self._sent_items > 1:
            self._most_items = 1  # one of them is to blame
            return
        if result.error:
            log.warning("a pipeline has failed", error=result.error)
            processed = [ProcessedItem(error=result.error, traceback=result.traceback)] * self._sent_items
        del self._waiting[: len(processed)]
        self._processed += processed
        if not self._waiting and self._processed:
            self._processed_items.commit(self._reader.position, self._processed)
            self._processed = []
