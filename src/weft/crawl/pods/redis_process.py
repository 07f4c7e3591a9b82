"""The frontier of a process of a pod on Redis: shared with the pod's other processes; and its periodic tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from weft.config import Config
from weft.crawl.folder import CrawlFolder
from weft.crawl.items.again_failed import FailedPagesTask
from weft.crawl.pods.process_slots import slots
from weft.crawl.processes.frontier_settings import bloom_filter_of, redis_settings_of
from weft.crawl.processes.process_spec import ProcessSpec
from weft.engine.assembly import Fetching, Parts, PeriodicTask
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.folder import CRAWL_SUFFIX
from weft.engine.loop.long_work import LongWork
from weft.engine.loop.metrics import EngineMetrics
from weft.engine.loop.parser.handoff import GATHER_S, HandoffParts
from weft.engine.loop.progress import CrawlProgress
from weft.engine.loop.steps import crash_point
from weft.engine.loop.stop import BLOCKING
from weft.engine.recovery import readmit_lost_links
from weft.errors import ServerAway, ServerFull
from weft.frontier.redis.connection import address_without_password, connect, convert_errors, server_addresses
from weft.frontier.redis.link import PodLink
from weft.frontier.redis.pod_info import PodIdentity
from weft.frontier.redis.pods.client import PodClient
from weft.frontier.redis.pods.other_pod import OtherPod
from weft.frontier.redis.redis_frontier import RoutedRedisFrontier
from weft.telemetry import Peer

RETRY_AFTER_S = 0.3
OTHERS_TIMEOUT_S = 1.0  # for the answer of another pod, whose messages can wait in an outbox; this pod's pages cannot
SCOPES_EVERY_S = 1.0
SEEDS_EVERY_S = 0.05
OUTBOX_EVERY_S = 0.5
MAIL_EVERY_S = 0.2
TEND_EVERY_S = 0.5
PERMITS_EVERY_S = 0.1
LARGEST_BLOCK = 1000
WRITTEN_WITHIN_S = 3.0  # longer than a server takes that syncs its writes every two seconds
T = TypeVar("T")
Expand = Callable[[RunningCrawl, Iterable[tuple[int, str, int]]], None]


class RedisBackend:
    """The frontier in the pod's Redis, which its other processes share."""

    gather_s = GATHER_S

    def __init__(self, spec: ProcessSpec, folder: CrawlFolder, progress: CrawlProgress, work: LongWork) -> None:
        self._spec = spec
        self._folder = folder
        self.frontier = frontier = open_frontier(spec, folder, progress, work)
        self.owner = frontier.owner
        self.peers: Collection[Peer] = server_addresses(spec.servers)
        self.outlet: HandoffParts | None = None
        if (pods := spec.config.pods).parsers_per_pod:
            spool = folder.spool_folder(spec.pod)
            self.outlet = HandoffParts(frontier, spool, spec.slot, pods.parse_soft, pods.parse_hard, crash_point())

    def owns(self, url: str) -> bool:
        """Whether the URL's domain belongs to this pod."""
        return self.frontier.pods.owns(url)

    def restore_links(self, parts: Parts, crawl: RunningCrawl) -> None:
        """Restores links after a server has lost its last moments."""
        parts.progress.count_repair(
            "links_read_again", readmit_lost_links(self.frontier, parts.store, crawl, parts.work)
        )

    def on_first_seeds_admitted(self) -> None:
        """Notifies the pod's other fetchers that the first seeds are admitted."""
        self.frontier.notes.note("begun", "1")

    def on_all_seeds_admitted(self) -> None:
        """Records that all seeds are admitted; until then an empty queue does not end the crawl."""
        self.frontier.notes.note("seeded", "1")

    def await_seeds(self, send_heartbeat: Callable[[], None]) -> None:
        """Waits for the pod's first fetcher, which admits them. If a seed was fetched before that as a link of some
        page, it and the pages it links to would get a depth that is too high."""
        while self._spec.index and not self.frontier.notes.note("begun"):
            send_heartbeat()
            time.sleep(SEEDS_EVERY_S)

    def periodic_tasks(self, parts: Fetching, crawl: RunningCrawl) -> Sequence[PeriodicTask]:
        """The tasks of every process of the pod; its first fetcher also has those of the whole pod."""
        spec, frontier = self._spec, self.frontier
        record_outbox_metrics(frontier, parts.metrics)
        expand = None if self.outlet is not None else parts.results.round.expand
        periodic_tasks = shared_periodic_tasks(spec, frontier, crawl, expand)
        return (
            [*periodic_tasks, *lead_periodic_tasks(spec, self._folder, frontier, crawl)]
            if spec.index == 0
            else periodic_tasks
        )

    def failed_pages_task(self, parts: Fetching, crawl: RunningCrawl) -> FailedPagesTask | None:  # noqa: ARG002
        """None: user code does not run here."""
        return None

    def apply_edit(self, config: Config) -> None:
        """Does nothing: the pod's permits are in Redis."""

    def close(self) -> None:
        """Does nothing: there is nothing else to close."""


