"""`max_pages` for several embedded pods: the number of pages that each may fetch, in one file that they change in
turns.

    DATA/frontier/permits.json    {"max_pages": N, "given": {"0": n, "1": m}}

A pod requests a block, and claims URLs within what the file gives it; permits that it cannot use are returned, after it
has lowered its own limit. So the sum of the given permits never exceeds the limit, a crash between any two steps leaves
permits unused and never doubled, and the limit is reached exactly if there are that many pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from weft.crawl.folder import CrawlFolder
from weft.errors import DiskFull
from weft.files import locked, replace_file

if TYPE_CHECKING:
    from weft.engine.crawls.running_crawl import RunningCrawl
    from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier

LARGEST_BLOCK = 1000
POLL_EVERY_S = 0.05


class _PermitsGiven(msgspec.Struct):
    max_pages: int
    given: dict[str, int]

    @property
    def left(self) -> int:
        return max(0, self.max_pages - sum(self.given.values()))


class Permits:
    """The permits file of a crawl."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = path.with_suffix(".lock")

    @classmethod
    def of(cls, folder: CrawlFolder) -> Permits:
        """The permits file in a crawl's folder."""
        return cls(folder.frontier / "permits.json")

    def begin_run(self, max_pages: int, pages: Mapping[int, int]) -> None:
        """Starts a run, before any pod runs: each pod is given the pages that it has stored already, and no more."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self._lock):
            self._write_file(_PermitsGiven(max_pages, {str(pod): count for pod, count in pages.items()}))

    def permits_of(self, pod: int) -> int:
        """The number of pages that a pod may fetch, including stored ones."""
        with locked(self._lock):
            return self._read_file().given.get(str(pod), 0)

    def permits_left(self) -> int:
        """The permits that no pod has."""
        with locked(self._lock):
            return self._read_file().left

    def raise_to(self, max_pages: int) -> None:
        """Raises the limit of the whole crawl."""
        with locked(self._lock):
            state = self._read_file()
            state.max_pages = max(state.max_pages, max_pages)
            self._write_file(state)

    def claim(self, pod: int, pods: int) -> int:
        """Gives a pod another block, smaller near the limit; returns the number of pages that it may have now."""
        with locked(self._lock):
            state = self._read_file()
            block = min(state.left, max(1, min(LARGEST_BLOCK, state.left // (2 * pods))))
            state.given[str(pod)] = state.given.get(str(pod), 0) + block
            if block:
                self._write_file(state)
            return state.given[str(pod)]

    def give_back(self, pod: int, kept: int) -> None:
        """Returns permits: the pod keeps `kept`, and has lowered its own limit before."""
        with locked(self._lock):
            state = self._read_file()
            state.given[str(pod)] = min(kept, state.given.get(str(pod), 0))
            self._write_file(state)

    def _read_file(self) -> _PermitsGiven:
        return msgspec.json.decode(self._path.read_bytes(), type=_PermitsGiven)

    def _write_file(self, state: _PermitsGiven) -> None:
        replace_file(self._path, msgspec.json.encode(state), durable=False)


class PermitSupply:
    """Keeps one pod's frontier supplied with permits, between its pages."""

    def __init__(self, permits: Permits, frontier: EmbeddedFrontier, crawl: RunningCrawl, pod: int, pods: int) -> None:
        self._permits = permits
        self._frontier = frontier
        self._crawl = crawl
        self._pod = pod
        self._pods = pods
        self._next = 0.0
        self.renew()

    def renew(self) -> None:
        """Sets the limit of the pod's frontier to the permits that the pod has."""
        self._frontier.permits.allow(self._crawl.number, self._permits.permits_of(self._pod))

    def __call__(self, now: float) -> None:
        """Requests permits if URLs wait for them; returns those that the pod cannot use."""
        if now < self._next or self._crawl.is_paused:
            return
        self._next = now + POLL_EVERY_S
        try:
            self._claim_or_return(now)
        except DiskFull:
            pass  # nothing was changed; the crawl waits for disk space anyway

    def _claim_or_return(self, now: float) -> None:
        crawl = self._crawl.number
        stats, left = self._frontier.status.stats(), self._frontier.permits.left(crawl)
        if stats.queued and left <= 0:
            self._frontier.permits.allow(crawl, self._permits.claim(self._pod, self._pods))
            if self._frontier.permits.left(crawl) > 0:
                self._next = now
        elif left > 0 and not stats.queued and not stats.leased:
            used = stats.pages
            self._frontier.permits.allow(crawl, used)
            self._permits.give_back(self._pod, used)
