"""Runs `weft extract DIR --failed` in a process that owns a pod (see `extraction_requests`)."""

from __future__ import annotations

from weft.config import Config
from weft.crawl.folder import CrawlFolder
from weft.crawl.items.extraction_requests import last_request, read_report, write_report
from weft.engine.assembly import Fetching
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.loop.loop_parts import make_parsers
from weft.engine.parsing.parsers import Parsers
from weft.engine.user_code.reextraction import Reextraction
from weft.engine.user_code.sources import loading_of
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.telemetry import Log

log = Log("weft.crawl.items.again_failed")


class FailedPagesTask:
    """A periodic task of a process that owns a pod: processes the last extraction request, if that is not done."""

    def __init__(
        self,
        folder: CrawlFolder,
        config: Config,
        parts: Fetching,
        frontier: EmbeddedFrontier,
        crawl: RunningCrawl,
        pod: int,
    ) -> None:
        self._folder = folder
        self._config = config
        self._parts = parts
        self._frontier = frontier
        self._crawl = crawl
        self._pod = pod
        self._request_number = read_report(folder, pod).number  # of the last request that is done
        self._last_request = self._request_number
        self._reextraction: Reextraction | None = None
        self._parsers: Parsers | None = None
        self.read_request()

    @property
    def is_busy(self) -> bool:
        """Whether a request is in progress: the crawl must not end."""
        return self._last_request > self._request_number

    def read_request(self) -> None:
        """Checks for a new request."""
        requested = last_request(self._folder)
        if requested > self._last_request and self._reextraction is not None:
            self._end_pass()  # the code may have changed
        self._last_request = requested

    def __call__(self, _now: float) -> None:
        """Continues with the request."""
        if not self.is_busy:
            return
        if self._reextraction is None:
            self._begin_pass()
        assert self._reextraction is not None
        self._reextraction.turn()
        if self._reextraction.is_over:
            made = self._reextraction.made
            write_report(self._folder, self._pod, self._last_request, made)
            self._request_number = self._last_request
            self._end_pass()
            log.always("failed pages were extracted again", pages=made.pages, items=made.items, failed=made.failed)

    def close(self) -> None:
        """Stops; the next process continues with the request."""
        if self._reextraction is not None:
            self._end_pass()

    def _begin_pass(self) -> None:
        parts = self._parts
        self._parsers, _ = make_parsers(self._config, loading_of(self._config, self._frontier.notes))
        parts.transports.watch(self._parsers.fileno(), lambda: None)
        parts.parsers.replace_children()  # the crawl continues with the same code
        self._reextraction = Reextraction(
            self._crawl, self._frontier.revisits, parts.store, parts.results.round, self._parsers, self._pod, parts.step
        )

    def _end_pass(self) -> None:
        assert self._parsers is not None
        self._parts.transports.unwatch(self._parsers.fileno())
        self._parsers.close()
        self._reextraction = self._parsers = None