def record_outbox_metrics(frontier: RoutedRedisFrontier, metrics: EngineMetrics) -> None:
    """Counts the links that are sent between pods."""
    frontier.pods.on_links_sent = metrics.count_received_links
    metrics.before_save.append(lambda: metrics.record_outbox(frontier.pods.outgoing.undelivered_messages))


def other_pod(spec: ProcessSpec, folder: CrawlFolder, pod: int) -> OtherPod:
    """A connection to another pod, with a short timeout."""
    usual = redis_settings_of(spec.config)
    settings = replace(
        usual,
        socket_timeout_s=min(usual.socket_timeout_s, OTHERS_TIMEOUT_S),
        connect_timeout_s=min(usual.connect_timeout_s, OTHERS_TIMEOUT_S),
    )
    url = spec.servers[pod]
    link = PodLink(
        connect(url, settings), spec.config.politeness, pod=pod, pods=spec.pods,
        where=address_without_password(url, settings.db),
        identity=PodIdentity(spec.crawl_id, pod, spec.pods),
    )  # fmt: skip
    shelf = folder.pod_folder(pod) / "robots.db" if pod in spec.config.pods.here else None
    return OtherPod(pod, PodClient(link, is_afar=shelf is None), shelf)


def open_frontier(
    spec: ProcessSpec, folder: CrawlFolder, progress: CrawlProgress, work: LongWork
) -> RoutedRedisFrontier:
    """The pod's frontier, connected to the others; waits while the pod's own server is away."""
    config, settings = spec.config, redis_settings_of(spec.config)
    connection, where = (
        connect(spec.servers[spec.pod], settings),
        address_without_password(spec.servers[spec.pod], settings.db),
    )
    others = {pod: other_pod(spec, folder, pod) for pod in range(spec.pods) if pod != spec.pod}
    home, revision = folder.pod_folder(spec.pod), folder.settings_record().revision
    while True:
        try:
            with convert_errors(where):
                connection.ping()
            frontier = RoutedRedisFrontier(
                connection, home, config.politeness, slot=spec.slot.name, incarnation=spec.incarnation,
                revision=revision, pod=spec.pod, pods=spec.pods, where=where, bloom_filter=bloom_filter_of(config),
                others=others, outbox=home / "outbox" / f"{spec.slot.name}.db", alive=work,
                identity=PodIdentity(spec.crawl_id, spec.pod, spec.pods),
            )  # fmt: skip
            if spec.slot.role == "fetcher" and spec.index == 0:
                for left in _outboxes_left(spec, home / "outbox"):
                    frontier.pods.outgoing.adopt_outbox(left, work)
            return frontier
        except (ServerAway, ServerFull) as why:
            progress.write("paused", str(why))
            work.heartbeat.send_heartbeat()
            time.sleep(RETRY_AFTER_S)


def _outboxes_left(spec: ProcessSpec, folder: Path) -> list[Path]:
    """The outboxes of slots of an earlier run with more processes."""
    filled = {slot.name for slot in slots(spec.config.pods) if slot.pod == spec.pod}
    return [path for path in folder.glob("*.db") if path.stem not in filled]


def periodic_task_every(seconds: float, work: Callable[[], object]) -> PeriodicTask:
    """A periodic task that runs `work` at an interval; a server that is away is handled by the loop, not by its
    tasks."""
    due = 0.0

    def periodic_task(now: float) -> None:
        nonlocal due
        if now >= due:
            due = now + seconds
            try:
                work()
            except BLOCKING:
                pass

    return periodic_task


