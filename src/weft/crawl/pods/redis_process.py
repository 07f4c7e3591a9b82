"""What a process of a pod on Redis has in addition: its frontier among the others, and its chores between pages."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from weft.config import Config
from weft.crawl.folder import CrawlFolder
from weft.crawl.items.again_failed import FailedAgain
from weft.crawl.pods.process_slots import slots
from weft.crawl.processes.frontier_settings import bloom_of, settings_of
from weft.crawl.processes.process_spec import ProcessSpec
from weft.engine.assembly import Fetching, Parts, PeriodicTask
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.folder import CRAWL
from weft.engine.loop.long_work import LongWork
from weft.engine.loop.metrics import EngineMetrics
from weft.engine.loop.parser.handoff import GATHER_S, Outlet
from weft.engine.loop.progress import CrawlProgress
from weft.engine.loop.steps import crash_point
from weft.engine.loop.stop import BLOCKING
from weft.engine.recovery import read_lost
from weft.errors import ServerAway, ServerFull
from weft.frontier.redis.connection import address, asking, connect, peers
from weft.frontier.redis.link import PodLink
from weft.frontier.redis.pod_info import PodIdentity
from weft.frontier.redis.pods.client import PodClient
from weft.frontier.redis.pods.other_pod import OtherPod
from weft.frontier.redis.redis_frontier import RoutedRedisFrontier
from weft.telemetry import Peer

TRY_AGAIN_S = 0.3
OTHERS_TIMEOUT_S = 1.0  # for another pod's answer, which has an outbox to wait in: this pod's pages have none
SCOPES_EVERY_S = 1.0
SEEDS_EVERY_S = 0.05
OUTBOX_EVERY_S = 0.5
MAIL_EVERY_S = 0.2
TEND_EVERY_S = 0.5
PERMITS_EVERY_S = 0.1
LARGEST_BLOCK = 1000
WRITTEN_S = 3.0  # a server that syncs writes after two
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
        self.peers: Collection[Peer] = peers(spec.servers)
        self.outlet: Outlet | None = None
        if (pods := spec.config.pods).parsers_per_pod:
            spool = folder.spool_of(spec.pod)
            self.outlet = Outlet(frontier, spool, spec.slot, pods.parse_soft, pods.parse_hard, crash_point())

    def owns(self, url: str) -> bool:
        """By its domain."""
        return self.frontier.pods.owns(url)

    def restore_links(self, parts: Parts, crawl: RunningCrawl) -> None:
        """After a server has lost its last moments."""
        parts.progress.repaired("links_read_again", read_lost(self.frontier, parts.store, crawl, parts.work))

    def begun(self) -> None:
        """What has to be admitted first is: the pod's other fetchers may begin."""
        self.frontier.notes.note("begun", "1")

    def seeded(self) -> None:
        """All seeds are admitted; until then an empty queue does not end the crawl."""
        self.frontier.notes.note("seeded", "1")

    def await_seeds(self, send_heartbeat: Callable[[], None]) -> None:
        """The pod's first fetcher admits them. A seed that was fetched before that as some page's link would be a step
        too deep, and what it leads to with it."""
        while self._spec.index and not self.frontier.notes.note("begun"):
            send_heartbeat()
            time.sleep(SEEDS_EVERY_S)

    def periodic_tasks(self, parts: Fetching, crawl: RunningCrawl) -> Sequence[PeriodicTask]:
        """Those of every process of the pod, and of its first fetcher those of the lead."""
        spec, frontier = self._spec, self.frontier
        measure(frontier, parts.metrics)
        expand = None if self.outlet is not None else parts.results.round.expand
        periodic_tasks = shared_periodic_tasks(spec, frontier, crawl, expand)
        return (
            [*periodic_tasks, *lead_periodic_tasks(spec, self._folder, frontier, crawl)]
            if spec.index == 0
            else periodic_tasks
        )

    def failed_again(self, parts: Fetching, crawl: RunningCrawl) -> FailedAgain | None:  # noqa: ARG002
        """None: no user's code runs here."""
        return None

    def has_edited(self, config: Config) -> None:
        """Nothing to do: how many pages its pod may have is in Redis."""

    def close(self) -> None:
        """Nothing is left open."""


def measure(frontier: RoutedRedisFrontier, metrics: EngineMetrics) -> None:
    """Counts the links that cross between pods."""
    frontier.pods.crossed = metrics.crossed
    metrics.before_save.append(lambda: metrics.waiting(frontier.pods.outgoing.waiting))


def other_pod(spec: ProcessSpec, folder: CrawlFolder, pod: int) -> OtherPod:
    """Another pod, which is not waited for."""
    usual = settings_of(spec.config)
    settings = replace(
        usual,
        socket_timeout_s=min(usual.socket_timeout_s, OTHERS_TIMEOUT_S),
        connect_timeout_s=min(usual.connect_timeout_s, OTHERS_TIMEOUT_S),
    )
    url = spec.servers[pod]
    link = PodLink(
        connect(url, settings), spec.config.politeness, pod=pod, pods=spec.pods, where=address(url, settings.db),
        identity=PodIdentity(spec.crawl_id, pod, spec.pods),
    )  # fmt: skip
    shelf = folder.of_pod(pod) / "robots.db" if pod in spec.config.pods.here else None
    return OtherPod(pod, PodClient(link, is_afar=shelf is None), shelf)


