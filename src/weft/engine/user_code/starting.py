"""A spider's own `start()`: called in a parser child, some requests at a time, while the crawl runs.

The number of requests read so far is noted in the transaction that queues them, so that a resume continues behind them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.user_code import calls
from weft.engine.user_code.calls import CallResult
from weft.engine.user_code.running import STARTED, STARTED_ALL, RunningSpider
from weft.errors import BadInput
from weft.frontier.contract import Frontier

REQUESTS_AT_ONCE = 200
CallCode = Callable[[bytes, Callable[[CallResult], None]], None]


class SpiderStart:
    """A periodic task of the process that admits a crawl's seeds."""

    def __init__(self, crawl: RunningCrawl, spider: RunningSpider, frontier: Frontier, call: CallCode) -> None:
        """`call` sends a call to a child, and passes its result to a function."""
        self._crawl = crawl
        self._spider = spider
        self._frontier = frontier
        self._call = call
        noted = frontier.notes.note(STARTED)
        self._queued = 0 if noted in ("", STARTED_ALL) else int(noted)
        spider.is_starting = spider.description.has_start and noted != STARTED_ALL
        self._is_called = False

    def __call__(self, _now: float) -> None:
        """Asks the code for more requests, if it is time."""
        if self._spider.is_starting and not self._is_called and not self._crawl.is_paused:
            self._is_called = True
            self._call(
                calls.encode(calls.Call(calls.START, skip=self._queued, most=REQUESTS_AT_ONCE)), self._queue_requests
            )

    def _queue_requests(self, result: CallResult) -> None:
        if result.error:
            raise BadInput(f"start() of {self._spider.description.title} failed: {result.error}\n{result.traceback}")
        crawl, spider = self._crawl, self._spider
        found = spider.requests_of_start(result.requests, self._queued, partial(crawl.refused_request, parent=0))
        for one in found:
            crawl.add_seed_origin(one.url)
        crawl.count_not_admitted(len(found), self._frontier.queue.admit(crawl.number, found))
        self._queued += len(result.requests)
        self._frontier.notes.note(STARTED, STARTED_ALL if result.is_over else str(self._queued))
        spider.keep_state(result)
        spider.is_starting, self._is_called = not result.is_over, False
