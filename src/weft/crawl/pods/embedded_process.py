"""The embedded frontier of a fetcher process: alone, or as a pod that exchanges links with other pods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from weft.config import Config
from weft.crawl.folder import CrawlFolder
from weft.crawl.items.again_failed import FailedPagesTask
from weft.crawl.pods.exchange import Exchange
from weft.crawl.pods.permits import Permits, PermitSupply
from weft.crawl.processes.process_spec import ProcessSpec
from weft.engine.assembly import Fetching, PeriodicTask, retry_while_locked
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.login.checking import checked_login
from weft.engine.loop.long_work import LongWork
from weft.engine.loop.parser.handoff import HandoffParts
from weft.engine.machine import open_clock
from weft.engine.recovery import readmit_links_of_stored_pages
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.embedded.embedded_routing import ReceivedEffects
from weft.telemetry import Peer


class EmbeddedBackend:
    """The frontier in this process."""

    gather_s = 0.0
    outlet: HandoffParts | None = None
    peers: Collection[Peer] = ()

    def __init__(self, spec: ProcessSpec, folder: CrawlFolder, work: LongWork) -> None:
        self._spec = spec
        self._folder = folder
        self._exchange: Exchange | None = None
        self._permits: PermitSupply | None = None
        self._failed_again: FailedPagesTask | None = None
        self.owner = spec.slot.name
        home, section = folder.pod_folder(spec.pod), spec.config.politeness
        machine = open_clock(section)
        opened = partial(EmbeddedFrontier, home, section, pod=spec.pod, pods=spec.pods, machine=machine, alive=work)
        self.frontier = retry_while_locked(partial(opened, revision=folder.settings_record().revision))

    def owns(self, url: str) -> bool:
        """Every URL if this is the only pod; otherwise those of its domains."""
        return self.frontier.pods.owns(url)

    def restore_links(self, parts: Fetching, crawl: RunningCrawl) -> None:
        """Restores links after a power cut, or for a frontier that was created again; also records what the request log
        has lost."""
        frontier, progress = self.frontier, parts.progress
        progress.count_repair("request_log_lines", frontier.recovery.unreadable_requests)
        progress.count_repair("request_log_bytes", frontier.recovery.missing_log_bytes)
        if frontier.recovery.may_lack_links:
            read, again = readmit_links_of_stored_pages(
                frontier, parts.store, lambda _: crawl, self._spec.pod, parts.work, parts.parsers
            )
            progress.count_repair("links_read_again", read)
            progress.count_repair("visited_again", again)

    def on_first_seeds_admitted(self) -> None:
        """Does nothing: the pod has no other fetchers that wait."""

    def on_all_seeds_admitted(self) -> None:
        """Does nothing: this process itself knows whether it still admits seeds."""

    def await_seeds(self, send_heartbeat: Callable[[], None]) -> None:
        """Does nothing: this process has admitted them itself."""

    def periodic_tasks(self, parts: Fetching, crawl: RunningCrawl) -> Sequence[PeriodicTask]:
        """The tasks of a pod among others: messages to and from the other pods, and permits for pages."""
        self.frontier.queue.forbids = lambda _number, record, origin, urls: crawl.robots_book.forbidden_urls(
            record, origin, urls
        )
        spec, frontier, folder = self._spec, self.frontier, self._folder
        if (login := checked_login(spec.config)) is not None:
            crawl.log_in(login, frontier.logins)
        if spec.pods == 1:
            return []
        metrics, outbox = parts.metrics, frontier.pods.outbox

        def receive(received: ReceivedEffects) -> None:
            for _, url in received.scopes:
                crawl.extend(url)
            for _, count, admission in received.admissions:
                crawl.count_not_admitted(count, admission)
                if admission.expand:
                    parts.results.round.expand(crawl, admission.expand)

        exchange = Exchange(
            folder.pod_folder, frontier, spec.pod, spec.pods, spec.crawl_id, receive, metrics.count_received_links
        )
        self._exchange = exchange
        metrics.before_save.append(lambda: metrics.record_outbox(outbox.unacknowledged_messages))
        if spec.config.limits.max_pages is None:
            return [exchange]
        self._permits = PermitSupply(Permits.of(folder), frontier, crawl, spec.pod, spec.pods)
        return [exchange, self._permits]

    def failed_pages_task(self, parts: Fetching, crawl: RunningCrawl) -> FailedPagesTask | None:
        """For a crawl with user code: the task that processes failed pages again."""
        if crawl.spider is None:
            return None
        self._failed_again = FailedPagesTask(
            self._folder, self._spec.config, parts, self.frontier, crawl, self._spec.pod
        )  # fmt: skip
        return self._failed_again

    def apply_edit(self, config: Config) -> None:  # noqa: ARG002
        """Applies changed settings: a pod among others keeps its share of `max_pages`."""
        if self._permits is not None:
            self._permits.renew()

    def close(self) -> None:
        """Closes the connections to other pods."""
        if self._failed_again is not None:
            self._failed_again.close()
        if self._exchange is not None:
            self._exchange.close()