def open_frontier(
    spec: ProcessSpec, folder: CrawlFolder, progress: CrawlProgress, work: LongWork
) -> RoutedRedisFrontier:
    """The pod's frontier with the others behind it; waits while the pod's own server is away."""
    config, settings = spec.config, settings_of(spec.config)
    connection, where = connect(spec.servers[spec.pod], settings), address(spec.servers[spec.pod], settings.db)
    others = {pod: other_pod(spec, folder, pod) for pod in range(spec.pods) if pod != spec.pod}
    home, revision = folder.of_pod(spec.pod), folder.settings_record().revision
    while True:
        try:
            with asking(where):
                connection.ping()
            frontier = RoutedRedisFrontier(
                connection, home, config.politeness, slot=spec.slot.name, incarnation=spec.incarnation,
                revision=revision, pod=spec.pod, pods=spec.pods, where=where, bloom_filter=bloom_of(config),
                others=others, outbox=home / "outbox" / f"{spec.slot.name}.db", alive=work,
                identity=PodIdentity(spec.crawl_id, spec.pod, spec.pods),
            )  # fmt: skip
            if spec.slot.role == "fetcher" and spec.index == 0:
                for left in _outboxes_left(spec, home / "outbox"):
                    frontier.pods.outgoing.adopt(left, work)
            return frontier
        except (ServerAway, ServerFull) as why:
            progress.write("paused", str(why))
            work.heartbeat.send_heartbeat()
            time.sleep(TRY_AGAIN_S)


def _outboxes_left(spec: ProcessSpec, folder: Path) -> list[Path]:
    """Of slots that an earlier run had, with more processes."""
    filled = {slot.name for slot in slots(spec.config.pods) if slot.pod == spec.pod}
    return [path for path in folder.glob("*.db") if path.stem not in filled]


def every(seconds: float, work: Callable[[], object]) -> PeriodicTask:
    """A chore that is done now and then; a server that is away is the loop's affair, not a chore's."""
    due = 0.0

    def chore(now: float) -> None:
        nonlocal due
        if now >= due:
            due = now + seconds
            try:
                work()
            except BLOCKING:
                pass

    return chore


def shared_periodic_tasks(
    spec: ProcessSpec, frontier: RoutedRedisFrontier, crawl: RunningCrawl, expand: Expand | None
) -> Sequence[PeriodicTask]:
    """Of every process: it hears of places that joined the scope, and empties its outbox.

    `expand` is of who reads pages; the first of those takes what other nodes have left for the pod.
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

    periodic_tasks = [every(SCOPES_EVERY_S, hear_scopes), every(OUTBOX_EVERY_S, empty_outbox)]
    if expand is not None and spec.index == 0 and len(spec.config.pods.here) < spec.pods:
        periodic_tasks.append(every(MAIL_EVERY_S, lambda: frontier.mail.deliver(partial(expand, crawl))))
    return periodic_tasks


def lead_periodic_tasks(
    spec: ProcessSpec, folder: CrawlFolder, frontier: RoutedRedisFrontier, crawl: RunningCrawl
) -> Sequence[PeriodicTask]:
    """Of the pod's first fetcher: long queues, and permits for pages."""
    periodic_tasks = [every(TEND_EVERY_S, frontier.lead.tend)]
    if spec.config.limits.max_pages is not None and spec.pods > 1:
        periodic_tasks.append(every(PERMITS_EVERY_S, RedisPermits(spec, folder, frontier, crawl.number)))
    return periodic_tasks


class RedisPermits:
    """Keeps a pod in permits for pages: pod 0's database holds how many each may have.

    A server that is killed forgets its last moments: a permit is used when pod 0's file has that it was given, and goes
    back when this pod's file has that it is gone. So no two pods ever have the same.
    """

    def __init__(self, spec: ProcessSpec, folder: CrawlFolder, frontier: RoutedRedisFrontier, crawl: int) -> None:
        config = spec.config
        self._frontier = frontier
        self._crawl = crawl
        self._pod = spec.pod
        self._block = max(1, min(LARGEST_BLOCK, (config.limits.max_pages or 1) // (8 * spec.pods)))
        self._first = other_pod(spec, folder, 0) if spec.pod else None

    def __call__(self) -> None:
        """Asks for more where something waits for it, gives back what nothing here can use."""
        stats = self._frontier.status.stats()
        pages, flight, given = self._frontier.permits.given(self._crawl)
        if stats.queued and given - pages - flight <= 0:
            run = self._ask_first(lambda client, _: client.intake.arrived("")).run
            granted = self._give(max(given, pages + flight) + self._block)
            told = self._ask_first(lambda client, _: client.intake.arrived(""))
            if told.run == run and not told.unwritten:  # else it is asked for again
                self._frontier.permits.allow(self._crawl, granted)
        elif given > pages and not (stats.queued or stats.leased or stats.to_parse):
            left = self._frontier.permits.lower_permits(self._crawl, pages)
            self._wait_written()
            self._give(left)

    def _wait_written(self) -> None:
        """There is nothing else to do in this pod."""
        until = time.monotonic() + WRITTEN_S
        while self._frontier.pod.intake.arrived("").unwritten:
            if time.monotonic() > until:
                raise ServerAway("the pod's Redis does not write what it is told")
            time.sleep(0.01)

    def _give(self, wanted: int) -> int:
        return self._ask_first(lambda client, crawl: client.permits.give_permits(crawl, self._pod, wanted))

    def _ask_first(self, what: Callable[[PodClient, int], T]) -> T:
        if self._first is None:
            return what(self._frontier.pod, self._crawl)
        crawl = self._first.number_of(CRAWL)
        return self._first.ask(lambda client: what(client, crawl))