def shared_periodic_tasks(
    spec: ProcessSpec, frontier: RoutedRedisFrontier, crawl: RunningCrawl, expand: Expand | None
) -> Sequence[PeriodicTask]:
    """The tasks of every process: it reads additions to the scope, and empties its outbox.

    `expand` is for processes that read pages; the first of them accepts what other nodes have left for the pod.
    """
    known: set[str] = set()

    def hear_scopes() -> None:
        for url in frontier.notes.scope_extensions(crawl.number):
            if url not in known:
                known.add(url)
                crawl.extend(url)

    def empty_outbox() -> None:
        for admission in frontier.pods.deliver_waiting():
            if admission.expand and expand is not None:
                expand(crawl, admission.expand)

    periodic_tasks = [
        periodic_task_every(SCOPES_EVERY_S, hear_scopes),
        periodic_task_every(OUTBOX_EVERY_S, empty_outbox),
    ]
    if expand is not None and spec.index == 0 and len(spec.config.pods.here) < spec.pods:
        periodic_tasks.append(periodic_task_every(MAIL_EVERY_S, lambda: frontier.mail.deliver(partial(expand, crawl))))
    return periodic_tasks


def lead_periodic_tasks(
    spec: ProcessSpec, folder: CrawlFolder, frontier: RoutedRedisFrontier, crawl: RunningCrawl
) -> Sequence[PeriodicTask]:
    """The tasks of the pod's first fetcher: long queues, and permits for pages."""
    periodic_tasks = [periodic_task_every(TEND_EVERY_S, frontier.spiller.move_segments)]
    if spec.config.limits.max_pages is not None and spec.pods > 1:
        periodic_tasks.append(periodic_task_every(PERMITS_EVERY_S, RedisPermits(spec, folder, frontier, crawl.number)))
    return periodic_tasks


class RedisPermits:
    """Keeps a pod supplied with permits for pages: pod 0's database has the number of each pod.

    A server that is killed loses its last moments: a permit is used only when pod 0's file records that it was given,
    and returned only when this pod's file records that it is gone. So no two pods ever have the same permit.
    """

    def __init__(self, spec: ProcessSpec, folder: CrawlFolder, frontier: RoutedRedisFrontier, crawl: int) -> None:
        config = spec.config
        self._frontier = frontier
        self._crawl = crawl
        self._pod = spec.pod
        self._block = max(1, min(LARGEST_BLOCK, (config.limits.max_pages or 1) // (8 * spec.pods)))
        self._first = other_pod(spec, folder, 0) if spec.pod else None

    def __call__(self) -> None:
        """Requests permits if URLs wait for them; returns those that the pod cannot use."""
        stats = self._frontier.status.stats()
        pages, flight, given = self._frontier.permits.permit_counts(self._crawl)
        if stats.queued and given - pages - flight <= 0:
            run = self._call_first_pod(lambda client, _: client.intake.last_arrival("")).run
            granted = self._give_permits(max(given, pages + flight) + self._block)
            arrived = self._call_first_pod(lambda client, _: client.intake.last_arrival(""))
            if arrived.run == run and not arrived.unwritten:  # otherwise it is requested again
                self._frontier.permits.allow(self._crawl, granted)
        elif given > pages and not (stats.queued or stats.leased or stats.to_parse):
            left = self._frontier.permits.lower_permits(self._crawl, pages)
            self._wait_written()
            self._give_permits(left)

    def _wait_written(self) -> None:
        """Waits until the pod's own writes are on disk; there is nothing else to do in this pod."""
        until = time.monotonic() + WRITTEN_WITHIN_S
        while self._frontier.pod.intake.last_arrival("").unwritten:
            if time.monotonic() > until:
                raise ServerAway("the pod's Redis does not write its data to disk")
            time.sleep(0.01)

    def _give_permits(self, wanted: int) -> int:
        return self._call_first_pod(lambda client, crawl: client.permits.give_permits(crawl, self._pod, wanted))

    def _call_first_pod(self, what: Callable[[PodClient, int], T]) -> T:
        if self._first is None:
            return what(self._frontier.pod, self._crawl)
        crawl = self._first.number_of(CRAWL_SUFFIX)
        return self._first.call(lambda client: what(client, crawl))
