"""The frontier of a fetcher and what comes with it: for a crawl in one process, an embedded pod among others, or
Redis."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from weft.config import Config
from weft.crawl.folder import CrawlFolder
from weft.crawl.items.again_failed import FailedPagesTask
from weft.crawl.processes.process_spec import ProcessSpec
from weft.engine.assembly import Fetching, PeriodicTask
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.loop.long_work import LongWork
from weft.engine.loop.parser.handoff import HandoffParts
from weft.engine.loop.progress import CrawlProgress
from weft.frontier.contract import Frontier
from weft.telemetry import Peer


class FrontierBackend(Protocol):
    """One kind of frontier, opened for a fetcher."""

    @property
    def frontier(self) -> Frontier: ...

    owner: str  # of the process's leases
    gather_s: float  # how long ended transfers are batched before they are reported
    outlet: HandoffParts | None  # the queue to parser processes
    peers: Collection[Peer]  # for the metrics of open connections

    def owns(self, url: str) -> bool:
        """Whether the URL belongs to this pod."""

    def restore_links(self, parts: Fetching, crawl: RunningCrawl) -> None:
        """Admits the links of stored pages that the frontier may have lost."""

    def on_first_seeds_admitted(self) -> None:
        """Called when the pod's seeds are admitted, or the first part of large files."""

    def on_all_seeds_admitted(self) -> None:
        """Called when all of the pod's seeds are admitted."""

    def await_seeds(self, send_heartbeat: Callable[[], None]) -> None:
        """Waits until the pod's first fetcher has admitted the seeds, if that is another process."""

    def periodic_tasks(self, parts: Fetching, crawl: RunningCrawl) -> Sequence[PeriodicTask]:
        """The periodic tasks of this process for its pod, run between pages."""

    def failed_pages_task(self, parts: Fetching, crawl: RunningCrawl) -> FailedPagesTask | None:
        """The task that calls user code again for failed pages; None if there is no code."""

    def apply_edit(self, config: Config) -> None:
        """Called when the crawl's settings have changed."""

    def close(self) -> None:
        """Closes everything but the frontier, which the assembly closes."""


def backend_of(spec: ProcessSpec, folder: CrawlFolder, progress: CrawlProgress, work: LongWork) -> FrontierBackend:
    """The backend for a process spec; modules of other backends are not imported."""
    if spec.servers:
        from weft.crawl.pods.redis_process import RedisBackend

        return RedisBackend(spec, folder, progress, work)
    from weft.crawl.pods.embedded_process import EmbeddedBackend

    return EmbeddedBackend(spec, folder, work)
