"""Runs `weft extract DIR --failed` in a process that owns a pod (see `extraction_requests`)."""

from __future__ import annotations

from weft.config import Config
from weft.crawl.folder import CrawlFolder
from weft.crawl.items.extraction_requests import last_request, report, reported
from weft.engine.assembly import Fetching
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.loop.loop_parts import parsers_of
from weft.engine.parsing.parsers import Parsers
from weft.engine.user_code.reextraction import Reextraction
from weft.engine.user_code.sources import loading_of
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.telemetry import Log

log = Log("weft.crawl.items.again_failed")


class FailedAgain:
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
        self._number = reported(folder, pod).number  # of the last request that is done
        self._requested = self._number
        self._pass: Reextraction | None = None
        self._parsers: Parsers | None = None
        self.read()

    @property
    def is_busy(self) -> bool:
        """Whether a request is in progress: the crawl must not end."""
        return self._requested > self._number

    def read(self) -> None:
        """Checks for a new request."""
        requested = last_request(self._folder)
        if requested > self._requested and self._pass is not None:
            self._end()  # the code may have changed
        self._requested = requested

    def __call__(self, _now: float) -> None:
        """Continues with the request."""
        if not self.is_busy:
            return
        if self._pass is None:
            self._begin()
        assert self._pass is not None
        self._pass.turn()
        if self._pass.is_over:
            made = self._pass.made
            report(self._folder, self._pod, self._requested, made)
            self._number = self._requested
            self._end()
            log.always("failed pages were extracted again", pages=made.pages, items=made.items, failed=made.failed)

    def close(self) -> None:
        """Stops; the next process continues with the request."""
        if self._pass is not None:
            self._end()

    def _begin(self) -> None:
        parts = self._parts
        self._parsers, _ = parsers_of(self._config, loading_of(self._config, self._frontier.notes))
        parts.transports.watch(self._parsers.fileno(), lambda: None)
        parts.parsers.renew()  # the crawl continues with the same code
        self._pass = Reextraction(
            self._crawl, self._frontier.revisits, parts.store, parts.results.round, self._parsers, self._pod, parts.step
        )

    def _end(self) -> None:
        assert self._parsers is not None
        self._parts.transports.unwatch(self._parsers.fileno())
        self._parsers.close()
        self._pass = self._parsers = None
