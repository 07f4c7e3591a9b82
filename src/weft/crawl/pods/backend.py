"""A fetcher's frontier and what comes with it: of a crawl in one process, of an embedded pod among others, on Redis."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from weft.config import Config
from weft.crawl.folder import CrawlFolder
from weft.crawl.items.again_failed import FailedAgain
from weft.crawl.processes.process_spec import ProcessSpec
from weft.engine.assembly import Fetching, PeriodicTask
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.loop.long_work import LongWork
from weft.engine.loop.parser.handoff import Outlet
from weft.engine.loop.progress import CrawlProgress
from weft.frontier.contract import Frontier
from weft.telemetry import Peer


class Backend(Protocol):
    """One kind of frontier, opened for a fetcher."""

    @property
    def frontier(self) -> Frontier: ...

    owner: str  # of its leases
    gather_s: float  # how long ended transfers are batched before they are reported
    outlet: Outlet | None  # to parser processes
    peers: Collection[Peer]  # for the metrics of open connections

    def owns(self, url: str) -> bool:
        """Whether the URL is this pod's."""

    def restore_links(self, parts: Fetching, crawl: RunningCrawl) -> None:
        """Lets in the links of stored pages that the frontier may have lost."""

    def begun(self) -> None:
        """The pod's seeds are admitted, or of large files the first."""

    def seeded(self) -> None:
        """All of the pod's seeds are admitted."""

    def await_seeds(self, send_heartbeat: Callable[[], None]) -> None:
        """Waits until another process has admitted them, where that is its work."""

    def periodic_tasks(self, parts: Fetching, crawl: RunningCrawl) -> Sequence[PeriodicTask]:
        """What this process does for its pod between pages."""

    def failed_again(self, parts: Fetching, crawl: RunningCrawl) -> FailedAgain | None:
        """What calls a user's code again for failed pages; None where there is no such code."""

    def has_edited(self, config: Config) -> None:
        """The crawl follows other settings now."""

    def close(self) -> None:
        """Everything but the frontier, which the assembly closes."""


def backend_of(spec: ProcessSpec, folder: CrawlFolder, progress: CrawlProgress, work: LongWork) -> Backend:
    """The backend that the order names; what another would need is not imported."""
    if spec.servers:
        from weft.crawl.pods.redis_process import RedisBackend

        return RedisBackend(spec, folder, progress, work)
    from weft.crawl.pods.embedded_process import EmbeddedBackend

    return EmbeddedBackend(spec, folder, work)
